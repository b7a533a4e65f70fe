"""Where a page is parsed: here, or apart, in a process that can be killed.

Lexbor cannot be interrupted, and is quadratic in the depth of the tree, in the attributes of a tag, in names that it does not know, and
in comments inside of tables: half a megabyte of `<div>` takes 35 s, 60 000 attributes on one tag 8 s. The rule: what is
parsed here is bounded: the worst of fourteen hostile pages that stay here took 39 ms, which is measured, not proven. To be sent away is
no verdict: the page is parsed all the same, a little later. So nothing is decided by looking for bombs; a page stays here if it is too
small to be one.
"""

import re
from enum import Enum
from itertools import islice
from typing import Final

MAX_ATTRIBUTES: Final = 512
SMALL_BYTES: Final = 128 * 1024
SMALL_TAGS: Final = 2048
"""Every "<" counts as one: no more than that many elements, or levels of them."""
MAX_OPEN: Final = 512
"""By so many the starts of a page may outnumber twice its ends, else it looks as if nothing were ever closed."""

MAX_REMADE: Final = 100_000
"""Elements that the parser may make anew: up to all formatting elements that were left open, at every other tag. Those without
attributes do not count, since no more than three alike are remembered; nor `a`, of which there is only one."""

_FORMATTING: Final = re.compile(
    rb"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\t\n\f\r /]", re.IGNORECASE
)
_SPACE: Final = rb"\t\n\f\r "
_LONG: Final = 2 * MAX_ATTRIBUTES
"""Bytes: a shorter tag cannot have too many attributes."""
_LONG_TAG: Final = re.compile(rb"<(?=[a-zA-Z][^>]{%d})" % (_LONG - 2))
# Attributes are counted in the way of the standard's tokenizer; possessive, hence linear.
_ATTRIBUTES: Final = (
    rb"(?:[%(s)s/]*+[^%(s)s/>][^%(s)s/>=]*+"
    rb"(?:[%(s)s]*+=[%(s)s]*+(?:\"[^\"]*+\"|'[^']*+'|[^%(s)s>\"'][^%(s)s>]*+)?+)?+){%(n)d}"
    % {b"s": _SPACE, b"n": MAX_ATTRIBUTES}
)
_MANY: Final = re.compile(_ATTRIBUTES)
# A ">" in a quoted value hides the length of its tag, so those that follow it are counted too. Which of the two quotes it was is not
# known for sure in a script.
_QUOTED_END: Final = re.compile(rb"=[%(s)s]*+(?:\"[^\">]*+>|'[^'>]*+>)" % {b"s": _SPACE})
_MARKS: Final = b"<>=\"'"
_NO_MARKS: Final = bytes(set(range(256)) - set(_MARKS))
# The same where only the marks of a page are left, which takes a sixth of the time: whatever it is in a page, it is one there.
_QUOTED_END_OF_MARKS: Final = re.compile(rb"=(?:\"[^\">]*+>|'[^'>]*+>)")
_MANY_AFTER: Final = tuple(re.compile(rb"[^%(q)s]*+%(q)s%(a)s" % {b"q": q, b"a": _ATTRIBUTES}) for q in (b'"', b"'"))
_LOOKS: Final = 64
"""After that many we stop looking closer."""
# Every further <body> and <html> adds its attributes to the first.
_ROOTS: Final = re.compile(rb"<[bBhH][oOtT][dDmM][yYlL]")
_MANY_ROOTS: Final = 8


class Place(Enum):
    """Where a page is parsed."""

    HERE = "here"
    APART = "apart"
    """It is too large to be sure of it."""
    SUSPECT = "suspect"
    """Likewise, and it looks like a bomb: it shall not keep the large ones waiting."""


def place(body: bytes) -> Place:
    """Where `body` is parsed."""
    marks = body.translate(None, _NO_MARKS)
    tags = marks.count(b"<")
    if tags > 2 * MAX_OPEN and tags - 3 * body.count(b"</") > MAX_OPEN:
        return Place.SUSPECT
    if len(body) > _LONG and _too_many_attributes(body, marks):
        return Place.SUSPECT
    if tags > SMALL_TAGS or len(body) > SMALL_BYTES or _remade(body, tags) > MAX_REMADE:
        return Place.APART
    return Place.HERE


def _remade(body: bytes, tags: int) -> int:
    """How many elements the parser may make anew, at most."""
    if tags * tags <= 4 * MAX_REMADE:  # even if half of the tags were formatting elements
        return 0
    formatting = len(_FORMATTING.findall(body))
    return formatting * (tags - formatting)


def _too_many_attributes(body: bytes, marks: bytes) -> bool:
    """Whether a tag may have more than twice MAX_ATTRIBUTES. False is certain, True may be a script with a "<" in it."""
    if _long_tag(body) or next(islice(_ROOTS.finditer(body), _MANY_ROOTS, None), None):
        return True
    if _QUOTED_END_OF_MARKS.search(marks) is None:
        return False
    for number, found in enumerate(_QUOTED_END.finditer(body)):
        if number == _LOOKS or any(many.match(body, found.end()) for many in _MANY_AFTER):
            return True
    return False


def _long_tag(body: bytes) -> bool:
    """Whether a tag is long and full of attributes. Looked for in long strides, from the last ">" that is near enough."""
    start, end = 0, len(body)
    while start + _LONG <= end:
        last = body.rfind(b">", start, start + _LONG)
        if last < 0:
            # Nothing ends in [start, start + _LONG): a paragraph, a script, or a tag that began there or at its last ">".
            until = body.find(b">", start + _LONG)
            until = end if until < 0 else until
            for number, found in enumerate(_LONG_TAG.finditer(body, start, until)):
                if number == _LOOKS or _MANY.match(body, found.end()):
                    return True
            last = until
        start = last + 1
    return False
