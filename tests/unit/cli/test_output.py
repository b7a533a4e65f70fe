"""Answers: tables, JSON and sentences as people and programs get them, and nothing that could steer a terminal."""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from holdfast.cli import output
from holdfast.cli.help import format_docstring
from holdfast.errors import HoldfastError

COLUMNS = ["DOMAIN", "STATUS", "PAGES", "YIELD"]
ROWS: list[tuple[object, ...]] = [
    ("unsplash.com", "active", "450/2100", 7.1),
    ("example-login.com", "blocked", "3/3", "-"),
]
PLAIN = """\
DOMAIN             STATUS      PAGES  YIELD
───────────────────────────────────────────
unsplash.com       active   450/2100    7.1
example-login.com  blocked       3/3      -
  └─ reason: login_required
"""


_COMMANDS = (
    "\x1b[2J", "\x1b]8;;http://x.example\x07", "\x9b2J", "&#27;[2J", "&#x9b;", "&zwnj;", "\u202e", "\r", "[x](&#27;]0;t)", "<&#27;:x>",
    "```\x1b", "# \x1b", "![\x1b](x)", "| \x1b |\n| - |", "[a]: \x1b\n\n[a]", "<b>&#155;</b>",
)  # fmt: skip


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What a person reads: without colours."""
        return [line.plain for line in Text.from_ansi(self.getvalue()).split("\n")]


def _watch(monkeypatch: pytest.MonkeyPatch, stream: str = "stdout", width: int = 80) -> Screen:
    """From now on, the stream is a terminal of that width. (No fixture: pytest sets the streams anew for each test.)"""
    screen = Screen()
    monkeypatch.setattr(sys, stream, screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return screen


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, größer, 日本", "plain text, größer, 日本"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("two\r\nlines\tand\x0b", "two\\x0d\\x0alines\\x09and\\x0b"),
        ("\x00\x7f\x80\x9b", "\\x00\\x7f\\x80\\x9b"),
        ("com.elpmaxe\u202e \u2066x\u2069 \u200bz\u200f", "com.elpmaxe\\u202e \\u2066x\\u2069 \\u200bz\\u200f"),
        ("\ufeffsoft\xadhyphen\u2028", "\\ufeffsoft\\xadhyphen\\u2028"),
        ("\udcff", "\\udcff"),
        ("[bold]not markup[/bold] :smile:", "[bold]not markup[/bold] :smile:"),
        (None, "None"),
        (42, "42"),
    ],
)
def test_what_is_safe_to_show(text: object, shown: str) -> None:
    assert output.safe(text) == shown


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 claims"), (1, "1 claim"), (2, "2 claims"), (1_000_000, "1,000,000 claims")]
)
def test_counted(number: int, words: str) -> None:
    assert output.pluralize(number, "claim") == words


def test_times_are_shown_in_utc() -> None:
    assert (
        output.format_time(datetime(2026, 2, 5, 1, 30, 59, tzinfo=timezone(timedelta(hours=2)))) == "2026-02-04 23:30"
    )
    assert output.format_time(None) == "-"


def test_a_table_in_a_pipe_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, ROWS, {1: "reason: login_required"}, right="PAGES YIELD")
    assert capsys.readouterr().out == PLAIN


def test_a_table_on_a_terminal_is_the_same_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _watch(monkeypatch)
    output.print_table(COLUMNS, ROWS, {1: "reason: login_required"}, right="PAGES YIELD")
    assert screen.lines == PLAIN.splitlines()
    assert "\x1b[32mactive\x1b[0m" in screen.getvalue()
    assert "\x1b[31mblocked\x1b[0m" in screen.getvalue()


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _watch(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(COLUMNS, ROWS)
    assert "active" in screen.getvalue()
    assert "\x1b[3" not in screen.getvalue()


def test_nothing_in_a_cell_or_note_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _watch(monkeypatch)
    output.print_table(["A"], [["\x1b[2J[red]x"]], {0: "\x1b]0;evil\x07"})
    output.print_fields([("Name", "\x1b[2J")])
    assert screen.lines == ["A", "─" * 13, "\\x1b[2J[red]x", "  └─ \\x1b]0;evil\\x07", "Name            \\x1b[2J"]
    assert "\x1b[2J" not in screen.getvalue()
    assert "\x07" not in screen.getvalue()


@pytest.mark.parametrize("width", [40, 60, 79, 80, 81, 200])
def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    screen = _watch(monkeypatch, width=width)
    names = [f"{'q' * 70}.example", "日本" * 20, "short"]
    output.print_table(
        ["DOMAIN", "N", "WHY"], [(name, "12345", "one two three four five") for name in names], right="N"
    )
    lines = screen.lines
    assert max(map(cell_len, lines)) <= width
    assert all("12345" not in line or line.split("12345")[0].endswith("  ") for line in lines)
    letters = "".join(lines)
    assert [letters.count("q"), letters.count("日"), letters.count("three")] == [70, 20, 3]


def test_a_table_is_not_folded_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output.print_table(["DOMAIN"], [["x" * 500]])
    assert capsys.readouterr().out.splitlines()[2] == "x" * 500


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["DOMAIN", "STATUS"], [])
    assert capsys.readouterr().out == "DOMAIN  STATUS\n──────────────\n"


def test_json_has_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass
    class Thing:
        at: datetime
        takes: timedelta

    moment = datetime(2026, 2, 5, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    output.print_json({"things": [Thing(moment, timedelta(hours=1))], "path": Path("/a"), "text": "\x1bé"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.endswith("}\n")
    assert json.loads(out) == {
        "things": [{"at": "2026-02-04T23:30:00Z", "takes": "1h"}],
        "path": "/a",
        "text": "\x1bé",
    }


def test_an_error_is_red_on_a_terminal_and_plain_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.print_error("No such \x1b thing.")
    screen = _watch(monkeypatch, "stderr")
    output.print_error("No such thing.")
    assert capsys.readouterr().err == "Error: No such \\x1b thing.\n"
    assert screen.getvalue() == "\x1b[1;31mError:\x1b[0m No such thing.\n"


def test_a_bar_is_shown_on_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*, hidden: bool = False) -> None:
        with output.ProgressBar("Loading", 10, "line", hidden=hidden) as bar:
            bar.show(5, 1)

    load()
    screen = _watch(monkeypatch, "stderr")
    load(hidden=True)
    assert (capsys.readouterr().err, screen.getvalue()) == ("", "")
    load()
    assert "Loading" in screen.getvalue()
    assert "1 line" in screen.getvalue()


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield reading, stream


def test_a_reader_who_has_gone_is_no_failure(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reading, stream = pipe
    os.close(reading)
    output.write(stream, ["first\n"] * 100_000)
    output.write(stream, ["more\n"])
    assert os.fstat(stream.fileno()).st_rdev == Path(os.devnull).stat().st_rdev, "the rest goes nowhere"


def test_an_answer_that_cannot_be_written_is_a_failure() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as stream:  # noqa: SIM117 — the end of the file's block must not fail
        with pytest.raises(HoldfastError, match=r"^The answer cannot be written: No space left on device\.$"):
            output.write(stream, ["first\n"])


def test_a_stream_that_was_closed_before_us_is_left_alone() -> None:
    output.write(None, ["nobody listens\n"])
    assert not output.is_terminal(None)


def test_help_is_the_docstring_with_its_prose_joined_and_its_examples_kept() -> None:
    text = """Do it: now.

Prose that
goes on [optional].

Examples:
    holdfast do
    holdfast do --again"""
    shown = Text.from_markup(format_docstring(text)).plain
    assert shown == ("Do it: now.\n\nProse that goes on [optional].\n\nExamples:\n  holdfast do\n  holdfast do --again")


@given(st.lists(st.sampled_from(_COMMANDS) | st.text(max_size=20), max_size=6).map("".join))
def test_foreign_markdown_commands_no_terminal(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        screen = _watch(patch)
        output.print_markdown(text)
        output.print_text(text)
        output.print_marked([(text, False), (text, True)])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())  # colours are ours
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)


def test_marked_pieces_are_bold_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = [("an \n annual", False), (" report", True), (" of \x1b[2J", False)]
    output.print_marked(pieces, indent="  ")
    assert capsys.readouterr().out == "  an annual report of \\x1b[2J\n"
    screen = _watch(monkeypatch)
    output.print_marked(pieces)
    assert screen.getvalue() == "an annual\x1b[1m report\x1b[0m of \\x1b[2J\n"
