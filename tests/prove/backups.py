"""A crawl is backed up while it, the backups and the follower are killed; then it is restored to seconds of its past.

The judge of a restored second is the log of the store that went on: with `track_commit_timestamp` the server knows when each row of it was
committed, so what a second must have is a query. A worker that was frozen while its store was restored must write nothing.
"""

import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast.backups.repository import Repository
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import JOB, FaultRun, FaultRunResult, OnProgress
from holdfast.testing.torture.process import CrawlProcess, send
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Scenario, crawl_settings

PATIENCE: Final = 120.0
_LOG: Final = (
    "SELECT domain_id, job_id, encode(url_key, 'hex'), outcome, status, claim_epoch, crawled_at::text FROM crawl_log {} "
    "ORDER BY domain_id, url_key, crawled_at"
)
_COMMITTED: Final = "WHERE pg_xact_commit_timestamp(xmin) <= %s"
_COMMITS: Final = (
    "SELECT DISTINCT pg_xact_commit_timestamp(xmin) AS at FROM crawl_log WHERE xmin::text::bigint > 2 ORDER BY at"
)
_WRITTEN: Final = (
    "SELECT (SELECT count(*) FROM crawl_log), (SELECT sum(pages_crawled) FROM domains), (SELECT count(*) FROM url_frontier), "
    "(SELECT count(*) FROM claim_log), (SELECT array_agg(status::text ORDER BY id) FROM crawl_runs), "
    "(SELECT array_agg(token::text ORDER BY worker) FROM commit_markers)"
)
_REFUSED: Final = re.compile(r"Refused: ([0-9]+) results")


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Return when it holds; fail after a generous while."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited too long for {what}")
        time.sleep(0.02)


class BackedUp:
    """A crawl with backups, as `experiment.run_with_faults` calls it."""

    def __init__(self, seed: int, *, seconds: int = 3, kill_backups: bool = True) -> None:
        self._rng = random.Random(seed)
        self._seconds = seconds
        self._kill_backups = kill_backups
        self.figures: dict[str, Any] = {
            "follower_kills": 0,
            "backup_kills": 0,
            "backups": 0,
            "restored": [],
            "refused": 0,
        }
        self.violations: list[str] = []

    def __call__(
        self, scenario: Scenario, sandbox: Sandbox, web: WebProcess, on_progress: OnProgress
    ) -> FaultRunResult:
        self._scenario, self._sandbox, self._on_progress = scenario, sandbox, on_progress
        self._repository = Repository(sandbox.data / "backups")
        self._remember_commits()
        over = threading.Event()
        follower = self._follow()
        wait_until(self._repository.backups, "the first backup")
        keeper = threading.Thread(target=self._keep, args=(over, [follower]))
        keeper.start()
        try:
            result = FaultRun(scenario, sandbox, web, on_progress).run()
        finally:
            over.set()
            keeper.join()
        ended = datetime.now(UTC)
        self._last = self._follow()
        wait_until(lambda: self._until() > ended, "the last second of the log")
        self._last.kill()
        requests = sum(web.stats()["requests"].values())
        self._restore(web)
        result.allowed_repeats += sum(web.stats()["requests"].values()) - requests
        result.violations += self.violations
        return result

    # While it is crawled

    def _remember_commits(self) -> None:
        server = self._sandbox.server()
        with psycopg.connect(server.admin_url(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET track_commit_timestamp = on")
        embedded.stop(self._sandbox.data)
        self._sandbox.server()

    def _run(self, *arguments: str, data: Path | None = None, name: str = "backup") -> CrawlProcess:
        folder = self._sandbox.folder
        command = ["--data", str(data or self._sandbox.data), *arguments]
        return CrawlProcess(command, settings=crawl_settings(self._scenario), folder=folder, name=name)

    def _follow(self) -> CrawlProcess:
        return self._run("backup", "follow", name="follow")

    def _until(self) -> datetime:
        logs = self._repository.logs()
        follow = self._repository.follow(logs[-1]) if logs else None
        return follow.until if follow else datetime.min.replace(tzinfo=UTC)

    def _keep(self, over: threading.Event, followers: list[CrawlProcess]) -> None:
        """Make incremental backups; kill the follower and backups now and then."""
        while not over.wait(self._rng.uniform(0.5, 2.5)):
            if self._rng.random() < 0.5:
                followers[0].kill()
                self.figures["follower_kills"] += 1
                over.wait(self._rng.uniform(0.0, 1.0))
                followers[0] = self._follow()
                continue
            backup = self._run("backup", "--incremental")
            if self._kill_backups and self._rng.random() < 0.4:
                over.wait(self._rng.uniform(0.2, 2.0))
                self.figures["backup_kills"] += backup.alive
                backup.kill()
            else:
                backup.wait(PATIENCE)
        followers[0].kill()

    # Afterwards

    def _restore(self, web: WebProcess) -> None:
        live = self._sandbox.database()
        results = checks.read_results(live)
        self.figures["backups"] = len(self._repository.backups())
        moments = self._moments(live)
        for number, at in enumerate(moments, 1):
            data = self._sandbox.folder / f"restored-{number}" / "data"
            began = time.monotonic()
            if not self._restored(data, at, "latest"):
                continue
            took = time.monotonic() - began
            rows, different = self._compare(live, Database(embedded.ensure_running(data).url()), at)
            self.figures["restored"].append({"at": at.isoformat(), "rows": rows, "took": round(took, 1)})
            self._on_progress(
                f"restored to {at:%H:%M:%S.%f}: {rows} rows of the log, {different} different, {took:.1f} s"
            )
            if different:
                self.violations.append(f"{different} rows of the log differ from those of {at.isoformat()}")
            copy = Sandbox(data.parent)
            self.violations += [f"restored to {at}: {fault}" for fault in checks.verify_store(copy)]
            if number == 2:
                self._come_back(data, moments[0], web)
            if number > 1:
                self._finish(data, results)
            embedded.stop(data)
            shutil.rmtree(data.parent, ignore_errors=True)

    def _moments(self, live: Database) -> list[datetime]:
        """Seconds of the crawl, each in the middle of the longest pause between two commits around it."""
        since = min(
            (one.ended_at for one in self._repository.backups() if self._repository.log_of(one)),
            default=datetime.now(UTC),
        )
        with live.session() as connection:
            commits = [at for (at,) in connection.execute(_COMMITS) if at is not None and at > since]
        found = []
        for part in range(self._seconds):
            window = commits[part * len(commits) // self._seconds : (part + 1) * len(commits) // self._seconds]
            pauses = [(after - before, before) for before, after in pairwise(window)]
            if pauses:
                pause, before = max(pauses)
                found.append(before + pause / 2)
        if len(found) < self._seconds:
            self.violations.append(f"void: {len(commits)} commits after the first backup are too few")
        return found

    def _restored(self, data: Path, at: datetime, name: str) -> bool:
        arguments = [
            "restore",
            str(self._repository.folder / self._repository.find(name).name),
            "--to",
            at.isoformat(),
            "--json",
            "--yes",
        ]
        restore = self._run(*arguments, data=data, name="restore")
        restore.wait(PATIENCE)
        if restore.code != 0:
            log = (self._sandbox.folder / "restore.log").read_text()[-500:]
            self.violations.append(f"the restore to {at} ended with {restore.code}: {log}")
            return False
        told = restore.output_json()
        last = told["last_change_at"]
        if last is not None and datetime.fromisoformat(last) > at:
            self.violations.append(f"restored to {at}, and the last change is of {last}")
        return True

    @staticmethod
    def _compare(live: Database, restored: Database, at: datetime) -> tuple[int, int]:
        """The rows of the log in a restored store, and how many are not those of that second."""
        with live.session() as connection:
            expected = set(connection.execute(_LOG.format(_COMMITTED).encode(), (at,)).fetchall())
        with restored.session() as connection:
            found = set(connection.execute(_LOG.format("").encode()).fetchall())
        return len(found), len(expected ^ found)

    def _come_back(self, data: Path, earlier: datetime, web: WebProcess) -> None:
        """Freeze a worker of a restored store, restore it again in place to an earlier second, and let the worker come back."""
        crawl = self._crawl(data, "--delay", "0.3", name="old")
        before = sum(web.stats()["requests"].values())
        wait_until(
            lambda: not crawl.alive or sum(web.stats()["requests"].values()) > before + 3, "requests of the old worker"
        )
        if not crawl.alive or not send(crawl.pid, signal.SIGSTOP):
            self.violations.append("void: the crawl of the restored store ended before it could be frozen")
            return
        embedded.stop(data)
        if self._restored(data, earlier, "latest"):
            with Database(embedded.ensure_running(data).url()).session() as connection:
                written = connection.execute(_WRITTEN.encode()).fetchone()
                send(crawl.pid, signal.SIGCONT)
                crawl.wait(PATIENCE)
                after = connection.execute(_WRITTEN.encode()).fetchone()
            said = (self._sandbox.folder / "old.log").read_text("utf-8", "replace")
            self.figures["refused"] += sum(map(int, _REFUSED.findall(said)))
            if written != after:
                self.violations.append(f"I5 a worker of the old generation wrote: {written} became {after}")
            if crawl.code != 5 or "generation" not in said:
                self.violations.append(f"the worker of the old generation ended with {crawl.code}: {said[-300:]}")
        crawl.kill()

    def _crawl(self, data: Path, *options: str, name: str) -> CrawlProcess:
        return self._run("crawl", "--job", JOB, "--workers", "1", "--json", *options, data=data, name=name)

    def _finish(self, data: Path, expected: checks.UrlResults) -> None:
        """Crawl a restored store to its end, which must be that of the store that went on."""
        crawl = self._crawl(data, name="again")
        crawl.wait(PATIENCE)
        if crawl.code != 0:
            crawl.kill()
            self.violations.append(f"the crawl of a restored store ended with {crawl.code}")
            return
        found = checks.read_results(Database(embedded.ensure_running(data).url()))
        self.violations += [f"after a restore: {fault}" for fault in checks.compare_results(expected, found)]
        self.violations += [f"at its end: {fault}" for fault in checks.verify_store(Sandbox(data.parent))]
