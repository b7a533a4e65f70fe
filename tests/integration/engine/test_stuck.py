"""Hosts that get stuck: three openings of the circuit without a success end the visit, and the crawl says why."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.crawls import Crawls, figures
from tests.support.pages import Page, Pages, html

LINKS = [f"/{i}" for i in range(30)]
QUICK: dict[str, dict[str, object]] = {
    "politeness": {"circuit_open": 0.2, "circuit_failures": 2, "max_back_off": 1},
    "fetch": {"timeout": 1, "connect_timeout": 1, "min_rate_time": 1},
}


def after(first: Page, answer: Page) -> dict[str, Page]:
    """A site whose first page is served, and nothing after it."""
    return {"/": first, **dict.fromkeys(LINKS, answer)}


@pytest.mark.parametrize(
    ("status", "cause"),
    [(500, "failed too often in a row (HTTP 500)"), (503, "asked for fewer requests (429, 503 or Retry-After)")],
)
def test_a_server_that_fails_after_its_first_page_ends_the_crawl(crawls: Crawls, status: int, cause: str) -> None:
    crawls.set(**QUICK)
    with Pages(after(html(*LINKS), Page(b"no", status))) as site:
        answer = crawls.run("crawl", site.url(), "--workers", "1", "--concurrency", "1", "--delay", "0")
        asked = len(site.paths()) - 1
    host = f"localhost:{site.port}"
    assert answer.code == 0, answer
    assert asked == 4  # two failures, and a probe after each of the first two openings
    assert f"\n{host} {cause}, until " in answer.out
    assert "; 30 URLs wait" in answer.out
    assert crawls.domain(host)["status"] == "active"
    assert crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'") == 30
    assert crawls.value("SELECT not_before > now() + interval '50 min' FROM job_domains")
    crawls.verify()


def test_a_server_that_dies_in_the_middle_is_unreachable(crawls: Crawls) -> None:
    crawls.set(**QUICK)
    crawls.set(domains={"max_errors": 100})
    with dying(html(*LINKS)) as port:
        answer = crawls.run("crawl", f"http://localhost:{port}/", "--workers", "1", "--concurrency", "1", "--json")
    found = figures(answer)
    assert (answer.code, found["pages"]) == (0, 1)
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
