"""The walk of one URL, from its turn to the batch. Read this first.

The rule: whatever the web does, exactly one `UrlOutcome` goes into the batch, together with everything that the page led to. Nothing
here writes to the store; the committer does, all at once.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import failpoints
from holdfast.archive.warc import Exchange
from holdfast.model.batch import FoundUrl, PageRow, Place, UrlOutcome, Waiting
from holdfast.model.outcome import NO_ATTEMPT, TREATMENT, Outcome, UrlState
from holdfast.model.page import FetchRequest, FetchResult, Parsed
from holdfast.model.proxy import ProxyUse
from holdfast.model.url import absolute_on
from holdfast.politeness.retry import Retry, next_attempt
from holdfast.politeness.streak import is_login_redirect

if TYPE_CHECKING:
    from holdfast.engine.visit import Visit


async def walk(visit: "Visit", item: Waiting, request: FetchRequest) -> None:
    """Fetch a URL, read it, find its links, and add what came of it to the batch.

    Before: robots, scope, traps, pace, circuit and lease have said go; `request` is the URL's. After: the batch has its outcome; `visit`
    has learnt how the server behaved.
    """
    result = await visit.ask(request, item)
    failpoints.reach("after_fetch")
    parsed = await _parse(visit, result) if result.outcome is Outcome.OK else None
    outcome, found = _judge(visit, item, result, parsed)
    if result.no_tls and await visit.is_guessed(item):
        outcome, found = Outcome.NO_HTTPS, [visit.links.over_http(item.url, item.url_key)]
    moved_to = None
    if item.tasks and outcome is Outcome.REDIRECT and found[0].state is UrlState.WAITING:
        moved_to = Place(found[0].url, found[0].url_key)
    use = _went_through(visit, item, outcome, result)
    attempts = item.attempts + 1
    if outcome in NO_ATTEMPT:  # to wait for another proxy is an attempt, but for the last, which is the site's
        most = visit.tools.settings.politeness.retries
        attempts = item.attempts if not result.again_in else max(item.attempts, min(attempts, most))
    if result.again_in is not None:
        retry = Retry(UrlState.WAITING, result.again_in)
    else:
        visit.learn(outcome, result)
        politeness, chance = visit.tools.settings.politeness, visit.tools.chance
        retry = next_attempt(outcome, attempts, politeness, chance, result.retry_after)
    over = retry.state is not UrlState.WAITING
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
        if over and result.status is not None and outcome is not Outcome.REDIRECT
        else None,
        tasks=item.tasks,
        moved_to=moved_to,
        proxy=use,
        # After a broken connection it is taken anew, when the row is committed: so the log has both in their order.
        again=result.again_in == 0 and outcome is not Outcome.CONNECTION_BROKEN,
    )
    # Where a task is led to, the schedule sends it.
    visit.tools.committer.add(visit, row, [] if moved_to else found, _exchange(visit, item, result, row))
    if row.again:
        visit.put_back(item._replace(attempts=attempts))


def _went_through(visit: "Visit", item: Waiting, outcome: Outcome, result: FetchResult) -> ProxyUse | None:
    """What it says of the proxy, if there was one. After: it is known whether another one is to be asked."""
    if visit.routes is None:
        return None
    if outcome is not result.outcome:  # that came out only when it was read
        visit.routes.judge_answer(item.url_key, outcome, result, last=visit.last_attempt(item))
    return visit.routes.ended(item.url_key, outcome, result)


def fault(visit: "Visit", item: Waiting, problem: Exception) -> UrlOutcome:
    """What is recorded of a page that a fault of ours kept us from dealing with."""
    attempts = item.attempts + 1
    retry = next_attempt(Outcome.BAD_RESPONSE, attempts, visit.tools.settings.politeness, visit.tools.chance)
    reason = f"a fault of ours: {type(problem).__name__}: {problem}"[:500]
    return UrlOutcome(
        *(visit.job.id, item.url_key, item.url, item.depth, Outcome.BAD_RESPONSE, retry.state),
        *(reason, attempts, retry.retry_in),
        tasks=item.tasks,
    )


def given_up(visit: "Visit", item: Waiting) -> UrlOutcome:
    """The row of a request that was sent and cancelled: the log shows it, and its URL waits as before."""
    why = f"{Outcome.GIVEN_UP}: the visit ended before the answer was dealt with"
    return UrlOutcome(
        *(visit.job.id, item.url_key, item.url, item.depth, Outcome.GIVEN_UP, UrlState.WAITING),
        *(why, item.attempts),
        tasks=item.tasks,
    )


def request_for(visit: "Visit", item: Waiting) -> FetchRequest:
    """What is sent for a URL."""
    return FetchRequest(
        item.url,
        visit.agent,
        etag=item.etag if item.refresh else None,
        last_modified=item.last_modified if item.refresh else None,
        allow_private=visit.allow_private,
        secret=None if visit.secrets is None else visit.secrets.of(item.url),
    )


async def _parse(visit: "Visit", result: FetchResult) -> Parsed:
    headers = result.headers
    return await visit.tools.parser.parse(
        result.body,
        content_type=headers.get("content-type"),
        x_robots_tag=headers.get("x-robots-tag"),
        aside=visit.lanes.step_aside,
    )


def _judge(visit: "Visit", item: Waiting, result: FetchResult, parsed: Parsed | None) -> tuple[Outcome, list[FoundUrl]]:
    """What the answer really is, and where it leads."""
    if result.outcome is Outcome.REDIRECT:
        return _redirected(visit, item, result)
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


def _redirected(visit: "Visit", item: Waiting, result: FetchResult) -> tuple[Outcome, list[FoundUrl]]:
    """A redirect's target is a URL of its own: it waits its turn, and robots, scope and guard are asked again."""
    if item.hops >= visit.tools.settings.fetch.max_redirects:
        return Outcome.TOO_MANY_REDIRECTS, []
    target = visit.links.follow(item, result.redirect or "", item.hops + 1)
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


def _page(visit: "Visit", item: Waiting, result: FetchResult, parsed: Parsed | None, outcome: Outcome) -> PageRow:
    """What is kept. A page that asks not to be indexed is only counted: its words are not kept."""
    headers = result.headers
    page = PageRow(
        result.status,
        content_type=(headers.get("content-type") or "")[:255] or None,
        content_length=len(result.body),
        etag=headers.get("etag"),
        last_modified=headers.get("last-modified"),
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
        page.canonical = absolute_on(item.url, parsed.base, parsed.canonical) if parsed.canonical else None
        if not parsed.noindex:
            page.title = parsed.title
            page.description = parsed.description
            if visit.job.spec.text and parsed.text:
                page.text = parsed.text.encode("utf-8", "replace")
    return page


def _exchange(visit: "Visit", item: Waiting, result: FetchResult, row: UrlOutcome) -> Exchange | None:
    """What the archive gets: every answer that is a page, with what led to it."""
    if not visit.job.spec.archive or row.page is None or not TREATMENT[row.outcome].page:
        return None
    facts = {
        "job": visit.job.name,
        "depth": str(item.depth),
        "run": str(visit.tools.run_id),
        "outcome": str(row.outcome),
    }
    return Exchange(item.url, result, datetime.now(UTC), facts)
