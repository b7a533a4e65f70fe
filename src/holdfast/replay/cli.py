"""`holdfast replay`: fetch or parse pages of crawls again, by domain, date, parser or job; or those that were lost with a machine."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize, safe
from holdfast.errors import UsageError
from holdfast.replay.records import Replay, ReplayMode
from holdfast.replay.service import ReplayRequest, ReplayService, check_mode

if TYPE_CHECKING:
    from holdfast.cli.remote.replay import RemoteReplays


_NOTHING: Final = {
    ReplayMode.FETCH: "No page was fetched that these options select.",
    ReplayMode.PARSE: "No such page was parsed before, by this parser if one is named: `holdfast parse --again --with NAME` parses pages "
    "for the first time.",
    ReplayMode.LOST: "No such page was lost; `holdfast verify` names those that are (archive_lost).",
}


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("replay", cls=Command)(replay)


def replay(
    ctx: typer.Context,
    fetch: Annotated[bool, typer.Option("--fetch", help="Queue pages again: workers fetch them.")] = False,
    parse: Annotated[
        bool, typer.Option("--parse", help="Make pages due for their parsers again, from the archive.")
    ] = False,
    lost: Annotated[
        bool, typer.Option("--lost", help="Queue the pages that `holdfast verify` names as archive_lost.")
    ] = False,
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
        typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only pages for this parser."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Go on with a replay that was begun then: leave alone what was done since."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be replayed; change nothing.")] = False,
    as_json: output.Json = False,
) -> None:
    """Replay pages of crawls: fetch them again, or parse them again from the archive.

    Nothing is fetched or parsed by this command: workers do it (`holdfast worker`, or `holdfast crawl --job NAME` of the job), and for
    --parse also `holdfast parse`. Jobs that had ended are open again. Pages that wait already, and those of cancelled jobs and of
    tasks, are left alone and counted. What `holdfast parse --again` does, comparing results before they are kept, --parse does not:
    it replaces them.

    Examples:
        holdfast replay --fetch --domain shop.example --since 30d --dry-run
        holdfast replay --parse --job shop --parser product
        holdfast replay --lost
        holdfast replay --fetch --job news --as-of 2031-12-24T18:00
    """
    request = ReplayRequest(
        check_mode(fetch=fetch, parse=parse, lost=lost),
        job,
        domain,
        None if since is None else option_types.parse_time_or_age("--since", since),
        None if until is None else option_types.parse_time_or_age("--until", until),
        parser,
        None if as_of is None else option_types.parse_time("--as-of", as_of),
    )
    request.check()
    context = command_context.get(ctx)
    service = _service(context)
    request = service.begun(request)
    try:
        with output.ProgressBar("Replaying", None, "page") as bar:

            def watch(looked_at: int, pages: int) -> None:
                bar.show(looked_at, pages)

            found = service.count(request, watch) if dry_run else service.run(request, actor=actor(), watch=watch)
    except KeyboardInterrupt:
        if not dry_run and request.as_of is not None:
            command_context.say(
                f"The same command with --as-of {request.as_of.isoformat()} goes on where it was interrupted."
            )
        raise
    if as_json:
        output.print_json(found)
    else:
        _print(found)
        if parser is not None and found.pages == 0 and not context.remote:
            _say_if_unknown(parser, context)


def _say_if_unknown(parser: str, context: command_context.CommandContext) -> None:
    """Say so if no parser has the name that selected nothing: pages of one that is not installed any more can be replayed."""
    from holdfast.control.parsers import check_known

    try:
        check_known(parser, context.settings.parsing)
    except UsageError as unknown:
        command_context.say(safe(str(unknown)))


def _service(context: command_context.CommandContext) -> "ReplayService | RemoteReplays":
    if context.remote:
        from holdfast.cli.remote.replay import RemoteReplays

        return RemoteReplays(context.client)
    return ReplayService(context.store(), context.settings.domains.registrable)


def _print(found: Replay) -> None:
    would = "would be" if found.dry_run else "are"
    done = f"{would} due for their parsers" if found.mode == ReplayMode.PARSE else f"{would} queued"
    output.print_line(f"{pluralize(found.pages, 'page')} of {found.looked_at:,} {done}.")
    if not (found.pages or found.waiting or found.skipped or found.forgotten):
        command_context.say(_NOTHING[ReplayMode(found.mode)])
    if len(found.jobs) > 1 or any(job.skipped for job in found.jobs):
        rows = [
            (safe(job.job), f"{job.pages:,}", "-" if job.skipped is None else f"no: {job.skipped}")
            for job in found.jobs
        ]
        output.print_table(["JOB", "PAGES", "LEFT OUT"], rows, right="PAGES")
    if found.waiting:
        already = "due already, or parsed since then" if found.mode == ReplayMode.PARSE else "waiting already"
        command_context.say(f"{pluralize(found.waiting, 'page')} left alone: {already}.")
    if found.forgotten:
        verb = "would be" if found.dry_run else "are"
        command_context.say(
            f"{pluralize(found.forgotten, 'lost answer')} cannot be fetched again (earlier versions, cancelled jobs, tasks): where "
            f"their bytes were {verb} forgotten."
        )
    if found.pages and not found.dry_run:
        by = (
            "`holdfast parse`, or a worker"
            if found.mode == ReplayMode.PARSE
            else "`holdfast worker`, or `holdfast crawl --job NAME`"
        )
        verb = "parses" if found.mode == ReplayMode.PARSE else "fetches"
        command_context.say(f"{by}, {verb} them.")
