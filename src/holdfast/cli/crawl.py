"""`holdfast crawl` and `holdfast worker`: do it."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import failpoints, wiring
from holdfast.cli import extraction, output, secret_options, session, wishes
from holdfast.cli.display import Display
from holdfast.cli.help import Command
from holdfast.cli.output import size
from holdfast.cli.seeds import bad_seeds
from holdfast.cli.session import INTERRUPTED, Session, Stopped, say
from holdfast.cli.supervising import background_beside, keeping, look_after, program
from holdfast.cli.url_lines import PipeReader, PipeWriter, UrlLine
from holdfast.control.crawls import Begun, CrawlDesk, Ended, Wish
from holdfast.control.live import JobWatch, LiveJob
from holdfast.control.proxies import ProxyDesk
from holdfast.control.schedule import has_anything_to_do
from holdfast.control.summary import CrawlSummary
from holdfast.control.summary import lines as summary_lines
from holdfast.engine.supervisor import Supervisor
from holdfast.errors import HoldfastError, Refused, StoreUnavailable, UsageError
from holdfast.model.job import Job, JobState, Scope
from holdfast.model.url import with_http
from holdfast.settings import Settings
from holdfast.store.reports import Progress
from holdfast.telemetry import log

if TYPE_CHECKING:
    from holdfast.engine.plan import Plan

AFTER_PAUSE: Final = 2.0
"""Seconds until a job that was resumed is looked at: its work is made ready a chunk at a time."""
SLOW_COUNT: Final = 2.0
"""Seconds that the count of URLs by reason may take before the person is told."""
PAUSE_LOOK: Final = 0.5
"""Seconds between two looks at a job that is paused."""


@dataclass(frozen=True, slots=True)
class Show:
    """What a crawl shows while it runs."""

    verbose: bool = False
    """Every URL with its outcome."""
    quiet: bool = False
    """Nothing."""


def run_worker(plan: "Plan", *, supervised: bool = False, told: Callable[[int], None] | None = None) -> bool:
    """Run a worker in this process. The engine is loaded here: other commands need not wait for it."""
    from holdfast.engine import process

    return process.run_worker(plan, supervised=supervised, told=told)


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("crawl", cls=Command)(crawl)
    app.command("worker", cls=Command)(worker)


def crawl(
    context: typer.Context,
    urls: wishes.Urls = None,
    seeds: wishes.Seeds = None,
    job: wishes.Name = None,
    max_pages: wishes.MaxPages = None,
    max_pages_per_domain: wishes.MaxPagesPerDomain = None,
    rounds: wishes.Rounds = None,
    max_depth: wishes.MaxDepth = None,
    delay: wishes.Delay = None,
    concurrency: wishes.Concurrency = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Worker processes (default: one a core, not more than domains if it stays on them)."
        ),
    ] = None,
    scope: wishes.InScope = None,
    include: wishes.Include = None,
    exclude: wishes.Exclude = None,
    strip_param: wishes.StripParam = None,
    refresh: wishes.Refresh = None,
    allow_private: wishes.AllowPrivate = False,
    no_robots: wishes.NoRobots = False,
    no_archive: wishes.NoArchive = False,
    text: wishes.WithText = False,
    header: secret_options.Header = None,
    cookie: secret_options.Cookie = None,
    basic_auth: secret_options.BasicAuth = None,
    user_agent: wishes.UserAgent = None,
    parser: wishes.Parser = None,
    items_file: extraction.ItemsFile = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every URL with its outcome.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the end.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Start anew, also where nothing is left to do.")] = False,
    as_json: output.Json = False,
) -> None:
    """Crawl, and go on where it was if it was interrupted.

    The same command again continues the same crawl, whatever killed it. Ctrl-C stops in order; twice stops at once, and
    is as safe. Without a URL it crawls what `holdfast seeds` has loaded. The last lines say what was not crawled and why.

    Exit codes: 0 if the job has pages, from this crawl or one before; 1 if it has none, with the cause in the last lines; 130
    after Ctrl-C; 2 for a command that cannot be understood, 3 if the database cannot be used, 4 and 5 as the sentence says.

    Examples:
        holdfast crawl https://example.com
        holdfast crawl https://example.com --max-pages 500 --delay 2
        holdfast crawl --seeds sites.txt --job news --scope domain --text
        holdfast crawl --job news
        holdfast crawl https://wiki.example --basic-auth @login.txt --cookie lang=en
        holdfast crawl https://shop.example --parser ./shop.py -o items.jsonl
    """
    if verbose and quiet:
        raise UsageError("--verbose lists every URL and --quiet prints nothing but the end; give one of them.")
    of = session.of(context)
    chosen = extraction.chosen(of, parser, no_archive=no_archive)
    extraction.check_file(items_file)
    options = wishes.spec(
        max_pages=max_pages,
        max_pages_per_domain=max_pages_per_domain,
        rounds=rounds,
        max_depth=max_depth,
        delay=delay,
        concurrency=concurrency,
        scope=scope,
        include=include,
        exclude=exclude,
        strip_param=strip_param,
        allow_private=allow_private,
        no_robots=no_robots,
        no_archive=no_archive,
        text=text,
        user_agent=user_agent,
        refresh=refresh,
        parser=None if chosen is None else chosen.name,
    )
    show = Show(verbose=verbose, quiet=quiet)
    secrets = secret_options.secrets(header, cookie, basic_auth)
    desk = replace(wishes.desk(of), actor=session.actor())
    wish = Wish(tuple(urls or ()), seeds, job, options, again, secrets)
    with output.ProgressBar("Loading seeds", None, "line", hidden=seeds is None) as bar:
        patience = _Patience(desk.state, lambda: wiring.kept_up(of.settings, say))
        begun = desk.begin(wish, lambda loaded: bar.show(loaded.bytes_read, loaded.lines), patience.wait)
    extraction.check_job(of, begun.job, chosen, items_file)
    _announce(begun, wish.seeds_file, quiet=quiet)
    told_contact = as_json or quiet or begun.resumed or _names_contact(of.settings, begun.job)
    if not told_contact and desk.is_first(begun.job):
        say(
            "The User-Agent has no contact address for the operators of sites: set crawl.contact, for example with "
            "`export HOLDFAST_CRAWL_CONTACT=you@example.org`."
        )
    proxies = ProxyDesk.of(of.settings, of.store())
    locked, why = proxies.locked()
    if locked:
        say(f"{'A proxy' if locked == 1 else f'{locked:,} proxies'} cannot be used. {why}")
    news = _OverHttp(desk, wish, begun.job)
    resumed = patience.waited
    while True:
        patience.while_paused(begun.job)
        if resumed:  # whoever did it is making its work ready
            time.sleep(AFTER_PAUSE)
        since = desk.now()
        told = desk.has_work(begun.job, of.settings.crawl.patience) and _work(
            of,
            begun.job,
            workers or _default_workers(desk, begun.job),
            show,
            news,
            None if chosen is None else chosen.file,
        )
        # Its workers end when there is nothing more to do, and also when it is paused.
        resumed = not told and desk.was_paused(begun.job, since)
        if not resumed:
            break
    if told:
        done = desk.stop(begun.job)
        left = desk.left(begun.job, done)
        if as_json:
            output.print_json({**_figures(done), "completed": False, "interrupted": True, **asdict(left)})
        else:
            _print_lines([f"{_pages(left, done)} so far.", *summary_lines(left)])
        raise Stopped
    for line in news():
        say(line)
    extracted = extraction.finish(of, begun.job, chosen, items_file)
    ended = desk.end(begun.job)
    stuck = proxies.without_a_proxy(begun.job.id, direct=of.settings.proxies.direct) if ended.standing.delayed else []
    with _note_after(SLOW_COUNT, "Counting the URLs that were not crawled …"):
        summary = desk.summary(begun.job, ended, stuck)
    _report(summary, ended, stuck, as_json, extracted)


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
    siblings: Annotated[int, typer.Option("--siblings", hidden=True)] = 1,
    report_to: Annotated[int | None, typer.Option("--report-to", hidden=True)] = None,
    failpoint: Annotated[list[str] | None, typer.Option("--failpoint", hidden=True)] = None,
    parser_file: Annotated[Path | None, typer.Option("--parser-file", hidden=True)] = None,
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
    of.supervised = supervised
    log.keep_small(wiring.log_folder(of.settings))
    database = of.store()
    job_id = wishes.desk(of).job(job).id if job is not None else None
    plan = wiring.worker_plan(of.settings, database, name or wiring.worker_name(1), job_id, parser_file)
    plan = replace(plan, siblings=siblings)
    lines = PipeWriter(report_to) if report_to is not None else None
    with keeping(of):
        told = run_worker(plan if lines is None else replace(plan, report=lines.report), supervised=supervised)
    if lines is not None:
        lines.close()
    if supervised:
        return
    if told:
        raise typer.Exit(INTERRUPTED)
    if job_id is not None:
        wishes.desk(of).end_idle()


class _Patience:
    """Waits for a job that a person has paused, and says so once a pause. A database that does not answer meanwhile is waited for."""

    def __init__(self, state: Callable[[Job], JobState], kept_up: Callable[[], AbstractContextManager[object]]) -> None:
        """`kept_up` keeps the bundled server up while it is entered."""
        self._state = state
        self._kept_up = kept_up
        self.waited = False
        """It was paused when it was to begin, or has been since."""

    def while_paused(self, job: Job) -> None:
        """Wait until it is not. Refused if it was cancelled: there is nothing to wait for."""
        state = self._state(job)
        if state is JobState.PAUSED:
            state = self.wait(job)
        if state is JobState.CANCELLED:
            raise Refused(
                f"Job {job.name} was cancelled. What it has got so far is in the store; --again starts it anew."
            )

    def wait(self, job: Job) -> JobState:
        """Wait until the pause ends; the state after it. Before: the job is paused."""
        self.waited = True
        say(
            f"Job {output.safe(job.name)} is paused: `holdfast jobs resume {output.safe(quote(job.name))}` goes on, "
            "Ctrl-C leaves it as it is."
        )
        is_away = False
        with self._kept_up():
            while True:
                time.sleep(PAUSE_LOOK)
                try:
                    state = self._state(job)
                except StoreUnavailable as problem:
                    if not is_away:
                        say(f"{problem} Nothing is lost; waiting until it answers.")
                    is_away = True
                    continue
                is_away = False
                if state is not JobState.PAUSED:
                    return state


class _OverHttp:
    """Which URLs of the command, given without a scheme, are crawled over http; a line each, once."""

    def __init__(self, desk: CrawlDesk, wish: Wish, job: Job) -> None:
        self._desk, self._wish, self._job = desk, wish, job
        self._told: set[str] = set()

    def __call__(self) -> list[str]:
        """The lines that are new."""
        found = [url for url in self._desk.over_http(self._wish, self._job) if url not in self._told]
        self._told.update(found)
        return [f"{output.safe(url)} does not answer TLS; crawling {output.safe(with_http(url))}." for url in found]


def _names_contact(settings: Settings, job: Job) -> bool:
    """Whether a person has said what the User-Agent is, or whom it names."""
    return bool(settings.crawl.contact or settings.domains.user_agent or job.spec.user_agent)


def _default_workers(desk: CrawlDesk, job: Job) -> int:
    """One a core, but not more than there are domains where no link leads to another."""
    return min(cores(), max(1, desk.standing(job).rows)) if job.spec.scope is Scope.HOST else cores()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _announce(begun: Begun, file: str | None, *, quiet: bool) -> None:
    for line in bad_seeds(begun.loaded, file):
        say(line)
    if begun.loaded.stopped:
        raise HoldfastError(begun.loaded.stopped)
    if begun.not_job is not None:
        say(f"The seed file has no seed in common with job {output.safe(begun.not_job)}: this is another job.")
    for held in begun.held_back:
        say(f"{output.safe(held.domain)} asked for a pause until {output.when(held.until)} UTC; that still holds.")
    how = "Going on with" if begun.known else "Crawling"
    if not quiet:
        say(f"{how} job {output.safe(begun.job.name)}. Ctrl-C stops; the same command goes on.")
        if begun.secrets:
            say(f"It sends {', '.join(map(output.safe, begun.secrets))} to the sites of its seeds, as set before.")


def _work(
    of: Session, job: Job, count: int, show: Show, news: Callable[[], list[str]], parser_file: Path | None = None
) -> bool:
    """Run the workers until they end; True if they were told to stop. `news`: lines to be shown as soon as there are some."""
    log.set_up(wiring.log_folder(of.settings) / "crawl.log")
    beside = background_beside(of) if has_anything_to_do(of.store()) else nullcontext()
    title = f"Job {output.safe(job.name)}"
    drain = of.settings.worker.drain
    with (
        beside,
        Display(watched(of, job.id), title, quiet=show.quiet, drain=drain, news=news) as display,
        keeping(of, display.note),
    ):
        if count > 1 or not of.settings.rollout.claim_protocol:
            return _supervise(of, job, count if of.settings.rollout.claim_protocol else 1, display, show, parser_file)
        plan = wiring.worker_plan(of.settings, of.store(), wiring.worker_name(1), job.id, parser_file)
        if show.verbose:
            plan = replace(plan, report=lambda outcomes: display.listed(map(UrlLine.of, outcomes)))
        return run_worker(plan, told=display.told_to_stop)


def watched(of: Session, job_id: int) -> Callable[[], LiveJob]:
    """What a display of the job asks, each time on a connection of its own."""
    return JobWatch(of.store().named("holdfast display"), job_id).look


def _supervise(
    of: Session, job: Job, count: int, display: Display, show: Show, parser_file: Path | None = None
) -> bool:
    lines = PipeReader(display.listed) if show.verbose else None
    more = [] if lines is None else ["--report-to", str(lines.write_end)]
    more += [] if parser_file is None else ["--parser-file", str(parser_file)]

    def command(number: int) -> Sequence[str]:
        name = wiring.worker_name(number)
        return program(of, "worker", "--job", job.name, "--name", name, "--supervised", "--siblings", str(count), *more)

    files = () if lines is None else (lines.write_end,)
    supervisor = Supervisor(command, count, wiring.log_folder(of.settings), files=lambda _: files)
    try:
        told = look_after(supervisor, display.note, display.told_to_stop)
    finally:
        if lines is not None:
            lines.close()
    if supervisor.refusal is not None and not told and not supervisor.done:
        raise HoldfastError(f"The workers end as soon as they begin; {supervisor.log_file(1)} says why.")
    return told


def _figures(done: Progress) -> dict[str, Any]:
    spread = asdict(done.spread) if done.spread else {}
    return {"pages": done.pages, "errors": done.errors, "bytes": done.bytes, **spread}


def _report(
    summary: CrawlSummary, ended: Ended, stuck: Sequence[str], as_json: bool, extracted: Mapping[str, int]
) -> None:
    """`stuck`: domains, some if they are many, that wait for a proxy; `extracted`: figures of the job's parser."""
    if as_json:
        found = {**_figures(ended.progress), "completed": ended.completed, **asdict(summary), **extracted}
        output.print_json(found | ({"waiting_for_a_proxy": stuck} if stuck else {}))
    else:
        _print_lines([f"{_pages(summary, ended.progress)}.", *summary_lines(summary)])
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


def _pages(summary: CrawlSummary, done: Progress) -> str:
    """The first line: pages, and what it took to get them."""
    before = f" this time, {summary.pages_in_all:,} in all" if summary.pages_in_all > summary.pages else ""
    figures = [f"{output.counted(summary.pages, 'page')}{before}", *([size(done.bytes)] if done.bytes else [])]
    figures += [output.counted(summary.redirects, "redirect")] if summary.redirects else []
    figures += [output.counted(done.errors, "failed request")] if done.errors else []
    return ", ".join(figures)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        output.print_line(output.safe(line))


@contextmanager
def _note_after(seconds: float, sentence: str) -> Iterator[None]:
    """Say what takes so long, if it does."""
    timer = threading.Timer(seconds, say, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
