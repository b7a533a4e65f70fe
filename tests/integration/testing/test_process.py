"""The process: the same web wherever it is served, judged by its own log, gone with its holder."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from holdfast.errors import HoldfastError
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.presets import preset
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.site import MUST_FETCH
from holdfast.testing.simweb.spec import Robots, Site, SpecialUrl, Web
from tests.integration.testing.client import PATIENCE, ask, eventually, fetch
from tests.unit.testing.walker import walk

_HOLDER = """
import os, sys, time
from holdfast.testing.simweb.spec import Web
from holdfast.testing.simweb.process import WebProcess
web = WebProcess(Web()).start()
child = os.fork() if {fork} else 0
if {fork} and not child:
    time.sleep(600)
print(web.pid, child, flush=True)
time.sleep(600)
"""


def test_the_same_seed_is_the_same_web_in_every_process() -> None:
    web = Web(
        11,
        3,
        Site(
            20,
            images=2,
            external=0.5,
            changing=0.3,
            odd={SpecialUrl.CHARSET: 0.5, SpecialUrl.MOVED: 0.5, SpecialUrl.COPY: 0.5},
        ),
    )
    with WebProcess(web) as one, WebProcess(web) as two:
        origins = [(process, process.url(1).removesuffix("/")) for process in (one, two)]
        paths = [each.url.removeprefix(origins[0][1]) for each in one.expected(1)]
        assert paths == [each.url.removeprefix(origins[1][1]) for each in two.expected(1)]
        for path in paths:
            first, second = (ask(process, path, site=1) for process in (one, two))
            port, other = str(one.port), str(two.port)  # links to other sites name the port
            assert first.body.replace(port.encode(), other.encode()) == second.body
            differ = {"Content-Length", "Location"} if len(port) != len(other) else {"Location"}
            assert {k: v for k, v in first.headers.items() if k not in differ} == {
                k: v for k, v in second.headers.items() if k not in differ
            }


def test_a_plain_crawl_is_complete_by_the_sites_own_log() -> None:
    web = preset("torture", seed=4, sites=2, pages=60)
    with WebProcess(web) as served:
        ends = walk(served.url(1), lambda url: fetch(served, url))
        hits, truth = served.log(), served.expected(1)
    wanted = {each.url: each.status for each in truth if each.kind in MUST_FETCH}
    assert set(ends) == set(wanted)
    assert {url: ends[url] for url, status in wanted.items() if status} == {u: s for u, s in wanted.items() if s}
    assert log_checks.missing_pages(truth, hits) == []
    assert log_checks.forbidden_requests(truth, hits) == []
    assert log_checks.unknown_urls(truth, hits) == []
    assert log_checks.count_refetches(hits) == {}
    assert log_checks.max_concurrent(hits) == 1
    assert not log_checks.robots_first(hits)  # this crawler never asked for it
    assert len(log_checks.gaps(hits, served.address.host(1))) == len(hits) - 1
    assert log_checks.missing_pages(truth, [hit for hit in hits if hit.path != "/"]) == [truth[0]]


def test_every_site_can_have_a_port_of_its_own() -> None:
    with WebProcess(Web(1, 3, Site(5), by_port=True)) as served:
        assert len(set(served.address.ports)) == 3
        assert served.urls == [f"http://127.0.0.1:{port}/" for port in served.address.ports]
        for site in range(3):
            assert f"of site {site},".encode() in ask(served, site=site).body
        assert [hit.url for hit in served.log()] == served.urls


def test_the_log_stays_where_it_was_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with WebProcess(Web(), log=log) as served:
        port, pid = served.port, served.pid
        ask(served, "/one")
        assert served.url() == f"http://s0.localhost:{port}/"
    assert not psutil.pid_exists(pid)
    with WebProcess(Web(), log=log, port=port) as served:
        assert served.port == port
        ask(served, "/two")
        assert [hit.path for hit in served.log()] == ["/one", "/two"]
        served.kill()
        assert served.pid == 0


def test_it_quits_when_told_and_writes_what_it_knows(tmp_path: Path) -> None:
    served = WebProcess(Web(1, 1, Site(robots=Robots.TIMEOUT)), log=tmp_path / "log").start()
    ask(served, "/known")
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET /robots.txt HTTP/1.1\r\nHost: s0.localhost\r\n\r\n")
        eventually(lambda: served.stats()["in_flight"] == {"s0.localhost": 1})
        served.control("quit")
    pid = served.pid
    eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert [(hit.path, hit.status) for hit in served.log()] == [("/known", 404), ("/robots.txt", 0)]
    served.stop()


@pytest.mark.parametrize("fork", [False, True])
def test_it_ends_when_its_holder_is_killed(fork: bool) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER.format(fork=fork)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert holder.stdout is not None
    with holder.stdout:
        pid, child = map(int, holder.stdout.readline().split())
    assert psutil.Process(pid).is_running()
    holder.kill()
    holder.wait(PATIENCE)
    try:
        eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    finally:
        if child:
            os.kill(child, signal.SIGKILL)


def test_what_cannot_be_served_is_said() -> None:
    with WebProcess(Web()) as served, pytest.raises(HoldfastError, match="did not start"):
        WebProcess(Web(), port=served.port).start()
    wrong = subprocess.run(
        [sys.executable, "-m", "holdfast.testing.simweb", "--spec", '{"sites": 0}'],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "A web needs at least one site" in wrong.stderr


def test_by_hand_it_serves_a_preset_until_interrupted() -> None:
    command = [sys.executable, "-m", "holdfast.testing.simweb", "--preset", "fast", "--pages", "10", "--sites", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith('{"ports": [')
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
