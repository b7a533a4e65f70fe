"""Pages of other tools: each response is archived, parsed, and written as a crawl would have written it.

The rules: bytes first, row second: a reference is committed after the archive is synced. What a response means is decided by the tables
that crawls use. Links are not followed: what is imported is what was fetched.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.archive.reader import ArchiveReader
from holdfast.archive.warc import Exchange
from holdfast.archive.writer import ArchiveWriter
from holdfast.backfill.queries import pages as queries
from holdfast.backfill.queries.pages import ImportedPage
from holdfast.backfill.records import BadRow, Capture, Counts, ImportReport
from holdfast.backfill.sources import warc
from holdfast.backfill.sources.warc import Skipped
from holdfast.control.input_files import Damaged
from holdfast.db.connection import Connection
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, HoldfastError, Refused
from holdfast.fetch.classify import outcome_of_status
from holdfast.fetch.response import PARSEABLE_TYPES
from holdfast.model.commit_batch import PageRow
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.fetch_types import ArchiveRef, FetchResult, ParsedPage
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.url import UrlRules, absolute_url, normalize, url_key
from holdfast.parse.page_parser import PageParser

CHUNK: Final = 200
"""Responses that one transaction writes."""
CHUNK_RECORDS: Final = 2_000
"""Records after which the position is written, whatever they were."""
CHUNK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of bodies in memory."""
WAIT: Final = 60.0
"""Seconds that a domain is waited for which a worker holds."""
RETRY: Final = 0.5
"""Seconds between two attempts to use such a domain."""
_MAX_DIGESTS: Final = 100_000
"""Bodies that revisits in the same file may refer to."""
_FIRST_STATUS, _NOT_MODIFIED, _LAST_STATUS = 200, 304, 599

BAD_URL: Final = "not a URL"
BAD_STATUS: Final = "not an HTTP status"
NO_ORIGINAL: Final = "revisit of an unknown record"


@dataclass(slots=True)
class _Page:
    """A response on its way to the store."""

    capture: Capture
    url: str
    key: bytes
    outcome: Outcome
    site: Site


@dataclass(slots=True)
class PageImporter:
    """Imports the responses of one source."""

    connection: Connection
    import_id: int
    job_id: int
    job: str
    run_id: int
    worker: str
    source: str
    archive: ArchiveWriter
    reader: ArchiveReader
    rules: UrlRules
    sites: SiteCache
    defaults: NewDomains
    versions: int
    links_per_page: int
    all_types: bool
    _digests: OrderedDict[str, ArchiveRef] = field(default_factory=OrderedDict)
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner)

    def run(self, captures: Iterator[tuple[dict[str, Any], Capture | BadRow]], report: ImportReport) -> Iterator[None]:
        """Import all responses; yields after each chunk. After: the import is finished, or `report.stopped` says why the rest of the
        source could not be read."""
        parser = PageParser(links_per_page=self.links_per_page)
        chunk: list[_Page] = []
        counts, size = Counts(), 0
        try:
            for position, item in _until_damaged(captures, report):
                judged = judge(item, self.rules, self.sites, all_types=self.all_types)
                if isinstance(judged, _Page) and judged.outcome is Outcome.OK and judged.capture.same_as is not None:
                    judged = self._with_body(judged, chunk)
                again = isinstance(judged, _Page) and any(judged.key == page.key for page in chunk)
                if again or len(chunk) >= CHUNK or size >= CHUNK_BYTES or counts.rows >= CHUNK_RECORDS:
                    self._write(chunk, counts, position, parser, report)
                    yield
                    chunk, counts, size = [], Counts(), 0
                counts.rows += 1
                if isinstance(judged, _Page):
                    chunk.append(judged)
                    size += len(judged.capture.body)
                else:
                    _count(judged, counts, report)
            self._write(chunk, counts, None, parser, report)
            yield
        finally:
            for process in parser.processes.values():
                self._runner.run(process.aclose())
            self._runner.close()

    def _with_body(self, page: _Page, chunk: list[_Page]) -> _Page | BadRow:
        """Give a revisit the body of its original: of this file, or as this job has stored it."""
        revisit = page.capture
        digest = revisit.same_as or ""
        for one in chunk:
            if digest and one.capture.digest == digest:
                _use(revisit, one.capture.body, one.capture.headers)
                return page
        ref = self._digests.get(digest) or self._stored(revisit.same_url or revisit.url)
        if ref is None:
            why = f"The record that {revisit.url[:200]!a} refers to is neither in this file nor in the job."
            return BadRow(revisit.number, NO_ORIGINAL, why)
        try:
            found = self.reader.read(ref)
        except HoldfastError as problem:
            return BadRow(revisit.number, NO_ORIGINAL, str(problem))
        if digest not in self._digests and digest and not warc.is_digest_of(digest, found.body):
            why = f"The stored page that {revisit.url[:200]!a} refers to has another content."
            return BadRow(revisit.number, NO_ORIGINAL, why)
        _use(revisit, found.body, found.headers)
        return page

    def _stored(self, url: str) -> ArchiveRef | None:
        try:
            normal = normalize(url, self.rules)
            return queries.stored(self.connection, self.job_id, self.sites.site_of(normal).domain, url_key(normal))
        except BadUrl:
            return None

    # To the store --------------------------------------------------------------------------------------------------------

    def _write(
        self,
        chunk: list[_Page],
        counts: Counts,
        position: dict[str, Any] | None,
        parser: PageParser,
        report: ImportReport,
    ) -> None:
        """Archive and write a chunk. `position`: where the next one begins; None: it was the last one."""
        parsed = self._runner.run(_parse_all(parser, chunk))
        refs = self._archive([page for page in chunk if page.outcome is Outcome.OK])
        rows = [self._row(page, one, refs.get(page.key)) for page, one in zip(chunk, parsed, strict=True)]
        deadline = time.monotonic() + WAIT
        while True:
            try:
                written = queries.write(
                    self.connection,
                    self.import_id,
                    rows,
                    counts,
                    position,
                    job_id=self.job_id,
                    run_id=self.run_id,
                    worker=self.worker,
                    source=self.source,
                    defaults=self.defaults,
                    versions=self.versions,
                )
                break
            except queries.Held as held:
                if time.monotonic() > deadline:
                    raise Refused(
                        f"{held.domain} is held by worker {held.worker}. Stop the workers, or wait until the domain is crawled; "
                        "the same command continues then."
                    ) from held
                time.sleep(RETRY)
        report.counts.add(written)
        for page in chunk:
            if page.capture.digest and page.key in refs:
                self._digests[page.capture.digest] = refs[page.key]
        while len(self._digests) > _MAX_DIGESTS:
            self._digests.popitem(last=False)

    def _archive(self, chunk: list[_Page]) -> dict[bytes, ArchiveRef]:
        facts = {
            "job": self.job,
            "depth": "0",
            "run": str(self.run_id),
            "outcome": str(Outcome.OK),
            "imported_from": self.source,
        }
        exchanges = [Exchange(page.url, _result(page), page.capture.fetched_at, facts) for page in chunk]
        try:
            refs = self.archive.append(exchanges)
            self.archive.sync()
        except OSError as problem:
            raise HoldfastError(
                f"The archive cannot be written: {problem.strerror}. The same command continues."
            ) from problem
        return {page.key: ref for page, ref in zip(chunk, refs, strict=True)}

    def _row(self, page: _Page, parsed: ParsedPage | None, ref: ArchiveRef | None) -> ImportedPage:
        capture, site = page.capture, page.site
        row = None if page.outcome is Outcome.REDIRECT else _page_row(page, parsed, ref)
        return ImportedPage(
            *(site.domain, site.parent, site.base_url, page.url, page.key),
            *(capture.fetched_at, page.outcome, capture.status),
            images_found=len(parsed.images) if parsed else 0,
            page=row,
        )


def judge(item: Capture | BadRow, rules: UrlRules, sites: SiteCache, *, all_types: bool) -> _Page | BadRow:
    """Return what a record is in the store, or why it is nothing there."""
    if isinstance(item, BadRow):
        return item
    if item.status == _NOT_MODIFIED:
        return Skipped(item.number, "not modified", "The response has no content.")
    if not _FIRST_STATUS <= item.status <= _LAST_STATUS:
        return BadRow(item.number, BAD_STATUS, f"{item.status} is not the status of a response.")
    try:
        url = normalize(item.url, rules)
        site = sites.site_of(url)
    except BadUrl as problem:
        return BadRow(item.number, BAD_URL, str(problem))
    if url == f"{site.base_url}/robots.txt":
        return Skipped(item.number, "robots.txt", "It is not a page.")
    outcome = outcome_of_status(item.status, location="location" in item.headers, conditional=False)
    if outcome is Outcome.OK and not all_types and _type_of(item) not in PARSEABLE_TYPES:
        outcome = Outcome.WRONG_TYPE
    return _Page(item, url, url_key(url), outcome, site)


def preview(
    captures: Iterator[tuple[dict[str, Any], Capture | BadRow]],
    rules: UrlRules,
    sites: SiteCache,
    report: ImportReport,
    *,
    all_types: bool,
) -> Iterator[set[str]]:
    """Count what would be imported; yields the domains so far, now and then and at the end."""
    domains: set[str] = set()
    for _, item in _until_damaged(captures, report):
        judged = judge(item, rules, sites, all_types=all_types)
        report.counts.rows += 1
        if isinstance(judged, _Page):
            domains.add(judged.site.domain)
            report.counts.pages += TREATMENT[judged.outcome].page
            report.counts.errors += TREATMENT[judged.outcome].error
        else:
            _count(judged, report.counts, report)
        if report.counts.rows % CHUNK_RECORDS == 0:
            yield domains
    yield domains


def _until_damaged(
    captures: Iterator[tuple[dict[str, Any], Capture | BadRow]], report: ImportReport
) -> Iterator[tuple[dict[str, Any], Capture | BadRow]]:
    """Yield what can be read; the report has the reason of an early end."""
    number = 0
    try:
        for position, item in captures:
            number = item.number
            yield position, item
    except Damaged as problem:
        report.stopped = f"Reading stopped after record {number}: {problem}."


def _count(bad: BadRow, counts: Counts, report: ImportReport) -> None:
    counts.reasons[bad.reason] += 1
    if isinstance(bad, Skipped):
        counts.skipped += 1
    else:
        counts.bad += 1
        report.refuse(bad)


def _use(revisit: Capture, body: bytes, headers: Mapping[str, str]) -> None:
    revisit.body = body
    if "content-type" not in revisit.headers and "content-type" in headers:
        kind = headers["content-type"]
        revisit.headers["content-type"] = kind
        revisit.head = revisit.head.rstrip(b"\r\n") + f"\r\nContent-Type: {kind}\r\n\r\n".encode("latin-1", "replace")


def _type_of(capture: Capture) -> str:
    return capture.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _parse_all(parser: PageParser, chunk: list[_Page]) -> list[ParsedPage | None]:
    async def parse(page: _Page) -> ParsedPage | None:
        if page.outcome is not Outcome.OK or _type_of(page.capture) not in PARSEABLE_TYPES:
            return None
        headers = page.capture.headers
        return await parser.parse(
            page.capture.body, content_type=headers.get("content-type"), x_robots_tag=headers.get("x-robots-tag")
        )

    return await asyncio.gather(*map(parse, chunk))


def _result(page: _Page) -> FetchResult:
    capture = page.capture
    return FetchResult(
        page.url,
        page.outcome,
        status=capture.status,
        headers=capture.headers,
        body=capture.body,
        cut=capture.cut,
        response_head=capture.head,
    )


def _page_row(page: _Page, parsed: ParsedPage | None, ref: ArchiveRef | None) -> PageRow:
    headers = page.capture.headers
    row = PageRow(
        page.capture.status,
        content_type=headers.get("content-type", "")[:255] or None,
        content_length=len(page.capture.body) if page.outcome is Outcome.OK else 0,
        etag=headers.get("etag"),
        last_modified=headers.get("last-modified"),
        problem=None if TREATMENT[page.outcome].page else str(page.outcome),
        archive=ref,
    )
    if parsed is not None:
        row.content_hash, row.charset, row.problem = parsed.content_hash, parsed.charset[:50], parsed.problem
        row.links_count, row.images_count = parsed.links_found, len(parsed.images)
        row.noindex, row.nofollow = parsed.noindex, parsed.nofollow
        row.content_language = (parsed.content_language or "").lower()[:35] or None
        if parsed.canonical:
            row.canonical = absolute_url(page.url, parsed.base, parsed.canonical)
        if not parsed.noindex:
            row.title, row.description = parsed.title, parsed.description
    return row
