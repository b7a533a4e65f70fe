"""Reasons in words: total over outcomes, and each thing that can be waited for."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.control.reasons import CAN_NOT, WORDS, Wait, in_words, waits, why
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyRules, Use
from holdfast.store import proxy_pools
from holdfast.store.proxy_reports import PoolState

NOW = datetime(2026, 2, 5, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
BEFORE = NOW - timedelta(minutes=5)

DOMAIN: dict[str, Any] = {
    "domain": "example.com",
    "status": "active",
    "status_reason": "outcome",
    "block_reason_code": None,
    "is_active": True,
    "maintenance_window": None,
    "stays_blocked": None,
    "next_crawl_after": None,
    "circuit_open_until": None,
    "back_off_until": None,
    "next_request_at": BEFORE,
    "claimed_by": None,
    "claim_expires_at": None,
}
WORK: dict[str, Any] = {
    "job": "default",
    "job_state": "processing",
    "work_state": "open",
    "ready": True,
    "work_not_before": None,
    "crawl_state": "running",
    "budget_used": 7,
    "max_pages": None,
    "pages_granted": 0,
}
MOMENT: dict[str, Any] = {"now": NOW, "workers": 1, "news": False}
ROBOTS: dict[str, Any] = {
    "url": "https://example.com/robots.txt",
    "content": None,
    "reachable": False,
    "problem": "timeout",
    "expires_at": LATER,
}


def test_every_outcome_has_its_words() -> None:
    assert set(Outcome) <= set(WORDS)
    assert len(set(WORDS.values())) == len(WORDS)
    assert not [words for words in WORDS.values() if words.endswith(".") or words[0].isupper()]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("timeout", (WORDS[Outcome.TIMEOUT], None)),
        ("robots_denied: Disallow: /x", (WORDS[Outcome.ROBOTS_DENIED], "Disallow: /x")),
        ("something else: why", ("something else", "why")),
        (None, ("nobody wrote down why", None)),
    ],
)
def test_a_reason_in_words(reason: str | None, words: tuple[str, str | None]) -> None:
    assert in_words(reason) == words


@pytest.mark.parametrize(
    ("row", "page", "words"),
    [
        ({"state": "waiting"}, None, "it is to be crawled"),
        ({"state": "waiting", "kind": "refresh"}, None, "it was crawled, and is to be looked at again"),
        (
            {"state": "waiting", "attempts": 3, "reason": "server_error"},
            None,
            "it was tried 3 times, and is to be tried again: the server failed",
        ),
        (
            {"state": "waiting", "reason": "robots_unavailable: asked again later"},
            None,
            "it is to be crawled: robots.txt could not be had, and is asked for again",
        ),
        ({"state": "done"}, {"outcome": "not_modified"}, "it has not changed since the time before"),
        ({"state": "done"}, None, "it was fetched, and is a page"),
        ({"state": "done", "reason": "not_found: 404"}, None, "the server has no such page"),
        ({"state": "failed", "reason": "no_such_host"}, None, "the host's name is not known"),
        ({"state": "denied", "reason": "trap: too many"}, None, "it looks like a trap: URLs without end"),
    ],
)
def test_why_a_url_is_in_its_state(row: dict[str, Any], page: dict[str, Any] | None, words: str) -> None:
    given = {"attempts": 0, "kind": "discovery", "reason": None} | row
    assert why(given, page)[0] == words


@pytest.mark.parametrize(
    ("domain", "work", "moment", "expected"),
    [
        ({}, {}, {}, Wait("a worker that claims the domain, when its turn comes")),
        ({}, {}, {"workers": 0}, Wait("a worker: none is running; `holdfast crawl` or `holdfast worker` starts one")),
        ({}, {"ready": False}, {"news": True}, Wait("the next sweep, which has news for this domain")),
        ({}, {"ready": False}, {}, Wait("the next sweep")),
        ({}, {"job_state": "paused"}, {}, Wait("the job default is paused")),
        (
            {},
            {"work_state": "parked"},
            {},
            Wait("the job default was paused, and its work here is not taken up yet"),
        ),
        (
            {"is_active": False},
            {},
            {},
            Wait("the domain is switched off: `holdfast domain-set example.com active=yes`"),
        ),
        (
            {"status": "blocked", "block_reason_code": "forbidden", "next_crawl_after": LATER},
            {},
            {},
            Wait("the domain is blocked (forbidden) and cools down", LATER),
        ),
        (
            {"status": "blocked", "block_reason_code": "forbidden", "stays_blocked": True},
            {},
            {},
            Wait(
                "the domain is blocked (forbidden) until somebody starts it over: `holdfast domain-reset example.com`"
            ),
        ),
        (
            {},
            {"work_state": "spent", "crawl_state": None},
            {},
            Wait("the pages of the last crawl were used up; the job's next crawl goes on"),
        ),
        ({}, {"work_state": "spent"}, {}, Wait("the pages of this crawl are used up: 7 on this domain")),
        (
            {},
            {"work_state": "spent", "max_pages": 50, "pages_granted": 49},
            {},
            Wait("the pages of this crawl are used up: 7 on this domain, 49 of 50 over all domains"),
        ),
        ({"maintenance_window": "11:00-12:05"}, {}, {}, Wait("the domain is closed: 11:00-12:05", LATER)),
        (
            {"maintenance_window": "12:05-13:00"},
            {},
            {},
            Wait("a worker that claims the domain, when its turn comes"),
        ),
        ({}, {"work_not_before": LATER}, {}, Wait("all that the job has on this domain is delayed", LATER)),
    ],
)
def test_what_work_waits_for(
    domain: dict[str, Any], work: dict[str, Any], moment: dict[str, Any], expected: Wait
) -> None:
    assert waits(DOMAIN | domain, WORK | work, [], MOMENT | moment) == [expected]


@pytest.mark.parametrize("clock", ["circuit_open_until", "back_off_until", "next_request_at"])
def test_clocks_count_only_while_they_run(clock: str) -> None:
    first, last = waits(DOMAIN | {clock: LATER}, WORK, [], MOMENT)
    assert first.until == LATER
    assert last.what.startswith("a worker that claims")
    assert len(waits(DOMAIN | {clock: BEFORE}, WORK, [], MOMENT)) == 1


def test_a_held_domain_is_its_workers() -> None:
    held = DOMAIN | {"claimed_by": "w1", "claim_expires_at": LATER}
    expected = Wait("worker w1 holds the domain and takes its URLs in turn", LATER)
    assert waits(held, WORK | {"ready": False}, [], MOMENT) == [expected]


def test_a_pause_of_the_url_itself() -> None:
    url = {"not_before": LATER, "attempts": 2}
    assert waits(DOMAIN, WORK, [], MOMENT, url) == [Wait("a pause before attempt 3 on this URL", LATER)]
    assert len(waits(DOMAIN, WORK, [], MOMENT, url | {"not_before": BEFORE})) == 1


def test_robots_that_could_not_be_had() -> None:
    (wait,) = waits(DOMAIN, WORK, [ROBOTS], MOMENT)
    assert wait == Wait("https://example.com/robots.txt could not be had: timeout; it is asked for again", LATER)
    for row in (ROBOTS | {"reachable": True}, ROBOTS | {"content": "an older copy"}, ROBOTS | {"expires_at": BEFORE}):
        assert [wait.until for wait in waits(DOMAIN, WORK, [row], MOMENT)] == [None]


@pytest.mark.parametrize(
    ("rules", "usable", "can_not", "expected"),
    [
        (ProxyRules(Use.POOL), 1, {"off": 3}, []),
        (ProxyRules(Use.POOL, direct=True), 0, {"off": 3}, []),
        (ProxyRules(Use.DIRECT), 0, {}, []),
        (
            ProxyRules(Use.POOL),
            0,
            {"failed": 1, "used_up": 2},
            [Wait("no proxy of its pool can be used: 2 have used up their limit, 1 rests after failures", LATER)],
        ),
        (ProxyRules(Use.ANY), 0, {"off": 1}, [Wait("no proxy can be used: 1 is switched off", LATER)]),
        (
            ProxyRules(Use.POOL),
            0,
            {},
            [Wait("no proxy is assigned to it: `holdfast proxies assign example.com PROXY`")],
        ),
        (ProxyRules(Use.ANY), 0, {}, [Wait("there is no proxy: `holdfast proxies add` makes one known")]),
    ],
    ids=["one can be used", "it goes without", "it uses none", "of its pool", "of all", "empty pool", "none at all"],
)
def test_what_a_domain_without_a_proxy_waits_for(
    rules: ProxyRules, usable: int, can_not: dict[str, int], expected: list[Wait]
) -> None:
    pool = PoolState(rules, usable, can_not, LATER)
    usual = [Wait("a worker that claims the domain, when its turn comes")]
    assert waits(DOMAIN, WORK, [], MOMENT, None, pool) == (expected or usual)


def test_every_reason_of_a_proxy_has_its_words() -> None:
    assert set(re.findall(r"THEN '(\w+)'", proxy_pools.CAN_NOT)) == set(CAN_NOT)
