"""Disks that are full, or that fail to keep what they were given."""

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.archive import segment_file
from holdfast.archive.reader import ArchiveReader
from tests.integration.archive.exchanges import body_of, exchange, files, keep, numbered, records, warcio_check, writer


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """No file may grow beyond `size`; Python ignores the signal, so writing fails with EFBIG, after a part of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_append_adds_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    segments = writer(tmp_path)
    refs = keep(segments, numbered([1]))
    (path,) = files(tmp_path)
    size = path.stat().st_size
    with longest_file(size + 700):
        for _ in range(3):
            with pytest.raises(OSError, match="File too large"):
                segments.append(numbered(range(2, 20)))
            assert path.stat().st_size == size
    refs += keep(segments, numbered(range(2, 20)))
    segments.close()
    assert files(tmp_path) == [path]
    assert [ArchiveReader(tmp_path).read(ref).body for ref in refs] == [body_of(n) for n in range(1, 20)]
    assert warcio_check(tmp_path).returncode == 0


def test_a_first_append_may_fail_too(tmp_path: Path) -> None:
    segments = writer(tmp_path)
    with longest_file(100), pytest.raises(OSError, match="File too large"):
        segments.append(numbered([1]))
    with longest_file(10), pytest.raises(OSError, match="No space left"):  # not even the mark
        writer(tmp_path, "other").append(numbered([1]))
    assert not list((tmp_path / "other").iterdir())
    (ref,) = keep(segments, numbered([1]))
    segments.close()
    assert ArchiveReader(tmp_path).read(ref).body == body_of(1)
    assert warcio_check(tmp_path).returncode == 0


def test_a_tail_that_cannot_be_cut_at_once_is_cut_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = writer(tmp_path)
    keep(segments, numbered([1]))
    (path,) = files(tmp_path)
    size = path.stat().st_size

    def ftruncate(file: int, length: int) -> None:
        raise OSError(errno.EIO, "no cutting today")

    with monkeypatch.context() as patch, longest_file(size + 900):
        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(OSError, match="File too large"):
            segments.append(numbered(range(2, 20)))
        with pytest.raises(OSError, match="no cutting today"):
            segments.append(numbered([2]))
    assert path.stat().st_size > size
    (ref,) = keep(segments, numbered([2]))
    segments.close()
    assert ArchiveReader(tmp_path).read(ref).body == body_of(2)
    assert list(ArchiveReader(tmp_path).check()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount, so no disk can be filled")
    try:
        segments = writer(disk / "archive")
        refs = keep(segments, numbered([1]))
        filler = disk / "filler"
        filler.write_bytes(bytes(800_000))
        large = [exchange(body=os.urandom(400_000))]
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                segments.append(large)
        refs += keep(segments, numbered([2]))
        filler.unlink()
        refs += keep(segments, large)
        segments.close()
        assert [ArchiveReader(disk / "archive").read(ref).body for ref in refs] == [
            body_of(1),
            body_of(2),
            large[0].result.body,
        ]
        assert warcio_check(disk / "archive").returncode == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_after_a_failed_fsync_the_segment_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = writer(tmp_path)
    refs = keep(segments, numbered([1]))
    (old,) = files(tmp_path)
    size = old.stat().st_size

    def fails(file: int) -> None:
        raise OSError(errno.EIO, "lost")

    segments.append(numbered([1, 2]))
    with monkeypatch.context() as patch:
        patch.setattr(segment_file, "_datasync", fails)
        with pytest.raises(OSError, match="lost"):
            segments.sync()
    assert old.stat().st_size == size
    segments.sync()  # there is nothing that it could call saved
    again = keep(segments, numbered([1, 2]))
    segments.close()
    assert old.name not in again[0].segment
    assert [ArchiveReader(tmp_path).read(ref).body for ref in refs + again] == [body_of(1), body_of(1), body_of(2)]
    assert [found.segment for found in writer(tmp_path).recovered] == [old.name]
    assert warcio_check(tmp_path).returncode == 0
    assert list(ArchiveReader(tmp_path).check()) == []


def test_what_was_not_synced_is_never_referred_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: int) -> None:
        raise OSError(errno.EIO, "lost")

    segments = writer(tmp_path)
    keep(segments, numbered([1]))
    segments.append(numbered([2]))
    with monkeypatch.context() as patch:
        patch.setattr(segment_file, "_datasync", fails)
        patch.setattr(os, "ftruncate", fails)  # so the record can be read, and yet may be gone tomorrow
        with pytest.raises(OSError, match="lost"):
            segments.sync()
    keep(segments, numbered([3]))
    keep(segments, numbered([2]))
    segments.close()
    assert "revisit" not in [kind for kind, _, _ in records(files(tmp_path)[1])]


def test_a_first_fsync_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(file: int) -> None:
        raise OSError(errno.EIO, "lost")

    segments = writer(tmp_path)
    segments.append(numbered([1]))
    with monkeypatch.context() as patch:
        patch.setattr(segment_file, "_datasync", fails)
        with pytest.raises(OSError, match="lost"):
            segments.sync()
    assert list((tmp_path / "w1").iterdir()) == []
    (ref,) = keep(segments, numbered([1]))
    segments.close()
    assert ArchiveReader(tmp_path).read(ref).body == body_of(1)


def test_what_is_on_the_disk_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that a power cut is survived by: mark and its name, bytes, their file's name, and only then the mark is moved."""
    events: list[tuple[str, str]] = []
    plain = {name: getattr(os, name) for name in ("fsync", "pwrite")}
    datasync = segment_file._datasync

    def name_of(file: int) -> str:
        places = (tmp_path / "w1", *(tmp_path / "w1").iterdir())
        (path,) = (path for path in places if path.stat().st_ino == os.fstat(file).st_ino)
        return path.suffix or "folder"

    def note(kind: str, file: int, *more: object) -> object:
        events.append((kind, name_of(file)))
        return datasync(file) if kind == "datasync" else plain[kind](file, *more)

    segments = writer(tmp_path)
    for kind in plain:
        monkeypatch.setattr(os, kind, lambda *more, kind=kind: note(kind, *more))
    monkeypatch.setattr(segment_file, "_datasync", lambda file: note("datasync", file))
    for n in range(2):
        segments.append(numbered([n]))
        segments.sync()
    segments.close()
    assert events == [
        ("pwrite", ".open"),
        ("fsync", ".open"),
        ("fsync", "folder"),
        ("pwrite", ".gz"),
        ("datasync", ".gz"),
        ("fsync", "folder"),
        ("pwrite", ".open"),
        ("pwrite", ".gz"),
        ("datasync", ".gz"),
        ("pwrite", ".open"),
    ]
