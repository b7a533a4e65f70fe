"""Every check of `verify` holds in a store that was crawled, and finds the fault that it is there for."""

import pytest

from holdfast.db import verify
from holdfast.db.connection import Database
from holdfast.db.verify import CHECKS
from holdfast.model.outcome import Outcome
from tests.support.crawled import HOME, Crawl, crawl_a_little
from tests.support.factories import Store
from tests.support.invariants import assert_invariants, violations

EXAMPLE = "(SELECT id FROM domains WHERE domain = 'example.com')"
PAGE = f"domain_id = {EXAMPLE} AND url_key = substr(sha256('{HOME}'), 1, 16)"

_WAITING_LINK = f"""
    INSERT INTO image_links (domain_id, job_id, image_key, page_key, discovery_type, page_url, found_in)
    VALUES ({EXAMPLE}, 1, substr(sha256('x'), 1, 16), substr(sha256('y'), 1, 16), 'discovery', 'y', 'img')
"""
FAULTS: dict[str, tuple[str, ...]] = {
    "I1 every URL that was counted is in the frontier, and the other way round": (
        f"DELETE FROM url_frontier WHERE domain_id = {EXAMPLE} AND url LIKE '%/slow'",
    ),
    "I1 every URL belongs to work that a claim can find": (
        "DELETE FROM job_domains WHERE domain_id = (SELECT id FROM domains WHERE domain = 'other.example')",
    ),
    "I1 nothing hangs on a domain or a job that is not there": (
        "INSERT INTO job_domains (domain_id, job_id) VALUES (999, 1)",
    ),
    "I1 discovered = waiting + done + denied + failed": ("UPDATE job_domains SET waiting = waiting + 1",),
    "I1 the counts of a job's work are those of its frontier": (
        "UPDATE url_frontier SET state = 'failed' WHERE state = 'denied'",
    ),
    "I1 a domain discovered what its jobs and the roll-up discovered, and waits for what waits in them": (
        "UPDATE domains SET frontier_size = frontier_size + 1",
    ),
    "I1 templates count no more URLs than there are": (
        f"INSERT INTO url_templates VALUES ({EXAMPLE}, (SELECT min(id) FROM crawl_jobs), 1, 1000000)",
    ),
    "I1 no domain is exhausted with a URL waiting and no wake to say so": (
        f"UPDATE domains SET status = 'exhausted', status_reason = 'x', next_crawl_after = now() WHERE id = {EXAMPLE}",
    ),
    "I1 work that waits can be found: ready, held, cooling, delayed, parked, switched off or about to be woken": (
        "UPDATE job_domains SET not_before = NULL, ready = false",
    ),
    "I1 a task that is queued or crawled has a URL that waits, or will": (
        f"INSERT INTO crawl_tasks (domain_id, url, url_hash) VALUES ({EXAMPLE}, 'https://x.example/', decode(repeat('0', 32), 'hex'))",
        "UPDATE crawl_tasks SET status = 'queued', status_reason = 'due'",
    ),
    "I1 the address of every page is in the frontier": (f"DELETE FROM url_frontier WHERE {PAGE}",),
    "I1 every URL that is done has an answer in the log": (f"DELETE FROM crawl_log WHERE {PAGE}",),
    "I3 no page was counted twice in a tenure": (f"INSERT INTO crawl_log SELECT * FROM crawl_log WHERE {PAGE}",),
    "I3 every page in the log is kept, unless its job was deleted, its domain removed, or the page purged": (
        f"DELETE FROM crawled_pages WHERE {PAGE}",
    ),
    "I3 every page that is kept is in the log": (f"UPDATE crawl_log SET outcome = 'not_modified' WHERE {PAGE}",),
    "I4 a held domain has one open tenure, under its epoch": (
        "UPDATE domains SET claimed_by = 'w9', claim_expires_at = now()",
    ),
    "I4 a free domain has no open tenure, no other domain has an old one open, and none is ahead of its domain": (
        "UPDATE claim_log SET ended_at = NULL, why = NULL",
    ),
    "I4 tenures do not overlap and epochs grow with time": (
        "INSERT INTO claim_log SELECT domain_id, 0, claimed_at, ended_at, 'w2', why FROM claim_log",
    ),
    "I4 no work of a held domain is ready": (
        "UPDATE domains SET claimed_by = 'w9', claim_expires_at = now()",
        "UPDATE job_domains SET ready = true",
    ),
    "I5 every log row lies in the tenure of its epoch": ("UPDATE crawl_log SET claim_epoch = claim_epoch + 1",),
    "I6 every status is the last one in the history of its changes": (
        "UPDATE domain_transitions SET to_status = 'blocked'",
    ),
    "I6 each change begins where the last one ended": (
        "INSERT INTO domain_transitions SELECT domain_id, version + 1, at, 'blocked', to_status, reason, worker, 1 FROM domain_transitions",
    ),
    "I7 a domain's pages and errors are those of the log and its roll-up": (
        "UPDATE domains SET pages_crawled = pages_crawled + 1",
    ),
    "I7 a job's pages and errors on a domain are those of the log and its roll-up": (
        "UPDATE job_domains SET errors = errors + 1",
    ),
    "I7 a run's pages and errors are those of the log": ("UPDATE crawl_runs SET errors = errors + 1",),
    "I7 what a domain's proxies did is what the log says": (
        "INSERT INTO proxies (proxy_url, proxy_port) VALUES ('p.example', 8080)",
        f"INSERT INTO domain_proxies (domain_id, proxy_id, requests) SELECT {EXAMPLE}, id, 1 FROM proxies",
    ),
    "I7 the figures of every minute are those of the log": ("UPDATE stats_fresh SET n = n + 1 WHERE label = 'ok'",),
    "I7 all days together are the totals": (
        "INSERT INTO stats_total (name, label, value) VALUES ('outcome', 'ok', 1)",
    ),
    "I7 every row of the log belongs to a run": ("DELETE FROM crawl_runs",),
    "I7 no domain used more pages of a crawl than it was granted": (
        "UPDATE crawls SET max_pages = 100",
        "UPDATE job_domains SET granted = 0",
    ),
    "I7 a crawl granted what its domains were granted, and no more than it has": (
        "UPDATE crawls SET max_pages = 100, pages_granted = 50",
    ),
    "I7 no share of a round began after what its domain has used": (
        "UPDATE job_domains SET round_start = budget_used + 1",
    ),
    "I11 every reference to the archive is whole": (
        f"UPDATE crawled_pages SET archive_segment = 's', archive_offset = 0, archive_length = 1 WHERE {PAGE}",
    ),
    "I11 no page was lost with the machine that had its segment (archive_lost)": (
        """WITH machine AS (INSERT INTO archive_machines (folder_id, name) VALUES ('f', 'm') RETURNING id)
        INSERT INTO archive_segments (segment, machine_id, state) SELECT 'w/s', id, 'lost' FROM machine""",
        f"UPDATE crawled_pages SET archive_segment = 'w/s', archive_offset = 0, archive_length = 1 WHERE {PAGE}",
    ),
    "I11 every version of a page belongs to a page": (
        f"""INSERT INTO page_versions
            (domain_id, job_id, url_key, crawled_at, replaced_at, content_length, number, noindex, change, outcome)
        SELECT domain_id, job_id, 'other', now(), now(), 0, 1, false, 'changed', 'ok' FROM crawled_pages WHERE {PAGE}""",
    ),
    "I11 a page that was parsed has all items that its parser found": (
        f"""INSERT INTO page_parses SELECT domain_id, job_id, now(), now(), 1, 1, 2, 0, false, url_key, '', 'p', '1', 's'
        FROM crawled_pages WHERE {PAGE}""",
    ),
    "I11 every text that is kept belongs to a page": (f"DELETE FROM crawled_pages WHERE {PAGE}",),
    "I7 a domain stored as many images as its pages have": ("UPDATE domains SET images_stored = images_stored + 1",),
    "I11 every image has a file whose name is its hash": (
        "INSERT INTO images (sha256, file) VALUES (sha256('x'), 'ab/cd/abcd.png')",
    ),
    "I11 every image on a page, and every URL that led to one, has its image": (
        "INSERT INTO image_urls (url_key, url, image_id) VALUES (substr(sha256('x'), 1, 16), 'x', 999)",
    ),
    "I11 no page waits for an image that is stored": (
        "INSERT INTO image_urls (url_key, url, image_id) VALUES (substr(sha256('x'), 1, 16), 'x', 999)",
        _WAITING_LINK,
    ),
    "I11 no page waits for a URL of an image that was redirected": (
        (
            "INSERT INTO image_urls (url_key, url, moved_to) VALUES (substr(sha256('x'), 1, 16), 'x', substr(sha256('z'), 1, 16)),"
            " (substr(sha256('z'), 1, 16), 'z', NULL)"
        ),
        _WAITING_LINK,
    ),
    "I13 no URL was tried more often than `politeness.retries` allows": ("UPDATE url_frontier SET attempts = 5",),
}


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


def test_everything_holds_after_a_crawl(crawl: Crawl) -> None:
    found = list(verify.verify(crawl.store.connection, retries=3))
    assert [finding.check for finding in found] == list(CHECKS)
    assert {finding.check: finding.rows for finding in found if finding.faults} == {}
    assert_invariants(crawl.store.connection)


def test_every_check_finds_the_fault_that_it_is_there_for(crawl: Crawl) -> None:
    """Each fault is made in a transaction of its own that is rolled back; a check that nothing can fail proves nothing."""
    connection = crawl.store.connection
    assert set(FAULTS) == set(CHECKS)
    for name, statements in FAULTS.items():
        with connection.transaction(force_rollback=True):
            for statement in statements:
                assert connection.execute(statement).rowcount > 0, name
            assert connection.execute(CHECKS[name], verify.parameters(retries=3)).fetchone() is not None, name
    assert_invariants(connection)


def test_no_check_is_quadratic_in_the_pages_of_a_domain(crawl: Crawl) -> None:
    """A loop, or a merge of which only the domain is the key, looks at every pair of rows; statistics are as after a first crawl."""
    connection = crawl.store.connection
    with connection.transaction():
        connection.execute(verify._PLANNER)
        for name, query in CHECKS.items():
            plan = connection.execute(f"EXPLAIN {query}", verify.parameters(retries=3)).fetchall()
            assert [line for (line,) in plan if "Merge " in line and "Join" in line] == [], name


def test_faults_are_counted_and_the_first_are_shown(crawl: Crawl) -> None:
    crawl.store.connection.execute("UPDATE url_frontier SET attempts = 9")
    (finding,) = [f for f in verify.verify(crawl.store.connection, retries=3) if f.faults]
    assert finding.check.startswith("I13")
    assert finding.faults == crawl.store.value("SELECT count(*) FROM url_frontier")
    assert len(finding.rows) == verify.ROWS_SHOWN
    assert set(finding.rows[0]) == {"domain_id", "job_id", "url_key", "attempts"}
    assert [f.check for f in verify.verify(crawl.store.connection, retries=8) if f.faults] == []


def test_all_checks_see_one_snapshot_while_others_write(crawl: Crawl, database: Database) -> None:
    """A fault that appears after the first check is seen by none of those that follow; a second look sees it."""
    steps = verify.verify(crawl.store.connection, retries=3)
    first = next(steps)
    with database.connect() as other:
        other.execute("UPDATE url_frontier SET attempts = 9")
    assert [finding.check for finding in [first, *steps] if finding.faults] == []
    assert list(violations(crawl.store.connection)) == [name for name in CHECKS if name.startswith("I13")]


def test_a_page_crawled_again_by_a_new_run_or_tenure_is_no_fault(crawl: Crawl, database: Database) -> None:
    store = crawl.store
    store.connection.execute(
        "INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after) "
        f"SELECT {EXAMPLE}, id, 0, ''::bytea FROM crawl_jobs"
    )
    store.connection.execute("UPDATE job_domains SET ready = (not_before IS NULL), not_before = NULL")
    store.connection.execute(f"UPDATE job_domains SET ready = true WHERE domain_id = {EXAMPLE}")
    (claim,) = [claim for claim in store.claim(count=2) if claim.domain == "example.com"]
    store.release(claim, crawl.worker)  # folds the wake: all pages wait again
    (claim,) = store.claim()
    crawl.commit(claim, [crawl.outcome(HOME, Outcome.NOT_MODIFIED, status=304)])
    store.release(claim, crawl.worker)
    assert store.value(f"SELECT count(*) FROM crawl_log WHERE {PAGE}") == 2
    assert_invariants(store.connection)


def test_references_come_in_chunks(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = crawl.store.connection
    assert list(verify.references(connection)) == []
    connection.execute(
        "UPDATE crawled_pages SET archive_segment = 'w/s', archive_offset = 0, archive_length = 1, payload_digest = sha256('x')"
    )
    monkeypatch.setattr(verify, "_CHUNK", 2)
    chunks = list(verify.references(connection))
    assert [len(chunk) for chunk in chunks] == [2, 2]
    assert sorted(row["url"] for chunk in chunks for row in chunk) == [
        HOME,
        f"{HOME}a",
        f"{HOME}a/b",
        f"{HOME}gone",
    ]
