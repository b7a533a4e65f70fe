"""Addresses that are not of the public internet are not visited, however they are written: a server on loopback hears nothing."""

from collections.abc import Iterator

import pytest

from holdfast.fetch import address_filter
from holdfast.model.job import Scope
from holdfast.model.url import normalize
from tests.support.crawls import Crawls
from tests.support.names import serving
from tests.support.nameserver import Answer, Records
from tests.support.pages import Pages, html, moved

FORMS = [
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://localhost:{port}/",
    "http://a.b.localhost:{port}/",
    "http://inside.example:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1:{port}/",
    "http://[fd00:ec2::254]/",
]


@pytest.fixture(autouse=True)
def _strict(crawls: Crawls) -> None:
    crawls.set(fetch={"allow_private": False, "timeout": 4})


def test_seeds_of_every_form_are_refused(crawls: Crawls) -> None:
    with (
        Pages({"/": html()}) as canary,
        Pages({"/": html()}, address="::1", port=canary.port) as canary6,
        serving({"inside.example": Answer(("127.0.0.1",))}) as names,
    ):
        crawls.set(fetch={"dns_servers": [names.address]})
        ended = crawls.crawl(*(form.format(port=canary.port) for form in FORMS))
        assert (canary.connections, canary6.connections) == (0, 0)
    assert ended.completed
    assert ended.progress.pages == 0
    known = crawls.frontier()
    assert known
    for url, (state, reason) in known.items():
        assert state == "failed", url
        assert (reason or "").startswith("address_refused: "), url
    assert crawls.value("SELECT count(*) FROM domain_robots") == 0
    crawls.verify()


@pytest.fixture
def _one_address_is_public(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For this test 127.0.0.2 is of the public internet, since a site must be somewhere."""
    judge = address_filter._refusal_v4
    monkeypatch.setattr(address_filter, "_refusal_v4", lambda number: None if number == 0x7F000002 else judge(number))
    address_filter.refusal_reason.cache_clear()
    yield
    address_filter.refusal_reason.cache_clear()


@pytest.mark.usefixtures("_one_address_is_public")
def test_links_and_redirects_to_such_addresses_are_refused(crawls: Crawls) -> None:
    """Also of a name that resolves to the site when it is first asked for, and to us afterwards."""
    site_only, us = Answer(("127.0.0.2",), ttl=0), Answer(("127.0.0.1",), ttl=0)
    records: Records = {
        "site.example": Answer(("127.0.0.2",)),
        "inside.example": us,
        "turns.example": lambda times: site_only if times < 2 else us,
    }
    with Pages(address="127.0.0.2") as site, serving(records) as names:
        with Pages({"/": html()}, port=site.port) as canary:
            forms = [form.format(port=site.port) for form in FORMS]
            turning = f"http://turns.example:{site.port}/"
            moves = {f"/moved/{i}": moved(form) for i, form in enumerate([*forms, turning])}
            site.answers = {"site.example/": html(*forms, *moves, turning), **moves, "turns.example/": html()}
            crawls.set(fetch={"dns_servers": [names.address], "timeout": 2}, politeness={"retries": 0})
            ended = crawls.crawl(site.url("/", "site.example"), scope=Scope.ANY, delay=0)
            assert canary.connections == 0
        assert set(site.paths("site.example")) == {"/", *moves}
    assert ended.completed
    refused = {url for url, (_, reason) in crawls.frontier().items() if (reason or "").startswith("address_refused: ")}
    assert refused - {turning} == {normalize(form) for form in forms}
    done = {url for url, (state, _) in crawls.frontier().items() if state == "done"}
    assert {url.split("/")[2].partition(":")[0] for url in done} <= {"site.example", "turns.example"}
    crawls.verify()


def test_what_was_refused_is_visited_when_it_is_allowed(crawls: Crawls) -> None:
    """The refusal is ours: nothing of it is kept with the domain."""
    with Pages({"/": html()}) as site:
        assert crawls.crawl(site.url()).progress.pages == 0
        assert site.connections == 0
        assert crawls.crawl(site.url(), allow_private=True, again=True).progress.pages == 1
    crawls.verify()
