"""Short ways to put domains, URLs and claims into a test's database. Real rows by the product's own functions where there are any."""

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg

from holdfast.db import claims, jobs, release, seed_insert
from holdfast.db.domains import NewDomains
from holdfast.model.domain import Claim, Status
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import url_key
from holdfast.model.visit_report import DomainProgress, VisitEnd
from holdfast.politeness.retry import CooldownPolicy
from holdfast.settings import Cooldown

LEASE: Final = timedelta(minutes=30)
PATH: Final = {
    Status.PENDING: (),
    Status.ACTIVE: (Status.ACTIVE,),
    Status.EXHAUSTED: (Status.ACTIVE, Status.EXHAUSTED),
    Status.BLOCKED: (Status.BLOCKED,),
    Status.UNREACHABLE: (Status.UNREACHABLE,),
}
"""How a domain that is pending comes into each status by changes that the matrix allows."""
COOLDOWN: Final = CooldownPolicy(Cooldown(), max_block_retries=3, rng=random.Random(1))


@dataclass(frozen=True)
class Store:
    """A test's database."""

    connection: psycopg.Connection

    @property
    def job(self) -> int:
        return jobs.find(self.connection, jobs.DEFAULT)

    def new_job(self, name: str) -> int:
        row = self.connection.execute("INSERT INTO crawl_jobs (name) VALUES (%s) RETURNING id", (name,)).fetchone()
        assert row
        return int(row[0])

    def seed(self, *texts: str, job: int | None = None, rank: int | None = None) -> seed_insert.SeedCounts:
        seeds = [make_seed(text, rank=rank) for text in texts]
        return seed_insert.add(self.connection, seeds, job_id=job or self.job, source="test", defaults=NewDomains())

    def domains(self, count: int) -> None:
        """d0.example … as seeds."""
        self.seed(*(f"d{i}.example" for i in range(count)))

    def claim(
        self, worker: str = "w1", count: int = 1, lease: timedelta = LEASE, job: int | None = None
    ) -> list[Claim]:
        return claims.claim(self.connection, worker=worker, job_id=job or self.job, count=count, lease=lease)

    def claim_one(self, worker: str = "w1", lease: timedelta = LEASE) -> Claim:
        (claim,) = self.claim(worker, 1, lease)
        return claim

    def release(self, claim: Claim, worker: str = "w1", **how: object) -> Status:
        ending = VisitEnd(claim.domain_id, claim.epoch, **how)  # type: ignore[arg-type]
        return release.release(self.connection, worker=worker, ending=ending, cooldown=COOLDOWN)

    def flush(self, claim: Claim, worker: str = "w1", run: int | None = None, **counters: Any) -> bool:
        """A fenced flush; False if the fence refused it."""
        with self.connection.transaction():
            if not claims.fence(self.connection, worker=worker, held=[(claim.domain_id, claim.epoch)]):
                return False
            progress = DomainProgress(claim.domain_id, **counters)
            claims.flush(self.connection, progress=[progress], lease=LEASE, run_id=run)
        return True

    def explain_images(self) -> None:
        """Let images that a test only counted be those of imported history: no page here has them."""
        self.connection.execute(
            "INSERT INTO crawl_log_rollups (domain_id, images_stored) SELECT id, images_stored FROM domains WHERE images_stored > 0"
        )

    def finish_urls(self, claim: Claim) -> None:
        """What a visit does to its frontier: every waiting URL of the domain is done."""
        done = self.connection.execute(
            "UPDATE url_frontier SET state = 'done' WHERE domain_id = %s AND state = 'waiting' RETURNING job_id",
            (claim.domain_id,),
        ).fetchall()
        for (job_id,) in done:
            self.connection.execute(
                "UPDATE job_domains SET waiting = waiting - 1, done = done + 1, pages = pages + 1 WHERE domain_id = %s AND job_id = %s",
                (claim.domain_id, job_id),
            )
            self.connection.execute(
                "UPDATE domains SET frontier_size = frontier_size - 1 WHERE id = %s", (claim.domain_id,)
            )

    def crawl_to_the_end(self, worker: str = "w1") -> Claim:
        """Claim one domain, crawl all of it, release it."""
        claim = self.claim_one(worker)
        self.finish_urls(claim)
        assert self.flush(claim, worker, outcomes=1, pages_crawled=1)
        self.release(claim, worker)
        return claim

    def expire(self, *domain_ids: int) -> None:
        """Let the leases of these domains end, as the clock would."""
        self.connection.execute(
            "UPDATE domains SET claim_expires_at = clock_timestamp() - interval '1 ms' WHERE id = ANY(%s)",
            (list(domain_ids),),
        )

    def end_cooldowns(self) -> None:
        """Let the cool-downs end that have an end."""
        self.connection.execute(
            "UPDATE domains SET next_crawl_after = clock_timestamp() - interval '1 s' WHERE next_crawl_after < 'infinity'"
        )

    def insert_foreign(self, domain_id: int, url: str, job: int | None = None) -> None:
        """What a worker does that finds a link to a domain it does not hold; inside the caller's transaction."""
        job = job or self.job
        self.connection.execute("SELECT FROM domains WHERE id = %s FOR KEY SHARE", (domain_id,))
        added = self.connection.execute(
            "INSERT INTO url_frontier (domain_id, job_id, url_key, url) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (domain_id, job, url_key(url), url),
        ).rowcount
        if added:
            self.connection.execute(
                "INSERT INTO domain_wakes (domain_id, job_id, inserted) VALUES (%s, %s, %s)", (domain_id, job, added)
            )

    def value(self, query: str, *parameters: object) -> object:
        row = self.connection.execute(query, parameters).fetchone()
        assert row is not None
        return row[0]

    def status(self, domain: str) -> Status:
        return Status(str(self.value("SELECT status FROM domains WHERE domain = %s", domain)))

    def row(self, domain: str) -> dict[str, Any]:
        """A domain's row as PostgreSQL writes it in JSON: times are text, and infinity is one of them."""
        row = self.connection.execute("SELECT to_jsonb(d) FROM domains d WHERE domain = %s", (domain,)).fetchone()
        assert row is not None
        return dict(row[0])

    def work(self, domain: str, job: int | None = None) -> dict[str, Any]:
        """What a job has to do on a domain."""
        row = self.connection.execute(
            "SELECT to_jsonb(jd) FROM job_domains jd JOIN domains d ON d.id = jd.domain_id WHERE d.domain = %s AND jd.job_id = %s",
            (domain, job or self.job),
        ).fetchone()
        assert row is not None
        return dict(row[0])

    def become(self, domain: str, status: Status) -> None:
        """Bring a pending domain into a status, by hand-written SQL."""
        for step in PATH[status]:
            self.connection.execute("UPDATE domains SET status = %s WHERE domain = %s", (step, domain))

    def everything(self) -> dict[str, list[str]]:
        """All that the store holds about domains, to be compared with another moment. What is NULL counts as not there: a step of the
        schema may add columns."""
        tables = (
            "domains",
            "job_domains",
            "claim_log",
            "url_frontier",
            "domain_wakes",
            "domain_transitions",
            "crawl_log",
        )
        return {
            table: [
                str(row[0])
                for row in self.connection.execute(
                    f"SELECT jsonb_strip_nulls(to_jsonb(t))::text FROM {table} t ORDER BY 1"
                )
            ]
            for table in tables
        }
