"""A sandbox with an external database, and worker processes that are started one by one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast import factories
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.jobs.crawls import CrawlRequest, CrawlService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.model.job import Job, Scope
from holdfast.settings import Settings
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.torture.fault_run import JOB
from holdfast.testing.torture.process import PROGRAM, CrawlProcess
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import SCOPE, Scenario, crawl_settings

ROOT: Final = Path(__file__).parents[2]


class ExternalSandbox(Sandbox):
    """A sandbox with an external database server, reached at any address, for example that of a proxy."""

    def __init__(self, folder: Path, database: Database, url: str | None = None) -> None:
        super().__init__(folder)
        self._database = database
        self._url = url or database.url
        self.more: dict[str, str] = {}
        """Additional settings of its crawls."""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep folder and database: the caller removes them."""

    def server(self) -> embedded.Server:
        raise AssertionError("the external server must not be killed")

    def database(self) -> Database:
        return self._database

    def settings(self) -> dict[str, str]:
        return {"database_url": self._url, **self.more}


def begin(scenario: Scenario, sandbox: Sandbox, web: WebProcess) -> tuple[CrawlService, Job]:
    """Make the job that workers serve, as `holdfast crawl` does."""
    settings, database = Settings(), sandbox.database()
    desk = CrawlService(
        database, SeedImporter(database, factories.url_rules(settings), factories.new_domains(settings))
    )
    options = {
        "scope": Scope(SCOPE),
        "delay": scenario.delay,
        "concurrency": scenario.concurrency,
        "max_depth": 1000,
        "allow_private": True,
        "images": scenario.has_images,
    }
    return desk, desk.begin(CrawlRequest(tuple(web.urls), job=JOB, options=options)).job


def worker(
    scenario: Scenario,
    sandbox: Sandbox,
    *options: str,
    name: str = "victim",
    program: Sequence[str] = PROGRAM,
    settings: dict[str, str] | None = None,
) -> CrawlProcess:
    """One worker process that serves the job until it has nothing more to do."""
    return CrawlProcess(
        ["--data", str(sandbox.data), "worker", "--job", JOB, "--name", name, *options],
        settings=crawl_settings(scenario) | sandbox.settings() | (settings or {}),
        folder=sandbox.folder,
        name=name,
        program=program,
    )


def mutant(name: str) -> Sequence[str]:
    """The program without one of its guards."""
    return ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.prove.mutant", name)
