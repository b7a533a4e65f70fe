"""`holdfast batches`: tasks that belong together, by a name: create, list, show, restart."""

import dataclasses
from typing import Annotated, Any

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.model.task import RESTARTABLE, TaskStatus
from holdfast.tasks.cli.output import last_id
from holdfast.tasks.cli.tasks import task_service
from holdfast.tasks.records import Batch

app = typer.Typer(cls=Group, help="Batches of tasks: make, look at and restart them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="BATCH", callback=command_context.valid_text, help="Its name.")]


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List batches, the newest first, and how their tasks are.

    Examples:
        holdfast batches list
        holdfast batches list --before 120 --json
    """
    page = task_service(ctx).batches(after=None if before is None else (before,), limit=limit, count_all=True)
    last = last_id(page, limit)
    if as_json:
        output.print_json({"batches": [_batch_json(batch) for batch in page.rows], "before": last})
        return
    if not page.rows:
        command_context.say("No batches; `holdfast batches create NAME` creates one.")
        return
    rows = [
        (batch.id, batch.name, f"{sum(batch.tasks.values()):,}", _spread(batch), output.format_time(batch.created_at))
        for batch in page.rows
    ]
    output.print_table(["ID", "BATCH", "TASKS", "OF THEM", "MADE (UTC)"], rows, right="ID TASKS")
    if last:
        command_context.say(f"More rows: --before {last}.")


@app.command("create", cls=Command)
def create(ctx: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Make a batch, for tasks to be put into it.

    Examples:
        holdfast batches create "Black Friday"
        holdfast tasks add --file offers.txt --batch "Black Friday"
    """
    created = task_service(ctx).create_batch(name, actor=actor())
    if as_json:
        output.print_json(_batch_json(created))
    else:
        output.print_line(f"Made batch {output.safe(created.name)}; `holdfast tasks add URL --batch NAME` fills it.")


@app.command("show", cls=Command)
def show(ctx: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Show one batch: how many of its tasks are in each status.

    A task that recurs counts once for each of its crawls.

    Examples:
        holdfast batches show "Black Friday"
        holdfast tasks list --batch "Black Friday" --status failed
    """
    batch = task_service(ctx).batch(name)
    if as_json:
        output.print_json(_batch_json(batch))
        return
    facts = [
        ("Batch", f"{batch.name} ({batch.id})"),
        ("Created", f"{output.format_time(batch.created_at)} UTC by {batch.created_by}"),
        ("Tasks", f"{sum(batch.tasks.values()):,}{f': {_spread(batch)}' if batch.tasks else ''}"),
    ]
    output.print_fields(facts)


@app.command("restart", cls=Command)
def restart(ctx: typer.Context, name: Name, yes: option_types.Yes = False, as_json: output.Json = False) -> None:
    """Crawl everything of a batch again that rests: what is completed, failed, cancelled or paused.

    Of a URL only the newest task is restarted. It can be interrupted; the same command goes on with the rest.

    Examples:
        holdfast batches restart "Black Friday"
        holdfast batches restart "Black Friday" --yes
    """
    tasks = task_service(ctx)
    batch = tasks.batch(name)
    resting = sum(batch.tasks.get(status, 0) for status in RESTARTABLE)
    if resting and not yes:
        question = f"Crawl up to {pluralize(resting, 'task')} of batch {output.safe(batch.name)} again?"
        command_context.confirm(question, "Nothing was restarted.")
    with output.ProgressBar("Restarting", resting or None, "task", hidden=as_json) as bar:
        restarted = tasks.restart_batch(name, actor=actor(), on_progress=lambda done: bar.show(done, done))
    if as_json:
        output.print_json({"batch": batch.name, "restarted": restarted})
    else:
        output.print_line(f"Restarted {pluralize(restarted, 'task')} of batch {output.safe(batch.name)}.")


def _batch_json(batch: Batch) -> dict[str, Any]:
    """The fields of a batch; all its tasks are counted."""
    names = (field.name for field in dataclasses.fields(Batch) if field.name != "counted_all")
    return {name: getattr(batch, name) for name in names}


def _spread(batch: Batch) -> str:
    return ", ".join(f"{batch.tasks[status]:,} {status}" for status in TaskStatus if status in batch.tasks)
