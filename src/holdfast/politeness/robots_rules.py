"""The Allow and Disallow lines of one group of a robots.txt, and which of them decides about a path.

The rule: the longest match decides, and of two equally long ones the Allow does (RFC 9309). Matching takes time that grows with the path
and with the rules, never with a power of their product: the rules come from a stranger who may want to waste our time.

RFC 9309 compares after decoding unnecessary escapes; the parsers that sites are tested with compare the text as written. We take the
stricter reading of each: a Disallow is compared as RFC 9309 says, an Allow only as written.

Characters that rules contain unescaped and URLs contain escaped (a space, quotes, braces …) are escaped: for a Disallow on both sides, at
any position, and in an Allow as browsers do it in a URL.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

MAX_WILDCARD_RULES: Final = 4000
MAX_WILDCARD_TEXT: Final = 64 * 1024
"""Rules with a * are tried one by one. Beyond these limits, in number or characters, a Disallow is cut to the text before its first *,
which forbids more, and an Allow is ignored."""

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_NEEDS_ENCODING: Final = re.compile(r"[^!#$&(-;=?-\]_a-z~]")
"""A path without any of these has one spelling."""
_RAW: Final = re.compile(r"""[^!#-&(-;=?-\]_a-z~]+""")
"""Characters that a rule and a URL may contain as they are or as an escape. Not %, which begins an escape."""
_RAW_IN_PATH: Final = re.compile(r"""[^!#-;=?-\]_a-z|~]+""")
_RAW_IN_QUERY: Final = re.compile(r"""[^!#-&(-;=?-~]+""")
"""Characters that browsers escape, in paths and in queries."""
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SPECIAL: Final = frozenset("*$")  # a rule writes %2A and %24 for the characters themselves


class Rule(NamedTuple):
    """An Allow or Disallow line of a robots.txt."""

    allow: bool
    pattern: str
    number: int

    def __str__(self) -> str:
        """The rule as written and its line number, for display."""
        shown = self.pattern if len(self.pattern) <= 100 else f"{self.pattern[:99]}…"
        return f"{'Allow' if self.allow else 'Disallow'}: {ascii(shown)[1:-1]} (line {self.number})"


class Target(NamedTuple):
    """A path with its query, in the two spellings that rules are compared with."""

    as_written: str
    decoded: str


def target(path: str) -> Target:
    """The spellings of `path`, which begins with a slash."""
    if _NEEDS_ENCODING.search(path) is None:
        return Target(path, path)
    return Target(_normalize_escapes(path, _SPECIAL), _normalize_escapes(_encode(path, _RAW), _SPECIAL | _UNRESERVED))


class Rules:
    """The rules of a group, compiled for matching."""

    __slots__ = ("_allow", "_deny", "count")

    def __init__(self, rules: Iterable[Rule]) -> None:
        """If a pattern occurs twice, the first line is reported."""
        non_empty = [rule for rule in rules if rule.pattern]
        self.count = len(non_empty)
        self._allow = _Table((rule for rule in non_empty if rule.allow), _SPECIAL)
        self._deny = _Table((rule for rule in non_empty if not rule.allow), _SPECIAL | _UNRESERVED)

    def deciding_rule(self, path: Target) -> Rule | None:
        """The rule that decides about the path; None: none matches, so the path is allowed."""
        length, denying = self._deny.longest(path.decoded, 0)
        if denying is None and not self._allow.total:
            return None
        # An equally long Allow wins, so it only has to be longer than the Disallow minus one.
        _, allowing = self._allow.longest(path.as_written, max(length - 1, 0))
        return allowing or denying

    def deny_everything(self) -> bool:
        """Whether no path at all can be allowed. Any Allow makes it False."""
        return not self._allow.total and self._deny.everything


class _Wildcard(NamedTuple):
    length: int
    first: str
    middle: tuple[str, ...]
    last: str | None
    """The required end of the path; None: any."""
    rule: Rule

    def matches(self, path: str) -> bool:
        # The leftmost match of each piece leaves the most for the rest, so there is no backtracking.
        if not path.startswith(self.first):
            return False
        at = len(self.first)
        for piece in self.middle:
            at = path.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return self.last is None or (len(path) - len(self.last) >= at and path.endswith(self.last))


class _Table:
    """Patterns of one kind. Those without * are looked up by hash, whatever their number."""

    __slots__ = ("_exact", "_lengths", "_prefixes", "_wildcards", "everything", "total")

    def __init__(self, rules: Iterable[Rule], decoded: frozenset[str]) -> None:
        self._prefixes: dict[str, Rule] = {}
        self._exact: dict[str, Rule] = {}
        self._wildcards: list[_Wildcard] = []
        self.total = 0
        self.everything = False
        text = 0
        for rule in rules:
            self.total += 1
            pattern = _encode_as_browsers_do(rule.pattern) if rule.allow else _encode(rule.pattern, _RAW)
            pieces = [_normalize_escapes(piece, decoded) for piece in pattern.removesuffix("$").split("*")]
            anchored = pattern.endswith("$")
            if len(pieces) > 1:
                text += len(pattern)
                if text <= MAX_WILDCARD_TEXT and len(self._wildcards) < MAX_WILDCARD_RULES:
                    self._add_wildcard(rule, pieces, anchored)
                    continue
                if not rule.allow:
                    self._prefixes.setdefault(pieces[0], rule)
                continue
            (self._exact if anchored else self._prefixes).setdefault(pieces[0], rule)
            self.everything |= pieces[0] == "/" and not anchored
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._wildcards.sort(key=lambda wildcard: -wildcard.length)

    def _add_wildcard(self, rule: Rule, pieces: list[str], anchored: bool) -> None:
        length = sum(map(len, pieces)) + len(pieces) - 1 + anchored
        last = pieces[-1] if anchored else None
        middle = tuple(piece for piece in pieces[1 : -1 if anchored else None] if piece)
        self._wildcards.append(_Wildcard(length, pieces[0], middle, last, rule))
        self.everything |= pieces[0] in ("", "/") and not middle and not last

    def longest(self, path: str, more_than: int) -> tuple[int, Rule | None]:
        """The longest match that is longer than `more_than`, and its length."""
        length, found = more_than, None
        for size in self._lengths:
            if size <= length:
                break
            if size <= len(path) and (rule := self._prefixes.get(path[:size])):
                length, found = size, rule
                break
        if self._exact and len(path) + 1 > length and (rule := self._exact.get(path)):
            length, found = len(path) + 1, rule
        for wildcard in self._wildcards:
            if wildcard.length <= length:
                break
            if wildcard.matches(path):
                return wildcard.length, wildcard.rule
        return length, found


def _encode(text: str, raw: re.Pattern[str]) -> str:
    """The text with everything that `raw` matches percent-encoded."""
    return raw.sub(_escaped, text) if raw.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace"))


def _encode_as_browsers_do(text: str) -> str:
    path, mark, query = text.partition("?")
    return _encode(path, _RAW_IN_PATH) + mark + _encode(query, _RAW_IN_QUERY)


def _normalize_escapes(text: str, decoded: frozenset[str]) -> str:
    """The text with escapes of the characters in `decoded` decoded, and all other escapes in upper case."""
    return _ESCAPE.sub(_DECODERS[decoded], text) if "%" in text else text


def _decoder(decoded: frozenset[str]) -> Callable[[re.Match[str]], str]:
    def one(found: re.Match[str]) -> str:
        character = chr(int(found[0][1:], 16))
        return character if character in decoded else found[0].upper()

    return one


_DECODERS: Final = {kinds: _decoder(kinds) for kinds in (_SPECIAL, _SPECIAL | _UNRESERVED)}
