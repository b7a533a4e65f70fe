"""Pictures of every page of the dashboard: light and dark, wide and narrow, with data and empty, in .screenshots.

At the end it lists the pages with a table that is wider than its panel on a wide screen.

python -m tests.browser.screenshots [WORD …]    only pages with one of these words in their address
python -m tests.browser.screenshots --readme    the three small ones of the README, in docs/images
"""

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize

from holdfast import factories
from holdfast.db.connection import Connection
from holdfast.model.auth import Role
from tests.browser import chromium
from tests.browser.chromium import Visitor
from tests.browser.furnished import PATHS, address, furnish
from tests.support.api import PASSWORD, serving, settings
from tests.support.servers import data_in_memory

FOLDER = Path(".screenshots")
README = {"overview": "/overview?range=24h", "job": "/jobs/{job}", "changes": "/pages/changes?url={url}"}
README_FOLDER = Path("docs/images")
SIZES: Mapping[str, ViewportSize] = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}
_HAS_CLIPPED_TABLE = "[...document.querySelectorAll('.scroll')].some((box) => box.scrollWidth > box.clientWidth)"


def main(words: Sequence[str]) -> None:
    """Take the pictures and say where they are."""
    FOLDER.mkdir(exist_ok=True)
    paths = [path for path in PATHS if not words or any(word in path for word in words)]
    count = 0
    with data_in_memory() as data, chromium.browser() as browser:
        given = settings(data)
        database = factories.store(given, print)
        with database.session() as connection:
            with serving(database, given) as api:
                api.user("admin", Role.ADMIN)
                if words != ["--readme"]:
                    empty = [path for path in paths if "{" not in path]
                    count += _take(browser, api.url, "empty", empty, {}, connection)
            names = furnish(database, connection, factories.archive_folder(given))
            # Another server: figures that the first one keeps are of the empty store.
            with serving(database, given) as api:
                if words == ["--readme"]:
                    _take_for_readme(browser, api.url, names, connection)
                    return
                count += _take(browser, api.url, "data", paths, names, connection)
    print(f"{count} pictures in {FOLDER}")


def _take_for_readme(browser: Browser, origin: str, names: Mapping[str, str], connection: Connection) -> None:
    """Take the pictures of the README, as WebP of what a window shows."""
    README_FOLDER.mkdir(exist_ok=True)
    visitor = Visitor.at(browser, origin, viewport={"width": 1240, "height": 780})
    page = visitor.log_in("admin", PASSWORD)
    connection.execute(
        "UPDATE users SET created_at = created_at - interval '1 day'"
    )  # the hint about first passwords is not for readers
    for name, path in README.items():
        _load(page, origin + address(path, names), connection)
        taken = visitor.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "webp", "quality": 70})
        (README_FOLDER / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))


def _load(page: Page, url: str, connection: Connection) -> None:
    """Load a page while its workers are alive, and wait until its live regions have come."""
    connection.execute("UPDATE workers SET heartbeat_at = now() WHERE name <> 'w3'")
    page.goto(url)
    page.evaluate("for (const image of document.images) image.loading = 'eager'")
    page.evaluate("Promise.allSettled([...document.images].map((image) => image.decode()))")
    if page.locator("[data-live]").count():
        page.locator("#live-status[data-kind=live]").wait_for()


def _take(
    browser: Browser, origin: str, what: str, paths: Sequence[str], names: Mapping[str, str], connection: Connection
) -> int:
    """Take pictures of these pages, each page loaded once for all its sizes and colours."""
    visitor = Visitor.at(browser, origin)
    page = visitor.log_in("admin", PASSWORD)
    count = 0
    for path in paths:
        _load(page, origin + address(path, names), connection)
        name = re.sub(r"\W+", "-", path).strip("-")
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            if size == "wide" and page.evaluate(_HAS_CLIPPED_TABLE):
                print(f"A table is wider than its panel: {path}")
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=FOLDER / f"{name}-{what}-{scheme}-{size}.png", full_page=True)
                count += 1
    visitor.context.close()
    return count


if __name__ == "__main__":
    main(sys.argv[1:])
