"""The schema's revision: known, compared, changed by one at a time, and the same whichever way it was reached."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql

from holdfast.errors import SchemaMismatch, StoreError, UsageError
from holdfast.model.limits import DomainLimits
from holdfast.store import budget, crawls, embedded, frontier, migrate, visits
from holdfast.store.connect import Database, prompt_environment
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def empty(server: embedded.Server) -> Iterator[Database]:
    """A database without a schema."""
    name = sql.Identifier("test_empty")
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(name))
        yield Database(server.url("test_empty"))
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def schema_of(server: embedded.Server, database: Database) -> str:
    """The whole schema as pg_dump writes it, but for the key that it makes up each time."""
    dump = subprocess.run(
        [server.bin / "pg_dump", "--schema-only"],
        env={**os.environ, **prompt_environment(database.url)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return re.sub(r"^\\(un)?restrict .*\n", "", dump, flags=re.MULTILINE)


def check(database: Database) -> None:
    with database.session() as connection:
        migrate.check(connection, database.address)


def test_the_revisions_written_down_are_those_of_alembic() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [migrate.HEAD]
    others = {script.revision for script in scripts.walk_revisions()} - {migrate.HEAD}
    assert {None, *others} == migrate.OLDER


def test_up_down_and_up_again_leaves_the_same_schema(server: embedded.Server, empty: Database) -> None:
    bare = schema_of(server, empty)
    assert migrate.upgrade(empty) == (None, migrate.HEAD)
    first = schema_of(server, empty)
    assert "CREATE TABLE public.domains" in first
    check(empty)
    assert migrate.upgrade(empty) == (migrate.HEAD, migrate.HEAD), "nothing to do"
    assert migrate.downgrade(empty, "base") == (migrate.HEAD, None)
    assert schema_of(server, empty) == bare, "everything that Holdfast made is gone"
    migrate.upgrade(empty)
    assert schema_of(server, empty) == first


def test_a_schema_that_went_down_and_up_can_be_used(empty: Database) -> None:
    migrate.upgrade(empty)
    with empty.session() as connection:
        Store(connection).seed("a.example")
    migrate.downgrade(empty)
    migrate.upgrade(empty)
    with empty.session() as connection:
        store = Store(connection)
        store.seed("a.example")
        store.crawl_to_the_end()
        assert_invariants(connection)


def test_an_empty_database_is_refused_with_what_to_do(empty: Database) -> None:
    with pytest.raises(SchemaMismatch) as refusal:
        check(empty)
    assert str(refusal.value) == (
        f"The database at {empty.address} has no Holdfast schema yet; run `holdfast db upgrade`."
    )


def test_an_older_schema_is_refused_with_what_to_do(empty: Database) -> None:
    migrate.upgrade(empty, "0001")
    with pytest.raises(
        SchemaMismatch, match=r"is at revision 0001, this Holdfast needs 0026; run `holdfast db upgrade`"
    ):
        check(empty)


# What a store at each released revision may hold. The rows are written as that revision knew them.
_DOMAIN = """
    INSERT INTO domains (domain, parent_domain, base_url, pages_discovered, frontier_size, pages_crawled)
    VALUES ('a.example', 'a.example', 'https://a.example/', 2, 1, 1);
    INSERT INTO job_domains (domain_id, job_id, ready, discovered, waiting, done, budget_used)
    SELECT d.id, j.id, true, 2, 1, 1, 1 FROM domains d, crawl_jobs j WHERE j.name = 'default';
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, state)
    SELECT d.id, j.id, decode(md5(u), 'hex'), 'https://a.example/' || u, s::frontier_state
    FROM domains d, crawl_jobs j, (VALUES ('x', 'waiting'), ('y', 'done')) AS t(u, s) WHERE j.name = 'default';
    INSERT INTO domain_robots (domain_id, robots_txt_url, robots_txt_content)
    SELECT id, 'https://a.example/robots.txt', 'User-agent: *' FROM domains;
    INSERT INTO crawl_runs (worker, pages_crawled) VALUES ('w1', 0);
"""
_TASK = """
    INSERT INTO crawl_tasks (domain_id, url, url_hash) SELECT id, 'https://a.example/t', decode(md5('t'), 'hex') FROM domains;
    UPDATE crawl_tasks SET status = 'paused';
    INSERT INTO audit_log (actor, action, object_kind, object_id) VALUES ('ann', 'pause', 'task', '1');
"""
_PRODUCT = """
    INSERT INTO parse_results (task_id, fetched_at, attempt, parser, parser_version, product_keys, data, products)
    SELECT id, now(), 1, 'product', '1', ARRAY[decode(md5('p'), 'hex')], '{}', '[{}]' FROM crawl_tasks;
    INSERT INTO products (domain_id, page_key, identity_key, identity, name, price, page_url, first_seen_at, last_seen_at, last_task_id)
    SELECT domain_id, url_hash, decode(md5('p'), 'hex'), 'sku:p', 'Lamp', 10, url, now(), now(), id FROM crawl_tasks;
    INSERT INTO product_prices (product_id, fetched_at, seen_until, task_id, last_task_id, price)
    SELECT id, first_seen_at, last_seen_at, last_task_id, last_task_id, price FROM products;
"""
_ITEM = """
    INSERT INTO crawled_pages (domain_id, job_id, crawled_at, url_key, outcome, status)
    SELECT domain_id, job_id, now(), url_key, 'ok', 200 FROM url_frontier WHERE state = 'done';
    INSERT INTO page_parses (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset, archive_length,
                             payload_digest)
    SELECT domain_id, job_id, url_key, 'shop', now(), 'w1/1.warc.gz', 1, 1, '' FROM crawled_pages;
    INSERT INTO items (domain_id, job_id, url_key, parser, position, parser_version, fetched_at, data)
    SELECT domain_id, job_id, url_key, parser, 0, '1', now(), '{"name": "Lamp"}' FROM page_parses;
    UPDATE products SET last_task_id = NULL;
    UPDATE product_prices SET task_id = NULL, last_task_id = NULL;
"""
_SECRETS = """
    INSERT INTO domain_secrets (domain_id, kind, names, origins, sealed)
    SELECT id, 'headers', ARRAY['X-Key'], ARRAY['https://a.example'], 'gAAAA' FROM domains;
    INSERT INTO job_secrets (job_id, kind, names, origins, sealed)
    SELECT id, 'cookies', ARRAY['Cookie'], ARRAY['https://a.example'], 'gAAAA' FROM crawl_jobs WHERE name = 'default';
"""
_DATA_AT = {
    "0019": _DOMAIN + _TASK + _PRODUCT,
    "0001": _DOMAIN,
    "0002": _DOMAIN,
    **dict.fromkeys(("0003", "0004", "0005"), _DOMAIN + _TASK),
    **dict.fromkeys((f"{number:04}" for number in range(6, 26)), _DOMAIN + _TASK + _PRODUCT),
    "0018": _DOMAIN + _TASK + _PRODUCT + _SECRETS,
}


def test_every_revision_but_the_newest_has_data_to_be_upgraded() -> None:
    assert _DATA_AT.keys() == migrate.OLDER - {None}


@pytest.mark.parametrize("revision", sorted(_DATA_AT))
def test_an_upgrade_keeps_what_is_there_and_a_downgrade_too(
    server: embedded.Server, empty: Database, revision: str
) -> None:
    migrate.upgrade(empty, revision)
    old = schema_of(server, empty)
    with empty.session() as connection:
        connection.execute(_DATA_AT[revision])
        before = Store(connection).everything()
    assert migrate.upgrade(empty) == (revision, migrate.HEAD)
    with empty.session() as connection:
        store = Store(connection)
        assert_invariants(connection)
        assert {table: len(rows) for table, rows in store.everything().items()} == {
            table: len(rows) for table, rows in before.items()
        }
        (claim,) = store.claim()
        state = visits.load(connection, [claim.domain_id])[claim.domain_id]
        robots = state.robots["https://a.example/robots.txt"]
        assert (robots.content, robots.reachable, robots.fresh_for) == ("User-agent: *", True, 0.0)
        taken = frontier.take(connection, domain_id=claim.domain_id, job_id=store.job, count=9, besides=[])
        assert [waiting.url for waiting in taken.urls] == ["https://a.example/x"]
        assert store.work("a.example")["budget_used"] == 1
        crawls.begin(connection, store.job)
        asked = budget.ask(
            connection,
            worker="w1",
            domain_id=claim.domain_id,
            epoch=claim.epoch,
            job=crawls.get(connection, store.job),
            limits=DomainLimits(limit=5),
        )
        assert asked == 5, "what was used before there were crawls is no crawl's"
        store.release(claim, crawled=False)
        for url in ("http://a.example/robots.txt", "https://a.example:8443/robots.txt"):
            connection.execute(
                "INSERT INTO domain_robots (domain_id, robots_txt_url) VALUES (%s, %s)", (claim.domain_id, url)
            )
    assert migrate.downgrade(empty, revision) == (migrate.HEAD, revision)
    assert schema_of(server, empty) == old
    with empty.session() as connection:
        assert Store(connection).everything()["url_frontier"] == before["url_frontier"]
        robots_kept = connection.execute("SELECT count(*) FROM domain_robots").fetchone()
        assert robots_kept == (1 if revision == "0001" else 3,), "0001 knows one a domain"
        if _TASK in _DATA_AT[revision]:
            kept = connection.execute(
                "SELECT t.status::text, e.why, a.actor FROM crawl_tasks t, task_events e, audit_log a"
            )
            assert kept.fetchall() == [("paused", "manual: changed in SQL as holdfast", "ann")]


def test_what_was_fetched_for_jobs_before_0014_is_counted_from_the_log(empty: Database) -> None:
    migrate.upgrade(empty, "0013")
    log = """
        INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawled_at, url_key, outcome, page_url, bytes)
        SELECT d.id, j.id, 1, now(), decode(md5(o), 'hex'), o, 'https://a.example/', b FROM domains d, crawl_jobs j,
            (VALUES ('ok', 100), ('not_modified', 10), ('redirect', 5), ('timeout', 0)) AS t(o, b) WHERE j.name = 'default'
    """
    with empty.session() as connection:
        connection.execute(_DOMAIN)
        connection.execute(log)
    migrate.upgrade(empty)
    with empty.session() as connection:
        assert connection.execute("SELECT pages, errors, bytes FROM job_domains").fetchall() == [(2, 1, 115)]


def test_a_streak_before_0021_goes_on_after_it_and_back(empty: Database) -> None:
    migrate.upgrade(empty, "0020")
    with empty.connect() as connection:
        connection.execute(
            "INSERT INTO domains (domain, parent_domain, base_url, claimed_by, claim_expires_at, total_error_count,"
            " consecutive_error_count)"
            " VALUES ('a.example', 'a.example', 'https://a.example', 'w1', now() + interval '1 h', 2, 4)"
        )
    counts = "total_error_count, consecutive_error_count"
    migrate.upgrade(empty, "0021")
    with empty.connect() as connection:
        row = connection.execute(f"SELECT {counts}, refusal_streak, claimed_by FROM domains").fetchone()
        assert row == (2, 2, 4, "w1"), "never more in a row than in all"
    migrate.downgrade(empty, "0020")
    with empty.connect() as connection:
        assert connection.execute(f"SELECT {counts}, claimed_by FROM domains").fetchone() == (2, 4, "w1")


def test_a_claim_and_a_crawl_under_way_live_through_every_step_down_and_up(empty: Database) -> None:
    """With what only the newer steps know: a take-over, an edit, an end of a job, a worker that ended."""
    migrate.upgrade(empty)
    with empty.session() as connection:
        store = Store(connection)
        store.domains(3)
        (held, taken_over) = store.claim(count=2)
        crawls.begin(connection, store.job)
        assert store.flush(held, refusal_streak=2, outcomes=2, errors=2)
        store.release(taken_over)
        connection.execute("UPDATE claim_log SET why = 'silent' WHERE domain_id = %s", (taken_over.domain_id,))
        connection.execute("UPDATE domains SET crawl_delay_seconds = 3")
        connection.execute("INSERT INTO workers (name, host, pid, ended_at) VALUES ('w0', 'here', 1, now())")
        connection.execute(
            "UPDATE crawl_jobs SET state_reason = 'stopped', new_crawl = false WHERE id = %s", (store.job,)
        )

    def under_way() -> list[tuple[object, ...]]:
        with empty.session() as connection:
            return connection.execute(
                "SELECT d.id, d.claimed_by, d.claim_epoch, d.claim_expires_at > now(), c.ended_at, l.ended_at"
                " FROM domains d JOIN claim_log l ON (l.domain_id, l.epoch) = (d.id, d.claim_epoch), crawls c"
                " WHERE d.claimed_by IS NOT NULL"
            ).fetchall()

    before = [(held.domain_id, "w1", held.epoch, True, None, None)]
    steps = [f"{number:04}" for number in range(int(migrate.HEAD) - 1, 19, -1)]
    for revision in steps:
        migrate.downgrade(empty, revision)
        assert under_way() == before, revision
    for revision in [*reversed(steps[:-1]), migrate.HEAD]:
        migrate.upgrade(empty, revision)
        assert under_way() == before, revision
    with empty.session() as connection:
        store = Store(connection)
        assert store.flush(held, outcomes=1)
        store.release(held)
        assert_invariants(connection)


def test_prices_that_a_crawl_saw_stay_when_the_schema_goes_back(empty: Database) -> None:
    migrate.upgrade(empty, "0019")
    with empty.session() as connection:
        connection.execute(_DATA_AT["0019"] + _ITEM)
    migrate.downgrade(empty, "0018")
    query = "SELECT p.price, p.last_task_id, r.task_id FROM products p JOIN product_prices r ON r.product_id = p.id"
    with empty.session() as connection:
        assert connection.execute(query).fetchall() == [(10, 0, 0)]
    migrate.upgrade(empty, "0019")
    with empty.session() as connection:
        assert connection.execute(query).fetchall() == [(10, None, None)]


def test_seeds_of_jobs_before_0017_are_kept_with_them(empty: Database) -> None:
    migrate.upgrade(empty, "0016")
    redirected = """
        INSERT INTO url_frontier (domain_id, job_id, url_key, url, parent_key)
        SELECT domain_id, job_id, decode(md5('z'), 'hex'), 'https://a.example/z', url_key FROM url_frontier WHERE url LIKE '%/y'
    """
    with empty.session() as connection:
        connection.execute(_DOMAIN)
        connection.execute(redirected)
    migrate.upgrade(empty)
    with empty.session() as connection:
        seeds = connection.execute(
            "SELECT j.name, s.url FROM job_seeds s JOIN crawl_jobs j ON j.id = s.job_id ORDER BY 2"
        )
        assert seeds.fetchall() == [("default", "https://a.example/x"), ("default", "https://a.example/y")]
        connection.execute(
            "INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, retry) "
            "SELECT domain_id, job_id, 0, '', '{timeout}' FROM job_domains"
        )
    migrate.downgrade(empty, "0016")
    with empty.session() as connection:
        assert connection.execute("SELECT count(*) FROM domain_wakes").fetchone() == (0,)


def test_budgets_before_0015_are_shares_unless_a_person_gave_them(empty: Database) -> None:
    migrate.upgrade(empty, "0014")
    data = """
        INSERT INTO crawl_jobs (name) VALUES ('limited');
        INSERT INTO crawls (job_id, max_pages_per_domain) SELECT id, CASE name WHEN 'limited' THEN 7 END FROM crawl_jobs;
        INSERT INTO domains (domain, parent_domain, base_url, max_pages_per_run)
        SELECT d, d, 'https://' || d, pages FROM (VALUES ('usual', 1000), ('said', 50)) AS t(d, pages);
        INSERT INTO job_domains (domain_id, job_id, state, crawl_id, budget_limit, budget_used, waiting)
        SELECT d.id, j.id, 'spent', c.id, COALESCE(c.max_pages_per_domain, d.max_pages_per_run),
               COALESCE(c.max_pages_per_domain, d.max_pages_per_run), 1
        FROM domains d, crawl_jobs j JOIN crawls c ON c.job_id = j.id WHERE j.name IN ('default', 'limited')
    """
    with empty.session() as connection:
        connection.execute(data)
    migrate.upgrade(empty, "0015")
    with empty.session() as connection:
        found = connection.execute(
            "SELECT j.name, d.domain, d.max_pages_is_limit, jd.limit_reached, jd.budget_limit FROM job_domains jd "
            "JOIN domains d ON d.id = jd.domain_id JOIN crawl_jobs j ON j.id = jd.job_id ORDER BY 1, 2"
        ).fetchall()
    assert found == [
        ("default", "said", True, "domain_budget", 50),
        ("default", "usual", False, None, None),
        ("limited", "said", True, "max_pages_per_domain", 7),
        ("limited", "usual", False, "max_pages_per_domain", 7),
    ]


def test_a_newer_schema_is_refused_and_never_changed(server: embedded.Server, database: Database) -> None:
    with database.session() as connection:
        connection.execute("UPDATE schema_version SET version_num = '9999'")
    before = schema_of(server, database)
    with pytest.raises(SchemaMismatch, match="is at revision 9999, newer than this Holdfast"):
        check(database)
    for change in (migrate.upgrade, migrate.downgrade):
        with pytest.raises(SchemaMismatch, match="does not know revision 9999"):
            change(database)
    assert schema_of(server, database) == before


def test_a_revision_that_does_not_exist_is_a_usage_error(database: Database, empty: Database) -> None:
    with pytest.raises(UsageError, match="The schema cannot go there"):
        migrate.upgrade(database, "0815")
    with pytest.raises(UsageError, match="The schema cannot go there"):
        migrate.downgrade(empty)
    check(database)


def test_a_migration_that_fails_leaves_the_schema_as_it_was(server: embedded.Server, empty: Database) -> None:
    with empty.session() as connection:
        connection.execute("CREATE TABLE provenance (mine text)")  # the name of one of the last tables
    before = schema_of(server, empty)
    with pytest.raises(StoreError, match=r"could not be changed, and is as it was: .*provenance"):
        migrate.upgrade(empty)
    assert schema_of(server, empty) == before


def test_of_two_upgrades_at_once_the_second_waits_and_finds_nothing_to_do(empty: Database) -> None:
    start = threading.Barrier(2)
    results: list[object] = []

    def upgrade() -> None:
        start.wait()
        try:
            results.append(migrate.upgrade(empty)[1])
        except BaseException as problem:  # noqa: BLE001 — handed to the test
            results.append(problem)

    threads = [threading.Thread(target=upgrade) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [migrate.HEAD, migrate.HEAD]
    with empty.session() as connection:
        assert connection.execute("SELECT count(*) FROM crawl_jobs").fetchone() == (2,)  # the standing ones
