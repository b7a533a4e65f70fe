"""Headers, cookies and credentials that the operator wants sent with requests: how they are parsed, and which requests carry them.

The rule: a value is sent only to the exact origins that it was given for; http includes https of the same host and port, and https never
includes http. No text that is made here (an error, a repr) contains a value: what is invalid is named, not quoted.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Self

from holdfast.errors import BadUrl, UsageError
from holdfast.model.url import origin_and_target

SECRET_KEYS: Final = ("header", "cookie", "basic_auth")
"""Keys of `domain-set` beside the columns of a domain; their values are sealed, and in no column."""
MAX_ORIGINS: Final = 1_000
"""Maximum number of origins for the secrets of a job. A list of seeds with more is unlikely to share a password."""
MAX_ITEMS: Final = 50
MAX_VALUE: Final = 8_192

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_AGENT: Final = re.compile(r"[\x21-\x7e]+( +[\x21-\x7e]+)*")
_MAX_USER_AGENT: Final = 255
_COOKIE_VALUE: Final = re.compile(r"[^;\x00-\x1f\x7f]*")
_RESERVED_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "range",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_HEADERS_WITH_OPTION: Final = {"cookie": "cookie", "user-agent": "user agent"}


class SecretKind(StrEnum):
    """The kind of a secret."""

    HEADERS = "headers"
    COOKIES = "cookies"
    BASIC_AUTH = "basic_auth"


class SecretText(NamedTuple):
    """The values of one kind in clear text, before encryption."""

    kind: SecretKind
    names: list[str]
    """The names of the resulting headers, for display."""
    text: str

    def __repr__(self) -> str:
        return f"SecretText({self.kind}, ***)"


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """The secrets of one kind as stored, encrypted."""

    kind: SecretKind
    names: list[str]
    origins: list[str]
    sealed: str

    def __repr__(self) -> str:
        return f"SealedSecret({self.kind}, {self.names}, {self.origins}, ***)"


@dataclass(frozen=True, slots=True)
class SecretHeaders:
    """Headers of a request whose values appear nowhere but in the request itself."""

    lines: tuple[bytes, ...]
    """The lines as they are sent."""

    @property
    def shown(self) -> tuple[bytes, ...]:
        """The lines as they are archived: the names, without the values."""
        return tuple(line.partition(b":")[0] + b": [redacted]" for line in self.lines)

    @property
    def has_accept(self) -> bool:
        """Whether they replace the default Accept header."""
        return any(line[:7].lower() == b"accept:" for line in self.lines)

    def __repr__(self) -> str:
        return "SecretHeaders(***)"


@dataclass(frozen=True, slots=True)
class RequestSecrets:
    """The secrets of one command. None: not given, unchanged; empty: removed."""

    headers: tuple[tuple[str, str], ...] | None = None
    cookies: tuple[tuple[str, str], ...] | None = None
    basic_auth: str | None = None
    """USER:PASSWORD."""

    @classmethod
    def parse(
        cls,
        headers: Sequence[str] | None = None,
        cookies: Sequence[str] | None = None,
        basic_auth: str | None = None,
    ) -> Self:
        """Parse `Name: value`, `name=value` (or several, separated by semicolons) and `user:password`. An empty text among them removes the
        kind. Raises UsageError, without quoting a value."""
        return cls(
            None if headers is None else _headers([text for text in headers if text.strip()]),
            None if cookies is None else _cookies([text for text in cookies if text.strip()]),
            None if basic_auth is None else _basic_auth(basic_auth),
        )

    def __bool__(self) -> bool:
        return not (self.headers is None and self.cookies is None and self.basic_auth is None)

    def __repr__(self) -> str:
        given = [kind for kind in SecretKind if getattr(self, kind) is not None]
        return f"RequestSecrets({', '.join(f'{kind}=***' for kind in given)})"

    def texts(self) -> list[SecretText]:
        """The values of the kinds that are set."""
        found = []
        if self.headers:
            names = [name for name, _ in self.headers]
            found.append(SecretText(SecretKind.HEADERS, names, json.dumps(self.headers)))
        if self.cookies:
            found.append(SecretText(SecretKind.COOKIES, ["Cookie"], json.dumps(self.cookies)))
        if self.basic_auth:
            found.append(SecretText(SecretKind.BASIC_AUTH, ["Authorization"], json.dumps(self.basic_auth)))
        return found

    def removed(self) -> list[SecretKind]:
        """The kinds to remove."""
        return [kind for kind in SecretKind if getattr(self, kind) is not None and not getattr(self, kind)]


class OriginHeaders:
    """The secret headers by origin."""

    __slots__ = ("_by_origin",)

    def __init__(self, by_origin: Mapping[str, SecretHeaders]) -> None:
        self._by_origin = by_origin

    def for_url(self, url: str) -> SecretHeaders | None:
        """The secret headers of a request for this URL. The origin is parsed as the HTTP client parses it."""
        try:
            return self._by_origin.get(origin_and_target(url)[0])
        except BadUrl:
            return None


def check_user_agent(text: str) -> str:
    """Validate a User-Agent header. Raises ValueError. It is not a secret and is stored in clear text."""
    if len(text) > _MAX_USER_AGENT or not _AGENT.fullmatch(text):
        raise ValueError(f"must be plain ASCII on one line, {_MAX_USER_AGENT} characters at most")
    return text


def headers_by_origin(opened: Iterable[tuple[SealedSecret, str]]) -> OriginHeaders | None:
    """The headers of each origin, from sealed secrets and their clear texts; of two with the same name the later one counts. None: there
    are none."""
    by_origin: dict[str, dict[str, bytes]] = {}
    for secret, text in opened:
        lines = {name.lower(): f"{name}: {value}".encode("latin-1") for name, value in _headers_from(secret.kind, text)}
        for origin in secret.origins:
            by_origin.setdefault(origin, {}).update(lines)
    if not by_origin:
        return None
    return OriginHeaders({origin: SecretHeaders(tuple(lines.values())) for origin, lines in by_origin.items()})


def seed_origins(urls: Iterable[str]) -> list[str]:
    """The origins that the secrets of a job with these seeds are sent to. Raises UsageError if there are too many."""
    origins: dict[str, None] = {}
    for url in urls:
        origin = url[: url.index("/", len("https://"))]
        origins[origin] = None
        if origin.startswith("http://"):
            origins[_as_https(origin)] = None
        if len(origins) > MAX_ORIGINS:
            raise UsageError(
                f"Headers, cookies and passwords of a job go to at most {MAX_ORIGINS:,} origins, and its seeds name more. "
                "Give them to the domains that need them: `holdfast domains set DOMAIN header=…`."
            )
    return list(origins)


def domain_origins(domain: str, *, plain_http: bool) -> list[str]:
    """The origins of a domain, by its canonical name: with and without `www.`, https, and with *plain_http* also http."""
    hosts = [domain]
    if not domain.startswith("[") and not domain.replace(".", "").replace(":", "").isdigit():
        hosts.append(f"www.{domain}")
    return [f"{scheme}://{host}" for host in hosts for scheme in (("http", "https") if plain_http else ("https",))]


def _as_https(origin: str) -> str:
    return "https://" + origin.removeprefix("http://")


def _headers_from(kind: SecretKind, text: str) -> list[tuple[str, str]]:
    """Names and values of the headers of one kind."""
    value = json.loads(text)
    if kind is SecretKind.HEADERS:
        return [(name, content) for name, content in value]
    if kind is SecretKind.COOKIES:
        return [("Cookie", "; ".join(f"{name}={content}" for name, content in value))]
    return [("Authorization", f"Basic {base64.b64encode(value.encode()).decode()}")]


def _headers(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found: dict[str, tuple[str, str]] = {}
    _check_count(texts, "headers")
    for text in texts:
        name, colon, value = text.partition(":")
        name, value = name.strip(" \t"), value.strip(" \t")
        if not colon or not _TOKEN.fullmatch(name):
            raise UsageError("A header is written 'Name: value'; one of those given is not (it is not repeated here).")
        _check_name(name)
        _check_value(value, f"The header {name}")
        if name.lower() in found:
            raise UsageError(f"The header {name} is given twice.")
        found[name.lower()] = (name, value)
    return tuple(found.values())


def _check_name(name: str) -> None:
    lower = name.lower()
    if lower in _RESERVED_HEADERS or lower.startswith(("if-", "proxy-")):
        raise UsageError(f"The header {name} cannot be set: Holdfast writes it itself, from the request that it makes.")
    if lower in _HEADERS_WITH_OPTION:
        raise UsageError(f"The header {name} has an option of its own: give it as a {_HEADERS_WITH_OPTION[lower]}.")


def _check_value(value: str, what: str) -> None:
    if not value:
        raise UsageError(f"{what} has no value.")
    if len(value) > MAX_VALUE:
        raise UsageError(f"{what} is longer than {MAX_VALUE:,} characters.")
    if _CONTROL.search(value):
        raise UsageError(f"{what} has a line break, a NUL or another control character in its value.")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise UsageError(f"{what} has characters in its value that are not in ISO 8859-1 (Latin-1).") from None


def _cookies(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for text in texts:
        for part in text.split(";"):
            name, equals, value = part.strip(" \t").partition("=")
            if not name and not equals:
                continue
            if not equals or not _TOKEN.fullmatch(name):
                raise UsageError(
                    "A cookie is written 'name=value'; one of those given is not (it is not repeated here)."
                )
            if not _COOKIE_VALUE.fullmatch(value):
                raise UsageError(
                    f"The cookie {name} has a line break, a NUL or another control character in its value."
                )
            if value:
                _check_value(value, f"The cookie {name}")
            found[name] = value
    _check_count(found, "cookies")
    _check_value("; ".join(f"{name}={value}" for name, value in found.items()) or "-", "The Cookie header")
    return tuple(found.items())


def _basic_auth(text: str) -> str:
    if not text:
        return ""
    user, colon, _ = text.partition(":")
    if not colon or not user:
        raise UsageError(
            "Basic authentication is written 'user:password'; what was given is not (it is not repeated here)."
        )
    if _CONTROL.search(text):
        raise UsageError("The user or the password has a line break, a NUL or another control character in it.")
    if len(text) > MAX_VALUE // 2:
        raise UsageError("The user and the password are too long.")
    try:
        text.encode()
    except UnicodeEncodeError:  # an argument or a variable that is not valid text
        raise UsageError("The user or the password is not UTF-8 text.") from None
    return text


def _check_count(texts: Iterable[str], what: str) -> None:
    if sum(1 for _ in texts) > MAX_ITEMS:
        raise UsageError(f"At most {MAX_ITEMS} {what} can be given.")
