"""The XML of sitemaps, read in blocks: by expat, and from where that fails on by a scan of what is left.

The rule: time is linear in the bytes and memory is bounded, for any bytes. There are no document type declarations, hence no entities
but the five of XML and characters by number, and nothing outside of the file is ever read.

What expat alone would not bound, and how it is bounded here:

- A token that is not complete at the end of a block (a tag, a comment) is read again from its start with the next block; before expat 2.6.0
  that is quadratic (CVE-2023-52425), and the expat of a system is often older. So expat gets nothing new until there is as much of it as is
  unread: the bytes that it reads are at most about three times those of the file. A token of more than `_MAX_TOKEN` is left to the scan,
  which skips it.
- Names of elements and attributes are kept for the whole file: at most `_MAX_NAMES_LENGTH` characters.
- Each open element takes memory: `SitemapLimits.depth`. Texts are shortened after each block.
"""

import codecs
import html
import re
from collections.abc import Iterator
from html.entities import html5
from itertools import islice
from typing import Final
from xml.parsers import expat

from holdfast.parse.sitemap_entries import EntryBuilder, StopReading

_MAX_TOKEN: Final = 1024 * 1024
_MAX_ENTRY: Final = 1024 * 1024
"""Bytes of an entry that are kept, so that it can be read again when it is broken."""
_MAX_NAMES_LENGTH: Final = 256 * 1024
_MAX_TAG: Final = 64 * 1024
"""Characters of a tag in broken XML; longer ones are skipped."""
_MAX_TAGS: Final = 3_000_000
"""Tags that are read in broken XML: a few seconds. 50 MiB of real URLs have less than two million."""
_MAX_ATTRIBUTES: Final = 100
_MAX_REFERENCE: Final = 40
"""Characters of a character reference."""
_DOCTYPE: Final = "refused: it has a document type declaration with {}"

# A tag, the start of a section, or a tag that is not complete. What looks like none of them is passed over.
_MARKUP: Final = re.compile(
    r"""<(?:(?P<closing>/?)(?P<name>[^\s<>/=!?"']{1,200}+)(?=[\s/>])(?P<rest>[^<>]*+)>|(?P<section>!--|!\[CDATA\[|[?!])|(?P<cut>[^<>]*+\Z))"""
)
_REFERENCE: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# The value is optional, so that each name matches where it stands and is not tried again from its second letter.
_ATTRIBUTE: Final = re.compile(r"""([^\s=<>"'/]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>]++)))?+""")
_SECTION_ENDS: Final = {"!--": "-->", "![CDATA[": "]]>", "?": ">", "!": ">"}
"""A broken instruction has only the second half of its end."""
_LONGEST_START: Final = len("<![CDATA[")
_INVALID: Final = re.compile("[\udc80-\udcff]+")


class Utf8Decoder:
    """Decodes UTF-8 in pieces. Invalid bytes become percent escapes, as in URLs, and NUL becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """Return the text of the next bytes, except an incomplete character at their end."""
        text = self._decoder.decode(data, final)
        if not text.isascii() and _INVALID.search(text):
            text = _INVALID.sub(_percent_escaped, text)
        return text.replace("\0", "\ufffd")


def _percent_escaped(found: re.Match[str]) -> str:
    return "".join(f"%{ord(character) - 0xDC00:02X}" for character in found[0])


class XmlReader:
    """Passes the elements of a file to an `EntryBuilder`. It takes UTF-8, whatever the XML declaration says."""

    def __init__(self, builder: EntryBuilder) -> None:
        """Before: nothing was read."""
        self.problem: str | None = None
        """Why it was read leniently."""
        self.ends_early = False
        self._builder = builder
        self._names: dict[str, str] = {}
        self._names_seen = 0
        self._names_length = 0
        self._parser = self._make_parser()
        self._waiting = bytearray()
        """Bytes that are not passed to expat yet."""
        self._waits_for = 0
        """How many of them there have to be."""
        self._kept = b""
        """The last bytes that expat got, from the entry that is being built, or from an incomplete token."""
        self._position = 0
        """Bytes that expat got."""
        self._scan: _BrokenXmlScan | None = None
        self._decoder = Utf8Decoder()

    def feed(self, block: bytes) -> None:
        """Read a block."""
        if self._scan is not None:
            self._scan.feed(self._decoder.decode(block))
            return
        self._waiting += block
        if len(self._waiting) >= self._waits_for:
            self._parse_waiting(final=False)

    def close(self, *, truncated: bool) -> None:
        """End the file. `truncated`: it has more bytes than were read."""
        if self._scan is None:
            self._parse_waiting(final=not truncated)
            if truncated and self._scan is None:
                self._recover(b"")
        if self._scan is not None:
            self._scan.feed(self._decoder.decode(b"", final=True))
            self._scan.close()
        else:
            self._builder.close(complete=True)

    def _make_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8", None, self._names)
        parser.buffer_text = True
        parser.StartElementHandler = self._builder.start
        parser.EndElementHandler = self._builder.end
        parser.CharacterDataHandler = self._builder.text
        parser.StartDoctypeDeclHandler = _check_doctype
        parser.EntityDeclHandler = _refuse_entity
        self._builder.position = lambda: parser.CurrentByteIndex
        return parser

    def _parse_waiting(self, *, final: bool) -> None:
        data = bytes(self._waiting)
        self._waiting.clear()
        self._position += len(data)
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as error:
            self.ends_early = error.code in _UNFINISHED
            self.problem = f"broken XML at byte {self._parser.ErrorByteIndex}: {expat.ErrorString(error.code)}"
            self._recover(data)
            return
        read = max(self._parser.CurrentByteIndex, 0)
        unread = self._position - read
        if unread > _MAX_TOKEN:
            self.problem = f"broken XML at byte {read}: a tag or comment of more than {_MAX_TOKEN} bytes"
            self._recover(data)
            return
        self._waits_for = unread
        self._keep(data, read)
        self._check_names()
        self._builder.shorten_text()

    def _keep(self, data: bytes, read: int) -> None:
        start = self._builder.entry_position if self._builder.in_entry else read
        if self._position - start > _MAX_ENTRY:
            start = read
        length = self._position - start
        self._kept = (self._kept + data)[-length:] if length else b""

    def _check_names(self) -> None:
        if len(self._names) > self._names_seen:
            # A DOCTYPE without a system id adds None.
            self._names_length += sum(len(name or "") for name in islice(self._names, self._names_seen, None))
            self._names_seen = len(self._names)
            if self._names_length > _MAX_NAMES_LENGTH:
                raise StopReading("refused: too many different names of elements and attributes", truncated=True)

    def _recover(self, data: bytes) -> None:
        """Leave expat, and scan from the entry that it was in, else from where it stopped."""
        builder = self._builder
        left = self._kept + data
        before = self._position - len(left)
        again = builder.in_entry and builder.entry_position >= before
        start = builder.entry_position if again else max(self._parser.CurrentByteIndex, before, 0)
        builder.begin_recovery(again=again)
        self._kept = b""
        self._scan = _BrokenXmlScan(builder)
        self._scan.feed(self._decoder.decode(left[start - before :]))


_UNFINISHED: Final = frozenset(
    expat.errors.codes[message]
    for message in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
    )
)
"""Errors of a file that ends early."""


def _check_doctype(name: str, system_id: str | None, public_id: str | None, has_internal_subset: int) -> None:
    if name.lower() == "html":
        raise StopReading("not a sitemap: HTML")
    if has_internal_subset:
        raise StopReading(_DOCTYPE.format("declarations"))
    if system_id or public_id:
        raise StopReading(_DOCTYPE.format("an external file"))


def _refuse_entity(*_: object) -> None:
    raise StopReading(_DOCTYPE.format("declarations"))


class _BrokenXmlScan:
    """Finds tags and texts in what is left of broken XML; what is neither is skipped. Every step goes forward, so time is linear."""

    def __init__(self, builder: EntryBuilder) -> None:
        self._builder = builder
        self._rest = ""
        """An incomplete tag, or the beginning of a reference."""
        self._ends_with: str | None = None
        """Inside of a comment, CDATA …: what ends it."""
        self._tags = 0

    def feed(self, text: str) -> None:
        text = self._rest + text
        self._rest = ""
        at = 0
        while at < len(text):
            if self._ends_with is not None:
                at = self._skip_section(text, at)
                continue
            markup = _MARKUP.search(text, at)
            if markup is None:
                self._add_last_text(text[at:])
                break
            if markup.start() > at:
                self._add_text(text[at : markup.start()])
            at = self._read_markup(text, markup)
        self._builder.shorten_text()

    def close(self) -> None:
        if self._rest and self._rest[0] != "<":
            self._add_text(self._rest)
        self._builder.close(complete=self._rest[:1] == "<")

    def _read_markup(self, text: str, markup: re.Match[str]) -> int:
        """Read a tag or the start of a section; return where to go on."""
        at = markup.start()
        if name := markup["name"]:
            self._tags += 1
            if self._tags > _MAX_TAGS:
                raise StopReading(f"refused: more than {_MAX_TAGS} tags in broken XML", truncated=True)
            self._add_tag(name, markup["rest"], closing=bool(markup["closing"]))
            return markup.end()
        if (section := markup["section"]) and len(text) - at >= _LONGEST_START:
            if section == "!" and text[at : at + _LONGEST_START].upper().startswith(("<!ENTITY", "<!DOCTYPE")):
                raise StopReading(_DOCTYPE.format("declarations"))
            self._ends_with = _SECTION_ENDS[section]
            return markup.end()
        if len(text) - at > _MAX_TAG:
            self._ends_with = ">"
        else:
            self._rest = text[at:]
        return len(text)

    def _add_tag(self, name: str, rest: str, *, closing: bool) -> None:
        if closing:
            self._builder.end(name)
            return
        self._builder.start(name, dict(_attributes(rest)) if "=" in rest else {})
        if rest.endswith("/"):
            self._builder.end(name)

    def _skip_section(self, text: str, at: int) -> int:
        """Go to the end of a comment, CDATA …; of CDATA, add the text."""
        terminator = self._ends_with or ">"
        end = text.find(terminator, at)
        is_text = terminator == "]]>" and self._builder.in_field
        if end < 0:
            keep = max(at, len(text) - len(terminator) + 1)
            if is_text:
                self._builder.text(text[at:keep])
            self._rest = text[keep:]
            return len(text)
        if is_text:
            self._builder.text(text[at:end])
        self._ends_with = None
        return end + len(terminator)

    def _add_text(self, text: str) -> None:
        if self._builder.in_field:
            text = text.partition("<")[0]  # the rest is not markup that can be read
            self._builder.text(_REFERENCE.sub(_decoded, text) if "&" in text else text)

    def _add_last_text(self, text: str) -> None:
        """Add the text at the end of a block, except a reference that may go on in the next one."""
        ampersand = text.rfind("&", -_MAX_REFERENCE)
        if ampersand >= 0 and ";" not in text[ampersand:]:
            self._rest = text[ampersand:]
            text = text[:ampersand]
        self._add_text(text)


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for found in islice(_ATTRIBUTE.finditer(text), _MAX_ATTRIBUTES):
        value = found[2] or found[3] or found[4] or ""
        yield found[1], _REFERENCE.sub(_decoded, value) if "&" in value else value


def _decoded(found: re.Match[str]) -> str:
    """Decode a reference. Those of HTML without a semicolon are none: `&copy=` is a parameter of a URL."""
    if found[0][1] == "#":
        return html.unescape(found[0]).replace("\0", "\ufffd")
    return html5.get(found[0][1:], found[0])
