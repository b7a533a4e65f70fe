"""`holdfast batches`: what it answers, to people and to programs, and how it refuses."""

import re

import psycopg
import pytest

from holdfast.db import audit
from holdfast.model.task import TaskStatus
from tests.support.cli import Cli
from tests.support.tasks import Tasks

S = TaskStatus
NAME = "Black Friday"


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


@pytest.fixture
def friday(cli: Cli, at: Tasks) -> Cli:
    """A batch with one task that failed, one that is completed and one that is queued."""
    answer = cli("batches", "create", NAME)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"Made batch {NAME}; `holdfast tasks add URL --batch NAME` fills it.\n"
    for number, status in enumerate((S.FAILED, S.COMPLETED, S.QUEUED)):
        at.bring(at.one(f"a.example/{number}", batch_id=1), status)
    return cli


def test_batches_are_listed_the_newest_first_and_shown(friday: Cli) -> None:
    friday("batches", "create", "other")
    rows = [re.split(r"\s{2,}", line.strip()) for line in friday("batches", "list").out.splitlines()]
    assert rows[0] == ["ID", "BATCH", "TASKS", "OF THEM", "MADE (UTC)"]
    assert rows[2][:3] == ["2", "other", "0"]
    assert rows[3][:4] == ["1", NAME, "3", "1 queued, 1 completed, 1 failed"]
    shown = friday("batches", "show", NAME).out
    assert re.search(rf"^Batch +{NAME} \(1\)$", shown, re.MULTILINE)
    assert re.search(r"^Tasks +3: 1 queued, 1 completed, 1 failed$", shown, re.MULTILINE)
    assert re.search(r"^Tasks +0$", friday("batches", "show", "other").out, re.MULTILINE)
    told = friday("batches", "show", NAME, "--json").json
    assert (told["id"], told["tasks"]) == (1, {"queued": 1, "completed": 1, "failed": 1})


def test_a_list_goes_on_behind_the_last_one_seen(friday: Cli) -> None:
    friday("batches", "create", "other")
    first = friday("batches", "list", "--limit", "1")
    assert first.err == "More rows: --before 2.\n"
    page = friday("batches", "list", "--limit", "1", "--before", "2", "--json").json
    assert ([batch["name"] for batch in page["batches"]], page["before"]) == ([NAME], 1)
    assert friday("batches", "list", "--before", "1").err == "No batches; `holdfast batches create NAME` creates one.\n"


def test_restarting_a_batch_is_asked_about(friday: Cli, at: Tasks) -> None:
    assert friday("batches", "restart", NAME).refused(5).startswith("Nothing was restarted. There is no terminal")
    asked = friday("batches", "restart", NAME, stdin="no\n")
    assert asked.err == f"Crawl up to 2 tasks of batch {NAME} again? [y/N] Error: Nothing was restarted.\n"
    assert friday("batches", "restart", NAME, "--yes").out == f"Restarted 2 tasks of batch {NAME}.\n"
    assert friday("batches", "show", NAME, "--json").json["tasks"] == {"pending": 2, "queued": 1}
    # Nothing rests any more, so nothing is asked.
    assert friday("batches", "restart", NAME, "--json").json == {"batch": NAME, "restarted": 0}
    deeds = audit.listing(at.connection, kind="batch", object_id="1")
    assert [(deed.action, deed.actor[:4]) for deed in deeds] == [("restart", "cli:"), ("create", "cli:")]


def test_names_that_are_taken_unknown_or_none(friday: Cli) -> None:
    assert friday("batches", "create", NAME).refused(5) == f"There is a batch called '{NAME}' already."
    assert friday("batches", "create", " ").refused(2) == "A batch is called by 1 to 255 characters on one line."
    for command in ("show", "restart"):
        assert friday("batches", command, "x").refused(4) == "There is no batch called 'x'."


def test_a_name_cannot_steer_the_terminal(cli: Cli) -> None:
    assert "Made batch a\\u202eb;" in cli("batches", "create", "a\u202eb").out
    for arguments in (["list"], ["show", "a\u202eb"], ["restart", "a\u202eb"]):
        out = cli("batches", *arguments).out
        assert "a\\u202eb" in out
        assert "\u202e" not in out
