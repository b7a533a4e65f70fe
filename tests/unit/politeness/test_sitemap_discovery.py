"""Where sitemaps are looked for."""

import pytest

from holdfast.politeness.robots_txt import ALLOW_ALL, UNREACHABLE, Robots
from holdfast.politeness.sitemap_discovery import MAX_SITEMAPS, sitemap_urls

ORIGIN = "https://x.test:8443"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [f"{ORIGIN}/sitemap.xml"]),
        ("Sitemap:\nUser-agent: *\nDisallow: /", [f"{ORIGIN}/sitemap.xml"]),
        ("Sitemap: ftp://x.test/a\nSitemap: http://[bad/", [f"{ORIGIN}/sitemap.xml"]),
        ("SITEMAP: https://cdn.test/a.xml.gz # all", ["https://cdn.test/a.xml.gz"]),
        (
            "sitemap: /b.xml\nUser-agent: other\nSite-map: c.xml\nSitemap: HTTPS://x.test:8443/d/../b.xml",
            [f"{ORIGIN}/b.xml", f"{ORIGIN}/c.xml"],
        ),
    ],
)
def test_places(text: str, expected: list[str]) -> None:
    assert sitemap_urls(Robots(text), ORIGIN) == expected


def test_a_site_without_robots_and_a_hostile_one() -> None:
    assert sitemap_urls(ALLOW_ALL, ORIGIN) == sitemap_urls(UNREACHABLE, ORIGIN) == [f"{ORIGIN}/sitemap.xml"]
    assert len(sitemap_urls(Robots("".join(f"Sitemap: /{n}\n" for n in range(5000))), ORIGIN)) == MAX_SITEMAPS
