"""Documents: the main content of pages, from the database, or made from the archive when asked for."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

from holdfast.archive.reader import ArchiveReader, StoredResponse
from holdfast.db import domains, jobs
from holdfast.db.connection import Connection, Database
from holdfast.documents import queries
from holdfast.documents.content import compose, read_content
from holdfast.documents.queries import DocumentBody
from holdfast.documents.records import Document
from holdfast.errors import HoldfastError, NotFound, SegmentMissing
from holdfast.model.content_type import BodyKind, kind_of
from holdfast.model.job import MARKDOWN
from holdfast.model.outcome import PAGES
from holdfast.model.parse_result import Document as ParserInput
from holdfast.model.parse_result import ParseFailed
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DEFAULT_RULES, UrlRules, url_key
from holdfast.pages import queries as pages
from holdfast.pages.records import PageFacts
from holdfast.pages.source import archive_ref
from holdfast.pages.texts import worker_of
from holdfast.parse.plugin_pool import PluginPool

_AT_ONCE: Final = 2
"""Pages of the archive that are extracted at the same time in one process."""

_NO_RESPONSE: Final = {
    "waiting": "it waits to be crawled",
    "done": "it is no page, but an image, a sitemap or a link that was only checked",
}
"""Why a URL without a response as a page has no content, by its state."""


@dataclass(frozen=True, slots=True)
class DocumentService:
    """The documents of one database. It may be shared by threads."""

    database: Database
    make_pool: Callable[[], PluginPool]
    """Makes a pool of parser processes, in which pages of the archive are extracted."""
    archive: ArchiveReader = field(default_factory=lambda: ArchiveReader(None))
    rules: UrlRules = DEFAULT_RULES
    registrable: bool = False
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE), repr=False)

    def show(self, url: str, job: str | int | None = None) -> Document:
        """Return the document of a page: as it is stored, else made from the archive. Raises NotFound with the reason if it has none."""
        seed = make_seed(url, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            try:
                domain_id = domains.id_of(connection, seed.domain)
            except NotFound:
                raise _unknown(seed.url, job) from None
            found = queries.find(connection, domain_id, seed.url_key, job_id)
            if found is not None:
                return stored_document(found)
            known = pages.facts(connection, domain_id, seed.url_key, job_id)
            if not known:
                raise self._unknown_on(connection, domain_id, seed.url, job, job_id)
            page = known[0]
            document_id = _id(domain_id, jobs.id_of(connection, page.job), seed.url_key)
        return self._from_archive(page, document_id)

    @staticmethod
    def _unknown_on(
        connection: Connection, domain_id: int, url: str, job: str | int | None, job_id: int | None
    ) -> NotFound:
        """The error for a URL that is not known on its domain: with the other scheme, if that is known."""
        scheme, _, rest = url.partition("://")
        other = f"{'http' if scheme == 'https' else 'https'}://{rest}"
        if not pages.facts(connection, domain_id, url_key(other), job_id):
            return _unknown(url, job)
        return NotFound(f"{url} was not crawled, but {other} is known: `holdfast show {other}`.")

    def export(self, connection: Connection, *, job_id: int | None, domain_id: int | None) -> Iterator[Document]:
        """Read all stored documents of a job or a domain."""
        return map(stored_document, queries.export(connection, job_id=job_id, domain_id=domain_id))

    def _from_archive(self, page: PageFacts, document_id: str) -> Document:
        stored = self._archived(page)
        given = ParserInput(
            stored.url, stored.body, stored.headers.get("content-type"), stored.headers, stored.fetched_at
        )
        with self._turns, asyncio.Runner() as runner:
            done = runner.run(self._parse(given))
        if isinstance(done, ParseFailed):
            raise NotFound(f"The content of {page.url} cannot be read: {done.reason}.")
        if not done:
            raise NotFound(f"{page.url} has no content: {_why_empty(page, stored)}.")
        return _extracted(document_id, page, stored.fetched_at, done)

    def _archived(self, page: PageFacts) -> StoredResponse:
        if page.outcome not in PAGES:
            said = page.problem or page.reason or _NO_RESPONSE.get(page.state, page.state)
            raise NotFound(f"{page.url} has no content: {said}. `holdfast explain {page.url}` says more.")
        if page.noindex:
            raise NotFound(f"{page.url} asked not to be indexed (noindex), so its content is not shown.")
        if (ref := archive_ref(page)) is None:
            raise NotFound(f"{page.url} was crawled without an archive (`--no-archive`), so its content is gone.")
        try:
            return self.archive.read(ref)
        except SegmentMissing as problem:
            if problem.machine is not None:
                raise NotFound(f"The content of {page.url} cannot be read here. {problem}") from None
            raise NotFound(
                f"{page.url} is archived on the machine of worker {worker_of(ref.segment)}: ask there."
            ) from None
        except OSError as problem:
            raise HoldfastError(f"The archive cannot be read: {problem.strerror}.") from problem

    async def _parse(self, given: ParserInput) -> dict[str, Any] | ParseFailed:
        pool = self.make_pool()
        try:
            done = await pool.parse(MARKDOWN, given)
        finally:
            await pool.aclose()
        return done if isinstance(done, ParseFailed) else done.extracted.data


def stored_document(row: DocumentBody) -> Document:
    """The document of a row."""
    content = read_content(row.body, row.removed)
    return Document(
        id=_id(row.domain_id, row.job_id, row.url_key),
        url=row.url,
        domain=row.domain,
        job=row.job,
        title=row.title,
        author=row.author,
        site_name=row.site_name,
        language=row.language,
        kind=row.kind,
        published=row.published,
        fetched_at=row.fetched_at,
        words=len(content.text.split()) if row.removed else row.words,
        markdown=content.markdown,
        text=content.text,
        headings=content.headings,
        extractor=row.extractor,
        counted_pages=row.counted_pages,
        stored=True,
    )


def _id(domain_id: int, job_id: int, url_key: bytes) -> str:
    """The id of a document, whether it is stored or not."""
    return f"{domain_id}-{job_id}-{url_key.hex()}"


def _unknown(url: str, job: str | int | None) -> NotFound:
    place = "" if job is None else f" by job {job}"
    return NotFound(
        f"{url} was not crawled{place}, and no page that was links to it. `holdfast crawl {url}` crawls it."
    )


def _why_empty(page: PageFacts, stored: StoredResponse) -> str:
    """Why the parser found nothing on an archived page."""
    kind = kind_of(stored.body, stored.headers.get("content-type"))
    if kind is not BodyKind.HTML:
        return f"it is {page.content_type or 'of no known type'}, and content is taken from HTML"
    return "its HTML has no text" if stored.body else "its body is empty"


def _extracted(document_id: str, page: PageFacts, fetched_at: datetime, found: dict[str, Any]) -> Document:
    content = compose(found)
    published = found.get("published")
    return Document(
        id=document_id,
        url=page.url,
        domain=page.domain,
        job=page.job,
        title=found.get("title"),
        author=found.get("author"),
        site_name=found.get("site_name"),
        language=found.get("language"),
        kind=found["kind"],
        published=date.fromisoformat(published) if published else None,
        fetched_at=fetched_at,
        words=found["words"],
        markdown=content.markdown,
        text=content.text,
        headings=content.headings,
        extractor=found["extractor"],
        counted_pages=None,
        stored=False,
    )
