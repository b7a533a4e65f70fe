"""Commands of claims and runs: show them, release stuck claims, close silent runs."""

from datetime import timedelta
from typing import Annotated, Protocol

import typer

from holdfast.cli import command_context, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize
from holdfast.workers.records import ClaimSummary, Run, WorkerClaims
from holdfast.workers.service import WorkerService, check_target

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_MAX_SILENCE = 60 * 24 * 365


class Workers(Protocol):
    """Claims and runs of a store, or of a server."""

    def summary(self) -> ClaimSummary: ...

    def releasable(self, *, force: bool, worker: str | None, domain: str | None) -> list[WorkerClaims]: ...

    def release(self, *, force: bool, worker: str | None, domain: str | None, actor: str) -> int: ...

    def silent_runs(self, older_than: timedelta) -> list[Run]: ...

    def close_silent_runs(self, older_than: timedelta, *, actor: str) -> list[int]: ...


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    for command in (claims, release_stuck_claims, cleanup_stale_runs):
        name = command.__name__.replace("_", "-")
        app.command(name, cls=Command)(command)


def _workers(ctx: typer.Context) -> Workers:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.domains import RemoteWorkers

        return RemoteWorkers(context.client)
    return WorkerService(context.store(), context.settings.domains.registrable)


def claims(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show which worker holds which domain, which claims have expired, and what waits to be claimed.

    Examples:
        holdfast claims
        holdfast claims --json
    """
    found = _workers(ctx).summary()
    if as_json:
        output.print_json(found)
        return
    if found.workers:
        rows = [(w.worker, w.claims, w.expired, output.format_time(w.earliest_expiry)) for w in found.workers]
        output.print_table(["WORKER", "CLAIMS", "EXPIRED", "FIRST EXPIRY"], rows, right="CLAIMS EXPIRED")
    else:
        output.print_line("No domain is held.")
    if found.expired:
        output.print_line("\nExpired claims; the next sweep frees them, or `holdfast release-stuck-claims`")
        expired = [(c.domain, c.worker, output.format_time(c.expires_at)) for c in found.expired]
        output.print_table(["DOMAIN", "WORKER", "EXPIRED"], expired)
        missing = sum(w.expired for w in found.workers) - len(expired)
        if missing > 0:
            command_context.say(f"… and {missing:,} more")
    waiting = ", ".join(f"{count:,} {status}" for status, count in found.waiting.items()) or "none"
    output.print_line(f"\nWaiting to be claimed: {waiting}. Cooling down: {found.cooling:,}.")


def release_stuck_claims(
    ctx: typer.Context,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Also claims that have not expired; needs a target.")] = False,
    worker_id: Annotated[
        str | None,
        typer.Option(
            "--worker-id",
            metavar="ID",
            callback=command_context.valid_text,
            help="The claims of this worker (with --force).",
        ),
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain",
            metavar="NAME",
            callback=command_context.valid_text,
            help="The claim on this domain (with --force).",
        ),
    ] = None,
    all_active: Annotated[bool, typer.Option("--all-active", help="The claims of all workers (with --force).")] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Free claims that are stuck: expired ones and those of dead workers, or with --force those of any worker or on any domain.

    A worker is dead when it sent no heartbeat for 120 s and the database server has ended its session; any running worker frees its
    claims by itself within 150 s. A frozen process keeps its claims until their leases end, or until --force takes them away. A worker
    whose claims are taken away cannot write for those domains any more; its visits end.

    Examples:
        holdfast release-stuck-claims
        holdfast release-stuck-claims --force --worker-id crawler-7 --dry-run
        holdfast release-stuck-claims --force --domain example.com
        holdfast release-stuck-claims --force --all-active --yes
    """
    check_target(force=force, worker=worker_id, all_active=all_active, domain=domain)
    workers = _workers(ctx)
    targets = workers.releasable(force=force, worker=worker_id, domain=domain)
    count = sum(row.claims if force else row.expired for row in targets)
    what = pluralize(count, "claim" if force else "stuck claim")
    if domain is not None:
        whose = f"of worker {output.safe(targets[0].worker)} on {output.safe(domain)}"
    else:
        whose = f"of worker {output.safe(worker_id)}" if worker_id else f"of {pluralize(len(targets), 'worker')}"
    if dry_run:
        _answer(as_json, f"Would release {what} {whose}.", released=0, would_release=count, workers=targets)
        return
    if force and count and not yes:
        command_context.confirm(f"Release {what} {whose}?", "Nothing was released.")
    released = workers.release(force=force, worker=worker_id, domain=domain, actor=actor())
    _answer(
        as_json,
        f"Released {pluralize(released, 'claim' if force else 'stuck claim')}.",
        released=released,
        workers=targets,
    )


def cleanup_stale_runs(
    ctx: typer.Context,
    older_than_minutes: Annotated[
        int, typer.Option(metavar="N", min=1, max=_MAX_SILENCE, help="Silent for at least that long.")
    ] = 60,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Mark runs as failed that say they run but have not been heard of.

    Examples:
        holdfast cleanup-stale-runs --dry-run
        holdfast cleanup-stale-runs --older-than-minutes 10 --yes
    """
    workers = _workers(ctx)
    older_than = timedelta(minutes=older_than_minutes)
    stale = workers.silent_runs(older_than)
    if not as_json and stale:
        rows = [
            (
                run.id,
                run.worker,
                output.format_time(run.started_at),
                output.format_time(run.heartbeat_at),
                run.pages_crawled,
            )
            for run in stale
        ]
        output.print_table(["RUN", "WORKER", "STARTED", "LAST HEARD", "PAGES"], rows, right="RUN PAGES")
    if dry_run or not stale:
        words = f"Would mark {pluralize(len(stale), 'run')} as failed." if stale else "No stale runs found."
        _answer(as_json, words, marked=[], would_mark=[run.id for run in stale])
        return
    if not yes:
        command_context.confirm(f"Mark {pluralize(len(stale), 'run')} as failed?", "Nothing was changed.")
    marked = workers.close_silent_runs(older_than, actor=actor())
    _answer(as_json, f"Marked {pluralize(len(marked), 'run')} as failed.", marked=marked)


def _answer(as_json: bool, sentence: str, **facts: object) -> None:
    if as_json:
        output.print_json(facts)
    else:
        output.print_line(sentence)
