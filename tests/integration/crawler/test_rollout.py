"""The roll-out flags (000 §11): what each one's off means by the table of ADR 0036, and that the mode in force is said at start."""

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.db import sweeper, workers
from holdfast.errors import Refused
from holdfast.settings import Settings
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Wall, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for

REFRESHED, WALLED = 2, 3
ADR = Path(__file__).parents[3] / "docs" / "adr" / "0036-what-switched-off-means.md"
_ROW = re.compile(r"^\| `(ENABLE_\w+)` \| `rollout\.(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)
TABLE = {setting: (on, off) for _, setting, on, off in _ROW.findall(ADR.read_text())}
"""What the table says of each flag, on and off."""
OFF = [
    (),
    *((flag,) for flag in TABLE if flag != "smart_scheduling"),
    ("smart_scheduling", "claim_protocol"),
    tuple(TABLE),
]
"""Each alone, where that is allowed, and all together."""


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(9, 4, Site(15, 6, 500), {WALLED: Site(3, 2, 500, wall=Wall.FORBIDDEN)})) as served:
        yield served


def order(web: WebProcess, since: float) -> list[str]:
    """Hosts in the order in which their first page was asked for."""
    return list(dict.fromkeys(hit.host for hit in pages(hits(web, since=since))))


def seen_of(crawls: Crawls, web: WebProcess, off: tuple[str, ...]) -> set[str]:
    """What a crawl with these flags off is seen to do, in the words of the table."""
    crawls.set(worker={"domains": 1}, rollout=dict.fromkeys(off, False), domains={"crawl_delay": 0.02})
    assert crawls.command("seeds", "add", web.url(REFRESHED)) == 0
    make_exhausted_and_due(crawls)
    since = now()
    job = crawls.begin(web.url(0), web.url(1), web.url(WALLED), max_pages_per_domain=5).job
    # The last one that was met is worth the most.
    crawls.connection.execute("UPDATE job_domains SET priority = domain_id")
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.total() >= 1, "the first page")
        shared = False
        with crawls.database.connect() as second, suppress(Refused):
            workers.acquire_worker_lock(second, exclusive=False)
            shared = True
        worker.end()
    visited = [crawls.domain(web.address.host(site)) for site in (0, 1, WALLED)]
    statuses = [(domain["status"], domain["next_crawl_after"] is not None) for domain in visited]
    chosen, hosts = order(web, since), [web.address.host(site) for site in (0, 1, WALLED)]
    refreshed = crawls.domain(web.address.host(REFRESHED))["status"]
    pages_of, errors = [domain["pages_crawled"] for domain in visited], visited[2]["total_error_count"]
    assert errors == 1, "counters go on"
    unchanged = [("pending", False)] * 3
    limited = pages_of == [5, 5, 0]
    assert limited or pages_of == [15, 15, 0]
    changed = [("active", False)] * 2 if limited else [("exhausted", True)] * 2
    return {
        {str(unchanged): TABLE["domain_tracking"][1], str([*changed, ("blocked", True)]): TABLE["domain_tracking"][0]}[
            str(statuses)
        ],
        TABLE["per_domain_budget"][0 if limited else 1],
        {str(hosts): TABLE["smart_scheduling"][1], str(hosts[::-1]): TABLE["smart_scheduling"][0]}[str(chosen)],
        TABLE["claim_protocol"][0 if shared else 1],
        {"pending": TABLE["refresh_mode"][0], "exhausted": TABLE["refresh_mode"][1]}[refreshed],
    }


def make_exhausted_and_due(crawls: Crawls) -> None:
    """Let the one domain there is be one that was crawled to its end some time ago."""
    crawls.connection.execute("UPDATE url_frontier SET state = 'done'")
    crawls.connection.execute("UPDATE job_domains SET state = 'done', ready = false, waiting = 0, done = 1")
    crawls.connection.execute(
        "UPDATE domains SET frontier_size = 0, status = 'active', status_reason = 'outcome: once'"
    )
    crawls.connection.execute(
        "UPDATE domains SET status = 'exhausted', status_reason = 'frontier_empty', next_crawl_after = clock_timestamp()"
    )


def test_the_table_names_every_flag_once() -> None:
    assert sorted(TABLE) == sorted(Settings().rollout.model_dump())
    assert len({words for row in TABLE.values() for words in row}) == 2 * len(TABLE)


@pytest.mark.parametrize("off", OFF, ids=lambda off: "+".join(off) or "none")
def test_what_a_crawl_does_is_what_the_table_says(crawls: Crawls, web: WebProcess, off: tuple[str, ...]) -> None:
    said = {words[1 if flag in off else 0] for flag, words in TABLE.items()}
    assert seen_of(crawls, web, off) == said


def test_claims_need_scheduling(crawls: Crawls, web: WebProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert crawls.command("crawl", web.url(0), ENABLE_SMART_SCHEDULING="false") == 2
    assert "ENABLE_CLAIM_PROTOCOL requires ENABLE_SMART_SCHEDULING=true" in capsys.readouterr().err


def test_without_claims_only_one_worker_runs(
    crawls: Crawls, web: WebProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second refuses to start with a sentence, and the first is not disturbed."""
    crawls.set(rollout={"claim_protocol": False, "smart_scheduling": False})
    job = crawls.begin(web.url(0)).job
    with crawls.worker(None, "first") as first:
        wait_for(lambda: crawls.total() >= 1, "the first page")
        assert crawls.command("worker", "--name", "second") == 5
        assert capsys.readouterr().err.splitlines()[-1] == (
            "Error: Without claims only one worker may run, and another one does; stop it, or switch claims on."
        )
        with_claims = _scheduling_on()
        assert crawls.command("worker", "--name", "third", ENABLE_CLAIM_PROTOCOL="true", **with_claims) == 5
        assert "A worker runs without claims, which forbids any other; stop it first." in capsys.readouterr().err
        wait_for(lambda: crawls.total() == 15, "all pages")
        assert first.lives
    assert crawls.desk.end(job).completed
    crawls.verify()


def _scheduling_on() -> dict[str, str]:
    # The group's own names are taken out: two names for one setting must not disagree.
    return {
        "ENABLE_SMART_SCHEDULING": "true",
        "HOLDFAST_ROLLOUT_CLAIM_PROTOCOL": "",
        "HOLDFAST_ROLLOUT_SMART_SCHEDULING": "",
    }


def test_a_worker_with_claims_keeps_one_without_from_starting(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), delay=0.1).job
    with crawls.worker(job, "first"):
        wait_for(lambda: crawls.total() >= 1, "the first page")
        crawls.set(rollout={"claim_protocol": False})
        with crawls.worker(job, "second") as second, pytest.raises(Refused, match="only one worker may run"):
            second.end()


def test_a_whole_crawl_without_claims(crawls: Crawls, web: WebProcess) -> None:
    """The command starts one worker, whatever it is asked for."""
    crawls.set(rollout={"claim_protocol": False, "smart_scheduling": False})
    answer = crawls.run("crawl", web.url(0), web.url(1), "--workers", "4", "--json")
    assert (answer.code, answer.json["completed"], answer.json["pages"]) == (0, True, 30)
    assert crawls.value("SELECT count(*) FROM crawl_runs") == 1
    crawls.verify()


def test_without_budgets_of_domains_only_the_crawls_counts(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(rollout={"per_domain_budget": False}, domains={"max_pages_per_run": 4})
    assert crawls.crawl(web.url(0), web.url(1), max_pages=20).progress.pages == 20
    assert max(count for (count,) in crawls.rows("SELECT pages_crawled FROM domains")) > 4
    crawls.verify()
    assert crawls.crawl(web.url(2), max_pages_per_domain=3).completed
    assert crawls.domain(web.address.host(2))["pages_crawled"] == 15


@pytest.mark.parametrize("on", [True, False])
def test_refresh(crawls: Crawls, web: WebProcess, on: bool) -> None:
    """Exhausted domains that are due become pending by the sweep of a worker, or stay as they are."""
    crawls.set(rollout={"refresh_mode": on})
    assert crawls.command("seeds", "add", web.url(1)) == 0
    since = now()
    host = web.address.host(1)
    with crawls.worker(None):
        wait_for(lambda: crawls.domain(host)["status"] == "exhausted", "the first time")
        crawls.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp()")
        if on:
            wait_for(lambda: crawls.pages_of(host) == 30 and crawls.domain(host)["status"] == "exhausted", "the second")
        else:
            swept = crawls.value("SELECT clock_timestamp()")
            wait_for(
                lambda: crawls.value("SELECT max(heartbeat_at) > %s + interval '1 s' FROM workers", swept), "a sweep"
            )
    seen = pages(hits(web, 1, since=since))
    if on:
        assert len(seen) == 30
        assert [hit.status for hit in seen[15:]] == [304] * 15  # nothing had changed, and it was asked like that
    else:
        assert len(seen) == 15
        assert crawls.domain(host)["status"] == "exhausted"
    crawls.verify()


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ({}, "domains are chosen by priority and held by claims"),
        (
            {"claim_protocol": False, "smart_scheduling": False},
            "domains are chosen in the order of their seeds and by this worker alone (claims are off)",
        ),
    ],
)
def test_the_mode_is_logged_at_start(
    crawls: Crawls, web: WebProcess, caplog: pytest.LogCaptureFixture, rollout: dict[str, object], said: str
) -> None:
    crawls.set(rollout=rollout)
    with caplog.at_level(logging.INFO):
        crawls.crawl(web.url(0), max_pages=1)
    assert [record for record in caplog.records if said in record.getMessage()]


def test_a_sweep_alone_refreshes_as_told(crawls: Crawls, web: WebProcess) -> None:
    """The flag is the worker's; the sweep does what it is told, and says what it did."""
    assert crawls.command("seeds", "add", web.url(2)) == 0
    with crawls.worker(None):
        wait_for(lambda: crawls.domain(web.address.host(2))["status"] == "exhausted", "the end")
    crawls.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp()")
    silence = crawls.settings.claims.lease
    assert sweeper.sweep(crawls.connection, run_silence=silence, refresh=False).cooled == 0
    assert sweeper.sweep(crawls.connection, run_silence=silence, refresh=True).cooled == 1
    assert crawls.domain(web.address.host(2))["status"] == "pending"
    crawls.verify()
