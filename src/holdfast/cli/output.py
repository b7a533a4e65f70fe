"""Answers on the terminal: tables for people, plain columns for pipes, JSON for programs.

The rule: what came from the web never reaches the terminal raw. Control characters are shown, not obeyed, and nothing is markup.
Answers go to standard output, everything else to standard error.
"""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Annotated, Any, Final, Self, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from holdfast.errors import HoldfastError
from holdfast.settings import render_duration

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]

# C0, C1, what is invisible or turns the direction of text, and halves of surrogate pairs.
_CONTROL: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_STYLES: Final = {
    "pending": "cyan",
    "active": "green",
    "exhausted": "blue",
    "blocked": "red",
    "unreachable": "magenta",
}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_GAP: Final = 2
_NARROWEST: Final = 12
"""Columns are not folded to less than that, however narrow the terminal."""


def safe(text: object) -> str:
    """Text that cannot steer a terminal: control and direction characters are written as escapes."""
    return _CONTROL.sub(
        lambda found: f"\\u{ord(found[0]):04x}" if ord(found[0]) > 255 else f"\\x{ord(found[0]):02x}", str(text)
    )


def when(moment: datetime | None) -> str:
    """A time for people, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M") if moment else "-"


def counted(number: int, thing: str) -> str:
    """`1 claim`, `2,000 claims`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    write(sys.stdout, chain(json.JSONEncoder(default=_plain, indent=2).iterencode(value), "\n"))


def print_json_line(value: object) -> None:
    """One JSON document on a line of standard output, for programs that read as it comes."""
    write(sys.stdout, (json.dumps(value, default=_plain), "\n"))


def print_line(text: str = "") -> None:
    """A line of an answer; whatever is not our own word in it went through `safe`."""
    write(sys.stdout, (text, "\n"))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Mapping[int, str] | None = None, *, right: str = ""
) -> None:
    """A table. `notes` are lines below rows, by their number; `right` names the columns that are aligned right."""
    cells = [[safe(cell) for cell in row] for row in rows]
    console = _terminal(sys.stdout)
    widths = _widths([columns, *cells], console.width if console else None)
    rights = [column in right.split() for column in columns]
    _print(sys.stdout, _lines(columns, cells, notes or {}, widths, rights))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """What is known about one thing, a line each."""
    _print(sys.stdout, (Text.assemble((f"{label:<16}", "bold"), safe(value)) for label, value in facts))


def print_error(sentence: str) -> None:
    """What went wrong, on standard error."""
    _print(sys.stderr, [Text.assemble(("Error:", "bold red"), " ", safe(sentence))])


class ProgressBar:
    """A bar where standard error is a terminal, nothing elsewhere or if it is `hidden`; gone when it is done."""

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

    def show(self, completed: int, so_far: int, total: int | None = None) -> None:
        """Move the bar to `completed`, and say how many units that are."""
        self._progress.update(self._task, completed=completed, total=total, so_far=counted(so_far, self._unit))


def write(stream: TextIO | None, pieces: Iterable[str]) -> None:
    """Write all of it now. A reader who has gone (head, less) is no failure: the rest goes nowhere, the work goes on."""
    if stream is None:  # closed by whoever started us
        return
    try:
        stream.writelines(pieces)
        stream.flush()
    except BrokenPipeError:
        _go_nowhere(stream)
    except OSError as problem:
        _go_nowhere(stream)
        raise HoldfastError(f"The answer cannot be written: {problem.strerror}.") from problem


def _go_nowhere(stream: TextIO) -> None:
    """What is still in the buffer would be tried again when Python ends, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sees it."""
    return stream is not None and stream.isatty()


def _terminal(stream: TextIO | None) -> Console | None:
    return Console(file=stream, highlight=False, markup=False, emoji=False) if is_terminal(stream) else None


def _print(stream: TextIO | None, lines: Iterable[Text]) -> None:
    console = _terminal(stream)
    if console is None:
        write(stream, (f"{line.plain.rstrip()}\n" for line in lines))
        return
    with console.capture() as captured:
        for line in lines:
            console.print(line, soft_wrap=True)
    write(stream, [captured.get()])


def _widths(rows: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """How wide each column is; the widest ones give way until all fit in `room`."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if room is not None:
        excess = sum(widths) + _GAP * (len(widths) - 1) - room
        while excess > 0 and max(widths) > _NARROWEST:
            widths[widths.index(max(widths))] -= 1
            excess -= 1
    return widths


def _lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Mapping[int, str],
    widths: Sequence[int],
    rights: Sequence[bool],
) -> Iterator[Text]:
    yield from _row([Text(column, "bold") for column in columns], widths, rights)
    yield Text("─" * (sum(widths) + _GAP * (len(widths) - 1)), "dim")
    for number, row in enumerate(rows):
        yield from _row([Text(cell, _STYLES.get(cell, "")) for cell in row], widths, rights)
        if number in notes:
            yield Text(f"  └─ {safe(notes[number])}", "dim")


def _row(cells: Sequence[Text], widths: Sequence[int], rights: Sequence[bool]) -> Iterator[Text]:
    """A row of a table; more than one line if a cell is wider than its column."""
    if all(cell.cell_len <= width for cell, width in zip(cells, widths, strict=True)):
        yield _line(cells, widths, rights)
        return
    console = Console()
    folded = [cell.wrap(console, width, overflow="fold") for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded))):
        yield _line([lines[number] if number < len(lines) else Text() for lines in folded], widths, rights)


def _line(cells: Sequence[Text], widths: Sequence[int], rights: Sequence[bool]) -> Text:
    line = Text()
    for number, (cell, width, right) in enumerate(zip(cells, widths, rights, strict=True)):
        pad = " " * (width - cell.cell_len)
        line.append(" " * _GAP if number else "")
        line.append(pad if right else "").append_text(cell).append("" if right else pad)
    line.rstrip()
    return line


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return render_duration(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)
