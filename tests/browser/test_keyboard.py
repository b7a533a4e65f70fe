"""The dashboard without a mouse: every control is reached by Tab, shows that it has the focus, and does its work by Enter or Space."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Dashboard, MakeVisitor
from tests.browser.furnished import address, furnish

MAX_STEPS = 400
_FOCUSED = """
() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  // A hidden box has its label in its place.
  const shown = element.classList.contains("visually-hidden") ? element.labels[0] : element;
  const style = getComputedStyle(shown);
  const box = shown.getBoundingClientRect();
  element.dataset.reached = "yes";
  return {
    element: element.outerHTML.slice(0, 120),
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    visible: box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth,
  };
}
"""
"""What has the focus, and whether a viewer can see it."""
_LEFT_OUT = """
() => [...document.querySelectorAll("main :is(a[href], button, input, select, textarea, summary)")]
  .filter((element) => element.checkVisibility({ visibilityProperty: true }) && element.type !== "hidden" && !element.disabled)
  .filter((element) => !element.dataset.reached)
  // Of radio buttons with one name Tab reaches one, and the arrows the others.
  .filter((element) => element.type !== "radio" || !document.querySelector(`input[type=radio][name="${element.name}"][data-reached]`))
  .map((element) => element.outerHTML.slice(0, 120))
"""
"""Controls of the content that Tab has not reached."""


@pytest.fixture(scope="module")
def names(dashboard: Dashboard) -> dict[str, str]:
    """What is in the store that the tests of this file share."""
    crawls = dashboard.crawls
    return furnish(crawls.database, crawls.connection, Path(crawls.folder) / "data" / "archive")


def _steps(page: Page) -> Iterator[dict[str, object]]:
    """Press Tab until the focus has left the page; what has the focus, each time."""
    for _ in range(MAX_STEPS):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused is None:
            return
        yield focused
    raise AssertionError("Tab does not come to the end of the page")


def _go_to(page: Page, selector: str) -> None:
    """Press Tab until this element has the focus, and see that it shows it."""
    target = page.locator(selector).first
    for _ in range(MAX_STEPS):
        page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            focused = page.evaluate(_FOCUSED)
            assert focused["outlined"], selector
            assert focused["visible"], selector
            return
    raise AssertionError(f"Tab does not reach {selector}")


def _press(page: Page, selector: str, key: str = "Enter") -> None:
    _go_to(page, selector)
    page.keyboard.press(key)


def _log_in(dashboard: Dashboard, page: Page) -> None:
    page.goto(f"{dashboard.origin}/login")
    expect(page.locator("[name=name]")).to_be_focused()
    page.keyboard.type("admin")
    page.keyboard.press("Tab")
    page.keyboard.type(dashboard.password)
    page.keyboard.press("Enter")
    page.wait_for_url("**/overview")


@pytest.mark.parametrize("width", [1280, 390])
def test_tab_reaches_every_control_and_the_focus_is_seen(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str], width: int
) -> None:
    page = visitor(dashboard.origin, viewport={"width": width, "height": 800}).open("/login")
    _log_in(dashboard, page)
    problems: list[str] = []
    for path in (
        "/jobs",
        "/jobs/{job}",
        "/jobs/{job}/scope",
        "/jobs?do=pause",
        "/domains",
        "/domains/{domain}",
        "/pages/changes?url={url}",
    ):
        # Without its script, so that no live region takes its elements away in the middle of the walk.
        page.route("**/dashboard.js*", lambda route: route.abort())
        page.goto(dashboard.origin + address(path, names))
        unseen = [focused for focused in _steps(page) if not (focused["outlined"] and focused["visible"])]
        problems += [f"{path}: not seen: {focused}" for focused in unseen]
        problems += [f"{path}: not reached: {element}" for element in page.evaluate(_LEFT_OUT)]
    assert problems == []


def test_a_job_is_created_steered_and_paused_with_others_by_keyboard(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]
) -> None:
    page = visitor(dashboard.origin).open("/login")
    _log_in(dashboard, page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to the content
    page.goto(f"{dashboard.origin}/jobs")
    _press(page, "main a[href='/jobs/new']")
    page.wait_for_url("**/jobs/new")
    _go_to(page, "#field-name")
    page.keyboard.type("keys")
    _go_to(page, "#field-scope")
    page.keyboard.press("ArrowDown")
    _go_to(page, "#field-seeds")
    page.keyboard.type("http://127.0.0.1:9/")
    _press(page, "#field-refresh", "Space")
    _press(page, "#new-job button:text-is('Create and start')")
    page.wait_for_url("**/jobs/keys")
    _press(page, "button:text-is('Pause')")
    expect(page.locator("[data-job-state=paused]")).to_be_visible(timeout=15_000)
    spec = dashboard.crawls.value("SELECT spec FROM crawl_jobs WHERE name = 'keys'")
    assert (spec["scope"], spec["refresh"]) == ("domain", True)

    page.goto(f"{dashboard.origin}/jobs/keys/scope")
    _go_to(page, "#field-exclude")
    page.keyboard.type("/private/")
    _press(page, "#scope button:text-is('Preview')")
    expect(page.locator("#preview")).to_be_visible()
    _press(page, "#preview button")
    expect(page.locator("#versions")).to_contain_text("/private/")

    page.goto(f"{dashboard.origin}/jobs?prefix=market")
    _press(page, "a:text-is('Pause all …')")
    expect(page.get_by_role("heading", name="Pause 1 job")).to_be_visible()
    _press(page, "main form button")
    expect(page.get_by_role("status").filter(has_text="1 job paused")).to_be_visible()
    assert dashboard.crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'market-prices'") == "paused"


def test_a_domain_is_reset_by_keyboard(dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]) -> None:
    page = visitor(dashboard.origin).open("/login")
    _log_in(dashboard, page)
    page.goto(f"{dashboard.origin}/domains/blocked.example")
    _press(page, "a:text-is('Reset …')")
    _go_to(page, "input[name=reason]")
    page.keyboard.type("by hand")
    _press(page, "button:text-is('Reset blocked.example')")
    expect(page.get_by_role("status").filter(has_text=re.compile("is reset"))).to_be_visible()
    assert dashboard.crawls.value("SELECT status::text FROM domains WHERE domain = 'blocked.example'") == "pending"


def test_a_span_of_time_is_chosen_and_its_values_are_read_by_keyboard(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]
) -> None:
    page = visitor(dashboard.origin).open("/login")
    _log_in(dashboard, page)
    page.route("**/dashboard.js*", lambda route: route.abort())  # no live region takes the focus away
    page.goto(f"{dashboard.origin}/overview")
    _press(page, ".span summary", "Space")
    since = datetime.now(UTC) - timedelta(hours=5)
    _go_to(page, "input[name=since]")
    page.keyboard.type(f"{since:%m%d%Y}")
    page.keyboard.press("ArrowRight")
    page.keyboard.type(f"{since:%I%M%p}")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/overview?since={since:%Y-%m-%dT%H}%3A{since:%M}&until=")
    _press(page, "#chart-rate summary", "Space")
    expect(page.locator("#chart-rate-table table")).to_be_visible()


def test_the_menu_of_a_narrow_screen_is_opened_by_keyboard(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]
) -> None:
    page = visitor(dashboard.origin, viewport={"width": 390, "height": 800}).open("/login")
    _log_in(dashboard, page)
    assert not page.locator("nav a[href='/alerts']").is_visible()
    _press(page, "#menu", "Space")
    _press(page, "nav a[href='/alerts']")
    page.wait_for_url("**/alerts")
