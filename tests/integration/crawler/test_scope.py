"""Which links are followed, what becomes of the others, and where redirects lead."""

from collections.abc import Iterator

import pytest

from holdfast.model.job import Scope
from tests.support.crawls import Crawls
from tests.support.pages import Page, Pages, html, moved

HOST, SISTER, FOREIGN = "site.localhost", "shop.site.localhost", "other.localhost"


@pytest.fixture(scope="module")
def site() -> Iterator[Pages]:
    with Pages() as served:
        links = ("/in", served.url("/sister", SISTER), served.url("/foreign", FOREIGN))
        served.answers = {
            "/": html(*links),
            "/in": html(),
            f"{SISTER}/sister": html("/deeper"),
            f"{SISTER}/deeper": html(),
            f"{FOREIGN}/foreign": html(),
            # denied in many ways
            "/denials": html("/keep/a", "/drop/b.pdf", "/other", "/keep/x/x/x/x/x", "http://[1"),
            "/keep/a": html(),
            # robots, as pages and headers say it
            "/shy": html("/secret", '/hidden" rel="nofollow', "/noindex", "/header"),
            "/secret": html("/behind", head='<meta name="robots" content="nofollow">'),
            "/noindex": html("/found", head='<meta name="robots" content="noindex">', text="not for anybody"),
            "/header": Page(
                html("/behind").body, headers={"Content-Type": "text/html", "X-Robots-Tag": "noindex, nofollow"}
            ),
            "/found": html(),
            # redirects
            "/moves": html("/hop/4", "/hop/9", "/loop/a", "/self", "/away"),
            **{f"/hop/{n}": moved(f"/hop/{n - 1}") for n in range(2, 12)},
            "/hop/1": moved("/end"),
            "/end": html("/in"),
            "/loop/a": moved("/loop/b"),
            "/loop/b": moved("/loop/a"),
            "/self": moved("/self"),
            "/away": moved(served.url("/foreign", FOREIGN)),
            "/home": moved(served.url("/new", FOREIGN), 301),
            f"{FOREIGN}/new": html("/newer", served.url("/in", HOST)),
            f"{FOREIGN}/newer": html(),
        }
        yield served


@pytest.fixture(autouse=True)
def _forget(site: Pages) -> None:
    site.asked.clear()


def domains(crawls: Crawls) -> set[str]:
    return {name.partition(":")[0] for (name,) in crawls.rows("SELECT domain FROM domains")}


def asked(site: Pages) -> set[str]:
    return {name for _, name in site.asked if not name.endswith("/robots.txt")}


@pytest.mark.parametrize(
    ("scope", "met", "followed"),
    [
        (Scope.HOST, {HOST}, {f"{HOST}/", f"{HOST}/in"}),
        (Scope.DOMAIN, {HOST, SISTER}, {f"{HOST}/", f"{HOST}/in", f"{SISTER}/sister", f"{SISTER}/deeper"}),
        (
            Scope.ANY,
            {HOST, SISTER, FOREIGN},
            {f"{HOST}/", f"{HOST}/in", f"{SISTER}/sister", f"{SISTER}/deeper", f"{FOREIGN}/foreign"},
        ),
    ],
)
def test_scope(crawls: Crawls, site: Pages, scope: Scope, met: set[str], followed: set[str]) -> None:
    assert crawls.crawl(site.url("/", HOST), scope=scope).completed
    assert asked(site) == followed
    assert domains(crawls) == met
    foreign = crawls.frontier(site.url("/foreign", FOREIGN))[site.url("/foreign", FOREIGN)]
    if scope is Scope.ANY:
        assert foreign == ("done", None)
        assert {status for (status,) in crawls.rows("SELECT status FROM domains")} == {"exhausted"}
    else:
        outside = f"{HOST}:{site.port}" if scope is Scope.HOST else f"under {HOST}"
        assert foreign == ("denied", f"out_of_scope: {FOREIGN}:{site.port} is not {outside}")
    crawls.verify()


def test_links_that_are_not_followed_are_kept_with_their_reason(crawls: Crawls, site: Pages) -> None:
    assert crawls.crawl(site.url("/denials", HOST), include=("/keep/",), exclude=(r"\.pdf$",)).completed
    assert asked(site) == {f"{HOST}/denials", f"{HOST}/keep/a"}
    known = {
        url.rpartition(f":{site.port}")[2]: (state, (reason or "").partition(":")[0])
        for url, (state, reason) in crawls.frontier().items()
    }
    assert known == {
        "/denials": ("done", ""),
        "/keep/a": ("done", ""),
        "/drop/b.pdf": ("denied", "excluded"),
        "/other": ("denied", "excluded"),
        "/keep/x/x/x/x/x": ("denied", "trap"),
        "http://[1": ("denied", "url_refused"),
    }
    assert crawls.value("SELECT denied FROM job_domains") == 4
    crawls.verify()


def test_nofollow_and_noindex(crawls: Crawls, site: Pages) -> None:
    assert crawls.crawl(site.url("/shy", HOST), text=True).completed
    assert asked(site) == {f"{HOST}{path}" for path in ("/shy", "/secret", "/noindex", "/header", "/found")}
    said = {
        url.rpartition(f":{site.port}")[2]: facts
        for url, *facts in crawls.rows(
            "SELECT f.url, p.nofollow, p.noindex, p.title IS NOT NULL, t.body IS NOT NULL FROM crawled_pages p "
            "JOIN url_frontier f USING (domain_id, job_id, url_key) LEFT JOIN page_texts t USING (domain_id, job_id, url_key)"
        )
    }
    assert said == {
        "/shy": [False, False, True, True],
        "/secret": [True, False, True, True],
        "/noindex": [False, True, False, False],
        "/header": [True, True, False, False],
        "/found": [False, False, True, True],
    }
    crawls.verify()


def test_redirects(crawls: Crawls, site: Pages) -> None:
    assert crawls.crawl(site.url("/moves", HOST)).completed
    home = site.url("", HOST)
    came = {url.removeprefix(home): outcomes for url, outcomes in crawls.outcomes().items()}
    assert came["/end"] == ["ok"]
    assert came["/in"] == ["ok"]
    assert {came[f"/hop/{n}"][0] for n in (1, 2, 3, 4)} == {"redirect"}
    # Six in a row are one too many; where they would have gone on to is known from the shorter chain.
    assert [came[f"/hop/{n}"] for n in (9, 8, 7, 6, 5)] == [["redirect"]] * 5
    assert sorted(came[f"/loop/{x}"][0] for x in "ab") == ["redirect", "redirect_loop"]
    assert came["/self"] == ["redirect_loop"]
    assert came["/away"] == ["redirect"]
    assert f"{FOREIGN}/foreign" not in asked(site)
    states = crawls.frontier()
    assert states[site.url("/foreign", FOREIGN)][0] == "denied"
    assert states[f"{home}/self"][0] == "failed"
    crawls.verify()


def test_a_chain_that_is_too_long_ends_typed(crawls: Crawls, site: Pages) -> None:
    ended = crawls.crawl(site.url("/hop/11", HOST))
    assert ended.completed
    came = {url.rpartition("/")[2]: outcomes for url, outcomes in crawls.outcomes().items()}
    assert came == {**{str(n): ["redirect"] for n in range(11, 6, -1)}, "6": ["too_many_redirects"]}
    assert crawls.frontier("%/hop/6") == {site.url("/hop/6", HOST): ("failed", "too_many_redirects: HTTP 302")}
    crawls.verify()


def test_a_redirect_of_a_seed_leads_to_where_the_site_is_now(crawls: Crawls, site: Pages) -> None:
    """It is followed to another host, and that one is crawled under the same scope: its own pages, and nobody else's."""
    assert crawls.crawl(site.url("/home", HOST)).completed
    assert asked(site) == {f"{HOST}/home", f"{FOREIGN}/new", f"{FOREIGN}/newer"}
    assert domains(crawls) == {HOST, FOREIGN}
    assert {status for (status,) in crawls.rows("SELECT status FROM domains")} == {"exhausted"}
    crawls.verify()


def test_traps_are_cut(crawls: Crawls) -> None:
    """A calendar without end, a path that repeats, session ids: a small number of pages, and the rest denied as traps."""
    from holdfast.testing.simweb.process import WebProcess
    from holdfast.testing.simweb.spec import Site, Trap, Web

    plan = Site(6, 5, 500, traps=tuple(Trap))
    with WebProcess(Web(2, 1, plan)) as web:
        crawls.set(crawl={"template_cap": 40})
        assert crawls.crawl(web.url(), max_depth=40).completed
        asked_for = [hit.path for hit in web.log()]
    assert len(asked_for) < 200
    assert not [path for path in asked_for if "jsessionid=" in path]
    reasons = {(reason or "").partition(":")[0] for state, reason in crawls.frontier().values() if state == "denied"}
    assert "trap" in reasons
    crawls.verify()


def test_again_asks_for_pages_and_not_for_what_the_rules_of_the_job_deny(crawls: Crawls, site: Pages) -> None:
    assert crawls.crawl(site.url("/", HOST)).completed
    before = asked(site)
    site.asked.clear()
    assert crawls.crawl(site.url("/", HOST), again=True).completed
    assert asked(site) == before
    assert crawls.frontier(site.url("/foreign", FOREIGN))[site.url("/foreign", FOREIGN)][0] == "denied"
    crawls.verify()


def test_again_judges_by_the_patterns_of_today(crawls: Crawls) -> None:
    headers = {"Content-Type": "text/html", "ETag": '"1"'}
    with Pages({"/": Page(html("/a", "/b").body, headers=headers), "/a": html(), "/b": html()}) as site:
        assert crawls.crawl(site.url(), job="j", exclude=("/a$",)).completed
        assert sorted(site.paths()) == ["/", "/b"]
        assert crawls.crawl(site.url(), job="j", exclude=("/b$",), again=True).completed
        assert sorted(site.paths()) == ["/", "/", "/a", "/b"]
        assert crawls.frontier(site.url("/b"))[site.url("/b")] == (
            "denied",
            "excluded: it matches the exclude pattern /b$ (rules 1)",
        )
    crawls.verify()


def test_frames_refreshes_and_nofollow(crawls: Crawls) -> None:
    """A page that is only linked by nofollow is known with that reason; one that is linked otherwise, too, is crawled."""
    answers = {
        "/": Page(b"<frameset><frame src=menu><frame src=body></frameset>", headers={"Content-Type": "text/html"}),
        "/menu": html("/only", "/both", head='<meta http-equiv="Refresh" content="5;URL=/later">'),
        "/body": html(
            text='<iframe src="/inner"></iframe><a rel=nofollow href="/shy">x</a><a rel=nofollow href="/both2">x</a>'
        ),
        "/inner": html(),
        "/later": html("/both2"),
        "/only": html(head="<meta name=robots content=nofollow>", text='<a href="/quiet">x</a><a href="/both2">x</a>'),
        "/both": html(text='<a rel=nofollow href="/both2">x</a>'),
        "/both2": html(),
    }
    with Pages(answers) as site:
        assert crawls.crawl(site.url()).completed
        assert sorted(site.paths()) == sorted(answers)
        known = {url.removeprefix(site.url("")): facts for url, facts in crawls.frontier().items()}
    assert known["/shy"] == ("denied", "nofollow: its link has rel=nofollow")
    assert known["/quiet"] == ("denied", "nofollow: its page asks that no link be followed")
    assert known["/both2"] == ("done", None)
    assert crawls.rows("SELECT waiting, done, denied FROM job_domains") == [(0, 8, 2)]
    crawls.verify()


def test_parameters_of_a_job_and_of_a_domain_are_dropped_and_the_store_says_so(crawls: Crawls) -> None:
    """`sid` is a page's own parameter unless somebody says otherwise; what a seed or a foreign page wrote is folded when it is taken."""
    with Pages({"/": html("/p?sid=1&x=2", "/p?x=2&sid=9", "/p?x=2"), "/p": html(), "/p?x=2": html()}) as site:
        assert crawls.crawl(site.url()).completed
        assert len(crawls.frontier()) == 4
        known = crawls.crawl(site.url("/?sid=3"), job="folded", strip_params=("sid",))
        assert known.completed
        rows = dict(
            crawls.rows(
                "SELECT url, reason FROM url_frontier f JOIN crawl_jobs j ON j.id = job_id WHERE j.name = 'folded'"
            )
        )
        assert rows == {
            site.url("/?sid=3"): f"folded: into {site.url()}",
            site.url(): None,
            site.url("/p?x=2"): None,
        }
        assert crawls.command("domain-set", f"localhost:{site.port}", "strip_params=sid,x") == 0
        assert crawls.crawl(site.url("/p?x=1&sid=2"), site.url(), job="by domain").completed
        rows = dict(
            crawls.rows(
                "SELECT url, reason FROM url_frontier f JOIN crawl_jobs j ON j.id = job_id WHERE j.name = 'by domain'"
            )
        )
        assert rows == {
            site.url("/p?sid=2&x=1"): f"folded: into {site.url('/p')}",
            site.url(): None,
            site.url("/p"): None,
        }
    crawls.verify()
