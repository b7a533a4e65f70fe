"""`holdfast show`, `search` and `export documents`, on the store and on its server: what they print, to whom, and what they refuse."""

import io
import json
import re
import sys
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from tests.integration.documents.conftest import ARCHIVED, EMPTY, HOSTILE, NOINDEX, PAGES, PICTURE, Both
from tests.support.crawled import HOME

STYLE = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
STORED = 5


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command prints on a terminal with 80 columns."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")

    def show(ask: Callable[..., object], *arguments: str) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", screen := Terminal())
            ask(*arguments)
        return screen.getvalue()

    return show


def test_show_prints_what_is_stored(both: Both) -> None:
    markdown = "# Page 1\n\nWhat only page 1 says: x."
    assert both.same("show", f"{HOME}1").out == f"{markdown}\n", "Markdown in a pipe"
    assert both.same("show", f"{HOME}1", "--markdown", "--job", "default").out == f"{markdown}\n"
    assert both.same("show", f"{HOME}1", "--text").out == "Page 1\n\nWhat only page 1 says: x.\n"
    found = both.same("show", f"{HOME}1", "--json").json
    assert (found["markdown"], found["stored"], found["counted_pages"]) == (markdown, True, PAGES)
    assert found["headings"][0]["path"] == ["Page 1"]


def test_show_reads_the_archive_where_nothing_is_stored(both: Both) -> None:
    found = both.same("show", ARCHIVED, "--json").json
    assert (found["markdown"], found["title"]) == ("# The Lamp\n\nIt was **dark**.", "The Lamp")
    assert (found["stored"], found["counted_pages"]) == (False, None)
    stored = both.near("show", f"{HOME}1", "--json").json["id"]
    assert found["id"].rpartition("-")[0] == stored.rpartition("-")[0], "ids are made alike"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (NOINDEX, "asked not to be indexed (noindex)"),
        (PICTURE, "it is image/png, and content is taken from HTML"),
        (EMPTY, "its HTML has no text"),
        (f"{HOME}never", "was not crawled, and no page"),
        (HOME.replace("https:", "http:"), f"was not crawled, but {HOME} is known: `holdfast show {HOME}`."),
        ("https://nowhere.example/", "https://nowhere.example/ was not crawled"),
    ],
)
def test_show_says_why_there_is_no_content(both: Both, url: str, sentence: str) -> None:
    near, far = both.near("show", url), both.far("show", url)
    assert sentence in near.refused(4)
    assert far.refused(4) == near.refused(4)


def test_a_terminal_is_shown_the_page_and_obeys_none_of_it(both: Both, shown: Callable[..., str]) -> None:
    for ask in (both.near, both.far):
        lamp = shown(ask, "show", ARCHIVED)
        assert "The Lamp" in lamp
        assert "\x1b[1mdark" in lamp, "bold"
        for more in ([], ["--text"], ["--markdown"]):
            text = STYLE.sub("", shown(ask, "show", HOSTILE, *more))
            assert "Danger" in text
            assert not CONTROL.search(text)
        text = STYLE.sub("", shown(ask, "search", "danger"))
        assert "<script>alert(1)</script>\\x1b[2J & more" in text
        assert not CONTROL.search(text)


def test_search_marks_the_words_on_a_terminal_only(both: Both, shown: Callable[..., str]) -> None:
    assert "says: \x1b[1mxxx\x1b[0m" in shown(both.near, "search", "xxx")
    answer = both.same("search", "xxx")
    assert answer.out == f"{HOME}3\n  {HOME}3\n  Page 3 What only page 3 says: xxx\n\n"
    assert answer.err == "1 page found.\n"


def test_search_filters_and_pages(both: Both) -> None:
    assert both.same("search", "says page", "--limit", "3").err == "4 pages found; --offset 3 shows the next.\n"
    assert len(both.same("search", "says page", "--limit", "3", "--offset", "3", "--json").json["hits"]) == 1
    for option, value, count in (
        ("--domain", "EXAMPLE.com", 4), ("--job", "default", 4), ("--language", "en", 4), ("--language", "de", 0),
        ("--kind", "article", 4), ("--kind", "product", 0), ("--since", "2020-01-01", 4), ("--until", "2020-01-01", 0),
        ("--since", "3650d", 4), ("--until", "3650d", 0),
    ):  # fmt: skip
        assert both.same("search", "says", option, value, "--json").json["total"] == count, option
    found = both.same("search", "xxx", "--json").json
    assert [part["text"] for part in found["hits"][0]["snippet"] if part["marked"]] == ["xxx"]
    assert (found["index"]["documents"], found["index"]["waiting"]) == (STORED, 0)


def test_search_says_what_to_do(both: Both) -> None:
    assert both.same("search", "zebra").err.startswith(f"No page found among {STORED} documents. Use fewer words")
    assert "Say what to search for" in both.near("search").refused(2)
    assert "--rebuild is for the index of this machine" in both.far("search", "--rebuild").refused(2)
    for ask in (both.near, both.far):
        assert "The query cannot be read" in ask("search", '"open').refused(2)
        assert "There is no job called 'absent'" in ask("search", "says", "--job", "absent").refused(4)
    assert both.near("search", "--rebuild").out.startswith(f"{STORED} documents in the index")


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_an_export_can_be_repeated(both: Both, suffix: str) -> None:
    for ask, name in ((both.near, "first"), (both.near, "second"), (both.far, "far")):
        assert ask("export", "documents", f"{name}{suffix}").out == f"{STORED} rows in {name}{suffix}.\n"
    first, second, far = (both.cli.folder / f"{name}{suffix}" for name in ("first", "second", "far"))
    assert first.read_bytes() == second.read_bytes() == far.read_bytes()


def test_an_export_is_what_loaders_of_texts_read(both: Both) -> None:
    both.near("export", "documents", "documents.jsonl")
    both.near("export", "documents", "documents.parquet")
    lines = [json.loads(line) for line in (both.cli.folder / "documents.jsonl").read_text("utf-8").splitlines()]
    assert [list(line) for line in lines] == [["id", "text", "markdown", "metadata", "headings"]] * STORED
    assert len({line["id"] for line in lines}) == STORED
    metadata = lines[0]["metadata"]
    assert {"url", "domain", "job", "title", "language", "extractor", "counted_pages", "fetched_at"} <= set(metadata)
    for line in lines:
        for heading in line["headings"]:
            assert line["text"][heading["text_offset"] :].startswith(heading["title"])
            assert line["markdown"][heading["markdown_offset"] :].lstrip("# ").startswith(heading["title"])
    rows = pq.read_table(both.cli.folder / "documents.parquet").to_pylist()
    assert [row["text"] for row in rows] == [line["text"] for line in lines]
    assert [row["metadata"] for row in rows] == [line["metadata"] for line in lines]
    assert [row["headings"] for row in rows] == [line["headings"] for line in lines]
    assert both.same("export", "documents", "-", "--domain", "example.com").out.isascii()


def test_an_export_that_cannot_be_written_is_refused(both: Both) -> None:
    for ask in (both.near, both.far):
        assert "must end in .jsonl, .csv or .parquet" in ask("export", "documents", "x.jsonl.gz").refused(2)
        assert ask("export", "documents", "no/x.jsonl").refused(2) == "There is no folder 'no' to write to."
        assert "A text is for pages only" in ask("export", "documents", "x.jsonl", "--text").refused(2)
