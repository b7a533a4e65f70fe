"""`holdfast jobs schedule`, `pause`, `resume`, `cancel` and `delete`: when a job is crawled, and whether."""

from typing import Annotated

import typer

from holdfast.cli import command_context, output
from holdfast.cli.output import pluralize
from holdfast.errors import UsageError
from holdfast.jobs.cli.context import Which, Yes, job_service
from holdfast.jobs.records import StateChange


def schedule(
    ctx: typer.Context,
    job: Which,
    when: Annotated[
        str | None,
        typer.Argument(metavar="WHEN", help='An interval ("6h") or a cron expression, perhaps with a time zone.'),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Do not crawl it again by itself.")] = False,
    as_json: output.Json = False,
) -> None:
    """Crawl a job repeatedly. `holdfast background` (or `serve`) begins it, running workers crawl it.

    A job that is still running when it is due is not begun twice; missed times count as one.

    Examples:
        holdfast jobs schedule news 6h
        holdfast jobs schedule news "0 3 * * sun Europe/Berlin"
        holdfast jobs schedule news --off
    """
    if (when is None) != off:
        raise UsageError('Say when ("6h", "0 3 * * *"), or --off.')
    next_run_at = job_service(ctx).schedule(job, when)
    if as_json:
        output.print_json({"job": job, "next_run_at": next_run_at})
    elif next_run_at is None:
        output.print_line("It is not crawled again by itself any more.")
    else:
        output.print_line(f"It is crawled again at {output.format_time(next_run_at)} UTC.")


def pause(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Stop work on a job, on all machines. Nothing of it is fetched any more within two seconds, and nothing is lost.

    Examples:
        holdfast jobs pause news
    """
    _print_change(job_service(ctx).pause(job), "paused", as_json)


def resume(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Resume a paused job where it was: running workers continue it, and so does a `crawl` of it that waits.

    Examples:
        holdfast jobs resume news
    """
    with output.ProgressBar("Finding its work again", None, "domain", hidden=as_json) as bar:
        change = job_service(ctx).resume(job, lambda domains: bar.show(domains, domains))
    _print_change(change, "queued for workers", as_json)


def cancel(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """End a job where it is. What it found stays; `holdfast crawl --job NAME --again` would start it anew.

    Examples:
        holdfast jobs cancel news
    """
    _print_change(job_service(ctx).cancel(job), "cancelled", as_json)


def delete(ctx: typer.Context, job: Which, yes: Yes = False, as_json: output.Json = False) -> None:
    """Delete a job with its URLs and pages. The crawl log and the archive keep what was asked of servers, and their answers.

    Examples:
        holdfast jobs delete news
        holdfast jobs delete 3 --yes
    """
    jobs = job_service(ctx)
    found = jobs.show(job)
    if not yes:
        what = f"{pluralize(found.discovered, 'URL')} on {pluralize(found.domains, 'domain')}"
        command_context.confirm(f"Delete job {output.safe(found.name)} with {what}?", "Nothing was deleted.")
    with output.ProgressBar("Deleting", found.discovered or None, "URL", hidden=as_json) as bar:
        name = jobs.delete(found.id, lambda rows: bar.show(rows, rows))
    if as_json:
        output.print_json({"job": name, "deleted": True})
    else:
        output.print_line(f"Deleted job {output.safe(name)}.")


def _print_change(change: StateChange, what: str, as_json: bool) -> None:
    changed = change.after != change.before
    if as_json:
        output.print_json({"id": change.job_id, "job": change.name, "state": change.after, "changed": changed})
    else:
        output.print_line(f"Job {output.safe(change.name)} is {'' if changed else 'already '}{what}.")
