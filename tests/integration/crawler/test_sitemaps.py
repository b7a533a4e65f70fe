"""Sitemaps and feeds in a crawl: where they are found, what they bring, and what may go wrong with them."""

import gzip
import signal

import pytest

from holdfast.crawler import crawl_sitemap
from holdfast.jobs import summary
from holdfast.jobs.records import CrawlSummary, Ending
from holdfast.model.job import Scope, Sitemaps
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import MISSING, Page, Pages, html, moved
from tests.support.sitemap_pages import index, robots, urlset, xml


@pytest.fixture
def crawls(crawls: Crawls) -> Crawls:
    """Crawls that read sitemaps, as by default."""
    crawls.set(crawl={"sitemaps": "also"})
    return crawls


def pages(crawls: Crawls) -> set[str]:
    """The paths of all pages that were fetched."""
    return {f"/{url.split('/', 3)[3]}" for (url,) in crawls.rows("SELECT page_url FROM crawl_log WHERE outcome = 'ok'")}


def sitemaps(crawls: Crawls) -> dict[str, tuple[str, str | None]]:
    """State and reason of all sitemaps, by path."""
    found = crawls.rows("SELECT url, state::text, reason FROM url_frontier WHERE resource = 'sitemap'")
    return {f"/{url.split('/', 3)[3]}": (state, reason) for url, state, reason in found}


def summarized(crawls: Crawls, url: str) -> CrawlSummary:
    """The summary of a whole crawl."""
    job = crawls.begin(url).job
    crawls.crawl(url)
    return summary.summarize_job(crawls.connection, job)


def test_sitemaps_of_robots_txt_bring_pages_that_no_link_leads_to(crawls: Crawls) -> None:
    with Pages() as site:
        packed = gzip.compress(urlset(site.url("/hidden/1"), site.url("/denied/1")).body)
        site.answers |= {
            "/robots.txt": robots("User-agent: *", "Disallow: /denied/", "Sitemap: /maps/index.xml"),
            "/maps/index.xml": index(site.url("/maps/one.xml"), site.url("/maps/two.xml"), site.url("/maps/list.txt")),
            "/maps/one.xml": urlset(site.url("/"), site.url("/hidden/2")),
            "/maps/two.xml": Page(packed, headers={"Content-Type": "application/octet-stream"}),
            "/maps/list.txt": Page(site.url("/hidden/3").encode(), headers={"Content-Type": "text/plain"}),
            "/": html("/linked"),
            **{path: html() for path in ("/linked", "/hidden/1", "/hidden/2", "/hidden/3", "/denied/1")},
        }
        ended = summarized(crawls, site.url())
    assert ended.ending is Ending.COMPLETE
    assert pages(crawls) == {"/", "/linked", "/hidden/1", "/hidden/2", "/hidden/3"}
    assert crawls.frontier("%/denied/1")[site.url("/denied/1")][0] == "denied"
    assert {path: state for path, (state, _) in sitemaps(crawls).items()} == dict.fromkeys(
        ("/maps/index.xml", "/maps/one.xml", "/maps/two.xml", "/maps/list.txt"), "done"
    )
    # None is counted as a page, and the guessed address is not asked for.
    assert crawls.total() == 5
    assert crawls.value("SELECT count(*) FROM crawled_pages") == 5
    assert "/sitemap.xml" not in site.paths()
    assert crawls.rows("SELECT format, entries FROM sitemaps ORDER BY format, entries") == [
        ("index", 3),
        ("text", 1),
        ("urlset", 2),
        ("urlset", 2),
    ]
    said = list(summary.lines(ended))
    assert said[0] == "URLs: 4 listed by 4 sitemaps, 1 by links alone, 1 seed."
    crawls.verify()


def test_feeds_and_sitemaps_that_a_page_names_are_read(crawls: Crawls) -> None:
    feed = "<rss version='2.0'><channel><item><link>{}</link></item></channel></rss>"
    head = '<link rel="alternate" type="application/rss+xml" href="/feed"><link rel="sitemap" href="/maps/1.xml">'
    with Pages() as site:
        site.answers |= {"/": html("/feed", head=head), "/feed": xml(feed.format(site.url("/news")))}
        site.answers |= {"/maps/1.xml": urlset(site.url("/hidden")), "/news": html(), "/hidden": html()}
        assert crawls.crawl(site.url()).completed
    assert pages(crawls) == {"/", "/news", "/hidden"}, "a feed that is also a link is read as a feed"
    crawls.verify()


def test_without_a_word_in_robots_txt_the_usual_address_is_tried(crawls: Crawls) -> None:
    with Pages() as site:
        site.answers |= {"/": html(), "/sitemap.xml": moved("/sitemap_index.xml")}
        site.answers |= {"/sitemap_index.xml": urlset(site.url("/hidden")), "/hidden": html()}
        assert crawls.crawl(site.url()).completed
    assert pages(crawls) == {"/", "/hidden"}
    assert crawls.value("SELECT lastmod::text FROM url_frontier WHERE listed") == "2026-01-02 03:04:05+00"
    crawls.verify()


@pytest.mark.parametrize(
    "answer",
    [MISSING, Page(b"", 403), Page(b"", 401), html("/not-a-link-of-a-page"), moved("/login")],
    ids=["404", "403", "401", "html", "login"],
)
def test_a_site_without_a_sitemap_has_no_fault_and_no_refusal(crawls: Crawls, answer: Page) -> None:
    with Pages() as site:
        site.answers |= {"/": html("/a"), "/a": html(), "/sitemap.xml": answer}
        ended = summarized(crawls, site.url())
    assert ended.ending is Ending.COMPLETE
    assert pages(crawls) == {"/", "/a"}
    state, reason = sitemaps(crawls)["/sitemap.xml"]
    assert (state, str(reason).partition(":")[0]) == ("done", "no_sitemap")
    assert (ended.not_crawled, ended.sources) == ([], None)
    assert crawls.domain(f"localhost:{site.port}")["total_error_count"] == 0
    crawls.verify()


def test_a_usual_address_that_robots_txt_disallows_is_not_asked_for(crawls: Crawls) -> None:
    with Pages({"/robots.txt": robots("User-agent: *", "Disallow: /sitemap"), "/": html()}) as site:
        ended = summarized(crawls, site.url())
        assert site.paths() == ["/"]
    assert ended.not_crawled == []
    assert sitemaps(crawls)["/sitemap.xml"] == ("done", "no_sitemap: robots.txt disallows it")


def test_only_sitemaps_or_none(crawls: Crawls) -> None:
    with Pages() as site:
        site.answers |= {"/": html("/linked"), "/sitemap.xml": urlset(site.url("/listed"))}
        site.answers |= {"/listed": html("/linked"), "/linked": html()}
        assert crawls.crawl(site.url(), job="only", sitemaps=Sitemaps.ONLY).completed
        assert pages(crawls) == {"/", "/listed"}
        site.asked.clear()
        assert crawls.crawl(site.url(), job="no", sitemaps=Sitemaps.NO).completed
        assert set(site.paths()) == {"/", "/linked"}
        site.asked.clear()
        # Seeds only: a sitemap would lead beyond them.
        assert crawls.crawl(site.url(), job="seeds", max_depth=0).completed
        assert site.paths() == ["/"]


def test_rules_of_the_job_hold_for_what_sitemaps_list_and_not_for_sitemaps(crawls: Crawls) -> None:
    with Pages() as site:
        listed = [site.url("/blog/1"), site.url("/shop/1"), "http://elsewhere.localhost/blog/2", "ftp://x/", "http://["]
        site.answers |= {"/": html(), "/sitemap.xml": urlset(*listed), "/blog/1": html(), "/shop/1": html()}
        assert crawls.crawl(site.url(), include=("/blog/",)).completed
    assert pages(crawls) == {"/", "/blog/1"}
    assert crawls.frontier("%/shop/1")[site.url("/shop/1")][0] == "denied"
    assert crawls.value("SELECT count(*) FROM domains") == 1
    crawls.verify()


def test_a_sitemap_on_another_host_serves_the_host_that_names_it(crawls: Crawls) -> None:
    with Pages() as site:
        there = site.url("/maps/a.xml", host="cdn.localhost")
        listed = [site.url("/hidden"), site.url("/x", host="stranger.localhost"), site.url("/y", host="cdn.localhost")]
        site.answers |= {
            "localhost/robots.txt": robots(f"Sitemap: {there}"),
            "localhost/": html(),
            "localhost/hidden": html(),
            "cdn.localhost/maps/a.xml": urlset(*listed),
            "cdn.localhost/y": html(),
        }
        assert crawls.crawl(site.url(), scope=Scope.HOST).completed
        assert set(site.paths()) == {"/", "/hidden"}
        assert site.paths("stranger.localhost") == []
    assert crawls.value("SELECT count(*) FROM domains") == 2
    crawls.verify()


def test_a_sitemap_is_read_again_after_a_kill_and_its_urls_are_there_once(crawls: Crawls) -> None:
    """The worker dies when the pieces are partly committed, and the sitemap itself still waits."""
    urls = 20_000
    with Pages() as site:
        site.answers |= {"/": html(), "/sitemap.xml": urlset(*(site.url(f"/p/{n}") for n in range(urls)))}
        job = crawls.begin(site.url()).job.name
        assert crawls.run("worker", "--name", "w1", "--job", job, "--failpoint", "sitemap_read").code == -signal.SIGKILL
        assert sitemaps(crawls)["/sitemap.xml"][0] == "waiting"
        crawls.verify()
        with crawls.start("worker", "--name", "w1", "--job", job):
            wait_for(lambda: sitemaps(crawls)["/sitemap.xml"][0] == "done", "the sitemap")
    assert crawls.value("SELECT count(*) FROM url_frontier WHERE listed") == urls
    crawls.verify()


def test_what_is_wrong_with_a_sitemap_is_said_and_the_rest_counts(crawls: Crawls) -> None:
    with Pages() as site:
        broken = urlset(site.url("/a")).body.removesuffix(b"</urlset>") + b"<url><loc>" + site.url("/b").encode()
        bomb = b'<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]><urlset><url><loc>&x;</loc></url></urlset>'
        site.answers |= {
            "/robots.txt": robots("Sitemap: /broken.xml", "Sitemap: /entities.xml", "Sitemap: /gone.xml"),
            "/": html(),
            "/a": html(),
            "/broken.xml": Page(broken, headers={"Content-Type": "text/xml"}),
            "/entities.xml": Page(bomb, headers={"Content-Type": "text/xml"}),
        }
        ended = summarized(crawls, site.url())
    assert pages(crawls) == {"/", "/a"}
    assert ended.sources is not None
    assert (ended.sources.sitemaps, ended.sources.problems) == (2, 2)
    # One that robots.txt names and that is not there is worth a word.
    assert [(left.reason, left.count) for left in ended.not_crawled] == [("not_found", 1)]
    crawls.verify()


def test_a_sitemap_that_is_too_large_names_no_setting_that_would_not_help(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crawl_sitemap, "MAX_BYTES", 1000)
    with Pages() as site:
        large = Page(urlset(*(site.url(f"/{n}") for n in range(100))).body, headers={"Content-Type": "text/xml"})
        site.answers |= {"/robots.txt": robots("Sitemap: /large.xml"), "/": html(), "/large.xml": large}
        ended = summarized(crawls, site.url())
    assert "Sitemaps: " + site.url("/large.xml") in (said := "\n".join(summary.lines(ended)))
    assert "could be read only in part, or not at all: larger than 1,000 bytes." in said
    assert "  1  too large\n" in said
    assert sitemaps(crawls)["/large.xml"] == ("failed", "too_large: a sitemap that is larger than 1,000 bytes")
    crawls.verify()


def test_indexes_of_indexes_have_an_end(crawls: Crawls) -> None:
    with Pages() as site:
        for number in range(10):
            site.answers[f"/maps/{number}.xml"] = index(site.url(f"/maps/{number + 1}.xml"))
        site.answers |= {"/robots.txt": robots("Sitemap: /maps/0.xml"), "/": html()}
        assert crawls.crawl(site.url()).completed
        assert [path for path in site.paths() if path != "/"] == [
            f"/maps/{number}.xml" for number in range(crawl_sitemap.MAX_LEVEL + 1)
        ]


def test_a_new_crawl_reads_sitemaps_again(crawls: Crawls) -> None:
    with Pages() as site:
        site.answers |= {"/": html(), "/sitemap.xml": urlset(site.url("/old")), "/old": html(), "/new": html()}
        crawls.crawl(site.url(), job="j")
        site.answers["/sitemap.xml"] = urlset(site.url("/old"), site.url("/new"), lastmod="2026-05-05")
        assert crawls.crawl(job="j", again=True).completed
    assert pages(crawls) >= {"/old", "/new"}
    assert crawls.value("SELECT count(*) FROM url_frontier WHERE lastmod = '2026-05-05Z'") == 2
    crawls.verify()
