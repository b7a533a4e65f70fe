"""The queues: Procrastinate's app, with a task for each bell.

The rule: a job here is a doorbell, never the truth. Its handler looks at our tables and does what is due; it raises nothing, and it may
be killed, repeated or run twice at once without harm.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import procrastinate

from holdfast.store.bells import FIRST, NOTIFY, PARSE
from holdfast.store.connect import Database

log: Final = logging.getLogger(__name__)

SCHEMA: Final = "procrastinate"
MAINTENANCE: Final = "maintenance"
_EVERY_TEN_SECONDS: Final = "* * * * * */10"
_CONNECTIONS: Final = 4
"""That its pool may open: one listens."""


@dataclass(frozen=True, slots=True)
class Deeds:
    """What is done when a bell rings."""

    tick: Callable[[], Awaitable[object]]
    """What is due by now."""
    parse: Callable[[int], Awaitable[object]]
    """Parse a task that was fetched."""
    notify: Callable[[], Awaitable[object]]
    """Send the webhooks that are due."""


def make(database: Database, deeds: Deeds) -> procrastinate.App:
    """The app. Its pool is opened by whoever runs it."""
    connector = procrastinate.PsycopgConnector(
        conninfo=database.url,
        min_size=1,
        max_size=_CONNECTIONS,
        timeout=database.connect_timeout,
        kwargs={
            "options": f"{database.options} -c search_path={SCHEMA}",
            "application_name": "holdfast background",
        },
    )
    app = procrastinate.App(connector=connector)

    @app.periodic(cron=_EVERY_TEN_SECONDS)
    @app.task(queue=MAINTENANCE, name="tick", queueing_lock="tick", priority=FIRST)
    async def tick(timestamp: int) -> None:  # noqa: ARG001 — Procrastinate says for when it is
        await _do("tick", deeds.tick())

    @app.task(queue=PARSE, name=PARSE)
    async def parse(task_id: int) -> None:
        await _do(f"task {task_id}", deeds.parse(task_id))

    @app.task(queue=NOTIFY, name=NOTIFY)
    async def notify() -> None:
        await _do("webhooks", deeds.notify())

    return app


async def _do(what: str, deed: Awaitable[object]) -> None:
    try:
        await deed
    except Exception:
        # What is due stays due, and the next tick rings again.
        log.exception("%s: a fault of ours", what)
