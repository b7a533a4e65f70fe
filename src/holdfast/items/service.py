"""Items: list; and the parsing of due pages on this machine."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.archive.reader import ArchiveReader
from holdfast.control.listings import read_page
from holdfast.crawler.extraction import Extraction, ExtractionCounts, machine_key, parse_due
from holdfast.db import domains, jobs
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.errors import UsageError
from holdfast.items import queries
from holdfast.items.records import Item, ItemFilter, ParseCounts
from holdfast.model.domain_name import canonical_domain
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DEFAULT_RULES, UrlRules
from holdfast.parse.plugin_registry import discover
from holdfast.settings import Parsing

PAGE_BYTES: Final = 4 << 20
"""Bytes of items after which a page of the list ends."""
_READ_AT_ONCE: Final = 50
"""Items that are read before their length is checked."""


@dataclass(frozen=True, slots=True)
class ItemService:
    """The items of one database."""

    database: Database
    registrable: bool = False
    rules: UrlRules = DEFAULT_RULES
    """How URLs in filters are normalized."""

    def page(
        self, where: ItemFilter | None = None, *, order: str = "key", after: Key | None = None, limit: int = 100
    ) -> Page[Item]:
        """Return one page of the list; one of long items is short: it ends after `PAGE_BYTES`. Raises UsageError, NotFound."""
        check_page_size(limit)
        filters = self._filters(where or ItemFilter())
        items: list[Item] = []
        length = 0
        while True:
            asked = min(_READ_AT_ONCE, limit - len(items))
            page = read_page(self.database, queries.ITEMS, filters, order, after, asked, registrable=self.registrable)
            items += page.rows
            length += sum(len(json.dumps(item.data)) for item in page.rows)
            after = page.next
            if after is None or len(items) >= limit or len(page.rows) < asked or length >= PAGE_BYTES:
                return Page(items, after)

    def _filters(self, where: ItemFilter) -> dict[str, object]:
        """Return the filters with the domain and the key of a URL instead of the URL."""
        filters = where.given()
        if "url" in filters:
            seed = make_seed(str(filters.pop("url")), rules=self.rules, registrable=self.registrable)
            domain = filters.get("domain", seed.domain)
            if canonical_domain(str(domain), registrable=self.registrable) != seed.domain:
                raise UsageError(f"{seed.url} is a page of {seed.domain}, not of {domain}.")
            filters |= {"domain": seed.domain, "url_key": seed.url_key}
        return filters


@dataclass(frozen=True, slots=True)
class NotParsedHere:
    """Due pages that cannot be parsed on this machine."""

    elsewhere: int
    """In archives of other machines."""
    unknown: dict[str, int]
    """By the name of a parser that is not known here."""


@dataclass(frozen=True, slots=True)
class ExtractionService:
    """Parses due pages of crawls in this process, from the archive that this machine can read."""

    database: Database
    archive: ArchiveReader
    settings: Parsing
    parser_file: Path | None = None

    def parse_due(
        self,
        *,
        job_id: int | None = None,
        domain_id: int | None = None,
        watch: Callable[[ExtractionCounts], None] = lambda _: None,
    ) -> ExtractionCounts:
        """Parse all due pages of a job, of a domain, or all. After: each is parsed, or its error is recorded."""

        async def run() -> ExtractionCounts:
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

        return asyncio.run(run())

    def only(self, job: str | None, domain: str | None, *, registrable: bool) -> dict[str, int | None]:
        """Return the ids of a job and a domain, as the other methods take them. Raises NotFound."""
        with self.database.session() as connection:
            job_id = None if job is None else jobs.find(connection, job)
            if domain is None:
                return {"job_id": job_id, "domain_id": None}
            return {
                "job_id": job_id,
                "domain_id": domains.id_of(connection, canonical_domain(domain, registrable=registrable)),
            }

    def make_due(self, job_id: int, parser: str) -> int:
        """Make all pages due for a parser that a job crawled before it had this parser. Returns how many."""
        with self.database.session() as connection:
            return queries.make_job_due(connection, job_id, parser)

    def parse_counts(self, job_id: int) -> ParseCounts:
        """Return how many pages of a job are due, failed and parsed, and their items."""
        with self.database.session() as connection:
            return queries.parse_counts(connection, job_id)

    def due_here(self, *, job_id: int | None = None, domain_id: int | None = None) -> int:
        """Return how many pages could be parsed here now."""
        due, known = self._due(job_id, domain_id)
        return sum(one.pages for one in due if one.readable and one.parser in known)

    def not_parsed_here(self, *, job_id: int | None = None, domain_id: int | None = None) -> NotParsedHere:
        """Return the due pages that cannot be parsed here."""
        due, known = self._due(job_id, domain_id)
        unknown: dict[str, int] = {}
        for one in due:
            if one.readable and one.parser not in known:
                unknown[one.parser] = unknown.get(one.parser, 0) + one.pages
        return NotParsedHere(sum(one.pages for one in due if not one.readable), unknown)

    def _due(self, job_id: int | None, domain_id: int | None) -> tuple[list[queries.DueCount], set[str]]:
        """The due pages, and the parsers that are known here, if any page is due: to look for them reads the metadata of all packages."""
        machine, folder = machine_key(self.archive), self.archive.folder
        here = [path.name for path in folder.iterdir()] if folder is not None and folder.is_dir() else []
        with self.database.session() as connection:
            due = queries.count_due(
                connection,
                job_id=job_id,
                domain_id=domain_id,
                machine=machine,
                folders=None if machine is not None else here,
            )
        return due, set(discover(self.settings.folder, self.parser_file).sources) if due else set()
