"""`holdfast crawl`: begin or continue a crawl, and run its worker processes."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, job_options, output, secret_options
from holdfast.cli.command_context import CommandContext, Interrupted, say
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes
from holdfast.cli.processes import (
    available_cores,
    background_process,
    holdfast_command,
    keep_server_running,
    run_until_stopped,
    run_worker,
)
from holdfast.cli.progress import ProgressDisplay
from holdfast.cli.seeds import bad_seeds
from holdfast.cli.url_lines import PipeReader, UrlLine
from holdfast.control import database_admin
from holdfast.crawler.supervisor import Supervisor
from holdfast.db.connection import KeptConnection
from holdfast.errors import HoldfastError, Refused, StoreUnavailable, UsageError
from holdfast.items import cli as extraction
from holdfast.jobs.crawls import CrawlRequest, CrawlService, FinishedCrawl, StartedCrawl
from holdfast.jobs.live import LiveJob, LiveJobReader
from holdfast.jobs.queries.progress import CrawlProgress
from holdfast.jobs.records import CrawlSummary
from holdfast.jobs.summary import lines as summary_lines
from holdfast.model.job import Job, JobState, Scope
from holdfast.model.url import with_http
from holdfast.proxies.service import ProxyService
from holdfast.settings import Retention, Settings, render_duration
from holdfast.telemetry import log

RESUME_DELAY: Final = 2.0
"""Seconds to wait after a job was resumed: its domains become claimable in chunks."""
SLOW_COUNT_SECONDS: Final = 2.0
"""Seconds after which a message says that the count of URLs by reason is running."""
PAUSE_POLL_SECONDS: Final = 0.5
"""Seconds between two reads of the state of a paused job."""


@dataclass(frozen=True, slots=True)
class Verbosity:
    """What a crawl prints while it runs."""

    verbose: bool = False
    """Print every URL with its outcome."""
    quiet: bool = False
    """Print nothing until the end."""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("crawl", cls=Command)(crawl)


def crawl(
    ctx: typer.Context,
    urls: job_options.Urls = None,
    seeds: job_options.Seeds = None,
    job: job_options.Name = None,
    max_pages: job_options.MaxPages = None,
    max_pages_per_domain: job_options.MaxPagesPerDomain = None,
    rounds: job_options.Rounds = None,
    max_depth: job_options.MaxDepth = None,
    delay: job_options.Delay = None,
    concurrency: job_options.Concurrency = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="Worker processes (default: one a core; with --scope host, at most one a domain)."
        ),
    ] = None,
    scope: job_options.LinkScope = None,
    include: job_options.Include = None,
    exclude: job_options.Exclude = None,
    strip_param: job_options.StripParam = None,
    refresh: job_options.Refresh = None,
    sitemaps: job_options.ReadSitemaps = None,
    types: job_options.Types = None,
    allow_private: job_options.AllowPrivate = False,
    no_robots: job_options.NoRobots = False,
    no_archive: job_options.NoArchive = False,
    text: job_options.KeepText = False,
    images: job_options.StoreImages = False,
    markdown: job_options.StoreMarkdown = False,
    links: job_options.RecordLinks = False,
    check_external: job_options.CheckExternal = False,
    header: secret_options.Header = None,
    cookie: secret_options.Cookie = None,
    basic_auth: secret_options.BasicAuth = None,
    user_agent: job_options.UserAgent = None,
    parser: job_options.Parser = None,
    items_file: extraction.ItemsFile = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every URL with its outcome.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Crawl all pages of the job again.")] = False,
    as_json: output.Json = False,
) -> None:
    """Crawl URLs; an interrupted crawl continues where it was.

    The same command continues the same crawl after any kind of kill. Ctrl-C waits for requests in flight; Ctrl-C twice
    stops at once; nothing is lost either way. Without a URL it crawls the seeds that `holdfast seeds` has loaded. The last
    lines say which URLs were not crawled, and why.

    Exit codes: 0 if the job has pages, from this crawl or one before; 1 if it has none, with the cause in the last lines; 130
    after Ctrl-C; 2 invalid usage; 3 the database cannot be used; 4 not found; 5 not possible in the present state.

    Examples:
        holdfast crawl https://example.com
        holdfast crawl https://example.com --max-pages 500 --delay 2
        holdfast crawl --seeds sites.txt --job news --scope domain --text
        holdfast crawl --job news
        holdfast crawl https://wiki.example --basic-auth @login.txt --cookie lang=en
        holdfast crawl https://shop.example --parser ./shop.py -o items.jsonl
    """
    if verbose and quiet:
        raise UsageError("--verbose lists every URL and --quiet prints only the result; give one of them.")
    context = command_context.get(ctx)
    parser_choice = extraction.load_parser(context, parser, no_archive=no_archive)
    extraction.check_file(items_file)
    options = job_options.spec_fields(
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
        sitemaps=sitemaps,
        images=images,
        markdown=markdown,
        links=links,
        check_external=check_external,
        types=types,
        parser=None if parser_choice is None else parser_choice.name,
    )
    verbosity = Verbosity(verbose=verbose, quiet=quiet)
    secrets = secret_options.parse_secrets(header, cookie, basic_auth)
    service = replace(job_options.crawl_service(context), actor=command_context.actor())
    request = CrawlRequest(tuple(urls or ()), seeds, job, options, again, secrets)
    with output.ProgressBar("Loading seeds", None, "line", hidden=seeds is None) as bar:
        patience = _PauseWaiter(service.state, lambda: factories.server_watchdog(context.settings, say))
        started = service.begin(request, lambda progress: bar.show(progress.bytes_read, progress.lines), patience.wait)
    extraction.check_job(context, started.job, parser_choice, items_file)
    _announce(started, request.seeds_file, quiet=quiet)
    skip_contact_hint = as_json or quiet or started.resumed or _has_contact(context.settings, started.job)
    if not skip_contact_hint and service.is_first(started.job):
        say(
            "The User-Agent has no contact address for the operators of sites: set crawl.contact, for example with "
            "`export HOLDFAST_CRAWL_CONTACT=you@example.org`."
        )
    proxies = ProxyService.of(context.settings, context.store())
    locked, why = proxies.unreadable_passwords()
    if locked:
        say(f"{'A proxy' if locked == 1 else f'{locked:,} proxies'} cannot be used. {why}")
    announcements = _HttpFallbacks(service, request, started.job)
    factories.check_disks(context.settings)
    resumed = patience.waited
    while True:
        patience.while_paused(started.job)
        if resumed:  # the command that resumed it makes its domains claimable
            time.sleep(RESUME_DELAY)
        since = service.now()
        interrupted = service.has_work(started.job, context.settings.crawl.patience) and _run_workers(
            context,
            started.job,
            workers or _default_workers(service, started.job),
            verbosity,
            announcements,
            None if parser_choice is None else parser_choice.file,
        )
        # Its workers end when there is nothing more to do, and also when it is paused.
        resumed = not interrupted and service.was_paused(started.job, since)
        if not resumed:
            break
    if interrupted:
        progress = service.stop(started.job)
        summary = service.interrupted_summary(started.job, progress)
        if as_json:
            output.print_json({**_progress_json(progress), "completed": False, "interrupted": True, **asdict(summary)})
        else:
            _print_lines([f"{_page_line(summary, progress)} so far.", *summary_lines(summary)])
        raise Interrupted
    for line in announcements():
        say(line)
    extracted = extraction.finish(context, started.job, parser_choice, items_file)
    finished = service.end(started.job)
    stuck = proxies.without_a_proxy(started.job.id) if finished.status.delayed else []
    with _note_after(SLOW_COUNT_SECONDS, "Counting the URLs that were not crawled …"):
        summary = service.summary(started.job, finished, stuck)
    _report(summary, finished, stuck, as_json, extracted, context.settings.retention)


class _PauseWaiter:
    """Waits while a job is paused, with one message a pause. A database that does not answer meanwhile is retried."""

    def __init__(self, state: Callable[[Job], JobState], kept_up: Callable[[], AbstractContextManager[object]]) -> None:
        """`kept_up` keeps the bundled server up while it is entered."""
        self._state = state
        self._kept_up = kept_up
        self.waited = False
        """The job was paused at its start or later."""

    def while_paused(self, job: Job) -> None:
        """Wait until the job is not paused. Raises Refused if it was cancelled."""
        state = self._state(job)
        if state is JobState.PAUSED:
            state = self.wait(job)
        if state is JobState.CANCELLED:
            raise Refused(f"Job {job.name} was cancelled. Its pages are in the store; --again starts it again.")

    def wait(self, job: Job) -> JobState:
        """Wait until the pause ends; the state after it. Before: the job is paused."""
        self.waited = True
        say(
            f"Job {output.safe(job.name)} is paused: `holdfast jobs resume {output.safe(quote(job.name))}` resumes it, "
            "Ctrl-C leaves it paused."
        )
        unavailable = False
        with self._kept_up():
            while True:
                time.sleep(PAUSE_POLL_SECONDS)
                try:
                    state = self._state(job)
                except StoreUnavailable as problem:
                    if not unavailable:
                        say(f"{problem} Nothing is lost; waiting until it answers.")
                    unavailable = True
                    continue
                unavailable = False
                if state is not JobState.PAUSED:
                    return state


class _HttpFallbacks:
    """Messages about seeds without a scheme that fell back to http, one line each, once."""

    def __init__(self, service: CrawlService, request: CrawlRequest, job: Job) -> None:
        self._service, self._request, self._job = service, request, job
        self._reported: set[str] = set()

    def __call__(self) -> list[str]:
        """The lines that were not returned before."""
        found = [url for url in self._service.http_fallbacks(self._request, self._job) if url not in self._reported]
        self._reported.update(found)
        return [f"{output.safe(url)} does not answer TLS; crawling {output.safe(with_http(url))}." for url in found]


def _has_contact(settings: Settings, job: Job) -> bool:
    """Whether the User-Agent is set, or names a contact."""
    return bool(settings.crawl.contact or settings.domains.user_agent or job.spec.user_agent)


def _default_workers(service: CrawlService, job: Job) -> int:
    """One process a core, but not more than the job has domains if its scope is a single host."""
    return (
        min(available_cores(), max(1, service.status(job).rows)) if job.spec.scope is Scope.HOST else available_cores()
    )


def _announce(started: StartedCrawl, seeds_file: str | None, *, quiet: bool) -> None:
    for line in bad_seeds(started.seeds.bad_lines, started.seeds.bad, seeds_file):
        say(line)
    if started.seeds.stopped:
        raise HoldfastError(started.seeds.stopped)
    if started.unrelated_job is not None:
        say(f"The seed file has no seed in common with job {output.safe(started.unrelated_job)}: this is another job.")
    for held in started.held_back:
        say(
            f"{output.safe(held.domain)} asked for a pause until {output.format_time(held.until)} UTC, which is still respected."
        )
    how = "Continuing" if started.known else "Crawling"
    if not quiet:
        say(f"{how} job {output.safe(started.job.name)}. Ctrl-C stops; the same command continues.")
        if started.edited_rules is not None:
            undo = f"`holdfast jobs undo-scope {quote(started.job.name)}` takes the last edit back"
            version = f"rules version {started.job.rules_version}"
            say(output.safe(f"Its scope was edited since ({version}): {started.edited_rules}; {undo}."))
        if started.secrets:
            say(f"It sends {', '.join(map(output.safe, started.secrets))} to the sites of its seeds, as set before.")


def _run_workers(
    context: CommandContext,
    job: Job,
    count: int,
    verbosity: Verbosity,
    announcements: Callable[[], list[str]],
    parser_file: Path | None = None,
) -> bool:
    """Run the workers until they end; True if a signal stopped them. `announcements` returns lines to print while they run."""
    from holdfast.control.scheduler import has_anything_to_do  # here: `worker` does not need it

    log.set_up(factories.log_folder(context.settings) / "crawl.log")
    beside = background_process(context) if has_anything_to_do(context.store()) else nullcontext()
    title = f"Job {output.safe(job.name)}"
    drain = context.settings.worker.drain
    with (
        beside,
        live_job_reader(context, job.id) as read,
        ProgressDisplay(read, title, quiet=verbosity.quiet, drain=drain, announcements=announcements) as display,
        keep_server_running(context, display.note),
    ):
        if count > 1 or not context.settings.rollout.claim_protocol:
            return _run_processes(
                context, job, count if context.settings.rollout.claim_protocol else 1, display, verbosity, parser_file
            )
        plan = factories.worker_config(context.settings, context.store(), factories.worker_name(1), job.id, parser_file)
        if verbosity.verbose:
            plan = replace(plan, report=lambda outcomes: display.print_outcomes(map(UrlLine.from_outcome, outcomes)))
        return run_worker(plan, on_stop_signal=display.on_stop_signal)


@contextmanager
def live_job_reader(context: CommandContext, job_id: int) -> Iterator[Callable[[], LiveJob]]:
    """A function that reads the live state of the job, each time on the same connection. One thread calls it."""
    with KeptConnection(context.store().with_application_name("holdfast display")) as kept:
        yield LiveJobReader(kept, job_id).read


def _run_processes(
    context: CommandContext,
    job: Job,
    count: int,
    display: ProgressDisplay,
    verbosity: Verbosity,
    parser_file: Path | None = None,
) -> bool:
    lines = PipeReader(display.print_outcomes) if verbosity.verbose else None
    extra = [] if lines is None else ["--report-to", str(lines.write_end)]
    extra += [] if parser_file is None else ["--parser-file", str(parser_file)]

    def command(number: int) -> Sequence[str]:
        name = factories.worker_name(number)
        return holdfast_command(
            context, "worker", "--job", job.name, "--name", name, "--supervised", "--siblings", str(count), *extra
        )

    files = () if lines is None else (lines.write_end,)
    supervisor = Supervisor(command, count, factories.log_folder(context.settings), files=lambda _: files)
    try:
        interrupted = run_until_stopped(supervisor, display.note, display.on_stop_signal)
    finally:
        if lines is not None:
            lines.close()
    if supervisor.refusal is not None and not interrupted and not supervisor.done:
        database_admin.check(context.store())
        raise HoldfastError(f"The workers exit at startup; {supervisor.log_file(1)} says why.")
    return interrupted


def _progress_json(progress: CrawlProgress) -> dict[str, Any]:
    spread = asdict(progress.spread) if progress.spread else {}
    return {"pages": progress.pages, "errors": progress.errors, "bytes": progress.bytes, **spread}


def _report(
    summary: CrawlSummary,
    finished: FinishedCrawl,
    stuck: Sequence[str],
    as_json: bool,
    extracted: Mapping[str, int],
    retention: Retention,
) -> None:
    """Print the result. `stuck`: some of the domains that wait for a proxy; `extracted`: counters of the job's parser."""
    if as_json:
        found = {**_progress_json(finished.progress), "completed": finished.completed, **asdict(summary), **extracted}
        output.print_json(found | ({"waiting_for_a_proxy": stuck} if stuck else {}))
    else:
        _print_lines([f"{_page_line(summary, finished.progress)}.", *summary_lines(summary)])
        if finished.completed and retention.schedule is not None and retention.pages:
            say(
                f"Retention runs at {retention.schedule}: these pages are kept for {render_duration(retention.pages)} (retention.pages), "
                f"their texts and archive for {render_duration(retention.content) if retention.content else 'ever'} (retention.content); "
                "then both are archived."
            )
    if summary.exit_code:
        raise typer.Exit(summary.exit_code)


def _page_line(summary: CrawlSummary, progress: CrawlProgress) -> str:
    """The first line of the result: pages, bytes, redirects, failed requests."""
    before = f" this time, {summary.pages_in_all:,} in all" if summary.pages_in_all > summary.pages else ""
    figures = [
        f"{output.pluralize(summary.pages, 'page')}{before}",
        *([format_bytes(progress.bytes)] if progress.bytes else []),
    ]
    figures += [output.pluralize(summary.redirects, "redirect")] if summary.redirects else []
    figures += [output.pluralize(progress.errors, "failed request")] if progress.errors else []
    return ", ".join(figures)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        output.print_line(output.safe(line))


@contextmanager
def _note_after(seconds: float, sentence: str) -> Iterator[None]:
    """Print `sentence` if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, say, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
