"""Webhooks on the wire: signed, sent again while it makes sense, never to where we must not send, and never lost."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.db.connection import Database
from holdfast.errors import UsageError
from holdfast.model.webhook import RetryPolicy
from holdfast.telemetry.clock import SystemClock
from holdfast.webhooks import queries
from holdfast.webhooks.records import Delivery, DeliveryFilter
from holdfast.webhooks.sender import Sender, Sent
from holdfast.webhooks.service import WebhookService
from tests.support.crawls import wait_for
from tests.support.receiver import AGENT, AT_ONCE, SECRET, Answer, Receiver, SenderProcess, settings
from tests.support.tasks import Tasks

SOON = RetryPolicy(first=timedelta(milliseconds=1), longest=timedelta(milliseconds=5))
ERROR = Answer(500, b"try\x1blater")


class Post:
    """A test's outbox, and senders for it."""

    def __init__(self, database: Database, connection: psycopg.Connection, data: Path) -> None:
        self.database = database
        self.tasks = Tasks(connection)
        self.data = data
        self._number = 0

    def put(self, *urls: str) -> list[int]:
        """A message to each of these: a task of theirs has failed."""
        ids = []
        for url in urls:
            self._number += 1
            task_id = self.tasks.failed(f"a.example/{self._number}", webhook_url=url)
            (delivery,) = queries.page(self.tasks.connection, DeliveryFilter(task=task_id)).rows
            ids.append(delivery.id)
        return ids

    def send(
        self, *, patience: RetryPolicy | None = None, clock: Any = None, private: bool = True, **how: object
    ) -> Sent:
        """Everything that is due."""

        async def run() -> Sent:
            given = settings(self.data, **how)
            if not private:
                given = given.model_copy(update={"fetch": given.fetch.model_copy(update={"allow_private": False})})
            sender = Sender(self.database, given, AGENT, patience=patience, clock=clock)
            try:
                return await sender.deliver_due()
            finally:
                await sender.aclose()

        return asyncio.run(run())

    def get(self, delivery_id: int) -> Delivery:
        return queries.get(self.tasks.connection, delivery_id)

    def end(self, delivery_id: int) -> tuple[str, int, int | None, str | None]:
        found = self.get(delivery_id)
        return found.state, found.attempts, found.last_status, found.last_error

    def later(self) -> None:
        self.tasks.connection.execute(
            "UPDATE webhook_deliveries SET next_attempt_at = clock_timestamp() WHERE next_attempt_at IS NOT NULL"
        )


@pytest.fixture
def post(database: Database, connection: psycopg.Connection, tmp_path: Path) -> Post:
    return Post(database, connection, tmp_path / "data")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as served:
        yield served


def test_a_message_arrives_signed_and_is_not_sent_again(post: Post, receiver: Receiver) -> None:
    (delivery,) = post.put(receiver.url())
    assert post.send() == Sent(delivered=1)
    assert post.send() == Sent()
    (got,) = receiver.got
    stored = post.get(delivery)
    assert got.signed_with(SECRET)
    assert not got.signed_with("somebody else's secret")
    assert got.message == {
        "id": str(stored.message_id),
        "event": "task.failed",
        "created_at": stored.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": stored.body,
    }
    assert got.headers["Holdfast-Delivery"] == str(stored.message_id)
    assert got.headers["User-Agent"] == AGENT
    assert post.end(delivery) == ("delivered", 1, 200, None)


def test_while_a_secret_is_replaced_both_hold(post: Post, receiver: Receiver) -> None:
    post.put(receiver.url())
    post.send(secret=f"the-new-secret-of-2026,{SECRET}")
    (got,) = receiver.got
    assert got.signed_with(SECRET)
    assert got.signed_with("the-new-secret-of-2026")


def test_twice_an_error_and_then_it_is_taken(post: Post, receiver: Receiver) -> None:
    receiver.says(ERROR, ERROR)
    (delivery,) = post.put(receiver.url())
    assert post.send(patience=SOON).again >= 1
    assert post.get(delivery).last_status in {500, 200}
    wait_for(lambda: post.send(patience=SOON) and post.get(delivery).state == "delivered", "the third attempt")
    assert post.end(delivery) == ("delivered", 3, 200, None)
    assert len(receiver.got) == 3
    assert len({got.body for got in receiver.got}) == 1, "it is the same message each time"
    assert all(got.signed_with(SECRET) for got in receiver.got)


def test_the_pauses_grow_and_there_is_an_end(post: Post, receiver: Receiver) -> None:
    receiver.says(*[ERROR] * 3)
    (delivery,) = post.put(receiver.url())
    pauses = []
    for _ in range(2):
        assert post.send(attempts=3) == Sent(again=1)
        assert post.send(attempts=3) == Sent(), "not before its time"
        pauses.append(post.tasks.value("SELECT next_attempt_at - clock_timestamp() FROM webhook_deliveries"))
        post.later()
    assert timedelta(seconds=20) < pauses[0] < timedelta(seconds=46) < pauses[1] < timedelta(seconds=91)
    assert post.send(attempts=3) == Sent(given_up=1)
    assert post.end(delivery) == ("given_up", 3, 500, "HTTP 500: try later")


def test_who_is_gone_is_not_sent_to_any_more(post: Post, receiver: Receiver) -> None:
    receiver.says(Answer(410))
    (first,) = post.put(receiver.url())
    assert post.send() == Sent(given_up=1)
    (second,) = post.put(receiver.url())
    assert post.send() == Sent()
    assert len(receiver.got) == 1
    assert post.end(first) == ("given_up", 1, 410, "HTTP 410")
    assert post.end(second) == ("given_up", 0, None, "HTTP 410")
    desk = WebhookService(post.database)
    assert (desk.stats().endpoints_off, desk.stats().given_up) == (1, 2)
    assert desk.retry_all(receiver.url(), actor="ann") == 2
    assert post.send() == Sent(delivered=2)


def test_what_is_refused_is_given_up_at_once(post: Post, receiver: Receiver) -> None:
    receiver.says(Answer(403, b"no such secret"))
    (delivery,) = post.put(receiver.url())
    assert post.send() == Sent(given_up=1)
    assert post.end(delivery) == ("given_up", 1, 403, "HTTP 403: no such secret")


def test_redirects_are_not_followed(post: Post, receiver: Receiver) -> None:
    receiver.says(Answer(307, headers=(("Location", receiver.url("/elsewhere")),)))
    (delivery,) = post.put(receiver.url())
    assert post.send() == Sent(again=1)
    assert [got.path for got in receiver.got] == ["/hook"]
    said = f"HTTP 307: it points to {receiver.url('/elsewhere')}, and redirects are not followed"
    assert post.end(delivery) == ("waiting", 1, 307, said)


def test_who_hangs_keeps_nobody_else_waiting(post: Post, receiver: Receiver) -> None:
    """One at a time: the second message to the one that hangs is put off, not tried."""
    receiver.says(Answer(hang=True), Answer(hang=True))
    first, second, good = post.put(receiver.url(), receiver.url(), receiver.url("/good"))
    assert post.send(timeout=0.3, at_once=1) == Sent(delivered=1, again=1)
    state, attempts, status, error = post.end(first)
    assert (state, attempts, status) == ("waiting", 1, None)
    assert str(error).startswith("timeout")
    assert post.end(second) == ("waiting", 0, None, None)
    assert post.end(good) == ("delivered", 1, 200, None)


def test_who_asks_for_time_is_given_it(post: Post, receiver: Receiver) -> None:
    receiver.says(Answer(429, headers=(("Retry-After", "3000"),)))
    post.put(receiver.url(), receiver.url())
    assert post.send(at_once=1) == Sent(again=1)
    assert len(receiver.got) == 1
    waits = post.tasks.value("SELECT min(next_attempt_at) - clock_timestamp() FROM webhook_deliveries")
    assert timedelta(seconds=2900) < waits <= timedelta(seconds=3000)


def test_nothing_goes_to_a_private_address(post: Post, receiver: Receiver) -> None:
    (delivery,) = post.put(receiver.url())
    assert post.send(private=False) == Sent(given_up=1)
    assert receiver.got == []
    state, _, status, error = post.end(delivery)
    assert (state, status) == ("given_up", None)
    assert str(error).startswith("address_refused: ")


def test_a_killed_sender_s_message_comes_again(post: Post, receiver: Receiver) -> None:
    receiver.says(Answer(hang=True))
    (delivery,) = post.put(receiver.url())
    with SenderProcess(post.database, post.data) as victim:
        wait_for(lambda: receiver.got, "the message to be on its way")
        victim.kill()
    assert post.get(delivery).state == "sending"
    assert post.send() == Sent(), "its lease is not over"
    lease = post.tasks.value("SELECT next_attempt_at - clock_timestamp() FROM webhook_deliveries")
    assert timedelta() < lease <= timedelta(seconds=90), "it comes again by itself"
    post.later()
    assert post.send() == Sent(delivered=1)
    assert [got.headers["Holdfast-Delivery"] for got in receiver.got] == [str(post.get(delivery).message_id)] * 2


def test_of_two_senders_each_message_is_sent_by_one(post: Post, receiver: Receiver) -> None:
    """More are on their way at once than one sender has, before any is answered."""
    receiver.says(*[Answer(after=AT_ONCE + 1)] * (AT_ONCE + 1))
    post.put(*[receiver.url()] * 60)
    with SenderProcess(post.database, post.data) as one, SenderProcess(post.database, post.data) as other:
        counts = (one.end(), other.end())
    assert sum(counts) == 60
    assert all(counts)
    assert set(Counter(got.headers["Holdfast-Delivery"] for got in receiver.got).values()) == {1}
    assert len(receiver.got) == 60
    assert WebhookService(post.database).stats().delivered == 60


def test_called_again_while_it_sends_it_returns_at_once(post: Post, receiver: Receiver) -> None:
    receiver.says(Answer(hang=True))
    post.put(receiver.url())

    async def run() -> tuple[Sent, Sent]:
        sender = Sender(post.database, settings(post.data, timeout=0.5), AGENT)
        try:
            first = asyncio.create_task(sender.deliver_due())
            await asyncio.to_thread(wait_for, lambda: receiver.got, "the message to be on its way")
            return await sender.deliver_due(), await first
        finally:
            await sender.aclose()

    assert asyncio.run(run()) == (Sent(), Sent(again=1))


class Freezes(SystemClock):
    """A minute passes between any two looks."""

    _seen = 0.0

    def now(self) -> float:
        self._seen += 60
        return self._seen


def test_what_was_taken_before_a_freeze_is_not_sent_after_it(post: Post, receiver: Receiver) -> None:
    (delivery,) = post.put(receiver.url())
    assert post.send(clock=Freezes()) == Sent()
    assert receiver.got == []
    post.later()
    assert post.send() == Sent(delivered=1)
    assert post.get(delivery).attempts == 2


def test_a_message_that_cannot_be_written_costs_no_other(post: Post, receiver: Receiver) -> None:
    broken, good = post.put(receiver.url(), receiver.url())
    post.tasks.connection.execute("UPDATE webhook_deliveries SET body = '[1]' WHERE id = %s", (broken,))
    assert post.send(attempts=2) == Sent(delivered=1)
    assert post.get(good).state == "delivered"
    post.later()
    post.send(attempts=2)
    post.later()
    post.send(attempts=2)
    assert post.end(broken) == ("given_up", 2, None, queries.NEVER_ENDED)


def test_the_secret_is_made_with_the_first_message_and_told_to_nobody(
    post: Post, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = post.data / "webhook.secret"
    assert post.send(secret=None) == Sent()
    assert not file.exists(), "nobody has asked for one"
    post.put(receiver.url())
    assert post.send(secret=None) == Sent(delivered=1)
    secret = file.read_text().strip()
    (got,) = receiver.got
    assert got.signed_with(secret)
    assert file.stat().st_mode & 0o777 == 0o600
    tables = ("webhook_deliveries", "webhook_endpoints", "audit_log", "crawl_tasks")
    stored = [str(row) for table in tables for row in post.tasks.connection.execute(f"SELECT t::text FROM {table} t")]
    assert not [text for text in (*stored, caplog.text, *map(str, got.headers.values())) if secret in text]


def test_old_messages_are_forgotten(post: Post, receiver: Receiver) -> None:
    post.put(receiver.url())
    post.send()
    post.tasks.connection.execute("UPDATE webhook_deliveries SET delivered_at = delivered_at - interval '2 h'")
    post.send(keep="3h")
    assert WebhookService(post.database).stats().delivered == 1
    post.send(keep="1h")
    assert WebhookService(post.database).stats().delivered == 0


@pytest.mark.parametrize("limit", [0, 501])
def test_a_list_has_a_length(post: Post, limit: int) -> None:
    with pytest.raises(UsageError, match=rf"^A list gives 1 to 500 at once, not {limit}\.$"):
        WebhookService(post.database).page(limit=limit)
