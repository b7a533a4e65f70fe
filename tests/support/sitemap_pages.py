"""Sitemaps for sites whose pages a test writes itself."""

from tests.support.pages import Page


def xml(text: str) -> Page:
    """A document."""
    return Page(text.encode(), headers={"Content-Type": "application/xml"})


def urlset(*urls: str, lastmod: str = "2026-01-02T03:04:05Z") -> Page:
    """A sitemap of pages, all changed at one time."""
    return dated(dict.fromkeys(urls, lastmod))


def dated(urls: dict[str, str]) -> Page:
    """A sitemap of pages, each with the time of its last change."""
    entries = "".join(f"<url><loc>{url}</loc><lastmod>{lastmod}</lastmod></url>" for url, lastmod in urls.items())
    return xml(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>')


def index(*urls: str) -> Page:
    """An index of sitemaps."""
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return xml(f"<sitemapindex>{entries}</sitemapindex>")


def robots(*lines: str) -> Page:
    """A robots.txt."""
    return Page("\n".join(lines).encode(), headers={"Content-Type": "text/plain"})
