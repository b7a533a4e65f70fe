"""What a page takes in the database: a store that grows by commits alone, as in a crawl, from seeds to the last page.

The rule: bytes are those of whole tables with their indexes, so that what is empty in them counts as well.
"""

from typing import Any

import psycopg

from benchmarks.scale.fill import Place
from benchmarks.scale.progress import step
from benchmarks.scale.visits import FOUND, WINDOW, Worker

DOMAINS = 1000
PAGES = DOMAINS * WINDOW
"""Beside the home page of each."""

_BYTES = """
SELECT pg_total_relation_size('url_frontier'), pg_total_relation_size('crawled_pages'),
       (SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('crawl_log') WHERE isleaf)
"""


def size(place: Place) -> dict[str, Any]:
    """Before: `DOMAINS` seeds. Bytes a page, by table."""
    with place.database.session() as connection:
        worker = Worker.begin(place, connection)
        with step(f"finding {PAGES:,} pages"):
            visits = worker.hold(DOMAINS)
            worker.insert(visits, 2 * PAGES // FOUND)
            waiting = _bytes(connection)[0] / (PAGES + DOMAINS)
        pages = 0
        with step(f"settling {PAGES:,} pages") as here:
            for first in range(0, 2 * DOMAINS, DOMAINS // 20):
                some = [visits[number % DOMAINS] for number in range(first, first + DOMAINS // 20)]
                worker.take(some)
                pages += worker.settle(some)[0]
                connection.execute("VACUUM url_frontier")  # as the server does it by itself where there is more to do
                here.part = pages / PAGES
        with step("releasing") as here:
            worker.end(here)
        sizes = _bytes(connection)
    assert pages == PAGES + DOMAINS, pages
    names = ("url_frontier", "crawled_pages", "crawl_log")
    return {"pages": pages, "waiting": waiting} | {name: size / pages for name, size in zip(names, sizes, strict=True)}


def _bytes(connection: psycopg.Connection) -> tuple[int, ...]:
    row = connection.execute(_BYTES).fetchone()
    assert row
    return row
