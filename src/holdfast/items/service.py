"""Parsers of crawls as people handle them: parsing what is due on this machine."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.crawler.extraction import Extraction, ExtractionCounts, parse_due
from holdfast.db import domains, items, jobs
from holdfast.db.connection import Database
from holdfast.db.items import Standing
from holdfast.model.domain_name import canonical_domain
from holdfast.parse.plugin_registry import discover
from holdfast.settings import Parsing


@dataclass(frozen=True, slots=True)
class DueLeft:
    """Pages that wait for a parser and cannot be parsed here."""

    elsewhere: int
    """In archives of other machines."""
    unknown: dict[str, int]
    """By the name of a parser that is not known here."""


@dataclass(frozen=True, slots=True)
class ExtractionService:
    """Parses pages of crawls that are due, in this process, from the archive of this machine."""

    database: Database
    archive: Path
    settings: Parsing
    parser_file: Path | None = None

    def parse_due(
        self,
        *,
        job_id: int | None = None,
        domain_id: int | None = None,
        watch: Callable[[ExtractionCounts], None] = lambda _: None,
    ) -> ExtractionCounts:
        """Parse all that is due here, of a job, a domain, or of everything. After: it is parsed, or its error is recorded."""

        async def whole() -> ExtractionCounts:
            extraction = Extraction(
                self.database,
                self.archive,
                self.settings,
                worker=None,
                job_id=job_id,
                domain_id=domain_id,
                parser_file=self.parser_file,
            )
            return await parse_due(extraction, watch)

        return asyncio.run(whole())

    def only(self, job: str | None, domain: str | None, *, registrable: bool) -> dict[str, int | None]:
        """A job and a domain by their names, as the other calls take them. Raises NotFound."""
        with self.database.session() as connection:
            job_id = None if job is None else jobs.find(connection, job)
            if domain is None:
                return {"job_id": job_id, "domain_id": None}
            return {
                "job_id": job_id,
                "domain_id": domains.id_of(connection, canonical_domain(domain, registrable=registrable)),
            }

    def make_due(self, job_id: int, parser: str) -> int:
        """Pages that a job crawled before it had this parser wait for it now; how many."""
        with self.database.session() as connection:
            return items.make_job_due(connection, job_id, parser)

    def standing(self, job_id: int) -> Standing:
        """How the parsing of a job's pages stands."""
        with self.database.session() as connection:
            return items.standing(connection, job_id)

    def due_here(self, *, job_id: int | None = None, domain_id: int | None = None) -> int:
        """How many pages could be parsed here now."""
        with self.database.session() as connection:
            due = items.count_due(connection, job_id=job_id, domain_id=domain_id)
        known, folders = self._here()
        return sum(count for (folder, parser), count in due.items() if folder in folders and parser in known)

    def left(self, *, job_id: int | None = None, domain_id: int | None = None) -> DueLeft:
        """What is due and cannot be parsed here."""
        with self.database.session() as connection:
            due = items.count_due(connection, job_id=job_id, domain_id=domain_id)
        known, folders = self._here()
        unknown: dict[str, int] = {}
        for (folder, parser), count in due.items():
            if folder in folders and parser not in known:
                unknown[parser] = unknown.get(parser, 0) + count
        return DueLeft(sum(count for (folder, _), count in due.items() if folder not in folders), unknown)

    def _here(self) -> tuple[set[str], set[str]]:
        known = set(discover(self.settings.folder, self.parser_file).sources)
        folders = {path.name for path in self.archive.iterdir()} if self.archive.is_dir() else set()
        return known, folders
