"""The search index: what is found, in which order, and what a reader sees of writes that were not committed."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import UnderWay, UsageError
from holdfast.search.index import IndexDamaged, IndexedDocument, IndexFilter, SearchIndex, Watermark, exclusive

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
    "words",
    [
        "(dogs",
        "dogs AND",
        "nofield:dogs",
        " ",
        "a" * 1_001,
        "a " * 101,
        "a-" * 101,
        "(" * 21 + "a" + ")" * 21,
        "(" * 900,
        '"',
        '"' * 400,
        ":",
        "title:" * 50 + "a",
        "-dogs",
        "NOT NOT dogs",
        "/.*/",
        "fetched_at:[a TO b]",
        "fetched_at:*",
        "[a TO b]",
        "title:[a TO z]",
        "title:{* TO z}",
        "title:>a",
        "title: < a",
        "title:*",
        "title: IN [a b]",
        "a\ud800b",
    ],
)
def test_a_query_that_cannot_be_read_is_invalid_usage(words: str, index: SearchIndex) -> None:
    with pytest.raises(UsageError):
        index.search(words, IndexFilter(), limit=1)


@pytest.mark.parametrize(
    ("words", "total"),
    [
        ("*", 5),
        ("dogs*", 1),
        ("key:watermark", 0),
        ("(" * 20 + "dogs" + ")" * 20, 1),
        ("dogs^99999999999999999999", 1),
        ("dogs\0wood", 0),
        ("\\" * 100, 0),
        ("😀 \u202e", 0),
        ("dogs OR haus AND strasse", 2),
        ("天気" * 400, 0),
        ('"dogs wood"~4', 1),
    ],
)
def test_odd_queries_have_an_answer(words: str, total: int, index: SearchIndex) -> None:
    assert index.search(words, IndexFilter(), limit=10).total == total


def test_snippets_mark_words_and_keep_foreign_markup_as_text(index: SearchIndex) -> None:
    text = "The dogs were running through the wood <script>alert(1)</script>."
    assert index.snippets("run", [(text, "en")])[0] == [
        ("The dogs were ", False),
        ("running", True),
        (" through the wood <script>alert(1)</script", False),
    ]
    assert index.snippets("absent", [(text, "en")])[0] == [(text, False)]


def test_snippets_of_long_texts_are_of_a_section_that_has_a_word(index: SearchIndex) -> None:
    filler, part = "nothing here " * 4_000, "a dog sleeps"
    texts = [(text, "en") for text in (filler + part, filler * 10 + part, part + filler)]
    marked = [[piece for piece, is_word in snippet if is_word] for snippet in index.snippets("dogs", texts)]
    assert marked == [["dog"], [], ["dog"]]


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


def test_parts_of_the_index_are_merged(index: SearchIndex) -> None:
    for number in range(24):
        writer = index.writer()
        writer.put([document(f"new-{number}", f"Text number {number}.")])
        writer.commit(mark(2 + number))
        writer.finish()
        writer.close()
    assert index.count() == 29
    assert index.segments() < 10, "one for each commit would make searches slower and slower"


FILES = (".term", ".idx", ".store", ".fast", ".fieldnorm")


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("remove", [False, True])
def test_a_damaged_file_is_noticed(suffix: str, remove: bool, index: SearchIndex) -> None:
    file = next(index.folder.glob(f"*{suffix}"))
    if remove:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(IndexDamaged, match="search --rebuild"):
        SearchIndex(index.folder)


def test_a_panic_of_the_engine_is_damage(index: SearchIndex) -> None:
    file = next(index.folder.glob("*.store"))
    content = file.read_bytes()
    file.write_bytes(b"\xff" * (len(content) - 200) + content[-200:])  # the footer stays: it opens
    spoiled = SearchIndex(index.folder)
    with pytest.raises(IndexDamaged, match="is damaged"):
        spoiled.search("dogs", IndexFilter(), limit=1)


def test_a_discarded_index_is_none(index: SearchIndex) -> None:
    SearchIndex.discard(index.folder)
    SearchIndex.discard(index.folder)
    assert not SearchIndex.exists(index.folder)
    assert SearchIndex.create(index.folder).count() == 0


def test_one_at_a_time_has_the_right_to_write(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "search"
    with exclusive(folder), pytest.raises(UnderWay), exclusive(folder):
        pass
    with exclusive(folder):
        SearchIndex.create(folder)
        with pytest.raises(UnderWay), exclusive(folder):
            pass


FULL_DISK = """
import resource, sys
from datetime import UTC, datetime
from pathlib import Path
from holdfast.errors import SearchUnavailable
from holdfast.search.index import IndexedDocument, SearchIndex, Watermark

now = datetime(2026, 11, 1, tzinfo=UTC)
index = SearchIndex(Path(sys.argv[1]))
writer = index.writer()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    text = " ".join(map(str, range(3000)))
    writer.put([IndexedDocument(f"k{n}", "https://a.example/", "", text, "en", "a.example", 1, "article", now) for n in range(50)])
    writer.commit(Watermark("store/1", 2, now))
except SearchUnavailable as problem:
    print(problem)
writer.close()
print(SearchIndex(index.folder).watermark().changed)
"""


@pytest.mark.parametrize("limit", [10, 30_000])
def test_a_full_disk_leaves_the_last_commit(limit: int, index: SearchIndex) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(index.folder), str(limit)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    said, changed = done.stdout.splitlines()
    assert said.startswith(f"The search index in {index.folder} cannot be written: ")
    assert said.endswith("MiB of its disk are free.")
    assert changed == "1"
