"""`holdfast tasks`: URLs that are crawled once or again and again: add, list, show, restart, pause, resume, cancel, priority."""

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.errors import BadUrl, NotFound, Refused, UsageError
from holdfast.jobs.seed_import import open_seeds
from holdfast.model.task import (
    DEFAULT_PRIORITY,
    DEFAULT_RETRIES,
    ENDED,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_RETRIES,
    TaskStatus,
)
from holdfast.settings import render_duration
from holdfast.tasks.cli import output as task_output
from holdfast.tasks.records import AskedTask, Bulk, Task, TaskFilter, TaskOptions
from holdfast.tasks.service import TaskService

if TYPE_CHECKING:
    from holdfast.cli.remote.tasks import RemoteTasks

app = typer.Typer(
    cls=Group, help="Tasks: URLs that are fetched, parsed and, usually, fetched again.", no_args_is_help=True
)

_BAD_SHOWN: Final = 20

Id = Annotated[int, typer.Argument(metavar="TASK", min=1, help="Its id.")]
Ids = Annotated[list[int], typer.Argument(metavar="TASK", min=1, help="Its id; or the ids of several.")]
Domain = Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only of this domain.")]
InBatch = Annotated[
    str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only of this batch.")
]
KeepRetries = Annotated[bool, typer.Option("--keep-retries", help="Count on from the retries that it has used.")]


def task_service(ctx: typer.Context) -> "TaskService | RemoteTasks":
    """The tasks of this invocation's database, or server."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.tasks import RemoteTasks

        return RemoteTasks(context.client)
    settings = context.settings
    return TaskService(
        context.store(), factories.url_rules(settings), factories.new_domains(settings), settings.domains.registrable
    )


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL", help="URLs or domains.")] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="More of them, a line each; - is standard input.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Crawl again so long after: 20s, 6h, 1d (default: the domain's).")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Do not crawl again.")] = False,
    priority: Annotated[
        int, typer.Option(metavar="N", min=HIGHEST_PRIORITY, max=LOWEST_PRIORITY, help="From 1 (first) to 10.")
    ] = DEFAULT_PRIORITY,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before then: 2031-12-24T18:00, in UTC (default: now).")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="Put them into this batch.")
    ] = None,
    parser: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            callback=command_context.valid_text,
            help="Parse them by this parser (default: the domain's).",
        ),
    ] = None,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="The receiver of a message when they end.")] = None,
    after: Annotated[int | None, typer.Option(metavar="TASK", min=1, help="Not before this task is completed.")] = None,
    retries: Annotated[
        int, typer.Option(metavar="N", min=0, max=MAX_RETRIES, help="How often to try again what fails.")
    ] = DEFAULT_RETRIES,
    as_json: output.Json = False,
) -> None:
    """Ask for URLs to be crawled, once or again and again.

    A URL that has a task already, which has not ended, keeps that one as it is. What is no URL is reported, the rest is
    added, and the exit code is 1.

    Examples:
        holdfast tasks add https://example.com/offer --every 6h --priority 2
        holdfast tasks add --file offers.txt --batch "Black Friday" --parser product
        zcat urls.gz | holdfast tasks add --file - --once
    """
    if not urls and file is None:
        raise UsageError("Name what to crawl: URLs, or --file FILE.")
    if every is not None and once:
        raise UsageError("--every and --once exclude each other.")
    options = TaskOptions(
        priority=priority,
        scheduled_at=None if at is None else option_types.parse_time("--at", at),
        crawl_frequency=None if every is None else option_types.parse_duration("--every", every),
        is_recurring=not once,
        max_retries=retries,
        parent_task_id=after,
        batch=batch,
        webhook_url=webhook,
        parser_name=parser,
    )
    options.check()
    opened = None if file is None else open_seeds(file)
    with opened[0] if opened else nullcontext():
        tasks = task_service(ctx)
        asked, bad = _add_arguments(tasks, urls or (), options)
        bulk = _add_lines(tasks, opened[0], opened[1], options) if opened else Bulk(0, 0, 0, 0, [])
    for one in bulk.bad_urls[:_BAD_SHOWN]:
        command_context.say(f"line {one.place}: {output.safe(one.problem)}")
    if bulk.bad > _BAD_SHOWN:
        command_context.say(f"… and {bulk.bad - _BAD_SHOWN:,} more")
    _print_added(asked, bulk, bad, as_json)
    if bad or bulk.bad:
        raise typer.Exit(1)


def _add_arguments(
    tasks: "TaskService | RemoteTasks", urls: Sequence[str], options: TaskOptions
) -> tuple[list[AskedTask], int]:
    """Add the URLs of the command line one by one, so that each is printed with its id; returns also how many were invalid."""
    asked: list[AskedTask] = []
    bad = 0
    for place, url in enumerate(urls, 1):
        try:
            asked.append(tasks.add(url, options, actor=actor()))
        except BadUrl as problem:
            command_context.say(f"argument {place}: {output.safe(problem)}")
            bad += 1
    return asked, bad


def _add_lines(tasks: "TaskService | RemoteTasks", stream: BinaryIO, size: int | None, options: TaskOptions) -> Bulk:
    """Add every line of a file, of `size` bytes if that is known."""
    bulk = Bulk(0, 0, 0, 0, [])
    typed = stream.isatty()
    if typed:
        command_context.say("Type a URL or a domain a line; Ctrl-D ends.")
    steps = tasks.load(stream, options, actor=actor())
    with output.ProgressBar("Adding tasks", size, "line", hidden=typed) as bar, closing(steps):
        for bulk in steps:
            bar.show(bulk.seen if size is None else stream.tell(), bulk.seen)
    return bulk


def _print_added(asked: Sequence[AskedTask], bulk: Bulk, bad: int, as_json: bool) -> None:
    if as_json:
        created = sum(one.created for one in asked)
        output.print_json(
            {
                "created": created + bulk.created,
                "known": len(asked) - created + bulk.known,
                "bad": bad + bulk.bad,
                "tasks": [{"id": one.id, "url": one.url, "created": one.created} for one in asked],
                "lines": bulk.seen,
                "bad_lines": [{"line": one.place, "problem": one.problem} for one in bulk.bad_urls],
            }
        )
        return
    for one in asked:
        words = "is" if one.created else "was there already and is"
        how = f"{task_output.describe_state(one)}; {task_output.frequency(one)}"
        output.print_line(f"Task {one.id} for {output.safe(one.url)} {words} {how}.")
    if bulk.seen:
        refused = f", {bulk.bad:,} bad" if bulk.bad else ""
        output.print_line(
            f"{pluralize(bulk.seen, 'line')}: {pluralize(bulk.created, 'new task')}, {bulk.known:,} there already{refused}."
        )


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
    where = TaskFilter(status, domain, batch, priority=priority)
    found = task_service(ctx).page(where, after=None if before is None else (before,), limit=limit)
    last = task_output.last_id(found, limit)
    if as_json:
        output.print_json({"tasks": [task_output.task_json(task) for task in found.rows], "before": last})
        return
    if found.rows:
        task_output.print_tasks(found.rows)
    elif not last:
        command_context.say("No such task; `holdfast tasks add URL` adds one.")
    if last:
        command_context.say(f"More rows: --before {last}.")


@app.command("show", cls=Command)
def show(ctx: typer.Context, task: Id, as_json: output.Json = False) -> None:
    """Show one task: where it is, why, and what comes next.

    Examples:
        holdfast tasks show 12
        holdfast tasks show 12 --json
    """
    story = task_service(ctx).story(task)
    if as_json:
        names = ("batch", "parent_status", "moved_to", "next", "waits")
        output.print_json(task_output.task_json(story) | {name: getattr(story, name) for name in names})
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
    crawls = task_service(ctx).history(task, limit=limit)[::-1]
    if as_json:
        output.print_json([{"task": task_output.task_json(crawl.task), "events": crawl.events} for crawl in crawls])
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
    found = task_service(ctx).stats(span)
    if as_json:
        statuses = {
            count.status: {"tasks": count.tasks, "lately": count.lately, "mean_seconds": count.mean_seconds}
            for count in found
        }
        output.print_json({"last": span, "statuses": statuses})
        return
    rows = [
        (
            count.status,
            f"{count.tasks:,}",
            f"{count.lately:,}" if count.status in ENDED else "-",
            "-" if count.mean_seconds is None else f"{count.mean_seconds:,.1f} s",
        )
        for count in found
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
    time = None if at is None else option_types.parse_time("--at", at)

    def restart_one(tasks: "TaskService | RemoteTasks", task_id: int) -> Task:
        task = tasks.restart(
            task_id, actor=actor(), reset_retries=not keep_retries, priority=priority, scheduled_at=time
        )
        if (priority or task.priority, time or task.scheduled_at) != (task.priority, task.scheduled_at):
            command_context.say(f"Task {task_id} was pending already, and stays as it is.")
        return task

    _each(ctx, ids, restart_one, as_json)


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
    time = None if since is None else option_types.parse_time_or_age("--since", since)
    if limit is None and not yes:
        filters = {"on": domain, "of batch": batch, "since": time and f"{output.format_time(time)} UTC"}
        words = "".join(f" {word} {output.safe(value)}" for word, value in filters.items() if value is not None)
        command_context.confirm(f"Restart every task that failed{words}?", "Nothing was restarted.")
    with output.ProgressBar("Restarting", limit, "task", hidden=as_json) as bar:
        done = task_service(ctx).restart_failed(
            actor=actor(),
            domain=domain,
            batch=batch,
            since=time,
            limit=limit,
            on_progress=lambda restarted: bar.show(restarted, restarted),
        )
    if as_json:
        output.print_json(done)
    else:
        output.print_line(f"Restarted {pluralize(done.restarted, 'task')}.")


@app.command("pause", cls=Command)
def pause(ctx: typer.Context, ids: Ids, as_json: output.Json = False) -> None:
    """Pause tasks. The result of a fetch or a parse that is under way is not accepted any more.

    Examples:
        holdfast tasks pause 12
    """
    _each(ctx, ids, lambda tasks, task_id: tasks.pause(task_id, actor=actor()), as_json)


@app.command("resume", cls=Command)
def resume(ctx: typer.Context, ids: Ids, as_json: output.Json = False) -> None:
    """Resume paused tasks, with the retries that they had.

    Examples:
        holdfast tasks resume 12
    """
    _each(ctx, ids, lambda tasks, task_id: tasks.resume(task_id, actor=actor()), as_json)


@app.command("cancel", cls=Command)
def cancel(ctx: typer.Context, ids: Ids, as_json: output.Json = False) -> None:
    """Cancel tasks, and the crawls that would follow them. What was fetched stays.

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
    """Set the priority of a task, and of those that follow it, from 1 (first) to 10 (last).

    Examples:
        holdfast tasks priority 12 1
    """
    changed = task_service(ctx).set_priority(task, number, actor=actor())
    if as_json:
        output.print_json(task_output.task_json(changed))
    else:
        output.print_line(f"Task {task} has priority {changed.priority}, and is {task_output.describe_state(changed)}.")


def _each(
    ctx: typer.Context,
    ids: list[int],
    operation: "Callable[[TaskService | RemoteTasks, int], Task]",
    as_json: bool,
) -> None:
    """Apply an operation to each task. Of several, refusals are printed, the rest is done, and the exit code is 1; a single one raises."""
    tasks = task_service(ctx)
    done: list[Task] = []
    refused: list[dict[str, object]] = []
    for task_id in dict.fromkeys(ids):
        try:
            done.append(operation(tasks, task_id))
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
