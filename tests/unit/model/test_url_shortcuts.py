"""Addresses and ports take the shortcuts, too; these say what ada says."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadUrl
from holdfast.model import url as module
from holdfast.model.url import MAX_INPUT, checked_host, join, origin_and_target, parse_url
from tests.support.refusals import outcome

OCTETS = st.one_of(
    st.integers(0, 300).map(str), st.sampled_from(["00", "01", "0x1", "", "256", "1e1", "08"]), st.integers().map(str)
)
ADDRESSES = st.lists(OCTETS, min_size=1, max_size=6).map(".".join)
LABELS = st.text("abz019-_x", min_size=1, max_size=5) | st.sampled_from(["xn--a", "xn--mnchen-3ya", "0x1", "localhost"])
HOSTS = st.one_of(
    ADDRESSES,
    st.lists(LABELS, min_size=1, max_size=4).map(".".join),
    st.builds("{}.{}".format, LABELS, ADDRESSES),
    st.sampled_from(["[::1]", "u:p@h", "127.0.0.1.", "H.example", "1.2.3.4@5.6.7.8", ""]),
)
PORTS = st.one_of(
    st.just(""),
    st.integers(0, 70_000).map(":{}".format),
    st.sampled_from([":80", ":443", ":080", ":0", ":", ":65535", ":65536", ":8443", ":59999", ":60000", ":-1", ":8a"]),
)
TARGETS = st.lists(
    st.sampled_from("ab09-._~!$&()*+,;=:@%/?#'\\| é") | st.sampled_from(["/.", "/..", "//", "%2e", "/%2E", "%41"]),
    max_size=8,
).map("".join)
URLS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["http://", "https://", "HTTP://", "http:", "ftp://", "//"]),
    HOSTS,
    PORTS,
    st.sampled_from(["/", "", "?", "#"]),
    TARGETS,
)


def the_long_way(text: str) -> tuple[str, str]:
    found = parse_url(text)
    return found.origin, found.path if found.query is None else f"{found.path}?{found.query}"


def ada_alone(text: str) -> tuple[str, str]:
    """The same without any shortcut of ours, `parse_url`'s neither."""
    return the_long_way(module._parse_with_ada(text, None))


@settings(deadline=None, max_examples=600)
@given(URLS)
@example("http://1.2.3.4:80/")
@example("https://1.2.3.4:80/")
@example("https://1.2.3.4:443/")
@example("http://a.1.2.3.4/")
@example("http://1.2.3.4?")
def test_the_shortcuts_say_what_ada_says(text: str) -> None:
    assert outcome(module._serialize, text) == outcome(module._parse_with_ada, text, None)
    base = "https://127.0.0.1:8443/a/b"
    assert outcome(join, base, text) == outcome(module._parse_with_ada, text, base.encode())
    assert outcome(origin_and_target, text) == outcome(ada_alone, text) == outcome(the_long_way, text)


@settings(deadline=None, max_examples=600)
@given(st.sampled_from(["http://", "https://"]), HOSTS, PORTS)
@example("https://", "xn--a.example", "")
@example("https://", f"{'a' * 63}.example", "")
@example("https://", f"{'a' * 64}.example", "")
@example("https://", "a-.example", "")
def test_a_plain_site_is_normalized_as_ada_does_it(scheme: str, host: str, port: str) -> None:
    def the_long_way_of_a_site(site: str) -> str:
        url = parse_url(f"{site}/")
        return replace(url, host=checked_host(url)).origin

    site = outcome(module._parse_with_ada, f"{scheme}{host}{port}/", None)
    if isinstance(site, str) and "@" not in site:
        site = site.removesuffix("/")
        assert outcome(module._normalized_site.__wrapped__, site) == outcome(the_long_way_of_a_site, site)


def test_every_port_and_every_octet() -> None:
    ports = [f"{scheme}://h.example:{port}/a" for scheme in ("http", "https") for port in range(66_000)]
    octets = [f"http://{octet}.0.{octet}.{octet}/a" for octet in range(1000)]
    octets += [f"http://0{octet}.0.0.1/a" for octet in range(300)]
    for text in ports[::7] + ports[59_900:60_100] + ports[65_500:] + octets:
        assert outcome(module._serialize, text) == outcome(module._parse_with_ada, text, None)
    assert sum(bool(module._PLAIN_URL.fullmatch(text)) for text in ports) > 2 * 59_990  # it is a shortcut
    assert sum(bool(module._PLAIN_URL.fullmatch(text)) for text in octets) == 256


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:8080/a?b=1", ("http://127.0.0.1:8080", "/a?b=1")),
        ("http://h/", ("http://h", "/")),
        ("https://h/", ("https://h", "/")),
        ("https://h.example/a?", ("https://h.example", "/a?")),
        ("https://h.example/a//b?c?d/e", ("https://h.example", "/a//b?c?d/e")),
        ("https://h.example/a#b", ("https://h.example", "/a")),
        ("https://u:p@H.example:443/a?b#c", ("https://h.example", "/a?b")),
        ("https://h.example?a", ("https://h.example", "/?a")),
        ("http://0x7f.1/a/../b", ("http://127.0.0.1", "/b")),
        ("http://h/" + "a" * MAX_INPUT, BadUrl),
        ("ftp://h/", BadUrl),
        ("/a", BadUrl),
    ],
)
def test_whom_to_ask_and_for_what(text: str, expected: object) -> None:
    assert outcome(origin_and_target, text) == expected
