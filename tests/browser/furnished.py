"""A store with something of everything, for pictures and for judging pages: crawled sites, tasks, proxies, alerts, users."""

from collections.abc import Callable

from holdfast import factories
from tests.support.crawls import Crawls
from tests.support.dynamic_site import Answer, page
from tests.support.stored_images import put_images

PATHS = (
    "/overview",
    "/jobs",
    "/jobs/new",
    "/jobs/{job}",
    "/jobs/{job}/urls",
    "/jobs/{job}/domains",
    "/jobs/{job}/compare",
    "/jobs/{job}/log",
    "/jobs/{job}/scope",
    "/jobs/{job}/settings",
    "/jobs/{job}/delete",
    "/domains",
    "/domains/{domain}",
    "/domains/{domain}/reset",
    "/pages",
    "/pages/page?url={url}",
    "/pages/text?url={url}",
    "/pages/links?url={url}",
    "/pages/source?url={url}",
    "/pages/changes?url={url}",
    "/tasks",
    "/tasks/new",
    "/items",
    "/images",
    "/images/{image}",
    "/products",
    "/workers",
    "/workers/runs",
    "/workers/claims",
    "/proxies",
    "/proxies/new",
    "/proxies/health",
    "/proxies/cost",
    "/alerts",
    "/webhooks",
    "/storage",
    "/operations",
    "/users",
    "/audit",
    "/account",
)
"""The pages of the dashboard; those with names in braces need a store with data."""


def site(hostile: str = "") -> Callable[[str], Answer]:
    """A small site; with `hostile`, that text is in its titles and links."""

    def answer(path: str) -> Answer:
        if path == "/":
            return page(f"Home {hostile}", "/a", "/b", "/gone", f"/?q={'%3Cscript%3E' if hostile else 'x'}")
        return 404 if path == "/gone" else page(f"Page {path} {hostile}", "/")

    return answer


def furnish(crawls: Crawls, url: str, job: str = "shop", proxy: str = "proxy.example") -> dict[str, str]:
    """Crawl a site twice, and add a task, a proxy and an alert; returns what the names in `PATHS` stand for."""
    # As programs: a crawl has an event loop of its own, and Playwright's runs in this thread.
    assert crawls.run("crawl", url, "--job", job, "--workers", "1", "-q", "--text").code == 0
    assert crawls.run("crawl", "--job", job, "--again", "--workers", "1", "-q").code == 0
    assert crawls.command("tasks", "add", f"{url}a", "--every", "1d") == 0
    assert crawls.command("proxies", "add", f"http://{proxy}:8080") == 0
    crawls.connection.execute("INSERT INTO alerts (kind, subject, value, details) VALUES ('error_rate', '', 0.5, '{}')")
    image, *_ = put_images(
        crawls.connection, factories.image_store(crawls.settings), page=url, alt="<script>alert(1)</script>"
    )
    return {"job": job, "domain": url.removeprefix("http://").rstrip("/"), "url": url, "image": str(image)}
