"""Requests about links, and reports of broken ones."""

from holdfast.client.job_ref import JobRef, optional_job
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_list, decode_one
from holdfast.links.records import (
    BrokenLink,
    LinkDegree,
    LinkPlace,
    LinkSummary,
    MissingPlace,
    Orphan,
    PageLinkList,
    RedirectedLink,
    UncheckedTarget,
)


def links_in(url: str, *, job: JobRef | None = None) -> ListSpec[LinkPlace]:
    """Links to a URL, by page. Without a job: the newest one that has recorded links; likewise below."""
    return ListSpec("/api/links/in", LinkPlace, {"url": url, "job": optional_job(job)})


def links_out(url: str, *, job: JobRef | None = None) -> RequestSpec[PageLinkList]:
    """The links of a page, with what is known of their targets."""
    return RequestSpec("GET", "/api/links/out", decode_one(PageLinkList), {"url": url, "job": optional_job(job)})


def broken_links(
    *, job: JobRef | None = None, external: bool | None = None, places: int | None = None
) -> ListSpec[BrokenLink]:
    """Targets that are errors, at once or behind redirects; `places` pages of each. `external`: only those out of scope, or only others."""
    return ListSpec("/api/links/broken", BrokenLink, {"job": optional_job(job), "external": external, "places": places})


def redirected_links(
    *,
    job: JobRef | None = None,
    min_hops: int | None = None,
    external: bool | None = None,
    places: int | None = None,
) -> ListSpec[RedirectedLink]:
    """Targets that redirect, through at least this many hops, with pages that link to them."""
    filters = {"job": optional_job(job), "min_hops": min_hops, "external": external, "places": places}
    return ListSpec("/api/links/redirects", RedirectedLink, filters)


def orphans(*, job: JobRef | None = None) -> ListSpec[Orphan]:
    """URLs that a sitemap lists or that are seeds, and to which no page links."""
    return ListSpec("/api/links/orphans", Orphan, {"job": optional_job(job)})


def missing_places(*, job: JobRef | None = None) -> ListSpec[MissingPlace]:
    """Links with a fragment that names no id of their target."""
    return ListSpec("/api/links/fragments", MissingPlace, {"job": optional_job(job)})


def unchecked_targets(*, job: JobRef | None = None) -> ListSpec[UncheckedTarget]:
    """Targets that were not requested, with the reason."""
    return ListSpec("/api/links/unchecked", UncheckedTarget, {"job": optional_job(job)})


def top_targets(*, job: JobRef | None = None, limit: int | None = None) -> RequestSpec[list[LinkDegree]]:
    """The URLs that most pages link to. The server reads all pages of the job."""
    query = {"job": optional_job(job), "limit": limit}
    return RequestSpec("GET", "/api/links/top", decode_list(LinkDegree), query)


def link_summary(*, job: JobRef | None = None) -> RequestSpec[LinkSummary]:
    """What a job has recorded of links. The server reads all its pages and URLs."""
    return RequestSpec("GET", "/api/links/summary", decode_one(LinkSummary), {"job": optional_job(job)})
