"""Told to stop: what is in flight is finished, everything is let go. Told twice: as safe as any other end."""

import signal
from collections.abc import Iterator

import psutil
import pytest

from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, now, wait_for


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(13, 2, Site(15, 8, 600, latency=0.05))) as served:
        yield served


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, "2"), (signal.SIGTERM, "1")])
def test_a_stop_in_order(crawls: Crawls, web: WebProcess, number: signal.Signals, workers: str) -> None:
    since = now()
    asked = ("crawl", *web.urls, "--workers", workers, "--delay", "0.05", "--json")
    with crawls.start(*asked) as program:
        wait_for(lambda: crawls.total() >= 6, "the first pages")
        program.send(number)
        answer = program.end()
    assert (answer.code, answer.json["interrupted"], answer.json["completed"]) == (130, True, False)
    assert crawls.held() == 0
    assert {status for (status,) in crawls.rows("SELECT status::text FROM crawl_runs")} == {"completed"}
    assert {why for (why,) in crawls.rows("SELECT why FROM claim_log")} == {"released"}
    assert crawls.value("SELECT state::text FROM crawls") == "stopped"
    # Every request that the sites had is in the store, and was answered: nothing was thrown away.
    seen = [hit for hit in hits(web, since=since) if hit.path != "/robots.txt"]
    assert {hit.status for hit in seen} == {200}
    assert len(seen) == crawls.total() == answer.json["pages"]
    crawls.verify()
    rest = crawls.crawl(*web.urls, delay=0)
    assert (rest.completed, crawls.total()) == (True, 30)
    assert not log_checks.count_refetches(hits(web, since=since))
    crawls.verify()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_signal_ends_it_at_once(crawls: Crawls, web: WebProcess, workers: str) -> None:
    asked = ("crawl", *web.urls, "--workers", workers, "--delay", "0.05", "--json")
    with crawls.start(*asked) as program:
        wait_for(lambda: crawls.total() >= 6, "the first pages")
        children = psutil.Process(program.pid).children(recursive=True)
        web.pause(5)  # so that there is something to wait for
        program.send(signal.SIGINT)
        wait_for(lambda: "stopping" in _log(crawls, workers) or workers == "1", "the first to be heard", 10)
        program.send(signal.SIGINT)
        assert program.end().code == 130
        assert psutil.wait_procs(children, timeout=10)[1] == []
    web.pause(0)
    assert crawls.total() < 30
    crawls.verify()
    rest = crawls.crawl(*web.urls, delay=0, workers=2)
    assert (rest.completed, crawls.total()) == (True, 30)
    crawls.verify()


def _log(crawls: Crawls, workers: str) -> str:
    folder = crawls.folder / "data" / "logs"
    told = "told to stop"
    files = [file.read_text() for file in folder.glob("worker-*.log")] if workers != "1" else []
    return "stopping" if any(told in text for text in files) else ""


def test_a_worker_whose_supervisor_is_killed_stops(crawls: Crawls, web: WebProcess) -> None:
    with crawls.start("crawl", *web.urls, "--workers", "2", "--delay", "0.05") as program:
        wait_for(lambda: crawls.total() >= 5, "the first pages")
        workers = psutil.Process(program.pid).children()
        program.kill()
        assert psutil.wait_procs(workers, timeout=30)[1] == []
    assert crawls.held() == 0
    crawls.verify()
