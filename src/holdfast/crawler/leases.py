"""The leases of a worker's domains, and the heartbeat that renews them.

The rule: no request starts unless its domain's lease outlasts it, and unless it ends before missing heartbeats let other workers take
the domains over (`db/workers`). Both are measured by a clock that goes on while the process is frozen, from before the renewal or the
heartbeat was sent. A worker that wakes from a freeze must not send anything: no fence can undo a request.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from holdfast import failpoints
from holdfast.crawler.db_thread import DbThread, Outage, StoppedWaiting
from holdfast.db import claims, listen_notify, runs, workers
from holdfast.db.connection import Connection, Database
from holdfast.db.generation import GenerationGuard
from holdfast.errors import NameInUse, Refused, StoreRestored
from holdfast.model.activity import Activity
from holdfast.model.histograms import COMMIT_MS, RunCounts, bucket_index
from holdfast.settings.crawling import REQUESTS_END_SECONDS
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

NAME_ATTEMPTS: Final = 80
"""Attempts to hold the own name again, over 40 s: the server ends the session of a vanished client after 30 s."""
NAME_PATIENCE: Final = 2.0
"""Seconds for which a starting worker tries its name before it takes the next: a sweep briefly holds the name of a dead worker."""
NAME_PAUSE: Final = 0.5
"""Seconds between two attempts to hold the own name again after the connection broke."""
ACTIVITY_SECONDS: Final = 1.0
"""Seconds between two snapshots of the worker's activity; a snapshot is saved if it has changed."""
STOP_POLL: Final = 0.2
"""Seconds between two checks of the stop flag while it listens for notifications."""


Tenure = tuple[int, int]
"""Domain id and epoch: a domain that is claimed again by the same process is another tenure, with another visit."""


class Leases:
    """The tenures of a worker, when their leases end by its own clock, and when its last acknowledged heartbeat was sent. Thread-safe."""

    def __init__(self, clock: Clock, lease: timedelta) -> None:
        self._clock = clock
        self._seconds = lease.total_seconds()
        self._lock = threading.Lock()
        self._until: dict[Tenure, float] = {}
        self._acknowledged_at = clock.now()

    def add(self, held: Iterable[Tenure], asked_at: float) -> None:
        """Add the tenures of a claim that was sent at `asked_at`."""
        with self._lock:
            for tenure in held:
                self._until[tenure] = asked_at + self._seconds

    def renew(self, held: Iterable[Tenure], asked_at: float) -> None:
        """Renew these leases: they run their full time from `asked_at`."""
        with self._lock:
            for tenure in held:
                if tenure in self._until:
                    self._until[tenure] = max(self._until[tenure], asked_at + self._seconds)

    def drop(self, tenure: Tenure) -> None:
        """Remove a tenure that is released or lost."""
        with self._lock:
            self._until.pop(tenure, None)

    def acknowledge(self, sent_at: float) -> None:
        """Record the acknowledgement of a heartbeat that was sent at `sent_at`. Before: the tenures that it found lost were dropped."""
        with self._lock:
            self._acknowledged_at = max(self._acknowledged_at, sent_at)

    def suspend(self) -> None:
        """Forbid requests until a heartbeat is acknowledged."""
        with self._lock:
            self._acknowledged_at = -math.inf

    def seconds_left(self, tenure: Tenure) -> float:
        """Return the seconds for which the claim is certain to last; negative if it may have ended."""
        # without the lock: a single read of a dictionary is atomic
        return min(self._until.get(tenure, 0.0), self._acknowledged_at + REQUESTS_END_SECONDS) - self._clock.now()

    @property
    def may_request(self) -> bool:
        """Whether the last acknowledged heartbeat is recent enough to send requests."""
        return self._acknowledged_at + REQUESTS_END_SECONDS > self._clock.now()

    def tenures(self) -> list[Tenure]:
        """Return all tenures."""
        with self._lock:
            return sorted(self._until)


class RunCounters:
    """The counters of a run that cannot be computed from the rows of the database.

    The rule: each counter is written by one thread, so no lock is needed. The heartbeat saves them as totals; a worker that is killed loses
    what it counted since its last heartbeat.
    """

    def __init__(self) -> None:
        self.lease_renewals = 0
        """Written by the heartbeat."""
        self.fenced_writes = 0
        """Written on the event loop, like the next one."""
        self.robots_denied = 0
        self._commits = 0
        self._commit_seconds = 0.0
        self._latency = [0] * (len(COMMIT_MS) + 1)

    def record_commit(self, seconds: float) -> None:
        """Count a commit with its duration in seconds. Called by the batch writer's thread."""
        self._commits += 1
        self._commit_seconds += seconds
        self._latency[bucket_index(COMMIT_MS, seconds * 1000)] += 1

    def counts(self) -> RunCounts:
        """Return the totals so far."""
        return RunCounts(
            self.lease_renewals,
            self.fenced_writes,
            self.robots_denied,
            self._commits,
            round(self._commit_seconds * 1000),
            tuple(self._latency),
        )


class Heartbeat:
    """A thread that renews leases, records that the run is alive, holds the worker's name, and listens for notifications.

    A thread of its own, because a page that keeps the event loop busy for seconds must not cost the claims.
    """

    def __init__(
        self,
        database: Database,
        leases: Leases,
        clock: Clock,
        *,
        wanted_name: str,
        lease: timedelta,
        interval: timedelta,
        on_lost: Callable[[set[tuple[int, int]]], None],
        on_failure: Callable[[str], None],
        on_notification: Callable[[], None],
        buffered_urls: Callable[[], int],
        counters: RunCounters,
        activity: Callable[[], Activity] = Activity,
        generation: GenerationGuard | None = None,
    ) -> None:
        """`generation`: that of the worker's connections; the store must stay in it."""
        self._db = DbThread(database, "heartbeat")
        self._generation = generation
        self._leases = leases
        self._clock = clock
        self._lease = lease
        self._interval = min(interval.total_seconds(), lease.total_seconds() / 3)
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._on_notification = on_notification
        self._buffered_urls = buffered_urls
        self._counters = counters
        self._activity = activity
        self._written_fingerprint: tuple[object, ...] = ()
        """Fingerprint of the activity that was last saved."""
        self._next_activity_write = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._wanted_name = wanted_name
        self._started_at = 0.0
        """When the name was asked for first."""
        self._held_on: Connection | None = None
        self.name = ""
        self.run_id = 0

    @property
    def last_outage(self) -> Outage | None:
        """The last time in which the database did not answer, if that is over."""
        return self._db.last_outage

    def take_name(self, *, alone: bool) -> workers.Identity:
        """Hold the wanted name, or the next free one. Before: not started. Raises Refused where another worker excludes this one."""
        asked_at, identity = self._db.run(self._hold_first, alone=alone)
        self._leases.acknowledge(asked_at)  # it holds nothing yet
        self.name = identity.name
        self._alone = alone
        return identity

    def _hold_first(self, connection: Connection, *, alone: bool) -> tuple[float, workers.Identity]:
        asked_at = self._started_at = self._clock.now()
        return asked_at, self._hold(connection, wanted_name=self._wanted_name, alone=alone, patience=NAME_PATIENCE)

    def _hold(
        self, connection: Connection, *, wanted_name: str, alone: bool, patience: float = 0.0, only: bool = False
    ) -> workers.Identity:
        workers.acquire_worker_lock(connection, exclusive=alone)
        identity = workers.acquire_name(
            connection, wanted_name, timeout=patience, exact=only, running_for=self._clock.now() - self._started_at
        )
        listen_notify.listen(connection)
        self._held_on = connection
        self._written_fingerprint = Activity().fingerprint(0.0)
        return identity

    def _hold_again(self, connection: Connection) -> None:
        """Hold the own name on a new session; retry while the server still has the old one. Until then no request is sent: the session
        that has the name may be that of another worker, which has reclaimed our domains."""
        for _ in range(NAME_ATTEMPTS):
            try:
                self._hold(connection, wanted_name=self.name, alone=self._alone, only=True)
            except (Refused, NameInUse):
                self._leases.suspend()
                self._held_on = None
                if self._stop.wait(NAME_PAUSE):
                    break
            else:
                return
        raise NameInUse(f"While the database was away another worker took the name {self.name}.")

    def start(self, run_id: int) -> None:
        """Start the thread for this run."""
        self.run_id = run_id
        self._thread.start()

    def stop(self) -> None:
        """Stop. After: no more heartbeats, the name is free, and the worker is deregistered, if the database answers."""
        self._stop.set()
        self._db.give_up()
        if self._thread.is_alive():
            self._thread.join()
        if self._held_on is not None and not self._db.unavailable:
            with suppress(
                Exception
            ):  # it would be taken for dead: its share of the work is others' in two minutes, not now
                workers.deregister(self._held_on, self.name)
        self._db.close()

    def _beat(self) -> None:
        due = time.monotonic() + self._interval
        while not self._stop.is_set():
            try:
                if due > time.monotonic():
                    self._db.run(self._listen, min(due - time.monotonic(), STOP_POLL))
                    continue
                due = time.monotonic() + self._interval
                self._db.run(self._beat_once)
            except StoppedWaiting:
                return
            except StoreRestored as problem:
                self._leases.suspend()
                self._on_failure(str(problem))
                return
            except Exception as problem:
                # Without a heartbeat the leases end; better to shut down in order with the reason.
                log.exception("the heartbeat failed")
                self._on_failure(f"The heartbeat failed: {problem}")
                return

    def _listen(self, connection: Connection, seconds: float) -> None:
        if self._ensure_name(connection):
            self._renew(connection)
        if listen_notify.wait(connection, seconds):
            self._on_notification()
        if time.monotonic() >= self._next_activity_write:
            self._next_activity_write = time.monotonic() + ACTIVITY_SECONDS
            self._write_activity(connection)

    def _write_activity(self, connection: Connection) -> None:
        """Save the worker's activity if it has changed. An error in the snapshot costs the display, and no lease."""
        try:
            activity = self._activity()
            fingerprint = activity.fingerprint(self._clock.now())
        except Exception:
            log.exception("the snapshot of the worker's activity failed")
            return
        if fingerprint != self._written_fingerprint and workers.save_activity(connection, self.name, activity):
            self._written_fingerprint = fingerprint

    def _ensure_name(self, connection: Connection) -> bool:
        """Hold the name on this connection; return whether it had to be taken again, so that tenures may be lost."""
        if connection is self._held_on:
            return False
        # The name is bound to the session. If another worker has it now, it has our claims, too.
        self._hold_again(connection)
        self._on_notification()  # notices sent meanwhile were not delivered to us
        return True

    def _beat_once(self, connection: Connection) -> None:
        self._ensure_name(connection)
        self._renew(connection)

    def _renew(self, connection: Connection) -> None:
        """Renew the leases, drop lost tenures, then record the acknowledgement. Before: the name is held, so nothing is taken over."""
        held = self._leases.tenures()
        asked_at = self._clock.now()
        renewal = claims.renew(connection, worker=self.name, held=held, lease=self._lease)
        failpoints.reach("in_heartbeat")
        self._leases.renew((tenure for tenure in held if tenure[0] in renewal.renewed), asked_at)
        self._counters.lease_renewals += len(renewal.renewed)
        # A tenure that was released during the renewal is not lost; its domain may be held again, under a later epoch.
        lost = {pair for pair in held if pair[0] in renewal.lost} & set(self._leases.tenures())
        if lost:
            log.warning("lost %d domains: their leases ended, or they were taken over", len(lost))
            for tenure in lost:
                self._leases.drop(tenure)  # before the acknowledgement, which would allow requests to them
            self._on_lost(lost)
        generation = self._generation
        if runs.heartbeat(
            connection,
            self.run_id,
            in_window=self._buffered_urls(),
            counts=self._counters.counts(),
            generation=None if generation is None else generation.number,
        ):
            self._leases.acknowledge(asked_at)
        elif generation is not None:
            generation.check(connection)
