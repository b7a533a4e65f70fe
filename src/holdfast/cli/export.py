"""`holdfast export`: write pages, documents, items, products, links, URLs or the crawl log to a file, and images to a folder."""

import sys
from contextlib import closing
from typing import Annotated, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.control import export as exports
from holdfast.control.export import KINDS, STDOUT, Exporter, ExportRequest
from holdfast.pages.texts import MissingTexts

IMAGES: Final = "images"
"""What is exported as files of their own."""
Job = Annotated[
    str | None,
    typer.Option("--job", metavar="NAME", callback=command_context.valid_text, help="Only rows of this job."),
]
Domain = Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only rows of this domain.")]


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("export", cls=Command)(export)


def export(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(metavar="|".join((*KINDS, IMAGES)), help="What to export.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="FILE.jsonl, FILE.csv or FILE.parquet; - prints JSON lines to standard output. For images a folder, or s3://bucket/prefix.",
        ),
    ],
    text: Annotated[
        bool,
        typer.Option(
            "--text", help="Include the text of pages: the main text, or all visible text where there is no main one."
        ),
    ] = False,
    job: Job = None,
    domain: Domain = None,
    as_json: output.Json = False,
) -> None:
    """Write pages, documents, items, products, links, URLs or the crawl log to a file, or images to a folder.

    pages: a row per URL that was answered, with its last answer. documents: the main content of pages as Markdown and text,
    for jobs with --markdown, as programs for search and language models read it. items: what parsers extracted from the
    pages of crawls. products: every product as last seen. links: links of pages, from page to target, of jobs that
    record them. urls: every discovered URL with its state and the reason. log: every outcome. images: files named by their
    hash, and images.parquet with a row for each page that has one; the same command again copies what is missing. A file
    appears under its name when it is complete. Workers may crawl meanwhile.

    --text reads texts from the database if the job kept them there (crawl --text), otherwise from the archive of this
    machine. If texts are missing, a message says how many and where they are, and the exit code is 1; the file is written.

    Examples:
        holdfast export pages pages.parquet
        holdfast export pages texts.jsonl --text --domain example.com
        holdfast export documents documents.jsonl --job docs
        holdfast export items items.jsonl --job shop
        holdfast export links links.parquet --job site
        holdfast export urls - --job default | grep denied
        holdfast export images pictures --domain example.com
    """
    if what == IMAGES:
        from holdfast.images.cli.export import export_images

        export_images(command_context.get(ctx), file, job=job, domain=domain, as_json=as_json)
        return
    request = ExportRequest(what, text, job, domain)
    exports.check(file, request)
    exporter = _exporter(command_context.get(ctx))
    if file == STDOUT:
        output.write(sys.stdout, exporter.lines(request))
        _report_missing(exporter.missing)
        return
    total = exporter.expected(request)
    written = 0
    # Closed in any case, so that Ctrl-C leaves no partial file.
    with output.ProgressBar(f"Exporting {what}", total, "row") as bar, closing(exporter.write(file, request)) as steps:
        for written in steps:
            bar.show(written, written, max(total, written) if total else None)
    if as_json:
        missing = {"texts_missing": exporter.missing.total} if text else {}
        output.print_json({"file": file, "kind": what, "rows": written, **missing})
    else:
        output.print_line(f"{output.pluralize(written, 'row')} in {output.safe(file)}.")
    _report_missing(exporter.missing)


def _report_missing(missing: MissingTexts) -> None:
    """Print how many pages have no text, and where it is. Exits with 1 if there are any."""
    for sentence in missing.sentences():
        command_context.say(output.safe(sentence))
    if missing.total:
        raise typer.Exit(1)


def _exporter(context: command_context.CommandContext) -> Exporter:
    if context.remote:
        from holdfast.cli.remote.export import RemoteExporter

        return RemoteExporter(context.client)
    database = context.store()
    archive = factories.archive_reader(context.settings, database)
    return Exporter(database, context.settings.domains.registrable, archive)
