"""The server over real sockets: HTTP, each fault as declared, the log, and control."""

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from holdfast.errors import HoldfastError
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.access_log import Hit, boot_ns
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.site import page
from holdfast.testing.simweb.spec import Robots, Site, SpecialUrl, Web
from tests.integration.testing.client import PATIENCE, ask, eventually, raw

_WEB = Web(
    3,
    4,
    Site(30, 10, 3000, external=0.3, changing=0.5),
    {
        1: Site(30, 10, 3000, images=1, slow=0.1, flaky=1.0, odd=dict.fromkeys(SpecialUrl, 1.0)),
        2: Site(5, rate_limit=3, rate_window=60.0),
        3: Site(5, robots=Robots.TIMEOUT, latency=0.05),
    },
)
_GET = b"GET %b HTTP/1.1\r\nHost: s1.localhost\r\n\r\n"


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(_WEB) as web:
        yield web


def wait_for_end(web: WebProcess, path: str) -> Hit:
    """The first request for *path*, once it has ended."""
    eventually(lambda: any(hit.path == path for hit in web.log()))
    return next(hit for hit in web.log() if hit.path == path)


def test_sites_are_told_apart_by_host(web: WebProcess) -> None:
    for site in (0, 1, 3):
        assert ask(web, site=site).body == page(_WEB, site, "/", web.address).body
    assert ask(web, headers={"Host": f"127.0.0.1:{web.port}"}).body == ask(web, site=0).body
    assert ask(web, headers={"Host": "S0.LocalHost"}).status == 200
    for stranger in ("s4.localhost", "example.com", "s01x.localhost"):
        assert ask(web, headers={"Host": stranger}).status == 421


def test_one_connection_takes_many_requests_also_all_at_once(web: WebProcess) -> None:
    request = b"GET /?kept HTTP/1.1\r\nHost: s0.localhost\r\n\r\n"
    slow = b"GET / HTTP/1.1\r\nHost: s3.localhost\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nHost: s0.localhost\r\nConnection: close\r\n\r\n"
    got = raw(web, request + slow + request * 40 + last)
    assert got.count(b"HTTP/1.1 200 OK") == 42
    assert got.index(b"of site 3") > got.index(b"of site 0")
    assert got.rindex(b"HTTP/1.1 404 Not Found") > got.rindex(b"HTTP/1.1 200 OK")
    connections = {hit.connection for hit in web.log() if hit.path == "/?kept"}
    assert len(connections) == 1


def test_more_waiting_requests_than_the_server_wants_to_hold(web: WebProcess) -> None:
    request = b"GET / HTTP/1.1\r\nHost: s3.localhost\r\nX-Long: %b\r\n\r\n" % (b"x" * 30_000)
    last = b"GET /nothing HTTP/1.1\r\nHost: s0.localhost\r\nConnection: close\r\n\r\n"
    assert raw(web, request * 8 + last).count(b"HTTP/1.1 200 OK") == 8


def test_head_is_get_without_the_body(web: WebProcess) -> None:
    head, get = ask(web, method="HEAD"), ask(web)
    assert head.status == 200
    assert head.body == b""
    assert head.headers.items() == get.headers.items()
    assert int(head.headers["Content-Length"]) == len(get.body)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\nHost: s0.localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: s0.localhost\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: s0.localhost\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"POST / HTTP/1.1\r\nHost: s0.localhost\r\n\r\n", 405),
        (b"GET /" + b"x" * 70_000, 431),
    ],
)
def test_bad_requests_end_their_connection_and_nothing_else(web: WebProcess, sent: bytes, status: int) -> None:
    assert raw(web, sent).startswith(b"HTTP/1.1 %d " % status)
    assert ask(web).status == 200


def test_half_a_request_and_no_more(web: WebProcess) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
    assert ask(web).status == 200


def test_an_old_client_is_answered_and_let_go(web: WebProcess) -> None:
    assert b"\r\nConnection: close\r\n" in raw(web, b"GET / HTTP/1.0\r\nHost: s0.localhost\r\n\r\n")
    assert raw(web, b"GET http://s0.localhost/ HTTP/1.0\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/missing/home", 404), ("/gone/home", 410), ("/broken/home", 500), ("/unavailable/home", 503), ("/forbidden/home", 403),
        ("/loop/home/a", 302), ("/far/10/home", 307), ("/away/home", 308), ("/copy/home", 200), ("/slow/home", 200), ("/deep/home", 200),
        ("/wide/home", 200), ("/nul/home", 200), ("/binary/home", 200), ("/charset/home", 200), ("/bomb/home", 200),
        ("/img/plain/1/b.png", 200),
    ],
)  # fmt: skip
def test_odd_urls_answer_as_declared_every_time(web: WebProcess, path: str, status: int) -> None:
    assert [ask(web, path, site=1).status for _ in range(2)] == [status] * 2


def test_answers_that_are_none(web: WebProcess) -> None:
    with pytest.raises(ConnectionResetError):
        raw(web, _GET % b"/reset/home")
    with pytest.raises(http.client.IncompleteRead):
        ask(web, "/cut/home", site=1)
    assert raw(web, _GET % b"/garbage/home").startswith(b"\0\xff")
    assert len(raw(web, _GET % b"/headers/home", most=900_000)) >= 900_000
    with pytest.raises(http.client.HTTPException):
        ask(web, "/headers/home", site=1)


def test_bodies_without_an_end(web: WebProcess) -> None:
    endless = raw(web, _GET % b"/endless/home", most=3 << 20)
    assert b"Transfer-Encoding: chunked" in endless
    assert len(endless) >= 3 << 20
    huge = raw(web, _GET % b"/huge/home", most=1 << 20)
    assert b"Content-Length: 10000000000" in huge
    length = len(page(_WEB, 1, "/drip/home", web.address).body)
    head, _, body = raw(web, _GET % b"/drip/home", most=120).partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % length in head
    assert len(body) < length  # it did not come at once
    assert wait_for_end(web, "/drip/home").status == 0
    assert wait_for_end(web, "/endless/home").status == 0


def test_what_hangs_is_in_the_log_when_the_client_gives_up(web: WebProcess) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=0.2) as connection:
        connection.sendall(b"GET /robots.txt?hang HTTP/1.1\r\nHost: s3.localhost\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
    hit = wait_for_end(web, "/robots.txt?hang")
    assert hit.status == 0


def test_a_flaky_page_fails_once(web: WebProcess) -> None:
    path = next(each.url for each in web.expected(1) if each.kind == "flaky").removeprefix(web.url(1)[:-1])
    ends = []
    for _ in range(3):
        try:
            ends.append(ask(web, path, site=1).status)
        except (http.client.HTTPException, OSError):
            ends.append(0)
    assert ends[0] in (0, 500)
    assert ends[1:] == [200, 200]


def test_who_is_too_quick_is_told_to_wait(web: WebProcess) -> None:
    answers = [ask(web, site=2) for _ in range(6)]
    assert [answer.status for answer in answers] == [200] * 3 + [429] * 3
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
    assert ask(web, "/robots.txt", site=2).status == 200
    assert log_checks.before_retry_after([hit for hit in web.log() if hit.host == web.address.host(2)])


def test_conditional_requests_and_generations(web: WebProcess) -> None:
    seen = 0
    for each in web.expected(0)[:12]:
        path = each.url.removeprefix(web.url(0)[:-1])
        page = ask(web, path)
        if etag := page.headers["ETag"]:
            answer = ask(web, path, headers={"If-None-Match": f'"other", {etag}'})
            assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
            assert ask(web, path, headers={"If-None-Match": '"other"'}).status == 200
        if modified := page.headers["Last-Modified"]:
            assert ask(web, path, headers={"If-Modified-Since": modified}).status == 304
            assert ask(web, path, headers={"If-None-Match": '"x"', "If-Modified-Since": modified}).status == 200
        seen |= bool(etag) | 2 * bool(modified)
    assert seen == 3


def test_with_a_new_generation_some_pages_change(web: WebProcess) -> None:
    paths = [each.url.removeprefix(web.url(0)[:-1]) for each in web.expected(0)]
    before = {path: ask(web, path) for path in paths}
    generation = web.next_generation()
    assert web.stats()["generation"] == generation
    changed = {path for path in paths if ask(web, path).body != before[path].body}
    assert 0 < len(changed) < len(paths)
    for path in paths:
        if etag := before[path].headers["ETag"]:
            assert ask(web, path, headers={"If-None-Match": etag}).status == (200 if path in changed else 304)


def test_control_needs_the_token(web: WebProcess) -> None:
    for action in ("stats", "quit", "generation"):
        assert ask(web, f"/__control__/{action}").status == 404
        assert ask(web, f"/__control__/{action}", headers={"X-Simweb-Token": "guess"}).status == 404
    with pytest.raises(HoldfastError, match="refused the command 'dance': HTTP 404"):
        web.control("dance")
    with pytest.raises(HoldfastError, match="pause"):
        web.control("pause", seconds="long")


def test_stats_count_what_was_asked(web: WebProcess) -> None:
    for _ in range(3):
        ask(web, "/never/asked/before")
    stats = web.stats(paths=True)
    host = web.address.host(0)
    assert stats["paths"][host]["/never/asked/before"] == 3
    assert stats["requests"][host] >= 3
    assert stats["in_flight"] == {}
    assert web.stats()["paths"] == {}
    assert json.dumps(stats)


def test_a_pause_holds_answers_back(web: WebProcess) -> None:
    before = boot_ns() / 1e9
    web.pause(0.4)
    assert ask(web, "/after/the/pause").status == 404
    (hit,) = (hit for hit in web.log() if hit.path == "/after/the/pause")
    assert hit.ended_at > before + 0.38


def test_the_log_tells_of_every_request_once(web: WebProcess) -> None:
    before = len(web.log())
    for n in range(20):
        ask(web, f"/once/{n}", headers={"User-Agent": "an agent\twith é"})
    hits = web.log()[before:]
    assert [hit.path for hit in hits] == [f"/once/{n}" for n in range(20)]
    assert {(hit.status, hit.method, hit.host, hit.in_flight) for hit in hits} == {(404, "GET", web.address.host(0), 1)}
    assert {hit.agent for hit in hits} == {"an agent\\u0009with \\u00e9"}
    assert all(hit.at <= hit.ended_at for hit in hits)
    assert len({hit.connection for hit in hits}) == 20


def test_what_is_under_way_together_is_seen(web: WebProcess) -> None:
    host = web.address.host(3)
    connections = [socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE) for _ in range(5)]
    for connection in connections:
        connection.sendall(b"GET /robots.txt?together HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode())
    eventually(lambda: web.stats()["in_flight"] == {host: 5})
    for connection in connections:
        connection.close()
    eventually(lambda: web.stats()["in_flight"] == {})
    hits = [hit for hit in web.log() if hit.path == "/robots.txt?together"]
    assert log_checks.max_concurrent(hits, host) == 5
    assert sorted(hit.in_flight for hit in hits) == [1, 2, 3, 4, 5]
