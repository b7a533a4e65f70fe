"""The judge, on hits that were made up: it must find what is wrong, and nothing else."""

from collections import Counter
from dataclasses import replace

from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.site import ExpectedPage, UrlKind

A, B = "s0.localhost:80", "s1.localhost:80"


def _hit(
    at: float, path: str = "/", host: str = A, status: int = 200, took: float = 0.0, retry_after: int | None = None
) -> Hit:
    return Hit(at, at + took, 1e9 + at, "GET", host, path, status, 1, 1, retry_after, "test")


def test_gaps_are_those_of_one_host_whatever_the_order_of_the_log() -> None:
    hits = [_hit(5), _hit(1), _hit(2, host=B), _hit(3)]
    assert log_checks.gaps(hits, A) == [2, 2]
    assert log_checks.gaps(hits, B) == []
    assert log_checks.gaps(hits, "nobody") == []


def test_too_close() -> None:
    hits = [_hit(0, "/robots.txt"), _hit(0.5), _hit(1.5), _hit(2.25), _hit(2.3, host=B)]
    assert [round(pair.gap, 3) for pair in log_checks.too_close(hits, 1.0)] == [0.5, 0.75]
    assert log_checks.too_close(hits, 0.5) == []


def test_a_request_that_a_standing_server_read_late_is_not_held_against_the_next_one() -> None:
    earlier, later = replace(_hit(1.3), late=0.3), _hit(2.1)
    assert log_checks.too_close([earlier, later], 1.0) == []
    assert [round(pair.gap, 3) for pair in log_checks.too_close([earlier, replace(later, late=0.3)], 1.2)] == [0.8]


def test_most_at_once() -> None:
    hits = [_hit(0, took=2), _hit(1, took=2), _hit(2, took=1), _hit(2.5, host=B, took=1)]
    assert log_checks.max_concurrent(hits, A) == 2
    assert log_checks.max_concurrent(hits, B) == 1
    assert log_checks.max_concurrent(hits) == 3
    assert log_checks.max_concurrent([]) == 0


def test_refetched_counts_whole_pages_only() -> None:
    hits = [
        _hit(0, "/robots.txt"), _hit(1, "/robots.txt"), _hit(2, "/x"), _hit(3, "/x"), _hit(4, "/x"),
        _hit(5, "/y", status=0), _hit(6, "/y"), _hit(7, "/z", status=500), _hit(8, "/z", status=500),
    ]  # fmt: skip
    assert log_checks.count_refetches(hits) == Counter({f"http://{A}/x": 2})
    assert log_checks.count_requests(hits) == Counter({f"http://{A}/x": 3, f"http://{A}/y": 2, f"http://{A}/z": 2})


def test_robots_first() -> None:
    good = [_hit(0, "/robots.txt", took=1), _hit(1), _hit(5, "/robots.txt", host=B), _hit(6, host=B)]
    assert log_checks.robots_first(good)
    assert not log_checks.robots_first([_hit(0), _hit(1, "/robots.txt")])
    assert log_checks.before_robots([_hit(0, "/robots.txt", took=2), early := _hit(1)]) == [early]
    assert log_checks.before_robots([*good, never := _hit(9, host="c")]) == [never]


def test_retry_after_is_kept() -> None:
    refusal = _hit(1, status=429, retry_after=3, took=1)
    assert log_checks.before_retry_after([_hit(0), refusal, _hit(5), _hit(3, host=B)]) == []
    early = _hit(4.5)
    assert log_checks.before_retry_after([refusal, early]) == [log_checks.TooClose(refusal, early, 2.5)]
    assert log_checks.before_retry_after([refusal, _hit(1.5)]) == []  # under way before the server had said it


def test_missing_unwanted_and_strange() -> None:
    origin = f"http://{A}"
    truth = [
        ExpectedPage(f"{origin}/", 200, UrlKind.PAGE),
        ExpectedPage(f"{origin}/flaky", 200, UrlKind.FLAKY),
        ExpectedPage(f"{origin}/reset", None, UrlKind.FAILING),
        ExpectedPage(f"{origin}/private/x", 200, UrlKind.DENIED),
        ExpectedPage(f"{origin}/hidden/x", 200, UrlKind.HIDDEN),
        ExpectedPage(f"{origin}/far", 307, UrlKind.OPTIONAL),
    ]
    whole = [
        _hit(0, "/robots.txt"),
        _hit(1),
        _hit(2, "/flaky", status=500),
        _hit(3, "/flaky"),
        _hit(4, "/reset", status=0),
    ]
    assert log_checks.missing_pages(truth, whole) == []
    assert log_checks.missing_pages(truth, whole[:3]) == truth[1:3]
    assert log_checks.missing_pages(truth, []) == truth[:3]
    assert log_checks.missing_pages(truth[:1], [_hit(1, status=304)]) == []
    assert log_checks.forbidden_requests(truth, whole) == []
    bad = [_hit(5, "/private/x"), _hit(6, "/hidden/x")]
    assert log_checks.forbidden_requests(truth, [*whole, *bad]) == bad
    made_up = _hit(7, "/made/up")
    image = _hit(8, "/img/plain/0/b.png")  # for crawls that store images only, and then it is expected
    usual = [_hit(9, "/cal/2024/1"), _hit(10, "/?jsessionid=1"), _hit(11, "/far", status=307)]
    assert log_checks.unknown_urls(truth, [*whole, *bad, made_up, image, *usual]) == [made_up, image]
    assert log_checks.count_kinds(truth)[UrlKind.PAGE] == 1
