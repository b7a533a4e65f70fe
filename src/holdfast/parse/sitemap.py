"""Sitemaps and feeds, read as a stream: sitemaps.org XML and its index, RSS, Atom, plain text; with gzip or without.

Owns the way from bytes to entries: gzip and format are recognised by content, never by name or header. The rule: any bytes give entries and
a summary, in linear time and with bounded memory, and the same ones however the bytes are cut; nothing here raises, opens a file or uses
the network. What is slightly broken is read as far as possible, and the summary says so.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from holdfast.model.sitemap import SitemapEntry, SitemapFormat, SitemapLimits, SitemapSummary, SkipReason
from holdfast.parse import charset
from holdfast.parse.sitemap_entries import ROOTS, EntryBuilder, StopReading
from holdfast.parse.sitemap_xml import Utf8Decoder, XmlReader

BLOCK: Final = 64 * 1024
"""Bytes that are parsed at once. Blocks are cut at the same places however the bytes arrive."""
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""zlib's number for gzip with its header."""
_MAX_MEMBERS: Final = 10_000
"""Parts of a gzip file. Programs that write several make them of 64 KiB or more; each costs us the set-up of a decoder."""

_BLANK: Final = b" \t\r\n\f\v\0\xef\xbb\xbf"
"""White space, NUL, and the bytes of a byte order mark."""
_ROOT: Final = re.compile(rb"<(?:[\w.-]{1,50}:)?(?:%s)(?=[\s/>])" % "|".join(ROOTS).encode(), re.IGNORECASE)
_DECLARATION: Final = re.compile(rb"<\?xml\s")
_HTML: Final = re.compile(
    rb"(?:<!--.*?-->\s*+)?<(?:!doctype\s+html|(?:html|head|body|title|meta|script|style|div|p|br|h1|b|table|center)(?=[\s/>]))",
    re.IGNORECASE | re.DOTALL,
)
_TEXT_WITH_URL: Final = re.compile(rb"(?:\A|[\r\n])[ \t]*+https?://\S++[ \t]*+(?=[\r\n]|\Z)", re.IGNORECASE)
_CONTROL: Final = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_URL_LINE: Final = re.compile(r"https?://\S+", re.IGNORECASE)
_LINE_END: Final = re.compile(r"[\r\n]+")


class SitemapParser:
    """Parses one sitemap. Feed it the body in pieces of any size, then close it; entries come out as the bytes go in.

    After `close`, `summary` is complete. When `finished` is True, a limit or the file's content has ended it: further bytes are ignored.
    """

    def __init__(self, limits: SitemapLimits | None = None) -> None:
        """Before: nothing was read."""
        self.summary = SitemapSummary()
        self.finished = False
        self._limits = limits or SitemapLimits()
        self._builder = EntryBuilder(self._limits, self.summary)
        self._start: bytes | None = b""
        """The first bytes, until it is known whether they are gzip."""
        self._gunzip: _Gunzip | None = None
        self._block = bytearray()
        self._decoded_bytes = 0
        self._to_utf8: Callable[[bytes, bool], bytes] | None = None
        self._reader: _Reader | None = None

    def feed(self, chunk: bytes) -> list[SitemapEntry]:
        """Read the next bytes; return the entries that are complete now."""
        try:
            self._add_raw(chunk)
        except StopReading as stop:
            self._stop(stop)
        return self._take()

    def close(self) -> list[SitemapEntry]:
        """End the file; return the entries that were left. After: the summary is complete."""
        try:
            self._close()
        except StopReading as stop:
            self._stop(stop)
        if self.summary.format is None:
            self._note("not a sitemap: XML without elements" if self._reader else "not a sitemap: empty")
        return self._take()

    def read(self, body: bytes, slice_bytes: int = 4 * BLOCK) -> Iterator[list[SitemapEntry]]:
        """Feed a whole body in slices and close; yield the entries of each slice, so that the caller can do other work in between."""
        for at in range(0, len(body), slice_bytes):
            yield self.feed(body[at : at + slice_bytes])
            if self.finished:
                break
        yield self.close()

    def _take(self) -> list[SitemapEntry]:
        entries, self._builder.entries = self._builder.entries, []
        return entries

    def _note(self, problem: str, *, truncated: bool = False) -> None:
        """Record a problem; the first one counts."""
        self.summary.problem = self.summary.problem or problem
        self.summary.truncated |= truncated

    def _stop(self, stop: StopReading) -> None:
        self.finished = True
        self._note(stop.problem, truncated=stop.truncated)

    def _add_raw(self, chunk: bytes) -> None:
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < len(_GZIP):
                self._start = chunk
                return
            self._start = None
            if chunk.startswith(_GZIP):
                self._gunzip = _Gunzip()
        for at in range(0, len(chunk), BLOCK):
            if self.finished:
                return
            if self._gunzip is None:
                self._add_decoded(chunk[at : at + BLOCK])
            else:
                self._add_gzip(self._gunzip, chunk[at : at + BLOCK])

    def _add_gzip(self, gunzip: "_Gunzip", data: bytes) -> None:
        for decoded in gunzip.decode(data):
            self._add_decoded(decoded)
            if self.finished:
                return
        if gunzip.problem:
            self._note(f"broken gzip: {gunzip.problem}")
            self._end(truncated=True)

    def _add_decoded(self, data: bytes) -> None:
        left = self._limits.decoded_bytes - self._decoded_bytes
        self._decoded_bytes += len(data)
        self._block += data[:left]
        while len(self._block) >= BLOCK:
            block = bytes(self._block[:BLOCK])
            del self._block[:BLOCK]
            self._add_block(block)
        if len(data) > left:
            self._note(f"larger than {self._limits.decoded_bytes:,} bytes")
            self._end(truncated=True)

    def _close(self) -> None:
        if self.finished:
            return
        if self._start:
            self._add_decoded(self._start)
        early = self._gunzip is not None and not self._gunzip.complete
        if early:
            self._note("broken gzip: it ends early")
        if not self.finished:
            self._end(truncated=early)

    def _end(self, *, truncated: bool) -> None:
        """End the reading of what is decoded. `truncated`: the file has more, or had."""
        self.finished = True
        self.summary.truncated |= truncated
        self._add_block(bytes(self._block), last=True)
        self._block.clear()
        if self._reader is not None:
            try:
                self._reader.close(truncated=truncated)
            finally:
                self._note_reader()

    def _note_reader(self) -> None:
        if self._reader is not None and self._reader.problem is not None:
            self._note(self._reader.problem, truncated=self._reader.ends_early)

    def _add_block(self, block: bytes, *, last: bool = False) -> None:
        if self._to_utf8 is None:
            if self._gunzip is not None and block.startswith(_GZIP):
                raise StopReading("refused: gzip inside of gzip")
            self._to_utf8 = _transcoder(charset.detect_xml(block).name)
        data = self._to_utf8(block, last)
        if self._reader is None:
            data = data.lstrip(_BLANK)
            if not data:
                return
            data = self._open(data)
        if self._reader is not None:
            self._reader.feed(data)

    def _open(self, head: bytes) -> bytes:
        """Choose the reader by the beginning of the file; return what it is to read of that."""
        root = _ROOT.search(head)
        is_html = _HTML.match(head) is not None
        if head.startswith(b"<") and not is_html:
            self._reader = XmlReader(self._builder)
            return head
        declaration = _DECLARATION.search(head)
        if root or (declaration and not is_html):
            found = [match.start() for match in (root, declaration) if match]
            self._note(f"broken XML: {min(found)} bytes before its beginning")
            self._reader = XmlReader(self._builder)
            return head[min(found) :]
        if is_html:
            raise StopReading("not a sitemap: HTML")
        if _CONTROL.search(head):
            raise StopReading("not a sitemap: binary data")
        if not _TEXT_WITH_URL.search(head):
            raise StopReading("not a sitemap: text without a line that is a URL")
        self.summary.format = SitemapFormat.TEXT
        self._reader = _TextReader(self._builder, self._limits.url_bytes)
        return head


def read_sitemap(body: bytes, limits: SitemapLimits | None = None) -> tuple[list[SitemapEntry], SitemapSummary]:
    """Read a whole sitemap at once: its entries and the summary."""
    parser = SitemapParser(limits)
    return [entry for entries in parser.read(body) for entry in entries], parser.summary


def _transcoder(name: str) -> Callable[[bytes, bool], bytes]:
    if name == charset.UTF8:
        return lambda data, last: data  # noqa: ARG005 — the readers decode it
    decoder = charset.incremental_decoder(name)
    return lambda data, last: decoder.decode(data, last).encode("utf-8", "replace")


class _Reader(Protocol):
    """Passes what it reads from UTF-8 to an `EntryBuilder`."""

    problem: str | None
    ends_early: bool

    def feed(self, block: bytes) -> None: ...

    def close(self, *, truncated: bool) -> None: ...


class _TextReader:
    """Reads one URL per line."""

    def __init__(self, builder: EntryBuilder, max_url: int) -> None:
        self.problem: str | None = None
        self.ends_early = False
        self._builder = builder
        self._max_url = max_url
        self._decoder = Utf8Decoder()
        self._line = ""

    def feed(self, block: bytes) -> None:
        lines = _LINE_END.split(self._line + self._decoder.decode(block))
        # A line that is cut here is still too long.
        self._line = lines.pop()[: self._max_url + 1]
        for line in lines:
            self._add(line.strip())

    def close(self, *, truncated: bool) -> None:
        line = (self._line + self._decoder.decode(b"", final=True)).strip()
        if truncated and line:
            self._builder.skip(SkipReason.CUT_OFF)
        else:
            self._add(line)

    def _add(self, line: str) -> None:
        if not line:
            return
        if not _URL_LINE.fullmatch(line):
            self._builder.skip(SkipReason.NOT_A_URL)
        elif len(line.encode()) > self._max_url:
            self._builder.skip(SkipReason.URL_TOO_LONG)
        else:
            self._builder.add_line(line)


class _Gunzip:
    """Decodes gzip in pieces of at most `BLOCK` bytes, whatever the ratio; one member or several."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """Why nothing more can be decoded."""
        self.complete = False
        """The last member has ended."""
        self._decoder = zlib.decompressobj(_GZIP_WINDOW)
        self._members = 1
        self._after = b""
        """The first bytes after a member."""

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes. After an error, or after something that is not gzip, the rest is ignored."""
        while self.problem is None:
            if self.complete:
                data = self._after + data
                if len(data) < len(_GZIP):
                    self._after = data
                    return
                self._after = data[: len(_GZIP)]
                if not data.startswith(_GZIP):
                    return
                self._begin_member()
                continue
            before = self._decoder.copy()
            try:
                decoded = self._decoder.decompress(data, BLOCK)
            except zlib.error as error:
                self.problem = str(error)
                yield _decode_until_error(before, data)
                return
            if decoded:
                yield decoded
            data = self._decoder.unconsumed_tail
            if self._decoder.eof:
                self.complete = True
                data = self._decoder.unused_data
            elif not data and len(decoded) < BLOCK:
                return

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            self.problem = f"more than {_MAX_MEMBERS} members"
        self.complete = False
        self._after = b""
        self._decoder = zlib.decompressobj(_GZIP_WINDOW)


def _decode_until_error(decoder: "zlib._Decompress", data: bytes) -> bytes:
    """Decode byte by byte: a failed call returns nothing of what it decoded before."""
    decoded = bytearray()
    for at in range(len(data)):
        try:
            decoded += decoder.decompress(data[at : at + 1])
        except zlib.error:
            break
    return bytes(decoded)
