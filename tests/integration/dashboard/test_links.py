"""Links of a job: in the dashboard, by the API, through the client and its `--server`."""

from holdfast.cli.remote.links import RemoteLinks
from holdfast.client import Client
from holdfast.model.auth import Role, Scope
from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html, moved

HOSTILE = "<script>alert(1)</script>&lt;b&gt;\x1b[31m"


def test_broken_links_are_shown_asked_for_and_the_same_everywhere(api: Api, ada: Browser, crawls: Crawls) -> None:
    with Pages() as site:
        hostile = f'<a href="/gone?q=%3Cb%3E"><i>{HOSTILE.replace("<", "&lt;")}</i></a>'
        site.answers |= {
            "/": html("/a", "/moved", "/gone#x", text=hostile),
            "/a": html("/gone", "/", "/#lost"),
            "/moved": moved("/gone"),
        }
        crawls.crawl(site.url(), job="site", links=True)
        crawls.crawl(site.url("/a"), job="plain", max_depth=0)
    home, gone = site.url(), site.url("/gone")

    page = ada.get("/jobs/site/links")
    assert page.status == 200
    assert all(url in page.text for url in (gone, site.url("/moved"), site.url("/gone?q=%3Cb%3E")))
    assert "not found (404)" in page.words
    assert "Redirects to" in page.words
    assert "<script>alert" not in page.text
    assert "No broken link was found." in ada.get("/jobs/site/links?which=external").words
    assert ada.get("/jobs/site/links?which=all").status == 422
    assert "This job does not record links." in ada.get("/jobs/plain/links").words
    shown = ada.get("/pages/page", url=gone)
    assert "Links to this URL On 2 pages." in shown.words
    assert site.url("/a") in shown.text
    assert ada.get("/pages/incoming", url=gone, job="site").words.count(" a ") >= 2
    assert "No page is known that links to it" in ada.get("/pages/incoming", url=site.url("/none")).words

    key = api.key(Role.USER, Scope.READ)
    asked = api.client(key)
    first = asked.get("/api/links/broken", params={"job": "site", "limit": 1}).json()
    assert (len(first["items"]), first["next"] is not None) == (1, True)
    assert asked.get("/api/links/broken", params={"cursor": "WyJhIl0"}).status_code == 422
    assert asked.get("/api/links/broken", params={"cursor": "W251bGwsbnVsbF0"}).status_code == 422
    assert asked.get("/api/links/out", params={"url": site.url("/none")}).status_code == 404
    assert api.client().get("/api/links/broken").status_code == 401

    near = api.services.links
    with Client(api.url, key=key) as client:
        far = RemoteLinks(client)
        assert {one.url for one in client.broken_links(job="site")} == {
            gone,
            site.url("/moved"),
            site.url("/gone?q=%3Cb%3E"),
        }
        assert far.broken("site", external=None, after=None, limit=9, places=9).rows == near.broken("site").rows
        paged = far.broken("site", external=None, after=None, limit=1, places=9)
        assert (
            far.broken("site", external=None, after=paged.next, limit=9, places=9).rows == near.broken("site").rows[1:]
        )
        redirects = far.redirects("site", min_hops=1, external=False, after=None, limit=9, places=9).rows
        assert redirects == near.redirects("site").rows != []
        assert far.missing_places("site", after=None, limit=9).rows == near.missing_places("site").rows != []
        assert far.orphans("site", after=None, limit=9).rows == near.orphans("site").rows
        assert far.unchecked("site", after=None, limit=9).rows == near.unchecked("site").rows
        assert far.incoming(gone, limit=9).rows == near.incoming(gone).rows != []
        assert far.outgoing(home) == near.outgoing(home)
        assert far.top("site", limit=3) == near.top("site", limit=3)
        assert far.summary() == near.summary("site")
