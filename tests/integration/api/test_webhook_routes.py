"""The outbox of webhooks over HTTP: listed, counted, looked at, sent again."""

from datetime import timedelta

import httpx
import psycopg
import pytest

from holdfast.model.webhook import NextStep
from holdfast.webhooks import queries
from holdfast.webhooks.queries import Attempt
from holdfast.webhooks.records import Delivery, DeliveryFilter
from tests.support.accounts import deeds
from tests.support.api import Api
from tests.support.tasks import Tasks

ADMIN = "admin-1 (key test)"
RECEIVER = "https://receiver.example/hook"


class Outbox:
    """Messages of a test's database."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection
        self.tasks = Tasks(connection)
        self._number = 0

    def put(self, receiver: str = RECEIVER) -> int:
        """A message: a task has failed."""
        self._number += 1
        task_id = self.tasks.failed(f"a.example/{self._number}", webhook_url=receiver)
        (delivery,) = queries.page(self.connection, DeliveryFilter(task=task_id)).rows
        return delivery.id

    def take(self) -> list[queries.Taken]:
        return queries.take(self.connection, count=10, lease=timedelta(minutes=5), max_attempts=5)

    def send(self, *ends: Attempt) -> None:
        """Everything that is due, with these ends."""
        for taken, end in zip(self.take(), ends, strict=True):
            assert queries.record(self.connection, taken, end)

    def get(self, delivery_id: int) -> Delivery:
        return queries.get(self.connection, delivery_id)


@pytest.fixture
def outbox(connection: psycopg.Connection) -> Outbox:
    return Outbox(connection)


def walked(client: httpx.Client, path: str) -> list[list[int]]:
    """The ids on all pages of a list, by their Link headers."""
    found, target = [], path
    while target:
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        found.append([item["id"] for item in answer.json()["items"]])
        target = answer.links.get("next", {}).get("url", "")
    return found


def test_the_list_and_the_numbers(api: Api, outbox: Outbox) -> None:
    client = api.reader
    empty = client.get("/api/webhooks/stats").json()
    assert empty == {"waiting": 0, "delivered": 0, "given_up": 0, "oldest_waiting": None, "endpoints_off": 0}
    first, second = outbox.put(), outbox.put()
    outbox.send(Attempt(NextStep.DELIVERED, status=200), Attempt(NextStep.SWITCH_OFF, status=410, error="gone"))
    third, fourth, fifth = (outbox.put("https://another.example/") for _ in range(3))
    newest = [fifth, fourth, third, second, first]
    assert walked(client, "/api/webhooks?limit=2") == [newest[:2], newest[2:4], newest[4:]]
    assert walked(client, "/api/webhooks?state=waiting&limit=2") == [newest[:2], newest[2:3]]
    assert walked(client, "/api/webhooks?state=delivered") == [[first]]
    assert walked(client, "/api/webhooks?state=given_up") == [[second]]
    assert walked(client, f"/api/webhooks?task_id={outbox.get(third).task_id}") == [[third]]
    assert walked(client, "/api/webhooks?task_id=815") == [[]]
    assert walked(client, "/api/webhooks?url=https://another.example/&order=oldest") == [[third, fourth, fifth]]
    numbers = client.get("/api/webhooks/stats").json()
    assert numbers.pop("oldest_waiting") is not None
    assert numbers == {"waiting": 3, "delivered": 1, "given_up": 1, "endpoints_off": 1}


def test_one_message(api: Api, outbox: Outbox) -> None:
    delivery_id = outbox.put()
    outbox.send(Attempt(NextStep.AGAIN, wait=timedelta(minutes=1), status=500, error="try later"))
    found = api.reader.get(f"/api/webhooks/{delivery_id}").json()
    kept = outbox.get(delivery_id)
    assert (found["state"], found["attempts"], found["last_status"]) == ("waiting", 1, 500)
    assert (found["last_error"], found["url"], found["event"]) == ("try later", RECEIVER, "task.failed")
    assert found["message_id"] == str(kept.message_id)
    assert found["body"] == kept.body
    assert found["next_attempt_at"] is not None
    assert found["delivered_at"] is None


def test_a_message_is_sent_again(api: Api, outbox: Outbox) -> None:
    client = api.admin
    delivery_id = outbox.put()
    outbox.send(Attempt(NextStep.SWITCH_OFF, status=410, error="gone"))
    assert outbox.get(delivery_id).state == "given_up"
    answer = client.post(f"/api/admin/webhooks/{delivery_id}/retry")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["state"], answer.json()["gave_up_at"]) == ("waiting", None)
    assert outbox.get(delivery_id).state == "waiting"
    assert deeds(outbox.connection)[-1] == (ADMIN, "retry", "webhook", str(delivery_id))
    count = len(deeds(outbox.connection))
    assert client.post(f"/api/admin/webhooks/{delivery_id}/retry").status_code == 200, "asking twice is no error"
    assert len(deeds(outbox.connection)) == count

    assert [taken.id for taken in outbox.take()] == [delivery_id], "its receiver is switched on"
    refused = client.post(f"/api/admin/webhooks/{delivery_id}/retry")
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"Message {delivery_id} is being sent at this moment; look again in a minute."


def test_what_is_not_there_or_cannot_be_meant(api: Api) -> None:
    client = api.admin
    for missing in (815, 2**63 - 1):
        assert client.get(f"/api/webhooks/{missing}").status_code == 404
        assert client.post(f"/api/admin/webhooks/{missing}/retry").status_code == 404
    for odd in ("0", "-1", str(2**63), "x", "%F0%9F%90%88"):
        assert client.get(f"/api/webhooks/{odd}").status_code == 422
        assert client.post(f"/api/admin/webhooks/{odd}/retry").status_code == 422
    for query in ("state=lost", "task_id=0", f"task_id={2**63}", "limit=0", "cursor=!"):
        assert client.get(f"/api/webhooks?{query}").status_code == 422
    assert api.reader.post("/api/admin/webhooks/1/retry").status_code == 403
