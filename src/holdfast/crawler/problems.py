"""The problems of a worker that end by themselves: disks without room, writes that fail, a database that is slow or was away.

The rule: they are read on the heartbeat thread, which saves them with the activity of the worker. A worker that has too little room fetches
nothing before it has more.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from holdfast.crawler.batch_writer import BatchWriter, WriteProblem
from holdfast.crawler.db_thread import Outage
from holdfast.model.activity import ProblemKind, WorkerProblem
from holdfast.model.health import DiskSpace
from holdfast.telemetry.disk_space import DiskWatch, describe

DISK_SECONDS: Final = 2.0
"""Seconds between two looks at the free space of this machine."""
RECENT_SECONDS: Final = 60.0
"""Seconds for which an outage of the database is reported after its end."""
SHORTEST_OUTAGE: Final = 5.0
"""Seconds; a shorter outage is not reported."""


class DiskGuard:
    """Pauses the fetching of a worker while a disk of its machine has too little room."""

    def __init__(self, watch: DiskWatch) -> None:
        self._watch = watch
        self._since: dict[tuple[str, ...], datetime] = {}
        self.spaces: Sequence[DiskSpace] = ()
        """Volumes that are low or full, as of the last look."""

    def look(self) -> WriteProblem | None:
        """Look at all volumes; return why nothing may be fetched, None: there is room. It may block as long as a disk does."""
        now = datetime.now(UTC)
        self.spaces = [space for space in self._watch.look() if space.state != "ok"]
        self._since = {_key(space): self._since.get(_key(space), now) for space in self.spaces}
        full = next((space for space in self.spaces if space.state == "full"), None)
        if full is None:
            return None
        return self.pause_of(full)

    def pause_of(self, space: DiskSpace) -> WriteProblem:
        """Return a full volume as the reason of a pause."""
        return WriteProblem("fetching is paused", describe(space), self.since(space), ProblemKind.DISK_FULL)

    def since(self, space: DiskSpace) -> datetime:
        """When a volume was first found in its state. Before: it is one of `spaces`."""
        return self._since.get(_key(space), datetime.now(UTC))


def worker_problems(writer: BatchWriter, guard: DiskGuard, last_outage: Outage | None) -> list[WorkerProblem]:
    """Return the problems of a worker at this moment. Thread-safe."""
    now, paused = datetime.now(UTC), writer.problem
    found = disk_problems(guard)
    if paused is not None and paused.kind is not ProblemKind.DISK_FULL:
        found.append(WorkerProblem(paused.kind, paused.text, paused.since, (now - paused.since).total_seconds()))
    if (seconds := writer.slow_commits()) is not None:
        text = f"a commit takes {seconds:.0f} s (the median of the last minute)"
        found.append(WorkerProblem(ProblemKind.DATABASE_SLOW, text, now, seconds))
    return found + outage_problems(last_outage)


def disk_problems(guard: DiskGuard) -> list[WorkerProblem]:
    """Return the volumes that are low or full, as of the last look."""
    found = []
    for space in guard.spaces:
        kind = ProblemKind.DISK_FULL if space.state == "full" else ProblemKind.DISK_LOW
        text = guard.pause_of(space).text if kind is ProblemKind.DISK_FULL else describe(space)
        found.append(WorkerProblem(kind, text, guard.since(space), space.free_bytes, ", ".join(space.holds)))
    return found


def outage_problems(outage: Outage | None) -> list[WorkerProblem]:
    """Return an outage of the database that ended a moment ago: while it lasted, it could not be reported."""
    if outage is None or outage.ended is None or outage.seconds < SHORTEST_OUTAGE:
        return []
    if (datetime.now(UTC) - outage.ended).total_seconds() > RECENT_SECONDS:
        return []
    text = f"it did not answer for {outage.seconds:.0f} s since {outage.since:%H:%M:%S} UTC ({outage.why})"
    return [WorkerProblem(ProblemKind.DATABASE_AWAY, text, outage.since, outage.seconds)]


def _key(space: DiskSpace) -> tuple[str, ...]:
    return (space.state, *space.holds)
