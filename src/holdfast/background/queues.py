"""The job queues: Procrastinate's app, with a task per queue.

The rule: a queue job is only a wake-up; the state is in Holdfast's own tables. Its handler reads them and does what is due; it raises
nothing, and it may be killed, repeated or run twice at once without harm.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import procrastinate

from holdfast.db.connection import Database
from holdfast.db.job_queue import HIGH_PRIORITY, NOTIFY, PARSE

log: Final = logging.getLogger(__name__)

SCHEMA: Final = "procrastinate"
MAINTENANCE: Final = "maintenance"
_EVERY_TEN_SECONDS: Final = "* * * * * */10"
_MAX_CONNECTIONS: Final = 4
"""Connections of its pool; one of them listens."""


@dataclass(frozen=True, slots=True)
class QueueHandlers:
    """The handlers of the queue jobs."""

    tick: Callable[[], Awaitable[object]]
    """Run the periodic tasks that are due."""
    parse: Callable[[int], Awaitable[object]]
    """Parse a fetched task, by its id."""
    notify: Callable[[], Awaitable[object]]
    """Send the webhooks that are due."""


def make_app(database: Database, handlers: QueueHandlers) -> procrastinate.App:
    """Make the Procrastinate app. The caller opens its pool."""
    connector = procrastinate.PsycopgConnector(
        conninfo=database.url,
        min_size=1,
        max_size=_MAX_CONNECTIONS,
        timeout=database.connect_timeout,
        kwargs={
            "options": f"{database.options} -c search_path={SCHEMA}",
            "application_name": "holdfast background",
        },
    )
    app = procrastinate.App(connector=connector)

    @app.periodic(cron=_EVERY_TEN_SECONDS)
    @app.task(queue=MAINTENANCE, name="tick", queueing_lock="tick", priority=HIGH_PRIORITY)
    async def tick(timestamp: int) -> None:  # noqa: ARG001 — passed by Procrastinate
        await _run_logged("tick", handlers.tick())

    @app.task(queue=PARSE, name=PARSE)
    async def parse(task_id: int) -> None:
        await _run_logged(f"task {task_id}", handlers.parse(task_id))

    @app.task(queue=NOTIFY, name=NOTIFY)
    async def notify() -> None:
        await _run_logged("webhooks", handlers.notify())

    return app


async def _run_logged(what: str, handler: Awaitable[object]) -> None:
    try:
        await handler
    except Exception:
        # The work stays due, and the next tick queues it again.
        log.exception("%s: a fault of ours", what)
