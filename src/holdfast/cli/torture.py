"""`holdfast torture` and `holdfast demo`: see for yourself. What they do is in `cli/ordeals`, loaded when it is wanted."""

from typing import Annotated

import typer

from holdfast.cli import output, session
from holdfast.cli.help import Command


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("torture", cls=Command)(torture)
    app.command("demo", cls=Command)(demo)


def torture(
    context: typer.Context,
    kills: Annotated[int, typer.Option(min=1, max=1000, help="How many faults strike.")] = 10,
    pages: Annotated[int, typer.Option(min=50, max=100_000, help="Pages of the web that is made up for it.")] = 1000,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Worker processes; with one, it is always killed.")] = 2,
    seed: Annotated[int, typer.Option(help="Another seed is another web and other moments.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data folders, to look at them.")] = False,
    as_json: output.Json = False,
) -> None:
    """Kill a crawl again and again, and prove that nothing was lost or doubled. Exit code 1 if something was.

    A web is made up and served on this machine; nothing leaves it, and your own data is not touched. It is crawled once
    in peace and once under faults: kill -9 of everything, of single workers, workers frozen past their lease. Then both
    must have ended with the same pages, the store must be whole after every fault, and the sites' own access log must
    show that every page was asked for and politeness kept.

    Examples:
        holdfast torture
        holdfast torture --kills 50 --workers 4 --seed 7
    """
    from holdfast.cli import ordeals

    folder = session.of(context).data
    ordeals.torture(
        *(seed, pages, workers, kills), None if folder is None else folder / "torture", keep=keep, as_json=as_json
    )


def demo() -> None:
    """See a crawl, a kill -9, the recovery and the proof, in under a minute and without internet.

    Examples:
        holdfast demo
    """
    from holdfast.cli import ordeals

    ordeals.demo()
