"""All lists of the store, as the API and the dashboard turn their pages.

The rule: every list is read in the same way: which rows (`control/list_filters`), in which order, behind which key, how many. A page costs
about the same wherever it is; what that takes is in `db/keyset_pagination`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.audit import queries as record_lists
from holdfast.control.list_filters import (
    AuditFilter,
    ItemFilter,
    JobFilter,
    PageFilter,
    UrlFilter,
)
from holdfast.db import domains, items, jobs
from holdfast.db.audit import Entry
from holdfast.db.connection import Connection, Database
from holdfast.db.items import ItemRow
from holdfast.db.keyset_pagination import Key, Listing, Page, check_page_size
from holdfast.domains import queries as domain_lists
from holdfast.errors import UsageError
from holdfast.frontier.queries import lists as frontier_lists
from holdfast.frontier.queries.lists import UrlRow
from holdfast.model.domain_name import canonical_domain
from holdfast.model.list_filter import ListFilter
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import UrlRules
from holdfast.pages import queries as pages
from holdfast.pages.queries import PageRow
from holdfast.products.queries import PRODUCTS
from holdfast.proxies.queries.proxies import PROXIES
from holdfast.tasks.queries import BATCHES, TASKS
from holdfast.webhooks.queries import DELIVERIES
from holdfast.workers import queries as run_lists
from holdfast.workers.queries import JobRow

_RULES: Final = UrlRules()
MOST_OF_ITEMS: Final = 4 << 20
"""Bytes of items after which a page of them ends."""
_ITEMS_AT_ONCE: Final = 50
"""Items that are read before their length is looked at."""

LISTINGS: Final[Mapping[str, Listing[Any]]] = {
    "domains": domain_lists.DOMAINS,
    "pages": pages.PAGES,
    "items": items.ITEMS,
    "urls": frontier_lists.URLS,
    "jobs": run_lists.JOBS,
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


@dataclass(frozen=True, slots=True)
class ListingService:
    """The lists of one store. In each, `after` is the `next` of the page before, of the same list, rows and order."""

    database: Database
    registrable: bool = False
    rules: UrlRules = _RULES
    """How URLs that are asked for are normalized."""

    def pages(
        self, query: PageFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[PageRow]:
        """The last answers for URLs."""
        return self._page(pages.PAGES, _given(query), order, after, limit)

    def items(
        self, query: ItemFilter | None = None, *, order: str = "key", after: Key | None = None, limit: int = 100
    ) -> Page[ItemRow]:
        """What parsers found on the pages of crawls. A page of long items is short: it ends behind `MOST_OF_ITEMS`."""
        given = _given(query)
        if "url" in given:
            seed = make_seed(str(given.pop("url")), rules=self.rules, registrable=self.registrable)
            if (
                "domain" in given
                and canonical_domain(str(given["domain"]), registrable=self.registrable) != seed.domain
            ):
                raise UsageError(f"{seed.url} is a page of {seed.domain}, not of {given['domain']}.")
            given |= {"domain": seed.domain, "url_key": seed.url_key}
        check_page_size(limit)
        rows: list[ItemRow] = []
        length = 0
        while True:
            asked = min(_ITEMS_AT_ONCE, limit - len(rows))
            page: Page[ItemRow] = self._page(items.ITEMS, given, order, after, asked)
            rows += page.rows
            length += sum(len(json.dumps(row.data)) for row in page.rows)
            after = page.next
            if after is None or len(rows) >= limit or len(page.rows) < asked or length >= MOST_OF_ITEMS:
                return Page(rows, after)

    def urls(
        self, query: UrlFilter | None = None, *, order: str = "key", after: Key | None = None, limit: int = 100
    ) -> Page[UrlRow]:
        """URLs of the frontier; as they are taken (`taken`) those that wait of one job on one domain."""
        check_page_size(limit)
        frontier_lists.URLS.order(order).check(after)
        with self.database.session() as connection:
            ids = self._ids(connection, _given(query))
            return frontier_lists.urls(connection, ids, order=order, after=after, limit=limit)

    def jobs(
        self, query: JobFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[JobRow]:
        """Jobs, with what there is to do and what was done."""
        check_page_size(limit)
        with self.database.session() as connection:
            return run_lists.jobs(connection, _given(query), order=order, after=after, limit=limit)

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

    def job(self, named: str | int) -> JobRow:
        """A job by its name or id."""
        with self.database.session() as connection:
            return run_lists.job(connection, _job(connection, named))

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
        """The filters with ids for the names of domains and jobs. Raises NotFound."""
        found = dict(given)
        if "domain" in found:
            name = canonical_domain(str(found["domain"]), registrable=self.registrable)
            found["domain"] = domains.id_of(connection, name)
        if "job" in found:
            job = found["job"]
            found["job"] = _job(connection, job if isinstance(job, int) else str(job))
        return found


def _given(query: ListFilter | None) -> dict[str, object]:
    return {} if query is None else query.given()


def _job(connection: Connection, named: str | int) -> int:
    return named if isinstance(named, int) else jobs.find(connection, named)
