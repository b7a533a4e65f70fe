"""Workers that are cut off from the database: packets vanish, for 30 s to 300 s, and come again.

The rule: the site's own log and the claim log are the judges. While a worker is cut off, nobody else may ask its domains before it has
stopped for certain, and somebody else must soon after. The lease is the usual one of 30 minutes, so it has no part in it.
"""

import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from holdfast import factories
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.db.embedded.sockets import PORT
from holdfast.jobs.crawls import CrawlRequest, CrawlService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.settings import Settings
from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, Web
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import JOB, OnProgress
from holdfast.testing.torture.process import PROGRAM, CrawlProcess, send
from tests.prove.ledger import Entry
from tests.prove.namespaces import Cable, Door, missing
from tests.prove.sandbox import ExternalSandbox

RANGES: Final = ((30, 80), (80, 125), (125, 180), (180, 240), (240, 300))
"""Seconds that a black hole lasts; those of one range are tried side by side."""
DELAY: Final = 2.0
TIMEOUT: Final = 10.0
TAKEN_OVER: Final = 150.0
"""Seconds from the cut within which every domain of a worker that is cut off for longer has another holder."""
LAST_REQUEST: Final = 100.0
NOT_DEAD: Final = 120.0
HEARTBEAT: Final = 30.0
SITES: Final = 6
ITS_OWN: Final = 3
"""Domains of the worker that is cut off; two others have the rest."""
SETTLE: Final = 15.0
BACK: Final = 60.0
"""Seconds after a short black hole within which the worker asks for something again."""
PATIENCE: Final = 120.0
_CUT: Final = "cut"

_HELD: Final = "SELECT domain FROM domains WHERE claimed_by = %s ORDER BY domain"
_FREE: Final = "SELECT count(*) FROM domains WHERE claimed_by IS NULL"
_TENURES: Final = """
SELECT d.domain, l.worker, l.epoch, l.why,
    extract(epoch FROM l.claimed_at)::float8 AS since, extract(epoch FROM l.ended_at)::float8 AS until
FROM claim_log l JOIN domains d ON d.id = l.domain_id ORDER BY d.domain, l.epoch
"""
_HEARD: Final = "SELECT extract(epoch FROM heartbeat_at)::float8 FROM workers WHERE name = %s"


@dataclass
class Partition:
    """One black hole, and what was seen. Times are seconds since 1970: all clocks are this machine's."""

    number: int
    seconds: float
    after: float
    began: float = 0.0
    ended: float = 0.0
    held: list[str] = field(default_factory=list)
    taken_over: list[float] = field(default_factory=list)
    """Seconds from the cut to the next holder, by domain."""
    landed: bool = False
    repeats: int = 0
    violations: list[str] = field(default_factory=list)


def lengths(low: int, high: int, count: int) -> list[Partition]:
    """Black holes of one range, spread over it; the same every time."""
    dice = random.Random(low)
    step = (high - low) / count
    return [Partition(n, round(low + step * (n + dice.random()), 1), dice.uniform(0, 10)) for n in range(count)]


def side_by_side(low: int, high: int, count: int, folder: Path, on_progress: OnProgress) -> Entry:
    """So many workers are cut off at the same time, each with a database and sites of its own."""
    if (why := missing()) is not None:
        return {"skipped": why, "violations": []}
    all_of_them = lengths(low, high, count)
    site = Site(600, 12, 2000, robots=Robots.ALLOW, crawl_delay=DELAY)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with ExitStack() as stack:
        cables = [stack.enter_context(Cable(partition.number)) for partition in all_of_them]
        web = stack.enter_context(WebProcess(Web(low, SITES * count, site)))
        server = stack.enter_context(_server(folder / "server", [cable.here for cable in cables]))
        threads = []
        for partition, cable in zip(all_of_them, cables, strict=True):
            trial = _Trial(partition, cable, web, server, folder / f"trial-{partition.number}", on_progress)
            threads.append(threading.Thread(target=trial.run))
            threads[-1].start()
            time.sleep(1.0)  # worker processes take a while to begin; not all at once
        for thread in threads:
            thread.join()
    violations = [f"{part.seconds:g} s, {part.number}: {fault}" for part in all_of_them for fault in part.violations]
    return {
        "planned": count,
        "landed": sum(part.landed for part in all_of_them),
        "repeats": sum(part.repeats for part in all_of_them),
        "refused": 0,
        "lengths": [part.seconds for part in all_of_them],
        "taken_over": [round(max(part.taken_over), 1) for part in all_of_them if part.taken_over],
        "seconds": round(max(part.ended - part.began for part in all_of_them), 1),
        "violations": violations,
    }


@contextmanager
def _server(data: Path, addresses: Sequence[str]) -> Iterator[embedded.Server]:
    """A database server that listens at these addresses, without passwords: they are this machine's own."""
    quick = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}
    server = embedded.ensure_running(data, extra_settings={"listen_addresses": ",".join(addresses), **quick})
    try:
        local = server.cluster / "pg_hba.local.conf"
        local.write_text("host all all 198.18.0.0/15 trust\n", "utf-8")
        local.chmod(0o644)
        with psycopg.connect(server.admin_url(), autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")
        migrate.upgrade(Database(server.url()))  # all databases are copies of this one
        yield server
    finally:
        embedded.stop(data)


class _Trial:
    """One worker that is cut off, beside two that are not."""

    def __init__(
        self,
        partition: Partition,
        cable: Cable,
        web: WebProcess,
        server: embedded.Server,
        folder: Path,
        on_progress: OnProgress,
    ) -> None:
        self._part = partition
        self._cable = cable
        self._web = web
        self._tell = on_progress
        sites = range(SITES * partition.number, SITES * (partition.number + 1))
        self._urls = [web.url(site) for site in sites]
        self._hosts = [web.address.host(site) for site in sites]
        name = f"partition_{partition.number}"
        with psycopg.connect(server.admin_url(), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE holdfast OWNER holdfast").format(sql.Identifier(name)))
        self._database = Database(server.url(name))
        self._address = f"postgresql://holdfast@{cable.here}:{PORT}/{name}"
        self._sandbox = ExternalSandbox(folder, self._database, self._address)

    def run(self) -> None:
        part = self._part
        try:
            with self._sandbox, Door(self._cable, self._web.port):
                _begin(self._database, self._urls)
                self._play()
        except Exception as problem:  # noqa: BLE001 — whatever it is, the trial has shown nothing
            part.violations.append(f"void: {type(problem).__name__}: {problem}")
        slowest = f", taken over after {max(part.taken_over):.1f} s" if part.taken_over else ""
        self._tell(f"{part.seconds:g} s{slowest}: {part.violations or 'nothing overlapped'}")

    def _play(self) -> None:
        part = self._part
        victims = [self._worker(_CUT, ITS_OWN)]
        try:
            self._until(lambda: len(self._held()) == ITS_OWN)
            victims += [self._worker(name, SITES) for name in ("second", "third")]
            self._until(lambda: self._value(_FREE) == 0)
            self._until(lambda: {hit.host for hit in self._hits()} >= set(self._hosts))
            time.sleep(part.after)
            part.held = self._held()
            self._cable.cut()
            part.began = time.time()
            time.sleep(part.seconds)
            heard = self._value(_HEARD, _CUT)
            part.landed = isinstance(heard, float) and heard < part.began + 1.0
            self._cable.mend()
            part.ended = time.time()
            time.sleep(SETTLE)
            if part.seconds < NOT_DEAD - HEARTBEAT:
                self._until(lambda: any(hit.wall > part.ended for hit in self._hits(_CUT)), BACK, "it came back")
            part.violations += [f"{name} has ended" for name, one in zip("123", victims, strict=True) if not one.alive]
        finally:
            for victim in victims:
                send(victim.pid, signal.SIGTERM)
            for victim in victims:
                victim.wait(PATIENCE / 2)
                victim.kill()
        self._judge()

    def _worker(self, name: str, domains: int) -> CrawlProcess:
        settings = {
            "database_url": self._address,
            "fetch.timeout": f"{TIMEOUT:g}s",
            "worker.heartbeat": f"{HEARTBEAT:g}s",
            "worker.domains": str(domains),
            "worker.drain": "5s",
            "claims.batch": "1",
            "claims.lease": "30m",
            "crawl.contact": f"{name}@example.org",
            "fetch.allow_private": "true",
        }
        return CrawlProcess(
            ["--data", str(self._sandbox.data), "worker", "--name", name],
            settings=settings,
            folder=self._sandbox.folder,
            name=name,
            program=(*self._cable.program, *PROGRAM) if name == _CUT else PROGRAM,
        )

    # What is wrong ----------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        part = self._part
        hits = self._hits()
        with self._database.session() as connection, connection.cursor(row_factory=dict_row) as cursor:
            tenures = cursor.execute(_TENURES).fetchall()
        if not part.landed:
            part.violations.append("void: the worker was heard of while it was cut off")
        part.violations += [*self._close(hits), *self._outside(hits, tenures), *self._took(tenures)]
        late = [hit for hit in hits if _by(hit) == _CUT and part.began + LAST_REQUEST < hit.wall < part.ended]
        part.violations += [f"it asked {hit.url} {hit.wall - part.began:.1f} s after the cut" for hit in late[:3]]
        part.violations += checks.verify_store(self._sandbox)
        part.repeats = len(hits) - len({(hit.host, hit.path) for hit in hits})

    def _close(self, hits: Sequence[Hit]) -> Iterator[str]:
        """Two requests to a site at once, or closer than its delay; the log has the beginning and the end of each."""
        for host in self._hosts:
            mine = sorted((hit for hit in hits if hit.host == host), key=lambda hit: hit.at)
            for one, two in pairwise(mine):
                who = f"{_by(one)}, then {_by(two)}"
                if two.at < one.ended_at:
                    yield f"two requests at once to {host} ({who})"
                elif two.at - one.at < DELAY - 0.02 and not two.path.endswith("/robots.txt"):
                    yield f"{two.at - one.at:.2f} s between two requests to {host} ({who})"

    def _outside(self, hits: Sequence[Hit], tenures: Sequence[dict[str, Any]]) -> Iterator[str]:
        """A request that nobody held the domain for."""
        for hit in hits:
            mine = [t for t in tenures if t["domain"] == hit.host and t["worker"] == _by(hit)]
            if not any(t["since"] - 0.1 <= hit.wall <= (t["until"] or float("inf")) + 0.1 for t in mine):
                yield f"{_by(hit)} asked {hit.url} without holding the domain"

    def _took(self, tenures: Sequence[dict[str, Any]]) -> Iterator[str]:
        """Whether what was held when it began was taken over, in time and not too early."""
        part = self._part
        for domain in part.held:
            mine = [t for t in tenures if t["domain"] == domain and (t["until"] or float("inf")) > part.began]
            silent = [t for t in mine if t["why"] == "silent"]
            if any(t["until"] - part.began < NOT_DEAD - HEARTBEAT for t in silent):
                yield f"{domain} was taken over {silent[0]['until'] - part.began:.1f} s after the cut"
            after = [t["since"] - part.began for t in mine if t["worker"] != _CUT]
            if after:
                part.taken_over.append(min(after))
            if part.seconds > TAKEN_OVER and min(after, default=float("inf")) > TAKEN_OVER:
                yield f"{domain} was not taken over within {TAKEN_OVER:.0f} s"

    # Looking ----------------------------------------------------------------------------------------------------------

    def _hits(self, worker: str | None = None) -> list[Hit]:
        hosts = set(self._hosts)
        return [hit for hit in self._web.log() if hit.host in hosts and worker in (None, _by(hit))]

    def _held(self) -> list[str]:
        with self._database.session() as connection:
            return [row[0] for row in connection.execute(_HELD, (_CUT,))]

    def _value(self, query: str, *parameters: object) -> object:
        with self._database.session() as connection:
            row = connection.execute(query.encode(), parameters).fetchone()
            return row[0] if row else None

    def _until(self, condition: Any, seconds: float = PATIENCE, what: str = "the crawl began") -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seconds:g} s passed before {what}")
            time.sleep(0.5)


def _begin(database: Database, urls: Sequence[str]) -> None:
    """Make the job that workers serve, as `holdfast crawl` does."""
    settings = Settings()
    desk = CrawlService(
        database, SeedImporter(database, factories.url_rules(settings), factories.new_domains(settings))
    )
    options = {"delay": DELAY, "concurrency": 1, "max_depth": 1000, "allow_private": True}
    desk.begin(CrawlRequest(tuple(urls), job=JOB, options=options))


def _by(hit: Hit) -> str:
    """The worker that sent a request."""
    return next((name for name in (_CUT, "second", "third") if f"{name}@" in hit.agent), "?")
