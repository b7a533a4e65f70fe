"""The columns of the proof: which faults, how many, on which crawls.

The rule: every entry is one crawl of the same web, small enough to be killed twenty times in a minute, and judged like all others.
"""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from holdfast import failpoints
from holdfast.cli.command_context import EXIT_INTERRUPTED
from holdfast.db import migrate
from holdfast.db.connection import Database
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture import checks, experiment
from holdfast.testing.torture import scenario as plans
from holdfast.testing.torture.experiment import Reference, Report
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.process import CrawlProcess
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Fault, Scenario, crawl_settings
from tests.prove import api_kills, api_writes, dashboard, partition, pauses, resets, retention, soak, task_kills
from tests.prove.api_server import Door, Served
from tests.prove.backups import BackedUp
from tests.prove.faults import CUTS, PATIENCE, AtCommits, AtPoints, points
from tests.prove.ledger import Entry
from tests.prove.pauses import Paused
from tests.prove.proxied import Through
from tests.prove.sandbox import ExternalSandbox, mutant
from tests.support.severing import Cut

PAGES = 480
FULL = 300
"""Faults of the largest columns; the others are scaled with them."""
PAGES_A_KILL = 1_000_000 // FULL
"""Pages of history in the store of the column retention."""
SMALL_SHARE = {"domains.max_pages_per_run": "2"}
"""So that there are enough rounds to be killed in."""
MEMORY = Path("/dev/shm")
ROOM = 2 << 30


@dataclass(frozen=True)
class Trials:
    """Where crawls are tried, and the one without faults that all are compared with."""

    folder: Path
    reference: Reference
    scenario: Scenario
    scenario_with_images: Scenario
    _references: list[Reference] = field(default_factory=list)

    def reference_with_images(self, on_progress: OnProgress) -> Reference:
        """The crawl without faults of the web with images; done when it is needed."""
        if not self._references:
            on_progress("the crawl without faults that stores images …")
            sandbox = Sandbox(self.folder / "reference-images")
            found = experiment.run_reference(self.scenario_with_images, sandbox)
            if found.violations:
                raise SystemExit("\n".join(found.violations))
            self._references.append(found)
        return self._references[0]

    def make(self, seed: int, kills: int, workers: int, *faults: Fault) -> Scenario:
        """The same web, other moments."""
        made = plans.make_scenario(seed=seed, pages=PAGES, workers=workers, kills=kills, faults=faults)
        return replace(made, web=self.scenario.web)


@contextmanager
def open_trials(on_progress: OnProgress) -> Iterator[Trials]:
    """A folder in memory if there is room (fsync is on all the same), with the crawl without faults done."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    folder = Path(tempfile.mkdtemp(prefix="holdfast-prove-", dir=MEMORY if roomy else None))
    folder.chmod(0o755)
    scenario = plans.make_scenario(seed=1, pages=PAGES, workers=1, kills=0)
    on_progress("the crawl without faults …")
    reference = experiment.run_reference(scenario, Sandbox(folder / "reference"))
    if reference.violations:
        raise SystemExit("\n".join(reference.violations))
    with_images = plans.make_scenario(seed=1, pages=PAGES, workers=1, kills=0, images=True)
    yield Trials(folder, reference, scenario, with_images)
    if not any(folder.iterdir()):
        folder.rmdir()


Run = Callable[[Trials, OnProgress], Entry]


def _entry(report: Report, landed: int | None = None) -> Entry:
    return {
        "planned": report.planned,
        "landed": report.landed_count if landed is None else landed,
        "by_kind": report.landed,
        "repeats": report.repeats,
        "refused": report.refusals,
        "not_taken_away": report.kept_claims,
        "slowest_first_fetch": round(report.slowest_first_fetch, 2),
        "median_first_fetch": round(report.first_fetch, 2),
        "seconds": round(report.seconds, 1),
        "violations": report.violations,
    }


def _by_signal(
    seed: int, kills: int, workers: int, faults: tuple[Fault, ...], trials: Trials, on_progress: OnProgress
) -> Entry:
    scenario = trials.make(seed, kills, workers, *faults)
    report = experiment.run_with_faults(
        scenario, trials.reference, Sandbox(trials.folder / f"signal-{workers}-{seed}"), on_progress
    )
    if faults == (Fault.FREEZE,) and not report.refusals:
        report.violations.append("void: no worker that woke up was refused anything")
    return _entry(report)


def _with_images(seed: int, kills: int, workers: int, fault: Fault, trials: Trials, on_progress: OnProgress) -> Entry:
    """A crawl that stores images is killed; the one without faults is another than that of the other columns."""
    reference = trials.reference_with_images(on_progress)
    made = plans.make_scenario(seed=seed, pages=PAGES, workers=workers, kills=kills, faults=(fault,), images=True)
    scenario = replace(made, web=trials.scenario_with_images.web)
    sandbox = Sandbox(trials.folder / f"images-{workers}-{seed}")
    report = experiment.run_with_faults(scenario, reference, sandbox, on_progress)
    entry = _entry(report) | {"images": report.images}
    if report.garbage is not None:
        entry |= {"orphans": report.garbage.files, "unfinished_files": report.garbage.leftovers}
        on_progress(
            f"{report.images} images as generated; gc has deleted {report.garbage.files} orphans and "
            f"{report.garbage.leftovers} unfinished files"
        )
    return entry


def _proxied(
    seed: int, kills: int, workers: int, fault: Fault, limit: int | None, trials: Trials, on_progress: OnProgress
) -> Entry:
    crawl = Through(seed, limit=limit)
    scenario = trials.make(seed, kills, workers, fault)
    with _migrated(trials.folder / f"proxied-{workers}-{fault.name}-{seed}") as sandbox:
        report = experiment.run_with_faults(scenario, trials.reference, sandbox, on_progress, crawl=crawl)
    if not crawl.deeds and not limit:
        report.violations.append("void: nothing was done to a proxy")
    return _entry(report) | {"deeds": crawl.deeds, "figures": crawl.figures}


def _backed_up(
    seed: int, kills: int, workers: int, faults: tuple[Fault, ...], trials: Trials, on_progress: OnProgress
) -> Entry:
    """A crawl is backed up under kills and restored to three seconds of its past."""
    crawl = BackedUp(seed)
    sandbox = Sandbox(trials.folder / f"backup-{workers}-{seed}")
    report = experiment.run_with_faults(
        trials.make(seed, kills, workers, *faults), trials.reference, sandbox, on_progress, crawl=crawl
    )
    return _entry(report) | {"refused": crawl.figures["refused"], "figures": crawl.figures}


def _at_point(name: str, count: int, proxied: bool, trials: Trials, on_progress: OnProgress) -> Entry:
    crawl = AtPoints(points(name, count, seed=1))
    scenario = trials.make(1, len(crawl.orders), 1, Fault.KILL_ALL)
    with _migrated(trials.folder / f"point-{name}") as sandbox:
        sandbox.more = SMALL_SHARE if name == "round_raised" else {}
        way = Through(1, crawl) if proxied else crawl
        report = experiment.run_with_faults(scenario, trials.reference, sandbox, on_progress, crawl=way)
    if crawl.reached[name] < count:
        report.violations.append(f"void: {name} was reached {crawl.reached[name]} times instead of {count}")
    return _entry(report, crawl.reached[name])


def _cut(
    seed: int, count: int, kinds: tuple[Cut, ...], proxied: bool, trials: Trials, on_progress: OnProgress
) -> Entry:
    scenario = trials.make(seed, count, 2, Fault.KILL_ONE)
    with _migrated(trials.folder / f"cut-{seed}-{len(kinds)}") as sandbox:
        crawl = AtCommits(sandbox, count, seed, kinds=kinds)
        way = Through(seed, crawl) if proxied else crawl
        report = experiment.run_with_faults(scenario, trials.reference, sandbox, on_progress, crawl=way)
    if report.repeats and not proxied:
        report.violations.append(f"I9 nobody died, and {report.repeats} requests were repeated")
    return _entry(report, sum(crawl.cuts.values()))


@contextmanager
def _migrated(folder: Path) -> Iterator[ExternalSandbox]:
    """A server of its own, whose database is reached by its address."""
    with Sandbox(folder) as sandbox:
        database: Database = sandbox.database()
        migrate.upgrade(database)
        sandbox.keep = True
        borrowed = ExternalSandbox(folder / "crawl", database)
        yield borrowed
        sandbox.keep = borrowed.keep


def _in_migration(count: int, trials: Trials, on_progress: OnProgress) -> Entry:
    """An upgrade of the baseline is killed in its first step; each time the schema is as it was, and in the end it gets there."""
    violations: list[str] = []
    landed = 0
    with Sandbox(trials.folder / "migration") as sandbox:
        migrate.upgrade(sandbox.database(), migrate.BASELINE)
        for number in range(count):
            arguments = ["--data", str(sandbox.data), "worker", "--failpoint", "in_migration"]
            victim = CrawlProcess(arguments, settings=crawl_settings(trials.scenario), folder=sandbox.folder)
            try:
                victim.wait(PATIENCE)
                landed += victim.code == -signal.SIGKILL
            finally:
                victim.kill()
            with sandbox.database().session() as connection:
                at = migrate.current(connection)
            if at != migrate.BASELINE:
                violations.append(f"after kill {number + 1} the schema is at {at}")
        migrate.upgrade(sandbox.database())
        violations += checks.verify_store(sandbox)
    on_progress(f"in_migration: reached {landed} times")
    if landed < count:
        violations.append(f"void: in_migration was reached {landed} times instead of {count}")
    return {"planned": count, "landed": landed, "repeats": 0, "refused": 0, "seconds": 0, "violations": violations}


def _paused(seed: int, rounds: int, trials: Trials, on_progress: OnProgress) -> Entry:
    crawl = Paused(rounds, seed)
    scenario = trials.make(seed, rounds, pauses.WORKERS, Fault.KILL_ALL)
    with _migrated(trials.folder / f"paused-{seed}") as sandbox:
        report = experiment.run_with_faults(scenario, trials.reference, sandbox, on_progress, crawl=crawl)
    on_progress(f"let go after at most {max(crawl.took, default=0):.2f} s")
    return _entry(report, len(crawl.took))


def _paused_million(domains: int, trials: Trials, on_progress: OnProgress) -> Entry:
    with _migrated(trials.folder / "paused-million") as sandbox, WebProcess(trials.scenario.web) as web, sandbox:
        took, violations = pauses.a_million(trials.scenario, sandbox, web, domains, on_progress)
    found = {"planned": 3, "landed": len(took), "repeats": 0, "refused": 0, "seconds": round(sum(took), 2)}
    return found | {"violations": violations}


def _soaked(seed: int, minutes: float, trials: Trials, on_progress: OnProgress) -> Entry:
    with _migrated(trials.folder / f"resets-{seed}") as sandbox, sandbox:
        entry = resets.soak(seed, minutes, trials.scenario, sandbox, on_progress)
        sandbox.keep = bool(entry["violations"])
    return entry


def _watched(minutes: int, trials: Trials, on_progress: OnProgress) -> Entry:
    with _migrated(trials.folder / "dashboard") as sandbox, sandbox:
        entry = dashboard.soak(minutes, sandbox, on_progress)
        sandbox.keep = bool(entry.get("violations"))
    return entry


def _ran_for_long(minutes: int, trials: Trials, on_progress: OnProgress) -> Entry:
    """In a folder of its own, which outlives an interruption."""
    return soak.soak(minutes, on_progress)


def _tasks_killed(seed: int, count: int, kills: int, trials: Trials, on_progress: OnProgress) -> Entry:
    with _migrated(trials.folder / f"tasks-{seed}") as sandbox, sandbox:
        return task_kills.killed(seed, count, kills, sandbox, on_progress)


def _tasks_recurring(seconds: int, trials: Trials, on_progress: OnProgress) -> Entry:
    with _migrated(trials.folder / "recurring") as sandbox, sandbox:
        return task_kills.recurring(seconds, sandbox, on_progress)


def _api_killed(seed: int, kills: int, trials: Trials, on_progress: OnProgress) -> Entry:
    """`holdfast serve` with two workers, and the process of the API killed so often."""
    web = WebProcess(Web(seed, 1, Site(5, 2, 500)))
    with web, _migrated(trials.folder / f"api-{seed}") as sandbox, sandbox, Served(sandbox, "--workers", "2") as served:
        clients = api_kills.Clients(served.url, sandbox, web.url())
        entry = api_kills.at_random(seed, kills, sandbox, served, clients, on_progress)
        served.terminate()
        code = served.end()
        entry["violations"] += [f"told to stop, it ended with {code}"] * (code != EXIT_INTERRUPTED)
        entry["violations"] += [f"afterwards: {fault}" for fault in checks.verify_store(sandbox)]
        sandbox.keep = bool(entry["violations"])
    return entry


def _api_at_places(as_mutant: bool, trials: Trials, on_progress: OnProgress) -> Entry:
    """The API dies on both sides of a commit, over every kind of write. The mutant stores no responses, and the proof must notice."""
    kinds = ["operation"] if as_mutant else list(api_writes.KINDS)
    name = "api-mutant" if as_mutant else "api-places"
    with _migrated(trials.folder / name) as sandbox, sandbox:
        with Door(sandbox, mutant("no_stored_responses")) if as_mutant else Door(sandbox) as door:
            died, violations = api_kills.at_points(sandbox, kinds, door, on_progress)
        if as_mutant:
            seen = any("the repeat did not get the first answer" in violation for violation in violations)
            violations = [] if seen else ["void: the proof did not notice that no response is stored"]
        sandbox.keep = bool(violations)
    planned = 2 * len(kinds)
    violations += [f"void: it died {died} times instead of {planned}"] * (died < planned)
    return {"planned": planned, "landed": died, "repeats": died, "refused": 0, "seconds": 0, "violations": violations}


def _partitioned(low: int, high: int, count: int, trials: Trials, on_progress: OnProgress) -> Entry:
    """So many workers side by side, each cut off from the database for `low` to `high` seconds."""
    folder = trials.folder / f"partition-{low}"
    entry = partition.side_by_side(low, high, count, folder, on_progress)
    if not entry["violations"]:
        shutil.rmtree(folder, ignore_errors=True)
    return entry


def _retained(pages: int, kills: int, trials: Trials, on_progress: OnProgress) -> Entry:
    """A store with so many pages of history, on the disk: it is larger than the memory should be."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-prove-"))
    folder.chmod(0o755)
    entry = retention.prove(1, pages, kills, Sandbox(folder / "store"), on_progress)
    if not entry["violations"]:
        folder.rmdir()
    return entry


def entries(kills: int) -> dict[str, dict[str, Run]]:
    """Every column with its crawls by name, for `kills` faults in the largest."""
    some, few = max(1, kills // 3), max(1, round(kills / 15))

    def portions(total: int, each: int) -> list[int]:
        return [min(each, total - done) for done in range(0, total, each)]

    def by_signal(total: int, each: int, workers: int, *faults: Fault) -> dict[str, Run]:
        sizes = portions(total, each)
        return {f"{seed}": partial(_by_signal, seed, size, workers, faults) for seed, size in enumerate(sizes, 1)}

    def cut(total: int, each: int, kinds: tuple[Cut, ...]) -> dict[str, Run]:
        sizes = portions(total, each)
        return {f"{seed}": partial(_cut, seed, size, kinds, False) for seed, size in enumerate(sizes, 1)}

    at_points: dict[str, Run] = {
        name: partial(_at_point, name, few, False)
        for name in sorted(failpoints.NAMES - failpoints.API - failpoints.COMMANDS - failpoints.UPLOADS)
    }
    at_points["in_migration"] = partial(_in_migration, few)
    return {
        "alone": by_signal(kills, 20, 1, Fault.KILL_ALL),
        "alone+postmaster": by_signal(some, 20, 1, Fault.KILL_ALL, Fault.KILL_WITH_SERVER),
        "one of four": by_signal(kills, 20, 4, Fault.KILL_ONE),
        "failpoints": at_points,
        "frozen": by_signal(some, 10, 4, Fault.FREEZE),
        "cut": cut(kills, 30, CUTS),
        "images": {
            f"{name} {seed}": partial(_with_images, seed, size, workers, fault)
            for name, workers, fault in (("alone", 1, Fault.KILL_ALL), ("one of four", 4, Fault.KILL_ONE))
            for seed, size in enumerate(portions(max(1, kills // 2), 15), 1)
        },
        "backup": {
            f"{name} {seed}": partial(_backed_up, seed, size, workers, faults)
            for name, workers, faults in (
                ("alone", 1, (Fault.KILL_ALL,)),
                ("one of four", 4, (Fault.KILL_ONE,)),
                ("with the server", 1, (Fault.KILL_ALL, Fault.KILL_WITH_SERVER)),
            )
            for seed, size in enumerate(portions(max(1, some // 5), 5), 1)
        },
        "partition": {
            f"{low} to {high} s": partial(_partitioned, low, high, max(1, kills // 30))
            for low, high in partition.RANGES
        },
        "cut unnoticed": cut(few, 20, (Cut.BEFORE_COMMIT_UNNOTICED,)),
        "proxies": {
            **{
                f"alone {seed}": partial(_proxied, seed, 12, 1, Fault.KILL_ALL, None)
                for seed in range(1, 1 + max(1, kills // 12))
            },
            **{
                f"one of four {seed}": partial(_proxied, seed, 12, 4, Fault.KILL_ONE, None)
                for seed in range(1, 1 + max(1, kills // 12))
            },
            **{
                f"frozen {seed}": partial(_proxied, seed, 5, 4, Fault.FREEZE, None)
                for seed in range(1, 1 + max(1, some // 5))
            },
            **{
                name: partial(_at_point, name, few, True)
                for name in sorted(failpoints.NAMES - failpoints.API - failpoints.COMMANDS - failpoints.UPLOADS)
            },
            "eight with a limit": partial(_proxied, 1, few, 8, Fault.KILL_ONE, 40),
            **{f"cut {seed}": partial(_cut, seed, 12, CUTS, True) for seed in range(1, 1 + max(1, kills // 12))},
        },
        "resets": {
            f"{seed}": partial(_soaked, seed, minutes)
            for seed, minutes in enumerate(portions(max(1, kills // 10), 10), 1)
        },
        "retention": {"store": partial(_retained, kills * PAGES_A_KILL, max(4, kills // 10))},
        "dashboard": {"open": partial(_watched, max(4, kills // 5))},
        "soak": {"all of it": partial(_ran_for_long, max(12, kills * 2 // 5))},
        "tasks": {
            **{f"{seed}": partial(_tasks_killed, seed, 400, few) for seed in range(1, 6)},
            "recurring": partial(_tasks_recurring, 120 if kills == FULL else 65),
        },
        "api": {
            **{f"{seed}": partial(_api_killed, seed, size) for seed, size in enumerate(portions(2 * some, 20), 1)},
            "places": partial(_api_at_places, False),
            "mutant": partial(_api_at_places, True),
        },
        "paused": {
            **{f"{seed}": partial(_paused, seed, 5) for seed in range(1, 1 + max(1, few // 5))},
            "a million": partial(_paused_million, 1_000_000 if kills == FULL else 20_000),
        },
    }
