"""Answers on the terminal: Rich tables for people, plain columns for pipes, JSON for programs.

The rule: what came from the web never reaches the terminal raw. Control characters are shown, not obeyed, and nothing is markup.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.settings.duration import render

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udfff]")
_STYLES: Final = {
    "pending": "cyan",
    "active": "green",
    "exhausted": "blue",
    "blocked": "red",
    "unreachable": "magenta",
}


def safe(text: object) -> str:
    """Text that cannot steer a terminal: control and direction characters are written as escapes."""
    return _CONTROL.sub(
        lambda found: f"\\u{ord(found[0]):04x}" if ord(found[0]) > 255 else f"\\x{ord(found[0]):02x}", str(text)
    )


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    json.dump(value, sys.stdout, default=_plain, indent=2, ensure_ascii=True)
    sys.stdout.write("\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Mapping[int, str] | None = None, *, right: str = ""
) -> None:
    """A table. `notes` are lines below rows, by their number; `right` names the columns that are aligned right."""
    notes = notes or {}
    cells = [[safe(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells, notes, right.split())
    else:
        _print_plain(columns, cells, notes, right.split())


def _print_rich(
    columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Mapping[int, str], right: Sequence[str]
) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        if number in notes:
            table.add_row(Text(f"  └─ {safe(notes[number])}", style="dim"))
    Console().print(table)


def _print_plain(
    columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Mapping[int, str], right: Sequence[str]
) -> None:
    widths = [max([len(column), *(len(row[i]) for row in rows)]) for i, column in enumerate(columns)]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(w) if column in right else cell.ljust(w)
            for cell, w, column in zip(row, widths, columns, strict=True)
        )
        return "  ".join(padded).rstrip()

    print_line(line(columns))
    print_line("─" * (sum(widths) + 2 * (len(widths) - 1)))
    for number, row in enumerate(rows):
        print_line(line(row))
        if number in notes:
            print_line(f"  └─ {safe(notes[number])}")


def print_line(text: str = "") -> None:
    """A line on standard output; characters that the output's encoding lacks are replaced, never an error."""
    encoding = sys.stdout.encoding or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding))


def when(moment: datetime | None) -> str:
    """A time for people, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M") if moment else "-"


def _plain(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return render(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)
