"""How long a page of each list takes, at its beginning, in its middle and at its end. Prints a table; never a gate.

    python -m benchmarks.lists [--pages 1000000] [--domains 100000] [--keep FOLDER] [--only LIST] [--json FILE]

The bundled PostgreSQL runs in a folder of its own, which is removed at the end unless --keep names it; what is in that is used again.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.lists_data import fill
from holdfast.audit.records import AuditFilter
from holdfast.audit.service import AuditService
from holdfast.control.listings import LISTINGS, resolve_names
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.db.keyset_pagination import Key, Page
from holdfast.db.pool import PooledDatabase
from holdfast.domains.records import DomainFilter
from holdfast.domains.service import DomainService
from holdfast.frontier.records import UrlFilter
from holdfast.frontier.service import FrontierService
from holdfast.jobs.records import JobFilter
from holdfast.jobs.seed_import import SeedImporter
from holdfast.jobs.service import JobService
from holdfast.model.domain import Status
from holdfast.model.job import JobState
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.task import TaskStatus
from holdfast.model.url import DEFAULT_RULES
from holdfast.pages.records import PageFilter
from holdfast.pages.service import PageService
from holdfast.products.records import ProductFilter
from holdfast.products.service import ProductService
from holdfast.proxies.records import ProxyFilter
from holdfast.proxies.service import ProxyService
from holdfast.settings import Settings
from holdfast.tasks import queries as task_queries
from holdfast.tasks.records import BatchFilter, TaskFilter
from holdfast.tasks.service import TaskService
from holdfast.webhooks.records import DeliveryFilter, DeliveryState
from holdfast.webhooks.service import WebhookService
from holdfast.workers.records import ClaimFilter, RunFilter, WorkerFilter
from holdfast.workers.service import WorkerService

LIMIT = 100
TRIES = 5
SLOW = 100.0
"""Milliseconds that no page may take."""


@dataclass(frozen=True)
class Case:
    """A list as somebody asks for it."""

    list: str
    orders: tuple[str, ...]
    query: Any = None
    said: str = ""
    given: dict[str, Any] = field(default_factory=dict)
    """For the lists of one domain."""


def cases(connection: psycopg.Connection) -> list[Case]:
    """Every list, in every order, without filters and with those that people use, rare values and frequent ones."""
    first = connection.execute("SELECT domain FROM domains ORDER BY id LIMIT 1").fetchone()
    small = connection.execute("SELECT domain FROM domains ORDER BY id OFFSET 5 LIMIT 1").fetchone()
    assert first
    assert small
    big, little = str(first[0]), str(small[0])
    long_ago = datetime.now(UTC) - timedelta(days=40)
    domains, pages = ("name", "crawled", "priority", "newest", "oldest"), ("newest", "oldest", "key")
    return [
        Case("domains", domains),
        Case("domains", domains, DomainFilter(status=Status.PENDING), "status=pending"),
        Case("domains", domains, DomainFilter(status=Status.UNREACHABLE), "status=unreachable"),
        Case("domains", domains, DomainFilter(active=False), "active=no"),
        Case("domains", domains, DomainFilter(claimed=True), "claimed=yes"),
        Case("domains", domains, DomainFilter(worker="crawler-8"), "worker"),
        Case("domains", domains, DomainFilter(name="a"), "name=a…"),
        Case("domains", domains, DomainFilter(parent="shared-3.example"), "parent"),
        Case("domains", domains, DomainFilter(status=Status.BLOCKED, active=False), "status=blocked active=no"),
        Case("pages", pages),
        Case("pages", pages, PageFilter(domain=big), "domain, a tenth of all"),
        Case("pages", pages, PageFilter(domain=little), "domain, small"),
        Case("pages", pages, PageFilter(job="default"), "job, most of all"),
        Case("pages", pages, PageFilter(job="job-5"), "job, small"),
        Case("pages", pages, PageFilter(domain=big, job="default"), "domain and job"),
        Case("pages", pages, PageFilter(status=404), "status=404"),
        Case("pages", pages, PageFilter(status_class=5), "status 5xx, rare"),
        Case("pages", pages, PageFilter(outcome=Outcome.TIMEOUT), "outcome, none has it"),
        Case("pages", pages, PageFilter(content_type="application/pdf"), "type, rare"),
        Case("pages", pages, PageFilter(content_hash="00" * 32), "hash, none has it"),
        Case("pages", pages, PageFilter(title="keeping places"), "title, most of all"),
        Case("pages", pages, PageFilter(title="nowhere"), "title, none has it"),
        Case("pages", pages, PageFilter(until=long_ago), "until 40 days ago"),
        Case("pages", pages, PageFilter(domain=big, status=500, since=long_ago), "domain, status, since"),
        Case("urls", ("key",)),
        Case("urls", ("key",), UrlFilter(domain=big), "domain"),
        Case("urls", ("key",), UrlFilter(state=UrlState.FAILED), "state=failed"),
        Case("urls", ("key",), UrlFilter(state=UrlState.DENIED), "state=denied"),
        Case("urls", ("key",), UrlFilter(state=UrlState.WAITING, due=False), "delayed, rare"),
        Case("urls", ("key",), UrlFilter(job="job-5"), "job, small"),
        Case("urls", ("key",), UrlFilter(kind="refresh", priority=1), "kind and priority"),
        Case("urls", ("taken",), UrlFilter(domain=big, job="default", state=UrlState.WAITING), "as taken"),
        Case("jobs", ("newest", "oldest")),
        Case("jobs", ("newest",), JobFilter(state=JobState.PAUSED), "state"),
        Case("jobs", ("newest",), JobFilter(name="job-99"), "name=job-99…"),
        Case("runs", ("newest",)),
        Case("runs", ("newest",), RunFilter(status="running"), "running"),
        Case("runs", ("newest",), RunFilter(status="failed"), "failed, rare"),
        Case("runs", ("newest",), RunFilter(job="job-5"), "job"),
        Case("runs", ("newest",), RunFilter(worker="crawler-8", status="failed"), "worker, failed"),
        Case("workers", ("name",)),
        Case("workers", ("name",), WorkerFilter(alive=True), "alive"),
        Case("claims", ("worker",)),
        Case("claims", ("worker",), ClaimFilter(worker="crawler-8"), "worker"),
        Case("claims", ("worker",), ClaimFilter(expired=True), "expired"),
        Case("transitions", ("newest",), None, "of a domain", {"domain": big}),
        Case("tenures", ("newest",), None, "of a domain", {"domain": big}),
        Case("windows", ("name",)),
        Case("tasks", ("newest", "oldest")),
        Case("tasks", ("newest", "oldest"), TaskFilter(status=TaskStatus.PENDING), "status=pending"),
        Case("tasks", ("newest", "oldest"), TaskFilter(status=TaskStatus.FAILED), "status=failed"),
        Case("tasks", ("newest",), TaskFilter(domain=big), "domain"),
        Case("tasks", ("newest",), TaskFilter(domain=big, status=TaskStatus.FAILED), "domain, failed"),
        Case("tasks", ("newest",), TaskFilter(batch="batch 5", status=TaskStatus.FAILED), "batch, failed"),
        Case("tasks", ("newest",), TaskFilter(status=TaskStatus.COMPLETED, priority=1), "status, priority"),
        Case("batches", ("newest",)),
        Case("batches", ("newest",), BatchFilter(prefix="batch 49"), "name=batch 49…"),
        Case("products", ("newest",)),
        Case("products", ("newest",), ProductFilter(search="red lamp"), "search, a quarter of all"),
        Case("products", ("newest",), ProductFilter(search="oak"), "search, nothing"),
        Case("products", ("newest",), ProductFilter(brand="Rare"), "brand"),
        Case("products", ("newest",), ProductFilter(min_price=Decimal(9990), available=True), "price, available"),
        Case("products", ("newest",), ProductFilter(domain=big), "domain"),
        Case("proxies", ("oldest", "newest")),
        Case("proxies", ("oldest",), ProxyFilter(active=False), "not active"),
        Case("proxies", ("oldest",), ProxyFilter(provider="provider 3", country="DE"), "provider and country"),
        Case("deliveries", ("newest",)),
        Case("deliveries", ("newest",), DeliveryFilter(state=DeliveryState.GIVEN_UP), "given up"),
        Case("deliveries", ("newest",), DeliveryFilter(state=DeliveryState.DELIVERED), "delivered"),
        Case("deliveries", ("newest",), DeliveryFilter(task=77), "task"),
        Case("audit", ("newest", "oldest")),
        Case("audit", ("newest",), AuditFilter(actor="person-1"), "actor"),
        Case("audit", ("newest",), AuditFilter(kind="pool"), "kind, rare"),
        Case("audit", ("newest",), AuditFilter(kind="domain", actor="person-1"), "kind and actor"),
        Case("audit", ("newest",), AuditFilter(kind="domain", object_id="5"), "object"),
        Case("audit", ("newest",), AuditFilter(until=long_ago), "until 40 days ago"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--domains", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="keep the store here, and use what is in it")
    parser.add_argument("--only", help="only this list")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-lists-"))
    folder.chmod(0o755)
    data = options.keep or folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    try:
        database = _store(data, options.pages, options.domains)
        figures = bench(database, options.only)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2))
    finally:
        embedded.stop(data)
        shutil.rmtree(folder)


def _store(data: Path, pages: int, domains: int) -> Database:
    database = Database(embedded.ensure_running(data).url(), statement_timeout=0, idle_timeout=0)
    migrate.upgrade(database)
    with database.session() as connection:
        row = connection.execute("SELECT EXISTS (SELECT FROM domains)").fetchone()
        if not (row and row[0]):
            print(f"{pages:,} pages, {domains:,} domains, as much again of the rest:")
            fill(connection, pages=pages, domains=domains, tell=lambda text: print(f"  {text}", flush=True))
    return database


def bench(database: Database, only: str | None) -> list[dict[str, Any]]:
    """Every case; its figures."""
    pooled = PooledDatabase.from_database(database, size=2, statement_timeout=60)
    print(
        f"\nA page of {LIMIT} rows in ms, median of {TRIES}; rows of the first page, + if the next one is not empty for certain"
    )
    print(f"{'list':<12}{'filter':<26}{'order':<10}{'first':>8}{'middle':>8}{'last':>8}{'rows':>7}")
    figures = []
    try:
        with database.session() as connection:
            for case in cases(connection):
                if only in (None, case.list):
                    figures += [_figures(connection, pooled, case, order) for order in case.orders]
        figures += _sums(pooled)
    finally:
        pooled.close()
    slow = [figure for figure in figures if max(figure["ms"]) > SLOW]
    print(
        f"\n{len(figures)} lists, slowest page {max(max(figure['ms']) for figure in figures):.0f} ms, {len(slow)} above {SLOW:.0f} ms"
    )
    return figures


def _figures(connection: psycopg.Connection, database: Database, case: Case, order: str) -> dict[str, Any]:
    domains, workers = DomainService(database), WorkerService(database)
    tasks = TaskService(database, DEFAULT_RULES, NewDomains())
    lists: dict[str, Callable[..., Page[Any]]] = {
        "products": ProductService(database).page,
        "deliveries": WebhookService(database).page,
        "pages": PageService(database).page,
        "urls": _frontier(database).page,
        "proxies": ProxyService.of(Settings(), database).page,
        "domains": domains.page,
        "transitions": domains.transitions,
        "tenures": domains.tenures,
        "windows": domains.windows,
        "workers": workers.page,
        "runs": workers.runs,
        "claims": workers.claims,
        "audit": AuditService(database).page,
        "jobs": JobService(database, "").page,
        "tasks": tasks.page,
        "batches": tasks.batches,
    }
    ask = lists[case.list]
    by = {"order": order} if len(LISTINGS[case.list].orders) > 1 else {}

    def page(after: Key | None) -> Page[Any]:
        return ask(case.given["domain"] if case.given else case.query, **by, after=after, limit=LIMIT)

    given = case.given or ({} if case.query is None or case.list in ("products", "deliveries") else case.query.given())
    middle, last = _places(connection, case, order, given)
    times, rows = [], []
    for after in (None, middle, last):
        taken = []
        for _ in range(TRIES):
            began = time.perf_counter()
            found = page(after)
            taken.append((time.perf_counter() - began) * 1000)
        times.append(statistics.median(taken))
        rows.append(f"{len(found.rows)}{'+' if found.next else ''}")
    print(
        f"{case.list:<12}{case.said:<26}{order:<10}{times[0]:>8.1f}{times[1]:>8.1f}{times[2]:>8.1f}{rows[0]:>7}",
        flush=True,
    )
    return {"list": case.list, "filter": case.said, "order": order, "ms": [round(ms, 2) for ms in times], "rows": rows}


def _places(
    connection: psycopg.Connection, case: Case, order: str, given: dict[str, Any]
) -> tuple[Key | None, Key | None]:
    """Keys in the middle of a list, filtered or not, and before its last page; found the slow way."""
    listing = LISTINGS[case.list]
    ids = resolve_names(connection, given, registrable=False)
    if "batch" in ids:
        ids["batch"] = task_queries.batch_id(connection, str(ids["batch"]))
    where = " AND ".join([listing.condition, *(f"({listing.filters[name]})" for name in ids)])
    columns = listing.order(order).columns
    names = ", ".join(by.column for by in columns)
    back = ", ".join(f"{by.column} {'ASC NULLS FIRST' if by.descending else 'DESC NULLS FIRST'}" for by in columns)
    also = {"silence": timedelta(seconds=120)}
    count = connection.execute(f"SELECT count(*) FROM {listing.table} t WHERE {where}", ids | also).fetchone()
    rows = count[0] if count else 0
    keys: list[Key | None] = []
    for behind in (rows // 2, min(LIMIT, rows // 2)):
        row = connection.execute(
            f"SELECT {names} FROM {listing.table} t WHERE {where} ORDER BY {back} OFFSET {behind} LIMIT 1", ids | also
        ).fetchone()
        keys.append(tuple(row) if row and rows else None)
    return keys[0], keys[1]


def _frontier(database: Database) -> FrontierService:
    return FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))


def _sums(database: Database) -> list[dict[str, Any]]:
    """What is not a list, but asked for as often."""
    frontier = _frontier(database)
    asked: dict[str, Callable[[], object]] = {
        "frontier stats": frontier.stats,
        "frontier stats of a job": lambda: frontier.stats("job-5"),
        "the biggest job": lambda: JobService(database, "").show("default"),
    }
    figures = []
    for name, ask in asked.items():
        taken = []
        for _ in range(TRIES):
            began = time.perf_counter()
            ask()
            taken.append((time.perf_counter() - began) * 1000)
        print(f"{name:<48}{statistics.median(taken):>8.1f}")
        figures.append(
            {"list": name, "filter": "", "order": "", "ms": [round(statistics.median(taken), 2)], "rows": []}
        )
    return figures


if __name__ == "__main__":
    main()
