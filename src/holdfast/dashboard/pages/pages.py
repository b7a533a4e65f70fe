"""Pages: search, everything about one page, purge."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.forms import Form, query_form, read_form
from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import INTEGER
from holdfast.control.explain_lines import job_lines, robots_line, url_lines
from holdfast.dashboard.lists import ROWS, read_list
from holdfast.dashboard.pages.items import item_address, summary
from holdfast.dashboard.rendering import Context, Notice, PageContext, query
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.errors import NotFound, SearchUnavailable, UsageError
from holdfast.items.records import ItemFilter
from holdfast.links.records import LinkPlace
from holdfast.links.service import COUNTED
from holdfast.model.cursor import decode_cursor
from holdfast.model.document import PageKind
from holdfast.model.outcome import Outcome
from holdfast.pages.records import CrawledPage, PageFacts, PageFilter
from holdfast.search.records import SearchFilter
from holdfast.search.service import MAX_OFFSET
from holdfast.tasks.records import TaskOptions

router = page_router()

_HITS: Final = 20
"""Results on a page of the search."""
_ITEMS: Final = 20
"""Items that are shown on the page of a URL."""
_LINKING: Final = 10
"""Pages that link to a URL that are shown on its page."""
_DIFF: Final = {"+": "added", "-": "removed", "@": "place"}
"""Classes of the lines of a diff, by their first character."""
_Url = Annotated[str, Query(min_length=1, max_length=4096)]
_Job = Annotated[str | None, Query(max_length=255)]
_Version = Annotated[int | None, Query(ge=1, le=INTEGER)]


@router.get("/pages")
def pages(context: Context, services: Services) -> Response:
    """The list, the newest first, with a search."""

    def read(form: Form) -> Page[CrawledPage]:
        order = _order(form)
        after = decode_list_cursor("pages", order, form.text("cursor"))
        return services.pages.page(_filter(form), order=order, after=after, limit=ROWS)

    shown = read_list(context, read)
    return context.page("pages/list.html", notice=shown.notice, shown=shown, outcomes=list(Outcome))


def _order(form: Form) -> str:
    return "oldest" if form.text("order") == "oldest" else "newest"


def _filter(form: Form) -> PageFilter:
    return PageFilter(
        domain=form.text("domain"),
        job=form.text("job"),
        status=form.integer("status", "Status"),
        status_class=form.integer("status_class", "Status class"),
        outcome=form.choice("outcome", "Outcome", Outcome),
        content_type=form.text("content_type"),
        content_hash=form.text("content_hash"),
        url_prefix=form.text("url_prefix"),
        title=form.text("title"),
        since=form.moment("since", "Since"),
        until=form.moment("until", "Until"),
    )


@router.get("/documents")
def documents(context: Context, services: Services) -> Response:
    """A search over the content of pages: the documents with these words, the best first."""
    form = query_form(context.request)
    words = form.text("q") or ""
    found, notice, offset = None, None, 0
    if words:
        try:
            offset = min(form.integer("offset", "Offset") or 0, MAX_OFFSET)
            where = SearchFilter(
                form.text("domain"),
                form.text("job"),
                form.text("language"),
                form.text("kind"),
                form.moment("since", "Since"),
                form.moment("until", "Until"),
            )
            found = services.search.search(words, where, limit=_HITS, offset=offset)
        except (UsageError, NotFound, SearchUnavailable) as problem:
            notice = Notice("problem", str(problem))
    index = found.index if found else services.search.status()
    further = offset + _HITS if found and offset + _HITS < min(found.total, MAX_OFFSET) else None
    return context.page(
        "pages/search.html",
        notice=notice,
        words=words,
        found=found,
        index=index,
        kinds=list(PageKind),
        first_page=context.with_query(offset=None) if offset else "",
        next_page=context.with_query(offset=further) if further else "",
    )


# One page ---------------------------------------------------------------------------------------------------------------


@router.get("/pages/page")
def page(context: Context, services: Services, url: _Url, job: _Job = None) -> Response:
    """What each job knows of a URL, why it is in its state, and what parsers found on it."""
    job = job or None
    try:
        story = services.explainer.url(url)
    except NotFound as problem:
        return context.page("pages/unknown.html", status=404, url=url, why=str(problem))
    facts = _facts(services, story.url, job)
    items = services.items.page(ItemFilter(story.url, job=job), limit=_ITEMS) if facts else None
    linking, links_in = _links_in(services, story.url, job)
    return context.page(
        "pages/page.html",
        **_shared(story.url, job, facts, "facts"),
        lines=[*url_lines(story), robots_line(story)],
        entries=[(entry, job_lines(entry, story.now)) for entry in story.entries if job in (None, entry.job)],
        attempts=story.attempts,
        items=items,
        linking=linking,
        links_in=links_in,
        counted=COUNTED,
        item_address=item_address,
        summary=summary,
    )


def _links_in(services: Services, url: str, job: str | None) -> tuple[int, list[LinkPlace]]:
    """How many pages link to a URL, and the links on some of them; none for a job that does not exist."""
    try:
        return services.links.glance(url, job, limit=_LINKING)
    except NotFound:
        return 0, []


def _facts(services: Services, url: str, job: str | None) -> list[PageFacts]:
    """What the jobs know of a URL; empty: it is only a link that is not followed."""
    try:
        return services.pages.facts(url, job)
    except NotFound:
        return []


def _shared(
    url: str, job: str | None, facts: Sequence[PageFacts], tab: str, version: int | None = None
) -> dict[str, Any]:
    """What the heading and the tabs of a page need."""
    title = next((one.title for one in facts if one.title), None)
    return {"url": url, "job": job, "facts": facts, "title": title, "tab": tab, "version_number": version}


@router.get("/pages/text")
def text(context: Context, url: _Url, job: _Job = None, version: _Version = None) -> Response:
    """The visible text of the page."""
    return _source(context, url, job or None, "text", version)


@router.get("/pages/content")
def content(context: Context, services: Services, url: _Url, job: _Job = None) -> Response:
    """The main content of the page as Markdown, without menus and footers."""
    job = job or None
    facts = services.pages.facts(url, job)
    document, why = None, None
    try:
        document = services.documents.show(url, job)
    except NotFound as problem:
        why = str(problem)
    return context.page(
        "pages/content.html", **_shared(facts[0].url, job, facts, "content"), document=document, why=why
    )


@router.get("/pages/links")
def links(context: Context, url: _Url, job: _Job = None, version: _Version = None) -> Response:
    """The links on the page, from the archive."""
    return _source(context, url, job or None, "links", version)


@router.get("/pages/incoming")
def incoming(context: Context, services: Services, url: _Url, job: _Job = None, cursor: CursorText = None) -> Response:
    """The links on other pages to a URL."""
    job = job or None
    found = services.links.incoming(url, job, after=decode_cursor(cursor, int, bytes), limit=ROWS)
    return context.page(
        "pages/incoming.html",
        **_shared(url, job, _facts(services, url, job), "incoming"),
        places=found.rows,
        linking=services.links.glance(url, job)[0],
        counted=COUNTED,
        next_page=context.next_page(found.next),
        first_page=context.with_query(cursor=None) if cursor else "",
    )


@router.get("/pages/source")
def source(context: Context, url: _Url, job: _Job = None, version: _Version = None) -> Response:
    """The archived response: headers, and the body as text."""
    return _source(context, url, job or None, "source", version)


def _source(context: PageContext, url: str, job: str | None, tab: str, version: int | None) -> Response:
    facts = context.services.pages.facts(url, job)
    found = context.services.pages.source(url, job, version=version)
    return context.page(f"pages/{tab}.html", **_shared(found.url, job, facts, tab, version), source=found)


@router.get("/pages/changes")
def changes(
    context: Context,
    services: Services,
    url: _Url,
    job: _Job = None,
    older: Annotated[int | None, Query(ge=1, le=INTEGER)] = None,
    newer: Annotated[int | None, Query(ge=1, le=INTEGER)] = None,
) -> Response:
    """The versions of the page, and what differs between two of them."""
    job = job or None
    facts = services.pages.facts(url, job)
    versions = services.pages.versions(url, job) if any(one.crawled_at for one in facts) else []
    diff, notice = None, None
    if len(versions) > 1:
        try:
            diff = services.pages.diff(url, job, older, newer)
        except (NotFound, UsageError) as problem:
            notice = Notice("problem", str(problem))
    return context.page(
        "pages/changes.html",
        notice=notice,
        **_shared(facts[0].url, job, facts, "changes"),
        versions=versions,
        diff=diff,
        diff_lines=diff_lines(diff.text or "") if diff else [],
    )


def diff_lines(text: str) -> list[tuple[str, str]]:
    """Return the lines of a unified diff, each with its class: added, removed, place, or none."""
    lines = text.splitlines()
    heads = 2 if text.startswith("--- ") else 0
    return [("place" if number < heads else _DIFF.get(line[:1], ""), line) for number, line in enumerate(lines)]


@router.post("/pages/retry")
def retry(context: Context, request: Request, services: Services) -> Response:
    """Fetch a URL again that was not crawled."""
    form = read_form(request)
    url, job = form.required("url", "URL"), form.required("job", "Job")
    done = services.frontier.retry(job, actor=context.caller.name, urls=[url])
    back = query("/pages/page", url=url, job=form.text("only"))
    if not done.urls:
        why = "; ".join(one.why for one in done.left_out) or "the job does not know it"
        return context.redirect(back, problem=f"Job {done.job} does not retry the URL: {why}.")
    reopened = f" Job {done.job} had ended, and goes on." if done.reopened else ""
    return context.redirect(back, " ".join([f"The URL waits again in job {done.job}.{reopened}", *done.notes]))


@router.post("/pages/task")
def add_task(context: Context, request: Request, services: Services) -> Response:
    """Add a task that crawls the URL once."""
    form = read_form(request)
    url = form.required("url", "URL")
    task = services.tasks.add(url, TaskOptions(is_recurring=False), actor=context.caller.name)
    done = (
        f"Task {task.id} crawls the URL."
        if task.created
        else f"The URL has task {task.id} already, which has not ended."
    )
    return context.redirect(query("/pages/page", url=task.url), done)


@router.post("/pages/seed")
def add_seed(context: Context, request: Request, services: Services) -> Response:
    """Add the URL to the frontier of a job."""
    form = read_form(request)
    url, job = form.required("url", "URL"), form.required("job", "Job")
    added = services.frontier.seed([url], job, actor=context.caller.name)
    if added.bad_urls:
        return context.redirect(query("/pages/page", url=url), problem=added.bad_urls[0].problem)
    done = f"The URL waits in job {job}." if added.urls else f"Job {job} knows the URL already; it stays as it was."
    return context.redirect(query("/pages/page", url=url), done)


# Purge ------------------------------------------------------------------------------------------------------------------


@router.get("/pages/purge")
def purge_page(context: Context, request: Request, services: Services) -> Response:
    """What a purge would delete, before it is ordered."""
    form = query_form(request)
    job, domain, before = form.text("job"), form.text("domain"), form.moment("before", "Before")
    at = before or datetime.now(UTC)
    count = services.pages.count_purge(job, domain, at)
    return context.page("pages/purge.html", job=job, domain=domain, before=before, at=at, count=count)


@router.post("/pages/purge")
def purge(context: Context, request: Request, services: Services) -> Response:
    """Order the purge; it runs in the background."""
    form = read_form(request)
    job, domain = form.text("job"), form.text("domain")
    asked = services.pages.check_purge(job, domain, form.moment("at", "Before"))
    operation = services.operations.ask("purge-pages", asked, actor=context.caller.name)
    return context.redirect("/pages", f"Operation {operation.id} deletes the pages in the background.")
