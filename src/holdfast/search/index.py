"""The search index: documents by their words, in files of this machine.

Owns everything that is Tantivy's. The rules: the index is derived from the database and may be deleted at any time. One process writes
at a time, any number read. The watermark (how far the database has been read) is a document of the index itself, so a commit brings both
or neither: a process that is killed while it writes leaves the last commit.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import tantivy

from holdfast.errors import UnderWay, UsageError
from holdfast.model.languages import CJK, STEMMED, language_code

FORMAT: Final = 1
"""The version of fields and tokenizers: an index of another one is built anew."""
HEAP_BYTES: Final = 128 * 1024 * 1024
SNIPPET_CHARACTERS: Final = 240
MAX_QUERY_CHARACTERS: Final = 1_000
MAX_CLAUSES: Final = 100
"""Maximum number of words and operators in a query."""

_LONGEST_WORD: Final = 80
_WATERMARK_KEY: Final = "watermark"
_TITLE, _PLAIN, _CJK = "title", "text", "text_cjk"
_TITLE_BOOST: Final = 3.0


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far an index has read the database."""

    store: str
    """The store and its generation."""
    changed: int
    """All transactions before this one are in the index."""
    read_at: datetime
    """When it was read, by the database's clock."""


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document as the index takes it."""

    key: str
    url: str
    title: str
    text: str
    language: str | None
    domain: str
    job_id: int
    kind: str
    fetched_at: datetime


@dataclass(frozen=True, slots=True)
class IndexFilter:
    """What documents must have besides the words of the query."""

    domain: str | None = None
    job_id: int | None = None
    language: str | None = None
    kind: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class IndexHits:
    """Found documents: their keys with scores, the best first, and how many there are in all."""

    total: int
    hits: Sequence[tuple[str, float]]


def _stem_field(code: str) -> str:
    return f"text_{code}"


def _text_field(language: str | None) -> str:
    """The field that has the text of documents in this language: each text is in one field."""
    code = language_code(language)
    if code in CJK:
        return _CJK
    return _stem_field(code) if code in STEMMED else _PLAIN


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("key", stored=True, tokenizer_name="raw", index_option="basic")
    for name in ("domain", "job", "language", "kind"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_date_field("fetched_at", fast=True)
    builder.add_text_field("watermark", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("url", tokenizer_name="words", index_option="position")
    builder.add_text_field(_TITLE, tokenizer_name="words", index_option="position")
    builder.add_text_field(_PLAIN, tokenizer_name="words", index_option="position")
    builder.add_text_field(_CJK, tokenizer_name="bigrams", index_option="position")
    for code in STEMMED:
        builder.add_text_field(_stem_field(code), tokenizer_name=_stem_field(code), index_option="position")
    return builder.build()


def _analyzers() -> Iterable[tuple[str, Any]]:
    def plain() -> Any:
        start = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        return start.filter(tantivy.Filter.remove_long(_LONGEST_WORD)).filter(tantivy.Filter.lowercase())

    yield "words", plain().filter(tantivy.Filter.ascii_fold()).build()
    yield (
        "bigrams",
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(1, 2)).filter(tantivy.Filter.lowercase()).build(),
    )
    for code, language in STEMMED.items():
        yield _stem_field(code), plain().filter(tantivy.Filter.stemmer(language)).build()


class SearchIndex:
    """An index in a folder, opened for reading; `writer` opens it for writing."""

    def __init__(self, folder: Path) -> None:
        """Open the index. Before: it exists, see `exists`."""
        self.folder = folder
        self._schema = _schema()
        self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
        for name, analyzer in _analyzers():
            self._index.register_tokenizer(name, analyzer)
        self._index.config_reader(reload_policy="commit", num_warmers=0)

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether there is an index of this version in the folder."""
        return _format_of(folder) == FORMAT and tantivy.Index.exists(str(folder))

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make an empty index in place of what is in the folder."""
        cls.delete(folder)
        folder.mkdir(mode=0o700, parents=True)
        made = cls(folder)
        (folder / "format").write_text(str(FORMAT), encoding="ascii")
        return made

    @classmethod
    def delete(cls, folder: Path) -> None:
        """Delete the index, if there is one."""
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)

    # Reading ----------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """See what was committed by now."""
        self._index.reload()

    def watermark(self) -> Watermark | None:
        """How far the database has been read; None: not at all."""
        searcher = self._index.searcher()
        found = searcher.search(self._term("key", _WATERMARK_KEY), 1)
        if not found.hits:
            return None
        stored = json.loads(searcher.doc(found.hits[0][1])["watermark"][0])
        return Watermark(**{**stored, "read_at": datetime.fromisoformat(stored["read_at"])})

    def count(self) -> int:
        """How many documents are in the index."""
        searcher = self._index.searcher()
        return max(0, searcher.num_docs - (1 if self.watermark() else 0))

    def search(self, words: str, where: IndexFilter, *, limit: int, offset: int = 0) -> IndexHits:
        """Find documents. Raises UsageError for a query that cannot be read."""
        searcher = self._index.searcher()
        query = tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Must, self._parse(words)),
                *((tantivy.Occur.Must, part) for part in self._filters(where)),
            ]
        )
        found = searcher.search(query, limit, count=True, offset=offset)
        hits = [(searcher.doc(place)["key"][0], score) for score, place in found.hits]
        return IndexHits(found.count or 0, [hit for hit in hits if hit[0] != _WATERMARK_KEY])  # type: ignore[attr-defined]  # the stubs lack it

    def snippet(self, words: str, text: str, language: str | None) -> list[tuple[str, bool]]:
        """A part of the text with most of the words of the query: pieces, and whether each is one of the words."""
        searcher = self._index.searcher()
        field = _text_field(language)
        generator = tantivy.SnippetGenerator.create(searcher, self._parse(words), self._schema, field)
        generator.set_max_num_chars(SNIPPET_CHARACTERS)
        document = tantivy.Document()
        document.add_text(field, text)
        found = generator.snippet_from_doc(document)
        fragment = found.fragment().encode()
        if not fragment:
            return [(text[:SNIPPET_CHARACTERS], False)] if text else []
        pieces, at = [], 0
        for mark in found.highlighted():
            pieces += [(fragment[at : mark.start], False), (fragment[mark.start : mark.end], True)]
            at = mark.end
        pieces.append((fragment[at:], False))
        return [(piece.decode("utf-8", "replace"), marked) for piece, marked in pieces if piece]

    def _parse(self, words: str) -> tantivy.Query:
        if len(words) > MAX_QUERY_CHARACTERS:
            raise UsageError(f"The query has {len(words):,} characters; {MAX_QUERY_CHARACTERS:,} are allowed.")
        if len(words.split()) > MAX_CLAUSES:
            raise UsageError(f"The query has {len(words.split())} words; {MAX_CLAUSES} are allowed.")
        if not words.strip():
            raise UsageError("The query is empty: give at least one word.")
        fields = [_TITLE, _PLAIN, _CJK, *map(_stem_field, STEMMED)]
        try:
            return self._index.parse_query(
                words, fields, field_boosts={_TITLE: _TITLE_BOOST}, conjunction_by_default=True, allow_regexes=False
            )
        except ValueError as problem:
            raise UsageError(
                f'The query cannot be read: {problem}. Words must all be there; "two words" is a phrase; OR, NOT and ( ) combine; '
                "title:word looks in titles. Quote what is meant literally."
            ) from None

    def _filters(self, where: IndexFilter) -> Iterable[tantivy.Query]:
        exact: Mapping[str, str | None] = {
            "domain": where.domain,
            "job": None if where.job_id is None else str(where.job_id),
            "language": None if where.language is None else language_code(where.language),
            "kind": where.kind,
        }
        for name, value in exact.items():
            if value is not None:
                yield self._term(name, value)
        if where.since is not None or where.until is not None:
            yield tantivy.Query.range_query(
                self._schema, "fetched_at", tantivy.FieldType.Date, _plain_time(where.since), _plain_time(where.until)
            )

    def _term(self, field: str, value: str) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, field, value, "basic")

    # Writing ----------------------------------------------------------------------------------------------------------

    def writer(self) -> "IndexWriter":
        """Open the index for writing. Raises UnderWay if another process does."""
        try:
            return IndexWriter(self, self._index.writer(HEAP_BYTES, 1))
        except ValueError:
            raise UnderWay("Another process is updating the search index of this machine.") from None

    def as_entry(self, document: IndexedDocument) -> tantivy.Document:
        """The entry of a document."""
        entry = tantivy.Document()
        entry.add_text("key", document.key)
        entry.add_text("domain", document.domain)
        entry.add_text("job", str(document.job_id))
        entry.add_text("kind", document.kind)
        entry.add_text("url", document.url)
        entry.add_text(_TITLE, document.title)
        entry.add_date("fetched_at", document.fetched_at.astimezone(UTC))
        if code := language_code(document.language):
            entry.add_text("language", code)
        entry.add_text(_text_field(document.language), document.text)
        return entry


class IndexWriter:
    """Adds and deletes documents; nothing is visible before `commit`."""

    def __init__(self, index: SearchIndex, writer: tantivy.IndexWriter) -> None:
        self._index = index
        self._writer = writer

    def put(self, documents: Iterable[IndexedDocument]) -> None:
        """Replace documents by their keys."""
        for document in documents:
            self._writer.delete_documents_by_term("key", document.key)
            self._writer.add_document(self._index.as_entry(document))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove documents by their keys."""
        for key in keys:
            self._writer.delete_documents_by_term("key", key)

    def commit(self, watermark: Watermark) -> None:
        """Make everything visible and durable, with how far it goes."""
        self._writer.delete_documents_by_term("key", _WATERMARK_KEY)
        entry = tantivy.Document()
        entry.add_text("key", _WATERMARK_KEY)
        entry.add_text("watermark", json.dumps(asdict(watermark), default=datetime.isoformat))
        self._writer.add_document(entry)
        self._writer.commit()
        self._index.reload()

    def close(self) -> None:
        """Let go of the lock. After: what was not committed is gone."""
        with suppress(ValueError):
            self._writer.rollback()
        self._writer.wait_merging_threads()


def _plain_time(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


def _format_of(folder: Path) -> int | None:
    try:
        return int((folder / "format").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
