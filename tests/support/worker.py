"""A worker process for tests, told what to do line by line; it answers in JSON, a line each.

python -m tests.support.worker URL NAME [--no-fence]
"""

import argparse
import json
import sys
from datetime import timedelta
from typing import Any

from holdfast.db import claims, jobs, workers
from holdfast.db.connection import Database
from holdfast.model.domain import Claim
from holdfast.model.visit_report import DomainProgress


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument(
        "--no-fence", action="store_true", help="The mutant: write without asking whether the claim still stands."
    )
    options = parser.parse_args()
    with Database(options.url).connect() as connection:
        identity = workers.acquire_name(connection, options.name)
        answer({"name": identity.name, "boot": identity.boot_epoch})
        held: dict[int, Claim] = {}
        for line in sys.stdin:
            order: dict[str, Any] = json.loads(line)
            match order["do"]:
                case "claim":
                    lease = timedelta(seconds=order["lease"])
                    job = jobs.find(connection, jobs.DEFAULT)
                    taken = claims.claim(
                        connection, worker=identity.name, job_id=job, count=order["count"], lease=lease
                    )
                    held |= {claim.domain_id: claim for claim in taken}
                    answer([claim.domain for claim in taken])
                case "reclaim":
                    taken = claims.reclaim(connection, worker=identity.name, lease=timedelta(minutes=30))
                    held |= {claim.domain_id: claim for claim in taken}
                    answer([claim.domain for claim in taken])
                case "write":
                    pairs = [(claim.domain_id, claim.epoch) for claim in held.values()]
                    with connection.transaction():
                        passed = claims.fence(connection, worker=identity.name, held=pairs)
                        if options.no_fence:
                            passed = set(held)
                        progress = [DomainProgress(i, outcomes=1, pages_crawled=1) for i in sorted(passed)]
                        claims.flush(connection, progress=progress, lease=timedelta(minutes=30))
                    answer(sorted(held[i].domain for i in passed))


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
