"""`holdfast stats` and `holdfast alerts`: figures and what is wrong, for people and programs."""

import re
from datetime import UTC, datetime, timedelta

import psycopg

from holdfast.alerts import queries
from holdfast.alerts.queries import Finding
from holdfast.model.outcome import Outcome
from tests.support.cli import Cli
from tests.support.figures import log


def test_what_was_crawled_when(cli: Cli, connection: psycopg.Connection) -> None:
    log(connection, count=1200, at="now() - interval '10 minutes'", ms=20)
    log(connection, Outcome.SERVER_ERROR, count=300, at="now() - interval '10 minutes'", status=500, ms=20)
    answer = cli("stats")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].split()[:3] == ["FROM", "(UTC)", "PAGES"]
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d  1,200 +20\.0 +300 +1\.5 MB +1,200 +0 +0 +300 +18 ms +24 ms +-$", lines[2]
    )
    assert lines[3] == "", "minutes without anything have no line"
    assert re.search(r"^Pages +1,200 of 1,500 requests, 300 errors, 1\.5 MB$", answer.out, re.MULTILINE)
    assert re.search(r"^Last minute +0\.0 pages/s, 0\.0 errors/s; no requests$", answer.out, re.MULTILINE)
    told = cli("stats", "--since", "30m", "--step", "10m", "--json").json
    assert sum(point["requests"] for point in told["points"]) == 1500
    assert told["now"]["pages_total"] == 1200
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d0:00Z", point["at"]) for point in told["points"])


def test_nothing_was_crawled(cli: Cli) -> None:
    answer = cli("stats", "--since", "2h", "--step", "hour")
    assert (answer.code, answer.err) == (0, "Nothing was crawled since then.\n")
    assert "0 of 0 requests" in answer.out


def test_what_cannot_be_meant(cli: Cli) -> None:
    for arguments, sentence in [
        (["--step", "10s"], "A step is minute, hour, day, or whole minutes such as 5m."),
        (["--step", "fortnight"], "A step is minute, hour, day, or whole minutes such as 5m."),
        (["--since", "yesterday"], "--since must be a time such as 2031-12-24, or how long ago: 6h, 1d."),
        (["--since", "2d"], "That would be more than 2000 points: take a longer step, or less time."),
        (["--since", "9d", "--step", "1h"], "Minutes are kept for 7 days: ask for what is older with a step of a day."),
    ]:
        assert cli("stats", *arguments).refused(2) == sentence


def test_what_is_wrong(cli: Cli, connection: psycopg.Connection) -> None:
    assert cli("alerts").err == "There is no active alert.\n"
    assert cli("alerts", "--all").err == "There are no alerts.\n"
    found = [Finding("worker_silent", "w\x1b1", 180.0, {"host": "h1", "domains": 2}), Finding("backlog", "", 0.1234)]
    with connection.transaction():
        queries.settle(connection, found, kinds=["worker_silent", "backlog"], webhook_url=None)
        queries.settle(connection, found[:1], kinds=["worker_silent", "backlog"], webhook_url=None)
    answer = cli("alerts")
    assert (answer.code, answer.err) == (0, "")
    assert re.search(
        r"1  worker_silent  w\\x1b1  firing +3 min  \d{4}-\d\d-\d\d \d\d:\d\d  -$", answer.out, re.MULTILINE
    )
    assert "└─ Worker w\\x1b1 on h1 sent no heartbeat for 3 min and holds 2 domains." in answer.out
    assert "backlog" not in answer.out
    assert re.search(r"2  backlog +- +resolved +12\.3%  ", cli("alerts", "--all").out)
    told = cli("alerts", "--all", "--limit", "1", "--json").json
    assert (told["before"], [one["state"] for one in told["alerts"]]) == (2, ["resolved"])
    (first,) = cli("alerts", "--all", "--before", "2", "--json").json["alerts"]
    assert first["details"] == {"host": "h1", "domains": 2}
    since = datetime.fromisoformat(first["since"])
    assert abs(datetime.now(UTC) - since) < timedelta(hours=1)
    assert cli("alerts", "--all", "--limit", "1").err == "More rows: --before 2.\n"


def test_an_alert_is_acknowledged(cli: Cli, connection: psycopg.Connection) -> None:
    with connection.transaction():
        queries.settle(connection, [Finding("backlog", "", 0.2)], kinds=["backlog"], webhook_url=None)
    answer = cli("alerts", "acknowledge", "1")
    assert (answer.code, answer.err) == (0, "")
    assert re.fullmatch(r"Alert 1 is acknowledged by cli:\S+ since \d{4}-\d\d-\d\d \d\d:\d\d UTC\.\n", answer.out)
    told = cli("alerts", "acknowledge", "1", "--json").json
    assert (told["id"], told["state"], told["acknowledged_by"][:4]) == (1, "firing", "cli:")
    shown = cli("alerts").out
    assert re.search(r"1  backlog  - +acknowledged +20\.0%  ", shown)
    assert "Acknowledged by cli:" in shown
    assert cli("alerts", "acknowledge", "2").refused(4).startswith("There is no alert 2;")
    assert "It must be at least 1." in cli("alerts", "acknowledge", "0").refused(2)
    assert "holdfast alerts --all --json" in cli("alerts", "--help").out
