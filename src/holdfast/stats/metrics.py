"""What an operator's monitoring reads: every metric, its kind, its sentence and its values.

The rule: names and labels are bounded, so nothing that the web or people write is one: no URL, no domain. Counters are what was counted
since the beginning: they equal the log, never go down and survive every restart. docs/metrics.md lists them all, and a test compares.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Final, Literal

from holdfast import __version__
from holdfast.alerts.rules import Kind as AlertKind
from holdfast.db import stats
from holdfast.db.connection import Database
from holdfast.model.domain import Status
from holdfast.model.histograms import COMMIT_MS, FETCH_MS
from holdfast.model.job import JobState
from holdfast.model.outcome import PAGES, TREATMENT, Outcome, UrlState
from holdfast.model.task import TaskStatus
from holdfast.stats import queries as current_counts
from holdfast.stats.queries import StoreCounts
from holdfast.stats.service import CLASSES, ERRORS, Counters, by_class, success_rate
from holdfast.stats.status import SILENCE, SPAN

MOST_WORKERS: Final = 200
"""With more of them than that no metric names workers; the oldest sign of life and their number are still there."""

_QUEUES: Final = ("maintenance", "notify", "parse")
_CLAIM_ENDS: Final = ("released", "expired", "reclaimed", "forced", "silent", "reset")
_PROXY_STATES: Final = ("active", "failing", "failed", "disabled")
_OTHER: Final = "other"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `suffix` is what stands behind the name of the family: that of a part of a histogram, or nothing."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its whole name as it is read, what it is, a sentence about it, its values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[Sample, ...]


Rest = Mapping[tuple[str, str, str], int]


def collect(database: Database, *, silence: timedelta = SILENCE) -> list[Family]:
    """Every metric, as of now, in the order of docs/metrics.md."""
    with database.session() as connection:
        counters = Counters(stats.counters(connection))
        standing = current_counts.store_counts(connection, silence=silence)
        rest = current_counts.queue_sizes(connection)
    return [
        *_of_the_crawl(counters, standing),
        *_of_requests(counters),
        *_of_claims(counters, standing),
        *_of_work(standing, rest),
        *_of_workers(standing),
        *_of_the_house(standing, rest),
    ]


def _of_the_crawl(counters: Counters, standing: StoreCounts) -> Iterator[Family]:
    pages, requests, errors = counters.of(PAGES), counters.of(frozenset(Outcome)), counters.of(ERRORS)
    success = success_rate(requests.lately, errors.lately)
    statuses = counters.labelled("status")
    pace = pages.lately / SPAN.total_seconds()
    yield _counter("crawler_pages_fetched_total", "Pages that were fetched.", pages.total)
    yield _gauge("crawler_pages_per_second", "Pages a second, in the last minute.", pace)
    yield _gauge(
        "crawler_fetch_success_rate",
        "Share of the last minute's requests that were no errors; not a number if there were none.",
        math.nan if success is None else success,
    )
    yield _by("counter", "crawler_http_status_total", "Answers by their HTTP status.", "code", _codes(statuses))
    classes = by_class(statuses)
    for name in CLASSES:
        yield _counter(f"crawler_http_status_{name}", f"Answers with an HTTP status {name}.", classes[name])
    yield _gauge(
        "crawler_frontier_size", "URLs that wait to be crawled, of jobs that may be worked on.", standing.frontier_size
    )
    yield _counter(
        "crawler_robots_denials",
        "URLs that robots.txt denied, as far as workers have reported it.",
        counters.total("robots_denied"),
    )
    yield _gauge(
        "crawler_active_workers", "Workers that run and were heard of in the last two minutes.", standing.active_workers
    )


def _of_requests(counters: Counters) -> Iterator[Family]:
    asked_for = (str(outcome) for outcome in Outcome if TREATMENT[outcome].state is not UrlState.DENIED)
    outcomes = dict.fromkeys(asked_for, 0) | counters.labelled("outcome")
    yield _counter("holdfast_requests_total", "Requests that came to an end of any kind.", sum(outcomes.values()))
    yield _counter(
        "holdfast_errors_total", "Requests that count as errors of their domains.", counters.of(ERRORS).total
    )
    yield _counter("holdfast_bytes_total", "Bytes of answers.", counters.total("bytes"))
    yield _by("counter", "holdfast_outcomes_total", "Requests by what came of them.", "outcome", outcomes)
    yield _histogram("holdfast_fetch_seconds", "How long requests took.", FETCH_MS, counters, "fetch")


def _of_claims(counters: Counters, standing: StoreCounts) -> Iterator[Family]:
    ends = {why: counters.total("claim", why) for why in _CLAIM_ENDS}
    yield _counter(
        "holdfast_claims_acquired_total", "Domains that workers have claimed.", counters.total("claim", "acquired")
    )
    yield _by("counter", "holdfast_claims_ended_total", "Claims that have ended, by why.", "why", ends)
    yield _gauge("holdfast_claims_held", "Domains that are held now.", standing.held)
    yield _gauge("holdfast_claims_expired", "Domains that are held, and whose lease has ended.", standing.expired)
    yield _gauge(
        "holdfast_oldest_expired_claim_seconds",
        "For how long the lease has ended of the claim that should have been freed first; 0 if there is none.",
        standing.oldest_expired,
    )
    for name, help_ in (
        ("lease_renewals", "Leases that heartbeats have renewed, as far as workers have reported it."),
        ("fenced_writes", "Writes for a domain that the fence refused, as far as workers have reported it."),
        ("commits", "Batches that were committed, as far as workers have reported it."),
    ):
        yield _counter(f"holdfast_{name}_total", help_, counters.total(name))
    yield _histogram(
        "holdfast_commit_seconds",
        "How long commits took, as far as workers have reported it.",
        COMMIT_MS,
        counters,
        "commit",
    )


def _of_work(standing: StoreCounts, rest: Rest) -> Iterator[Family]:
    queued = {(queue, state): rest.get(("queue", queue, state), 0) for queue in _QUEUES for state in ("todo", "doing")}
    due = {phase: rest.get(("task_due", phase, ""), 0) for phase in ("crawl", "parse")}
    yield _by("gauge", "holdfast_domains", "Domains by status.", "status", _every(Status, standing.domains))
    yield _by("gauge", "holdfast_jobs", "Jobs by state.", "state", _every(JobState, standing.jobs))
    yield _by("gauge", "holdfast_tasks", "Tasks by status.", "status", _every(TaskStatus, standing.tasks))
    yield _by("gauge", "holdfast_tasks_due", "Tasks that could be crawled or parsed now.", "phase", due)
    yield Family(
        "holdfast_queue_jobs",
        "gauge",
        "Bells in the queues of the background, by queue and whether somebody is at it.",
        tuple(Sample(n, (("queue", queue), ("state", state))) for (queue, state), n in queued.items()),
    )


def _of_workers(standing: StoreCounts) -> Iterator[Family]:
    heard = standing.workers if len(standing.workers) <= MOST_WORKERS else []
    states = {"active": standing.active_workers, "silent": standing.silent_workers}
    yield _by("gauge", "holdfast_workers", "Workers that should be heard of, by whether they are.", "state", states)
    yield _gauge("holdfast_runs", "Worker processes that say they run.", standing.runs)
    yield _gauge(
        "holdfast_heartbeat_age_max_seconds",
        "How long ago the worker was heard of that was not for the longest time.",
        max((worker.age for worker in standing.workers), default=0.0),
    )
    yield _by(
        "gauge",
        "holdfast_heartbeat_age_seconds",
        f"How long ago each worker was heard of, if there are {MOST_WORKERS} of them at the most.",
        "worker",
        {worker.name: worker.age for worker in heard},
    )


def _of_the_house(standing: StoreCounts, rest: Rest) -> Iterator[Family]:
    proxies = {state: rest.get(("proxy", state, ""), 0) for state in _PROXY_STATES}
    messages = {state: rest.get(("webhook", state, ""), 0) for state in ("waiting", "due", "given_up")}
    yield _by("gauge", "holdfast_proxies", "Proxies by whether they can be used.", "state", proxies)
    yield _by("gauge", "holdfast_webhook_messages", "Messages of the outbox that were not taken.", "state", messages)
    yield _by(
        "gauge", "holdfast_alerts", "Alerts that are firing, by kind.", "kind", _every(AlertKind, standing.alerts)
    )
    yield _gauge("holdfast_database_bytes", "Size of the database.", rest.get(("database_bytes", "", ""), 0))
    yield _gauge("holdfast_fresh_rows", "Rows of figures that nobody has added up yet.", rest.get(("fresh", "", ""), 0))
    yield _gauge(
        "holdfast_tick_age_seconds",
        "How long ago a background has looked for alerts; not a number if none ever has.",
        rest.get(("duty", "alerts", ""), math.nan),
    )
    yield Family("holdfast_build_info", "gauge", "The version that answers.", (Sample(1, (("version", __version__),)),))


# How they are made ----------------------------------------------------------------------------------------------------


def _codes(statuses: Mapping[str, int]) -> dict[str, int]:
    """What servers answered, with one label for whatever is no status of HTTP."""
    codes: dict[str, int] = {}
    for code, count in statuses.items():
        label = code if len(code) == 3 and "1" <= code[0] <= "5" else _OTHER
        codes[label] = codes.get(label, 0) + count
    return codes


def _every(names: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    return dict.fromkeys(map(str, names), 0) | dict(counts)


def _counter(name: str, help_: str, value: float) -> Family:
    return Family(name, "counter", help_, (Sample(value),))


def _gauge(name: str, help_: str, value: float) -> Family:
    return Family(name, "gauge", help_, (Sample(value),))


def _by(kind: Literal["counter", "gauge"], name: str, help_: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(name, kind, help_, tuple(Sample(value, ((label, str(key)),)) for key, value in values.items()))


def _histogram(name: str, help_: str, bounds: Sequence[int], counters: Counters, what: str) -> Family:
    """In seconds, each bucket with all below it, as monitoring reads them."""
    counts = [counters.total(f"{what}_bucket", str(number)) for number in range(len(bounds) + 1)]
    ends = [*(f"{bound / 1000:g}" for bound in bounds), "+Inf"]
    buckets = [Sample(count, (("le", end),), "_bucket") for end, count in zip(ends, accumulate(counts), strict=True)]
    total = Sample(counters.total(f"{what}_ms") / 1000, suffix="_sum")
    return Family(name, "histogram", help_, (*buckets, total, Sample(sum(counts), suffix="_count")))
