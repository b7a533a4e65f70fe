"""Retention of a server, and its archives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.cli.remote import page_after
from holdfast.cli.remote.operations import finish
from holdfast.client import Client, endpoints
from holdfast.client.decoding import read
from holdfast.retention.records import ArchiveDetails, ArchiveEntry, RestoredArchive, RetentionResult, RetentionStatus
from holdfast.retention.restore import RestoreWatch
from holdfast.retention.service import Watch


@dataclass(frozen=True, slots=True)
class RemoteRetention:
    """The retention of a server, like `RetentionService`. The actor is the owner of the API key."""

    client: Client

    @property
    def place(self) -> str:
        """Where archives go."""
        return self.status().store

    def status(self) -> RetentionStatus:
        """Return what is kept, what was done, and what is archived."""
        return self.client.retention()

    def run(self, *, dry_run: bool, actor: str, watch: Watch) -> RetentionResult:  # noqa: ARG002 — see the class
        """Archive and delete what is old, in the background of the server; with `dry_run` count it."""
        asked = self.client.run_retention(dry_run=dry_run)
        result = finish(self.client, asked, lambda progress: watch(progress["step"], progress["rows"]))
        return read(RetentionResult, result)


@dataclass(frozen=True, slots=True)
class RemoteArchives:
    """The archives of a server, like `ArchiveService`."""

    client: Client

    def listing(
        self, *, kind: str | None = None, job: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[ArchiveEntry]:
        """Return archives, the newest first."""
        listing = endpoints.archives(kind=kind, job=job)
        return page_after(self.client, listing, None if before is None else (before,), limit).rows

    def show(self, archive_id: int) -> ArchiveDetails:
        """Return an archive with its files."""
        return self.client.archive(archive_id)

    def check(self, archive_id: int, watch: Callable[[int, int], None] = lambda *_: None) -> int:
        """Compare all files of an archive with the manifest, in the background of the server; return their number."""
        asked = self.client.check_archive(archive_id)
        result = finish(self.client, asked, lambda progress: watch(progress["files"], progress["of"]))
        return int(result["files"])

    def restore_all(
        self,
        *,
        ids: Sequence[int],
        kind: str | None,
        job: str | None,
        schema: str | None,
        keep: timedelta,
        watch: RestoreWatch,
    ) -> list[RestoredArchive]:
        """Restore archives, in the background of the server."""

        def show(progress: Any) -> None:
            watch(progress["archives"], progress["of"], progress["rows"])

        asked = self.client.restore_archives(ids, kind=kind, job=job, schema=schema, keep=keep)
        return read(list[RestoredArchive], finish(self.client, asked, show)["archives"])
