"""The bundled server on a full disk. Needs root, who can mount a small one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.db import embedded
from holdfast.db.embedded import layout
from holdfast.errors import EmbeddedServerError
from tests.support import servers as case

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@contextmanager
def small_disk(where: Path, size: str) -> Iterator[None]:
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=20k,mode=755", "tmpfs", where],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this root may not mount, so no disk can be filled")
    try:
        yield
    finally:
        embedded.stop(where / "data")
        subprocess.run(["umount", where], check=True)


def test_a_full_disk_at_the_first_start(folder: Path) -> None:
    with small_disk(folder / "disk", "20m"):
        with pytest.raises(EmbeddedServerError) as error:
            embedded.ensure_running(folder / "disk" / "data")
        assert str(error.value).startswith(f"The disk that holds {folder}/disk/data")
        assert "is full" in str(error.value)
        assert [path.name for path in (folder / "disk" / "data").iterdir()] == ["postgres.lock"]


def test_a_full_disk_at_a_later_start(folder: Path) -> None:
    data = folder / "disk" / "data"
    with small_disk(folder / "disk", "120m"):
        server = embedded.ensure_running(data)
        case.query(server, "CREATE TABLE kept AS SELECT 42 AS n")
        embedded.stop(data)
        layout.stopped_file(data).unlink()  # the block that it would give back at the start is enough for PostgreSQL
        filler = folder / "disk" / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        with pytest.raises(EmbeddedServerError, match="is full") as error:
            embedded.ensure_running(data)
        assert str(data) in str(error.value)
        filler.unlink()
        assert case.query(embedded.ensure_running(data), "SELECT n FROM kept") == 42


def test_a_server_is_stopped_on_a_full_disk(folder: Path) -> None:
    """It stays down, as an empty marker needs no byte; where even that is impossible, it is said."""
    data = folder / "disk" / "data"
    with small_disk(folder / "disk", "120m"):
        for full in ("of bytes", "of files"):
            server = embedded.ensure_running(data)
            case.query(server, "CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS n")
            fill(folder / "disk", files=full == "of files")
            said: list[str] = []
            assert embedded.stop(data, said.append)
            assert embedded.find(data) is None
            noted = layout.stopped_file(data).exists()
            assert noted or "no room to note" in "".join(said)
            if full == "of bytes":
                assert (noted, embedded.state(data), said) == (True, embedded.State.STOPPED, [])
            shutil.rmtree(folder / "disk" / "filler")
            assert case.query(embedded.ensure_running(data), "SELECT n FROM kept") == 42


def fill(disk: Path, *, files: bool) -> None:
    """Use up all bytes of a disk, and with `files` all files that it may have."""
    (disk / "filler").mkdir()
    with suppress(OSError), (disk / "filler" / "bytes").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    number = 0
    with suppress(OSError):
        while files:
            number += 1
            (disk / "filler" / str(number)).touch()
