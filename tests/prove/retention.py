"""Retention over a store with a year of history, killed again and again beside a worker that crawls live jobs; then all of it restored.

The store has real crawls of the simulated web, aged, and synthetic jobs for its size. `row_hashes` says what must go, from the
documentation; what is left and what the archives hold must be what was there, row for row, and nothing of a live job may be fetched twice.
"""

import hashlib
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast import factories
from holdfast.db import audit, migrate
from holdfast.frontier.service import FrontierService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.settings import Settings
from holdfast.testing.simweb import sitemaps
from holdfast.testing.simweb.access_log import boot_ns
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, SpecialUrl, Web
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.process import PROGRAM, CrawlProcess, send
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import RETRIES
from tests.prove import row_hashes
from tests.prove.ledger import Entry
from tests.prove.sandbox import ROOT
from tests.prove.session_watch import SessionWatch
from tests.support import history
from tests.support.aged import let_files_age, let_pass
from tests.support.tasks import Tasks

PATIENCE: Final = 1800.0
_SETTINGS: Final = {
    "claims.sweep_interval": "1s",
    "fetch.timeout": "4s",
    "worker.heartbeat": "1s",
    "worker.idle": "0.1s",
    "flush.pages": "25",
    "flush.seconds": "0.4s",
    "politeness.retry_delay": "0.05s",
    "politeness.retries": str(RETRIES),
    "crawl.sitemaps": "no",
    "crawl.max_depth": "1000",
    "domains.crawl_delay": "0",
    "fetch.allow_private": "true",
}
_POINTS: Final = ("retention_read", "retention_archived", "retention_deleted")
_FIRST_PAGES: Final = 30
"""Pages of the job that is left unfinished, when it is stopped."""
_RSS_LIMIT: Final = 500 << 20
_TRANSACTION_LIMIT: Final = 60.0
_WAIT_LIMIT: Final = 1.0
_LISTED: Final = 30

# Jobs of the simulated web by name: the site, how many days ago it ended, and its options. The first column of ages is the oldest.
_OLD_SITE, _MARKDOWN_SITE, _LINKS_SITE, _DAILY_SITE, _RECENT_SITE, _NEW_SITE, _LIVE_SITE, _IMAGE_SITE = range(8)
# Synthetic jobs: their share of all pages, how many days ago they ended, how many days they lasted. One is on the domain of a live job.
_FILLED: Final = {
    "year": (0.20, 380, 60),
    "shared": (0.05, 380, 60),
    "half": (0.20, 200, 60),
    "quarter": (0.20, 110, 15),
    "months": (0.15, 60, 50),
    "month": (0.10, 20, 30),
    "weeks": (0.10, 9, 12),
}


@dataclass
class _Figures:
    kills: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    rss: int = 0
    restore_rss: int = 0


class Retained:
    """One trial: a store with that many pages of history, and so many kills of the run and of the restore."""

    def __init__(self, seed: int, pages: int, kills: int, sandbox: Sandbox, on_progress: OnProgress) -> None:
        self._rng = random.Random(f"retention {seed}")
        self._seed, self._pages, self._kills = seed, pages, kills
        self._sandbox, self._say = sandbox, on_progress
        self._figures = _Figures()
        self._ages: dict[str, int | None] = {}
        self.violations: list[str] = []

    def run(self) -> Entry:
        """Make the store, age it, run, kill, judge, restore, judge."""
        began = time.monotonic()
        with WebProcess(_web(self._seed, self._pages)) as web, self._sandbox.database().connect() as connection:
            connection.execute(
                "SET statement_timeout = 0; SET work_mem = '256MB'; SET idle_in_transaction_session_timeout = 0"
            )
            self._make(web, connection)
            before = self._photograph(connection)
            self._verify("before")
            live = self._live(connection)
            with SessionWatch(self._sandbox.database()) as watch:
                worker = self._start("worker", "--name", "live", name="live")
                try:
                    self._run_killed(connection, watch)
                    archived = self._judge(connection, before)
                    self._restore_killed(connection, watch)
                    self._judge_restored(connection, before)
                    live.finish(connection)
                    self._figures.seconds["all"] = time.monotonic() - began
                finally:
                    code = _end(worker)
            if code not in {0, 130}:
                self.violations.append(f"the worker of the live jobs ended with {code}")
            self.violations += live.judge(web)
            self._verify("at the end")
            return self._entry(connection, before, archived, watch, live)

    # The store --------------------------------------------------------------------------------------------------------

    def _make(self, web: WebProcess, connection: psycopg.Connection) -> None:
        began = time.monotonic()
        delay = min(1.5, 0.4 + self._pages / 1e6)
        self._crawl(web, "old", _OLD_SITE, "--images", "--links", "--text")
        self._crawl(web, "daily", _DAILY_SITE, "--text")
        audit.write(connection, actor="proof", action="begin", kind="job", object_id="daily")
        connection.execute(
            "UPDATE crawl_jobs SET schedule = '2000d', next_run_at = now() + interval '2000 days' WHERE name = 'daily'"
        )
        self._age(connection, 220)
        web.next_generation()
        self._crawl(web, "markdown", _MARKDOWN_SITE, "--markdown")
        self._crawl(web, "daily", _DAILY_SITE, "--again")
        self._leave_unfinished(web, delay)
        self._extras(connection)
        self._age(connection, 140)
        web.next_generation()
        self._crawl(web, "links", _LINKS_SITE, "--links", "--text")
        self._crawl(web, "daily", _DAILY_SITE, "--again")
        self._age(connection, 45)
        self._crawl(web, "recent", _RECENT_SITE, "--text")
        self._age(connection, 12)
        self._crawl(web, "new", _NEW_SITE, "--images")
        self._age(connection, 3)
        self._ages |= {
            "old": 420,
            "markdown": 200,
            "links": 60,
            "recent": 15,
            "new": 3,
            "daily": None,
            "unfinished": None,
        }
        for name, (share, age, lasted) in _FILLED.items():
            pages = max(1, round(share * self._pages / 1000)) * 1000
            history.fill(
                connection,
                name,
                pages,
                timedelta(days=age),
                lasted=timedelta(days=lasted),
                without_page=0.1,
                on=web.address.host(_LIVE_SITE) if name == "shared" else None,
            )
            self._ages[name] = age
        self._ages |= {"default": None, "tasks": None}
        connection.execute("VACUUM ANALYZE")
        # A live job that has something to do: pages that only sitemaps list.
        listed = [web.address.origin(_DAILY_SITE) + path for path in sitemaps.pages_of(web.web.site(_DAILY_SITE))]
        settings, database = Settings(), self._sandbox.database()
        importer = SeedImporter(
            database, factories.url_rules(settings), factories.new_domains(settings), registrable=False
        )
        FrontierService(database, importer, rest=timedelta(days=1)).add(listed, "daily", actor="proof")
        self._note("made", began)

    def _crawl(self, web: WebProcess, job: str, site: int, *options: str) -> None:
        known = "--again" in options
        where = ["--job", job] if known else [web.url(site), "--job", job, "--scope", "host"]
        process = self._start("crawl", *where, "--workers", "1", "--allow-private", "--json", *options, name=job)
        if not process.wait(PATIENCE) or process.code != 0:
            process.kill()
            raise AssertionError(f"the crawl {job} ended with {process.code}: {self._log(job)}")

    def _leave_unfinished(self, web: WebProcess, delay: float) -> None:
        name = "unfinished"
        options = ["--workers", "1", "--allow-private", "--delay", f"{delay:g}", "--scope", "host", "--text"]
        process = self._start("crawl", web.url(_LIVE_SITE), "--job", name, *options, name=name)
        host = web.address.host(_LIVE_SITE)
        deadline = time.monotonic() + 120
        while web.stats()["requests"].get(host, 0) < _FIRST_PAGES:
            assert process.alive, self._log(name)
            assert time.monotonic() < deadline, "no requests"
            time.sleep(0.05)
        _end(process)

    def _extras(self, connection: psycopg.Connection) -> None:
        """Rows that no crawl of one day leaves: tasks of a URL, and a message that was delivered."""
        tasks = Tasks(connection)
        for why in ("first", "second"):
            task = tasks.one("https://task.example/")
            connection.execute(
                "UPDATE crawl_tasks SET status = 'cancelled', status_reason = %s WHERE id = %s", (why, task)
            )
        connection.execute(
            """INSERT INTO webhook_deliveries (job_id, event, url, body, delivered_at, attempts, next_attempt_at)
               SELECT j.id, 'job.completed', 'https://hook.example/', '{}', clock_timestamp(), 1, NULL FROM crawl_jobs j
               WHERE j.name = 'old'"""
        )

    def _age(self, connection: psycopg.Connection, days: int) -> None:
        let_pass(connection, timedelta(days=days))
        let_files_age(self._sandbox.data / "archive", timedelta(days=days))

    def _photograph(self, connection: psycopg.Connection) -> "_Before":
        began = time.monotonic()
        ids: dict[str, int] = dict(connection.execute("SELECT name, id FROM crawl_jobs").fetchall())
        assert ids.keys() == self._ages.keys(), (ids, self._ages)
        row = connection.execute("SELECT count(*) FROM claim_log WHERE ended_at IS NULL").fetchone()
        assert row == (0,), "no domain is held"
        row_hashes.prepare(connection, {ids[name]: age for name, age in self._ages.items()})
        since = _one(connection, "SELECT clock_timestamp()")
        needed = {
            name
            for (name,) in connection.execute(
                """SELECT archive_segment FROM crawled_pages t WHERE archive_segment IS NOT NULL
                       AND job_id NOT IN (SELECT job_id FROM proof.jobs WHERE age >= interval '30 days')
                   UNION SELECT archive_segment FROM page_versions t WHERE archive_segment IS NOT NULL
                       AND job_id NOT IN (SELECT job_id FROM proof.jobs WHERE age >= interval '30 days')
                       AND NOT (replaced_at < now() - interval '90 days' AND EXISTS (SELECT FROM page_versions n
                           WHERE (n.domain_id, n.job_id, n.url_key) = (t.domain_id, t.job_id, t.url_key) AND n.number > t.number))"""
            )
        }
        oldest = time.time() - timedelta(days=30).total_seconds()
        files = _segments(self._sandbox.data / "archive")
        segments = {name: _sha256(path) for name, path in files.items()}
        old = {name for name, path in files.items() if path.stat().st_mtime < oldest and name not in needed}
        found = _Before(row_hashes.summary(connection), since, segments, old)
        for table, (rows, goes, print_) in found.rows.items():
            self._say(f"{table}: {rows:,} rows, of which {goes:,} must go; hash {print_}")
        self._say(f"{len(segments)} segments, of which {len(old)} must go")
        self._note("hashed", began)
        return found

    def _live(self, connection: psycopg.Connection) -> "_LiveJobs":
        rows = connection.execute("SELECT url FROM url_frontier WHERE state <> 'waiting' AND url LIKE 'http://%'")
        waiting = _one(connection, "SELECT count(*) FROM url_frontier WHERE state = 'waiting'")
        return _LiveJobs(boot_ns() / 1e9, {url for (url,) in rows}, int(waiting), self.violations)

    # The run ----------------------------------------------------------------------------------------------------------

    def _run_killed(self, connection: psycopg.Connection, watch: SessionWatch) -> None:
        def done() -> int:
            return int(
                _one(
                    connection,
                    "SELECT COALESCE(sum(f.rows), 0) FROM archive_files f JOIN archives a ON a.id = f.archive_id",
                )
            )

        total = int(_one(connection, "SELECT count(*) FROM proof.before WHERE goes"))
        began = time.monotonic()
        self._figures.rss = self._under_kills(
            "run", ("retention", "run", "--yes", "--json"), self._kills, total, 3_500, done, watch, _POINTS
        )
        self._note("run", began)
        result = json.loads((self._sandbox.folder / "run.out").read_text() or "{}")
        self.violations += [
            f"the last run has a problem: {step}" for step in result.get("steps", []) if step["problem"]
        ]

    def _restore_killed(self, connection: psycopg.Connection, watch: SessionWatch) -> None:
        def done() -> int:
            return int(_one(connection, "SELECT COALESCE(sum(rows), 0) FROM archives WHERE state = 'restored'"))

        found = connection.execute(
            "SELECT kind, sum(rows)::bigint, count(*) FROM archives WHERE state = 'complete' GROUP BY kind"
        ).fetchall()
        rows: dict[str, int] = {kind: count for kind, count, _ in found}
        chunk = {kind: max(1, count // archives) for kind, count, archives in found}
        kills = max(2, self._kills // 3)
        total = sum(rows.get(kind, 0) for kind in row_hashes.BACK)
        began = time.monotonic()
        for kind in row_hashes.BACK:
            if rows.get(kind):
                share = max(1 if kind in {"pages", "log"} else 0, round(kills * rows[kind] / total))
                arguments = ("archive", "restore", "--kind", kind, "--json")
                peak = self._under_kills(
                    f"restore {kind}", arguments, share, rows[kind], chunk[kind], done, watch, ("retention_restored",)
                )
                self._figures.restore_rss = max(self._figures.restore_rss, peak)
        self._note("restore", began)
        for kind in sorted(rows.keys() - set(row_hashes.BACK)):
            process = self._start(
                "archive", "restore", "--kind", kind, "--schema", "analysis", "--json", name="analysis"
            )
            if not process.wait(PATIENCE) or process.code != 0:
                process.kill()
                self.violations.append(
                    f"the restore of {kind} into a schema ended with {process.code}: {self._log('analysis')}"
                )

    def _under_kills(
        self,
        what: str,
        arguments: Sequence[str],
        kills: int,
        total: int,
        chunk: int,
        done: Callable[[], int],
        watch: SessionWatch,
        points: Sequence[str],
    ) -> int:
        """Run a command until it ends by itself; kill it `kills` times before, at points and at random. Returns its peak memory."""
        peak, landed, began = 0, 0, done()
        while True:
            at = done()
            wanted = (total - (at - began)) / (kills - landed + 1) * self._rng.uniform(0.3, 1.4)
            point = points[landed // 2 % len(points)] if landed < kills and landed % 2 == 0 else None
            program: Sequence[str] = PROGRAM
            if point is not None:
                nth = max(1, round(wanted / chunk))
                program = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.prove.armed", point, f"{nth}")
            process = self._start(*arguments, name=what.replace(" ", "-"), program=program)
            self._figures.lives += 1
            deadline = time.monotonic() + PATIENCE
            late = 1.3 * wanted if point else wanted
            while process.alive and time.monotonic() < deadline:
                peak = max(peak, _peak_memory(process.pid))
                watch.note(what)
                if landed < kills and done() - at >= late:
                    time.sleep(self._rng.uniform(0, 0.3))
                    point = None
                    process.kill()
                time.sleep(0.05)
            if process.alive:
                process.kill()
                self.violations.append(f"{what} has not ended within {PATIENCE:.0f} s")
                return peak
            if process.code != -signal.SIGKILL:
                break
            landed += 1
            self._figures.kills[point or f"{what.partition(' ')[0]}: at random"] += 1
            faults = self._verify(f"after kill {landed} of {what}")
            reached = f"{done() - began:,} of {total:,} rows"
            self._say(
                f"{what}: kill {landed}/{kills} {point or 'at random'}, {reached}; {faults or 'the store is whole'}"
            )
        if process.code != 0:
            self.violations.append(f"{what} ended with {process.code}: {self._log(what.replace(' ', '-'))}")
        if landed < kills:
            self.violations.append(f"void: {what} was killed {landed} times instead of {kills}")
        self._verify(f"after {what}")
        return peak

    # The judgement ----------------------------------------------------------------------------------------------------

    def _judge(self, connection: psycopg.Connection, before: "_Before") -> row_hashes.Archives:
        began = time.monotonic()
        archived = row_hashes.load_archives(connection, self._sandbox.data / "retention")
        found = [
            *archived.violations,
            *row_hashes.judge_left(connection, before.since),
            *row_hashes.judge_archived(connection),
        ]
        left = {name: _sha256(path) for name, path in _segments(self._sandbox.data / "archive").items()}
        for name, digest in before.segments.items():
            if name in before.old_segments:
                found += [f"the segment {name} is old and still there"] * (name in left)
                found += [f"the segment {name} is in no archive as it was"] * (archived.segments.get(name) != digest)
            else:
                found += [f"the segment {name} must have stayed as it was"] * (left.get(name) != digest)
        found += [
            f"the segment {name} was archived and must stay" for name in archived.segments.keys() - before.old_segments
        ]
        self.violations += found
        rows = sum(archived.rows.values())
        self._say(
            f"{rows:,} rows in {archived.files} files, {archived.bytes / 1e6:.0f} MB; {found or 'all is as it must be'}"
        )
        self._note("judged", began)
        return archived

    def _judge_restored(self, connection: psycopg.Connection, before: "_Before") -> None:
        began = time.monotonic()
        found = [
            *row_hashes.judge_restored(connection, before.since),
            *row_hashes.judge_for_analysis(connection, "analysis"),
        ]
        there = {name: _sha256(path) for name, path in _segments(self._sandbox.data / "archive").items()}
        found += [
            f"the segment {name} is not as before"
            for name, digest in before.segments.items()
            if there.get(name) != digest
        ]
        newest = int(_one(connection, "SELECT max(id) FROM archives"))
        again = self._start("retention", "run", "--yes", "--json", name="again")
        if not again.wait(PATIENCE) or again.code != 0:
            again.kill()
            found.append(f"a run after the restore ended with {again.code}: {self._log('again')}")
        rows = connection.execute("SELECT kind, sum(rows) FROM archives WHERE id > %s GROUP BY kind", (newest,))
        found += [f"{count} rows of {kind} were restored, and are archived again at once" for kind, count in rows]
        self.violations += found
        self._say(f"restored: {found or 'all is as before'}")
        self._note("judged again", began)

    def _verify(self, when: str) -> list[str]:
        began = time.monotonic()
        faults = [f"{when}: {fault}" for fault in checks.verify_store(self._sandbox)]
        self._figures.seconds["verify"] = self._figures.seconds.get("verify", 0.0) + time.monotonic() - began
        self.violations += faults
        return faults

    def _entry(
        self,
        connection: psycopg.Connection,
        before: "_Before",
        archived: row_hashes.Archives,
        watch: SessionWatch,
        live: "_LiveJobs",
    ) -> Entry:
        rss = max(self._figures.rss, self._figures.restore_rss)
        if rss > _RSS_LIMIT:
            self.violations.append(f"the run took {rss >> 20} MB of memory, more than {_RSS_LIMIT >> 20}")
        if watch.transaction > _TRANSACTION_LIMIT:
            self.violations.append(f"a transaction of retention took {watch.transaction:.1f} s")
        if watch.wait > _WAIT_LIMIT:
            self.violations.append(f"a worker waited {watch.wait:.2f} s for a lock: {watch.waited}")
        landed = sum(self._figures.kills.values())
        return {
            "planned": landed + len([each for each in self.violations if each.startswith("void")]),
            "landed": landed,
            "by_kind": dict(self._figures.kills),
            "repeats": live.repeats,
            "refused": 0,
            "seconds": {name: round(seconds, 1) for name, seconds in self._figures.seconds.items()},
            "pages": self._pages,
            "rows": {
                table: {"rows": rows, "went": goes, "hash": print_}
                for table, (rows, goes, print_) in before.rows.items()
            },
            "segments": {"all": len(before.segments), "went": len(before.old_segments)},
            "archived_rows": sum(archived.rows.values()),
            "archive_files": archived.files,
            "archive_bytes": archived.bytes,
            "database_bytes": _one(connection, "SELECT pg_database_size(current_database())"),
            "lives": self._figures.lives,
            "peak_rss": {"run": self._figures.rss, "restore": self._figures.restore_rss},
            "longest_transaction": round(watch.transaction, 2),
            "longest_wait": round(watch.wait, 3),
            "waited": watch.waited,
            "live_requests": live.requests,
            "violations": self.violations,
        }

    # Helpers ----------------------------------------------------------------------------------------------------------

    def _start(self, *arguments: str, name: str, program: Sequence[str] = PROGRAM) -> CrawlProcess:
        return CrawlProcess(
            ["--data", str(self._sandbox.data), *arguments],
            settings=_SETTINGS,
            folder=self._sandbox.folder,
            name=name,
            program=program,
        )

    def _log(self, name: str) -> str:
        return (self._sandbox.folder / f"{name}.log").read_text("utf-8", "replace")[-600:]

    def _note(self, what: str, began: float) -> None:
        self._figures.seconds[what] = time.monotonic() - began
        self._say(f"{what}: {self._figures.seconds[what]:.1f} s")


@dataclass(frozen=True)
class _Before:
    rows: dict[str, tuple[int, int, str]]
    since: Any
    segments: dict[str, str]
    old_segments: set[str]


@dataclass
class _LiveJobs:
    """The jobs that are crawled meanwhile, judged by the log of the sites."""

    since: float
    settled: set[str]
    waiting: int
    violations: list[str]
    requests: int = 0
    repeats: int = 0

    def finish(self, connection: psycopg.Connection) -> None:
        """Wait until they have nothing left to do."""
        query = "SELECT count(*) FROM url_frontier WHERE state = 'waiting'"
        deadline = time.monotonic() + PATIENCE
        while _one(connection, query):
            if time.monotonic() > deadline:
                self.violations.append(f"the live jobs have {_one(connection, query)} URLs left that nobody crawls")
                return
            time.sleep(0.5)

    def judge(self, web: WebProcess) -> list[str]:
        """Nothing that was settled before is asked for again, and nothing twice; in the end they have all of their sites."""
        hits = [hit for hit in web.log() if hit.at >= self.since and not hit.path.startswith("/robots")]
        asked = Counter(hit.url for hit in hits)
        again = sorted(url for url in asked if url in self.settled)
        twice = sorted(url for url, times in asked.items() if times > 1)
        self.requests, self.repeats = len(hits), sum(times - 1 for times in asked.values()) + len(again)
        found = checks.limit_lines(f"I9 {url} was fetched before, and is fetched again" for url in again)
        found += checks.limit_lines(f"I9 {url} was fetched {asked[url]} times" for url in twice)
        found += ["void: no live job was crawled meanwhile"] * (len(hits) < min(self.waiting, 20))
        everything = {hit.url for hit in web.log()}
        missing = [
            page.url
            for site in (_LIVE_SITE, _DAILY_SITE)
            for page in web.expected(site)
            if page.kind is page.kind.PAGE
            and "/maps/" not in page.url
            and page.url not in everything
            and "/private/" not in page.url
        ]
        return found + checks.limit_lines(f"I1 {url} was never asked for" for url in missing)


def _web(seed: int, pages: int) -> Web:
    odd = {
        SpecialUrl.MISSING: 0.05,
        SpecialUrl.MOVED: 0.1,
        SpecialUrl.PRIVATE: 0.05,
        SpecialUrl.FORBIDDEN: 0.05,
        SpecialUrl.COPY: 0.05,
        SpecialUrl.BINARY: 0.03,
    }
    site = Site(60, 8, 3000, robots=Robots.DENY, latency=0.002, odd=odd)
    live = Site(
        120 + pages // 1250, 8, 3000, robots=Robots.DENY, odd={SpecialUrl.MISSING: 0.05, SpecialUrl.MOVED: 0.05}
    )
    with_images = Site(40, 8, 3000, robots=Robots.DENY, images=3, gallery=15, image_host=_IMAGE_SITE, odd=odd)
    special = {
        _OLD_SITE: with_images,
        _NEW_SITE: with_images,
        _DAILY_SITE: Site(40, 8, 3000, changing=0.6, listed=_LISTED, robots=Robots.DENY),
        _LIVE_SITE: live,
        _IMAGE_SITE: Site(1),
    }
    return Web(seed, 8, site, special)


def _one(connection: psycopg.Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _segments(folder: Path) -> dict[str, Path]:
    return {f"{path.parent.name}/{path.name}": path for path in sorted(folder.glob("*/*.warc.gz"))}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _end(process: CrawlProcess) -> int | None:
    """Ask a process to end in order; its exit code."""
    send(process.pid, signal.SIGTERM)
    if not process.wait(60.0):
        process.kill()
    return process.code


def _peak_memory(pid: int) -> int:
    """The most memory that a process has had so far, in bytes."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def prove(seed: int, pages: int, kills: int, sandbox: Sandbox, on_progress: OnProgress) -> Entry:
    """Run the proof in a sandbox of its own."""
    with sandbox:
        migrate.upgrade(sandbox.database())
        entry = Retained(seed, pages, kills, sandbox, on_progress).run()
        sandbox.keep = bool(entry["violations"])
    return entry
