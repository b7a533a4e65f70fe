"""Replays of pages by job, domain, date and parser, and counters that are rebuilt from the log and the frontier."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import factories
from holdfast.db import claims
from holdfast.errors import NotFound, UsageError
from holdfast.operations.handlers import REBUILD_COUNTERS, REPLAY
from holdfast.operations.service import ASKED_AT
from holdfast.replay import queries
from holdfast.replay.records import ReplayMode
from holdfast.replay.service import ReplayRequest, ReplayService
from tests.support.archived import write_parser
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html

PATHS = [f"/p{number}" for number in range(8)]
HOSTS = ("localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    with Pages({"/": html(*PATHS), **{path: html(text=f"words of {path}") for path in PATHS}}) as site:
        yield site


@pytest.fixture
def crawled(crawls: Crawls, pages: Pages) -> Crawls:
    """Two jobs, of one host each, that are completed."""
    write_parser(crawls.folder / "parsers", "shop", "return [{'url': document.url}]")
    crawls.set(parsing={"folder": str(crawls.folder / "parsers")})
    for job, host in zip(("one", "two"), HOSTS, strict=True):
        assert crawls.crawl(pages.url(host=host), job=job, delay=0, parser="shop").completed
    pages.asked.clear()
    return crawls


def answer(crawls: Crawls, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert crawls.command(*arguments, "--json") == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def asked(pages: Pages) -> dict[str, int]:
    return {host: len(pages.paths(host)) for host in HOSTS}


ALL = len(PATHS) + 1


def test_pages_are_fetched_again_by_job_domain_and_date(
    crawled: Crawls, pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = answer(crawled, capsys, "replay", "--fetch", "--job", "one", "--dry-run")
    assert (counted["pages"], counted["looked_at"], counted["waiting"]) == (ALL, ALL, 0)
    assert crawled.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'") == 0, "nothing is changed"
    home = f"localhost:{pages.port}"
    crawled.connection.execute(
        "UPDATE crawled_pages SET crawled_at = crawled_at - interval '10 days' "
        "WHERE url_key IN (SELECT url_key FROM url_frontier WHERE url LIKE '%/p1')"
    )
    assert answer(crawled, capsys, "replay", "--fetch", "--until", "7d", "--dry-run")["pages"] == 2
    done = answer(crawled, capsys, "replay", "--fetch", "--domain", home, "--until", "7d")
    assert [(job["job"], job["pages"]) for job in done["jobs"]] == [("one", 1)]
    assert crawled.value("SELECT state::text FROM crawl_jobs WHERE name = 'one'") == "pending", "it is open again"
    assert answer(crawled, capsys, "replay", "--fetch", "--domain", home)["waiting"] == 1
    assert crawled.crawl(job="one").completed
    assert asked(pages) == {"localhost": ALL, "127.0.0.1": 0}
    crawled.verify()
    assert crawled.value("SELECT action FROM audit_log WHERE action = 'replay' LIMIT 1") == "replay"


def test_a_replay_that_is_killed_goes_on_with_its_time(
    crawled: Crawls, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "CHUNK", 4)
    service = ReplayService(crawled.database)
    request = service.begun(ReplayRequest(ReplayMode.FETCH))
    chunks = 0

    def die(_looked_at: int, _pages: int) -> None:
        nonlocal chunks
        chunks += 1
        if chunks == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        service.run(request, actor="test", watch=die)
    waiting = crawled.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'")
    assert waiting == 8
    for job in ("one", "two"):
        if crawled.value("SELECT state <> 'completed' FROM crawl_jobs WHERE name = %s", job):
            assert crawled.crawl(job=job).completed
    assert sum(asked(pages).values()) == 8
    rest = service.run(request, actor="test")
    assert rest.pages == 2 * ALL - 8
    for job in ("one", "two"):
        assert crawled.crawl(job=job).completed
    assert asked(pages) == {"localhost": ALL, "127.0.0.1": ALL}, "each page once"
    assert service.run(request, actor="test").pages == 0
    crawled.verify()


def test_pages_of_cancelled_jobs_stay_and_parsers_are_replayed_once(
    crawled: Crawls, pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(crawled, capsys, "replay", "--parse", "--parser", "other")["pages"] == 0
    request = ReplayRequest(ReplayMode.PARSE, parser="shop")
    service = ReplayService(crawled.database)
    begun = service.begun(request)
    assert service.run(begun, actor="test").pages == 2 * ALL
    assert service.run(begun, actor="test").waiting == 2 * ALL
    assert answer(crawled, capsys, "parse")["pages"] == 2 * ALL
    assert service.run(begun, actor="test").pages == 0, "they were parsed since"
    assert crawled.value("SELECT count(*) FROM items") == 2 * ALL
    crawled.connection.execute("UPDATE crawl_jobs SET state = 'cancelled' WHERE name = 'two'")
    found = answer(crawled, capsys, "replay", "--fetch")
    assert (found["pages"], found["skipped"]) == (ALL, ALL)
    assert [job["skipped"] is None for job in found["jobs"]] == [True, False]
    assert asked(pages) == dict.fromkeys(HOSTS, 0)
    crawled.verify()


def test_what_cannot_be_meant_is_refused(crawled: Crawls, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["--fetch", "--parse"], "Say what to do"),
        ([], "Say what to do"),
        (["--lost", "--parser", "shop"], "whatever parser"),
        (["--fetch", "--since", "1d", "--until", "2d"], "before an earlier one"),
        (["--fetch", "--job", "none"], "none"),
    ):
        assert crawled.command("replay", *arguments) in (2, 4)
        assert words in capsys.readouterr().err
    for arguments, words in (
        (
            ["--parse", "--parser", "none"],
            "No such page was parsed before, by this parser if one is named: `holdfast parse --again",
        ),
        (["--parse", "--parser", "none"], "No parser is called 'none'; there are: "),
        (["--lost"], "No such page was lost; `holdfast verify` names those that are"),
        (["--fetch", "--since", "2200-01-01"], "No page was fetched that these options select."),
    ):
        assert crawled.command("replay", *arguments) == 0
        said = capsys.readouterr()
        assert words in said.err
        assert said.out.startswith("0 pages of ")
    assert crawled.command("segments", "list", "--machine", "none") == 0
    assert capsys.readouterr() == (
        "",
        "There are no such segments. Segments are listed where archive.store is set; `holdfast segments` shows the machines.\n",
    )
    with pytest.raises(UsageError):
        ReplayRequest(ReplayMode.LOST, parser="shop").check()


def test_counters_are_rebuilt_where_they_differ(
    crawled: Crawls, pages: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(crawled, capsys, "rebuild", "counters")["changed"] == 0
    before = counters(crawled)
    host = f"localhost:{pages.port}"
    crawled.connection.execute("UPDATE domains SET pages_crawled = 3, frontier_size = 9 WHERE domain = %s", (host,))
    crawled.connection.execute("UPDATE job_domains SET pages = 7, done = 1, waiting = 5")
    crawled.connection.execute("UPDATE crawl_runs SET errors = 4 WHERE id = (SELECT min(id) FROM crawl_runs)")
    wrong = counters(crawled)
    found = answer(crawled, capsys, "rebuild", "counters", "--dry-run")
    assert (found["changed"], found["different"], counters(crawled)) == (9, 3, wrong)
    named = {(one["table"], one["name"], one["counter"]): (one["before"], one["after"]) for one in found["changes"]}
    assert named["domains", host, "pages_crawled"] == (3, ALL)
    assert named["job_domains", f"{host} (one)", "waiting"] == (5, 0)
    # A domain that a worker holds is left alone, and named.
    crawled.connection.execute("UPDATE crawl_jobs SET state = 'processing' WHERE name = 'one'")
    crawled.connection.execute("UPDATE domains SET next_crawl_after = NULL")
    crawled.connection.execute(
        "UPDATE job_domains SET ready = true, state = 'open' WHERE job_id = (SELECT id FROM crawl_jobs WHERE name = 'one')"
    )
    job = crawled.value("SELECT id FROM crawl_jobs WHERE name = 'one'")
    held = claims.claim(
        crawled.connection, worker="w9", job_id=job, count=1, lease=timedelta(minutes=1), by_priority=True
    )
    assert [claim.domain for claim in held] == [host]
    left = answer(crawled, capsys, "rebuild", "counters", code=1)
    assert left["held"] == [host]
    assert {one["name"] for one in left["changes"]} & {host, f"{host} (one)"} == set()
    crawled.connection.execute("UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL")
    crawled.connection.execute(
        "UPDATE claim_log SET ended_at = clock_timestamp(), why = 'expired' WHERE ended_at IS NULL"
    )
    rest = answer(crawled, capsys, "rebuild", "counters", "--domain", host)
    assert {one["name"] for one in rest["changes"]} == {host, f"{host} (one)"}
    assert counters(crawled) == before
    assert answer(crawled, capsys, "rebuild", "counters")["changed"] == 0
    crawled.verify()


def counters(crawls: Crawls) -> list[tuple[Any, ...]]:
    return [
        *crawls.rows(
            "SELECT id, pages_crawled, total_error_count, pages_discovered, frontier_size FROM domains ORDER BY id"
        ),
        *crawls.rows(
            "SELECT domain_id, job_id, pages, errors, discovered, waiting, done, denied, failed FROM job_domains ORDER BY 1, 2"
        ),
        *crawls.rows("SELECT id, pages_crawled, errors FROM crawl_runs ORDER BY id"),
    ]


def test_operations_replay_and_rebuild(crawled: Crawls, pages: Pages) -> None:
    handlers = factories.operation_handlers(crawled.settings, crawled.database).by_kind()
    service = ReplayService(crawled.database)
    job = crawled.value("SELECT id FROM crawl_jobs WHERE name = 'one'")
    arguments = service.arguments(ReplayRequest(ReplayMode.FETCH, "one"))
    assert arguments == {"mode": "fetch", "job": job, "domain": None, "parser": None}
    asked_at = crawled.value("SELECT clock_timestamp()").isoformat()
    seen: list[object] = []
    counted = handlers[REPLAY]({**arguments, "dry_run": True, ASKED_AT: asked_at}, "test", seen.append)
    assert (counted["pages"], counted["dry_run"]) == (ALL, True)
    done = handlers[REPLAY]({**arguments, ASKED_AT: asked_at}, "test", seen.append)
    assert (done["pages"], seen[-1]) == (ALL, {"looked_at": ALL, "pages": ALL})
    assert datetime.fromisoformat(str(done["as_of"])) == datetime.fromisoformat(asked_at)
    assert json.dumps(done)
    assert handlers[REPLAY]({**arguments, ASKED_AT: asked_at}, "test", seen.append)["waiting"] == ALL, "a second run"
    with pytest.raises(NotFound):
        service.arguments(ReplayRequest(ReplayMode.FETCH, "none"))
    crawled.connection.execute("UPDATE domains SET pages_crawled = 0")
    rebuilt = handlers[REBUILD_COUNTERS]({"domain": None, "dry_run": False, ASKED_AT: asked_at}, "test", seen.append)
    assert (rebuilt["changed"], rebuilt["held"]) == (2, [])
    assert json.dumps(rebuilt)
    crawled.verify()
