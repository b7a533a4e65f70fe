"""Scratch folders: those of processes that were killed are deleted, and no other."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.retention.scratch import delete_stale, scratch_folder

_HOLDER = """
import sys, time
from pathlib import Path
from holdfast.retention.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "rows.parquet").write_bytes(b"rows")
    print(folder, flush=True)
    time.sleep(600)
"""


@contextmanager
def other_process(parent: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process that has a scratch folder, until the context ends or it is killed."""
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(parent)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Path(process.stdout.readline().strip()), process
        finally:
            process.kill()


def test_the_folder_of_a_killed_process_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    parent = tmp_path / "scratch"
    with other_process(parent) as (folder, process):
        with scratch_folder(parent) as own:
            assert (folder / "rows.parquet").read_bytes() == b"rows", "it is in use"
            assert own != folder
            assert list(own.iterdir()) == []
        assert not own.exists()
        assert (folder / "rows.parquet").exists()

        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert folder.exists(), "a killed process deletes nothing"
        with scratch_folder(parent):
            assert not folder.exists()
    assert list(parent.iterdir()) == []


def test_a_folder_without_a_lock_and_a_link_are_not_touched(tmp_path: Path) -> None:
    parent, elsewhere = tmp_path / "scratch", tmp_path / "elsewhere"
    (parent / "of-a-person").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"kept")
    (parent / "link").symlink_to(elsewhere)
    (parent / "link.lock").touch()
    (parent / "other.lock").symlink_to(elsewhere / "file")
    delete_stale(parent)
    assert (parent / "of-a-person").is_dir()
    assert (elsewhere / "file").read_bytes() == b"kept"
    assert (parent / "other.lock").is_symlink()


def test_a_failure_deletes_the_folder_too(tmp_path: Path) -> None:
    def fail() -> None:
        with scratch_folder(tmp_path / "scratch") as folder:
            (folder / "file").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_other_users_cannot_enter_and_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "scratch") as folder:
        assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file, not a folder"), scratch_folder(tmp_path / "file"):
        pass
    with pytest.raises(HoldfastError, match="cannot be written: not a directory"), scratch_folder(tmp_path / "file/x"):
        pass
