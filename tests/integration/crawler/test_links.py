"""Links in a crawl: recorded with their pages, and reports of them: broken ones, redirects, orphans, missing places."""

import csv
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from holdfast.errors import NotFound
from holdfast.links.records import TargetState
from holdfast.links.service import LinkService
from holdfast.model.url import DEFAULT_RULES
from tests.support.crawls import Crawls
from tests.support.pages import MISSING, Page, Pages, html, moved


def links_of(crawls: Crawls) -> LinkService:
    return LinkService.of(crawls.database, registrable=False, rules=DEFAULT_RULES)


def test_links_are_recorded_and_broken_ones_reported_with_the_pages_that_hold_them(crawls: Crawls) -> None:
    with Pages() as site:
        there, gone, far = (site.url(path, host="other.localhost") for path in ("/there", "/gone", "/far"))
        dead, left_out = "http://localhost:1/", site.url("/left-out", host="other.localhost")
        forbidden, mine = site.url("/forbidden", host="other.localhost"), site.url
        site.answers |= {
            "localhost/robots.txt": Page(
                b"User-agent: *\nDisallow: /private\n", headers={"Content-Type": "text/plain"}
            ),
            "localhost/": html(
                *(
                    "/a",
                    "/missing",
                    there,
                    gone,
                    far,
                    forbidden,
                    "/private/x",
                    "/loop1",
                    "/to-bad",
                    "http://[bad/",
                    "mailto:me@a.example",
                    dead,
                    left_out,
                ),
                text='<a href="/missing#x" rel="nofollow noopener">An <b>old</b>\n page</a> <a href="/a#second"><img alt="Picture"></a>',
            ),
            "localhost/a": html(
                "/b#first", "/b#nowhere", "/b#top", "#self", "/to-missing", "/to-b", text='<p id="second">'
            ),
            "localhost/b": html("/missing", "/a", text='<a name="first"></a><i id="self">'),
            "localhost/to-missing": moved("/to-missing-2"),
            "localhost/to-missing-2": moved("/missing"),
            "localhost/to-b": moved("/b"),
            "localhost/to-bad": moved("http://[bad"),
            "localhost/loop1": moved("/loop2"),
            "localhost/loop2": moved("/loop3"),
            "localhost/loop3": moved("/loop1"),
            "other.localhost/there": html("/never"),
            "other.localhost/gone": MISSING,
            "other.localhost/far": moved("/gone"),
            "other.localhost/forbidden": Page(b"no", 403, {"Content-Type": "text/plain"}),
        }
        assert crawls.crawl(mine(), check_external=True, exclude=("left-out",)).completed
        asked = site.paths("other.localhost")
    reports = links_of(crawls)
    assert sorted(asked) == ["/far", "/forbidden", "/gone", "/there"], "each is asked for once, and nothing is followed"
    assert crawls.total() == 3, "what is only checked is no page"

    found = {one.url: one for one in reports.broken().rows}
    assert {url: (one.outcome, one.status, one.external, one.hops, one.pages) for url, one in found.items()} == {
        mine("/missing"): ("not_found", 404, False, [], 2),
        mine("/to-missing"): ("not_found", 404, False, [mine("/to-missing-2"), mine("/missing")], 1),
        mine("/loop1"): ("redirect_loop", 302, False, [mine("/loop2"), mine("/loop3"), mine("/loop1")], 1),
        "http://[bad/": ("url_refused", None, False, [], 1),
        mine("/to-bad"): ("url_refused", 302, False, ["http://[bad"], 1),
        gone: ("not_found", 404, True, [], 1),
        far: ("not_found", 404, True, [gone], 1),
        dead: ("connection_failed", None, True, [], 1),
    }
    places = [(one.page_url, one.text, one.rel, one.nofollow, one.fragment) for one in found[mine("/missing")].links]
    assert sorted(places) == sorted(
        [
            (mine("/"), "An old page", "nofollow noopener", True, "x"),
            (mine("/"), "x", "", False, ""),
            (mine("/b"), "x", "", False, ""),
        ]
    )
    assert {one.url for one in reports.broken(external=True).rows} == {gone, far, dead}
    assert {one.url for one in reports.broken(external=False).rows} == found.keys() - {gone, far, dead}

    redirects = {one.url: (one.hops, one.state) for one in reports.redirects(external=False).rows}
    assert redirects == {
        mine("/to-missing"): ([mine("/to-missing-2"), mine("/missing")], TargetState.BROKEN),
        mine("/to-b"): ([mine("/b")], TargetState.OK),
        mine("/loop1"): ([mine("/loop2"), mine("/loop3"), mine("/loop1")], TargetState.BROKEN),
        mine("/to-bad"): (["http://[bad"], TargetState.BROKEN),
    }
    assert {one.url for one in reports.redirects(min_hops=2).rows} == {mine("/to-missing"), mine("/loop1")}

    missing = [(one.page_url, one.url, one.fragment) for one in reports.missing_places().rows]
    assert sorted(missing) == [(mine("/a"), mine("/a"), "self"), (mine("/a"), mine("/b"), "nowhere")]
    left = {one.url: one.reason.partition(":")[0] for one in reports.unchecked().rows}
    assert left == {mine("/private/x"): "robots_denied", left_out: "out_of_scope"}

    outgoing = {(one.url, one.fragment): one for one in reports.outgoing(mine("/")).links}
    assert outgoing[mine("/a"), "second"].text == "Picture"
    states = {url: one.state for (url, fragment), one in outgoing.items() if not fragment}
    assert states == {
        mine("/a"): TargetState.OK,
        mine("/missing"): TargetState.BROKEN,
        mine("/private/x"): TargetState.NOT_CHECKED,
        mine("/loop1"): TargetState.BROKEN,
        mine("/to-bad"): TargetState.BROKEN,
        "http://[bad/": TargetState.BROKEN,
        there: TargetState.OK,
        gone: TargetState.BROKEN,
        far: TargetState.BROKEN,
        dead: TargetState.BROKEN,
        left_out: TargetState.NOT_CHECKED,
        forbidden: TargetState.REFUSED,
    }
    assert {one.page_url for one in reports.incoming(mine("/b")).rows} == {mine("/a")}
    assert reports.count_incoming(mine("/missing")) == 2
    assert (reports.top(limit=1)[0].pages, reports.summary().pages) == (2, 3)
    summary = reports.summary()
    assert (summary.broken, summary.refused, summary.checked, summary.not_checked) == (
        *(4, 1, 5),
        {"out_of_scope": 1, "robots_denied": 1},
    )
    crawls.verify()


def test_a_report_is_the_same_in_pages_of_one_row(crawls: Crawls) -> None:
    with Pages() as site:
        site.answers |= {"/": html(*(f"/{number}" for number in range(5)), "/p"), "/p": html("/1", "/2")}
        assert crawls.crawl(site.url(), links=True).completed
    reports = links_of(crawls)
    whole = reports.broken()
    assert (len(whole.rows), whole.next) == (5, None)
    paged, after = [], None
    while True:
        page = reports.broken(after=after, limit=1)
        paged += page.rows
        if (after := page.next) is None:
            break
    assert paged == whole.rows
    first = reports.incoming(site.url("/1"), limit=1)
    assert first.next is not None
    second = reports.incoming(site.url("/1"), after=first.next, limit=1)
    assert {one.page_url for one in first.rows + second.rows} == {site.url("/"), site.url("/p")}


def test_links_are_those_of_the_last_answer(crawls: Crawls) -> None:
    with Pages() as site:
        site.answers |= {"/": html("/a", "/gone"), "/a": html("/old")}
        assert crawls.crawl(site.url(), links=True).completed
        site.answers |= {"/": html("/a"), "/gone": html(), "/old": html()}
        del site.answers["/a"]
        assert crawls.crawl(site.url(), links=True, again=True).completed
    reports = links_of(crawls)
    assert [one.url for one in reports.broken().rows] == [site.url("/a")]
    with pytest.raises(NotFound, match="are not recorded"):
        reports.outgoing(site.url("/a"))
    assert reports.incoming(site.url("/gone")).rows == []
    assert crawls.value("SELECT count(*) FROM link_answers") == 1


def test_orphans_are_listed_and_not_linked_even_through_redirects(crawls: Crawls) -> None:
    crawls.set(crawl={"sitemaps": "also"})
    with Pages() as site:
        listed = "".join(f"<url><loc>{site.url(path)}</loc></url>" for path in ("/a", "/orphan", "/behind", "/gone"))
        site.answers |= {
            "/sitemap.xml": Page(f"<urlset>{listed}</urlset>".encode(), headers={"Content-Type": "text/xml"}),
            "/": html("/a", "/moved"),
            "/a": html("/"),
            "/orphan": html("/orphan"),
            "/moved": moved("/moved-2"),
            "/moved-2": moved("/behind"),
            "/behind": html(),
        }
        assert crawls.crawl(site.url(), links=True).completed
    rows = links_of(crawls).orphans().rows
    found = {one.url: (one.listed, one.seed, one.state, one.outcome) for one in rows}
    assert found == {
        site.url("/orphan"): (True, False, "done", "ok"),
        site.url("/gone"): (True, False, "done", "not_found"),
    }


def test_a_crawl_without_the_option_records_nothing(crawls: Crawls) -> None:
    with Pages({"/": html("/a", "/b"), "/a": html("/gone")}) as site:
        assert crawls.crawl(site.url()).completed
    assert crawls.rows("SELECT (SELECT count(*) FROM page_links), (SELECT count(*) FROM link_answers)") == [(0, 0)]
    with pytest.raises(NotFound, match="No job has recorded links"):
        links_of(crawls).broken()
    with pytest.raises(
        NotFound, match="'default' does not record links; `holdfast crawl --job default --links --again`"
    ):
        links_of(crawls).broken("default")


def test_pages_that_are_not_modified_are_fetched_whole_for_their_links(
    crawls: Crawls, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options that come later: a page whose links are not recorded, or not checked, is read again."""
    with Pages() as site:
        beyond = site.url("/b", host="other.localhost")
        pages = {"/": html("/a"), "/a": html("/gone", beyond)}
        site.answers |= {path: replace(one, headers={**one.headers, "ETag": '"1"'}) for path, one in pages.items()}
        assert crawls.crawl(site.url(), job="site").completed
        for options in ({}, {"links": True}, {"links": True}, {"check_external": True}):
            if options == {"check_external": True}:
                assert crawls.command("links", "broken", "--external") == 0
            assert crawls.crawl(site.url(), job="site", again=True, **options).completed
        sent = [headers.get("if-none-match") for asked, headers in site.headers if asked == "localhost/a"]
    assert sent == [None, '"1"', None, '"1"', None]
    assert (
        "1 target out of scope was not requested: `holdfast crawl --job site --check-external"
        in capsys.readouterr().err
    )
    assert {one.url for one in links_of(crawls).broken().rows} == {site.url("/gone"), beyond}


def test_a_limit_of_checks_of_a_host(crawls: Crawls) -> None:
    crawls.set(crawl={"sitemaps": "no", "patience": 3, "checks_per_host": 2})
    with Pages() as site:
        site.answers["localhost/"] = html(*(site.url(f"/{number}", host="other.localhost") for number in range(5)))
        assert crawls.crawl(site.url(), check_external=True).completed
        assert len(site.paths("other.localhost")) == 2
    reports = links_of(crawls)
    assert len(reports.broken().rows) == 2
    assert {one.reason for one in reports.unchecked().rows} == {
        "check_limit: 2 links to this host (crawl.checks_per_host)"
    }
    assert reports.summary().not_checked == {"check_limit": 3}


def test_reports_on_the_terminal_and_as_files(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> None:
    with Pages() as site:
        text = '<a href="/gone">&lt;script&gt;alert(1)&lt;/script&gt; =1+1 \x1b[31mred</a> <a href="/gone">=2</a>'
        site.answers |= {"/": html("/moved", "/a#x", text=text), "/a": html("/gone"), "/moved": moved("/a")}
        assert crawls.crawl(site.url(), links=True).completed

    def said(*words: str, code: int = 0) -> str:
        assert crawls.command("links", *words) == code
        return capsys.readouterr().out

    report = crawls.folder / "broken.html"
    assert "not found (404)" in said("broken")
    assert "\x1b" not in said("broken", "--internal", "--fail", code=1)
    assert said("broken", "--external", "--fail") == "No broken link was found.\n"
    assert said("broken", "--html", str(report)) == f"1 row in {report}.\n"
    written = report.read_text()
    assert "&lt;script&gt;alert(1)" in written
    assert "<script" not in written
    assert f'<a href="{site.url("/a")}"' in written
    sheet = crawls.folder / "broken.csv"
    said("broken", "--csv", str(sheet))
    with sheet.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["url"] for row in rows] == [site.url("/gone")] * 3
    assert {row["text"] for row in rows} >= {"'=2", "x"}
    assert json.loads(said("redirects", "--json"))["rows"][0]["hops"] == [site.url("/a")]
    assert site.url() in said("in", site.url("/a"))
    assert "broken" in said("out", site.url())
    assert "x" in said("fragments")
    assert "No" not in said("top")
    assert "Links" in said("summary")
    assert said("orphans").startswith("STATE")
    assert said("unchecked") == "Every target was requested.\n"
    said("broken", "--json", "--csv", str(sheet), code=2)
    said("broken", "--html", str(crawls.folder / "none" / "x.html"), code=2)
    edges = crawls.folder / "links.parquet"
    assert crawls.command("export", "links", str(edges)) == 0
    found = {(row["source"], row["target"], row["kind"]) for row in pq.read_table(edges).to_pylist()}
    assert (site.url("/a"), site.url("/gone"), "a") in found
