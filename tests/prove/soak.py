"""A soak: `holdfast serve` with eight workers crawls fifty domains again and again, with retention, backups and a kill a minute.

The rule: what happens daily in production happens every few minutes here (`SETTINGS`), so that two hours show what months would. Each
minute memory, connections and disk are measured; every ten minutes `holdfast verify` runs. What the first quarter needs does not count;
the last quarter is compared with the second. It lives in a folder of its own and goes on where it was cut off.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from holdfast.db import embedded
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.site import UrlKind
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.process import PROGRAM, environment, kill_server, send
from holdfast.testing.torture.sandbox import Sandbox
from tests.prove.api_server import Served
from tests.prove.growth import growth
from tests.prove.ledger import Entry

EXIT_DATABASE: Final = 3
EXIT_CONFLICT: Final = 5
FOLDER: Final = Path(".prove/soak")
SITES: Final = 50
PAGES: Final = 150
"""Of each site, in each crawl."""
DELAY: Final = 1.0
WORKERS: Final = 8
MINUTE: Final = 60.0
VERIFY_EVERY: Final = 10
BACKUP_EVERY: Final = 5
FULL_EVERY: Final = 2
"""Every second backup is full, so that the log and the segments that kept backups need are of twenty minutes at most."""
PATIENCE: Final = 300.0
SETTINGS: Final = {
    "retention.schedule": "5m",
    "backup.daily": "true",
    "backup.keep": "2",
    "archive.segment_bytes": "8000000",
    "archive.dedup_age": "10m",
} | dict.fromkeys(
    (
        f"retention.{what}"
        for what in (
            "frontier_completed",
            "frontier_failed",
            "pages",
            "content",
            "versions",
            "tasks",
            "audit",
            "webhooks",
            "images",
        )
    ),
    "10m",
)
LIMITS: Final = {
    "rss": (1.05, 10_000_000),
    "connections": (1.0, 4),
    "bytes": (1.05, 20_000_000),
}
"""The most that the last quarter may have, compared with the second: a factor, and an amount that is added."""
KEPT: Final = ("log bytes", "archived bytes", "pages")
"""Grows by design, as it is kept for longer than the soak lasts: the log until its week is over, histories and deletions for days, and
the archives of retention."""
_KEPT_TABLES: Final = ("claim_log", "domain_transitions", "document_deletions", "events", "stats_minute")
_SIZES: Final = f"""
SELECT pg_database_size(current_database()),
       (SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits WHERE inhparent = 'crawl_log'::regclass)
       + {" + ".join(f"pg_total_relation_size('{table}')" for table in _KEPT_TABLES)},
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       (SELECT count(*) FROM crawl_log)
"""


@dataclass
class Progress:
    """The state of a soak; written each minute, so that an interrupted soak continues."""

    file: Path
    port: int = 0
    crawls: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[int]] = field(default_factory=dict)
    verified: int = 0
    backups: int = 0
    sessions: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds of each crawl."""
    violations: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> "Progress":
        """The progress in this file; a new one if there is none."""
        return cls(file, **json.loads(file.read_text("utf-8"))) if file.exists() else cls(file)

    def write(self) -> None:
        """After: the file has this state, or after a crash the one before."""
        known = {name: value for name, value in vars(self).items() if name != "file"}
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(known), "utf-8")
        fresh.replace(self.file)

    @property
    def minutes(self) -> int:
        """Minutes that were measured."""
        return len(self.samples.get("connections", ()))


class _Store(Sandbox):
    def settings(self) -> dict[str, str]:
        return SETTINGS


def soak(minutes: int, on_progress: OnProgress, folder: Path = FOLDER) -> Entry:
    """Crawl for this number of minutes, those before an interruption included."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    progress = Progress.read(folder / "progress.json")
    web = Web(1, SITES, Site(PAGES, 12, 3000, latency=0.01, jitter=0.05, changing=0.2, images=1))
    (folder / "serve.log").unlink(missing_ok=True)  # its last "Serving at" is of the session before
    store = _Store(folder)
    store.keep = True
    with WebProcess(web, port=progress.port) as sites, store:
        progress.port = sites.port
        progress.sessions += 1
        with Served(store, "--workers", str(WORKERS)) as served:
            _Soak(minutes, store, sites, served, progress, on_progress).run()
        if not progress.violations:
            _restore(store, progress, on_progress)
    judged = {name: values for name, values in progress.samples.items() if name not in KEPT}
    progress.violations += growth(judged, LIMITS)
    entry = _entry(minutes, progress)
    if not progress.violations:
        shutil.rmtree(folder, ignore_errors=True)
    return entry


class _Soak:
    def __init__(
        self,
        minutes: int,
        store: _Store,
        web: WebProcess,
        served: Served,
        progress: Progress,
        on_progress: OnProgress,
    ) -> None:
        self._minutes, self._store, self._web, self._served = minutes, store, web, served
        self._progress, self._on_progress = progress, on_progress
        self._pages = sum(1 for page in web.expected(0) if page.kind is UrlKind.PAGE) * SITES
        self._backup: subprocess.Popen[bytes] | None = None
        self._verify: subprocess.Popen[bytes] | None = None
        self._crawl = ""
        self._crawl_began = 0.0

    def run(self) -> None:
        """Crawl, kill and measure until the time is over, and let the last crawl end."""
        progress = self._progress
        self._next_crawl()
        until = time.monotonic()
        while progress.minutes < self._minutes:
            until += MINUTE
            landed = self._kill(progress.minutes + 1)
            while time.monotonic() < until:
                time.sleep(2)
                self._look_at_crawl(another=True)
                self._look_at_programs()
            self._measure()
            self._start_programs(progress.minutes)
            progress.write()
            last = ", ".join(f"{name} {values[-1]:,}" for name, values in sorted(progress.samples.items()))
            self._on_progress(f"minute {progress.minutes}, killed {landed}: {progress.crawls} crawls, {last}")
        self._finish()
        progress.write()

    def _finish(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._crawl or self._backup or self._verify:
            time.sleep(1)
            self._look_at_crawl(another=False)
            self._look_at_programs()
            if time.monotonic() > deadline:
                self._progress.violations.append(f"I8 after {PATIENCE:.0f} s without kills {self._crawl} has not ended")
                return

    # Crawls

    def _next_crawl(self) -> None:
        self._progress.crawls += 1
        self._crawl, self._crawl_began = f"crawl-{self._progress.sessions}-{self._progress.crawls}", time.monotonic()
        self._run_command(
            *("jobs", "create", self._crawl, *self._web.urls, "--delay", str(DELAY), "--allow-private", "--links"),
            *("--images",) * (self._progress.crawls % 4 == 0),
            *("--markdown",) * (self._progress.crawls % 5 == 0),
        )

    def _look_at_crawl(self, *, another: bool) -> None:
        """Judge the crawl if it has ended, and begin another one."""
        if not self._crawl:
            return
        found = self._run_command("jobs", "show", self._crawl, "--json")
        took = time.monotonic() - self._crawl_began
        if found["state"] != "completed":
            if took < 4 * PATIENCE:
                return
            self._progress.violations.append(f"I8 {self._crawl} has not ended after {took:.0f} s: {found['summary']}")
        elif (found["pages"], found["waiting"], found["failed"]) != (self._pages, 0, 0):
            self._progress.violations.append(
                f"I1 {self._crawl} ended with {found['pages']} of {self._pages} pages, "
                f"{found['waiting']} waiting, {found['failed']} failed"
            )
        self._progress.waits.append(round(took, 1))
        self._crawl = ""
        if another:
            self._next_crawl()

    # Programs beside it

    def _start_programs(self, minute: int) -> None:
        if minute % VERIFY_EVERY == 0 and self._verify is None:
            self._verify = self._start("verify", "--json", name="verify")
        if minute % BACKUP_EVERY == 2 and self._backup is None:
            full = self._progress.backups % FULL_EVERY == 0
            self._backup = self._start("backup", *() if full else ("--incremental",), name="backup")

    def _look_at_programs(self) -> None:
        if self._verify is not None and self._verify.poll() is not None:
            self._judge(self._verify, "verify")
            self._progress.verified += 1
            self._verify = None
        if self._backup is not None and self._backup.poll() is not None:
            self._judge(self._backup, "backup")
            self._progress.backups += 1
            self._backup = None

    def _judge(self, program: "subprocess.Popen[bytes]", name: str) -> None:
        """Record a failed program as a violation. Exit code 3 is none: its database was killed, and the next one begins anew."""
        if program.returncode not in {0, EXIT_DATABASE}:
            said = (self._store.folder / f"{name}.out").read_text("utf-8", "replace")
            told = (self._store.folder / f"{name}.err").read_text("utf-8", "replace")
            self._progress.violations.append(f"{name} ended with {program.returncode}: {said[-2000:]} {told[-500:]}")

    def _command(self, *words: str) -> list[str]:
        return [*environment(SETTINGS), *PROGRAM, "--data", str(self._store.data), *words]

    def _start(self, *words: str, name: str) -> "subprocess.Popen[bytes]":
        folder = self._store.folder
        with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
            return subprocess.Popen(self._command(*words), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def _run_command(self, *words: str) -> dict[str, Any]:
        """Run a command and return its JSON. It is repeated while the database restarts, even if the first try may have been committed."""
        deadline = time.monotonic() + PATIENCE
        for attempt in itertools.count():
            done = subprocess.run(
                [*self._command(*words), *("--json",) * ("--json" not in words)],
                cwd=self._store.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                found: dict[str, Any] = json.loads(done.stdout)
                return found
            if done.returncode == EXIT_CONFLICT and attempt:
                return {}
            if done.returncode != EXIT_DATABASE or time.monotonic() > deadline:
                raise AssertionError(f"{words} ended with {done.returncode}: {done.stderr.decode()[-1000:]}")
            time.sleep(1)
        raise AssertionError

    # Kills

    def _kill(self, minute: int) -> str:
        """Kill a worker, the database server, or the front (API, dashboard, background with retention and the follower); return which.
        The oldest worker lives on, and so does the front after the first quarter, so that their memory can be seen to grow."""
        dice = random.Random(minute)
        front = minute % 10 == 5 and minute <= self._minutes // 4
        kind = "front" if front else "database" if minute % 10 == 0 else "worker"
        if kind == "database":
            kill_server(self._store.server().pid)
        elif kind == "front":
            self._served.kill_front()
        else:
            others = self._processes("worker")[1:]
            if not others:
                return "nothing: there is one worker"
            send(dice.choice(others).pid, signal.SIGKILL)
        self._progress.kills[kind] = self._progress.kills.get(kind, 0) + 1
        return kind

    def _processes(self, kind: str) -> list[psutil.Process]:
        """The running processes of `holdfast serve` of this kind, oldest first."""
        found = []
        for pid in self._served.everybody()[1:]:
            with suppress(psutil.Error):
                one = psutil.Process(pid)
                if kind in one.cmdline():
                    found.append((one.create_time(), one.pid, one))
        return [one for _, _, one in sorted(found, key=lambda each: each[:2])]

    # Measures

    def _measure(self) -> None:
        data = self._store.data
        sizes = self._sizes()
        copies = len(list((data / "backups").glob("*-full")))
        found = {
            "supervisor rss": _rss([psutil.Process(self._served.everybody()[0])]),
            "front rss": _rss(self._processes("front")),
            "oldest worker rss": _rss(self._processes("worker")[:1]),
            "workers rss": _rss(self._processes("worker")),
            "connections": sizes[2],
            "database bytes": sizes[0] - sizes[1],
            "archive bytes": _size(data / "archive"),
            "images bytes": _size(data / "images"),
            "backup bytes": _size(data / "backups") - copies * sizes[1],  # what grows by design is in each copy, too
            "log files bytes": _size(data / "logs"),
            "log bytes": sizes[1],
            "archived bytes": _size(data / "retention"),
            "pages": sizes[3],
        }
        for name, value in found.items():
            self._progress.samples.setdefault(name, []).append(value)

    def _sizes(self) -> Sequence[int]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with psycopg.connect(self._store.server().url()) as connection:
                    row = connection.execute(_SIZES.encode()).fetchone()
                    assert row is not None
                    return [int(value) for value in row]
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)


def _restore(store: _Store, progress: Progress, on_progress: OnProgress) -> None:
    """Restore the newest backup into another folder, as of a second after it; `holdfast restore` checks all of it first."""
    into = store.folder / "restored"
    moment = (datetime.now(UTC) - timedelta(minutes=2)).isoformat()
    words = ["restore", "latest", "--to", moment, "--into", str(into), "--json", "--yes"]
    command = [*environment(SETTINGS), *PROGRAM, "--data", str(store.data), *words]
    began = time.monotonic()
    done = subprocess.run(command, cwd=store.folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    on_progress(f"restored to {moment} in {time.monotonic() - began:.0f} s, exit code {done.returncode}")
    if done.returncode != 0:
        progress.violations.append(
            f"the restore to {moment} ended with {done.returncode}: {(done.stdout + done.stderr).decode()[-1000:]}"
        )
    with suppress(Exception):
        embedded.stop(into)
    shutil.rmtree(into, ignore_errors=True)


def _entry(minutes: int, progress: Progress) -> Entry:
    return {
        "planned": minutes,
        "landed": sum(progress.kills.values()),
        "repeats": 0,
        "refused": 0,
        "minutes": progress.minutes,
        "sessions": progress.sessions,
        "crawls": len(progress.waits),
        "slowest_crawl": max(progress.waits, default=0.0),
        "kills": progress.kills,
        "verified": progress.verified,
        "backups": progress.backups,
        "samples": progress.samples,
        "violations": progress.violations,
    }


def _rss(processes: Sequence[psutil.Process]) -> int:
    return sum(_zero_if_gone(lambda one=one: one.memory_info().rss) for one in processes)  # type: ignore[misc]


def _zero_if_gone(measure: Callable[[], int]) -> int:
    try:
        return measure()
    except psutil.Error:
        return 0


def _size(folder: Path) -> int:
    """Bytes on disk below a folder; files that are deleted meanwhile do not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(path) / name).stat().st_blocks * 512
    return total
