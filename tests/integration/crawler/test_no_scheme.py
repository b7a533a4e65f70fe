"""No scheme given: https, then http where nothing speaks TLS, and never after a certificate that is wrong."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.crawler import robots_cache
from tests.support.crawls import Crawls
from tests.support.pages import Pages, html
from tests.support.web import Certificate

SITE = {"/": html("/a"), "/a": html()}
HERE = "127.0.0.1"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robots.txt that cannot be had is asked for once more, at once."""
    monkeypatch.setattr(robots_cache, "RETRIES", (0.01,))


@contextmanager
def bad_certificate(folder: Path) -> Iterator[int]:
    """A TLS server whose certificate is vouched for by nobody; its port."""
    context = Certificate.make(folder).context()
    with socket.create_server((HERE, 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listening.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(accepted, server_side=True).close()
                except (ssl.SSLError, OSError):
                    accepted.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("robots_asked", [True, False])
def test_a_site_without_tls_is_crawled_over_http_and_that_is_said(
    crawls: Crawls, capfd: pytest.CaptureFixture[str], robots_asked: bool
) -> None:
    with Pages(SITE) as pages:
        name = f"{HERE}:{pages.port}"
        options = () if robots_asked else ("--no-robots",)
        assert crawls.command("crawl", name, "--workers", "1", *options) == 0
        assert crawls.frontier(f"http://{name}/%") == {
            f"http://{name}/": ("done", None),
            f"http://{name}/a": ("done", None),
        }
        ((state, reason),) = crawls.frontier(f"https://{name}/%").values()
        assert state == "denied"
        assert str(reason).startswith("no_https: ")
        assert crawls.value("SELECT count(*) FROM domain_robots WHERE NOT reachable") == 0
        assert f"https://{name}/ does not answer TLS; crawling http://{name}/.\n" in capfd.readouterr().err
        asked = len(pages.asked)
        assert crawls.command("crawl", name, "--workers", "1", *options) == 0  # the same job, which is complete
        assert len(pages.asked) == asked
    assert crawls.value("SELECT count(*) FROM crawl_jobs WHERE fingerprint IS NOT NULL") == 1
    crawls.verify()


def test_a_scheme_that_was_given_is_kept(crawls: Crawls) -> None:
    crawls.set(politeness={"retries": 0})
    with Pages(SITE) as pages:
        crawls.crawl(f"https://{HERE}:{pages.port}/")
        assert pages.asked == []
        assert crawls.frontier("http://%") == {}


def test_a_wrong_certificate_is_not_got_round(crawls: Crawls, tmp_path: Path) -> None:
    crawls.set(politeness={"retries": 0})
    with bad_certificate(tmp_path) as port:
        crawls.crawl(f"{HERE}:{port}")
    assert crawls.frontier("http://%") == {}
    assert crawls.value("SELECT split_part(problem, ':', 1) FROM domain_robots") == "tls_failure"


def test_where_neither_answers_both_are_tried_again_when_a_person_says_so(crawls: Crawls) -> None:
    with Pages(SITE) as pages:
        port = pages.port
    assert crawls.crawl(f"{HERE}:{port}").progress.pages == 0
    assert {state for state, _ in crawls.frontier("https://%").values()} == {"denied"}
    with Pages(SITE, port=port):
        begun = crawls.begin(f"{HERE}:{port}")
        assert {state for state, _ in crawls.frontier("%").values()} == {"waiting"}
        with crawls.worker(begun.job) as worker:
            worker.end()
        assert crawls.desk.end(begun.job).progress.pages == 2
    crawls.verify()
