"""What a background does at every tick beside the schedule: figures, alerts that are told, and a duty that fails alone."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from holdfast import factories
from holdfast.background.process import BackgroundProcess
from holdfast.control.maintenance import Maintenance
from holdfast.db import runs
from holdfast.db.connection import Connection
from holdfast.webhooks import queries
from holdfast.webhooks.records import DeliveryFilter
from tests.support.crawls import Crawls, wait_for
from tests.support.figures import log
from tests.support.receiver import SECRET, Receiver


@contextmanager
def background(crawls: Crawls, maintenance: Maintenance | None = None) -> Iterator[None]:
    """A background in a thread of this process, with an event loop of its own."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    made: list[BackgroundProcess] = []

    async def main() -> None:
        crew = factories.background_services(crawls.settings, crawls.database)
        made.append(BackgroundProcess(crawls.database, replace(crew, maintenance=maintenance) if maintenance else crew))
        await made[0].run(ready.set)

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(made[0].stop)
        thread.join(30)
        assert not thread.is_alive(), "the background does not stop"
        loop.close()


def test_a_tick_adds_up_looks_around_and_tells(crawls: Crawls) -> None:
    connection = crawls.connection
    log(connection, count=5, at="now() - interval '10 minutes'")
    connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at) VALUES ('w1', 'h', 1, now() - interval '1 hour')"
    )
    runs.begin(connection, worker="w1")
    with Receiver() as receiver:
        url = receiver.url("/alerts")
        crawls.set(webhook={"alerts_url": url, "secret": SECRET})
        with background(crawls):
            wait_for(lambda: receiver.got, "a message")
            wait_for(lambda: crawls.value("SELECT bool_and(isfinite(done_at)) FROM duties"), "every duty")
            wait_for(lambda: queries.page(connection, DeliveryFilter()).rows[0].delivered_at, "the message to be taken")
    (got,) = receiver.got
    assert got.signed_with(SECRET)
    assert (got.message["event"], got.message["data"]["kind"]) == ("alert.firing", "worker_silent")
    assert crawls.value("SELECT sum(requests) FROM stats_minute") == 5
    assert crawls.value("SELECT count(*) FROM alerts WHERE resolved_at IS NULL") == 1


@dataclass(frozen=True, slots=True)
class Failing(Maintenance):
    """One duty fails each time."""

    done: threading.Event = field(default_factory=threading.Event)

    def duties(self) -> Mapping[str, Callable[[Connection], object]]:
        def fail(_: Connection) -> object:
            raise ValueError("broken")

        return {"one that fails": fail, "another": lambda _: self.done.set()}


def test_a_duty_that_fails_keeps_no_other_from_being_done(crawls: Crawls, caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing()
    with background(crawls, failing):
        assert failing.done.wait(60)
    assert "one that fails: a fault of ours" in caplog.text
    assert "broken" in caplog.text
