"""`holdfast jobs watch`: a job while it is crawled."""

import time
from shlex import quote
from typing import Final

import typer

from holdfast.cli import command_context, output
from holdfast.cli.crawl import live_job_reader
from holdfast.cli.output import format_bytes, pluralize
from holdfast.cli.progress import READ_INTERVAL, ProgressDisplay
from holdfast.jobs.cli.context import Which, job_service
from holdfast.jobs.summary import lines as summary_lines
from holdfast.model.job import JobState

_POLL_INTERVAL: Final = 0.5
"""Seconds between two reads of the state of a watched job."""


def watch(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Watch a job that any process works on, until it ends. Ctrl-C stops watching, not the job.

    It shows pages, URLs in flight, and what the job waits for: a worker, a server that does not answer, another job on its domain.
    With --json it prints an object a line, a second apart.

    Examples:
        holdfast jobs watch news
        holdfast jobs watch news --json
    """
    context = command_context.get(ctx)
    context.require_local(
        "`holdfast jobs watch`",
        "it reads the live figures from the store. The dashboard shows them, and `holdfast jobs show` those of now.",
    )
    jobs = job_service(ctx)
    found = jobs.show(job)
    if as_json:
        with live_job_reader(context, found.id) as read:
            while not jobs.show(found.id).is_over:
                output.print_json_line(read())
                time.sleep(READ_INTERVAL)
            output.print_json_line(read())
        return
    if not found.is_over:
        try:
            with (
                live_job_reader(context, found.id) as read,
                ProgressDisplay(read, f"Job {output.safe(found.name)}"),
            ):
                while not (found := jobs.show(found.id)).is_over:
                    time.sleep(_POLL_INTERVAL)
        except KeyboardInterrupt:
            command_context.say(f"Stopped watching; job {output.safe(found.name)} itself was not stopped.")
            raise command_context.Interrupted from None
    summary = jobs.summary(found.id)
    pages = f"{pluralize(summary.pages, 'page')}, {format_bytes(found.bytes)}, {pluralize(found.errors, 'error')}"
    again = f"`holdfast crawl --job {quote(found.name)} --again` starts it again"
    cancelled = [f"Job {found.name} was cancelled; {again}."] if found.state is JobState.CANCELLED else None
    for line in (f"{pages}.", *(cancelled or summary_lines(summary))):
        output.print_line(output.safe(line))
