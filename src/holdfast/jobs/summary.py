"""Summaries of crawls and jobs: pages, URLs not crawled by reason, waits and their ends, and the next step.

The rule: every ending names its cause, its numbers, and the option or command that changes it. One record for the last lines of
`crawl`, for `--json`, for `jobs show` and for the API; `lines` renders it as text.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from shlex import quote
from typing import Final

from holdfast.control.background_cache import TIMEOUT, BackgroundCache
from holdfast.control.explain_text import Wait, blocked, cause, describe_wait, in_words, robots_wait, why_not
from holdfast.db import crawls, explain, job_ends, jobs
from holdfast.db.connection import Connection
from holdfast.db.crawls import LimitReached
from holdfast.db.job_ends import ReasonCount
from holdfast.jobs.queries import progress as queries
from holdfast.jobs.queries.progress import WaitCount
from holdfast.jobs.records import CrawlSummary, Ending, NotCrawled, TypeCount, Waiting
from holdfast.model.content_type import expand, group_of
from holdfast.model.job import Job, JobState, Limit
from holdfast.model.outcome import Outcome
from holdfast.model.url_reason import NOT_LEFT_OUT
from holdfast.stats.records import SILENCE

_WITH_DETAIL: Final = frozenset({Outcome.TOO_DEEP})
"""Reasons whose example states the limit."""
_RETRIED_AT_ONCE: Final = frozenset({"robots", "unreachable", "attempt", "circuit"})
"""Waits that end when the command is run again."""
_CONTINUES: Final = frozenset({"ready", "held", "parked"})
"""Waits of domains that are crawled, or will be by the next worker."""
MAX_WAITS: Final = 5
"""Groups of waits that are listed."""
MAX_TYPES: Final = 10
"""Content types that are listed."""


def summarize(
    connection: Connection,
    job: Job,
    *,
    pages: int | None = None,
    errors: int = 0,
    completed: bool = False,
    interrupted: bool = False,
    limits: Sequence[LimitReached] = (),
    without_proxy: Sequence[str] = (),
    may_continue: bool = False,
) -> CrawlSummary:
    """The summary of a crawl of a job. `pages`, `errors`: of the crawl that ended; `completed`: the job was completed by proof; `limits`:
    set by the operator, that keep URLs waiting; `without_proxy`: domains (the first ones) for which no proxy can be used; `may_continue`:
    the crawl may continue by itself, so that a job without a page has not failed yet.

    It reads all of the job's URLs, except for an interrupted crawl, which has to end at once.
    """
    totals = queries.totals(connection, job.id)
    reasons = [] if interrupted else job_ends.by_reason(connection, job.id)
    found = queries.waits(connection, job.id)
    limit = " and ".join(map(_limit_text, limits)) or None
    in_all = max(totals.pages, pages or 0)
    no_page_cause, step = None, ""
    stuck = [_waiting_for_proxy(without_proxy)] if without_proxy else []
    if interrupted:
        ending = Ending.INTERRUPTED
    elif not in_all and not (may_continue and any(wait.kind in _CONTINUES for wait in found)):
        ending = Ending.NO_PAGE
        no_page_cause, step = (
            (stuck[0].what, f"{stuck[0].change}.") if stuck else _why_no_page(connection, job, reasons, found)
        )
    elif completed:
        ending = Ending.COMPLETE
    elif limit:
        ending = Ending.LIMIT
    elif any(wait.kind in _CONTINUES for wait in found):
        ending = Ending.UNFINISHED
    else:
        ending = Ending.WAITS if found else Ending.COMPLETE
    waits = stuck + [_waiting(connection, job, wait) for wait in found if wait.kind not in _SILENT and not interrupted]
    return CrawlSummary(
        now=totals.now,
        job=job.name,
        ending=ending,
        pages=totals.pages if pages is None else pages,
        pages_in_all=in_all,
        waiting=totals.waiting,
        redirects=sum(count.urls for count in reasons if count.reason == Outcome.REDIRECT),
        not_crawled=list(_not_crawled(connection, job, reasons)),
        waits=waits,
        limit=limit,
        cause=no_page_cause,
        next_step=step or _next_step(ending, job, pages, errors, waits),
        sources=None if interrupted else queries.sources(connection, job.id),
        images=queries.images(connection, job.id) if job.spec.images and not interrupted else None,
    )


def summarize_job(connection: Connection, job: Job) -> CrawlSummary:
    """The summary of a job, whichever process crawls it or crawled it. It names no "same command": the reader only looks at the job."""
    limits = crawls.limits_reached(connection, job.id)
    state = jobs.state(connection, job.id)
    # A completed job may have URLs that wait on domains which only an operator can unblock.
    completed = state is JobState.COMPLETED and not queries.totals(connection, job.id).waiting
    found = summarize(connection, job, completed=completed, limits=limits, may_continue=True)
    resume = f"`holdfast crawl --job {quote(job.name)}`"

    def named(text: str) -> str:
        # By a function: in a replacement text a backslash of the job's name would be an escape.
        return re.sub("(?i)the same command", lambda _: resume, text.replace(", and so does the same command", ""))

    waits = [replace(wait, change=wait.change and named(wait.change)) for wait in found.waits]
    step = named(found.next_step)
    if state is JobState.PAUSED:
        step = f"The job is paused; `holdfast jobs resume {quote(job.name)}` resumes it."
    return replace(found, next_step=step, waits=waits)


_NAMED_BY_CAUSE: Final = frozenset({"robots", "proxy", "unreachable"})
_SILENT: Final = frozenset({"ready", "limit"})
"""Waits that are not listed at the end of a crawl: nothing keeps the URLs waiting, or the limit has a line of its own."""


def _limit_text(reached: LimitReached) -> str:
    """A reached limit, with its number and option."""
    value = "" if reached.value is None else f"{reached.value:,} "
    where = "of a domain" if reached.domains == 1 else f"of {reached.domains:,} domains"
    match reached.limit:
        case Limit.MAX_PAGES:
            return f"{value}pages (`--max-pages {reached.value}`)"
        case Limit.MAX_PAGES_PER_DOMAIN:
            return f"{value}pages {where} (`--max-pages-per-domain {reached.value}`)"
        case Limit.ROUNDS:
            return f"{value}{'round' if reached.value == 1 else 'rounds'} {where} (`--rounds {reached.value}`)"
        case Limit.DOMAIN_BUDGET:
            return f"{value}pages {where} (`holdfast domains set DOMAIN budget=`)"


def _not_crawled(connection: Connection, job: Job, reasons: Iterable[ReasonCount]) -> Iterator[NotCrawled]:
    for count in reasons:
        if count.state != "waiting" and count.reason not in NOT_LEFT_OUT:
            reason = why_not(count.detail)
            types = _types(connection, job) if count.reason == Outcome.WRONG_TYPE else []
            change = None if types else reason.change  # each type has an option of its own
            detail = in_words(count.detail)[1]
            yield NotCrawled(count.reason, reason.label, count.urls, change, count.example, detail, types)


def _types(connection: Connection, job: Job) -> list[TypeCount]:
    """The most frequent content types that a job left out, with the option that takes each."""
    taken = expand(job.spec.types)
    found = []
    for name, urls in queries.wrong_types(connection, job.id, limit=MAX_TYPES):
        group = group_of(name)
        found.append(TypeCount(name, urls, f"`--types {group}`" if group and group not in taken else None))
    return found


def _why_no_page(
    connection: Connection, job: Job, reasons: list[ReasonCount], waits: list[WaitCount]
) -> tuple[str, str]:
    """The cause that there is no page at all, as a sentence without its end, and the remedy."""
    for wait in waits:
        if wait.robots_url and wait.problem:
            return cause(wait.problem, wait.robots_url, robots=True)
    real = [count for count in reasons if count.reason != Outcome.REDIRECT] or reasons
    if real:
        return cause(real[0].detail, real[0].example)
    if waits:
        first = _describe(connection, job, waits[0])
        return first.what, _sentence(first.change) if first.change else "Run the same command again."
    return "the job has no URLs", "Add some: a URL, or `--seeds FILE` with one URL a line."


def waits_now(connection: Connection, job: Job) -> list[Waiting]:
    """What domains of the job that no worker holds wait for, except for a free worker or a limit."""
    found = queries.waits(connection, job.id)
    return [_waiting(connection, job, wait) for wait in found if wait.kind not in _SILENT | {"held"}]


def _waiting(connection: Connection, job: Job, count: WaitCount) -> Waiting:
    wait = _describe(connection, job, count)
    return Waiting(count.kind, wait.what, wait.until, wait.change, count.domains, count.urls)


def _waiting_for_proxy(domains: Sequence[str]) -> Waiting:
    some = ", ".join(domains[:3]) + (" …" if len(domains) > 3 else "")
    what = f"no proxy can be used for {some}, which must not be asked without one"
    return Waiting("proxy", what, None, "`holdfast proxies list` shows why", len(domains), 0)


def _describe(connection: Connection, job: Job, count: WaitCount) -> Wait:
    where = _domains(count.domains, count.example)
    match count.kind:
        case "blocked" | "unreachable":
            one = blocked(count.example, count.kind, count.code, count.until)
            return Wait(one.what.replace(count.example, where, 1), one.until, one.change)
        case "inactive":
            return Wait(
                f"{where} is switched off", None, f"`holdfast domains set {count.example} active=yes` switches it on"
            )
        case "parked":
            return Wait(
                f"{where} waits for the job, which was paused", None, f"`holdfast jobs resume {quote(job.name)}`"
            )
        case "robots" if count.robots_url:
            one = robots_wait(count.robots_url, count.problem, count.until)
            return Wait(f"{where}: {one.what}", one.until, "the same command asks at once")
        case "back_off":
            return Wait(f"{where} asked for fewer requests (429, 503 or Retry-After)", count.until)
        case "circuit":
            meaning, detail = in_words(count.problem)
            reason = f" ({detail or meaning})" if count.problem else ""
            return Wait(f"{where} failed too often in a row{reason}", count.until, "the same command asks again")
        case "held":
            moment = explain.moment(connection, count.example_id, silence=SILENCE)
            holder = moment["held_for"]
            return Wait(f"{where} is being crawled" + (f" for job {holder}" if holder and holder != job.name else ""))
        case "limit":
            return Wait(f"{where} has reached its limit of pages")
        case "attempt":
            return Wait(f"{where} waits for the next attempt on URLs that failed", count.until)
    return Wait(f"{where} waits for a worker", None, "`holdfast crawl` or `holdfast worker` starts one")


def _domains(number: int, example: str) -> str:
    return example if number == 1 else f"{example} and {number - 1:,} more"


def _next_step(ending: Ending, job: Job, pages: int | None, errors: int, waits: Iterable[Waiting]) -> str:
    resume = f"`holdfast crawl --job {quote(job.name)}`"
    match ending:
        case Ending.COMPLETE if pages == 0 and errors:
            return "The same command retries the URLs that failed in the network; `--again` crawls all again."
        case Ending.COMPLETE if pages == 0:
            return "Nothing was left to crawl; `--again` crawls all of it again."
        case Ending.COMPLETE:
            return f"`holdfast export pages pages.jsonl --job {quote(job.name)}` writes them to a file."
        case Ending.LIMIT:
            return "The same command crawls as many pages again."
        case Ending.WAITS if any(wait.kind in _RETRIED_AT_ONCE for wait in waits):
            return "The same command retries at once."
        case Ending.WAITS:
            return f"{resume} continues then."
    return f"{resume} continues where it was, and so does the same command."


def lines(summary: CrawlSummary) -> Iterator[str]:
    """The summary as sentences, without the figures of its first line."""
    yield from source_lines(summary)
    if summary.images is not None:
        which = "image is" if summary.images == 1 else "images are"
        yield f"Images: {summary.images:,} {which} stored (`holdfast images list --job {quote(summary.job)}`)."
    if summary.not_crawled:
        total = sum(left.count for left in summary.not_crawled)
        yield f"Not crawled: {total:,} {'URL' if total == 1 else 'URLs'} (listed by `holdfast export urls urls.jsonl`)"
        yield from not_crawled_lines(summary, indent="  ")
    # Without a page, the cause names these already.
    named = _NAMED_BY_CAUSE if summary.ending is Ending.NO_PAGE else ()
    waits = [wait for wait in summary.waits if wait.kind not in named]
    for number, wait in enumerate(waits):
        if number == MAX_WAITS:
            yield f"{len(waits) - MAX_WAITS:,} more waits: `holdfast status`, `holdfast explain DOMAIN`."
            break
        yield _sentence(wait_line(wait, summary.now))
    match summary.ending:
        case Ending.NO_PAGE:
            yield f"No page could be fetched: {summary.cause}."
        case Ending.COMPLETE:
            yield f"Job {summary.job} is complete: no URL waits."
        case Ending.LIMIT:
            left = f"; {summary.waiting:,} URLs wait" if summary.waiting else ""
            yield f"Stopped at {summary.limit}{left}."
        case Ending.INTERRUPTED | Ending.UNFINISHED if summary.waiting > sum(wait.urls for wait in waits):
            yield f"{summary.waiting:,} {'URL waits' if summary.waiting == 1 else 'URLs wait'}."
    yield summary.next_step


def source_lines(summary: CrawlSummary) -> Iterator[str]:
    """Where the URLs came from, if sitemaps were read, and what is wrong with those."""
    if (found := summary.sources) is None:
        return
    read = f"{found.sitemaps:,} {'sitemap' if found.sitemaps == 1 else 'sitemaps'}"
    seeds = f"{found.seeds:,} {'seed' if found.seeds == 1 else 'seeds'}"
    yield f"URLs: {found.listed:,} listed by {read}, {found.linked:,} by links alone, {seeds}."
    if found.problems:
        which = found.problem_url if found.problems == 1 else f"{found.problems:,} of them, {found.problem_url} first,"
        yield f"Sitemaps: {which} could be read only in part, or not at all: {found.problem}."


def not_crawled_lines(summary: CrawlSummary, indent: str = "") -> Iterator[str]:
    """One line for each reason: the number, the label, and the option that changes it."""
    width = max((len(f"{left.count:,}") for left in summary.not_crawled), default=0)
    for left in summary.not_crawled:
        detail = f" ({left.detail})" if left.reason in _WITH_DETAIL and left.detail else _types_text(left)
        change = f": {left.change}" if left.change else ""
        yield f"{indent}{left.count:>{width},}  {left.label}{detail}{change}"


def _types_text(left: NotCrawled) -> str:
    """The content types of URLs, in brackets; empty: they were not left out for that."""
    if not left.types:
        return ""
    named = [f"{one.count:,} {one.media_type}{f': {one.change}' if one.change else ''}" for one in left.types]
    rest = left.count - sum(one.count for one in left.types)
    return f" ({', '.join([*named, *([f'{rest:,} of other types'] if rest else [])])})"


def wait_line(wait: Waiting, now: datetime) -> str:
    """The condition that domains wait for, its end, the number of URLs, and what changes it."""
    urls = f"; {wait.urls:,} {'URL waits' if wait.urls == 1 else 'URLs wait'}" if wait.urls else ""
    change = f"; {wait.change}" if wait.change else ""
    return f"{describe_wait(Wait(wait.what, wait.until), now)}{urls}{change}"


def _sentence(text: str) -> str:
    """The text as a sentence; the name of a host at its beginning is not capitalized."""
    host = any(mark in text.split(" ", 1)[0].rstrip(":") for mark in ".:")
    return f"{text}." if host else f"{text[0].upper()}{text[1:]}."


class SummaryCache(BackgroundCache[int, CrawlSummary]):
    """A cache of job summaries by job id: each summary reads all URLs of its job; its `now` says when it was computed."""

    def __init__(
        self,
        make: Callable[[int], CrawlSummary],
        *,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(make, "Summaries of other jobs", timeout=timeout, clock=clock)
