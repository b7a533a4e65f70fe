"""Hosts that get stuck: three openings of the circuit without a success end the visit, and the crawl says why."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.support.crawls import Crawls
from tests.support.pages import Page, Pages, html

Answer = Callable[[socket.socket], None]
LINKS = [f"/{i}" for i in range(30)]
QUICK: dict[str, dict[str, object]] = {
    "politeness": {"circuit_open": 0.2, "circuit_failures": 2, "max_back_off": 1},
    "fetch": {"timeout": 1, "connect_timeout": 1, "min_rate_time": 1},
}


def after(first: Page, answer: Page) -> dict[str, Page]:
    """A site whose first page is served, and nothing after it."""
    return {"/": first, **dict.fromkeys(LINKS, answer)}


def test_a_server_that_fails_after_its_first_page_ends_the_crawl(crawls: Crawls) -> None:
    crawls.set(**QUICK)
    with Pages(after(html(*LINKS), Page(b"no", 500))) as site:
        answer = crawls.run("crawl", site.url(), "--workers", "1", "--concurrency", "1", "--delay", "0")
        asked = len(site.paths()) - 1
    host = f"localhost:{site.port}"
    assert answer.code == 0, answer
    assert asked == 4  # two failures, and a probe after each of the first two openings
    assert f"\n{host} failed too often in a row (HTTP 500), until " in answer.out
    assert "; 30 URLs wait" in answer.out
    domain = crawls.domain(host)
    assert domain["status"] == "active"
    assert domain["consecutive_error_count"] == domain["total_error_count"] == 4
    assert domain["refusal_streak"] == 0  # a 500 is no refusal
    assert crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'") == 30
    assert crawls.value("SELECT not_before > now() + interval '50 min' FROM job_domains")
    crawls.verify()


def test_a_server_that_dies_in_the_middle_is_unreachable(crawls: Crawls) -> None:
    crawls.set(**QUICK)
    crawls.set(domains={"max_errors": 100})
    with dying(html(*LINKS)) as port:
        assert crawls.crawl(f"http://localhost:{port}/", concurrency=1).progress.pages == 1
    host = crawls.domain(f"localhost:{port}")
    assert (host["status"], host["block_reason_code"]) == ("unreachable", "connection_failed")
    assert host["block_reason"].startswith("the circuit opened 3 times without a success, the last: ")
    assert crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting' AND attempts = 0") == 30
    crawls.verify()


def test_a_success_between_the_openings_lets_the_crawl_go_on(crawls: Crawls) -> None:
    crawls.set(**QUICK)
    crawls.set(politeness={"retries": 0})
    answers = after(html(*LINKS), Page(b"no", 500)) | dict.fromkeys(LINKS[3:], html())
    with Pages(answers) as site:
        assert crawls.crawl(site.url(), concurrency=1).completed
        assert len(site.paths()) == 31
    crawls.verify()


def hang(connection: socket.socket) -> None:
    time.sleep(20)


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(100):
        connection.sendall(b"a")
        time.sleep(0.2)


def endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(100):
        connection.sendall(b"X-%d: a\r\n" % number)
        time.sleep(0.2)


def cut(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\nabc")


def garbage(connection: socket.socket) -> None:
    connection.sendall(bytes(range(256)))


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def busy(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 429 No\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def elsewhere(connection: socket.socket) -> None:
    to = time.monotonic_ns()
    head = b"HTTP/1.1 302 No\r\nLocation: /%d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    connection.sendall(head % to)


FAILING = (hang, drip, endless_head, cut, garbage, reset, busy)


def test_hosts_that_mean_harm_do_not_keep_a_crawl(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gives a home page with 30 links, and then what it likes; some mistreat only their robots.txt."""
    monkeypatch.setattr("holdfast.crawler.robots_cache.TIMEOUT", 1.0)
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.1, 0.1))
    crawls.set(**QUICK)
    crawls.set(crawl={"patience": 1.5}, politeness={"circuit_open": 0.5})
    with ExitStack() as running:
        hosts = {kind: running.enter_context(harm(pages=kind)) for kind in (*FAILING, elsewhere)}
        robots = {kind: running.enter_context(harm(robots=kind)) for kind in (hang, drip, endless_head, elsewhere)}
        every = [*hosts.values(), *robots.values()]
        ended = crawls.crawl(*(f"http://localhost:{host.port}/" for host in every))
    assert (ended.status.held, ended.status.ready) == (0, 0)
    for kind in FAILING:
        host = hosts[kind]
        assert host.asked <= 2 + 2 + 2 * 5, kind  # robots.txt and a page, two that fail (five at once), two probes
        left = "SELECT count(*) FROM url_frontier WHERE url LIKE %s AND state = 'waiting'"
        assert crawls.value(left, f"%:{host.port}/%") == 30, kind
        waits = (
            "SELECT status = 'unreachable' OR not_before > now() FROM job_domains JOIN domains d ON d.id = domain_id"
        )
        assert crawls.value(f"{waits} WHERE domain = %s", f"localhost:{host.port}"), kind
    assert crawls.domain(f"localhost:{hosts[elsewhere].port}")["status"] == "exhausted"  # five hops each, and no more
    assert {host.asked for kind, host in robots.items() if kind is not elsewhere} == {3}  # and no page
    crawls.verify()


class Harm:
    """A host that does harm; it counts its requests."""

    def __init__(self, pages: Answer | None, robots: Answer | None) -> None:
        self._pages, self._robots = pages, robots
        self.asked = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            path = connection.recv(65536).split(b" ")[1]
            self.asked += 1
            if path == b"/robots.txt" and self._robots is None:
                connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            elif path == b"/":
                body = html(*LINKS).body
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                connection.sendall(head % len(body) + body)
            elif (answer := self._robots or self._pages) is not None:
                answer(connection)


@contextmanager
def harm(pages: Answer | None = None, robots: Answer | None = None) -> Iterator[Harm]:
    """A host that answers its pages, or its robots.txt, like that."""
    host = Harm(pages, robots)
    threading.Thread(target=host.run, daemon=True).start()
    try:
        yield host
    finally:
        host.listening.close()


@contextmanager
def dying(first: Page) -> Iterator[int]:
    """A server that answers robots.txt and one page, and is gone then."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    asked = connection.recv(65536)
                    robots = asked.startswith(b"GET /robots.txt")
                    body = b"" if robots else first.body
                    status = b"404 Not Found" if robots else b"200 OK"
                    head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                    connection.sendall(head % (status, len(body)) + body)
            listening.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)
