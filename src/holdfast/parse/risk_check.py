"""Risk check of a page: whether it is parsed in the worker's process, or in a child process that can be killed.

Lexbor cannot be interrupted, and is quadratic in the depth of the tree, in the attributes of a tag, in unknown names, and in comments
inside tables: half a megabyte of `<div>` takes 35 s, 60 000 attributes on one tag 8 s. The rule: the time of what is parsed in the
worker is bounded: the worst of fourteen hostile pages rated as safe took 39 ms, which is measured, not proven. A page that is not safe
is parsed all the same, a little later. So the check does not search for hostile pages; a page is safe if it is too small to be one.
"""

import re
from enum import Enum
from itertools import islice
from typing import Final

MAX_ATTRIBUTES: Final = 512
SMALL_BYTES: Final = 128 * 1024
SMALL_TAGS: Final = 2048
"""Every "<" counts as a tag, an upper bound of the elements and of their depth."""
MAX_UNCLOSED: Final = 512
"""Tags by which a page may exceed three times its end tags; beyond that, hardly any element is closed."""

MAX_RECONSTRUCTED: Final = 100_000
"""Elements that the parser may reconstruct: at every other tag, up to all formatting elements that were left open. Those without
attributes do not count, since the standard keeps at most three alike; nor `a`, of which only one is open."""

_FORMATTING: Final = re.compile(
    rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\t\n\f\r /]", re.IGNORECASE
)
_SPACE: Final = rb"\t\n\f\r "
_LONG: Final = 2 * MAX_ATTRIBUTES
"""Bytes: a shorter tag cannot have more than MAX_ATTRIBUTES attributes."""
_LONG_TAG: Final = re.compile(rb"<(?=[a-zA-Z][^>]{%d})" % (_LONG - 2))
# Attributes are counted as the standard's tokenizer does; possessive quantifiers, hence linear.
_ATTRIBUTES: Final = (
    rb"(?:[%(s)s/]*+[^%(s)s/>][^%(s)s/>=]*+"
    rb"(?:[%(s)s]*+=[%(s)s]*+(?:\"[^\"]*+\"|'[^']*+'|[^%(s)s>\"'][^%(s)s>]*+)?+)?+){%(n)d}"
    % {b"s": _SPACE, b"n": MAX_ATTRIBUTES}
)
_TOO_MANY: Final = re.compile(_ATTRIBUTES)
# A ">" in a quoted value hides the length of its tag, so those that follow it are counted too. Which of the two quotes it was is not
# known for sure in a script.
_QUOTED_END: Final = re.compile(rb"=[%(s)s]*+(?:\"[^\">]*+>|'[^'>]*+>)" % {b"s": _SPACE})
_DELIMITERS: Final = b"<>=\"'"
_NOT_DELIMITERS: Final = bytes(set(range(256)) - set(_DELIMITERS))
# The same on a page reduced to its delimiters, which takes a sixth of the time. It matches whenever the pattern above does.
_QUOTED_END_IN_DELIMITERS: Final = re.compile(rb"=(?:\"[^\">]*+>|'[^'>]*+>)")
_TOO_MANY_AFTER_QUOTE: Final = tuple(
    re.compile(rb"[^%(q)s]*+%(q)s%(a)s" % {b"q": q, b"a": _ATTRIBUTES}) for q in (b'"', b"'")
)
_MAX_CANDIDATES: Final = 64
"""Candidates that are examined; a page with more is suspect."""
# Every further <body> and <html> adds its attributes to the first.
_ROOTS: Final = re.compile(rb"<[bBhH][oOtT][dDmM][yYlL]")
_MAX_ROOTS: Final = 8


class Risk(Enum):
    """How risky it is to parse a page in this process."""

    SAFE = "safe"
    LARGE = "large"
    """Too large for its parse time to be bounded."""
    SUSPECT = "suspect"
    """Looks hostile: parsed in a child process of its own, so that large pages do not wait for it."""


def assess(body: bytes) -> Risk:
    """Rate a page, in time linear in its length."""
    delimiters = body.translate(None, _NOT_DELIMITERS)
    tags = delimiters.count(b"<")
    if tags > 2 * MAX_UNCLOSED and tags - 3 * body.count(b"</") > MAX_UNCLOSED:
        return Risk.SUSPECT
    if len(body) > _LONG and _too_many_attributes(body, delimiters):
        return Risk.SUSPECT
    if tags > SMALL_TAGS or len(body) > SMALL_BYTES or _reconstructed(body, tags) > MAX_RECONSTRUCTED:
        return Risk.LARGE
    return Risk.SAFE


def _reconstructed(body: bytes, tags: int) -> int:
    """Return an upper bound of the elements that the parser may reconstruct."""
    if tags * tags <= 4 * MAX_RECONSTRUCTED:  # even if half of the tags were formatting elements
        return 0
    formatting = len(_FORMATTING.findall(body))
    return formatting * (tags - formatting)


def _too_many_attributes(body: bytes, delimiters: bytes) -> bool:
    """Return whether a tag may have more than twice MAX_ATTRIBUTES. False is certain; True may be a script with a "<" in it."""
    if _long_tag(body) or next(islice(_ROOTS.finditer(body), _MAX_ROOTS, None), None):
        return True
    if _QUOTED_END_IN_DELIMITERS.search(delimiters) is None:
        return False
    for number, found in enumerate(_QUOTED_END.finditer(body)):
        if number == _MAX_CANDIDATES or any(too_many.match(body, found.end()) for too_many in _TOO_MANY_AFTER_QUOTE):
            return True
    return False


def _long_tag(body: bytes) -> bool:
    """Return whether a tag is long and has too many attributes. Searches in strides of `_LONG` bytes, each from the last ">" within."""
    start, end = 0, len(body)
    while start + _LONG <= end:
        last = body.rfind(b">", start, start + _LONG)
        if last < 0:
            # Nothing ends in [start, start + _LONG): a paragraph, a script, or a tag that began there or at its last ">".
            tag_end = body.find(b">", start + _LONG)
            tag_end = end if tag_end < 0 else tag_end
            for number, found in enumerate(_LONG_TAG.finditer(body, start, tag_end)):
                if number == _MAX_CANDIDATES or _TOO_MANY.match(body, found.end()):
                    return True
            last = tag_end
        start = last + 1
    return False
