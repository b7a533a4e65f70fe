"""Reasons in words: total over outcomes, and each thing that can be waited for."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from holdfast.cli.app import build_app
from holdfast.control.explain_text import (
    BLOCKED,
    CAN_NOT,
    REASONS,
    Wait,
    cause,
    describe_wait,
    in_words,
    visit_wait,
    waits,
    why,
    why_not,
)
from holdfast.model.activity import VisitWait, WaitKind
from holdfast.model.domain import STOPPING_EVENTS
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyMode, ProxyRules
from holdfast.politeness.crawler_traps import trap_reason
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.records import PoolState
from holdfast.settings import Crawl, Settings

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
    "budget_limit": None,
    "limit_reached": None,
    "yielded_until": None,
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
    assert set(Outcome) <= set(REASONS)
    for texts in ([reason.label for reason in REASONS.values()], [reason.meaning for reason in REASONS.values()]):
        assert len(set(texts)) == len(texts)
        assert not [text for text in texts if text.endswith(".") or text[0].isupper()]


def test_every_cause_and_step_can_be_said() -> None:
    for name, reason in REASONS.items():
        told, step = cause(f"{name}: why", "https://example.com:8080/a{b}")
        assert "{url}" not in told
        assert "{host}" not in told
        assert not told.endswith(".")
        assert step == reason.step
        assert step.endswith(".")


def test_every_event_that_blocks_a_domain_has_its_words() -> None:
    assert set(STOPPING_EVENTS) <= set(BLOCKED)


def test_every_option_that_a_reason_names_exists() -> None:
    """Options of `holdfast crawl`, settings, and commands; a reason that names another one helps nobody."""
    crawl = typer.main.get_command(build_app()).commands["crawl"]  # type: ignore[attr-defined]
    options = {option for parameter in crawl.params for option in parameter.opts}
    for reason in REASONS.values():
        for named in re.findall(r"`([^`]+)`", f"{reason.change or ''} {reason.step} {reason.meaning}"):
            if named.startswith("--"):
                assert named.split()[0] in options, named
            elif re.fullmatch(r"[a-z]+\.[a-z_]+", named):
                group, _, name = named.partition(".")
                assert name in type(getattr(Settings(), group)).model_fields, named


@pytest.mark.parametrize(
    ("reason", "url", "told"),
    [
        (
            "connection_failed: Failed to connect: Connection refused",
            "http://127.0.0.1:21998/robots.txt",
            ("127.0.0.1:21998 refused the connection", "Start the server, then run the same command again."),
        ),
        (
            "not_found: HTTP 404",
            "https://example.com/x",
            ("the server has no page https://example.com/x (HTTP 404)", REASONS["not_found"].step),
        ),
        (
            "tls_failure: TLS connect error: error:0A00010B:SSL routines::wrong version number",
            "https://a.test:8080/x",
            ("a.test:8080 speaks no TLS", "Try http://a.test:8080/."),
        ),
        ("no_such_host", "https://nowhere.test/", ("there is no host called nowhere.test", "Check the name.")),
    ],
)
def test_the_cause_of_a_crawl_without_a_page(reason: str, url: str, told: tuple[str, str]) -> None:
    assert cause(reason, url) == told


def test_a_reason_that_is_not_in_the_table_is_said_as_it_is() -> None:
    assert why_not("brand_new: why").label == "brand new"
    assert why_not("a fault of ours: KeyError: 3").label == REASONS["fault"].label


def test_a_wait_says_how_long() -> None:
    assert describe_wait(Wait("a pause"), NOW) == "a pause"
    assert describe_wait(Wait("a pause", NOW + timedelta(seconds=12)), NOW) == "a pause, for another 12 s"
    assert describe_wait(Wait("a pause", LATER), NOW) == "a pause, until 2026-02-05 12:05 UTC"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("timeout", (REASONS[Outcome.TIMEOUT].meaning, None)),
        ("robots_denied: Disallow: /x", (REASONS[Outcome.ROBOTS_DENIED].meaning, "Disallow: /x")),
        ("something else: why", ("something else", "why")),
        (None, ("the reason was not recorded", None)),
    ],
)
def test_a_reason_in_words(reason: str | None, words: tuple[str, str | None]) -> None:
    assert in_words(reason) == words


@pytest.mark.parametrize(
    ("row", "outcome", "words"),
    [
        ({"state": "waiting"}, None, "it was not crawled yet"),
        ({"state": "waiting", "kind": "refresh"}, None, "it was crawled, and will be crawled again"),
        (
            {"state": "waiting", "attempts": 3, "reason": "server_error"},
            None,
            "it was tried 3 times, and will be tried again: the server failed",
        ),
        (
            {"state": "waiting", "reason": "robots_unavailable: asked again later"},
            None,
            "it was not crawled yet: robots.txt could not be fetched, and is asked for again",
        ),
        ({"state": "done"}, "not_modified", "it has not changed since the time before"),
        ({"state": "done"}, None, "it was fetched, and is a page"),
        ({"state": "done", "resource": "image"}, None, "it is an image, and is stored"),
        ({"state": "done", "resource": "image", "reason": "not_found"}, None, "the server has no such page"),
        ({"state": "done", "resource": "sitemap"}, None, "it is a sitemap or a feed, and was read"),
        ({"state": "done", "resource": "check"}, None, "it is out of scope; the links to it work"),
        ({"state": "done", "reason": "not_found: 404"}, None, "the server has no such page"),
        ({"state": "failed", "reason": "no_such_host"}, None, "the host's name is not known"),
        ({"state": "denied", "reason": "trap: too many"}, None, "it looks like one of URLs without end"),
    ],
)
def test_why_a_url_is_in_its_state(row: dict[str, Any], outcome: str | None, words: str) -> None:
    given = {"attempts": 0, "kind": "discovery", "reason": None, "resource": "page"} | row
    assert why(given, outcome)[0] == words


@pytest.mark.parametrize(
    ("domain", "work", "moment", "expected"),
    [
        ({}, {}, {}, Wait("a worker that claims the domain, when its turn comes")),
        (
            {},
            {},
            {"workers": 0},
            Wait("a worker: none is running", None, "`holdfast crawl` or `holdfast worker` starts one"),
        ),
        ({}, {"ready": False}, {"news": True}, Wait("the next sweep, which has news for this domain")),
        ({}, {"ready": False}, {}, Wait("the next sweep")),
        ({}, {"job_state": "paused"}, {}, Wait("the job default is paused", None, "`holdfast jobs resume default`")),
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
            Wait("the domain is switched off", None, "`holdfast domains set example.com active=yes` switches it on"),
        ),
        (
            {"status": "blocked", "block_reason_code": "forbidden", "next_crawl_after": LATER},
            {},
            {},
            Wait(
                "example.com is blocked (it answers 403 Forbidden)",
                LATER,
                "`holdfast domains unblock example.com` ends that",
            ),
        ),
        (
            {"status": "blocked", "block_reason_code": "forbidden", "stays_blocked": True},
            {},
            {},
            Wait(
                "example.com is blocked (it answers 403 Forbidden)",
                None,
                "only `holdfast domains unblock example.com` ends that",
            ),
        ),
        (
            {},
            {"work_state": "spent", "crawl_state": None},
            {},
            Wait("the pages of the last crawl are used", None, "`holdfast crawl --job default` starts a new crawl"),
        ),
        (
            {},
            {"work_state": "spent", "max_pages": 50, "pages_granted": 49},
            {},
            Wait("the next round: it used its share, 7 pages so far, and others have their turn"),
        ),
        (
            {},
            {"work_state": "spent", "max_pages": 50, "pages_granted": 50},
            {},
            Wait(
                "the 50 pages of the crawl are used (`--max-pages`)",
                None,
                "`holdfast crawl --job default` starts a new crawl",
            ),
        ),
        (
            {},
            {"work_state": "spent", "limit_reached": "max_pages_per_domain", "budget_limit": 2000},
            {},
            Wait(
                "its limit of 2,000 pages is reached (`--max-pages-per-domain`)",
                None,
                "`holdfast crawl --job default` starts a new crawl",
            ),
        ),
        (
            {},
            {"work_state": "spent", "limit_reached": "domain_budget", "budget_limit": 9},
            {},
            Wait(
                "the domain's own limit of 9 pages a crawl is reached",
                None,
                "`holdfast domains set example.com budget=` lifts it",
            ),
        ),
        (
            {},
            {"yielded_until": LATER},
            {},
            Wait("the job gave way to another job on this domain", LATER),
        ),
        ({"maintenance_window": "11:00-12:05"}, {}, {}, Wait("the domain is closed: 11:00-12:05", LATER)),
        (
            {"maintenance_window": "12:05-13:00"},
            {},
            {},
            Wait("a worker that claims the domain, when its turn comes"),
        ),
        (
            {},
            {"work_not_before": LATER},
            {},
            Wait("every URL that the job has on this domain waits for its next attempt", LATER),
        ),
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
    expected = Wait("worker w1 holds the domain and takes its URLs in turn")
    assert waits(held, WORK | {"ready": False}, [], MOMENT) == [expected]


def test_a_domain_that_is_crawled_for_another_job_names_it() -> None:
    """The pause between two requests of that other job is not what this one waits for."""
    held = DOMAIN | {"claimed_by": "w1", "claim_expires_at": LATER, "next_request_at": LATER}
    expected = Wait("worker w1 crawls the domain for job demo; jobs on one domain take turns")
    assert waits(held, WORK, [], MOMENT | {"held_for": "demo"}) == [expected]
    assert waits(held, WORK, [], MOMENT | {"held_for": "default"})[0].what.startswith("worker w1 holds the domain")


def test_a_free_domain_of_two_jobs_names_the_other() -> None:
    assert waits(DOMAIN, WORK, [], MOMENT | {"others": ["default", "demo"]}) == [
        Wait("its turn: job demo has work on this domain, too")
    ]
    assert waits(DOMAIN, WORK, [], MOMENT | {"others": ["default"]})[0].what.startswith("a worker that claims")


def test_a_pause_of_the_url_itself() -> None:
    url = {"not_before": LATER, "attempts": 2}
    assert waits(DOMAIN, WORK, [], MOMENT, url) == [Wait("a pause before attempt 3 on this URL", LATER)]
    assert len(waits(DOMAIN, WORK, [], MOMENT, url | {"not_before": BEFORE})) == 1


def test_robots_that_could_not_be_had() -> None:
    (wait,) = waits(DOMAIN, WORK, [ROBOTS], MOMENT)
    expected = "robots.txt is not available: example.com did not answer in time"
    assert wait == Wait(expected, LATER)
    for row in (ROBOTS | {"reachable": True}, ROBOTS | {"content": "an older copy"}, ROBOTS | {"expires_at": BEFORE}):
        assert [wait.until for wait in waits(DOMAIN, WORK, [row], MOMENT)] == [None]


@pytest.mark.parametrize(
    ("rules", "usable", "can_not", "expected"),
    [
        (ProxyRules(ProxyMode.POOL), 1, {"off": 3}, []),
        (ProxyRules(ProxyMode.POOL, direct=True), 0, {"off": 3}, []),
        (ProxyRules(ProxyMode.DIRECT), 0, {}, []),
        (
            ProxyRules(ProxyMode.POOL),
            0,
            {"failed": 1, "used_up": 2},
            [Wait("no proxy of its pool can be used: 2 have used up their limit, 1 rests after failures", LATER)],
        ),
        (ProxyRules(ProxyMode.ANY), 0, {"off": 1}, [Wait("no proxy can be used: 1 is switched off", LATER)]),
        (
            ProxyRules(ProxyMode.POOL),
            0,
            {},
            [Wait("no proxy is assigned to it", None, "`holdfast proxies assign example.com PROXY`")],
        ),
        (ProxyRules(ProxyMode.ANY), 0, {}, [Wait("there is no proxy", None, "`holdfast proxies add` makes one known")]),
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


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("Connection refused: Failed to connect", "(connection refused)"),
        ("TLS connect error: error:0A00010B", "(TLS connect error)"),
        ("Recv failure: Connection reset by peer", "(connection reset by peer)"),
        ("HTTP 500", "(HTTP 500)"),
    ],
)
def test_what_a_library_says_stands_inside_a_sentence(detail: str, told: str) -> None:
    wait = VisitWait("example.com", 1, WaitKind.ROBOTS, 3.0, detail)
    assert visit_wait(wait) == f"example.com: robots.txt is not available {told}"


@pytest.mark.parametrize(
    ("url", "label", "change"),
    [
        ("https://h/a/a/a/a/a", "with a part of the path more than 3 times in a row", "`crawl.max_repeats`"),
        ("https://h/" + "/".join(map(str, range(40))), "with more than 20 path segments", "`crawl.max_segments`"),
        ("https://h/?" + "&".join(f"p{n}=1" for n in range(30)), "with more than 20 parameters", None),
        ("https://h/?" + "&".join(["p=1"] * 7), "with one parameter more than 5 times", None),
        ("https://h/calendar/2999/", "of a calendar without end", None),
    ],
)
def test_a_trap_is_named_by_its_kind_with_its_limit(url: str, label: str, change: str | None) -> None:
    detail = trap_reason(url, Crawl(), 2026)
    assert detail is not None
    found = why_not(f"trap: {detail}")
    assert (found.label, found.change) == (label, change)


def test_a_pattern_with_too_many_urls_is_named_with_its_limit() -> None:
    found = why_not("trap: 10000 URLs of this pattern are known")
    assert found.label == "of an endless pattern (more than 10,000 URLs that differ only in numbers)"
    assert found.change == "`crawl.template_cap`"
