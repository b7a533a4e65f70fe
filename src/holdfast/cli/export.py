"""`holdfast export`: pages, items, products, URLs or the log, for other programs."""

import sys
from contextlib import closing
from typing import Annotated

import typer

from holdfast import wiring
from holdfast.cli import output, session
from holdfast.cli.help import Command
from holdfast.control import export as exports
from holdfast.control.export import KINDS, STDOUT, Exporter, Wanted
from holdfast.control.texts import MissingTexts

Job = Annotated[
    str | None, typer.Option("--job", metavar="NAME", callback=session.readable, help="Only what this job crawled.")
]
Domain = Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only of this domain.")]


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("export", cls=Command)(export)


def export(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="What to export.")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="FILE.jsonl, FILE.csv or FILE.parquet; - is standard output, as JSON lines."
        ),
    ],
    text: Annotated[bool, typer.Option("--text", help="With the visible text of pages.")] = False,
    job: Job = None,
    domain: Domain = None,
    as_json: output.Json = False,
) -> None:
    """Write pages, items, products, URLs or the log of outcomes to a file.

    pages has a row for each URL that was answered, as it was the last time; items what parsers found on the pages of
    crawls; products every product as it was seen last; urls every URL that was met, with its state and the reason; log
    every single outcome. The file appears under its name when it is whole. Crawling may go on.

    --text takes texts from the store, where the job kept them, and otherwise from the archive of this machine. If texts
    are missing, it says how many and where they are, and ends with 1; the file is written all the same.

    Examples:
        holdfast export pages pages.parquet
        holdfast export pages texts.jsonl --text --domain example.com
        holdfast export items items.jsonl --job shop
        holdfast export urls - --job default | grep denied
    """
    wanted = Wanted(what, text, job, domain)
    exports.check(file, wanted)
    exporter = _exporter(session.of(context))
    if file == STDOUT:
        output.write(sys.stdout, exporter.lines(wanted))
        _tell_missing(exporter.missing)
        return
    total = exporter.expected(wanted)
    written = 0
    # Closed in any case, so that Ctrl-C leaves nothing half-written behind.
    with output.ProgressBar(f"Exporting {what}", total, "row") as bar, closing(exporter.write(file, wanted)) as steps:
        for written in steps:
            bar.show(written, written, max(total, written) if total else None)
    if as_json:
        missing = {"texts_missing": exporter.missing.total} if text else {}
        output.print_json({"file": file, "kind": what, "rows": written, **missing})
    else:
        output.print_line(f"{output.counted(written, 'row')} in {output.safe(file)}.")
    _tell_missing(exporter.missing)


def _tell_missing(missing: MissingTexts) -> None:
    """Say of how many pages there is no text, and where it is. Ends with 1 if there are any."""
    for sentence in missing.told():
        session.say(output.safe(sentence))
    if missing.total:
        raise typer.Exit(1)


def _exporter(of: session.Session) -> Exporter:
    if of.remote:
        from holdfast.cli.remote.export import RemoteExporter

        return RemoteExporter(of.client)
    folder = wiring.archive_folder(of.settings)
    return Exporter(of.store(), of.settings.domains.registrable, folder if folder.is_dir() else None)
