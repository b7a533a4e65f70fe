"""The crawl of one URL, from its turn to the batch. Read this first.

The rule: whatever the server does, exactly one `UrlOutcome` goes into the batch, together with everything that the page led to. Nothing
here writes to the database; the batch writer does, in one transaction.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import failpoints
from holdfast.archive.warc import Exchange
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem, PageRow, UrlOutcome, UrlRef
from holdfast.model.fetch_types import FetchRequest, FetchResult, ParsedPage
from holdfast.model.outcome import NOT_AN_ATTEMPT, TREATMENT, Outcome, UrlState
from holdfast.model.proxy import ProxyUse
from holdfast.model.url import absolute_url
from holdfast.politeness.error_streak import is_login_redirect
from holdfast.politeness.retry import Retry, next_attempt

if TYPE_CHECKING:
    from holdfast.crawler.visit import Visit


async def crawl_url(visit: "Visit", item: FrontierItem, request: FetchRequest) -> None:
    """Fetch a URL, parse it, find its links, and add its outcome to the batch.

    Before: robots.txt, scope, traps, request rate, circuit breaker and lease allow the request; `request` is the URL's. After: the batch
    has its outcome; `visit` has recorded how the server behaved.
    """
    result = await visit.send(request, item)
    failpoints.reach("after_fetch")
    parsed = await _parse(visit, result) if result.outcome is Outcome.OK else None
    outcome, found = _classify(visit, item, result, parsed)
    if result.no_tls and await visit.is_guessed(item):
        outcome, found = Outcome.NO_HTTPS, [visit.links.over_http(item.url, item.url_key)]
    moved_to = None
    if item.tasks and outcome is Outcome.REDIRECT and found[0].state is UrlState.WAITING:
        moved_to = UrlRef(found[0].url, found[0].url_key)
    proxy_use = _proxy_use(visit, item, outcome, result)
    attempts = item.attempts + 1
    if outcome in NOT_AN_ATTEMPT:  # waiting for another proxy is an attempt, but never the last one
        retries = visit.context.settings.politeness.retries
        attempts = item.attempts if not result.again_in else max(item.attempts, min(attempts, retries))
    if result.again_in is not None:
        retry = Retry(UrlState.WAITING, result.again_in)
    else:
        visit.record_answer(outcome, result)
        politeness, rng = visit.context.settings.politeness, visit.context.rng
        retry = next_attempt(outcome, attempts, politeness, rng, result.retry_after)
    is_final = retry.state is not UrlState.WAITING
    row = UrlOutcome(
        visit.job.id,
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
        page=_page(visit, item, result, parsed, outcome)
        if is_final and result.status is not None and outcome is not Outcome.REDIRECT
        else None,
        tasks=item.tasks,
        moved_to=moved_to,
        proxy=proxy_use,
        # After a broken connection the URL is taken again once the row is committed, so the log has both requests in order.
        again=result.again_in == 0 and outcome is not Outcome.CONNECTION_BROKEN,
    )
    # The schedule sends a task to the target of its redirect.
    visit.context.batch_writer.add(visit, row, [] if moved_to else found, _exchange(visit, item, result, row))
    if row.again:
        visit.put_back(item._replace(attempts=attempts))


def _proxy_use(visit: "Visit", item: FrontierItem, outcome: Outcome, result: FetchResult) -> ProxyUse | None:
    """Return what the result says about the proxy; None: no proxy was used. After: `result.again_in` says whether another one is tried."""
    if visit.proxy_router is None:
        return None
    if outcome is not result.outcome:  # known only after parsing
        visit.proxy_router.retry_refused_answer(item.url_key, outcome, result, last_attempt=visit.is_last_attempt(item))
    return visit.proxy_router.finish(item.url_key, outcome, result)


def internal_error_row(visit: "Visit", item: FrontierItem, problem: Exception) -> UrlOutcome:
    """Return the row of a page that failed with an internal error."""
    attempts = item.attempts + 1
    retry = next_attempt(Outcome.BAD_RESPONSE, attempts, visit.context.settings.politeness, visit.context.rng)
    reason = f"a fault of ours: {type(problem).__name__}: {problem}"[:500]
    return UrlOutcome(
        *(visit.job.id, item.url_key, item.url, item.depth, Outcome.BAD_RESPONSE, retry.state),
        *(reason, attempts, retry.retry_in),
        tasks=item.tasks,
    )


def cancelled_row(visit: "Visit", item: FrontierItem) -> UrlOutcome:
    """Return the row of a request that was sent and cancelled: the log shows it, and its URL waits as before."""
    why = f"{Outcome.GIVEN_UP}: the visit ended before the answer was dealt with"
    return UrlOutcome(
        *(visit.job.id, item.url_key, item.url, item.depth, Outcome.GIVEN_UP, UrlState.WAITING),
        *(why, item.attempts),
        tasks=item.tasks,
    )


def request_for(visit: "Visit", item: FrontierItem) -> FetchRequest:
    """Return the request for a URL."""
    return FetchRequest(
        item.url,
        visit.agent,
        etag=item.etag if item.refresh else None,
        last_modified=item.last_modified if item.refresh else None,
        allow_private=visit.allow_private,
        secret=None if visit.secrets is None else visit.secrets.for_url(item.url),
    )


async def _parse(visit: "Visit", result: FetchResult) -> ParsedPage:
    headers = result.headers
    return await visit.context.parser.parse(
        result.body,
        content_type=headers.get("content-type"),
        x_robots_tag=headers.get("x-robots-tag"),
        before_waiting=visit.slots.open_extra_slot,
    )


def _classify(
    visit: "Visit", item: FrontierItem, result: FetchResult, parsed: ParsedPage | None
) -> tuple[Outcome, list[DiscoveredUrl]]:
    """Classify the response by its content, and return the URLs that it leads to."""
    if result.outcome is Outcome.REDIRECT:
        return _classify_redirect(visit, item, result)
    if parsed is None:
        return result.outcome, []
    if parsed.captcha:
        return Outcome.CAPTCHA, []
    if parsed.password_form and not is_login_redirect(item.url):
        return Outcome.LOGIN_WALL, []
    if not visit.job.spec.follow:
        return result.outcome, []
    hrefs = parsed.links + parsed.frames + parsed.alternates + ([parsed.canonical] if parsed.canonical else [])
    if parsed.nofollow:
        why = "its page asks that no link be followed"
        return result.outcome, visit.links.find(item, parsed.base, (), nofollow=hrefs + parsed.links_nofollow, why=why)
    why = "its link has rel=nofollow"
    return result.outcome, visit.links.find(
        item, parsed.base, hrefs, following=parsed.links_next, nofollow=parsed.links_nofollow, why=why
    )


def _classify_redirect(visit: "Visit", item: FrontierItem, result: FetchResult) -> tuple[Outcome, list[DiscoveredUrl]]:
    """Classify a redirect. Its target is a URL of its own: it waits its turn, and robots.txt, scope and address filter apply again."""
    if item.hops >= visit.context.settings.fetch.max_redirects:
        return Outcome.TOO_MANY_REDIRECTS, []
    target = visit.links.redirect_target(item, result.redirect or "", item.hops + 1)
    if target.url_key in (item.url_key, item.parent_key if item.hops else None):
        return Outcome.REDIRECT_LOOP, []
    if is_login_redirect(target.url, item.url):
        return Outcome.LOGIN_WALL, []
    return Outcome.REDIRECT, [target]


def _reason(outcome: Outcome, result: FetchResult) -> str | None:
    if outcome in (Outcome.OK, Outcome.NOT_MODIFIED):
        return None
    detail = result.redirect if outcome is Outcome.REDIRECT else result.detail
    return f"{outcome}: {detail[:500]}" if detail else str(outcome)


def _page(
    visit: "Visit", item: FrontierItem, result: FetchResult, parsed: ParsedPage | None, outcome: Outcome
) -> PageRow:
    """Return the row of the page. Of a page with noindex, title, description and text are not kept."""
    headers = result.headers
    page = PageRow(
        result.status,
        content_type=(headers.get("content-type") or "")[:255] or None,
        content_length=len(result.body),
        etag=headers.get("etag"),
        last_modified=headers.get("last-modified"),
        content_language=((parsed and parsed.content_language) or headers.get("content-language") or "").lower()[:35]
        or None,
        parser=visit.parser if TREATMENT[outcome].page else None,
    )
    if parsed is not None:
        page.content_hash = parsed.content_hash
        page.charset = parsed.charset[:50]
        page.links_count = parsed.links_found
        page.images_count = len(parsed.images)
        page.noindex = parsed.noindex
        page.nofollow = parsed.nofollow
        page.problem = parsed.problem
        page.canonical = absolute_url(item.url, parsed.base, parsed.canonical) if parsed.canonical else None
        if not parsed.noindex:
            page.title = parsed.title
            page.description = parsed.description
            if visit.job.spec.text and parsed.text:
                page.text = parsed.text.encode("utf-8", "replace")
    return page


def _exchange(visit: "Visit", item: FrontierItem, result: FetchResult, row: UrlOutcome) -> Exchange | None:
    """Return what is archived: every response that is a page, with its job, depth, run and outcome; None: nothing is."""
    if not visit.job.spec.archive or row.page is None or not TREATMENT[row.outcome].page:
        return None
    facts = {
        "job": visit.job.name,
        "depth": str(item.depth),
        "run": str(visit.context.run_id),
        "outcome": str(row.outcome),
    }
    return Exchange(item.url, result, datetime.now(UTC), facts)
