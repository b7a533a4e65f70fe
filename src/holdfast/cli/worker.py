"""`holdfast worker`: one worker process.

The rule: it imports nothing that only `holdfast crawl` needs, as `serve` starts one for each core, and again whenever one has died.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from holdfast import factories, failpoints
from holdfast.cli import command_context
from holdfast.cli.command_context import EXIT_INTERRUPTED
from holdfast.cli.help import Command
from holdfast.cli.processes import keep_server_running, run_worker
from holdfast.cli.url_lines import PipeWriter
from holdfast.db import crawls
from holdfast.telemetry import log


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("worker", cls=Command)(worker)


def worker(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the worker, the same after a restart (default: from the host name)."
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Crawl this job only, and exit when it has nothing left to crawl."),
    ] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
    siblings: Annotated[int, typer.Option("--siblings", hidden=True)] = 1,
    report_to: Annotated[int | None, typer.Option("--report-to", hidden=True)] = None,
    failpoint: Annotated[list[str] | None, typer.Option("--failpoint", hidden=True)] = None,
    parser_file: Annotated[Path | None, typer.Option("--parser-file", hidden=True)] = None,
) -> None:
    """Run one worker process, which crawls all jobs in turn until it is stopped.

    Run any number, on any number of machines, with the same HOLDFAST_DATABASE_URL. A worker may be killed at any moment.

    Examples:
        holdfast worker
        holdfast worker --name crawler-1 --job news
    """
    log.set_up()
    for point in failpoint or ():
        place, _, nth = point.partition(":")
        failpoints.arm(place, int(nth or 1))
    context = command_context.get(ctx)
    context.supervised = supervised
    log.rotate_stderr(factories.log_folder(context.settings))
    database = context.store()
    job_id = None
    if job is not None:
        with database.session() as connection:
            job_id = crawls.named(connection, job).id
    plan = factories.worker_config(context.settings, database, name or factories.worker_name(1), job_id, parser_file)
    plan = replace(plan, siblings=siblings)
    lines = PipeWriter(report_to) if report_to is not None else None
    with keep_server_running(context):
        interrupted = run_worker(plan if lines is None else replace(plan, report=lines.report), supervised=supervised)
    if lines is not None:
        lines.close()
    if supervised:
        return
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if job_id is not None:
        from holdfast.cli import job_options  # here: supervised workers, which are many, do not need it

        job_options.crawl_service(context).end_idle()
