"""Requests about URLs that wait or were settled."""

from collections.abc import Sequence

from holdfast.client.job_ref import JobRef, job_segment, optional_job
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, format_path
from holdfast.frontier.records import AddedUrls, FrontierStats, FrontierUrl, Recovered, Retried
from holdfast.operations.records import Operation


def frontier_stats(*, job: JobRef | None = None) -> RequestSpec[FrontierStats]:
    """Statistics of the frontier."""
    return RequestSpec("GET", "/api/frontier/stats", decode_one(FrontierStats), {"job": optional_job(job)})


def frontier_urls(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    state: str | None = None,
    kind: str | None = None,
    priority: int | None = None,
    due: bool | None = None,
    reason: str | None = None,
    resource: str | None = None,
    order: str = "key",
) -> ListSpec[FrontierUrl]:
    """URLs of the frontier, in any state. `reason`: of those that do not wait, the code of the reason, as in the
    summary of a job; `resource`: `page`, `sitemap`, `image` or `check`. The order `taken` is the order in which a worker takes them, and
    needs a domain and a job."""
    filters = {"domain": domain, "job": optional_job(job), "state": state, "kind": kind, "priority": priority}
    filters |= {"due": due, "reason": reason, "resource": resource, "order": order}
    return ListSpec("/api/frontier/urls", FrontierUrl, filters)


def retry_urls(
    job: JobRef,
    *,
    urls: Sequence[str] = (),
    reason: str | None = None,
    state: str | None = None,
    domain: str | None = None,
    dry_run: bool = False,
) -> RequestSpec[Retried]:
    """Retry URLs of a job that were not crawled: these `urls`, or all of a reason, a state, a domain; without any of
    them all that failed. `dry_run` only counts them. A completed or failed job is reopened."""
    body = {"urls": list(urls), "reason": reason, "state": state, "domain": domain, "dry_run": dry_run}
    return RequestSpec("POST", format_path("/api/jobs/{}/retry", job_segment(job)), decode_one(Retried), body=body)


def add_urls(urls: Sequence[str], *, job: JobRef | None = None, priority: str = "medium") -> RequestSpec[AddedUrls]:
    """Add URLs to a job, with a priority of `high`, `medium` or `low`; those that it knows stay as they are."""
    body = {"urls": list(urls), "job": optional_job(job), "priority": priority}
    return RequestSpec("POST", "/api/frontier/add", decode_one(AddedUrls), body=body)


def seed(urls: Sequence[str], *, job: JobRef | None = None) -> RequestSpec[AddedUrls]:
    """Add seeds, from which a crawl begins."""
    return RequestSpec(
        "POST", "/api/frontier/seed", decode_one(AddedUrls), body={"urls": list(urls), "job": optional_job(job)}
    )


def recover_frontier() -> RequestSpec[Recovered]:
    """Release what dead workers hold, and do whatever else a sweep does, now."""
    return RequestSpec("POST", "/api/frontier/recover", decode_one(Recovered))


def clear_frontier(
    *, job: JobRef | None = None, domain: str | None = None, everything: bool = False
) -> RequestSpec[Operation]:
    """Clear waiting URLs of a job, of a domain, or with `everything` all of them, in the background; `wait` for the operation."""
    query = {"job": optional_job(job), "domain": domain, "confirm": "all" if everything else None}
    return RequestSpec("DELETE", "/api/frontier", decode_one(Operation), query)
