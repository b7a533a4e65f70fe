"""`holdfast parse`: parse stored pages that wait for their parser, or all again, from the archive; list the parsers."""

import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize, safe
from holdfast.errors import UsageError
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.control.parsers import ChosenParser
    from holdfast.control.reparsing import ReparseReport
    from holdfast.parse.plugin_pool import ParserInfo, PluginPool
    from holdfast.parse.plugin_registry import ParserSource, UnusableParser

_MAX_EXAMPLES: Final = 1000


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("parse", cls=Command)(parse)


def parse(
    ctx: typer.Context,
    again: Annotated[bool, typer.Option("--again", help="Parse pages again that were parsed before.")] = False,
    parsers: Annotated[bool, typer.Option("--parsers", help="List the parsers that there are.")] = False,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only pages that this job crawled."),
    ] = None,
    domain: Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only of this domain.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Fetched then or later; or how long ago: 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Fetched before then; or how long ago.")] = None,
    parser: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only what this parser parsed."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="NAME",
            callback=command_context.valid_text,
            help="Parse crawled pages by this parser, or the Python file at this path, also for the first time.",
        ),
    ] = None,
    below: Annotated[
        str | None,
        typer.Option(metavar="VERSION", callback=command_context.valid_text, help="Only what an older version parsed."),
    ] = None,
    after: Annotated[int, typer.Option(metavar="TASK", min=0, help="Continue after this task.")] = 0,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N pages.")] = None,
    examples: Annotated[
        int, typer.Option(metavar="N", min=0, max=_MAX_EXAMPLES, help="Pages that are shown, of those that differ.")
    ] = 10,
    apply: Annotated[bool, typer.Option("--apply", help="Keep what is found now.")] = False,
    as_json: output.Json = False,
) -> None:
    """Parse pages of crawls that wait for their parser, from the archive of this machine and what others have uploaded.

    With --again: parse pages of crawls and of completed tasks again, by the parsers that they are for now, and show what
    differs. Nothing is changed unless --apply is said. Then what is found now takes the place of what was found before, wherever the
    parse succeeds; where it fails the old result stays, and the exit code is 1. Prices keep the time of their fetch.

    Examples:
        holdfast parse
        holdfast parse --parsers
        holdfast parse --again --job shop --with ./shop.py --apply
        holdfast parse --again --domain shop.example --since 30d
        holdfast parse --again --parser product --below 2 --apply
    """
    for_again = bool(apply or after) or any(one is not None for one in (since, until, parser, by, below, limit))
    if not again:
        _check_without_again(parsers=parsers, for_again=for_again, filtered=job is not None or domain is not None)
        if parsers:
            _list_parsers(command_context.get(ctx), as_json)
        else:
            _parse_due(command_context.get(ctx), job, domain, as_json)
        return
    if parsers:
        raise UsageError("Say what to do: --again parses pages again, --parsers lists the parsers.")
    # Imported here: every command would wait for them.
    from holdfast.control.reparsing import PageReparser, ReparseReport, Selection, TaskReparser

    selection = Selection(
        domain=domain,
        since=None if since is None else option_types.parse_time_or_age("--since", since),
        until=None if until is None else option_types.parse_time_or_age("--until", until),
        parser=parser,
        below=below,
        after=after,
        limit=limit,
        job=job,
    )
    selection.check()
    context = command_context.get(ctx)
    chosen = _choose_parser(context.settings, by)
    selection = replace(selection, use_parser=None if chosen is None else chosen.name)
    database, settings = context.store(), context.settings
    report = ReparseReport(apply, after, examples)

    async def run(bar: output.ProgressBar) -> None:
        def on_progress(now: ReparseReport) -> None:
            done = now.parsed + now.failed + now.taken
            bar.show(done, done, limit)

        pool = _pool(settings, None if chosen is None else chosen.file)
        registrable = settings.domains.registrable
        try:
            archive = factories.archive_reader(settings, database)
            if selection.includes_tasks:
                await TaskReparser(database, pool, archive, actor(), registrable).run(selection, report, on_progress)
            pages = PageReparser(database, pool, archive, actor(), settings.parsing, registrable)
            await pages.run(selection, report, on_progress)
        finally:
            await pool.aclose()

    try:
        with output.ProgressBar("Parsing again", limit, "page") as bar:
            asyncio.run(run(bar))
    except KeyboardInterrupt:
        if selection.includes_tasks:
            command_context.say(f"All tasks up to {report.last_id} are done; --after {report.last_id} continues.")
        raise
    if as_json:
        output.print_json(_as_json(report))
    else:
        _print_report(report)
    if report.failed:
        raise typer.Exit(1)


def _check_without_again(*, parsers: bool, for_again: bool, filtered: bool) -> None:
    if parsers and (for_again or filtered):
        raise UsageError("--parsers lists all parsers; what else was said is for --again.")
    if for_again:
        raise UsageError("Without --again, what is due is parsed; only --job and --domain choose.")


def _choose_parser(settings: Settings, text: str | None) -> "ChosenParser | None":
    if text is None:
        return None
    from holdfast.control.parsers import choose

    return choose(text, settings.parsing)


def _parse_due(context: command_context.CommandContext, job: str | None, domain: str | None, as_json: bool) -> None:
    """Parse the pages of this machine's archive that wait, and print what is left."""
    from holdfast.items import cli as extraction

    service = extraction.service(context)
    only = service.only(job, domain, registrable=context.settings.domains.registrable)
    due = service.due_here(**only)
    with output.ProgressBar("Parsing", due, "page", hidden=not due) as bar:
        done = service.parse_due(**only, watch=lambda now: bar.show(now.pages + now.failed, now.pages, due))
    left = service.not_parsed_here(**only)
    if as_json:
        output.print_json(asdict(done) | asdict(left))
    else:
        output.print_line(f"{pluralize(done.pages, 'page')} parsed, {pluralize(done.items, 'item')} found.")
        if done.failed:
            output.print_line(
                f"{pluralize(done.failed, 'page')} could not be parsed; for example: {safe(done.error or '')}"
            )
        for name, count in left.unknown.items():
            output.print_line(
                f"{pluralize(count, 'page')} wait for the parser {safe(name)!r}, which is not known here."
            )
        if left.elsewhere:
            output.print_line(f"{pluralize(left.elsewhere, 'page')} wait in archives of other machines.")
    if done.failed:
        raise typer.Exit(1)


def _pool(settings: Settings, file: Path | None = None) -> "PluginPool":
    from holdfast.parse.plugin_pool import PluginPool
    from holdfast.parse.plugin_registry import discover

    parsing = settings.parsing
    return PluginPool(
        discover(parsing.folder, file),
        processes=parsing.processes,
        timeout=parsing.timeout.total_seconds(),
        memory_limit=parsing.memory,
    )


def _list_parsers(context: command_context.CommandContext, as_json: bool) -> None:
    from holdfast.parse.plugin_registry import UnusableParser

    async def list_parsers() -> "list[ParserInfo | UnusableParser]":
        pool = _pool(context.settings)
        try:
            return await pool.list_parsers()
        finally:
            await pool.aclose()

    rows = [
        {"name": one.name, "version": None, "from": None, "problem": one.reason}
        if isinstance(one, UnusableParser)
        else {"name": one.source.name, "version": one.version, "from": _origin(one.source), "problem": None}
        for one in asyncio.run(list_parsers())
    ]
    if as_json:
        output.print_json(rows)
        return
    good = [(row["name"], row["version"], row["from"]) for row in rows if row["problem"] is None]
    output.print_table(["PARSER", "VERSION", "FROM"], good)
    for row in rows:
        if row["problem"] is not None:
            output.print_line(f"{safe(row['name'])} cannot be used: {safe(row['problem'])}.")


def _origin(source: "ParserSource") -> str:
    where = {"package": f" {source.package}", "file": f" {source.target}"}.get(source.kind, "")
    return f"{source.kind}{where}"


def _print_report(found: "ReparseReport") -> None:
    counts = found.counts.fields
    if counts:
        rows = [(name, *(f"{kinds[kind]:,}" for kind in kinds)) for name, kinds in counts.items()]
        output.print_table(["FIELD", "ADDED", "REMOVED", "CHANGED"], rows, right="ADDED REMOVED CHANGED")
    for example in found.examples:
        output.print_line(f"\n{_subject(example.task_id)}: {safe(example.url)}")
        for change in example.changes:
            owner = f" of {change.product}" if change.product else ""
            values = " → ".join(value for value in (change.old, change.new) if value is not None)
            output.print_line(f"  {change.kind} {safe(change.field)}{safe(owner)}: {safe(values)}")
        if example.total > len(example.changes):
            output.print_line(f"  … and {example.total - len(example.changes):,} more")
    for failure in found.failures:
        output.print_line(f"\n{_subject(failure.task_id)}: {safe(failure.url)}\n  {safe(failure.reason)}")
    output.print_line(("\n" if counts or found.failures else "") + _summary(found))


def _subject(task_id: int | None) -> str:
    return "Page" if task_id is None else f"Task {task_id}"


def _summary(found: "ReparseReport") -> str:
    parts = [f"{found.same:,} say the same", f"{found.different:,} differ", f"{found.first:,} had no result before"]
    text = f"{pluralize(found.parsed, 'page')} parsed again: {', '.join(parts)}."
    if found.failed:
        text += f" {pluralize(found.failed, 'page')} could not be parsed; what was found in them before stays."
    if found.taken:
        text += f" {pluralize(found.taken, 'task')} had been reassigned meanwhile."
    if not found.applied and found.different + found.first:
        text += " Nothing was changed; --apply keeps what is found now."
    return text


def _as_json(found: "ReparseReport") -> dict[str, Any]:
    return {
        "applied": found.applied,
        "parsed": found.parsed,
        "same": found.same,
        "different": found.different,
        "first": found.first,
        "failed": found.failed,
        "taken": found.taken,
        "fields": found.counts.fields,
        "examples": found.examples,
        "failures": found.failures,
        "last_task": found.last_id,
    }
