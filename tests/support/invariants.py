"""What must hold in every store, at every moment when no transaction is open: the part of it that this schema can prove.

Used by the crash tests, the simulation and the state machine. Each check names the invariant of docs/testing.md that it proves.
"""

from typing import Final

import psycopg

CHECKS: Final[dict[str, str]] = {
    "I1 every URL that was counted is in the frontier": """
        SELECT jd.domain_id, jd.job_id, jd.discovered, count(f.url_key) + 0
        FROM job_domains jd LEFT JOIN url_frontier f USING (domain_id, job_id)
        GROUP BY jd.domain_id, jd.job_id, jd.discovered
        HAVING count(f.url_key) <> jd.discovered + COALESCE((SELECT sum(inserted) FROM domain_wakes w
            WHERE w.domain_id = jd.domain_id AND w.job_id = jd.job_id), 0)
    """,
    "I1 every URL belongs to work that somebody will find": """
        SELECT f.domain_id, f.job_id FROM url_frontier f
        WHERE NOT EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = f.domain_id AND jd.job_id = f.job_id)
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = f.domain_id AND w.job_id = f.job_id)
    """,
    "I1 nothing hangs on a domain or a job that is not there": """
        SELECT jd.domain_id, jd.job_id FROM job_domains jd
        WHERE NOT EXISTS (SELECT FROM domains d WHERE d.id = jd.domain_id) OR NOT EXISTS (SELECT FROM crawl_jobs j WHERE j.id = jd.job_id)
    """,
    "I1 discovered = waiting + done + denied + failed": """
        SELECT domain_id, job_id FROM job_domains WHERE discovered <> waiting + done + denied + failed
    """,
    "I1 the counts of a job's work are those of its frontier": """
        SELECT jd.domain_id, jd.job_id FROM job_domains jd LEFT JOIN url_frontier f USING (domain_id, job_id)
        GROUP BY jd.domain_id, jd.job_id
        HAVING count(*) FILTER (WHERE f.state = 'done') <> jd.done OR count(*) FILTER (WHERE f.state = 'denied') <> jd.denied
            OR count(*) FILTER (WHERE f.state = 'failed') <> jd.failed
    """,
    "I1 a domain discovered what its jobs discovered": """
        SELECT d.id FROM domains d LEFT JOIN job_domains jd ON jd.domain_id = d.id
        GROUP BY d.id HAVING d.pages_discovered <> COALESCE(sum(jd.discovered), 0)
    """,
    "I1 no domain is exhausted with a URL waiting and no wake to say so": """
        SELECT d.id FROM domains d WHERE d.status = 'exhausted'
        AND EXISTS (SELECT FROM url_frontier f JOIN crawl_jobs j ON j.id = f.job_id
                    WHERE f.domain_id = d.id AND f.state = 'waiting' AND j.state <> 'cancelled')
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = d.id)
    """,
    "I1 work that waits can be found: ready, held, cooling, delayed, parked, switched off or about to be woken": """
        SELECT jd.domain_id FROM job_domains jd JOIN domains d ON d.id = jd.domain_id JOIN crawl_jobs j ON j.id = jd.job_id
        WHERE jd.waiting > 0 AND jd.state = 'open' AND NOT jd.ready AND d.is_active AND d.claimed_by IS NULL
        AND j.state IN ('pending', 'processing') AND d.next_crawl_after IS NULL AND jd.not_before IS NULL
        AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = d.id)
    """,
    "I4 a held domain has one open tenure, under its epoch": """
        SELECT d.id FROM domains d WHERE d.claimed_by IS NOT NULL AND NOT EXISTS (
            SELECT FROM claim_log l WHERE l.domain_id = d.id AND l.epoch = d.claim_epoch AND l.worker = d.claimed_by AND l.ended_at IS NULL)
    """,
    "I4 a free domain has no open tenure, and no other domain has an old one open": """
        SELECT l.domain_id FROM claim_log l JOIN domains d ON d.id = l.domain_id
        WHERE l.ended_at IS NULL AND (d.claimed_by IS NULL OR d.claim_epoch <> l.epoch)
    """,
    "I4 tenures do not overlap and epochs grow with time": """
        SELECT domain_id FROM (
            SELECT domain_id, claimed_at, lag(ended_at) OVER w AS before, lag(epoch) OVER w AS epoch_before
            FROM claim_log WINDOW w AS (PARTITION BY domain_id ORDER BY epoch)) t
        WHERE epoch_before IS NOT NULL AND (before IS NULL OR before > claimed_at)
    """,
    "I4 no work of a held domain is ready": """
        SELECT jd.domain_id FROM job_domains jd JOIN domains d ON d.id = jd.domain_id WHERE jd.ready AND d.claimed_by IS NOT NULL
    """,
    "I5 every log row lies in the tenure of its epoch": """
        SELECT c.domain_id FROM crawl_log c WHERE NOT EXISTS (
            SELECT FROM claim_log l WHERE l.domain_id = c.domain_id AND l.epoch = c.claim_epoch AND c.crawled_at >= l.claimed_at
            AND (l.ended_at IS NULL OR c.crawled_at <= l.ended_at))
    """,
    "I6 every status is the last one in the history of its changes": """
        SELECT d.id FROM domains d JOIN LATERAL (
            SELECT to_status FROM domain_transitions t WHERE t.domain_id = d.id ORDER BY version DESC LIMIT 1) t ON true
        WHERE d.status <> t.to_status
    """,
    "I6 each change begins where the last one ended": """
        SELECT domain_id FROM (
            SELECT domain_id, from_status, lag(to_status) OVER (PARTITION BY domain_id ORDER BY version) AS before
            FROM domain_transitions) t
        WHERE before IS NOT NULL AND before <> from_status
    """,
}


def violations(connection: psycopg.Connection) -> dict[str, list[tuple[object, ...]]]:
    """The invariants that do not hold, each with the first rows that show it."""
    found = {}
    for name, query in CHECKS.items():
        rows = connection.execute(query).fetchmany(5)
        if rows:
            found[name] = rows
    return found


def assert_invariants(connection: psycopg.Connection) -> None:
    """Fail, naming every invariant that does not hold."""
    assert violations(connection) == {}
