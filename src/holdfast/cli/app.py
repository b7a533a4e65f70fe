"""The program `holdfast`: its commands, its global options, and the exit code of an invocation."""

import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from holdfast import __version__, cli
from holdfast.cli import output
from holdfast.cli.command_context import EXIT_INTERRUPTED, CommandContext, Interrupted, say
from holdfast.cli.help import SectionedGroup
from holdfast.errors import HoldfastError, UsageError


class CommandModule(NamedTuple):
    """A module with commands, and their names."""

    module: str
    commands: tuple[str, ...]


COMMAND_MODULES: Final = (
    CommandModule("holdfast.cli.crawl", ("crawl",)),
    CommandModule("holdfast.cli.worker", ("worker",)),
    CommandModule("holdfast.cli.serve", ("background", "serve", "front")),
    CommandModule("holdfast.cli.seeds", ("seeds",)),
    CommandModule("holdfast.jobs.cli.jobs", ("jobs",)),
    CommandModule("holdfast.pages.cli", ("pages",)),
    CommandModule("holdfast.documents.cli", ("show",)),
    CommandModule("holdfast.search.cli", ("search",)),
    CommandModule("holdfast.tasks.cli.tasks", ("tasks",)),
    CommandModule("holdfast.tasks.cli.batches", ("batches",)),
    CommandModule("holdfast.products.cli", ("products",)),
    CommandModule("holdfast.images.cli.images", ("images",)),
    CommandModule("holdfast.links.cli", ("links",)),
    CommandModule("holdfast.images.cli.gc", ("gc",)),
    CommandModule("holdfast.webhooks.cli", ("webhooks",)),
    CommandModule("holdfast.proxies.cli.proxies", ("proxies",)),
    CommandModule("holdfast.accounts.cli.users", ("users",)),
    CommandModule("holdfast.accounts.cli.keys", ("keys",)),
    CommandModule(
        "holdfast.domains.cli",
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
    CommandModule("holdfast.workers.cli", ("claims", "release-stuck-claims", "cleanup-stale-runs")),
    CommandModule("holdfast.stats.cli", ("status", "stats")),
    CommandModule("holdfast.alerts.cli", ("alerts",)),
    CommandModule("holdfast.storage.cli", ("storage",)),
    CommandModule("holdfast.retention.cli", ("retention", "archive")),
    CommandModule("holdfast.cli.explain", ("explain",)),
    CommandModule("holdfast.cli.export", ("export",)),
    CommandModule("holdfast.backups.cli.backup", ("backup",)),
    CommandModule("holdfast.backups.cli.restore", ("restore",)),
    CommandModule("holdfast.backfill.cli", ("backfill",)),
    CommandModule("holdfast.cli.parse", ("parse",)),
    CommandModule("holdfast.replay.cli", ("replay",)),
    CommandModule("holdfast.rebuild.cli", ("rebuild",)),
    CommandModule("holdfast.segments.cli", ("segments",)),
    CommandModule("holdfast.cli.verify", ("verify",)),
    CommandModule("holdfast.audit.cli", ("audit",)),
    CommandModule("holdfast.cli.torture", ("torture", "demo")),
    CommandModule("holdfast.cli.db", ("db",)),
    CommandModule("holdfast.cli.config", ("config",)),
)
"""All modules with commands; an invocation imports only the one that it needs."""

HELP_SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Every day": {
        "crawl": "Crawl a site; the same command again continues.",
        "status": "Jobs, workers, domains, pages/s, what is due next.",
        "jobs": "List, show, create, watch, compare, pause, delete.",
        "explain": "Why a URL was or was not crawled.",
        "export": "Write pages, images, URLs or the log to files.",
        "serve": "Run workers, background work and the API.",
        "demo": "A crawl, a kill -9 and its recovery, in a minute.",
    },
    "Data and domains": {
        "seeds": "Add start URLs, or load a list of them.",
        "backfill": "Import logs and pages of other tools.",
        "pages": "Versions of a page, and what changed on it.",
        "show": "The main content of a page, as Markdown.",
        "search": "Find pages by the words of their content.",
        "products": "Products that parsers found, and their prices.",
        "images": "Images that crawls stored.",
        "links": "Broken links, redirects, orphans; who links where.",
        "parse": "Run parsers again over archived pages.",
        "replay": "Fetch or parse pages again; those that were lost.",
        "stats": "Pages and errors per minute, hour or day.",
        "domains": "Status, settings, unblock and reset of domains.",
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
        "backup": "Make, list, verify backups; the restore drill.",
        "restore": "A store from a backup, as of any second.",
        "verify": "Check that nothing is lost, doubled or miscounted.",
        "alerts": "Problems that need attention.",
        "storage": "Disk space of database, archive and logs.",
        "retention": "What is kept how long; archive and delete the rest.",
        "archive": "What retention has archived: list, check, restore.",
        "segments": "Files of the archive, and which machine has them.",
        "rebuild": "Counters from the log; the search index.",
        "gc": "Delete files of images that nothing names.",
        "users": "Users of the API: add, passwords, roles, sessions.",
        "keys": "API keys: add, list, revoke.",
        "audit": "Log of changes: who changed what.",
        "config": "Settings in force, and where each comes from.",
        "db": "Database: schema, address, psql, stop, move.",
        "release-stuck-claims": "Free the claims of dead workers.",
        "cleanup-stale-runs": "Mark silent runs as failed.",
        "torture": "Kill a crawl again and again; check the result.",
    },
}
"""The sections of `holdfast --help`: commands with one short line each."""

ALIASES: Final = {
    "domain-status": "status",
    "domain-info": "info",
    "domain-set": "set",
    "domain-reset": "reset",
    "domain-unblock": "unblock",
    "top-domains": "top",
    "recalculate-priorities": "priorities",
}
"""Aliases of commands of the group `domains`, with their names there."""

REMOTE_COMMANDS: Final = frozenset(
    {
        "batches",
        "alerts",
        "archive",
        "audit",
        "backup",
        "claims",
        "cleanup-stale-runs",
        "config",
        "domain-info",
        "domain-reset",
        "domain-set",
        "domain-status",
        "domain-unblock",
        "domains",
        "explain",
        "export",
        "images",
        "jobs",
        "keys",
        "links",
        "pages",
        "products",
        "proxies",
        "rebuild",
        "recalculate-priorities",
        "release-stuck-claims",
        "replay",
        "retention",
        "search",
        "seeds",
        "segments",
        "show",
        "stats",
        "status",
        "storage",
        "tasks",
        "users",
        "verify",
        "webhooks",
    }
)
"""The commands that work with `--server`, wholly or in part."""

_GLOBAL_OPTIONS: Final = {"--data", "--config", "--server"}
_CREDENTIALS: Final = re.compile(r":.*@")
"""A possible password in a misplaced argument."""


_PLAIN_MESSAGES: Final = {
    "Input should be greater than or equal to": "It must be at least",
    "Input should be less than or equal to": "It must be at most",
    "Input should be a valid integer.*": "It must be a whole number",
    "Input should be a valid number.*": "It must be a number",
}
"""Messages of the library about a wrong number, and ours."""


def split_global_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off the global options, which may stand before or after the command, from all other words."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _GLOBAL_OPTIONS:
            front += [word, _option_value(word, words)]
        elif word.partition("=")[0] in _GLOBAL_OPTIONS:
            front.append(word)
        else:
            rest.append(word)
    return front, rest


def _option_value(option: str, words: Iterator[str]) -> str:
    try:
        return next(words)
    except StopIteration:
        raise UsageError(f"{option} needs a value.") from None


def _version(requested: bool) -> None:
    if requested:
        output.print_line(f"holdfast {__version__}")
        raise typer.Exit


def root(
    ctx: typer.Context,
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
    """Options of every command; they may also stand after it."""
    command = ctx.invoked_subcommand or ""
    ctx.obj = CommandContext(data, config_file, server, command)
    ctx.call_on_close(ctx.obj.close)
    if server is not None and command and command not in REMOTE_COMMANDS:
        ctx.obj.require_local()


class RootGroup(SectionedGroup):
    """The root group of Holdfast."""

    sections = HELP_SECTIONS
    note = f"{', '.join(ALIASES)}: also `domains {next(iter(ALIASES.values()))}` and so on."


def build_app(modules: Sequence[CommandModule] = COMMAND_MODULES) -> typer.Typer:
    """The program with the commands of these modules."""
    app = typer.Typer(
        cls=RootGroup,
        name="holdfast",
        help="A web crawler that never loses its place.",
        epilog=" ".join((cli.__doc__ or "").partition("\n\n")[2].split()),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(root)
    for entry in modules:
        module = import_module(entry.module)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=entry.commands[-1])
        else:
            module.register(app)
    return app


@cache
def _command_for(name: str) -> Any:
    """The command that Typer runs. Only the module of `name` is imported: all of them take half as long again to load."""
    needed = [module for module in COMMAND_MODULES if name in module.commands]
    return typer.main.get_command(build_app(needed or COMMAND_MODULES))


def run(arguments: Sequence[str], on_imported: Callable[[], None] = lambda: None) -> int:
    """Run one invocation; returns its exit code. Every expected failure prints one sentence. `on_imported` is called before the command
    runs, when its modules have been imported."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a character that the terminal lacks is replaced
    try:
        # Not Typer's standalone mode: it would end silently after Ctrl-C, and draw a box around errors.
        front, rest = split_global_options(arguments)
        command = _command_for(rest[0] if rest else "")
        on_imported()
        code = int(command.main(front + rest, prog_name="holdfast", standalone_mode=False) or 0)
    except Interrupted:
        return EXIT_INTERRUPTED
    except HoldfastError as problem:
        for line in str(problem).split("\n"):
            output.print_error(line)
        code = problem.exit_code
    except typer.TyperException as problem:
        _print_usage_error(problem)
        code = 2
    if code == EXIT_INTERRUPTED:
        if output.is_terminal(sys.stderr):
            say("")  # end the line of the ^C
        say("Interrupted; what was done so far is in the store.")
    return code


def _print_usage_error(problem: typer.TyperException) -> None:
    sentence = re.sub(r"\s+", " ", problem.format_message().replace("Value error, ", "", 1)).strip()
    if not sentence:  # no command was given; the help has been shown
        return
    ctx = getattr(problem, "ctx", None)
    hint = f" See `{ctx.command_path} --help`." if ctx else ""
    for pattern, words in _PLAIN_MESSAGES.items():
        sentence = re.sub(pattern, words, sentence)
    sentence = _CREDENTIALS.sub(":***@", sentence)
    output.print_error(f"{sentence}{'' if sentence[-1] in '.?!' else '.'}{hint}")
