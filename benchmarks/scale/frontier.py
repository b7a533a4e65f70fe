"""A frontier of a given size: what it costs to insert, to take and to settle a URL, and how many bytes one takes.

The rule: every repeat with many domains is made on domains that no repeat has touched before, so that what it needs is not yet in memory.
"""

import statistics
from typing import Any

from benchmarks.scale.fill import Place
from benchmarks.scale.progress import Step, step
from benchmarks.scale.visits import HELD, WINDOW, Visit, Worker

REPEATS = 5
INSERTS = 10
"""Commits of found URLs in a repeat."""
WINDOWS = 100
"""Windows of a single domain that are taken and settled in a repeat; of many domains each has one."""

_BYTES = "SELECT pg_table_size('url_frontier'), pg_indexes_size('url_frontier'), count(*) FROM url_frontier"


def size(place: Place) -> dict[str, float]:
    """Bytes a URL, as it is on disk."""
    with step("counting bytes"), place.database.session() as connection:
        row = connection.execute(_BYTES).fetchone()
    assert row
    table, indexes, rows = row
    return {"table_bytes": table / rows, "index_bytes": indexes / rows}


def speed(place: Place, domains: int) -> dict[str, Any]:
    """URLs a second and microseconds a URL; medians of the repeats, of which the first is for warming up and does not count."""
    single = domains == 1
    held = max(1, min(HELD, domains // (2 * REPEATS)))
    inserts: list[float] = []
    takes: list[float] = []
    settles: list[float] = []
    with place.database.session() as connection:
        worker = Worker.begin(place, connection)
        visits: list[Visit] = []
        for repeat in range(REPEATS + 1):
            with step(f"insert, take and settle, {f'repeat {repeat}' if repeat else 'to warm up'}") as here:
                visits = visits if single and visits else worker.hold(held)
                assert visits, "no domain could be claimed"
                new, seconds = worker.insert(visits, INSERTS)
                took = _one_after_the_other(worker, visits[0], here) if single else _side_by_side(worker, visits)
            if repeat:
                inserts.append(seconds / new)
                takes.append(took[1] / took[0])
                settles.append(took[2] / took[0])
        with step("releasing") as here:
            worker.end(here)
    both = statistics.median(take + settle for take, settle in zip(takes, settles, strict=True))
    return {
        "insert_per_second": 1 / statistics.median(inserts),
        "settle_per_second": 1 / both,
        "insert_us": statistics.median(inserts) * 1e6,
        "take_us": statistics.median(takes) * 1e6,
        "settle_us": statistics.median(settles) * 1e6,
        "repeats": {
            "insert_us": [1e6 * each for each in inserts],
            "take_us": [1e6 * each for each in takes],
            "settle_us": [1e6 * each for each in settles],
        },
    }


def _side_by_side(worker: Worker, visits: list[Visit]) -> tuple[int, float, float]:
    """A window of each domain: pages, seconds of the takes and of the commits."""
    taking = worker.take(visits)
    pages, settling = worker.settle(visits)
    return pages, taking, settling


def _one_after_the_other(worker: Worker, visit: Visit, here: Step) -> tuple[int, float, float]:
    """Windows of one domain; each is taken while the one before it is not committed, as a visit does it."""
    pages, taking, settling = 0, 0.0, 0.0
    taking += worker.take([visit])
    for number in range(WINDOWS):
        before, visit.window = visit.window, []
        keys = [waiting.url_key for waiting in before]
        last = number == WINDOWS - 1
        taking += 0.0 if last else worker.take([visit], keys)
        after, visit.window = visit.window, before
        some, seconds = worker.settle([visit])
        pages, settling, visit.window = pages + some, settling + seconds, after
        here.part = (number + 1) / WINDOWS
    assert pages == WINDOWS * WINDOW
    return pages, taking, settling
