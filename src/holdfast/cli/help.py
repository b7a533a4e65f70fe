"""How `--help` looks: prose that fills the line, examples as they are typed, no type behind a switch.

The rule: a command's docstring is its help. Indented lines in it are kept as they are; all others are prose.
"""

import re
from typing import Any, Final

from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperGroup

_INDENT: Final = "    "


def tidy(text: str) -> str:
    """A docstring as Rich markup: each paragraph of prose on one line, indented lines as they are."""
    first, *others = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join([escape(" ".join(first.split())), *map(_flow, others)])


def _flow(paragraph: str) -> str:
    lines = paragraph.splitlines()
    prose = " ".join(line for line in lines if not line.startswith(_INDENT))
    examples = [f"  {line.removeprefix(_INDENT)}" for line in lines if line.startswith(_INDENT)]
    # Tags around every line: Typer dims what follows the first paragraph, and takes away indentation that all lines share.
    return "\n".join(f"[not dim]{escape(line)}[/]" for line in [prose, *examples])


def _without_types(parameters: list[Any]) -> list[Any]:
    """A switch has no value, and that an argument is a <str> says nothing."""
    for parameter in parameters:
        if isinstance(parameter, TyperArgument) or parameter.is_flag:
            parameter.display_type_rich = lambda **_: None
    return parameters


def _usual(pieces: list[str]) -> list[str]:
    """FILE, not {FILE}, which in a usage line would mean a choice."""
    return [re.sub(r"\{(.*)\}", r"\1", piece) for piece in pieces]


class Command(TyperCommand):
    """A command whose help is its docstring."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = tidy(self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _usual(super().collect_usage_pieces(ctx))


class Group(TyperGroup):
    """A group of commands, likewise."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))
