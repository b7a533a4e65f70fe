"""What workers do to the frontier, by the product's own functions and timed: hold domains, insert what was found, take and settle.

The rule: only calls of the product are timed. What a worker has in memory anyway (found URLs, outcomes) is made before the clock runs.
"""

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg

from benchmarks.scale.fill import DEPTH, PAGE, PRIORITY, Place
from benchmarks.scale.progress import Step
from holdfast.db import claims, commit, frontier, release, runs
from holdfast.db.domains import NewDomains
from holdfast.model.commit_batch import (
    CommitBatch,
    DiscoveredUrl,
    FrontierItem,
    PageRow,
    PolitenessClocks,
    UrlOutcome,
    VisitPart,
)
from holdfast.model.domain import Claim
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.url import url_key
from holdfast.model.visit_report import VisitEnd
from holdfast.politeness.retry import CooldownPolicy
from holdfast.settings import Cooldown, Settings

WORKER = "benchmark"
LEASE = timedelta(hours=6)
"""Nobody renews here."""
SETTINGS = Settings()
HELD = SETTINGS.worker.domains
WINDOW = SETTINGS.worker.window
OUTCOMES = SETTINGS.flush.pages
"""Of a commit."""
FOUND = 2000
"""URLs that a commit brings, on up to `PARTS` domains; every other one is known."""
PARTS = 100

_HELD = """
SELECT d.id, d.base_url, jd.discovered FROM domains d JOIN job_domains jd ON jd.domain_id = d.id WHERE d.id = ANY(%s)
"""


@dataclass
class Visit:
    """A domain that is held."""

    claim: Claim
    origin: str
    known: int
    """Its URLs are numbered: those from 1 to this are in the frontier."""
    window: list[FrontierItem] = field(default_factory=list)


@dataclass
class Worker:
    """One that holds domains and commits batches, as fast as it can."""

    place: Place
    connection: psycopg.Connection
    run_id: int
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    visits: list[Visit] = field(default_factory=list)

    @classmethod
    def begin(cls, place: Place, connection: psycopg.Connection) -> "Worker":
        """A new run."""
        return cls(place, connection, runs.begin(connection, worker=WORKER, job_id=place.job_id))

    def hold(self, count: int) -> list[Visit]:
        """Claim that many more domains."""
        taken: list[Claim] = []
        while len(taken) < count:
            wanted = min(count - len(taken), SETTINGS.claims.batch)
            got = claims.claim(self.connection, worker=WORKER, job_id=self.place.job_id, count=wanted, lease=LEASE)
            if not got:
                break
            taken += got
        facts = {row[0]: row[1:] for row in self.connection.execute(_HELD, ([claim.domain_id for claim in taken],))}
        # One of them is the home page, which has no number.
        visits = [Visit(claim, facts[claim.domain_id][0], facts[claim.domain_id][1] - 1) for claim in taken]
        self.visits += visits
        return visits

    def insert(self, visits: Sequence[Visit], commits: int) -> tuple[int, float]:
        """Commits of found URLs; how many were new, and the seconds."""
        new, seconds = 0, 0.0
        for number in range(commits):
            some = _in_turn(visits, number)
            parts = [self._part(visit, found=list(self._found(visit, FOUND // len(some)))) for visit in some]
            seconds += self._commit(parts)
            new += FOUND // len(some) // 2 * len(some)
        return new, seconds

    def _found(self, visit: Visit, count: int) -> Iterator[DiscoveredUrl]:
        parent, before = url_key(f"{visit.origin}/"), visit.known
        visit.known += count // 2
        for number in range(before + 1, visit.known + 1):
            yield self._url(visit, number, parent)
            yield self._url(visit, self.chance.randint(1, visit.known), parent)

    def _url(self, visit: Visit, number: int, parent: bytes) -> DiscoveredUrl:
        url = visit.origin + PAGE.format(number)
        return DiscoveredUrl(self.place.job_id, url_key(url), url, DEPTH, PRIORITY, parent)

    def take(self, visits: Sequence[Visit], besides: Sequence[bytes] = ()) -> float:
        """Fill the windows; the seconds."""
        began = time.perf_counter()
        for visit in visits:
            domain_id = visit.claim.domain_id
            visit.window = frontier.take(
                self.connection, domain_id=domain_id, job_id=self.place.job_id, count=WINDOW, exclude=besides
            ).urls
        return time.perf_counter() - began

    def settle(self, visits: Sequence[Visit]) -> tuple[int, float]:
        """Commits of pages, a few domains' at a time, until the windows are empty; how many, and the seconds."""
        pages, seconds = 0, 0.0
        for parts in self._batches(visits):
            seconds += self._commit(parts)
            pages += sum(len(part.outcomes) for part in parts)
        return pages, seconds

    def _batches(self, visits: Sequence[Visit]) -> Iterator[list[VisitPart]]:
        """Outcomes as they come in when all domains are crawled at the same pace."""
        turns = [
            (visit, waiting) for rank in range(WINDOW) for visit in visits for waiting in visit.window[rank : rank + 1]
        ]
        for first in range(0, len(turns), OUTCOMES):
            parts: dict[int, VisitPart] = {}
            for visit, waiting in turns[first : first + OUTCOMES]:
                part = parts.setdefault(visit.claim.domain_id, self._part(visit))
                part.outcomes.append(self._outcome(waiting))
            yield list(parts.values())

    def _part(self, visit: Visit, found: list[DiscoveredUrl] | None = None) -> VisitPart:
        clocks = PolitenessClocks(next_request_in=1.0, response_ms=120.0, best_response_ms=90.0)
        return VisitPart(visit.claim.domain_id, visit.claim.epoch, [], found or [], clocks, 0)

    def _outcome(self, waiting: FrontierItem) -> UrlOutcome:
        """A page as they are: some kilobytes of HTML with a title, a description and a validator."""
        digest = hashlib.sha256(waiting.url_key).digest()
        page = PageRow(
            200,
            "text/html; charset=utf-8",
            content_length=24_000,
            content_hash=digest,
            title="On the keeping of places, and of the pages that are kept there",
            description="Whoever goes away and means to come back leaves a mark. This page is about marks, and how long they last.",
            canonical=waiting.url,
            charset="utf-8",
            links_count=60,
            images_count=8,
            etag=f'"{digest.hex()[:24]}"',
            last_modified="Mon, 01 Jan 2024 00:00:00 GMT",
            archive=ArchiveRef("20260101/benchmark-000001.warc.gz", self.chance.randrange(1 << 30), 6_000, digest),
        )
        return UrlOutcome(
            self.place.job_id,
            waiting.url_key,
            waiting.url,
            waiting.depth,
            Outcome.OK,
            UrlState.DONE,
            attempts=1,
            status=200,
            duration_ms=120,
            bytes=24_000,
            images_found=8,
            page=page,
        )

    def _commit(self, parts: list[VisitPart]) -> float:
        began = time.perf_counter()
        done = commit.commit(
            self.connection,
            self.place.database.connect,
            worker=WORKER,
            batch=CommitBatch(self.run_id, parts),
            lease=LEASE,
            defaults=NewDomains(),
        )
        seconds = time.perf_counter() - began
        assert not done.refused
        expected = sum(len(part.found) // 2 for part in parts)
        assert sum(growth.added for growth in done.growth.values()) == expected, (done.growth, expected)
        return seconds

    def end(self, here: Step) -> None:
        """Let go of everything."""
        cooldown = CooldownPolicy(Cooldown(), max_block_retries=3, rng=self.chance)
        for number, visit in enumerate(self.visits, 1):
            ending = VisitEnd(visit.claim.domain_id, visit.claim.epoch)
            release.release(self.connection, worker=WORKER, ending=ending, cooldown=cooldown)
            here.part = number / len(self.visits)
        runs.end(self.connection, self.run_id, error=None)


def _in_turn(visits: Sequence[Visit], number: int) -> list[Visit]:
    """The next `PARTS` of them, from the beginning again after the last."""
    count = min(PARTS, len(visits))
    return [visits[(number * count + place) % len(visits)] for place in range(count)]
