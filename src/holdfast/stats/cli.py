"""`holdfast status`: jobs, workers, rates and waits at a glance. `holdfast stats`: pages, errors and latency over time."""

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize
from holdfast.jobs.live import live_wait
from holdfast.jobs.records import Job
from holdfast.model.activity import Activity, WaitKind, problems_of
from holdfast.stats.records import Due, Overview, Point, Stats
from holdfast.stats.service import StatsService, parse_step
from holdfast.telemetry.disk_space import describe

if TYPE_CHECKING:
    from holdfast.cli.remote.monitoring import RemoteStats

_MAX_LINES: Final = 5
"""URLs in flight that are listed, and waits."""
_MAX_PER_WORKER: Final = 2


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("status", cls=Command)(status)
    app.command("stats", cls=Command)(stats)


def _statistics(ctx: typer.Context) -> "StatsService | RemoteStats":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteStats

        return RemoteStats(context.client)
    return StatsService(context.store())


def status(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Show jobs, workers, requests in flight, why domains wait, pages a second, and what is due next.

    Examples:
        holdfast status
        watch holdfast status
    """
    found = _statistics(ctx).overview()
    context = command_context.get(ctx)
    if not context.remote:
        found = replace(found, disks=factories.disk_watch(context.settings).look())
    if as_json:
        output.print_json(found)
    elif found.empty:
        output.print_line("There is no crawl yet; `holdfast crawl URL` starts one.")
    else:
        _print(found)


def _print(found: Overview) -> None:
    rows = [_job(job) for job in found.jobs if job.domains or job.pages or job.name != "default"]
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
    fields += _problems(found)
    fields += [("Backups", sentence) for sentence in found.backups]
    fields += _activity(found)
    idle = not any(worker.alive for worker in found.workers)
    fields += [("Next" if not number else "", _due(due, found.now, idle)) for number, due in enumerate(found.due)]
    if found.stay_blocked:
        fields.append(("Stay blocked", f"{pluralize(found.stay_blocked, 'domain')}, until `holdfast domains unblock`"))
    output.print_fields(fields)
    silent = [worker for worker in found.workers if not worker.alive]
    for worker in silent:
        command_context.say(
            f"Worker {output.safe(worker.name)} was last heard of at {output.format_time(worker.heartbeat_at)} UTC and holds "
            f"{pluralize(worker.held, 'domain')}; others take over within 150 s, or when its leases end, if it is frozen."
        )


def _job(job: Job) -> tuple[object, ...]:
    state = job.state if job.crawl is None else f"{job.state}, crawl {job.crawl}"
    if job.out_of_budget:
        state = "stopped at a limit"
    limit = f" of {job.max_pages:,}" if job.max_pages else ""
    return (
        job.name,
        state,
        f"{job.pages:,}{limit}",
        f"{job.errors:,}",
        f"{job.waiting:,}",
        f"{job.domains:,}",
    )


def _rate(found: Overview) -> str:
    if not (found.pages_per_second or found.errors_per_second):
        return "nothing in the last minute"
    return (
        f"{found.pages_per_second:,.1f} pages/s, {found.errors_per_second:,.1f} errors/s, "
        f"{format_bytes(round(found.bytes_per_second))}/s in the last minute"
    )


def _workers(found: Overview) -> str:
    alive = [worker for worker in found.workers if worker.alive]
    if not alive:
        return "none is running"
    held = sum(worker.held for worker in alive)
    window = sum(worker.in_window for worker in alive)
    return f"{len(alive):,} alive, {pluralize(held, 'domain')} held, {pluralize(window, 'URL')} in memory"


def _problems(found: Overview) -> list[tuple[str, str]]:
    """Why workers fetch nothing, and what else is wrong with their machines; then the disks of this machine."""
    reported = problems_of(worker.activity for worker in found.workers if worker.alive)
    fields = [
        ("Paused" if one.pauses else "Warning", f"{one.text}{'; the crawl goes on by itself' if one.pauses else ''}")
        for one in reported
    ]
    known = {one.about for one in reported}
    others = (space for space in found.disks if space.state != "ok" and ", ".join(space.holds) not in known)
    return fields + [("Disk full" if space.state == "full" else "Disk low", describe(space)) for space in others]


def _activity(found: Overview) -> list[tuple[str, str]]:
    """Requests in flight, and why domains held by workers wait."""
    jobs = {job.id: str(job.name) for job in found.jobs}
    requests, fetching, waits = 0, list[str](), list[str]()
    for worker in found.workers:
        at = worker.activity_at
        activity = Activity.from_json(worker.activity, (found.now - at).total_seconds() if at else 0.0)
        requests += sum(activity.requests.values())
        fetching += [f"{fetch.url} ({worker.name})" for fetch in activity.fetching[:_MAX_PER_WORKER]]
        waits += [
            f"{live_wait(wait).text(found.now)} (job {jobs.get(wait.job_id, wait.job_id)})"
            for wait in activity.waits
            if wait.kind is not WaitKind.STORE or not activity.problems  # which say it once, and not for each domain
        ]
    fields = []
    if requests:
        fields.append(("Fetching", f"{pluralize(requests, 'request')} in flight"))
        fields += [("", url) for url in fetching[:_MAX_LINES]]
    fields += [("Waits" if not number else "", wait) for number, wait in enumerate(waits[:_MAX_LINES])]
    if len(waits) > _MAX_LINES:
        fields.append(("", f"and {len(waits) - _MAX_LINES:,} more"))
    return fields


def _due(due: Due, now: datetime, idle: bool) -> str:
    when = f"{format_until(due.at, now)}, when a worker runs" if idle else format_until(due.at, now)
    return f"{due.what} {when}; {pluralize(due.domains, 'domain')} in all"


def format_until(at: datetime, now: datetime) -> str:
    """The time until a moment: `now`, `in 40 s`, `in 3 h (2026-02-05 12:30 UTC)`."""
    seconds = (at - now).total_seconds()
    if seconds <= 0:
        return "now"
    if seconds < 120:
        return f"in {seconds:.0f} s"
    unit, length = next(pair for pair in (("d", 86_400), ("h", 3_600), ("min", 60)) if seconds >= 2 * pair[1])
    return f"in {seconds / length:.0f} {unit} ({output.format_time(at)} UTC)"


def stats(
    ctx: typer.Context,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Start of the table: a time, or an age such as 6h.")
    ] = "1h",
    step: Annotated[
        str, typer.Option(metavar="STEP", help="Length of a row: minute, hour, day, or a number of minutes such as 5m.")
    ] = "1m",
    as_json: output.Json = False,
) -> None:
    """Show pages, errors, bytes and latency per minute, hour or day. Times are in UTC; minutes are kept for a week, days without limit.

    Examples:
        holdfast stats
        holdfast stats --since 24h --step hour
        holdfast stats --since 2026-01-01 --step day --json
    """
    begin = option_types.parse_time_or_age("--since", since)
    width = parse_step(step)
    service = _statistics(ctx)
    points = service.timeseries(begin, step=width)
    now = service.snapshot()
    if as_json:
        output.print_json({"now": now, "points": points})
        return
    columns = [
        "FROM (UTC)",
        "PAGES",
        "PAGES/S",
        "ERRORS",
        "BYTES",
        "2XX",
        "3XX",
        "4XX",
        "5XX",
        "P50",
        "P95",
        "FRONTIER",
    ]
    rows = [_row(point) for point in points if point.requests or point.frontier_size is not None]
    if rows:
        output.print_table(columns, rows, right=" ".join(columns[1:]))
        output.print_line()
    else:
        command_context.say("Nothing was crawled since then.")
    output.print_fields(_facts(now))


def _row(point: Point) -> tuple[str, ...]:
    classes = (f"{point.statuses[name]:,}" for name in ("2xx", "3xx", "4xx", "5xx"))
    return (
        output.format_time(point.at),
        f"{point.pages:,}",
        f"{point.pages_per_second:,.1f}",
        f"{point.errors:,}",
        format_bytes(point.bytes),
        *classes,
        _time(point.latency_p50_ms),
        _time(point.latency_p95_ms),
        "-" if point.frontier_size is None else f"{point.frontier_size:,}",
    )


def _time(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:,.0f} ms"


def _facts(now: Stats) -> list[tuple[str, object]]:
    success = "no requests" if now.success_rate is None else f"{now.success_rate:.1%} without an error"
    return [
        (
            "Pages",
            f"{now.pages_total:,} of {now.requests_total:,} requests, {now.errors_total:,} errors, {format_bytes(now.bytes_total)}",
        ),
        ("Last minute", f"{now.pages_per_second:,.1f} pages/s, {now.errors_per_second:,.1f} errors/s; {success}"),
        ("Frontier", f"{now.frontier_size:,} waiting"),
    ]
