"""Physical backups of the bundled server: its own programs take them, join them and start the result.

The rule: a backup that is not complete has another name than one that is, and a cluster that is being restored is a data folder of its
own until it is complete; so a kill at any moment leaves nothing that could be taken for either.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.db import embedded
from holdfast.db.embedded import binaries, errors, layout, process, safe_files
from holdfast.db.embedded import cluster as clusters
from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded.layout import ServerLayout
from holdfast.db.embedded.process import Server
from holdfast.db.embedded.safe_files import Say, SlowWaitNotice
from holdfast.errors import EmbeddedServerError, Refused

MANIFEST: Final = "backup_manifest"
WAL_FOLDER: Final = "holdfast.wal"
"""The folder in a cluster that is being recovered which has the WAL to replay."""
WORK_FOLDER: Final = "postgres.restore"
"""The data folder, in the one that is restored, in which the cluster is recovered."""
_POLL_SECONDS: Final = 0.2
_TARGET_NOT_REACHED: Final = "recovery ended before configured recovery target was reached"
_VISIBILITY_MAP: Final = re.compile(r"[0-9]+_vm(\.[0-9]+)?")
_OF_THE_OLD_SERVER: Final = ("holdfast.socket", "holdfast.alive", "postmaster.pid", MANIFEST)
"""Files of the backed up cluster that mean nothing in a copy."""


class TargetNotReached(EmbeddedServerError):
    """The WAL ends before a transaction that is later than the target: all of it is before the target."""


def base_backup(server: Server, target: Path, *, parent: Path | None, watch: Callable[[], None] = lambda: None) -> None:
    """Copy the cluster of a running server to `target`; with `parent`, an earlier copy, only the blocks that changed since.

    Before: `target` does not exist. After: it is complete, synced, and has a manifest with SHA-256. `watch` is called now and then.
    """
    options: list[str | Path] = ["--incremental", parent / MANIFEST] if parent is not None else []
    command: list[str | Path] = [
        *(server.bin / "pg_basebackup", "-d", server.admin_url(), "-D", target, "--no-password"),
        *("--checkpoint=fast", "--wal-method=stream", "--manifest-checksums=SHA256", "--label=holdfast", *options),
    ]
    _run(command, "The backup of PostgreSQL", target, watch)


def combine(chain: Sequence[Path], target: Path, watch: Callable[[], None] = lambda: None) -> None:
    """Join a full backup and the incremental ones that follow it to a whole cluster. Before: `target` does not exist."""
    program = binaries.wheel().bin / "pg_combinebackup"
    # A copy by reference where the file system has it: it takes no time and no room.
    _run([program, *chain, "-o", target], "The joining of backups", target, watch)


def _run(command: Sequence[str | Path], what: str, target: Path, watch: Callable[[], None]) -> None:
    with accounts.popen(accounts.current(), command) as running:
        try:
            while True:
                try:
                    output = running.communicate(timeout=_POLL_SECONDS)[0]
                    break
                except subprocess.TimeoutExpired:
                    watch()
        except BaseException:
            with suppress(ProcessLookupError):
                running.kill()
            raise
    if running.returncode:
        text = output.decode(errors="replace").strip()
        reason = next((line for line in reversed(text.splitlines()) if "error:" in line or "FATAL" in line), text)
        raise EmbeddedServerError(f"{what} in {target} failed: {reason or f'it ended with {running.returncode}'}")


@contextmanager
def replacing(data: Path, say: Say) -> Iterator[ServerLayout]:
    """Hold the start lock of a data folder, whose server is stopped, while its cluster is replaced. Creates the folder if there is none."""
    data = layout.resolve_owned(data)
    with errors.translate_os_errors(data):
        layout.make_data(data, say)
        waiting = SlowWaitNotice(say, f"Waiting for another process that starts or stops PostgreSQL in {data} …")
        with safe_files.locked(layout.lock_file(data), waiting):
            if embedded.state(data) is embedded.State.RUNS:
                raise Refused(f"PostgreSQL in {data} was started again meanwhile. Nothing was replaced; try again.")
            yield layout.choose_layout(data, say)


def prepare(
    here: ServerLayout, chain: Sequence[Path], wal: Sequence[Path], say: Say, watch: Callable[[], None]
) -> Path:
    """Make a cluster of a chain of backups, ready to replay `wal`; returns the data folder in which it is.

    Before: `replacing` holds the lock of `here`. After: the server of that folder replays when it starts.
    """
    work = here.data / WORK_FOLDER
    discard_work(here)
    if here.account.name == accounts.NOBODY and not layout.password_file(here.data).exists():
        raise Refused(
            f"PostgreSQL would run as {accounts.NOBODY} here, with a password that the backup does not have: add a system user "
            "called holdfast, or run Holdfast as an ordinary user."
        )
    layout.make_data(work, say)
    with suppress(FileNotFoundError):
        shutil.copy2(layout.password_file(here.data), layout.password_file(work))
    place = layout.choose_layout(work, say)
    new = safe_files.unfinished(place.cluster)
    combine(chain, new, watch)
    if len(chain) > 1:
        _forget_visibility(new)
    for name in _OF_THE_OLD_SERVER:
        (new / name).unlink(missing_ok=True)
    forget_log(new)
    shelf = new / WAL_FOLDER
    shelf.mkdir(mode=0o700)
    for segment in wal:
        _copy(segment, shelf / segment.name)
        watch()
    (new / "recovery.signal").touch(mode=0o600)
    if place.account.foreign:
        for folder, folders, files in os.walk(new):
            for name in (*folders, *files):
                os.chown(Path(folder, name), place.account.uid, place.account.gid, follow_symlinks=False)
        os.chown(new, place.account.uid, place.account.gid)
    clusters.check(new)
    new.rename(place.cluster)
    return work


def _forget_visibility(cluster: Path) -> None:
    """Delete the visibility maps of a cluster that was joined of incremental backups; vacuum makes them anew.

    WAL does not name the pages of a map whose bits it clears, so PostgreSQL 18 leaves these pages out of an incremental backup: the joined
    map says of pages with dead rows that all on them is visible, and a scan of an index alone counts these rows.
    """
    for map_file in cluster.glob("**/*_vm*"):
        if _VISIBILITY_MAP.fullmatch(map_file.name):
            map_file.unlink()


def recover(work: Path, target: Mapping[str, str], extra: Mapping[str, str], say: Say) -> Server:
    """Replay the WAL up to `target` (settings recovery_target…; none: to its end) and start the server of `work`.

    Before: `prepare` made it, perhaps an earlier call raised. After: it is a store of its own, on a new timeline. Raises
    TargetNotReached: nothing in the WAL is later than the target, so all of it may be replayed.
    """
    settings = {
        "restore_command": f'cp "{WAL_FOLDER}/%f" "%p"',
        "recovery_target_timeline": "current",
        "recovery_target_action": "promote",
        "archive_mode": "off",
        "summarize_wal": "off",
        "hot_standby": "off",
        **target,
        **extra,
    }
    try:
        return embedded.ensure_running(work, say, settings)
    except EmbeddedServerError as problem:
        if _TARGET_NOT_REACHED in f"{problem} {_log_of(work)}":
            forget_log(layout.cluster_in(layout.home_of(work)))
            raise TargetNotReached(str(problem)) from problem
        raise


def forget_log(cluster: Path) -> None:
    """Delete the log files of a cluster, so that what it says next stands alone. Before: its server does not run."""
    for log in (cluster / "log").glob("*.log"):
        log.unlink()


def _log_of(work: Path) -> str:
    cluster = layout.cluster_in(layout.home_of(work))
    return "".join(safe_files.read(log) for log in sorted((cluster / "log").glob("*.log")))


def install(here: ServerLayout, work: Path, aside: Path | None) -> None:
    """Let the cluster of `work` be that of `here`; the present one is kept as `aside`.

    Before: no server of either runs; `replacing` holds the lock. After: `work` is gone.
    """
    home = layout.home_of(work)
    cluster = layout.cluster_in(home)
    shutil.rmtree(cluster / WAL_FOLDER, ignore_errors=True)
    (cluster / "holdfast.socket").unlink(missing_ok=True)
    if aside is not None:
        here.cluster.rename(aside)
    cluster.rename(here.cluster)
    safe_files.sync_folder(here.home)
    discard_work(here)


def discard_work(here: ServerLayout) -> None:
    """Stop what a restore left in `here`, also one that was killed, and delete it."""
    work = here.data / WORK_FOLDER
    if not work.exists():
        return
    stop(work, lambda _: None)
    home = layout.home_of(work)
    if home != work:
        shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(work)


def remove_stale(folder: Path, prefix: str) -> None:
    """Stop and delete scratch stores in `folder` whose restore was killed. One that is in use stays: its lock is held."""
    for data in folder.glob(f"{prefix}-*"):
        lock = safe_files.open_lock(layout.lock_file(data))
        try:
            if safe_files.try_lock(lock):
                remove(data)
        finally:
            os.close(lock)


def remove(data: Path) -> None:
    """Stop and delete a scratch store. Before: no other process uses it."""
    work = data / WORK_FOLDER
    homes = [layout.home_of(place) for place in (work, data) if place.exists()]
    if work.exists():
        stop(work, lambda _: None)
    for place in (*homes, data):
        shutil.rmtree(place, ignore_errors=True)


def stop(work: Path, say: Say) -> None:
    """Stop the server of a restored folder, whatever state it is in."""
    cluster = layout.cluster_in(layout.home_of(work))
    found = process.read_pid_file(cluster)
    if found is not None and process.is_alive(cluster, found.pid):
        process.terminate(cluster, found.pid, 60.0, say)
    with suppress(FileNotFoundError):  # a short name elsewhere, if that of the folder was too long
        shutil.rmtree(Path(safe_files.read(cluster / "holdfast.socket").strip()), ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    try:
        if os.geteuid() == source.stat().st_uid != 0:
            os.link(source, target)
            return
    except OSError:
        pass
    shutil.copyfile(source, target)
