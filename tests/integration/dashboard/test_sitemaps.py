"""Sitemaps in the dashboard: on the pages of a job, a domain and a URL, in the list of URLs, and as an option of a job."""

from tests.support.browsing import Browser
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html
from tests.support.sitemap_pages import robots, urlset, xml


def test_what_was_read_is_shown_and_the_option_is_set(ada: Browser, crawls: Crawls) -> None:
    crawls.set(crawl={"sitemaps": "also"})
    with Pages() as site:
        good, bad, hidden = site.url("/maps/one.xml"), site.url("/maps/bad.xml"), site.url("/hidden")
        site.answers |= {
            "/robots.txt": robots(f"Sitemap: {good}", f"Sitemap: {bad}"),
            "/": html(),
            "/hidden": html(),
            "/maps/one.xml": urlset(hidden),
            "/maps/bad.xml": xml("<html>no</html>"),
        }
        crawls.crawl(site.url(), job="maps")
    for page in (ada.get("/jobs/maps"), ada.get(f"/domains/localhost:{site.port}")):
        assert page.status == 200
        assert all(text in page.text for text in (good, bad))
        assert "not a sitemap: HTML" in page.words
        assert "resource=sitemap" in page.text
    words = ada.get("/jobs/maps").words
    assert "1 URL listed by 2 sitemaps, 0 by links alone, 1 seed. 1 could be read only in part, or not at all." in words

    urls = ada.get("/jobs/maps/urls?resource=sitemap")
    assert "2 rows shown" in urls.words
    assert '<option value="sitemap" selected>' in urls.text
    pages = ada.get("/jobs/maps/urls?resource=page")
    assert "2 rows shown" in pages.words
    assert "listed, changed" in pages.words
    assert ada.get("/jobs/maps/urls?resource=feed").status == 422
    assert f"listed by {good}" in ada.get("/pages/page", url=hidden).words

    assert "as the settings say (crawl.sitemaps)" in words
    form = ada.get("/jobs/maps/settings")
    assert '<option value="">default: also</option>' in form.text
    changed = ada.send("/jobs/maps/settings", "/jobs/maps/settings", sitemaps="only")
    assert changed.notice.startswith("Changed: ")
    assert "sitemaps" in changed.notice
    assert '<option value="only" selected>' in ada.get("/jobs/maps/settings").text
    assert "the links of pages are not followed" in ada.get("/jobs/new").text
