"""What must hold on every page of the dashboard, in the light of a wide screen and in the dark of a phone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import Dashboard, MakeVisitor
from tests.browser.furnished import MISSING, PATHS, address, furnish

HOSTILE: Final = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
    '"\'><a href="javascript:alert(4)">x</a><iframe srcdoc="<script>alert(5)</script>"></iframe>'
    "{{ 7*7 }}{% raw %}${7*7}#{7*7}<style>*{display:none}</style>"
    "\u202egnp.exe\u2066\u200f\x07\x1b[31m&lt;b&gt;" + "W" * 100_000
)
"""What a page of the web may put into its title, and a careless operator into a name."""
_WIDE: Final = 1280
_NARROW: Final = 390
_CRAWL: Final = ("/login", "/overview", "/jobs", "/domains", "/pages")
CRAWL: Final = tuple(path for path in PATHS if path.startswith(_CRAWL))
ODD: Final = (
    "/search?q={hostile}",
    "/documents?q={hostile}",
    "/documents?q=alert",
    "/pages?title={hostile}",
    "/pages?url_prefix={odd}",
    "/pages/page?url={odd}",
    "/pages/links?url={odd}",
    "/pages/page?url=javascript:alert(1)",
    "/jobs/{hostile}",
    "/domains?name={hostile}",
    "/items?url={hostile}",
    "/products?search={hostile}",
    "/audit?actor={hostile}",
)
"""What a link to the dashboard may have in its address."""
DATA: Final = tuple(path for path in PATHS if path not in CRAWL)
"""All pages, in two halves: a file of tests is one unit of scheduling."""


def judge(dashboard: Dashboard, visitor: MakeVisitor, paths: Sequence[str]) -> None:
    """Furnish the store with hostile text, load each of these pages once, and fail with all that is wrong with them."""
    crawls = dashboard.crawls
    names = furnish(crawls.database, crawls.connection, Path(crawls.folder) / "data" / "archive", HOSTILE)
    names |= {"hostile": HOSTILE[:1500]}
    page = visitor(dashboard.origin).log_in("admin", dashboard.password)
    found: list[str] = []
    for path in paths:
        here = address(path, names)
        page.set_viewport_size({"width": _WIDE, "height": 900})
        page.emulate_media(color_scheme="light")
        answer = page.goto(dashboard.origin + here)
        assert answer is not None
        if path not in ODD and answer.status != (404 if path in MISSING else 200):
            found.append(f"{path}: status {answer.status}")
        problems = [*_of_hostile_text(page), *_of_width(page, _WIDE), *_of_axe(page)]
        page.set_viewport_size({"width": _NARROW, "height": 800})
        page.emulate_media(color_scheme="dark")
        problems += [*_of_width(page, _NARROW), *_of_contrast(page)]
        found += [f"{path}: {problem}" for problem in problems]
    assert not found, "\n".join(found)


def _of_hostile_text(page: Page) -> list[str]:
    problems = [] if page.locator("main").is_visible() else ["it is hidden"]
    if page.evaluate("document.querySelectorAll('main script, main iframe, main style').length"):
        problems.append("it has an element of the hostile text")
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map(link => link.protocol)")
    return problems + [f"a link of {scheme}" for scheme in set(links) - {"http:", "https:"}]


def _of_width(page: Page, limit: int) -> list[str]:
    width = page.evaluate("document.documentElement.scrollWidth")
    return [f"{width} px wide on a screen of {limit}"] if width > limit else []


def _of_axe(page: Page) -> list[str]:
    return [
        f"{violation['id']} {[node['html'][:120] for node in violation['nodes'][:2]]}"
        for violation in Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        if violation["impact"] in {"serious", "critical"}
    ]


def _of_contrast(page: Page) -> list[str]:
    options = {"runOnly": ["color-contrast"], "resultTypes": ["violations"]}
    violations = page.evaluate(
        "async (options) => (await axe.run(document, options)).violations", options
    )  # it is there
    return [f"contrast in the dark: {violation['nodes'][0]['html'][:120]}" for violation in violations]
