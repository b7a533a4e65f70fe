"""The program `holdfast`: its commands, the options of all of them, and how an invocation ends."""

import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from holdfast import __version__, cli
from holdfast.cli import output
from holdfast.cli.help import Overview
from holdfast.cli.session import INTERRUPTED, Session, Stopped, say
from holdfast.errors import HoldfastError, UsageError


class Part(NamedTuple):
    """A file of this package and the commands in it."""

    file: str
    commands: tuple[str, ...]


PARTS: Final = (
    Part("crawl", ("crawl", "worker")),
    Part("background", ("background", "serve", "front")),
    Part("seeds", ("seeds",)),
    Part("jobs", ("jobs",)),
    Part("tasks", ("tasks",)),
    Part("batches", ("batches",)),
    Part("products", ("products",)),
    Part("webhooks", ("webhooks",)),
    Part("proxies", ("proxies",)),
    Part("users", ("users",)),
    Part("keys", ("keys",)),
    Part(
        "domains",
        (
            "domain-status",
            "domain-info",
            "domain-set",
            "domain-reset",
            "domain-unblock",
            "top-domains",
            "recalculate-priorities",
            "domains",
        ),
    ),
    Part("claims", ("claims", "release-stuck-claims", "cleanup-stale-runs")),
    Part("status", ("status",)),
    Part("stats", ("stats",)),
    Part("alerts", ("alerts",)),
    Part("explain", ("explain",)),
    Part("export", ("export",)),
    Part("parse", ("parse",)),
    Part("verify", ("verify",)),
    Part("audit", ("audit",)),
    Part("torture", ("torture", "demo")),
    Part("db", ("db",)),
    Part("config", ("config",)),
)
"""All files with commands; an invocation loads only the one that it needs."""

TIERS: Final[Mapping[str, Mapping[str, str]]] = {
    "Every day": {
        "crawl": "Crawl a site; the same command again continues.",
        "status": "Jobs, workers, domains, pages/s, what is due next.",
        "jobs": "List, show, create, watch, pause, resume, delete.",
        "explain": "Why a URL was or was not crawled.",
        "export": "Write pages, URLs or the crawl log to a file.",
        "serve": "Run workers, background work and the API.",
        "demo": "A crawl, a kill -9 and its recovery, in a minute.",
    },
    "Data": {
        "seeds": "Add start URLs, or load a list of them.",
        "products": "Products that parsers found, and their prices.",
        "parse": "Run parsers again over archived pages.",
        "stats": "Pages and errors per minute, hour or day.",
    },
    "Domains": {
        "domains": "List, show, configure, unblock and reset domains.",
        "claims": "Which worker holds which domain.",
    },
    "Tasks, proxies, webhooks": {
        "tasks": "URLs to fetch and parse, once or again and again.",
        "batches": "Groups of tasks.",
        "proxies": "Proxies, their pools, health and cost.",
        "webhooks": "Messages that were sent; retries; the secret.",
    },
    "Operations": {
        "worker": "Run one worker process for all jobs.",
        "background": "Run schedules, parsing and webhooks only.",
        "verify": "Check that nothing is lost, doubled or miscounted.",
        "alerts": "Problems that need attention.",
        "users": "Users of the API: add, passwords, roles, sessions.",
        "keys": "API keys: add, list, revoke.",
        "audit": "Who changed what.",
        "config": "Settings in force, and where each comes from.",
        "db": "Database: schema, address, psql, stop.",
        "release-stuck-claims": "Free the claims of dead workers.",
        "cleanup-stale-runs": "Mark silent runs as failed.",
        "torture": "Kill a crawl again and again; prove that it is whole.",
    },
}
"""The commands of `holdfast --help`, everyday ones first, each with one short line."""

OTHER_NAMES: Final = {
    "domain-status": "status",
    "domain-info": "info",
    "domain-set": "set",
    "domain-reset": "reset",
    "domain-unblock": "unblock",
    "top-domains": "top",
    "recalculate-priorities": "priorities",
}
"""Commands that are also below `domains`, by their names there."""

FAR: Final = frozenset(
    {
        "claims",
        "config",
        "domain-info",
        "domain-reset",
        "domain-set",
        "domain-status",
        "domain-unblock",
        "domains",
        "explain",
        "export",
        "jobs",
        "products",
        "status",
        "tasks",
        "verify",
    }
)
"""The commands that may ask a server, all of them or some below them."""

_EVERYWHERE: Final = {"--data", "--config", "--server"}
_LOGIN: Final = re.compile(r":.*@")
"""What may be a password in something that was typed in the wrong place."""


_PLAIN: Final = {
    "Input should be greater than or equal to": "It must be at least",
    "Input should be less than or equal to": "It must be at most",
    "Input should be a valid integer.*": "It must be a whole number",
    "Input should be a valid number.*": "It must be a number",
}
"""What the library says of a wrong number, and the words for it."""


def in_front(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of the whole program, which people also write behind the command, and all other words."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _EVERYWHERE:
            front += [word, _value_of(word, words)]
        elif word.partition("=")[0] in _EVERYWHERE:
            front.append(word)
        else:
            rest.append(word)
    return front, rest


def _value_of(option: str, words: Iterator[str]) -> str:
    try:
        return next(words)
    except StopIteration:
        raise UsageError(f"{option} needs a value behind it.") from None


def _version(wanted: bool) -> None:
    if wanted:
        output.print_line(f"holdfast {__version__}")
        raise typer.Exit


def root(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of the crawl and its database (.holdfast)."),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings file (holdfast.toml, if it exists).")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Ask this server; needs HOLDFAST_API_KEY."),
    ] = None,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Options for every command; they may also stand behind it."""
    context.obj = Session(data, config_file, server)
    context.call_on_close(context.obj.close)
    command = context.invoked_subcommand
    if server is not None and command is not None and command not in FAR:
        context.obj.check_local(f"`holdfast {command}`")


class Program(Overview):
    """The root of all commands."""

    tiers = TIERS
    note = f"{', '.join(OTHER_NAMES)} are also named domains {', '.join(OTHER_NAMES.values())}."


def program(parts: Sequence[Part] = PARTS) -> typer.Typer:
    """The program with these parts."""
    app = typer.Typer(
        cls=Program,
        name="holdfast",
        help="A web crawler that never loses its place.",
        epilog=" ".join((cli.__doc__ or "").partition("\n\n")[2].split()),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(root)
    for part in parts:
        module = import_module(f"holdfast.cli.{part.file}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=part.file)
        else:
            module.register(app)
    return app


@cache
def _runnable(name: str) -> Any:
    """The program as Typer runs it. All parts together take half as long again to load as one: only what `name` needs is."""
    only = [part for part in PARTS if name in part.commands]
    return typer.main.get_command(program(only or PARTS))


def run(arguments: Sequence[str]) -> int:
    """Run one invocation; its exit code. Every expected failure ends with a sentence."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal lacks is no failure
    try:
        # Not Typer's standalone mode: it would end silently after Ctrl-C, and draw a box around what went wrong.
        front, rest = in_front(arguments)
        program = _runnable(rest[0] if rest else "")
        code = int(program.main(front + rest, prog_name="holdfast", standalone_mode=False) or 0)
    except Stopped:
        return INTERRUPTED
    except HoldfastError as problem:
        for line in str(problem).split("\n"):
            output.print_error(line)
        code = problem.exit_code
    except typer.TyperException as problem:
        _complain_of_usage(problem)
        code = 2
    if code == INTERRUPTED:
        if output.is_terminal(sys.stderr):
            say("")  # behind the ^C
        say("Interrupted; what was done so far is in the store.")
    return code


def _complain_of_usage(problem: typer.TyperException) -> None:
    sentence = re.sub(r"\s+", " ", problem.format_message().replace("Value error, ", "", 1)).strip()
    if not sentence:  # no command was named, and the help has been shown instead
        return
    context = getattr(problem, "ctx", None)
    hint = f" See `{context.command_path} --help`." if context else ""
    for pattern, words in _PLAIN.items():
        sentence = re.sub(pattern, words, sentence)
    sentence = _LOGIN.sub(":***@", sentence)
    output.print_error(f"{sentence}{'' if sentence[-1] in '.?!' else '.'}{hint}")
