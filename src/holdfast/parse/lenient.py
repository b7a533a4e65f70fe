"""JSON as pages really have it: in comments and CDATA, with comments and trailing commas, with raw line ends and quotes in texts.

The rule: what is good JSON is read as such; what is nearly JSON is mended step by step, and the first step that gives sense is believed.
Every step takes time that grows with the text only.
"""

import html
import json
import re
from collections.abc import Callable
from typing import Any, Final

_MAX: Final = 2_000_000
_BEFORE: Final = re.compile(r"\s*(?://|/\*)?\s*(?:<!\[CDATA\[|<!--)\s*(?:\*/)?")
_AFTER: Final = re.compile(r"(?://|/\*)?\s*(?:\]\]>|-->)\s*(?:\*/)?[\s;]*\Z")
_TAIL: Final = 40
# A text or a comment that does not end goes on to the end, else each of many would be looked at again and again.
_STRING: Final = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_LOOSE_STRING: Final = r'"(?:[^"\\]|\\.?|"(?!\s*[,:}\]]))*+(?:"|\Z)'
_COMMENT: Final = r"|/\*.*?(?:\*/|\Z)|//[^\n]*"
_COMMA: Final = r"|,(?=\s*[}\]])"
_TOKEN: Final = tuple(re.compile(_STRING + junk, re.DOTALL) for junk in (_COMMENT, _COMMA))
_LOOSE_TOKEN: Final = re.compile(_LOOSE_STRING, re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|(.))', re.DOTALL)
_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=lambda _: None)


def loads(text: str) -> list[Any]:
    """The values that `text` has, usually one; none if it cannot be read."""
    if len(text) > _MAX:
        return []
    text = text.strip().lstrip("\ufeff")
    steps: tuple[Callable[[str], str], ...] = (_plain, _unwrapped, _mended, _unescaped, _loosely_mended)
    for step in steps:
        text = step(text)
        if found := _values(text):
            return found
    return []


def _values(text: str) -> list[Any]:
    """All objects and arrays, one after the other; what follows the last one is left out."""
    found = []
    place = _next(text, 0)
    while place < len(text) and text[place] in "{[":
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        found.append(value)
        place = _next(text, place)
    return found


def _next(text: str, place: int) -> int:
    """Where the next value can begin: after white space, commas and HTML comments."""
    while True:
        while place < len(text) and text[place] in " \t\r\n,;":
            place += 1
        if not text.startswith("<!--", place) or (end := text.find("-->", place)) < 0:
            return place
        place = end + 3


def _plain(text: str) -> str:
    return text


def _unwrapped(text: str) -> str:
    after = _next(text, 0)  # a comment may stand before the one, or the CDATA, that the value is in
    if before := _BEFORE.match(text, after) or _BEFORE.match(text):
        text = text[before.end() :]
    return text[:-_TAIL] + _AFTER.sub("", text[-_TAIL:]).rstrip()


def _mended(text: str) -> str:
    for token in _TOKEN:
        text = token.sub(_kept, text)
    return text


def _unescaped(text: str) -> str:
    """The whole text was escaped as if it were HTML."""
    return _mended(html.unescape(text)) if "&quot;" in text or "&#34;" in text or "&#x22;" in text else text


def _loosely_mended(text: str) -> str:
    """A quotation mark ends a text only where JSON can go on."""
    return _LOOSE_TOKEN.sub(_kept, text)


def _kept(token: re.Match[str]) -> str:
    written = token[0]
    if not written.startswith('"'):
        return " "
    if len(written) == 1 or not written.endswith('"'):
        return written
    inner = re.sub(r'(?<!\\)"', r'\\"', written[1:-1]) if '"' in written[1:-1] else written[1:-1]
    return '"' + (_BAD_ESCAPE.sub(lambda e: e[0] if e[1] else e[2], inner) if "\\" in inner else inner) + '"'
