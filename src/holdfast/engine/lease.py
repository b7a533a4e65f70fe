"""How long a worker may act on its domains, and the heartbeat that keeps them.

The rule: no request begins unless its domain's lease outlasts it, and unless it ends before the silence of this worker lets others
take its domains over (`store/workers`). Both are counted by a clock that goes on while the process is frozen, from before the renewal
or the heartbeat was sent. A worker that wakes from a freeze must not even ask: no fence can undo a request.
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
from holdfast.engine.desk import Away, Desk
from holdfast.engine.tally import Tally
from holdfast.errors import NameInUse, Refused
from holdfast.model.activity import Activity
from holdfast.settings.crawling import REQUESTS_END
from holdfast.store import claims, notices, runs, workers
from holdfast.store.connect import Connection, Database
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

NAME_ATTEMPTS: Final = 80
"""For 40 s: the server ends a session whose client vanished after 30 s."""
NAME_PATIENCE: Final = 2.0
"""Seconds for which a starting worker tries its name before it takes another: a sweep holds the name of a dead worker for a moment."""
NAME_PAUSE: Final = 0.5
"""Seconds between two attempts to hold the own name again after the connection broke."""
TELL_EVERY: Final = 1.0
"""Seconds between two looks at what the worker does; it is written down where that has changed."""
STOP_LOOK: Final = 0.2
"""Seconds between two looks at whether it is to stop, while it listens to the database."""


Tenure = tuple[int, int]
"""Domain id and epoch: a domain that comes back to the same process is another tenure, with another visit."""


class Leases:
    """What is held, until when by our own clock, and when the store last heard of this worker. Used by several threads."""

    def __init__(self, clock: Clock, lease: timedelta) -> None:
        self._clock = clock
        self._seconds = lease.total_seconds()
        self._lock = threading.Lock()
        self._until: dict[Tenure, float] = {}
        self._heard = clock.now()

    def begin(self, held: Iterable[Tenure], asked_at: float) -> None:
        """What a claim that was asked for at `asked_at` has got."""
        with self._lock:
            for tenure in held:
                self._until[tenure] = asked_at + self._seconds

    def renewed(self, held: Iterable[Tenure], asked_at: float) -> None:
        """These leases are full again, counted from `asked_at`."""
        with self._lock:
            for tenure in held:
                if tenure in self._until:
                    self._until[tenure] = max(self._until[tenure], asked_at + self._seconds)

    def drop(self, tenure: Tenure) -> None:
        """It is released or lost."""
        with self._lock:
            self._until.pop(tenure, None)

    def heard(self, sent_at: float) -> None:
        """A heartbeat that was sent at `sent_at` was acknowledged, and what it found lost was dropped."""
        with self._lock:
            self._heard = max(self._heard, sent_at)

    def silence(self) -> None:
        """Nothing may be asked for until a heartbeat is acknowledged."""
        with self._lock:
            self._heard = -math.inf

    def left(self, tenure: Tenure) -> float:
        """Seconds for which the claim is certain to last; negative if it may have ended."""
        # without the lock: one look into a dictionary is whole
        return min(self._until.get(tenure, 0.0), self._heard + REQUESTS_END) - self._clock.now()

    @property
    def speaks(self) -> bool:
        """Whether the store has heard of this worker lately enough for it to ask for anything."""
        return self._heard + REQUESTS_END > self._clock.now()

    def all(self) -> list[Tenure]:
        """Everything that is held."""
        with self._lock:
            return sorted(self._until)


class Heartbeat:
    """A thread that renews leases, says that the run lives, holds the worker's name, and hears what the database tells.

    A thread of its own, because a page that keeps the event loop busy for seconds must not cost the claims.
    """

    def __init__(
        self,
        database: Database,
        leases: Leases,
        clock: Clock,
        *,
        wanted: str,
        lease: timedelta,
        every: timedelta,
        lost: Callable[[set[tuple[int, int]]], None],
        doomed: Callable[[str], None],
        rung: Callable[[], None],
        in_window: Callable[[], int],
        tally: Tally,
        activity: Callable[[], Activity] = Activity,
    ) -> None:
        self._desk = Desk(database, "heartbeat")
        self._leases = leases
        self._clock = clock
        self._lease = lease
        self._every = min(every.total_seconds(), lease.total_seconds() / 3)
        self._lost = lost
        self._doomed = doomed
        self._rung = rung
        self._in_window = in_window
        self._tally = tally
        self._activity = activity
        self._told: tuple[object, ...] = ()
        """Of the activity that is in the store."""
        self._tell_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._wanted = wanted
        self._held_on: Connection | None = None
        self.name = ""
        self.run_id = 0

    def take_name(self, *, alone: bool) -> workers.Identity:
        """Hold the wanted name, or the next free one. Before: not started. Raises Refused where another worker forbids it."""
        asked_at, identity = self._desk.run(self._hold_first, alone=alone)
        self._leases.heard(asked_at)  # it holds nothing yet
        self.name = identity.name
        self._alone = alone
        return identity

    def _hold_first(self, connection: Connection, *, alone: bool) -> tuple[float, workers.Identity]:
        asked_at = self._clock.now()
        return asked_at, self._hold(connection, wanted=self._wanted, alone=alone, patience=NAME_PATIENCE)

    def _hold(
        self, connection: Connection, *, wanted: str, alone: bool, patience: float = 0.0, only: bool = False
    ) -> workers.Identity:
        workers.share(connection, alone=alone)
        identity = workers.hold_name(connection, wanted, patience=patience, only=only)
        notices.listen(connection)
        self._held_on = connection
        self._told = Activity().fingerprint(0.0)
        return identity

    def _hold_again(self, connection: Connection) -> None:
        """The server may not have noticed yet that our old session is gone: it is asked for a while. Until then nothing is asked of
        sites, since the session that has the name may be a twin's, which has taken our claims back."""
        for _ in range(NAME_ATTEMPTS):
            try:
                self._hold(connection, wanted=self.name, alone=self._alone, only=True)
            except (Refused, NameInUse):
                self._leases.silence()
                self._held_on = None
                if self._stop.wait(NAME_PAUSE):
                    break
            else:
                return
        raise NameInUse(f"While the database was away another worker took the name {self.name}.")

    def start(self, run_id: int) -> None:
        """Begin to beat for this run."""
        self.run_id = run_id
        self._thread.start()

    def stop(self) -> None:
        """After: it beats no more, the name is free, and the store knows that the worker has ended, if it can be told."""
        self._stop.set()
        self._desk.give_up()
        if self._thread.is_alive():
            self._thread.join()
        if self._held_on is not None and not self._desk.away:
            with suppress(
                Exception
            ):  # it would be taken for dead: its share of the work is others' in two minutes, not now
                workers.deregister(self._held_on, self.name)
        self._desk.close()

    def _beat(self) -> None:
        due = time.monotonic() + self._every
        while not self._stop.is_set():
            try:
                if due > time.monotonic():
                    self._desk.run(self._listen, min(due - time.monotonic(), STOP_LOOK))
                    continue
                due = time.monotonic() + self._every
                self._desk.run(self._once)
            except Away:
                return
            except Exception as problem:
                # Without a heartbeat the leases end; better to stop in order and say so.
                log.exception("the heartbeat failed")
                self._doomed(f"The heartbeat failed: {problem}")
                return

    def _listen(self, connection: Connection, seconds: float) -> None:
        if self._keep_name(connection):
            self._renew(connection)
        if notices.wait(connection, seconds):
            self._rung()
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_EVERY
            self._tell(connection)

    def _tell(self, connection: Connection) -> None:
        """Write down what the worker does, if that has changed. A fault in looking at it costs the display, and no lease."""
        try:
            activity = self._activity()
            fingerprint = activity.fingerprint(self._clock.now())
        except Exception:
            log.exception("what the worker does could not be looked at")
            return
        if fingerprint != self._told and workers.tell(connection, self.name, activity):
            self._told = fingerprint

    def _keep_name(self, connection: Connection) -> bool:
        """Whether it has had to be taken again: what was held may have been taken over meanwhile."""
        if connection is self._held_on:
            return False
        # The name went with the session. If another worker has it now, our claims are its own.
        self._hold_again(connection)
        self._rung()  # notices sent meanwhile were not delivered to us
        return True

    def _once(self, connection: Connection) -> None:
        self._keep_name(connection)
        self._renew(connection)

    def _renew(self, connection: Connection) -> None:
        """Renew the leases, drop what is lost, and only then count as heard of. Before: the name is held, so nothing is taken over."""
        held = self._leases.all()
        asked_at = self._clock.now()
        renewal = claims.renew(connection, worker=self.name, held=held, lease=self._lease)
        failpoints.reach("in_heartbeat")
        self._leases.renewed((tenure for tenure in held if tenure[0] in renewal.renewed), asked_at)
        self._tally.lease_renewals += len(renewal.renewed)
        # What was released while we asked is not lost, and may be held again, under a later epoch.
        lost = {pair for pair in held if pair[0] in renewal.lost} & set(self._leases.all())
        if lost:
            log.warning("lost %d domains: their leases ended, or they were taken over", len(lost))
            for tenure in lost:
                self._leases.drop(tenure)  # now: nothing may be asked for on them once we are heard of
            self._lost(lost)
        if runs.beat(connection, self.run_id, in_window=self._in_window(), counts=self._tally.counts()):
            self._leases.heard(asked_at)
