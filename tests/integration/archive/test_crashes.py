"""Whatever kills the writer, what was synced stays, and the next opening leaves a whole archive."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.archive import segment_file
from holdfast.archive.reader import ArchiveReader
from holdfast.archive.segment_file import RecoveredSegment
from holdfast.model.fetch_types import ArchiveRef
from tests.integration.archive.exchanges import body_of, exchange, files, keep, numbered, records, warcio_check, writer

ROOT = Path(__file__).parents[3]


@pytest.fixture
def torn(tmp_path: Path) -> tuple[Path, list[ArchiveRef], int, int]:
    """A folder as a dead process leaves it: synced answers, then one that is written and not synced."""
    living = writer(tmp_path / "living")
    refs = keep(living, numbered([1, 2]))
    (path,) = files(tmp_path / "living")
    synced = path.stat().st_size
    living.append(numbered([3]))
    shutil.copytree(tmp_path / "living", tmp_path / "dead")
    size = path.stat().st_size
    living.close()
    assert synced == segment_file.synced_bytes(files(tmp_path / "dead")[0])
    return tmp_path / "dead", refs, synced, size


def test_a_torn_tail_is_cut(torn: tuple[Path, list[ArchiveRef], int, int], tmp_path: Path) -> None:
    dead, refs, synced, size = torn
    (path,) = files(dead)
    content, mark = path.read_bytes(), segment_file.mark_path(path).read_bytes()
    whole = {member.offset + member.length for member in segment_file.members(path)}
    assert {synced, size} < whole
    edges = {place + near for place in whole for near in range(-20, 21)}
    for end in (end for end in range(synced, size + 1) if end in edges or end % 7 == 0):
        path.write_bytes(content[:end])
        segment_file.mark_path(path).write_bytes(mark)
        reopened = writer(dead)
        kept = max(place for place in whole if place <= end)
        assert reopened.recovered == (RecoveredSegment(path.name, kept, end - kept),)
        assert path.read_bytes() == content[:kept]
        assert not segment_file.mark_path(path).exists()
        if end % 49 == 0 or end in whole:
            assert len(records(path)) == 7 + sum(synced < place <= kept for place in whole)
            assert [ArchiveReader(dead).read(ref).body for ref in refs] == [body_of(1), body_of(2)]
            assert list(ArchiveReader(dead).check()) == []


@pytest.mark.parametrize("tail", [bytes(5000), b"\x1f\x8b\x08" * 999, bytes(range(256)) * 20])
def test_a_tail_of_lost_pages_is_cut(torn: tuple[Path, list[ArchiveRef], int, int], tail: bytes) -> None:
    dead, _, synced, size = torn
    (path,) = files(dead)
    with path.open("rb+") as file:  # the first page of the batch never reached the disk, a later one did
        file.seek(synced)
        file.write(tail[:100])
        file.seek(size)
        file.write(tail)
    (recovered,) = writer(dead).recovered
    assert recovered == RecoveredSegment(path.name, synced, size - synced + len(tail))
    assert list(ArchiveReader(dead).check()) == []


def test_a_body_that_looks_like_records_does_not_save_a_torn_one(tmp_path: Path) -> None:
    inner = writer(tmp_path / "inner")
    keep(inner, [exchange(body=os.urandom(300)) for _ in range(9)])
    inner.close()
    bait = files(tmp_path / "inner")[0].read_bytes()
    living = writer(tmp_path / "living", level=0)
    keep(living, numbered([1]))
    (path,) = files(tmp_path / "living")
    synced = path.stat().st_size
    (ref,) = living.append([exchange(body=bait)])
    shutil.copytree(tmp_path / "living", tmp_path / "dead")
    living.close()
    (path,) = files(tmp_path / "dead")
    os.truncate(path, ref.offset + ref.length - 10)
    (recovered,) = writer(tmp_path / "dead").recovered
    assert recovered.kept == ref.offset > synced
    assert list(ArchiveReader(tmp_path / "dead").check()) == []


def test_an_old_mark_only_costs_time(torn: tuple[Path, list[ArchiveRef], int, int]) -> None:
    dead, refs, _, size = torn
    (path,) = files(dead)
    segment_file.mark_path(path).write_bytes(b"%020d\n" % 0)
    assert writer(dead).recovered == (RecoveredSegment(path.name, size, 0),)
    assert [ArchiveReader(dead).read(ref).body for ref in refs] == [body_of(1), body_of(2)]


@pytest.mark.parametrize("mark", [b"", b"nonsense", bytes(21), b"%020d\n" % 10**9])
def test_with_a_broken_mark_nothing_is_cut(torn: tuple[Path, list[ArchiveRef], int, int], mark: bytes) -> None:
    dead, _, _, size = torn
    (path,) = files(dead)
    os.truncate(path, size - 5)
    segment_file.mark_path(path).write_bytes(mark)
    assert writer(dead).recovered == (RecoveredSegment(path.name, size - 5, 0),)


def test_what_was_synced_is_not_cut_even_if_it_is_damaged(torn: tuple[Path, list[ArchiveRef], int, int]) -> None:
    dead, (first, second), synced, size = torn
    (path,) = files(dead)
    with path.open("rb+") as file:
        file.seek(first.offset + 20)
        file.write(bytes(20))
        file.truncate(size - 5)
    (recovered,) = writer(dead).recovered
    assert recovered.kept > synced
    assert ArchiveReader(dead).read(second).body == body_of(2)


def test_a_segment_without_a_whole_record_goes(torn: tuple[Path, list[ArchiveRef], int, int]) -> None:
    dead, _, _, _ = torn
    (path,) = files(dead)
    os.truncate(path, 20)
    segment_file.mark_path(path).write_bytes(b"%020d\n" % 0)
    segment_file.mark_path(path.with_name("never-made.warc.gz")).write_bytes(b"")
    assert writer(dead).recovered == (RecoveredSegment(path.name, 0, 20),)
    assert list(path.parent.iterdir()) == []


def test_the_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    frozen = writer(tmp_path)
    refs = keep(frozen, numbered([1]))
    refs += frozen.append(numbered([2]))
    other = writer(tmp_path)
    assert other.recovered == ()
    refs += keep(other, numbered([3]))
    frozen.sync()
    refs += keep(frozen, numbered([4]))
    frozen.close()
    other.close()
    assert [ArchiveReader(tmp_path).read(ref).body for ref in refs] == [body_of(n) for n in (1, 2, 3, 4)]
    assert warcio_check(tmp_path).returncode == 0


def _kill(folder: Path, nth: int, part: float, lines: int | None) -> list[tuple[int, ArchiveRef]]:
    """Run the victim until it dies, or until it has printed `lines`; what it had synced."""
    command = [sys.executable, "-m", "tests.integration.archive.victim", str(folder), str(nth), str(part)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if len(said) == lines:
                process.kill()
        assert process.wait() == -signal.SIGKILL
    rows = [json.loads(line) for line in said if line.endswith("\n")]
    return [(row[0], ArchiveRef(row[1], row[2], row[3], bytes.fromhex(row[4]))) for row in rows]


@pytest.mark.parametrize(("nth", "part"), [(1, 0.5), (2, 0.0), (40, 0.99)])
def test_killed_in_the_middle_of_a_write(tmp_path: Path, nth: int, part: float) -> None:
    synced = _kill(tmp_path, nth, part, None)
    assert len(synced) == 10 * (nth - 1)
    segments = writer(tmp_path)
    assert len(segments.recovered) == 1
    refs = keep(segments, numbered([7777]))
    segments.close()
    for number, ref in [*synced, (7777, refs[0])]:
        body = ArchiveReader(tmp_path).read(ref).body
        assert body == body_of(number, len(body))
    assert warcio_check(tmp_path).returncode == 0
    assert list(ArchiveReader(tmp_path).check()) == []


def test_killed_at_any_moment(tmp_path: Path, figure: Callable[[str], None]) -> None:
    moments = random.Random(7)
    synced: list[tuple[int, ArchiveRef]] = []
    cut = 0
    for _ in range(3):  # lives of one worker
        synced += _kill(tmp_path, 0, 0, moments.randint(1, 400))
        cut += sum(found.cut for found in writer(tmp_path).recovered)
        assert list(ArchiveReader(tmp_path).check()) == []
    assert all(ArchiveReader(tmp_path).read(ref).body == body_of(number, 4000) for number, ref in synced)
    assert warcio_check(tmp_path).returncode == 0
    figure(f"archive: 3 kills, {len(synced)} synced answers, none lost, {cut} torn bytes cut")
