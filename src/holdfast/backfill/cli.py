"""`holdfast backfill`: import what other tools crawled: logs, images by domain, pages."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import factories
from holdfast.backfill.records import HISTORY, CheckReport, Format, ImportReport
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize, safe
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.backfill.service import BackfillService, ImportOptions

_MAX_BAD_ROWS: Final = 20


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("backfill", cls=Command)(backfill)


def backfill(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="CSV (also .gz), Parquet or WARC files, or Scrapy's cache folder."),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="The format of the sources (default: recognized).")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="COLUMN=NAME", help="The source calls this column so; may be repeated."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option("--from-database", metavar="URL", help="Import crawl_log and provenance of this PostgreSQL."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=command_context.valid_text,
            help="The schema of these tables (public); alone: in our own database.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="NAME", help="Import this table instead of crawl_log and provenance; may be repeated."
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=command_context.valid_text, help="The job for imported pages (backfill)."
        ),
    ] = None,
    all_types: Annotated[
        bool, typer.Option("--all-types", help="Archive responses of every content type, images too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Import a log although another content of that name was imported.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only validate what was imported; exit code 1 if a check fails.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Import what other tools crawled: logs become domains with their history, responses become pages.

    Domains get their canonical names, and those that were written in several ways are merged. A domain of a log is blocked if
    more than half of its requests had a status of 400 or more, otherwise exhausted; known domains keep what they have learnt,
    and the counters are added once. Responses are copied into the archive and belong to a job of their own.

    Rows that cannot be used are reported with their numbers; the rest is imported, and the exit code is 1. After a kill the same
    command continues; a source that was imported before changes nothing. Everything is validated at the end, as with --check.

    Examples:
        holdfast backfill crawl_log.csv.gz --map domain=host --dry-run
        holdfast backfill --from-database postgresql://me@db.example/old
        holdfast backfill site.warc.gz --job old-site
        holdfast backfill .scrapy/httpcache
        holdfast backfill --check
    """
    from holdfast.backfill.service import JOB, ImportOptions, check_source
    from holdfast.backfill.sources.tables import check_mapping
    from holdfast.model.job import check_job_name

    sources = sources or []
    from_tables = bool(database or schema or table)
    if check == (bool(sources) or from_tables):
        raise UsageError("Name a SOURCE or --from-database, or use --check alone.")
    if sources and from_tables:
        raise UsageError("--from-database, --schema and --table are for tables; import files by another command.")
    if job is not None:
        check_job_name(job)
    options = ImportOptions(format_, check_mapping(mapping or []), job or JOB, all_types, dry_run, again)
    for source in sources:
        check_source(source)
    context = command_context.get(ctx)
    context.require_local()
    service = factories.backfill_service(context.settings, context.store())
    if check:
        _end([], service.check(), as_json)
        return
    reports = [_run(service.import_path(source, options), source, as_json) for source in sources]
    if from_tables:
        reports += _run_tables(service, database, schema or "public", table or [], options, as_json)
    changed = any(not report.known for report in reports) and not dry_run
    _end(reports, service.check() if changed else None, as_json)


def _run_tables(
    service: "BackfillService",
    url: str | None,
    schema: str,
    tables: list[str],
    options: "ImportOptions",
    as_json: bool,
) -> list[ImportReport]:
    reports: dict[str, ImportReport] = {}
    with (
        output.ProgressBar("Importing", None, "row") as bar,
        closing(service.import_tables(url, schema, tables, options)) as steps,
    ):
        for report in steps:
            reports[report.source] = report
            bar.show(report.bytes_read, report.counts.rows, report.size)
    for report in reports.values():
        _print_report(report, as_json)
    return list(reports.values())


def _run(steps: Iterator[ImportReport], source: str, as_json: bool) -> ImportReport:
    report = None
    with output.ProgressBar(f"Importing {safe(source)[-40:]}", None, "row") as bar, closing(steps):  # type: ignore[type-var]
        for report in steps:
            bar.show(report.bytes_read, report.counts.rows, report.size)
    assert report is not None  # noqa: S101 — a report is yielded at the end
    _print_report(report, as_json)
    return report


def _print_report(report: ImportReport, as_json: bool) -> None:
    for note in report.notes:
        command_context.say(f"{safe(report.source)}: {safe(note)}")
    if report.resumed_at is not None:
        command_context.say(f"{safe(report.source)}: continued after row {report.resumed_at:,}.")
    for bad in report.bad_rows[:_MAX_BAD_ROWS]:
        command_context.say(f"row {bad.number:,}: {safe(bad.detail)}")
    if len(report.bad_rows) > _MAX_BAD_ROWS:
        command_context.say(f"… and {report.counts.bad - _MAX_BAD_ROWS:,} more")
    if report.stopped is not None:
        command_context.say(f"{safe(report.source)}: {safe(report.stopped)}")
    if not as_json:
        for line in _lines(report):
            output.print_line(line)


def _lines(report: ImportReport) -> Iterator[str]:
    counts = report.counts
    if report.known:
        yield f"{safe(report.source)} was imported before: {pluralize(counts.rows, 'row')}. Nothing was changed."
        return
    would = "would be " if report.dry_run else ""
    used = counts.rows - counts.bad - counts.skipped
    yield f"{safe(report.source)}: {pluralize(counts.rows, 'row')}, {used:,} used, {counts.skipped:,} skipped, {counts.bad:,} bad."
    for reason, number in sorted(counts.reasons.items(), key=lambda one: (-one[1], one[0])):
        yield f"  {safe(reason)}: {number:,}"
    if report.format in HISTORY:
        domains = counts.domains_new + counts.domains_updated
        yield (
            f"{pluralize(domains, 'domain')} {would or ('was ' if domains == 1 else 'were ')}imported: {counts.domains_new:,} new "
            f"({report.statuses.get('exhausted', 0):,} exhausted, {report.statuses.get('blocked', 0):,} blocked), "
            f"{counts.domains_updated:,} updated; {counts.domains_merged:,} merged from several spellings."
        )
        yield (
            f"Counters: {pluralize(counts.pages, 'page')}, {pluralize(counts.errors, 'error')}, "
            f"{pluralize(counts.images_found, 'image')} found, {counts.images_stored:,} stored."
        )
    else:
        where = f" into the job {safe(report.job)}" if report.job else ""
        number = used - counts.pages - counts.errors
        others = f"{pluralize(number, 'other response')} (not found, redirect, other type); " if number else ""
        yield (
            f"{pluralize(counts.pages, 'page')} and {pluralize(counts.errors, 'error')} {would or 'were '}imported{where}; "
            f"{others}{pluralize(counts.domains_new, 'new domain')}."
        )
    if report.dry_run:
        yield "Nothing was changed."


def _end(reports: list[ImportReport], checked: CheckReport | None, as_json: bool) -> None:
    """Print the validation; exit with 1 if it fails, or if a row was bad."""
    if as_json:
        output.print_json({"imports": [_json(report) for report in reports], "validation": checked})
    elif checked is not None:
        if not reports or not checked.ok:
            _print_checks(checked)
        _print_verdict(checked)
    failed = checked is not None and not checked.ok
    if failed or any(report.stopped or (report.counts.bad and not report.known) for report in reports):
        raise typer.Exit(1)


def _print_checks(checked: CheckReport) -> None:
    rows = [(one.check, one.detail) for one in checked.checks]
    output.print_table(["CHECK", "RESULT"], rows)


def _print_verdict(checked: CheckReport) -> None:
    output.print_line(
        f"{checked.history_domains:,} domains in the history, {checked.backfilled_domains:,} created by imports, "
        f"{checked.total_domains:,} in all."
    )
    for figures in checked.statuses:
        shown = "-" if figures.avg_yield is None else f"{figures.avg_yield:.2f}"
        output.print_line(f"  {figures.status}: {figures.domains:,}, {figures.avg_pages:.1f} pages each, yield {shown}")
    failed = sum(not one.ok for one in checked.checks)
    total = pluralize(len(checked.checks), "check")
    output.print_line(f"Validation: no. {failed} of {total} failed." if failed else f"Validation: yes. {total} passed.")


def _json(report: ImportReport) -> dict[str, Any]:
    return {
        "source": report.source,
        "format": report.format,
        "dry_run": report.dry_run,
        "imported_before": report.known,
        "resumed_at": report.resumed_at,
        "job": report.job,
        "notes": report.notes,
        "stopped": report.stopped,
        **{name: getattr(report.counts, name) for name in report.counts.__slots__},
        "statuses": report.statuses,
        "bad_rows": [bad._asdict() for bad in report.bad_rows],
    }
