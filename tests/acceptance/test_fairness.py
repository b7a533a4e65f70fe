"""Several domains in one job: a slow one and a blocked one hold up nothing, and a stop in the middle loses nothing (000 §8.1)."""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance import nginx
from tests.acceptance.holdfast import Holdfast
from tests.acceptance.nginx import Server
from tests.support.dynamic_site import Request, page

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

Report = Callable[[str], None]
SMALL, REFUSING, LARGE, LATER = (f"{name}.localhost" for name in ("a-small", "b-refusing", "c-large", "d-later"))
UNCOMMITTED = 105
"""Pages that a kill may cost: 100 of a batch, and the requests in flight."""
FORBIDDEN = "location = /robots.txt { return 404; } location / { return 403; }"


def tree(folder: Path, pages: int, robots: str | None = None) -> str:
    """A site of plain files, each with links to ten others; rules that serve it."""
    folder.mkdir(parents=True)
    names = ["index.html", *(f"{letters(number)}.html" for number in range(1, pages))]
    for number, name in enumerate(names):
        children = names[number * 10 + 1 : number * 10 + 11]
        (folder / name).write_text(
            page(f"Page {number}", *(f"/{child}" for child in children)) + "<!-- filled -->" * 500
        )
    if robots:
        (folder / "robots.txt").write_text(robots)
    return nginx.static(folder)


def letters(number: int) -> str:
    """A name without digits: thousands of numbers would look like a trap."""
    return "".join(chr(97 + int(digit)) for digit in f"{number:04}")


def test_a_slow_and_a_blocked_domain_do_not_hold_up_a_fast_one(
    holdfast: Holdfast, tmp_path: Path, report: Report
) -> None:
    hosts = {
        "fast.localhost": tree(tmp_path / "fast", 3000),
        "slow.localhost": tree(tmp_path / "slow", 12, "User-agent: *\nCrawl-delay: 5\n"),
        "blocked.localhost": FORBIDDEN,
    }
    with nginx.served(tmp_path / "nginx", hosts) as server:
        alone_ended = holdfast.crawl(server.url("fast.localhost"), "--job", "alone")
        alone = server.requests("fast.localhost")
        server.forget()
        ended = holdfast.crawl(*(server.url(host) for host in hosts), "--job", "together")
        together = server.requests("fast.localhost")
        others = Counter(request.host for request in server.requests())
    spans = [requests[-1].at - requests[0].at for requests in (alone, together)]
    gap = nginx.longest_gap(together)
    report(
        f"3,000 pages alone: {spans[0]:.1f} s; beside a slow and a blocked domain: {spans[1]:.1f} s "
        f"(ratio {spans[1] / spans[0]:.2f}); longest time without a request {gap:.1f} s; requests {dict(others)}\n"
        f"{ended.said.strip()}"
    )
    assert alone_ended.code == ended.code == 0
    for requests in (alone, together):
        assert len({request.path for request in requests if request.path != "/robots.txt"}) == 3000
    assert gap < 3.0
    assert others["slow.localhost"] == 13  # with its robots.txt
    slow = sorted(request.at for request in server_log(tmp_path, "slow.localhost"))
    assert min(later - earlier for earlier, later in pairwise(slow[1:])) > 4.9
    assert "blocked.localhost" in ended.said
    holdfast.verify()


def server_log(folder: Path, host: str) -> list[Request]:
    """The log of a server that has ended."""
    return Server(folder / "nginx", 0).requests(host)


@pytest.fixture
def four(tmp_path: Path) -> Mapping[str, str]:
    """The seeds of 000 §8.1: A has 500 pages, B 50, C answers 403, D has 20. New domains are claimed by name: B, C, A, D."""
    return {
        LARGE: tree(tmp_path / "a", 500),
        SMALL: tree(tmp_path / "b", 50),
        REFUSING: FORBIDDEN,
        LATER: tree(tmp_path / "d", 20),
    }


def states(holdfast: Holdfast) -> dict[str, str]:
    """Host → status of its domain."""
    rows = holdfast("domains", "status", "--json")
    assert rows.code == 0, rows.said
    return {row["domain"].partition(":")[0]: row["status"] for row in json.loads(rows.out)["domains"]}


def pages_by_host(server: Server, since: float = 0.0) -> dict[str, set[str]]:
    """Host → pages that were answered with content."""
    found: dict[str, set[str]] = {}
    for request in server.requests(since=since):
        if request.status == 200 and request.path != "/robots.txt":
            found.setdefault(request.host, set()).add(request.path)
    return found


def test_the_story_of_four_seeds_with_a_limit_of_100_pages_per_domain(
    holdfast: Holdfast, tmp_path: Path, four: Mapping[str, str], report: Report
) -> None:
    with nginx.served(tmp_path / "nginx", four) as server:
        urls = [server.url(host) for host in four]
        first = holdfast.crawl(*urls, "--max-pages-per-domain", "100")
        after_first = states(holdfast)
        had = {host: len(pages) for host, pages in pages_by_host(server).items()}
        border = time.time()
        second = holdfast.crawl(*urls, "--max-pages-per-domain", "100")
        new = pages_by_host(server, border)
        asked_again = {request.host for request in server.requests(since=border)}
        total = {host: len(pages) for host, pages in pages_by_host(server).items()}
    report(
        f"run 1: {had} {after_first}\n{first.said.strip()}\nrun 2: { ({h: len(p) for h, p in new.items()}) }\n"
        f"{second.said.strip()}"
    )
    assert had == {LARGE: 100, SMALL: 50, LATER: 20}
    assert after_first == {
        LARGE: "active",
        SMALL: "exhausted",
        REFUSING: "blocked",
        LATER: "exhausted",
    }
    assert "--max-pages-per-domain" in first.said
    assert asked_again == {LARGE}  # B is exhausted, C cools down
    assert total[LARGE] == 200
    assert len(new[LARGE]) == 100
    holdfast.verify()


def test_the_story_of_four_seeds_with_ctrl_c(
    holdfast: Holdfast, tmp_path: Path, four: Mapping[str, str], report: Report
) -> None:
    """One worker that holds one domain at a time: D has not begun when A is stopped at 100 pages."""
    with nginx.served(tmp_path / "nginx", four) as server:
        urls = [server.url(host) for host in four]
        words = ["crawl", *urls, "--allow-private", "--delay", "0.02", "--workers", "1"]
        running = holdfast.start(*words, worker_domains="1")
        deadline = time.monotonic() + 60
        while len(pages_by_host(server).get(LARGE, ())) < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
        running.interrupt()
        first = running.wait()
        had = {host: len(pages) for host, pages in pages_by_host(server).items()}
        after_first = states(holdfast)
        border = time.time()
        second = holdfast(*words)
        new = pages_by_host(server, border)
        total = {host: len(pages) for host, pages in pages_by_host(server).items()}
        asked = {request.host for request in server.requests(since=border)}
        times = Counter((each.host, each.path) for each in server.requests() if each.path != "/robots.txt")
    report(f"run 1: {had} {after_first}\n{first.said.strip()}\nrun 2: {total}\n{second.said.strip()}")
    assert first.code == 130
    assert after_first == {
        LARGE: "active",
        SMALL: "exhausted",
        REFUSING: "blocked",
        LATER: "pending",
    }
    assert 100 <= had[LARGE] < 500
    assert second.code == 0
    assert asked == {LARGE, LATER}  # B is exhausted, C cools down
    assert len(new[LARGE]) == 500 - had[LARGE]
    assert total == {LARGE: 500, SMALL: 50, LATER: 20}
    assert max(times.values()) == 1
    holdfast.verify()


def test_kills_between_raising_a_round_and_reopening_lose_nothing(
    holdfast: Holdfast, tmp_path: Path, report: Report
) -> None:
    """A worker that holds one domain at a time gives each a share of 30 pages, and dies each time when it has raised a round."""
    hosts = {f"{letter}.localhost": tree(tmp_path / letter, 120) for letter in "abcdef"}
    settings = {"worker_domains": "1", "domains_max_pages_per_run": "30"}
    codes: list[int] = []
    with nginx.served(tmp_path / "nginx", hosts) as server:
        urls = [server.url(host) for host in hosts]
        made = holdfast("jobs", "create", "rounds", *urls, "--allow-private", "--delay", "0", **settings)
        assert made.code == 0, made.said
        while len(codes) < 20 and (not codes or codes[-1] == -signal.SIGKILL):
            codes.append(holdfast("worker", "--job", "rounds", "--failpoint", "round_raised", **settings).code)
        ended = holdfast("crawl", "--job", "rounds", **settings)
        total = {host: len(pages) for host, pages in pages_by_host(server).items()}
        times = Counter((each.host, each.path) for each in server.requests() if each.path != "/robots.txt")
    kills, repeated = len(codes) - 1, times.total() - len(times)
    report(
        f"killed {kills} times between raising a round and reopening: {total}, {repeated} requests repeated\n"
        f"{ended.said.strip()}"
    )
    assert codes[-1] == 0
    assert kills >= 2
    assert ended.code == 0
    assert total == dict.fromkeys(hosts, 120)
    assert repeated <= kills * UNCOMMITTED
    assert len(holdfast.pages()) == len(set(holdfast.pages())) == 720
    holdfast.verify()
