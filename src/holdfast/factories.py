"""Factories: the only place that selects implementations and creates services from the settings."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import __version__, private
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.db.embedded import layout
from holdfast.db.embedded.watchdog import Watchdog
from holdfast.errors import Refused, UsageError
from holdfast.model.url import UrlRules
from holdfast.settings import Settings
from holdfast.telemetry.disk_space import DiskWatch, describe

if TYPE_CHECKING:
    from holdfast.archive.file_store import FileStore
    from holdfast.archive.image_store import ImageStore
    from holdfast.archive.reader import ArchiveReader
    from holdfast.backfill.service import BackfillService
    from holdfast.background.process import BackgroundServices
    from holdfast.backups.restore import Restorer
    from holdfast.backups.service import BackupService, Watch
    from holdfast.control.request_secrets import SecretSealer
    from holdfast.crawler.segment_uploader import SegmentUploader
    from holdfast.crawler.worker_context import WorkerConfig
    from holdfast.documents.service import DocumentService
    from holdfast.images.service import ImageService
    from holdfast.jobs.seed_import import SeedImporter
    from holdfast.links.service import LinkService
    from holdfast.model.segment import SegmentPlace
    from holdfast.operations.handlers import OperationHandlers
    from holdfast.pages.service import PageService
    from holdfast.parse.image_check import ImageChecker
    from holdfast.retention.restore import ArchiveService
    from holdfast.retention.service import RetentionService
    from holdfast.search.service import SearchService
    from holdfast.storage.service import StorageService


CHILD_WAIT_SECONDS: Final = 10.0
"""Seconds that a supervised process waits for the bundled server before it exits and is restarted."""


def database(settings: Settings, say: Callable[[str], None], *, start: bool = True) -> Database:
    """The running database of the settings, whatever the version of its schema. `say` is called with messages about slow steps.

    `start`: start the bundled server if it does not run. A supervised process leaves that to its supervisor: a server that the operator
    stopped stays down, and the server does not inherit the priority of a worker.
    """
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        private.close_own(settings.data, say)
    elif start:
        url = embedded.ensure_running(settings.data, say).url()
    else:
        url = embedded.wait_until_running(settings.data, CHILD_WAIT_SECONDS).url()
    return database_at(settings, url)


def database_at(settings: Settings, url: str) -> Database:
    """The database at this address, with the timeouts of the settings."""
    return Database(
        url,
        connect_timeout=settings.store.connect_timeout.total_seconds(),
        statement_timeout=settings.store.statement_timeout.total_seconds(),
        idle_timeout=min(10.0, settings.claims.lease.total_seconds() / 3),
    )


def server_watchdog(settings: Settings, say: Callable[[str], None]) -> AbstractContextManager[object]:
    """A context manager that restarts the bundled server if it dies; `say` is called with a message. No-op for an external server."""
    return Watchdog(settings.data, say) if settings.database_url is None else nullcontext()


def store(settings: Settings, say: Callable[[str], None], *, start: bool = True) -> Database:
    """The database, with the schema of this version. Only the bundled server is migrated automatically."""
    db = database(settings, say, start=start)
    with db.session() as connection:
        is_older = migrate.current(connection) in migrate.OLDER
        if not (settings.database_url is None and is_older):
            migrate.check(connection, db.address)
            return db
    migrate.upgrade(db)
    return db


def url_rules(settings: Settings) -> UrlRules:
    """The rules by which URLs are normalized."""
    return UrlRules(
        tracking_parameters=settings.urls.tracking_parameters,
        session_parameters=settings.urls.session_parameters,
        strip_trailing_slash=settings.urls.strip_trailing_slash,
        sort_query=settings.urls.sort_query,
        max_bytes=settings.urls.max_bytes,
    )


def new_domains(settings: Settings) -> NewDomains:
    """The defaults of new domains."""
    return NewDomains(
        max_pages_per_run=settings.domains.max_pages_per_run,
        parser=settings.domains.parser,
        crawl_delay=settings.domains.crawl_delay.total_seconds(),
        max_concurrent_requests=settings.domains.max_concurrent_requests,
        crawl_frequency=settings.domains.crawl_frequency,
        user_agent=settings.domains.user_agent,
    )


def user_agent(settings: Settings) -> str:
    """The default User-Agent, for domains that have none of their own."""
    contact = f" (+{settings.crawl.contact})" if settings.crawl.contact else ""
    return settings.domains.user_agent or f"Holdfast/{__version__}{contact}"


def worker_name(number: int) -> str:
    """A stable name for a worker of this machine, so that it takes its claims back after a restart."""
    return f"{socket.gethostname()[:150]}-{number}"


def archive_folder(settings: Settings) -> Path:
    """The folder of the WARC archive. Raises UsageError if the data folder is another user's."""
    private.check(settings.data)
    return settings.data / "archive"


def scratch_folder(settings: Settings) -> Path:
    """The folder for scratch folders of retention and restores."""
    return settings.data / "scratch"


def archive_reader(settings: Settings, db: Database) -> "ArchiveReader":
    """The reader of the archive: of this machine, and of what others have uploaded. A data folder of another user is not read. Raises
    SettingsError."""
    from holdfast.archive.reader import ArchiveReader
    from holdfast.archive.segment_store import open_segment_store
    from holdfast.db import archive_segments

    try:
        folder = archive_folder(settings)
    except UsageError:
        folder = None

    def locate(segment: str) -> "SegmentPlace | None":
        with db.session() as connection:
            return archive_segments.place(connection, segment)

    return ArchiveReader(folder, open_segment_store(settings.archive), locate)


def segment_uploader(settings: Settings, db: Database) -> "SegmentUploader | None":
    """Uploads the archive of this machine; None: there is no object store. The caller stops it. Raises UsageError, SettingsError."""
    from holdfast.archive.segment_store import open_segment_store
    from holdfast.crawler.segment_uploader import SegmentUploader

    objects = open_segment_store(settings.archive)
    return None if objects is None else SegmentUploader(db, archive_folder(settings), settings.archive, objects)


def image_store(settings: Settings) -> "ImageStore":
    """The store of image files. Raises UsageError if the data folder is another user's, SettingsError."""
    from holdfast.archive.image_store import open_store

    private.check(settings.data)
    return open_store(settings.images, settings.data)


def image_service(settings: Settings, db: Database) -> "ImageService":
    """The service of images, which reads the store of images. The caller closes its `thumbnails`."""
    from holdfast.backups.stall_watch import CopyCheck
    from holdfast.images.service import ImageService
    from holdfast.images.thumbnails import Thumbnails

    thumbnails = Thumbnails(lambda: image_checker(settings))
    has_copy = CopyCheck(backup_folder(settings) / "images")
    return ImageService(db, image_store(settings), thumbnails, settings.domains.registrable, has_copy)


def link_service(settings: Settings, db: Database) -> "LinkService":
    """The service of links."""
    from holdfast.links.service import LinkService

    return LinkService.of(db, registrable=settings.domains.registrable, rules=url_rules(settings))


def image_checker(settings: Settings) -> "ImageChecker":
    """A checker of images, for one event loop."""
    from holdfast.parse.image_check import ImageChecker, ImageLimits

    limits = ImageLimits(settings.images.max_bytes, settings.images.max_pixels, settings.images.max_frames)
    return ImageChecker(limits, deadline=settings.images.timeout.total_seconds(), processes=settings.images.processes)


def log_folder(settings: Settings) -> Path:
    """The folder of the log files. Raises UsageError if the data folder is another user's."""
    private.check(settings.data)
    return settings.data / "logs"


def backfill_service(settings: Settings, db: Database) -> "BackfillService":
    """The service that imports what other tools left."""
    from holdfast.backfill.service import BackfillService

    cooldown = settings.cooldown
    return BackfillService(
        db,
        url_rules(settings),
        new_domains(settings),
        archive_folder(settings),
        archive_reader(settings, db),
        settings.archive,
        {
            "login_required": cooldown.login_required,
            "forbidden": cooldown.forbidden,
            "rate_limited": cooldown.rate_limited,
            "unavailable": cooldown.unavailable,
            "manual": cooldown.forbidden,
        },
        software=f"Holdfast/{__version__}",
        registrable=settings.domains.registrable,
        max_bytes=settings.fetch.max_bytes,
        versions=settings.crawl.page_versions,
        links_per_page=settings.crawl.links_per_page,
    )


def cluster_folder(settings: Settings) -> Path | None:
    """The folder of the bundled server; None: the database is on a server of its own."""
    return None if settings.database_url is not None else layout.home_of(layout.resolved(settings.data))


def storage_service(settings: Settings, db: Database) -> "StorageService":
    """The service of the storage report, with the folders of this machine."""
    from holdfast.storage.service import StorageService

    return StorageService(
        db, settings.data, cluster_folder(settings), disk_watch(settings), backups=backup_folder(settings)
    )


def disk_watch(settings: Settings) -> DiskWatch:
    """The volumes that this machine writes to."""
    cluster, images = cluster_folder(settings), settings.images.store
    places = {} if cluster is None else {"database": cluster}
    places |= {"archive": settings.data / "archive", "logs": settings.data / "logs"}
    if images is None or not images.startswith("s3://"):
        places["images"] = settings.data / "images" if images is None else Path(images).expanduser()
    return DiskWatch(places, min_free=settings.disk.min_free, warn_free=settings.disk.warn_free)


def check_disks(settings: Settings) -> None:
    """Raise Refused if a disk of this machine has too little room to begin a crawl."""
    if (full := disk_watch(settings).full()) is not None:
        raise Refused(
            f"Nothing is fetched: {describe(full)}. Make room, or set a smaller bound with HOLDFAST_DISK_MIN_FREE "
            "(bytes; 0 switches the check off)."
        )


def backup_folder(settings: Settings) -> Path:
    """The folder of backups of this machine."""
    return settings.backup.folder if settings.backup.folder is not None else settings.data / "backups"


def backup_service(settings: Settings, db: Database) -> "BackupService":
    """The backups of the store. Raises UsageError if the data folder is another user's."""
    from holdfast.backups.service import BackupService

    return BackupService.of(settings, db, image_store(settings))


def has_store(settings: Settings) -> bool:
    """Whether the data folder has a bundled database."""
    from holdfast.db.embedded import layout

    data = layout.resolved(settings.data)
    return data.exists() and layout.cluster_in(layout.home_of(data)).exists()


def restorer(settings: Settings, folder: Path, say: Callable[[str], None], watch: "Watch") -> "Restorer":
    """Restores the backups in a folder."""
    from holdfast.backups.repository import open_repository
    from holdfast.backups.restore import Restorer

    return Restorer(open_repository(folder), settings.politeness.retries, say, watch, spare=settings.disk.min_free)


def retention_service(settings: Settings, db: Database) -> "RetentionService":
    """The service of retention, with the archive of this machine. Raises UsageError if the data folder is another user's, SettingsError."""
    from holdfast.archive.file_store import open_store
    from holdfast.archive.segment_store import open_segment_store
    from holdfast.retention.service import RetentionService

    def store_at(place: str | None) -> "FileStore":
        return open_store(place, settings.retention, settings.data)

    return RetentionService(
        db,
        settings.retention,
        store_at(settings.retention.store),
        store_at,
        archive_folder(settings),
        scratch_folder(settings),
        open_segment_store(settings.archive),
        settings.archive.dedup_age,
    )


def archive_service(settings: Settings, db: Database) -> "ArchiveService":
    """The service of archives. Raises UsageError if the data folder is another user's."""
    from holdfast.archive.file_store import open_store
    from holdfast.retention.restore import ArchiveService

    machine = settings.archive.machine or socket.gethostname()[:150]
    return ArchiveService(
        db,
        lambda place: open_store(place, settings.retention, settings.data),
        archive_folder(settings),
        scratch_folder(settings),
        machine if settings.archive.store is not None else None,
    )


def worker_config(
    settings: Settings, db: Database, name: str, job_id: int | None, parser_file: Path | None = None
) -> "WorkerConfig":
    """The configuration of a worker process; `parser_file` is a parser plugin in addition to those of the folder. Raises
    UsageError, SettingsError."""
    from holdfast.alerts import queries as alerts
    from holdfast.control.secret_box import SecretBox
    from holdfast.crawler.worker_context import WorkerConfig

    if settings.images.store is not None:
        image_store(settings)  # a file of credentials that cannot be read is found now, not with the first image
    return WorkerConfig(
        settings=settings,
        database=db,
        name=name,
        agent=user_agent(settings),
        rules=url_rules(settings),
        defaults=new_domains(settings),
        archive_folder=archive_folder(settings),
        archive=archive_reader(settings, db),
        unseal=SecretBox.of(settings).open,
        disks=disk_watch(settings),
        check_background=partial(alerts.check_background, webhook_url=settings.webhook.alerts_url),
        parser_file=parser_file,
        job_id=job_id,
    )


def seed_importer(settings: Settings, db: Database) -> "SeedImporter":
    """The importer of seeds into the standing job."""
    from holdfast.jobs.seed_import import SeedImporter

    return SeedImporter(db, url_rules(settings), new_domains(settings), registrable=settings.domains.registrable)


def secret_sealer(settings: Settings) -> "SecretSealer":
    """Encrypts the headers, cookies and credentials that users provide."""
    from holdfast.control.request_secrets import SecretSealer
    from holdfast.control.secret_box import SecretBox

    return SecretSealer(SecretBox.of(settings))


def background_services(settings: Settings, db: Database) -> "BackgroundServices":
    """The services of a background process. Before: the event loop runs."""
    from holdfast.background.process import BackgroundServices
    from holdfast.control.maintenance import Maintenance
    from holdfast.control.parse_phase import ParsePhase
    from holdfast.control.scheduler import Scheduler
    from holdfast.operations.service import OperationRunner
    from holdfast.parse import plugin_registry
    from holdfast.parse.plugin_pool import PluginPool
    from holdfast.webhooks.sender import Sender

    parsing = settings.parsing
    seconds = parsing.timeout.total_seconds()
    pool = PluginPool(
        plugin_registry.discover(parsing.folder),
        processes=parsing.processes,
        timeout=seconds,
        memory_limit=parsing.memory,
    )
    return BackgroundServices(
        Scheduler(
            url_rules(settings),
            new_domains(settings),
            registrable=settings.domains.registrable,
            parse_lost_after=2 * parsing.timeout + timedelta(seconds=10),
        ),
        ParsePhase(db, pool, archive_reader(settings, db)),
        Sender(db, settings, user_agent(settings)),
        parse_concurrency=parsing.processes,
        maintenance=replace(Maintenance.of(settings), storage=storage_service(settings, db)),
        retention=retention_service(settings, db.with_application_name("holdfast retention")),
        disks=disk_watch(settings),
        operator=OperationRunner(
            db.with_application_name("holdfast operation"), operation_handlers(settings, db).by_kind()
        ),
        search=search_service(settings, db.with_application_name("holdfast search")),
        uploader=segment_uploader(settings, db),
        backups=backup_service(settings, db),
    )


def page_service(settings: Settings, db: Database) -> "PageService":
    """The service of pages, which reads the archive."""
    from holdfast.pages.service import PageService
    from holdfast.pages.source import SourceReader

    sources = SourceReader(archive_reader(settings, db))
    return PageService(db, url_rules(settings), settings.domains.registrable, sources)


def document_service(settings: Settings, db: Database) -> "DocumentService":
    """The service of documents, which reads the archive."""
    from holdfast.documents.service import DocumentService
    from holdfast.parse.plugin_pool import PluginPool
    from holdfast.parse.plugin_registry import built_in

    def make_pool() -> PluginPool:
        parsing = settings.parsing
        return PluginPool(built_in(), processes=1, timeout=parsing.timeout.total_seconds(), memory_limit=parsing.memory)

    archive = archive_reader(settings, db)
    return DocumentService(db, make_pool, archive, url_rules(settings), settings.domains.registrable)


def search_service(settings: Settings, db: Database) -> "SearchService":
    """The search, with the index in the data folder of this machine. Raises UsageError if that is another user's."""
    from holdfast.search.service import SearchService

    private.check(settings.data)
    return SearchService(db, settings.data, registrable=settings.domains.registrable)


def operation_handlers(settings: Settings, db: Database) -> "OperationHandlers":
    """The handlers of operations, by kind."""
    from holdfast.control.verify import Verifier
    from holdfast.domains.service import DomainService
    from holdfast.frontier.service import FrontierService
    from holdfast.operations.handlers import OperationHandlers
    from holdfast.pages.service import PageService
    from holdfast.rebuild.service import CounterRebuilder
    from holdfast.replay.service import ReplayService
    from holdfast.segments.service import SegmentService
    from holdfast.tasks.service import TaskService

    registrable = settings.domains.registrable
    return OperationHandlers(
        domains=DomainService(db, registrable),
        tasks=TaskService(db, url_rules(settings), new_domains(settings), registrable=registrable),
        frontier=FrontierService(db, seed_importer(settings, db), rest=settings.cooldown.exhausted),
        pages=PageService(db, url_rules(settings), registrable),
        verifier=Verifier(
            db, settings.politeness.retries, images=image_store(settings), shared=settings.database_url is not None
        ),
        archive=archive_reader(settings, db),
        replays=ReplayService(db, registrable),
        counters=CounterRebuilder(db, registrable),
        retention=retention_service(settings, db),
        archives=archive_service(settings, db),
        segments=SegmentService(db),
    )
