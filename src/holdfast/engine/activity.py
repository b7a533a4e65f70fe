"""Observe what the visits of a worker do at this moment, from the thread of the heartbeat.

The rule: visits are only read, by single looks at whole values, and nothing on the way of a page is done for it but to note which
request is in flight. So the observation costs a crawl nothing, and goes on while a page keeps the event loop busy.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from holdfast.engine.visit import Visit
from holdfast.model.activity import MAX_FETCHING, MAX_WAITS, Activity, Fetching, VisitWait
from holdfast.model.wait import WaitKind

SHORT: Final = 1.0
"""Seconds; shorter delays between two requests are not worth a word."""
MOMENT: Final = 0.2
"""Seconds; a wait that is over so soon is as good as over."""


def observe(visits: Iterable[Visit], now: float) -> Activity:
    """What these visits do. `now` is on the clock of the engine."""
    requests: Counter[int] = Counter()
    fetching: list[Fetching] = []
    waits: list[VisitWait] = []
    for visit in visits:
        flights = visit.turns.in_flight()
        if flights:
            requests[visit.job.id] += len(flights)
            fetching += [Fetching(url, visit.job.id, max(0.0, now - started)) for url, started in flights]
        if (wait := _wait(visit, asking=bool(flights))) is not None:
            waits.append(wait)
    fetching.sort(key=lambda fetch: -fetch.seconds)
    # What goes wrong comes before what is meant to be, then what is over first.
    waits.sort(key=lambda wait: (wait.kind is WaitKind.DELAY, wait.seconds is None, wait.seconds or 0.0))
    return Activity(dict(requests), tuple(fetching[:MAX_FETCHING]), len(waits), tuple(waits[:MAX_WAITS]))


def _wait(visit: Visit, *, asking: bool) -> VisitWait | None:
    if (found := visit.wait_reason()) is None:
        return None
    (kind, seconds), detail = found
    if seconds <= MOMENT or (kind is WaitKind.DELAY and (asking or seconds <= SHORT)):
        return None
    return VisitWait(visit.domain, visit.job.id, kind, None if math.isinf(seconds) else seconds, detail)
