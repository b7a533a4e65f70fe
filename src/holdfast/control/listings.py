"""Paginated lists of all nouns, and how a page of one is read.

The rule: every list is read in the same way: a filter, an order, a key to start after, a limit. A page costs about the same wherever
it is; `db/keyset_pagination` says how.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from holdfast.audit.queries import AUDIT
from holdfast.db import domains, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key, Listing, Page, check_page_size
from holdfast.domains import queries as domain_lists
from holdfast.frontier.queries import URLS
from holdfast.images.queries import IMAGES
from holdfast.items.queries import ITEMS
from holdfast.jobs.queries.comparison import CHANGES, FETCHED_PAGES, NEW_PAGES
from holdfast.jobs.queries.job_domains import JOB_DOMAINS
from holdfast.jobs.queries.jobs import JOBS
from holdfast.model.domain_name import canonical_domain
from holdfast.model.list_filter import ListFilter
from holdfast.pages.queries import PAGES
from holdfast.products.queries import PRODUCTS
from holdfast.proxies.queries.proxies import PROXIES
from holdfast.tasks.queries import BATCHES, TASKS
from holdfast.webhooks.queries import DELIVERIES
from holdfast.workers import queries as run_lists

Row = TypeVar("Row")

LISTINGS: Final[Mapping[str, Listing[Any]]] = {
    "domains": domain_lists.DOMAINS,
    "pages": PAGES,
    "page changes": CHANGES,
    "new pages": NEW_PAGES,
    "fetched pages": FETCHED_PAGES,
    "items": ITEMS,
    "images": IMAGES,
    "urls": URLS,
    "jobs": JOBS,
    "job_domains": JOB_DOMAINS,
    "runs": run_lists.RUNS,
    "workers": run_lists.WORKERS,
    "claims": run_lists.CLAIMS,
    "transitions": domain_lists.TRANSITIONS,
    "tenures": domain_lists.TENURES,
    "windows": domain_lists.WINDOWS,
    "tasks": TASKS,
    "batches": BATCHES,
    "audit": AUDIT,
    "products": PRODUCTS,
    "proxies": PROXIES,
    "deliveries": DELIVERIES,
}
"""By name, with the filters and orders of each; the first order is the default."""


def key_types(which: str, order: str) -> tuple[type, ...]:
    """Return the types of the keys of a list in an order: int, str, bytes or datetime; a key may be None. Raises UsageError."""
    return LISTINGS[which].order(order).key_types


def read_page(
    database: Database,
    listing: Listing[Row],
    where: ListFilter | Mapping[str, object] | None,
    order: str,
    after: Key | None,
    limit: int,
    *,
    registrable: bool,
) -> Page[Row]:
    """Return one page of a list, whose filters name domains, jobs and batches. Raises UsageError, NotFound."""
    check_page_size(limit)
    listing.order(order).check(after)
    filters = where.given() if isinstance(where, ListFilter) else where or {}
    with database.session() as connection:
        return listing.page(
            connection,
            resolve_names(connection, filters, registrable=registrable),
            order=order,
            after=after,
            limit=limit,
        )


def resolve_names(connection: Connection, filters: Mapping[str, object], *, registrable: bool) -> dict[str, object]:
    """Return filters with ids for the names of domains and jobs. Raises NotFound."""
    found = dict(filters)
    if "domain" in found:
        found["domain"] = domains.id_of(connection, canonical_domain(str(found["domain"]), registrable=registrable))
    if "job" in found:
        job = found["job"]
        found["job"] = job if isinstance(job, int) else jobs.find(connection, str(job))
    return found
