"""The crawl of one URL, from its choice to the batch. Read this first.

The rule: whatever the server does, exactly one `UrlOutcome` goes into the batch, together with everything that the page led to. Nothing
here writes to the database; the batch writer does, in one transaction.
"""

import asyncio
import dataclasses
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from holdfast import failpoints
from holdfast.archive.image_store import ImageFile
from holdfast.archive.warc import Exchange
from holdfast.crawler import crawl_sitemap
from holdfast.crawler.crawl_image import ImageBudget, check_image, images_of
from holdfast.crawler.crawl_sitemap import SitemapFinder, is_guessed
from holdfast.crawler.link_filter import LinkFilter
from holdfast.crawler.link_recorder import LinkRecorder
from holdfast.crawler.request_gate import Fetcher, RequestGate, RequestSlots, RequestWithheld, VisitOver
from holdfast.crawler.robots_cache import CachedRobots, RobotsCache
from holdfast.crawler.url_buffer import UrlBuffer
from holdfast.crawler.visit_results import VisitResults
from holdfast.crawler.worker_context import WorkerContext
from holdfast.db import jobs
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem, PageRow, Resource, SitemapRow, UrlOutcome
from holdfast.model.content_type import SNIFFED_BYTES, ContentGroup, is_wanted, is_wanted_by_content, media_type
from holdfast.model.domain import UNREACHABLE_EVENTS
from holdfast.model.fetch_types import FetchRequest, FetchResult, ParsedPage
from holdfast.model.image import FetchedImage, ImageProblem
from holdfast.model.job import Job
from holdfast.model.outcome import NOT_AN_ATTEMPT, TREATMENT, Outcome, UrlState
from holdfast.model.page_links import LinkFacts
from holdfast.model.request_secrets import OriginHeaders
from holdfast.model.url import absolute_url
from holdfast.model.url_reason import FAULT_TEXT, ROBOTS_UNAVAILABLE, SITEMAP_TEXT
from holdfast.politeness.error_streak import VisitAnswers, is_login_redirect
from holdfast.politeness.retry import Retry, next_attempt

log: Final = logging.getLogger(__name__)

CHECKED_BYTES: Final = 16 * 1024
"""Bytes that are read of a target that is only checked. Many servers answer HEAD with an error, or not at all, so it is a GET."""
_NO_SITEMAP: Final = frozenset(
    (Outcome.NOT_FOUND, Outcome.CLIENT_ERROR, Outcome.FORBIDDEN, Outcome.LOGIN_WALL, Outcome.CAPTCHA)
)
"""Answers to a request for a sitemap that nothing names, which say that there is none."""


@dataclass(frozen=True, slots=True)
class CrawlContext:
    """What the crawl of a URL needs of its visit."""

    worker: WorkerContext
    job: Job
    agent: str
    """The User-Agent."""
    allow_private: bool
    secrets: OriginHeaders | None
    """Headers, cookies and passwords by origin; None: there are none."""
    parsers: tuple[str, ...]
    """Names of the parsers for its pages; none if its pages are not archived."""
    robots_final: frozenset[Outcome]
    """Outcomes of robots.txt after which its URLs fail, instead of waiting until it is available."""
    robots: RobotsCache
    slots: RequestSlots
    gate: RequestGate
    fetcher: Fetcher
    links: LinkFilter
    recorder: LinkRecorder | None
    """Records the links of pages; None: the job does not."""
    follow: bool
    """Whether the links of pages are followed."""
    sitemaps: SitemapFinder
    image_budget: ImageBudget
    types: frozenset[ContentGroup]
    """What is crawled beside HTML and plain text."""
    answers: VisitAnswers
    buffer: UrlBuffer
    results: VisitResults


async def crawl_url(context: CrawlContext, item: FrontierItem) -> None:
    """Crawl a URL: robots, turn, fetch, parse, classify, links, batch.

    Before: the calling slot chooses, and scope and rules of the job allow the URL. After: the batch has its outcome; or its request was
    withheld, and it is the next one again. Raises VisitOver, with nothing sent, if no more requests may start.
    """
    if not await _robots_allow(context, item):
        return  # the batch has the reason
    await context.gate.turn(item.url_key)  # request rate, circuit breaker, lease, room in the batch
    context.slots.start_request()  # from here on other URLs are crawled at the same time
    request: FetchRequest | None = None
    try:
        request = _request(context, item)
        result = await context.gate.fetch(request)
        failpoints.reach("after_fetch")
        is_page = item.resource is Resource.PAGE
        parsed = await _parse(context, result) if is_page and result.outcome is Outcome.OK else None
        outcome, replacement = await _classify(context, item, result, parsed)
        found = _links(context, item, parsed, outcome) if replacement is None else [replacement]
        sitemap, image, file = None, None, None
        if item.resource is Resource.SITEMAP and replacement is None:
            outcome, sitemap, found = await _read_sitemap(context, item, result, outcome)
        elif item.resource is Resource.IMAGE:
            outcome, image, file = await _check_image(context, item, result, outcome, replacement)
        if parsed is not None and outcome is Outcome.OK and not parsed.nofollow and (parsed.sitemaps or parsed.feeds):
            # First: a feed that is also a link is read as a feed, like an image below.
            found = context.sitemaps.linked(item, parsed.base, parsed.sitemaps + parsed.feeds) + found
        found += context.sitemaps.take()
        context.fetcher.settle(request, result, outcome)  # what it says about a proxy
        row = _row(context, item, result, parsed, outcome)
        row.sitemap = sitemap
        row.link_facts = _link_facts(context, item, parsed, outcome, replacement)
        if row.state is not UrlState.WAITING:
            row.image = image
            row.maybe_image = is_page and outcome is Outcome.WRONG_TYPE and context.job.spec.images
        if parsed is not None and parsed.found_images and outcome is Outcome.OK:
            images, row.image_links = images_of(
                item, parsed, context.links, domain_id=context.results.domain_id, job_id=context.job.id
            )
            found = images + found  # first: a URL that is also a link is an image
        context.results.add(item, row, found, _exchange(context, item, result, row), file)
    except asyncio.CancelledError:  # the URL stays in the frontier as it was
        if request is not None and request.sent and not context.results.lost:
            context.results.add(item, _cancelled_row(context, item))
        raise
    except RequestWithheld:
        context.buffer.put_back(item)
    except Exception as problem:
        # An internal error must cost this page, not the domain, and must not be retried endlessly.
        log.exception("%s failed with an internal error", item.url)
        context.results.add(item, _internal_error_row(context, item, problem))


# Robots ---------------------------------------------------------------------------------------------------------------


async def _robots_allow(context: CrawlContext, item: FrontierItem) -> bool:
    """Whether robots.txt allows the URL. After: if not, the batch has it, denied or postponed. While a robots.txt is unavailable nothing of
    its origin is allowed; the other origins of the domain go on. Raises VisitOver if nothing can be requested."""
    if not context.job.spec.robots:
        context.sitemaps.announce(item, None)
        return True
    known = await context.robots.get(item.url, lambda: _is_guessed(context, item))
    if known.no_tls and await _is_guessed(context, item):
        context.results.use_http(item, known.detail)
        return False
    if not known.reachable:
        _postpone(context, item, known)
        return False
    context.robots.postponed = 0
    token = context.robots.token
    context.gate.rate.set_crawl_delay(known.robots.crawl_delay(token))
    decision = known.robots.allowed(item.url, token)
    if decision.allowed:
        context.sitemaps.announce(item, known.robots)
    elif item.resource is Resource.SITEMAP and is_guessed(item.url):
        context.results.deny(item, Outcome.NO_SITEMAP, UrlState.DONE, f"{Outcome.NO_SITEMAP}: robots.txt disallows it")
    else:
        reason = f"robots_denied: {decision.line or ''}"[:500]
        context.results.deny(item, Outcome.ROBOTS_DENIED, UrlState.DENIED, reason)
        if known.robots.denies_everything(token):
            context.answers.record_all_denied()
    return decision.allowed


def _postpone(context: CrawlContext, item: FrontierItem, known: CachedRobots) -> None:
    """Let a URL wait whose robots.txt is unavailable, or fail. Raises VisitOver if that was so for too many in a row."""
    wait = max(1.0, known.expires_at - context.worker.clock.now())
    if known.outcome is not None and known.outcome in context.robots_final:
        context.results.deny(item, known.outcome, UrlState.FAILED, f"{known.outcome}: {known.detail}"[:500])
        return
    if (
        item.resource is Resource.CHECK
        and known.outcome is not None
        and TREATMENT[known.outcome].event in UNREACHABLE_EVENTS
    ):
        reason = f"{known.outcome}: {known.detail}"[:500]  # a link to a host that cannot be reached is broken
        context.results.deny(item, known.outcome, UrlState.FAILED, reason, link_facts=LinkFacts(check=True))
        return
    if known.outcome is Outcome.NO_SUCH_HOST:
        context.answers.record_unreachable(known.detail)
    context.robots.postponed += 1
    if context.robots.postponed > context.worker.settings.worker.window:
        raise VisitOver(wait)
    # Another origin of the domain may be available; so far only this URL waits.
    reason = f"{ROBOTS_UNAVAILABLE}: asked again later"
    context.results.deny(item, Outcome.ROBOTS_DENIED, UrlState.WAITING, reason, retry_in=wait)


async def _is_guessed(context: CrawlContext, item: FrontierItem) -> bool:
    """Whether a URL is a seed of the job whose scheme was guessed. Reads the database: for failed URLs only."""
    if item.depth or item.hops or not item.url.startswith("https:"):
        return False
    return await context.worker.db.call(jobs.is_guessed_seed, context.job.id, item.url_key)


# Fetch and parse ------------------------------------------------------------------------------------------------------


def _request(context: CrawlContext, item: FrontierItem) -> FetchRequest:
    # A page that is not modified is not read: its links to other sites would not be checked, nor would its images be seen.
    conditional = item.refresh and not (context.job.spec.check_external or context.job.spec.images)
    return FetchRequest(
        item.url,
        context.agent,
        etag=item.etag if conditional else None,
        last_modified=item.last_modified if conditional else None,
        allow_private=context.allow_private,
        secret=None if context.secrets is None else context.secrets.for_url(item.url),
        any_type=item.resource is not Resource.PAGE,
        cut=item.resource is Resource.CHECK,
        max_bytes=_max_bytes(context, item.resource),
        types=context.types,
        key=item.url_key,
        last_attempt=item.attempts >= context.worker.settings.politeness.retries,
    )


def _max_bytes(context: CrawlContext, resource: Resource) -> int | None:
    match resource:
        case Resource.SITEMAP:
            return crawl_sitemap.MAX_BYTES
        case Resource.IMAGE:
            return context.worker.settings.images.max_bytes
        case Resource.CHECK:
            return CHECKED_BYTES
    return None


async def _parse(context: CrawlContext, result: FetchResult) -> ParsedPage:
    headers = result.headers
    return await context.worker.parser.parse(
        result.body,
        content_type=headers.get("content-type"),
        x_robots_tag=headers.get("x-robots-tag"),
        before_waiting=context.slots.open_extra_slot,
        images=context.job.spec.images,
        links=context.job.spec.records_links,
        pdf_text=context.job.spec.text,
    )


# Classify, and find the links -----------------------------------------------------------------------------------------


async def _classify(
    context: CrawlContext, item: FrontierItem, result: FetchResult, parsed: ParsedPage | None
) -> tuple[Outcome, DiscoveredUrl | None]:
    """Classify the response by its content. Returns also the URL that replaces this one: the target of a redirect, or its http URL."""
    if result.outcome is Outcome.REDIRECT:
        return _classify_redirect(context, item, result)
    if result.no_tls and await _is_guessed(context, item):
        return Outcome.NO_HTTPS, context.links.over_http(item.url, item.url_key)
    if item.resource is Resource.CHECK and result.outcome is Outcome.OK:
        return Outcome.CHECKED, None
    if parsed is not None:
        if parsed.captcha:
            return Outcome.CAPTCHA, None
        if parsed.password_form and not is_login_redirect(item.url):
            return Outcome.LOGIN_WALL, None
    return result.outcome, None


def _classify_redirect(
    context: CrawlContext, item: FrontierItem, result: FetchResult
) -> tuple[Outcome, DiscoveredUrl | None]:
    """Classify a redirect. Its target is a URL of its own: it waits its turn, and robots.txt, scope and address filter apply again."""
    if item.hops >= context.worker.settings.fetch.max_redirects:
        return Outcome.TOO_MANY_REDIRECTS, None
    target = context.links.redirect_target(item, result.redirect or "", item.hops + 1)
    if target.url_key in (item.url_key, item.parent_key if item.hops else None):
        return Outcome.REDIRECT_LOOP, None
    if is_login_redirect(target.url, item.url):
        return Outcome.LOGIN_WALL, None
    return Outcome.REDIRECT, target


def _links(
    context: CrawlContext, item: FrontierItem, parsed: ParsedPage | None, outcome: Outcome
) -> list[DiscoveredUrl]:
    """Return the URLs that a page leads to, waiting or denied with the reason."""
    if parsed is None or outcome is not Outcome.OK or not context.follow:
        return []
    hrefs = parsed.links + parsed.frames + parsed.alternates + ([parsed.canonical] if parsed.canonical else [])
    if parsed.nofollow:
        why = "its page asks that no link be followed"
        return context.links.find(item, parsed.base, (), nofollow=hrefs + parsed.links_nofollow, why=why)
    why = "its link has rel=nofollow"
    return context.links.find(
        item, parsed.base, hrefs, following=parsed.links_next, nofollow=parsed.links_nofollow, why=why
    )


def _link_facts(
    context: CrawlContext,
    item: FrontierItem,
    parsed: ParsedPage | None,
    outcome: Outcome,
    replacement: DiscoveredUrl | None,
) -> LinkFacts | None:
    """Return what is recorded of the links of a page, or of a target that is none. None: the job does not record links."""
    if context.recorder is None or item.resource is Resource.SITEMAP:
        return None
    moved_to = replacement.url if replacement is not None and outcome is Outcome.REDIRECT else None
    limit = context.worker.settings.crawl.links_per_page
    return context.recorder.facts(item, parsed, outcome, moved_to, limit=limit)


async def _read_sitemap(
    context: CrawlContext, item: FrontierItem, result: FetchResult, outcome: Outcome
) -> tuple[Outcome, SitemapRow | None, list[DiscoveredUrl]]:
    """Read a sitemap that was fetched; return its outcome, its row, and the URLs that are not in the batch yet."""
    row: SitemapRow | None = None
    found: list[DiscoveredUrl] = []
    if outcome in (Outcome.OK, Outcome.WRONG_TYPE):
        outcome = Outcome.SITEMAP
        row, found = await crawl_sitemap.read_sitemap(
            item, result.body, job_id=context.job.id, links=context.links, results=context.results
        )
    elif outcome is Outcome.TOO_LARGE:
        problem = f"larger than {crawl_sitemap.MAX_BYTES:,} bytes"
        result.detail = f"{SITEMAP_TEXT} {problem}"
        return outcome, SitemapRow(None, problem=problem), found
    if is_guessed(item.url) and (outcome in _NO_SITEMAP or (row is not None and row.format is None)):
        return Outcome.NO_SITEMAP, None, []
    return outcome, row, found


async def _check_image(
    context: CrawlContext, item: FrontierItem, result: FetchResult, outcome: Outcome, replacement: DiscoveredUrl | None
) -> tuple[Outcome, FetchedImage, ImageFile | None]:
    """Check an image that was fetched; return its outcome, its row, and the file to store."""
    checked, image, file = await check_image(
        item, result, outcome, context.worker.images, context.slots.open_extra_slot
    )
    if outcome is Outcome.TOO_LARGE:  # a refused image is no failure of its host
        limit = context.worker.settings.images.max_bytes
        problem = f"it has more than the {limit:,} bytes that images.max_bytes allows"
        checked = Outcome.BAD_IMAGE
        image = dataclasses.replace(image, problem=ImageProblem.TOO_LARGE, detail=problem)
    if checked is Outcome.BAD_IMAGE:
        result.detail = f"{image.problem}: {image.detail}"  # it becomes the reason of the URL
    if file is None:
        context.image_budget.give_back(item.url_key)
    if replacement is not None:
        image = dataclasses.replace(image, moved_to=(replacement.url_key, replacement.url))
    return checked, image, file


# The outcome ----------------------------------------------------------------------------------------------------------


def _row(
    context: CrawlContext, item: FrontierItem, result: FetchResult, parsed: ParsedPage | None, outcome: Outcome
) -> UrlOutcome:
    """Return the row of a URL that was requested. After: unless the request is repeated, its answer counts for the domain."""
    politeness, attempts = context.worker.settings.politeness, item.attempts + 1
    if outcome in NOT_AN_ATTEMPT:  # waiting for another proxy is an attempt, but never the last one
        attempts = item.attempts if not result.again_in else max(item.attempts, min(attempts, politeness.retries))
    if result.again_in is not None:
        retry = Retry(UrlState.WAITING, result.again_in)
    else:
        context.answers.record(outcome, result.detail, result.retry_after)
        retry = next_attempt(outcome, attempts, politeness, context.worker.rng, result.retry_after)
    has_page = (
        (item.resource is Resource.PAGE or _is_kept_sitemap(context, result, outcome))
        and retry.state is not UrlState.WAITING
        and result.status is not None
        and outcome is not Outcome.REDIRECT
    )
    return UrlOutcome(
        context.job.id,
        item.url_key,
        item.url,
        item.depth,
        outcome,
        retry.state,
        reason=_reason(outcome, result),
        attempts=attempts,
        retry_in=retry.retry_in,
        status=result.status,
        duration_ms=round(result.duration * 1000),
        bytes=result.wire_bytes,
        images_found=len(parsed.images) if parsed else 0,
        page=_page(context, item, result, parsed, outcome) if has_page else None,
        tasks=item.tasks,
        proxy=result.proxy,
        # After a broken connection the URL is taken again once the row is committed, so the log has both requests in order.
        again=result.again_in == 0 and outcome is not Outcome.CONNECTION_BROKEN,
    )


def _is_kept_sitemap(context: CrawlContext, result: FetchResult, outcome: Outcome) -> bool:
    """Whether a sitemap or feed is archived, too: the job takes content of its type. It does not count as a page."""
    if outcome is not Outcome.SITEMAP or not context.types:
        return False
    return bool(is_wanted(media_type(result.headers.get("content-type")), context.types)) or is_wanted_by_content(
        result.body[:SNIFFED_BYTES], context.types
    )


def _internal_error_row(context: CrawlContext, item: FrontierItem, problem: Exception) -> UrlOutcome:
    """Return the row of a page that failed with an internal error."""
    attempts = item.attempts + 1
    retry = next_attempt(Outcome.BAD_RESPONSE, attempts, context.worker.settings.politeness, context.worker.rng)
    reason = f"{FAULT_TEXT}: {type(problem).__name__}: {problem}"[:500]
    return UrlOutcome(
        *(context.job.id, item.url_key, item.url, item.depth, Outcome.BAD_RESPONSE, retry.state),
        *(reason, attempts, retry.retry_in),
        tasks=item.tasks,
    )


def _cancelled_row(context: CrawlContext, item: FrontierItem) -> UrlOutcome:
    """Return the row of a request that was sent and cancelled: the log shows it, and its URL waits as before."""
    why = f"{Outcome.GIVEN_UP}: the visit ended before the answer was dealt with"
    return UrlOutcome(
        *(context.job.id, item.url_key, item.url, item.depth, Outcome.GIVEN_UP, UrlState.WAITING),
        *(why, item.attempts),
        tasks=item.tasks,
    )


def _reason(outcome: Outcome, result: FetchResult) -> str | None:
    if outcome in (Outcome.OK, Outcome.NOT_MODIFIED, Outcome.SITEMAP, Outcome.IMAGE):
        return None
    detail = result.redirect if outcome is Outcome.REDIRECT else result.detail
    return f"{outcome}: {detail[:500]}" if detail else str(outcome)


def _page(
    context: CrawlContext, item: FrontierItem, result: FetchResult, parsed: ParsedPage | None, outcome: Outcome
) -> PageRow:
    """Return the row of the page. Of a page with noindex, title, description and text are not kept; the parser `markdown` finds nothing."""
    headers = result.headers
    page = PageRow(
        result.status,
        content_type=(headers.get("content-type") or "")[:255] or None,
        content_length=len(result.body),
        etag=headers.get("etag"),
        last_modified=headers.get("last-modified"),
        content_language=((parsed and parsed.content_language) or headers.get("content-language") or "").lower()[:35]
        or None,
        parsers=context.parsers if TREATMENT[outcome].page else (),
    )
    if parsed is not None:
        page.content_hash = parsed.content_hash
        page.charset = parsed.charset[:50] or None
        page.links_count = parsed.links_found
        page.images_count = len(parsed.images)
        page.noindex = parsed.noindex
        page.nofollow = parsed.nofollow
        page.problem = parsed.problem
        page.canonical = absolute_url(item.url, parsed.base, parsed.canonical) if parsed.canonical else None
        if not parsed.noindex:
            page.title = parsed.title
            page.description = parsed.description
            if context.job.spec.text and parsed.text:
                page.text = parsed.text.encode("utf-8", "replace")
    return page


def _exchange(context: CrawlContext, item: FrontierItem, result: FetchResult, row: UrlOutcome) -> Exchange | None:
    """Return what is archived: every response that is a page, and sitemaps of the job's types, with job, depth, run and outcome; None:
    nothing is."""
    is_kept = TREATMENT[row.outcome].page or row.outcome is Outcome.SITEMAP
    if not context.job.spec.archive or row.page is None or not is_kept:
        return None
    facts = {
        "job": context.job.name,
        "depth": str(item.depth),
        "run": str(context.worker.run_id),
        "outcome": str(row.outcome),
    }
    return Exchange(item.url, result, datetime.now(UTC), facts)
