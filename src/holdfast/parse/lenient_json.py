"""A lenient JSON decoder for pages: wrapped in comments or CDATA, with comments and trailing commas, raw line ends and quotes in strings.

The rule: valid JSON is decoded as such; invalid JSON is repaired step by step, and the first step after which it decodes counts. Every
step takes linear time.
"""

import html
import json
import re
from collections.abc import Callable
from typing import Any, Final

_MAX_CHARACTERS: Final = 2_000_000
_WRAPPER_START: Final = re.compile(r"\s*(?://|/\*)?\s*(?:<!\[CDATA\[|<!--)\s*(?:\*/)?")
_WRAPPER_END: Final = re.compile(r"(?://|/\*)?\s*(?:\]\]>|-->)\s*(?:\*/)?[\s;]*\Z")
_WRAPPER_END_CHARACTERS: Final = 40
# An unterminated string or comment extends to the end of the text, which keeps the patterns linear.
_STRING: Final = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_LOOSE_STRING: Final = r'"(?:[^"\\]|\\.?|"(?!\s*[,:}\]]))*+(?:"|\Z)'
_COMMENT: Final = r"|/\*.*?(?:\*/|\Z)|//[^\n]*"
_COMMA: Final = r"|,(?=\s*[}\]])"
_TOKENS: Final = tuple(re.compile(_STRING + junk, re.DOTALL) for junk in (_COMMENT, _COMMA))
_LOOSE_TOKEN: Final = re.compile(_LOOSE_STRING, re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|(.))', re.DOTALL)
_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=lambda _: None)


def loads(text: str) -> list[Any]:
    """Decode the objects and arrays in `text`, usually one; an empty list if it cannot be decoded."""
    if len(text) > _MAX_CHARACTERS:
        return []
    text = text.strip().lstrip("\ufeff")
    steps: tuple[Callable[[str], str], ...] = (_unchanged, _strip_wrapper, _repair, _unescape_html, _repair_loosely)
    for step in steps:
        text = step(text)
        if found := _values(text):
            return found
    return []


def _values(text: str) -> list[Any]:
    """Decode consecutive objects and arrays; what follows the last one is ignored."""
    found = []
    position = _skip_separators(text, 0)
    while position < len(text) and text[position] in "{[":
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        found.append(value)
        position = _skip_separators(text, position)
    return found


def _skip_separators(text: str, position: int) -> int:
    """Return the position after white space, commas, semicolons and HTML comments."""
    while True:
        while position < len(text) and text[position] in " \t\r\n,;":
            position += 1
        if not text.startswith("<!--", position) or (end := text.find("-->", position)) < 0:
            return position
        position = end + 3


def _unchanged(text: str) -> str:
    return text


def _strip_wrapper(text: str) -> str:
    after = _skip_separators(text, 0)  # another comment may precede the comment or CDATA that contains the value
    if before := _WRAPPER_START.match(text, after) or _WRAPPER_START.match(text):
        text = text[before.end() :]
    return text[:-_WRAPPER_END_CHARACTERS] + _WRAPPER_END.sub("", text[-_WRAPPER_END_CHARACTERS:]).rstrip()


def _repair(text: str) -> str:
    for token in _TOKENS:
        text = token.sub(_repair_token, text)
    return text


def _unescape_html(text: str) -> str:
    """Repair a text that was escaped as HTML as a whole."""
    return _repair(html.unescape(text)) if "&quot;" in text or "&#34;" in text or "&#x22;" in text else text


def _repair_loosely(text: str) -> str:
    """Repair with another rule: a quotation mark ends a string only where JSON can continue."""
    return _LOOSE_TOKEN.sub(_repair_token, text)


def _repair_token(token: re.Match[str]) -> str:
    text = token[0]
    if not text.startswith('"'):
        return " "
    if len(text) == 1 or not text.endswith('"'):
        return text
    inner = re.sub(r'(?<!\\)"', r'\\"', text[1:-1]) if '"' in text[1:-1] else text[1:-1]
    return '"' + (_BAD_ESCAPE.sub(lambda e: e[0] if e[1] else e[2], inner) if "\\" in inner else inner) + '"'
