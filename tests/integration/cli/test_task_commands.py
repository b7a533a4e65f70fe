"""`holdfast tasks`: what it answers, to people and to programs, and how it refuses."""

import gzip
import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.control.scheduler import Scheduler
from holdfast.db import audit, sweeper, task_frontier
from holdfast.db.domains import NewDomains
from holdfast.model.task import TaskStatus
from holdfast.model.url import UrlRules, url_key
from holdfast.tasks.service import BULK
from tests.support.cli import Cli
from tests.support.tasks import Tasks

S = TaskStatus
NOBODY_TO_ASK = "There is no terminal to ask on; --yes confirms."


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def fact(answer: str, label: str) -> str:
    found = re.search(rf"^{label} +(.*)$", answer, re.MULTILINE)
    assert found, f"{label} is not in {answer}"
    return found[1]


# Asking for tasks -----------------------------------------------------------------------------------------------------


def test_a_task_is_asked_for_as_the_options_say(cli: Cli, at: Tasks) -> None:
    cli("batches", "create", "b")
    parent = at.one("p.example/")
    options = ["--every", "6h", "--priority", "2", "--at", "2031-12-24 18:00", "--batch", "b", "--parser", "product"]
    options += ["--webhook", "https://hooks.example/x", "--after", str(parent), "--retries", "0"]
    answer = cli("tasks", "add", "WWW.a.example/x?utm_source=y", *options)
    assert (answer.code, answer.err) == (0, "")
    (found,) = re.findall(r"^Task (\d+) for ", answer.out)
    state = f"pending, due 2031-12-24 18:00 UTC, after task {parent}; every 6h"
    assert answer.out == f"Task {found} for https://www.a.example/x is {state}.\n"
    task = at.get(int(found))
    assert (task.crawl_frequency, task.priority, task.scheduled_at) == (
        timedelta(hours=6),
        2,
        datetime(2031, 12, 24, 18, tzinfo=UTC),
    )
    assert (task.is_recurring, task.max_retries, task.parent_task_id, task.parser_name) == (True, 0, parent, "product")
    assert (task.webhook_url, task.batch_id) == ("https://hooks.example/x", 1)
    assert task.created_by.startswith("cli:")
    assert audit.listing(at.connection, kind="task", object_id=found)[0].actor == task.created_by


def test_a_url_that_has_a_task_keeps_it(cli: Cli, at: Tasks) -> None:
    first = cli("tasks", "add", "a.example", "--once", "--json").json["tasks"][0]
    again = cli("tasks", "add", "https://a.example/", "--priority", "1")
    assert again.out == f"Task {first['id']} for https://a.example/ was there already and is pending, due now; once.\n"
    assert at.get(first["id"]).priority == 5


def test_what_is_no_url_is_told_and_the_rest_is_added(cli: Cli, at: Tasks) -> None:
    answer = cli("tasks", "add", "a.example/1", "mailto:\x1b", "a.example/2", "--json")
    assert answer.code == 1
    assert answer.err == "argument 2: 'mailto:\\x1b' is neither an http or https URL nor a domain.\n"
    assert (answer.json["created"], answer.json["known"], answer.json["bad"]) == (2, 0, 1)
    assert [task["url"] for task in answer.json["tasks"]] == ["https://a.example/1", "https://a.example/2"]
    assert at.value("SELECT count(*) FROM crawl_tasks") == 2


def test_a_file_of_urls(cli: Cli, at: Tasks) -> None:
    at.one("a.example/2")
    (cli.folder / "list").write_bytes(
        b"# offers\na.example/1\r\n\na.example/2\n\xff\nb ad\n" + b"x" * 200_000 + b"\nb.example"
    )
    answer = cli("tasks", "add", "--file", "list", "--every", "1d")
    assert (answer.code, answer.out) == (1, "8 lines: 2 new tasks, 1 there already, 3 bad.\n")
    told = answer.err.splitlines()
    assert told[:2] == ["line 5: The line is not UTF-8 text.", "line 6: 'https://b ad' is not a valid URL."]
    assert told[2].startswith("line 7: 'https://xxxx")
    assert max(map(len, told)) < 200
    again = cli("tasks", "add", "c.example", "--file", "list", "--json").json
    assert (again["created"], again["known"], again["bad"], again["lines"]) == (1, 3, 3, 8)
    assert [bad["line"] for bad in again["bad_lines"]] == [5, 6, 7]


def test_standard_input_of_any_length(cli: Cli, at: Tasks) -> None:
    urls = b"".join(b"a.example/%d\n" % number for number in range(2 * BULK + 5)) + b"b ad\n" * 30
    answer = cli("tasks", "add", "--file", "-", "--once", stdin=urls)
    assert (answer.code, answer.out) == (1, "2,035 lines: 2,005 new tasks, 0 there already, 30 bad.\n")
    assert answer.err.splitlines()[-1] == "… and 10 more"
    assert len(answer.err.splitlines()) == 21
    assert at.value("SELECT count(*) FROM crawl_tasks WHERE NOT is_recurring") == 2 * BULK + 5
    deeds = audit.listing(at.connection, kind="task")
    assert [(deed.action, deed.object_id, deed.details["tasks"]) for deed in deeds] == [
        ("create", "*", 5),
        ("create", "*", BULK),
        ("create", "*", BULK),
    ]
    assert cli("tasks", "add", "--file", "-", stdin=b"").out == ""


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            gzip.compress(b"a.example", mtime=0),
            "The file is packed; unpack it first: `gzip -dc FILE | holdfast tasks add --file -`.",
        ),
        (b"\x89PNG\r\n"[:4] + b"\0x\n", "The file is not UTF-8 text; it takes a URL or a domain a line."),
    ],
)
def test_a_file_that_is_no_text_is_refused_as_a_whole(cli: Cli, at: Tasks, content: bytes, sentence: str) -> None:
    assert cli("tasks", "add", "--file", "-", stdin=content).refused(2) == sentence
    assert at.value("SELECT count(*) FROM crawl_tasks") == 0


def test_a_file_that_cannot_be_read_after_all(cli: Cli) -> None:
    sentence = cli("tasks", "add", "--file", "/proc/self/mem").refused(1)  # it opens, and has no first page
    assert sentence == "Reading stopped after line 0: Input/output error. The same command adds what is missing."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name what to crawl: URLs, or --file FILE."),
        (["a.example", "--once", "--every", "6h"], "--every and --once exclude each other."),
        (
            ["a.example", "--every", "soon"],
            '--every must be a duration: seconds, or a text such as "45s", "1h30m" or "7 days".',
        ),
        (["a.example", "--every", "0s"], "A frequency is from one second to 36500 days."),
        (["a.example", "--at", "6h"], "--at must be a time such as 2031-12-24 or 2031-12-24T18:00+01:00."),
        (
            ["a.example", "--at", "0001-01-01T00:00+14:00"],
            "A time is written with its time zone, and lies after 1970 and before the year 9999.",
        ),
        (["a.example", "--parser", "../x"], "A parser is one word of letters, digits, dots and dashes."),
        (["--file", "missing"], "The seed file missing cannot be read: No such file or directory. Check the path."),
    ],
)
def test_tasks_that_cannot_be_meant_need_no_database(bare_cli: Cli, arguments: list[str], sentence: str) -> None:
    assert bare_cli("tasks", "add", *arguments).refused(2) == sentence


def test_a_batch_and_a_parent_must_be_there(cli: Cli, at: Tasks) -> None:
    assert cli("tasks", "add", "a.example", "--batch", "x").refused(4) == "There is no batch called 'x'."
    assert cli("tasks", "add", "a.example", "--after", "9").refused(4) == "A parent task of these tasks does not exist."
    assert at.value("SELECT count(*) FROM crawl_tasks") == 0


# Looking --------------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_the_newest_first_by_filters_and_pages(cli: Cli, at: Tasks) -> None:
    at.connection.execute("INSERT INTO crawl_batches (name) VALUES ('b')")
    first = at.failed("a.example/1", batch_id=1)
    second = at.one("b.example/1", priority=2, is_recurring=False, scheduled_at=datetime(2031, 1, 1, tzinfo=UTC))
    lines = [re.split(r"\s{2,}", line.strip()) for line in cli("tasks", "list").out.splitlines()]
    assert lines[0] == ["ID", "STATUS", "PRIORITY", "EVERY", "NEXT (UTC)", "URL"]
    assert lines[2] == [str(second), "pending", "2", "once", "2031-01-01 00:00", "https://b.example/1"]
    assert lines[3] == [str(first), "failed", "5", "1d", "-", "https://a.example/1"]
    assert lines[4] == ["└─ gone"]

    def ids(*options: str) -> list[int]:
        return [task["id"] for task in cli("tasks", "list", *options, "--json").json["tasks"]]

    assert ids() == [second, first]
    assert ids("--status", "failed") == ids("--domain", "www.a.example") == ids("--batch", "b") == [first]
    assert ids("--priority", "2") == [second]
    page = cli("tasks", "list", "--limit", "1")
    assert page.err == f"More rows: --before {second}.\n"
    assert cli("tasks", "list", "--limit", "1", "--json").json["before"] == second
    assert ids("--before", str(second)) == [first]
    assert cli("tasks", "list", "--status", "paused").err == "No such task; `holdfast tasks add URL` adds one.\n"
    assert cli("tasks", "list", "--domain", "c.example").code == 4
    assert cli("tasks", "list", "--batch", "c").code == 4
    assert cli("tasks", "list", "--limit", "501").code == 2


def test_a_task_shows_where_it_is_why_and_what_is_next(cli: Cli, at: Tasks) -> None:
    task_id = at.completed()
    answer = cli("tasks", "show", str(task_id))
    assert (answer.code, answer.err) == (0, "")
    assert fact(answer.out, "URL") == "https://a.example/x"
    assert fact(answer.out, "Status") == "completed: parsed"
    assert re.fullmatch(
        r"its URL is crawled again, as a new task in 24 h \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\)", fact(answer.out, "Next")
    )
    assert fact(answer.out, "Archive") == "w1-1.warc.gz, 200 bytes at 10"
    assert fact(answer.out, "Parsed by") == "generic 1.0"
    told = cli("tasks", "show", str(task_id), "--json").json
    assert (told["id"], told["status"], told["crawl_frequency"]) == (task_id, "completed", "1d")
    assert told["url_hash"] == at.get(task_id).url_hash.hex()
    assert told["archive"]["payload_digest"] == (b"d" * 32).hex()
    assert told["next"]["at"] == told["next_crawl_at"]


def test_a_queued_task_says_what_its_url_waits_for(cli: Cli, at: Tasks) -> None:
    task_id = at.one()
    tick = Scheduler(UrlRules(), NewDomains()).tick(at.connection)
    assert tick.queued == 1
    shown = cli("tasks", "show", str(task_id)).out
    assert fact(shown, "Status") == "queued: due"
    assert fact(shown, "Waits for").startswith("a worker: none is running; ")
    at.connection.execute("UPDATE domains SET is_active = false")
    sweeper.fold_wakes_now(at.connection, at.get(task_id).domain_id)
    shown = cli("tasks", "show", str(task_id)).out
    assert (
        fact(shown, "Waits for")
        == "the domain is switched off; `holdfast domains set a.example active=yes` switches it on"
    )


def test_an_exhausted_domain_holds_no_task_up(cli: Cli, at: Tasks) -> None:
    task_id = at.one()
    at.connection.execute("UPDATE domains SET status = 'active', status_reason = 'test'")
    at.connection.execute(
        "UPDATE domains SET status = 'exhausted', status_reason = 'done', next_crawl_after = now() + interval '1 day'"
    )
    Scheduler(UrlRules(), NewDomains()).tick(at.connection)
    waits = cli("tasks", "show", str(task_id), "--json").json["waits"]
    assert [wait["what"] for wait in waits if "exhausted" in wait["what"]] == []
    assert len(waits) == 1


def test_a_task_that_was_led_elsewhere_says_where(cli: Cli, at: Tasks) -> None:
    task_id = at.one()
    at.connection.execute(
        "UPDATE crawl_tasks SET fetch_url = %s, fetch_key = %s, hops = 1",
        ("https://b.example/y", url_key("https://b.example/y")),
    )
    Scheduler(UrlRules(), NewDomains()).tick(at.connection)
    shown = cli("tasks", "show", str(task_id)).out
    assert fact(shown, "Led to") == "https://b.example/y"
    assert fact(shown, "Waits for").startswith("a worker: none is running; ")


def test_what_the_web_said_cannot_steer_the_terminal(cli: Cli, at: Tasks) -> None:
    task_id = at.one()
    assert task_id in at.due()
    error = "it said \x1b[2J\u202e\nand more " + "z" * 300
    task_frontier.record_results(at.connection, [at.result(task_id, error=error, permanent=True)])
    for arguments in (["show", str(task_id)], ["list"], ["history", str(task_id)]):
        out = cli("tasks", *arguments).out
        assert not re.search(r"[\x1b\u202e]", out)
        assert r"it said \x1b[2J" in out
    assert max(map(len, cli("tasks", "list").out.splitlines())) <= 110
    shown = cli("tasks", "show", str(task_id)).out
    assert fact(shown, "Status").startswith(r"failed: it said \x1b[2J\u202e\x0aand more zzz")
    assert fact(shown, "Next") == f"nothing by itself; `holdfast tasks restart {task_id}` tries it again"


def test_history_shows_every_crawl_of_the_url_the_oldest_first(cli: Cli, at: Tasks) -> None:
    first = at.completed()
    at.recur(first)
    (second,) = at.spawn()
    at.bring(second, S.PAUSED)
    answer = cli("tasks", "history", str(second))
    assert answer.err == ""
    lines = answer.out.splitlines()
    assert lines[0] == "https://a.example/x"
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[3:]]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (str(first), "made", "by test"),
        (str(first), "pending → queued", "due"),
        (str(first), "queued → crawling", "fetching"),
        (str(first), "crawling → downloaded", "fetched"),
        (str(first), "downloaded → queued_parse", "to be parsed"),
        (str(first), "queued_parse → parsing", "parsing"),
        (str(first), "parsing → completed", "parsed"),
        (str(second), "made", "by schedule"),
        (str(second), "pending → paused", "paused by test"),
    ]
    told = cli("tasks", "history", str(first), "--json").json
    assert [crawl["task"]["id"] for crawl in told] == [first, second]
    assert [event["to_status"] for event in told[1]["events"]] == ["paused"]
    short = cli("tasks", "history", str(first), "--limit", "1")
    assert short.err == "The last 1 crawl; --limit shows more.\n"
    assert f"{second}  " in short.out
    assert "completed" not in short.out


def test_statistics_by_status(cli: Cli, at: Tasks) -> None:
    at.completed("a.example/1")
    at.one("a.example/2")
    answer = cli("tasks", "stats", "--last", "6h")
    rows = {line.split()[0]: line.split()[1:] for line in answer.out.splitlines()[2:]}
    assert list(rows) == list(TaskStatus)
    assert rows["pending"] == ["1", "-", "-"]
    assert rows["completed"][:2] == ["1", "1"]
    assert answer.err.startswith("LATELY: ended in the last 6h.")
    told = cli("tasks", "stats", "--json").json
    assert (told["last"], told["statuses"]["pending"]["tasks"], told["statuses"]["completed"]["lately"]) == ("1d", 1, 1)


# Changing -------------------------------------------------------------------------------------------------------------


def test_each_operation_says_what_became_of_the_task(cli: Cli, at: Tasks) -> None:
    task_id = str(at.completed())
    for arguments, told in [
        (["restart-parsing", task_id], "queued_parse"),
        (["pause", task_id], "paused"),
        (["pause", task_id], "paused"),
        (["resume", task_id], "pending, due now"),
        (["cancel", task_id], "cancelled"),
        (["restart", task_id, "--at", "2031-01-01", "--priority", "3"], "pending, due 2031-01-01 00:00 UTC"),
    ]:
        answer = cli("tasks", *arguments)
        assert (answer.code, answer.out, answer.err) == (0, f"Task {task_id} is {told}.\n", ""), arguments
    assert at.get(int(task_id)).priority == 3
    hurried = cli("tasks", "priority", task_id, "1").out
    assert hurried == f"Task {task_id} has priority 1, and is pending, due 2031-01-01 00:00 UTC.\n"
    assert cli("tasks", "priority", task_id, "1", "--json").json["priority"] == 1
    deeds = audit.listing(at.connection, kind="task", object_id=task_id)
    actions = ["priority", "restart", "cancel", "resume", "pause", "restart_parsing"]
    assert [(deed.action, deed.actor[:4]) for deed in deeds] == [(action, "cli:") for action in actions]


def test_a_restart_of_what_is_pending_changes_nothing_and_says_so(cli: Cli, at: Tasks) -> None:
    task_id = at.one()
    answer = cli("tasks", "restart", str(task_id), "--priority", "1")
    assert (answer.code, answer.out) == (0, f"Task {task_id} is pending, due now.\n")
    assert answer.err == f"Task {task_id} was pending already, and stays as it is.\n"
    assert at.get(task_id).priority == 5
    assert cli("tasks", "restart", str(task_id)).err == ""


def test_retries_are_kept_if_asked_for(cli: Cli, at: Tasks) -> None:
    task_id = at.failed()
    at.connection.execute("UPDATE crawl_tasks SET retry_count = 2")
    cli("tasks", "restart", str(task_id), "--keep-retries")
    assert at.get(task_id).retry_count == 2
    at.bring(task_id, S.CANCELLED)
    cli("tasks", "restart", str(task_id))
    assert at.get(task_id).retry_count == 0


def test_of_several_the_rest_is_done(cli: Cli, at: Tasks) -> None:
    first, second, third = at.add("a.example/1", "a.example/2", "a.example/3")
    at.bring(second, S.FAILED)
    answer = cli("tasks", "pause", *map(str, (first, second, 99, third, first)))
    assert (answer.code, answer.out) == (1, f"Task {first} is paused.\nTask {third} is paused.\n")
    forbidden, missing = answer.err.splitlines()
    assert forbidden.startswith(f"Task {second} is failed; pause is for tasks that are ")
    assert missing == "There is no task 99."
    as_json = cli("tasks", "cancel", str(first), "99", "--json")
    assert as_json.code == 1
    assert [task["status"] for task in as_json.json["tasks"]] == ["cancelled"]
    assert as_json.json["refused"] == [{"id": 99, "problem": "There is no task 99."}]


def test_a_task_that_is_not_there(cli: Cli) -> None:
    for command in ["show", "history", "restart", "restart-parsing", "pause", "resume", "cancel"]:
        assert cli("tasks", command, "9").refused(4) == "There is no task 9.", command
        assert cli("tasks", command, "0").code == 2, command


def test_what_the_state_forbids_is_refused(cli: Cli, at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.QUEUED)
    sentence = cli("tasks", "restart", str(task_id)).refused(5)
    assert sentence.startswith(f"Task {task_id} is queued; restart is for tasks that are ")
    assert cli("tasks", "priority", str(task_id), "11").code == 2
    assert cli("tasks", "priority", "9", "1").refused(4) == "There is no task 9."


def test_all_that_failed_is_restarted_when_a_person_says_so(cli: Cli, at: Tasks) -> None:
    failed = [at.failed(f"a.example/{number}") for number in range(3)] + [at.failed("b.example/1")]
    sentence = cli("tasks", "restart-failed").refused(5)
    assert sentence == f"Nothing was restarted. {NOBODY_TO_ASK}"
    asked = cli("tasks", "restart-failed", "--domain", "a.example", "--since", "2031-01-01", stdin="n\n")
    assert asked.code == 5
    question = "Restart every task that failed on a.example since 2031-01-01 00:00 UTC? [y/N] "
    assert asked.err == f"{question}Error: Nothing was restarted.\n"
    assert {at.status(task_id) for task_id in failed} == {S.FAILED}
    assert cli("tasks", "restart-failed", "--domain", "a.example", "--limit", "1").out == "Restarted 1 task.\n"
    assert (
        cli("tasks", "restart-failed", "--since", "1h", "--domain", "b.example", "--yes").out == "Restarted 1 task.\n"
    )
    assert cli("tasks", "restart-failed", "--since", "2031-01-01", "--yes").out == "Restarted 0 tasks.\n"
    rest = cli("tasks", "restart-failed", "--json", stdin="yes\n").json
    assert rest == {
        "restarted": 2,
        "tasks": [{"id": 2, "url": "https://a.example/1"}, {"id": 3, "url": "https://a.example/2"}],
    }
    assert {at.status(task_id) for task_id in failed} == {S.PENDING}
    assert cli("tasks", "restart-failed", "--since", "soon").refused(2) == (
        "--since must be a time such as 2031-12-24, or how long ago: 6h, 1d."
    )
    assert cli("tasks", "restart-failed", "--batch", "x", "--yes").refused(4) == "There is no batch called 'x'."
