"""Broken connections of a visit: the first of a URL is no failure, the fourth of a host ends the sharing of connections."""

from holdfast.politeness.resends import TOLERATED, Resends

HERE, THERE = "https://a.example", "https://b.example:8443"


def test_the_first_in_a_row_is_no_failure() -> None:
    resends = Resends()
    assert resends.ended(b"a", f"{HERE}/a", resend=True)
    assert not resends.ended(b"a", f"{HERE}/a", resend=True)
    assert resends.ended(b"b", f"{HERE}/b", resend=True), "another URL"
    assert not resends.ended(b"a", f"{HERE}/a", resend=False)
    assert resends.ended(b"a", f"{HERE}/a", resend=True), "in a row, not ever"


def test_after_three_connections_to_that_host_are_not_reused() -> None:
    resends = Resends()
    for number in range(TOLERATED):
        assert not resends.needs_fresh_connection(b"x", f"{HERE}/x")
        resends.ended(b"%d" % number, f"{HERE}/{number}", resend=True)
    assert resends.needs_fresh_connection(b"x", f"{HERE}/x")
    assert not resends.needs_fresh_connection(b"x", f"{THERE}/x")
    assert not resends.needs_fresh_connection(b"x", "http://a.example/x"), "another server"
    resends.ended(b"x", f"{HERE}/x", resend=False)
    assert resends.needs_fresh_connection(b"x", f"{HERE}/x"), "for the whole visit"


def test_a_url_whose_connection_broke_gets_one_of_its_own() -> None:
    resends = Resends()
    resends.ended(b"a", f"{HERE}/a", resend=True)
    assert resends.needs_fresh_connection(b"a", f"{HERE}/a")
    assert not resends.needs_fresh_connection(b"b", f"{HERE}/b")
    resends.ended(b"a", f"{HERE}/a", resend=False)
    assert not resends.needs_fresh_connection(b"a", f"{HERE}/a")
