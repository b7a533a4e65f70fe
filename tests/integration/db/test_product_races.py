"""Two parses of one page at once, with real connections: the second waits, and both are in the history."""

import random
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.db import parse_results
from holdfast.db.connection import Database
from holdfast.model.parse_result import ParseDone
from tests.support.shop import Shop, done, product


@pytest.fixture
def shop(connection: psycopg.Connection) -> Shop:
    return Shop(connection)


def test_the_second_waits_for_the_first_and_both_count(shop: Shop, database: Database) -> None:
    first = shop.miss(1)
    second = shop.see(2)
    shop.tasks.value("UPDATE crawl_tasks SET status = 'downloaded' WHERE id = %s RETURNING id", first)
    shop.tasks.value("UPDATE crawl_tasks SET status = 'queued_parse' WHERE id = %s RETURNING id", first)
    late = shop.take(first)
    (newest,) = parse_results.completed(shop.connection, after=first, limit=1)
    assert newest.task.id == second
    with database.connect() as other, ThreadPoolExecutor(1) as thread:
        with shop.connection.transaction():
            assert parse_results.finish(shop.connection, late, done(product(price="10")))
            replacing = thread.submit(parse_results.replace, other, newest, done(product(price="10")))
            with database.connect() as watch:
                query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
                while not replacing.done():
                    waits = watch.execute(query, (other.info.backend_pid,)).fetchone()
                    if waits == ("advisory",):
                        break
                else:
                    raise AssertionError("it did not wait")
        assert replacing.result()
    assert shop.history() == [(1, 2, "10")]
    assert shop.only().last_task_id == second


def test_many_at_once_end_as_one_after_the_other(shop: Shop, database: Database) -> None:
    """Two parsers that go through the same tasks in other orders, each with products of its own; the last word of each task counts."""
    tasks = [shop.see(number, product("Lamp"), product("Sofa")) for number in range(5)]
    chosen = {one.task.id: one for one in parse_results.completed(shop.connection, after=0, limit=9)}
    said: dict[int, ParseDone] = {}

    def go(seed: int) -> int:
        chance = random.Random(seed)
        with database.connect() as connection:
            for number in range(40):
                task_id = chance.choice(tasks)
                found = [product(name, str(chance.randrange(3))) for name in chance.sample(["Lamp", "Sofa", "Desk"], 2)]
                with connection.transaction():
                    connection.execute("SELECT FROM crawl_tasks WHERE id = %s FOR NO KEY UPDATE", (task_id,))
                    said[task_id] = done(*found, version=f"{seed}.{number}")  # under the row lock, so in its order
                    assert parse_results.replace(connection, chosen[task_id], said[task_id])
        return seed

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(go, range(4))) == [0, 1, 2, 3]
    for name in ("Lamp", "Sofa", "Desk"):
        looks = [
            (number, str(one.price))
            for number, task_id in enumerate(tasks)
            for one in said.get(task_id, done(product("Lamp"), product("Sofa"))).extracted.products
            if one.name == name
        ]
        runs: list[tuple[int, int, str]] = []
        for number, price in looks:
            if runs and runs[-1][2] == price:
                runs[-1] = (runs[-1][0], number, price)
            else:
                runs.append((number, number, price))
        known = [found for found in shop.all() if found.name == name]
        assert [shop.history(found.id) for found in known] == ([runs] if runs else [])
