"""A whole day at the dashboard: from the login to a crawl that is steered, finished, mended and read."""

import re
import threading
import time

from playwright.sync_api import Page, expect

from holdfast.accounts.service import AccountService
from holdfast.model.auth import Role
from holdfast.settings import Web
from tests.browser.conftest import Dashboard, MakeVisitor, Serve
from tests.support.crawls import wait_for
from tests.support.dynamic_site import Answer, served
from tests.support.dynamic_site import page as html

ARTICLES = 36
BROKEN = 3
PASSWORD = "correct horse battery staple"


class ShopSite:
    """A site with articles, a part that is excluded later, and pages that are broken until they are mended."""

    def __init__(self) -> None:
        self.mended = threading.Event()
        self.edition = "first"

    def __call__(self, path: str) -> Answer:
        if path == "/":
            broken = [f"/broken/{number}" for number in range(BROKEN)]
            return html("Shop", *broken, *(f"/article/{number}" for number in range(ARTICLES)))
        if path.startswith("/broken/"):
            return html(f"Mended {path}") if self.mended.is_set() else 500
        if match := re.fullmatch(r"/article/(\d+)", path):
            return html(f"Article {match[1]} of the {self.edition} edition", f"/private/{match[1]}")
        return html(f"Private {path}") if path.startswith("/private/") else 404


def _figure(page: Page, label: str) -> int:
    text = page.locator(f".figure:has(.label:text-is('{label}')) .value").inner_text()
    return int(text.replace(",", ""))


def test_a_crawl_is_created_steered_finished_mended_and_read(serve: Serve, visitor: MakeVisitor) -> None:
    dashboard = serve("--workers", "1")
    site = ShopSite()
    admin = visitor(dashboard.origin)
    page = admin.log_in("admin", dashboard.password)
    with served(site) as web:
        _create(page, dashboard.origin, web.url)
        _pause_and_edit_scope(page, dashboard.origin)
        _finish(page, dashboard.origin)
        asked = web.asked()
        assert not [path for path in asked if path.startswith("/private/")], "excluded before it was crawled"
        site.mended.set()
        _retry(page, dashboard.origin)
        host = web.url.removeprefix("http://").rstrip("/")
        site.edition = "second"
        # The retry has reopened the crawl; the next one begins when it is finished, and is the one that is waited for.
        crawls = "SELECT count(*) FROM crawls WHERE state {} 'finished'"
        wait_for(lambda: not dashboard.crawls.value(crawls.format("<>")), "the end of the retry")
        finished = dashboard.crawls.value(crawls.format("="))
        page.goto(f"{dashboard.origin}/jobs/shop/again")
        page.locator("main form button").first.click()
        wait_for(lambda: dashboard.crawls.value(crawls.format("=")) > finished, "the second crawl", 90)
        expect(page.locator("[data-job-state=completed]")).to_be_visible(timeout=90_000)
        _read(page, dashboard.origin, web.url)
        page.goto(f"{dashboard.origin}/domains/{host}/reset")
        expect(page.locator("#what-happens")).to_be_visible()
        page.get_by_role("button", name=f"Reset {host}").click()
        expect(page.get_by_role("status").filter(has_text=re.compile("reset", re.IGNORECASE))).to_be_visible()
        reset = dashboard.crawls.value("SELECT count(*) FROM audit_log WHERE action = 'reset' AND actor = 'admin'")
        assert reset == 1
    dashboard.crawls.verify()


def _create(page: Page, origin: str, seed: str) -> None:
    page.goto(f"{origin}/jobs/new")
    page.locator("#new-job [name=name]").fill("shop")
    page.locator("#new-job [name=seeds]").fill(f"{seed}\nnot a url at all %%")
    page.locator("#new-job [name=delay]").fill("0.2")
    page.locator("#new-job [name=allow_private]").check()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("main")).to_contain_text("not a url at all")
    assert page.locator("#new-job [name=name]").input_value() == "shop", "the form is kept"
    page.locator("#new-job [name=seeds]").fill(seed)
    page.get_by_role("button", name="Create and start").click()
    page.wait_for_url("**/jobs/shop")
    expect(page.locator("#live-status")).to_have_text("Live", timeout=15_000)
    before = _figure(page, "Pages")
    deadline = time.monotonic() + 30
    while _figure(page, "Pages") <= before + 2:
        assert time.monotonic() < deadline, "the figures do not move"
        page.wait_for_timeout(200)


def _pause_and_edit_scope(page: Page, origin: str) -> None:
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-job-state=paused]")).to_be_visible(timeout=15_000)
    page.wait_for_timeout(2_500)
    before = _figure(page, "URLs done")
    page.wait_for_timeout(2_000)
    assert _figure(page, "URLs done") == before, "nothing moves while it is paused"
    page.goto(f"{origin}/jobs/shop/scope")
    page.locator("#scope [name=exclude]").fill("/private/")
    page.locator("#scope").get_by_role("button", name="Preview").click()
    expect(page.locator("#preview h2")).to_contain_text(re.compile(r"Removes \d+ waiting URLs?"))
    page.get_by_role("button", name="Apply these rules").click()
    expect(page.get_by_role("status").first).to_be_visible()
    expect(page.locator("#versions")).to_contain_text("/private/")
    page.goto(f"{origin}/jobs/shop")
    page.get_by_role("button", name="Resume").click()


def _finish(page: Page, origin: str) -> None:
    page.goto(f"{origin}/jobs/shop")
    expect(page.locator("[data-job-state=completed]")).to_be_visible(timeout=120_000)
    expect(page.locator("#not-crawled")).to_contain_text("server", timeout=20_000)


def _retry(page: Page, origin: str) -> None:
    page.goto(f"{origin}/jobs/shop/urls?state=failed")
    expect(page.locator("main table tbody tr")).to_have_count(BROKEN)
    page.get_by_role("link", name="Retry all that match").click()
    expect(page.get_by_role("heading", name=f"Retry {BROKEN} URLs on 1 domain?")).to_be_visible()
    page.locator("main form button").first.click()
    expect(page.get_by_role("status").first).to_be_visible()
    page.goto(f"{origin}/jobs/shop")
    expect(page.locator(".figure:has(.label:text-is('Failed')) .value")).to_have_text("0", timeout=60_000)


def _read(page: Page, origin: str, seed: str) -> None:
    page.goto(f"{origin}/pages?title=Article+7")
    expect(page.locator("#pages")).to_contain_text("Article 7 of the second edition")
    page.goto(f"{origin}/pages/changes?url={seed}article/7")
    expect(page.locator("#diff")).to_contain_text("first")
    expect(page.locator("#diff")).to_contain_text("second")
    page.get_by_role("searchbox").fill(f"{seed}article/8")
    page.get_by_role("searchbox").press("Enter")
    page.wait_for_url("**/pages/page**")
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_a_proxy_is_added_and_tested(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    page = visitor(dashboard.origin).log_in("admin", dashboard.password)
    page.goto(f"{dashboard.origin}/proxies/new")
    page.locator("textarea[name=proxies]").fill("http://ann:secret-word@127.0.0.1:9")
    page.get_by_label("Allow private addresses of the proxy").check()
    page.get_by_role("button", name="Add the proxies").click()
    expect(page.get_by_role("status").filter(has_text="1 proxy")).to_be_visible()
    page.goto(f"{dashboard.origin}/proxies")
    page.locator("#proxies a").first.click()
    assert "secret-word" not in page.content()
    page.locator("#test [name=url]").fill("http://127.0.0.1:9/")
    page.get_by_role("button", name="Test", exact=True).click()
    expect(page.locator("#tested")).to_be_visible(timeout=60_000)


def test_an_alert_is_seen_and_acknowledged(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    dashboard.crawls.connection.execute(
        "INSERT INTO alerts (kind, subject, value, details) VALUES ('error_rate', '', 0.5, '{}')"
    )
    page = visitor(dashboard.origin).log_in("admin", dashboard.password)
    expect(page.locator("#overview-problems")).to_contain_text("Alerts", timeout=10_000)
    page.goto(f"{dashboard.origin}/alerts")
    page.get_by_role("button", name="Acknowledge").first.click()
    expect(page.get_by_role("status").first).to_be_visible()
    assert dashboard.crawls.value("SELECT acknowledged_by FROM alerts") == "admin"


def test_a_user_sees_and_cannot_act(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    dashboard.crawls.command("jobs", "create", "news", "http://127.0.0.1:9/")
    AccountService(dashboard.crawls.database, Web()).add("ann", Role.USER, PASSWORD, actor="test")
    reader = visitor(dashboard.origin)
    page = reader.log_in("ann", PASSWORD)
    for path in (
        "/jobs",
        "/jobs/news",
        "/domains",
        "/domains/127.0.0.1:9",
        "/pages",
        "/proxies",
        "/alerts",
        "/workers",
    ):
        page.goto(dashboard.origin + path)
        forms = page.locator("main form[method=post]")
        assert forms.count() == 0, f"{path} has controls for admins"
    csrf = page.locator("form[action='/logout'] input[name=csrf]").input_value()
    status = page.evaluate(
        """async (csrf) => (await fetch("/jobs/news/pause", {method: "POST", body: new URLSearchParams({csrf})})).status""",
        csrf,
    )
    assert status == 403
    page.goto(dashboard.origin + "/users")
    expect(page.get_by_role("heading", name="You may not do this")).to_be_visible()
    assert dashboard.crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'news'") != "paused"
