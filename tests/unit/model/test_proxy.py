"""Proxies as people write them, how they are judged, and how many are needed."""

import re
from datetime import timedelta
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.model.proxy import (
    ParsedProxy,
    Protocol,
    ProxyMode,
    ProxyOverrides,
    ProxyRoute,
    ProxyServer,
    make_proxy,
    make_server,
    moving_average,
    parse_protocol,
    parse_proxy,
    pause_after,
    proxies_needed,
)

CANARY = "canary7"
secrets = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, categories=["L", "N", "P", "S"]), max_size=30)


@pytest.mark.parametrize(
    ("text", "place", "password"),
    [
        ("proxy.example:8080", ProxyServer(Protocol.HTTP, "proxy.example", 8080), None),
        ("http://proxy.example:80/", ProxyServer(Protocol.HTTP, "proxy.example", 80), None),
        (" HTTPS://Proxy.Example.:443 ", ProxyServer(Protocol.HTTPS, "proxy.example", 443), None),
        ("socks5h://[2001:DB8::1]:1080", ProxyServer(Protocol.SOCKS5H, "[2001:db8::1]", 1080), None),
        ("socks5://127.1:1080", ProxyServer(Protocol.SOCKS5, "127.0.0.1", 1080), None),
        ("http://bob@h.example:1", ProxyServer(Protocol.HTTP, "h.example", 1, "bob"), None),
        ("http://bob:@h.example:1", ProxyServer(Protocol.HTTP, "h.example", 1, "bob"), None),
        ("bob:x@h.example:65535", ProxyServer(Protocol.HTTP, "h.example", 65535, "bob"), "x"),
        ("http://bob:a:b/c?d#e@f@h.example:1", ProxyServer(Protocol.HTTP, "h.example", 1, "bob"), "a:b/c?d#e@f"),
        ("http://b%40b:%C3%BC%3A%25@h.example:1", ProxyServer(Protocol.HTTP, "h.example", 1, "b@b"), "ü:%"),
    ],
)
def test_proxies_as_people_write_them(text: str, place: ProxyServer, password: str | None) -> None:
    assert parse_proxy(text) == ParsedProxy(place, password)


HOW = "A proxy is written SCHEME://USER:PASSWORD@HOST:PORT; scheme, user and password may be left out."
HOST = "A proxy's host is a name or an address, and this is neither."
PORT = "A proxy's port is a number from 1 to 65535."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", HOW),
        ("proxy.example", HOW),
        ("http://proxy.example", HOW),
        ("http://:8080", HOW),
        ("http://h.example:8080/path", HOW),
        ("h.example:8080:bob:hunter2", HOW),
        ("h.example,8080", HOW),
        ("x" * 5000 + ":80", HOW),
        ("http://h.example:0", PORT),
        ("http://h.example:65536", PORT),
        ("1.2.3.4:8080:bob:123", HOST),
        ("http://bad_[host:80", HOST),
        ("http://1.2.3.4.5:80", HOST),
        ("ftp://h.example:21", "The scheme of a proxy is one of http, https, socks5, socks5h."),
        ("http://:x@h.example:1", "A proxy's password needs a user to go with it."),
        ("http://a%3Ab:x@h.example:1", "A proxy's user is at most 255 characters on one line, without a colon."),
        ("http://a%0Ab:x@h.example:1", "A proxy's user is at most 255 characters on one line, without a colon."),
        (f"http://{'a' * 256}@h.example:1", "A proxy's user is at most 255 characters on one line, without a colon."),
        ("http://a:x%0D%0Ay@h.example:1", "A proxy's password is at most 1000 characters on one line."),
        ("http://a:x%00@h.example:1", "A proxy's password is at most 1000 characters on one line."),
        (f"http://a:{'x' * 1001}@h.example:1", "A proxy's password is at most 1000 characters on one line."),
        ("http://a:%FF@h.example:1", "What is written with % in a proxy's user or password is no UTF-8 text."),
    ],
    ids=range(22),
)
def test_what_is_no_proxy(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_proxy(text)
    assert str(refused.value) == sentence


@given(secrets, secrets, st.sampled_from(["http", "socks5h"]), st.integers(1, 65535))
def test_any_user_and_password_can_be_written_with_percents(user: str, secret: str, scheme: str, port: int) -> None:
    user = user.replace(":", "") or "u"
    found = parse_proxy(f"{scheme}://{quote(user, safe='')}:{quote(secret, safe='')}@h.example:{port}")
    assert found == (ProxyServer(Protocol(scheme), "h.example", port, user), secret or None)


@given(
    st.sampled_from(["http://", "ftp://", "", "http:", "://", "x y://"]),
    st.sampled_from(["bob:", ":", "bo b:", "%ff:", "bob:bob:", ""]),
    st.builds("{}{}{}".format, secrets, st.just(CANARY), secrets),
    st.sampled_from(
        ["@h.example:80", "@h.example", "@:80", "@h h:80", "", ":80", "@h.example:99999", "@[::1:80", "\n@h:1"]
    ),
)
@example("", "1.2.3.4:8080:bob:", CANARY, "")
@example("http://", "", CANARY, ":80:80")
def test_no_error_and_no_text_of_a_proxy_holds_what_was_written(
    before: str, user: str, secret: str, behind: str
) -> None:
    """A canary where a password may be: in its place, and where it is when somebody forgot a part."""
    try:
        found = parse_proxy(before + user + secret + behind)
    except UsageError as refused:
        shown = f"{refused} {refused!r}" + ("" if refused.__suppress_context__ else f"{refused.__context__!r}")
    else:
        shown = f"{found} {found!r} {found.server} {found.server!r}" if CANARY in (found.password or "") else ""
    assert CANARY not in shown


def test_a_route_does_not_show_its_password() -> None:
    route = ProxyRoute(7, ProxyServer(Protocol.HTTP, "h.example", 1, "bob"), CANARY)
    assert CANARY not in f"{route} {route!r}"


def test_parts_are_checked_like_the_whole() -> None:
    assert make_proxy(Protocol.HTTP, "H.example", 1, "bob", "x") == (
        make_server(Protocol.HTTP, "h.example", 1, "bob"),
        "x",
    )
    assert make_proxy(Protocol.HTTP, "h.example", 1) == (ProxyServer(Protocol.HTTP, "h.example", 1), None)
    assert parse_protocol("SOCKS5H") is Protocol.SOCKS5H
    for wrong in (CANARY, "", "http "):
        with pytest.raises(UsageError) as refused:
            parse_protocol(wrong)
        assert CANARY not in str(refused.value)
    with pytest.raises(UsageError, match="needs a user"):
        make_proxy(Protocol.HTTP, "h.example", 1, "", "x")


@pytest.mark.parametrize(
    ("urls", "each", "buffer", "proxies"),
    [
        (100, 20, 0.2, 6),
        (10, 5, 0.2, 3),
        (1000, 20, 0.2, 60),
        (1000, 15, 0.2, 81),
        (101, 20, 0.0, 6),
        (0, 20, 0.2, 0),
        (1, 20, 0.2, 2),
        (0.5, 1000, 0.0, 1),
        (50, 10, 0.1, 6),
    ],
)
def test_how_many_are_needed(urls: float, each: float, buffer: float, proxies: int) -> None:
    assert proxies_needed(urls, each, buffer) == proxies


@given(st.floats(0, 1e6), st.floats(0.1, 1e4), st.floats(0, 3))
def test_those_that_are_needed_are_enough_and_no_more_than_that(urls: float, each: float, buffer: float) -> None:
    count = proxies_needed(urls, each, buffer)
    assert count * each >= urls * (1 - 1e-9)
    assert count <= (urls / each + 1) * (1 + buffer) + 1


@pytest.mark.parametrize(
    "figures",
    [(-1, 20, 0.2), (1, 0, 0.2), (1, 20, -0.1), (float("nan"), 1, 0), (float("inf"), 1, 0), (1, float("inf"), 0)],
    ids=["urls", "each", "buffer", "nan", "endless", "any"],
)
def test_what_cannot_be_meant_by_that(figures: tuple[float, float, float]) -> None:
    with pytest.raises(UsageError, match=r"^URLs an hour and the buffer cannot be negative"):
        proxies_needed(*figures)


def test_the_moving_average_follows() -> None:
    assert moving_average(None, 300) == 300
    assert moving_average(300, 800) == pytest.approx(400)
    average: float | None = 1000.0
    for _ in range(40):
        average = moving_average(average, 100)
    assert average == pytest.approx(100, abs=1)


def test_rests_double_up_to_the_longest() -> None:
    first, longest = timedelta(seconds=30), timedelta(hours=1)
    assert pause_after(4, first, longest) is None
    assert [pause_after(failures, first, longest) for failures in (5, 6, 7, 11, 12, 1000)] == [
        timedelta(seconds=seconds) for seconds in (30, 60, 120, 1920, 3600, 3600)
    ]


def test_a_domain_that_says_nothing_does_what_is_usual() -> None:
    assert ProxyOverrides().rules(use="any", direct=True) == ProxyOverrides("any", True).rules(
        use="direct", direct=False
    )
    rules = ProxyOverrides("direct", False, True, "DE", timedelta(minutes=5)).rules(use="any", direct=True)
    assert (rules.use, rules.direct, rules.resolves, rules.country) == (ProxyMode.DIRECT, False, True, "DE")
    assert re.fullmatch(r"0:05:00", str(rules.sticky))
