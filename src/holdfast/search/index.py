"""The search index: documents by their words, in files of this machine.

Owns everything that is Tantivy's. The rules: the index is derived from the database and may be deleted at any time. One process writes
at a time, any number read. The watermark (how far the database has been read) is a document of the index itself, so a commit brings both
or neither: a process that is killed while it writes leaves the last commit. What the engine raises leaves this module as SearchUnavailable,
or as IndexDamaged if only a new index helps.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import tantivy

from holdfast.errors import SearchUnavailable, UnderWay, UsageError
from holdfast.model.languages import CJK, STEMMED, language_code

FORMAT: Final = 1
"""The version of fields and tokenizers: an index of another one is built anew."""
HEAP_BYTES: Final = 128 * 1024 * 1024
SNIPPET_CHARACTERS: Final = 240
SNIPPET_SECTION: Final = 20_000
"""Characters of a text in which a snippet is looked for at once: more than most texts have."""
SNIPPET_SECTIONS: Final = 10
"""Sections of a text in which it is looked for."""
MAX_QUERY_CHARACTERS: Final = 1_000
MAX_WORDS: Final = 100
"""Maximum number of words in a query, its operators included."""
MAX_GROUPS: Final = 20
"""Maximum number of parentheses that a query opens: each is a level for the engine's parser."""

_LONGEST_WORD: Final = 80
_WATERMARK_KEY: Final = "watermark"
_TITLE, _PLAIN, _CJK = "title", "text", "text_cjk"
_TITLE_BOOST: Final = 3.0
_WORD: Final = re.compile(r"\w+")
_RANGE: Final = re.compile(r"[\[\]{}]|:\s*[<>]|:\s*\*")
"""What queries for ranges of words are written with; they would read the index from one end to the other."""
_HOW: Final = (
    'Words must all be there; "two words" is a phrase; OR, NOT and ( ) combine; title:word looks in titles. '
    "What is meant literally is quoted."
)
_UNDER_WAY: Final = "Another process is updating the search index of this machine."
_PASSING: Final = re.compile(r"os error (?!2\b)\d+")
"""An error of the operating system other than a missing file: of the disk, of memory, of permissions."""


class IndexDamaged(SearchUnavailable):
    """The files of the index cannot be read any more: it must be built anew."""


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


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Raise what the engine raises while it reads as IndexDamaged, or as SearchUnavailable if it may pass."""
    try:
        yield
    except BaseException as problem:
        if not _is_of_engine(problem):
            raise
        said = _first_sentence(problem)
        if _PASSING.search(str(problem)):
            raise SearchUnavailable(f"The search index in {folder} cannot be read: {said}.") from problem
        raise IndexDamaged(
            f"The search index in {folder} is damaged ({said}). `holdfast serve` builds it anew, or `holdfast search --rebuild`."
        ) from problem


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise what the engine raises while it writes as SearchUnavailable."""
    try:
        yield
    except BaseException as problem:
        if "LockBusy" in str(problem):
            raise UnderWay(_UNDER_WAY) from None
        if not _is_of_engine(problem):
            raise
        free = shutil.disk_usage(next(one for one in (folder, *folder.parents) if one.exists())).free
        raise SearchUnavailable(
            f"The search index in {folder} cannot be written: {_first_sentence(problem)}. {free // 2**20:,} MiB of its disk are free."
        ) from problem


def _is_of_engine(problem: BaseException) -> bool:
    """Whether the engine or the file system failed. A panic of the engine is no Exception."""
    return isinstance(problem, ValueError | OSError) or type(problem).__name__ == "PanicException"


def _first_sentence(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:200].rstrip(". ")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the right to write or replace the index in a folder. Raises UnderWay if another process or thread has it.

    The engine's own lock is in the folder and goes with it; this one is beside it.
    """
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(
            folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnderWay(_UNDER_WAY) from None
        except OSError:  # the file system has no locks: the engine's own one is left
            pass
        yield
    finally:
        os.close(lock)


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
        """Open the index. Before: it exists, see `exists`. Raises IndexDamaged."""
        self.folder = folder
        self._schema = _schema()
        with _reading(folder):
            self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
            for name, analyzer in _analyzers():
                self._index.register_tokenizer(name, analyzer)
            self._index.config_reader(reload_policy="manual", num_warmers=0)
            self._index.reload()

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether there is an index of this version in the folder."""
        return _format_of(folder) == FORMAT and tantivy.Index.exists(str(folder))

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make an empty index in place of what is in the folder."""
        cls.delete(folder)
        with _writing(folder):
            folder.mkdir(mode=0o700, parents=True)
            made = cls(folder)
            (folder / "format").write_text(str(FORMAT), encoding="ascii")
        return made

    @classmethod
    def delete(cls, folder: Path) -> None:
        """Delete the index, if there is one."""
        with _writing(folder):
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists():
                shutil.rmtree(folder)

    @classmethod
    def discard(cls, folder: Path) -> None:
        """Let the index count as none: the next update builds a new one in its place."""
        with _writing(folder):
            (folder / "format").unlink(missing_ok=True)

    # Reading ----------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """See what was committed by now."""
        with _reading(self.folder):
            self._index.reload()

    def watermark(self) -> Watermark | None:
        """How far the database has been read; None: not at all."""
        with _reading(self.folder):
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

    def keys(self) -> list[str]:
        """The keys of all documents; one that is there twice is twice in the list. For tests and benchmarks: it reads all of them."""
        with _reading(self.folder):
            searcher = self._index.searcher()
            found = searcher.search(tantivy.Query.all_query(), max(1, searcher.num_docs), count=False)
            keys = (searcher.doc(place)["key"][0] for _, place in found.hits)
            return [key for key in keys if key != _WATERMARK_KEY]

    def segments(self) -> int:
        """Of how many parts the index is: each is searched on its own."""
        return int(self._index.searcher().num_segments)

    def search(self, words: str, where: IndexFilter, *, limit: int, offset: int = 0) -> IndexHits:
        """Find documents. Raises UsageError for a query that cannot be read."""
        query = tantivy.Query.boolean_query(
            [
                (tantivy.Occur.Must, self._parse(words)),
                *((tantivy.Occur.Must, part) for part in self._filters(where)),
                (tantivy.Occur.MustNot, self._term("key", _WATERMARK_KEY)),
            ]
        )
        with _reading(self.folder):
            searcher = self._index.searcher()
            found = searcher.search(query, limit, count=True, offset=offset)
            hits = [(searcher.doc(place)["key"][0], score) for score, place in found.hits]
        return IndexHits(found.count or 0, hits)  # type: ignore[attr-defined]  # the stubs lack it

    def snippets(self, words: str, texts: Iterable[tuple[str, str | None]]) -> list[list[tuple[str, bool]]]:
        """Of each text, with its language, a part with most of the words of the query: pieces, and whether each is one of the words."""
        query, searcher = self._parse(words), self._index.searcher()
        generators: dict[str, tantivy.SnippetGenerator] = {}
        made = []
        with _reading(self.folder):
            for text, language in texts:
                field = _text_field(language)
                if field not in generators:
                    generators[field] = tantivy.SnippetGenerator.create(searcher, query, self._schema, field)
                    generators[field].set_max_num_chars(SNIPPET_CHARACTERS)
                made.append(_snippet(generators[field], field, text))
        return made

    def _parse(self, words: str) -> tantivy.Query:
        _check_length(words)
        if _RANGE.search(words):
            raise UsageError(f"The query cannot be read: ranges and lists of words are not searched. {_HOW}")
        fields = [_TITLE, _PLAIN, _CJK, *map(_stem_field, STEMMED)]
        try:
            return self._index.parse_query(
                words, fields, field_boosts={_TITLE: _TITLE_BOOST}, conjunction_by_default=True, allow_regexes=False
            )
        except ValueError as problem:
            raise UsageError(f"The query cannot be read: {_first_sentence(problem)}. {_HOW}") from None

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
        with _writing(self.folder):
            return IndexWriter(self, self._index.writer(HEAP_BYTES, 1))

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
        self._open = True

    def put(self, documents: Iterable[IndexedDocument]) -> None:
        """Replace documents by their keys."""
        entries = [(document.key, self._index.as_entry(document)) for document in documents]
        with _writing(self._index.folder):
            for key, entry in entries:
                self._writer.delete_documents_by_term("key", key)
                self._writer.add_document(entry)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove documents by their keys."""
        with _writing(self._index.folder):
            for key in keys:
                self._writer.delete_documents_by_term("key", key)

    def commit(self, watermark: Watermark) -> None:
        """Make everything visible and durable, with how far it goes."""
        entry = tantivy.Document()
        entry.add_text("key", _WATERMARK_KEY)
        entry.add_text("watermark", json.dumps(asdict(watermark), default=datetime.isoformat))
        with _writing(self._index.folder):
            self._writer.delete_documents_by_term("key", _WATERMARK_KEY)
            self._writer.add_document(entry)
            self._writer.commit()
        self._index.reload()

    def finish(self) -> None:
        """Wait until parts of the index that are due to be merged are, and let go of the lock. Without it there would be one more part
        after each commit. Before: everything is committed."""
        self._open = False
        with _writing(self._index.folder):
            self._writer.wait_merging_threads()
        self._index.reload()

    def close(self) -> None:
        """Let go of the lock at once. After: what was not committed is gone, and merges are given up. May be called after `finish`."""
        steps = (self._writer.rollback, self._writer.wait_merging_threads) if self._open else ()
        self._open = False
        for step in steps:
            with suppress(SearchUnavailable), _writing(self._index.folder):
                step()


def _check_length(words: str) -> None:
    """Refuse a query that is empty, or so long that it could take long."""
    if len(words) > MAX_QUERY_CHARACTERS:
        raise UsageError(f"The query has {len(words):,} characters; {MAX_QUERY_CHARACTERS:,} are allowed.")
    if not words.strip():
        raise UsageError("The query is empty: give at least one word.")
    if (count := len(_WORD.findall(words))) > MAX_WORDS:
        raise UsageError(f"The query has {count} words; {MAX_WORDS} are allowed.")
    if (groups := words.count("(")) > MAX_GROUPS:
        raise UsageError(f"The query has {groups} parentheses; {MAX_GROUPS} are allowed.")


def _snippet(generator: tantivy.SnippetGenerator, field: str, text: str) -> list[tuple[str, bool]]:
    """The part of a text with most of the words; of a long text, that of its first section that has any of them."""
    for begin in range(0, min(len(text), SNIPPET_SECTION * SNIPPET_SECTIONS), SNIPPET_SECTION):
        document = tantivy.Document()
        document.add_text(field, text[begin : begin + SNIPPET_SECTION])
        found = generator.snippet_from_doc(document)
        if fragment := found.fragment().encode():
            return _pieces(fragment, [(mark.start, mark.end) for mark in found.highlighted()])
    return [(text[:SNIPPET_CHARACTERS], False)] if text else []


def _pieces(fragment: bytes, marks: Iterable[tuple[int, int]]) -> list[tuple[str, bool]]:
    pieces, at = [], 0
    for start, end in marks:
        pieces += [(fragment[at:start], False), (fragment[start:end], True)]
        at = end
    pieces.append((fragment[at:], False))
    return [(piece.decode("utf-8", "replace"), marked) for piece, marked in pieces if piece]


def _plain_time(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


def _format_of(folder: Path) -> int | None:
    try:
        return int((folder / "format").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
