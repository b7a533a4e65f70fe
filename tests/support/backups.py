"""A store with a bundled server of its own, as backups need one, and `holdfast` on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from holdfast import factories
from holdfast.backups.repository import Repository
from holdfast.backups.restore import Restorer
from holdfast.backups.service import BackupService
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.settings import Settings
from tests.support.cli import Answer
from tests.support.crawls import FAST, Program, environment
from tests.support.factories import Store
from tests.support.invariants import violations

QUICK = {"fsync": "off", "full_page_writes": "on", "shared_buffers": "64MB"}


@dataclass
class Bundled:
    """A data folder with a bundled server."""

    data: Path
    groups: dict[str, dict[str, object]]

    @property
    def settings(self) -> Settings:
        return Settings.model_validate({"data": self.data, **self.groups})

    @property
    def server(self) -> embedded.Server:
        return embedded.ensure_running(self.data, extra_settings=QUICK)

    @property
    def database(self) -> Database:
        return Database(self.server.url())

    @property
    def service(self) -> BackupService:
        return factories.backup_service(self.settings, self.database)

    @property
    def repository(self) -> Repository:
        return self.service.repository()

    @property
    def restorer(self) -> Restorer:
        return Restorer(self.repository, 3, lambda _: None, extra=QUICK)

    @contextmanager
    def connection(self, *, admin: bool = False) -> Iterator[psycopg.Connection]:
        server = self.server
        with psycopg.connect(server.admin_url("holdfast") if admin else server.url(), autocommit=True) as connection:
            yield connection

    def value(self, query: str, *parameters: object) -> Any:
        with self.connection() as connection:
            row = connection.execute(query.encode(), parameters).fetchone()
            return row[0] if row else None

    @contextmanager
    def store(self) -> Iterator[Store]:
        with self.connection() as connection:
            yield Store(connection)

    def violations(self) -> dict[str, Any]:
        with self.connection() as connection:
            return violations(connection)

    # as a program

    def start(self, *arguments: str, **variables: str) -> Program:
        groups = {name: dict(values) for name, values in FAST.items()} | self.groups
        environ = environment(Database("postgresql://nowhere/"), groups) | variables
        del environ["HOLDFAST_DATABASE_URL"]
        return Program(["--data", str(self.data), *arguments], environ, self.data.parent)

    def run(self, *arguments: str, **variables: str) -> Answer:
        with self.start(*arguments, **variables) as program:
            return program.end()


def bundled(data: Path, **groups: dict[str, object]) -> Bundled:
    """A store in a data folder, with the schema."""
    made = Bundled(data, groups)
    migrate.upgrade(made.database)
    return made


def mtime(path: Path, seconds: float) -> None:
    """Let a file be of another time."""
    os.utime(path, (seconds, seconds))
