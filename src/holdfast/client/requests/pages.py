"""Requests about pages: lists, versions, sources, content, search, items."""

from datetime import datetime

from holdfast.client.job_ref import JobRef, optional_job
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_list, decode_one
from holdfast.documents.records import Document
from holdfast.items.records import Item
from holdfast.operations.records import Operation
from holdfast.pages.records import ArchivedPage, CrawledPage, Explanation, PageCount, PageDiff, PageFacts, PageVersion
from holdfast.search.records import IndexStatus, SearchResults


def pages(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    status: int | None = None,
    status_class: int | None = None,
    outcome: str | None = None,
    content_type: str | None = None,
    content_hash: str | None = None,
    url_prefix: str | None = None,
    title: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    order: str = "newest",
) -> ListSpec[CrawledPage]:
    """The last response for each URL; those whose URLs begin with `url_prefix`, or with these words in the title. The order is
    `newest`, `oldest` or `key`."""
    answer = {"status": status, "status_class": status_class, "outcome": outcome}
    content = {"content_type": content_type, "content_hash": content_hash, "since": since, "until": until}
    search = {"url_prefix": url_prefix, "title": title}
    filters = {"domain": domain, "job": optional_job(job), **answer, **content, **search, "order": order}
    return ListSpec("/api/pages", CrawledPage, filters)


def page(url: str, *, job: JobRef | None = None) -> RequestSpec[list[PageFacts]]:
    """All that each job knows about a URL, the newest response first."""
    return RequestSpec("GET", "/api/pages/page", decode_list(PageFacts), {"url": url, "job": optional_job(job)})


def page_versions(url: str, *, job: JobRef | None = None) -> RequestSpec[list[PageVersion]]:
    """The versions of a page, the newest first; without `job`, in the job that answered last."""
    return RequestSpec("GET", "/api/pages/versions", decode_list(PageVersion), {"url": url, "job": optional_job(job)})


def page_diff(
    url: str, *, job: JobRef | None = None, older: int | None = None, newer: int | None = None
) -> RequestSpec[PageDiff]:
    """The differences between two versions of a page, by their numbers; by default the current one and the one before."""
    query = {"url": url, "job": optional_job(job), "older": older, "newer": newer}
    return RequestSpec("GET", "/api/pages/diff", decode_one(PageDiff), query)


def page_source(url: str, *, job: JobRef | None = None, version: int | None = None) -> RequestSpec[ArchivedPage]:
    """The archived response for a URL, the newest or that of a version: headers, body, text and links; `missing` says why there is none."""
    query = {"url": url, "job": optional_job(job), "version": version}
    return RequestSpec("GET", "/api/pages/source", decode_one(ArchivedPage), query)


def page_markdown(url: str, *, job: JobRef | None = None) -> RequestSpec[Document]:
    """The main content of a page as Markdown, without menus and footers; of a job, or of the one that fetched it last."""
    return RequestSpec("GET", "/api/pages/markdown", decode_one(Document), {"url": url, "job": optional_job(job)})


def search(
    words: str,
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    language: str | None = None,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 10,
    offset: int = 0,
) -> RequestSpec[SearchResults]:
    """Search the content of pages: all words must be there, `"two words"` is a phrase, `OR`, `NOT` and parentheses combine."""
    query = {"q": words, "domain": domain, "job": optional_job(job), "language": language, "kind": kind}
    return RequestSpec(
        "GET",
        "/api/search",
        decode_one(SearchResults),
        {**query, "since": since, "until": until, "limit": limit, "offset": offset},
    )


def search_status() -> RequestSpec[IndexStatus]:
    """How far the search index of the server's machine is."""
    return RequestSpec("GET", "/api/search/status", decode_one(IndexStatus))


def count_pages(
    *, job: JobRef | None = None, domain: str | None = None, before: datetime | None = None
) -> RequestSpec[PageCount]:
    """How many pages `purge_pages` would delete: exactly up to 100,000."""
    query = {"job": optional_job(job), "domain": domain, "before": before}
    return RequestSpec("GET", "/api/pages/count", decode_one(PageCount), query)


def purge_pages(
    *, job: JobRef | None = None, domain: str | None = None, before: datetime | None = None, everything: bool = False
) -> RequestSpec[Operation]:
    """Delete pages and their texts, of a job, of a domain, fetched before a time, or with `everything` all of them, in the background;
    `wait` for the operation. Their URLs stay done, and log and archive stay as they are."""
    query = {"job": optional_job(job), "domain": domain, "before": before, "confirm": "all" if everything else None}
    return RequestSpec("DELETE", "/api/admin/pages", decode_one(Operation), query)


def items(
    *,
    url: str | None = None,
    domain: str | None = None,
    job: JobRef | None = None,
    parser: str | None = None,
    position: int | None = None,
) -> ListSpec[Item]:
    """Items that parsers found on the pages of crawls; `position` on their page, from 0."""
    filters = {"url": url, "domain": domain, "job": optional_job(job), "parser": parser, "position": position}
    return ListSpec("/api/items", Item, filters)


def explain(subject: str) -> RequestSpec[Explanation]:
    """Explain the state of a URL (with its scheme, or a path) or of a domain."""
    return RequestSpec("GET", "/api/explain", decode_one(Explanation), {"subject": subject})
