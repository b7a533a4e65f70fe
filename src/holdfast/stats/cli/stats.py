"""`holdfast stats`: pages, errors and latency over time."""

from typing import Annotated

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes
from holdfast.stats.service import Point, Snapshot, StatsService, step_of


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("stats", cls=Command)(stats)


def stats(
    ctx: typer.Context,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Start of the table: a time, or an age such as 6h.")
    ] = "1h",
    step: Annotated[
        str, typer.Option(metavar="STEP", help="Length of a row: minute, hour, day, or a number of minutes such as 5m.")
    ] = "1m",
    as_json: output.Json = False,
) -> None:
    """Show pages, errors, bytes and latency per minute, hour or day. Times are in UTC; minutes are kept for a week, days for ever.

    Examples:
        holdfast stats
        holdfast stats --since 24h --step hour
        holdfast stats --since 2026-01-01 --step day --json
    """
    begin = option_types.parse_time_or_age("--since", since)
    desk = StatsService(command_context.get(ctx).store())
    points = desk.timeseries(begin, step=step_of(step))
    now = desk.snapshot()
    if as_json:
        output.print_json({"now": now, "points": points})
        return
    columns = [
        "FROM (UTC)",
        "PAGES",
        "PAGES/S",
        "ERRORS",
        "BYTES",
        "2XX",
        "3XX",
        "4XX",
        "5XX",
        "P50",
        "P95",
        "FRONTIER",
    ]
    rows = [_row(point) for point in points if point.requests or point.frontier_size is not None]
    if rows:
        output.print_table(columns, rows, right=" ".join(columns[1:]))
        output.print_line()
    else:
        command_context.say("Nothing was crawled since then.")
    output.print_fields(_facts(now))


def _row(point: Point) -> tuple[str, ...]:
    classes = (f"{point.statuses[name]:,}" for name in ("2xx", "3xx", "4xx", "5xx"))
    return (
        output.format_time(point.at),
        f"{point.pages:,}",
        f"{point.pages_per_second:,.1f}",
        f"{point.errors:,}",
        format_bytes(point.bytes),
        *classes,
        _time(point.latency_p50_ms),
        _time(point.latency_p95_ms),
        "-" if point.frontier_size is None else f"{point.frontier_size:,}",
    )


def _time(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:,.0f} ms"


def _facts(now: Snapshot) -> list[tuple[str, object]]:
    success = "no requests" if now.success_rate is None else f"{now.success_rate:.1%} without an error"
    return [
        (
            "Pages",
            f"{now.pages_total:,} of {now.requests_total:,} requests, {now.errors_total:,} errors, {format_bytes(now.bytes_total)}",
        ),
        ("Last minute", f"{now.pages_per_second:,.1f} pages/s, {now.errors_per_second:,.1f} errors/s; {success}"),
        ("Frontier", f"{now.frontier_size:,} waiting"),
    ]
