"""The faults that an audit and an attack found, each reproduced as a person would meet it: real commands, real servers, real signals.

    python -m tests.acceptance.audit [--program PATH/TO/holdfast] [CASE …]

It prints a table: the point, the case, `ok` or `RED`, and what was seen. Exit code 1 if one is red. `--program` names the `holdfast`
of another version, so that the same table can be had of the code as it was. `make accept` runs all cases as tests.
"""

import argparse
import json
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.acceptance.holdfast import Holdfast, Running
from tests.support.dynamic_site import Answer, Site, page, served
from tests.support.servers import open_folder

PAGES: Final = 200
"""Pages of a site that is large enough to be still under way when something is done to it."""
SOON: Final = 2.0
"""Seconds within which what a person says has to act."""
OTHER_USER: Final = "nobody"
"""A user of the machine who attacks; needs root to be tried."""


@dataclass(frozen=True)
class Case:
    """A fault, and the point of the issue that names it."""

    point: str
    name: str
    run: Callable[[Holdfast], str]
    """Returns what was seen; raises AssertionError if the fault is there."""
    needs_root: bool = False


CASES: list[Case] = []


def case(point: str, *, needs_root: bool = False) -> Callable[[Callable[[Holdfast], str]], Callable[[Holdfast], str]]:
    """Add a function to the cases, under its own name."""

    def add(run: Callable[[Holdfast], str]) -> Callable[[Holdfast], str]:
        CASES.append(Case(point, run.__name__, run, needs_root))
        return run

    return add


# What the cases use -----------------------------------------------------------------------------------------------------


def rows(holdfast: Holdfast, query: str) -> list[tuple[Any, ...]]:
    """Ask the database of the crawl."""
    address = holdfast("db", "url").out.strip()
    with psycopg.connect(address) as connection:
        return connection.execute(query.encode()).fetchall()


def one(holdfast: Holdfast, query: str) -> Any:
    """The first column of the first row."""
    found = rows(holdfast, query)
    return found[0][0] if found else None


def check(holds: object, seen: str) -> None:
    """The fault is gone if this holds; else what was seen instead."""
    assert holds, seen


def wait_until(condition: Callable[[], object], patience: float, why: str) -> float:
    """Wait for a condition; seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, f"not within {patience:.0f} s: {why}"
        time.sleep(0.2)
    return time.monotonic() - began


def linking(links: Sequence[str], others: Answer) -> Callable[[str], Answer]:
    """A site with a home page of links; every other page gets the same answer."""
    return lambda path: page("home", *links) if path == "/" else others


def wide(pages: int = PAGES) -> Callable[[str], Answer]:
    """A site with so many pages."""
    return linking([f"/{number}" for number in range(pages)], page("leaf"))


@contextmanager
def running(holdfast: Holdfast, *arguments: str, **settings: str) -> Iterator[Running]:
    """A command beside the case; it is stopped afterwards."""
    started = holdfast.start(*arguments, **settings)
    try:
        yield started
    finally:
        started.kill()
        started.process.communicate()


def crawl_and_wait(holdfast: Holdfast, site: Site, *options: str, **settings: str) -> str:
    """A crawl to its end; what it said."""
    done = holdfast("crawl", site.url, "--allow-private", *options, **settings)
    check(done.code in {0, 1}, f"exit code {done.code}: {done.said}")
    return done.said


SHORT_COOL_DOWNS: Final = {
    "cooldown_rate_limited": "1s",
    "cooldown_forbidden": "8s",
    "cooldown_unreachable": "8s",
    "crawl_patience": "1s",
    "cooldown_jitter": "0",
    "politeness_retry_delay": "0.1s",
    "politeness_circuit_failures": "100",
    "politeness_max_back_off": "1s",
    "politeness_robots_retry": "1s",
    "claims_sweep_interval": "1s",
}


# Wrong results ----------------------------------------------------------------------------------------------------------


@case("1")
def tenth_refusal_is_the_last_url(holdfast: Holdfast) -> str:
    with served(linking([f"/{number}" for number in range(10)], 403)) as site:
        for concurrency in ("1", "10"):
            crawl_and_wait(
                holdfast, site, "--delay", "0.01", "--concurrency", concurrency, "--job", f"at-once-{concurrency}"
            )
            status = one(holdfast, "SELECT status FROM domains")
            assert status == "blocked", f"after ten refusals in a row, {concurrency} at once: {status}"
            holdfast("domains", "reset", f"127.0.0.1:{site.port}")
    return "blocked after exactly ten refusals, one after the other and all at once"


@case("2")
def a_site_of_429_is_given_up(holdfast: Holdfast) -> str:
    count = "SELECT count(*) FROM domain_transitions WHERE to_status = 'blocked'"
    with served(lambda _: 429) as site:
        holdfast("jobs", "create", "busy", site.url, "--allow-private", "--delay", "0.05", "--no-robots")
        with running(holdfast, "worker", **SHORT_COOL_DOWNS):
            wait_until(
                lambda: one(holdfast, "SELECT next_crawl_after = 'infinity' FROM domains"), 90, "left until a reset"
            )
            time.sleep(5)
    blocks = one(holdfast, count)
    assert blocks <= 4, f"blocked {blocks} times"
    return f"blocked {blocks} times, then until a reset"


@case("3")
def refused_urls_are_asked_for_after_the_block(holdfast: Holdfast) -> str:
    refuse = True
    with served(
        lambda path: page("home", *(f"/{n}" for n in range(13))) if path == "/" else 403 if refuse else page("leaf")
    ) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.05", "--job", "shop", **SHORT_COOL_DOWNS)
        failed = one(holdfast, "SELECT count(*) FROM url_frontier WHERE state = 'failed'")
        refuse = False
        with running(holdfast, "worker", **SHORT_COOL_DOWNS):
            done = "SELECT count(*) FROM url_frontier WHERE state = 'done'"
            wait_until(lambda: one(holdfast, done) == 14, 40, f"14 pages; {failed} URLs were failed after the block")
    assert failed == 0, f"{failed} URLs failed for good"
    return "all 14 pages after the cool-down"


@case("4")
def the_end_of_a_cool_down_reopens_the_job(holdfast: Holdfast) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    holdfast("crawl", url, "--allow-private", "--no-robots", "--job", "away", **SHORT_COOL_DOWNS)
    status = one(holdfast, "SELECT status FROM domains")
    asked: list[float] = []
    with running(holdfast, "worker", **SHORT_COOL_DOWNS), socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(0.2)

        def answered() -> bool:
            try:
                talk, _ = listening.accept()
            except TimeoutError:
                return bool(asked)
            with talk:
                talk.settimeout(2)
                talk.recv(4096)
                asked.append(time.time())
                talk.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
                )
            return True

        took = wait_until(answered, 40, f"a request after the cool-down of a domain that was {status}")
    return f"{status}, asked again {took:.0f} s after a worker began"


@case("4")
def time_gives_no_new_budget(holdfast: Holdfast) -> str:
    """URLs that a busy server sent away may be asked for again only when the crawl has ended."""
    busy = True
    answer = linking([f"/{number}" for number in range(40)], page("leaf"))
    with served(lambda path: 503 if busy and path != "/" else answer(path)) as site:
        short = SHORT_COOL_DOWNS | {
            "politeness_retry_delay": "8s",
            "crawl_patience": "1s",
            "politeness_max_back_off": "8s",
        }
        crawl_and_wait(
            holdfast, site, "--delay", "0.3", "--concurrency", "1", "--max-pages", "4", "--job", "small", **short
        )
        busy = False
        before = one(holdfast, "SELECT count(*) FROM crawled_pages WHERE status = 200")
        with running(holdfast, "worker", **short):
            time.sleep(20)
        after = one(holdfast, "SELECT count(*) FROM crawled_pages WHERE status = 200")
    check(after <= 4, f"--max-pages 4: {before} pages, later {after}")
    return f"--max-pages 4: {before} pages, and {after} after a worker ran for 20 s"


@case("4")
def status_promises_only_what_happens(holdfast: Holdfast) -> str:
    with served(wide(3)) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01")
    said = holdfast("status").said
    check("in 14 d" not in said and "in 13 d" not in said, said)
    return "no date for a job that did not ask for refresh"


@case("5")
def reset_is_carried_out_by_a_standing_worker(holdfast: Holdfast) -> str:
    with served(wide(9)) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01", "--job", "px")
        before = len(site.asked())
        with running(holdfast, "worker", claims_sweep_interval="1s"):
            time.sleep(3)
            holdfast("domains", "reset", f"127.0.0.1:{site.port}")
            took = wait_until(lambda: len(site.asked()) >= before + 10, 30, "the ten pages again")
    return f"10 pages again within {took:.0f} s"


@case("5")
def unblock_does_not_crawl_all_again(holdfast: Holdfast) -> str:
    refuse = True
    with served(
        lambda path: page("home", *(f"/{n}" for n in range(20))) if path == "/" else 403 if refuse else page("leaf")
    ) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.05", "--job", "shop")
        refuse = False
        with running(holdfast, "worker", claims_sweep_interval="1s"):
            done = holdfast("domains", "unblock", f"127.0.0.1:{site.port}")
            assert done.code == 0, done.said
            count = "SELECT count(*) FROM url_frontier WHERE state = 'done'"
            took = wait_until(lambda: one(holdfast, count) == 21, 60, "21 pages")
    homes = site.asked().count("/")
    assert homes == 1, f"the home page was asked for {homes} times"
    return f"the other 20 pages within {took:.0f} s, the home page not again"


@case("6")
def an_inactive_domain_is_left_alone_at_once(holdfast: Holdfast) -> str:
    with served(wide(2000)) as site, running(holdfast, "crawl", site.url, "--allow-private", "--delay", "0.1"):
        wait_until(lambda: len(site.asked()) > 10, 30, "ten pages")
        holdfast("domains", "set", f"127.0.0.1:{site.port}", "active=no")
        time.sleep(SOON)
        before = len(site.asked())
        time.sleep(5)
        more = len(site.asked()) - before
    assert more == 0, f"{more} requests later than {SOON:.0f} s after active=no"
    return f"no request later than {SOON:.0f} s after active=no"


@case("6")
def a_new_delay_acts_at_once(holdfast: Holdfast) -> str:
    with served(wide(2000)) as site, running(holdfast, "crawl", site.url, "--allow-private"):
        holdfast("status")
        wait_until(lambda: site.asked(), 30, "a page")
        holdfast("domains", "set", f"127.0.0.1:{site.port}", "delay=3")
        time.sleep(SOON)
        began = time.time()
        time.sleep(10)
        later = [request.at for request in site.log if request.at > began]
    gaps = [after - before for before, after in pairwise(later)]
    check(gaps and min(gaps) > 2.9, f"gaps after delay=3: {[round(gap, 1) for gap in gaps]}")
    return f"shortest gap {min(gaps):.1f} s"


@case("7")
def claims_spread_over_workers(holdfast: Holdfast) -> str:
    with served(wide(100)) as site:
        hosts = [f"http://{letter}.localhost:{site.port}/" for letter in "abcdefgh"]
        command = ["crawl", *hosts, "--allow-private", "--workers", "4", "--delay", "0.3"]
        with running(holdfast, *command):
            wait_until(lambda: len(site.asked()) > 40, 60, "forty pages")
            time.sleep(5)
            held = dict(
                rows(holdfast, "SELECT claimed_by, count(*) FROM domains WHERE claimed_by IS NOT NULL GROUP BY 1")
            )
    check(len(held) == 4 and max(held.values()) <= 3, f"domains by worker: {sorted(held.values())}")
    return f"domains by worker: {sorted(held.values())}"


@case("8")
def a_dead_worker_s_domains_are_taken_over(holdfast: Holdfast) -> str:
    with served(wide(2000)) as site:
        holdfast("jobs", "create", "long", site.url, "--allow-private", "--delay", "0.5")
        with running(holdfast, "worker", "--name", "first") as first:
            wait_until(lambda: len(site.asked()) > 3, 30, "three pages")
            os.killpg(first.process.pid, signal.SIGKILL)
        died = time.time()
        with running(holdfast, "worker", "--name", "second"):
            wait_until(lambda: site.log[-1].at > died + 1, 200, "a request of the second worker")
    took = next(request.at for request in site.log if request.at > died + 1) - died
    assert took <= 150, f"{took:.0f} s"
    return f"taken over after {took:.0f} s"


@case("9")
def without_domain_tracking_no_status_changes(holdfast: Holdfast) -> str:
    with served(wide(3)) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01", rollout_domain_tracking="false")
    status, date = rows(holdfast, "SELECT status::text, next_crawl_after FROM domains")[0]
    assert (status, date) == ("pending", None), f"{status}, {date}"
    return "pending, without a date"


@case("9")
def every_failure_counts_as_consecutive(holdfast: Holdfast) -> str:
    with served(linking([f"/{number}" for number in range(9)], 400)) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01")
    total, consecutive = rows(holdfast, "SELECT total_error_count, consecutive_error_count FROM domains")[0]
    assert total == consecutive == 9, f"total {total}, consecutive {consecutive}"
    return "nine of nine"


@case("9")
def the_frontier_s_size_is_that_of_runnable_jobs(holdfast: Holdfast) -> str:
    with served(wide(400)) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01", "--max-pages", "3", "--job", "gone")
        holdfast("jobs", "cancel", "gone")
        with api(holdfast) as url:
            text = fetch(f"{url}/metrics")
    size = next(line.split()[-1] for line in text.splitlines() if line.startswith("crawler_frontier_size"))
    assert float(size) == 0, f"crawler_frontier_size {size} after the only job was cancelled"
    return "0 after the only job was cancelled"


@case("9")
def the_last_crawl_is_known_while_it_runs(holdfast: Holdfast) -> str:
    with served(wide(2000)) as site, running(holdfast, "crawl", site.url, "--allow-private", "--delay", "0.1"):
        wait_until(lambda: len(site.asked()) > 20, 30, "twenty pages")
        time.sleep(2)
        last, run = rows(
            holdfast, "SELECT last_crawled_at > now() - interval '1 hour', last_crawl_run_id FROM domains"
        )[0]
    check(last and run, f"last_crawled_at {last}, last_crawl_run_id {run}")
    return "last_crawled_at and last_crawl_run_id are set during the first visit"


@case("10")
def a_job_without_a_page_has_failed(holdfast: Holdfast) -> str:
    with served(lambda _: 404) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01", "--job", "nothing")
    state = one(holdfast, "SELECT state FROM crawl_jobs WHERE name = 'nothing'")
    assert state == "failed", state
    return "failed"


@case("10")
def a_host_that_cannot_exist_is_refused(holdfast: Holdfast) -> str:
    done = holdfast("seeds", "add", "http://-bad-.com/")
    check(done.code != 0 and one(holdfast, "SELECT count(*) FROM domains") == 0, done.said)
    return done.said.strip().splitlines()[-1][:100]


@case("11")
def health_names_database_and_redis(holdfast: Holdfast) -> str:
    with api(holdfast) as url:
        answer = json.loads(fetch(f"{url}/health"))
    assert {"status", "database", "redis"} <= answer.keys(), answer
    return json.dumps(answer)


@case("12")
def rules_with_raw_characters_are_obeyed(holdfast: Holdfast) -> str:
    robots = "User-agent: *\nDisallow: /my folder/\nDisallow: /{private}/\nDisallow: /x?q='a'\n"
    links = ["/my%20folder/secret", "/%7Bprivate%7D/p", "/x?q=%27a%27", "/open"]
    with served(linking(links, page("leaf")), robots) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01")
    assert sorted(site.asked()) == ["/", "/open"], site.asked()
    return "only the page that no rule forbids"


@case("12")
def an_agent_that_begins_with_a_digit_finds_its_group(holdfast: Holdfast) -> str:
    with served(wide(3), "User-agent: 360Spider\nDisallow: /\n\nUser-agent: *\nAllow: /\n") as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01", "--user-agent", "360Spider/1.0")
    assert site.asked() == [], site.asked()
    return "nothing was asked for"


@case("13")
def no_request_is_sent_twice_when_connections_break(holdfast: Holdfast) -> str:
    with resetting() as (port, times):
        holdfast(
            "crawl",
            f"http://127.0.0.1:{port}/",
            "--allow-private",
            "--delay",
            "0.5",
            "--no-robots",
            "--concurrency",
            "1",
        )
    logged = one(holdfast, "SELECT count(*) FROM crawl_log")
    gaps = [after - before for before, after in pairwise(times)]
    short = [round(gap, 3) for gap in gaps if gap < 0.45]
    pages = one(holdfast, "SELECT count(*) FROM url_frontier WHERE state = 'done'")
    seen = f"{len(times)} requests, {logged} in the log, {pages} of 11 pages, gaps under the delay: {short}"
    check(not short and len(times) == logged and pages == 11, seen)
    return f"{len(times)} requests, all in the log, shortest gap {min(gaps):.2f} s"


@case("14")
def a_description_declares_no_charset(holdfast: Holdfast) -> str:
    html = (
        '<html><head><meta name="description" content="How to set charset=iso-8859-1 ..."><meta charset=utf-8>'
        "<title>Grüße</title></head><body>x</body></html>"
    ).encode()
    with raw(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(html)
        + html
    ) as port:
        holdfast("crawl", f"http://127.0.0.1:{port}/", "--allow-private", "--no-robots")
    title = one(holdfast, "SELECT title FROM crawled_pages")
    assert title == "Grüße", title
    return "Grüße"


# Holes ------------------------------------------------------------------------------------------------------------------


@case("15", needs_root=True)
def a_settings_file_of_another_user_is_refused(holdfast: Holdfast) -> str:
    folder = holdfast.folder / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "holdfast.toml").write_text("[fetch]\nallow_private = true\n")
    attacker = pwd.getpwnam(OTHER_USER)
    os.chown(folder / "holdfast.toml", attacker.pw_uid, attacker.pw_gid)
    there = Holdfast(folder / "x")
    there.folder = folder
    done = there("config", "show")
    assert done.code == 2, f"exit code {done.code}: {done.said[:200]}"
    return done.said.strip()[:140]


@case("16", needs_root=True)
def another_user_reads_nothing(holdfast: Holdfast) -> str:
    with served(wide(3)) as site:
        crawl_and_wait(holdfast, site, "--delay", "0.01")
    data = holdfast.folder / ".holdfast"
    found = subprocess.run(
        ["find", str(data), "-type", "f", "-readable", "-print"],
        user=OTHER_USER,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        extra_groups=[],
    ).stdout.split("\n")
    readable = [name for name in found if name]
    assert not readable, f"{len(readable)} files, as {readable[0]}"
    assert data.stat().st_mode & 0o007 == 0, oct(data.stat().st_mode)
    return f"{oct(data.stat().st_mode & 0o777)}, no file is readable"


@case("16", needs_root=True)
def a_data_folder_of_another_user_is_refused(holdfast: Holdfast) -> str:
    data = holdfast.folder / ".holdfast"
    data.mkdir()
    attacker = pwd.getpwnam(OTHER_USER)
    os.chown(data, attacker.pw_uid, attacker.pw_gid)
    done = holdfast("status")
    check(done.code != 0 and not any(data.iterdir()), f"exit code {done.code}, made {sorted(data.iterdir())}")
    return done.said.strip()[:140]


@case("16")
def links_in_the_data_folder_are_not_followed(holdfast: Holdfast) -> str:
    elsewhere = holdfast.folder / "elsewhere"
    elsewhere.mkdir()
    holdfast("status")
    for name in ("logs", "archive"):
        place = holdfast.folder / ".holdfast" / name
        if place.exists():
            shutil.rmtree(place)
        place.symlink_to(elsewhere)
    with served(wide(3)) as site:
        done = holdfast("crawl", site.url, "--allow-private", "--delay", "0.01")
    written = sorted(path.name for path in elsewhere.rglob("*"))
    assert written == [], f"written elsewhere: {written}"
    check(done.code == 2, f"exit code {done.code}: {done.said}")
    return done.said.strip().splitlines()[-1][:140]


@case("17")
def the_database_comes_back_under_a_crawl(holdfast: Holdfast) -> str:
    with served(wide(150)) as site:
        crawl = holdfast.start("crawl", site.url, "--allow-private", "--delay", "0.05", "--workers", "2")
        wait_until(lambda: len(site.asked()) > 20, 60, "twenty pages")
        pid = int(next((holdfast.folder / ".holdfast").rglob("postmaster.pid")).read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        killed = time.time()
        ended = crawl.wait(120)
    assert ended.code == 0, ended.said
    twice = len(site.asked()) - len(set(site.asked()))
    took = min(request.at for request in site.log if request.at > killed + 0.5) - killed
    holdfast.verify()
    assert len(set(site.asked())) == 151, f"{len(set(site.asked()))} of 151 pages"
    return f"went on after {took:.1f} s, 151 of 151 pages, {twice} asked for twice"


@case("17")
def after_db_stop_it_stays_down(holdfast: Holdfast) -> str:
    holdfast("status")
    with running(holdfast, "worker"):
        time.sleep(3)
        holdfast("db", "stop")
        time.sleep(12)
        found = list((holdfast.folder / ".holdfast").rglob("postmaster.pid"))
    assert not found, "the database runs again"
    return "down for 12 s beside a worker"


@case("18")
def upgrades_are_limited_and_do_not_fill_the_log(holdfast: Holdfast) -> str:
    with api(holdfast) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        request = f"GET /x HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".encode()
        sent, refused, began = 0, 0, time.monotonic()
        while time.monotonic() - began < 5:
            with socket.create_connection((host, int(port)), 5) as talk:
                talk.sendall(request)
                refused += b" 429 " in talk.recv(400)
                sent += 1
        logs = sum(path.stat().st_size for path in (holdfast.folder / ".holdfast" / "logs").glob("*"))
    check(refused and logs < 100_000, f"{sent} requests, {refused} refused, {logs} bytes of logs")
    return f"{sent} requests, {refused} refused with 429, {logs} bytes of logs"


@case("18")
def a_job_named_dot_dot_is_refused(holdfast: Holdfast) -> str:
    done = holdfast("jobs", "create", "..", "http://127.0.0.1/")
    assert done.code == 2, f"exit code {done.code}: {done.said}"
    return done.said.strip()[:140]


@case("18")
def a_stuck_host_ends_the_crawl(holdfast: Holdfast) -> str:
    with served(linking([f"/{number}" for number in range(60)], 500)) as site:
        command = ["crawl", site.url, "--allow-private", "--delay", "0.05"]
        ended = holdfast.start(*command, politeness_circuit_open="5s").wait(100)
    check(ended.code in {0, 1}, ended.said)
    return f"ended after {ended.took:.0f} s"


# Servers of the cases ---------------------------------------------------------------------------------------------------


def fetch(url: str) -> str:
    """GET from the API of the case."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 — loopback
        return str(answer.read().decode())


@contextmanager
def api(holdfast: Holdfast) -> Iterator[str]:
    """`serve --api-only --no-auth` at a free port; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    holdfast("db", "upgrade")
    with running(holdfast, "serve", "--api-only", "--no-auth", "--port", str(port)):

        def answers() -> bool:
            try:
                return bool(fetch(f"{url}/health"))
            except OSError:
                return False

        wait_until(answers, 60, "the API answers")
        yield url


@contextmanager
def raw(answer: bytes) -> Iterator[int]:
    """A server that sends these bytes to every request."""
    with _talking(lambda talk, _: talk.sendall(answer)) as port:
        yield port


@contextmanager
def resetting() -> Iterator[tuple[int, list[float]]]:
    """A site of eleven pages that resets the second request of every connection; the times of all requests."""
    times: list[float] = []
    body = page("home", *(f"/{number}" for number in range(10))).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def talk_to(talk: socket.socket, _: bytes) -> None:
        times.append(time.time())
        talk.sendall(answer)
        if talk.recv(65536):
            times.append(time.time())
            talk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the end is a reset

    with _talking(talk_to) as port:
        yield port, times


@contextmanager
def _talking(talk_to: Callable[[socket.socket, bytes], None]) -> Iterator[int]:
    """A server whose connections are each handled in a thread, after the first request was read."""

    def handle(talk: socket.socket) -> None:
        with talk:
            talk.settimeout(60)
            try:
                if first := talk.recv(65536):
                    talk_to(talk, first)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                talk, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=(talk,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


# The table --------------------------------------------------------------------------------------------------------------


def try_case(tried: Case, program: Path | None = None) -> str:
    """Run a case in a folder of its own; what was seen. Raises AssertionError if the fault is there."""
    with open_folder() as folder:
        holdfast = Holdfast(folder / "crawl", program)
        try:
            return tried.run(holdfast)
        finally:
            holdfast.end()


def main() -> int:
    """Run the cases that are named, or all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, help="the holdfast of another version")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    red = 0
    for tried in CASES:
        if options.cases and tried.name not in options.cases:
            continue
        if tried.needs_root and os.geteuid():
            print(f"{tried.point:>3}  {tried.name:52}  skipped: needs root", flush=True)
            continue
        try:
            seen, result = try_case(tried, options.program), "ok "
        except (
            AssertionError,
            OSError,
            psycopg.Error,
            LookupError,
            ValueError,
        ) as fault:  # the next case is tried all the same
            seen, result = f"{fault or type(fault).__name__}".splitlines()[0], "RED"
            red += 1
        print(f"{tried.point:>3}  {tried.name:52}  {result}  {seen}", flush=True)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
