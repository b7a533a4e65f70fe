"""The configuration of a worker process, and the context that its visits share."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.archive.reader import ArchiveReader
from holdfast.crawler.batch_writer import BatchWriter
from holdfast.crawler.db_thread import DbThread
from holdfast.crawler.leases import Leases
from holdfast.crawler.link_filter import LinkMemoryBudget
from holdfast.crawler.proxy_registry import ProxyRegistry
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.fetch.http_client import HttpClient
from holdfast.model.commit_batch import UrlOutcome
from holdfast.model.domain_name import SiteCache
from holdfast.model.url import UrlRules
from holdfast.parse.image_check import ImageChecker
from holdfast.parse.page_parser import PageParser
from holdfast.settings import Settings
from holdfast.telemetry.clock import Clock
from holdfast.telemetry.disk_space import DiskWatch


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The configuration of a worker process."""

    settings: Settings
    database: Database
    name: str
    agent: str
    rules: UrlRules
    defaults: NewDomains
    archive_folder: Path
    archive: ArchiveReader
    """Reads the archive of all machines, as far as they have uploaded it."""
    unseal: Callable[[str], str]
    """Decrypts a stored secret: the password of a proxy, the headers of a domain."""
    disks: DiskWatch = field(default_factory=lambda: DiskWatch({}, min_free=0, warn_free=0))
    """The volumes of this machine."""
    check_background: Callable[[Connection], object] = lambda _connection: None
    """Raises an alert if work is due that no background process does."""
    parser_file: Path | None = None
    """A parser given by its path, in addition to those of the parser folder."""
    report: Callable[[Sequence[UrlOutcome]], None] | None = None
    """Called on the event loop with committed outcomes; must return at once."""
    siblings: int = 1
    """Workers that are started together with this one, itself included."""
    job_id: int | None = None
    """Serve this job only, and end when it has nothing more to do; None: serve all jobs until stopped."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What every visit of a worker shares: created once by the worker, passed to all."""

    settings: Settings
    worker: str
    run_id: int
    agent: str
    """The default User-Agent, for domains and jobs without one."""
    rules: UrlRules
    sites: SiteCache
    memory: LinkMemoryBudget
    clock: Clock
    rng: random.Random
    db: DbThread
    leases: Leases
    batch_writer: BatchWriter
    proxies: ProxyRegistry
    client: HttpClient
    parser: PageParser
    images: ImageChecker
    sitemap_reads: asyncio.Semaphore
    """Limits the sitemaps that are in memory at the same time."""
