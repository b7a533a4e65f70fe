"""Pages: list and search, all facts of one, its versions and their differences, its archived source, purge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from holdfast.archive.reader import ArchiveReader
from holdfast.control.listings import read_page
from holdfast.db import archives, audit, domains, jobs
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import ArchiveUnavailable, HoldfastError, NotFound, SegmentMissing, UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import PAGES
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DEFAULT_RULES, UrlRules, with_http
from holdfast.pages import queries
from holdfast.pages.queries import Purge
from holdfast.pages.records import (
    ArchivedPage,
    CrawledPage,
    FactChange,
    PageCount,
    PageDiff,
    PageFacts,
    PageFilter,
    PageVersion,
    StoredVersion,
)
from holdfast.pages.source import SourceReader, archive_ref
from holdfast.pages.text_diff import MAX_TEXT, unified_diff
from holdfast.pages.texts import Texts, decompress, worker_of

KIND: Final = "pages"
MAX_VERSIONS: Final = 1_000
"""Versions of one page that are read, the newest."""
_NOT_IN_TEXT: Final = (
    "The texts of both versions are the same; they differ in markup, in the title, or in parts that cannot be read."
)
_FACTS: Final = ("status", "outcome", "title", "content_type", "charset", "content_length")


@dataclass(frozen=True, slots=True)
class PageService:
    """The pages of one database."""

    database: Database
    rules: UrlRules = DEFAULT_RULES
    registrable: bool = False
    sources: SourceReader = field(default_factory=lambda: SourceReader(ArchiveReader(None)))
    """Reads archived pages of this machine."""

    def page(
        self, where: PageFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[CrawledPage]:
        """Return one page of the list of last responses; `after` is the `next` of the page before. Raises UsageError, NotFound.

        A search by title or URL prefix looks at 10,000 pages at most, since no index has them (ADR 0064): `scanned` of the result says so.
        """
        filters = (where or PageFilter()).given()
        if "url_prefix" in filters:
            filters |= self._prefix_filters(str(filters["url_prefix"]), filters.get("domain"))
        return read_page(self.database, queries.PAGES, filters, order, after, limit, registrable=self.registrable)

    def _prefix_filters(self, prefix: str, domain: object) -> dict[str, object]:
        """Return the filters of a URL prefix: the domain of its host, and the beginnings of URLs as they are stored."""
        as_stored = replace(
            self.rules, tracking_parameters=(), session_parameters=(), strip_trailing_slash=False, sort_query=False
        )
        seed = make_seed(prefix, rules=as_stored, registrable=self.registrable)
        if domain is not None and self._canonical(str(domain)) != seed.domain:
            raise UsageError(
                f"No URL of {domain} begins with {seed.url}, which is of {seed.domain}: leave one of them out."
            )
        beginnings = [seed.url, with_http(seed.url)] if seed.guessed else [seed.url]
        return {"domain": seed.domain, "url_prefix": beginnings}

    def facts(self, url: str, job: str | int | None = None) -> list[PageFacts]:
        """Return what each job, or one, knows of a URL, the newest response first. Raises NotFound if none has discovered it."""
        seed = make_seed(url, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            found = queries.facts(connection, domains.id_of(connection, seed.domain), seed.url_key, job_id)
        if not found:
            raise NotFound(f"{seed.url} is not in the frontier; `holdfast explain {seed.url}` may know why.")
        return found

    def versions(self, url: str, job: str | int | None = None) -> list[PageVersion]:
        """Return the versions of a page in a job, the newest first: the last answer, which is `current`, and those that it replaced.
        Without a job: in the one that answered last. Raises NotFound."""
        return [stored.version for stored in self._versions(url, job)[1]]

    def diff(
        self, url: str, job: str | int | None = None, older: int | None = None, newer: int | None = None
    ) -> PageDiff:
        """Return the differences between two versions of a page, by their numbers: facts, and the unified diff of their texts.
        `newer` None: the current one; `older` None: the one before `newer`. Raises NotFound, UsageError."""
        address, stored = self._versions(url, job)
        numbers = [one.version.number for one in stored]
        if len(numbers) < 2:
            raise NotFound(f"{address} has one version; another is stored when a crawl finds its content changed.")
        newest = numbers[0] if newer is None else newer
        oldest = next((number for number in numbers if number < newest), newest - 1) if older is None else older
        before, after = _numbered(address, stored, oldest), _numbered(address, stored, newest)
        if oldest >= newest:
            raise UsageError(f"The older version must have the lower number; {oldest} is not before {newest}.")
        facts = [(name, getattr(before.version, name), getattr(after.version, name)) for name in _FACTS]
        text, note = self._text_diff(before, after)
        changes = [FactChange(name, old, new) for name, old, new in facts if old != new]
        return PageDiff(address, before.version, after.version, changes, text, note)

    def _versions(self, url: str, job: str | int | None) -> tuple[str, list[StoredVersion]]:
        """The URL in its canonical form, and its versions. Raises NotFound."""
        seed = make_seed(url, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            domain_id = domains.id_of(connection, seed.domain)
            found = queries.versions(connection, domain_id, seed.url_key, job_id, limit=MAX_VERSIONS)
        if not found:
            raise NotFound(f"{seed.url} has no answer yet; `holdfast explain {seed.url}` may know why.")
        return seed.url, found

    def _text_diff(self, older: StoredVersion, newer: StoredVersion) -> tuple[str | None, str | None]:
        """The diff of the texts of two versions; None: there is none. And a note."""
        with Texts(self.sources.archive) as texts:
            try:
                old, new = (_read_text(texts, stored) for stored in (older, newer))
            except _NoText as problem:
                return None, str(problem)
        names = (_title(stored.version) for stored in (older, newer))
        text = unified_diff(old, new, *names)
        if max(len(old), len(new)) > MAX_TEXT:
            return text, f"Only the first {MAX_TEXT:,} characters are compared."
        same = text or older.version.content_hash == newer.version.content_hash
        return text, None if same else _NOT_IN_TEXT

    def source(self, url: str, job: str | int | None = None, *, version: int | None = None) -> ArchivedPage:
        """Return the archived response for a URL, with its text and links: the newest one, or that of a version, by its number in
        `versions`. Raises NotFound if no job has discovered the URL, or it has no such version.

        Where the bytes are not on this machine, or there are none, `missing` of the result says why.
        """
        if version is not None:
            address, versions = self._versions(url, job)
            stored = _numbered(address, versions, version)
            job = stored.version.job
            if not stored.version.current:
                page = replace(
                    self.facts(url, job)[0],
                    crawled_at=stored.version.crawled_at,
                    outcome=stored.version.outcome,
                    content_type=stored.version.content_type,
                    payload_digest=stored.version.payload_digest,
                )
                return self._read(page, _archive_ref(stored))
        found = self.facts(url, job)
        page = next((one for one in found if one.archive_segment is not None), found[0])
        text = None
        if page.has_text:
            with self.database.session() as connection:
                domain_id = domains.id_of(connection, page.domain)
                text = queries.stored_text(connection, domain_id, bytes.fromhex(page.url_key), page.job)
        return self._read(page, archive_ref(page), text)

    def _read(self, page: PageFacts, ref: ArchiveRef | None, text: bytes | None = None) -> ArchivedPage:
        """Read a source; where retention has archived its segment, say which archive brings it back."""
        found = self.sources.read(page, ref, text)
        if ref is None or found.missing is None:
            return found
        with self.database.session() as connection:
            archived = archives.archived_segments(connection, [ref.segment]).get(ref.segment)
        if archived is None or not archived.deleted:
            return found
        sentence = (
            f"Its bytes are in {ref.segment}, which retention has archived: "
            f"`holdfast archive restore {archived.archive_id}` brings it back."
        )
        return replace(found, missing=sentence, text_missing=None if found.text is not None else sentence)

    def check_purge(
        self,
        job: str | int | None = None,
        domain: str | None = None,
        before: datetime | None = None,
        *,
        everything: bool = False,
    ) -> dict[str, Any]:
        """Return the arguments of `purge` as JSON: a job by its id, a domain by its name, and always a time, so that the same order
        means the same pages when it is executed later, or twice. Raises NotFound, UsageError."""
        _check_time(before)
        if not everything and job is None and domain is None and before is None:
            raise UsageError("Name a job, a domain or a time (`before`); `?confirm=all` forgets all pages of all jobs.")
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            name = None if domain is None else self._canonical(domain)
            if name is not None:
                domains.id_of(connection, name)
            now = jobs.now(connection)
        return {"job": job_id, "domain": name, "before": min(before or now, now).isoformat()}

    def count_purge(
        self, job: str | int | None = None, domain: str | None = None, before: datetime | None = None
    ) -> PageCount:
        """Count the pages that `purge` would delete: exactly up to 100 000. Raises NotFound, UsageError."""
        _check_time(before)
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            domain_id = None if domain is None else domains.id_of(connection, self._canonical(domain))
            until = before or jobs.now(connection)
            return queries.count_purge(connection, job_id=job_id, domain_id=domain_id, before=until)

    def purge(
        self,
        *,
        actor: str,
        job: str | int | None = None,
        domain: str | None = None,
        before: datetime | None = None,
        watch: Callable[[int], None] = lambda _: None,
    ) -> Purge:
        """Purge pages and their texts: of a job, of a domain, fetched before a time, or all that there are now.

        After: they are deleted, except those that their domain's holder is about to fetch again; their URLs stay done; log, counters
        and archive are unchanged. `watch` is called after each step with the number of pages so far; if it is killed in between,
        another call deletes the rest.
        """
        _check_time(before)
        with self.database.session() as connection:
            with connection.transaction():
                job_id = None if job is None else jobs.id_of(connection, job)
                domain_id = None if domain is None else domains.id_of(connection, self._canonical(domain))
                order = queries.order_purge(connection, job_id=job_id, domain_id=domain_id, before=before)
                details = {"job": job_id, "domain": domain, "before": order.before.isoformat()}
                audit.write(connection, actor=actor, action="purge", kind=KIND, object_id=order.id, details=details)
            while queries.purge(connection, order):
                watch(order.forgotten)
        watch(order.forgotten)
        return order

    def _canonical(self, name: str) -> str:
        return canonical_domain(name, registrable=self.registrable)


def _numbered(address: str, versions: Sequence[StoredVersion], number: int) -> StoredVersion:
    """Return the version with this number. Raises NotFound."""
    found = next((one for one in versions if one.version.number == number), None)
    if found is None:
        known = ", ".join(str(one.version.number) for one in reversed(versions))
        raise NotFound(f"{address} has no version {number}; it has {known}.")
    return found


def _archive_ref(stored: StoredVersion) -> ArchiveRef | None:
    """Return the archive reference of a version; None: it has none."""
    if stored.archive_segment is None:
        return None
    digest = bytes.fromhex(stored.version.payload_digest or "")
    return ArchiveRef(stored.archive_segment, stored.archive_offset or 0, stored.archive_length or 0, digest)


class _NoText(Exception):
    """The text of a version is not available; the message says why."""


def _read_text(texts: Texts, stored: StoredVersion) -> str:
    """Return the text of a version; an answer that is not a page has an empty one. Raises _NoText."""
    version, ref = stored.version, _archive_ref(stored)
    which = f"The text of version {version.number}"
    if version.outcome not in PAGES:
        return ""
    if stored.noindex:
        raise _NoText(f"{which} is not kept: the page asked not to be indexed (noindex).")
    if ref is None:
        if stored.body is None:
            raise _NoText(f"{which} is nowhere: its job was crawled with `--no-archive`.")
        return decompress(stored.body)
    try:
        return texts.read_archived(ref, version.content_type)  # all visible text, as the hash of the content says
    except (HoldfastError, OSError) as problem:
        if stored.body is not None:
            return decompress(stored.body)
        raise _NoText(f"{which} {_why_unreadable(ref, problem)}") from None


def _why_unreadable(ref: ArchiveRef, problem: Exception) -> str:
    if isinstance(problem, ArchiveUnavailable):
        return f"cannot be read now. {problem}"
    if not isinstance(problem, SegmentMissing):
        return "is in an archive file that cannot be read: `holdfast verify` names it."
    if problem.machine is not None:
        return f"cannot be read here. {problem}"
    return (
        f"is in an archive file of worker {worker_of(ref.segment)} that is not on this machine: compare there, or copy its "
        "folder into the archive folder here."
    )


def _title(version: PageVersion) -> str:
    return f"version {version.number}, {version.crawled_at:%Y-%m-%d %H:%M:%S} UTC"


def _check_time(before: datetime | None) -> None:
    if before is not None and before.tzinfo is None:
        raise UsageError("A time is written with its time zone.")
