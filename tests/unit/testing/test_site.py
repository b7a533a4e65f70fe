"""What sites answer, and that the truth about them is true: a plain walk finds exactly what is expected."""

import gzip
from collections import Counter
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from holdfast.model.sitemap import SitemapFormat
from holdfast.parse.sitemap import read_sitemap
from holdfast.testing.simweb.log_checks import count_kinds
from holdfast.testing.simweb.presets import preset
from holdfast.testing.simweb.render import Delivery, Response
from holdfast.testing.simweb.site import MUST_FETCH, UrlKind, expected, is_trap, page
from holdfast.testing.simweb.spec import Address, Robots, Site, SpecialUrl, Trap, Wall, Web
from tests.unit.testing.walker import Got, walk

ADDRESS = Address((8000,))
_HARMLESS = dict.fromkeys(set(SpecialUrl) - {SpecialUrl.ENDLESS, SpecialUrl.HUGE}, 0.1)


def _walk(web: Web, number: int, *, denied: str = "/private/") -> dict[str, int]:
    """Asks the pure site, counting as the server would."""
    counts: Counter[str] = Counter()

    def ask(url: str) -> Got:
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        answer = page(web, number, target, ADDRESS, previous_requests=counts[target])
        counts[target] += 1
        whole = answer.delivery is Delivery.PLAIN
        return Got(answer.status if whole else 0, answer.body if whole else b"", answer.headers.get("Location"))

    return walk(f"{ADDRESS.origin(number)}/", ask, denied=denied)


def _answer(site: Site, target: str, generation: int = 0, earlier: int | None = None) -> Response:
    return page(Web(5, 2, site), 0, target, ADDRESS, generation=generation, previous_requests=earlier)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("links", [1, 6, 30])
def test_a_plain_walk_finds_exactly_what_is_expected(seed: int, links: int) -> None:
    web = Web(
        seed,
        2,
        Site(90, links, 500, robots=Robots.DENY, flaky=0.2, flaky_times=2, external=0.2, images=1, odd=_HARMLESS),
    )
    truth = list(expected(web, 1, ADDRESS.origin(1)))
    assert len({each.url for each in truth}) == len(truth)
    ends = _walk(web, 1)
    assert set(ends) == {each.url for each in truth if each.kind in MUST_FETCH}
    for each in truth:
        if each.kind in MUST_FETCH and each.status is not None:
            assert ends[each.url] == each.status, each
    assert set(count_kinds(truth)) == set(UrlKind)


@pytest.mark.parametrize("name", ["demo", "torture", "mixed"])
def test_presets_too(name: str) -> None:
    web = preset(name)
    for number in range(min(web.sites, 5)):
        denied = "/private/" if web.site(number).robots is Robots.DENY else "no"
        wanted = {each.url for each in expected(web, number, ADDRESS.origin(number)) if each.kind in MUST_FETCH}
        assert set(_walk(web, number, denied=denied)) == wanted


def test_without_a_robots_txt_that_denies_it_private_is_a_page() -> None:
    web = Web(1, 1, Site(20, odd={SpecialUrl.PRIVATE: 1.0}, robots=Robots.NONE))
    assert {each.kind for each in expected(web, 0)} == {UrlKind.PAGE}
    assert len(_walk(web, 0, denied="no")) == 40


@pytest.mark.parametrize("robots", [Robots.DENY_ALL, Robots.ERROR, Robots.TIMEOUT])
def test_nothing_may_be_had_of_a_site_whose_robots_deny_it_all(robots: Robots) -> None:
    assert {each.kind for each in expected(Web(1, 1, Site(20, robots=robots, odd=_HARMLESS)), 0)} == {UrlKind.DENIED}


@pytest.mark.parametrize("wall", [wall for wall in Wall if wall])
def test_a_wall_is_all_that_is_seen(wall: Wall) -> None:
    web = Web(1, 1, Site(20, wall=wall))
    first, *rest = expected(web, 0)
    answer = page(web, 0, "/", ADDRESS)
    assert (first.url, first.status) == ("/", answer.status)
    assert page(web, 0, "/robots.txt", ADDRESS).status == 200
    if wall is Wall.LOGIN:
        assert [each.url for each in rest] == ["/login"]
        assert b'type="password"' in page(web, 0, "/login", ADDRESS).body
    else:
        assert answer.status == int(wall)
        assert rest == []


def test_how_far_a_chain_must_be_followed_is_the_crawlers_to_say() -> None:
    web = Web(1, 1, Site(1, odd={SpecialUrl.FAR: 1.0}))
    assert [each.kind for each in expected(web, 0, max_redirects=5)][1:] == [UrlKind.REDIRECT] * 6 + [
        UrlKind.OPTIONAL
    ] * 4
    assert [each.kind for each in expected(web, 0, max_redirects=20)][1:] == [UrlKind.REDIRECT] * 10


@pytest.mark.parametrize(
    ("robots", "said"),
    [
        (Robots.ALLOW, b"User-agent: *\nCrawl-delay: 2.5\nDisallow:\n"),
        (Robots.DENY, b"User-agent: *\nCrawl-delay: 2.5\nDisallow: /private/\n"),
        (Robots.DENY_ALL, b"User-agent: *\nCrawl-delay: 2.5\nDisallow: /\n"),
    ],
)
def test_what_robots_txt_says(robots: Robots, said: bytes) -> None:
    assert _answer(Site(robots=robots, crawl_delay=2.5), "/robots.txt").body == said


def test_other_robots_txt() -> None:
    assert _answer(Site(robots=Robots.NONE), "/robots.txt").status == 404
    assert _answer(Site(robots=Robots.ERROR), "/robots.txt").status == 500
    assert _answer(Site(robots=Robots.TIMEOUT), "/robots.txt").delivery is Delivery.HANG
    assert _answer(Site(robots=Robots.REDIRECT), "/robots.txt").headers == {"Location": "/robots-moved.txt"}
    assert b"Disallow: /private/" in _answer(Site(robots=Robots.REDIRECT), "/robots-moved.txt").body


@pytest.mark.parametrize(
    ("robots", "index", "private"),
    [
        (Robots.NONE, "/sitemap.xml", UrlKind.PAGE),
        (Robots.ALLOW, "/maps/index.xml", UrlKind.PAGE),
        (Robots.DENY, "/maps/index.xml", UrlKind.DENIED),
        (Robots.REDIRECT, "/maps/index.xml", UrlKind.DENIED),
    ],
)
def test_sitemaps_list_what_is_expected_and_no_link_leads_to(robots: Robots, index: str, private: UrlKind) -> None:
    site = Site(20, robots=robots, listed=7)
    truth = {each.url: each for each in expected(Web(5, 2, site), 0)}
    linked = {each.url for each in expected(Web(5, 2, replace(site, listed=0)), 0)}
    named = f"Sitemap: {ADDRESS.origin(0)}{index}\n".encode() in _answer(site, "/robots-moved.txt").body
    assert named == (robots is not Robots.NONE)
    entries, summary = read_sitemap(_answer(site, index).body)
    assert (summary.format, summary.problem) == (SitemapFormat.INDEX, None)
    files, listed, problems = [index], set[str](), 0
    for entry in entries:
        files.append(urlsplit(entry.url).path)
        found, summary = read_sitemap(_answer(site, files[-1]).body)
        problems += summary.problem is not None
        listed |= {urlsplit(each.url).path for each in found}
    assert problems == 1
    assert listed - {"/"} == truth.keys() - linked - set(files)
    assert {truth[path].kind for path in files} == {UrlKind.OTHER}
    assert truth.pop("/private/listed").kind is private
    assert {truth[path].kind for path in listed & truth.keys()} == {UrlKind.PAGE}
    assert all(_answer(site, path).status == 200 for path in [*listed, *files])
    assert _answer(site, "/listed/zzz").status == _answer(replace(site, listed=0), index).status == 404


def test_a_flaky_page_fails_as_often_as_it_was_said_and_then_never_again() -> None:
    site = Site(30, flaky=1.0, flaky_times=2)
    paths = [each.url for each in expected(Web(5, 2, site), 0) if each.kind is UrlKind.FLAKY]
    assert len(paths) == 29
    ways: Counter[tuple[int, Delivery]] = Counter()
    for path in paths:
        first, second, third = (_answer(site, path, earlier=n) for n in range(3))
        assert (third.status, third.delivery) == (200, Delivery.PLAIN)
        assert first == second
        ways[first.status, first.delivery] += 1
    assert set(ways) == {(500, Delivery.PLAIN), (0, Delivery.RESET), (200, Delivery.CUT)}


def test_pages_that_change_do_so_with_the_generation() -> None:
    site = Site(40, changing=0.5)
    paths = [each.url for each in expected(Web(5, 2, site), 0)]
    changed = 0
    for path in paths:
        before, after = _answer(site, path), _answer(site, path, generation=3)
        same = before.body == after.body
        assert same == ((before.etag, before.modified) == (after.etag, after.modified))
        assert before.etag or before.modified
        changed += not same
    assert 5 < changed < 35


def test_traps_have_no_end_and_nobody_must_enter_them() -> None:
    site = Site(5, traps=tuple(Trap))
    home = _answer(site, "/").body
    assert b'href="/cal/2024/1"' in home
    assert b'href="/echo/"' in home
    assert b"/?jsessionid=" in home
    assert _answer(site, "/cal/2024/12").body.count(b'href="/cal/2025/') == 2
    assert b'href="/echo/echo/echo/"' in _answer(site, "/echo/echo/").body
    one, two = _answer(site, "/?jsessionid=1").body, _answer(site, "/?jsessionid=2").body
    assert one != two
    assert {each.kind for each in expected(Web(5, 2, site), 0)} == {UrlKind.PAGE}
    assert all(map(is_trap, ("/cal/1/1", "/echo/echo/", "/?jsessionid=1")))
    assert not any(map(is_trap, ("/", "/garden/c?x=1", "/calendar")))
    for path in ("/cal/2024/1", "/echo/", "/cal/x/y", "/cal/1"):
        assert _answer(Site(5), path).status == 404


def test_a_site_has_no_other_urls() -> None:
    site = Site(20, odd={SpecialUrl.MISSING: 1.0, SpecialUrl.FAR: 1.0, SpecialUrl.LOOP: 1.0, SpecialUrl.COPY: 0.5})
    for path in (
        "/x", "/far/11/home", "/far/0/home", "/far/home", "/loop/home/c", "/copy/zzzz", "/copy/b", "/copy", "/private/home", "/broken/home",
        "/img", "/copy/home/home", "/garden/zzzz",
    ):  # fmt: skip
        assert _answer(site, path).status == 404, path
    copies = {each.url for each in expected(Web(5, 2, site), 0) if each.url.startswith("/copy/")}
    assert 0 < len(copies) < 20


def test_a_copy_is_one_and_other_pages_are_not() -> None:
    site = Site(30, odd={SpecialUrl.COPY: 1.0})
    bodies = Counter(_answer(site, each.url).body for each in expected(Web(5, 2, site), 0))
    assert set(bodies.values()) == {2}


def test_a_body_is_about_as_long_as_the_site_says() -> None:
    for length in (3000, 20_000, 700_000):
        assert abs(len(_answer(Site(500, 20, length), "/").body) - length) < 60


def test_the_bomb_is_small_and_large() -> None:
    answer = _answer(Site(1, odd={SpecialUrl.BOMB: 1.0}), "/bomb/home")
    assert len(answer.body) < 120_000
    assert len(gzip.decompress(answer.body)) == 100 << 20
    assert answer.headers == {"Content-Encoding": "gzip"}


def test_odd_charsets_are_what_they_are() -> None:
    site = Site(60, odd={SpecialUrl.CHARSET: 1.0})
    kinds = set()
    for each in expected(Web(5, 2, site), 0):
        if each.url.startswith("/charset/"):
            answer = _answer(site, each.url)
            kinds.add(answer.content_type)
            if "charset=" in answer.content_type:
                assert "<title>" in answer.body.decode(answer.content_type.partition("charset=")[2])
    assert len(kinds) == 7


def test_another_seed_is_another_web() -> None:
    site = Site(50, odd={SpecialUrl.MISSING: 0.2})
    one, two = (list(expected(Web(seed, 1, site), 0)) for seed in (1, 2))
    assert one == list(expected(Web(1, 1, site), 0))
    assert one != two
    assert page(Web(1, 1, site), 0, "/", ADDRESS).body != page(Web(2, 1, site), 0, "/", ADDRESS).body
