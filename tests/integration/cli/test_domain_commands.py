"""Domains from the command line: what is listed, told, configured and started over."""

import re
from datetime import timedelta

import pytest

from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.domain import Event, Status
from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d"


@pytest.fixture
def story(store: Store) -> Store:
    """Five domains, each in its status."""
    pages = {
        "unsplash.com": {"pages_crawled": 450, "images_stored": 3200},
        "wikipedia.org": {"pages_crawled": 50, "images_stored": 12},
        "example-login.com": {"pages_crawled": 3},
        "dead-domain.invalid": {},
        "waiting.example": {},
    }
    store.seed(*pages, "unsplash.com/photos")
    for claim in store.claim(count=len(pages)):
        counters = pages[claim.domain]
        if counters:
            store.flush(claim, "w1", outcomes=1, **counters)
        if claim.domain == "wikipedia.org":
            store.finish_urls(claim)
            store.release(claim)
        elif claim.domain == "example-login.com":
            store.release(claim, event=Event.LOGIN_REQUIRED)
        elif claim.domain == "dead-domain.invalid":
            store.release(claim, event=Event.DNS_FAILURE, detail="no such name\x1b[2J", crawled=False)
        else:
            store.release(claim, crawled=bool(counters))
    return store


def test_domain_status_is_the_table_of_the_design(cli: Cli, story: Store) -> None:
    answer = cli("domain-status")
    assert (answer.code, answer.err) == (0, "")
    header, rule, *rows = answer.out.splitlines()
    assert header.split("  ")[0] == "DOMAIN"
    assert header.split() == ["DOMAIN", "STATUS", "PAGES", "IMAGES", "YIELD", "LAST", "CRAWLED"]
    assert set(rule) == {"─"}
    assert len(rule) >= len(header)
    patterns = [
        rf"unsplash\.com +active +0/2 +3200 +7\.1  {TIME}",
        rf"wikipedia\.org +exhausted +1/1 +12 +0\.24  {TIME}",
        rf"example-login\.com +blocked +0/1 +0 +0\.0  {TIME}\n  └─ reason: login_required",
        r"dead-domain\.invalid +unreachable +0/1 +0 +-  -\n  └─ reason: dns_failure \(no such name\\x1b\[2J\)",
        r"waiting\.example +pending +0/1 +0 +-  -",
    ]
    for pattern in patterns:
        assert re.search(rf"^{pattern}$", answer.out, re.MULTILINE), pattern
    assert len(rows) == len(patterns) + 2


def test_domain_status_by_status_and_top_domains(cli: Cli, story: Store) -> None:
    for status in Status:
        answer = cli("domain-status", "--status", status, "--json").json
        assert [(row["status"], row["is_active"]) for row in answer["domains"]] == [(status, True)]
        assert answer["counts"] == dict.fromkeys(Status, 1)
    top = cli("top-domains", "--json").json["domains"]
    assert [row["domain"] for row in top] == ["unsplash.com", "wikipedia.org", "example-login.com"]
    table = cli("top-domains", "--limit", "1").out.splitlines()
    assert len(table) == 3
    assert table[2].startswith("unsplash.com")


def test_domain_status_says_what_is_not_shown(cli: Cli, store: Store) -> None:
    answer = cli("domain-status")
    assert answer.err == "No domains yet; `holdfast seeds add URL` adds some.\n"
    assert (answer.code, len(answer.out.splitlines())) == (0, 2)
    answer = cli("top-domains")
    assert (answer.code, answer.out, answer.err) == (0, "", "No domain has been crawled yet.\n")
    assert cli("top-domains", "--json").json == {"domains": []}
    store.domains(3)
    assert cli("domain-status", "--limit", "2").err == "2 of 3 domains; --limit shows more.\n"
    assert cli("domain-status", "--limit", "3").err == ""
    assert cli("domain-status", "--status", "blocked").err == "No domain is blocked.\n"


def test_domain_info_tells_everything(cli: Cli, story: Store) -> None:
    story.connection.execute("UPDATE domains SET user_agent = 'Bot/1', maintenance_window = '22:00-06:00'")
    story.connection.execute("UPDATE domains SET max_pages_per_run = NULL, seed_rank = 9, is_active = false")
    answer = cli("domain-info", "https://www.Dead-Domain.invalid/page")
    facts = dict(line.split(maxsplit=1) for line in answer.out.splitlines()[:15])
    assert answer.code == 0
    assert facts["Domain"] == "dead-domain.invalid"
    assert facts["Status"] == "unreachable (dns_failure: no such name\\x1b[2J)"
    assert facts["Held"] == "by         no worker"
    assert facts["Pages"] == "0 done of 1 known, 0 fetched in all, depth 0"
    assert facts["Errors"] == "0 in all, 0 in a row, blocked or unreachable 1 time in a row"
    assert facts["Priority"].endswith(" (rank 9)")
    assert facts["Active"] == "no: switched off"
    assert facts["Configuration"] == ("delay 1 s, 5 requests at once, no page limit, parser generic, every 1d")
    assert facts["User"] == "agent      Bot/1"
    assert facts["Not"] == "during      22:00-06:00"
    assert re.search(
        rf"^{TIME}  pending → unreachable  dns_failure: no such name\\x1b\[2J  w1$", answer.out, re.MULTILINE
    )
    assert re.search(rf"^ +1  w1      {TIME}  {TIME}  released$", answer.out, re.MULTILINE)
    assert re.search(r"^default  open   no +1 +0 +0 +0$", answer.out, re.MULTILINE)
    info = cli("domain-info", "example-login.com", "--json").json
    assert info["status"] == "blocked"
    assert info["block_reason_code"] == "login_required"
    assert [work["job"] for work in info["work"]] == ["default"]
    assert [change["to_status"] for change in info["transitions"]] == ["blocked", "active"]
    assert [tenure["why"] for tenure in info["tenures"]] == ["released"]
    assert info["next_crawl_after"].endswith("Z")


def test_domain_info_of_a_held_and_of_a_given_up_domain(cli: Cli, store: Store) -> None:
    store.seed("example.com")
    claim = store.claim_one("w\x07")
    assert re.search(rf"^Held by +w\\x07 until {TIME}$", cli("domain-info", "example.com").out, re.MULTILINE)
    store.expire(claim.domain_id)
    assert re.search(
        rf"^Held by +w\\x07 until {TIME} \(expired\)$", cli("domain-info", "example.com").out, re.MULTILINE
    )
    for _ in range(4):
        store.connection.execute(
            "UPDATE domains SET next_crawl_after = NULL, status = 'pending' WHERE status = 'blocked'"
        )
        store.connection.execute("UPDATE job_domains SET ready = true")
        store.connection.execute("UPDATE claim_log SET ended_at = claimed_at, why = 'expired' WHERE ended_at IS NULL")
        store.connection.execute("UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL")
        store.release(store.claim_one(), event=Event.FORBIDDEN)
    assert re.search(r"^Again after +only after a reset$", cli("domain-info", "example.com").out, re.MULTILINE)
    info = cli("domain-info", "example.com", "--json").json
    assert (info["stays_blocked"], info["next_crawl_after"], info["retry_count"]) == (True, None, 4)


def test_the_delay_in_force_is_shown_with_its_source(cli: Cli, store: Store) -> None:
    store.seed("example.com")
    claim = store.claim_one()
    assert store.flush(claim, outcomes=1, clocks=PolitenessClocks(1.0, delay=7.0, delay_source="robots"))
    shown = cli("domain-info", "example.com")
    assert "delay 7 s (Crawl-delay of robots.txt; its own is 1 s)" in shown.out
    info = cli("domain-info", "example.com", "--json").json
    assert (info["delay_in_force_seconds"], info["delay_source"], info["crawl_delay_seconds"]) == (7.0, "robots", 1.0)
    assert cli("domain-set", "example.com", "crawl_delay_seconds=9").code == 0
    info = cli("domain-info", "example.com", "--json").json
    assert (info["delay_in_force_seconds"], info["delay_source"]) == (9.0, "domain")
    assert cli("domain-set", "example.com", "delay=1").code == 0
    assert cli("domain-set", "example.com", "delay=1", "crawl_delay_seconds=2").code == 2
    assert cli("domain-set", "example.com", "base_url=https://other.example").code == 2
    assert cli("domains", "set", "example.com", "base_url=http://www.example.com/").code == 0
    assert cli("domain-info", "example.com", "--json").json["base_url"] == "http://www.example.com"


def test_domain_set_refuses_a_parser_that_there_is_none_of(cli: Cli, store: Store) -> None:
    store.seed("example.com")
    answer = cli("domain-set", "example.com", "parser=nope")
    assert (answer.code, "nope" in answer.err, "product" in answer.err) == (2, True, True)
    assert cli("domain-info", "example.com", "--json").json["parser_name"] == "generic"


def test_domain_set_changes_what_it_is_told(cli: Cli, store: Store) -> None:
    store.seed("example.com")
    answer = cli("domain-set", "example.com", "delay=2.5", "budget=500", "frequency=7d", "user_agent=Bot/1.0 (me)")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "example.com: set delay=2.5, budget=500, frequency=7d, user_agent=Bot/1.0 (me).\n"
    row = cli("domain-set", "http://example.com/", "active=no", "window=22:00-06:00 Europe/Berlin", "--json").json
    assert row["crawl_delay_seconds"] == 2.5
    assert row["max_pages_per_run"] == 500
    assert row["default_crawl_frequency"] == "7d"
    assert row["user_agent"] == "Bot/1.0 (me)"
    assert row["maintenance_window"] == "22:00-06:00 Europe/Berlin"
    assert (row["is_active"], row["version"]) == (False, 2)
    assert store.claim() == []
    cli("domain-set", "example.com", "active=yes")
    assert [claim.domain for claim in store.claim()] == ["example.com"]
    assert_invariants(store.connection)


def test_how_a_domain_uses_proxies(cli: Cli, store: Store) -> None:
    store.seed("example.com")
    words = ["proxy=pool", "proxy_direct=no", "proxy_resolves=yes", "proxy_country=de", "proxy_sticky=10m"]
    row = cli("domain-set", "example.com", *words, "--json").json
    told = {name: row[name] for name in row if name.startswith("proxy_")}
    assert told == {
        "proxy_use": "pool",
        "proxy_direct": False,
        "proxy_resolves": True,
        "proxy_country": "DE",
        "proxy_sticky": "10m",
    }
    assert re.search(
        r"^Proxies +uses those of its pool, must not be asked without one, names are looked up by them, only those in DE, "
        r"the same one for 10m$",
        cli("domain-info", "example.com").out,
        re.MULTILINE,
    )
    cli("domain-set", "example.com", *(f"{word.partition('=')[0]}=" for word in words))
    assert "Proxies" not in cli("domain-info", "example.com").out


def test_domain_reset_starts_over_and_takes_it_from_its_holder(cli: Cli, store: Store) -> None:
    store.seed("example.com", "example.com/a")
    claim = store.claim_one("w\x1b7")
    store.flush(claim, "w\x1b7", outcomes=1, pages_crawled=1)
    answer = cli("domain-reset", "example.com", "--reason", "site was \x1b moved")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "example.com: active → pending, 2 URLs to crawl; taken from w\\x1b7.\n"
    assert not store.flush(claim, "w\x1b7", pages_crawled=1)
    info = cli("domain-info", "example.com", "--json").json
    assert info["status_reason"] == "reset: site was \x1b moved"
    assert "\x1b" not in cli("domain-info", "example.com").out
    assert cli("domain-reset", "example.com", "--json").json == {
        "domain": "example.com",
        "was": "pending",
        "was_held_by": None,
        "waiting": 2,
    }
    assert_invariants(store.connection)


def test_domains_unblock_lets_several_be_tried_again(cli: Cli, store: Store) -> None:
    store.seed("a.example", "b.example/x", "b.example/y", "c.example")
    for name in ("a.example", "b.example"):
        store.become(name, Status.BLOCKED)
    answer = cli("domains", "unblock", "a.example", "b.example")
    assert (
        answer.out == "a.example: blocked → pending, 1 URL to crawl.\nb.example: blocked → pending, 2 URLs to crawl.\n"
    )
    store.become("a.example", Status.BLOCKED)
    unknown = cli("domains", "unblock", "a.example", "nowhere.example")
    assert (unknown.code, unknown.out) == (4, "")
    assert store.value("SELECT status::text FROM domains WHERE domain = 'a.example'") == "blocked"
    some = cli("domains", "unblock", "a.example", "c.example")
    assert (some.code, some.out) == (5, "a.example: blocked → pending, 1 URL to crawl.\n")
    refused = cli("domain-unblock", "c.example")
    assert (refused.code, "c.example is pending, not blocked" in refused.err) == (5, True)
    assert store.value("SELECT count(*) FROM audit_log WHERE action = 'unblock' AND object_kind = 'domain'") == 3
    assert_invariants(store.connection)


def test_recalculate_priorities(cli: Cli, store: Store) -> None:
    store.domains(3)
    assert cli("recalculate-priorities").out == "3 domains, 0 priorities changed.\n"
    store.connection.execute("UPDATE domains SET seed_rank = 1 WHERE domain = 'd1.example'")
    assert cli("recalculate-priorities").out == "3 domains, 1 priority changed.\n"
    assert cli("recalculate-priorities", "--json").json == {"domains": 3, "changed": 0}
    assert [claim.domain for claim in store.claim(lease=timedelta(minutes=1))] == ["d1.example"]


def test_an_unknown_domain_is_a_sentence(cli: Cli) -> None:
    sentence = "There is no domain 'nowhere.example'; `holdfast seeds add nowhere.example` makes it known."
    for command, *words in (["domain-info"], ["domain-reset"], ["domain-set", "active=no"]):
        assert cli(command, "www.nowhere.example", *words).refused(4) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["domain-info", "http://bad host/"], "'http://bad host/' is not a valid URL."),
        (["domain-reset", "ftp://example.com"], "'ftp://example.com' is neither an http or https URL nor a domain."),
        (["domain-set", "", "delay=1"], "'' names no host."),
        (["domain-set", "example.com", "delay=x"], "'delay=x' cannot be set: delay must be a duration"),
        (
            ["domain-set", "example.com", "x=1"],
            "'x' is not a setting of a domain; write key=value with one of: crawl_delay_seconds (delay)",
        ),
        (["domain-set", "example.com"], "Missing argument 'KEY=VALUE'. See `holdfast domain-set --help`."),
        (
            ["domain-status", "--status", "asleep"],
            "Invalid value for '--status': 'asleep' is not one of 'pending', 'active', 'exhausted', 'blocked', 'unreachable'. See",
        ),
        (["domain-status", "--limit", "0"], "Invalid value for '--limit': It must be at least 1."),
        (["domain-status", "--limit", "many"], "Invalid value for '--limit': "),
        (["domain-reset", "example.com", "--reason", "\udcff"], "Invalid value for '--reason': It is not text"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_database(bare_cli: Cli, arguments: list[str], sentence: str) -> None:
    assert bare_cli(*arguments).refused(2).startswith(sentence)
