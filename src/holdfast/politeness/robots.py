"""What a robots.txt says, and what its absence says (RFC 9309).

The rule: what the site's owner forbade is not asked for; where what was written can be read in two ways, the reading that forbids more
counts. Mistakes that people make (a missing colon, a slip in "disallow") are read as they were meant.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.model.outcome import Outcome
from holdfast.politeness.rules import Rule, Rules, target

MAX_BYTES: Final = 500 * 1024
"""Of a robots.txt that are read; the rest is ignored."""
PRODUCT: Final = "Holdfast"
"""Our name in robots.txt, where the user agent has none."""

_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_INVALID: Final = re.compile("[\udc80-\udcff]")
_TOKEN: Final = re.compile(r"[0-9]*[A-Za-z_-]+|[0-9]+")
"""Of RFC 9309, which has no digits; there are names that begin with some ("360Spider") or have nothing else ("008")."""
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
_WHOSE: Final = {(False, False): (), (True, False): (True,), (False, True): (False,), (True, True): (True, False)}
"""Which lists a line belongs to, by whether its group is ours and everybody's; True is ours."""


class Decision(NamedTuple):
    """Whether a URL may be asked for, and the line that says so, if one does."""

    allowed: bool
    line: str | None = None


class _Group(NamedTuple):
    rules: Rules
    delay: float | None


class Robots:
    """A robots.txt. `agent` is a product token ("Holdfast"), in any case; the group of that name counts, else that of *."""

    __slots__ = ("_fixed", "_groups", "_max_delay", "_text")

    def __init__(self, text: str, *, max_crawl_delay: float = 60.0, fixed: Decision | None = None) -> None:
        """`text` is what `text_of` made of the body. `fixed` answers for every URL, whatever the text."""
        self._text = text
        self._max_delay = max_crawl_delay
        self._fixed = fixed
        self._groups: dict[str, _Group] = {}

    @classmethod
    def from_body(cls, body: bytes, *, max_crawl_delay: float = 60.0) -> "Robots":
        """Of the bytes that a server sent."""
        return cls(text_of(body), max_crawl_delay=max_crawl_delay)

    @property
    def text(self) -> str:
        """As it was read, for the store."""
        return self._text

    def allowed(self, url: str, agent: str) -> Decision:
        """May `agent` ask for `url`? For robots.txt itself always."""
        path = path_of(url)
        if path == "/robots.txt":
            return _ALLOWED
        if self._fixed:
            return self._fixed
        rules = self._group(agent).rules
        if not rules.count:
            return _ALLOWED
        rule = rules.deciding(target(path))
        return Decision(rule.allow, str(rule)) if rule else _ALLOWED

    def crawl_delay(self, agent: str) -> float | None:
        """Seconds between two requests, not more than the settings allow; None: nothing is said."""
        delay = self._group(agent).delay
        return None if delay is None else min(delay, self._max_delay)

    def sitemaps(self) -> tuple[str, ...]:
        """The addresses of sitemaps as written, in their order, without repeats; they belong to no group."""
        return tuple(dict.fromkeys(value for _, key, value in _lines(self._text) if key == _SITEMAP and value))

    def denies_everything(self, agent: str) -> bool:
        """Whether the site wants nothing at all of `agent`. Any Allow makes it no, and so does a robots.txt that could not be had."""
        return self._fixed is None and self._group(agent).rules.deny_everything()

    def _group(self, agent: str) -> _Group:
        agent = agent.lower()
        if agent not in self._groups:
            self._groups[agent] = _read(self._text, agent)
        return self._groups[agent]


_ALLOWED: Final = Decision(allowed=True)
ALLOW_ALL: Final = Robots("")
"""There is no robots.txt."""
NOT_NOW: Final = Robots("", fixed=Decision(allowed=False, line="robots.txt could not be had"))
"""It could not be had, and nothing is known of it: no URL for the time being, which says nothing about what the site wants."""


class Answer(StrEnum):
    """What the answer to a request for robots.txt means."""

    READ = "read"
    """Its body counts from now on."""
    UNCHANGED = "unchanged"
    """The copy at hand counts on."""
    NO_RULES = "no_rules"
    """There is none: `ALLOW_ALL`."""
    NOT_NOW = "not_now"
    """Nobody knows: the copy at hand serves, else `NOT_NOW`; to be asked again after `politeness.robots_retry`."""


ANSWERS: Final[dict[Outcome, Answer]] = {
    Outcome.OK: Answer.READ,
    Outcome.WRONG_TYPE: Answer.READ,
    Outcome.NOT_MODIFIED: Answer.UNCHANGED,
    # "Unavailable" in RFC 9309: the server has none for us, or leads us nowhere.
    Outcome.REDIRECT: Answer.NO_RULES,
    Outcome.REDIRECT_LOOP: Answer.NO_RULES,
    Outcome.TOO_MANY_REDIRECTS: Answer.NO_RULES,
    Outcome.NO_HTTPS: Answer.NOT_NOW,
    Outcome.NOT_FOUND: Answer.NO_RULES,
    Outcome.CLIENT_ERROR: Answer.NO_RULES,
    Outcome.LOGIN_WALL: Answer.NO_RULES,
    Outcome.FORBIDDEN: Answer.NO_RULES,
    Outcome.CAPTCHA: Answer.NO_RULES,
    Outcome.URL_REFUSED: Answer.NO_RULES,
    # "Unreachable": there may be one, and we have not seen it.
    Outcome.RATE_LIMITED: Answer.NOT_NOW,
    Outcome.UNAVAILABLE: Answer.NOT_NOW,
    Outcome.SERVER_ERROR: Answer.NOT_NOW,
    Outcome.TOO_LARGE: Answer.NOT_NOW,
    Outcome.BAD_ENCODING: Answer.NOT_NOW,
    Outcome.BAD_RESPONSE: Answer.NOT_NOW,
    Outcome.DNS_FAILURE: Answer.NOT_NOW,
    Outcome.NO_SUCH_HOST: Answer.NOT_NOW,
    Outcome.CONNECTION_FAILED: Answer.NOT_NOW,
    Outcome.CONNECTION_BROKEN: Answer.NOT_NOW,
    Outcome.GIVEN_UP: Answer.NOT_NOW,
    Outcome.TLS_FAILURE: Answer.NOT_NOW,
    Outcome.TIMEOUT: Answer.NOT_NOW,
    Outcome.TOO_SLOW: Answer.NOT_NOW,
    Outcome.ADDRESS_REFUSED: Answer.NOT_NOW,
    Outcome.PROXY_FAILED: Answer.NOT_NOW,
    Outcome.PROXY_UNCLEAR: Answer.NOT_NOW,
    # Nobody decides these about a robots.txt.
    Outcome.ROBOTS_DENIED: Answer.NOT_NOW,
    Outcome.OUT_OF_SCOPE: Answer.NOT_NOW,
    Outcome.EXCLUDED: Answer.NOT_NOW,
    Outcome.TOO_DEEP: Answer.NOT_NOW,
    Outcome.TRAP: Answer.NOT_NOW,
    Outcome.NOFOLLOW: Answer.NOT_NOW,
    Outcome.FOLDED: Answer.NOT_NOW,
    Outcome.PAGINATION: Answer.NOT_NOW,
    Outcome.OTHER_DOMAIN: Answer.NOT_NOW,
}


def policy(outcome: Outcome, status: int | None) -> Answer:
    """What it means that a request for robots.txt ended so. The status of an error says more than how its body was read."""
    if status is not None and 400 <= status < 600:
        return Answer.NO_RULES if status < 500 and status != 429 else Answer.NOT_NOW
    return ANSWERS[outcome]


def product_token(user_agent: str) -> str:
    """The name in a user agent that groups of a robots.txt are looked up by: "Holdfast" of "Holdfast/0.2 (+mailto:…)"."""
    found = _COMPATIBLE.match(user_agent)
    if found:  # a bot that calls itself compatible to a browser has its own name behind
        return found[1]
    leading = _TOKEN.match(user_agent)
    return leading[0] if leading else PRODUCT


def text_of(body: bytes) -> str:
    """The text of a robots.txt: any bytes will do. It has no NUL and no lone surrogate, so that it can be stored.

    What is not UTF-8 becomes an escape, as it is in URLs. One that is as long as `MAX_BYTES` or longer ends with its last whole line.
    """
    if len(body) >= MAX_BYTES:  # a body of just this length was cut by whoever read it
        body = body[: max(body.rfind(b"\n", 0, MAX_BYTES), body.rfind(b"\r", 0, MAX_BYTES)) + 1]
    if body.startswith(_UTF16):
        return body.decode("utf-16", "replace").replace("\0", "")
    for byte in _BOM:  # parts of one are met, too
        if not body or body[0] != byte:
            break
        body = body[1:]
    text = body.decode("utf-8", "surrogateescape").replace("\0", "")
    return _INVALID.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def path_of(url: str) -> str:
    """Path and query of a URL, as rules see them."""
    rest = url[_SITE.match(url).end() :].partition("#")[0]  # type: ignore[union-attr]  # it matches the empty text
    return rest if rest.startswith("/") else f"/{rest}"


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Number, key and value of each line that means something."""
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
        if key is None:  # "Disallowed:" is read, too
            key = next((key for prefix, key in _KEYS.items() if lowered.startswith(prefix)), None)
        if key is not None:
            yield number, key, value.strip()


def _read(text: str, agent: str) -> _Group:
    """The group of `agent`, or else that of everybody. Groups of one name are one; rules before the first group are none."""
    groups: dict[bool, list[Rule]] = {True: [], False: []}
    delays: dict[bool, float] = {}
    met_ours = ours = everybody = in_rules = False
    for number, key, value in _lines(text):
        if key == _AGENT:
            if in_rules:  # a group ends where names follow rules
                ours = everybody = in_rules = False
            name = _TOKEN.match(value)
            if value[:2].rstrip() == "*":
                everybody = True
            elif name and name[0].lower() == agent:
                ours = met_ours = True
        elif key in (_ALLOW, _DISALLOW):
            in_rules = True
            rules = _rules_of(Rule(key == _ALLOW, value, number))
            for mine in _WHOSE[ours, everybody]:
                groups[mine].extend(rules)
        elif key == _DELAY and (seconds := _NUMBER.fullmatch(value)):
            for mine in _WHOSE[ours, everybody]:
                delays.setdefault(mine, float(seconds[0]))
    return _Group(Rules(groups[met_ours]), delays.get(met_ours))


def _rules_of(rule: Rule) -> list[Rule]:
    """The rule, and where it allows a folder's index page, one that allows the folder's own address."""
    folder, slash, page = rule.pattern.rpartition("/")
    if rule.allow and slash and page.startswith("index.htm"):
        return [rule, rule._replace(pattern=f"{folder}/$")]
    return [rule]
