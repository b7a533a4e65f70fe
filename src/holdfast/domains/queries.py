"""Domains in pages, and what hangs on one: who holds it, who held it, how its status changed, when it is left alone.

The rule: no order here is by a column that a flush changes; an index on one of those would cost every second of every crawl.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.db.keyset_pagination import Equals, Listing, Order, Range, SortColumn

_NAME: Final = SortColumn("t.domain", str)
_ID: Final = SortColumn("t.id", int)


@dataclass(frozen=True, slots=True)
class DomainRow:
    """A domain in a list."""

    id: int
    domain: str
    parent_domain: str
    base_url: str
    status: str
    status_reason: str | None
    block_reason_code: str | None
    block_reason: str | None
    is_active: bool
    claimed_by: str | None
    claim_expires_at: datetime | None
    claim_expired: bool
    pages_discovered: int
    pages_crawled: int
    frontier_size: int
    """URLs that wait."""
    images_found: int
    images_stored: int
    image_yield_rate: float | None
    total_error_count: int
    consecutive_error_count: int
    error_rate: float | None
    crawl_depth_reached: int
    priority: int
    """With "now" in it."""
    seed_rank: int | None
    source: str | None
    first_seen_at: datetime
    last_crawled_at: datetime | None
    last_visit_ended_at: datetime | None
    next_crawl_after: datetime | None
    """Cooling down until then."""
    stays_blocked: bool
    """Only a person can start it over."""
    parser_name: str
    crawl_delay_seconds: float
    max_concurrent_requests: int
    maintenance_window: str | None
    proxy_use: str | None
    updated_at: datetime
    version: int
    pages_done: int
    """Of `pages_known`, which are the URLs that the job with most of them knows there: never more done than known."""
    pages_known: int


DOMAINS: Final = Listing(
    "domains",
    """
    t.id, t.domain, t.parent_domain, t.base_url, t.status::text, t.status_reason, t.block_reason_code, t.block_reason, t.is_active,
    t.claimed_by, t.claim_expires_at, COALESCE(t.claim_expires_at <= clock_timestamp(), false) AS claim_expired,
    t.pages_discovered, t.pages_crawled, t.frontier_size, t.images_found, t.images_stored, t.image_yield_rate,
    t.total_error_count, t.consecutive_error_count, t.error_rate,
    t.crawl_depth_reached, t.priority_score + staleness_points(now()) AS priority, t.seed_rank, t.source, t.first_seen_at,
    t.last_crawled_at, t.last_visit_ended_at,
    NULLIF(t.next_crawl_after, 'infinity') AS next_crawl_after, COALESCE(t.next_crawl_after = 'infinity', false) AS stays_blocked,
    t.parser_name, t.crawl_delay_seconds, t.max_concurrent_requests, t.maintenance_window, t.proxy_use, t.updated_at, t.version,
    COALESCE((SELECT LEAST(jd.pages, jd.done) FROM job_domains jd WHERE jd.domain_id = t.id
              ORDER BY jd.discovered DESC, jd.job_id LIMIT 1), 0) AS pages_done,
    COALESCE((SELECT max(jd.discovered) FROM job_domains jd WHERE jd.domain_id = t.id), 0) AS pages_known
    """,
    DomainRow,
    {
        "status": Equals("t.status", "%(status)s::domain_status"),
        "active": "t.is_active",
        "inactive": "NOT t.is_active",
        "held": "t.claimed_by IS NOT NULL",
        "free": "t.claimed_by IS NULL",
        "worker": Equals("t.claimed_by", "%(worker)s::text"),
        # A name is ASCII, and ~ comes behind all that may be in it.
        "prefix": Range("t.domain", "%(prefix)s::text", "%(prefix)s::text || '~'"),
        "parent": Equals("t.parent_domain", "%(parent)s::text"),
        "sub": "t.parent_domain <> t.domain",
        "windows": "t.maintenance_window IS NOT NULL",
    },
    {
        "name": Order(
            (_NAME,),
            (("parent", "sub"), ("windows",), ("inactive",), ("status",), ()),
            frozenset({"prefix"}),
        ),
        "crawled": Order(
            (
                SortColumn("t.last_visit_ended_at", datetime, descending=True, nullable=True),
                SortColumn("t.id", int, descending=True),
            )
        ),
        "priority": Order(
            (SortColumn("t.priority_score", int, descending=True), SortColumn("t.id", int, descending=True))
        ),
        "oldest": Order((_ID,), (("worker",), ())),
        "newest": Order((SortColumn("t.id", int, descending=True),), (("worker",), ())),
    },
    condition="t.removed_at IS NULL",
    selective=frozenset({"status", "inactive", "held", "worker", "prefix", "parent", "sub", "windows"}),
)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A domain that somebody holds."""

    domain_id: int
    domain: str
    worker: str
    epoch: int
    claimed_at: datetime | None
    expires_at: datetime
    expired: bool
    status: str
    frontier_size: int


CLAIMS: Final = Listing(
    "domains",
    """
    t.id AS domain_id, t.domain, t.claimed_by AS worker, t.claim_epoch AS epoch, l.claimed_at, t.claim_expires_at AS expires_at,
    t.claim_expires_at <= clock_timestamp() AS expired, t.status::text, t.frontier_size
    """,
    ClaimRow,
    {
        "worker": Equals("t.claimed_by", "%(worker)s::text"),
        "expired": "t.claim_expires_at <= clock_timestamp()",
        "lasting": "t.claim_expires_at > clock_timestamp()",
    },
    {"worker": Order((SortColumn("t.claimed_by", str), _ID), (("worker",), ()))},
    joins="LEFT JOIN claim_log l ON l.domain_id = t.id AND l.epoch = t.claim_epoch",
    condition="t.claimed_by IS NOT NULL",
)


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """A change of a domain's status."""

    version: int
    at: datetime
    from_status: str
    to_status: str
    reason: str
    worker: str | None
    epoch: int


TRANSITIONS: Final = Listing(
    "domain_transitions",
    "t.version, t.at, t.from_status::text, t.to_status::text, t.reason, t.worker, t.claim_epoch AS epoch",
    TransitionRow,
    {"domain": Equals("t.domain_id", "%(domain)s::bigint")},
    {"newest": Order((SortColumn("t.version", int, descending=True),), (("domain",),))},
)


@dataclass(frozen=True, slots=True)
class TenureRow:
    """A time in which somebody held a domain."""

    epoch: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    why: str | None


TENURES: Final = Listing(
    "claim_log",
    "t.epoch, t.worker, t.claimed_at, t.ended_at, t.why",
    TenureRow,
    {"domain": Equals("t.domain_id", "%(domain)s::bigint")},
    {"newest": Order((SortColumn("t.epoch", int, descending=True),), (("domain",),))},
)


@dataclass(frozen=True, slots=True)
class WindowedRow:
    """A domain that is left alone at times."""

    domain_id: int
    domain: str
    window: str
    """As people wrote it."""
    is_active: bool
    version: int
    now: datetime
    """By the database's clock."""


WINDOWS: Final = Listing(
    "domains",
    "t.id AS domain_id, t.domain, t.maintenance_window AS window, t.is_active, t.version, clock_timestamp() AS now",
    WindowedRow,
    {"prefix": DOMAINS.filters["prefix"]},
    {"name": Order((_NAME,), range_filters=frozenset({"prefix"}))},
    condition="t.maintenance_window IS NOT NULL AND t.removed_at IS NULL",
)
