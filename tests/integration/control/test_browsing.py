"""The lists as the API turns their pages: what each shows, which filters it has, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.audit.records import AuditFilter
from holdfast.audit.service import AuditService
from holdfast.control import listings as browsing
from holdfast.control.list_filters import (
    ClaimFilter,
    DomainFilter,
    ItemFilter,
    JobFilter,
    NameFilter,
    ProxyFilter,
    RunFilter,
    TaskFilter,
    UrlFilter,
    WorkerFilter,
)
from holdfast.control.listings import LISTINGS, ListingService
from holdfast.db import audit, crawls, jobs, runs, workers
from holdfast.db.connection import Database
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.errors import NotFound, UsageError
from holdfast.jobs.service import JobService
from holdfast.model.domain import Status
from holdfast.model.job import JobState
from holdfast.model.outcome import UrlState
from holdfast.model.task import TaskStatus
from holdfast.products.records import ProductFilter
from holdfast.products.service import ProductService
from holdfast.tasks.queries import tasks as task_reports
from holdfast.webhooks.records import DeliveryFilter, DeliveryState
from holdfast.webhooks.service import WebhookService
from holdfast.workers.service import ClaimDesk
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.furnished import put_items
from tests.support.pools import Pools
from tests.support.tasks import S, Tasks


@pytest.fixture
def browser(database: Database) -> ListingService:
    return ListingService(database)


def names(page: Any, name: str = "domain") -> list[Any]:
    return [getattr(row, name) for row in page.rows]


# Domains --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def some(store: Store, database: Database) -> Store:
    store.seed("a.example", "shop.b.example", "www2.b.example", "b.example", "c.example")
    desk = DomainService(database)
    desk.configure("c.example", parse_assignments(["active=no"]), actor="ann")
    desk.configure("a.example", parse_assignments(["window=00:00-23:59"]), actor="ann")
    store.become("shop.b.example", Status.BLOCKED)
    store.claim("w1", 1)
    return store


def test_domains_by_every_filter_in_every_order(some: Store, browser: ListingService) -> None:
    assert some.job
    for query, expected in [
        (DomainFilter(), ["a", "b", "c", "shop.b", "www2.b"]),
        (DomainFilter(status=Status.BLOCKED), ["shop.b"]),
        (DomainFilter(active=True), ["a", "b", "shop.b", "www2.b"]),
        (DomainFilter(active=False), ["c"]),
        (DomainFilter(claimed=True), ["a"]),
        (DomainFilter(claimed=False), ["b", "c", "shop.b", "www2.b"]),
        (DomainFilter(worker="w1"), ["a"]),
        (DomainFilter(worker="w2"), []),
        (DomainFilter(name="SH"), ["shop.b"]),
        (DomainFilter(parent="b.example"), ["shop.b", "www2.b"]),
        (DomainFilter(parent="b.example", status=Status.PENDING, active=True, name="w"), ["www2.b"]),
    ]:
        assert names(browser.domains(query)) == [f"{name}.example" for name in expected], query
        for order in LISTINGS["domains"].orders:
            assert sorted(names(browser.domains(query, order=order))) == [f"{name}.example" for name in expected], query


def test_a_domain_in_a_list_has_what_people_ask_for(some: Store, browser: ListingService) -> None:
    (held,) = browser.domains(DomainFilter(worker="w1")).rows
    assert (held.claimed_by, held.claim_expired, held.stays_blocked, held.frontier_size) == ("w1", False, False, 1)
    (blocked,) = browser.domains(DomainFilter(status=Status.BLOCKED)).rows
    assert (blocked.block_reason_code, blocked.stays_blocked, blocked.next_crawl_after) == ("manual", True, None)
    assert blocked.version == some.row("shop.b.example")["version"]


def test_claims_say_who_and_since_when(some: Store, browser: ListingService) -> None:
    (claim,) = browser.claims().rows
    assert (claim.domain, claim.worker, claim.epoch, claim.expired) == ("a.example", "w1", 1, False)
    assert claim.claimed_at is not None
    assert claim.claimed_at < claim.expires_at
    some.expire(claim.domain_id)
    assert names(browser.claims(ClaimFilter(expired=True))) == ["a.example"]
    assert browser.claims(ClaimFilter(expired=False)).rows == []
    assert browser.claims(ClaimFilter(worker="w2")).rows == []


def test_the_histories_of_a_domain(browser: ListingService, store: Store) -> None:
    store.domains(1)
    for _ in range(3):
        store.release(store.claim_one())
    store.become("d0.example", Status.EXHAUSTED)
    first = browser.tenures("d0.example", limit=2)
    assert [row.epoch for row in first.rows] == [3, 2]
    assert [row.epoch for row in browser.tenures("d0.example", after=first.next, limit=2).rows] == [1]
    changes = browser.transitions("https://d0.example/x").rows
    assert [(row.from_status, row.to_status) for row in changes] == [("active", "exhausted"), ("pending", "active")]
    with pytest.raises(NotFound):
        browser.tenures("nobody.example")


def test_windows_say_when_they_open_and_close(some: Store, browser: ListingService) -> None:
    some.connection.execute("UPDATE domains SET maintenance_window = 'mon-sun nonsense' WHERE domain = 'c.example'")
    some.connection.execute("UPDATE domains SET maintenance_window = '23:58-23:59' WHERE domain = 'b.example'")
    closed, open_, odd = browser.windows().rows
    assert (closed.domain, closed.is_open) == ("a.example", False) or datetime.now(UTC).strftime("%H:%M") == "23:59"
    assert open_.domain == "b.example"
    assert open_.closes_at is not None
    assert open_.closes_at.strftime("%H:%M") == "23:58"
    assert (odd.domain, odd.is_open, odd.closes_at) == ("c.example", True, None), "what cannot be read closes nothing"
    assert names(browser.windows(NameFilter(name="B"))) == ["b.example"]


# Jobs, runs, workers --------------------------------------------------------------------------------------------------


def test_jobs_by_state_and_name_with_their_figures(browser: ListingService, store: Store, database: Database) -> None:
    crawl_a_little(database, store)
    news, old = store.new_job("news"), store.new_job("newspaper")
    store.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE id = %s", (old,))
    assert names(browser.jobs(order="oldest"), "name") == ["default", "tasks", "news", "newspaper"]
    assert names(browser.jobs(JobFilter(name="news")), "name") == ["newspaper", "news"]
    assert names(browser.jobs(JobFilter(state=JobState.PAUSED, name="news")), "name") == ["newspaper"]
    (row,) = browser.jobs(JobFilter(name="default")).rows
    assert (row.domains, row.discovered, row.waiting, row.urls_done, row.denied, row.pages) == (2, 8, 2, 4, 2, 3)
    assert row == browser.job("default") == browser.job(store.job)
    first = browser.jobs(order="oldest", limit=3)
    assert (names(first, "name"), first.next) == (["default", "tasks", "news"], (news,))
    assert names(browser.jobs(order="oldest", after=first.next), "name") == ["newspaper"]
    assert [found["name"] for found in JobService(database, "ann").some([news, 999])] == ["news"]
    jobs.delete(store.connection, news)
    assert names(browser.jobs(JobFilter(name="news")), "name") == ["newspaper"]
    with pytest.raises(NotFound):
        browser.job(news)


def test_runs_and_workers(browser: ListingService, store: Store, database: Database) -> None:
    news = store.new_job("news")
    crawl_id, _ = crawls.begin(store.connection, news)
    with database.connect() as held:
        workers.acquire_name(held, "w1")
        workers.acquire_name(held, "w2")
    one = runs.begin(store.connection, worker="w1", job_id=news, crawl_id=crawl_id)
    two = runs.begin(store.connection, worker="w2")
    runs.end(store.connection, two, error="It fell.")
    assert names(browser.runs(), "id") == [two, one]
    assert names(browser.runs(RunFilter(status="running")), "id") == [one]
    assert names(browser.runs(RunFilter(status="failed")), "error_message") == ["It fell."]
    assert names(browser.runs(RunFilter(job="news", worker="w1", crawl=crawl_id)), "job") == ["news"]
    assert browser.run(two).status == "failed"
    store.domains(2)
    store.claim("w1", 2)
    alive, dead = browser.workers().rows
    assert (alive.name, alive.alive, alive.held, alive.runs) == ("w1", True, 2, 1)
    assert (dead.name, dead.alive, dead.held, dead.runs) == ("w2", False, 0, 0)
    assert names(browser.workers(WorkerFilter(alive=True)), "name") == ["w1"]
    assert names(browser.workers(WorkerFilter(alive=False)), "name") == ["w2"]
    assert not any(row.alive for row in browser.workers(silence=timedelta(0)).rows)
    with pytest.raises(NotFound):
        browser.run(99)


def test_who_frees_claims_and_closes_runs_is_written_down(store: Store, database: Database) -> None:
    desk = ClaimDesk(database)
    store.domains(3)
    first, *_ = store.claim("w1", 3)
    store.expire(first.domain_id)
    assert desk.release_expired(actor="ann") == 1
    assert desk.release_expired(actor="ann") == 0
    assert desk.force_release("w1", actor="bob") == 2
    runs.begin(store.connection, worker="w1")
    store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - interval '1 day'")
    closed = desk.close_silent_runs(timedelta(hours=1), actor="bob")
    found = [
        (entry.actor, entry.action, entry.object_kind, entry.object_id) for entry in audit.listing(store.connection)
    ]
    assert found == [
        ("bob", "close", "runs", "*"),
        ("bob", "release", "claims", "w1"),
        ("ann", "release", "claims", "*"),
    ]
    assert closed


# The frontier ---------------------------------------------------------------------------------------------------------


def test_urls_by_every_filter(browser: ListingService, store: Store, database: Database) -> None:
    crawl_a_little(database, store)
    for query, expected in [
        (UrlFilter(state=UrlState.WAITING), {f"{HOME}slow", "https://other.example/deep"}),
        (UrlFilter(state=UrlState.WAITING, due=True), {"https://other.example/deep"}),
        (UrlFilter(due=False), {f"{HOME}slow"}),
        (UrlFilter(state=UrlState.DENIED, domain="example.com"), {f"{HOME}private/x", "https://outside.example/"}),
        (UrlFilter(state=UrlState.FAILED), set()),
        (
            UrlFilter(domain="other.example", job="default", kind="discovery", priority=2),
            {"https://other.example/deep"},
        ),
        (UrlFilter(job="default", state=UrlState.WAITING), {f"{HOME}slow", "https://other.example/deep"}),
        (UrlFilter(job="tasks"), set()),
        (UrlFilter(kind="refresh"), set()),
    ]:
        assert set(names(browser.urls(query), "url")) == expected, query


def test_urls_of_a_job_from_its_first_domain_to_its_last(
    browser: ListingService, store: Store, database: Database
) -> None:
    """Whatever the state of its work is on each, and where nobody has counted its URLs yet."""
    crawl_a_little(database, store)
    news = store.new_job("news")
    store.seed("c.example", "d.example/1", "d.example/2", "e.example", job=news)
    store.seed("z.example")
    store.connection.execute(
        "UPDATE job_domains SET state = 'spent', ready = false WHERE job_id = %s AND domain_id %% 2 = 0", (news,)
    )
    store.seed("example.com/news", job=news)  # the first domain of all
    assert store.value("SELECT count(*) FROM domain_wakes WHERE job_id = %s", news)
    query = UrlFilter(job="news")
    rows = (page := browser.urls(query, limit=2)).rows
    while page.next is not None:
        rows += (page := browser.urls(query, after=page.next, limit=2)).rows
    expected = store.connection.execute(
        "SELECT domain_id, url_key FROM url_frontier WHERE job_id = %s ORDER BY domain_id, url_key", (news,)
    ).fetchall()
    assert [(row.domain_id, row.url_key) for row in rows] == expected
    assert len(expected) == 5


def test_urls_as_a_visit_takes_them(browser: ListingService, store: Store) -> None:
    store.seed(*(f"a.example/{n}" for n in range(6)))
    store.connection.execute("UPDATE url_frontier SET depth = 2 WHERE url LIKE '%/0'")
    store.connection.execute("UPDATE url_frontier SET priority = 1 WHERE url LIKE '%/1'")
    query = UrlFilter(domain="a.example", job="default", state=UrlState.WAITING)
    found: list[str] = []
    page = browser.urls(query, order="taken", limit=2)
    found += names(page, "url")
    while page.next is not None:
        page = browser.urls(query, order="taken", after=page.next, limit=2)
        found += names(page, "url")
    taken = store.connection.execute("SELECT url FROM url_frontier ORDER BY priority DESC, depth, url_key")
    assert found == [row[0] for row in taken]
    assert found[-2:] == ["https://a.example/0", "https://a.example/1"]


# Records --------------------------------------------------------------------------------------------------------------


def test_tasks_and_batches(browser: ListingService, store: Store, database: Database) -> None:
    tasks = Tasks(store.connection)
    task_reports.create_batch(store.connection, "spring", actor="ann")
    batch = task_reports.batch_id(store.connection, "spring")
    one, two = tasks.one("a.example/1", batch_id=batch), tasks.one("b.example/1", batch_id=batch)
    tasks.bring(two, S.FAILED)
    three = tasks.one("a.example/2", priority=1)
    assert names(browser.tasks(), "id") == [three, two, one]
    assert names(browser.tasks(order="oldest"), "id") == [one, two, three]
    assert names(browser.tasks(TaskFilter(status=TaskStatus.FAILED)), "id") == [two]
    assert names(browser.tasks(TaskFilter(domain="a.example", status=TaskStatus.PENDING, priority=1)), "id") == [three]
    assert names(browser.tasks(TaskFilter(batch="spring", domain="a.example")), "url") == ["https://a.example/1"]
    (row,) = browser.batches(NameFilter(name="spr")).rows
    assert (row.name, row.tasks, row.counted_all) == ("spring", {"queued": 1, "failed": 1}, True)
    with pytest.raises(NotFound, match="no batch called 'autumn'"):
        browser.tasks(TaskFilter(batch="autumn"))
    assert database


def test_proxies_messages_products_and_deeds(browser: ListingService, store: Store) -> None:
    pools = Pools(store)
    first, second = pools.add(2, provider="acme", country_code="DE")
    pools.fails(second, 10)
    assert names(browser.proxies(), "id") == [first, second]
    assert names(browser.proxies(ProxyFilter(active=False, provider="acme", country="DE")), "id") == [second]
    store.connection.execute(
        "INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at, gave_up_at) VALUES"
        " (1, 1, 'task.failed', 'https://r.example/', '{}', now(), NULL), (2, 1, 'task.failed', 'https://r.example/', '{}', NULL, now())"
    )
    deliveries = WebhookService(browser.database)
    assert names(deliveries.page(DeliveryFilter(state=DeliveryState.GIVEN_UP)), "task_id") == [2]
    assert names(deliveries.page(DeliveryFilter(task=1)), "state") == ["waiting"]
    assert deliveries.page(DeliveryFilter(state=DeliveryState.DELIVERED, url="https://r.example/")).rows == []
    store.seed("a.example")
    store.connection.execute(
        "INSERT INTO products (domain_id, first_seen_at, last_seen_at, last_task_id, page_key, identity_key, name, page_url, identity,"
        " price, currency, availability, brand) SELECT id, now(), now(), 1, '1234567890123456', '1234567890123456', 'red lamp', 'x', 'x',"
        " 5, 'EUR', 'in_stock', 'Acme' FROM domains"
    )
    wanted = ProductFilter(
        search="lamp", brand="acme", min_price=None, currency="eur", domain="a.example", available=True
    )
    products = ProductService(browser.database)
    assert names(products.page(wanted), "name") == ["red lamp"]
    assert products.page(ProductFilter(available=False)).rows == []
    log = AuditService(browser.database)
    assert names(log.page(AuditFilter(kind="proxy", object_id=str(first))), "action") == ["add"]
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    assert len(log.page(AuditFilter(actor="test:me", since=now - hour, until=now + hour)).rows) == 2
    assert log.page(AuditFilter(until=now - hour)).rows == []
    assert log.page(AuditFilter(since=now + hour)).rows == []


# Refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 501, -1])
def test_a_page_has_its_limits(browser: ListingService, limit: int) -> None:
    for ask in (browser.domains, browser.jobs, browser.tasks):
        with pytest.raises(UsageError, match="A list gives 1 to 500 at once"):
            ask(limit=limit)


@pytest.mark.parametrize(
    "query",
    [
        DomainFilter(worker=""),
        DomainFilter(name="x" * 3000),
        DomainFilter(name="\udc80"),
        UrlFilter(kind="other"),
        UrlFilter(priority=13),
        JobFilter(scheduled=False),
        RunFilter(status="asleep"),
        RunFilter(crawl=2**63),
        TaskFilter(parent=-1),
        AuditFilter(object_id="5"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_before_the_store_is_asked(query: Any) -> None:
    with pytest.raises(UsageError):
        query.given()


def test_who_is_not_known_is_not_found(browser: ListingService) -> None:
    with pytest.raises(NotFound, match="no domain"):
        browser.urls(UrlFilter(domain="nobody.example"))
    with pytest.raises(NotFound, match="no job called"):
        browser.runs(RunFilter(job="nothing"))


def test_keys_are_of_kinds_that_a_cursor_can_hold() -> None:
    for which, listing in LISTINGS.items():
        for order in listing.orders:
            assert set(browsing.kinds(which, order)) <= {int, str, bytes, datetime}
    assert browsing.kinds("pages", "newest") == (datetime, int, int, bytes)
    with pytest.raises(UsageError, match="no order 'price'"):
        browsing.kinds("products", "price")


# Items ----------------------------------------------------------------------------------------------------------------


def test_a_page_of_long_items_is_short_and_the_next_goes_on(
    browser: ListingService, database: Database, store: Store
) -> None:
    crawl_a_little(database, store)
    put_items(store.connection, HOME, *({"n": n, "text": "x" * 200_000} for n in range(120)))
    found, after, lengths = list[int](), None, list[int]()
    while True:
        page = browser.items(ItemFilter(domain="example.com"), after=after, limit=500)
        found += [row.data["n"] for row in page.rows]
        lengths.append(len(page.rows))
        if (after := page.next) is None:
            break
    assert found == list(range(120)), "each once, in its order"
    assert lengths == [50, 50, 20]
    small = browser.items(ItemFilter(parser="shop"), limit=7)
    assert ([row.position for row in small.rows], small.next is None) == (list(range(7)), False)
    assert browser.items(ItemFilter(parser="other"), limit=7).rows == []
