"""`--server`: commands that ask a server answer as they do on the store itself, and never open a store."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import factories
from holdfast.accounts.service import AccountService
from holdfast.alerts import queries as alerts
from holdfast.alerts.queries import settle
from holdfast.cli import app
from holdfast.cli.command_context import LOCAL_COMMANDS
from holdfast.control.verify import Step
from holdfast.db import audit, runs
from holdfast.db.connection import Database
from holdfast.db.verify import Finding
from holdfast.model.auth import Role, Scope
from holdfast.model.domain import Status
from holdfast.model.task import TaskStatus
from holdfast.operations.service import OperationRunner
from holdfast.settings import Fetch
from holdfast.settings.web import Web
from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.support.api import serving, settings
from tests.support.both import Both, assert_alike
from tests.support.cli import Cli, only_ours
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.pages import Page, Pages
from tests.support.pools import Pools
from tests.support.shop import Shop, product
from tests.support.tasks import Tasks

PASSWORD = "wide rivers run slowly"


@pytest.fixture
def both(cli: Cli, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    with serving(database, settings(tmp_path)) as api:
        yield Both(cli, api, api.key(Role.ADMIN), monkeypatch)


def test_seeds(both: Both, store: Store, tmp_path: Path) -> None:
    urls = ("{}.example", "https://{}.example/x", "https://-bad-.com/", "https://{}.example/x")
    for ask, name in ((both.near, "near"), (both.far, "far")):
        added = ask("seeds", "add", *(url.format(name) for url in urls), "--json")
        facts = {"lines": 4, "bad": 1, "stopped": None, "seeds": 3, "domains": 1, "urls": 2, "bytes_read": 0}
        assert (added.code, {key: added.json[key] for key in facts}) == (1, facts)
        assert added.err.startswith("argument 3: ")
        file = tmp_path / f"{name}.txt"
        lines = "".join(f"{number}{name}.example\n" for number in range(1_500))
        file.write_text(f"# sites\n-bad-.com\n{lines}{name}.example\n")
        loaded = ask("seeds", "load", str(file))
        assert (loaded.code, loaded.err.count("\n")) == (1, 1)
        assert loaded.err.startswith("line 2: ")
        assert loaded.out == "1,503 lines: 1,501 seeds (1,500 new domains, 1,500 new URLs), 1 bad.\n"
    assert store.value("SELECT count(*) FROM job_seeds WHERE guessed AND url = 'https://far.example/'") == 1
    picture = tmp_path / "picture.zip"
    picture.write_bytes(b"PK\x03\x04")
    assert "ZIP archive" in both.refused("seeds", "load", str(picture))
    both.refused("seeds", "load", str(tmp_path / "nothing.txt"))
    assert "--source" in both.far("seeds", "load", str(tmp_path / "far.txt"), "--source", "list").refused(2)


def test_jobs(both: Both, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("# sites\nb.example\n1,c.example\n-bad-.com\nhttps://d.example/x?utm_source=y\n")
    for ask, name in ((both.near, "near"), (both.far, "far")):
        made = ask("jobs", "create", name, "https://a.example/", "--max-pages", "5", "--json")
        assert (made.code, made.json["job"], made.json["seeds"], made.json["bad"]) == (0, name, 1, 0)
        many = ask("jobs", "create", f"{name} many", "--seeds", str(seeds), "--exclude", "/tag/", "--json")
        assert (many.code, many.json["seeds"], many.json["bad"]) == (1, 3, 1)
        assert many.err == (
            f"not a seed, line 4 of {seeds}: 'https://-bad-.com/' names a host with a part that begins or ends with a hyphen.\n"
        )
        said = ask("jobs", "set", name, "max_pages=", "delay=2")
        assert said.out.startswith(f"Job {name}: changed max_pages, delay. Workers go on with what a limit kept")
        assert ask("jobs", "set", name, "delay=2", "--json").json["changed"] == []
        rules = ("exclude=/a/", "exclude=/b/", "scope=domain")
        assert ask("jobs", "set", name, *rules, "--dry-run", "--json").json["exact"] is True
        assert ask("jobs", "set", name, *rules, "--json").json["rules_version"] == 1
        assert ask("jobs", "undo-scope", name).out.startswith(f"Job {name}: changed scope, exclude. ")
        assert [one["restores"] for one in ask("jobs", "scope-history", name, "--json").json] == [None, None, 0]
        assert ask("jobs", "schedule", name, "6h").out.startswith("It is crawled again at ")
        assert ask("jobs", "schedule", name, "--off").out == "It is not crawled again by itself any more.\n"
        assert ask("jobs", "pause", name).out == f"Job {name} is paused.\n"
        assert ask("jobs", "pause", name).out == f"Job {name} is already paused.\n"
        assert ask("jobs", "pause", name, "--json").json["changed"] is False
        assert ask("jobs", "resume", name).out == f"Job {name} is queued for workers.\n"
        assert ask("jobs", "cancel", name).out == f"Job {name} is cancelled.\n"
    assert [job["name"] for job in both.same("jobs", "list")][-2:] == ["far", "far many"]
    assert both.same("jobs", "show", "far", but=("now",))["state"] == "cancelled"
    for name in ("far many", "near many"):
        shown = both.same("jobs", "show", name, but=("now",))
        assert shown["waiting"] == shown["summary"]["waiting"] == 3
    assert "far many" in both.shown("jobs", "list")
    both.refused("jobs", "resume", "far")
    assert "follow cannot be edited" in both.refused("jobs", "set", "far", "follow=no")
    both.refused("jobs", "set", "far", "scope=planet")
    both.refused("jobs", "undo-scope", "nothing")
    both.refused("jobs", "set", "far", "max_pages=0")
    both.refused("jobs", "show", "nothing")
    both.refused("jobs", "create", "far", "https://a.example/")
    both.refused("jobs", "create", "far", "https://a.example/", "--dry-run")
    planned = both.same(
        "jobs", "create", "new", "https://a.example/", "bad://x", "--max-pages-per-domain", "9", "--dry-run"
    )
    assert (planned["pages"], planned["bad_seeds"][0]["line"]) == (9, 2)
    seeds.write_text("a.example\nnot a domain\n")
    planned = both.same("jobs", "create", "new", "--seeds", str(seeds), "--dry-run")
    assert (planned["seeds"], [bad["line"] for bad in planned["bad_seeds"]]) == (1, [2])
    assert both.same("jobs", "plan", "far many", "--again")["existing"]
    assert both.same("jobs", "retry", "far many", "--dry-run")["urls"] == 0
    assert "no such URL to retry" in both.shown("jobs", "retry", "far many", "--yes")
    both.refused("jobs", "retry", "far many", "--reason", "too_deep")
    assert "scheduled: 6h" in {one["text"] for one in both.same("jobs", "log", "far")}
    both.refused("jobs", "create", "empty")
    both.refused("jobs", "schedule", "far many", "now and then")
    both.refused("jobs", "delete", "default", "--yes")
    assert both.far("jobs", "delete", "far").code == 5  # nobody was there to say yes
    assert both.far("jobs", "delete", "far", "--yes").out == both.near("jobs", "delete", "near", "--yes").out.replace(
        "near", "far"
    )
    both.refused("jobs", "show", "far")


def test_versions_of_pages_and_the_comparison_of_crawls(both: Both, database: Database, store: Store) -> None:
    both.refused("jobs", "compare", "default")
    crawl = crawl_a_little(database, store)
    both.refused("pages", "diff", HOME)
    store.connection.execute(
        """INSERT INTO page_versions
               (domain_id, job_id, url_key, number, crawled_at, replaced_at, crawl_id, change, status, outcome, title, content_length,
                noindex)
           SELECT p.domain_id, p.job_id, p.url_key, 1, p.crawled_at - interval '1 day', p.crawled_at, %s, 'changed', 203, 'ok', 'Old', 7,
                  false
           FROM crawled_pages p JOIN url_frontier f USING (domain_id, job_id, url_key) WHERE f.url = %s""",
        (crawl.crawl_id, HOME),
    )
    compared = both.same("jobs", "compare", "default", "--kind", "changed")
    assert (compared["changed"], compared["new"], compared["at_least"]) == (1, 2, [])
    assert [(page["title_before"], page["status_before"], page["status"]) for page in compared["pages"]] == [
        ("Old", 203, 200)
    ]
    assert "203 → 200" in both.shown("jobs", "compare", "default", "--kind", "changed")
    assert "none: all is new" in both.shown("jobs", "compare", "default")
    assert len(both.same("jobs", "compare", "default", "--kind", "new", "--limit", "1")["pages"]) == 1
    assert [version["current"] for version in both.same("pages", "versions", HOME)] == [True, False]
    diff = both.same("pages", "diff", HOME, "--job", "default")
    assert diff["note"] == "The text of version 1 is nowhere: its job was crawled with `--no-archive`."
    assert {fact["name"] for fact in diff["facts"]} >= {"status", "title", "content_length"}
    assert "203 → 200" in both.shown("pages", "diff", HOME)
    both.refused("pages", "diff", HOME, "--older", "5")
    both.refused("pages", "diff", HOME, "--older", "2", "--newer", "1")
    both.refused("pages", "versions", "https://nobody.example/")
    both.refused("jobs", "compare", "nothing")


def test_tasks(both: Both, connection: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("".join(f"https://shop.example/{number}\n" for number in range(1, 4)) + "http://\n")
    added = both.far(
        "tasks", "add", "https://shop.example/0", "https://shop.example/1", "http://", "--every", "6h", "--json"
    )
    assert (added.code, added.json["created"], added.json["bad"]) == (1, 2, 1)
    assert added.err.startswith("argument 3: ")
    lines = both.far("tasks", "add", "--file", str(file), "--priority", "2", "--json")
    assert (lines.code, lines.json["created"], lines.json["known"]) == (1, 2, 1)
    assert [bad["line"] for bad in lines.json["bad_lines"]] == [4]
    child = both.far("tasks", "add", "https://shop.example/child", "--after", "1", "--once").out
    assert child == both.near("tasks", "add", "https://shop.example/child").out.replace(
        "was there already and is", "is"
    )
    failed = Tasks(connection).failed("https://shop.example/failed", max_retries=0)
    done = Tasks(connection).completed("https://shop.example/done")
    *_, one, other = (str(task["id"]) for task in both.same("tasks", "list")["tasks"])
    page = both.same("tasks", "list", "--limit", "2", "--before", str(done))
    assert page["tasks"][0]["id"] == failed
    assert page["before"] == page["tasks"][1]["id"]
    assert both.same("tasks", "list", "--status", "failed")["tasks"][0]["id"] == failed
    assert "https://shop.example/done" in both.shown("tasks", "list", "--domain", "shop.example")
    for task in (one, str(page["before"]), str(failed), str(done)):
        assert both.same("tasks", "show", task)["id"] == int(task)
        both.shown("tasks", "show", task)
        both.same("tasks", "history", task)
    for _ in range(2):
        Tasks(connection).recur(done)
        (done,) = Tasks(connection).spawn()
        Tasks(connection).bring(done, TaskStatus.COMPLETED)
    monkeypatch.setattr("holdfast.client.request_spec._FIRST_PAGE_SIZE", 1)
    monkeypatch.setattr("holdfast.client.request_spec._NEXT_PAGE_SIZE", 1)
    assert len(both.same("tasks", "history", str(done), "--limit", "1000")) == 3, "page by page"
    assert len(both.same("tasks", "history", str(done), "--limit", "2")) == 2
    assert sum(count["tasks"] for count in both.same("tasks", "stats")["statuses"].values()) == 9
    for deed in (("pause",), ("resume",), ("cancel",), ("restart",), ("restart", "--priority", "1")):
        near = both.near("tasks", deed[0], one, *deed[1:])
        far = both.far("tasks", deed[0], other, *deed[1:])
        assert (far.code, far.out) == (near.code, near.out.replace(f"Task {one} ", f"Task {other} "))
    assert both.far("tasks", "priority", one, "9", "--json").json["priority"] == 9
    assert both.far("tasks", "restart-failed", "--yes", "--json").json["restarted"] == 1
    assert both.far("tasks", "restart-parsing", str(done)).code == 0
    some = both.far("tasks", "pause", one, "999", "--json")
    assert (some.code, [one["id"] for one in some.json["refused"]]) == (1, [999])
    both.refused("tasks", "show", "999")
    both.refused("tasks", "restart-parsing", other)
    both.refused("tasks", "list", "--domain", "nowhere.example")
    both.refused("tasks", "add", "https://shop.example/new", "--batch", "none")
    assert both.far("tasks", "stats", "--last", "7d").refused(2).startswith("A server looks back for a day")


def test_batches(
    both: Both,
    connection: psycopg.Connection,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = both.far("batches", "create", "Black/Friday", "--json").json
    assert made == both.same("batches", "show", "Black/Friday")
    tasks = Tasks(connection)
    done = tasks.completed("a.example/3", batch_id=made["id"])
    tasks.add("a.example/1", "a.example/2", batch_id=made["id"])
    other = both.near("batches", "create", "other").out
    assert both.far("batches", "create", "another").out == other.replace("other", "another")
    monkeypatch.setattr("holdfast.tasks.queries.COUNTED", 1)
    page = both.same("batches", "list")
    assert [one["name"] for one in page["batches"]] == ["another", "other", "Black/Friday"]
    assert page["batches"][-1]["tasks"] == {"completed": 1, "pending": 2}, "all of them, though the list counts one"
    assert both.same("batches", "list", "--limit", "1", "--before", "3")["before"] == 2
    assert "2 pending, 1 completed" in both.shown("batches", "show", "Black/Friday")
    both.shown("batches", "list")
    operator = OperationRunner(database, factories.operation_handlers(settings(tmp_path), database).by_kind())
    monkeypatch.setattr("time.sleep", lambda _: operator.work())  # who waits for it does it
    restarted = both.far("batches", "restart", "Black/Friday", "--yes", "--json")
    assert restarted.json == {"batch": "Black/Friday", "restarted": 1}
    assert tasks.status(done) is TaskStatus.PENDING
    assert both.shown("batches", "restart", "Black/Friday", "--yes") == "Restarted 0 tasks of batch Black/Friday.\n"
    both.refused("batches", "show", "nothing")
    both.refused("batches", "create", "other")
    both.refused("batches", "create", " ")
    both.refused("batches", "restart", "nothing", "--yes")


def test_domains(both: Both, database: Database, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl_a_little(database, store)
    store.seed("b.example", "c.example")
    store.become("b.example", Status.BLOCKED)
    volatile = ("priority",)
    found = both.same("domain-status", but=volatile)
    assert found["domains"][0]["domain"] == "example.com"
    assert found["counts"]["blocked"] == 1
    assert [row["domain"] for row in both.same("domain-status", "--status", "blocked", but=volatile)["domains"]] == [
        "b.example"
    ]
    for name in ("example.com", "b.example", "https://c.example/page"):
        assert both.same("domain-info", name, but=volatile)["work"]
        both.shown("domain-info", name)
    settings = [
        "delay=2.5",
        "concurrency=3",
        "active=no",
        "frequency=7d",
        "window=22:00-06:00 Europe/Berlin",
        "budget=7",
    ]
    proxies = [
        "proxy=pool",
        "proxy_sticky=10m",
        "proxy_direct=yes",
        "proxy_country=DE",
        "parser=generic",
        "user_agent=X/1",
    ]
    far = both.far("domain-set", "c.example", *settings, *proxies)
    assert far.out == both.near("domain-set", "b.example", *settings, *proxies).out.replace("b.example", "c.example")
    changed = {name: store.row(name) for name in ("b.example", "c.example")}
    same = {"crawl_delay_seconds", "maintenance_window", "proxy_sticky", "default_crawl_frequency", "max_pages_per_run"}
    assert {column: changed["b.example"][column] for column in same} == {
        column: changed["c.example"][column] for column in same
    }
    given = ["header=X-Key: canary", "cookie=env:SHOP_COOKIE", "delay=3"]
    monkeypatch.setenv("SHOP_COOKIE", "a=canary")
    secrets = both.far("domain-set", "http://c.example", *given)
    near = both.near("domain-set", "http://b.example", *given)
    assert (near.code, "Other secrets are sealed by a key that is not in" in near.err) == (5, True)
    assert secrets.out.startswith(
        "c.example: set header=***, cookie=***, delay=3.\nSent to c.example by https and http"
    )
    assert both.far("domain-info", "c.example").out.count("Cookie, X-Key") == 1
    assert store.value("SELECT DISTINCT array_length(origins, 1) FROM domain_secrets") == 4
    both.far("domain-set", "c.example", "window=", "proxy=", "proxy_sticky=", "user_agent=")
    assert store.row("c.example")["maintenance_window"] is store.row("c.example")["proxy_sticky"] is None
    assert_alike(
        both.near("domain-set", "c.example", "delay=1", "--json").json,
        both.far("domain-set", "c.example", "delay=1", "--json").json,
        {"version", "updated_at", "priority"},
    )
    store.seed("d.example")
    store.become("d.example", Status.BLOCKED)
    (report,) = both.far("domain-unblock", "d.example", "--reason", "let in", "--json").json
    assert (report["domain"], report["was"], store.row("d.example")["status_reason"]) == (
        "d.example",
        "blocked",
        "unblocked: let in",
    )
    report = both.far("domain-reset", "b.example", "--reason", "it moved", "--json").json
    assert (report["domain"], report["was"]) == ("b.example", "blocked")
    assert store.row("b.example")["status_reason"] == "reset: it moved"
    for refused in (
        ["domain-info", "nowhere.example"],
        ["domain-set", "c.example", "delay=x"],
        ["domain-reset", "a b"],
        ["domains", "unblock", "c.example"],
    ):
        both.refused(*refused)


def test_stuck_claims_silent_runs_and_priorities(
    both: Both, database: Database, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.domains(3)
    first, second, _ = store.claim("w1", 3)
    store.expire(first.domain_id)
    runs.begin(store.connection, worker="w1")
    store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - interval '1 day'")
    dry = both.same("release-stuck-claims", "--dry-run")
    assert (dry["would_release"], dry["workers"][0]["expired"]) == (1, 1)
    both.shown("release-stuck-claims", "--force", "--all-active", "--dry-run")
    assert both.same("cleanup-stale-runs", "--dry-run")["would_mark"]
    both.refused("release-stuck-claims", "--force", "--worker-id", "nobody", "--yes")
    both.refused("release-stuck-claims", "--force", "--domain", "nowhere.example", "--yes")
    assert both.same("release-stuck-claims", "--force", "--domain", first.domain, "--dry-run")["would_release"] == 1
    both.refused("release-stuck-claims", "--force")
    assert both.far("release-stuck-claims").out == "Released 1 stuck claim.\n"
    assert both.far("release-stuck-claims", "--force", "--domain", second.domain, "--yes").out == "Released 1 claim.\n"
    both.refused("release-stuck-claims", "--force", "--domain", second.domain, "--yes")
    assert both.far("release-stuck-claims", "--force", "--all-active", "--yes").out == "Released 1 claim.\n"
    assert both.far("cleanup-stale-runs", "--yes").out.endswith("Marked 1 run as failed.\n")
    assert store.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL") == 0
    operator = OperationRunner(database, factories.operation_handlers(settings(tmp_path), database).by_kind())
    monkeypatch.setattr("time.sleep", lambda _: operator.work())
    assert both.same("recalculate-priorities") == {"domains": 3, "changed": 0}
    both.shown("recalculate-priorities")


def test_what_a_server_says_of_its_store(both: Both, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    store.seed("held.example", "blocked.example", "cooling.example")
    store.become("blocked.example", Status.BLOCKED)
    store.become("cooling.example", Status.BLOCKED)
    for name, until in (("blocked", "infinity"), ("cooling", "2099-01-01")):
        store.connection.execute(
            "UPDATE domains SET next_crawl_after = %s WHERE domain = %s", (until, f"{name}.example")
        )
    store.connection.execute(
        "UPDATE job_domains SET ready = false FROM domains d WHERE d.id = domain_id AND d.status = 'blocked'"
    )
    store.claim_one("w2")
    assert both.same("claims")["workers"][0]["worker"] == "w2"
    assert "w2" in both.shown("claims")
    for what in (HOME, f"{HOME}slow", f"{HOME}private/x", "example.com", "other.example"):
        both.same("explain", what, but=("now", "ahead"))
        both.shown("explain", what)
    both.refused("explain", "https://nowhere.example/")
    both.refused("explain", "a b")
    near, far = both.near("status", "--json").json, both.far("status", "--json").json
    assert [job["name"] for job in far["jobs"]] == [job["name"] for job in near["jobs"]]
    assert far["domains"] == near["domains"]
    for name in ("runs", "workers", "due", "stay_blocked", "wakes"):
        assert far[name] == near[name], name
    assert far["database_bytes"] > 0
    assert {"claim expires", "cool-down ends"} <= {due["what"] for due in far["due"]}
    assert (far["stay_blocked"], far["wakes"] > 0) == (1, True)
    words = [[line.split("  ")[0] for line in answer("status").out.splitlines()] for answer in (both.near, both.far)]
    assert words[0] == words[1]
    assert {"Database", "Next", "Stay blocked"} <= set(words[1])


def test_stats_and_alerts(both: Both, database: Database, store: Store, connection: psycopg.Connection) -> None:
    crawl_a_little(database, store)
    with connection.transaction():
        settle(connection, [alerts.Finding("backlog", "", 1.5)], kinds=["backlog"], webhook_url=None)
    moving = ("at", "seconds", "pages_per_second", "requests_per_second", "errors_per_second", "bytes_per_second")
    found = both.same("stats", "--since", "2h", "--step", "hour", but=moving)
    assert sum(point["pages"] for point in found["points"]) == found["now"]["pages_total"] == 3
    assert found["points"][-1]["latency_p50_ms"] is not None
    assert both.far("stats").out.splitlines()[0].split()[0] == "FROM"
    both.refused("stats", "--since", "3d")
    both.refused("stats", "--step", "1s")
    (alert,) = both.same("alerts")["alerts"]
    assert (alert["kind"], alert["value"]) == ("backlog", 1.5)
    assert both.same("alerts", "--all", "--before", "1")["alerts"] == []
    assert "backlog" in both.shown("alerts")
    known = both.far("alerts", "acknowledge", str(alert["id"]), "--json").json
    assert (known["state"], known["acknowledged_by"] is not None) == ("firing", True)
    assert both.same("alerts")["alerts"] == [known]
    assert "acknowledged" in both.shown("alerts")
    both.refused("alerts", "acknowledge", "999")
    assert both.same("storage", but=("at", "database_bytes", "notes", "volumes"))["tables"]


def test_audit(both: Both, connection: psycopg.Connection) -> None:
    with connection.transaction():
        for number in range(1, 4):
            audit.write(connection, actor="cli:ann", action="pause", kind="task", object_id=number, details={"was": 1})
    entries = both.same("audit", "--kind", "task")["entries"]
    assert [entry["object_id"] for entry in entries] == ["3", "2", "1"]
    page = both.same("audit", "--actor", "cli:ann", "--limit", "1", "--before", str(entries[0]["id"]))
    assert ([entry["object_id"] for entry in page["entries"]], page["before"]) == (["2"], entries[1]["id"])
    assert "cli:ann" in both.shown("audit", "--kind", "task", "--id", "2")
    both.refused("audit", "--id", "2")


def test_webhooks(both: Both, connection: psycopg.Connection) -> None:
    at = Tasks(connection)
    for number in range(3):
        at.failed(f"a.example/{number}", webhook_url=f"https://r.example/{number}")
    connection.execute(
        "UPDATE webhook_deliveries SET next_attempt_at = NULL, gave_up_at = now(), last_error = 'gone' WHERE id > 1"
    )
    assert [one["id"] for one in both.same("webhooks", "list")] == [3, 2, 1]
    assert [one["id"] for one in both.same("webhooks", "list", "--state", "given_up", "--before", "3")] == [2]
    assert both.same("webhooks", "list", "--task", "1", "--limit", "1")[0]["task_id"] == 1
    assert "2 given up" in both.shown("webhooks", "list")
    both.same("webhooks", "show", "2")
    both.shown("webhooks", "show", "2")
    assert both.far("webhooks", "retry", "2").out == "Message 2 will be sent again.\n"
    assert both.near("webhooks", "show", "2", "--json").json["state"] == "waiting"
    again = both.far("webhooks", "retry", "--url", "https://r.example/2", "--json")
    assert again.json == {"url": "https://r.example/2", "messages": 1}
    assert both.same("webhooks", "list", "--state", "given_up") == []
    both.refused("webhooks", "show", "9")
    both.refused("webhooks", "retry", "9")


def test_users_and_keys(both: Both, database: Database) -> None:
    ann = both.far("users", "add", "ann", "--role", "admin", "--json")
    assert (ann.code, ann.json["user"]["role"], len(ann.json["password"]) > 10) == (0, "admin", True)
    assert (
        both.far("users", "add", "bob", "--password-stdin", stdin=f"{PASSWORD}\n".encode()).out
        == "bob is added, as a user.\n"
    )
    names = [user["name"] for user in both.same("users", "list")]
    assert {"ann", "bob"} <= set(names)
    assert both.same("users", "list", "--limit", "1", "--after", "1")[0]["name"] == names[1]
    accounts = AccountService(database, Web())
    accounts.login("bob", PASSWORD, address="192.0.2.1", user_agent="x")
    (session,) = both.same("users", "sessions", "bob")
    assert (session["address"], session["revoked_at"]) == ("192.0.2.1", None)
    assert both.far("users", "sessions", "bob", "--revoke").out == "All sessions of bob ended.\n"
    assert both.same("users", "sessions", "bob") == []
    changed = both.far("users", "passwd", "bob", "--json").json
    assert (changed["sessions"], accounts.check_password("bob", changed["password"], address="x").name) == (None, "bob")
    assert both.far("users", "role", "bob", "admin").out == "bob is an admin.\n"
    assert both.far("users", "disable", "bob").out == "bob is disabled.\n"
    assert both.far("users", "disable", "bob").out == "bob was disabled already.\n"
    assert both.far("users", "enable", "bob", "--json").json["changed"] is True
    key, token = accounts.create_key("bob", "nightly", [Scope.READ], None, actor="test")
    assert [one["name"] for one in both.same("keys", "list", "--user", "bob")] == ["nightly"]
    assert both.same("keys", "list", "--limit", "500", but=("last_used_at",))[-1]["id"] == key.id
    assert both.far("keys", "revoke", str(key.id)).out == f"Key {key.id} is revoked.\n"
    assert both.far("keys", "revoke", str(key.id)).out == f"Key {key.id} was revoked already.\n"
    assert accounts.key(token) is None
    assert both.far("users", "remove", "bob", "--yes").out == "bob is deleted.\n"
    for words in (["users", "role", "bob", "user"], ["users", "sessions", "bob"], ["keys", "revoke", "999"]):
        both.refused(*words)


def test_products(both: Both, connection: psycopg.Connection) -> None:
    shop = Shop(connection)
    shop.see(1, product("Lamp", "10"), product("Table", "99.90", brand="Oak"))
    shop.see(2, product("Lamp", "12.50"))
    assert [one["name"] for one in both.same("products", "list")["products"]] == ["Table", "Lamp"]
    assert len(both.same("products", "list", "--limit", "1")["products"]) == 1
    assert both.same("products", "list", "--limit", "1", "--before", "2")["products"][0]["name"] == "Lamp"
    assert both.same("products", "list", "--brand", "oak", "--max-price", "100", "--currency", "eur")["products"]
    assert both.same("products", "show", "1")["price"] == "12.50"
    history = both.same("products", "history", "1")
    assert len(history) == 2
    assert both.same("products", "history", "1", "--before", history[0]["since"]) == history[1:]
    both.shown("products", "list")
    both.refused("products", "show", "999")


def test_proxies(both: Both, store: Store) -> None:
    volatile = ("updated_at", "version", "created_at")
    for ask, port in ((both.near, 1), (both.far, 2)):
        options = ("--country", "de", "--city", "Bonn", "--provider", "acme", "--cost", "12.50", "--limit", "none")
        made = ask("proxies", "add", f"socks5://proxy.example:{port}", *options, "--json").json
        assert made == {"id": port, "server": f"socks5://proxy.example:{port}", "created": True}
    sealed = both.far("proxies", "add", "http://bob@proxy.example:3", "--password-stdin", stdin=b"canary\n")
    assert (sealed.code, sealed.out) == (0, "Proxy 3 is http://proxy.example:3.\n")
    both.refused("proxies", "add", "http://10.0.0.1:3")
    assert [one["id"] for one in both.same("proxies", "list")] == [1, 2, 3]
    assert [one["id"] for one in both.same("proxies", "list", "--after", "1", "--limit", "1")] == [2]
    assert [one["id"] for one in both.same("proxies", "list", "--country", "de", "--provider", "acme")] == [1, 2]
    assert "More rows: --after 2." in both.far("proxies", "list", "--limit", "2").err
    both.shown("proxies", "list", "--active")
    both.shown("proxies", "list", "--provider", "nobody")
    assert both.same("proxies", "show", "http://bob@proxy.example:3")["has_password"] is True
    both.shown("proxies", "show", "3")
    both.refused("proxies", "show", "815")
    both.refused("proxies", "show", "http://nowhere.example:1")
    both.far("proxies", "add", "http://eve@proxy.example:3")
    assert "several users: name it by its id, 3 or 4." in both.refused("proxies", "show", "http://proxy.example:3")
    changes = ("--city", "", "--cost", "3", "--limit", "7", "--version", "1", "--json")
    near, far = both.near("proxies", "edit", "1", *changes), both.far("proxies", "edit", "2", *changes)
    assert_alike(near.json, far.json, {*volatile, "id", "port"})
    assert (far.json["city"], far.json["monthly_cost"], far.json["version"]) == (None, "3.00", 2)
    both.refused("proxies", "edit", "2", "--city", "Rome", "--version", "1")
    assert both.far("proxies", "edit", "3", "--no-password").out == "Proxy 3 is changed (version 2).\n"
    assert both.same("proxies", "show", "3")["has_password"] is False
    for words in (("disable",), ("disable",), ("enable",), ("enable",)):
        near, far = both.near("proxies", *words, "1"), both.far("proxies", *words, "2")
        assert (far.code, far.out) == (near.code, near.out.replace("Proxy 1 ", "Proxy 2 "))
    some = both.far("proxies", "disable", "815", "socks5://proxy.example:2", "--json")
    assert (some.code, some.json["proxies"], [one["proxy"] for one in some.json["refused"]]) == (
        1,
        [{"id": 2, "result": "is off"}],
        ["815"],
    )
    assert "; it was known already" in both.shown("proxies", "add", "socks5://proxy.example:1")
    assert both.far("proxies", "remove", "4", "--yes").out == "Proxy 4 is forgotten.\n"
    both.refused("proxies", "remove", "4", "--yes")
    assert "canary" not in both.far("proxies", "list", "--json").out
    done = store.value(
        "SELECT array_agg(action ORDER BY id) FROM audit_log WHERE actor LIKE 'admin-1 (key %%' AND object_kind = 'proxy'"
    )
    assert done == ["add", "add", "add", "edit", "edit", "disable", "enable", "disable", "remove"]


def test_pools(both: Both, store: Store) -> None:
    store.seed("near.example", "far.example")
    pools = Pools(store)
    ids = pools.add(3, provider="acme", country_code="DE", monthly_cost="10.00")
    (other,) = pools.add()

    for words in (("--provider", "acme", "--country", "de"), (str(other), "--priority", "9")):
        near = both.near("proxies", "assign", "near.example", *words)
        far = both.far("proxies", "assign", "far.example", *words)
        assert (far.code, far.out, far.err) == (0, near.out.replace("near.example", "far.example"), near.err)
    done = both.far("proxies", "assign", "far.example", str(other), "--priority", "2", "--json").json
    assert done == {
        "domain": "far.example",
        "added": [],
        "changed": [other],
        "unchanged": [],
        "use": "pool",
        "now_uses_pool": False,
    }
    both.refused("proxies", "assign", "far.example", "815")
    both.refused("proxies", "assign", "nowhere.example", str(other))
    pools.used("far.example", ids[0], requests=10, success_count=8, total_failures=2, avg_response_time_ms=90.0)
    pools.is_refused(ids[1], 6)
    pools.used_up(ids[2])
    assert [one["domain"] for one in both.same("proxies", "health")] == ["far.example", "near.example"]
    assert [one["domain"] for one in both.same("proxies", "health", "--after", "far.example")] == ["near.example"]
    both.shown("proxies", "health", "--limit", "1")
    pool = both.same("proxies", "health", "far.example")
    assert [one["proxy_id"] for one in pool] == [other, ids[1], ids[2], ids[0]]
    assert "it rests since the site refused it" in both.shown("proxies", "health", "far.example")
    both.refused("proxies", "health", "nowhere.example")
    for command in (["cost"], ["cost", "--each"], ["cost", "--each", "--after", "1", "--limit", "2"]):
        assert both.same("proxies", *command)
        both.shown("proxies", *command)
    assert both.same("proxies", "advise", "100", "--domain", "https://far.example/")["active"] == 3
    both.shown("proxies", "advise", "100", "--domain", "far.example")
    both.shown("proxies", "advise", "100")
    both.refused("proxies", "advise", "100", "--domain", "nowhere.example")
    for on in ("disable", "enable"):
        said = both.far("proxies", on, str(other), "--domain", "far.example").out
        assert said == both.near("proxies", on, str(other), "--domain", "near.example").out.replace("near", "far")
    both.refused("proxies", "enable", "815", "--domain", "far.example")
    taken = both.far("proxies", "unassign", "far.example", str(ids[1]), "815", "--json").json
    assert taken == {"domain": "far.example", "removed": [ids[1]], "unknown": [815], "left": 3}
    near, far = (
        ask("proxies", "unassign", f"{name}.example", "--all") for ask, name in ((both.near, "near"), (both.far, "far"))
    )
    assert near.out == "near.example: 4 taken out of its pool, 0 left.\n"
    assert (far.out, far.err) == (
        "far.example: 3 taken out of its pool, 0 left.\n",
        near.err.replace("near.example", "far.example"),
    )
    both.refused("proxies", "unassign", "nowhere.example", "--all")


def test_many_proxies_are_assigned_by_several_requests(
    both: Both, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.remote.proxies._MAX_ASSIGNED", 2)
    store.seed("far.example")
    ids = Pools(store).add(5, provider="acme")
    done = both.far("proxies", "assign", "far.example", "--provider", "acme", "--json").json
    assert (done["added"], done["now_uses_pool"]) == (ids, True)


def test_proxies_are_tested_by_the_server(
    cli: Cli, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = settings(tmp_path).model_copy(update={"fetch": Fetch(allow_private=True)})
    with (
        serving(database, allowed) as api,
        Pages({"/x": Page(b"hi", 404)}) as site,
        ProxyProcess(tmp_path, name="p", user="bob", password="canary") as proxy,
    ):
        both = Both(cli, api, api.key(Role.ADMIN), monkeypatch)
        address = proxy.url.replace(":canary@", "@")
        added = both.far("proxies", "add", address, "--allow-private", "--password-stdin", stdin=b"canary\n")
        assert added.code == 0, added.err
        both.far("proxies", "add", "http://127.0.0.1:1", "--allow-private")
        url = site.url("/x", host="127.0.0.1")
        works = both.far("proxies", "test", "1", "--url", url, "--json")
        assert (works.code, works.json[0]["works"], works.json[0]["status"]) == (0, True, 404)
        every = both.far("proxies", "test", "--all", "--url", url)
        assert (every.code, "(the proxy's fault)" in every.out) == (1, True)
        assert [hit["target"] for hit in proxy.log()] == [url, url]
        both.refused("proxies", "test", "815", "--url", url)


def test_exports(both: Both, database: Database, store: Store, tmp_path: Path) -> None:
    crawl_a_little(database, store)
    for kind in ("pages", "urls", "log"):
        for suffix in ("jsonl", "csv", "parquet"):
            near = both.near("export", kind, f"near.{suffix}", "--json")
            far = both.far("export", kind, f"far.{suffix}", "--json")
            assert far.json == near.json | {"file": f"far.{suffix}"}
            assert Path(f"far.{suffix}").read_bytes() == Path(f"near.{suffix}").read_bytes()
        assert both.shown("export", kind, "-", "--domain", "example.com")
    near, far = (ask("export", "pages", "-", "--text", "--job", "default") for ask in (both.near, both.far))
    assert "Welcome home." in far.out
    assert (far.code, far.out) == (near.code, near.out)
    assert far.err.startswith("1 text is not on the server's machine")
    both.refused("export", "pages", "x.csv", "--job", "nothing")
    both.refused("export", "pages", "x.txt")
    assert not Path("x.csv").exists()
    assert not list(tmp_path.glob(".*part"))


def test_verify(both: Both, database: Database, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl_a_little(database, store)
    operator = OperationRunner(database, factories.operation_handlers(settings(tmp_path), database).by_kind())
    monkeypatch.setattr("time.sleep", lambda _: operator.work())  # who waits for it does it
    volatile = ("seconds",)
    assert both.same("verify", "--no-archive", but=volatile)["ok"] is True
    both.shown("verify", "--no-archive")
    store.connection.execute("UPDATE job_domains SET waiting = waiting + 1")
    near, far = both.near("verify", "--json"), both.far("verify", "--json")
    assert near.code == far.code == 1
    assert_alike(near.json, far.json, {"seconds"})
    for answer in (both.near("verify"), both.far("verify")):
        assert answer.code == 1
        assert "\n  example.com " in answer.out, "domains have names"


def test_verify_says_what_could_not_be_read_on_the_server(
    both: Both, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        """A verifier that finds pages whose archive is on another machine."""

        def run(self) -> Iterator[Step]:
            yield Step(1, 1, "I9 bytes", finding=Finding("I9 bytes", 0, [], 1.25, skipped=2))

        def names_of(self, _: list[Finding]) -> dict[int, str]:
            return {}

    monkeypatch.setattr("holdfast.operations.handlers.replace", lambda *_, **__: Elsewhere())
    operator = OperationRunner(database, factories.operation_handlers(settings(tmp_path), database).by_kind())
    monkeypatch.setattr("time.sleep", lambda _: operator.work())
    (check,) = both.far("verify", "--json").json["checks"]
    assert (check["seconds"], check["skipped"]) == (1.25, 2)
    assert "2 pages were not read: their archives are on other machines." in both.far("verify").err


def test_all_other_commands_refuse_before_anything_is_started(both: Both, tmp_path: Path) -> None:
    """Without a database: what would open or start one could not."""
    others = {command for part in app.COMMAND_MODULES for command in part.commands} - app.REMOTE_COMMANDS
    assert others == LOCAL_COMMANDS.keys()
    for command in sorted(others):
        sentence = both.far(command).refused(2)
        assert sentence == f"`holdfast {command}` cannot be used with --server: {LOCAL_COMMANDS[command]}"
    for words, place in {
        ("jobs", "watch", "default"): "`holdfast jobs show` those of now.",
        ("proxies", "import", "-"): "Run it where the store is; `holdfast proxies add` adds one over the server.",
        ("proxies", "alerts"): "`holdfast proxies health` shows how pools are.",
        ("proxies", "rotate"): "Run it where the store is.",
        ("keys", "add", "ann", "x", "--scope", "read"): "or run it where the store is.",
        ("webhooks", "secret"): "the secret never leaves the machine of the server. Run it there.",
        ("export", "images", "files"): "Run it there, or take the files from the API.",
        ("backup", "verify", "latest"): "Run it on the machine of the database, or let backup.daily do it.",
        ("segments", "upload"): "Run it on the machine that has them.",
        ("rebuild", "search"): "Run it on the machine whose index it is.",
        ("domains", "top"): "Run it where the store is, without the server.",
    }.items():
        sentence = both.far(*words, stdin=b"http://a.example:1\n").refused(2)
        assert " cannot be used with --server: " in sentence
        assert sentence.endswith(place)
    assert both.far("verify", "--uploaded").refused(2).startswith("--uploaded cannot be used with --server: it reads ")
    assert not list(tmp_path.glob(".holdfast*"))
    assert both.far("config", "show", "--json").code == 0


def test_the_server_may_come_from_the_settings(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_ours(monkeypatch, tmp_path, None)
    (tmp_path / "holdfast.toml").write_text(f'server = "{both.api.url}"\n')
    monkeypatch.setenv("HOLDFAST_API_KEY", both.key)
    assert [job["name"] for job in both.near("jobs", "list", "--json").json] == ["default", "tasks"]
    sentence = both.near("top-domains").refused(2)
    assert sentence.startswith(
        "`holdfast top-domains` cannot be used with a server (server (in holdfast.toml)): the API "
    )
    assert not (tmp_path / ".holdfast").exists()
    assert both.key not in both.near("config", "show").out
    assert (
        both.near("jobs", "list", "--server", "nowhere")
        .refused(2)
        .startswith("server (given as an option) must be a URL")
    )


def test_who_may_not_and_whom_nobody_knows(both: Both) -> None:
    sentence = both.far("jobs", "list", key="hfk_wrong").refused(6)
    assert sentence.startswith("The server does not accept this API key: it is wrong, expired or revoked.")
    assert both.far("jobs", "list", key="").refused(6).startswith("No API key was given (HOLDFAST_API_KEY has none).")
    reader = both.api.key(Role.USER, Scope.READ)
    assert both.far("jobs", "list", key=reader).code == 0
    assert both.far("jobs", "pause", "default", key=reader).refused(6).startswith("This needs the role admin")


def test_a_server_that_is_not_there(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    for command in (["status"], ["jobs", "pause", "x"], ["export", "pages", "x.csv"], ["explain", "a.example"]):
        sentence = both.near(*command, "--server", f"http://127.0.0.1:{port}").refused(1)
        assert sentence.startswith(f"No Holdfast server answers at http://127.0.0.1:{port} ")
    assert both.near("jobs", "list", "--server").refused(2) == "--server needs a value."
