"""Commands about claims and runs: look, and free what is stuck."""

from datetime import timedelta
from typing import Annotated

import typer

from holdfast.cli import output, session
from holdfast.control.claims import ClaimDesk
from holdfast.errors import Refused

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("claims", rich_help_panel="Claims and runs")(claims)
    app.command("release-stuck-claims", rich_help_panel="Claims and runs")(release_stuck_claims)
    app.command("cleanup-stale-runs", rich_help_panel="Claims and runs")(cleanup_stale_runs)


def _desk(context: typer.Context) -> ClaimDesk:
    return ClaimDesk(session.of(context).store())


def claims(context: typer.Context, as_json: output.Json = False) -> None:
    """Show who holds domains, which claims have expired, and what waits to be claimed.

    [dim]Example:[/dim]  holdfast claims --json
    """
    overview = _desk(context).overview()
    if as_json:
        output.print_json(overview)
        return
    if overview.workers:
        rows = [(w.worker, w.claims, w.expired, output.when(w.earliest_expiry)) for w in overview.workers]
        output.print_table(["WORKER", "CLAIMS", "EXPIRED", "EARLIEST EXPIRY"], rows, right="CLAIMS EXPIRED")
    else:
        output.print_line("No domain is held.")
    if overview.expired:
        output.print_line("\nExpired claims (the next sweep frees them, or `holdfast release-stuck-claims`)")
        expired = [(c["domain"], c["worker"], output.when(c["expires_at"])) for c in overview.expired]
        output.print_table(["DOMAIN", "WORKER", "EXPIRED"], expired)
    waiting = ", ".join(f"{count:,} {status}" for status, count in overview.waiting.items()) or "none"
    output.print_line(f"\nWaiting to be claimed: {waiting}. Cooling down: {overview.cooling:,}.")


def release_stuck_claims(
    context: typer.Context,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Also claims that have not expired; needs a target.")] = False,
    worker_id: Annotated[str | None, typer.Option("--worker-id", help="The claims of this worker.")] = None,
    all_active: Annotated[bool, typer.Option("--all-active", help="The claims of all workers.")] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Free claims that are stuck: expired ones, or with --force those of a worker that is dead.

    A worker whose claims are taken away cannot write for those domains any more; its visit ends.

    [dim]Examples:[/dim]

        holdfast release-stuck-claims

        holdfast release-stuck-claims --force --worker-id crawler-7 --dry-run

        holdfast release-stuck-claims --force --all-active --yes
    """
    desk = _desk(context)
    targets = desk.targets(force=force, worker=worker_id, all_active=all_active)
    count = sum(row.claims if force else row.expired for row in targets)
    kind = "claims" if force else "expired claims"
    if dry_run:
        _answer(
            as_json,
            f"Would release {count:,} {kind} of {len(targets)} workers.",
            released=0,
            would_release=count,
            workers=targets,
        )
        return
    if (
        force
        and count
        and not yes
        and not typer.confirm(f"Release {count:,} claims of {len(targets)} workers?", err=True)
    ):
        raise Refused("Nothing was released.")
    released = desk.force_release(worker_id) if force else desk.release_expired()
    _answer(as_json, f"Released {released:,} {kind}.", released=released, workers=targets)


def cleanup_stale_runs(
    context: typer.Context,
    older_than_minutes: Annotated[int, typer.Option(min=1, help="Silent for at least that long.")] = 60,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Mark runs as failed that say they run but have not been heard of.

    [dim]Example:[/dim]  holdfast cleanup-stale-runs --older-than-minutes 10 --dry-run
    """
    desk = _desk(context)
    older_than = timedelta(minutes=older_than_minutes)
    stale = desk.silent_runs(older_than)
    if not as_json and stale:
        rows = [
            (run.id, run.worker, output.when(run.started_at), output.when(run.heartbeat_at), run.pages_crawled)
            for run in stale
        ]
        output.print_table(["RUN", "WORKER", "STARTED", "LAST HEARD", "PAGES"], rows, right="RUN PAGES")
    if dry_run or not stale:
        words = f"Would mark {len(stale)} runs as failed." if stale else "No stale runs."
        _answer(as_json, words, marked=[], would_mark=[run.id for run in stale])
        return
    if not yes and not typer.confirm(f"Mark {len(stale)} runs as failed?", err=True):
        raise Refused("Nothing was changed.")
    marked = desk.close_silent_runs(older_than)
    _answer(as_json, f"Marked {len(marked)} runs as failed.", marked=marked)


def _answer(as_json: bool, sentence: str, **facts: object) -> None:
    if as_json:
        output.print_json(facts)
    else:
        output.print_line(sentence)
