"""robots.txt: its parser, which of its lines decides about a path, and the meaning of a missing or unreachable one (RFC 9309).

The rule: what the site's owner forbade is not requested; where the text can be read in two ways, the stricter reading counts. Common
mistakes (a missing colon, a typo in "disallow") are read as intended.

The longest match decides, and of two equally long ones the Allow does. Matching takes time that grows with the path and with the rules,
never with a power of their product: the rules come from a stranger who may want to waste our time.

RFC 9309 compares after decoding unnecessary escapes; the parsers that sites are tested with compare the text as written. We take the
stricter reading of each: a Disallow is compared as RFC 9309 says, an Allow only as written.

Characters that rules contain unescaped and URLs contain escaped (a space, quotes, braces …) are escaped: for a Disallow on both sides, at
any position, and in an Allow as browsers do it in a URL.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.model.outcome import Outcome

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


MAX_BYTES: Final = 500 * 1024
"""Bytes of a robots.txt that are read; the rest is ignored."""
PRODUCT: Final = "Holdfast"
"""The default product token, for a user agent without one."""

_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_INVALID: Final = re.compile("[\udc80-\udcff]")
_TOKEN: Final = re.compile(r"[0-9]*[A-Za-z_-]+|[0-9]+")
"""The product token of RFC 9309, plus digits: some names begin with digits ("360Spider") or are digits ("008")."""
_COMPATIBLE: Final = re.compile(rf"Mozilla/[^(]*\(compatible;\s*({_TOKEN.pattern})", re.IGNORECASE)
_SITE: Final = re.compile(r"(?:[^/?;#]*://|//)?[^/?;#]*")
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15}")

_AGENT, _ALLOW, _DISALLOW, _DELAY, _SITEMAP = range(5)
_KEYS: Final = {
    **dict.fromkeys(("user-agent", "useragent", "user agent"), _AGENT),
    "allow": _ALLOW,
    **dict.fromkeys(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), _DISALLOW),
    **dict.fromkeys(("crawl-delay", "crawldelay", "crawl delay"), _DELAY),
    **dict.fromkeys(("sitemap", "site-map"), _SITEMAP),
}
_LISTS: Final = {(False, False): (), (True, False): (True,), (False, True): (False,), (True, True): (True, False)}
"""The lists that a line belongs to, by whether its group is ours and whether it is that of *; True is our list."""


class Decision(NamedTuple):
    """Whether a URL may be requested, and the line of robots.txt that decides it, if any."""

    allowed: bool
    line: str | None = None


class AppliedLines(NamedTuple):
    """The lines of a robots.txt that count for an agent."""

    group: str | None
    """The name of the group that counts: that of the agent in lower case, or `*`; None: there is no group for it."""
    numbers: tuple[int, ...]
    """Its lines, from 1: names, rules and delays of the group, without sitemaps, which count for all agents."""


class _Group(NamedTuple):
    rules: Rules
    delay: float | None
    applied: AppliedLines


class Robots:
    """A parsed robots.txt. `agent` is a product token ("Holdfast"), in any case; the group of that name counts, else that of *."""

    __slots__ = ("_fixed", "_groups", "_max_delay", "_text")

    def __init__(self, text: str, *, max_crawl_delay: float = 60.0, fixed: Decision | None = None) -> None:
        """`text` comes from `decode_body`. `fixed` is the decision for every URL, whatever the text. `max_crawl_delay` is in seconds."""
        self._text = text
        self._max_delay = max_crawl_delay
        self._fixed = fixed
        self._groups: dict[str, _Group] = {}

    @classmethod
    def from_body(cls, body: bytes, *, max_crawl_delay: float = 60.0) -> "Robots":
        """Parse the bytes that a server sent."""
        return cls(decode_body(body), max_crawl_delay=max_crawl_delay)

    @property
    def text(self) -> str:
        """The decoded text, for the store."""
        return self._text

    def allowed(self, url: str, agent: str) -> Decision:
        """Whether `agent` may request `url`. robots.txt itself is always allowed."""
        path = path_and_query(url)
        if path == "/robots.txt":
            return _ALLOWED
        if self._fixed:
            return self._fixed
        rules = self._group(agent).rules
        if not rules.count:
            return _ALLOWED
        rule = rules.deciding_rule(target(path))
        return Decision(rule.allow, str(rule)) if rule else _ALLOWED

    def crawl_delay(self, agent: str) -> float | None:
        """Seconds between two requests, at most `max_crawl_delay`; None: not specified."""
        delay = self._group(agent).delay
        return None if delay is None else min(delay, self._max_delay)

    def applied_lines(self, agent: str) -> AppliedLines:
        """The lines that count for `agent`, to show them."""
        return self._group(agent).applied

    def sitemaps(self) -> tuple[str, ...]:
        """The sitemap URLs as written, in order, without duplicates; they belong to no group."""
        return tuple(dict.fromkeys(value for _, key, value in _lines(self._text) if key == _SITEMAP and value))

    def denies_everything(self, agent: str) -> bool:
        """Whether the site denies every URL to `agent`. False if there is any Allow, or if robots.txt is unreachable."""
        return self._fixed is None and self._group(agent).rules.deny_everything()

    def _group(self, agent: str) -> _Group:
        agent = agent.lower()
        if agent not in self._groups:
            self._groups[agent] = _parse_group(self._text, agent)
        return self._groups[agent]


_ALLOWED: Final = Decision(allowed=True)
ALLOW_ALL: Final = Robots("")
"""The site has no robots.txt."""
UNREACHABLE: Final = Robots("", fixed=Decision(allowed=False, line="robots.txt could not be fetched"))
"""robots.txt is unreachable and no copy is stored: every URL is denied for now, which says nothing about the site's wishes."""


class RobotsAnswer(StrEnum):
    """The meaning of the answer to a request for robots.txt."""

    READ = "read"
    """Use its body from now on."""
    UNCHANGED = "unchanged"
    """Keep using the stored copy."""
    NO_RULES = "no_rules"
    """There is no robots.txt: `ALLOW_ALL`."""
    UNREACHABLE = "unreachable"
    """Unknown: use the stored copy, else `UNREACHABLE`; retry after `politeness.robots_retry`."""


ANSWERS: Final[dict[Outcome, RobotsAnswer]] = {
    Outcome.OK: RobotsAnswer.READ,
    Outcome.WRONG_TYPE: RobotsAnswer.READ,
    Outcome.NOT_MODIFIED: RobotsAnswer.UNCHANGED,
    # "Unavailable" in RFC 9309: the server has none for us, or its redirects lead nowhere.
    Outcome.REDIRECT: RobotsAnswer.NO_RULES,
    Outcome.REDIRECT_LOOP: RobotsAnswer.NO_RULES,
    Outcome.TOO_MANY_REDIRECTS: RobotsAnswer.NO_RULES,
    Outcome.NO_HTTPS: RobotsAnswer.UNREACHABLE,
    Outcome.NOT_FOUND: RobotsAnswer.NO_RULES,
    Outcome.CLIENT_ERROR: RobotsAnswer.NO_RULES,
    Outcome.LOGIN_WALL: RobotsAnswer.NO_RULES,
    Outcome.FORBIDDEN: RobotsAnswer.NO_RULES,
    Outcome.CAPTCHA: RobotsAnswer.NO_RULES,
    Outcome.URL_REFUSED: RobotsAnswer.NO_RULES,
    # "Unreachable" in RFC 9309: there may be one that we have not seen.
    Outcome.RATE_LIMITED: RobotsAnswer.UNREACHABLE,
    Outcome.UNAVAILABLE: RobotsAnswer.UNREACHABLE,
    Outcome.SERVER_ERROR: RobotsAnswer.UNREACHABLE,
    Outcome.TOO_LARGE: RobotsAnswer.UNREACHABLE,
    Outcome.BAD_ENCODING: RobotsAnswer.UNREACHABLE,
    Outcome.BAD_RESPONSE: RobotsAnswer.UNREACHABLE,
    Outcome.DNS_FAILURE: RobotsAnswer.UNREACHABLE,
    Outcome.NO_SUCH_HOST: RobotsAnswer.UNREACHABLE,
    Outcome.CONNECTION_FAILED: RobotsAnswer.UNREACHABLE,
    Outcome.CONNECTION_BROKEN: RobotsAnswer.UNREACHABLE,
    Outcome.GIVEN_UP: RobotsAnswer.UNREACHABLE,
    Outcome.TLS_FAILURE: RobotsAnswer.UNREACHABLE,
    Outcome.TIMEOUT: RobotsAnswer.UNREACHABLE,
    Outcome.TOO_SLOW: RobotsAnswer.UNREACHABLE,
    Outcome.ADDRESS_REFUSED: RobotsAnswer.UNREACHABLE,
    Outcome.PROXY_FAILED: RobotsAnswer.UNREACHABLE,
    Outcome.PROXY_UNCLEAR: RobotsAnswer.UNREACHABLE,
    # These outcomes do not occur for a robots.txt.
    Outcome.IMAGE: RobotsAnswer.UNREACHABLE,
    Outcome.BAD_IMAGE: RobotsAnswer.UNREACHABLE,
    Outcome.IMAGE_LIMIT: RobotsAnswer.UNREACHABLE,
    Outcome.CHECKED: RobotsAnswer.UNREACHABLE,
    Outcome.CHECK_LIMIT: RobotsAnswer.UNREACHABLE,
    Outcome.SITEMAP: RobotsAnswer.UNREACHABLE,
    Outcome.NO_SITEMAP: RobotsAnswer.UNREACHABLE,
    Outcome.ROBOTS_DENIED: RobotsAnswer.UNREACHABLE,
    Outcome.OUT_OF_SCOPE: RobotsAnswer.UNREACHABLE,
    Outcome.EXCLUDED: RobotsAnswer.UNREACHABLE,
    Outcome.TOO_DEEP: RobotsAnswer.UNREACHABLE,
    Outcome.TRAP: RobotsAnswer.UNREACHABLE,
    Outcome.NOFOLLOW: RobotsAnswer.UNREACHABLE,
    Outcome.FOLDED: RobotsAnswer.UNREACHABLE,
    Outcome.PAGINATION: RobotsAnswer.UNREACHABLE,
    Outcome.OTHER_DOMAIN: RobotsAnswer.UNREACHABLE,
}


def robots_answer(outcome: Outcome, status: int | None) -> RobotsAnswer:
    """The meaning of a request for robots.txt that ended so. An error status counts for more than how its body was read."""
    if status is not None and 400 <= status < 600:
        return RobotsAnswer.NO_RULES if status < 500 and status != 429 else RobotsAnswer.UNREACHABLE
    return ANSWERS[outcome]


def product_token(user_agent: str) -> str:
    """The product token of a user agent, by which groups of a robots.txt are looked up: "Holdfast" of "Holdfast/0.2 (+mailto:…)"."""
    found = _COMPATIBLE.match(user_agent)
    if found:  # a bot that claims to be compatible with a browser has its own name after that
        return found[1]
    leading = _TOKEN.match(user_agent)
    return leading[0] if leading else PRODUCT


def decode_body(body: bytes) -> str:
    """Decode a robots.txt from any bytes. The text has no NUL and no lone surrogate, so that it can be stored.

    Bytes that are not UTF-8 become percent escapes, as in URLs. A body of `MAX_BYTES` or more ends with its last whole line.
    """
    if len(body) >= MAX_BYTES:  # a body of exactly this length was cut when it was read
        body = body[: max(body.rfind(b"\n", 0, MAX_BYTES), body.rfind(b"\r", 0, MAX_BYTES)) + 1]
    if body.startswith(_UTF16):
        return body.decode("utf-16", "replace").replace("\0", "")
    for byte in _BOM:  # partial ones occur, too
        if not body or body[0] != byte:
            break
        body = body[1:]
    text = body.decode("utf-8", "surrogateescape").replace("\0", "")
    return _INVALID.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def path_and_query(url: str) -> str:
    """Path and query of a URL, as rules are matched against."""
    rest = url[_SITE.match(url).end() :].partition("#")[0]  # type: ignore[union-attr]  # it always matches, if only the empty string
    return rest if rest.startswith("/") else f"/{rest}"


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Number, key and value of each line with a known key."""
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.partition("#")[0].strip()
        name, colon, value = line.partition(":")
        if not colon:
            words = line.split(None, 2)
            if len(words) != 2:
                continue
            name, value = words
        lowered = name.strip()[:20].lower()
        key = _KEYS.get(lowered)
        if key is None:  # "Disallowed:" is accepted, too
            key = next((key for prefix, key in _KEYS.items() if lowered.startswith(prefix)), None)
        if key is not None:
            yield number, key, value.strip()


def _parse_group(text: str, agent: str) -> _Group:
    """The group of `agent`, or else that of *. Groups with the same name are merged; rules before the first group are ignored."""
    groups: dict[bool, list[Rule]] = {True: [], False: []}
    delays: dict[bool, float] = {}
    lines: dict[bool, list[int]] = {True: [], False: []}
    found_ours = ours = wildcard = in_rules = False
    for number, key, value in _lines(text):
        if key == _AGENT:
            if in_rules:  # a user-agent line after rules begins a new group
                ours = wildcard = in_rules = False
            name = _TOKEN.match(value)
            if value[:2].rstrip() == "*":
                wildcard = True
                lines[False].append(number)
            elif name and name[0].lower() == agent:
                ours = found_ours = True
                lines[True].append(number)
        elif key in (_ALLOW, _DISALLOW):
            in_rules = True
            rules = _with_index_folder(Rule(key == _ALLOW, value, number))
            for mine in _LISTS[ours, wildcard]:
                groups[mine].extend(rules)
                lines[mine].append(number)
        elif key == _DELAY and (seconds := _NUMBER.fullmatch(value)):
            for mine in _LISTS[ours, wildcard]:
                delays.setdefault(mine, float(seconds[0]))
                lines[mine].append(number)
    applied = lines[found_ours]
    name_shown = agent if found_ours else "*" if applied else None
    return _Group(Rules(groups[found_ours]), delays.get(found_ours), AppliedLines(name_shown, tuple(applied)))


def _with_index_folder(rule: Rule) -> list[Rule]:
    """The rule, and for an Allow of a folder's index page also one that allows the folder itself."""
    folder, slash, page = rule.pattern.rpartition("/")
    if rule.allow and slash and page.startswith("index.htm"):
        return [rule, rule._replace(pattern=f"{folder}/$")]
    return [rule]
