"""Where a crawl ends: at a limit that a person gave, at the end of a long chain, and by itself on sites without an end."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance import nginx
from tests.acceptance.holdfast import Holdfast
from tests.acceptance.requirements import TREES
from tests.support import dynamic_site as site
from tests.support.dynamic_site import page

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

Report = Callable[[str], None]


def test_the_number_of_pages_that_a_person_gave_is_the_number_of_pages(
    holdfast: Holdfast, tmp_path: Path, report: Report
) -> None:
    root, _ = TREES["handbook"]
    with nginx.served(tmp_path / "nginx", {"_": nginx.static(root)}) as server:
        crawled = holdfast.crawl(server.url(), "--max-pages", "2000")
        requests = server.requests()
    pages = holdfast.pages()
    report(f"--max-pages 2000 on the handbook: {len(pages)} pages in {crawled.took:.1f} s\n{crawled.said.strip()}")
    assert crawled.code == 0
    assert len(pages) == len(set(pages)) == 2000
    assert "--max-pages" in last_lines(crawled.said)
    assert "2,000" in last_lines(crawled.said)
    assert nginx.longest_gap(requests) < 3.0
    holdfast.verify()


def blog(path: str) -> str | int:
    """A blog of 60 pages, each with 5 posts and a link to the next."""
    if post := re.fullmatch(r"/post/(\d+)", path):
        return page(f"Post {post[1]}", "/")
    number = 1 if path == "/" else int(re.sub(r"/page/(\d+)", r"\1", path))
    posts = [f"/post/{(number - 1) * 5 + place}" for place in range(1, 6)]
    return page(f"Page {number}", *posts, *([f"/page/{number + 1}"] if number < 60 else []))


def test_sixty_chained_pages_with_five_posts_each_are_360_pages(holdfast: Holdfast, report: Report) -> None:
    with site.served(blog) as served:
        crawled = holdfast.crawl(served.url)
    pages = holdfast.pages()
    report(f"60 chained pages with 5 posts each: {len(pages)} pages in {crawled.took:.1f} s\n{crawled.said.strip()}")
    assert crawled.code == 0
    assert len(pages) == 360
    holdfast.verify()


def barren(path: str) -> str:
    """A list whose next page is always there, and has nothing in it."""
    number = int(path.partition("?page=")[2] or 1)
    return page(f"Results, page {number}", "/", f"/list?page={number + 1}")


def fruitful(path: str) -> str:
    """A list whose next page is always there, with two articles that no other page has."""
    if path.startswith("/article/"):
        return page(path, "/")
    number = int(path.partition("?page=")[2] or 1)
    return page(f"News, page {number}", *(f"/article/{word(number)}-{each}" for each in "ab"), f"/?page={number + 1}")


def calendar(path: str) -> str:
    """A calendar that names no year: each month has days, and a next month, forever."""
    if "/day-" in path:
        return page(f"Nothing on {path}", path.rpartition("/")[0] + "/")
    month = int(path.strip("/").removeprefix("month-") or 1)
    days = [f"/month-{month}/day-{day}" for day in range(1, 29)]
    return page(f"Month {month}", *days, f"/month-{month + 1}/", f"/month-{month - 1}/")


_tickets = itertools.count()


def sessions(path: str) -> str:
    """A shop of 40 pages that puts a new session into every link."""
    names = [word(number) for number in range(40)]
    return page(path.partition(";")[0], *(f"/{name}.html;jsessionid={next(_tickets):032X}" for name in names))


def word(number: int) -> str:
    """Letters for a number."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


@pytest.mark.parametrize(
    ("endless", "most", "why"),
    [
        (barren, 20, r"too deep .*--max-depth"),
        (fruitful, 4000, r"pagination|page chain"),
        (calendar, 22_000, r"pagination|page chain|template"),
        (sessions, 41, None),
    ],
    ids=["barren", "fruitful", "calendar", "sessions"],
)
def test_a_site_without_an_end_is_crawled_to_an_end_that_is_named(
    endless: Callable[[str], str], most: int, why: str | None, holdfast: Holdfast, report: Report
) -> None:
    with site.served(endless) as served:
        crawled = holdfast.crawl(served.url)
        asked = served.asked()
        again = holdfast.crawl(served.url)
        repeated = len(served.asked()) - len(asked)
    report(
        f"{endless.__name__}: {len(holdfast.pages())} pages, {len(asked)} requests in {crawled.took:.1f} s\n"
        f"{crawled.said.strip()}\nthe same command again: {repeated} requests\n{again.said.strip()}"
    )
    assert crawled.code == 0
    assert 0 < len(asked) <= most
    assert again.code == 0
    assert repeated == 0
    if why:
        assert re.search(why, last_lines(crawled.said)), crawled.said
    else:
        assert len(holdfast.pages()) == 41
    holdfast.verify()


def last_lines(said: str) -> str:
    """All but the lines of progress."""
    lines = [line for line in said.splitlines() if not re.match(r"\d+s: |Crawling |Started |Making ", line)]
    return "\n".join(lines)
