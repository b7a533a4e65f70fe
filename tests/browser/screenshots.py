"""Pictures of every page of the dashboard: light and dark, wide and narrow, with data and empty, in .screenshots.

python -m tests.browser.screenshots
"""

import re
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser

from holdfast import factories
from holdfast.model.auth import Role
from tests.browser import chromium
from tests.browser.chromium import Visitor
from tests.browser.furnished import PATHS, furnish, site
from tests.support.api import PASSWORD, serving, settings
from tests.support.crawls import Crawls
from tests.support.dynamic_site import served
from tests.support.servers import data_in_memory

FOLDER = Path(".screenshots")
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}


def main() -> None:
    """Take all pictures and say where they are."""
    FOLDER.mkdir(exist_ok=True)
    with data_in_memory() as data, chromium.browser() as browser:
        given = settings(data)
        database = factories.store(given, print)
        with serving(database, given) as api:
            api.user("admin", Role.ADMIN)
            count = _take(browser, api.url, "empty", {})
            with database.session() as connection, served(site()) as web:
                crawls = Crawls(database, connection, data.parent)
                names = furnish(crawls, web.url)
            count += _take(browser, api.url, "data", names)
    print(f"{count} pictures in {FOLDER}")


def _take(browser: Browser, origin: str, what: str, names: dict[str, str]) -> int:
    count = 0
    for scheme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            viewport = {"width": width, "height": height}
            somebody = Visitor.at(browser, origin, viewport=viewport, color_scheme=scheme)
            page = somebody.log_in("admin", PASSWORD)
            for path in PATHS:
                if "{" in path and not names:
                    continue
                page.goto(origin + path.format(**{name: quote(value, safe="") for name, value in names.items()}))
                name = re.sub(r"\W+", "-", path.partition("?")[0]).strip("-")
                page.screenshot(path=FOLDER / f"{name}-{what}-{scheme}-{size}.png", full_page=True)
                count += 1
            somebody.context.close()
    return count


if __name__ == "__main__":
    main()
