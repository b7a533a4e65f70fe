"""Charset detection and decoding.

Owns the labels of the WHATWG encoding standard and the precedence of the sources: byte order mark, Content-Type, `meta`, UTF-8 if valid,
a guess. The rule: any bytes give a text, in linear time. A label is looked up in a table, never in Python's codec registry, which would
also find "zip" or "unicode_escape".
"""

import codecs
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from charset_normalizer import from_bytes

UTF8: Final = "utf-8"
_FALLBACK: Final = "windows-1252"
_META_BYTES: Final = 16 * 1024
"""Bytes that are searched for `meta`. The standard's prescan ends at 1024 bytes, but browsers also change the encoding when their parser
finds a declaration later in the head."""
_SAMPLE_BYTES: Final = 20_000
_GUESS_BYTES: Final = 2000
"""Bytes that the guess examines, after tags are removed: a few milliseconds at most."""
_MIN_NON_ASCII_SHARE: Final = 0.3
"""Share of non-ASCII letters: text in Latin script has a smaller share, other scripts a larger one."""

_MIN_NON_ASCII: Final = 16
"""Non-ASCII bytes that a guess needs."""

# name: (Python's codec, further labels). Those of the standard's "replacement" encoding (ISO-2022-KR, HZ …) are left out as unknown.
_ENCODINGS: Final = {
    "utf-8": ("utf-8", "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8"),
    "ibm866": ("cp866", "866 cp866 csibm866"),
    "iso-8859-2": (
        "iso8859_2",
        "csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    ),
    "iso-8859-3": (
        "iso8859_3",
        "csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    ),
    "iso-8859-4": (
        "iso8859_4",
        "csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    ),
    "iso-8859-5": (
        "iso8859_5",
        "csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    ),
    "iso-8859-6": (
        "iso8859_6",
        """arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6
        iso88596 iso_8859-6 iso_8859-6:1987""",
    ),
    "iso-8859-7": (
        "iso8859_7",
        "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    ),
    "iso-8859-8": (
        "iso8859_8",
        "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 visual",
    ),
    "iso-8859-8-i": ("iso8859_8", "csiso88598i logical"),
    "iso-8859-10": ("iso8859_10", "csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6"),
    "iso-8859-13": ("iso8859_13", "iso8859-13 iso885913"),
    "iso-8859-14": ("iso8859_14", "iso8859-14 iso885914"),
    "iso-8859-15": ("iso8859_15", "csisolatin9 iso8859-15 iso885915 iso_8859-15 l9"),
    "iso-8859-16": ("iso8859_16", ""),
    "koi8-r": ("koi8_r", "cskoi8r koi koi8 koi8_r"),
    "koi8-u": ("koi8_u", "koi8-ru"),
    "macintosh": ("mac_roman", "csmacintosh mac x-mac-roman"),
    "windows-874": ("cp874", "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620"),
    "windows-1250": ("cp1250", "cp1250 x-cp1250"),
    "windows-1251": ("cp1251", "cp1251 x-cp1251"),
    "windows-1252": (
        "cp1252",
        """ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1
        iso_8859-1:1987 l1 latin1 us-ascii x-cp1252""",
    ),
    "windows-1253": ("cp1253", "cp1253 x-cp1253"),
    "windows-1254": (
        "cp1254",
        "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 x-cp1254",
    ),
    "windows-1255": ("cp1255", "cp1255 x-cp1255"),
    "windows-1256": ("cp1256", "cp1256 x-cp1256"),
    "windows-1257": ("cp1257", "cp1257 x-cp1257"),
    "windows-1258": ("cp1258", "cp1258 x-cp1258"),
    "x-mac-cyrillic": ("mac_cyrillic", "x-mac-ukrainian"),
    "x-user-defined": ("latin_1", ""),
    "gbk": ("gb18030", "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk"),
    "gb18030": ("gb18030", ""),
    "big5": ("big5hkscs", "big5-hkscs cn-big5 csbig5 x-x-big5"),
    "euc-jp": ("euc_jp", "cseucpkdfmtjapanese x-euc-jp"),
    "iso-2022-jp": ("iso2022_jp", "csiso2022jp"),
    "shift_jis": ("cp932", "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis"),
    "euc-kr": (
        "cp949",
        "cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
    ),
    "utf-16be": ("utf-16-be", "unicodefffe"),
    "utf-16le": ("utf-16-le", "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16"),
}
_OVERRIDES: Final = {
    "koi8-u": {0xAE: "\u045e", 0xBE: "\u040e"},
    "windows-1255": {0xCA: "\u05ba"},
    "x-user-defined": {byte: chr(0xF700 + byte) for byte in range(0x80, 0x100)},
}
"""Bytes that the standard decodes differently from Python's codec."""
LABELS: Final = {label: name for name, (_, labels) in _ENCODINGS.items() for label in (name, *labels.split())}
_MULTI_BYTE: Final = frozenset(
    {"utf-8", "gbk", "gb18030", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr", "utf-16be", "utf-16le"}
)
_BOMS: Final = ((codecs.BOM_UTF8, UTF8), (codecs.BOM_UTF16_BE, "utf-16be"), (codecs.BOM_UTF16_LE, "utf-16le"))
_GUESS_CODECS: Final = ["cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1253", "cp1255", "cp1256"]

_HEADER_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
# The prescan of the HTML standard. Possessive quantifiers, hence linear. An unterminated quoted value, tag or comment matches as
# `unfinished`, which ends the prescan.
_SPACE: Final = rb"\t\n\f\r "
_ATTRIBUTE: Final = (
    rb"[%(s)s/]*+([^%(s)s/>][^%(s)s/>=]*+)"
    rb"(?:[%(s)s]*+=[%(s)s]*+(\"[^\"]*+\"|'[^']*+'|[^%(s)s>\"'][^%(s)s>]*+|(?=>))|(?![%(s)s]*+=))" % {b"s": _SPACE}
)
_ATTRIBUTES: Final = re.compile(_ATTRIBUTE)
_MARKUP: Final = re.compile(
    rb"<(?:meta(?=[%(s)s/])(?P<meta>(?:%(a)s)*+)[%(s)s/]*+>"
    rb"|/?[a-z][^%(s)s>]*+(?:%(a)s)*+[%(s)s/]*+>"
    rb"|!(?=--).*?-->"
    rb"|(?:!(?!--)|/(?![a-z])|\?)[^>]*+>"
    rb"|(?P<unfinished>[a-z!/?]))" % {b"s": _SPACE, b"a": _ATTRIBUTE},
    re.IGNORECASE | re.DOTALL,
)
_CONTENT_CHARSET: Final = re.compile(
    rb"charset[%(s)s]*+=[%(s)s]*+(?:\"([^\"]*+)\"|'([^']*+)'|([^%(s)s;\"'][^%(s)s;]*+))?" % {b"s": _SPACE},
    re.IGNORECASE,
)
_XML_ENCODING: Final = re.compile(rb"""<\?xml[^>]*?encoding[\x00-\x20]*+=[\x00-\x20]*+(["'])([^\x00-\x20>"']*+)\1""")
_TAG: Final = re.compile(rb"<[^<>]*>?")
_LETTER: Final = re.compile(rb"[A-Za-z\x80-\xff]")
_NON_ASCII: Final = re.compile(rb"[\x80-\xff]")


class DetectedEncoding(NamedTuple):
    """The encoding of a body, and the length in bytes of its byte order mark."""

    name: str
    bom_length: int = 0


def find_encoding(label: str) -> str | None:
    """Look up a label; return the name of the encoding in the standard, or None if the label is unknown."""
    return LABELS.get(label.strip("\t\n\f\r ").lower())


def detect(body: bytes, content_type: str | None) -> DetectedEncoding:
    """Detect the encoding of `body`. Unknown labels in the header or in `meta` are ignored."""
    for bom, bom_encoding in _BOMS:
        if body.startswith(bom):
            return DetectedEncoding(bom_encoding, len(bom))
    header = _HEADER_CHARSET.search(content_type) if content_type else None
    if name := (header and find_encoding(header[1])) or _declared_encoding(body):
        return DetectedEncoding(name)
    try:
        body.decode()
    except UnicodeDecodeError:
        return DetectedEncoding(_guess_encoding(body[:_SAMPLE_BYTES]))
    return DetectedEncoding(UTF8)


def decode(data: bytes, name: str) -> str:
    """Decode `data`; invalid bytes and NUL become U+FFFD."""
    return _DECODERS[name](data).replace("\0", "\ufffd")


def detect_xml(head: bytes) -> DetectedEncoding:
    """Detect the encoding of XML or text by its beginning: byte order mark, UTF-16 by its NULs, XML declaration; else it is UTF-8."""
    for bom, bom_encoding in _BOMS:
        if head.startswith(bom):
            return DetectedEncoding(bom_encoding, len(bom))
    start = head[:4]
    if len(start) == len(b"<\0?\0"):
        if start[1] == start[3] == 0 and start[0] and start[2]:
            return DetectedEncoding("utf-16le")
        if start[0] == start[2] == 0 and start[1] and start[3]:
            return DetectedEncoding("utf-16be")
    declaration = head.find(b"<?xml", 0, _META_BYTES)
    xml = _XML_ENCODING.match(head, declaration) if declaration >= 0 else None
    return DetectedEncoding((_ascii_compatible(xml[2]) if xml else None) or UTF8)


def incremental_decoder(name: str) -> codecs.IncrementalDecoder:
    """Return a decoder for pieces of a text; invalid bytes become U+FFFD."""
    return codecs.getincrementaldecoder(_ENCODINGS[name][0])("replace")


def _declared_encoding(body: bytes) -> str | None:
    """Return the encoding that the page declares: by `meta charset`, by `meta http-equiv` with content, or by its XML declaration."""
    if body.find(b"charset", 0, _META_BYTES) >= 0 or b"charset" in body[:_META_BYTES].lower():
        for found in _MARKUP.finditer(body, 0, _META_BYTES):
            if (attributes := found["meta"]) and (name := _encoding_of_meta(attributes)):
                return name
            if found["unfinished"]:
                break
    return _ascii_compatible(xml[2]) if (xml := _XML_ENCODING.match(body, 0, _META_BYTES)) else None


def _encoding_of_meta(markup: bytes) -> str | None:
    """Return the encoding that a `meta` with these attributes declares. Of repeated attributes the first counts."""
    attributes: dict[bytes, bytes] = {}
    for name, value in _ATTRIBUTES.findall(markup):
        attributes.setdefault(name.lower(), value[1:-1] if value[:1] in (b'"', b"'") else value)
    if b"charset" in attributes:
        return _ascii_compatible(attributes[b"charset"])
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    found = _CONTENT_CHARSET.search(attributes.get(b"content", b""))
    return _ascii_compatible(found[1] or found[2] or found[3] or b"") if found else None


def _ascii_compatible(label: bytes) -> str | None:
    """Look up a label that was found in ASCII bytes: a page that declares UTF-16 there is not UTF-16."""
    name = find_encoding(label.decode("ascii", "replace"))
    if name in ("utf-16be", "utf-16le"):
        return UTF8
    return _FALLBACK if name == "x-user-defined" else name


def _guess_encoding(sample: bytes) -> str:
    text = b" ".join(_TAG.sub(b" ", sample).split())
    first = _NON_ASCII.search(text)
    if first is None:
        return _FALLBACK
    text = text[max(0, first.start() - 10) :][:_GUESS_BYTES]
    count = len(_NON_ASCII.findall(text))
    if count < _MIN_NON_ASCII or count < _MIN_NON_ASCII_SHARE * len(_LETTER.findall(text)):
        return _FALLBACK
    best = from_bytes(text, steps=3, chunk_size=256, cp_isolation=_GUESS_CODECS).best()
    return _BY_CODEC.get(best.encoding, _FALLBACK) if best else _FALLBACK


def _make_decoder(name: str, codec: str) -> Callable[[bytes], str]:
    if name in _MULTI_BYTE:
        return partial(_decode_multi_byte, codec)
    # An own table, since undefined bytes cost Python's codec a third of a microsecond each.
    overrides = _OVERRIDES.get(name, {})
    table = "".join(
        overrides.get(byte) or (_undefined_byte(name, byte) if decoded == "\ufffd" else decoded)
        for byte in range(256)
        for decoded in (bytes([byte]).decode(codec, "replace"),)
    )
    return partial(_decode_single_byte, table)


def _undefined_byte(name: str, byte: int) -> str:
    return chr(byte) if byte < 0xA0 and name.startswith("windows-") else "\ufffd"


def _decode_multi_byte(codec: str, data: bytes) -> str:
    return data.decode(codec, "replace")


def _decode_single_byte(table: str, data: bytes) -> str:
    return codecs.charmap_decode(data, "strict", table)[0]


_DECODERS: Final = {name: _make_decoder(name, codec) for name, (codec, _) in _ENCODINGS.items()}
_BY_CODEC: Final = {codec: name for name, (codec, _) in _ENCODINGS.items()} | {"big5": "big5"}
