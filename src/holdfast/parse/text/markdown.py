"""Markdown and text of the blocks that are kept.

Owns the escaping. The rule: whatever the text of a page says, it stays text: what a CommonMark renderer makes of the Markdown has only
the headings, lists, tables, code, emphasis and links that the page has as elements, and links lead only to http, https and mailto. Time is
linear in the blocks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.model.document import ContentBlock, Heading
from holdfast.parse.plugin_api import absolute_url
from holdfast.parse.text.blocks import BREAK, CODE, EMPHASIS, IMAGE, STRIKE, STRONG, Block, Place, Run
from holdfast.parse.text.repeated import block_hash

MAX_COLUMNS: Final = 64
MAX_CELL: Final = 1000
"""Characters: a table with a longer cell is layout, not data."""
MAX_TITLE: Final = 500
"""Characters of the title of a heading in the list of headings."""
_MAX_LINK: Final = 2048

_SPECIAL: Final = re.compile(r"[\\`*\[\]<|~]|(?<!\w)_|_(?!\w)|&(?=#|\w+;)")
_SPECIAL_TEXT: Final = {"<": "&lt;", "&": "&amp;"}
_LINE_START: Final = re.compile(r"^(\s*)(?:([#>+=-])|(\d{1,9})([.)]))", re.MULTILINE)
_BACKTICKS: Final = re.compile(r"`+")
_BAD_IN_URL: Final = re.compile(
    r"[\s()<>\\\"|`\[\]{}^\x00-\x1f\x7f-\xa0\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|&(?=#|\w+;)"
)
_MAIL: Final = re.compile(r"mailto:[\w.+%-]{1,64}@[\w.-]{1,200}", re.ASCII | re.IGNORECASE)
_CODE_LANGUAGE: Final = re.compile(
    r"(?:^|[\s_-])(?:language|lang|highlight-source|highlight|brush:?|sourceCode|src)[-: ]+([A-Za-z][A-Za-z0-9_+#.]{0,19})(?=$|[\s_-])"
)
_NO_LANGUAGES: Final = frozenset({"default", "none", "notranslate", "text", "plaintext", "wrapper", "source", "code"})
_PERMALINKS: Final = frozenset({"¶", "#", "§", "🔗", "Link to this heading", "Permalink", "Anchor"})


@dataclass(slots=True)
class Rendered:
    """Markdown and text with the places of blocks and headings in both."""

    markdown: str
    text: str
    blocks: list[ContentBlock]
    headings: list[Heading]


@dataclass(slots=True)
class _Part:
    """A block of the result, before it is placed."""

    lines: list[str]
    text: str
    level: int = 0
    """Of a heading, 0 for anything else."""
    title: str = ""
    place: Place | None = None
    """The list item or quotation that it stands in."""


class Links:
    """Resolves the links of one page."""

    def __init__(self, base: str) -> None:
        self._base = base
        scheme, host = urlsplit(base)[:2]
        self._origin = f"{scheme}://{host}"

    def absolute(self, href: str) -> str | None:
        """Return a link as a Markdown target; None: it leads nowhere that is safe."""
        if href.startswith(("https://", "http://")):
            found: str | None = href if len(href) <= _MAX_LINK else None
        elif href.startswith("/") and not href.startswith(("//", "/\\")) and "/." not in href and len(href) < 1500:
            found = self._origin + href
        elif href[:1] == "#":
            found = self._base.partition("#")[0] + href if 1 < len(href) < 500 else None
        elif href[:7].lower() == "mailto:":
            address = _MAIL.match(href)
            return address[0] if address else None
        else:
            found = absolute_url(self._base, href)
        return _BAD_IN_URL.sub(_encode, found.strip()) if found is not None else None


def _encode(found: re.Match[str]) -> str:
    character = found[0]
    return "&amp;" if character == "&" else "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))


def render(blocks: Sequence[Block], base: str) -> Rendered:
    """Render blocks, which are in the order of the page. `base`: the URL against which links are resolved."""
    links = Links(base)
    out = _Output()
    for part in _parts(blocks, links):
        out.add(part)
    return out.finish()


class _Output:
    """The result, which grows by one part after the other."""

    def __init__(self) -> None:
        self._markdown: list[str] = []
        self._text: list[str] = []
        self._sizes = [0, 0]
        self._opened: dict[int, int] = {}
        """Width of the marker of each list item that was begun, by the id of its place."""
        self._numbers: dict[int, int] = {}
        self._last: Place | None = None
        self._path: list[tuple[int, str]] = []
        self._blocks: list[ContentBlock] = []
        self._headings: list[Heading] = []

    def add(self, part: _Part) -> None:
        """Append a part. After: its block, and its heading if it is one, are in the lists."""
        chain = _chain(part.place) if part.place is not None else []
        lines = part.lines
        first, following, begins_item = "", "", False
        for place in chain:
            if place.kind == "quote":
                marker, indent = "> ", "> "
            elif id(place) in self._opened:
                marker = indent = " " * self._opened[id(place)]
            else:
                marker = self._marker(place)
                indent = " " * len(marker)
                self._opened[id(place)] = len(marker)
                begins_item = True
            first += marker
            following += indent
        tight = begins_item and (
            self._last in chain or any(place.parent is chain[-1].parent for place in _chain(self._last))
        )
        body = first + lines[0]
        if len(lines) > 1:
            body = "\n".join([body, *[(following + line).rstrip() for line in lines[1:]]])
        markdown_start = self._append(0, self._markdown, body, "\n" if tight else "\n\n")
        text_start = self._append(1, self._text, part.text, "\n" if tight else "\n\n")
        self._blocks.append(
            ContentBlock(markdown_start, self._sizes[0], text_start, self._sizes[1], block_hash(part.text))
        )
        if part.level:
            while self._path and self._path[-1][0] >= part.level:
                self._path.pop()
            self._path.append((part.level, part.title))
            path = tuple(title for _, title in self._path)
            self._headings.append(Heading(part.level, part.title, path, markdown_start, text_start))
        self._last = part.place

    def _append(self, which: int, pieces: list[str], body: str, separator: str) -> int:
        """Append to Markdown (0) or text (1); return where the body begins."""
        if pieces:
            pieces.append(separator)
            self._sizes[which] += len(separator)
        start = self._sizes[which]
        pieces.append(body)
        self._sizes[which] += len(body)
        return start

    def _marker(self, item: Place) -> str:
        items = item.parent
        if items is None or items.kind != "ordered":
            return "- "
        self._numbers[id(items)] = number = self._numbers.get(id(items), 0) + 1
        return f"{number}. "

    def finish(self) -> Rendered:
        """Return the whole."""
        return Rendered("".join(self._markdown), "".join(self._text), self._blocks, self._headings)


def _chain(place: Place | None) -> list[Place]:
    """Return the list items and quotations around a block, outermost first. Places are nested up to MAX_NESTING deep."""
    found = []
    while place is not None:
        if place.kind in ("item", "quote"):
            found.append(place)
        place = place.parent
    found.reverse()
    return found


def _nearest(place: Place | None) -> Place | None:
    while place is not None and place.kind not in ("item", "quote"):
        place = place.parent
    return place


def _outermost_table(place: Place | None) -> Place | None:
    found = None
    while place is not None:
        if place.kind == "table":
            found = place
        place = place.parent
    return found


def _parts(blocks: Sequence[Block], links: Links) -> Iterator[_Part]:
    """Join the blocks of a table and the pieces of a code listing."""
    number = 0
    while number < len(blocks):
        block = blocks[number]
        place = block.container.place
        table = _outermost_table(place) if place is not None else None
        end = number + 1
        if table is not None:
            while end < len(blocks) and _outermost_table(blocks[end].container.place) is table:
                end += 1
            part = _table(blocks[number:end], table, links)
            if part is not None:
                yield part
            else:
                yield from _plain_parts(blocks[number:end], links)
        else:
            if block.preformatted:
                while end < len(blocks) and blocks[end].preformatted and blocks[end].pre is block.pre:
                    end += 1
            yield from _plain_parts(blocks[number:end], links)
        number = end


def _plain_parts(blocks: Sequence[Block], links: Links) -> Iterator[_Part]:
    number = 0
    while number < len(blocks):
        block = blocks[number]
        end = number + 1
        if block.preformatted:
            while end < len(blocks) and blocks[end].preformatted and blocks[end].pre is block.pre:
                end += 1
            yield _code(blocks[number:end])
        else:
            yield _paragraph(block, links)
        number = end


def _code(blocks: Sequence[Block]) -> _Part:
    text = "\n".join(block.text for block in blocks)
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    names = " ".join([blocks[0].code_class, *_class_names(blocks[0])])
    found = next((name for name in _CODE_LANGUAGE.findall(names) if name.lower() not in _NO_LANGUAGES), "")
    lines = [fence + found.lower(), *text.split("\n"), fence]
    return _Part(lines, text, place=_nearest(blocks[0].container.place))


def _class_names(block: Block) -> Iterator[str]:
    """Iterate over the classes of the nearest containers, inside out."""
    container = block.pre
    for _ in range(3):
        if container is None:
            return
        yield container.key.partition(" ")[2]
        container = container.parent


def _paragraph(block: Block, links: Links) -> _Part:
    place = _nearest(block.container.place)
    if block.level:
        runs = [run for run in block.runs if run[2] is None or run[0].strip() not in _PERMALINKS]
        body = _inline(runs, links, hard_breaks=False)
        title = " ".join(block.text.split())
        for mark in ("¶", "🔗"):
            title = title.removesuffix(mark).rstrip()
        if body:
            return _Part([f"{'#' * block.level} {body}"], title or block.text, block.level, title[:MAX_TITLE], place)
    body = _inline(block.runs, links, hard_breaks=True)
    return _Part(_LINE_START.sub(_escape_line_start, body).split("\n"), block.text, place=place)


def _escape_line_start(found: re.Match[str]) -> str:
    return f"{found[1]}\\{found[2]}" if found[2] else f"{found[1]}{found[3]}\\{found[4]}"


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: _SPECIAL_TEXT.get(found[0]) or "\\" + found[0], text)


def _inline(runs: Sequence[Run], links: Links, *, hard_breaks: bool) -> str:
    """Render the runs of a block on one line, or with hard line breaks."""
    if len(runs) == 1 and not runs[0][1] and runs[0][2] is None:
        return _escape(" ".join(runs[0][0].split()))
    pieces: list[str] = []
    number, count = 0, len(runs)
    while number < count:
        _, style, target = runs[number]
        if style == BREAK:
            pieces.append("\n")
            number += 1
        elif target is None:
            number, piece = _styled(runs, number, None)
            pieces.append(piece)
        else:
            inner: list[str] = []
            while number < count and runs[number][2] == target and runs[number][1] != BREAK:
                number, piece = _styled(runs, number, target)
                inner.append(piece)
            words = "".join(inner)
            address = links.absolute(target) if target and not words.isspace() and words else None
            if address is None:
                pieces.append(words)
            else:
                core = words.strip()
                lead, trail = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
                if not lead and pieces and pieces[-1].endswith("!"):
                    # With the link it would be an image, which is loaded when the Markdown is shown.
                    pieces[-1] = pieces[-1][:-1] + "\\!"
                pieces.append(f"{lead}[{core}]({address}){trail}")
    lines = [" ".join(line.split()) for line in "".join(pieces).split("\n")]
    return ("\\\n" if hard_breaks else " ").join(line for line in lines if line)


def _styled(runs: Sequence[Run], number: int, target: str | None) -> tuple[int, str]:
    """Render the run at `number` and those after it that have the same style; return the number of the next run."""
    style = runs[number][1]
    end = number
    texts = []
    while end < len(runs) and runs[end][1] == style and runs[end][2] == target:
        texts.append(runs[end][0])
        end += 1
    text = "".join(texts).replace("\n", " ")
    if style & IMAGE:
        return end, f" {_escape(text.strip())} "
    core = text.strip()
    if not core:
        return end, " " if text else ""
    lead, trail = (" " if text[0].isspace() else ""), (" " if text[-1].isspace() else "")
    if style & CODE:
        return end, f"{lead}{_code_span(core)}{trail}"
    body = _escape(core)
    for bit, mark in ((STRIKE, "~~"), (EMPHASIS, "*"), (STRONG, "**")):
        if style & bit:
            body = f"{mark}{body}{mark}"
    return end, lead + body + trail


def _code_span(text: str) -> str:
    """Render code within a line. A "|" is written as an entity outside of code spans only, so code with one is plain text."""
    if "|" in text:
        return _escape(text)
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _table(blocks: Sequence[Block], table: Place, links: Links) -> _Part | None:
    """Render a table; None: it is layout, or too odd for a Markdown table."""
    rows: dict[int, dict[int, list[Block]]] = {}
    for block in blocks:
        cell = block.container.place
        while cell is not None and cell.kind != "cell":
            if cell.kind in ("item", "quote"):
                return None
            cell = cell.parent
        row = cell.parent if cell is not None else None
        if cell is None or row is None or row.kind != "row" or row.parent is not table:
            return None
        if block.preformatted or block.level or len(block.text) > MAX_CELL or cell.index >= MAX_COLUMNS:
            return None
        rows.setdefault(id(row), {}).setdefault(cell.index, []).append(block)
    columns = 1 + max(max(cells) for cells in rows.values())
    if len(rows) < 2 or columns < 2:
        return None
    lines: list[str] = []
    texts: list[str] = []
    for cells in rows.values():
        width = columns if not lines else 1 + max(cells)
        rendered = [
            " ".join(_inline(block.runs, links, hard_breaks=False) for block in cells.get(column, ()))
            for column in range(width)
        ]
        lines.append(f"| {' | '.join(rendered)} |")
        if len(lines) == 1:
            lines.append(f"|{' --- |' * columns}")
        texts.append(
            "\t".join(
                " ".join(block.text.replace("\n", " ") for block in cells.get(column, ())) for column in range(width)
            )
        )
    return _Part(lines, "\n".join(texts), place=_nearest(table))
