"""What all pages share, in a browser: the login, live figures, a server that dies, many tabs, links from elsewhere."""

import re

import psutil
from playwright.sync_api import Page, expect

from tests.browser.conftest import Dashboard, MakeVisitor, Serve
from tests.support.crawls import wait_for
from tests.support.dynamic_site import page as html
from tests.support.dynamic_site import served

_HIDE = """
(hidden) => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""
"""Tells a page that its tab was hidden or shown; a browser without windows hides none."""


def _live(page: Page) -> None:
    expect(page.locator("#live-status")).to_have_text("Live", timeout=15_000)


def test_the_first_address_asks_for_a_login_and_leads_back(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    somebody = visitor(dashboard.origin)
    page = somebody.open("/domains?status=blocked")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("password")
    page.get_by_label("Password").fill(dashboard.password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/domains?status=blocked")
    page.get_by_role("button", name="Log out").click()
    page.goto(dashboard.origin + "/jobs")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    page.goto(dashboard.origin + "/no/such/page")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()


def test_a_link_from_another_site_arrives_logged_in(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    """The cookie is SameSite=Strict, so the first request comes without it: the page loads itself once more."""
    somebody = visitor(dashboard.origin.replace("127.0.0.1", "localhost"))
    somebody.origin = dashboard.origin
    somebody.log_in("admin", dashboard.password)
    with served(lambda _: html("Elsewhere", f"{dashboard.origin}/overview")) as other:
        page = somebody.context.new_page()
        page.goto(other.url.replace("127.0.0.1", "localhost"))
        page.get_by_role("link").click()
        page.wait_for_url(f"{dashboard.origin}/overview")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        somebody.requests.clear()


def test_figures_move_by_themselves_and_hidden_tabs_close_their_stream(
    dashboard: Dashboard, visitor: MakeVisitor
) -> None:
    somebody = visitor(dashboard.origin)
    page = somebody.log_in("admin", dashboard.password)
    _live(page)
    before = len([request for request in somebody.requests if request.resource_type != "eventsource"])
    assert "http://127.0.0.1:9" not in page.content()
    dashboard.crawls.command("jobs", "create", "moves", "http://127.0.0.1:9/")
    expect(page.locator("#overview-now")).to_contain_text("moves", timeout=10_000)
    after = len([request for request in somebody.requests if request.resource_type != "eventsource"])
    assert after == before, "an open page makes no requests of its own"
    with page.expect_event("requestfailed", lambda request: "/live/" in request.url):
        page.evaluate(_HIDE, True)
    expect(page.locator("#live-status")).to_have_text("Paused while hidden")
    dashboard.crawls.command("jobs", "create", "unseen", "http://127.0.0.1:9/")
    page.evaluate(_HIDE, False)
    expect(page.locator("#overview-now")).to_contain_text("unseen", timeout=10_000)
    _live(page)


def test_what_must_not_happen_would_be_noticed(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    """The judgement of all other tests: a script in a page is stopped by the policy, and noted; so is a request to another origin."""
    somebody = visitor(dashboard.origin)
    page = somebody.log_in("admin", dashboard.password)
    page.evaluate("""() => {
      document.body.insertAdjacentHTML("beforeend", '<img src="http://127.0.0.1:9/x.png" onerror="window.ran = true">');
      document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = true" }));
    }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    policies = {re.search("script-src|img-src|default-src", problem) is not None for problem in somebody.problems}
    assert policies == {True}
    assert len(somebody.problems) >= 2
    assert somebody.foreign_requests() == ["http://127.0.0.1:9/x.png"]
    somebody.requests.clear()
    somebody.problems.clear()
    page.evaluate("alert(1)")
    assert somebody.problems == ["dialog: 1"]
    somebody.problems.clear()


def test_a_killed_server_is_noticed_and_the_page_is_right_again_without_a_reload(
    serve: Serve, visitor: MakeVisitor
) -> None:
    dashboard = serve("--api-only")
    page = visitor(dashboard.origin).log_in("admin", dashboard.password)
    _live(page)
    page.evaluate("window.marker = 'not reloaded'")
    dashboard.program.kill()
    expect(page.locator("#live-status")).to_contain_text("does not answer", timeout=15_000)
    dashboard.crawls.command("jobs", "create", "meanwhile", "http://127.0.0.1:9/")
    serve("--api-only", port=int(dashboard.origin.rpartition(":")[2]))
    expect(page.locator("#overview-now")).to_contain_text("meanwhile", timeout=30_000)
    _live(page)
    assert page.evaluate("window.marker") == "not reloaded"


def test_ten_tabs_in_one_browser_all_work(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    somebody = visitor(dashboard.origin)
    tabs = [somebody.log_in("admin", dashboard.password)]
    tabs += [somebody.open(path) for path in ("/overview", "/domains", "/pages", "/workers") * 2]
    tabs.append(somebody.open("/overview"))
    dashboard.crawls.command("jobs", "create", "seen-by-all", "http://127.0.0.1:9/")
    for tab in tabs:
        if re.search("/overview$", tab.url):
            expect(tab.locator("#overview-now")).to_contain_text("seen-by-all", timeout=20_000)
    last = somebody.open("/tasks")
    expect(last.get_by_role("heading", level=1)).to_be_visible()


def test_two_processes_behind_one_address_serve_one_dashboard(serve: Serve, visitor: MakeVisitor) -> None:
    """A session of one process is one of the other; both show what changes, and take forms."""
    dashboard = serve("--api-only", "--workers", "2")

    def fronts() -> list[psutil.Process]:
        return [
            one for one in psutil.Process(dashboard.program.pid).children(recursive=True) if "front" in one.cmdline()
        ]

    wait_for(lambda: len(fronts()) == 2, "both processes")
    processes = fronts()
    somebody = visitor(dashboard.origin)
    somebody.log_in("admin", dashboard.password)
    dashboard.crawls.command("jobs", "create", "shared", "http://127.0.0.1:9/")
    tabs = []
    for frozen in processes:  # so that the other one answers to this browser
        frozen.suspend()
        try:
            same = visitor(dashboard.origin, storage_state=somebody.context.storage_state())
            tabs.append(same.open("/jobs/shared"))
            _live(tabs[-1])
        finally:
            frozen.resume()
    for tab, action, state in zip(tabs, ("Pause", "Resume"), ("paused", "pending"), strict=True):
        tab.get_by_role("button", name=action).click()
        for one in tabs:
            expect(one.locator(f"[data-job-state={state}]")).to_be_visible(timeout=15_000)
        _live(tab)
        for one in tabs:
            one.reload()


def test_theme_and_time_zone_are_the_viewers_choice(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    page = visitor(dashboard.origin, color_scheme="light").log_in("admin", dashboard.password)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme").click()
    dark = page.evaluate(ground)
    assert light != dark
    page.reload()
    assert page.evaluate(ground) == dark, "it is remembered"
    page.goto(dashboard.origin + "/account")
    moment = page.locator("time").first
    shown = moment.text_content()
    assert page.locator("#zone").text_content() == "Europe/Berlin"
    page.locator("#zone").click()
    wait_for(lambda: page.locator("#zone").text_content() == "UTC", "the page in UTC")
    assert page.locator("time").first.text_content() != shown
