"""In which encoding a body is written.

Owns the labels of the WHATWG encoding standard and the order in which they are believed: byte order mark, Content-Type, `meta`, UTF-8 if
it is valid, a guess. The rule: any bytes give a text, in time that grows with their number only. A label is looked up in a table, never
handed to the codec registry, where "zip" or "unicode_escape" would be found too.
"""

import codecs
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from charset_normalizer import from_bytes

UTF8: Final = "utf-8"
_FALLBACK: Final = "windows-1252"
_META_BYTES: Final = 4096
"""Where `meta` is looked for. The standard says 1024; pages with a long head before it are read rightly by browsers all the same."""
_SAMPLE_BYTES: Final = 20_000
_GUESS_BYTES: Final = 2000
"""What the guess looks at, without tags: a few milliseconds at most."""
_FOREIGN_SHARE: Final = 0.3
"""Of the letters outside ASCII: text in Latin letters has fewer, other scripts have more."""

_FEW: Final = 16
"""Letters outside ASCII: nothing can be said about fewer."""

# name: (Python's codec, further labels). Those that the standard calls "replacement" (ISO-2022-KR, HZ …) are left out: unknown.
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
        iso_8859-1:1987 l1 latin1 us-ascii x-cp1252 x-user-defined""",
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
LABELS: Final = {label: name for name, (_, labels) in _ENCODINGS.items() for label in (name, *labels.split())}
_MANY_BYTES: Final = frozenset(
    {"utf-8", "gbk", "gb18030", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr", "utf-16be", "utf-16le"}
)
_BOMS: Final = ((codecs.BOM_UTF8, UTF8), (codecs.BOM_UTF16_BE, "utf-16be"), (codecs.BOM_UTF16_LE, "utf-16le"))
_SCRIPTS: Final = ["cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1253", "cp1255", "cp1256"]

_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
_META: Final = re.compile(rb"<meta(?=[\s/])([^<>]*)", re.IGNORECASE)
_META_CHARSET: Final = re.compile(rb"charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)", re.IGNORECASE)
_COMMENT: Final = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_TAG: Final = re.compile(rb"<[^<>]*>?")
_LETTER: Final = re.compile(rb"[A-Za-z\x80-\xff]")
_HIGH: Final = re.compile(rb"[\x80-\xff]")


class Encoded(NamedTuple):
    """The encoding of a body, and how many of its bytes are the mark that says so."""

    name: str
    skip: int = 0


def known(label: str) -> str | None:
    """The encoding that `label` means, by its name in the standard; None if it means none."""
    return LABELS.get(label.strip("\t\n\f\r ").lower())


def detect(body: bytes, content_type: str | None) -> Encoded:
    """How `body` is encoded. What a header or `meta` names and nobody knows is as if it were not there."""
    for bom, marked in _BOMS:
        if body.startswith(bom):
            return Encoded(marked, len(bom))
    header = _HEADER.search(content_type) if content_type else None
    if name := (header and known(header[1])) or _declared(body[:_META_BYTES]):
        return Encoded(name)
    try:
        body.decode()
    except UnicodeDecodeError:
        return Encoded(_guess(body[:_SAMPLE_BYTES]))
    return Encoded(UTF8)


def decode(data: bytes, name: str) -> str:
    """`data` as text: what is invalid becomes U+FFFD, as does NUL."""
    return _DECODERS[name](data).replace("\0", "\ufffd")


def _declared(head: bytes) -> str | None:
    if b"<!--" in head:
        head = _COMMENT.sub(b"", head)
    for tag in _META.finditer(head):
        if (found := _META_CHARSET.search(tag[1])) and (name := known(found[1].decode("ascii", "replace"))):
            # Whoever can read the label "utf-16" in single bytes is not reading UTF-16.
            return UTF8 if name.startswith("utf-16") else name
    return None


def _guess(sample: bytes) -> str:
    text = b" ".join(_TAG.sub(b" ", sample).split())
    high = _HIGH.search(text)
    if high is None:
        return _FALLBACK
    text = text[max(0, high.start() - 10) :][:_GUESS_BYTES]
    count = len(_HIGH.findall(text))
    if count < _FEW or count < _FOREIGN_SHARE * len(_LETTER.findall(text)):
        return _FALLBACK
    best = from_bytes(text, steps=3, chunk_size=256, cp_isolation=_SCRIPTS).best()
    return _BY_CODEC.get(best.encoding, _FALLBACK) if best else _FALLBACK


def _decoder(name: str, codec: str) -> Callable[[bytes], str]:
    if name in _MANY_BYTES:
        return partial(_decode_many, codec)
    # A table of our own: bytes that the codec does not know cost it a third of a microsecond each.
    table = "".join(
        decoded
        if (decoded := bytes([byte]).decode(codec, "replace")) != "\ufffd" or byte < 0x80
        else _undefined(name, byte)
        for byte in range(256)
    )
    return partial(_decode_single, table)


def _undefined(name: str, byte: int) -> str:
    return chr(byte) if byte < 0xA0 and name.startswith("windows-") else "\ufffd"


def _decode_many(codec: str, data: bytes) -> str:
    return data.decode(codec, "replace")


def _decode_single(table: str, data: bytes) -> str:
    return codecs.charmap_decode(data, "strict", table)[0]


_DECODERS: Final = {name: _decoder(name, codec) for name, (codec, _) in _ENCODINGS.items()}
_BY_CODEC: Final = {codec: name for name, (codec, _) in _ENCODINGS.items()} | {"big5": "big5"}
