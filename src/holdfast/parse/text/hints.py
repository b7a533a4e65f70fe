"""Hints of a page about itself: title, author, date, language, name of the site, and the types and texts of its structured data.

Owns which statement counts if there are several. The rule: JSON-LD before Open Graph before other `meta` elements before the text; what is
not stated is None, nothing is made up.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser

from holdfast.model.parse_result import single_line
from holdfast.parse import structured_data
from holdfast.parse.structured_data import Graph, Item

MAX_TITLE: Final = 500
MAX_NAME: Final = 200
"""Characters of an author or the name of a site."""
MAX_TEXT: Final = 100_000
"""Characters of the texts of structured data that are compared with the page."""
_MAX_ITEMS: Final = 500
_MAX_METAS: Final = 500
_WORKS: Final = frozenset(
    {
        "Article", "NewsArticle", "BlogPosting", "TechArticle", "ScholarlyArticle", "Report", "SocialMediaPosting",
        "DiscussionForumPosting",
        "QAPage", "Question", "WebPage", "Product", "ItemPage", "AboutPage", "FAQPage", "HowTo", "Recipe", "Review", "LiveBlogPosting",
        "APIReference", "Course", "Event", "JobPosting", "Book", "CreativeWork", "ProductGroup", "Service",
    }
)  # fmt: skip
"""Types of items whose properties are those of the page."""
_UNDATED: Final = frozenset({"WebSite", "Organization", "BreadcrumbList", "ImageObject", "Comment", "Answer", "Person"})
_TITLE_META: Final = ("og:title", "twitter:title", "dc.title", "citation_title")
_AUTHOR_META: Final = (
    "author",
    "article:author",
    "dc.creator",
    "parsely-author",
    "sailthru.author",
    "citation_author",
    "twitter:creator",
)
_DATE_META: Final = (
    "article:published_time", "og:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "dcterms.created", "pubdate",
    "publishdate", "publish-date", "parsely-pub-date", "sailthru.date", "citation_publication_date", "citation_date", "article:published",
)  # fmt: skip
_SITE_META: Final = ("og:site_name", "application-name", "apple-mobile-web-app-title")
_DESCRIPTION_META: Final = ("description", "og:description", "twitter:description")
_DATE: Final = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_BARE_DATE: Final = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)")
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_WRITTEN_DATE: Final = re.compile(
    r"\b(?:(\d{1,2})(?:st|nd|rd|th)?\s+)?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?:(\d{1,2})(?:st|nd|rd|th)?,?\s+)?"
    r"((?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_TITLE_END: Final = re.compile(r"\s+[|\u2013\u2014\u00b7\u00bb•-]\s+")
_LOCALE: Final = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


@dataclass(slots=True)
class Hints:
    """The statements of a page about itself."""

    title: str | None = None
    page_title: str = ""
    """The text of the `title` element, which mostly has the name of the site too."""
    author: str | None = None
    published: date | None = None
    language: str | None = None
    site_name: str | None = None
    types: set[str] = field(default_factory=set)
    """Types of JSON-LD, and the type of Open Graph, as `og:article`."""
    description: str = ""
    body: str = ""
    """Texts of structured data: `articleBody`, `text` and `description` of the items that are the page."""


def read_hints(tree: LexborHTMLParser) -> Hints:
    """Read the hints. Before: the tree is whole."""
    hints = Hints()
    metas = _metas(tree)
    items = structured_data.json_ld(tree)[:_MAX_ITEMS]
    _read_items(items, hints)
    head_title = tree.css_first("title")
    hints.page_title = single_line(head_title.text())[:MAX_TITLE] if head_title is not None else ""
    hints.title = _short_title(_first(metas, _TITLE_META) or hints.title or hints.page_title, metas)
    hints.author = hints.author or _name(_first(metas, _AUTHOR_META))
    dates = (parse_date(metas[name]) for name in _DATE_META if name in metas)
    hints.published = hints.published or next((day for day in dates if day is not None), None)
    hints.site_name = single_line(_first(metas, _SITE_META) or hints.site_name or "")[:MAX_NAME] or None
    hints.description = _first(metas, _DESCRIPTION_META) or ""
    root = tree.root
    stated = (root.attributes.get("lang") or root.attributes.get("xml:lang") if root is not None else None) or ""
    found = _LOCALE.match((stated or metas.get("content-language") or metas.get("og:locale") or "").strip())
    hints.language = found[0].replace("_", "-")[:20] if found else None
    if kind := metas.get("og:type"):
        hints.types.add(f"og:{kind.lower()[:30]}")
    if hints.author is None or hints.published is None:
        _read_marked(tree, hints)
    return hints


def _metas(tree: LexborHTMLParser) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.css("meta")[:_MAX_METAS]:
        attributes = node.attributes
        name = (
            attributes.get("property")
            or attributes.get("name")
            or attributes.get("itemprop")
            or attributes.get("http-equiv")
        )
        if name and (content := attributes.get("content")):
            found.setdefault(name.strip().lower(), single_line(content[:5000]))
    return found


def _first(metas: dict[str, str], names: Iterable[str]) -> str | None:
    return next((value for name in names if (value := metas.get(name))), None)


def _short_title(title: str, metas: dict[str, str]) -> str | None:
    """Remove the name of the site from the end or the beginning of a title, if it is stated."""
    site = (_first(metas, _SITE_META) or "").casefold()
    parts = _TITLE_END.split(title)
    if site and len(parts) > 1:
        if parts[-1].casefold() == site:
            title = title[: title.rfind(parts[-1])].rstrip(" |\u2013\u2014\u00b7\u00bb•-")
        elif parts[0].casefold() == site:
            title = title[len(parts[0]) :].lstrip(" |\u2013\u2014\u00b7\u00bb•-")
    return single_line(title)[:MAX_TITLE] or None


def _name(text: str | None) -> str | None:
    """Return the name of a person; None: it is an address, a handle, or too long for a name."""
    name = single_line(text or "").removeprefix("By ").removeprefix("by ")
    return name if name and len(name) <= MAX_NAME and "://" not in name and not name.startswith("@") else None


def _read_items(items: list[Item], hints: Hints) -> None:
    graph = Graph(items)
    texts: list[str] = []
    size = 0
    for number, item in enumerate(graph.all(include_related=False)):
        if number == _MAX_ITEMS:
            break
        kinds = structured_data.types(item)
        hints.types.update(kind for kind in kinds[:5] if len(kind) < 40)
        if "WebSite" in kinds and hints.site_name is None:
            hints.site_name = graph.text(item, "name")
        if _WORKS.isdisjoint(kinds):
            continue
        hints.title = hints.title or graph.text(item, "headline", "name")
        hints.author = hints.author or _name(graph.text(item, "author", "creator"))
        if hints.published is None and _UNDATED.isdisjoint(kinds):
            hints.published = parse_date(graph.text(item, "datePublished", "dateCreated", "uploadDate") or "")
        for name in ("articleBody", "text", "description"):
            value: Any = item.get(name)
            if isinstance(value, str) and size < MAX_TEXT:
                texts.append(value[: MAX_TEXT - size])
                size += len(texts[-1])
    hints.body = "\n".join(texts)


def _read_marked(tree: LexborHTMLParser, hints: Hints) -> None:
    """Read author and date from elements that are marked as such."""
    if hints.author is None:
        node = tree.css_first("[itemprop=author] [itemprop=name]") or tree.css_first(
            "[itemprop=author], [rel=author], .byline .author, .author-name"
        )
        if node is not None:
            hints.author = _name(node.attributes.get("content") or node.text(separator=" ")[:MAX_NAME])
    if hints.published is None:
        node = tree.css_first("[itemprop=datePublished]") or tree.css_first(
            "time[pubdate], article time[datetime], time[datetime]"
        )
        if node is not None:
            attributes = node.attributes
            hints.published = parse_date(attributes.get("datetime") or attributes.get("content") or node.text()[:100])


def parse_date(text: str) -> date | None:
    """Parse the first date of a text, as written: the time of day and the time zone do not move it."""
    text = text[:200]
    if found := _DATE.search(text) or _BARE_DATE.search(text):
        year, month, day = (int(found[i]) for i in (1, 2, 3))
    elif found := _WRITTEN_DATE.search(text):
        if not (found[1] or found[3]):
            return None
        year, month, day = int(found[4]), _MONTHS[found[2].lower()], int(found[1] or found[3])
    else:
        return None
    try:
        return date(year, month, day)
    except ValueError:
        return None
