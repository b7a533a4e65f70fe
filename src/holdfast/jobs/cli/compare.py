"""`holdfast jobs compare`: the last crawl of a job beside the one before."""

from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.cli import command_context, output
from holdfast.jobs.cli.context import Which, job_service
from holdfast.jobs.records import Comparison, PageChange


def compare(
    ctx: typer.Context,
    job: Which,
    kind: Annotated[
        PageChange | None, typer.Option("--kind", metavar="KIND", help=f"List pages: {', '.join(PageChange)}.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="List at most this many.")] = 100,
    as_json: output.Json = False,
) -> None:
    """Compare the last crawl of a job with the one before: how many pages are new, changed, gone, failed or unchanged.

    `holdfast pages diff URL` shows what changed on one of them. A page that redirects now, or whose server did not answer, keeps its
    last answer and is in no count.

    Examples:
        holdfast jobs compare news
        holdfast jobs compare news --kind changed --limit 20
        holdfast jobs compare news --kind gone --json
    """
    jobs = job_service(ctx)
    found = jobs.compare(job)
    pages = [] if kind is None else jobs.some_compared(job, kind, limit)
    if as_json:
        output.print_json(asdict(found) | ({} if kind is None else {"pages": pages}))
        return
    if kind is None:
        output.print_fields(_comparison_fields(found))
        return
    rows = [
        (
            output.format_time(page.at),
            _before_and_after(page.status_before, page.status),
            page.version if page.version is not None else "-",
            page.url,
            page.title or "",
        )
        for page in pages
    ]
    output.print_table(["WHEN", "STATUS", "BEFORE", "URL", "TITLE"], rows, right="BEFORE")
    total = getattr(found, kind)
    if len(pages) < total:
        command_context.say(f"{len(pages):,} of {_at_least(found, kind)} pages; `--limit` shows more.")


def _comparison_fields(found: Comparison) -> list[tuple[str, object]]:
    ended = f", ended {output.format_time(found.ended_at)} UTC" if found.ended_at else ", not ended yet"
    before = f"{output.format_time(found.previous_started_at)} UTC" if found.previous_started_at else "none: all is new"
    return [
        ("Job", found.job),
        ("Crawl", f"{found.crawl}, begun {output.format_time(found.started_at)} UTC{ended}"),
        ("Before it", before),
        *((change.capitalize(), _at_least(found, change)) for change in PageChange),
    ]


def _at_least(found: Comparison, change: PageChange) -> str:
    """A count; one that is a lower bound with a plus."""
    return f"{getattr(found, change):,}{'+' if change in found.at_least else ''}"


def _before_and_after(before: int | None, after: int | None) -> str:
    numbers = ["-" if status is None else str(status) for status in (before, after)]
    return numbers[1] if before in (None, after) else " → ".join(numbers)
