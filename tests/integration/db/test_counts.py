"""The functions of the schema that adjust counts and delete URLs, and the view of the jobs that workers may serve."""

from hashlib import md5

import psycopg
import pytest

from tests.support.factories import Store
from tests.support.invariants import assert_invariants

_COUNTS = "SELECT discovered, waiting, done, denied, failed, state::text FROM job_domains WHERE domain_id = %s AND job_id = %s"
_DOMAIN = "SELECT pages_discovered, frontier_size FROM domains WHERE id = %s"


@pytest.fixture
def place(store: Store) -> tuple[int, int]:
    """A domain with six URLs of a job in the four states, two of them done, with pages; its id and the job's."""
    store.seed("a.example")
    connection = store.connection
    domain = connection.execute("SELECT id FROM domains").fetchone()
    assert domain is not None
    connection.execute("DELETE FROM url_frontier")
    key = {"domain": domain[0], "job": store.job}
    connection.execute(
        """
        INSERT INTO url_frontier (domain_id, job_id, url_key, url, state)
        SELECT %(domain)s, %(job)s, decode(md5(u), 'hex'), 'https://a.example/' || u, s::frontier_state
        FROM (VALUES ('1', 'waiting'), ('2', 'waiting'), ('3', 'done'), ('4', 'done'), ('5', 'denied'), ('6', 'failed')) AS t(u, s)
        """,
        key,
    )
    for text in (
        "UPDATE job_domains SET discovered = 6, waiting = 2, done = 2, denied = 1, failed = 1",
        "UPDATE domains SET pages_discovered = 6, frontier_size = 2",
        """INSERT INTO crawled_pages (domain_id, job_id, crawled_at, url_key, outcome, status)
           SELECT domain_id, job_id, now(), url_key, 'ok', 200 FROM url_frontier WHERE state = 'done'""",
        "INSERT INTO page_texts (domain_id, job_id, url_key, body) SELECT domain_id, job_id, url_key, '' FROM crawled_pages",
        """INSERT INTO page_versions (domain_id, job_id, url_key, number, crawled_at, replaced_at, content_length, noindex, change, outcome)
           SELECT domain_id, job_id, url_key, 1, now(), now(), 0, false, 'changed', 'ok' FROM crawled_pages""",
        """INSERT INTO page_parses (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset, archive_length,
                                    payload_digest)
           SELECT domain_id, job_id, url_key, 'shop', now(), 'w1/1.warc.gz', 1, 1, '' FROM crawled_pages""",
        """INSERT INTO items (domain_id, job_id, url_key, parser, position, parser_version, fetched_at, data)
           SELECT domain_id, job_id, url_key, parser, 0, '1', now(), '{}' FROM page_parses""",
    ):
        connection.execute(text)
    return domain[0], store.job


def counts(connection: psycopg.Connection, place: tuple[int, int]) -> tuple[object, object]:
    return connection.execute(_COUNTS, place).fetchone(), connection.execute(_DOMAIN, place[:1]).fetchone()


def forget(connection: psycopg.Connection, place: tuple[int, int], keys: list[bytes]) -> int:
    urls = [[place[0]] * len(keys), [place[1]] * len(keys), keys]
    row = connection.execute("SELECT forget_urls(%s::bigint[], %s::bigint[], %s::bytea[])", urls).fetchone()
    assert row is not None
    return int(row[0])


def test_counts_of_work_and_of_its_domain_are_adjusted_together(
    connection: psycopg.Connection, place: tuple[int, int]
) -> None:
    connection.execute("SELECT add_counts(%s, %s, 3, -1, 2, -1)", place)
    assert counts(connection, place) == ((9, 5, 1, 3, 0, "open"), (9, 5))
    connection.execute("SELECT add_counts(%s, %s, more_waiting => -1, more_done => 1)", place)
    assert counts(connection, place) == ((9, 4, 2, 3, 0, "open"), (9, 4)), "one that is known already is no discovery"


@pytest.mark.parametrize(
    ("state", "waiting", "after"),
    [("done", 1, "open"), ("done", -1, "done"), ("spent", 1, "spent"), ("parked", 1, "parked")],
)
def test_work_that_was_done_is_open_when_urls_wait_again(
    connection: psycopg.Connection, place: tuple[int, int], state: str, waiting: int, after: str
) -> None:
    connection.execute("UPDATE job_domains SET ready = false, state = %s", (state,))
    connection.execute("SELECT add_counts(%s, %s, %s)", (*place, waiting))
    assert connection.execute("SELECT state::text FROM job_domains").fetchone() == (after,)


def test_a_count_of_a_domain_never_becomes_negative(connection: psycopg.Connection, place: tuple[int, int]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="counters_not_negative"):
        connection.execute("SELECT add_counts(%s, %s, -3)", place)


def test_urls_are_forgotten_with_all_that_hangs_on_them(connection: psycopg.Connection, place: tuple[int, int]) -> None:
    some = [md5(name.encode(), usedforsecurity=False).digest() for name in ("1", "3", "5", "6", "unknown")]
    assert forget(connection, place, some) == 4
    assert counts(connection, place) == ((2, 1, 1, 0, 0, "open"), (2, 1))
    left = connection.execute("SELECT string_agg(url, ' ' ORDER BY url) FROM url_frontier").fetchone()
    assert left == ("https://a.example/2 https://a.example/4",)
    for table in ("crawled_pages", "page_texts", "page_versions", "page_parses", "items"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,), table


def test_urls_of_another_job_or_domain_stay(connection: psycopg.Connection, place: tuple[int, int]) -> None:
    domain, job = place
    every = [row[0] for row in connection.execute("SELECT url_key FROM url_frontier")]
    for elsewhere in ((domain, job + 1), (domain + 1, job)):
        assert forget(connection, elsewhere, every) == 0
    assert forget(connection, place, []) == 0
    assert counts(connection, place) == ((6, 2, 2, 1, 1, "open"), (6, 2))


def test_runnable_jobs_are_those_that_wait_or_are_served(connection: psycopg.Connection, store: Store) -> None:
    connection.execute(
        "INSERT INTO crawl_jobs (name, state) SELECT s::text, s FROM unnest(enum_range(NULL::job_state)) s"
    )
    names = connection.execute("SELECT name FROM runnable_jobs ORDER BY id").fetchall()
    assert names == [("default",), ("tasks",), ("pending",), ("processing",)]
    same = "SELECT count(*) FROM crawl_jobs j WHERE job_is_runnable(j) <> EXISTS (SELECT FROM runnable_jobs r WHERE r.id = j.id)"
    assert connection.execute(same).fetchone() == (0,)
    plan = "".join(row[0] for row in connection.execute("EXPLAIN SELECT FROM runnable_jobs"))
    assert "job_is_runnable" not in plan, "the planner looks into it"
    assert_invariants(connection)
