"""Settings of the crawler: fetching, politeness, crawls, workers, the archive, parsers, proxies."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from holdfast.model.image import MAX_DISTANCE
from holdfast.model.job import Sitemaps
from holdfast.settings.field_types import MAX_INT4, ONE_DAY, Count, Duration, Group, Names, header_value, single_word
from holdfast.settings.field_types import folder as folder_path

_SECOND = timedelta(seconds=1)
_BUCKET: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._=-]+)*/?")
_ENDPOINT: Final = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#@]*)?")
REQUESTS_END_SECONDS: Final = 100.0
"""Seconds after the sending of a worker's last acknowledged heartbeat by which all its requests have ended; 20 s later other workers may
take its domains over."""


class Fetch(Group):
    """How pages are requested."""

    connect_timeout: Duration = Field(
        default=10 * _SECOND,
        ge=0.1 * _SECOND,
        le=ONE_DAY,
        description="The timeout of connecting, including TLS.",
    )
    timeout: Duration = Field(
        default=30 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="The timeout of a whole request."
    )
    min_rate: Count = Field(
        default=100,
        ge=0,
        le=MAX_INT4,
        description="Bytes a second below which an answer is too slow; 0 = no minimum.",
    )
    min_rate_time: Duration = Field(
        default=10 * _SECOND, ge=_SECOND, le=ONE_DAY, description="How long an answer may stay below `min_rate`."
    )
    max_bytes: Count = Field(
        default=10 * 1024 * 1024, ge=1024, le=MAX_INT4, description="Longer pages are refused; counted after unpacking."
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
        default=5 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="The timeout of a DNS lookup."
    )
    dns_ttl_max: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=ONE_DAY,
        description="The maximum time for which an address is cached.",
    )
    dns_ttl_negative: Duration = Field(
        default=60 * _SECOND,
        ge=_SECOND,
        le=ONE_DAY,
        description="How long a name without an address is cached.",
    )


class Politeness(Group):
    """Politeness towards servers: robots.txt, retries, back-off, circuit breaker."""

    robots_ttl: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=30 * ONE_DAY,
        description="How long a robots.txt is cached.",
    )
    robots_retry: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=ONE_DAY,
        description="When to retry a robots.txt that could not be fetched.",
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
        description="The maximum back-off of a server that refuses requests.",
    )
    circuit_failures: Count = Field(
        default=5, ge=1, le=MAX_INT4, description="Failures in a row that open a domain's circuit."
    )
    circuit_open: Duration = Field(
        default=60 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="How long it stays open."
    )
    circuit_successes: Count = Field(
        default=2, ge=1, le=MAX_INT4, description="Successes in a row that close it again."
    )


class Crawl(Group):
    """Limits and identity of a crawl."""

    contact: Annotated[str | None, AfterValidator(header_value)] = Field(
        default=None,
        description="A web or mail address in the User-Agent, where sites can reach you; `fetch.contact` means the same.",
    )
    max_depth: Count = Field(
        default=10,
        ge=0,
        le=32_000,
        description="Maximum number of links from a seed; pagination steps do not count.",
    )
    max_pagination: Count = Field(
        default=1000,
        ge=0,
        le=32_000,
        description="Steps along a pagination, which do not count as depth; a chain of them ends there. After 3 pages in a row "
        "without any other new URL they count.",
    )
    checks_per_host: Count = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="Links to a host out of scope that a job checks (`--check-external`).",
    )
    links_per_page: Count = Field(default=1000, ge=1, le=100_000, description="Links of a page that are followed.")
    discovered_per_second: Count = Field(
        default=100,
        ge=0,
        le=MAX_INT4,
        description="Flood guard: new URLs a second that pages of a domain may add on average while more URLs than `flood_mark` "
        "wait; 0 = no limit.",
    )
    flood_mark: Count = Field(
        default=100_000,
        ge=0,
        le=MAX_INT4,
        description="Flood guard: it acts only while more URLs than this wait on a domain (with those that its pages added elsewhere).",
    )
    max_segments: Count = Field(default=20, ge=1, le=1000, description="URLs with more path segments are traps.")
    max_repeats: Count = Field(
        default=3, ge=1, le=1000, description="URLs that repeat a path segment more often are traps."
    )
    template_cap: Count = Field(
        default=10_000,
        ge=1,
        le=MAX_INT4,
        description="URLs of a job on a domain that differ only in numbers; more are a trap.",
    )
    sitemaps: Sitemaps = Field(
        default=Sitemaps.ALSO,
        description="Whether jobs read the sitemaps and feeds of their hosts (robots.txt, /sitemap.xml, links): also, only or no. A job "
        "may say otherwise.",
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
    page_versions: Count = Field(
        default=20,
        ge=0,
        le=10_000,
        description="Earlier versions of a page that are kept when its content changes, the newest ones; 0 = none, and then `holdfast "
        "jobs compare` finds no changes.",
    )


class Worker(Group):
    """How much a worker process does at the same time."""

    domains: Count = Field(default=200, ge=1, le=10_000, description="Domains that a worker holds at the same time.")
    window: Count = Field(
        default=100, ge=1, le=10_000, description="URLs of a domain that are taken into memory at once."
    )
    heartbeat: Duration = Field(
        default=30 * _SECOND, ge=0.1 * _SECOND, le=ONE_DAY, description="How often a worker sends a heartbeat."
    )
    drain: Duration = Field(
        default=20 * _SECOND, le=ONE_DAY, description="How long a stopping worker waits for its requests."
    )
    idle: Duration = Field(
        default=0.5 * _SECOND,
        ge=0.01 * _SECOND,
        le=ONE_DAY,
        description="How often a worker without work looks for some.",
    )


def store_place(text: str | None) -> str | None:
    """The folder or the bucket of a store of files. Raises ValueError."""
    if text is not None and (text.lower().startswith("s3:") or "://" in text):  # no one means a folder of that name
        if not _BUCKET.fullmatch(text):
            raise ValueError("must be a folder, or s3://bucket or s3://bucket/prefix")
    elif text is not None:
        folder_path(text)
    return text


def _machine(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}", name):
        raise ValueError("must be letters, digits, dots, dashes and underscores, 150 at the most")
    return name


def _endpoint(url: str | None) -> str | None:
    if url is not None and not _ENDPOINT.fullmatch(url):
        raise ValueError("must be a URL such as https://s3.example.com, without a user name in it")
    return url


class ObjectStoreOptions(Group):
    """How an S3-compatible store is reached; the groups of what may be kept in one have these settings."""

    endpoint: Annotated[str | None, AfterValidator(_endpoint)] = Field(
        default=None, description="The URL of the S3-compatible store; not set = Amazon's."
    )
    region: Annotated[str, AfterValidator(single_word)] = Field(
        default="us-east-1", description="The region of the S3-compatible store."
    )
    access_key: SecretStr | None = Field(
        default=None,
        description="The access key of the S3-compatible store; not set = `AWS_ACCESS_KEY_ID` of the environment, and so on.",
    )
    secret_key: SecretStr | None = Field(default=None, description="The secret key that belongs to `access_key`.")
    credentials_file: Annotated[Path | None, BeforeValidator(folder_path)] = Field(
        default=None,
        description="A file with the credentials of the S3-compatible store, as `aws` writes it, that no other user can read (mode 0600).",
    )
    store_timeout: Duration = Field(
        default=30 * _SECOND,
        ge=0.1 * _SECOND,
        le=timedelta(minutes=10),
        description="How long the S3-compatible store is tried before it counts as unavailable.",
    )

    @model_validator(mode="after")
    def _keys_belong_together(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key must be given together")
        return self


class Archive(ObjectStoreOptions):
    """Where the bytes of pages are stored, and whether they are copied into a store that all machines read."""

    segment_bytes: Count = Field(
        default=1_000_000_000, ge=10_000, le=2**40, description="Maximum size in bytes of a file of the archive."
    )
    level: Count = Field(
        default=1, ge=0, le=3, description="The compression level of the archive: 0 is fastest, 3 is smallest."
    )
    dedup: Count = Field(
        default=100_000,
        ge=0,
        le=MAX_INT4,
        description="Bodies that a worker remembers so that a repeat is only referred to; 0 = none.",
    )
    dedup_age: Duration = Field(
        default=ONE_DAY,
        ge=_SECOND,
        description="How long a stored body is referred to; then a repeat is stored again. Retention keeps every body for this time. "
        "Give all machines the same value.",
    )
    store: Annotated[str | None, AfterValidator(store_place)] = Field(
        default=None,
        description="Where finished files of the archive are copied, so that every machine can read them: `s3://bucket/prefix` for an "
        "S3-compatible store, or a folder that all machines share; not set = they stay on the machine that wrote them.",
    )
    upload_age: Duration = Field(
        default=60 * _SECOND,
        ge=_SECOND,
        le=ONE_DAY,
        description="With `store`, a file of the archive is finished and uploaded after this time: what a lost machine can lose.",
    )
    upload_bytes: Count = Field(
        default=64_000_000,
        ge=10_000,
        le=2**32,
        description="With `store`, a file of the archive is finished and uploaded at this size in bytes.",
    )
    keep_local: bool = Field(
        default=True,
        description="Keep files of the archive on this machine after they were uploaded; off = remove them.",
    )
    max_waiting: Count = Field(
        default=10_000_000_000,
        ge=0,
        le=2**50,
        description="Bytes that may wait on this machine to be uploaded; beyond that fetching waits until `store` takes them; "
        "0 = no limit but the disk.",
    )
    machine: Annotated[str | None, AfterValidator(_machine)] = Field(
        default=None,
        description="The name of this machine in messages about the archive; not set = its host name.",
    )


class Disk(Group):
    """How much room the disks of a machine must have: those of the bundled database, the archive, images and logs."""

    min_free: Count = Field(
        default=500_000_000,
        ge=0,
        le=2**50,
        description="Free bytes below which no page is fetched until there is more room; 0 = fetch until a write fails.",
    )
    warn_free: Count = Field(
        default=2_000_000_000, ge=0, le=2**50, description="Free bytes below which an alert warns; 0 = none."
    )


class Images(ObjectStoreOptions):
    """Images of pages: what is accepted, and where the files are stored."""

    max_bytes: Count = Field(default=20_000_000, ge=1000, le=MAX_INT4, description="Larger images are refused.")
    max_per_host: Count = Field(
        default=100_000,
        ge=1,
        le=MAX_INT4,
        description="Images that a job stores from one host; URLs of more are left out.",
    )
    max_pixels: Count = Field(
        default=100_000_000,
        ge=1000,
        le=1_000_000_000,
        description="Images of more pixels (width times height) are refused.",
    )
    max_frames: Count = Field(
        default=2000,
        ge=1,
        le=MAX_INT4,
        description="Animations with more frames are refused, and TIFFs with more pages.",
    )
    timeout: Duration = Field(
        default=10 * _SECOND,
        ge=0.1 * _SECOND,
        le=timedelta(minutes=5),
        description="The timeout of decoding an image; then its process is killed.",
    )
    processes: Count = Field(
        default=1, ge=1, le=100, description="Processes of a worker that decode images, started when needed."
    )
    near_distance: Count = Field(
        default=5,
        ge=0,
        le=MAX_DISTANCE,
        description="Bits of 64 by which the hashes of two images may differ that count as near duplicates.",
    )
    store: Annotated[str | None, AfterValidator(store_place)] = Field(
        default=None,
        description="A folder, or `s3://bucket/prefix` for an S3-compatible store; not set = `images` in `data`.",
    )


class Parsing(Group):
    """How parsers read the pages of tasks and crawls, in processes of their own."""

    processes: Count = Field(default=2, ge=1, le=1000, description="Parsers that run at the same time.")
    timeout: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(seconds=0.1),
        le=ONE_DAY,
        description="The timeout of a parser for one page; then it is killed.",
    )
    memory: Count = Field(
        default=1 << 30,
        ge=128 << 20,
        le=MAX_INT4 * 64,
        description="Bytes of address space that a parser's process may have.",
    )
    items_per_page: Count = Field(
        default=1_000,
        ge=1,
        le=10_000,
        description="Maximum number of items that a parser may find on one page of a crawl.",
    )
    item_bytes: Count = Field(
        default=256 * 1024, ge=100, le=1 << 20, description="Maximum size in bytes of one item as JSON."
    )
    attempts: Count = Field(
        default=2,
        ge=1,
        le=100,
        description="How often a page of a crawl is parsed whose parser hangs, dies or needs too much memory.",
    )
    buffer: Count = Field(
        default=64 << 20,
        ge=0,
        le=MAX_INT4 * 64,
        description="Bytes of pages that a worker keeps in memory for its parsers; pages beyond are parsed later, from the archive.",
    )
    folder: Annotated[Path | None, BeforeValidator(folder_path)] = Field(
        default=None,
        description="A folder of parsers, a Python file each, the name of the file is that of the parser; not set = none.",
    )


class Proxies(Group):
    """Which proxies are used, and the pauses after failures."""

    use: Literal["direct", "pool", "any"] = Field(
        default="direct",
        description="For a domain without its own option: `direct` = no proxy, `pool` = those that were assigned to it, "
        "`any` = if none of these is usable, any other.",
    )
    direct: bool = Field(
        default=False,
        description="A domain without its own option may be requested without a proxy when none is usable.",
    )
    period: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=ONE_DAY,
        description="The time that a proxy's limit of requests is for; the same for all workers.",
    )
    rest: Duration = Field(
        default=30 * _SECOND,
        ge=0.1 * _SECOND,
        le=ONE_DAY,
        description="The pause of a proxy after 5 failures in a row; it doubles with each one more.",
    )
    max_rest: Duration = Field(
        default=timedelta(hours=1), ge=0.1 * _SECOND, le=30 * ONE_DAY, description="The maximum of `rest`."
    )
    refused_rest: Duration = Field(
        default=timedelta(minutes=10),
        ge=0.1 * _SECOND,
        le=ONE_DAY,
        description="The pause of a proxy for a domain that refused it 5 times in a row; it doubles with each one more.",
    )
    max_refused_rest: Duration = Field(
        default=ONE_DAY, ge=0.1 * _SECOND, le=30 * ONE_DAY, description="The maximum of `refused_rest`."
    )
