"""Pools from the command line: filled and emptied, how they fare and what they cost; and proxies that are tried."""

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.pools import Pools

SITE = "example.com"
PASSWORD = "s3cret"


@pytest.fixture
def pools(store: Store) -> Pools:
    store.seed(SITE)
    return Pools(store)


def lines(text: str) -> list[list[str]]:
    """A table's rows, without its head; notes are one cell."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[2:]]


def test_assign_and_unassign(cli: Cli, pools: Pools) -> None:
    pools.add(2, provider="acme", country_code="DE")
    pools.add(1, provider="acme", country_code="FR")
    answer = cli("proxies", "assign", f"https://www.{SITE}/page", "1", "http://proxy.example:2")
    assert answer.out == (
        f"{SITE}: 2 added to its pool, 0 as before.\n"
        f"It uses its pool from now on; `holdfast domains set {SITE} proxy=direct` ends that.\n"
    )
    assert cli("proxies", "assign", SITE, "--provider", "acme").out == f"{SITE}: 1 added to its pool, 2 as before.\n"
    moved = cli("proxies", "assign", SITE, "--country", "de", "--priority", "1")
    assert moved.out == f"{SITE}: 0 added to its pool, 2 with another priority, 0 as before.\n"
    cli("domain-set", SITE, "proxy=direct")
    assert "domains set example.com proxy=pool` lets it" in cli("proxies", "assign", SITE, "3").err
    out = cli("proxies", "unassign", SITE, "1", "815")
    assert (out.code, out.out) == (0, f"{SITE}: 1 taken out of its pool, 1 was not in it, 2 left.\n")
    last = cli("proxies", "unassign", SITE, "--all")
    assert last.err == f"Its pool is empty; `holdfast explain {SITE}` says whether it waits for one.\n"
    assert cli("proxies", "assign", SITE, "815").refused(4) == "There is no proxy 815."
    assert (
        cli("proxies", "assign", "nowhere.example", "1").refused(4).startswith("There is no domain 'nowhere.example'")
    )
    assert cli("proxies", "assign", SITE, "1", "--json").json["added"] == [1]


def test_a_provider_without_proxies_leaves_the_domain_as_it_is(cli: Cli, pools: Pools) -> None:
    pools.add(1, provider="acme")
    assert (
        cli("proxies", "assign", SITE, "--provider", "amce")
        .refused(4)
        .startswith("No proxy has this provider and country")
    )
    assert cli("domains", "info", SITE, "--json").json["proxy_use"] is None


def test_health_alerts_cost_and_advice(cli: Cli, pools: Pools) -> None:
    a, b, c = [*pools.add(2, provider="acme", monthly_cost=10), *pools.add()]
    assert cli("proxies", "health").err.startswith("No domain uses proxies; ")
    assert cli("proxies", "alerts").out == "No pool needs attention.\n"
    pools.assign(SITE, a, b)
    pools.used(
        SITE, a, requests=40, other_requests=10, success_count=30, total_failures=5, proxy_failures=5, bytes=4_000
    )
    pools.used(SITE, c, requests=1, success_count=1)
    pools.is_refused(b, 5)
    row = lines(cli("proxies", "health").out)[0]
    assert row == [SITE, "pool", "2", "1", "1", "41", "31", "5", "5", "-"]
    assert cli("proxies", "health", "--json").json[0]["failure_percent"] == 24.39
    pool = lines(cli("proxies", "health", SITE).out)
    assert [line[3] for line in pool if len(line) > 1] == ["refused", "active", "not in it"]
    noted = [line[0] for line in pool if len(line) == 1]
    assert len(noted) == 1
    assert re.fullmatch(r"└─ it rests since the site refused it until \S+ \S+ UTC; last: refused", noted[0])
    assert {one["proxy_id"] for one in cli("proxies", "health", SITE, "--json").json} == {a, b, c}
    alerts = cli("proxies", "alerts").out
    assert "Fewer than 3 active proxies\n" in alerts
    assert "More than 10 % failures, of at least 20 requests\n" in alerts
    found = cli("proxies", "alerts", "--failures", "30", "--json").json
    assert found["few_active"] == [{"domain": SITE, "active": 1, "proxies": 2}]
    assert found["many_failures"] == []
    assert lines(cli("proxies", "cost").out) == [
        ["acme", "2", "2", "50", "4.0 kB", "20.00", "400.0000"],
        ["-", "1", "1", "1", "0 B", "-", "-"],
    ]
    assert lines(cli("proxies", "cost", "--each", "--limit", "1").out)[0][3:] == ["50", "4.0 kB", "10.00", "200.0000"]
    assert [one["id"] for one in cli("proxies", "cost", "--each", "--after", str(a), "--json").json] == [b, c]
    advice = cli("proxies", "advise", "100", "--domain", SITE).out
    assert advice == (
        "6 proxies: 100 URLs an hour, 20 through each, and 20 % more for those that fail.\n"
        f"{SITE} has 1 active: 5 more are needed.\n"
    )
    assert cli("proxies", "advise", "10", "--each", "100", "--buffer", "0", "--json").json["needed"] == 1


# Trying ---------------------------------------------------------------------------------------------------------------


class _Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/404" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A site on loopback that Holdfast may ask."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_real_request_goes_through(
    cli: Cli, store: Store, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_FETCH_ALLOW_PRIVATE", "true")
    with ProxyProcess(tmp_path, name="p", user="bob", password=PASSWORD) as proxy:
        (tmp_path / "list").write_text(f"{proxy.url}\n127.0.0.1:1\n")
        cli("proxies", "import", "list", "--allow-private", "--limit", "3")
        bob, dead = (one["id"] for one in cli("proxies", "list", "--json").json)
        Pools(store).fails(bob, 10)
        Pools(store).fails(dead, 3)
        works = cli("proxies", "test", str(bob), "--url", f"{site}/404")
        assert (works.code, lines(works.out)[0][2:4]) == (0, ["yes, active again", "404"])
        (hit,) = proxy.log()
        assert hit["target"] == f"{site}/404"
        assert cli("proxies", "show", str(bob), "--json").json["failure_count"] == 0
        both = cli("proxies", "test", "--all", "--url", site, "--json")
        assert both.code == 1
        assert [(one["works"], one["fault"], one["status"]) for one in both.json] == [
            (True, None, 200),
            (False, "proxy", None),
        ]
        assert cli("proxies", "show", str(dead), "--json").json["failure_count"] == 3, "a test is held against nobody"
        cli("proxies", "edit", str(bob), "--password-stdin", stdin=b"another\n")
        wrong = cli("proxies", "test", str(bob), "--url", site)
        assert (wrong.code, lines(wrong.out)[0][2]) == (1, "no")
        assert re.search(r"└─ .*407.* \(the proxy's fault\)$", wrong.out, re.MULTILINE)
        spent = cli("proxies", "test", str(bob), "--url", site)
        assert spent.code == 1
        assert re.search(r"└─ Its limit is used up; it can be asked again in 1h\d+s at the latest\.", spent.out)
        assert len(proxy.log()) == 3, "the limit holds for tests, too"
        cli("proxies", "edit", str(bob), "--limit", "none")
        nowhere = cli("proxies", "test", str(bob), "--url", "http://nowhere.invalid/")
        assert lines(nowhere.out)[1][0].endswith("(not the proxy's fault)")
        assert cli("proxies", "test", "815").refused(4) == "There is no proxy 815."
    outputs = [works, both, wrong, spent, nowhere]
    assert not [answer for answer in outputs if PASSWORD in answer.out + answer.err]
    assert store.value("SELECT count(*) FROM audit_log WHERE action = 'recover'") == 1
