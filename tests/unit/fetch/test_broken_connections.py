"""Broken connections of a visit: the first of a URL is no failure, the fourth of a host ends the sharing of connections."""

from holdfast.fetch.site_fetcher import MAX_BROKEN, BrokenConnections

HERE, THERE = "https://a.example", "https://b.example:8443"


def test_the_first_in_a_row_is_no_failure() -> None:
    connections = BrokenConnections()
    assert connections.record(b"a", f"{HERE}/a", resend=True)
    assert not connections.record(b"a", f"{HERE}/a", resend=True)
    assert connections.record(b"b", f"{HERE}/b", resend=True), "another URL"
    assert not connections.record(b"a", f"{HERE}/a", resend=False)
    assert connections.record(b"a", f"{HERE}/a", resend=True), "in a row, not ever"


def test_after_three_connections_to_that_host_are_not_reused() -> None:
    connections = BrokenConnections()
    for number in range(MAX_BROKEN):
        assert not connections.needs_fresh_connection(b"x", f"{HERE}/x")
        connections.record(b"%d" % number, f"{HERE}/{number}", resend=True)
    assert connections.needs_fresh_connection(b"x", f"{HERE}/x")
    assert not connections.needs_fresh_connection(b"x", f"{THERE}/x")
    assert not connections.needs_fresh_connection(b"x", "http://a.example/x"), "another server"
    connections.record(b"x", f"{HERE}/x", resend=False)
    assert connections.needs_fresh_connection(b"x", f"{HERE}/x"), "for the whole visit"


def test_a_url_whose_connection_broke_gets_one_of_its_own() -> None:
    connections = BrokenConnections()
    connections.record(b"a", f"{HERE}/a", resend=True)
    assert connections.needs_fresh_connection(b"a", f"{HERE}/a")
    assert not connections.needs_fresh_connection(b"b", f"{HERE}/b")
    connections.record(b"a", f"{HERE}/a", resend=False)
    assert not connections.needs_fresh_connection(b"a", f"{HERE}/a")
