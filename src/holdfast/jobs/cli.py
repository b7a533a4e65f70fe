"""`holdfast jobs`: list, show, plan, create, edit, log, retry, schedule, pause, resume, cancel, delete, watch and compare jobs."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from shlex import quote
from typing import Annotated, Final, Protocol

import typer

from holdfast import factories
from holdfast.cli import command_context, job_options, output, secret_options
from holdfast.cli.crawl import live_job_reader
from holdfast.cli.help import Command, Group
from holdfast.cli.output import format_bytes, pluralize
from holdfast.cli.progress import READ_INTERVAL, ProgressDisplay
from holdfast.cli.seeds import bad_seeds
from holdfast.errors import HoldfastError, UsageError
from holdfast.frontier.records import Retried
from holdfast.frontier.service import FrontierService
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.edits import ALL_KEYS, follow_up, parse
from holdfast.jobs.records import (
    ComparedPage,
    Comparison,
    CrawlPlan,
    CrawlSummary,
    CreatedJob,
    EditedJob,
    Job,
    PageChange,
    RulesVersion,
    ScopePreview,
    StateChange,
)
from holdfast.jobs.seed_import import ImportProgress
from holdfast.jobs.service import JobService, OnProgress
from holdfast.jobs.summary import lines as summary_lines
from holdfast.model.job import JobState
from holdfast.model.outcome import UrlState
from holdfast.model.scope import describe_rules
from holdfast.sitemaps.cli import print_sitemaps

app = typer.Typer(
    cls=Group,
    help="Jobs: list, show, compare, create, edit, pause, resume, cancel and delete them.",
    no_args_is_help=True,
)

Which = Annotated[str, typer.Argument(metavar="JOB", help="Its name or its id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_POLL_INTERVAL: Final = 0.5
"""Seconds between two reads of the state of a watched job."""


def _valid_texts(texts: list[str] | None) -> list[str] | None:
    """Check each text, as `command_context.valid_text` does."""
    for text in texts or ():
        command_context.valid_text(text)
    return texts


class Jobs(Protocol):
    """Jobs of a database, or of a server."""

    def all(self) -> list[Job]: ...

    def show(self, job: str | int) -> Job: ...

    def summary(self, job: str | int) -> CrawlSummary: ...

    def compare(self, job: str | int) -> Comparison: ...

    def some_compared(self, job: str | int, change: PageChange, limit: int) -> list[ComparedPage]: ...

    def schedule(self, job: str | int, when: str | None) -> datetime | None: ...

    def pause(self, job: str | int) -> StateChange: ...

    def cancel(self, job: str | int) -> StateChange: ...

    def resume(self, job: str | int, on_progress: OnProgress) -> StateChange: ...

    def delete(self, job: str | int, on_progress: OnProgress) -> str: ...

    def preview_scope(self, job: str | int, changes: Mapping[str, object]) -> ScopePreview: ...

    def undo_scope(self, job: str | int) -> EditedJob: ...

    def scope_history(self, job: str | int) -> list[RulesVersion]: ...


def _jobs(ctx: typer.Context) -> Jobs:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client)
    return _local(context)


def _local(context: command_context.CommandContext) -> JobService:
    return JobService(context.store(), command_context.actor(), job_options.rule_settings(context))


def _create(
    ctx: typer.Context, request: CrawlRequest, on_progress: Callable[[ImportProgress], None], schedule: str | None
) -> CreatedJob:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client).create(request, on_progress, schedule)
    if (parser := (request.options or {}).get("parser")) is not None:
        from holdfast.control.parsers import check_known

        check_known(parser, context.settings.parsing)
    return _local(context).create(job_options.crawl_service(context), request, on_progress, schedule)


@app.command("list", cls=Command)
def listed(ctx: typer.Context, as_json: output.Json = False) -> None:
    """List all jobs.

    Examples:
        holdfast jobs list
        holdfast jobs list --json
    """
    found = _jobs(ctx).all()
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


@app.command("show", cls=Command)
def show(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Show one job: where it is, what it has done, which URLs were not crawled and why, and what it waits for.

    Examples:
        holdfast jobs show news
        holdfast jobs show 3 --json
    """
    jobs = _jobs(ctx)
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


@app.command("compare", cls=Command)
def compare(
    ctx: typer.Context,
    job: Which,
    kind: Annotated[
        PageChange | None, typer.Option("--kind", metavar="KIND", help=f"List pages: {', '.join(PageChange)}.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="List at most so many.")] = 100,
    as_json: output.Json = False,
) -> None:
    """Compare the last crawl of a job with the one before: how many pages are new, changed, gone, failed or unchanged.

    `holdfast pages diff URL` shows what changed on one of them. A page that redirects now, or whose server did not answer, keeps its
    last answer and is in no count.

    Examples:
        holdfast jobs compare news
        holdfast jobs compare news --kind changed --limit 20
        holdfast jobs compare news --kind gone --json
    """
    jobs = _jobs(ctx)
    found = jobs.compare(job)
    pages = [] if kind is None else jobs.some_compared(job, kind, limit)
    if as_json:
        output.print_json(asdict(found) | ({} if kind is None else {"pages": pages}))
        return
    if kind is None:
        output.print_fields(_comparison_fields(found))
        return
    rows = [
        (
            output.format_time(page.at),
            _before_and_after(page.status_before, page.status),
            page.version if page.version is not None else "-",
            page.url,
            page.title or "",
        )
        for page in pages
    ]
    output.print_table(["WHEN", "STATUS", "BEFORE", "URL", "TITLE"], rows, right="BEFORE")
    total = getattr(found, kind)
    if len(pages) < total:
        command_context.say(f"{len(pages):,} of {_at_least(found, kind)} pages; `--limit` shows more.")


def _comparison_fields(found: Comparison) -> list[tuple[str, object]]:
    ended = f", ended {output.format_time(found.ended_at)} UTC" if found.ended_at else ", not ended yet"
    before = f"{output.format_time(found.previous_started_at)} UTC" if found.previous_started_at else "none: all is new"
    return [
        ("Job", found.job),
        ("Crawl", f"{found.crawl}, begun {output.format_time(found.started_at)} UTC{ended}"),
        ("Before it", before),
        *((change.capitalize(), _at_least(found, change)) for change in PageChange),
    ]


def _at_least(found: Comparison, change: PageChange) -> str:
    """A count; one that is a lower bound with a plus."""
    return f"{getattr(found, change):,}{'+' if change in found.at_least else ''}"


def _before_and_after(before: int | None, after: int | None) -> str:
    numbers = ["-" if status is None else str(status) for status in (before, after)]
    return numbers[1] if before in (None, after) else " → ".join(numbers)


@app.command("create", cls=Command)
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", callback=command_context.valid_text, help="A name for it.")],
    urls: job_options.Urls = None,
    seeds: job_options.Seeds = None,
    max_pages: job_options.MaxPages = None,
    max_pages_per_domain: job_options.MaxPagesPerDomain = None,
    rounds: job_options.Rounds = None,
    max_depth: job_options.MaxDepth = None,
    delay: job_options.Delay = None,
    concurrency: job_options.Concurrency = None,
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
    parser: job_options.JobParser = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help='Crawl it again and again: "6h", or a cron expression, perhaps with a time zone.'
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only plan it: pages, time, what they assume. Nothing is made.",
        ),
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Create a job for running or later workers. `holdfast crawl` creates one and crawls it at once.

    Examples:
        holdfast jobs create news https://example.com --max-pages 500
        holdfast jobs create news --seeds sites.txt --max-pages 500 --dry-run
        holdfast jobs create top --seeds tranco.csv.gz --scope domain
        holdfast jobs create prices shop.example --schedule "30 6 * * mon-fri"
    """
    if not urls and seeds is None:
        raise UsageError("Name what to crawl: URLs, or --seeds FILE.")
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
        parser=parser,
    )
    secrets = secret_options.parse_secrets(header, cookie, basic_auth)
    if parser is not None and no_archive:
        raise UsageError("--parser reads pages from the archive, so --no-archive cannot be given with it.")
    if dry_run:
        planned = _plan(ctx, CrawlRequest(tuple(urls or ()), seeds, name, options))
        _print_plan(planned, seeds, as_json)
        if planned.problem:
            raise HoldfastError(planned.problem)
        if planned.bad:
            raise typer.Exit(1)
        return
    imported = ImportProgress()

    with output.ProgressBar("Loading seeds", None, "line", hidden=seeds is None) as bar:

        def show(progress: ImportProgress) -> None:
            nonlocal imported
            imported = progress
            bar.show(progress.bytes_read, progress.lines)

        request = CrawlRequest(tuple(urls or ()), seeds, name, options, secrets=secrets)
        created = _create(ctx, request, show, schedule)
    for line in bad_seeds(created.bad_seeds, created.bad, seeds):
        command_context.say(line)
    new = created.job
    if as_json:
        output.print_json({"id": new.id, "job": new.name, "seeds": created.seeds, "bad": created.bad})
    else:
        output.print_line(
            f"Made job {output.safe(new.name)} with {pluralize(created.seeds, 'seed')}; workers take it up, "
            f"or `holdfast crawl --job {output.safe(quote(new.name))}`."
        )
    if imported.stopped:
        raise HoldfastError(imported.stopped)
    if created.bad:
        raise typer.Exit(1)


def _plan(ctx: typer.Context, request: CrawlRequest) -> CrawlPlan:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client).plan(request)
    return JobService(context.store(), command_context.actor()).plan(job_options.crawl_service(context), request)


@app.command("plan", cls=Command)
def plan(
    ctx: typer.Context,
    job: Which,
    again: Annotated[
        bool, typer.Option("--again", help="Plan all URLs that it knows, as its schedule would crawl them.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Plan what a job has left to do: pages and time of its domains, and what they assume. Nothing is fetched.

    A job that does not exist yet is planned by `holdfast jobs create NAME URL --dry-run`.

    Examples:
        holdfast jobs plan news
        holdfast jobs plan news --again --json
    """
    _print_plan(_plan(ctx, CrawlRequest(job=job, again=again)), None, as_json)


_SHOWN_DOMAINS: Final = 20
"""Domains of a plan that are printed; --json has a hundred."""


def _print_plan(planned: CrawlPlan, file: str | None, as_json: bool) -> None:
    for line in bad_seeds(planned.bad_seeds, planned.bad, file):
        command_context.say(line)
    if as_json:
        output.print_json(planned)
        return
    unknown = f", {pluralize(planned.unknown_domains, 'domain')} unknown" if planned.unknown_domains else ""
    seconds = "unknown" if planned.seconds is None else _about(planned.seconds)
    slowest = f" ({planned.slowest_domain} takes longest)" if planned.slowest_domain and planned.domains > 1 else ""
    output.print_fields(
        [
            ("Domains", f"{planned.domains:,}"),
            ("Pages", f"{planned.pages:,}{unknown}"),
            ("Time", f"{seconds if planned.complete or planned.seconds is None else f'at least {seconds}'}{slowest}"),
        ]
    )
    output.print_line()
    rows = [
        (
            one.domain,
            "unknown" if one.pages is None else f"{one.pages:,}",
            one.pages_from.replace("_", " "),
            f"{one.delay_seconds:g} s ({one.delay_source})",
            "unknown" if one.seconds is None else _about(one.seconds),
        )
        for one in planned.listed[:_SHOWN_DOMAINS]
    ]
    output.print_table(["DOMAIN", "PAGES", "FROM", "DELAY", "TIME"], rows, right="PAGES")
    if planned.domains > len(rows):
        output.print_line(f"… and {planned.domains - len(rows):,} more domains")
    output.print_line()
    for sentence in planned.assumptions:
        output.print_line(output.safe(f"- {sentence}"))


def _about(seconds: float) -> str:
    """A time in its two largest units: `3 h 20 min`."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    units = ((1440, "d"), (60, "h"), (1, "min"))
    parts = []
    for size, unit in units:
        count, minutes = divmod(minutes, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


@app.command("log", cls=Command)
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


def _edit(ctx: typer.Context, job: str, changes: dict[str, object]) -> EditedJob:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client).edit(job, changes)
    if isinstance(parser := changes.get("parser"), str):
        from holdfast.control.parsers import check_known

        check_known(parser, context.settings.parsing)
    edited = _local(context).edit(job, changes)
    follow_up(job_options.crawl_service(context), edited.id, tuple(changes))
    return edited


@app.command("set", cls=Command)
def edit(
    ctx: typer.Context,
    job: Which,
    assignments: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help=f"What to set; empty lifts it. Keys: {ALL_KEYS}.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many URLs other rules would remove and return.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Change rules, limits, request rate, parser and other options of a job; running visits apply them within two seconds.

    A job that stopped at a limit continues the same crawl once the limit is raised or lifted: pages fetched so far count.

    The rules are scope (host, domain, any), include, exclude and max_depth. Waiting URLs that do not fit any more are denied, URLs that
    were left out and fit now wait; pages that were crawled stay. Several patterns: give include= or exclude= once for each; together
    they replace the ones before. `holdfast jobs undo-scope` takes the last edit of the rules back.

    Examples:
        holdfast jobs set news max_pages=5000 delay=2
        holdfast jobs set news max_pages= max_depth=20
        holdfast jobs set shop parser=product refresh=yes
        holdfast jobs set news scope=domain exclude=/tag/ exclude=/private/
        holdfast jobs set news include=/blog/ --dry-run
        holdfast jobs set news exclude=
    """
    changes = parse(assignments)
    if dry_run:
        _print_preview(_jobs(ctx).preview_scope(job, changes), as_json)
        return
    _print_edit(_edit(ctx, job, changes), as_json)


@app.command("undo-scope", cls=Command)
def undo_scope(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Take back the last edit of a job's rules (scope, include, exclude, max_depth); repeated, the one before that.

    URLs that the edit removed wait again; pages that were crawled stay. Exit code 5 if there is no edit to undo.

    Examples:
        holdfast jobs undo-scope news
    """
    context = command_context.get(ctx)
    undone = _jobs(ctx).undo_scope(job)
    if not context.remote:
        follow_up(job_options.crawl_service(context), undone.id, tuple(undone.changed))
    _print_edit(undone, as_json)


@app.command("scope-history", cls=Command)
def scope_history(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """List the versions of a job's rules (scope, include, exclude, max_depth); the last one is in force.

    Examples:
        holdfast jobs scope-history news
        holdfast jobs scope-history news --json
    """
    versions = _jobs(ctx).scope_history(job)
    if as_json:
        output.print_json(versions)
        return
    rows = [
        (
            one.version,
            output.format_time(one.at),
            one.actor or "-",
            "-" if one.restores is None else f"of version {one.restores}",
            describe_rules(one.rules),
        )
        for one in versions
    ]
    output.print_table(["VERSION", "SINCE", "BY", "RESTORED", "RULES"], rows, right="VERSION")


def _print_edit(edited: EditedJob, as_json: bool) -> None:
    if as_json:
        identity = {"id": edited.id, "job": edited.name, "version": edited.version}
        rules = {"rules_version": edited.rules_version}
        output.print_json(identity | rules | {"changed": edited.changed, "note": edited.note})
        return
    what = f"changed {', '.join(edited.changed)}" if edited.changed else "it is so already"
    output.print_line(output.safe(f"Job {edited.name}: {what}. {edited.note}"))


def _print_preview(preview: ScopePreview, as_json: bool) -> None:
    if as_json:
        output.print_json(preview)
        return
    about = "" if preview.exact else "about "
    output.print_line(
        f"It would remove {about}{pluralize(preview.removes, 'waiting URL')} and return "
        f"{about}{pluralize(preview.returns, 'URL')} that the rules left out. Nothing was changed."
    )
    for what, urls in (("Removed", preview.removed_urls), ("Returned", preview.returned_urls)):
        for url in urls:
            output.print_line(output.safe(f"{what}, for example: {url}"))
    if not preview.exact:
        output.print_line("The numbers are estimated from a part of its URLs: there are too many to read.")


@app.command("schedule", cls=Command)
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
    next_run_at = _jobs(ctx).schedule(job, when)
    if as_json:
        output.print_json({"job": job, "next_run_at": next_run_at})
    elif next_run_at is None:
        output.print_line("It is not crawled again by itself any more.")
    else:
        output.print_line(f"It is crawled again at {output.format_time(next_run_at)} UTC.")


def _count_and_retry(ctx: typer.Context) -> tuple[Callable[..., Retried], Callable[..., Retried]]:
    """The functions that count and retry URLs: of the database, or of a server."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        remote = RemoteJobs(context.client)
        return remote.count_retry, remote.retry
    store = context.store()
    frontier = FrontierService(store, factories.seed_importer(context.settings, store))
    return frontier.count_retry, partial(frontier.retry, actor=command_context.actor())


@app.command("retry", cls=Command)
def retry(
    ctx: typer.Context,
    job: Which,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", callback=_valid_texts, help="Only this URL; may be given several times."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            callback=command_context.valid_text,
            help="Only URLs of this reason, as `jobs show --json` names it: server_error, not_found, robots_denied …",
        ),
    ] = None,
    state: Annotated[
        UrlState | None, typer.Option(metavar="STATE", help="Only URLs in this state: failed, denied or done.")
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(metavar="DOMAIN", callback=command_context.valid_text, help="Only URLs of this domain."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Retry URLs of a job that were not crawled: by default all that failed. They wait again with all their attempts.

    A job that had ended is reopened; running workers go on with it, or `holdfast crawl --job JOB`. Robots.txt, delays, pauses that
    servers asked for and blocks still hold. URLs out of scope or too deep are not retried: it says what to do instead.

    Examples:
        holdfast jobs retry news --dry-run
        holdfast jobs retry news --reason server_error --domain example.com
        holdfast jobs retry news --url https://example.com/broken --yes
    """
    count, act = _count_and_retry(ctx)
    what = {"urls": url or [], "reason": reason, "state": state, "domain": domain}
    found = count(job, **what)
    if not dry_run and found.urls:
        if not yes:
            question = f"Retry {_retried_urls(found)} of job {output.safe(found.job)}?"
            command_context.confirm(question, "Nothing was retried.")
        found = act(job, **what)
    if as_json:
        output.print_json(found)
        return
    for line in _retry_lines(found):
        output.print_line(output.safe(line))


def _retried_urls(found: Retried) -> str:
    urls = f"more than {found.urls:,} URLs" if found.more else pluralize(found.urls, "URL")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in found.by_reason.items())
    return f"{urls} on {pluralize(found.domains, 'domain')} ({reasons})" if found.urls else urls


def _retry_lines(found: Retried) -> Iterator[str]:
    """What was retried, or would be, what was left out, and what keeps it waiting."""
    if not found.urls:
        yield f"Job {found.job} has no such URL to retry; `holdfast jobs show {quote(found.job)}` lists reasons."
    elif found.dry_run:
        yield f"{_retried_urls(found)} would be retried."
    else:
        goes_on = f"; the job is open again: workers go on with it, or `holdfast crawl --job {quote(found.job)}`"
        later = "" if found.finished else "; the server does it in chunks"
        yield f"Retried {_retried_urls(found)}{goes_on if found.reopened else ''}{later}."
    for left in found.left_out:
        more = f" and {left.urls - 1:,} more" if left.urls > 1 else ""
        yield f"Left out: {left.example}{more} ({left.reason}): {left.why}."
    yield from found.notes


@app.command("pause", cls=Command)
def pause(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Stop work on a job, on all machines. Nothing of it is fetched any more within two seconds, and nothing is lost.

    Examples:
        holdfast jobs pause news
    """
    _print_change(_jobs(ctx).pause(job), "paused", as_json)


@app.command("resume", cls=Command)
def resume(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Resume a paused job where it was: running workers continue it, and so does a `crawl` of it that waits.

    Examples:
        holdfast jobs resume news
    """
    with output.ProgressBar("Finding its work again", None, "domain", hidden=as_json) as bar:
        change = _jobs(ctx).resume(job, lambda domains: bar.show(domains, domains))
    _print_change(change, "to be worked on again", as_json)


@app.command("cancel", cls=Command)
def cancel(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """End a job where it is. What it found stays; `holdfast crawl --job NAME --again` would start it anew.

    Examples:
        holdfast jobs cancel news
    """
    _print_change(_jobs(ctx).cancel(job), "cancelled", as_json)


@app.command("delete", cls=Command)
def delete(ctx: typer.Context, job: Which, yes: Yes = False, as_json: output.Json = False) -> None:
    """Delete a job with its URLs and pages. The crawl log and the archive keep what was asked of servers, and their answers.

    Examples:
        holdfast jobs delete news
        holdfast jobs delete 3 --yes
    """
    jobs = _jobs(ctx)
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


@app.command("watch", cls=Command)
def watch(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Watch a job that any process works on, until it ends. Ctrl-C stops watching, not the job.

    It shows pages, URLs in flight, and what the job waits for: a worker, a server that does not answer, another job on its domain.
    With --json it prints an object a line, a second apart.

    Examples:
        holdfast jobs watch news
        holdfast jobs watch news --json
    """
    context = command_context.get(ctx)
    context.require_local("`holdfast jobs watch`")
    jobs = _jobs(ctx)
    found = jobs.show(job)
    if as_json:
        with live_job_reader(context, found.id) as read:
            while not jobs.show(found.id).is_over:
                output.print_json_line(read())
                time.sleep(READ_INTERVAL)
            output.print_json_line(read())
        return
    if not found.is_over:
        try:
            with (
                live_job_reader(context, found.id) as read,
                ProgressDisplay(read, f"Job {output.safe(found.name)}"),
            ):
                while not (found := jobs.show(found.id)).is_over:
                    time.sleep(_POLL_INTERVAL)
        except KeyboardInterrupt:
            command_context.say(f"Stopped watching; job {output.safe(found.name)} itself was not stopped.")
            raise command_context.Interrupted from None
    summary = jobs.summary(found.id)
    pages = f"{pluralize(summary.pages, 'page')}, {format_bytes(found.bytes)}, {pluralize(found.errors, 'error')}"
    again = f"`holdfast crawl --job {quote(found.name)} --again` starts it again"
    cancelled = [f"Job {found.name} was cancelled; {again}."] if found.state is JobState.CANCELLED else None
    for line in (f"{pages}.", *(cancelled or summary_lines(summary))):
        output.print_line(output.safe(line))


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


def _print_change(change: StateChange, what: str, as_json: bool) -> None:
    changed = change.after != change.before
    if as_json:
        output.print_json({"id": change.job_id, "job": change.name, "state": change.after, "changed": changed})
    else:
        output.print_line(f"Job {output.safe(change.name)} is {'' if changed else 'already '}{what}.")
