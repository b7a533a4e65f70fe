"""The layout of `--help`: commands in sections, wrapped prose, examples as they are typed, number ranges in words.

The rule: the docstring of a command is its help. Indented lines are kept as they are; all others are prose.
"""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, ClassVar, Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup

_INDENT: Final = "    "
_ID_METAVARS: Final = {"ID", "TASK", "PRODUCT"}
"""Metavars of ids: their range is not shown."""
_OPTION_GROUPS: Final = {
    "What to crawl": (
        "seeds",
        "job",
        "again",
        "refresh",
        "sitemaps",
        "types",
        "scope",
        "include",
        "exclude",
        "strip_param",
        "schedule",
    ),
    "Limits": ("max_pages", "max_pages_per_domain", "rounds", "max_depth"),
    "Pace": ("delay", "concurrency", "workers"),
    "Requests": ("allow_private", "no_robots", "header", "cookie", "basic_auth", "user_agent"),
    "Results": ("no_archive", "text", "markdown", "images", "links", "check_external", "parser", "items_file"),
    "Output": ("dry_run", "verbose", "quiet", "as_json", "help"),
}
"""The help panels of a command with many options, and the options in each."""
_GROUP_FROM: Final = 12
"""A command with more options than this has its options in panels."""
_COMPLETION_OPTIONS: Final = {"install_completion", "show_completion"}
_NO_MAXIMUM: Final = 2**31


def format_docstring(text: str) -> str:
    """A docstring as Rich markup: each paragraph of prose on one line, indented lines as they are."""
    first, *others = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join([escape(" ".join(first.split())), *map(_format_paragraph, others)])


def _format_paragraph(paragraph: str) -> str:
    lines = paragraph.splitlines()
    prose = " ".join(line for line in lines if not line.startswith(_INDENT))
    examples = [f"  {line.removeprefix(_INDENT)}" for line in lines if line.startswith(_INDENT)]
    # Tags around every line: Typer dims everything after the first paragraph, and strips common indentation.
    return "\n".join(f"[not dim]{escape(line)}[/]" for line in [prose, *examples])


def _hide_types(parameters: list[Any]) -> list[Any]:
    """Hide the types of flags and arguments."""
    for parameter in parameters:
        if isinstance(parameter, TyperArgument) or parameter.is_flag:
            parameter.display_type_rich = lambda **_: None
    return parameters


def group_options(parameters: list[Any]) -> list[Any]:
    """Assign options to panels if there are many; the others stay in the panel `Options`."""
    options = [
        parameter for parameter in parameters if not isinstance(parameter, TyperArgument) and not parameter.hidden
    ]
    for panel, names in _OPTION_GROUPS.items() if len(options) > _GROUP_FROM else ():
        for option in options:
            if option.name in names:
                option.rich_help_panel = panel
    return parameters


def _describe_ranges(parameters: list[Any]) -> None:
    """Show `N` and "1 or more" instead of `<int range> [x>=1]`, and the choices of a list without its type."""
    for parameter in parameters:
        words = describe_range(parameter.min, parameter.max)
        if words and parameter.metavar not in _ID_METAVARS and not _mentions_range(parameter.help or "", parameter):
            parameter.help = f"{parameter.help or ''} [dim]\\[{words}][/dim]".strip()
        parameter.min = parameter.max = None  # only displayed; the type checks the value
        shown = None if parameter.metavar else str(parameter.display_type_rich(ctx=None))
        if shown and re.match("<(int|float)", shown):
            parameter.metavar = "N"
        elif shown and (choices := re.fullmatch(r"<list\[(.*\|.*)\]>", shown)):
            parameter.metavar = f"<{choices[1]}>"


def describe_range(minimum: float | None, maximum: float | None) -> str:
    """The allowed numbers in words; empty if all are allowed."""
    low = "" if minimum is None else f"{minimum:,}"
    if maximum is None or maximum >= _NO_MAXIMUM:
        return f"{low} or more" if low else ""
    return f"{low} to {maximum:,}" if low else f"up to {maximum:,}"


def _mentions_range(text: str, parameter: Any) -> bool:
    """Whether the help text already names both ends of the range."""
    ends = (parameter.min, parameter.max)
    return all(end is not None and re.search(rf"\b{end}\b", text) for end in ends)


def _without_braces(pieces: list[str]) -> list[str]:
    """FILE instead of {FILE}, which in a usage line would mean a choice."""
    return [re.sub(r"\{(.*)\}", r"\1", piece) for piece in pieces]


class Command(TyperCommand):
    """A command whose help is its docstring."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = format_docstring(self.help or "")
        _describe_ranges(self.params)

    def get_params(self, ctx: Any) -> list[Any]:
        return group_options(_hide_types(super().get_params(ctx)))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _without_braces(super().collect_usage_pieces(ctx))


class Group(TyperGroup):
    """A group of commands whose arguments are shown without types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types(super().get_params(ctx))


class CommandGroup(Group):
    """A group that is a command, too: its help is the docstring of its callback."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = format_docstring(self.help or "")
        _describe_ranges(self.params)


class SectionedGroup(Group):
    """The root group: its help shows the commands in sections, a short line each, then the global options."""

    sections: ClassVar[Mapping[str, Mapping[str, str]]]
    note: ClassVar[str]
    """A sentence about commands that are in no section."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 — the signature of the library
        """Print the help."""
        console = Console(highlight=False)
        console.print(Padding(Text(f"Usage: {ctx.command_path} COMMAND …", style="bold"), (1, 1)))
        console.print(Padding(Text(self.help or ""), (0, 1, 1, 1)))
        width = max(map(len, chain.from_iterable(self.sections.values())))
        for title, commands in self.sections.items():
            shown = [(name, line) for name, line in commands.items() if name in self.commands]
            console.print(_panel(title, shown, width))
        options = [option for option in self.get_params(ctx) if option.name not in _COMPLETION_OPTIONS]
        records = [record for option in options if (record := option.get_help_record(ctx))]
        console.print(_panel("Options, before or after the command", records, width))
        hint = "`COMMAND --help` has examples; `--install-completion` completes commands."
        for text in (f"{hint} {self.note}".rstrip(), self.epilog or ""):
            console.print(Padding(Text(text), (1, 1, 0, 1)))


def _panel(title: str, rows: list[tuple[str, str]], width: int) -> Panel:
    """A box of names with a text each."""
    table = Table(box=None, show_header=False, expand=True, pad_edge=False, padding=(0, 1))
    table.add_column(style="bold cyan", no_wrap=True, width=width)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    return Panel(table, title=title, title_align="left", border_style="dim")
