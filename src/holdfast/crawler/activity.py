"""Snapshot of what the visits of a worker do at this moment, taken on the heartbeat thread.


The rule: visits are only read, each value in a single atomic read, and the crawl of a page does nothing for the snapshot but to record
which request is in flight. So the snapshot costs a crawl nothing, and works while a page keeps the event loop busy.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.crawler.visit import Visit
from holdfast.model.activity import (
    MAX_FETCHING,
    MAX_WAITS,
    Activity,
    InFlightRequest,
    VisitWait,
    WaitKind,
    WorkerProblem,
)

SHORT_DELAY: Final = 1.0
"""Seconds; shorter delays between two requests are not reported."""
NEGLIGIBLE_WAIT: Final = 0.2
"""Seconds; a wait with less than this left is not reported."""


def observe(visits: Iterable[Visit], now: float, problems: Sequence[WorkerProblem] = ()) -> Activity:
    """Return the requests in flight and the waits of these visits, and problems of the worker. `now`: seconds on the worker's clock."""
    requests: Counter[int] = Counter()
    fetching: list[InFlightRequest] = []
    waits: list[VisitWait] = []
    for visit in visits:
        flights = visit.gate.in_flight()
        if flights:
            requests[visit.job.id] += len(flights)
            fetching += [InFlightRequest(url, visit.job.id, max(0.0, now - started)) for url, started in flights]
        if (wait := _wait(visit, is_requesting=bool(flights))) is not None:
            waits.append(wait)
    fetching.sort(key=lambda fetch: -fetch.seconds)
    # Errors come before planned delays, then the shortest wait first.
    waits.sort(key=lambda wait: (wait.kind is WaitKind.DELAY, wait.seconds is None, wait.seconds or 0.0))
    shown = tuple(waits[:MAX_WAITS])
    return Activity(dict(requests), tuple(fetching[:MAX_FETCHING]), len(waits), shown, tuple(problems))


def _wait(visit: Visit, *, is_requesting: bool) -> VisitWait | None:
    if (found := visit.wait_reason()) is None:
        return None
    (kind, seconds), detail = found
    if seconds <= NEGLIGIBLE_WAIT or (kind is WaitKind.DELAY and (is_requesting or seconds <= SHORT_DELAY)):
        return None
    return VisitWait(visit.domain, visit.job.id, kind, None if math.isinf(seconds) else seconds, detail)
