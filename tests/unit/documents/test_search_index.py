"""The search index: what is found, in which order, and what a reader sees of writes that were not committed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import UnderWay, UsageError
from holdfast.search.index import IndexedDocument, IndexFilter, SearchIndex, Watermark

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


def document(
    key: str, text: str, *, title: str = "", language: str | None = "en", domain: str = "a.example", at: datetime = NOW
) -> IndexedDocument:
    return IndexedDocument(key, f"https://{domain}/{key}", title, text, language, domain, 1, "article", at)


def mark(changed: int = 1) -> Watermark:
    return Watermark("store/1", changed, NOW)


@pytest.fixture
def index(tmp_path: Path) -> SearchIndex:
    made = SearchIndex.create(tmp_path / "search")
    writer = made.writer()
    writer.put(
        [
            document("dogs", "The dogs were running through the wood <script>alert(1)</script>."),
            document("title", "An unrelated text.", title="Running"),
            document("haus", "Die Häuser an der Straße", language="de", domain="b.example", at=NOW - timedelta(days=9)),
            document("tokyo", "東京都の天気は晴れです", language="ja"),
            document("plain", "zażółć gęślą jaźń running", language=None),
        ]
    )
    writer.commit(mark())
    writer.close()
    return made


def found(index: SearchIndex, words: str, where: IndexFilter | None = None) -> list[str]:
    return [key for key, _ in index.search(words, where or IndexFilter(), limit=10).hits]


def test_words_are_found_in_their_forms_and_titles_count_more(index: SearchIndex) -> None:
    assert sorted(found(index, "run")) == ["dogs"], "only the language of a page has its stems"
    assert found(index, "running")[0] == "title"
    assert set(found(index, "running")) == {"title", "dogs", "plain"}
    assert found(index, "haus") == ["haus"]
    assert found(index, "天気") == ["tokyo"]


def test_phrases_operators_fields_and_filters(index: SearchIndex) -> None:
    assert found(index, '"dogs were running"') == ["dogs"]
    assert found(index, '"running dogs"') == []
    assert found(index, "dogs wood") == ["dogs"]
    assert found(index, "dogs nothing") == []
    assert set(found(index, "dogs OR haus")) == {"dogs", "haus"}
    assert set(found(index, "running -wood")) == {"title", "plain"}
    assert found(index, "title:running") == ["title"]
    assert found(index, "dogs OR haus", IndexFilter(domain="b.example")) == ["haus"]
    assert found(index, "dogs OR haus", IndexFilter(language="de-DE")) == ["haus"]
    assert found(index, "dogs OR haus", IndexFilter(since=NOW - timedelta(days=1))) == ["dogs"]
    assert found(index, "dogs OR haus", IndexFilter(until=NOW - timedelta(days=1))) == ["haus"]
    assert found(index, "dogs", IndexFilter(job_id=2)) == []


@pytest.mark.parametrize(
    "words", ["(dogs", "dogs AND", "nofield:dogs", " ", "a" * 1_001, "a " * 101, '"', "fetched_at:[a TO b]"]
)
def test_a_query_that_cannot_be_read_is_invalid_usage(index: SearchIndex, words: str) -> None:
    with pytest.raises(UsageError):
        index.search(words, IndexFilter(), limit=1)


def test_snippets_mark_words_and_keep_foreign_markup_as_text(index: SearchIndex) -> None:
    text = "The dogs were running through the wood <script>alert(1)</script>."
    assert index.snippets("run", [(text, "en")])[0] == [
        ("The dogs were ", False),
        ("running", True),
        (" through the wood <script>alert(1)</script", False),
    ]
    assert index.snippets("absent", [(text, "en")])[0] == [(text, False)]


def test_a_document_replaces_itself_and_can_be_removed(index: SearchIndex) -> None:
    writer = index.writer()
    writer.put([document("dogs", "Cats now.")])
    writer.remove(["haus"])
    assert found(index, "dogs OR haus") != [], "nothing is visible before the commit"
    writer.commit(mark(2))
    writer.close()
    assert found(index, "dogs OR haus") == []
    assert found(index, "cats") == ["dogs"]
    assert (index.count(), index.watermark()) == (4, mark(2))


def test_what_was_not_committed_is_gone_and_one_process_writes(index: SearchIndex) -> None:
    writer = index.writer()
    writer.put([document("new", "Never committed.")])
    with pytest.raises(UnderWay):
        index.writer()
    writer.close()
    again = SearchIndex(index.folder)
    assert (again.count(), again.watermark(), found(again, "committed")) == (5, mark(), [])


def test_an_index_of_another_version_is_none(index: SearchIndex) -> None:
    assert SearchIndex.exists(index.folder)
    (index.folder / "format").write_text("0")
    assert not SearchIndex.exists(index.folder)
    assert not SearchIndex.exists(index.folder.parent / "absent")
