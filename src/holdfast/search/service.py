"""Search over documents: keeps the index of this machine up to date, and answers queries from it.

The rules: the index is derived. It is read in the order in which transactions changed documents, up to the oldest one that is still open,
so none is missed; what was read twice replaces itself. An index that cannot be read, that is of another store, generation, server or
version, or that was not updated for longer than deletions are kept, is built anew.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

from holdfast.db import jobs
from holdfast.db.connection import Connection, Database
from holdfast.documents.content import read_text
from holdfast.errors import SearchUnavailable, UnderWay
from holdfast.model.domain_name import canonical_domain
from holdfast.search import queries
from holdfast.search.index import IndexDamaged, IndexedDocument, IndexFilter, SearchIndex, Watermark, exclusive
from holdfast.search.queries import ChangedDocument, DocumentId, FoundDocument, StoreNow
from holdfast.search.records import IndexStatus, SearchFilter, SearchHit, SearchResults, SnippetPart

log: Final = logging.getLogger(__name__)

FOLDER: Final = "search"
"""The folder of the index, in the data folder."""
DELETIONS_KEPT: Final = timedelta(days=7)
"""How long deletions are kept in the database."""
MARK_EVERY: Final = timedelta(minutes=10)
"""How often an index that has nothing to change notes how far the database was read."""
CHUNK: Final = 200
COMMIT_DOCUMENTS: Final = 20_000
"""Documents after which the index is committed."""
COUNTED: Final = 10_000
COUNTED_BY_SEARCH: Final = 1_000
"""Up to these numbers, waiting documents are counted for a status, and for the answer to a search."""
MAX_LIMIT: Final = 100
MAX_OFFSET: Final = 10_000

OnProgress = Callable[[int], None]
_Result = TypeVar("_Result")


class SearchService:
    """Search over the documents of one database, with the index of this machine. It may be shared by threads."""

    def __init__(self, database: Database, data: Path, *, registrable: bool = False) -> None:
        """`data`: the data folder of this machine."""
        self._database = database
        self._folder = data / FOLDER
        self._registrable = registrable
        self._index: SearchIndex | None = None
        self._lock = threading.Lock()

    # Searching --------------------------------------------------------------------------------------------------------

    def search(
        self, words: str, where: SearchFilter | None = None, *, limit: int = 10, offset: int = 0
    ) -> SearchResults:
        """Find documents with these words, the best first. Raises UsageError for a query that cannot be read, NotFound."""
        return self._reading(lambda: self._search(words, where or SearchFilter(), limit, offset))

    def _search(self, words: str, where: SearchFilter, limit: int, offset: int) -> SearchResults:
        index = self._open()
        with self._database.session() as connection:
            status = self._status(connection, index, counted=COUNTED_BY_SEARCH)
            if index is None:
                return SearchResults(0, [], status)
            found = index.search(words, self._index_filter(connection, where), limit=limit, offset=offset)
            rows = queries.found(connection, [_id_of(key) for key, _ in found.hits])
        hits = [
            (rows[_id_of(key)], score) for key, score in found.hits if _id_of(key) in rows
        ]  # others are deleted since
        texts = [(read_text(row.body, row.removed), row.language) for row, _ in hits]
        snippets = index.snippets(words, texts)
        return SearchResults(
            found.total, [_hit(*hit, snippet) for hit, snippet in zip(hits, snippets, strict=True)], status
        )

    def _reading(self, read: Callable[[], _Result]) -> _Result:
        """Read from the index; once more if it was replaced meanwhile. Raises IndexDamaged; then the next update builds it anew."""
        try:
            return read()
        except IndexDamaged:
            self._forget()
        try:
            return read()
        except IndexDamaged:
            with suppress(SearchUnavailable, UnderWay), exclusive(self._folder):
                SearchIndex.discard(self._folder)
            raise

    def _forget(self) -> None:
        """Open the index again when it is needed next."""
        with self._lock:
            self._index = None

    def _index_filter(self, connection: Connection, where: SearchFilter) -> IndexFilter:
        domain = None if where.domain is None else canonical_domain(where.domain, registrable=self._registrable)
        job_id = None if where.job is None else jobs.id_of(connection, where.job)
        return IndexFilter(
            domain=domain,
            job_id=job_id,
            language=where.language,
            kind=where.kind,
            since=where.since,
            until=where.until,
        )

    def status(self) -> IndexStatus:
        """Return how far the index is."""

        def read() -> IndexStatus:
            with self._database.session() as connection:
                return self._status(connection, self._open(), counted=COUNTED)

        return self._reading(read)

    def _status(self, connection: Connection, index: SearchIndex | None, *, counted: int) -> IndexStatus:
        mark = None if index is None else index.watermark()
        lag = queries.lag(connection, 0 if mark is None else mark.changed, limit=counted)
        if mark is not None and mark.store != lag.store:
            mark, lag = None, queries.lag(connection, 0, limit=counted)
        size = _size_of(self._folder) if index is not None else 0
        documents = 0 if index is None or mark is None else index.count()
        return IndexStatus(documents, lag.waiting, lag.behind_seconds, None if mark is None else mark.read_at, size)

    def _open(self) -> SearchIndex | None:
        """The index of this machine, as it was committed last; None: there is none."""
        with self._lock:
            if not SearchIndex.exists(self._folder):
                self._index = None
            elif self._index is None:
                self._index = SearchIndex(self._folder)
            else:
                self._index.reload()
            return self._index

    # Indexing ---------------------------------------------------------------------------------------------------------

    def update(self, on_progress: OnProgress = lambda _: None, *, stopped: Callable[[], bool] = lambda: False) -> int:
        """Bring the index up to the database. Returns how many documents were read. Raises UnderWay while another process does.

        Before: nothing. After: all documents that were committed before the call are in the index, or, if `stopped`, some of them; a
        process that is killed leaves what was committed last.
        """
        with exclusive(self._folder):
            return self._update(on_progress, stopped)

    def rebuild(self, on_progress: OnProgress = lambda _: None) -> int:
        """Build the index anew from the database. Returns how many documents it has. Raises UnderWay while another process updates it."""
        with exclusive(self._folder):
            self._recreate()
            return self._update(on_progress, lambda: False)

    def _update(self, on_progress: OnProgress, stopped: Callable[[], bool]) -> int:
        with self._database.session() as connection:
            queries.adopt(connection)
            now = queries.now(connection)
            try:
                index = self._open()
                outdated = index is None or self._is_outdated(index, now)
            except IndexDamaged as problem:
                log.warning("%s", problem)
                index, outdated = None, True
            if outdated or index is None:
                index = self._recreate()
            try:
                return self._read_changes(connection, index, now, on_progress, stopped)
            except SearchUnavailable:
                self._discard_if_damaged()
                raise

    def _discard_if_damaged(self) -> None:
        self._forget()
        try:
            self._open()
        except IndexDamaged:
            SearchIndex.discard(self._folder)

    def _is_outdated(self, index: SearchIndex, now: StoreNow) -> bool:
        mark = index.watermark()
        if mark is None:
            return False  # empty: it was just made
        return mark.store != now.store or now.now - mark.read_at > DELETIONS_KEPT

    def _recreate(self) -> SearchIndex:
        """Make an empty index. Before: no other process writes the present one, see `exclusive`."""
        with self._lock:
            self._index = SearchIndex.create(self._folder)
            return self._index

    def _read_changes(
        self,
        connection: Connection,
        index: SearchIndex,
        now: StoreNow,
        on_progress: OnProgress,
        stopped: Callable[[], bool],
    ) -> int:
        mark = index.watermark()
        begin = 0 if mark is None else mark.changed
        some_deleted, deleted = _peek(queries.deleted(connection, begin, now.horizon))
        some_changed, changed = _peek(queries.changed(connection, begin, now.horizon, limit=CHUNK))
        if mark is not None and not (some_deleted or some_changed) and now.now - mark.read_at < MARK_EVERY:
            return 0  # a writer costs threads and megabytes
        read = uncommitted = 0
        writer = index.writer()
        try:
            if mark is not None:
                for ids in deleted:
                    writer.remove(map(index_key, ids))
            for rows in changed:
                writer.put(map(_indexed, rows))
                read += len(rows)
                uncommitted += len(rows)
                if uncommitted >= COMMIT_DOCUMENTS or stopped():
                    # Rows of the same transaction may follow: it is read again from its first one.
                    writer.commit(Watermark(now.store, rows[-1].changed, now.now if mark is None else mark.read_at))
                    uncommitted = 0
                on_progress(read)
                if stopped():
                    return read
            writer.commit(Watermark(now.store, now.horizon, now.now))
            writer.finish()
        finally:
            writer.close()
        return read


def _hit(row: FoundDocument, score: float, snippet: Sequence[tuple[str, bool]]) -> SearchHit:
    parts = [SnippetPart(*part) for part in snippet]
    return SearchHit(row.url, row.domain, row.job, row.title, row.language, row.kind, row.fetched_at, score, parts)


def _peek(chunks: Iterator[_Result]) -> tuple[bool, Iterator[_Result]]:
    """Whether there are any, and all of them."""
    for first in chunks:
        return True, chain((first,), chunks)
    return False, iter(())


def _size_of(folder: Path) -> int:
    """Bytes of the files in a folder, some of which may be deleted at the moment."""
    size = 0
    for file in folder.glob("*"):
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    return size


def _indexed(row: ChangedDocument) -> IndexedDocument:
    return IndexedDocument(
        key=index_key(DocumentId(row.domain_id, row.job_id, row.url_key)),
        url=row.url,
        title=row.title or "",
        text=read_text(row.body, row.removed),
        language=row.language,
        domain=row.domain,
        job_id=row.job_id,
        kind=row.kind,
        fetched_at=row.fetched_at,
    )


def index_key(one: DocumentId) -> str:
    """The key of a document in the index."""
    return f"{one.domain_id}/{one.job_id}/{one.url_key.hex()}"


def _id_of(key: str) -> DocumentId:
    domain_id, job_id, url_key = key.split("/")
    return DocumentId(int(domain_id), int(job_id), bytes.fromhex(url_key))
