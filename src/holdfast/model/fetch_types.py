"""Requests, results and parsed pages: the values that pass between the crawler, the fetcher and the parser.

The rule: these are values. Bytes in them are as the server sent them (decoded from transfer and content encoding); text in them is clean:
no NUL, no lone surrogate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from holdfast.model.content_type import ContentGroup
from holdfast.model.outcome import Outcome
from holdfast.model.page_links import LinkKind
from holdfast.model.proxy import ProxyFault, ProxyRoute, ProxyUse
from holdfast.model.request_secrets import SecretHeaders


@dataclass(slots=True)
class FetchRequest:
    """One request, one hop, used once. The sender has checked robots, scope and request rate before."""

    url: str
    user_agent: str
    etag: str | None = None
    last_modified: str | None = None
    any_type: bool = False
    """True: accept any content type (robots.txt); False: read only HTML, plain text, and what is of `types`."""
    types: frozenset[ContentGroup] = frozenset()
    """Groups of content types to read, too; a body without a telling type is judged by its first bytes."""
    max_bytes: int | None = None
    """Maximum size of the decoded body in bytes; None is the limit of the settings. With `cut` the rest is left unread instead of
    refused."""
    cut: bool = False
    timeout: float | None = None
    """Seconds in total; None is the value of the settings."""
    allow_private: bool = False
    on_sent: Callable[[], None] | None = None
    """Called on the event loop when the request is sent: once, or never."""
    sent: bool = False
    """It was sent."""
    may_send: Callable[[], bool] | None = None
    """Called on the event loop when the connection stands and the request is about to be sent; False: it is withheld."""
    on_answered: Callable[[], None] | None = None
    """Called on the event loop when the head of an answer has arrived: the server has received the request."""
    post: bytes | None = None
    """The body of a POST; None is a GET. A POST is sent once, on a connection of its own."""
    fresh: bool = False
    """Use a new connection over HTTP/1.1, and do not reuse it."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names and values that are sent only with `post`, such as its content type and its signature."""
    route: ProxyRoute | None = None
    """The proxy to use; None: connect directly to the server."""
    secret: SecretHeaders | None = None
    """Headers that the operator gave for this URL's origin; their values appear in no result."""
    key: bytes = b""
    """Identifies the request in its visit: the key of its URL."""
    is_page: bool = True
    """False: it is for a robots.txt."""
    last_attempt: bool = False
    """The URL has no attempt left after this one."""


@dataclass(slots=True)
class FetchResult:
    """The result of a request. `outcome` classifies it; failures of the web are never exceptions."""

    url: str
    outcome: Outcome
    detail: str = ""
    """A short explanation for display."""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """Headers by lower-case name; the values of repeated headers are joined by ", "."""
    body: bytes = b""
    """Decoded from its content encoding, at most `max_bytes` long."""
    cut: bool = False
    """The body was longer, and this is its beginning."""
    redirect: str | None = None
    """The target of a 3xx as the server wrote it, not joined."""
    retry_after: timedelta | None = None
    duration: float = 0.0
    """Seconds from the start to the end."""
    wire_bytes: int = 0
    address: str | None = None
    http_version: str = "1.1"
    request_head: bytes = b""
    """The request as it was sent, for the archive."""
    response_head: bytes = b""
    """Status line and headers as received (the last response's), for the archive."""
    no_tls: bool = False
    """It is https, and the connection was refused or the server does not speak TLS. Not set for an invalid certificate."""
    resend: bool = False
    """A reused connection broke before the answer. libcurl would have sent the request again at once; it was stopped."""
    withheld: bool = False
    """`may_send` returned False: nothing was sent, and the result says nothing about the server."""
    fault: ProxyFault | None = None
    """Whether the proxy may be the cause of the failure."""
    again_in: float | None = None
    """Seconds until the request is repeated, through another proxy or after a broken connection, so the result does not count against the
    site. None: it is not repeated."""
    proxy: ProxyUse | None = None
    """The use of a proxy by a page's request, once the answer is settled."""


class Anchor(NamedTuple):
    """A link of a page, with its text."""

    href: str
    """As written, without white space around it."""
    text: str
    rel: str


class FoundLink(NamedTuple):
    """A link of a page, as a job records it."""

    href: str
    """As written, without white space around it; with its fragment, or only a fragment."""
    text: str
    rel: str
    kind: LinkKind


class FoundImage(NamedTuple):
    """An image of a page, with what the page says of it."""

    href: str
    """As written, without white space around it: the largest candidate of its element."""
    found_in: str
    """Where: img, srcset, picture, lazy, svg, og:image, link or json-ld."""
    alt: str
    width: int | None
    """In pixels, as the page says it. Likewise the height."""
    height: int | None
    fallback: str | None
    """Another URL of the same element, as written, for when the first one leads to no image."""


@dataclass(slots=True)
class ParsedPage:
    """The content of a page: text, links, metadata."""

    title: str | None = None
    description: str | None = None
    text: str = ""
    """Visible text with white space collapsed."""
    canonical: str | None = None
    """As written, like all URLs below; they are relative to `base`."""
    base: str | None = None
    alternates: list[str] = field(default_factory=list)
    feeds: list[str] = field(default_factory=list)
    """RSS and Atom feeds that `link` elements name. They are no links of the page."""
    sitemaps: list[str] = field(default_factory=list)
    """From `link` with rel=sitemap; no links of the page either."""
    links: list[str] = field(default_factory=list)
    """From `a` and `area`, without duplicates, in page order; rel=nofollow links are excluded."""
    frames: list[str] = field(default_factory=list)
    """From `frame` and `iframe`, and the target of a meta refresh: followed like links."""
    links_next: list[str] = field(default_factory=list)
    """With rel=next, from `a`, `area` and `link`: possibly the next page of a pagination."""
    images: list[str] = field(default_factory=list)
    links_cut: int = 0
    """Links beyond the limit of a page."""
    links_found: int = 0
    """Number of different URLs that the page leads to, as written and without any limit: links with and without nofollow, frames,
    refreshes, alternates and the canonical one."""
    links_nofollow: list[str] = field(default_factory=list)
    """With rel=nofollow: recorded, not followed."""
    noindex: bool = False
    nofollow: bool = False
    charset: str = "utf-8"
    content_language: str | None = None
    """The `lang` of the `html` element."""
    content_hash: bytes = b""
    """SHA-256 (32 bytes) of the visible text with the title; of the body if there is no text."""
    password_form: bool = False
    """The page has a form with a password field and little other text: a login page."""
    captcha: bool = False
    """The page has little content except a test for humans."""
    problem: str | None = None
    """Why the page could be read only in part (the parser died, was stopped, or could not handle the page)."""
    anchors: list[Anchor] = field(default_factory=list)
    """Links with their texts, in page order, also repeated ones and rel=nofollow. Only if they are asked for: a crawl needs none."""
    anchors_cut: int = 0
    """Anchors beyond the limit of a page."""
    found_links: list[FoundLink] = field(default_factory=list)
    """Links as records. Only if they are asked for."""
    found_links_cut: int = 0
    """Of these, those beyond the limit of a page."""
    places: list[str] | None = None
    """Ids that links can name, if links are asked for; None: they are not known."""
    found_images: list[FoundImage] = field(default_factory=list)
    """Images as records, one for each element. Only if they are asked for; `images` has all URLs of all elements."""


@dataclass(frozen=True, slots=True)
class ArchiveRef:
    """The location of the bytes of a page: a record in a segment of the archive."""

    segment: str
    """File name, relative to the archive's folder."""
    offset: int
    length: int
    """Length of the compressed record, in bytes."""
    payload_digest: bytes
    """SHA-256 of the decoded body."""
