"""`holdfast products` and `holdfast parse`: what was found, what it cost, and what would be found now."""

import json
import os
import signal
import subprocess
import time
from decimal import Decimal

import psycopg
import pytest

from holdfast.db import parse_results
from holdfast.model.parse_result import Availability, Rating
from tests.support.archived import Archived, shop_page, write_parser
from tests.support.cli import Cli, command
from tests.support.shop import Shop, day, done, product

DIFFERS = "1 page parsed again: 0 say the same, 1 differ, 0 had no result before."
NASTY = "Lamp \x1b[2J\u202e =1+1"


@pytest.fixture
def shop(connection: psycopg.Connection) -> Shop:
    return Shop(connection)


@pytest.fixture
def at(connection: psycopg.Connection, cli: Cli) -> Archived:
    """Pages in the archive of the data folder that commands use, and a folder of parsers."""
    (cli.folder / "holdfast.toml").write_text('[parsing]\nfolder = "parsers"\n')
    write_parser(cli.folder / "parsers", "mine", "return Extracted({'now': len(document.body)})", "2")
    return Archived(connection, cli.folder / ".holdfast" / "archive")


def old(at: Archived, body: bytes, url: str = "https://shop.example/p") -> int:
    """A task whose page was parsed by an older version."""
    task_id = at.fetch(body, url, parser_name="mine")
    taken = parse_results.take(at.connection, task_id)
    assert taken
    assert parse_results.finish(at.connection, taken, done(version="1", now=0, title=NASTY))
    return task_id


# Products -------------------------------------------------------------------------------------------------------------


def test_a_list_of_products(cli: Cli, shop: Shop) -> None:
    shop.see(1, product("Lamp", "10.50", brand="Licht"), product("Sofa", None, availability=None, currency=None))
    answer = cli("products", "list")
    assert (answer.code, answer.err) == (0, "")
    assert [line.rstrip() for line in answer.out.splitlines()] == [
        "ID  PRODUCT  BRAND      PRICE  AVAILABLE  DOMAIN        SEEN",
        "────────────────────────────────────────────────────────────────────────",
        " 2  Sofa     -              -  -          shop.example  2026-01-02 00:00",
        " 1  Lamp     Licht  10.50 EUR  in stock   shop.example  2026-01-02 00:00",
    ]


def test_the_filters_of_a_list(cli: Cli, shop: Shop) -> None:
    shop.see(1, product("Red oak table", "499.90", brand="Tischler"), product("Lamp", "20", availability=None))
    shop.see(1, product("Desk", "35", currency="USD"), url="https://other.example/")

    def names(*options: str) -> list[str]:
        return [row["name"] for row in cli("products", "list", *options, "--json").json["products"]]

    assert names() == ["Desk", "Lamp", "Red oak table"]
    assert names("--search", "OAK -lamp") == ["Red oak table"]
    assert names("--brand", "tischler") == ["Red oak table"]
    assert names("--min-price", "20", "--max-price", "35") == ["Desk", "Lamp"]
    assert names("--currency", "usd") == ["Desk"]
    assert names("--domain", "https://shop.example") == ["Lamp", "Red oak table"]
    assert names("--available") == ["Desk", "Red oak table"]
    assert names("--not-available") == ["Lamp"]
    assert cli("products", "list", "--brand", "x").err == "No product fits these options.\n"


def test_a_list_page_by_page(cli: Cli, shop: Shop) -> None:
    shop.see(1, *(product(f"{n} thing") for n in range(3)))
    first = cli("products", "list", "--limit", "2", "--json").json
    assert [row["name"] for row in first["products"]] == ["2 thing", "1 thing"]
    assert cli("products", "list", "--limit", "2").err == f"More rows: --before {first['before']}.\n"
    rest = cli("products", "list", "--limit", "2", "--before", str(first["before"]), "--json").json
    assert ([row["name"] for row in rest["products"]], rest["before"]) == (["0 thing"], None)


def test_one_product(cli: Cli, shop: Shop) -> None:
    said = product(
        "Lamp",
        "10.50",
        brand="Licht",
        gtin="4006381333931",
        availability=Availability.PRE_ORDER,
        rating=Rating(Decimal("4.5"), Decimal(5), 12),
        images=("https://shop.example/a.jpg",),
        url="https://shop.example/lamp",
    )
    shop.see(1, said)
    task_id = shop.see(3, said)
    product_id = str(shop.only().id)
    assert cli("products", "show", product_id).out.splitlines() == [
        f"Product         Lamp ({product_id})",
        "Brand           Licht",
        "Price           10.50 EUR",
        "Available       pre order",
        "Number          LAM",
        "GTIN            4006381333931",
        "Rating          4.5 of 5, by 12 customers",
        "Address         https://shop.example/lamp",
        "On page         https://shop.example/p",
        "Domain          shop.example",
        "Seen            from 2026-01-02 00:00 to 2026-01-04 00:00",
        f"Last task       {task_id}",
        "Image           https://shop.example/a.jpg",
    ]
    told = cli("products", "show", product_id, "--json").json
    assert (told["price"], told["rating"]["count"], told["images"]) == ("10.50", 12, ["https://shop.example/a.jpg"])
    assert (told["availability"], told["last_seen_at"]) == ("pre_order", "2026-01-04T00:00:00Z")


def test_a_list_without_products_says_where_they_come_from(cli: Cli) -> None:
    assert cli("products", "list").err == "No products yet; a crawl with `--parser product`, or a task, finds them.\n"


def test_what_a_product_cost(cli: Cli, shop: Shop) -> None:
    for number, price in enumerate(["10", "10", "12.5", "9"]):
        shop.see(number, product(price=price))
    product_id = str(shop.only().id)
    lines = cli("products", "history", product_id).out.splitlines()
    assert [line.split()[:7] for line in lines[2:]] == [
        ["2026-01-04", "00:00", "2026-01-04", "00:00", "9", "EUR", "in"],
        ["2026-01-03", "00:00", "2026-01-03", "00:00", "12.5", "EUR", "in"],
        ["2026-01-01", "00:00", "2026-01-02", "00:00", "10", "EUR", "in"],
    ]
    first = cli("products", "history", product_id, "--limit", "2")
    assert first.err == "More rows: --before 2026-01-03T00:00:00Z.\n"
    rest = cli("products", "history", product_id, "--before", "2026-01-03T00:00:00Z", "--json").json
    assert [(row["price"], row["since"], row["until"]) for row in rest] == [
        ("10", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    ]


def test_what_shops_write_cannot_steer_a_terminal(cli: Cli, shop: Shop) -> None:
    shop.see(1, product(NASTY, brand="\x9b31m", sku="\x07"))
    product_id = str(shop.only().id)
    for words in (["list"], ["show", product_id], ["history", product_id]):
        out = cli("products", *words).out
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(out)
    assert "Lamp \\x1b[2J\\u202e =1+1" in cli("products", "list").out


def test_what_is_refused(cli: Cli) -> None:
    for words, code, sentence in [
        (["show", "7"], 4, "There is no product 7."),
        (["history", "7"], 4, "There is no product 7."),
        (
            ["list", "--domain", "nowhere.example"],
            4,
            "There is no domain 'nowhere.example'; `holdfast seeds add nowhere.example` makes it known.",
        ),
        (["list", "--min-price", "cheap"], 2, "--min-price must be a number such as 9.90."),
        (["list", "--min-price", "nan"], 2, "A price is a number that is not negative."),
        (["list", "--max-price=-1"], 2, "A price is a number that is not negative."),
        (["list", "--min-price", "9", "--max-price", "8"], 2, "No price is from 9 to 8."),
        (["list", "--currency", "EURO"], 2, "'EURO' is no currency; one is written as ISO 4217 does: EUR, USD."),
        (["list", "--search", " "], 2, "A search is a text of 1 to 500 characters."),
        (["list", "--brand", "x" * 501], 2, "A search is a text of 1 to 500 characters."),
        (
            ["history", "7", "--before", "soon"],
            2,
            "--before must be a time such as 2031-12-24 or 2031-12-24T18:00+01:00.",
        ),
    ]:
        assert cli("products", *words).refused(code) == sentence


# Parsing again --------------------------------------------------------------------------------------------------------


def test_what_would_differ_is_shown_and_nothing_changes(cli: Cli, at: Archived) -> None:
    task_id = old(at, b"12345")
    answer = cli("parse", "--again")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "FIELD  ADDED  REMOVED  CHANGED",
        "──────────────────────────────",
        "now        0        0        1",
        "title      0        1        0",
        "",
        f"Task {task_id}: https://shop.example/p",
        "  changed now: 0 → 5",
        '  removed title: "Lamp \\u001b[2J\\u202e =1+1"',
        "",
        f"{DIFFERS} Nothing was changed; --apply keeps what is found now.",
    ]
    assert at.shop.tasks.get(task_id).parser_version == "1"


def test_apply_keeps_what_is_found_now(cli: Cli, at: Archived) -> None:
    task_id = old(at, b"12345")
    told = cli("parse", "--again", "--below", "2", "--apply", "--json").json
    assert {name: told[name] for name in ("applied", "parsed", "different", "failed", "last_task")} == {
        "applied": True,
        "parsed": 1,
        "different": 1,
        "failed": 0,
        "last_task": task_id,
    }
    assert told["fields"]["now"] == {"added": 0, "removed": 0, "changed": 1}
    assert told["examples"][0]["changes"][0] == {
        "field": "now",
        "kind": "changed",
        "old": "0",
        "new": "5",
        "product": None,
    }
    found = parse_results.get(at.connection, task_id)
    assert found
    assert (found.parser_version, found.data) == ("2", {"now": 5})
    assert cli("parse", "--again", "--below", "2").out == (
        "0 pages parsed again: 0 say the same, 0 differ, 0 had no result before.\n"
    )


def test_pages_that_fail_are_told_and_end_with_1(cli: Cli, at: Archived) -> None:
    task_id = old(at, b"12345")
    write_parser(cli.folder / "parsers", "mine", r"raise ValueError('\x1b[2J')", "3")
    answer = cli("parse", "--again", "--apply")
    assert answer.code == 1
    assert (
        f"Task {task_id}: https://shop.example/p\n  The parser 'mine' gave nothing (raised): ValueError: " in answer.out
    )
    assert "1 page could not be parsed; what was found in them before stays." in answer.out
    assert "\x1b" not in answer.out
    assert at.shop.tasks.get(task_id).parser_version == "1"


def test_which_pages(cli: Cli, at: Archived) -> None:
    for number in range(1, 4):
        at.shop.on(number, old(at, b"1", f"https://s{number}.example/"))

    def parsed(*options: str) -> int:
        return int(cli("parse", "--again", *options, "--json").json["parsed"])

    assert parsed("--since", day(2).isoformat()) == 2
    assert parsed("--until", "2026-01-03") == 1
    assert parsed("--since", "1h") == 0
    assert parsed("--domain", "s2.example") == 1
    assert parsed("--parser", "product", "--limit", "2") == 2
    assert parsed("--parser", "mine") == 0


def test_ctrl_c_says_where_to_go_on(cli: Cli, at: Archived) -> None:
    tasks = [old(at, b"1" * number, f"https://s{number}.example/") for number in range(1, 6)]
    begun = cli.folder / "begun"
    write_parser(
        cli.folder / "parsers",
        "mine",
        f"""if len(document.body) == 5:
        open({str(begun)!r}, 'w').close(); time.sleep(60)
    return Extracted()""",
        "3",
    )
    with subprocess.Popen(command("parse", "--again", "--apply"), stderr=subprocess.PIPE, text=True) as program:
        while not begun.exists():
            assert program.poll() is None
            time.sleep(0.01)
        os.kill(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=60)
    assert program.returncode == 130
    assert said.splitlines()[0] == f"All tasks up to {tasks[3]} are done; --after {tasks[3]} continues."
    assert "Interrupted; what was done so far is in the store." in said
    assert [at.shop.tasks.get(one).parser_version for one in tasks] == ["3"] * 4 + ["1"]


def test_the_parsers_that_there_are(cli: Cli, at: Archived) -> None:
    write_parser(cli.folder / "parsers", "broken", "return 1", "")
    write_parser(cli.folder / "parsers", "generic", "return Extracted()")
    answer = cli("parse", "--parsers")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert [line.split()[:3] for line in lines[2:7]] == [
        ["generic", "3", "built"],
        ["main-text", "2", "built"],
        ["markdown", "2", "built"],
        ["mine", "2", "file"],
        ["product", "2", "built"],
    ]
    assert any(line.startswith("broken cannot be used: ") and "it has no version" in line for line in lines)
    assert "generic cannot be used: the file generic.py is hidden by the built-in parser of that name." in lines
    told = cli("parse", "--parsers", "--json").json
    assert [row["name"] for row in told if row["problem"] is None] == [
        "generic",
        "main-text",
        "markdown",
        "mine",
        "product",
    ]


def test_parsers_need_no_database(bare_cli: Cli) -> None:
    assert [row["name"] for row in bare_cli("parse", "--parsers", "--json").json] == [
        "generic",
        "main-text",
        "markdown",
        "product",
    ]


def test_a_product_page_from_the_archive_to_the_list(cli: Cli, at: Archived) -> None:
    task_id = at.fetch(shop_page("Lamp", "10.50"), parser_name="product")
    taken = parse_results.take(at.connection, task_id)
    assert taken
    assert parse_results.finish(at.connection, taken, done())
    assert cli("products", "list", "--json").json["products"] == []
    assert cli("parse", "--again", "--apply").code == 0
    (found,) = json.loads(cli("products", "list", "--json").out)["products"]
    assert (found["name"], found["price"], found["first_seen_at"]) == ("Lamp", "10.50", "2026-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--apply"], "Without --again, what is due is parsed; only --job and --domain choose."),
        (["--again", "--parsers"], "Say what to do: --again parses pages again, --parsers lists the parsers."),
        (["--parsers", "--apply"], "--parsers lists all parsers; what else was said is for --again."),
        (["--again", "--since", "soon"], "--since must be a time such as 2031-12-24, or how long ago: 6h, 1d."),
        (["--again", "--since", "1d", "--until", "2d"], "Nothing was fetched since a time and before an earlier one."),
    ],
)
def test_what_cannot_be_meant(bare_cli: Cli, words: list[str], sentence: str) -> None:
    assert bare_cli("parse", *words).refused(2) == sentence
