"""`holdfast tasks add`: ask for URLs to be watched."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from datetime import datetime, timedelta
from typing import Annotated, BinaryIO, Final, Protocol

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.output import pluralize
from holdfast.errors import BadUrl, UsageError
from holdfast.jobs.seed_import import open_seeds
from holdfast.model.task import (
    DEFAULT_PRIORITY,
    DEFAULT_RETRIES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_RETRIES,
    Task,
    TaskStatus,
)
from holdfast.tasks.cli import output as task_output
from holdfast.tasks.explain import Story
from holdfast.tasks.queries.actions import RestartedTask
from holdfast.tasks.queries.tasks import Crawled, StatusCount
from holdfast.tasks.service import Asked, Bulk, TaskService, Wish, check

_BAD_SHOWN: Final = 20


class Tasks(Protocol):
    """Tasks of a store, or of a server."""

    def add(self, url: str, wish: Wish, *, actor: str) -> Asked: ...

    def load(self, file: BinaryIO, wish: Wish, *, actor: str) -> Generator[Bulk]: ...

    def listing(
        self,
        *,
        status: TaskStatus | None,
        domain: str | None,
        batch: str | None,
        priority: int | None,
        before: int | None,
        limit: int,
    ) -> list[Task]: ...

    def story(self, task_id: int) -> Story: ...

    def history(self, task_id: int, *, limit: int) -> list[Crawled]: ...

    def stats(self, span: timedelta) -> dict[TaskStatus, StatusCount]: ...

    def restart(
        self,
        task_id: int,
        *,
        actor: str,
        reset_retries: bool,
        priority: int | None,
        scheduled_at: datetime | None,
    ) -> Task: ...

    def restart_parsing(self, task_id: int, *, actor: str, reset_retries: bool) -> Task: ...

    def restart_failed(
        self,
        *,
        actor: str,
        domain: str | None,
        batch: str | None,
        since: datetime | None,
        limit: int | None,
        progress: Callable[[int], None],
        tell: Callable[[Sequence[RestartedTask]], None],
    ) -> int: ...

    def pause(self, task_id: int, *, actor: str) -> Task: ...

    def resume(self, task_id: int, *, actor: str) -> Task: ...

    def cancel(self, task_id: int, *, actor: str) -> Task: ...

    def set_priority(self, task_id: int, priority: int, *, actor: str) -> Task: ...


def tasks_of(ctx: typer.Context) -> Tasks:
    """The tasks of this invocation's store, or server."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.tasks import RemoteTasks

        return RemoteTasks(context.client)
    return desk(ctx)


def desk(ctx: typer.Context) -> TaskService:
    """The tasks of this invocation's store."""
    context = command_context.get(ctx)
    settings = context.settings
    return TaskService(
        context.store(), factories.url_rules(settings), factories.new_domains(settings), settings.domains.registrable
    )


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
            metavar="NAME", callback=command_context.valid_text, help="Who parses them (default: the domain's parser)."
        ),
    ] = None,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Who is told when they end.")] = None,
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
        raise UsageError("--every and --once cannot both be meant.")
    wish = Wish(
        priority=priority,
        scheduled_at=None if at is None else option_types.parse_time("--at", at),
        frequency=None if every is None else option_types.parse_duration("--every", every),
        recurring=not once,
        max_retries=retries,
        parent_task_id=after,
        batch=batch,
        webhook_url=webhook,
        parser=parser,
    )
    check(wish)
    opened = None if file is None else open_seeds(file)
    with opened[0] if opened else nullcontext():
        tasks = tasks_of(ctx)
        asked, bad = _add_named(tasks, urls or (), wish)
        bulk = _add_lines(tasks, opened[0], opened[1], wish) if opened else Bulk()
    for place, problem in bulk.bad_urls[:_BAD_SHOWN]:
        command_context.say(f"line {place}: {output.safe(problem)}")
    if bulk.bad > _BAD_SHOWN:
        command_context.say(f"… and {bulk.bad - _BAD_SHOWN:,} more")
    _tell_added(asked, bulk, bad, as_json)
    if bad or bulk.bad:
        raise typer.Exit(1)


def _add_named(tasks: Tasks, urls: Sequence[str], wish: Wish) -> tuple[list[Asked], int]:
    """Add what was named on the command line, one by one, so that each is told by its id; how many were bad."""
    asked: list[Asked] = []
    bad = 0
    for place, url in enumerate(urls, 1):
        try:
            asked.append(tasks.add(url, wish, actor=actor()))
        except BadUrl as problem:
            command_context.say(f"argument {place}: {output.safe(problem)}")
            bad += 1
    return asked, bad


def _add_lines(tasks: Tasks, stream: BinaryIO, size: int | None, wish: Wish) -> Bulk:
    """Add every line of a file, of `size` bytes if that is known."""
    bulk = Bulk()
    typed = stream.isatty()
    if typed:
        command_context.say("Type a URL or a domain a line; Ctrl-D ends.")
    steps = tasks.load(stream, wish, actor=actor())
    with output.ProgressBar("Adding tasks", size, "line", hidden=typed) as bar, closing(steps):
        for bulk in steps:
            bar.show(bulk.seen if size is None else stream.tell(), bulk.seen)
    return bulk


def _tell_added(asked: Sequence[Asked], bulk: Bulk, bad: int, as_json: bool) -> None:
    if as_json:
        created = sum(one.created for one in asked)
        output.print_json(
            {
                "created": created + bulk.created,
                "known": len(asked) - created + bulk.known,
                "bad": bad + bulk.bad,
                "tasks": [{"id": one.task.id, "url": one.task.url, "created": one.created} for one in asked],
                "lines": bulk.seen,
                "bad_lines": [{"line": place, "problem": problem} for place, problem in bulk.bad_urls],
            }
        )
        return
    for one in asked:
        words = "is" if one.created else "was there already and is"
        how = f"{task_output.describe_state(one.task)}; {task_output.frequency(one.task)}"
        output.print_line(f"Task {one.task.id} for {output.safe(one.task.url)} {words} {how}.")
    if bulk.seen:
        refused = f", {bulk.bad:,} bad" if bulk.bad else ""
        output.print_line(
            f"{pluralize(bulk.seen, 'line')}: {pluralize(bulk.created, 'new task')}, {bulk.known:,} there already{refused}."
        )
