"""`holdfast tasks`: URLs that are watched; ask for them, look at them, restart, pause, resume, cancel and hurry them."""

from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.errors import NotFound, Refused
from holdfast.model.task import ENDED, HIGHEST_PRIORITY, LOWEST_PRIORITY, Task, TaskStatus
from holdfast.settings import render_duration
from holdfast.tasks.cli import output as task_output
from holdfast.tasks.cli.add import Tasks, add, tasks_of
from holdfast.tasks.queries.actions import RestartedTask

app = typer.Typer(
    cls=Group, help="Tasks: URLs that are fetched, parsed and, usually, fetched again.", no_args_is_help=True
)
app.command("add", cls=Command)(add)

Id = Annotated[int, typer.Argument(metavar="TASK", min=1, help="Its id.")]
Ids = Annotated[list[int], typer.Argument(metavar="TASK", min=1, help="Its id; or the ids of several.")]
_MOST_NAMED = 1000
"""Restarted tasks that --json lists."""
Domain = Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only of this domain.")]
InBatch = Annotated[
    str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only of this batch.")
]
KeepRetries = Annotated[bool, typer.Option("--keep-retries", help="Count on from the retries that it has used.")]


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    status: Annotated[
        TaskStatus | None, typer.Option(metavar="STATUS", help=f"Only tasks that are {', '.join(TaskStatus)}.")
    ] = None,
    domain: Domain = None,
    batch: InBatch = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", min=HIGHEST_PRIORITY, max=LOWEST_PRIORITY, help="Only of this priority.")
    ] = None,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List tasks, the newest first.

    Examples:
        holdfast tasks list --status failed --domain example.com
        holdfast tasks list --batch "Black Friday" --limit 500 --json
    """
    found = tasks_of(ctx).listing(
        status=status, domain=domain, batch=batch, priority=priority, before=before, limit=limit
    )
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"tasks": [task_output.task_json(task) for task in found], "before": last})
    elif found:
        task_output.print_tasks(found)
        if last:
            command_context.say(f"More rows: --before {last}.")
    else:
        command_context.say("No such task; `holdfast tasks add URL` adds one.")


@app.command("show", cls=Command)
def show(ctx: typer.Context, task: Id, as_json: output.Json = False) -> None:
    """Show one task: where it is, why, and what comes next.

    Examples:
        holdfast tasks show 12
        holdfast tasks show 12 --json
    """
    story = tasks_of(ctx).story(task)
    if as_json:
        told = task_output.task_json(story.task)
        parent = story.parent and story.parent.status
        output.print_json(
            told
            | {"batch": story.batch, "parent_status": parent, "moved_to": story.moved_to}
            | {"next": story.next, "waits": story.waits}
        )
    else:
        output.print_fields(task_output.task_fields(story))


@app.command("history", cls=Command)
def history(
    ctx: typer.Context,
    task: Id,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Show the last N crawls.")] = 100,
    as_json: output.Json = False,
) -> None:
    """Show every crawl of a task's URL and all that happened to each, the oldest first.

    Examples:
        holdfast tasks history 12
        holdfast tasks history 12 --limit 5 --json
    """
    crawls = tasks_of(ctx).history(task, limit=limit)[::-1]
    if as_json:
        output.print_json(
            [{"task": task_output.task_json(crawl.task), "events": list(crawl.events)} for crawl in crawls]
        )
        return
    output.print_line(output.safe(crawls[0].task.url))
    output.print_table(["TASK", "WHEN (UTC)", "WHAT", "WHY"], task_output.event_rows(crawls), right="TASK")
    if len(crawls) == limit:
        command_context.say(f"The last {pluralize(limit, 'crawl')}; --limit shows more.")


@app.command("stats", cls=Command)
def stats(
    ctx: typer.Context,
    last: Annotated[str, typer.Option(metavar="TIME", help="How far back to look for what ended: 6h, 7d.")] = "1d",
    as_json: output.Json = False,
) -> None:
    """Show how many tasks are in each status, and how it went lately.

    Examples:
        holdfast tasks stats
        holdfast tasks stats --last 7d --json
    """
    span = option_types.parse_duration("--last", last)
    found = tasks_of(ctx).stats(span)
    if as_json:
        output.print_json({"last": span, "statuses": found})
        return
    rows = [
        (
            status,
            f"{count.tasks:,}",
            f"{count.lately:,}" if status in ENDED else "-",
            "-" if count.mean_seconds is None else f"{count.mean_seconds:,.1f} s",
        )
        for status, count in found.items()
    ]
    output.print_table(["STATUS", "TASKS", "LATELY", "TOOK"], rows, right="TASKS LATELY TOOK")
    command_context.say(
        f"LATELY: ended in the last {render_duration(span)}. TOOK: from request to end, on average of those."
    )


@app.command("restart", cls=Command)
def restart(
    ctx: typer.Context,
    ids: Ids,
    priority: Annotated[
        int | None, typer.Option(metavar="N", min=HIGHEST_PRIORITY, max=LOWEST_PRIORITY, help="With another priority.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before then: 2031-12-24T18:00, in UTC (default: now).")
    ] = None,
    keep_retries: KeepRetries = False,
    as_json: output.Json = False,
) -> None:
    """Crawl tasks again from the beginning: those that are completed, failed, cancelled or paused.

    Of several, those for which it is refused are reported, the others are restarted, and the exit code is 1.

    Examples:
        holdfast tasks restart 12
        holdfast tasks restart 12 13 14 --priority 1
    """
    moment = None if at is None else option_types.parse_time("--at", at)

    def deed(tasks: Tasks, task_id: int) -> Task:
        task = tasks.restart(
            task_id, actor=actor(), reset_retries=not keep_retries, priority=priority, scheduled_at=moment
        )
        if (priority or task.priority, moment or task.scheduled_at) != (task.priority, task.scheduled_at):
            command_context.say(f"Task {task_id} was pending already, and stays as it is.")
        return task

    _each(ctx, ids, deed, as_json)


@app.command("restart-parsing", cls=Command)
def restart_parsing(
    ctx: typer.Context, ids: Ids, keep_retries: KeepRetries = False, as_json: output.Json = False
) -> None:
    """Parse the pages of tasks again, from the archive, without fetching them.

    Examples:
        holdfast tasks restart-parsing 12
    """
    _each(
        ctx,
        ids,
        lambda tasks, task_id: tasks.restart_parsing(task_id, actor=actor(), reset_retries=not keep_retries),
        as_json,
    )


@app.command("restart-failed", cls=Command)
def restart_failed(
    ctx: typer.Context,
    domain: Domain = None,
    batch: InBatch = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what failed since then: 2031-12-24, or how long ago: 6h.")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most this many.")] = None,
    yes: option_types.Yes = False,
    as_json: output.Json = False,
) -> None:
    """Crawl all tasks again that have failed. Without --limit it asks first.

    Of a URL only the newest task is restarted: a failure that was made up for since needs nothing. It can be interrupted;
    the same command goes on with the rest.

    Examples:
        holdfast tasks restart-failed --domain example.com --since 6h
        holdfast tasks restart-failed --limit 1000
    """
    moment = None if since is None else option_types.parse_time_or_age("--since", since)
    if limit is None and not yes:
        chosen = {"on": domain, "of batch": batch, "since": moment and f"{output.format_time(moment)} UTC"}
        words = "".join(f" {word} {output.safe(value)}" for word, value in chosen.items() if value is not None)
        command_context.confirm(f"Restart every task that failed{words}?", "Nothing was restarted.")
    started: list[RestartedTask] = []
    with output.ProgressBar("Restarting", limit, "task", hidden=as_json) as bar:
        restarted = tasks_of(ctx).restart_failed(
            actor=actor(),
            domain=domain,
            batch=batch,
            since=moment,
            limit=limit,
            progress=lambda done: bar.show(done, done),
            tell=lambda some: started.extend(some[: _MOST_NAMED - len(started)]),
        )
    if as_json:
        output.print_json({"restarted": restarted, "tasks": [task._asdict() for task in started]})
    else:
        output.print_line(f"Restarted {pluralize(restarted, 'task')}.")


@app.command("pause", cls=Command)
def pause(ctx: typer.Context, ids: Ids, as_json: output.Json = False) -> None:
    """Let tasks rest. What is being fetched or parsed of them is not taken any more.

    Examples:
        holdfast tasks pause 12
    """
    _each(ctx, ids, lambda tasks, task_id: tasks.pause(task_id, actor=actor()), as_json)


@app.command("resume", cls=Command)
def resume(ctx: typer.Context, ids: Ids, as_json: output.Json = False) -> None:
    """Let paused tasks go on, with the retries that they had.

    Examples:
        holdfast tasks resume 12
    """
    _each(ctx, ids, lambda tasks, task_id: tasks.resume(task_id, actor=actor()), as_json)


@app.command("cancel", cls=Command)
def cancel(ctx: typer.Context, ids: Ids, as_json: output.Json = False) -> None:
    """Give tasks up, and the crawls that would follow them. What was fetched stays.

    Examples:
        holdfast tasks cancel 12
    """
    _each(ctx, ids, lambda tasks, task_id: tasks.cancel(task_id, actor=actor()), as_json)


@app.command("priority", cls=Command)
def priority(
    ctx: typer.Context,
    task: Id,
    number: Annotated[
        int, typer.Argument(metavar="N", min=HIGHEST_PRIORITY, max=LOWEST_PRIORITY, help="From 1 (first) to 10.")
    ],
    as_json: output.Json = False,
) -> None:
    """Let a task, and those that follow it, come sooner (1) or later (10).

    Examples:
        holdfast tasks priority 12 1
    """
    changed = tasks_of(ctx).set_priority(task, number, actor=actor())
    if as_json:
        output.print_json(task_output.task_json(changed))
    else:
        output.print_line(f"Task {task} has priority {changed.priority}, and is {task_output.describe_state(changed)}.")


def _each(ctx: typer.Context, ids: list[int], deed: Callable[[Tasks, int], Task], as_json: bool) -> None:
    """Do it to each. Of several, what is refused is said, the rest is done, and the exit code is 1; a single one just fails."""
    tasks = tasks_of(ctx)
    done: list[Task] = []
    refused: list[dict[str, object]] = []
    for task_id in dict.fromkeys(ids):
        try:
            done.append(deed(tasks, task_id))
        except (NotFound, Refused) as problem:
            if len(ids) == 1:
                raise
            command_context.say(output.safe(problem))
            refused.append({"id": task_id, "problem": str(problem)})
    if as_json:
        output.print_json({"tasks": [task_output.task_json(task) for task in done], "refused": refused})
    else:
        for task in done:
            output.print_line(f"Task {task.id} is {task_output.describe_state(task)}.")
    if refused:
        raise typer.Exit(1)
