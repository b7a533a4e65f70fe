"""`holdfast status`: jobs, workers, rates and waits at a glance."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize
from holdfast.jobs.live import live_wait
from holdfast.model.activity import Activity
from holdfast.stats.status import Overview, overview

if TYPE_CHECKING:
    from holdfast.cli.remote.store import RemoteOverview


_MAX_LINES: Final = 5
"""URLs in flight that are listed, and waits."""
_MAX_PER_WORKER: Final = 2


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("status", cls=Command)(status)


def status(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show jobs, workers, requests in flight, why domains wait, pages a second, and what is due next.

    Examples:
        holdfast status
        watch holdfast status
    """
    found = _overview(command_context.get(ctx))
    if as_json:
        output.print_json(found)
    elif found.empty:
        output.print_line("There is no crawl yet; `holdfast crawl URL` starts one.")
    else:
        _print(found)


def _overview(context: command_context.CommandContext) -> "Overview | RemoteOverview":
    if context.remote:
        from holdfast.cli.remote import store

        return store.overview(context.client)
    return overview(context.store())


def _print(found: "Overview | RemoteOverview") -> None:
    rows = [_job(job) for job in found.jobs if job["domains"] or job["pages"] or job["name"] != "default"]
    output.print_table(
        ["JOB", "STATE", "PAGES", "ERRORS", "WAITING", "DOMAINS"], rows, right="PAGES ERRORS WAITING DOMAINS"
    )
    output.print_line()
    by_status = ", ".join(f"{count:,} {name}" for name, count in found.domains.items() if count)
    fields = [
        ("Domains", by_status),
        ("Pace", _rate(found)),
        ("Workers", _workers(found)),
        ("Database", format_bytes(found.database_bytes)),
    ]
    fields += _activity(found)
    alone = not any(worker["alive"] for worker in found.workers)
    fields += [("Next" if not number else "", _due(row, found.now, alone)) for number, row in enumerate(found.due)]
    if found.stay_blocked:
        fields.append(("Stay blocked", f"{pluralize(found.stay_blocked, 'domain')}, until `holdfast domains unblock`"))
    output.print_fields(fields)
    silent = [worker for worker in found.workers if not worker["alive"]]
    for worker in silent:
        command_context.say(
            f"Worker {output.safe(worker['name'])} was last heard of at {output.format_time(worker['heartbeat_at'])} UTC and holds "
            f"{pluralize(worker['held'], 'domain')}; others take over within 150 s, or when its leases end, if it is frozen."
        )


def _job(job: dict[str, Any]) -> tuple[object, ...]:
    state = job["state"] if job["crawl"] is None else f"{job['state']}, crawl {job['crawl']}"
    if job["out_of_budget"]:
        state = "stopped at a limit"
    limit = f" of {job['max_pages']:,}" if job["max_pages"] else ""
    return (
        job["name"],
        state,
        f"{job['pages']:,}{limit}",
        f"{job['errors']:,}",
        f"{job['waiting']:,}",
        f"{job['domains']:,}",
    )


def _rate(found: "Overview | RemoteOverview") -> str:
    if not (found.pages_per_second or found.errors_per_second):
        return "nothing in the last minute"
    return (
        f"{found.pages_per_second:,.1f} pages/s, {found.errors_per_second:,.1f} errors/s, "
        f"{format_bytes(round(found.bytes_per_second))}/s in the last minute"
    )


def _workers(found: "Overview | RemoteOverview") -> str:
    alive = [worker for worker in found.workers if worker["alive"]]
    if not alive:
        return "none is running"
    held = sum(worker["held"] for worker in alive)
    window = sum(worker["in_window"] for worker in alive)
    return f"{len(alive):,} alive, {pluralize(held, 'domain')} held, {pluralize(window, 'URL')} in memory"


def _activity(found: "Overview | RemoteOverview") -> list[tuple[str, str]]:
    """Requests in flight, and why domains held by workers wait."""
    jobs = {job["id"]: str(job["name"]) for job in found.jobs}
    requests, fetching, waits = 0, list[str](), list[str]()
    for worker in found.workers:
        at = worker["activity_at"]
        activity = Activity.from_json(worker["activity"], (found.now - at).total_seconds() if at else 0.0)
        requests += sum(activity.requests.values())
        fetching += [f"{fetch.url} ({worker['name']})" for fetch in activity.fetching[:_MAX_PER_WORKER]]
        waits += [
            f"{live_wait(wait).text(found.now)} (job {jobs.get(wait.job_id, wait.job_id)})" for wait in activity.waits
        ]
    fields = []
    if requests:
        fields.append(("Fetching", f"{pluralize(requests, 'request')} in flight"))
        fields += [("", url) for url in fetching[:_MAX_LINES]]
    fields += [("Waits" if not number else "", wait) for number, wait in enumerate(waits[:_MAX_LINES])]
    if len(waits) > _MAX_LINES:
        fields.append(("", f"and {len(waits) - _MAX_LINES:,} more"))
    return fields


def _due(row: dict[str, Any], now: datetime, alone: bool) -> str:
    when = f"{format_until(row['at'], now)}, when a worker runs" if alone else format_until(row["at"], now)
    return f"{row['what']} {when}; {pluralize(row['domains'], 'domain')} in all"


def format_until(at: datetime, now: datetime) -> str:
    """The time until a moment: `now`, `in 40 s`, `in 3 h (2026-02-05 12:30 UTC)`."""
    seconds = (at - now).total_seconds()
    if seconds <= 0:
        return "now"
    if seconds < 120:
        return f"in {seconds:.0f} s"
    unit, length = next(pair for pair in (("d", 86_400), ("h", 3_600), ("min", 60)) if seconds >= 2 * pair[1])
    return f"in {seconds / length:.0f} {unit} ({output.format_time(at)} UTC)"
