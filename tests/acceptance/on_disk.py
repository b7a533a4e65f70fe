"""What a crawl of a folder must find, read from its files by the standard library alone: no code of Holdfast is used here.

The rule: a page is read with `html.parser`, and what it names is looked up in the folder as nginx would: a folder is answered with its
index page, or with a list of its entries.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

BASE = "http://127.0.0.1"
PAGES = frozenset({".html", ".htm", ".xhtml"})
IMAGES = frozenset({".png", ".gif", ".jpg", ".jpeg", ".svg", ".ico", ".webp", ".bmp", ".tif", ".tiff", ".avif"})
DOCUMENTS = frozenset({".pdf", ".txt", ".xml", ".json", ".rss", ".csv"})
"""Files that `--types all` takes, of those that nginx names by type."""
_IN_STYLES = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
_LINKS = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}
_LOADED = {"link": "href", "script": "src", "object": "data", "embed": "src"}


class _Markup(HTMLParser):
    """The references of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.images: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        if (href := given.get(_LINKS.get(tag, ""))) is not None:
            self.links.append(href)
        elif tag == "object" and given.get("type", "").startswith("image/") and "data" in given:
            self.images.append(given["data"])
        elif (href := given.get(_LOADED.get(tag, ""))) is not None:
            self.loaded.append(href)
        elif tag == "img" and "src" in given:
            assert "srcset" not in given, "this reader knows no candidates"
            self.images.append(given["src"])
        elif tag == "image" and (href := given.get("xlink:href", given.get("href"))) is not None:
            self.images.append(href)
        elif tag == "meta" and given.get("property") == "og:image":
            self.images.append(given.get("content", ""))


@dataclass
class Tree:
    """A folder, and what its pages name. Paths of URLs are decoded."""

    root: Path
    pages: dict[str, Path | None] = field(default_factory=dict)
    """Pages that links reach, by path of URL; None: a list of a folder."""
    linked: dict[str, Path] = field(default_factory=dict)
    """Other files that links reach."""
    shown: set[tuple[str, str]] = field(default_factory=set)
    """Paths of a page and of an image that it shows, whether the image exists or not."""
    loaded: set[Path] = field(default_factory=set)
    """Style sheets, scripts and what style sheets name."""
    broken: set[str] = field(default_factory=set)
    """Links to nothing."""

    @classmethod
    def read(cls, root: Path) -> "Tree":
        """Follow all links from the first page."""
        tree = cls(root.resolve())
        open_paths = ["/"]
        while open_paths:
            path = open_paths.pop()
            if path in tree.pages or path in tree.linked or path in tree.broken:
                continue
            open_paths += tree._visit(path)
        return tree

    def file(self, path: str) -> Path | None:
        """The file that answers to a path of a URL; None: there is none."""
        file = self.root / path.lstrip("/")
        if path.endswith("/"):
            file /= "index.html"
        return file if file.is_file() else None

    def files(self) -> Iterator[Path]:
        """All files of the folder, also those behind links to folders, which nginx follows."""
        for folder, _, names in os.walk(self.root, followlinks=True):
            yield from (file for name in names if (file := Path(folder, name)).is_file())

    def _visit(self, path: str) -> list[str]:
        """Read what is at a path; return the paths that it links to."""
        file, folder = self.file(path), self.root / path.lstrip("/")
        if file is None and folder.is_dir():
            if not path.endswith("/"):
                return [f"{path}/"]  # nginx redirects
            self.pages[path] = None
            return self._follow(path, _listing(folder))
        if file is None:
            self.broken.add(path)
            return []
        if file.suffix not in PAGES:
            self.linked[path] = file
            return []
        self.pages[path] = file
        return self._follow(path, file.read_text("utf-8", "replace"))

    def _follow(self, path: str, text: str) -> list[str]:
        markup = _Markup()
        markup.feed(text)
        self.shown |= {(path, image) for image in paths(path, markup.images)}
        self._load(paths(path, markup.loaded))
        return paths(path, markup.links)

    def _load(self, found: Iterable[str]) -> None:
        for path in found:
            file = self.file(path)
            if file is None or file in self.loaded or file.suffix in PAGES:
                continue
            self.loaded.add(file)
            if file.suffix == ".css":
                named = _IN_STYLES.findall(file.read_text("utf-8", "replace"))
                self._load(paths(path, [one or other for one, other in named]))


def paths(page: str, references: Iterable[str]) -> list[str]:
    """The paths of references on this server, as a page writes them."""
    found = []
    for reference in references:
        try:
            parts = urlsplit(urljoin(BASE + quote(page), reference.strip()))
        except ValueError:
            continue
        if f"{parts.scheme}://{parts.netloc}" == BASE:
            found.append(unquote(parts.path) or "/")
    return found


def _listing(folder: Path) -> str:
    """The links of a list that nginx writes."""
    names = [f"{one.name}/" if one.is_dir() else one.name for one in folder.iterdir() if not one.name.startswith(".")]
    return "".join(f'<a href="{escape(quote(name))}">' for name in names)


@cache
def sha256(file: Path) -> str:
    """The hash of a file, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
