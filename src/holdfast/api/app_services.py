"""The services that routes call: settings, the pooled database and the services of `control`, made once for a
process.

The rule: a route takes a service from here and calls it; it decides nothing itself.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Final, Generic, Self, TypeVar

from fastapi import Depends, Request

from holdfast import factories
from holdfast.accounts.service import AccountService
from holdfast.api.event_hub import EventHub, SnapshotPoller
from holdfast.api.rate_limit import RateLimit, RateLimiter
from holdfast.backups.service import BackupService
from holdfast.control.background_cache import BackgroundCache
from holdfast.control.explain import Explainer
from holdfast.control.health import NO_ANSWER, look
from holdfast.db.connection import Database
from holdfast.db.generation import GenerationWatch
from holdfast.db.pool import PooledDatabase
from holdfast.db.request_auth import RateLimits
from holdfast.documents.service import DocumentService
from holdfast.domains.service import DomainService
from holdfast.frontier.service import FrontierService
from holdfast.images.service import ImageService
from holdfast.items.service import ItemService
from holdfast.jobs.crawls import CrawlService
from holdfast.jobs.edits import ScopeEdit
from holdfast.jobs.live import JobBreakdown
from holdfast.jobs.records import ScopePreview
from holdfast.jobs.seed_import import SeedImporter
from holdfast.jobs.service import JobService
from holdfast.jobs.summary import SummaryCache
from holdfast.links.service import LinkService
from holdfast.model.auth import LOCAL_ADMIN, Principal, Role
from holdfast.model.health import Part
from holdfast.model.proxy import ProxyMode
from holdfast.model.scope import RuleSettings
from holdfast.operations.service import OperationService
from holdfast.pages.service import PageService
from holdfast.parse.plugin_registry import discover
from holdfast.products.service import ProductService
from holdfast.proxies.service import ProxyService
from holdfast.proxies.tester import ProxyTester
from holdfast.rebuild.service import CounterRebuilder
from holdfast.replay.service import ReplayService
from holdfast.retention.restore import ArchiveService
from holdfast.retention.service import RetentionService
from holdfast.search.service import SearchService
from holdfast.segments.service import SegmentService
from holdfast.settings import Settings
from holdfast.stats.records import Charts, ChartSpan
from holdfast.stats.service import Cached, StatsService
from holdfast.storage.service import StorageService
from holdfast.tasks.records import TaskCount
from holdfast.tasks.service import TaskService
from holdfast.webhooks.records import Outbox
from holdfast.webhooks.service import WebhookService
from holdfast.workers.service import WorkerService

log: Final = logging.getLogger(__name__)

TIMEOUT: Final = 0.5
"""Seconds that a caller waits."""
CACHE_SECONDS: Final = 1.0

OF_ONE_GENERATION: Final = (
    "job_summaries",
    "job_breakdowns",
    "scope_previews",
    "stats",
    "live_stats",
    "charts",
    "task_counts",
    "outbox_counts",
    "storage",
)
"""Services that keep answers of the store for longer than a request. The search index compares the generation itself, and thumbnails are
kept by the hash of their image."""

T = TypeVar("T")


class CachedProbe(Generic[T]):
    """The result of the last probe. Before: it is used in one event loop."""

    def __init__(self, probe: Callable[[], T], default: T) -> None:
        self._probe = probe
        self._default = default
        self._value: T = default
        self._expires = 0.0
        self._started = 0.0
        self._running: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The result of the last second, or of a new probe; the default if there is none in time."""
        if self._running is None and time.monotonic() >= self._expires:
            self._started = time.monotonic()
            self._running = asyncio.create_task(asyncio.to_thread(self._probe))
            self._running.add_done_callback(self._finished)
        if (running := self._running) is not None:
            left = self._started + TIMEOUT - time.monotonic()
            if left > 0:
                await asyncio.wait({running}, timeout=left)
            if not running.done():
                return self._default
        return self._value

    def _finished(self, running: asyncio.Task[T]) -> None:
        self._running = None
        self._expires = time.monotonic() + CACHE_SECONDS
        self._value = self._default if running.cancelled() or running.exception() else running.result()


@dataclass
class AppServices:
    """The settings, connections and services of one API process."""

    settings: Settings
    unpooled: Database
    """For work that holds a connection for long: exports and health checks."""
    database: PooledDatabase
    accounts: AccountService
    limiter: RateLimiter
    hub: EventHub
    no_auth: bool = False
    """Every caller is an admin; only for a server that listens on the loopback interface."""
    dashboard: object | None = None
    """The live regions of the dashboard, which makes them when the first page is watched."""

    @classmethod
    def open(cls, settings: Settings, database: Database, *, no_auth: bool = False) -> Self:
        """Open the connection pool. Before: the database answers and has the right schema. The caller calls `close`
        at the end."""
        watch = GenerationWatch(lambda: made.forget())
        pooled = PooledDatabase.from_database(
            replace(database, guard=watch),
            size=settings.web.connections,
            statement_timeout=settings.web.statement_timeout.total_seconds(),
        )
        made = cls(
            settings,
            database.with_application_name("holdfast export"),
            pooled,
            AccountService(pooled, settings.web),
            RateLimiter(pooled, settings),
            EventHub(pooled, settings.web.listeners, settings.web.user_listeners),
            no_auth=no_auth,
        )
        return made

    def forget(self) -> None:
        """Drop what was read of the store: it was restored or moved, so ids mean something else. Thread-safe."""
        log.warning("the store is of another generation: what this process knew of it is dropped")
        for name in OF_ONE_GENERATION:
            vars(self).pop(name, None)
        self.hub.restart()

    def close(self) -> None:
        """Close the connection pool. After: no connection is left, and no process that makes thumbnails."""
        if "images" in vars(self):
            self.images.thumbnails.close()
        self.database.close()

    @cached_property
    def role_limits(self) -> Mapping[Role, RateLimit]:
        """The rate limit of each role."""
        web = self.settings.web
        limits = {Role.ANONYMOUS: web.anonymous_limit, Role.USER: web.user_limit, Role.ADMIN: web.admin_limit}
        return {role: RateLimit(str(role), limits[role], web.window) for role in Role}

    @cached_property
    def login_limit(self) -> RateLimit:
        """The rate limit of logins from one address."""
        return RateLimit("login", self.settings.web.anonymous_limit, self.settings.web.window)

    @cached_property
    def limits(self) -> RateLimits:
        """The rate limits of all roles, as `db.request_auth` takes them."""
        return RateLimits(
            self.seed_limit.seconds, **{str(role): limit.requests for role, limit in self.role_limits.items()}
        )

    @cached_property
    def seed_limit(self) -> RateLimit:
        """The rate limit of adding seeds."""
        return RateLimit("seed", self.settings.web.seed_limit, self.settings.web.window)

    def jobs(self, caller: Principal) -> JobService:
        """The service for jobs; the caller is the actor of its changes."""
        settings = RuleSettings(self.settings.crawl.max_depth, self.settings.domains.registrable)
        return JobService(self.database, caller.name, settings)

    @cached_property
    def job_summaries(self) -> SummaryCache:
        """Summaries of jobs, with the URLs that were not crawled by reason."""
        return SummaryCache(JobService(self.database, "").summary)

    @cached_property
    def job_breakdowns(self) -> BackgroundCache[int, JobBreakdown]:
        """Jobs with many domains, over their domains and depths."""
        return BackgroundCache(self.jobs(LOCAL_ADMIN).breakdown, "Jobs with many domains")

    @cached_property
    def scope_previews(self) -> BackgroundCache[ScopeEdit, ScopePreview]:
        """Exact previews of edits of rules, which read up to a million URLs."""
        service = self.jobs(LOCAL_ADMIN)
        return BackgroundCache(lambda edit: service.preview_scope(edit.job_id, edit.as_changes()), "Previews of edits")

    @cached_property
    def seed_importer(self) -> SeedImporter:
        """Adds seeds to jobs."""
        return factories.seed_importer(self.settings, self.database)

    @cached_property
    def readiness(self) -> CachedProbe[list[Part]]:
        """Whether the database answers with the right schema, the disks have room, and workers may write. It uses a connection of its
        own, so that it also works when all pooled connections are in use."""
        disks = factories.disk_watch(self.settings)
        return CachedProbe(lambda: look(self.unpooled, disks), NO_ANSWER)

    @cached_property
    def redis(self) -> CachedProbe[bool | None]:
        """Whether Redis answers; None: no Redis is configured."""
        return CachedProbe(self.limiter.redis_answers, default=False)

    @cached_property
    def stats(self) -> StatsService:
        """Statistics, cached for one second."""
        return StatsService(self.database)

    @cached_property
    def live_stats(self) -> StatsService:
        """Statistics for live pages, which show them within a second of the database."""
        return StatsService(self.database, fresh_for=0.2)

    @cached_property
    def charts(self) -> BackgroundCache[ChartSpan, Charts]:
        """Charts of the overview."""
        return BackgroundCache(self.stats.charts, "Charts of other spans")

    @cached_property
    def stats_snapshots(self) -> SnapshotPoller:
        """Statistics for live streams, looked up once for all of them."""
        return SnapshotPoller(lambda keys: dict.fromkeys(keys, self.stats.snapshot()))

    @cached_property
    def job_snapshots(self) -> SnapshotPoller:
        """The progress of jobs for live streams, looked up once for all of them."""
        return SnapshotPoller(JobService(self.database, "").progress)

    @cached_property
    def operations(self) -> OperationService:
        """Operations: long work that runs in the background."""
        return OperationService(self.database)

    @cached_property
    def crawls(self) -> CrawlService:
        """Creates jobs and starts their crawls."""
        return CrawlService(
            self.database, self.seed_importer, factories.secret_sealer(self.settings), self.settings.crawl.max_depth
        )

    @cached_property
    def frontier(self) -> FrontierService:
        """The frontier: URLs that wait to be crawled."""
        return FrontierService(self.database, self.seed_importer, rest=self.settings.cooldown.exhausted)

    @cached_property
    def pages(self) -> PageService:
        """Single pages."""
        return factories.page_service(self.settings, self.database)

    @cached_property
    def documents(self) -> DocumentService:
        """The main content of pages."""
        return factories.document_service(self.settings, self.database)

    @cached_property
    def search(self) -> SearchService:
        """Search over documents."""
        return factories.search_service(self.settings, self.database)

    @cached_property
    def items(self) -> ItemService:
        """Items that parsers found."""
        return ItemService(self.database, self.settings.domains.registrable, factories.url_rules(self.settings))

    @cached_property
    def images(self) -> ImageService:
        """Images that crawls stored."""
        return factories.image_service(self.settings, self.database)

    @cached_property
    def links(self) -> LinkService:
        """Links of pages, and reports on them."""
        return factories.link_service(self.settings, self.database)

    @cached_property
    def explainer(self) -> Explainer:
        """Explains the state of a URL or a domain."""
        settings = self.settings
        return Explainer(
            self.database,
            factories.url_rules(settings),
            settings.domains.registrable,
            factories.user_agent(settings),
            ProxyMode(settings.proxies.use),
            settings.proxies.direct,
        )

    @cached_property
    def domains(self) -> DomainService:
        """Domains."""
        settings = self.settings
        return DomainService(
            self.database,
            settings.domains.registrable,
            factories.new_domains(settings),
            factories.secret_sealer(settings),
            settings.parsing,
            factories.user_agent(settings),
        )

    @cached_property
    def tasks(self) -> TaskService:
        """Tasks and batches."""
        settings = self.settings
        return TaskService(
            self.database,
            factories.url_rules(settings),
            factories.new_domains(settings),
            registrable=settings.domains.registrable,
        )

    @cached_property
    def parser_names(self) -> Cached[list[str]]:
        """Names of the parsers, cached for five seconds: the metadata of all installed packages is read."""
        return Cached(lambda: sorted(discover(self.settings.parsing.folder).sources), seconds=5.0)

    @cached_property
    def task_counts(self) -> Cached[list[TaskCount]]:
        """Tasks by status, cached for two seconds: all tasks are counted."""
        return Cached(self.tasks.stats, seconds=2.0)

    @cached_property
    def outbox_counts(self) -> Cached[Outbox]:
        """The outbox of webhooks in numbers, cached for two seconds: all messages are counted."""
        return Cached(self.webhooks.stats, seconds=2.0)

    @cached_property
    def products(self) -> ProductService:
        """Products."""
        return ProductService(self.database, self.settings.domains.registrable)

    @cached_property
    def proxies(self) -> ProxyService:
        """Proxies and their pools."""
        return ProxyService.of(self.settings, self.database)

    @cached_property
    def proxy_tester(self) -> ProxyTester:
        """Tests proxies by requests to the web."""
        return ProxyTester(self.database, self.settings, factories.user_agent(self.settings))

    @cached_property
    def webhooks(self) -> WebhookService:
        """The outbox of webhooks."""
        return WebhookService(self.database)

    @cached_property
    def replays(self) -> ReplayService:
        """Replays of pages."""
        return ReplayService(self.database, self.settings.domains.registrable)

    @cached_property
    def counters(self) -> CounterRebuilder:
        """Rebuilds counters."""
        return CounterRebuilder(self.database, self.settings.domains.registrable)

    @cached_property
    def segments(self) -> SegmentService:
        """The manifest of the archive."""
        return SegmentService(self.database)

    @cached_property
    def retention(self) -> RetentionService:
        """What is kept how long, and what was archived."""
        return factories.retention_service(self.settings, self.database)

    @cached_property
    def archives(self) -> ArchiveService:
        """Archives: list, show, and which of them a restore takes."""
        return factories.archive_service(self.settings, self.database)

    @cached_property
    def storage(self) -> StorageService:
        """The storage report, cached for a minute."""
        return factories.storage_service(self.settings, self.database)

    @cached_property
    def backups(self) -> BackupService:
        """The backups of the store."""
        return factories.backup_service(self.settings, self.database)

    @cached_property
    def workers(self) -> WorkerService:
        """Workers, runs and claims."""
        return WorkerService(self.database, self.settings.domains.registrable)


# Both are coroutines, as FastAPI would run a plain function in another thread than the request.


async def _services(request: Request) -> AppServices:
    services = request.app.state.services
    assert isinstance(services, AppServices)  # noqa: S101 — `create_app` sets it
    return services


async def _caller(request: Request) -> Principal:
    caller = request.state.caller
    assert isinstance(caller, Principal)  # noqa: S101 — `AuthorizedRoute` sets it
    return caller


Services = Annotated[AppServices, Depends(_services)]
Caller = Annotated[Principal, Depends(_caller)]
