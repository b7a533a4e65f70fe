"""Where the sitemaps of an origin are looked for: the lines of its robots.txt, else `/sitemap.xml`.

The rule: what the site names is taken, on any host; whether it may be fetched is decided like for every other URL. Only a site that names
none is asked for the name that most use.
"""

from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.url import DEFAULT_RULES, UrlRules, resolve
from holdfast.politeness.robots_txt import Robots

DEFAULT_PATH: Final = "/sitemap.xml"
MAX_SITEMAPS: Final = 1000
"""Lines of a robots.txt that are followed; large sites name some hundred, and an index is what the protocol has for more."""


def sitemap_urls(robots: Robots, origin: str, rules: UrlRules = DEFAULT_RULES) -> list[str]:
    """Return the normalized URLs of sitemaps to look for, without duplicates. Relative ones, which the protocol forbids, are resolved."""
    found: dict[str, None] = {}
    for line in robots.sitemaps():
        if len(found) == MAX_SITEMAPS:
            break
        try:
            found[resolve(f"{origin}/", line, rules)] = None
        except BadUrl:
            continue
    return list(found) or [f"{origin}{DEFAULT_PATH}"]
