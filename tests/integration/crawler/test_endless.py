"""Sites without end, and one that only looks like it: each crawl ends by itself, and the store says why."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.db import crawls as store_crawls
from holdfast.model.job import Scope
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages, html


class Made(dict[str, Page]):
    """The pages of a site, each made from its path and query when it is asked for."""

    def __init__(self, make: Callable[[str], Page | None]) -> None:
        super().__init__()
        self._make = make

    def get(self, path: str, default: Any = None) -> Any:
        return self._make(path) if path.startswith("/") and path != "/robots.txt" else default


def site_of(make: Callable[[str], Page | None]) -> Pages:
    site = Pages()
    site.answers = Made(make)
    return site


def reasons(crawls: Crawls) -> dict[str, int]:
    return dict(
        crawls.rows("SELECT split_part(reason, ':', 1), count(*) FROM url_frontier WHERE state = 'denied' GROUP BY 1")
    )


def test_thirty_pages_of_a_list_with_three_posts_each_are_all_crawled(crawls: Crawls) -> None:
    """Twenty of them are farther from the seed than the depth of 10 that links may have."""

    def make(path: str) -> Page | None:
        if path.startswith("/post/"):
            return html("/")
        number = 1 if path == "/" else int(path.removeprefix("/page/"))
        posts = [f"/post/{chr(96 + n)}{number}" for n in range(1, 4)]
        return html(*posts, *([f"/page/{number + 1}"] if number < 30 else []))

    with site_of(make) as site:
        ended = crawls.crawl(site.url(), concurrency=8)
        assert ended.completed
        assert ended.progress.pages == 120
        assert len(set(site.paths())) == 120
    assert crawls.value("SELECT max(depth) FROM url_frontier") == 2
    assert crawls.value("SELECT max(steps) FROM url_frontier") == 28
    crawls.verify()


def test_a_list_without_end_ends_where_it_leads_to_nothing_new(crawls: Crawls) -> None:
    with site_of(lambda path: html("/", "/about", f"/list?page={int(path.partition('=')[2] or 0) + 1}")) as site:
        assert crawls.crawl(site.url("/list?page=1")).completed
        pages = [path for path in site.paths() if "page=" in path]
    assert len(pages) < 16
    assert reasons(crawls) == {"too_deep": 1}
    crawls.verify()


def test_chapters_that_lead_only_to_the_next_one_are_crawled_as_deep_as_other_links(crawls: Crawls) -> None:
    """A chain that leads to nothing else may be a book as well as a list without end."""

    def make(path: str) -> Page | None:
        chapter = int(path.removeprefix("/chapter-") or 0) if path != "/" else 0
        return html("/", *([f"/chapter-{chapter + 1}"] if chapter < 20 else []))

    with site_of(make) as site:
        assert crawls.crawl(site.url()).completed
        assert len(set(site.paths())) == 13
        assert reasons(crawls) == {"too_deep": 1}
        assert crawls.crawl(site.url(), max_depth=20).completed
        assert len(set(site.paths())) == 21
    assert reasons(crawls) == {}
    crawls.verify()


def test_a_list_without_end_whose_pages_all_have_something_new_ends_by_its_steps_and_templates(crawls: Crawls) -> None:
    crawls.set(crawl={"max_pagination": 12, "template_cap": 50})

    def make(path: str) -> Page | None:
        if path.startswith("/item"):
            return html("/list?page=1")
        number = int(path.partition("=")[2])
        return html(f"/list?page={number + 1}", *(f"/item?id={number * 10 + n}" for n in range(4)))

    with site_of(make) as site:
        assert crawls.crawl(site.url("/list?page=1")).completed
        asked = Counter(path.partition("?")[0] for path in site.paths())
    assert asked["/list"] == 13
    assert asked["/item"] == 50
    assert reasons(crawls).keys() == {"pagination", "trap"}
    crawls.verify()


def test_a_calendar_without_years_ends_in_both_directions(crawls: Crawls) -> None:
    def make(path: str) -> Page | None:
        month = int(path.partition("=")[2] or 0)
        return html("/", f"/cal?m={month - 1}", f"/cal?m={month + 1}")

    with site_of(make) as site:
        assert crawls.crawl(site.url("/cal?m=5")).completed
        assert len(set(site.paths())) < 60
    assert reasons(crawls).keys() == {"too_deep"}
    crawls.verify()


def test_a_session_in_every_link_is_one_page_each(crawls: Crawls) -> None:
    count = iter(range(10**6))

    def make(path: str) -> Page | None:
        return html(*(f"/{name};jsessionid={next(count)}?PHPSESSID={next(count)}" for name in "abc"))

    with site_of(make) as site:
        assert crawls.crawl(site.url("/a")).completed
        assert sorted(site.paths()) == ["/a", "/b", "/c"]
    crawls.verify()


def test_what_a_worker_finds_too_deep_while_the_depth_is_raised_is_gone_on_with(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_spec = store_crawls.set_spec

    def set_late(*given: Any) -> None:
        """A worker for all jobs crawls what waits again, by the depth of before, until then."""
        monkeypatch.setattr(store_crawls, "set_spec", set_spec)
        with crawls.worker(None):
            wait_for(lambda: "/b" in site.paths() and not crawls.value("SELECT sum(waiting) FROM job_domains"))
        set_spec(*given)

    with Pages({"/": html("/a"), "/a": html("/b"), "/b": html("/c"), "/c": html()}) as site:
        assert crawls.crawl(site.url(), max_depth=1).completed
        crawls.connection.execute("UPDATE crawl_jobs SET state = 'pending' WHERE kind = 'crawl'")
        monkeypatch.setattr(store_crawls, "set_spec", set_late)
        assert crawls.crawl(site.url(), max_depth=9).completed
        assert site.paths() == ["/", "/a", "/b", "/c"]
    assert reasons(crawls) == {}
    crawls.verify()


def test_what_was_too_deep_is_gone_on_with_also_on_other_domains(crawls: Crawls) -> None:
    """A link to another domain that was too deep is a row of the domain where it was met; it is crawled with its own."""
    with Pages() as site:
        site.answers |= {
            "/": html("/a"),
            "/a": html("/b", site.url("/x", "other.localhost")),
            "/b": html("/c"),
            "/c": html(),
            "/x": html("/y"),
            "/y": html(),
        }
        options: dict[str, Any] = {"job": "deep", "scope": Scope.ANY}
        assert crawls.crawl(site.url(), max_depth=1, **options).completed
        assert site.paths() == ["/", "/a"]
        assert reasons(crawls) == {"too_deep": 2}
        assert crawls.value("SELECT count(*) FROM domains") == 1
        assert crawls.crawl(site.url(), max_depth=2, **options).completed
        assert site.paths() == ["/", "/a", "/b"]
        assert site.paths("other.localhost") == ["/x"]
        crawls.verify()
        assert reasons(crawls) == {"too_deep": 2, "other_domain": 1}
        assert crawls.crawl(site.url(), max_depth=9, **options).completed
        assert site.paths() == ["/", "/a", "/b", "/c"]
        assert site.paths("other.localhost") == ["/x", "/y"]
    assert reasons(crawls) == {"other_domain": 1}
    crawls.verify()


def test_urls_of_one_pattern_are_counted_over_all_visits_of_a_job(crawls: Crawls) -> None:
    """Each crawl is a visit of its own, and a known URL is never cut."""
    crawls.set(crawl={"template_cap": 10})
    with Pages({f"/item/{n}": html("/") for n in range(40)}) as site:
        for first, last in ((0, 6), (6, 9), (9, 15), (20, 40)):
            site.answers["/"] = html(*(f"/item/{n}" for n in range(first, last)))
            assert crawls.crawl(site.url(), job="shop", again=True).completed
        assert len(set(site.paths())) == 1 + 15, "one batch went beyond the cap, and nothing after it"
    assert reasons(crawls) == {"trap": 20}
    crawls.verify()
    assert crawls.command("jobs", "delete", "shop", "--yes") == 0
    assert crawls.value("SELECT count(*) FROM url_templates") == 0
