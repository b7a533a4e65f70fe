"""The lists as the API turns their pages: what each shows, which filters it has, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.audit.records import AuditFilter
from holdfast.audit.service import AuditService
from holdfast.control.listings import LISTINGS, key_types
from holdfast.db import audit, crawls, runs, workers
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.domains.records import DomainFilter, WindowFilter
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.errors import NotFound, UsageError
from holdfast.frontier.records import UrlFilter
from holdfast.frontier.service import FrontierService
from holdfast.items.records import ItemFilter
from holdfast.items.service import ItemService
from holdfast.jobs.queries import actions
from holdfast.jobs.records import JobFilter
from holdfast.jobs.seed_import import SeedImporter
from holdfast.jobs.service import JobService
from holdfast.model.domain import Status
from holdfast.model.job import JobState
from holdfast.model.outcome import UrlState
from holdfast.model.task import TaskStatus
from holdfast.model.url import DEFAULT_RULES, UrlRules
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
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.furnished import put_items
from tests.support.pools import Pools
from tests.support.tasks import S, Tasks


@pytest.fixture
def domains(database: Database) -> DomainService:
    return DomainService(database)


@pytest.fixture
def at_work(database: Database) -> WorkerService:
    return WorkerService(database)


@pytest.fixture
def frontier(database: Database) -> FrontierService:
    return FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))


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


def test_domains_by_every_filter_in_every_order(some: Store, domains: DomainService) -> None:
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
        assert names(domains.page(query)) == [f"{name}.example" for name in expected], query
        for order in LISTINGS["domains"].orders:
            assert sorted(names(domains.page(query, order=order))) == [f"{name}.example" for name in expected], query


def test_a_domain_in_a_list_has_what_people_ask_for(some: Store, domains: DomainService) -> None:
    (held,) = domains.page(DomainFilter(worker="w1")).rows
    assert (held.claimed_by, held.claim_expired, held.stays_blocked, held.frontier_size) == ("w1", False, False, 1)
    (blocked,) = domains.page(DomainFilter(status=Status.BLOCKED)).rows
    assert (blocked.block_reason_code, blocked.stays_blocked, blocked.next_crawl_after) == ("manual", True, None)
    assert blocked.version == some.row("shop.b.example")["version"]


def test_claims_say_who_and_since_when(some: Store, at_work: WorkerService) -> None:
    (claim,) = at_work.claims().rows
    assert (claim.domain, claim.worker, claim.epoch, claim.expired) == ("a.example", "w1", 1, False)
    assert claim.claimed_at is not None
    assert claim.claimed_at < claim.expires_at
    some.expire(some.row(claim.domain)["id"])
    assert names(at_work.claims(ClaimFilter(expired=True))) == ["a.example"]
    assert at_work.claims(ClaimFilter(expired=False)).rows == []
    assert at_work.claims(ClaimFilter(worker="w2")).rows == []


def test_the_histories_of_a_domain(domains: DomainService, store: Store) -> None:
    store.domains(1)
    for _ in range(3):
        store.release(store.claim_one())
    store.become("d0.example", Status.EXHAUSTED)
    first = domains.tenures("d0.example", limit=2)
    assert [row.epoch for row in first.rows] == [3, 2]
    assert [row.epoch for row in domains.tenures("d0.example", after=first.next, limit=2).rows] == [1]
    changes = domains.transitions("https://d0.example/x").rows
    assert [(row.from_status, row.to_status) for row in changes] == [("active", "exhausted"), ("pending", "active")]
    with pytest.raises(NotFound):
        domains.tenures("nobody.example")


def test_windows_say_when_they_open_and_close(some: Store, domains: DomainService) -> None:
    some.connection.execute("UPDATE domains SET maintenance_window = 'mon-sun nonsense' WHERE domain = 'c.example'")
    some.connection.execute("UPDATE domains SET maintenance_window = '23:58-23:59' WHERE domain = 'b.example'")
    closed, open_, odd = domains.windows().rows
    assert (closed.domain, closed.is_open) == ("a.example", False) or datetime.now(UTC).strftime("%H:%M") == "23:59"
    assert open_.domain == "b.example"
    assert open_.closes_at is not None
    assert open_.closes_at.strftime("%H:%M") == "23:58"
    assert (odd.domain, odd.is_open, odd.closes_at) == ("c.example", True, None), "what cannot be read closes nothing"
    assert names(domains.windows(WindowFilter(name="B"))) == ["b.example"]


# Jobs, runs, workers --------------------------------------------------------------------------------------------------


def test_jobs_by_state_and_name_with_their_figures(store: Store, database: Database) -> None:
    service = JobService(database, "ann")
    crawl_a_little(database, store)
    news, old = store.new_job("news"), store.new_job("newspaper")
    store.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE id = %s", (old,))
    assert names(service.page(order="oldest"), "name") == ["default", "tasks", "news", "newspaper"]
    assert names(service.page(JobFilter(name="news")), "name") == ["newspaper", "news"]
    assert names(service.page(JobFilter(state=JobState.PAUSED, name="news")), "name") == ["newspaper"]
    (row,) = service.page(JobFilter(name="default")).rows
    assert (row.domains, row.discovered, row.waiting, row.urls_done, row.denied, row.pages) == (2, 8, 2, 4, 2, 3)
    assert row == service.show("default") == service.show(store.job)
    first = service.page(order="oldest", limit=3)
    assert (names(first, "name"), first.next) == (["default", "tasks", "news"], (news,))
    assert names(service.page(order="oldest", after=first.next), "name") == ["newspaper"]
    assert [found.name for found in service.some([news, 999])] == ["news"]
    actions.delete(store.connection, news)
    assert names(service.page(JobFilter(name="news")), "name") == ["newspaper"]
    with pytest.raises(NotFound):
        service.show(news)


def test_runs_and_workers(at_work: WorkerService, store: Store, database: Database) -> None:
    news = store.new_job("news")
    crawl_id, _ = crawls.begin(store.connection, news)
    with database.connect() as held:
        workers.acquire_name(held, "w1")
        workers.acquire_name(held, "w2")
    one = runs.begin(store.connection, worker="w1", job_id=news, crawl_id=crawl_id)
    two = runs.begin(store.connection, worker="w2")
    runs.end(store.connection, two, error="It fell.")
    assert names(at_work.runs(), "id") == [two, one]
    assert names(at_work.runs(RunFilter(status="running")), "id") == [one]
    assert names(at_work.runs(RunFilter(status="failed")), "error_message") == ["It fell."]
    assert names(at_work.runs(RunFilter(job="news", worker="w1", crawl=crawl_id)), "job") == ["news"]
    assert at_work.run(two).status == "failed"
    store.domains(2)
    store.claim("w1", 2)
    alive, dead = at_work.page().rows
    assert (alive.name, alive.alive, alive.held, alive.runs) == ("w1", True, 2, 1)
    assert (dead.name, dead.alive, dead.held, dead.runs) == ("w2", False, 0, 0)
    assert names(at_work.page(WorkerFilter(alive=True)), "name") == ["w1"]
    assert names(at_work.page(WorkerFilter(alive=False)), "name") == ["w2"]
    assert not any(row.alive for row in at_work.page(silence=timedelta(0)).rows)
    with pytest.raises(NotFound):
        at_work.run(99)


def test_who_frees_claims_and_closes_runs_is_written_down(store: Store, at_work: WorkerService) -> None:
    store.domains(3)
    first, *_ = store.claim("w1", 3)
    store.expire(first.domain_id)
    assert at_work.release(force=False, worker=None, actor="ann") == 1
    assert at_work.release(force=False, worker=None, actor="ann") == 0
    assert at_work.release(force=True, worker="w1", actor="bob") == 2
    runs.begin(store.connection, worker="w1")
    store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - interval '1 day'")
    closed = at_work.close_silent_runs(timedelta(hours=1), actor="bob")
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


def test_urls_by_every_filter(frontier: FrontierService, store: Store, database: Database) -> None:
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
        assert set(names(frontier.page(query), "url")) == expected, query


def test_urls_of_a_job_from_its_first_domain_to_its_last(
    frontier: FrontierService, store: Store, database: Database
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
    rows = (page := frontier.page(query, limit=2)).rows
    while page.next is not None:
        rows += (page := frontier.page(query, after=page.next, limit=2)).rows
    expected = store.connection.execute(
        "SELECT url FROM url_frontier WHERE job_id = %s ORDER BY domain_id, url_key", (news,)
    ).fetchall()
    assert [(row.url,) for row in rows] == expected
    assert len(expected) == 5


def test_urls_as_a_visit_takes_them(frontier: FrontierService, store: Store) -> None:
    store.seed(*(f"a.example/{n}" for n in range(6)))
    store.connection.execute("UPDATE url_frontier SET depth = 2 WHERE url LIKE '%/0'")
    store.connection.execute("UPDATE url_frontier SET priority = 1 WHERE url LIKE '%/1'")
    query = UrlFilter(domain="a.example", job="default", state=UrlState.WAITING)
    found: list[str] = []
    page = frontier.page(query, order="taken", limit=2)
    found += names(page, "url")
    while page.next is not None:
        page = frontier.page(query, order="taken", after=page.next, limit=2)
        found += names(page, "url")
    taken = store.connection.execute("SELECT url FROM url_frontier ORDER BY priority DESC, depth, url_key")
    assert found == [row[0] for row in taken]
    assert found[-2:] == ["https://a.example/0", "https://a.example/1"]


# Records --------------------------------------------------------------------------------------------------------------


def test_tasks_and_batches(store: Store, database: Database) -> None:
    tasks = Tasks(store.connection)
    service = TaskService(database, UrlRules(), NewDomains())
    task_queries.create_batch(store.connection, "spring", actor="ann")
    batch = task_queries.batch_id(store.connection, "spring")
    one, two = tasks.one("a.example/1", batch_id=batch), tasks.one("b.example/1", batch_id=batch)
    tasks.bring(two, S.FAILED)
    three = tasks.one("a.example/2", priority=1)
    assert names(service.page(), "id") == [three, two, one]
    assert names(service.page(order="oldest"), "id") == [one, two, three]
    assert names(service.page(TaskFilter(status=TaskStatus.FAILED)), "id") == [two]
    assert names(service.page(TaskFilter(domain="a.example", status=TaskStatus.PENDING, priority=1)), "id") == [three]
    assert names(service.page(TaskFilter(batch="spring", domain="a.example")), "url") == ["https://a.example/1"]
    (row,) = service.batches(BatchFilter(prefix="spr")).rows
    assert (row.name, row.tasks, row.counted_all) == ("spring", {"queued": 1, "failed": 1}, True)
    with pytest.raises(NotFound, match="no batch called 'autumn'"):
        service.page(TaskFilter(batch="autumn"))
    assert database


def test_proxies_messages_products_and_deeds(database: Database, store: Store) -> None:
    pools = Pools(store)
    first, second = pools.add(2, provider="acme", country_code="DE")
    pools.fails(second, 10)
    proxies = ProxyService.of(Settings(), database)
    assert names(proxies.page(), "id") == [first, second]
    assert names(proxies.page(ProxyFilter(active=False, provider="acme", country="DE")), "id") == [second]
    store.connection.execute(
        "INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at, gave_up_at) VALUES"
        " (1, 1, 'task.failed', 'https://r.example/', '{}', now(), NULL), (2, 1, 'task.failed', 'https://r.example/', '{}', NULL, now())"
    )
    deliveries = WebhookService(database)
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
    products = ProductService(database)
    assert names(products.page(wanted), "name") == ["red lamp"]
    assert products.page(ProductFilter(available=False)).rows == []
    log = AuditService(database)
    assert names(log.page(AuditFilter(kind="proxy", object_id=str(first))), "action") == ["add"]
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    assert len(log.page(AuditFilter(actor="test:me", since=now - hour, until=now + hour)).rows) == 2
    assert log.page(AuditFilter(until=now - hour)).rows == []
    assert log.page(AuditFilter(since=now + hour)).rows == []


# Refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 501, -1])
def test_a_page_has_its_limits(database: Database, domains: DomainService, at_work: WorkerService, limit: int) -> None:
    tasks = TaskService(database, UrlRules(), NewDomains())
    for ask in (domains.page, at_work.page, JobService(database, "ann").page, tasks.page):
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
        TaskFilter(parent_task_id=-1),
        AuditFilter(object_id="5"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_before_the_store_is_asked(query: Any) -> None:
    with pytest.raises(UsageError):
        query.given()


def test_who_is_not_known_is_not_found(at_work: WorkerService, frontier: FrontierService) -> None:
    with pytest.raises(NotFound, match="no domain"):
        frontier.page(UrlFilter(domain="nobody.example"))
    with pytest.raises(NotFound, match="no job called"):
        at_work.runs(RunFilter(job="nothing"))


def test_keys_are_of_kinds_that_a_cursor_can_hold() -> None:
    for which, listing in LISTINGS.items():
        for order in listing.orders:
            assert set(key_types(which, order)) <= {int, str, bytes, datetime}
    assert key_types("pages", "newest") == (datetime, int, int, bytes)
    with pytest.raises(UsageError, match="no order 'price'"):
        key_types("products", "price")


# Items ----------------------------------------------------------------------------------------------------------------


def test_a_page_of_long_items_is_short_and_the_next_goes_on(database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    items = ItemService(database)
    put_items(store.connection, HOME, *({"n": n, "text": "x" * 200_000} for n in range(120)))
    found, after, lengths = list[int](), None, list[int]()
    while True:
        page = items.page(ItemFilter(domain="example.com"), after=after, limit=500)
        found += [row.data["n"] for row in page.rows]
        lengths.append(len(page.rows))
        if (after := page.next) is None:
            break
    assert found == list(range(120)), "each once, in its order"
    assert lengths == [50, 50, 20]
    small = items.page(ItemFilter(parser="shop"), limit=7)
    assert ([row.position for row in small.rows], small.next is None) == (list(range(7)), False)
    assert items.page(ItemFilter(parser="other"), limit=7).rows == []
