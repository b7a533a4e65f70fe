"""`holdfast status`: how things stand, at a glance."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from holdfast.cli import output, session
from holdfast.cli.help import Command
from holdfast.cli.output import counted
from holdfast.control.live import live_wait
from holdfast.control.status import Overview, overview
from holdfast.model.activity import Activity

if TYPE_CHECKING:
    from holdfast.cli.remote.store import RemoteOverview


_MOST_LINES: Final = 5
"""URLs in flight that are named, and waits."""
_MOST_OF_A_WORKER: Final = 2


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("status", cls=Command)(status)


def status(context: typer.Context, as_json: output.Json = False) -> None:
    """Show how things stand: jobs, workers, what they fetch, why domains wait, pace, and what is due next.

    Examples:
        holdfast status
        watch holdfast status
    """
    found = _overview(session.of(context))
    if as_json:
        output.print_json(found)
    elif found.empty:
        output.print_line("Nothing to crawl yet. `holdfast crawl URL` begins.")
    else:
        _print(found)


def _overview(of: session.Session) -> "Overview | RemoteOverview":
    if of.remote:
        from holdfast.cli.remote import store

        return store.overview(of.client)
    return overview(of.store())


def _print(found: "Overview | RemoteOverview") -> None:
    rows = [_job(job) for job in found.jobs if job["domains"] or job["pages"] or job["name"] != "default"]
    output.print_table(
        ["JOB", "STATE", "PAGES", "ERRORS", "WAITING", "DOMAINS"], rows, right="PAGES ERRORS WAITING DOMAINS"
    )
    output.print_line()
    by_status = ", ".join(f"{count:,} {name}" for name, count in found.domains.items() if count)
    facts = [
        ("Domains", by_status),
        ("Pace", _pace(found)),
        ("Workers", _workers(found)),
        ("Database", size(found.database_bytes)),
    ]
    facts += _now(found)
    alone = not any(worker["alive"] for worker in found.workers)
    facts += [("Next" if not number else "", _due(row, found.now, alone)) for number, row in enumerate(found.due)]
    if found.stay_blocked:
        facts.append(("Stay blocked", f"{counted(found.stay_blocked, 'domain')}, until `holdfast domains unblock`"))
    output.print_facts(facts)
    silent = [worker for worker in found.workers if not worker["alive"]]
    for worker in silent:
        session.say(
            f"Worker {output.safe(worker['name'])} was last heard of at {output.when(worker['heartbeat_at'])} UTC and holds "
            f"{counted(worker['held'], 'domain')}; others take over within 150 s, or when its leases end, if it is frozen."
        )


def _job(job: dict[str, Any]) -> tuple[object, ...]:
    state = job["state"] if job["crawl"] is None else f"{job['state']}, crawl {job['crawl']}"
    if job["out_of_budget"]:
        state = "stopped at a limit"
    most = f" of {job['max_pages']:,}" if job["max_pages"] else ""
    return (
        job["name"],
        state,
        f"{job['pages']:,}{most}",
        f"{job['errors']:,}",
        f"{job['waiting']:,}",
        f"{job['domains']:,}",
    )


def _pace(found: "Overview | RemoteOverview") -> str:
    if not (found.pages_per_second or found.errors_per_second):
        return "nothing in the last minute"
    return (
        f"{found.pages_per_second:,.1f} pages/s, {found.errors_per_second:,.1f} errors/s, "
        f"{size(round(found.bytes_per_second))}/s in the last minute"
    )


def _workers(found: "Overview | RemoteOverview") -> str:
    alive = [worker for worker in found.workers if worker["alive"]]
    if not alive:
        return "none is running"
    held = sum(worker["held"] for worker in alive)
    window = sum(worker["in_window"] for worker in alive)
    return f"{len(alive):,} alive, {counted(held, 'domain')} held, {counted(window, 'URL')} in memory"


def _now(found: "Overview | RemoteOverview") -> list[tuple[str, str]]:
    """What workers fetch at this moment, and why domains that they hold wait."""
    jobs = {job["id"]: str(job["name"]) for job in found.jobs}
    requests, fetching, waits = 0, list[str](), list[str]()
    for worker in found.workers:
        at = worker["activity_at"]
        activity = Activity.from_json(worker["activity"], (found.now - at).total_seconds() if at else 0.0)
        requests += sum(activity.requests.values())
        fetching += [f"{fetch.url} ({worker['name']})" for fetch in activity.fetching[:_MOST_OF_A_WORKER]]
        waits += [
            f"{live_wait(wait).text(found.now)} (job {jobs.get(wait.job_id, wait.job_id)})" for wait in activity.waits
        ]
    facts = []
    if requests:
        facts.append(("Fetching", f"{counted(requests, 'request')} in flight"))
        facts += [("", url) for url in fetching[:_MOST_LINES]]
    facts += [("Waits" if not number else "", wait) for number, wait in enumerate(waits[:_MOST_LINES])]
    if len(waits) > _MOST_LINES:
        facts.append(("", f"and {len(waits) - _MOST_LINES:,} more"))
    return facts


def _due(row: dict[str, Any], now: datetime, alone: bool) -> str:
    when = f"{until(row['at'], now)}, when a worker runs" if alone else until(row["at"], now)
    return f"{row['what']} {when}; {counted(row['domains'], 'domain')} in all"


def until(at: datetime, now: datetime) -> str:
    """A moment as people wait for it: `now`, `in 40 s`, `in 3 h (2026-02-05 12:30 UTC)`."""
    seconds = (at - now).total_seconds()
    if seconds <= 0:
        return "now"
    if seconds < 120:
        return f"in {seconds:.0f} s"
    unit, length = next(pair for pair in (("d", 86_400), ("h", 3_600), ("min", 60)) if seconds >= 2 * pair[1])
    return f"in {seconds / length:.0f} {unit} ({output.when(at)} UTC)"


def size(number: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
