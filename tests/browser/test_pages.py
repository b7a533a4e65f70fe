"""Every page in a browser: hostile text does nothing, nothing leaves the origin, no serious barrier, and it fits a phone."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.chromium import Visitor
from tests.browser.conftest import Dashboard, Serve
from tests.browser.furnished import PATHS, furnish, site
from tests.support.dynamic_site import Site, served

MakeVisitor = Callable[..., Visitor]
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
    '"\'><a href="javascript:alert(4)">x</a><iframe srcdoc="<script>alert(5)</script>"></iframe>'
    "{{ 7*7 }}{% raw %}${7*7}#{7*7}<style>*{display:none}</style>"
    "\u202egnp.exe\u2066\u200f\x07\x1b[31m&lt;b&gt;" + "W" * 100_000
)
"""What a page of the web may put into its title."""


def _visit(
    dashboard: Dashboard, visitor: MakeVisitor, names: dict[str, str], look: Callable[[Page, str], None]
) -> None:
    page = visitor(dashboard.origin).log_in("admin", dashboard.password)
    for path in PATHS:
        if "{" in path and not names:
            continue
        address = path.format(**{name: quote(value, safe="") for name, value in names.items()})
        answer = page.goto(dashboard.origin + address)
        assert answer is not None
        assert answer.status == 200, address
        look(page, address)


@pytest.fixture
def furnished(serve: Serve) -> tuple[Dashboard, dict[str, str]]:
    """A server on a store with something of everything."""
    dashboard = serve("--api-only")
    with served(site()) as web:
        return dashboard, furnish(dashboard.crawls, web.url)


def test_hostile_text_runs_nothing_and_breaks_no_page(serve: Serve, visitor: MakeVisitor) -> None:
    dashboard = serve("--api-only")
    with served(site(HOSTILE)) as web:
        names = furnish(dashboard.crawls, web.url)
        _rename(dashboard, web)

        def look(page: Page, address: str) -> None:
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 1280, f"{address} is {width} px wide"
            assert page.locator("main").is_visible(), f"{address} is hidden"
            assert page.evaluate("document.querySelectorAll('main script, main iframe, main style').length") == 0, (
                address
            )
            links = page.evaluate("[...document.querySelectorAll('a[href]')].map(link => link.protocol)")
            assert set(links) <= {"http:", "https:"}, address

        _visit(dashboard, visitor, names, look)


def _rename(dashboard: Dashboard, web: Site) -> None:
    """Put hostile text where operators write: names of a job, a worker, a provider of proxies."""
    connection = dashboard.crawls.connection
    text = HOSTILE.replace("\x07", "").replace("\x1b", "")[:200]
    connection.execute("UPDATE proxies SET provider = %s, city = %s", (text[:100], text[:100]))
    connection.execute("INSERT INTO crawl_jobs (name, state) VALUES (%s, 'pending')", (f"{text[:80]}{web.port}",))


def test_no_serious_barrier_on_any_page(furnished: tuple[Dashboard, dict[str, str]], visitor: MakeVisitor) -> None:
    dashboard, names = furnished
    found: list[str] = []

    def look(page: Page, address: str) -> None:
        for violation in Axe().run(page).response["violations"]:
            if violation["impact"] in {"serious", "critical"}:
                nodes = [node["html"][:120] for node in violation["nodes"][:2]]
                found.append(f"{address}: {violation['id']} {nodes}")

    _visit(dashboard, visitor, names, look)
    assert found == []


def test_every_page_fits_a_phone_and_its_contrast_holds_in_the_dark(
    furnished: tuple[Dashboard, dict[str, str]], visitor: MakeVisitor
) -> None:
    dashboard, names = furnished
    found: list[str] = []
    axe = Axe()

    def look(page: Page, address: str) -> None:
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            found.append(f"{address} is {width} px wide")
        violations = axe.run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
        found.extend(f"{address}: {violation['nodes'][0]['html'][:120]}" for violation in violations)

    def narrow(origin: str) -> Visitor:
        return visitor(origin, viewport={"width": 390, "height": 800}, color_scheme="dark")

    _visit(dashboard, narrow, names, look)
    assert found == []


def test_empty_pages_say_what_to_do(serve: Serve, visitor: MakeVisitor) -> None:
    dashboard = serve("--api-only")
    _visit(dashboard, visitor, {}, lambda page, address: _has_text(page, address))


def _has_text(page: Page, address: str) -> None:
    assert len(page.locator("main").inner_text()) > 40, f"{address} says nothing"
