"""Tasks whose workers and backgrounds are killed at random, and tasks that recur under two schedulers.

The rule: judged by what the store says in the end. Every task has ended once, in the right state; every product is there once.
"""

import random
import time
from dataclasses import dataclass
from itertools import pairwise

from holdfast import factories
from holdfast.db.connection import Connection
from holdfast.settings import Settings
from holdfast.tasks.records import TaskOptions
from holdfast.tasks.service import TaskService
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.process import CrawlProcess
from holdfast.testing.torture.sandbox import Sandbox
from tests.prove.ledger import Entry

SITES = 8
GONE = 10
"""Every so many-th URL leads nowhere."""
PATIENCE = 180.0
DELAY = 0.5
"""Seconds between two requests to a site: slow enough that the kills find work under way."""
EVERY = 20
"""Seconds: the frequency of recurring tasks."""
TICK = 10
LATE = 6
"""Seconds that fetching and parsing may take beside, on a busy machine."""

PARSER = """
import time
from decimal import Decimal
from holdfast.parse.plugin_api import Document, Extracted, Product

version = "1"


def parse(document: Document) -> Extracted:
    time.sleep(0.2)  # long enough to be killed in
    return Extracted({"url": document.url}, (Product(name=document.url, sku=document.url[-150:], price=Decimal(5), currency="EUR"),))
"""
SETTINGS = {
    "claims.lease": "5s",
    "claims.sweep_interval": "1s",
    "fetch.timeout": "2s",
    "fetch.allow_private": "true",
    "worker.heartbeat": "1s",
    "worker.idle": "0.1s",
    "flush.pages": "25",
    "flush.seconds": "0.4s",
    "domains.crawl_delay": f"{DELAY}s",
    "parsing.timeout": "2s",
}

_OPEN = "SELECT count(*) FROM crawl_tasks WHERE status NOT IN ('completed', 'failed', 'cancelled')"
_ENDED = "SELECT count(*) FROM crawl_tasks WHERE status IN ('completed', 'failed')"
_ENDS = "SELECT url, array_agg(status::text ORDER BY id) FROM crawl_tasks GROUP BY url"
_FAULTS = {
    "a completed task has one result": """
        SELECT t.id FROM crawl_tasks t LEFT JOIN parse_results r ON r.task_id = t.id
        WHERE (t.status = 'completed') <> (r.task_id IS NOT NULL)""",
    "a page has its product once": """
        SELECT t.url FROM crawl_tasks t LEFT JOIN products p ON p.name = t.url WHERE t.status = 'completed'
        GROUP BY t.url HAVING count(DISTINCT p.id) <> 1""",
    "a product has its one price once": """
        SELECT p.id FROM products p LEFT JOIN product_prices s ON s.product_id = p.id GROUP BY p.id HAVING count(s.*) <> 1""",
    "each change of a task begins where the last one ended": """
        SELECT task_id, version FROM (
            SELECT task_id, version, from_status, lag(to_status, 1, 'pending') OVER (PARTITION BY task_id ORDER BY version) AS before
            FROM task_events) e WHERE from_status <> before""",
    "a task's status is the last of its changes": """
        SELECT t.id FROM crawl_tasks t JOIN LATERAL (
            SELECT to_status FROM task_events e WHERE e.task_id = t.id ORDER BY version DESC LIMIT 1) e ON true
        WHERE e.to_status <> t.status""",
    "a task ends once": """
        SELECT task_id FROM task_events WHERE to_status IN ('completed', 'failed', 'cancelled') GROUP BY task_id HAVING count(*) <> 1""",
}


@dataclass
class Stage:
    """The processes: workers first, then backgrounds."""

    sandbox: Sandbox
    workers: int = 2
    backgrounds: int = 2

    def __post_init__(self) -> None:
        self.parsers = self.sandbox.folder / "parsers"
        self.parsers.mkdir(parents=True, exist_ok=True)
        (self.parsers / "proof.py").write_text(PARSER)
        self.victims = [self.start(number) for number in range(self.workers + self.backgrounds)]

    def start(self, number: int) -> CrawlProcess:
        """The process of this number, in another life."""
        at_work = ["worker", "--name", f"worker-{number}"] if number < self.workers else ["background"]
        return CrawlProcess(
            ["--data", str(self.sandbox.data), *at_work],
            settings=SETTINGS | self.sandbox.settings() | {"parsing.folder": str(self.parsers)},
            folder=self.sandbox.folder,
            name=f"process-{number}",
        )

    def kill(self, *numbers: int) -> int:
        """kill -9, and start them again; how many lived."""
        lived = sum(self.victims[number].alive for number in numbers)
        for number in numbers:
            self.victims[number].kill()
        for number in numbers:
            self.victims[number] = self.start(number)
        return lived

    def end(self) -> None:
        """kill -9 of all."""
        for victim in self.victims:
            victim.kill()


def desk(sandbox: Sandbox) -> TaskService:
    """Of the ground's store."""
    settings = Settings.model_validate({"domains": {"crawl_delay": DELAY}})
    return TaskService(sandbox.database(), factories.url_rules(settings), factories.new_domains(settings))


def killed(seed: int, count: int, kills: int, sandbox: Sandbox, on_progress: OnProgress) -> Entry:
    """So many tasks under so many kills, of one process or of all."""
    dice = random.Random(seed)
    violations: list[str] = []
    landed = 0
    with WebProcess(Web(seed, SITES, Site(count // SITES + 10, 8, 600))) as web:
        pages = [page.url for site in range(SITES) for page in web.expected(site) if page.status == 200]
        urls = [f"{web.url(n % SITES)}gone/{n}" if n % GONE == 0 else pages.pop() for n in range(count)]
        tasks = desk(sandbox)
        for _ in tasks.add_many(urls, TaskOptions(is_recurring=False, parser_name="proof"), actor="proof"):
            pass
        stage = Stage(sandbox)
        try:
            with sandbox.database().session() as connection:
                _until_begun(connection)
                for number in range(kills):
                    time.sleep(dice.uniform(0.5, 2.5))
                    everybody = tuple(range(len(stage.victims)))
                    landed += bool(stage.kill(*(everybody if dice.random() < 0.2 else [dice.choice(everybody)])))
                    if number % 5 == 4:
                        on_progress(f"{number + 1} kills: {_value(connection, _OPEN)} of {count} tasks are open")
                _until_ended(connection, violations)
        finally:
            stage.end()
    with sandbox.database().session() as connection:
        right = {url: ["failed" if "/gone/" in url else "completed"] for url in urls}
        ends = dict(connection.execute(_ENDS).fetchall())
        violations += [
            f"{url}: {ends.get(url)} instead of {end}" for url, end in right.items() if ends.get(url) != end
        ][:5]
        violations += faults(connection)
    violations += checks.verify_store(sandbox)
    return {"planned": kills, "landed": landed, "repeats": 0, "refused": 0, "seconds": 0, "violations": violations}


def recurring(seconds: int, sandbox: Sandbox, on_progress: OnProgress) -> Entry:
    """Tasks that recur under two backgrounds, one of which is killed in the middle and comes back."""
    violations: list[str] = []
    with WebProcess(Web(3, 2, Site(10, 8, 600))) as web:
        tasks = desk(sandbox)
        urls = [page.url for site in range(2) for page in web.expected(site)][:5]
        options = TaskOptions(
            crawl_frequency=Settings.model_validate({"domains": {"crawl_frequency": EVERY}}).domains.crawl_frequency,
            parser_name="proof",
        )
        for _ in tasks.add_many(urls, options, actor="proof"):
            pass
        stage = Stage(sandbox, workers=1)
        try:
            time.sleep(seconds / 2)
            stage.kill(1)
            time.sleep(seconds / 2)
        finally:
            stage.end()
    with sandbox.database().session() as connection:
        for url in urls:
            violations += _chain(connection, url, seconds, on_progress)
    violations += checks.verify_store(sandbox)
    return {"planned": 1, "landed": 1, "repeats": 0, "refused": 0, "seconds": seconds, "violations": violations}


def _chain(connection: Connection, url: str, seconds: int, on_progress: OnProgress) -> list[str]:
    """Whether the rows of a URL follow on each other as they should."""
    rows = connection.execute(
        "SELECT id, recrawl_count, previous_task_id, created_at, completed_at FROM crawl_tasks WHERE url = %s ORDER BY id",
        (url,),
    ).fetchall()
    wrong = []
    if [row[1] for row in rows] != list(range(len(rows))):
        wrong.append(f"{url}: recrawl counts are {[row[1] for row in rows]}")
    gaps = []
    for before, after in pairwise(rows):
        gap = (after[3] - before[4]).total_seconds() if before[4] else -1
        gaps.append(round(gap, 1))
        if after[2] != before[0] or not EVERY <= gap <= EVERY + TICK + LATE:
            wrong.append(f"{url}: task {after[0]} follows on {after[2]} {gap:.1f} s after {before[0]} was completed")
    least, most = int(seconds // (EVERY + TICK + 2 * LATE)), int(seconds // EVERY) + 1
    if not least <= len(rows) <= most:
        wrong.append(f"{url}: {len(rows)} rows in {seconds} s, not {least} to {most}")
    on_progress(f"{len(rows)} rows, {gaps} s apart")
    return wrong


def faults(connection: Connection) -> list[str]:
    """What tasks and products must not be."""
    found = []
    for name, query in _FAULTS.items():
        rows = connection.execute(query.encode()).fetchall()
        found += [f"not so: {name}: {rows[:3]}"] if rows else []
    return found


def _until_begun(connection: Connection) -> None:
    while not _value(connection, _ENDED):
        time.sleep(0.05)


def _until_ended(connection: Connection, violations: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := _value(connection, _OPEN):
        if time.monotonic() > deadline:
            violations.append(f"{left} tasks have not ended after {PATIENCE:.0f} s without a fault")
            return
        time.sleep(0.2)


def _value(connection: Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
