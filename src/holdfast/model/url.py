"""URLs: reading them as browsers do, and the one spelling under which a page is stored.

Owns what WHATWG says of URLs (through ada-url) and what Holdfast adds to it. Its one rule: every function here
gives a value or raises ``BadUrl``, for any text whatsoever. Which domain a URL belongs to is ``holdfast.model.host``'s.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

# The C layer under ada-url's adapter: half the time of ada_url.join_url, which pays for a garbage-collected handle per
# call (1.7 against 3.5 us). can_ada is faster still, and fails 15 of 891 and 14 of 87 web-platform tests.
from ada_url._ada_wrapper import ffi, lib  # type: ignore[import-not-found]

from holdfast.errors import BadUrl, SettingsError, UsageError

MAX_INPUT: Final = 1 << 20
"""Characters of text that we look at; whatever is longer is refused unread, so that no page can buy our time."""

MAX_HOST: Final = 253
"""Characters of the longest name that name servers know, without its trailing dot."""

_LABEL: Final = r"[a-z0-9_][a-z0-9_-]{0,62}(?<!-)"
PLAIN_HOST: Final = rf"(?:{_LABEL}\.)*+[a-z][a-z0-9_-]{{0,62}}(?<!-)"
"""A host that WHATWG leaves as it is: lowercase letters, digits, underscores, hyphens inside of a label, and (since the last
label starts with a letter) no IPv4 address in disguise. At most a host: the length of the whole is for the caller to check."""

# Characters that WHATWG encodes neither in a path nor in a query nor in a fragment. A segment that starts with a dot
# (or %2e) may be a dot segment and is left to ada: `_is_plain`.
_SAFE: Final = r"A-Za-z0-9\-._~!$&()*+,;=:@%/"
_PLAIN_TARGET: Final = rf"/[{_SAFE}]*+(?:\?[{_SAFE}?]*+)?(?:#[{_SAFE}?]*+)?"
_PLAIN_DOMAIN: Final = re.compile(PLAIN_HOST)
_PLAIN_PATH: Final = re.compile(rf"(?!//){_PLAIN_TARGET}")
# With an IPv4 address as WHATWG writes it, and with a port that it does not leave out.
_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_PORT: Final = "(?::(?!80/|443/)(?:[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
_PLAIN_URL: Final = re.compile(
    rf"https?://(?:{PLAIN_HOST}|(?:{_OCTET}\.){{3}}{_OCTET}){_PLAIN_PORT}(?=/){_PLAIN_TARGET}"
)

# An http(s) URL as WHATWG serializes it. An "@" in userinfo is written %40, so the first one ends it.
_PARTS: Final = re.compile(
    r"(https?)://(?:[^/@]*@)?(\[[^\]]*\]|[^:/]*)(?::(\d+))?(/[^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
_VISITABLE: Final = re.compile(rf"(?:{_LABEL}\.)*+{_LABEL}")
_HYPHEN_OUTSIDE: Final = re.compile(r"(?:\A|\.)-|-(?:\.|\Z)")

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = {f"%{ord(c):02X}": c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"}
_AFTER_STRAY_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]?\Z")
_DOT_SEGMENT: Final = re.compile(r"/\.\.?(?:/|\Z)")
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9._~%\[\]-]{1,100}\*?")
_PATH_PARAMETER: Final = re.compile(r";([^/;=]*)(?:=[^/;]*)?")

_C0_AND_SPACE: Final = "".join(map(chr, range(0x21)))
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PORT: Final = re.compile(r"[0-9]+(?=[/?#\\]|\Z)")
_BARE_HOST: Final = re.compile(r"[^@\t\r\n/?#\\]+(?<!:)(?=[/?#\\]|\Z)")
_NEVER_A_HOST: Final = frozenset({"javascript", "mailto", "sms", "tel"})  # "tel:911" is no server with a port
_USERINFO: Final = re.compile(r"(\s*+(?:[A-Za-z][A-Za-z0-9+.-]*+:)?+[/\\]*+)[^/\\?#]*@")

# fmt: off
TRACKING_PARAMETERS: Final = (
    "utm_*", "gclid", "fbclid", "msclkid", "dclid", "yclid", "mc_cid", "mc_eid", "igshid", "_ga",
)
# fmt: on
SESSION_PARAMETERS: Final = ("phpsessid", "jsessionid", "aspsessionid*")


@dataclass(frozen=True, slots=True)
class Url:
    """An http(s) URL as WHATWG reads it: nothing but its spelling is changed. ``href`` may hold credentials."""

    href: str
    scheme: str
    host: str
    port: int | None
    """None: the scheme's own."""
    path: str
    query: str | None
    fragment: str | None

    @property
    def origin(self) -> str:
        """Scheme, host and port: whom a robots.txt speaks for."""
        return f"{self.scheme}://{self.host}" + ("" if self.port is None else f":{self.port}")

    @property
    def has_credentials(self) -> bool:
        """A user's name or password stands before the host."""
        return not self.href.startswith(self.origin)


@dataclass(frozen=True, slots=True)
class _Names:
    exact: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "_Names":
        lowered = [pattern.lower() for pattern in patterns]
        for pattern in lowered:
            if not pattern or "*" in pattern[:-1]:
                raise SettingsError(f"A parameter is a name or a prefix ending in '*', not {pattern!a}.")
        return cls(
            frozenset(pattern for pattern in lowered if pattern[-1] != "*"),
            tuple(pattern[:-1] for pattern in lowered if pattern[-1] == "*"),
        )

    def matches(self, name: str) -> bool:
        lowered = name.lower()
        return lowered in self.exact or lowered.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class UrlRules:
    """What of normalization is a matter of taste. A parameter's name is matched in any case; ``utm_*`` is a prefix."""

    tracking_parameters: tuple[str, ...] = TRACKING_PARAMETERS
    session_parameters: tuple[str, ...] = SESSION_PARAMETERS
    strip_parameters: tuple[str, ...] = ()
    """Further ones, of a job or of a domain."""
    strip_trailing_slash: bool = False
    sort_query: bool = True
    max_bytes: int = 2048
    dropped: _Names = field(init=False, repr=False, compare=False)
    """Query parameters that say nothing about the page."""
    sessions: _Names = field(init=False, repr=False, compare=False)
    """Path parameters (``;jsessionid=…``) that are a session's id, or that a job or a domain drops."""

    def __post_init__(self) -> None:
        """Raise SettingsError for a name that could never match; make the name sets that every URL is checked with."""
        if self.max_bytes < 1:
            raise SettingsError(f"A URL may be 1 byte or more, not {self.max_bytes}.")
        in_paths = (*self.session_parameters, *self.strip_parameters)
        object.__setattr__(self, "sessions", _Names.of(in_paths))
        object.__setattr__(self, "dropped", _Names.of((*self.tracking_parameters, *in_paths)))

    def stripping(self, names: Iterable[str]) -> "UrlRules":
        """These rules, dropping the parameters called `names` as well."""
        more = tuple(names)
        return replace(self, strip_parameters=(*self.strip_parameters, *more)) if more else self


DEFAULT_RULES: Final = UrlRules()


def refusal(text: str, why: str) -> BadUrl:
    """The error for *text*: shortened, escaped, without credentials (errors end in logs and in the store)."""
    if userinfo := _USERINFO.match(text):
        text = f"{userinfo[1]}***@{text[userinfo.end() :]}"
    shown = ascii(text[:100])
    return BadUrl(f"{shown if len(shown) <= 100 else f'{shown[:98]}…{shown[0]}'} {why}.")


def parse(text: str) -> Url:
    """Read an absolute http(s) URL as WHATWG does."""
    href = _serialize(text)
    parts = _PARTS.fullmatch(href)
    assert parts is not None, "WHATWG serializes every http(s) URL so"  # noqa: S101
    scheme, host, port, path, query, fragment = parts.groups()
    return Url(href, scheme, host, int(port) if port else None, path, query, fragment)


def origin_and_target(text: str) -> tuple[str, str]:
    """Whom to ask for an absolute http(s) URL, and for what: without credentials and fragment."""
    if len(text) <= MAX_INPUT and "#" not in text and _is_plain(_PLAIN_URL, text):
        cut = text.index("/", len("http://x"))
        return text[:cut], text[cut:]
    url = parse(text)
    return url.origin, url.path if url.query is None else f"{url.path}?{url.query}"


def join(base: str, href: str) -> str:
    """The http(s) URL that *href* means on the page *base*, as WHATWG serializes it."""
    prefix, base_bytes = _base(base)
    if len(href) <= MAX_INPUT:
        # Neither shortcut changes an answer (test_url compares them with ada); they are most of a page's links.
        if prefix and _is_plain(_PLAIN_PATH, href):
            return prefix + href
        if _is_plain(_PLAIN_URL, href):
            return href
    return _ask_ada(href, base_bytes)


def normalize(url: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """The one spelling of *url* that is stored. Normalizing it again, or WHATWG's reading it, changes nothing."""
    return _normal(_serialize(url), url, rules)


def resolve(base: str, href: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """``normalize(join(base, href), rules)``, read only once: what a link found on a page is stored as."""
    return _normal(join(base, href), href, rules)


def absolute_on(page: str, base: str | None, href: str) -> str | None:
    """The absolute URL that *href* means on a page whose base element says *base*; None if it is none of the web."""
    try:
        if base is not None:
            page = join(page, base)
    except BadUrl:  # a base that cannot be read is as if it were not there
        pass
    try:
        return join(page, href)
    except BadUrl:
        return None


class Dropped(NamedTuple):
    """A parameter that normalization drops."""

    name: str
    rule: str
    """The setting that says so: `urls.tracking_parameters`, `urls.session_parameters`, or `strip_params` of the job or the domain."""


def dropped_parameters(url: str, rules: UrlRules = DEFAULT_RULES) -> list[Dropped]:
    """The parameters of *url* that `normalize` drops, each with the rule that says so, in their order and without repeats."""
    front, _, query = _serialize(url).partition("#")[0].partition("?")
    path = _unescape(front[front.index("/", len("http://x")) :])
    groups = [
        ("urls.session_parameters", _Names.of(rules.session_parameters)),
        ("strip_params", _Names.of(rules.strip_parameters)),
    ]
    found = [(name, groups) for name in _PATH_PARAMETER.findall(path)]
    groups = [("urls.tracking_parameters", _Names.of(rules.tracking_parameters)), *groups]
    found += [(piece.partition("=")[0], groups) for piece in _unescape(query).split("&") if piece]
    dropped = [Dropped(name, next((rule for rule, names in of if names.matches(name)), "")) for name, of in found]
    return list(dict.fromkeys(one for one in dropped if one.rule))


def check_parameter_names(names: Iterable[str]) -> None:
    """Raise UsageError for a name that no parameter has."""
    for name in names:
        if not _PARAMETER_NAME.fullmatch(name):
            raise UsageError(
                f"The name of a parameter to drop is letters, digits, - . _ ~ or %, perhaps with one * at its end: not {name!a}."
            )


def url_key(normalized: str) -> bytes:
    """The 16 bytes by which the store knows a normalized URL."""
    try:
        return hashlib.sha256(normalized.encode("ascii")).digest()[:16]
    except UnicodeEncodeError:
        raise refusal(normalized, "is not a normalized URL, so it has no key") from None


def seed_url(text: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """What a line of a seed file means: a URL is normalized, a bare domain is its home page over https."""
    if len(text) <= MAX_HOST and len(text) + len("https:///") <= rules.max_bytes and _PLAIN_DOMAIN.fullmatch(text):
        return f"https://{text}/"  # a million lines of a seed file are like this; the long way says the same
    return normalize(absolute(text), rules)


def absolute(text: str) -> str:
    """The URL meant by what a person wrote: itself, or ``https://`` before a bare host, host:port or //host.

    ``host:80`` is the one bare form that means http. Another scheme, a path or a mail address is refused.
    """
    written = text.strip(_C0_AND_SPACE)
    if scheme := _SCHEME.match(written):
        name = scheme[1].lower()
        if name in ("http", "https"):
            return written
        if name in _NEVER_A_HOST or not _PORT.match(written, scheme.end()):
            raise refusal(text, "is neither an http or https URL nor a domain")
    written = written.removeprefix("//")
    host = _BARE_HOST.match(written)  # no tab or line end: WHATWG would ignore it, and glue two seeds into a third
    if not host:
        raise refusal(text, "names no host")
    return ("http://" if host[0].endswith(":80") else "https://") + written


def is_guessed(text: str) -> bool:
    """Whether a person who wrote this gave neither a scheme nor a port that stands for one, so that `absolute` guessed https."""
    if ":" not in text:
        return True
    written = text.strip(_C0_AND_SPACE)
    if (scheme := _SCHEME.match(written)) and scheme[1].lower() in ("http", "https"):
        return False
    host = _BARE_HOST.match(written.removeprefix("//"))
    return host is not None and not host[0].endswith((":80", ":443"))


def with_http(url: str) -> str:
    """The same URL over http. Before: it is a normalized https URL."""
    return "http" + url.removeprefix("https")


def visitable(url: Url) -> str:
    """The host of *url* without its trailing dot, if something could listen there; raises BadUrl otherwise.

    WHATWG lets more through: empty labels, any length, labels that begin or end with a hyphen, which no name server of the
    web gives out, characters such as ``{`` or ``,``. Underscores (``_dmarc.example.com``) do exist, so they stay.
    """
    host = url.host.removesuffix(".")
    if url.port == 0:
        raise refusal(url.href, "names port 0, where nothing can listen")
    if not host.startswith("[") and (len(host) > MAX_HOST or not _VISITABLE.fullmatch(host)):
        if _HYPHEN_OUTSIDE.search(host):
            raise refusal(url.href, "names a host with a part that begins or ends with a hyphen")
        raise refusal(url.href, "names a host that nobody can look up")
    return host


def _is_plain(pattern: re.Pattern[str], text: str) -> bool:
    """Whether *text* is what *pattern* says, and has no segment that may be a dot segment (or, seldom, looks like it)."""
    # Asked of the text first: a pattern that looks ahead for them took three times as long.
    return "/." not in text and "/%2" not in text and pattern.fullmatch(text) is not None


def _serialize(text: str) -> str:
    if len(text) <= MAX_INPUT and _is_plain(_PLAIN_URL, text):
        return text
    return _ask_ada(text, None)


def _ask_ada(text: str, base: bytes | None) -> str:
    if len(text) > MAX_INPUT:
        raise refusal(text, f"is longer than {MAX_INPUT} characters")
    href = _whatwg(_utf8(text), base)
    if not href.startswith(("https://", "http://")):
        raise refusal(text, "is not an http or https URL" if href else "is not a URL that can be read")
    return href


def _whatwg(text: bytes, base: bytes | None) -> str:
    """WHATWG's serialization; empty where it refuses (of a URL that could be read it never is)."""
    url = lib.ada_parse(text, len(text)) if base is None else lib.ada_parse_with_base(text, len(text), base, len(base))
    try:
        href = lib.ada_get_href(url)
        return str(ffi.buffer(href.data, href.length), "utf-8") if href.length else ""
    finally:
        lib.ada_free(url)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # WHATWG works on scalar values: a lone surrogate is U+FFFD, a pair is one character
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


@lru_cache(maxsize=16)  # a page's links come one after another, and a hostile base may be long
def _base(base: str) -> tuple[str, bytes]:
    """What precedes the path in *base* (nothing unless http(s)), and *base* for ada: once a page, not once a link."""
    if len(base) > MAX_INPUT:
        raise refusal(base, f"is longer than {MAX_INPUT} characters")
    if _is_plain(_PLAIN_URL, base):  # what the store keeps nearly always is
        return base[: base.index("/", len("http://x"))], base.encode()
    encoded = _utf8(base)
    href = _whatwg(encoded, None)
    if not href:
        raise refusal(base, "is not a URL that links could be relative to")
    http = href.startswith(("https://", "http://"))
    return href[: href.index("/", len("http://x"))] if http else "", encoded


def _normal(href: str, text: str, rules: UrlRules) -> str:
    front, _, query = href.partition("#")[0].partition("?")
    cut = front.index("/", len("http://x"))
    site, path = front[:cut], front[cut:]
    if "@" in site:  # dropped before the cache sees it: userinfo may be secret, long, and new in every link
        site = site[: site.index("//") + 2] + site.rpartition("@")[2]
    normal = _normal_site(site) + _normal_path(path, rules)
    if query and (kept := _normal_query(query, rules)):
        normal = f"{normal}?{kept}"
    if len(normal) > rules.max_bytes:
        raise refusal(text, f"is longer than {rules.max_bytes} bytes when normalized")
    return normal


@lru_cache(maxsize=4096)
def _normal_site(site: str) -> str:
    url = parse(f"{site}/")
    return replace(url, host=visitable(url)).origin


def _normal_path(path: str, rules: UrlRules) -> str:
    if "%" in path or ";" in path:
        path = _unescape(path)
        path = _PATH_PARAMETER.sub(lambda found: "" if rules.sessions.matches(found[1]) else found[0], path)
        if _DOT_SEGMENT.search(path):  # "/a/..;jsessionid=1/b" has become "/a/../b"
            path = _whatwg(f"http://h{path}".encode(), None).removeprefix("http://h")
    if rules.strip_trailing_slash:
        path = path.rstrip("/") or "/"
    return path


def _normal_query(query: str, rules: UrlRules) -> str:
    if "%" in query:
        query = _unescape(query)
    dropped = rules.dropped
    kept = []
    for piece in query.split("&"):
        name = piece.partition("=")[0]
        if piece and not dropped.matches(name):
            kept.append((name, piece))
    if rules.sort_query:
        kept.sort(key=itemgetter(0))  # all ASCII: characters compare as bytes; stable among equal names
    return "&".join([piece for _, piece in kept])


def _unescape(component: str) -> str:
    """Decode what needs no escape, write the other escapes in capitals."""
    return _ESCAPE.sub(_unescape_one, component)


def _unescape_one(found: re.Match[str]) -> str:
    escape = found[0].upper()
    character = _UNRESERVED.get(escape)
    if character is None:
        return escape
    # WHATWG leaves a stray "%" alone. Decoding what follows it could make an escape that was not there ("%%341" would
    # become "%41", and "A" the next time), so that escape stays.
    start = found.start()
    return escape if _AFTER_STRAY_PERCENT.search(found.string[max(0, start - 2) : start]) else character
