"""A page on its way through the engine: what was asked, what came back, what it means.

The rule: these are values. Bytes in them are as the server sent them (decoded from transfer and content encoding); text in them is
clean: no NUL, no lone surrogate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Fault, Route
from holdfast.model.request_secrets import SecretHeaders


@dataclass(slots=True)
class FetchRequest:
    """One request, one hop. Who sends it has asked robots, scope and pace before. Made for one sending, used once."""

    url: str
    user_agent: str
    etag: str | None = None
    last_modified: str | None = None
    any_type: bool = False
    """True: whatever its content type (robots.txt); else only what can be parsed is read."""
    max_bytes: int | None = None
    """Of the decoded body; None is the settings' limit. With `cut` the rest is left unread instead of refused."""
    cut: bool = False
    timeout: float | None = None
    """Seconds in all; None is the settings'."""
    allow_private: bool = False
    on_sent: Callable[[], None] | None = None
    """Called on the event loop when the request goes out: once, or never."""
    sent: bool = False
    """It has gone out."""
    may_send: Callable[[], bool] | None = None
    """Asked on the event loop when the connection stands and the request is about to go out; False: it is withheld."""
    on_answered: Callable[[], None] | None = None
    """Called on the event loop when the head of an answer is there: the server has had the request."""
    post: bytes | None = None
    """The body of a POST; None is a GET. A POST goes out once, on a connection of its own."""
    fresh: bool = False
    """On a connection of its own, over HTTP/1.1: neither one that was used before, nor used again."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names and values that are sent with `post`, and only with it: what it is, who vouches for it."""
    route: Route | None = None
    """The proxy that it goes through; None: straight to the server."""
    secret: SecretHeaders | None = None
    """Headers that a person gave for this URL's origin; their values appear in no result."""


@dataclass(slots=True)
class FetchResult:
    """How a request ended. `outcome` says it in one word; never an exception for what the web does."""

    url: str
    outcome: Outcome
    detail: str = ""
    """In a few words, for people."""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name; of several with one name the values joined by ", "."""
    body: bytes = b""
    """Decoded from its content encoding, at most as long as allowed."""
    cut: bool = False
    """The body was longer, and what is here is its beginning."""
    redirect: str | None = None
    """Where a 3xx points to, as the server wrote it, not joined."""
    retry_after: timedelta | None = None
    duration: float = 0.0
    """Seconds from the start to the end."""
    wire_bytes: int = 0
    address: str | None = None
    http_version: str = "1.1"
    request_head: bytes = b""
    """The request as it was sent, for the archive."""
    response_head: bytes = b""
    """Status line and headers as they came (the last response's), for the archive."""
    no_tls: bool = False
    """It is https, and the connection was refused or the server does not speak TLS. Not a certificate that is wrong."""
    resend: bool = False
    """A reused connection broke before the answer. libcurl would have sent the request again at once; it was stopped."""
    withheld: bool = False
    """`may_send` said no: nothing was sent, and this says nothing of the server."""
    fault: Fault | None = None
    """Whether it may be the proxy's fault that it ended so."""
    again_in: float | None = None
    """Seconds until the request is made again, through another proxy or after a broken connection: so it says nothing of the site.
    None: it is not."""


@dataclass(slots=True)
class Parsed:
    """What a page means."""

    title: str | None = None
    description: str | None = None
    text: str = ""
    """Visible text, white space folded."""
    canonical: str | None = None
    """As written; likewise all addresses below. They are relative to `base`."""
    base: str | None = None
    alternates: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    """Of `a` and `area`, without repeats, in the order of the page; rel=nofollow ones are left out."""
    frames: list[str] = field(default_factory=list)
    """Of `frame` and `iframe`, and the target of a meta refresh: followed like links."""
    links_next: list[str] = field(default_factory=list)
    """With rel=next, of `a`, `area` and `link`: perhaps the next page of a pagination."""
    images: list[str] = field(default_factory=list)
    links_cut: int = 0
    """Links beyond the limit of a page."""
    links_found: int = 0
    """Different addresses that the page leads to, as written and without any limit: links with and without nofollow, frames, refreshes,
    alternates and the canonical one."""
    links_nofollow: list[str] = field(default_factory=list)
    """With rel=nofollow: known, not followed."""
    noindex: bool = False
    nofollow: bool = False
    charset: str = "utf-8"
    content_hash: bytes = b""
    """SHA-256 (32 bytes) of the visible text with the title; of the body where there is no text."""
    password_form: bool = False
    """It has a form with a password field and hardly any text of its own: a login page."""
    captcha: bool = False
    """It has hardly anything but a question whether we are human."""
    problem: str | None = None
    """Why less than all could be read (the parser died, was stopped, or the page was beyond it)."""


@dataclass(frozen=True, slots=True)
class ArchiveRef:
    """Where the bytes of a page are: a record in a segment of the archive."""

    segment: str
    """File name, relative to the archive's folder."""
    offset: int
    length: int
    """Of the compressed record."""
    payload_digest: bytes
    """SHA-256 of the body, decoded."""
