"""Domains as people handle them: made known, configured with a version, removed bit by bit while others go on."""

from datetime import datetime, timedelta

import psycopg
import pytest

from holdfast.db import audit, domain_removal, domains, jobs, seed_insert, sweeper
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.domains import queries
from holdfast.domains.records import DomainAction, DomainFilter
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.errors import BadUrl, Changed, NotFound, Refused
from holdfast.model.domain import Status
from holdfast.model.outcome import Outcome
from holdfast.model.url import url_key
from holdfast.tasks import queries as task_queries
from tests.support.crawled import HOME, Crawl, crawl_a_little
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.pools import Pools
from tests.support.tasks import S, Tasks

WHO = "ann"
SILENCE = timedelta(minutes=30)


@pytest.fixture
def service(database: Database) -> DomainService:
    return DomainService(database, defaults=NewDomains(crawl_delay=4.0))


def actions(connection: psycopg.Connection) -> list[tuple[str, str]]:
    return [(entry.action, entry.object_id) for entry in audit.listing(connection, kind="domain")]


def sweep_later(store: Store) -> None:
    """What a sweep does when the grave of a domain is old enough."""
    store.connection.execute("UPDATE domains SET removed_at = removed_at - interval '1 day'")
    assert sweeper.sweep(store.connection, run_silence=SILENCE).faults == []


# Making known, configuring --------------------------------------------------------------------------------------------


def test_a_domain_is_made_known_once_with_nothing_to_do(service: DomainService, store: Store) -> None:
    known = service.add("https://WWW.a.example/some/page", parse_assignments(["concurrency=2"]), actor=WHO)
    assert (known.domain, known.created) == ("a.example", True)
    row = store.row("a.example")
    assert (row["crawl_delay_seconds"], row["max_concurrent_requests"], row["source"]) == (4.0, 2, "person")
    again = service.add("a.example", parse_assignments(["concurrency=9"]), actor=WHO)
    assert (again.domain, again.created) == ("a.example", False)
    assert store.row("a.example")["max_concurrent_requests"] == 2, "it stays as it is"
    assert actions(store.connection) == [("add", "a.example")]
    with pytest.raises(BadUrl):
        service.add("no domain", actor=WHO)
    store.seed("a.example")
    sweeper.sweep(store.connection, run_silence=SILENCE)
    assert store.claim_one().domain == "a.example"
    assert_invariants(store.connection)


def test_who_looked_at_an_older_version_does_not_overwrite(service: DomainService, store: Store) -> None:
    service.add("a.example", actor=WHO)
    version = service.info("a.example").version
    after = service.configure("a.example", parse_assignments(["delay=2"]), version, actor=WHO)
    assert after.version == version + 1
    with pytest.raises(Changed, match=rf"a\.example was changed meanwhile \(version {version + 1}, not {version}\)"):
        service.configure("a.example", parse_assignments(["delay=9"]), version, actor=WHO)
    assert store.row("a.example")["crawl_delay_seconds"] == 2
    entry = audit.listing(store.connection, kind="domain")[0]
    assert (entry.action, entry.actor, entry.details) == ("edit", WHO, {"crawl_delay_seconds": 2.0})


def test_what_is_not_text_in_a_change_is_in_the_audit_log_as_text(service: DomainService, store: Store) -> None:
    service.add("a.example", parse_assignments(["frequency=2d", "proxy_sticky=10m"]), actor=WHO)
    details = audit.listing(store.connection, kind="domain")[0].details
    assert details == {"default_crawl_frequency": "2 days, 0:00:00", "proxy_sticky": "0:10:00"}


def test_a_reset_is_in_the_audit_log(service: DomainService, store: Store) -> None:
    store.domains(1)
    claim = store.claim_one("w1")
    report = service.reset(claim.domain, "it was moved", actor=WHO)
    assert report.was_held_by == "w1"
    entry = audit.listing(store.connection, kind="domain")[0]
    assert (entry.action, entry.object_id) == ("reset", claim.domain)
    assert entry.details == {"why": "it was moved", "was": "pending", "was_held_by": "w1"}


def test_robots_txt_is_shown_origin_by_origin(service: DomainService, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    store.connection.execute(
        "INSERT INTO domain_robots (domain_id, robots_txt_url, reachable, problem, robots_txt_last_fetched, expires_at)"
        " SELECT id, 'http://example.com/robots.txt', false, 'timeout', now(), now() - interval '1 s' FROM domains"
        " WHERE domain = 'example.com'"
    )
    plain, secure = service.robots(HOME)
    assert (plain.origin, plain.fresh, plain.reachable, plain.problem) == (
        "http://example.com",
        False,
        False,
        "timeout",
    )
    assert (secure.origin, secure.status, secure.fresh) == ("https://example.com", 200, True)
    assert secure.content is not None
    assert "Disallow: /private" in secure.content
    assert secure.fetched_at is not None
    assert (secure.agent, secure.group) == ("Holdfast", "*")
    lines = secure.content.splitlines()
    assert [lines[number - 1].partition(":")[0] for number in secure.applied_lines][:2] == ["User-agent", "Disallow"]
    assert (plain.agent, plain.group, plain.applied_lines) == ("Holdfast", None, [])
    service.configure("example.com", parse_assignments(["user_agent=Lamp/2"]), actor=WHO)
    assert service.robots(HOME)[1].agent == "Lamp"
    assert service.robots("other.example") == []
    with pytest.raises(NotFound):
        service.robots("nobody.example")


# Many at once ---------------------------------------------------------------------------------------------------------


def stopped(store: Store) -> None:
    """Three domains of one parent, two of them stopped, and one of another."""
    store.seed("a.shop.example", "b.shop.example", "c.shop.example", "other.example")
    store.become("a.shop.example", Status.BLOCKED)
    store.become("b.shop.example", Status.UNREACHABLE)


def test_all_that_match_are_unblocked_and_no_others(service: DomainService, store: Store) -> None:
    stopped(store)
    store.become("other.example", Status.BLOCKED)
    where = DomainFilter(parent="shop.example")
    found = service.count_matching(DomainAction.UNBLOCK, where)
    assert (found.domains, found.held, found.exact) == (2, 0, True)
    seen: list[int] = []
    done = service.change_matching(DomainAction.UNBLOCK, where, "moved", actor=WHO, watch=seen.append)
    assert (done.changed, done.skipped, seen) == (2, 0, [1, 2])
    assert [store.status(f"{name}.shop.example") for name in "abc"] == [Status.PENDING] * 3
    assert store.status("other.example") == Status.BLOCKED
    assert sorted(actions(store.connection)) == [("unblock", "a.shop.example"), ("unblock", "b.shop.example")]
    assert service.count_matching(DomainAction.UNBLOCK, where).domains == 0
    assert_invariants(store.connection)


def test_all_that_match_are_switched_off_and_on(service: DomainService, store: Store) -> None:
    stopped(store)
    where = DomainFilter(name="b.")
    assert service.change_matching(DomainAction.SWITCH_OFF, where, "", actor=WHO).changed == 1
    assert not store.row("b.shop.example")["is_active"]
    assert store.row("a.shop.example")["is_active"]
    assert service.count_matching(DomainAction.SWITCH_OFF, DomainFilter()).domains == 3
    assert service.change_matching(DomainAction.SWITCH_ON, DomainFilter(), "", actor=WHO).changed == 1
    assert store.row("b.shop.example")["is_active"]
    assert_invariants(store.connection)


def test_a_reset_of_many_takes_held_ones_away_and_is_not_repeated(service: DomainService, store: Store) -> None:
    store.domains(3)
    held = store.claim_one("w1")
    found = service.count_matching(DomainAction.RESET, DomainFilter())
    assert (found.domains, found.held) == (3, 1)
    asked = store.value("SELECT clock_timestamp()")
    assert isinstance(asked, datetime)
    store.seed("later.example")
    first = service.change_matching(DomainAction.RESET, DomainFilter(), "again", actor=WHO, known_at=asked)
    assert (first.changed, store.row(held.domain)["claimed_by"]) == (3, None)
    again = service.change_matching(DomainAction.RESET, DomainFilter(), "again", actor=WHO, known_at=asked, again=True)
    assert again.changed == 0, "these were reset before it was interrupted, and the new one was not meant"
    assert [action for action, _ in actions(store.connection)] == ["reset"] * 3
    assert_invariants(store.connection)


def test_a_count_of_very_many_domains_ends(
    service: DomainService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.domains(5)
    monkeypatch.setattr(queries, "COUNT_LIMIT", 3)
    found = service.count_matching(DomainAction.RESET, DomainFilter())
    assert (found.domains, found.exact) == (3, False)


def test_settings_edited_by_another_person_are_not_overwritten(service: DomainService, store: Store) -> None:
    store.seed("a.example")
    version = service.info("a.example").facts.settings_version
    store.become("a.example", Status.BLOCKED)
    service.configure("a.example", parse_assignments(["delay=2"]), actor=WHO, settings_version=version)
    with pytest.raises(Changed, match=r"The settings of a\.example were changed meanwhile"):
        service.configure("a.example", parse_assignments(["delay=9"]), actor=WHO, settings_version=version)
    assert store.row("a.example")["crawl_delay_seconds"] == 2


def test_what_a_removal_would_delete_is_counted(service: DomainService, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    found = service.preview_removal(HOME)
    assert (found.domain, found.jobs, found.problem) == ("example.com", 1, None)
    assert found.urls == store.value(
        "SELECT count(*) FROM url_frontier f JOIN domains d ON d.id = f.domain_id WHERE d.domain = 'example.com'"
    )
    assert found.pages >= 1
    store.seed("held.example")
    store.claim("w1", 5)
    problem = service.preview_removal("held.example").problem
    assert problem is not None
    assert "held.example is held by worker w1" in problem


# Removing -------------------------------------------------------------------------------------------------------------


def test_a_domain_goes_with_all_that_hangs_on_it_and_the_log_stays(
    service: DomainService, database: Database, store: Store
) -> None:
    crawl_a_little(database, store)
    pools = Pools(store)
    pools.assign("example.com", *pools.add(2))
    old = Tasks(store.connection).one(f"{HOME}task")
    Tasks(store.connection).bring(old, S.COMPLETED)
    store.connection.execute(
        "INSERT INTO products (domain_id, first_seen_at, last_seen_at, last_task_id, page_key, identity_key, name, page_url, identity)"
        " SELECT id, now(), now(), 1, '1234567890123456', '1234567890123456', 'lamp', 'x', 'x' FROM domains WHERE domain = 'example.com'"
    )
    logged, held = (store.value(f"SELECT count(*) FROM {table}") for table in ("crawl_log", "claim_log"))
    domain_id = store.row("example.com")["id"]
    gone: list[int] = []
    removed = service.remove("https://example.com/x", actor=WHO)
    service.forget(removed.id, gone.append)
    assert (removed.id, removed.domain) == (domain_id, "example.com")
    assert gone == sorted(gone)
    for table in (
        "url_frontier",
        "crawled_pages",
        "page_texts",
        "job_domains",
        "domain_proxies",
        "domain_robots",
        "crawl_tasks",
        "products",
        "domain_transitions",
        "domain_wakes",
    ):
        left = f"SELECT count(*) FROM {table}"
        where = " WHERE domain_id = %s"
        assert store.connection.execute((left + where).encode(), (domain_id,)).fetchone() == (0,), table
    assert store.value("SELECT count(*) FROM crawl_log") == logged, "what was asked of its server stays known"
    assert store.value("SELECT count(*) FROM claim_log") == held
    assert_invariants(store.connection)
    with pytest.raises(NotFound):
        service.info("example.com")
    names = [row.domain for row in service.page().rows]
    assert names == ["other.example"]
    assert sum(service.counts().values()) == 1
    assert ("remove", "example.com") in actions(store.connection)
    sweep_later(store)
    assert store.value("SELECT count(*) FROM domains") == 1
    assert_invariants(store.connection)


def test_its_name_is_free_at_once(service: DomainService, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    before = store.row("example.com")["id"]
    service.remove("example.com", actor=WHO)
    store.seed(HOME)
    row = store.row("example.com")
    assert row["id"] != before
    assert (row["status"], row["pages_crawled"], row["pages_discovered"]) == ("pending", 0, 1)
    assert_invariants(store.connection)
    sweep_later(store)
    assert store.value("SELECT count(*) FROM domains WHERE id = %s", before) == 0
    assert [
        url for (url,) in store.connection.execute("SELECT url FROM url_frontier WHERE url LIKE %s", ("%example.com%",))
    ] == [HOME]
    assert_invariants(store.connection)


def test_the_sweep_does_what_a_killed_command_left(
    service: DomainService, database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl_a_little(database, store)
    monkeypatch.setattr(domain_removal, "ROWS", 2)
    monkeypatch.setattr(domain_removal, "FEW", 1)
    removed = service.remove("example.com", actor=WHO)
    assert domain_removal.delete_chunk(store.connection, removed.id) == 2
    assert_invariants(store.connection)
    assert domain_removal.tombstones(store.connection) == [], "its grave is fresh"
    while store.value("SELECT count(*) FROM domains WHERE removed_at IS NOT NULL"):
        sweep_later(store)
        assert_invariants(store.connection)
    assert store.value("SELECT count(*) FROM crawled_pages") == 0


def test_the_row_stays_for_those_who_looked_its_name_up_before(service: DomainService, store: Store) -> None:
    store.domains(1)
    domain_id = store.row("d0.example")["id"]
    service.forget(service.remove("d0.example", actor=WHO).id)
    assert store.value("SELECT count(*) FROM domains WHERE id = %s", domain_id) == 1
    with store.connection.transaction():
        store.insert_foreign(domain_id, "https://d0.example/late")
    assert_invariants(store.connection)
    service.forget(domain_id)
    assert store.value("SELECT count(*) FROM url_frontier") == 0
    assert_invariants(store.connection)


def test_who_is_at_work_on_it_is_not_robbed(service: DomainService, store: Store) -> None:
    store.domains(1)
    claim = store.claim_one("w1")
    with pytest.raises(Refused, match=r"d0\.example is held by worker w1\. Switch it off .* active=no"):
        service.remove("d0.example", actor=WHO)
    store.expire(claim.domain_id)
    with pytest.raises(Refused, match="release-stuck-claims"):
        service.remove("d0.example", actor=WHO)
    # What it says is what helps.
    service.configure("d0.example", parse_assignments(["active=no"]), actor=WHO)
    service.reset("d0.example", "to be removed", actor=WHO)
    service.forget(service.remove("d0.example", actor=WHO).id)
    assert not store.flush(claim, "w1", outcomes=1)
    assert_invariants(store.connection)


def test_tasks_that_live_keep_it(service: DomainService, store: Store) -> None:
    made = Tasks(store.connection)
    task = made.one("a.example/x")
    with pytest.raises(Refused, match="has a live task; cancel"):
        service.remove("a.example", actor=WHO)
    made.add("a.example/y")
    with pytest.raises(Refused, match="has 2 live tasks; cancel"):
        service.remove("a.example", actor=WHO)
    store.connection.execute("UPDATE crawl_tasks SET status = 'cancelled', status_reason = 'x'")
    service.forget(service.remove("a.example", actor=WHO).id)
    assert store.value("SELECT count(*) FROM crawl_tasks WHERE id = %s", task) == 0
    assert store.value("SELECT count(*) FROM task_events") == 0


def test_a_domain_that_a_task_was_led_to_stays(service: DomainService, store: Store) -> None:
    store.domains(1)
    job = jobs.find(store.connection, jobs.TASKS)
    with store.connection.transaction():
        store.insert_foreign(store.row("d0.example")["id"], "https://d0.example/moved", job)
    service.add("a.example", actor=WHO)
    task = Tasks(store.connection).one("https://a.example/here")
    store.connection.execute(
        "UPDATE crawl_tasks SET status = 'queued', fetch_url = %s, fetch_key = %s, hops = 1 WHERE id = %s",
        ("https://d0.example/moved", url_key("https://d0.example/moved"), task),
    )
    with pytest.raises(Refused, match="Tasks have been led to d0"):
        service.remove("d0.example", actor=WHO)
    # Its URL waits on, but nobody does for it: no visit need come before the domain can go.
    store.connection.execute("UPDATE crawl_tasks SET status = 'cancelled' WHERE id = %s", (task,))
    service.forget(service.remove("d0.example", actor=WHO).id)
    assert_invariants(store.connection)


def test_tasks_that_wait_for_one_of_a_removed_domain_wait_no_more(service: DomainService, store: Store) -> None:
    for name in ("a.example", "b.example"):
        service.add(name, actor=WHO)
    parent = Tasks(store.connection).one("https://a.example/list")
    child = Tasks(store.connection).one("https://b.example/one")
    store.connection.execute("UPDATE crawl_tasks SET status = 'cancelled' WHERE id = %s", (parent,))
    store.connection.execute(
        "UPDATE crawl_tasks SET parent_task_id = %s, waits_for = 'parent' WHERE id = %s", (parent, child)
    )
    service.forget(service.remove("a.example", actor=WHO).id)
    found = store.connection.execute("SELECT id, parent_task_id, waits_for FROM crawl_tasks").fetchall()
    assert found == [(child, None, None)]


def test_pages_of_a_crawl_with_a_limit_are_its_own_again(
    service: DomainService, database: Database, store: Store
) -> None:
    crawl = Crawl(database, store)
    store.connection.execute("UPDATE crawls SET max_pages = 10")
    store.seed(HOME, "https://b.example/")
    for claim in store.claim("w1", 2):
        crawl.commit(claim, [crawl.outcome(f"https://{claim.domain}/", Outcome.OK)])
        store.release(claim, "w1")
    assert store.value("SELECT pages_granted FROM crawls") == 2
    service.forget(service.remove("example.com", actor=WHO).id)
    assert store.value("SELECT pages_granted FROM crawls") == 1
    assert_invariants(store.connection)


def test_a_task_is_made_for_a_domain_that_is_removed_in_this_moment(
    service: DomainService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made known once more, between one look and the next."""
    service.add("a.example", actor=WHO)
    real = task_queries._insert
    times: list[int] = []

    def late(connection: psycopg.Connection, columns: dict[str, object]) -> dict[bytes, int]:
        if not times:
            service.remove("a.example", actor=WHO)
        times.append(1)
        return real(connection, columns)

    monkeypatch.setattr(task_queries, "_insert", late)
    task = Tasks(store.connection).one("a.example/x")
    assert len(times) == 2
    assert (
        store.value("SELECT d.domain FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id WHERE t.id = %s", task)
        == "a.example"
    )


def test_seeds_and_removals_at_the_same_time_leave_nothing_behind(service: DomainService, store: Store) -> None:
    for _ in range(3):
        store.seed("a.example/1", "a.example/2")
        removed = service.remove("a.example", actor=WHO)
        seed_insert.add(
            store.connection, [], job_id=store.job, source="test", defaults=NewDomains()
        )  # nothing to do is no fault
        service.forget(removed.id)
        assert_invariants(store.connection)
    assert store.value("SELECT count(*) FROM url_frontier") == 0
    assert domains.counts(store.connection) == {}
