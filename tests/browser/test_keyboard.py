"""The dashboard without a mouse: every control is reached by Tab, shows that it has the focus, and does its work by Enter or Space."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from holdfast.api.permissions import ROUTES
from tests.browser.conftest import Dashboard, MakeVisitor
from tests.browser.furnished import MISSING, PATHS, address, furnish

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
_BEGIN_WALK = """
() => {
  const main = document.getElementById("content");
  main.querySelectorAll("details.ask").forEach((asks) => { asks.open = true; });
  const shows = (element) => element.checkVisibility({ visibilityProperty: true });
  window.walk = { problems: [], forms: [], last: null, count: 0 };
  document.addEventListener("focusin", ({ target }) => {
    if (!main.contains(target) || target === main) return;
    if (target === walk.last) return;
    const name = target.outerHTML.slice(0, 120);
    const shown = target.classList.contains("visually-hidden") ? target.labels[0] : target;
    const style = getComputedStyle(shown);
    const box = shown.getBoundingClientRect();
    if (target.dataset.reached) walk.problems.push(`reached twice: ${name}`);
    target.dataset.reached = "yes";
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) walk.problems.push(`without a visible focus: ${name}`);
    if (!(box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth)) walk.problems.push(`out of sight: ${name}`);
    const follows = Node.DOCUMENT_POSITION_FOLLOWING;
    if (walk.last && !(walk.last.compareDocumentPosition(target) & follows)) walk.problems.push(`out of order: ${name}`);
    walk.last = target;
    if (target.form && (target.type === "submit" || target.type === "image"))
      walk.forms.push(`${(target.getAttribute("formmethod") || target.form.method).toUpperCase()} ` +
        new URL(target.getAttribute("formaction") || target.form.getAttribute("action") || "", location.href).pathname);
  });
  main.focus();
  return [...main.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
    .filter((element) => shows(element) && element.type !== "hidden" && !element.disabled).length;
}
"""
"""Opens the questions before an action, notes what gets the focus, and returns how many controls there are."""
_IS_INSIDE = """
() => document.hasFocus() && document.activeElement !== document.body && document.getElementById("content").contains(document.activeElement)
"""
_END_WALK = (
    """
() => {
  const left = ("""
    + _LEFT_OUT.strip()
    + """)();
  const focusable = "a[href], button, input, select, textarea, summary, label, [tabindex]";
  const clickable = [...document.querySelectorAll("main *")]
    .filter((element) => getComputedStyle(element).cursor === "pointer" && !element.closest(focusable));
  return {
    problems: [
      ...walk.problems,
      ...left.map((element) => `not reached: ${element}`),
      ...clickable.map((element) => `clickable without focus: ${element.outerHTML.slice(0, 120)}`),
      ...[...document.querySelectorAll("[tabindex]")]
        .filter((element) => element.tabIndex > 0)
        .map((element) => `has an order of its own: ${element.outerHTML.slice(0, 120)}`),
    ],
    forms: walk.forms,
  };
}
"""
)
"""What is wrong after a walk, and the forms whose buttons were reached."""
FORMS = ("/domains/blocked.example", "/domains/blocked.example/remove")
"""Further states of pages, with forms that `PATHS` does not show."""
OTHER_STATES = {
    *("POST /account/keys/{id}/revoke", "POST /account/sessions/{id}/end", "POST /domains/{domain}/remove"),
    *("POST /jobs/{job}/resume", "POST /jobs/{job}/scope", "POST /jobs/{job}/scope/undo", "POST /pages/retry"),
    *("POST /proxies/domains/{domain}/{id}/enable", "POST /tasks/{id}/pause", "POST /tasks/{id}/resume"),
    *("POST /tasks/{id}/restart-parsing", "POST /users/{name}/enable", "POST /users/{name}/sessions/end"),
    "POST /webhooks/retry",
}
"""Forms of states that the furnished store has not: a paused job or task, a second session, messages that were given up.
Their buttons are made by the same macros; the preview of a scope is applied by keyboard below."""


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


def _walk(page: Page, path: str) -> tuple[list[str], set[str]]:
    """Press Tab from the beginning of the content to its end: what is wrong, and the forms whose buttons were reached."""
    shown = page.evaluate(_BEGIN_WALK)
    for _ in range(MAX_STEPS // 10):
        for _ in range(max(1, shown)):
            page.keyboard.down("Tab")  # held down, which costs half as much as to press it again and again
        page.keyboard.up("Tab")
        if not page.evaluate(_IS_INSIDE):
            break
        shown = 3  # a field for a time has several parts
    else:
        return [f"{path}: Tab does not come to the end of the page"], set()
    found = page.evaluate(_END_WALK)
    return [f"{path}: {problem}" for problem in found["problems"]], set(found["forms"])


def test_tab_reaches_every_action_of_every_page_and_the_focus_is_seen(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]
) -> None:
    page = visitor(dashboard.origin).open("/login")
    _log_in(dashboard, page)
    # Without its script, so that no live region takes its elements away in the middle of the walk.
    page.route("**/dashboard.js*", lambda route: route.abort())
    problems: list[str] = []
    forms: set[str] = set()
    for path in (*(path for path in PATHS[1:] if path not in MISSING), *FORMS):
        page.goto(dashboard.origin + address(path, names))
        found, reached = _walk(page, path)
        problems += found
        forms |= reached
    page.goto(f"{dashboard.origin}/alerts")
    unseen = [focused for focused in _steps(page) if not (focused["outlined"] and focused["visible"])]
    assert unseen == [], "what all pages have: navigation, search, switches"
    assert problems == []
    assert page.evaluate(_LEFT_OUT.replace("main :is", "body :is")) == []
    forms |= {"POST /logout", "POST /login"}  # above: before the content, and `_log_in`
    posts = {
        name: _pattern(name) for name, policy in ROUTES.items() if name.startswith("POST /") and "/api/" not in name
    }
    unreached = {name for name, pattern in posts.items() if not any(pattern.fullmatch(form) for form in forms)}
    assert unreached <= OTHER_STATES, unreached - OTHER_STATES


def _pattern(route: str) -> re.Pattern[str]:
    """The addresses of a route."""
    return re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(route)))


def test_tab_reaches_every_control_of_a_narrow_page(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]
) -> None:
    page = visitor(dashboard.origin, viewport={"width": 390, "height": 800}).open("/login")
    _log_in(dashboard, page)
    page.route("**/dashboard.js*", lambda route: route.abort())
    problems: list[str] = []
    for path in (
        "/jobs",
        "/jobs/{job}",
        "/jobs/{job}/scope",
        "/domains",
        "/domains/{domain}",
        "/pages/changes?url={url}",
    ):
        page.goto(dashboard.origin + address(path, names))
        problems += _walk(page, path)[0]
    assert problems == []


def test_each_kind_of_control_does_its_work_by_keyboard(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str]
) -> None:
    page = visitor(dashboard.origin).open("/login")
    _log_in(dashboard, page)
    page.goto(f"{dashboard.origin}/domains")
    _press(page, "#theme", "Space")
    chosen = page.evaluate("document.documentElement.dataset.theme")
    _press(page, "#theme", "Enter")
    assert {chosen, page.evaluate("document.documentElement.dataset.theme")} == {"light", "dark"}
    _press(page, "#zone")
    expect(page.locator("#zone")).to_have_text("UTC")
    _go_to(page, "select[name=order]")
    page.keyboard.press("ArrowDown")
    assert page.locator("select[name=order]").input_value() != "name"
    page.keyboard.press("Tab")
    _press(page, "main form.filters button")
    page.wait_for_url("**/domains?*order=*")
    _go_to(page, "main input[name=name]")
    page.keyboard.type("blocked")
    page.keyboard.press("Enter")
    expect(page.locator("main table")).to_contain_text("blocked.example")
    _go_to(page, "input[name=q]")
    page.keyboard.type("blocked.example")
    page.keyboard.press("Enter")
    page.wait_for_url("**/domains/blocked.example")

    page.goto(dashboard.origin + address("/jobs/{job}", names))
    expect(page.locator("#live-status")).to_have_text("Live", timeout=15_000)
    page.locator("#content").focus()
    page.keyboard.press("Control+a")
    expect(page.locator("#live-status")).to_have_text("Paused while text is selected", timeout=15_000)
    page.keyboard.press("Escape")
    page.evaluate("getSelection().removeAllRanges()")
    _press(page, "#not-crawled a")
    page.wait_for_url("**/urls?reason=*")

    page.goto(dashboard.origin + address("/pages/changes?url={url}", names))
    radios = page.locator("input[type=radio][name=older]")
    if radios.count() > 1:
        _go_to(page, "input[type=radio][name=older]:checked")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.name === 'older' && document.activeElement.checked")

    page.goto(f"{dashboard.origin}/jobs/new")
    with page.expect_file_chooser():
        _press(page, "#field-file", "Space")
    _go_to(page, "main form details summary")
    before = page.evaluate("document.activeElement.parentElement.open")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open") != before


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
