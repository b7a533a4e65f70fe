"""URLs: parsing as browsers do it, and normalization to the spelling under which a page is stored.

Implements the WHATWG URL standard (through ada-url) and Holdfast's additions. The rule: every function here returns a value or raises
``BadUrl``, for any text whatsoever. The domain of a URL is determined by ``holdfast.model.domain_name``.
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
"""Maximum length of a text in characters; longer ones are rejected unread, so that no page can waste our time."""

MAX_HOST: Final = 253
"""Maximum length of a host name in DNS, without its trailing dot."""

_LABEL: Final = r"[a-z0-9_][a-z0-9_-]{0,62}(?<!-)"
PLAIN_HOST: Final = rf"(?:{_LABEL}\.)*+[a-z][a-z0-9_-]{{0,62}}(?<!-)"
"""A host that WHATWG does not change: lowercase letters, digits, underscores, hyphens inside of a label, and (since the last label starts
with a letter) no IPv4 address in another spelling. The caller checks the total length."""

# Characters that WHATWG encodes neither in a path nor in a query nor in a fragment. A segment that starts with a dot
# (or %2e) may be a dot segment and is left to ada: `_is_plain`.
_SAFE: Final = r"A-Za-z0-9\-._~!$&()*+,;=:@%/"
_PLAIN_TARGET: Final = rf"/[{_SAFE}]*+(?:\?[{_SAFE}?]*+)?(?:#[{_SAFE}?]*+)?"
_PLAIN_DOMAIN: Final = re.compile(PLAIN_HOST)
_PLAIN_PATH: Final = re.compile(rf"(?!//){_PLAIN_TARGET}")
# With an IPv4 address in WHATWG's spelling, and with a non-default port.
_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_PORT: Final = "(?::(?!80/|443/)(?:[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"
_PLAIN_URL: Final = re.compile(
    rf"https?://(?:{PLAIN_HOST}|(?:{_OCTET}\.){{3}}{_OCTET}){_PLAIN_PORT}(?=/){_PLAIN_TARGET}"
)

# An http(s) URL as WHATWG serializes it. An "@" in userinfo is written %40, so the first one ends it.
_PARTS: Final = re.compile(
    r"(https?)://(?:[^/@]*@)?(\[[^\]]*\]|[^:/]*)(?::(\d+))?(/[^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
_LOOKUP_HOST: Final = re.compile(rf"(?:{_LABEL}\.)*+{_LABEL}")
_HYPHEN_OUTSIDE: Final = re.compile(r"(?:\A|\.)-|-(?:\.|\Z)")

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = {f"%{ord(c):02X}": c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"}
_AFTER_STRAY_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]?\Z")
_DOT_SEGMENT: Final = re.compile(r"/\.\.?(?:/|\Z)")
_PARAMETER_NAME: Final = re.compile(r"[A-Za-z0-9._~%\[\]-]{1,100}\*?")
_PATH_PARAMETER: Final = re.compile(r";([^/;=]*)(?:=[^/;]*)?")

_C0_AND_SPACE: Final = "".join(map(chr, range(0x21)))
_HTTP: Final = ("https://", "http://")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PORT: Final = re.compile(r"[0-9]+(?=[/?#\\]|\Z)")
_BARE_HOST: Final = re.compile(r"[^@\t\r\n/?#\\]+(?<!:)(?=[/?#\\]|\Z)")
_NEVER_A_HOST: Final = frozenset({"javascript", "mailto", "sms", "tel"})  # "tel:911" is not a host with a port
_USERINFO: Final = re.compile(r"(\s*+(?:[A-Za-z][A-Za-z0-9+.-]*+:)?+[/\\]*+)[^/\\?#]*@")

# fmt: off
TRACKING_PARAMETERS: Final = (
    "utm_*", "gclid", "fbclid", "msclkid", "dclid", "yclid", "mc_cid", "mc_eid", "igshid", "_ga",
)
# fmt: on
SESSION_PARAMETERS: Final = ("phpsessid", "jsessionid", "aspsessionid*")


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed http(s) URL in WHATWG's spelling. ``href`` may contain credentials."""

    href: str
    scheme: str
    host: str
    port: int | None
    """None: the default port of the scheme."""
    path: str
    query: str | None
    fragment: str | None

    @property
    def origin(self) -> str:
        """Scheme, host and port: the scope of a robots.txt."""
        return f"{self.scheme}://{self.host}" + ("" if self.port is None else f":{self.port}")

    @property
    def has_credentials(self) -> bool:
        """Whether a username or password precedes the host."""
        return not self.href.startswith(self.origin)


@dataclass(frozen=True, slots=True)
class _NamePatterns:
    exact: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "_NamePatterns":
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
    """The configurable part of normalization. Parameter names are case-insensitive; ``utm_*`` is a prefix."""

    tracking_parameters: tuple[str, ...] = TRACKING_PARAMETERS
    session_parameters: tuple[str, ...] = SESSION_PARAMETERS
    strip_parameters: tuple[str, ...] = ()
    """Additional ones, of a job or of a domain."""
    strip_trailing_slash: bool = False
    sort_query: bool = True
    max_bytes: int = 2048
    dropped: _NamePatterns = field(init=False, repr=False, compare=False)
    """Query parameters that do not affect the page."""
    path_names: _NamePatterns = field(init=False, repr=False, compare=False)
    """Path parameters (``;jsessionid=…``) that are session ids, or that a job or a domain drops."""

    def __post_init__(self) -> None:
        """Raise SettingsError for a name that could never match; build the name sets that every URL is checked with."""
        if self.max_bytes < 1:
            raise SettingsError(f"A URL may be 1 byte or more, not {self.max_bytes}.")
        in_paths = (*self.session_parameters, *self.strip_parameters)
        object.__setattr__(self, "path_names", _NamePatterns.of(in_paths))
        object.__setattr__(self, "dropped", _NamePatterns.of((*self.tracking_parameters, *in_paths)))

    def with_stripped(self, names: Iterable[str]) -> "UrlRules":
        """These rules, which also drop the parameters `names`."""
        more = tuple(names)
        return replace(self, strip_parameters=(*self.strip_parameters, *more)) if more else self


DEFAULT_RULES: Final = UrlRules()


def bad_url(text: str, why: str) -> BadUrl:
    """The error for *text*: shortened, escaped, without credentials (errors end in logs and in the store)."""
    if userinfo := _USERINFO.match(text):
        text = f"{userinfo[1]}***@{text[userinfo.end() :]}"
    shown = ascii(text[:100])
    return BadUrl(f"{shown if len(shown) <= 100 else f'{shown[:98]}…{shown[0]}'} {why}.")


def parse_url(text: str) -> Url:
    """Parse an absolute http(s) URL as WHATWG does."""
    href = _serialize(text)
    parts = _PARTS.fullmatch(href)
    assert parts is not None, "WHATWG serializes every http(s) URL so"  # noqa: S101
    scheme, host, port, path, query, fragment = parts.groups()
    return Url(href, scheme, host, int(port) if port else None, path, query, fragment)


def origin_and_target(text: str) -> tuple[str, str]:
    """The origin and the request target of an absolute http(s) URL: without credentials and fragment."""
    if len(text) <= MAX_INPUT and "#" not in text and _is_plain(_PLAIN_URL, text):
        cut = text.index("/", len("http://x"))
        return text[:cut], text[cut:]
    url = parse_url(text)
    return url.origin, url.path if url.query is None else f"{url.path}?{url.query}"


def join(base: str, href: str) -> str:
    """The http(s) URL of the link *href* on the page *base*, as WHATWG serializes it."""
    prefix, base_bytes = _base(base)
    if len(href) <= MAX_INPUT:
        # Neither shortcut changes a result (test_url_shortcuts compares them with ada); they cover most links of a page.
        if prefix and _is_plain(_PLAIN_PATH, href):
            return prefix + href
        if _is_plain(_PLAIN_URL, href):
            return href
    return _parse_with_ada(href, base_bytes)


def normalize(url: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """The normalized spelling of *url*, under which it is stored. Normalizing it again, or parsing it by WHATWG, changes nothing."""
    return _normalized(_serialize(url), url, rules)


def resolve(base: str, href: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """``normalize(join(base, href), rules)``, parsed only once: the stored URL of a link on a page."""
    return _normalized(join(base, href), href, rules)


def absolute_url(page: str, base: str | None, href: str) -> str | None:
    """The absolute URL of *href* on a page whose base element is *base*; None if it is not an http(s) URL."""
    try:
        if base is not None:
            page = join(page, base)
    except BadUrl:  # an invalid base is ignored
        pass
    try:
        return join(page, href)
    except BadUrl:
        return None


class DroppedParameter(NamedTuple):
    """A parameter that normalization drops."""

    name: str
    rule: str
    """The setting that drops it: `urls.tracking_parameters`, `urls.session_parameters`, or `strip_params` of the job or the domain."""


def dropped_parameters(url: str, rules: UrlRules = DEFAULT_RULES) -> list[DroppedParameter]:
    """The parameters of *url* that `normalize` drops, each with the rule that drops it, in order and without duplicates."""
    front, _, query = _serialize(url).partition("#")[0].partition("?")
    path = _unescape(front[front.index("/", len("http://x")) :])
    groups = [
        ("urls.session_parameters", _NamePatterns.of(rules.session_parameters)),
        ("strip_params", _NamePatterns.of(rules.strip_parameters)),
    ]
    found = [(name, groups) for name in _PATH_PARAMETER.findall(path)]
    groups = [("urls.tracking_parameters", _NamePatterns.of(rules.tracking_parameters)), *groups]
    found += [(piece.partition("=")[0], groups) for piece in _unescape(query).split("&") if piece]
    dropped = [
        DroppedParameter(name, next((rule for rule, names in of if names.matches(name)), "")) for name, of in found
    ]
    return list(dict.fromkeys(one for one in dropped if one.rule))


def check_parameter_names(names: Iterable[str]) -> None:
    """Raise UsageError for an invalid name of a parameter."""
    for name in names:
        if not _PARAMETER_NAME.fullmatch(name):
            raise UsageError(
                f"The name of a parameter to drop is letters, digits, - . _ ~ or %, perhaps with one * at its end: not {name!a}."
            )


def url_key(normalized: str) -> bytes:
    """The 16-byte key of a normalized URL in the store."""
    try:
        return hashlib.sha256(normalized.encode("ascii")).digest()[:16]
    except UnicodeEncodeError:
        raise bad_url(normalized, "is not a normalized URL, so it has no key") from None


def seed_url(text: str, rules: UrlRules = DEFAULT_RULES) -> str:
    """The URL of a line of a seed file: a URL is normalized, a bare domain is its home page over https."""
    if len(text) <= MAX_HOST and len(text) + len("https:///") <= rules.max_bytes and _PLAIN_DOMAIN.fullmatch(text):
        return f"https://{text}/"  # most lines of a seed file are like this; the full parser gives the same
    return normalize(to_absolute(text), rules)


def to_absolute(text: str) -> str:
    """The absolute URL of a text that a person wrote: itself, or ``https://`` before a bare host, host:port or //host.

    ``host:80`` is the one bare form that means http. Another scheme, a path or a mail address is rejected.
    """
    stripped = text.strip(_C0_AND_SPACE)
    if stripped.startswith(_HTTP):
        return stripped
    if scheme := _SCHEME.match(stripped):
        name = scheme[1].lower()
        if name in ("http", "https"):
            return stripped
        if name in _NEVER_A_HOST or not _PORT.match(stripped, scheme.end()):
            raise bad_url(text, "is neither an http or https URL nor a domain")
    stripped = stripped.removeprefix("//")
    host = _BARE_HOST.match(stripped)  # no tab or line end: WHATWG would ignore it and join two seeds into one
    if not host:
        raise bad_url(text, "names no host")
    return ("http://" if host[0].endswith(":80") else "https://") + stripped


def has_guessed_scheme(text: str) -> bool:
    """Whether the text has neither a scheme nor a port that implies one, so that `to_absolute` guesses https."""
    if ":" not in text:
        return True
    if text.startswith(_HTTP):
        return False
    stripped = text.strip(_C0_AND_SPACE)
    if (scheme := _SCHEME.match(stripped)) and scheme[1].lower() in ("http", "https"):
        return False
    host = _BARE_HOST.match(stripped.removeprefix("//"))
    return host is not None and not host[0].endswith((":80", ":443"))


def with_http(url: str) -> str:
    """The same URL over http. Before: it is a normalized https URL."""
    return "http" + url.removeprefix("https")


def checked_host(url: Url) -> str:
    """The host of *url* without its trailing dot, if a server can exist there; raises BadUrl otherwise.

    WHATWG accepts more: empty labels, any length, labels that begin or end with a hyphen, which no name server of the web gives out,
    characters such as ``{`` or ``,``. Underscores (``_dmarc.example.com``) do exist, so they are accepted.
    """
    host = url.host.removesuffix(".")
    if url.port == 0:
        raise bad_url(url.href, "names port 0, where nothing can listen")
    if not host.startswith("[") and (len(host) > MAX_HOST or not _LOOKUP_HOST.fullmatch(host)):
        if _HYPHEN_OUTSIDE.search(host):
            raise bad_url(url.href, "names a host with a part that begins or ends with a hyphen")
        raise bad_url(url.href, "names a host that is not valid in DNS")
    return host


def _is_plain(pattern: re.Pattern[str], text: str) -> bool:
    """Whether *text* matches *pattern* and has no segment that may be (or, rarely, looks like) a dot segment."""
    # Checked first: a pattern with a lookahead for them took three times as long.
    return "/." not in text and "/%2" not in text and pattern.fullmatch(text) is not None


def _serialize(text: str) -> str:
    if len(text) <= MAX_INPUT and _is_plain(_PLAIN_URL, text):
        return text
    return _parse_with_ada(text, None)


def _parse_with_ada(text: str, base: bytes | None) -> str:
    if len(text) > MAX_INPUT:
        raise bad_url(text, f"is longer than {MAX_INPUT} characters")
    href = _whatwg(_utf8(text), base)
    if not href.startswith(("https://", "http://")):
        raise bad_url(text, "is not an http or https URL" if href else "is not a valid URL")
    return href


def _whatwg(text: bytes, base: bytes | None) -> str:
    """WHATWG's serialization; empty if the URL is invalid (a valid one never is)."""
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
    """The part of *base* before the path (empty unless http(s)), and *base* for ada: computed once a page, not once a link."""
    if len(base) > MAX_INPUT:
        raise bad_url(base, f"is longer than {MAX_INPUT} characters")
    if _is_plain(_PLAIN_URL, base):  # stored URLs nearly always are
        return base[: base.index("/", len("http://x"))], base.encode()
    encoded = _utf8(base)
    href = _whatwg(encoded, None)
    if not href:
        raise bad_url(base, "is not a URL that links could be relative to")
    http = href.startswith(("https://", "http://"))
    return href[: href.index("/", len("http://x"))] if http else "", encoded


def _normalized(href: str, text: str, rules: UrlRules) -> str:
    front, _, query = href.partition("#")[0].partition("?")
    cut = front.index("/", len("http://x"))
    site, path = front[:cut], front[cut:]
    if "@" in site:  # dropped before it reaches the cache: userinfo may be secret, long, and different in every link
        site = site[: site.index("//") + 2] + site.rpartition("@")[2]
    normal = _normalized_site(site) + _normalized_path(path, rules)
    if query and (kept := _normalized_query(query, rules)):
        normal = f"{normal}?{kept}"
    if len(normal) > rules.max_bytes:
        raise bad_url(text, f"is longer than {rules.max_bytes} bytes when normalized")
    return normal


@lru_cache(maxsize=4096)
def _normalized_site(site: str) -> str:
    host = site[site.index("//") + 2 :]
    if len(host) <= MAX_HOST and "xn--" not in host and _PLAIN_DOMAIN.fullmatch(host):
        return site  # as in `seed_url`; with punycode ada has to look at it
    url = parse_url(f"{site}/")
    return replace(url, host=checked_host(url)).origin


def _normalized_path(path: str, rules: UrlRules) -> str:
    if "%" in path or ";" in path:
        path = _unescape(path)
        path = _PATH_PARAMETER.sub(lambda found: "" if rules.path_names.matches(found[1]) else found[0], path)
        if _DOT_SEGMENT.search(path):  # "/a/..;jsessionid=1/b" has become "/a/../b"
            path = _whatwg(f"http://h{path}".encode(), None).removeprefix("http://h")
    if rules.strip_trailing_slash:
        path = path.rstrip("/") or "/"
    return path


def _normalized_query(query: str, rules: UrlRules) -> str:
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
    """Decode unnecessary escapes, write the others in upper case."""
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
