"""Each product is known once, as its newest fetch shows it, and its history is that of the fetches, however they were parsed."""

import itertools
import random
from decimal import Decimal

import psycopg
import pytest

from holdfast.db import parse_results
from holdfast.errors import StoreError
from holdfast.model.parse_result import Availability, Product, Rating
from holdfast.model.task import TaskStatus
from tests.support.shop import PAGE, Shop, day, done, product


@pytest.fixture
def shop(connection: psycopg.Connection) -> Shop:
    return Shop(connection)


# Facts ----------------------------------------------------------------------------------------------------------------


def test_all_that_a_page_says_is_kept(shop: Shop) -> None:
    said = Product(
        name="Oak & Ash Table",
        price=Decimal("499.90"),
        currency="EUR",
        availability=Availability.LIMITED,
        sku="T-1",
        gtin="4006381333931",
        brand="Tischler",
        images=("https://shop.example/a.jpg", "https://shop.example/b.jpg"),
        rating=Rating(Decimal("4.5"), Decimal(5), 1234),
        url="https://shop.example/p/t-1",
    )
    task_id = shop.see(3, said)
    found = shop.only()
    for name in ("name", "price", "currency", "availability", "sku", "gtin", "brand", "rating", "url"):
        assert getattr(found, name) == getattr(said, name)
    assert str(found.price) == "499.90", "as it was written"
    assert tuple(found.images) == said.images
    assert (found.domain, found.page_url, found.last_task_id) == ("shop.example", PAGE, task_id)
    assert found.first_seen_at == found.last_seen_at == day(3)


def test_what_a_page_does_not_say_is_none(shop: Shop) -> None:
    shop.see(1, Product(name="x"))
    found = shop.only()
    assert (found.price, found.currency, found.availability, found.sku, found.rating, found.url) == (None,) * 6
    assert (found.images, shop.history()) == ([], [(1, 1, "None")])


def test_the_longest_texts_and_largest_numbers_are_taken(shop: Shop) -> None:
    wide = "\U0001f600"
    said = Product(
        name=wide * 1000,
        brand=wide * 500,
        url="https://a.example/" + "x" * 2030,
        price=Decimal("999999999999.999999"),
        images=tuple(f"https://a.example/{n}" for n in range(50)),
    )
    shop.see(1, said, *(product(f"{n:03} {wide * 990}", sku=None) for n in range(499)))
    assert len(shop.all(brand=wide * 500)) == 1
    assert shop.connection.execute("SELECT count(*), max(price) FROM products").fetchone() == (500, said.price)


def test_a_product_is_known_once_on_its_page_and_apart_from_other_pages(shop: Shop) -> None:
    shop.see(1, product("Lamp"), product("Sofa"))
    shop.see(2, product("Sofa, red", sku="SOF"), product("Lamp"))
    shop.see(2, product("Lamp"), url="https://shop.example/other")
    assert [(found.name, found.page_url[-5:]) for found in shop.all()] == [
        ("Lamp", "other"),
        ("Sofa, red", "ple/p"),
        ("Lamp", "ple/p"),
    ]


# The time of the fetch decides ----------------------------------------------------------------------------------------


def test_a_row_of_history_is_a_change(shop: Shop) -> None:
    for number, price in enumerate(["10", "10.00", "12", "12", "10"]):
        shop.see(number, product(price=price))
    assert shop.history() == [(0, 1, "10"), (2, 3, "12"), (4, 4, "10")]
    assert (shop.only().first_seen_at, shop.only().last_seen_at, shop.only().price) == (day(0), day(4), Decimal(10))


@pytest.mark.parametrize(
    "other",
    [{"currency": "USD"}, {"availability": Availability.SOLD_OUT}, {"availability": None}, {"price": None}],
    ids=str,
)
def test_price_currency_and_availability_are_watched(shop: Shop, other: dict[str, object]) -> None:
    shop.see(1, product())
    shop.see(2, product(**other))  # type: ignore[arg-type]
    assert [run[:2] for run in shop.history()] == [(1, 1), (2, 2)]


def test_an_older_fetch_that_is_parsed_later_overwrites_nothing(shop: Shop) -> None:
    late = shop.miss(1)
    newest = shop.see(5, product("New name", "12", sku="LAM", brand="New"))
    shop.again(late, product("Old name", "10", sku="LAM", brand="Old"))
    found = shop.only()
    assert (found.name, found.brand, found.price, found.last_task_id) == ("New name", "New", Decimal(12), newest)
    assert (found.first_seen_at, found.last_seen_at) == (day(1), day(5))
    assert shop.history() == [(1, 1, "10"), (5, 5, "12")]


def test_the_same_fetch_parsed_again_changes_nothing(shop: Shop) -> None:
    task_id = shop.see(1, product(), product("Sofa"))
    before = shop.everything()
    shop.again(task_id, product("Sofa"), product(), version="2")
    assert shop.everything() == before
    result = parse_results.get(shop.connection, task_id)
    assert result
    assert (result.parser_version, result.fetched_at, len(result.products)) == ("2", day(1), 2)


def test_the_same_fetch_parsed_again_corrects_what_it_said(shop: Shop) -> None:
    first = shop.see(1, product("Lmap", "10", sku="L"))
    shop.see(2, product("Lamp", "10", sku="L"))
    shop.again(first, product("Lamp", "9", sku="L"))
    assert shop.history() == [(1, 1, "9"), (2, 2, "10")]
    second = shop.only().last_task_id
    assert second is not None
    shop.again(second, product("Lamp, oak", "9", sku="L"))
    assert (shop.history(), shop.only().name) == ([(1, 2, "9")], "Lamp, oak")


def test_a_product_that_a_better_parser_does_not_find_is_gone(shop: Shop) -> None:
    task_id = shop.see(1, product("Lamp"), product("Cookie banner"))
    shop.again(task_id, product("Lamp"))
    assert shop.only().name == "Lamp"


def test_a_product_that_is_known_by_a_better_name_is_not_known_twice(shop: Shop) -> None:
    tasks = [shop.see(number, product("Lamp", price, sku=None)) for number, price in enumerate(["10", "10", "12"])]
    for task_id, price in zip(tasks, ["10", "10", "12"], strict=True):
        shop.again(task_id, product("Lamp", price, sku="L-1"))
    assert (shop.only().sku, shop.history()) == ("L-1", [(0, 1, "10"), (2, 2, "12")])


def test_what_the_newest_fetch_did_not_have_after_all_goes_back_to_the_one_before(shop: Shop) -> None:
    shop.see(1, product(price="10"))
    second = shop.see(2, product(price="10"))
    third = shop.see(3, product(price="12"))
    shop.again(third)
    found = shop.only()
    assert (found.price, found.last_seen_at, found.last_task_id) == (Decimal(10), day(2), second)
    shop.again(second)
    assert shop.history() == [(1, 1, "10")]


def test_a_task_that_is_crawled_again_adds_to_the_history(shop: Shop) -> None:
    task_id = shop.see(1, product(price="10"))
    shop.tasks.by_hand(task_id, TaskStatus.PENDING)
    assert task_id in shop.tasks.due()
    shop.connection.execute("DELETE FROM task_events WHERE task_id = %s", (task_id,))  # the first fetch is long ago
    shop.tasks.fetched(task_id)
    shop.on(4, task_id)
    shop.parse(task_id, product("Sofa"))
    lamp, sofa = sorted(shop.all(), key=lambda found: found.name)
    assert (lamp.last_seen_at, sofa.first_seen_at) == (day(1), day(4)), "what another fetch showed stays"


def test_any_order_of_parses_ends_alike(shop: Shop) -> None:
    """Judged against the plain list of what each fetch said last."""
    chance = random.Random(7)
    tasks = {number: shop.miss(number) for number in range(6)}
    said: dict[int, Product | None] = {}
    for _ in range(60):
        number = chance.randrange(6)
        said[number] = chance.choice([product(price="10"), product(price="12"), None])
        shop.again(tasks[number], *filter(None, [said[number]]))
        shown = sorted((number, str(one.price)) for number, one in said.items() if one)
        runs = [(price, [n for n, _ in those]) for price, those in itertools.groupby(shown, key=lambda look: look[1])]
        if not runs:
            assert shop.everything() == []
            continue
        found = shop.only()
        assert shop.history() == [(days[0], days[-1], price) for price, days in runs]
        ends = (found.first_seen_at, found.last_seen_at, str(found.price), found.last_task_id)
        assert ends == (day(runs[0][1][0]), day(runs[-1][1][-1]), runs[-1][0], tasks[runs[-1][1][-1]])


# Fences ---------------------------------------------------------------------------------------------------------------


def test_a_result_under_an_old_attempt_is_refused_whole(shop: Shop) -> None:
    task_id = shop.fetch(1)
    slow = shop.take(task_id)
    shop.tasks.value("UPDATE crawl_tasks SET status = 'queued_parse' WHERE id = %s RETURNING id", task_id)
    quick = shop.take(task_id)
    assert quick.task.attempt == slow.task.attempt + 1
    assert not parse_results.finish(shop.connection, slow, done(product("Slow")))
    assert (shop.all(), parse_results.get(shop.connection, task_id)) == ([], None)
    assert parse_results.finish(shop.connection, quick, done(product("Quick")))
    assert not parse_results.finish(shop.connection, slow, done(product("Slow")))
    assert shop.only().name == "Quick"


def test_parsing_again_is_fenced_likewise(shop: Shop) -> None:
    task_id = shop.see(1, product("Old"))
    (stale,) = parse_results.completed(shop.connection, after=0, limit=9)
    shop.again(task_id, product("New", sku="OLD"))
    assert not parse_results.replace(shop.connection, stale, done(product("Stale", sku="OLD")))
    assert shop.only().name == "New"
    (fresh,) = parse_results.completed(shop.connection, after=0, limit=9)
    assert parse_results.replace(shop.connection, fresh, done(product("Fresh", sku="OLD"), version="9"))
    assert (shop.only().name, shop.tasks.get(task_id).parser_version) == ("Fresh", "9")
    assert parse_results.completed(shop.connection, after=task_id, limit=9) == []


def test_what_the_database_cannot_take_leaves_all_as_it_was(shop: Shop) -> None:
    task_id = shop.fetch(1)
    taken = shop.take(task_id)
    bad = Product(name="x", price=Decimal(-1))  # as no check would let it through
    with pytest.raises(StoreError, match=r"The database cannot take what the parser found: .*products_price_check"):
        parse_results.finish(shop.connection, taken, done(product("Good"), bad))
    assert (shop.tasks.status(task_id), shop.all()) == (TaskStatus.PARSING, [])
    assert parse_results.finish(shop.connection, taken, done(product("Good")))


def test_the_results_of_a_task_go_with_it_and_its_products_stay(shop: Shop) -> None:
    task_id = shop.see(1, product())
    shop.connection.execute("DELETE FROM crawl_tasks WHERE id = %s", (task_id,))
    assert parse_results.get(shop.connection, task_id) is None
    assert (shop.only().last_task_id, shop.history()) == (task_id, [(1, 1, "10")])


def test_the_fetch_is_when_the_page_came_not_when_somebody_asked_for_another_parse(shop: Shop) -> None:
    task_id = shop.see(1, product())
    shop.again(task_id, product())
    (again,) = parse_results.completed(shop.connection, after=0, limit=9)
    assert (again.task.id, again.fetched_at, again.parser) == (task_id, day(1), "generic")
