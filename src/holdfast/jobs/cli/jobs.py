"""`holdfast jobs`: list, show, plan, create, edit, log, retry, schedule, pause, resume, cancel, delete, watch and compare jobs."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from shlex import quote
from typing import Annotated, Any, Final

import typer

from holdfast.cli import command_context, output
from holdfast.cli.help import Command, Group
from holdfast.cli.output import format_bytes, pluralize
from holdfast.jobs.cli import compare, create, edit, retry, state, watch
from holdfast.jobs.cli.context import Which, job_service
from holdfast.jobs.records import Job
from holdfast.jobs.service import JobService
from holdfast.jobs.summary import lines as summary_lines
from holdfast.sitemaps.cli import print_sitemaps

app = typer.Typer(
    cls=Group,
    help="Jobs: list, show, compare, create, edit, pause, resume, cancel and delete them.",
    no_args_is_help=True,
)


def listed(ctx: typer.Context, as_json: output.Json = False) -> None:
    """List all jobs.

    Examples:
        holdfast jobs list
        holdfast jobs list --json
    """
    found = job_service(ctx).all()
    if as_json:
        output.print_json(found)
        return
    rows = [
        (
            job.id,
            job.name,
            job.state,
            f"{job.urls_done:,}",
            f"{job.waiting:,}",
            f"{job.failed:,}",
            f"{job.domains:,}",
            job.depth,
        )
        for job in found
    ]
    titles = ["ID", "JOB", "STATE", "DONE", "WAITING", "FAILED", "DOMAINS", "DEPTH"]
    output.print_table(titles, rows, right="ID DONE WAITING FAILED DOMAINS DEPTH")


def show(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Show one job: where it is, what it has done, which URLs were not crawled and why, and what it waits for.

    Examples:
        holdfast jobs show news
        holdfast jobs show 3 --json
    """
    jobs = job_service(ctx)
    found = jobs.show(job)
    summary = jobs.summary(found.id)
    if as_json:
        output.print_json(asdict(found) | {"summary": asdict(summary)})
        return
    output.print_fields(_fields(found))
    output.print_line()
    for line in summary_lines(summary):
        output.print_line(output.safe(line))
    if summary.sources is not None and summary.sources.read:
        print_sitemaps(summary.sources.read)
        if len(summary.sources.read) < summary.sources.sitemaps:
            command_context.say(
                f"{len(summary.sources.read):,} of {summary.sources.sitemaps:,} sitemaps; `holdfast export urls` has all."
            )


def log(
    ctx: typer.Context,
    job: Which,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Show at most N entries.")] = 50,
    as_json: output.Json = False,
) -> None:
    """Show what happened to a job, the newest first: crawls, edits, retries, pauses, starts by its schedule. Times are in UTC.

    Changes that came about by themselves, such as its end, and runs of its own workers are kept for a day; the rest as long as the job.

    Examples:
        holdfast jobs log news
        holdfast jobs log news --limit 10 --json
    """
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        found = RemoteJobs(context.client).events(job, limit)
    else:
        found = JobService(context.store(), command_context.actor()).events(job, limit=limit).rows
    if as_json:
        output.print_json(found)
        return
    rows = [(output.format_time(one.at), one.kind, one.actor or "-", one.text) for one in found]
    output.print_table(["WHEN (UTC)", "KIND", "WHO", "WHAT"], rows)


def _fields(job: Job) -> list[tuple[str, object]]:
    options = ", ".join(f"{name} {_option(value)}" for name, value in job.spec.items() if value not in (None, [], ""))
    pages = f"{job.pages:,} of {job.max_pages:,} pages" if job.max_pages else pluralize(job.pages, "page")
    urls = f"{job.urls_done:,} done, {job.waiting:,} waiting, {job.denied:,} denied, {job.failed:,} failed"
    spent = f"{job.spent:,} at a limit or waiting for a round"
    schedule = f"{job.schedule}, next at {output.format_time(job.next_run_at)} UTC" if job.schedule else "-"
    fields: list[tuple[str, object]] = [
        ("Job", f"{job.name} ({job.id})"),
        ("State", _state(job)),
        ("Created", output.format_time(job.created_at)),
        ("Completed", output.format_time(job.completed_at)),
        ("URLs", f"{job.discovered:,}: {urls}"),
        ("Fetched", f"{pages}, {format_bytes(job.bytes)}, {pluralize(job.errors, 'error')}"),
        ("Domains", f"{job.domains:,}: {job.done:,} done, {job.ready:,} ready, {spent}"),
        ("Depth", job.depth),
        ("Schedule", schedule),
        ("Options", options or "defaults"),
        ("Rules", f"version {job.rules_version}" if job.rules_version else "as it was created"),
    ]
    if job.secrets:
        fields.append(("Sends", f"{', '.join(job.secrets)} to the sites of its seeds (values are not shown)"))
    return fields


def _state(job: Job) -> str:
    if job.out_of_budget:
        ways = f"`holdfast jobs set` raises it, `holdfast crawl --job {quote(job.name)}` begins a new crawl"
        return f"{job.state}, stopped at a limit; {ways}"
    state = str(job.state) if job.crawl is None else f"{job.state}, crawl {job.crawl}"
    return f"{state}: {job.state_reason}" if job.state_reason else state


def _option(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {
    "list": listed,
    "show": show,
    "compare": compare.compare,
    "create": create.create,
    "plan": create.plan,
    "log": log,
    "set": edit.edit,
    "undo-scope": edit.undo_scope,
    "scope-history": edit.scope_history,
    "schedule": state.schedule,
    "retry": retry.retry,
    "pause": state.pause,
    "resume": state.resume,
    "cancel": state.cancel,
    "delete": state.delete,
    "watch": watch.watch,
}
"""The commands in the order of the help."""

for _name, _command in COMMANDS.items():
    app.command(_name, cls=Command)(_command)
