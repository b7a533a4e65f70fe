"""Tasks and batches on pages."""

import re

import psycopg
import pytest

from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.tasks import S, Tasks

HOSTILE = "https://a.example/?q=<script>alert(1)</script>"


@pytest.fixture
def tasks(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def test_without_tasks_it_says_what_to_do(ada: Browser, rita: Browser) -> None:
    assert "There are no tasks." in ada.get("/tasks").words
    assert "/tasks/new" in ada.get("/tasks").text
    assert "/tasks/new" not in rita.get("/tasks").text
    assert "There are no batches." in rita.get("/batches").words


def test_one_is_created(api: Api, ada: Browser) -> None:
    page = ada.send("/tasks/new", "/tasks", urls=HOSTILE, priority="2", crawl_frequency="6h", is_recurring="on")
    assert re.fullmatch(r"/tasks/\d+", page.path)
    (task,) = api.services.tasks.page().rows
    assert page.notice == f"Task {task.id} is created."
    assert (task.priority, task.crawl_frequency.total_seconds(), task.is_recurring) == (2, 21_600, True)
    assert "<script>alert" not in page.text
    again = ada.send("/tasks/new", "/tasks", urls=HOSTILE)
    assert again.notice == f"Task {task.id} exists and has not ended; it stays as it is."
    assert "<script>alert" not in ada.get("/tasks").text


def test_many_are_pasted_into_a_batch(api: Api, ada: Browser) -> None:
    page = ada.send("/batches", "/batches", name="black/friday <b>")
    assert page.notice.startswith("The batch black/friday <b> is made.")
    assert page.path == "/batches/black%2Ffriday%20%3Cb%3E"
    assert "<b>" not in page.text
    pasted = "https://a.example/1\nnonsense://\nhttps://a.example/2\nhttps://b.example/1"
    page = ada.send("/tasks/new", "/tasks", urls=pasted, batch="black/friday <b>", priority="7")
    assert page.notice.startswith("Created 3 tasks. 1 line refused. Line 2:")
    assert [task.priority for task in api.services.tasks.page().rows] == [7, 7, 7]
    assert "3 rows shown" in ada.get("/tasks", batch="black/friday <b>").words
    assert "3 pending" in ada.get("/batches").words
    for fields, problem in (
        ({"urls": "a.example", "priority": "11"}, "A priority is from 1"),
        ({"urls": "a.example", "crawl_frequency": "often"}, "“Again every” must be a duration"),
        ({"urls": "a.example", "batch": "unknown"}, "There is no batch"),
        ({"urls": " "}, "Fill in “URLs”"),
        ({"urls": "\n".join(f"a.example/{n}" for n in range(10_001))}, "A form takes 10,000 URLs, not 10,001"),
    ):
        assert problem in ada.send("/tasks/new", "/tasks", **fields).notice


def test_filters(ada: Browser, tasks: Tasks) -> None:
    tasks.failed("a.example/1")
    tasks.one("b.example/1", priority=1)
    assert "1 row shown" in ada.get("/tasks", status="failed").words
    assert "https://b.example/1" in ada.get("/tasks", priority=1).words
    assert "1 row shown" in ada.get("/tasks", domain="a.example", status="", batch="").words
    assert "No task fits these filters." in ada.get("/tasks", status="cancelled").words
    assert "There is no" in ada.get("/tasks", domain="unknown.example").notice
    assert "must be one of" in ada.get("/tasks", status="odd").notice
    assert "“Priority” must be a whole number." in ada.get("/tasks", priority="x").notice
    assert "Failed 1 1 in the last day" in ada.get("/tasks").words


def test_one_task_and_its_buttons(api: Api, ada: Browser, tasks: Tasks) -> None:
    task_id = tasks.one("a.example/x")
    here = f"/tasks/{task_id}"
    assert 'form="task-pause"' in ada.get(here).text
    assert 'form="task-resume"' not in ada.get(here).text
    assert ada.send(here, f"{here}/pause").notice == f"Task {task_id} is paused until it is resumed."
    assert tasks.status(task_id) is S.PAUSED
    assert 'form="task-resume"' in ada.get(here).text
    assert ada.send(here, f"{here}/resume").notice == f"Task {task_id} is resumed, and due at once."
    assert ada.send(here, f"{here}/priority", priority="1").notice == f"Task {task_id} has priority 1."
    assert api.services.tasks.show(task_id).priority == 1
    assert "cancelled" in ada.send(here, f"{here}/cancel").notice
    page = ada.send(here, f"{here}/restart")
    assert page.notice == "Task restarted successfully."
    assert "restarted by ada" in page.words
    assert tasks.status(task_id) is S.PENDING
    assert "is pending already" in ada.send(here, f"{here}/restart").notice
    assert ada.send(here, f"{here}/restart-parsing").notice
    assert ada.get("/tasks/815").status == 404


def test_the_live_region_has_no_form_and_differs_by_role(ada: Browser, rita: Browser, tasks: Tasks) -> None:
    task_id = tasks.one()
    regions = ada.client.get(f"/regions/task?id={task_id}").json()
    assert "<form" not in "".join(regions.values())
    assert 'form="task-pause"' in regions["task-now"]
    assert "<button" not in rita.client.get(f"/regions/task?id={task_id}").json()["task-now"]
    assert ada.client.get("/regions/task?id=815").status_code == 404
    assert ada.client.get("/regions/task?id=x").status_code == 404
    assert "Pending" in ada.client.get("/regions/tasks").json()["task-counts"]


def test_failed_tasks_are_restarted_by_filter_with_their_number(ada: Browser, tasks: Tasks) -> None:
    one, two = tasks.failed("a.example/1"), tasks.failed("a.example/2")
    other = tasks.failed("b.example/1")
    page = ada.get("/tasks/restart-failed", domain="a.example")
    assert "This restarts 2 tasks on a.example" in page.words
    fields = page.fields("/tasks/restart-failed")
    done = ada.post("/tasks/restart-failed", **fields)
    assert done.notice == "Restarted 2 tasks."
    assert [tasks.status(each) for each in (one, two, other)] == [S.PENDING, S.PENDING, S.FAILED]
    again = ada.post("/tasks/restart-failed", **fields)
    assert (again.status, again.path) == (200, done.path), "the same form, sent twice, is answered as before"
    assert "No failed task matches." in ada.get("/tasks/restart-failed", domain="a.example").words


def test_a_batch_is_restarted_as_an_operation(api: Api, ada: Browser, tasks: Tasks) -> None:
    batch = api.services.tasks.create_batch("sale", actor="test")
    tasks.failed("a.example/1", batch_id=batch.id)
    assert "crawls 1 task again" in ada.get("/batches/sale").words
    page = ada.send("/batches/sale", "/batches/sale/restart")
    (operation,) = api.services.operations.listing()
    assert page.path == f"/operations/{operation.id}"
    assert page.notice == f"The restart of the batch is operation {operation.id}."
    assert (operation.kind, operation.arguments["name"]) == ("restart-batch", "sale")
    assert ada.get("/batches/unknown").status == 404


def test_a_user_only_reads(rita: Browser, tasks: Tasks) -> None:
    task_id = tasks.failed("a.example/1")
    page = rita.get(f"/tasks/{task_id}")
    assert page.status == 200
    assert [target for target in page.forms() if target != "/logout"] == []
    for path in ("/tasks/new", "/tasks/restart-failed"):
        assert [target for target in rita.get(path).forms() if target != "/logout"] == []
        assert "Only an admin can do this" in rita.get(path).words
    for deed in ("restart", "restart-parsing", "pause", "resume", "cancel", "priority"):
        assert rita.forge(f"/tasks/{task_id}/{deed}", priority="1").status == 403
    for target in ("/tasks", "/tasks/restart-failed", "/batches", "/batches/x/restart"):
        assert rita.forge(target, urls="a.example", name="x").status == 403
    assert tasks.status(task_id) is S.FAILED
