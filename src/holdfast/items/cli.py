"""Parsers of crawls on the command line: the option --parser, and parsing at the end of a crawl."""

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import factories
from holdfast.cli import output
from holdfast.cli.command_context import CommandContext, say
from holdfast.cli.output import pluralize, safe
from holdfast.errors import UsageError
from holdfast.model.job import MARKDOWN, Job

if TYPE_CHECKING:
    from holdfast.control.parsers import ChosenParser
    from holdfast.items.service import ExtractionService


ItemsFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the items to FILE.jsonl, FILE.csv or FILE.parquet when the crawl ends.",
    ),
]


def load_parser(context: CommandContext, text: str | None, *, no_archive: bool) -> "ChosenParser | None":
    """The parser that --parser names. Raises UsageError if it cannot be loaded."""
    if text is None:
        return None
    if no_archive:
        raise UsageError("--parser reads pages from the archive, so --no-archive cannot be given with it.")
    # Imported here: a crawl without a parser does not need it.
    from holdfast.control.parsers import check_loads, choose

    parser = choose(text, context.settings.parsing)
    check_loads(parser, context.settings.parsing)
    return parser


def check_file(file: str | None) -> None:
    """Raise UsageError for a file that items cannot be written to."""
    if file is not None:
        from holdfast.control import export  # here, as below: most crawls write no items

        export.check(file, export.ExportRequest("items"))


def check_job(context: CommandContext, job: Job, parser: "ChosenParser | None", file: str | None = None) -> None:
    """Raise UsageError if the job's parser is not installed here, or if items go to `file` and the job has no parser."""
    if file is not None and job.spec.parser is None:
        raise UsageError("--output writes the items that a parser finds; name the parser with --parser.")
    if job.spec.parser is None or parser is not None:
        return
    from holdfast.control.parsers import check_known

    try:
        check_known(job.spec.parser, context.settings.parsing)
    except UsageError as problem:
        raise UsageError(f"Job {job.name} is for the parser {job.spec.parser!r}. {problem}") from problem


def service(context: CommandContext, parser: "ChosenParser | None" = None) -> "ExtractionService":
    """The service that parses due pages of the archive of this invocation."""
    from holdfast.items.service import ExtractionService

    file = None if parser is None else parser.file
    database = context.store()
    return ExtractionService(
        database, factories.archive_reader(context.settings, database), context.settings.parsing, file
    )


def finish(context: CommandContext, job: Job, parser: "ChosenParser | None", file: str | None = None) -> dict[str, int]:
    """Parse the due pages of the job on this machine, write its items to `file`, and print how many there are.

    Returns counters for --json; empty without a parser.
    """
    parsing = service(context, parser)
    if parser is not None:
        parsing.make_due(job.id, parser.name)
    if job.spec.markdown:
        parsing.make_due(job.id, MARKDOWN)
    due = parsing.due_here(job_id=job.id)
    if due:
        with output.ProgressBar("Parsing", due, "page") as bar:
            parsing.parse_due(job_id=job.id, watch=lambda done: bar.show(done.pages + done.failed, done.pages, due))
    counts = parsing.parse_counts(job.id)
    if not (counts.parsed or counts.failed or counts.due or counts.documents):
        return {}
    name = safe(quote(job.name))
    then = f"`holdfast export items FILE --job {name}` writes them to a file"
    if file is not None:
        from holdfast.control.export import Exporter, ExportRequest

        *_, written = Exporter(context.store(), context.settings.domains.registrable).write(
            file, ExportRequest("items", job=job.name)
        )
        then = f"{pluralize(written, 'line')} in {safe(file)}"
    if counts.parsed or file is not None:
        say(f"{pluralize(counts.items, 'item')} from {pluralize(counts.parsed, 'page')}; {then}.")
    if counts.documents:
        say(
            f"Markdown of {pluralize(counts.documents, 'page')}: `holdfast export documents FILE --job {name}` writes it to a file, "
            "`holdfast search WORDS` finds pages by it."
        )
    if counts.failed:
        by = f" --with {safe(quote(str(parser.file)))}" if parser is not None and parser.file is not None else ""
        example = safe(counts.error or "the reason is unknown").rstrip(".")
        say(
            f"{pluralize(counts.failed, 'page')} could not be parsed; for example: {example}. "
            f"`holdfast parse --again --job {name}{by} --apply` parses all pages again."
        )
    if counts.due:
        left = parsing.not_parsed_here(job_id=job.id)
        for parser_name, count in left.unknown.items():
            say(f"{pluralize(count, 'page')} wait for the parser {safe(parser_name)!r}, which is not known here.")
        if left.elsewhere:
            say(
                f"{pluralize(left.elsewhere, 'page')} wait in archives of other machines; `holdfast parse` there parses them."
            )
    return {
        "items": counts.items,
        "pages_parsed": counts.parsed,
        "documents": counts.documents,
        "pages_not_parsed": counts.failed,
        "pages_due": counts.due,
    }
