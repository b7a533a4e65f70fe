"""What people are told about sitemaps: explanations, lists, exports, domains, jobs, plans, and whether `lastmod` can be trusted."""

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.domains.records import DomainFacts
from holdfast.domains.service import DomainService
from holdfast.sitemaps.records import LastmodTrust
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html
from tests.support.sitemap_pages import dated, index, robots, urlset, xml

PAGES = 40


@pytest.fixture
def crawls(crawls: Crawls) -> Crawls:
    """Crawls that read sitemaps, as by default."""
    crawls.set(crawl={"sitemaps": "also"})
    return crawls


def test_a_sitemap_and_what_it_lists_are_explained_listed_and_planned(
    crawls: Crawls, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Pages() as site:
        site.answers |= {
            "/robots.txt": robots("Sitemap: /maps/index.xml"),
            "/": html("/linked"),
            "/maps/index.xml": index(site.url("/maps/one.xml"), site.url("/maps/bad.xml")),
            "/maps/one.xml": urlset(site.url("/hidden"), site.url("/linked")),
            "/maps/bad.xml": xml("<html><p>no</p></html>"),
            "/hidden": html(),
            "/linked": html(),
        }
        assert crawls.crawl(site.url(), job="maps").completed
    domain = f"localhost:{site.port}"

    def told(*arguments: str) -> str:
        assert crawls.command(*arguments) == 0
        return capsys.readouterr().out

    hidden = told("explain", site.url("/hidden"))
    assert f"listed by {site.url('/maps/one.xml')}" in hidden
    assert f"from {site.url('/maps/index.xml')}" in hidden
    assert "by a sitemap, last changed 2026-01-02 03:04 UTC" in hidden
    assert "by a sitemap, last changed" in told("explain", site.url("/linked"))
    assert "Listed" not in told("explain", site.url())
    one = told("explain", site.url("/maps/one.xml"))
    assert f"named by {site.url('/maps/index.xml')}" in one
    assert "urlset, 2 entries, " in one
    top = told("explain", site.url("/maps/index.xml"))
    assert f"by robots.txt, at the usual address or by a page, when this was crawled: {site.url()}" in top
    assert "not a sitemap: HTML" in told("explain", site.url("/maps/bad.xml"))

    shown = told("domain-info", domain)
    for text in (told("jobs", "show", "maps"), shown):
        assert "Sitemaps, those with a problem first" in text
        assert "problem: not a sitemap: HTML" in text
        assert site.url("/maps/one.xml") in text
    as_json = json.loads(told("domain-info", domain, "--json"))
    assert [one["format"] for one in as_json["sitemaps"]] == [None, "urlset", "index"]
    assert as_json["lastmod"] is None
    plan = told("jobs", "plan", "maps", "--again")
    assert "3 sitemaps listed 2 URLs when they were read last" in plan
    new = ("jobs", "create", "more", site.url(), "--dry-run")
    assert "3 sitemaps listed 2 URLs" in told(*new)
    assert "sitemaps listed" not in told(*new, "--sitemaps", "no")

    told("export", "urls", str(tmp_path / "urls.csv"))
    with (tmp_path / "urls.csv").open(encoding="utf-8") as file:
        rows = {row["url"]: row for row in csv.DictReader(file)}
    assert rows[site.url("/maps/one.xml")]["resource"] == "sitemap"
    assert (rows[site.url("/hidden")]["resource"], rows[site.url("/hidden")]["listed"]) == ("page", "true")
    assert rows[site.url("/hidden")]["lastmod"].startswith("2026-01-02T03:04:05")


@pytest.mark.parametrize(
    ("unannounced", "announced", "changed", "verdict"),
    [(0, 3, 3, "trusted"), (10, 3, 3, "untrusted"), (0, 25, 0, "untrusted")],
    ids=["right", "changes in silence", "cries wolf"],
)
def test_whether_lastmod_is_trusted_follows_from_two_crawls(
    crawls: Crawls, unannounced: int, announced: int, changed: int, verdict: str
) -> None:
    """`unannounced`: pages that change with an old date; `announced`: pages with a new date, of which `changed` change."""
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    with Pages() as site:
        paths = [f"/p/{number}" for number in range(PAGES)]
        dates = {site.url(path): (long_ago + timedelta(days=n)).isoformat() for n, path in enumerate(paths)}
        site.answers |= {"/": html(), "/sitemap.xml": dated(dates), **dict.fromkeys(paths, html())}
        crawls.crawl(site.url(), job="j")
        assert of_domain(crawls, site).lastmod is None  # one crawl says nothing
        new = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        site.answers |= dict.fromkeys([*paths[:changed], *paths[announced : announced + unannounced]], html(text="new"))
        site.answers["/sitemap.xml"] = dated(dates | {site.url(path): new for path in paths[:announced]})
        assert crawls.crawl(job="j", again=True).completed
        trust = of_domain(crawls, site).lastmod
    assert trust == LastmodTrust(
        job="j",
        trust=verdict,
        generated=False,
        newer_changed=changed,
        newer_unchanged=announced - changed,
        older_changed=unannounced,
        older_unchanged=PAGES - announced - unannounced,
    )
    # Nothing is skipped, whatever the verdict.
    assert crawls.value("SELECT count(*) FROM crawl_log WHERE outcome = 'ok'") == 2 * (PAGES + 1)


def test_dates_of_the_generation_are_no_evidence(crawls: Crawls) -> None:
    with Pages() as site:
        paths = [f"/p/{number}" for number in range(PAGES)]
        site.answers |= {"/": html(), **dict.fromkeys(paths, html())}
        for again in (False, True):
            site.answers["/sitemap.xml"] = urlset(*map(site.url, paths), lastmod=datetime.now(UTC).isoformat())
            assert crawls.crawl(*([] if again else [site.url()]), job="j", again=again).completed
        trust = of_domain(crawls, site).lastmod
    assert trust is not None
    assert (trust.trust, trust.generated) == ("untrusted", True)
    assert "nearly all dates are the time at which the sitemap was made" in trust.sentence


def of_domain(crawls: Crawls, site: Pages) -> DomainFacts:
    """Everything about the site's domain."""
    return DomainService(crawls.database).info(f"localhost:{site.port}")
