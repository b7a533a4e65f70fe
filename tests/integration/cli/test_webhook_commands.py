"""`holdfast webhooks`: what was sent and what was not, sent again, and the secret that is told to nobody who does not ask."""

import re
from datetime import timedelta

import psycopg
import pytest

from holdfast.model.webhook import NextStep
from holdfast.webhooks import queries
from holdfast.webhooks.queries import Attempt
from tests.support.cli import Cli
from tests.support.tasks import Tasks

HOOK = "https://hooks.example/in"


@pytest.fixture
def told(connection: psycopg.Connection) -> list[int]:
    """Three messages: delivered, given up, waiting."""
    at = Tasks(connection)
    for number in range(3):
        at.failed(f"a.example/{number}", webhook_url=f"{HOOK}{number}")
    good, bad, _ = taken = queries.take(connection, count=9, lease=timedelta(minutes=1), max_attempts=10)
    queries.record(connection, good, Attempt(NextStep.DELIVERED, status=200))
    queries.record(connection, bad, Attempt(NextStep.SWITCH_OFF, status=410, error="HTTP 410: gone \x1b[2J"))
    connection.execute(
        "UPDATE webhook_deliveries SET sending = false, next_attempt_at = now() + interval '1 h' WHERE sending"
    )
    return [one.id for one in taken]


def test_the_list_for_people_and_for_programs(cli: Cli, told: list[int]) -> None:
    answer = cli("webhooks", "list")
    assert (answer.code, answer.err) == (0, "")
    lines = [re.split(r"\s{2,}", line.strip()) for line in answer.out.splitlines()]
    assert lines[0] == ["ID", "TASK", "EVENT", "STATE", "SENT", "WHEN", "TO"]
    assert [(line[0], line[3], line[-1]) for line in (lines[2], lines[3], lines[5])] == [
        (str(told[2]), "waiting", f"{HOOK}2"),
        (str(told[1]), "given_up", f"{HOOK}1"),
        (str(told[0]), "delivered", f"{HOOK}0"),
    ]
    assert "HTTP 410: gone \\x1b[2J" in answer.out
    assert answer.out.endswith("1 waiting, 1 delivered, 1 given up; 1 receiver switched off.\n")
    assert [one["id"] for one in cli("webhooks", "list", "--json").json] == told[::-1]
    assert [one["id"] for one in cli("webhooks", "list", "--state", "given_up", "--json").json] == [told[1]]
    assert [one["id"] for one in cli("webhooks", "list", "--before", str(told[1]), "--json").json] == [told[0]]
    assert cli("webhooks", "list", "--task", "815", "--json").json == []
    assert cli("webhooks", "list", "--limit", "0").refused(2) == "A list gives 1 to 500 at once, not 0."


def test_one_message(cli: Cli, told: list[int]) -> None:
    answer = cli("webhooks", "show", str(told[1]))
    assert (answer.code, answer.err) == (0, "")
    for line in (
        rf"Message +{told[1]} \([0-9a-f-]{{36}}\)",
        r"Event +task\.failed, task \d+, \S+ \S+",
        rf"To +{HOOK}1",
        r"State +given_up, \S+ \S+",
        r"Sent +1 time, last \S+ \S+",
        r"Answer +HTTP 410",
        r"Problem +HTTP 410: gone \\x1b\[2J",
        r"status +failed",
        r"url +https://a\.example/1",
    ):
        assert re.search(rf"^{line}$", answer.out, re.MULTILINE), line
    shown = cli("webhooks", "show", str(told[1]), "--json").json
    assert (shown["state"], shown["last_status"], shown["body"]["domain"]) == ("given_up", 410, "a.example")
    assert cli("webhooks", "show", "815").refused(4) == "There is no message 815."


def test_sent_again(cli: Cli, told: list[int], connection: psycopg.Connection) -> None:
    good, bad, waiting = map(str, told)
    assert cli("webhooks", "retry", bad).out == f"Message {bad} will be sent again.\n"
    assert cli("webhooks", "retry", bad).out == f"Message {bad} is due already.\n"
    assert cli("webhooks", "retry", waiting, good, waiting, "--json").json == [
        {"id": told[2], "changed": True},
        {"id": told[0], "changed": True},
    ]
    due = queries.take(connection, count=9, lease=timedelta(minutes=1), max_attempts=10)
    assert [taken.id for taken in due] == sorted(told)
    busy = f"Message {bad} is being sent at this moment; look again in a minute."
    assert cli("webhooks", "retry", bad).refused(5) == busy
    some = cli("webhooks", "retry", "815", bad, "--json")
    assert (some.code, some.json[0]) == (1, {"id": 815, "problem": "There is no message 815."})
    several = cli("webhooks", "retry", "815", bad)
    assert (several.code, several.err) == (1, f"Error: There is no message 815.\nError: {busy}\n")
    actors = connection.execute("SELECT actor FROM audit_log WHERE object_kind = 'webhook'").fetchall()
    assert len(actors) == 3
    assert all(actor.startswith("cli:") for (actor,) in actors)


def test_all_of_a_receiver_sent_again(cli: Cli, told: list[int]) -> None:
    assert cli("webhooks", "retry", "--url", f"{HOOK}1").out == "1 message will be sent again.\n"
    assert cli("webhooks", "retry", "--url", f"{HOOK}1", "--json").json == {"url": f"{HOOK}1", "messages": 0}
    assert "0 receivers switched off" in cli("webhooks", "list").out


@pytest.mark.parametrize("words", [[], ["7", "--url", HOOK]])
def test_what_to_send_again_is_said_in_one_way(bare_cli: Cli, words: list[str]) -> None:
    sentence = "Say what to send again: messages by their ids, or --url for all that were given up."
    assert bare_cli("webhooks", "retry", *words).refused(2) == sentence


def test_the_secret_is_told_only_to_who_insists(bare_cli: Cli) -> None:
    file = bare_cli.folder / ".holdfast" / "webhook.secret"
    where = ".holdfast/webhook.secret"
    none = bare_cli("webhooks", "secret")
    assert (none.code, none.out) == (0, f"There is none yet; the first message, or --reveal, makes {where}.\n")
    refused = bare_cli("webhooks", "secret", "--reveal").refused(5)
    assert refused.startswith("The secret was not printed. There is no terminal to ask on")
    assert bare_cli("webhooks", "secret", "--reveal", stdin="n\n").code == 5
    assert not file.exists()
    shown = bare_cli("webhooks", "secret", "--reveal", stdin="y\n")
    assert shown.out == file.read_text()
    secret = shown.out.strip()
    assert bare_cli("webhooks", "secret").out == f"1 secret in {where}; --reveal prints it.\n"
    told = bare_cli("webhooks", "secret", "--json")
    assert told.json == {"where": where, "set": True, "secrets": 1}
    assert bare_cli("webhooks", "secret", "--reveal", "--yes", "--json").json["values"] == [secret]
    others = [bare_cli("config", "show"), bare_cli("config", "show", "--json"), told, bare_cli("webhooks", "secret")]
    assert not [answer for answer in others if secret in answer.out + answer.err]


def test_a_secret_of_the_environment(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WEBHOOK_SECRET", "the-newest-of-all-secrets,the-one-before-that")
    assert bare_cli("webhooks", "secret").out == "2 secrets in HOLDFAST_WEBHOOK_SECRET; --reveal prints them.\n"
    revealed = bare_cli("webhooks", "secret", "--reveal", "--yes")
    assert revealed.out == "the-newest-of-all-secrets\nthe-one-before-that\n"
    assert not (bare_cli.folder / ".holdfast").exists()
    shown = bare_cli("config", "show").out + bare_cli("config", "show", "--json").out
    assert "the-newest" not in shown
    assert re.search(r"^webhook\.secret +\*\*\* +environment$", shown, re.MULTILINE)
