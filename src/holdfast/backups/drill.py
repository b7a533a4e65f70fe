"""The restore drill: the recovery testing checklist, done with a backup in a scratch place.

The rule: nothing of the store in use is touched, and a line that could not be checked counts as failed. The result is kept beside the
backups.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from holdfast import private
from holdfast.archive.image_store import ImageStore
from holdfast.backups import queries
from holdfast.backups.records import Check, Drill
from holdfast.backups.repository import ARCHIVE, StoredBackup, write_json
from holdfast.backups.restore import Plan, Recovered, Restorer
from holdfast.db.verify import Finding
from holdfast.errors import BackupsUnavailable, HoldfastError

DRILLS: Final = "drills"
START_SECONDS: Final = 60.0
"""Seconds that the server of the restored store has to start."""
_SERVING: Final = re.compile(r"Serving at http://([0-9.]+):([0-9]+)")
_PAGES: Final = (
    "address of every page",
    "reference",
    "version of a page",
    "bytes with its hash",
    "record of the archive",
)
"""Words in the checks of `verify` that are about pages."""

RESTORED: Final = "Restore the database into a scratch place"
ROWS: Final = "The rows of the frontier match"
PAGES: Final = "The pages and their bytes are whole"
INVARIANTS: Final = "All other invariants hold (`verify`)"
REDIS: Final = "Restore Redis"
VISITED: Final = "What was visited is known"
KEYS: Final = "The keys of secrets can be found"
HEALTH: Final = "The health check answers"
DASHBOARD: Final = "The dashboard shows the restored data"
OF_THE_STORE: Final = (RESTORED, ROWS, PAGES, INVARIANTS, REDIS, VISITED, KEYS, HEALTH, DASHBOARD)
"""The lines that need the restored store, in their order."""

OnCheck = Callable[[Check], None]


def run(
    restorer: Restorer, plan: Plan, folder: Path, images: ImageStore | None, on_check: OnCheck, *, has_key: bool
) -> Drill:
    """Do the drill with a scratch store in `folder`; `on_check` gets each line when it is checked. `images`: their store, if not copied;
    `has_key`: the key of secrets is known outside of the backup."""
    at = datetime.now(UTC)
    checks: list[Check] = []

    def check(name: str, begun: float, ok: bool, result: str) -> None:
        checks.append(Check(name, ok, result, round(time.monotonic() - begun, 3)))
        on_check(checks[-1])

    begun = time.monotonic()
    wrong = restorer.problems(plan)
    names = ", ".join(one.name for one in plan.chain)
    check(
        "The files of the backup are whole", begun, not wrong, wrong[0] if wrong else f"{names}: every SHA-256 matches."
    )
    begun = time.monotonic()
    try:
        with restorer.scratch(plan, folder) as (data, recovered):
            _restored(restorer, plan, data, recovered, images, check, begun, has_key=has_key)
    except (HoldfastError, OSError) as problem:
        done = {one.name for one in checks}
        reason = str(problem)
        for name in (name for name in OF_THE_STORE if name not in done):
            check(name, begun, False, reason)
            begun, reason = time.monotonic(), "Not checked, since a line before it failed."
    begun = time.monotonic()
    report = restorer.repository.folder / DRILLS / f"{at:%Y%m%dT%H%M%SZ}.json"
    ok = all(one.ok for one in checks)
    bad = [one.name for one in checks if not one.ok]
    check("Document issues", begun, True, f"Kept in {report}: {'no issue' if not bad else '; '.join(bad)}.")
    result = Drill(plan.backup.name, at, ok, checks, str(report))
    try:
        private.make_folder(report.parent)
        write_json(report, {**asdict(result), "at": at.isoformat()})
    except OSError as problem:
        raise BackupsUnavailable(
            f"The result of the drill cannot be kept in {report}: {problem.strerror or problem}."
        ) from problem
    return result


def _restored(
    restorer: Restorer,
    plan: Plan,
    data: Path,
    recovered: Recovered,
    images: ImageStore | None,
    check: Callable[[str, float, bool, str], None],
    begun: float,
    *,
    has_key: bool,
) -> None:
    as_of = recovered.last_change
    second = "unknown" if as_of is None else f"{as_of.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    text = f"Restored in {time.monotonic() - begun:.1f} s; its last change is of {second}; generation {recovered.generation}."
    check(RESTORED, begun, True, text)

    begun = time.monotonic()
    with recovered.database.session() as connection:
        counts = queries.counts(connection)
        urls, settled, strays = queries.health_facts(connection)
        domain = queries.any_domain(connection)
        secrets = queries.stored_secrets(connection)
    check(ROWS, begun, *_counted(plan, counts))

    begun = time.monotonic()
    copied = plan.backup.images == "copied"
    store = restorer.repository.image_store() if copied or images is None else images
    findings = restorer.verify(recovered, restorer.repository.folder / ARCHIVE, store)
    check(PAGES, begun, *_judged([one for one in findings if _is_of_pages(one)]))
    check(INVARIANTS, begun, *_judged([one for one in findings if not _is_of_pages(one)]))

    begun = time.monotonic()
    check(REDIS, begun, True, "Nothing to restore: Redis counts requests of the last minute and holds no state.")
    text = f"{settled:,} of {urls:,} URLs were visited or refused; {strays:,} pages have no URL."
    check(VISITED, begun, strays == 0, text)

    begun = time.monotonic()
    has_key = plan.backup.keys or has_key
    stored = f"{secrets:,} {'secret is' if secrets == 1 else 'secrets are'} stored"
    if has_key:
        text = f"{stored}; the key is in the backup, in the data folder or in the settings."
    elif secrets:
        text = f"{stored}, and there is no key to open them with: put secret.key back, or set HOLDFAST_SECRET_KEY."
    else:
        text = "No secret is stored, so none is needed."
    check(KEYS, begun, has_key or not secrets, text)

    begun = time.monotonic()
    with _served(data) as address:
        for name, path, word in (
            (HEALTH, "/health/ready", '"'),
            (
                DASHBOARD,
                f"/domains/{domain}" if domain else "/overview",
                domain or "<html",
            ),
        ):
            begun = time.monotonic()
            check(name, begun, *_asked(address, path, word))


def _counted(plan: Plan, counts: dict[str, int]) -> tuple[bool, str]:
    """Compare rows with those that the backup counted before and after it was taken."""
    backup: StoredBackup = plan.backup
    found = counts["url_frontier"]
    before, after = backup.counts_before["url_frontier"], backup.counts_after["url_frontier"]
    if plan.to is not None:
        # A later second: the invariants compare the rows with the counters of that second.
        return True, f"{found:,} rows; the backup before that second counted {after:,}."
    low, high = min(before, after), max(before, after)
    if low <= found <= high:
        return True, f"{found:,} rows; {before:,} were counted before the backup and {after:,} after it."
    return False, f"{found:,} rows, but {before:,} were counted before the backup and {after:,} after it."


def _is_of_pages(finding: Finding) -> bool:
    return any(word in finding.check for word in _PAGES)


def _judged(findings: Sequence[Finding]) -> tuple[bool, str]:
    bad = [one for one in findings if one.faults]
    if not bad:
        return True, f"{len(findings)} checks passed."
    return False, "; ".join(f"{one.check}: {one.faults:,} faults" for one in bad)


@contextmanager
def _served(data: Path) -> Iterator[tuple[str, int] | str]:
    """The API and dashboard on a restored store: their address, or why they do not start."""
    # Not the store of the settings, and no backups of the scratch one.
    others = ("HOLDFAST_DATABASE_URL", "HOLDFAST_SERVER", "HOLDFAST_DATA", "HOLDFAST_BACKUP_DAILY")
    unset = [word for name in others for word in ("-u", name)]
    # `-P`: no module is imported from the current folder, which may belong to another user.
    command = [
        "env",
        *unset,
        sys.executable,
        "-P",
        "-m",
        "holdfast",
        "--data",
        str(data),
        "serve",
        "--api-only",
        "--no-auth",
        "--port",
        "0",
    ]
    log = data / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=data, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield _await_address(process, log)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()
        process.wait()


def _await_address(process: subprocess.Popen[bytes], log: Path) -> tuple[str, int] | str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := _SERVING.search(log.read_text(errors="replace")):
            address = found[1], int(found[2])
            if _asked(address, "/health", "")[0]:
                return address
        time.sleep(0.2)
    said = log.read_text(errors="replace").strip().splitlines()
    return f"The server of the restored store did not start within {START_SECONDS:.0f} s: {said[-1] if said else 'it said nothing'}"


def _asked(address: tuple[str, int] | str, path: str, word: str) -> tuple[bool, str]:
    """Ask the server for a page; whether it has the word, and the answer in a sentence."""
    if isinstance(address, str):
        return False, address
    connection = HTTPConnection(*address, timeout=START_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": "text/html,application/json"})
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    except OSError as problem:
        return False, f"{path} did not answer: {problem}"
    finally:
        connection.close()
    ok = answer.status == 200 and word in body
    return ok, f"{path} answered {answer.status} with {len(body):,} characters."
