"""The selection of URLs to retry: by name, or by reason, state and domain.

The rule: it is made before anything is changed, and says what is left out and why. `jobs/queries/retries` does it, a chunk at a time.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from shlex import quote
from typing import Final

from holdfast.db import jobs
from holdfast.db.connection import Connection
from holdfast.errors import Refused, UsageError
from holdfast.frontier.records import NotRetried, Retried
from holdfast.jobs.queries import retries as retry_queries
from holdfast.jobs.queries.retries import CHUNK, COUNTED, Matching
from holdfast.model.domain import Event
from holdfast.model.job import Job, JobState
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.url_reason import NOT_RETRIED, RETRIED, check_code, codes_of, state_of

ENDED_JOBS: Final = (JobState.COMPLETED, JobState.FAILED)
_LIFTED: Final = {Outcome.ROBOTS_DENIED: Event.ROBOTS_DENIED, Outcome.LOGIN_WALL: Event.LOGIN_REQUIRED}
"""Blocks that a retry of URLs with the same reason ends."""
_UNKNOWN: Final = "unknown"
_WAITING: Final = "waiting"
_NOT_SELECTED: Final = {
    _UNKNOWN: "the job does not know it; `holdfast crawl URL --job NAME` adds it",
    _WAITING: "it waits already",
}


def why_not_retried(code: str, job: str) -> str:
    """Return what to do instead of a retry, as the end of a sentence; `job`: its name."""
    return (_NOT_SELECTED.get(code) or NOT_RETRIED[code]).replace("NAME", quote(job))


def retried_codes(job: str, reason: str | None, state: UrlState | None) -> frozenset[str]:
    """Return the codes of the reasons that a retry by reason or state takes. Raises UsageError, Refused."""
    if reason is None:
        if state is UrlState.WAITING:
            raise UsageError("URLs that wait need no retry: name the state failed, denied or done, or a reason.")
        return codes_of(state or UrlState.FAILED)
    check_code(reason)
    if reason in NOT_RETRIED:
        raise Refused(f"URLs of the reason {reason} are not retried: {why_not_retried(reason, job)}.")
    if state is not None and state is not state_of(reason):
        raise UsageError(f"URLs of the reason {reason} are {state_of(reason)}, not {state}.")
    return frozenset({reason})


@dataclass(frozen=True, slots=True)
class RetrySelection:
    """URLs of a job to retry."""

    job: Job
    found: Matching
    reasons: frozenset[str]
    """The codes of their reasons."""
    domain_id: int | None = None
    keys: tuple[tuple[int, bytes], ...] | None = None
    """Single URLs, by domain and key; None: all of these reasons."""
    left_out: list[NotRetried] = field(default_factory=list)

    @classmethod
    def of_reasons(
        cls,
        connection: Connection,
        job: Job,
        reasons: Collection[str],
        domain_id: int | None,
        within: timedelta | None = None,
    ) -> "RetrySelection":
        """Select the URLs of a job that ended for one of these reasons. They are counted `within` that time, or estimated."""
        found = retry_queries.count(connection, job.id, reasons, domain_id, within=within)
        return cls(job, found, frozenset(reasons), domain_id)

    @classmethod
    def of_urls(cls, connection: Connection, job: Job, urls: Sequence[tuple[str, str, bytes]]) -> "RetrySelection":
        """Select single URLs, each with the name of its domain and its key."""
        by_key = {key: url for url, _, key in urls}
        known = retry_queries.known_urls(connection, job.id, [(name, key) for _, name, key in urls])
        codes = dict.fromkeys(by_key, _UNKNOWN)
        codes |= {
            one.url_key: _WAITING if one.state is UrlState.WAITING else one.reason or str(Outcome.OK) for one in known
        }
        keys = sorted((one.domain_id, one.url_key) for one in known if codes[one.url_key] in RETRIED)
        chosen = Counter(codes[key] for _, key in keys)
        found = Matching(len(keys), len({domain_id for domain_id, _ in keys}), dict(chosen.most_common()))
        others = Counter(code for code in codes.values() if code not in RETRIED)
        left_out = [
            NotRetried(
                code,
                count,
                next(by_key[key] for key, of in codes.items() if of == code),
                why_not_retried(code, job.name),
            )
            for code, count in others.most_common()
        ]
        return cls(job, found, frozenset(chosen), keys=tuple(keys), left_out=left_out)

    def domains_after(self, connection: Connection, after: int) -> list[int]:
        """Return the next domains after the id `after` on which there are URLs to retry."""
        if self.keys is not None:
            return sorted({domain_id for domain_id, _ in self.keys if domain_id > after})[:CHUNK]
        return retry_queries.domains_to_retry(connection, self.job.id, self.reasons, self.domain_id, after=after)

    def retry_on(self, connection: Connection, domain_ids: Sequence[int]) -> bool:
        """Retry the URLs on these domains; returns whether the job was reopened."""
        own = set(domain_ids)
        return retry_queries.retry_chunk(
            connection,
            self.job.id,
            domain_ids,
            self.reasons,
            keys=[key for key in self.keys or () if key[0] in own],
            why=f"{self._count()} retried",
        )

    def answer(self, connection: Connection, *, dry_run: bool) -> Retried:
        """Return what is retried, what is left out, and what keeps it waiting."""
        job, notes = self.job, list[str]()
        lifted = [_LIFTED[code] for code in _LIFTED if code in self.reasons]
        if self.found.urls and (stopped := retry_queries.blocked(connection, job.id, self.domain_id, lifted=lifted)):
            example, count = stopped
            where = f"{example} is blocked" if count == 1 else f"{example} and {count - 1:,} more domains are blocked"
            notes.append(
                f"{where}: URLs there wait until the block ends; `holdfast domains unblock {example}` ends it."
            )
        state = jobs.state(connection, job.id)
        if state is JobState.PAUSED:
            notes.append(
                f"Job {job.name} is paused: they wait; `holdfast jobs resume {quote(job.name)}` goes on with it."
            )
        return Retried(
            job_id=job.id,
            job=job.name,
            dry_run=dry_run,
            urls=self.found.urls if self.found.estimated else min(self.found.urls, COUNTED),
            more=self.found.urls > COUNTED and not self.found.estimated,
            domains=self.found.domains,
            by_reason=dict(self.found.by_reason),
            left_out=self.left_out,
            notes=notes,
            estimated=self.found.estimated,
        )

    def _count(self) -> str:
        if self.found.estimated:
            return f"about {self.found.urls:,} URLs were"
        if self.found.urls > COUNTED:
            return f"more than {COUNTED:,} URLs were"
        return "1 URL was" if self.found.urls == 1 else f"{self.found.urls:,} URLs were"
