"""Whether a page is safe for the parser, found out before it is asked.

Lexbor is quadratic in the depth of the tree, in the attributes of a tag, in names that it does not know and in some forms of text in
tables, and cannot be interrupted: half a megabyte of `<div>` takes 35 s. The rule: a page that passes costs it no more than a fraction of
a second, whatever it is; one that does not may be harmless, and is only parsed elsewhere. So the scan reads tags exactly as the standard's
tokenizer does, believes that an element is closed only where the standard leaves no doubt, and otherwise takes it to be open.
"""

import re
from typing import Final

MAX_DEPTH: Final = 512
MAX_ATTRIBUTES: Final = 512
SMALL_BYTES: Final = 64 * 1024
SMALL_TAGS: Final = 1024
"""A page of no more bytes and "<" costs a few milliseconds at the worst, if no tag is long (measured)."""
LARGE_BYTES: Final = 2 * 1024 * 1024
_LONG_TAG: Final = 2 * MAX_ATTRIBUTES
"""Bytes: shorter ones cannot have too many attributes."""

_WORK: Final = 20_000_000
"""Open elements, summed over the tags: the parser looks at each of them, a few nanoseconds long."""
_FORMATTING_WORK: Final = 300_000
"""Likewise of formatting elements, each of which it may make anew: that costs memory too."""
_ATTRIBUTE_WORK: Final = 10_000_000
"""Squares of the attributes of long tags, summed."""
_NAMES: Final = 5000
"""Different names of tags, or of attributes."""
_TABLE_COMMENTS: Final = 2000
"""While a table is open: each copies the text that stands before the table."""

_SPACE: Final = rb"\t\n\f\r "
# The whole of a tag behind its name, as the tokenizer reads it. It ends at ">" or at the end of the page, so it always matches.
_VALUE: Final = rb"[%(s)s]*+=[%(s)s]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^%(s)s>\"'][^%(s)s>]*+)?+" % {b"s": _SPACE}
_ATTRIBUTE: Final = rb"[%(s)s/]*+([^%(s)s/>][^%(s)s/>=]*+)(?:%(v)s)?+" % {b"s": _SPACE, b"v": _VALUE}
_REST: Final = rb"(?:[^>\"'=]++|=[%(s)s]*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))?+|[\"'])*+" % {b"s": _SPACE}
_ATTRIBUTES: Final = re.compile(_ATTRIBUTE)
_TOKEN: Final = re.compile(
    rb"<(?:(/?)([a-zA-Z][^%(s)s/>]*+)((?:%(a)s)*+[%(s)s/]*+)(?:>|\Z)"
    rb"|(!--)(?:-?>|.*?(?:--!?>|\Z))|[!?/][^>]*+(?:>|\Z))" % {b"s": _SPACE, b"a": _ATTRIBUTE.replace(b"([^", b"(?:[^")},
    re.DOTALL,
)
_LONG: Final = re.compile(rb"<(?=[a-zA-Z][^>]{%d})" % _LONG_TAG)
_QUOTED_END: Final = re.compile(rb"=[\t\n\f\r ]*+(?:\"[^\">]*+>|'[^'>]*+>)")
_ROOTS: Final = re.compile(rb"<[bBhH][oOtT][dDmM][yYlL]")
_MANY_ROOTS: Final = 8

# fmt: off
_VOID: Final = frozenset((b"area base basefont bgsound br col embed frame hr image img input keygen link meta param source track"
                          b" wbr").split())
_ROOT: Final = frozenset((b"html", b"head", b"body"))
_FORMATTING: Final = frozenset(b"a b big code em font i nobr s small strike strong tt u".split())
_RAW: Final = frozenset(b"script style xmp iframe noembed noframes textarea title".split())
_RAW_END: Final = {name: re.compile(rb"</%s(?=[\t\n\f\r />])" % name, re.IGNORECASE) for name in _RAW}
_FOREIGN: Final = frozenset((b"svg", b"math"))
# Names that neither end an svg element nor lead back to HTML, so that "/>" closes them while nothing else was seen since <svg>.
_SVG: Final = frozenset((b"svg g path circle ellipse line polygon polyline rect use defs symbol clippath mask lineargradient"
                         b" radialgradient stop text tspan filter pattern marker image animate animatetransform fegaussianblur"
                         b" feoffset feblend feflood fecolormatrix fecomposite femerge femergenode").split())
_IMPLIED: Final = frozenset(b"p li dd dt option optgroup rp rt".split())
_CELLS: Final = frozenset((b"td", b"th"))
_SECTIONS: Final = frozenset((b"tbody", b"thead", b"tfoot"))
_TABLE_PARTS: Final = _IMPLIED | _CELLS | _SECTIONS | {b"tr", b"caption", b"colgroup"}
_TABLE_ENDS: Final = _CELLS | _SECTIONS | {b"tr", b"table"}
_BLOCKS: Final = frozenset((b"address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer"
                            b" form h1 h2 h3 h4 h5 h6 header hgroup main menu nav ol p pre search section summary ul").split())
_BLOCK_ENDS: Final = _BLOCKS - {b"form", b"p"} | {b"li", b"dd", b"dt"}
# What the start of one element ends, if that is the innermost open element; in this order.
_ENDS: Final[dict[bytes, tuple[frozenset[bytes], ...]]] = {
    **{name: (frozenset((b"p",)),) for name in _BLOCKS},
    b"li": (frozenset((b"p",)), frozenset((b"li",))),
    b"dd": (frozenset((b"p",)), frozenset((b"dd", b"dt"))),
    b"dt": (frozenset((b"p",)), frozenset((b"dd", b"dt"))),
    b"option": (frozenset((b"option",)),),
    b"optgroup": (frozenset((b"option",)), frozenset((b"optgroup",))),
    b"a": (frozenset((b"a",)),),
    b"td": (_CELLS,),
    b"th": (_CELLS,),
    b"tr": (frozenset((b"colgroup",)), _CELLS, frozenset((b"tr",))),
    **{name: (frozenset((b"colgroup",)), _CELLS, frozenset((b"tr",)), _SECTIONS) for name in _SECTIONS},
}
# fmt: on
_LOOK_DOWN: Final = 5


def beyond(body: bytes) -> str | None:
    """Why `body` must not be parsed in this process, in a few words; None if it may."""
    if len(body) > LARGE_BYTES:
        return f"longer than {LARGE_BYTES} bytes"
    if len(body) <= SMALL_BYTES and body.count(b"<") <= SMALL_TAGS and not _long_tags(body):
        return None
    return _Scan().run(body)


def _long_tags(body: bytes) -> bool:
    """Whether some tag of a small page may have too many attributes. False is certain."""
    return (
        len(body) > _LONG_TAG
        and (
            any(_count_attributes(body, found.end() + 1) > MAX_ATTRIBUTES for found in _LONG.finditer(body))
            or _QUOTED_END.search(body) is not None
            or len(_ROOTS.findall(body)) > _MANY_ROOTS
        )
    )


def _count_attributes(body: bytes, position: int) -> int:
    count = 0
    while count <= MAX_ATTRIBUTES and (found := _ATTRIBUTES.match(body, position)):
        count, position = count + 1, found.end()
    return count


class _Scan:
    """The open elements of a page, at least those that the parser has open."""

    def __init__(self) -> None:
        self.open: list[bytes] = []
        self.foreign = 0
        """`svg` and `math` that are open."""
        self.svg_from: int | None = None
        """Where in `open` the svg is in which only names of `_SVG` were seen."""
        self.tables = 0
        self.formatting = 0
        self.root_attributes = 0
        self.attribute_work = 0
        self.attributes: set[bytes] = set()

    def run(self, body: bytes) -> str | None:
        names: dict[bytes, bytes] = {}
        work = formatting_work = comments = position = 0
        while found := _TOKEN.search(body, position):
            position = found.end()
            slash, written, rest, _ = found.groups()
            if written is None:
                if self.tables:
                    comments += 1
                if self.foreign and body.startswith(b"<![CDATA[", found.start()):
                    return "CDATA"
            else:
                name = names.get(written)
                if name is None:
                    name = names[written] = written.lower()
                if slash:
                    self._end(name)
                else:
                    if rest and (why := self._attributes(name, rest)):
                        return why
                    if self._start(name, rest.endswith(b"/")):
                        raw_end = _RAW_END[name].search(body, position)
                        content = body[position : raw_end.start() if raw_end else len(body)]
                        if self._doubtful(name, content):
                            return f"doubtful content of {name.decode()}"
                        position += len(content)
                depth = len(self.open)
                work += depth
                formatting_work += self.formatting
                if depth > MAX_DEPTH:
                    return f"deeper than {MAX_DEPTH}"
            if work > _WORK or formatting_work > _FORMATTING_WORK or len(names) > _NAMES or comments > _TABLE_COMMENTS:
                return "too much of it is open"
        return None

    def _attributes(self, name: bytes, rest: bytes) -> str | None:
        found = _ATTRIBUTES.findall(rest)
        count = len(found)
        if count > MAX_ATTRIBUTES:
            return f"more than {MAX_ATTRIBUTES} attributes on a tag"
        self.attributes.update(found)
        if count > 64:
            self.attribute_work += count * count
        if name in _ROOT:
            self.root_attributes += count
        if (
            self.attribute_work > _ATTRIBUTE_WORK
            or self.root_attributes > MAX_ATTRIBUTES
            or len(self.attributes) > _NAMES
        ):
            return "too many attributes"
        return None

    def _start(self, name: bytes, self_closing: bool) -> bool:
        """Open an element; whether what follows is its text up to its end tag."""
        opened = self.open
        if self.svg_from is not None and name not in _SVG:
            self.svg_from = None
        if self.foreign:
            # Whether the parser is still in svg is not known in general. A void element closes itself in both worlds if it says so.
            if self_closing and (self.svg_from is not None or name in _VOID):
                return False
        else:
            if name in _VOID or name in _ROOT:
                return False
            for ends in _ENDS.get(name, ()):
                if opened and opened[-1] in ends:
                    self._pop()
                elif name in _CELLS and len(opened) > 1 and opened[-1] == b"p" and opened[-2] in _CELLS:
                    self._pop()
                    self._pop()
        if name in _FOREIGN:
            self.foreign += 1
            if name == b"svg" and self.svg_from is None and not self_closing:
                self.svg_from = len(opened)
        elif name == b"table":
            self.tables += 1
        elif name in _FORMATTING:
            self.formatting += 1
        opened.append(name)
        return name in _RAW

    def _end(self, name: bytes) -> None:
        opened = self.open
        if not opened:
            return
        if self.svg_from is not None and name not in _SVG:
            self.svg_from = None
        if opened[-1] == name:
            self._pop()
            return
        if self.foreign:
            return
        implied = _TABLE_PARTS if name in _TABLE_ENDS else _IMPLIED if name in _BLOCK_ENDS else ()
        if not implied:
            return
        for below in range(len(opened) - 1, max(-1, len(opened) - 1 - _LOOK_DOWN), -1):
            if opened[below] == name:
                while len(opened) > below:
                    self._pop()
                return
            if opened[below] not in implied:
                return

    def _pop(self) -> None:
        name = self.open.pop()
        if name in _FOREIGN:
            self.foreign -= 1
            if self.svg_from is not None and len(self.open) <= self.svg_from:
                self.svg_from = None
        elif name == b"table":
            self.tables -= 1
        elif name in _FORMATTING:
            self.formatting -= 1

    def _doubtful(self, name: bytes, content: bytes) -> bool:
        """Whether it depends on the tree, which we do not build, where the content of a raw element ends."""
        if name == b"script" and b"<!--" in content and b"<script" in content.lower():
            return True
        return b"<" in content and (self.foreign > 0 or (name != b"script" and b"select" in self.open))
