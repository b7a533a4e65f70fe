"""docs/coming-from-scrapy.md is true: its file and its command take the items of a shop, as many as the shop has."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dynamic_site
from tests.support.cli import Cli
from tests.support.dynamic_site import Site

GUIDE = (Path(__file__).parents[3] / "docs" / "coming-from-scrapy.md").read_text()
SPIDER, PARSER = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^ *(holdfast .*)$", GUIDE, re.MULTILINE)]
PAGES, EACH = 6, 5


def listing(number: int) -> str:
    """A page of the shop's list, with a link to the next one."""
    products = "".join(
        f'<article class=product><h2>Lamp {n}</h2><span class=price>{n + 10}.00 €</span><a href="/p/{n}">see</a></article>'
        for n in range((number - 1) * EACH + 1, number * EACH + 1)
    )
    more = f'<a href="/page/{number + 1}">older</a>' if number < PAGES else ""
    return f"<meta charset=utf-8><title>Page {number}</title>{products}{more}"


def answer(path: str) -> str | int:
    if path == "/" or path.startswith("/page/"):
        return listing(int(path.rpartition("/")[2] or 1))
    return "<title>A lamp</title><p>Bright." if path.startswith("/p/") else 404


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    with dynamic_site.served(answer) as served:
        yield served


def run(cli: Cli, command: list[str], shop: Site, job: str = "") -> int:
    words = [word.replace("https://shop.example/", shop.url).replace("JOB", job) for word in command[1:]]
    extra = ["--delay", "0", "--allow-private", "--workers", "1"] if words[0] == "crawl" else []
    return cli(*words, *extra).code


def test_one_file_and_one_command_make_items(cli: Cli, shop: Site, tmp_path: Path) -> None:
    assert len(PARSER.splitlines()) <= 20
    assert "scrapy.Spider" in SPIDER
    crawl, preview, apply, export = COMMANDS[:4]
    (tmp_path / "shop.py").write_text(PARSER)
    assert run(cli, crawl, shop) == 0
    rows = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    by_name = {row["name"]: row for row in rows}
    assert len(rows) == len(by_name) == PAGES * EACH, "all of the shop's, and none twice"
    lamp = by_name["Lamp 7"]
    assert (lamp["price"], lamp["link"], lamp["_url"]) == ("17.00 €", f"{shop.url}p/7", f"{shop.url}page/2")
    assert (lamp["_parser"], lamp["_parser_version"]) == ("shop", "1")
    told = re.search(r'^\{"link".*?\}$', GUIDE, re.MULTILINE | re.DOTALL)
    assert told is not None
    assert list(json.loads(told[0])) == list(lamp), "the line that the guide shows"
    shop.log.clear()
    (tmp_path / "shop.py").write_text(PARSER.replace('"1"', '"2"').replace('"name":', '"title":'))
    for command in (preview, apply, export):
        assert run(cli, command, shop, lamp["_job"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert {row["_parser_version"] for row in rows} == {"2"}
    assert {row["title"] for row in rows} == set(by_name)
    assert shop.log == [], "parsing does not ask the site again"


def test_a_page_that_cannot_be_parsed_is_named_with_a_command_that_works(cli: Cli, shop: Site, tmp_path: Path) -> None:
    """The parser is known by its file only, so the command has to name the file."""
    (tmp_path / "shop.py").write_text(PARSER.replace('"h2"', '"h9"'))
    options = ("--max-depth", "0", "--delay", "0", "--allow-private", "--workers", "1", "--job", "lamps")
    crawled = cli("crawl", shop.url, "--parser", "./shop.py", *options)
    assert crawled.code == 0
    assert re.search(r"1 page could not be parsed; for example: .* \(shop.py, line \d+\)\. `holdfast", crawled.err)
    told = re.search(r"`holdfast (parse --again .*) --apply` parses all pages again\.", crawled.err)
    assert told is not None
    (tmp_path / "shop.py").write_text(PARSER)
    assert cli(*told[1].split(), "--apply").code == 0
    assert cli("export", "items", "-", "--job", "lamps").out.count("\n") == EACH
