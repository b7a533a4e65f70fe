"""Output of commands: coloured tables on a terminal, plain columns in a pipe, JSON for programs.

The rule: text from the web never reaches the terminal raw. Control characters are escaped, and nothing is interpreted as markup.
Results go to standard output, everything else to standard error.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Annotated, Final, Self, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from holdfast.errors import HoldfastError
from holdfast.model.json_values import json_default
from holdfast.settings import render_duration
from holdfast.telemetry.disk_space import in_bytes

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

# C0, C1, invisible characters, direction marks, and halves of surrogate pairs.
_CONTROL_CHARACTERS: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_STATUS_STYLES: Final = {
    "pending": "cyan",
    "active": "green",
    "exhausted": "blue",
    "blocked": "red",
    "unreachable": "magenta",
}
_COLUMN_GAP: Final = 2
_MIN_COLUMN_WIDTH: Final = 12
"""Columns of text to which a table column may shrink on a narrow terminal."""


def safe(text: object) -> str:
    """Text with control and direction characters escaped, so that it cannot control a terminal."""
    return _CONTROL_CHARACTERS.sub(
        lambda found: f"\\u{ord(found[0]):04x}" if ord(found[0]) > 255 else f"\\x{ord(found[0]):02x}", str(text)
    )


def format_time(moment: datetime | None) -> str:
    """The time in UTC to the minute; - for None."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M") if moment else "-"


def format_second(moment: datetime | None) -> str:
    """The time in UTC to the second; - for None."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if moment else "-"


def pluralize(number: int, thing: str) -> str:
    """`1 claim`, `2,000 claims`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_bytes(count: float) -> str:
    """A number of bytes with its unit, in powers of 1000."""
    return in_bytes(count)


def print_json(value: object) -> None:
    """Print one JSON document to standard output."""
    write(sys.stdout, chain(json.JSONEncoder(default=_to_json, indent=2).iterencode(value), "\n"))


def print_json_line(value: object) -> None:
    """Print one JSON document on one line, for programs that read a stream."""
    write(sys.stdout, (json.dumps(value, default=_to_json), "\n"))


def print_line(text: str = "") -> None:
    """Print a line of the result. Before: foreign text in it went through `safe`."""
    write(sys.stdout, (text, "\n"))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Mapping[int, str] | None = None, *, right: str = ""
) -> None:
    """Print a table. `notes` are lines below rows, by row index; `right` names the right-aligned columns, separated by spaces."""
    cells = [[safe(cell) for cell in row] for row in rows]
    console = _console_for(sys.stdout)
    widths = _column_widths([columns, *cells], console.width if console else None)
    rights = [column in right.split() for column in columns]
    _print_lines(sys.stdout, _table_lines(columns, cells, notes or {}, widths, rights))


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print labels with a value each, a line each."""
    _print_lines(sys.stdout, (Text.assemble((f"{label:<16}", "bold"), safe(value)) for label, value in fields))


def print_error(sentence: str) -> None:
    """Print an error message to standard error."""
    with suppress(HoldfastError):  # where nothing can be written, the exit code says it
        _print_lines(sys.stderr, [Text.assemble(("Error:", "bold red"), " ", safe(sentence))])


def print_marked(pieces: Iterable[tuple[str, bool]], indent: str = "") -> None:
    """Print a foreign text on one line, white space collapsed, its marked pieces bold on a terminal."""
    line = Text(indent)
    for piece, marked in pieces:
        words = safe(re.sub(r"\s+", " ", piece))
        line.append(words.lstrip(" ") if line.plain[-1:] in ("", " ") else words, "bold" if marked else "")
    _print_lines(sys.stdout, [line])


def print_text(text: str) -> None:
    """Print a foreign text of several lines: as it is into a file or a pipe, without anything that a terminal would obey on one."""
    write(sys.stdout, (_safe_lines(text) if is_terminal(sys.stdout) else text, "\n"))


def print_markdown(text: str) -> None:
    """Print foreign Markdown, formatted for a terminal."""
    console = _console_for(sys.stdout)
    if console is None:
        print_text(text)
        return
    from rich.markdown import Markdown

    console.print(Markdown(_safe_lines(text), hyperlinks=False))


def _safe_lines(text: str) -> str:
    return "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))


class ProgressBar:
    """A progress bar on standard error, erased at its end. Shows nothing if `hidden`, or if standard error is no terminal."""

    def __init__(self, what: str, total: int | None, unit: str, *, hidden: bool = False) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[so_far]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(
            *columns, console=console, transient=True, disable=hidden or not is_terminal(sys.stderr)
        )
        self._task = self._progress.add_task(what, total=total, so_far="")
        self._unit = unit

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Erase the bar until the end of the block, as for a question."""
        self._progress.stop()
        yield
        self._progress.start()

    def show(self, completed: int, so_far: int, total: int | None = None) -> None:
        """Move the bar to `completed` of `total`, and show `so_far` units."""
        self._progress.update(self._task, completed=completed, total=total, so_far=pluralize(so_far, self._unit))

    def step(self, what: str, so_far: str) -> None:
        """Show another step of the work, without an end that is known."""
        self._progress.update(self._task, description=safe(what), total=None, so_far=so_far)


def write(stream: TextIO | None, pieces: Iterable[str]) -> None:
    """Write and flush. A reader that has closed the pipe (head, less) is no failure: the rest is discarded, the command goes on."""
    if stream is None:  # closed by the parent process
        return
    try:
        stream.writelines(pieces)
        stream.flush()
    except BrokenPipeError:
        _discard_rest(stream)
    except OSError as problem:
        _discard_rest(stream)
        raise HoldfastError(f"The answer cannot be written: {problem.strerror}.") from problem


def write_remark(pieces: Iterable[str]) -> None:
    """Write to standard error. What cannot be written (a log on a full disk) is dropped: no command stops for a remark."""
    if sys.stderr is None:  # closed by the parent process
        return
    try:
        sys.stderr.writelines(pieces)
        sys.stderr.flush()
    except BrokenPipeError:
        _discard_rest(sys.stderr)
    except OSError:
        pass


def end_remarks() -> None:
    """Drop what standard error did not take: Python would try again at exit, and turn the exit code into 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _discard_rest(sys.stderr)


def _discard_rest(stream: TextIO) -> None:
    """Redirect the stream to /dev/null: Python would flush its buffer again at exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal."""
    return stream is not None and stream.isatty()


def _console_for(stream: TextIO | None) -> Console | None:
    return Console(file=stream, highlight=False, markup=False, emoji=False) if is_terminal(stream) else None


def _print_lines(stream: TextIO | None, lines: Iterable[Text]) -> None:
    console = _console_for(stream)
    if console is None:
        write(stream, (f"{line.plain.rstrip()}\n" for line in lines))
        return
    with console.capture() as captured:
        for line in lines:
            console.print(line, soft_wrap=True)
    write(stream, [captured.get()])


def _column_widths(rows: Sequence[Sequence[str]], available: int | None) -> list[int]:
    """The width of each column; the widest columns shrink until all fit in `available` columns of text."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if available is not None:
        excess = sum(widths) + _COLUMN_GAP * (len(widths) - 1) - available
        while excess > 0 and max(widths) > _MIN_COLUMN_WIDTH:
            widths[widths.index(max(widths))] -= 1
            excess -= 1
    return widths


def _table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Mapping[int, str],
    widths: Sequence[int],
    rights: Sequence[bool],
) -> Iterator[Text]:
    yield from _row_lines([Text(column, "bold") for column in columns], widths, rights)
    yield Text("─" * (sum(widths) + _COLUMN_GAP * (len(widths) - 1)), "dim")
    for number, row in enumerate(rows):
        yield from _row_lines([Text(cell, _STATUS_STYLES.get(cell, "")) for cell in row], widths, rights)
        if number in notes:
            yield Text(f"  └─ {safe(notes[number])}", "dim")


def _row_lines(cells: Sequence[Text], widths: Sequence[int], rights: Sequence[bool]) -> Iterator[Text]:
    """The lines of a row: more than one if a cell is wider than its column."""
    if all(cell.cell_len <= width for cell, width in zip(cells, widths, strict=True)):
        yield _join_cells(cells, widths, rights)
        return
    console = Console()
    folded = [cell.wrap(console, width, overflow="fold") for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded))):
        yield _join_cells([lines[number] if number < len(lines) else Text() for lines in folded], widths, rights)


def _join_cells(cells: Sequence[Text], widths: Sequence[int], rights: Sequence[bool]) -> Text:
    line = Text()
    for number, (cell, width, right) in enumerate(zip(cells, widths, rights, strict=True)):
        pad = " " * (width - cell.cell_len)
        line.append(" " * _COLUMN_GAP if number else "")
        line.append(pad if right else "").append_text(cell).append("" if right else pad)
    line.rstrip()
    return line


def _to_json(value: object) -> object:
    return render_duration(value) if isinstance(value, timedelta) else json_default(value)
