"""`holdfast rebuild`: what follows from the log and the pages, made anew: counters, the search index."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, CommandGroup
from holdfast.cli.output import pluralize, safe
from holdfast.rebuild.records import RebuiltCounters
from holdfast.rebuild.service import CounterRebuilder

if TYPE_CHECKING:
    from holdfast.cli.remote.replay import RemoteCounters

app = typer.Typer(cls=CommandGroup, no_args_is_help=True)


@app.callback()
def rebuild() -> None:
    """Make anew what follows from other rows: counters from the log and the frontier, the search index from the documents.

    Examples:
        holdfast rebuild counters --dry-run
        holdfast rebuild search
    """


@app.command("counters", cls=Command)
def counters(
    ctx: typer.Context,
    domain: Annotated[str | None, typer.Option("--domain", metavar="DOMAIN", help="Only of this domain.")] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long to wait for domains that workers hold.")
    ] = "0s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what differs; change nothing.")] = False,
    as_json: output.Json = False,
) -> None:
    """Count pages, errors and URLs of domains, jobs and runs again, from the log, its roll-ups and the frontier.

    Only counters that differ are changed, and each is named. Workers may run meanwhile: domains that they hold are left alone, and
    named. `holdfast verify` says whether any counter differs.

    Examples:
        holdfast rebuild counters --dry-run
        holdfast rebuild counters --domain shop.example --json
        holdfast rebuild counters --wait 1m
    """
    patience = timedelta(0) if wait == "0s" else option_types.parse_duration("--wait", wait)
    rebuilder = _counters(command_context.get(ctx))
    with output.ProgressBar("Counting", None, "domain") as bar:
        found = rebuilder.run(
            domain=domain, dry_run=dry_run, wait=patience, actor=actor(), watch=lambda seen: bar.show(seen, seen)
        )
    if as_json:
        output.print_json(found)
    else:
        _print(found)
    if found.held:
        raise typer.Exit(1)


@app.command("search", cls=Command)
def search(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Build the search index of this machine anew, from the documents in the database. `holdfast search --rebuild` does the same.

    Examples:
        holdfast rebuild search
        holdfast rebuild search --json
    """
    context = command_context.get(ctx)
    context.require_local(
        "`holdfast rebuild search`", "each machine has an index of its own. Run it on the machine whose index it is."
    )
    service = factories.search_service(context.settings, context.store())
    with output.ProgressBar("Indexing", None, "document") as bar:
        count = service.rebuild(lambda read: bar.show(read, read))
    if as_json:
        output.print_json({"documents": count})
    else:
        output.print_line(f"{pluralize(count, 'document')} in the index of this machine.")


def _counters(context: command_context.CommandContext) -> "CounterRebuilder | RemoteCounters":
    if context.remote:
        from holdfast.cli.remote.replay import RemoteCounters

        return RemoteCounters(context.client)
    return CounterRebuilder(context.store(), context.settings.domains.registrable)


def _print(found: RebuiltCounters) -> None:
    if found.changes:
        rows = [(one.table, safe(one.name), one.counter, f"{one.before:,}", f"{one.after:,}") for one in found.changes]
        columns = ["TABLE", "OF", "COUNTER", "WAS", "WOULD BE" if found.dry_run else "IS"]
        output.print_table(columns, rows, right=" ".join(columns[3:4]))
    if found.changed > len(found.changes):
        output.print_line(f"… and {found.changed - len(found.changes):,} more")
    one = found.changed == 1
    verb = ("differs" if one else "differ") if found.dry_run else ("was corrected" if one else "were corrected")
    output.print_line(
        f"{pluralize(found.changed, 'counter')} {verb}; {pluralize(found.domains, 'domain')} and {pluralize(found.runs, 'run')} counted."
    )
    if found.held:
        command_context.say(
            f"{pluralize(len(found.held), 'domain')} that differ{'s' if len(found.held) == 1 else ''} are held by workers and were left "
            f"alone: {safe(', '.join(found.held[:5]))}; --wait waits for them."
        )
