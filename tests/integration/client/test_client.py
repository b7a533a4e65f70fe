"""`holdfast.Client` against a real server: what it asks, how it reads the answers, what it raises."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from pyarrow import parquet

import holdfast
from holdfast import Client, factories
from holdfast.alerts import queries as alerts
from holdfast.client import request_spec
from holdfast.client.decoding import read
from holdfast.client.sse import Event
from holdfast.db import runs
from holdfast.db.connection import Database
from holdfast.jobs.records import JobProgress
from holdfast.model.auth import Role, Scope
from holdfast.model.domain import Status
from holdfast.model.task import TaskStatus
from holdfast.operations.service import OperationRunner
from tests.support.api import Api, settings
from tests.support.crawled import HOME, NASTY, TEXT, crawl_a_little
from tests.support.factories import Store
from tests.support.shop import Shop, product
from tests.support.tasks import Tasks


@contextmanager
def background(database: Database, folder: Path) -> Iterator[None]:
    """Somebody who does long work."""
    operator = OperationRunner(database, factories.operation_handlers(settings(folder), database).by_kind())
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            if not operator.work():
                over.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_spec, "_FIRST_PAGE_SIZE", 2)
    monkeypatch.setattr(request_spec, "_NEXT_PAGE_SIZE", 3)


def test_the_package_does_not_load_what_only_clients_need() -> None:
    code = "import sys, holdfast; assert not {'httpx', 'pydantic'} & set(sys.modules); holdfast.Client; assert 'httpx' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert {"Client", "AsyncClient", "NotFound", "TooMany"} <= set(dir(holdfast))
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        holdfast.Server  # type: ignore[attr-defined]  # noqa: B018 — the point


def test_who_asks_and_how_things_stand(api: Api, client: Client) -> None:
    me = client.me()
    assert (me.role, me.via) == ("admin", "key")
    assert me.scopes is not None
    assert "crawl" in me.scopes
    stats = client.stats()
    assert stats.at.tzinfo is not None
    assert stats.domains["pending"] == 0
    outlook = client.outlook()
    assert (outlook.due, outlook.stay_blocked, outlook.wakes) == ([], 0, 0)
    assert outlook.database_bytes > 1_000_000
    series = client.timeseries(since=datetime.now(UTC) - timedelta(minutes=10), step="5m")
    assert series.step == timedelta(minutes=5)
    assert all(point.pages == 0 for point in series.points)
    assert list(client.alerts(active=True)) == []
    with Client(api.url, key="") as nobody:
        assert nobody.stats().pages_total == 0
        with pytest.raises(holdfast.Unauthenticated, match="API key"):
            nobody.me()


def test_a_job_is_made_paused_resumed_scheduled_cancelled_and_deleted(client: Client, store: Store) -> None:
    made = client.create_job(
        "shop", ["https://a.example/", "http://", "b.example"], max_pages=500, exclude=["/tag/"], schedule="6h"
    )
    assert (made.name, made.state, made.seeds, made.bad) == ("shop", "pending", 2, 1)
    assert [(bad.line, bool(bad.problem)) for bad in made.bad_seeds] == [(2, True)]
    assert made.spec["max_pages"] == 500
    assert made.created_at > datetime.now(UTC) - timedelta(minutes=5)
    assert client.job(made.id) == client.job("shop") == client.job(made)
    assert client.job(made).schedule == "6h"
    edited = client.edit_job(made, version=client.job(made).version, max_pages=None, delay=1.5)
    assert (edited.changed, edited.spec["max_pages"], edited.spec["delay"]) == (["max_pages", "delay"], None, 1.5)
    with pytest.raises(holdfast.Refused, match="was changed since"):
        client.edit_job(made, version=made.version, delay=2)
    assert client.pause(made).state == "paused"
    assert client.resume("shop").state == "pending"
    assert client.schedule(made, None).schedule is None
    following = client.schedule(made, "0 3 * * *").next_run_at
    assert following is not None
    assert following.hour == 3
    assert [job.name for job in client.jobs(prefix="sh")] == ["shop"]
    with pytest.raises(holdfast.Refused, match="There is a job called 'shop' already"):
        client.create_job("shop", ["c.example"])
    assert client.cancel(made).is_over
    with pytest.raises(holdfast.Refused, match="cancelled"):
        client.resume(made)
    client.delete_job(made)
    with pytest.raises(holdfast.NotFound, match="no job called 'shop'"):
        client.job("shop")
    assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'job' AND action = 'delete'") == 1


def test_secrets_go_in_and_their_names_come_out(client: Client, store: Store) -> None:
    made = client.create_job("wiki", ["https://a.example/"], secrets={"headers": ["X-Key: canary"]}, user_agent="W/1")
    assert (made.secrets, made.spec["user_agent"]) == (["X-Key"], "W/1")
    assert client.set_secrets(made, headers=[], cookies=["a=canary"]).secrets == ["Cookie"]
    facts = client.configure_domain("a.example", basic_auth="bob:canary")
    assert facts.facts.secrets == ["Authorization"]
    assert "canary" not in repr((client.job(made), client.domain("a.example")))
    with pytest.raises(holdfast.UsageError, match="The header Host cannot be set"):
        client.set_secrets(made, headers=["Host: x"])
    assert store.value("SELECT count(*) FROM job_secrets") == store.value("SELECT count(*) FROM domain_secrets") == 1


def test_lists_are_followed_to_their_end(client: Client, store: Store, small_pages: None) -> None:
    store.seed(*(f"{name}.example" for name in "abcdefghi"))
    names = [domain.domain for domain in client.domains()]
    assert names == [f"{name}.example" for name in "abcdefghi"]
    assert [domain.domain for domain in client.domains(name="c")] == ["c.example"]
    assert list(client.domains(status="blocked")) == []
    assert [domain.id for domain in client.domains(order="newest")] == sorted(
        (domain.id for domain in client.domains()), reverse=True
    )
    found = client.domains()
    assert next(found).domain == "a.example"  # and no more than that is asked for
    with pytest.raises(holdfast.NotFound):
        list(client.pages(domain="nowhere.example"))


def test_what_was_crawled(client: Client, database: Database, store: Store, tmp_path: Path) -> None:
    crawl_a_little(database, store)
    pages = {page.url: page for page in client.pages(domain="example.com")}
    assert pages[HOME].title == NASTY
    assert pages[f"{HOME}gone"].status == 404
    assert {page.url for page in client.pages(status_class=4, job="default")} == {f"{HOME}gone"}
    assert list(client.pages(until=datetime(2020, 1, 1, tzinfo=UTC))) == []
    (facts,) = client.page(f"{HOME}gone")
    assert (facts.state, facts.status, facts.parent_url) == ("done", 404, HOME)
    assert client.explain(f"{HOME}private/x").told["entries"][0]["state"] == "denied"
    assert client.explain("example.com").kind == "domain"
    figures = client.frontier_stats()
    assert (figures.done, figures.denied) == (4, 2)
    assert {url.url for url in client.frontier_urls(domain="example.com", state="waiting")} == {f"{HOME}slow"}
    assert client.add_urls(["https://example.com/new", "http://"], priority="high").bad == 1
    sown = client.seed(["https://new.example/"])
    assert (sown.urls, sown.domains) == (1, 1)
    assert [run.worker for run in client.runs(job="default")] == ["w1"]
    assert client.run(next(client.runs()).id).pages_crawled == 3
    file = tmp_path / "pages.parquet"
    assert client.export("pages", file, domain="example.com") == file.stat().st_size
    rows = parquet.read_table(file).to_pylist()
    assert {row["url"] for row in rows} == set(pages)
    assert b"".join(client.exported("urls", "csv")).startswith(b"url,domain,job,state")
    with pytest.raises(holdfast.UsageError, match="not as 'xlsx'"):
        client.export("pages", tmp_path / "pages.xlsx")
    with pytest.raises(holdfast.NotFound):
        client.export("pages", tmp_path / "none.csv", job="nothing")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["pages.parquet"]


def test_pages_are_searched_and_their_source_is_read(
    api: Api, client: Client, database: Database, store: Store
) -> None:
    crawl_a_little(database, store)
    assert {page.url for page in client.pages(url_prefix=f"{HOME}a")} == {f"{HOME}a", f"{HOME}a/b"}
    assert [page.url for page in client.pages(title="quoted")] == [HOME]
    with pytest.raises(holdfast.NotFound):
        list(client.pages(url_prefix="https://nowhere.example/"))
    source = client.page_source(HOME)
    assert (source.text, source.body, source.links) == (TEXT, None, [])
    assert source.missing is not None
    answer = api.reader.get(
        "/api/pages/source", params={"url": HOME, "job": "default"}, headers={"Accept": "text/html"}
    )
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    with pytest.raises(holdfast.NotFound):
        client.page_source(f"{HOME}nowhere")


def test_what_operators_look_at(client: Client, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    assert {cause.outcome for cause in client.recent_errors(minutes=5)} == {"not_found", "timeout"}
    with pytest.raises(holdfast.UsageError):
        client.recent_errors(minutes=61)
    assert "crawled_pages" in {table.name for table in client.storage().tables}
    with store.connection.transaction():
        alerts.settle(store.connection, [alerts.Finding("backlog", "", 0.2)], kinds=["backlog"], webhook_url=None)
    (alert,) = client.alerts(active=True)
    known = client.acknowledge_alert(alert.id)
    assert (known.id, known.state, known.acknowledged_at is not None) == (alert.id, "firing", True)
    with store.connection.transaction():
        alerts.settle(store.connection, [], kinds=["backlog"], webhook_url=None)
        alerts.settle(store.connection, [alerts.Finding("backlog", "", 0.2)], kinds=["backlog"], webhook_url=None)
        alerts.settle(store.connection, [], kinds=["backlog"], webhook_url=None)
    with pytest.raises(holdfast.Refused, match="is resolved"):
        client.acknowledge_alert(next(iter(client.alerts())).id)
    store.seed("held.example")
    claim = store.claim_one("w2")
    assert client.release_claims(force=True, domain=claim.domain) == 1
    assert client.release_claims(force=True, domain=claim.domain) == 0
    with pytest.raises(holdfast.UsageError, match="--domain requires --force"):
        client.release_claims(domain=claim.domain)
    with pytest.raises(holdfast.NotFound):
        client.release_claims(force=True, domain="nowhere.example")


def test_the_frontier_is_recovered_and_cleared_and_pages_are_purged(
    client: Client, database: Database, store: Store
) -> None:
    crawl_a_little(database, store)
    store.expire(store.claim_one().domain_id)
    assert (client.recover_frontier().claims, client.recover_frontier().claims) == (1, 0)
    cleared = client.clear_frontier(domain="example.com")
    assert (cleared.kind, cleared.state, cleared.arguments["domain"]) == ("clear-frontier", "waiting", "example.com")
    with pytest.raises(holdfast.UsageError, match="Name a job or a domain"):
        client.clear_frontier()
    assert client.clear_frontier(everything=True).arguments["domain"] is None
    before = datetime(2020, 1, 1, tzinfo=UTC)
    purged = client.purge_pages(job="default", before=before)
    assert (purged.kind, datetime.fromisoformat(purged.arguments["before"])) == ("purge-pages", before)
    with pytest.raises(holdfast.UsageError, match="Name a job, a domain or a time"):
        client.purge_pages()


def test_a_domain_is_configured_by_whoever_has_seen_it_last(client: Client, store: Store) -> None:
    store.seed("a.example")
    seen = client.domain("a.example")
    changed = client.configure_domain("a.example", version=seen.version, delay=2.5, frequency=timedelta(hours=6))
    assert changed.facts.crawl_delay_seconds == 2.5
    assert changed.facts.default_crawl_frequency == timedelta(hours=6)
    with pytest.raises(holdfast.Changed):
        client.configure_domain("a.example", version=seen.version, delay=1)
    assert client.configure_domain("a.example", budget=5).facts.max_pages_per_run == 5
    assert client.configure_domain("a.example", budget=None).facts.max_pages_per_run != 5
    claim = store.claim_one("w1")
    assert [held.worker for held in client.claims()] == ["w1"]
    assert client.claim_summary().workers[0].claims == 1
    reset = client.reset_domain("a.example", reason="it moved")
    assert (reset.was, reset.was_held_by) == ("pending", "w1")
    assert claim.domain_id == seen.facts.id
    store.seed("b.example")
    store.become("b.example", Status.BLOCKED)
    assert client.unblock_domain("b.example", reason="let in").was == "blocked"
    store.become("b.example", Status.BLOCKED)
    assert client.reset_domain("b.example").was == "blocked"
    assert next(client.transitions("b.example")).to_status == "pending"
    assert [tenure.why for tenure in client.tenures("a.example")] == ["reset"]
    assert client.release_claims() == 0
    with pytest.raises(holdfast.UsageError):
        client.release_claims(force=True)


def test_a_domain_is_added_closed_at_times_and_removed(client: Client, store: Store) -> None:
    made = client.add_domain("Shop.example", delay=2.5, parser="product")
    assert (made.domain, made.facts.crawl_delay_seconds, made.facts.parser_name) == ("shop.example", 2.5, "product")
    assert client.add_domain("shop.example", delay=9).facts.crawl_delay_seconds == 2.5, "one that exists is unchanged"
    closed = client.set_maintenance_window("shop.example", "22:00-06:00 Europe/Berlin", version=made.version)
    assert closed.facts.maintenance_window == "22:00-06:00 Europe/Berlin"
    (window,) = client.maintenance_windows(name="shop")
    assert (window.domain, window.window) == ("shop.example", "22:00-06:00 Europe/Berlin")
    assert window.closes_at is not None
    assert list(client.maintenance_windows(name="x")) == []
    with pytest.raises(holdfast.Changed):
        client.set_maintenance_window("shop.example", None, version=made.version)
    assert client.set_maintenance_window("shop.example", None).facts.maintenance_window is None
    assert client.robots("shop.example") == []
    assert client.recalculate_priorities().kind == "recalculate-priorities"
    runs.begin(store.connection, worker="w1")
    store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - interval '1 day'")
    assert client.close_silent_runs(older_than_minutes=2000) == []
    (closed_run,) = client.close_silent_runs()
    assert client.run(closed_run).status == "failed"
    client.remove_domain("shop.example")
    with pytest.raises(holdfast.NotFound):
        client.domain("shop.example")


def test_a_task_that_waits_in_the_frontier_says_for_what(client: Client, connection: psycopg.Connection) -> None:
    task = client.create_task("https://shop.example/1")
    child = client.create_task("https://shop.example/2", parent_task_id=task.id)
    assert Tasks(connection).due() == [task.id]
    story = client.task(task.id)
    assert (story.status, [(wait.what, wait.until, wait.change) for wait in story.waits]) == (
        TaskStatus.QUEUED,
        [("the next sweep, which has news for this domain", None, None)],
    )
    assert (client.task(child.id).parent_status, client.task(child.id).waits) == (TaskStatus.QUEUED, [])


def test_tasks_and_batches(client: Client, small_pages: None) -> None:
    client.create_batch("black friday/1")
    first = client.create_task("https://shop.example/1", priority=2, crawl_frequency=timedelta(hours=6))
    assert (first.created, first.priority, first.crawl_frequency) == (True, 2, timedelta(hours=6))
    again = client.create_task("https://shop.example/1")
    assert (again.created, again.id, again.priority) == (False, first.id, 2)
    urls = [f"https://shop.example/{number}" for number in range(2, 9)]
    bulk = client.create_tasks([*urls, "http://"], batch="black friday/1", is_recurring=False)
    assert (bulk.created, bulk.bad, bulk.bad_urls[0].place) == (7, 1, 8)
    assert len(list(client.tasks(batch="black friday/1"))) == 7
    assert client.batch("black friday/1").tasks == {"pending": 7}
    assert [batch.name for batch in client.batches()] == ["black friday/1"]
    assert client.pause_task(first.id).status == "paused"
    assert client.resume_task(first.id).status == "pending"
    assert client.set_priority(first.id, 1).priority == 1
    assert client.cancel_task(first.id).status == "cancelled"
    assert client.restart_task(first.id, priority=3).priority == 3
    with pytest.raises(holdfast.Refused):
        client.restart_parsing(first.id)
    story = client.task(first.id)
    assert story.next.what
    (crawl,) = client.task_history(first.id)
    assert (crawl.task.domain_id, crawl.events[-1].to_status) == (story.domain_id, "pending")
    assert {count.status: count.tasks for count in client.task_stats()}[TaskStatus.PENDING] == 8
    assert client.restart_failed(domain="shop.example").restarted == 0
    with pytest.raises(holdfast.NotFound):
        client.task(10**9)


def test_products_and_their_prices(client: Client, connection: psycopg.Connection) -> None:
    shop = Shop(connection)
    shop.see(1, product("Lamp", "10"))
    shop.see(2, product("Lamp", "12.50"))
    (lamp,) = client.products(max_price=Decimal("12.50"), currency="EUR")
    assert (lamp.name, lamp.price, client.product(lamp.id)) == ("Lamp", Decimal("12.50"), lamp)
    assert [seen.price for seen in client.prices(lamp.id)] == [Decimal("12.50"), Decimal(10)]


def test_proxies_and_pools(client: Client, store: Store, small_pages: None) -> None:
    store.seed("a.example")
    made = client.add_proxy(url="socks5://bob:canary@proxy.example:1", monthly_cost=Decimal("12.50"), provider="acme")
    assert (made.server, made.username, made.has_password) == ("socks5://proxy.example:1", "bob", True)
    others = [client.add_proxy(host="proxy.example", port=port, country_code="DE").id for port in range(2, 8)]
    assert [one.id for one in client.proxies()] == [made.id, *others], "page by page"
    assert [one.id for one in client.proxies(provider="acme", active=True, order="newest")] == [made.id]
    with pytest.raises(holdfast.Refused, match=r"is known as proxy \d+ already"):
        client.add_proxy(url="socks5://bob@proxy.example:1")
    changed = client.edit_proxy(made.id, version=made.version, city="Bonn", max_requests_per_hour=None, password=None)
    assert (changed.city, changed.max_requests_per_hour, changed.has_password) == ("Bonn", None, False)
    with pytest.raises(holdfast.Changed):
        client.edit_proxy(made.id, version=made.version, city="Rome")
    assert client.disable_proxy(made.id).disabled_by == "operator"
    assert client.enable_proxy(made.id) == client.proxy(made.id)
    done = client.assign_proxies("a.example", [made.id, *others], priority=3)
    assert (done.added, done.use, done.now_uses_pool) == ([made.id, *others], "pool", True)
    first = client.edit_pool_proxy("a.example", others[0], priority=1, version=1)
    assert (first.priority, first.is_active, first.version) == (1, True, 2)
    assert not client.edit_pool_proxy("a.example", others[1], is_active=False).is_active
    assert [one.proxy_id for one in client.pool("a.example")][:2] == [others[0], made.id]
    following = client.next_proxy("a.example")
    assert (following.proxy_id, following.usable, following.can_not) == (others[0], 6, {"off_here": 1})
    (health,) = client.pools_health()
    assert (health, health.proxies, health.active) == (client.pool_health("a.example"), 7, 6)
    assert [one.monthly_cost for one in client.proxy_costs()] == [Decimal("12.50"), *[None] * 6]
    assert [(one.provider, one.proxies) for one in client.provider_costs()] == [("acme", 1), (None, 6)]
    client.unassign_proxy("a.example", made.id)
    client.delete_proxy(made.id)
    with pytest.raises(holdfast.NotFound):
        client.proxy(made.id)


def test_long_work_is_waited_for(client: Client, database: Database, tmp_path: Path) -> None:
    asked = client.verify(archive=False)
    assert (asked.kind, asked.state) == ("verify", "waiting")
    with pytest.raises(holdfast.HoldfastError, match="is still waiting"):
        client.wait(asked, patience=0)
    with background(database, tmp_path):
        done = client.wait(asked)
        assert done.result is not None
        assert done.result["ok"] is True
        assert [one.id for one in client.operations(state="done")] == [asked.id]
        client.create_batch("empty")
        assert client.wait(client.restart_batch("empty")).result == {"tasks": 0}
    assert client.operation(asked.id) == done


def test_long_work_that_fails_raises_its_problem(client: Client, database: Database) -> None:
    asked = client.verify()
    assert OperationRunner(database, {}).work()
    with pytest.raises(holdfast.HoldfastError, match="does not know operations of the kind 'verify'"):
        client.wait(asked)


def test_a_job_is_watched_to_its_end(client: Client) -> None:
    job = client.create_job("shop", ["https://a.example/"])
    heard: list[Event | JobProgress] = []
    for news in client.watch(job):
        heard.append(news)
        if isinstance(news, JobProgress) and news.state == "pending":
            client.pause(job)
        elif isinstance(news, JobProgress) and news.state == "paused":
            client.cancel(job)
    last = heard[-1]
    assert isinstance(last, JobProgress)
    assert (last.state, last.name) == ("cancelled", "shop")
    events = [news for news in heard if isinstance(news, Event)]
    assert all(event.kind == "job" and event.job_id == job.id and event.id for event in events)
    with pytest.raises(holdfast.NotFound):
        next(client.watch("nothing"))


def test_a_job_that_is_deleted_is_watched_no_more(client: Client) -> None:
    job = client.create_job("shop", ["https://a.example/"])
    for news in client.watch(job):
        if isinstance(news, JobProgress):
            client.delete_job(job)


def test_everything_else_by_its_path(client: Client) -> None:
    assert client.request("GET", "/health")["status"]
    made = client.request("post", "/api/admin/users", body={"name": "ann", "role": "user"})
    assert made["name"] == "ann"
    assert client.request("DELETE", f"/api/admin/users/{made['name']}") is None
    for path in ("https://evil.example/api", "//evil.example/api", "api/stats", "/api/stats?x=1"):
        with pytest.raises(holdfast.UsageError, match="is not a path of the API"):
            client.request("GET", path)


def test_names_that_would_be_other_paths_are_refused_or_quoted(client: Client) -> None:
    for name in ("", ".", ".."):
        with pytest.raises(holdfast.UsageError, match="names nothing"):
            client.job(name)
    with pytest.raises(holdfast.NotFound):
        client.job("a/b?c#d%2f\ud800")


def test_the_key_comes_from_the_settings_and_is_not_shown(
    api: Api, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_API_KEY", key)
    with Client(api.url) as client:
        assert client.me().role == "admin"
        assert key not in repr(client)
        assert key not in repr(vars(client))
    reader = api.key(Role.USER, Scope.METRICS)
    with Client(api.url, key=reader) as client, pytest.raises(holdfast.Denied, match="lacks the scope read"):
        client.me()
    with (
        Client(api.url, key="hfk_wrong") as client,
        pytest.raises(holdfast.Unauthenticated, match="does not accept this API key"),
    ):
        client.me()


@pytest.mark.parametrize(
    ("url", "key", "sentence"),
    [
        ("127.0.0.1:8080", "", "A server's address is a URL"),
        ("ftp://a.example", "", "A server's address is a URL"),
        ("http://a.example/?x=1", "", "A server's address is a URL"),
        ("http://[bad", "", "A server's address is a URL"),
        ("http://a.example:99999", "", "A server's address is a URL"),
        ("https://", "", "A server's address is a URL"),
        ("http://user:pass@a.example", "", "must not contain a user and password"),
        ("http://a.example", "with space", "An API key is a word"),
        ("http://a.example", "line\nbreak", "An API key is a word"),
    ],
)
def test_what_cannot_be_a_server_or_a_key_is_refused(url: str, key: str, sentence: str) -> None:
    with pytest.raises(holdfast.UsageError, match=sentence):
        Client(url, key=key)


def test_a_newer_server_may_say_more_and_must_not_say_less(client: Client) -> None:
    raw = client.request("GET", "/api/jobs/default")
    job = client.job("default")
    assert read(type(job), {**raw, "mood": "good"}) == job
    del raw["pages"]
    with pytest.raises(holdfast.HoldfastError, match=r"cannot be read \(Job, pages: .*another version"):
        read(type(job), raw)
