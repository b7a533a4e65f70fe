"""Live pages in a browser: how soon a committed figure is shown."""

import random
import statistics
import time
from collections.abc import Callable

from playwright.sync_api import Page, expect

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
