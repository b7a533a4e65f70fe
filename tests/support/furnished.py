"""A store with something of everything, so that every route of the API has something to say."""

from holdfast.control.domains import DomainDesk, parse_assignments
from holdfast.model.domain import Status
from holdfast.store import operations
from holdfast.store.connect import Database
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.pools import Pools
from tests.support.shop import Shop, product


def furnish(database: Database) -> None:
    """Pages, URLs in every state, jobs, runs, tasks, products, proxies, webhooks, alerts, operations."""
    with database.session() as connection:
        store = Store(connection)
        crawl_a_little(database, store)
        store.new_job("shop")
        store.seed("a.example/", "blocked.example/")
        store.become("blocked.example", Status.BLOCKED)
        shop = Shop(connection)
        for number, price in enumerate(("10", "12", "11")):
            shop.see(number, product(price=price))
        shop.tasks.failed("a.example/failed")
        shop.tasks.one("a.example/later", webhook_url="https://hooks.example/told")
        pools = Pools(store)
        ids = pools.add(3, provider="acme", country_code="DE")
        pools.assign("example.com", *ids)
        pools.fails(ids[1], 6)
        connection.execute("INSERT INTO crawl_batches (name, created_by) VALUES ('spring', 'test')")
        connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'host', 1)")
        asked = operations.ask(connection, "verify", {"archive": True}, actor="test")
        taken = operations.take(connection)
        assert taken is not None
        assert taken.id == asked.id
        operations.end(connection, taken, result={"ok": True}, problem=None)
    DomainDesk(database).configure(
        "example.com", parse_assignments(["window=22:00-06:00", "frequency=1d"]), actor="test"
    )
