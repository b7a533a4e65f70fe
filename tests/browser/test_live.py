"""Live pages in a browser: how soon a committed figure is shown, and what an update leaves as the viewer had it."""

import random
import statistics
import time
from collections.abc import Callable

from playwright.sync_api import Page, expect

from holdfast.dashboard.live import SLOW_INTERVAL
from tests.browser.chromium import Visitor
from tests.browser.conftest import Serve

MakeVisitor = Callable[..., Visitor]

CHANGES = 16
_WATCH = """
([region, values]) => {
  window.seenAt = {};
  const look = () => {
    const text = document.getElementById(region).textContent;
    for (const value of values) if (!(value in seenAt) && text.includes(value)) seenAt[value] = Date.now();
  };
  new MutationObserver(look).observe(document.getElementById(region), { childList: true, subtree: true, characterData: true });
}
"""
"""Notes when each of these values is shown first in a region."""


def test_a_committed_figure_is_shown_without_a_reload(
    serve: Serve, visitor: MakeVisitor, figure: Callable[[str], None]
) -> None:
    dashboard = serve("--api-only")
    crawls = dashboard.crawls
    assert crawls.command("jobs", "create", "moves", "http://127.0.0.1:9/") == 0
    somebody = visitor(dashboard.origin)
    pages: dict[str, Page] = {"overview-now": somebody.log_in("admin", dashboard.password)}
    pages["job-figures"] = somebody.open("/jobs/moves")
    for path in ("/domains", "/workers"):  # the same process reads other pages, too
        somebody.open(path)
    counts = [10_000 + 37 * number for number in range(CHANGES)]
    for region, page in pages.items():
        expect(page.locator("#live-status")).to_have_text("Live", timeout=15_000)
        page.evaluate(_WATCH, [region, [f"{count:,}" for count in counts]])
    requests = [request for request in somebody.requests if request.is_navigation_request()]
    committed: dict[str, float] = {}
    for count in counts:
        time.sleep(random.uniform(0.1, 0.6))  # at any moment of the server's rounds
        crawls.connection.execute("UPDATE job_domains SET pages = %s", (count,))
        committed[f"{count:,}"] = time.time()
        for region, page in pages.items():
            expect(page.locator(f"#{region}")).to_contain_text(f"{count:,}", timeout=15_000)
    assert requests == [request for request in somebody.requests if request.is_navigation_request()], "no reload"
    for region, page in pages.items():
        seen = page.evaluate("window.seenAt")
        took = sorted(seen[value] / 1000 - at for value, at in committed.items())
        figure(
            f"from commit to browser, {region}: p50 {statistics.median(took):.2f} s, max {took[-1]:.2f} s of {len(took)}"
        )


def test_selection_focus_scroll_and_open_tables_survive_updates(serve: Serve, visitor: MakeVisitor) -> None:
    dashboard = serve("--api-only")
    crawls = dashboard.crawls
    assert crawls.command("jobs", "create", "moves", "http://127.0.0.1:9/") == 0
    somebody = visitor(dashboard.origin, viewport={"width": 390, "height": 800})
    page = somebody.log_in("admin", dashboard.password)
    page.goto(dashboard.origin + "/jobs/moves")
    now, figures, status = page.locator("#job-now"), page.locator("#job-figures"), page.locator("#live-status")
    expect(status).to_have_text("Live", timeout=15_000)
    link = now.locator("a.name").first
    link.focus()
    page.evaluate("window.link = document.activeElement; window.table = link.closest('.scroll'); table.scrollLeft = 40")
    assert page.evaluate("table.scrollLeft") == 40
    crawls.connection.execute("UPDATE job_domains SET pages = 1001")
    expect(now).to_contain_text("1,001")
    assert page.evaluate("document.activeElement === link && link.isConnected")
    assert page.evaluate("table.scrollLeft") == 40

    page.evaluate("getSelection().selectAllChildren(document.querySelector('#job-now h2'))")
    crawls.connection.execute("UPDATE job_domains SET pages = 1002")
    expect(figures).to_contain_text("1,002")
    expect(status).to_have_text("Paused while text is selected")
    expect(now).to_contain_text("1,001")
    assert page.evaluate("getSelection().toString()") == "What it waits for"
    page.evaluate("getSelection().removeAllRanges()")
    expect(now).to_contain_text("1,002")
    expect(status).to_have_text("Live")

    page.goto(dashboard.origin + "/overview")
    expect(status).to_have_text("Live", timeout=15_000)
    table = page.locator("#chart-rate-table")
    table.locator("summary").click()
    crawls.connection.execute(
        "INSERT INTO stats_minute (at, requests, pages) VALUES (date_bin('1 minute', now() - interval '2 min', 'epoch'), 3000, 3000)"
    )
    expect(page.locator("#chart-rate-desc")).to_contain_text("highest 50.0", timeout=(SLOW_INTERVAL + 5) * 1000)
    expect(table).to_have_attribute("open", "")
