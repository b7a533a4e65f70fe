"""Links of pages, and what reports of them say: broken ones, redirects, orphans, missing places, targets that are not checked."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.record import Int64, record


class TargetState(StrEnum):
    """What is known of the target of a link."""

    OK = "ok"
    BROKEN = "broken"
    REDIRECT = "redirect"
    """It leads to another URL, which is no error; `ends_at` says where."""
    REFUSED = "refused"
    """The server did not show it to a crawler, which says nothing about people: 401, 429, a login or captcha page, a private address, or
    403 of another site."""
    WAITING = "waiting"
    NOT_CHECKED = "not_checked"
    """It was not requested: out of scope, denied by robots.txt, nofollow …; `reason` says why."""


@record
class LinkPlace:
    """A link on a page."""

    page_url: str
    position: int
    """Its number among the links of the page, from 1."""
    text: str
    """At most 200 characters, as the page has it."""
    rel: str
    kind: str
    """The element: a, area, frame, refresh, canonical, alternate, next or image."""
    nofollow: bool
    fragment: str
    """The place on the target that it names, without `#`."""


@record
class TargetLink:
    """A link of a page with what is known of its target."""

    url: str
    """Normalized; as it was written, if it is no URL."""
    position: int
    text: str
    rel: str
    kind: str
    nofollow: bool
    fragment: str
    state: TargetState
    reason: str | None
    """Why it is in that state."""
    ends_at: str | None
    """Where redirects lead to."""


@record
class PageLinkList:
    """The links of a page."""

    url: str
    job: str
    links: list[TargetLink]
    cut: int
    """Links beyond `crawl.links_per_page`, which are not recorded."""


@record
class BrokenLink:
    """A target whose links are broken, and pages that have them."""

    url: str
    domain: str
    external: bool
    """It is out of scope, and was only checked."""
    outcome: str
    """Of the last hop."""
    status: int | None
    detail: str | None
    hops: list[str]
    """The URLs that redirects led through, the last one is the one that is broken. Empty: there was no redirect."""
    pages: int
    """That have such a link."""
    links: list[LinkPlace]
    """On the first of these pages."""
    answered_at: datetime


@record
class RedirectedLink:
    """A target that redirects, and pages that link to it."""

    url: str
    domain: str
    external: bool
    status: int | None
    """Of the first hop."""
    hops: list[str]
    """The URLs that redirects led through."""
    state: TargetState
    """Of the last hop."""
    reason: str | None
    pages: int
    links: list[LinkPlace]
    """On the first of these pages."""


@record
class Orphan:
    """A URL that a sitemap lists, or that is a seed, and to which no page links."""

    url: str
    domain: str
    listed: bool
    """A sitemap lists it."""
    seed: bool
    state: str
    """Of the URL in the frontier."""
    outcome: str | None
    """Of its last request; none: it was not requested."""


@record
class MissingPlace:
    """A link to a place that is not on its target."""

    page_url: str
    url: str
    """The target, without the fragment."""
    fragment: str
    position: int
    text: str


@record
class UncheckedTarget:
    """A target that was not requested."""

    url: str
    domain: str
    """On whose pages it was met first, or its own."""
    state: str
    reason: str


@record
class LinkDegree:
    """A URL with the number of pages that link to it."""

    url: str
    pages: int


@record
class LinkSummary:
    """What a job has recorded of links."""

    job: str
    pages: int
    """With their links."""
    links: Int64
    cut: Int64
    """Links that were not recorded, since their page has too many."""
    cut_pages: int
    """Pages of these links."""
    broken: int
    """Targets that are errors, whether a page links to them or not. Likewise the next ones."""
    redirects: int
    refused: int
    not_checked: dict[str, int]
    """Targets that were not requested, by the code of the reason."""
    checked: int
    """Targets out of scope that were checked."""


@record
class ExportedLink:
    """A row of the export: an edge of the link graph."""

    source: str
    target: str
    text: str
    rel: str
    kind: str
    nofollow: bool
    fragment: str
    position: int
    job: str
    domain: str
    """Of the source."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a target led to that is no page: a row of `link_answers`."""

    domain_id: int
    domain: str
    url_key: bytes
    url: str
    checked: bool
    outcome: str
    status: int | None
    detail: str | None
    moved_to: str | None
    answered_at: datetime


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page with its packed links."""

    domain_id: int
    domain: str
    url_key: bytes
    url: str
    cut: int
    body: bytes
    places: bytes | None = field(default=None)
