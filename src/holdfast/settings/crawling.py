"""Settings of the engine: fetching, politeness, crawls, workers, the archive."""

from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from holdfast.settings.duration import Duration
from holdfast.settings.kinds import INT4, ONE_DAY, Count, Group, Names, header

_SECOND = timedelta(seconds=1)
REQUESTS_END: Final = 100.0
"""Seconds after the sending of a worker's last acknowledged heartbeat by which all its requests have ended; 20 s later others may take
its domains over."""


class Fetch(Group):
    """How pages are asked for."""

    connect_timeout: Duration = Field(
        default=10 * _SECOND,
        ge=0.1 * _SECOND,
        le=ONE_DAY,
        description="The longest that connecting may take, with TLS.",
    )
    timeout: Duration = Field(
        default=30 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="The longest that a request may take in all."
    )
    min_rate: Count = Field(
        default=100,
        ge=0,
        le=INT4,
        description="Bytes a second below which an answer is too slow; 0 = any rate will do.",
    )
    min_rate_time: Duration = Field(
        default=10 * _SECOND, ge=_SECOND, le=ONE_DAY, description="How long an answer may stay below `min_rate`."
    )
    max_bytes: Count = Field(
        default=10 * 1024 * 1024, ge=1024, le=INT4, description="Longer pages are refused; counted after unpacking."
    )
    max_redirects: Count = Field(default=5, ge=0, le=100, description="Redirects in a row that are followed.")
    connections: Count = Field(default=1000, ge=1, le=100_000, description="Open connections of a worker process.")
    allow_private: bool = Field(
        default=False, description="Visit private, loopback and other addresses that are not of the public internet."
    )
    dns_servers: Names = Field(
        default=(), description="Addresses of name servers (perhaps with :port); not set = those of the system."
    )
    dns_timeout: Duration = Field(
        default=5 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="The longest that finding an address may take."
    )
    dns_ttl_max: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=ONE_DAY,
        description="Addresses are asked for again after this at the latest.",
    )
    dns_ttl_negative: Duration = Field(
        default=60 * _SECOND,
        ge=_SECOND,
        le=ONE_DAY,
        description="How long it is remembered that a name has no address.",
    )


class Politeness(Group):
    """How servers are treated."""

    robots_ttl: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=30 * ONE_DAY,
        description="How long a robots.txt holds before it is asked for again.",
    )
    robots_retry: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=ONE_DAY,
        description="When to ask again for a robots.txt that could not be had.",
    )
    max_crawl_delay: Duration = Field(
        default=60 * _SECOND, le=ONE_DAY, description="A longer Crawl-delay in robots.txt counts as this."
    )
    retries: Count = Field(default=3, ge=0, le=100, description="Further attempts on a URL after the first one failed.")
    retry_delay: Duration = Field(
        default=_SECOND, le=ONE_DAY, description="Pause before the first further attempt; it doubles each time."
    )
    max_back_off: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=30 * ONE_DAY,
        description="The longest that a crawl leaves a server alone that asks for less.",
    )
    circuit_failures: Count = Field(
        default=5, ge=1, le=INT4, description="Failures in a row that open a domain's circuit."
    )
    circuit_open: Duration = Field(
        default=60 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="How long it stays open."
    )
    circuit_successes: Count = Field(default=2, ge=1, le=INT4, description="Successes in a row that close it again.")


class Crawl(Group):
    """What a crawl may do, and who does it."""

    contact: Annotated[str | None, AfterValidator(header)] = Field(
        default=None,
        description="A web or mail address in the User-Agent, where sites can reach you; `fetch.contact` means the same.",
    )
    max_depth: Count = Field(
        default=10,
        ge=0,
        le=32_000,
        description="Links are followed so far from a seed; steps along a pagination do not count.",
    )
    max_pagination: Count = Field(
        default=1000,
        ge=0,
        le=32_000,
        description="Steps along a pagination, which do not count as depth; a chain of them ends there. After 3 pages in a row "
        "without any other new URL they count.",
    )
    links_per_page: Count = Field(default=1000, ge=1, le=100_000, description="Links of a page that are followed.")
    discovered_per_second: Count = Field(
        default=100,
        ge=0,
        le=INT4,
        description="Flood guard: new URLs a second that pages of a domain may add on average while more URLs than `flood_mark` "
        "wait; 0 = no limit.",
    )
    flood_mark: Count = Field(
        default=100_000,
        ge=0,
        le=INT4,
        description="Flood guard: it acts only while more URLs than this wait on a domain (with those that its pages added elsewhere).",
    )
    max_segments: Count = Field(default=20, ge=1, le=1000, description="URLs with more path segments are traps.")
    max_repeats: Count = Field(
        default=3, ge=1, le=1000, description="URLs that repeat a path segment more often are traps."
    )
    template_cap: Count = Field(
        default=10_000,
        ge=1,
        le=INT4,
        description="URLs of a job on a domain that differ only in numbers; more are a trap.",
    )
    patience: Duration = Field(
        default=60 * _SECOND, le=ONE_DAY, description="A crawl ends rather than wait longer than this for a domain."
    )
    slice: Duration = Field(
        default=20 * _SECOND,
        ge=_SECOND,
        le=ONE_DAY,
        description="How long a visit lasts when another job waits for its domain: they take turns.",
    )


class Worker(Group):
    """What a worker process does at once."""

    domains: Count = Field(default=200, ge=1, le=10_000, description="Domains that a worker holds at the same time.")
    window: Count = Field(
        default=100, ge=1, le=10_000, description="URLs of a domain that are taken into memory at once."
    )
    heartbeat: Duration = Field(
        default=30 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="How often a worker says that it lives."
    )
    drain: Duration = Field(
        default=20 * _SECOND, le=ONE_DAY, description="How long a worker that is told to stop waits for its requests."
    )
    idle: Duration = Field(
        default=0.5 * _SECOND,
        ge=0.01 * _SECOND,
        le=ONE_DAY,
        description="How often a worker without work looks for some.",
    )


class Archive(Group):
    """Where the bytes of pages are kept."""

    segment_bytes: Count = Field(
        default=1_000_000_000, ge=10_000, le=2**40, description="A file of the archive is closed when it is that long."
    )
    level: Count = Field(
        default=1, ge=0, le=3, description="How hard the archive is compressed: 0 is fastest, 3 is smallest."
    )
    dedup: Count = Field(
        default=100_000,
        ge=0,
        le=INT4,
        description="Bodies that a worker remembers so that a repeat is only referred to; 0 = none.",
    )
