"""What a claim of a batch of domains takes, with millions of them in the store.

The rule: every claim is the product's own, of as many domains as a worker claims at once, and nothing is given back in between.
"""

import statistics
import time
from typing import Any

from benchmarks.scale.fill import Place
from benchmarks.scale.progress import step
from benchmarks.scale.visits import LEASE, SETTINGS, WORKER
from holdfast.db import claims

CLAIMS = 200
NOT_DUE = 0.95

# The best ones, which a claim would meet first if it looked at them.
_PUT_OFF = """
UPDATE job_domains SET ready = false, not_before = now() + interval '1 day' WHERE (domain_id, job_id) IN (
    SELECT domain_id, job_id FROM job_domains WHERE job_id = %(job)s AND ready ORDER BY priority DESC, domain_id
    LIMIT (SELECT count(*) FROM job_domains WHERE job_id = %(job)s AND ready) * %(part)s)
"""


def put_off(place: Place) -> None:
    """After: most domains wait for tomorrow."""
    with step("putting off most domains"), place.database.session() as connection:
        connection.execute(_PUT_OFF, {"job": place.job_id, "part": NOT_DUE})


def speed(place: Place) -> dict[str, Any]:
    """Milliseconds of a claim."""
    times: list[float] = []
    batch = SETTINGS.claims.batch
    with step(f"{CLAIMS} claims") as here, place.database.session() as connection:
        for number in range(CLAIMS):
            began = time.perf_counter()
            taken = claims.claim(connection, worker=WORKER, job_id=place.job_id, count=batch, lease=LEASE)
            times.append((time.perf_counter() - began) * 1000)
            assert len(taken) == batch
            here.part = (number + 1) / CLAIMS
    times.sort()
    return {"batch": batch, "claim_ms": statistics.median(times), "claim_ms_p99": times[int(CLAIMS * 0.99)]}
