"""Sitemaps against the files of crawler-commons; they are read where they lie."""

import gzip
import html
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.sitemap import EntryKind, SitemapEntry, SitemapFormat
from holdfast.parse.sitemap import read_sitemap

FOLDER = Path(os.environ.get("HOLDFAST_CONFORMANCE") or Path(__file__).parents[2].parent / "shared" / "conformance")
FILES = FOLDER / "sitemaps"

pytestmark = pytest.mark.skipif(
    not FILES.is_dir(),
    reason=f"there are no sitemaps in {FOLDER}; set HOLDFAST_CONFORMANCE to their folder",
)

EXPECTED = {
    "atom.xml": (SitemapFormat.ATOM, 1),
    "do-not-visit.txt": (SitemapFormat.TEXT, 1),
    "sitemap-with-bom.txt": (SitemapFormat.TEXT, 2),
    "sitemap.badns.xml": (SitemapFormat.URLSET, 2),
    "sitemap.index.xml": (SitemapFormat.INDEX, 15),
    "sitemap.ns.xml": (SitemapFormat.URLSET, 2),
    "sitemap.txt": (SitemapFormat.TEXT, 2),
    "sitemap.txt.gz": (SitemapFormat.TEXT, 5),
    "xmlSitemap.gz": (SitemapFormat.URLSET, 5),
    "extension/hebdenbridgetimes-articles-sitemap.xml": (SitemapFormat.URLSET, 74),
    "extension/pagemaps-sitemap.xml": (SitemapFormat.URLSET, 2),
    "extension/shinpaideshou-news-sitemap.xml": (SitemapFormat.URLSET, 3),
    "extension/sitemap-images.xml": (SitemapFormat.URLSET, 1),
    "extension/sitemap-links.xml": (SitemapFormat.URLSET, 3),
    "extension/sitemap-mobile.xml": (SitemapFormat.URLSET, 3),
    "extension/sitemap-news.xml": (SitemapFormat.URLSET, 2),
    "extension/sitemap-videos-tvshow.xml": (SitemapFormat.URLSET, 1),
    "extension/sitemap-videos.xml": (SitemapFormat.URLSET, 3),
}
"""Format and number of URLs: what crawler-commons' own tests expect of the files that they read, in their lenient mode."""

URL = re.compile(r"https?://[^\s<>\"]+")
ENTRY_URL = re.compile(r"<(?:sit:)?(?:loc|sitemap)>\s*(https?://[^<]*?)\s*</")
IMAGE = re.compile(r"<image:loc>([^<]*)</image:loc>")


def text_of(name: str) -> str:
    body = (FILES / name).read_bytes()
    return (gzip.decompress(body) if name.endswith(".gz") else body).decode("utf-8-sig")


def urls_of(name: str) -> list[str]:
    """The URLs of a file, found without an XML parser."""
    text = text_of(name)
    if EXPECTED[name][0] is SitemapFormat.TEXT:
        return URL.findall(text)
    if EXPECTED[name][0] is SitemapFormat.ATOM:
        return ["http://example.org/2003/12/13/atom03"]
    return [html.unescape(url) for url in ENTRY_URL.findall(text)]


def test_every_file(figure: Callable[[str], None]) -> None:
    names = sorted(str(path.relative_to(FILES)) for path in FILES.rglob("*") if path.is_file())
    wrong = []
    for name in names:
        entries, summary = read_sitemap((FILES / name).read_bytes())
        got = (summary.format, len(entries), [entry.url for entry in entries], summary.problem)
        if name not in EXPECTED:
            continue  # hostile or broken: it must only be survived
        if got != (*EXPECTED[name], urls_of(name), None):
            wrong.append((name, got))
        kind = EntryKind.SITEMAP if summary.format is SitemapFormat.INDEX else EntryKind.PAGE
        assert {entry.kind for entry in entries} == {kind}
    figure(f"conformance, sitemaps of crawler-commons: {len(names) - len(wrong)} of {len(names)} files")
    assert wrong == []
    assert set(names) >= set(EXPECTED)


def test_extensions() -> None:
    def read(name: str) -> list[SitemapEntry]:
        return read_sitemap((FILES / "extension" / name).read_bytes())[0]

    for name in ("sitemap-images.xml", "hebdenbridgetimes-articles-sitemap.xml"):
        found = [image for entry in read(name) for image in entry.images]
        assert found == IMAGE.findall(text_of(f"extension/{name}"))
    links = read("sitemap-links.xml")
    alternates = (
        ("de", "http://www.example.com/deutsch/"),
        ("de-ch", "http://www.example.com/schweiz-deutsch/"),
        ("en", "http://www.example.com/english/"),
    )
    assert {entry.alternates for entry in links} == {alternates}
    first = read("sitemap-news.xml")[0].news
    assert first is not None
    assert first.publication_date is not None
    assert (first.title, first.language) == ("Companies A, B in Merger Talks", "en")
    assert first.publication_date.isoformat() == "2008-12-23T00:00:00+00:00"
    dates = [entry.news and entry.news.publication_date for entry in read("shinpaideshou-news-sitemap.xml")]
    assert [date and date.year for date in dates] == [2017] * 3
