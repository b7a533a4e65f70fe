"""Ground for trials in tests: a database that somebody else runs, and worker processes that are started one by one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast import wiring
from holdfast.control.crawls import CrawlDesk, Wish
from holdfast.control.seeds import Sower
from holdfast.control.torture.ground import Ground
from holdfast.control.torture.ordeal import JOB
from holdfast.control.torture.plan import SCOPE, Plan, crawl_settings
from holdfast.control.torture.process import PROGRAM, Victim
from holdfast.model.job import Job, Scope
from holdfast.settings import Settings
from holdfast.simweb.process import WebProcess
from holdfast.store import embedded
from holdfast.store.connect import Database

ROOT: Final = Path(__file__).parents[2]


class BorrowedGround(Ground):
    """A ground whose server is not its own, and is reached at any address: a proxy's, say."""

    def __init__(self, folder: Path, database: Database, url: str | None = None) -> None:
        super().__init__(folder)
        self._database = database
        self._url = url or database.url
        self.more: dict[str, str] = {}
        """Settings of its crawls beside those that all have."""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Folder and database are somebody else's to remove."""

    def server(self) -> embedded.Server:
        raise AssertionError("this server is not to be killed")

    def database(self) -> Database:
        return self._database

    def settings(self) -> dict[str, str]:
        return {"database_url": self._url, **self.more}


def begin(plan: Plan, ground: Ground, web: WebProcess) -> tuple[CrawlDesk, Job]:
    """Make the job that workers serve, as `holdfast crawl` does."""
    settings, database = Settings(), ground.database()
    desk = CrawlDesk(database, Sower(database, wiring.url_rules(settings), wiring.new_domains(settings)))
    options = {
        "scope": Scope(SCOPE),
        "delay": plan.delay,
        "concurrency": plan.concurrency,
        "max_depth": 1000,
        "allow_private": True,
    }
    return desk, desk.begin(Wish(tuple(web.urls), job=JOB, options=options)).job


def worker(
    plan: Plan,
    ground: Ground,
    *options: str,
    name: str = "victim",
    program: Sequence[str] = PROGRAM,
    settings: dict[str, str] | None = None,
) -> Victim:
    """One worker process that serves the job until it has nothing more to do."""
    return Victim(
        ["--data", str(ground.data), "worker", "--job", JOB, "--name", name, *options],
        settings=crawl_settings(plan) | ground.settings() | (settings or {}),
        folder=ground.folder,
        name=name,
        program=program,
    )


def mutant(name: str) -> Sequence[str]:
    """The program without one of its guards."""
    return ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.prove.mutant", name)
