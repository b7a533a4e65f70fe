"""Prometheus metrics: the name, kind, help text and values of each.

The rule: names and labels are bounded, so no text from the web or from users is a label: no URL, no domain. Counters count from the
beginning: they equal the log, never go down and survive every restart. docs/metrics.md lists all metrics, and a test compares.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Final, Literal

from holdfast import __version__
from holdfast.alerts.records import Kind as AlertKind
from holdfast.db import stats
from holdfast.db.connection import Database
from holdfast.model.domain import Status
from holdfast.model.histograms import COMMIT_MS, FETCH_MS
from holdfast.model.job import JobState
from holdfast.model.outcome import PAGES, TREATMENT, Outcome, UrlState
from holdfast.model.task import TaskStatus
from holdfast.stats import queries
from holdfast.stats.queries import StoreCounts
from holdfast.stats.records import RATE_SPAN, SILENCE
from holdfast.stats.service import CLASSES, ERRORS, Counters, by_class, success_rate

MAX_WORKERS: Final = 200
"""With more workers than this no metric has a label for each; the age of the oldest heartbeat and their number remain."""

_QUEUES: Final = ("maintenance", "notify", "parse")
_CLAIM_ENDS: Final = ("released", "expired", "reclaimed", "forced", "silent", "reset")
_PROXY_STATES: Final = ("active", "failing", "failed", "disabled")
_OTHER: Final = "other"

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `suffix` follows the name of the family in the parts of a histogram."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its full name, its kind, its help text, its values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[Sample, ...]


QueueSizes = Mapping[tuple[str, str, str], int]
"""As `queries.queue_sizes` returns them."""


def collect(database: Database, *, silence: timedelta = SILENCE) -> list[Family]:
    """Return all metrics as of now, in the order of docs/metrics.md."""
    with database.session() as connection:
        counters = Counters(stats.counters(connection))
        counts = queries.store_counts(connection, silence=silence)
        sizes = queries.queue_sizes(connection)
    return [
        *_of_the_crawl(counters, counts),
        *_of_requests(counters),
        *_of_claims(counters, counts),
        *_of_work(counts, sizes),
        *_of_workers(counts),
        *_of_the_store(counts, sizes),
    ]


def _of_the_crawl(counters: Counters, counts: StoreCounts) -> Iterator[Family]:
    pages, requests, errors = counters.of(PAGES), counters.of(frozenset(Outcome)), counters.of(ERRORS)
    success = success_rate(requests.lately, errors.lately)
    statuses = counters.labelled("status")
    rate = pages.lately / RATE_SPAN.total_seconds()
    yield _counter("crawler_pages_fetched_total", "Pages that were fetched.", pages.total)
    yield _gauge("crawler_pages_per_second", "Pages per second in the last minute.", rate)
    yield _gauge(
        "crawler_fetch_success_rate",
        "Share of the last minute's requests that were no errors; NaN if there were none.",
        math.nan if success is None else success,
    )
    yield _by("counter", "crawler_http_status_total", "Responses by HTTP status.", "code", _codes(statuses))
    classes = by_class(statuses)
    for name in CLASSES:
        yield _counter(f"crawler_http_status_{name}", f"Responses with an HTTP status {name}.", classes[name])
    yield _gauge("crawler_frontier_size", "URLs that wait, of jobs that workers may serve.", counts.frontier_size)
    yield _counter(
        "crawler_robots_denials",
        "URLs that robots.txt denied, as far as workers have reported it.",
        counters.total("robots_denied"),
    )
    yield _gauge(
        "crawler_active_workers", "Running workers with a heartbeat in the last two minutes.", counts.active_workers
    )


def _of_requests(counters: Counters) -> Iterator[Family]:
    fetched = (str(outcome) for outcome in Outcome if TREATMENT[outcome].state is not UrlState.DENIED)
    outcomes = dict.fromkeys(fetched, 0) | counters.labelled("outcome")
    yield _counter("holdfast_requests_total", "Requests that have ended, with any outcome.", sum(outcomes.values()))
    yield _counter(
        "holdfast_errors_total", "Requests that count as errors of their domains.", counters.of(ERRORS).total
    )
    yield _counter("holdfast_bytes_total", "Bytes of responses.", counters.total("bytes"))
    yield _by("counter", "holdfast_outcomes_total", "Requests by outcome.", "outcome", outcomes)
    yield _histogram("holdfast_fetch_seconds", "Duration of requests.", FETCH_MS, counters, "fetch")


def _of_claims(counters: Counters, counts: StoreCounts) -> Iterator[Family]:
    ends = {why: counters.total("claim", why) for why in _CLAIM_ENDS}
    yield _counter(
        "holdfast_claims_acquired_total", "Domains that workers have claimed.", counters.total("claim", "acquired")
    )
    yield _by("counter", "holdfast_claims_ended_total", "Claims that have ended, by reason.", "why", ends)
    yield _gauge("holdfast_claims_held", "Domains that are held now.", counts.held)
    yield _gauge("holdfast_claims_expired", "Domains that are held and whose lease has ended.", counts.expired)
    yield _gauge(
        "holdfast_oldest_expired_claim_seconds",
        "Time since the oldest expired lease ended; 0 if there is none.",
        counts.oldest_expired,
    )
    for name, help_ in (
        ("lease_renewals", "Leases that heartbeats have renewed, as far as workers have reported it."),
        ("fenced_writes", "Writes for a domain that the fence refused, as far as workers have reported it."),
        ("commits", "Batches that were committed, as far as workers have reported it."),
    ):
        yield _counter(f"holdfast_{name}_total", help_, counters.total(name))
    yield _histogram(
        "holdfast_commit_seconds",
        "Duration of commits, as far as workers have reported it.",
        COMMIT_MS,
        counters,
        "commit",
    )


def _of_work(counts: StoreCounts, sizes: QueueSizes) -> Iterator[Family]:
    queued = {(queue, state): sizes.get(("queue", queue, state), 0) for queue in _QUEUES for state in ("todo", "doing")}
    due = {phase: sizes.get(("task_due", phase, ""), 0) for phase in ("crawl", "parse")}
    yield _by("gauge", "holdfast_domains", "Domains by status.", "status", _every(Status, counts.domains))
    yield _by("gauge", "holdfast_jobs", "Jobs by state.", "state", _every(JobState, counts.jobs))
    yield _by("gauge", "holdfast_tasks", "Tasks by status.", "status", _every(TaskStatus, counts.tasks))
    yield _by("gauge", "holdfast_tasks_due", "Tasks that could be crawled or parsed now.", "phase", due)
    yield Family(
        "holdfast_queue_jobs",
        "gauge",
        "Jobs in the queues of the background, by queue and state.",
        tuple(Sample(n, (("queue", queue), ("state", state))) for (queue, state), n in queued.items()),
    )


def _of_workers(counts: StoreCounts) -> Iterator[Family]:
    heard = counts.workers if len(counts.workers) <= MAX_WORKERS else []
    states = {"active": counts.active_workers, "silent": counts.silent_workers}
    yield _by(
        "gauge",
        "holdfast_workers",
        "Workers that run or hold domains, by whether they send heartbeats.",
        "state",
        states,
    )
    yield _gauge("holdfast_runs", "Worker processes that are marked as running.", counts.runs)
    yield _gauge(
        "holdfast_heartbeat_age_max_seconds",
        "Age of the oldest last heartbeat of all workers.",
        max((worker.age for worker in counts.workers), default=0.0),
    )
    yield _by(
        "gauge",
        "holdfast_heartbeat_age_seconds",
        f"Age of the last heartbeat of each worker, if there are at most {MAX_WORKERS} workers.",
        "worker",
        {worker.name: worker.age for worker in heard},
    )


def _of_the_store(counts: StoreCounts, sizes: QueueSizes) -> Iterator[Family]:
    proxies = {state: sizes.get(("proxy", state, ""), 0) for state in _PROXY_STATES}
    messages = {state: sizes.get(("webhook", state, ""), 0) for state in ("waiting", "due", "given_up")}
    yield _by("gauge", "holdfast_proxies", "Proxies by state.", "state", proxies)
    yield _by(
        "gauge", "holdfast_webhook_messages", "Messages of the outbox that were not delivered.", "state", messages
    )
    yield _by("gauge", "holdfast_alerts", "Alerts that are firing, by kind.", "kind", _every(AlertKind, counts.alerts))
    yield _gauge("holdfast_database_bytes", "Size of the database.", sizes.get(("database_bytes", "", ""), 0))
    yield _gauge("holdfast_fresh_rows", "Rows of statistics that are not folded yet.", sizes.get(("fresh", "", ""), 0))
    yield _gauge(
        "holdfast_tick_age_seconds",
        "Time since a background process last checked for alerts; NaN if none has.",
        sizes.get(("duty", "alerts", ""), math.nan),
    )
    yield Family(
        "holdfast_build_info", "gauge", "The version of this server.", (Sample(1, (("version", __version__),)),)
    )


# Construction ----------------------------------------------------------------------------------------------------


def _codes(statuses: Mapping[str, int]) -> dict[str, int]:
    """Count responses by HTTP status; invalid codes share one label."""
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
    """A histogram in seconds; each bucket includes all below it, as Prometheus reads them."""
    counts = [counters.total(f"{what}_bucket", str(number)) for number in range(len(bounds) + 1)]
    ends = [*(f"{bound / 1000:g}" for bound in bounds), "+Inf"]
    buckets = [Sample(count, (("le", end),), "_bucket") for end, count in zip(ends, accumulate(counts), strict=True)]
    total = Sample(counters.total(f"{what}_ms") / 1000, suffix="_sum")
    return Family(name, "histogram", help_, (*buckets, total, Sample(sum(counts), suffix="_count")))
