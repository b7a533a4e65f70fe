"""All lists of the store, as the API and the dashboard turn their pages.

The rule: every list is read in the same way: which rows (`control/list_filters`), in which order, behind which key, how many. A page costs
about the same wherever it is; what that takes is in `db/keyset_pagination`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from holdfast.audit import queries as record_lists
from holdfast.audit.queries import BatchRow
from holdfast.control.list_filters import (
    ClaimFilter,
    DomainFilter,
    ItemFilter,
    JobFilter,
    NameFilter,
    PageFilter,
    ProxyFilter,
    RunFilter,
    TaskFilter,
    UrlFilter,
    WorkerFilter,
)
from holdfast.db import domains, items, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.items import ItemRow
from holdfast.db.keyset_pagination import Key, Listing, Page, check_page_size
from holdfast.domains import queries as domain_lists
from holdfast.domains.queries import ClaimRow, DomainRow, TenureRow, TransitionRow
from holdfast.errors import UsageError
from holdfast.frontier.queries import lists as frontier_lists
from holdfast.frontier.queries.lists import UrlRow
from holdfast.model.domain_name import canonical_domain
from holdfast.model.list_filter import ListFilter
from holdfast.model.maintenance_window import MaintenanceWindows
from holdfast.model.seed_lines import make_seed
from holdfast.model.task import Task
from holdfast.model.url import UrlRules
from holdfast.pages import queries as pages
from holdfast.pages.queries import PageRow
from holdfast.products.queries import PRODUCTS
from holdfast.proxies.queries.proxies import Proxy
from holdfast.stats.records import SILENCE
from holdfast.tasks.queries import tasks as task_reports
from holdfast.webhooks.queries import DELIVERIES
from holdfast.workers import queries as run_lists
from holdfast.workers.queries import JobRow, RunRow, WorkerRow

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
    "claims": domain_lists.CLAIMS,
    "transitions": domain_lists.TRANSITIONS,
    "tenures": domain_lists.TENURES,
    "windows": domain_lists.WINDOWS,
    "batches": record_lists.BATCHES,
    "audit": record_lists.AUDIT,
    "products": PRODUCTS,
    "deliveries": DELIVERIES,
    **{name: listing for name, (listing, _) in record_lists.IDS.items()},
}
"""By name, with the filters and orders of each; the first order is the usual one."""


def kinds(which: str, order: str) -> tuple[type, ...]:
    """Of what values the keys of a list are in an order: int, str, bytes or datetime; some may be None. Raises UsageError."""
    return LISTINGS[which].order(order).key_types


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A domain that is left alone at times."""

    domain: str
    window: str
    """As people wrote it."""
    is_open: bool
    """It may be crawled now."""
    opens_at: datetime | None
    """When it may be again, if it is not."""
    closes_at: datetime | None
    """When it is left alone the next time."""
    is_active: bool
    version: int


@dataclass(frozen=True, slots=True)
class ListingService:
    """The lists of one store. In each, `after` is the `next` of the page before, of the same list, rows and order."""

    database: Database
    registrable: bool = False
    rules: UrlRules = _RULES
    """How URLs that are asked for are normalized."""

    def domains(
        self, query: DomainFilter | None = None, *, order: str = "name", after: Key | None = None, limit: int = 100
    ) -> Page[DomainRow]:
        """Domains: by name, those crawled last first, by priority, by id."""
        return self._page(domain_lists.DOMAINS, _given(query), order, after, limit)

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

    def runs(
        self, query: RunFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[RunRow]:
        """Worker processes, at work and ended."""
        return self._page(run_lists.RUNS, _given(query), order, after, limit)

    def workers(
        self,
        query: WorkerFilter | None = None,
        *,
        order: str = "name",
        after: Key | None = None,
        limit: int = 100,
        silence: timedelta = SILENCE,
    ) -> Page[WorkerRow]:
        """Names that workers bear or bore; one that was not heard of for `silence` is not alive."""
        return self._page(run_lists.WORKERS, _given(query), order, after, limit, {"silence": silence})

    def claims(
        self, query: ClaimFilter | None = None, *, order: str = "worker", after: Key | None = None, limit: int = 100
    ) -> Page[ClaimRow]:
        """Domains that are held, by holder."""
        return self._page(domain_lists.CLAIMS, _given(query), order, after, limit)

    def transitions(
        self, domain: str, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[TransitionRow]:
        """How the status of a domain changed."""
        return self._page(domain_lists.TRANSITIONS, {"domain": domain}, order, after, limit)

    def tenures(
        self, domain: str, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[TenureRow]:
        """Who held a domain."""
        return self._page(domain_lists.TENURES, {"domain": domain}, order, after, limit)

    def windows(
        self, query: NameFilter | None = None, *, order: str = "name", after: Key | None = None, limit: int = 100
    ) -> Page[WindowRow]:
        """Domains with maintenance windows: whether they are open now, when they open and close next."""
        given = {name: str(value).lower() for name, value in _given(query).items()}
        found = self._page(domain_lists.WINDOWS, given, order, after, limit)
        return Page([_window(row) for row in found.rows], found.next)

    def tasks(
        self, query: TaskFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Task]:
        """Tasks."""
        return self._records("tasks", _given(query), order, after, limit)

    def batches(
        self, query: NameFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[BatchRow]:
        """Batches, with how many of their tasks are in each status."""
        also = {"most": max(1, record_lists.COUNTED // max(1, limit))}
        return self._page(record_lists.BATCHES, _given(query), order, after, limit, also)

    def proxies(
        self, query: ProxyFilter | None = None, *, order: str = "oldest", after: Key | None = None, limit: int = 100
    ) -> Page[Proxy]:
        """Proxies, without their passwords."""
        return self._records("proxies", _given(query), order, after, limit)

    # One of them

    def job(self, named: str | int) -> JobRow:
        """A job by its name or id."""
        with self.database.session() as connection:
            return run_lists.job(connection, _job(connection, named))

    def run(self, run_id: int) -> RunRow:
        """A run."""
        _check_id("run", run_id)
        with self.database.session() as connection:
            return run_lists.run(connection, run_id)

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

    def _records(self, which: str, given: Mapping[str, object], order: str, after: Key | None, limit: int) -> Page[Any]:
        check_page_size(limit)
        with self.database.session() as connection:
            ids = self._ids(connection, given)
            return record_lists.records(connection, which, ids, order=order, after=after, limit=limit)

    def _ids(self, connection: Connection, given: Mapping[str, object]) -> dict[str, object]:
        """The filters with ids for the names of domains, jobs and batches. Raises NotFound."""
        found = dict(given)
        if "domain" in found:
            name = canonical_domain(str(found["domain"]), registrable=self.registrable)
            found["domain"] = domains.id_of(connection, name)
        if "job" in found:
            job = found["job"]
            found["job"] = _job(connection, job if isinstance(job, int) else str(job))
        if "batch" in found:
            found["batch"] = task_reports.batch_id(connection, str(found["batch"]))
        return found


def _given(query: ListFilter | None) -> dict[str, object]:
    return {} if query is None else query.given()


def _job(connection: Connection, named: str | int) -> int:
    return named if isinstance(named, int) else jobs.find(connection, named)


@lru_cache(maxsize=1024)
def _windows(text: str) -> MaintenanceWindows:
    try:
        return MaintenanceWindows.parse(text)
    except UsageError:  # written in SQL, past our checks: it closes nothing
        return MaintenanceWindows()


def _window(row: domain_lists.WindowedRow) -> WindowRow:
    windows = _windows(row.window)
    opens = windows.closed_until(row.now)
    return WindowRow(
        row.domain, row.window, opens is None, opens, windows.next_close(opens or row.now), row.is_active, row.version
    )


def _check_id(what: str, number: int) -> None:
    if not 0 < number < 2**63:
        raise UsageError(f"{number} is not the id of a {what}.")
