"""`holdfast crawl` and `holdfast worker`: do it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import failpoints, wiring
from holdfast.cli import output, session
from holdfast.cli.display import Display, size
from holdfast.cli.help import Command
from holdfast.cli.session import Session, say
from holdfast.control.crawls import Begun, CrawlDesk, Ended, Wish
from holdfast.control.seeds import Sower
from holdfast.engine.supervisor import Supervisor
from holdfast.errors import HoldfastError
from holdfast.model.job import Job, Scope
from holdfast.store.reports import Progress, progress
from holdfast.telemetry import log

if TYPE_CHECKING:
    from holdfast.engine.plan import Plan

TICK: Final = 0.1
INTERRUPTED: Final = 130


def run_worker(plan: "Plan", *, supervised: bool = False) -> bool:
    """Run a worker in this process. The engine is loaded here: other commands need not wait for it."""
    from holdfast.engine import process

    return process.run_worker(plan, supervised=supervised)


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("crawl", cls=Command)(crawl)
    app.command("worker", cls=Command)(worker)


def crawl(
    context: typer.Context,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="Where to begin: URLs or domains.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="FILE", help="More of them, a line each; - is standard input.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=session.readable, help="Give the job a name, or go on with it by its name."
        ),
    ] = None,
    max_pages: Annotated[int | None, typer.Option(min=1, help="Pages in all.")] = None,
    max_pages_per_domain: Annotated[int | None, typer.Option(min=1, help="Pages of each domain.")] = None,
    max_depth: Annotated[int | None, typer.Option(min=0, max=32_000, help="Links to follow from a seed.")] = None,
    delay: Annotated[
        float | None, typer.Option(min=0, max=86400, help="Seconds between two requests to a domain.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Requests to a domain at the same time.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Worker processes (default: one a core).")
    ] = None,
    scope: Annotated[
        Scope | None, typer.Option(help="Which links to follow: of the same host, domain, or any.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="Only URLs that match (may be repeated).")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="REGEX", help="No URLs that match (may be repeated).")
    ] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Visit private and loopback addresses, too.")
    ] = False,
    no_robots: Annotated[
        bool, typer.Option("--no-robots", help="Do not ask for robots.txt (your own sites only).")
    ] = False,
    no_archive: Annotated[bool, typer.Option("--no-archive", help="Do not keep the bytes of pages.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Keep the visible text of pages in the database.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Start anew, also where nothing is left to do.")] = False,
    as_json: output.Json = False,
) -> None:
    """Crawl, and go on where it was if it was interrupted.

    The same command again continues the same crawl, whatever killed it. Ctrl-C stops in order; twice stops at once, and
    is as safe. Without a URL it crawls what `holdfast seeds` has loaded. The exit code is 0 when there is nothing more to
    do for now, 1 if not a single page could be had, and 130 after Ctrl-C.

    Examples:
        holdfast crawl https://example.com
        holdfast crawl https://example.com --max-pages 500 --delay 2
        holdfast crawl --seeds sites.txt --job news --scope domain --text
        holdfast crawl --job news
    """
    options: dict[str, Any] = {
        name: value
        for name, value in {
            "max_pages": max_pages,
            "max_pages_per_domain": max_pages_per_domain,
            "max_depth": max_depth,
            "delay": delay,
            "concurrency": concurrency,
            "scope": scope,
            "include": tuple(include) if include else None,
            "exclude": tuple(exclude) if exclude else None,
            "allow_private": allow_private or None,
            "robots": False if no_robots else None,
            "archive": False if no_archive else None,
            "text": text or None,
        }.items()
        if value is not None
    }
    of = session.of(context)
    desk = _desk(of)
    wish = Wish(tuple(urls or ()), seeds, job, options, again)
    with output.ProgressBar("Loading seeds", None, "line", hidden=seeds is None) as bar:
        begun = desk.begin(wish, lambda loaded: bar.show(loaded.bytes_read, loaded.lines))
    _announce(begun)
    if desk.has_work(begun.job, of.settings.crawl.patience) and _work(
        of, begun.job, workers or _default_workers(desk, begun.job)
    ):
        done = desk.stop(begun.job)
        if as_json:
            output.print_json({"job": begun.job.name, "completed": False, "interrupted": True, **_figures(done)})
        else:
            output.print_line(f"{output.counted(done.pages, 'page')} so far. The same command goes on.")
        raise typer.Exit(INTERRUPTED)
    _report(begun, desk.end(begun.job), as_json)


def worker(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A name that stays the same over restarts (default: this machine's)."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Serve this job only, and end when it has nothing more to do.")
    ] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
    failpoint: Annotated[list[str] | None, typer.Option("--failpoint", hidden=True)] = None,
) -> None:
    """Run one worker process: it serves every job in turn until it is stopped.

    Run as many as you like, on as many machines, with the same HOLDFAST_DATABASE_URL. A worker may be killed at any moment.

    Examples:
        holdfast worker
        holdfast worker --name crawler-1 --job news
    """
    log.set_up()
    for point in failpoint or ():
        place, _, nth = point.partition(":")
        failpoints.arm(place, int(nth or 1))
    of = session.of(context)
    database = of.store()
    job_id = _desk(of).job(job).id if job is not None else None
    plan = wiring.worker_plan(of.settings, database, name or wiring.worker_name(1), job_id)
    if run_worker(plan, supervised=supervised) and not supervised:
        raise typer.Exit(INTERRUPTED)


def _desk(of: Session) -> CrawlDesk:
    settings = of.settings
    database = of.store()
    sower = Sower(database, wiring.url_rules(settings), wiring.new_domains(settings), settings.domains.registrable)
    return CrawlDesk(database, sower)


def _default_workers(desk: CrawlDesk, job: Job) -> int:
    """One a core, but not more than there are domains where no link leads to another."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, max(1, desk.standing(job).rows)) if job.spec.scope is Scope.HOST else cores


def _announce(begun: Begun) -> None:
    for bad in begun.loaded.bad_lines[:20]:
        say(f"not a seed: {output.safe(bad.problem)}")
    if begun.loaded.stopped:
        raise HoldfastError(begun.loaded.stopped)
    how = "Going on with" if begun.known else "Crawling"
    say(f"{how} job {output.safe(begun.job.name)}. Ctrl-C stops; the same command goes on.")


def _work(of: Session, job: Job, count: int) -> bool:
    """Run the workers until they end; True if they were told to stop."""
    log.set_up(wiring.log_folder(of.settings) / "crawl.log")
    look = _looker(of, job)
    with Display(look, f"Job {output.safe(job.name)}") as display:
        if count == 1 and of.settings.rollout.claim_protocol:
            return run_worker(wiring.worker_plan(of.settings, of.store(), wiring.worker_name(1), job.id))
        return _supervise(of, job, 1 if not of.settings.rollout.claim_protocol else count, display)


def _looker(of: Session, job: Job) -> Callable[[bool], Progress]:
    database = of.store().named("holdfast display")

    def look(spread: bool) -> Progress:
        with database.session() as connection:
            return progress(connection, job.id, job.crawl_id or 0, spread=spread)

    return look


def _supervise(of: Session, job: Job, count: int, display: Display) -> bool:
    def command(number: int) -> Sequence[str]:
        words = [sys.executable, "-m", "holdfast", "--data", str(of.settings.data)]
        words += ["--config", str(of.config_file)] if of.config_file else []
        return [*words, "worker", "--job", job.name, "--name", wiring.worker_name(number), "--supervised"]

    supervisor = Supervisor(command, count, wiring.log_folder(of.settings))
    told = heard = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        told += 1  # acted on below: here a process may be in the middle of being looked after

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        supervisor.start()
        while supervisor.tick():
            if told > heard:
                heard = told
                display.note = "stopping: waiting for what is in flight (Ctrl-C again to stop at once)"
                (supervisor.stop if told == 1 else supervisor.kill)()
            if supervisor.restarts and not told:
                display.note = f"{output.counted(supervisor.restarts, 'worker')} died and came back"
            time.sleep(TICK)
    finally:
        supervisor.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    if supervisor.refusal is not None and not told and not supervisor.done:
        raise HoldfastError(f"The workers end as soon as they begin; {supervisor.log_file(1)} says why.")
    return told > 0


def _figures(done: Progress) -> dict[str, Any]:
    spread = asdict(done.spread) if done.spread else {}
    return {"pages": done.pages, "errors": done.errors, "bytes": done.bytes, **spread}


def _report(begun: Begun, ended: Ended, as_json: bool) -> None:
    done, standing, spread = ended.progress, ended.standing, ended.progress.spread
    in_vain = spread is not None and not spread.done and bool(spread.failed or spread.denied or standing.cooling)
    if as_json:
        output.print_json({"job": begun.job.name, "completed": ended.completed, **_figures(done)})
    else:
        failed = f", {spread.failed:,} failed, {spread.denied:,} denied" if spread else ""
        output.print_line(
            f"{output.counted(done.pages, 'page')}, {size(done.bytes)}, {output.counted(done.errors, 'error')}{failed}."
        )
        for line in _what_is_left(begun.job, ended, in_vain=in_vain):
            output.print_line(line)
    if in_vain:
        raise typer.Exit(1)


def _what_is_left(job: Job, ended: Ended, *, in_vain: bool) -> Iterator[str]:
    standing = ended.standing
    if in_vain:
        yield "Not a single page could be had; `holdfast explain URL` says why, --again tries once more."
    elif ended.completed:
        more = "" if ended.progress.pages else " Nothing was left to do; --again starts anew."
        yield f"Job {output.safe(job.name)} is complete: every URL is dealt with.{more}"
    for count, what in (
        (standing.spent, "its budget is used; the same command goes on with a new one"),
        (standing.cooling, "left alone for a while (see `holdfast domain-status`)"),
        (standing.delayed, "another attempt is to come"),
    ):
        if count:
            yield f"{output.counted(count, 'domain')}: {what}."
