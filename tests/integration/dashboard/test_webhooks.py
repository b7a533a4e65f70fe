"""Webhooks on pages: messages, their bodies, sending again."""

from datetime import timedelta

import psycopg
import pytest

from holdfast.model.webhook import NextStep
from holdfast.webhooks import queries
from holdfast.webhooks.queries import Attempt
from holdfast.webhooks.records import DeliveryFilter
from tests.support.browsing import Browser
from tests.support.tasks import Tasks

RECEIVER = "https://receiver.example/hook"


@pytest.fixture
def given_up(connection: psycopg.Connection) -> int:
    """A message that was given up."""
    task_id = Tasks(connection).failed("a.example/?<i>x</i>", webhook_url=RECEIVER)
    (delivery,) = queries.page(connection, DeliveryFilter(task=task_id)).rows
    (taken,) = queries.take(connection, count=10, lease=timedelta(minutes=5), max_attempts=5)
    assert queries.record(connection, taken, Attempt(NextStep.SWITCH_OFF, status=410, error="<b>gone</b>"))
    return delivery.id


def test_without_messages_it_says_what_sends_them(rita: Browser) -> None:
    assert "No message was sent yet." in rita.get("/webhooks").words


def test_the_list_and_one_message(rita: Browser, given_up: int) -> None:
    page = rita.get("/webhooks")
    assert "given up task.failed https://receiver.example/hook 1 <b>gone" in page.words
    assert "Given up 1" in page.words
    assert "<b>gone" not in page.text
    assert "1 row shown" in rita.get("/webhooks", state="given_up", url=RECEIVER).words
    assert "No message fits these filters." in rita.get("/webhooks", state="delivered").words
    assert "must be one of" in rita.get("/webhooks", state="odd").notice
    assert "“Task” must be a whole number." in rita.get("/webhooks", task="x").notice
    one = rita.get(f"/webhooks/{given_up}")
    assert "1 attempt" in one.words
    assert '"status": "failed"' in one.words
    assert "<i>x</i>" not in one.text
    assert [target for target in one.forms() if target != "/logout"] == []
    assert rita.get("/webhooks/815").status == 404


def test_it_is_sent_again(ada: Browser, rita: Browser, connection: psycopg.Connection, given_up: int) -> None:
    assert rita.forge(f"/webhooks/{given_up}/retry").status == 403
    assert rita.forge("/webhooks/retry", url=RECEIVER).status == 403
    assert queries.get(connection, given_up).state == "given_up"
    page = ada.send(f"/webhooks/{given_up}", f"/webhooks/{given_up}/retry")
    assert page.notice == f"Message {given_up} is due now: it is sent again."
    assert queries.get(connection, given_up).state == "waiting"
    assert "was due already" in ada.send(f"/webhooks/{given_up}", f"/webhooks/{given_up}/retry").notice


def test_all_of_a_receiver_are_sent_again(ada: Browser, connection: psycopg.Connection, given_up: int) -> None:
    list_page = f"/webhooks?state=given_up&url={RECEIVER}"
    page = ada.send(list_page, "/webhooks/retry", url=RECEIVER)
    assert page.notice == f"1 message to {RECEIVER} is sent again."
    assert queries.get(connection, given_up).state == "waiting"


def test_the_live_region(rita: Browser, given_up: int) -> None:
    assert given_up
    region = rita.client.get("/regions/webhooks").json()["outbox"]
    assert "Given up" in region
    assert "<form" not in region
