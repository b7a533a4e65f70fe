"""A soak: polite crawls of sites that reset kept-alive connections, for minutes, judged by the sites' own log.

The rule: no request comes sooner than the delay after the one before, whatever broke, and the log of the crawl shows every request
for a page that the sites have seen, once. It costs little: two workers, twenty sites, a request a second for each. One of the workers
after the other is stopped in order and started again, since a visit reuses no connection to a host that broke three.
"""

import signal
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle

from holdfast.cli.command_context import EXIT_INTERRUPTED
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.process import CrawlProcess, send
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Scenario
from tests.prove.ledger import Entry
from tests.prove.sandbox import begin, worker

SITES = 20
DELAY = 1.0
SHARES = (0.05, 0.3, 1.0)
"""Of the requests on a kept-alive connection that are reset, site by site."""
WORKERS = 2
LOOK = 30.0
PATIENCE = 60.0

_LOGGED = "SELECT page_url, count(*) FROM crawl_log GROUP BY page_url"
_BROKEN = "SELECT count(*) FROM crawl_log WHERE outcome = 'connection_broken'"


def soak(seed: int, minutes: float, like: Scenario, sandbox: Sandbox, on_progress: OnProgress) -> Entry:
    """Crawl for so many minutes; what the sites and the store say of it."""
    scenario = replace(
        like, seed=seed, workers=WORKERS, web=_web(seed, minutes), delay=DELAY, concurrency=2, planned_faults=()
    )
    violations: list[str] = []
    with WebProcess(scenario.web) as web:
        begin(scenario, sandbox, web)
        began = time.monotonic()
        names = cycle(f"soak-{number}" for number in range(WORKERS))
        victims = [worker(scenario, sandbox, name=next(names)) for _ in range(WORKERS)]
        try:
            while (left := began + minutes * 60 - time.monotonic()) > 0:
                time.sleep(min(left, LOOK))
                seen = web.log()
                on_progress(f"{len(seen)} requests, {_resets(seen)} reset, {len(_gaps(seen))} gaps under {DELAY:g} s")
                if left <= 2 * LOOK:  # one that has just begun could not be stopped in order
                    continue
                violations += _stop(victims[:1])
                if violations:
                    break
                del victims[0]
                victims.append(worker(scenario, sandbox, name=next(names)))
            violations += _stop(victims)
        finally:
            for victim in victims:
                victim.kill()
        seen = web.log()
    with sandbox.database().session() as connection:
        logged = Counter(dict(connection.execute(_LOGGED).fetchall()))
        row = connection.execute(_BROKEN).fetchone()
    broken = row[0] if row else 0
    violations += _judged(seen, logged)
    violations += checks.verify_store(sandbox)
    on_progress(
        f"{len(seen)} requests, {_resets(seen)} reset, {broken} rows `connection_broken`, {len(violations)} violations"
    )
    return {
        "planned": SITES,
        "landed": _resets(seen),
        "repeats": broken,
        "refused": 0,
        "requests": len(seen),
        "shortest_gap": round(min(_all_gaps(seen), default=0.0), 4),
        "seconds": round(time.monotonic() - began, 1),
        "violations": violations,
    }


def _web(seed: int, minutes: float) -> Web:
    """Sites with more pages than there is time for; robots.txt asks for the delay, too."""
    pages = max(200, round(minutes * 60 / DELAY * 1.5))
    sites = {
        number: Site(
            pages, 12, 1500, crawl_delay=DELAY, latency=0.01, jitter=0.05, reset_reused=SHARES[number % len(SHARES)]
        )
        for number in range(SITES)
    }
    return Web(seed, SITES, special=sites)


def _judged(seen: list[Hit], logged: Counter[str]) -> list[str]:
    violations = [f"{pair.earlier.url} and {pair.later.url} {pair.gap:.3f} s apart" for pair in _gaps(seen)]
    asked = log_checks.count_requests(seen)
    violations += [
        f"{url} was asked for {count} times, {logged[url]} are logged" for url, count in (asked - logged).items()
    ]
    violations += [f"{url} is logged {count} times too often" for url, count in (logged - asked).items()]
    if not log_checks.robots_first(seen):
        violations.append("a page was asked for before robots.txt was known")
    if not _resets(seen):
        violations.append("void: no connection was reset")
    return violations


def _stop(victims: Iterable[CrawlProcess]) -> list[str]:
    """Stop them in order, so that everything is committed."""
    for victim in victims:
        send(victim.pid, signal.SIGTERM)
    return [
        f"void: told to stop, {victim.pid} ended with {victim.code}"
        for victim in victims
        if not victim.wait(PATIENCE) or victim.code not in {0, EXIT_INTERRUPTED}
    ]


def _gaps(seen: Iterable[Hit]) -> list[log_checks.TooClose]:
    return log_checks.too_close(seen, DELAY)


def _all_gaps(seen: list[Hit]) -> list[float]:
    return [gap for host in log_checks.by_host(seen) for gap in log_checks.gaps(seen, host)]


def _resets(seen: Iterable[Hit]) -> int:
    return sum(not hit.status for hit in seen)
