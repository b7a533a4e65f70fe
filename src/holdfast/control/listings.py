"""All lists of the store, as the API and the dashboard turn their pages.

The rule: every list is read in the same way: which rows (`control/list_filters`), in which order, behind which key, how many. A page costs
about the same wherever it is; what that takes is in `db/keyset_pagination`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.audit import queries as record_lists
from holdfast.control.list_filters import (
    AuditFilter,
)
from holdfast.db import domains, jobs
from holdfast.db.audit import Entry
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key, Listing, Page, check_page_size
from holdfast.domains import queries as domain_lists
from holdfast.frontier.queries import URLS
from holdfast.items.queries import ITEMS
from holdfast.jobs.queries.jobs import JOBS
from holdfast.model.domain_name import canonical_domain
from holdfast.model.list_filter import ListFilter
from holdfast.model.url import UrlRules
from holdfast.pages.queries import PAGES
from holdfast.products.queries import PRODUCTS
from holdfast.proxies.queries.proxies import PROXIES
from holdfast.tasks.queries import BATCHES, TASKS
from holdfast.webhooks.queries import DELIVERIES
from holdfast.workers import queries as run_lists

_RULES: Final = UrlRules()
Row = TypeVar("Row")

LISTINGS: Final[Mapping[str, Listing[Any]]] = {
    "domains": domain_lists.DOMAINS,
    "pages": PAGES,
    "items": ITEMS,
    "urls": URLS,
    "jobs": JOBS,
    "runs": run_lists.RUNS,
    "workers": run_lists.WORKERS,
    "claims": run_lists.CLAIMS,
    "transitions": domain_lists.TRANSITIONS,
    "tenures": domain_lists.TENURES,
    "windows": domain_lists.WINDOWS,
    "tasks": TASKS,
    "batches": BATCHES,
    "audit": record_lists.AUDIT,
    "products": PRODUCTS,
    "proxies": PROXIES,
    "deliveries": DELIVERIES,
}
"""By name, with the filters and orders of each; the first order is the usual one."""


def kinds(which: str, order: str) -> tuple[type, ...]:
    """Of what values the keys of a list are in an order: int, str, bytes or datetime; some may be None. Raises UsageError."""
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
        found["job"] = _job(connection, job if isinstance(job, int) else str(job))
    return found


@dataclass(frozen=True, slots=True)
class ListingService:
    """The lists of one store. In each, `after` is the `next` of the page before, of the same list, rows and order."""

    database: Database
    registrable: bool = False
    rules: UrlRules = _RULES
    """How URLs that are asked for are normalized."""

    def audit(
        self, query: AuditFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Entry]:
        """Who did what."""
        given = _given(query)
        if query is not None and (query.since or query.until):
            with self.database.session() as connection:
                given |= record_lists.audit_between(connection, query.since, query.until)
        return self._page(record_lists.AUDIT, given, order, after, limit)

    # One of them

    # Inside

    def _page(
        self,
        listing: Listing[Any],
        given: Mapping[str, object],
        order: str,
        after: Key | None,
        limit: int,
        also: Mapping[str, object] | None = None,
    ) -> Page[Any]:
        check_page_size(limit)
        listing.order(order).check(after)
        with self.database.session() as connection:
            ids = self._ids(connection, given)
            return listing.page(connection, ids, order=order, after=after, limit=limit, extra=also)

    def _ids(self, connection: Connection, given: Mapping[str, object]) -> dict[str, object]:
        return resolve_names(connection, given, registrable=self.registrable)


def _given(query: ListFilter | None) -> dict[str, object]:
    return {} if query is None else query.given()


def _job(connection: Connection, named: str | int) -> int:
    return named if isinstance(named, int) else jobs.find(connection, named)
