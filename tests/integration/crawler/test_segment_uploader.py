"""Uploads of archive segments: after kills, by several processes at once, of what was there before, never of another machine's."""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from holdfast import failpoints
from holdfast.archive import segment_file
from holdfast.archive.reader import ArchiveReader
from holdfast.archive.segment_store import FolderSegmentStore, SegmentStore
from holdfast.archive.writer import ArchiveWriter
from holdfast.crawler.segment_uploader import SegmentUploader
from holdfast.db import archive_segments
from holdfast.db.connection import Database
from holdfast.errors import ArchiveUnavailable, NotFound
from holdfast.model.fetch_types import ArchiveRef
from holdfast.segments.service import upload_now
from holdfast.settings import Archive
from tests.integration.archive.exchanges import body_of, numbered


class Died(BaseException):
    """Takes the place of a kill."""


class Watched:
    """A store that counts what it is given, and can be away."""

    def __init__(self, store: SegmentStore) -> None:
        self.store, self.place = store, store.place
        self.put_names: list[str] = []
        self.away = False

    def put(self, segment: str, path: Path) -> None:
        if self.away:
            raise ArchiveUnavailable("It is away.")
        self.put_names.append(segment)
        self.store.put(segment, path)

    def read(self, segment: str, offset: int, length: int) -> bytes:
        return self.store.read(segment, offset, length)

    def size(self, segment: str) -> int | None:
        return self.store.size(segment)

    def delete(self, segment: str) -> None:
        self.store.delete(segment)


class Machine:
    """An archive folder with its writer and uploader."""

    def __init__(
        self, database: Database, connection: psycopg.Connection, root: Path, name: str = "m1", **settings: object
    ) -> None:
        self.database, self.connection = database, connection
        self.folder = root / name
        (root / "shared").mkdir(exist_ok=True)
        self.store = Watched(FolderSegmentStore(root / "shared"))
        given = {"store": str(root / "shared"), "machine": name, "upload_bytes": 10_000, **settings}
        self.settings = Archive.model_validate(given)

    def uploader(self) -> SegmentUploader:
        return SegmentUploader(self.database, self.folder, self.settings, self.store)

    def upload(self) -> int:
        return upload_now(self.uploader()).uploaded

    def writer(self, worker: str = "w1", *, announced: bool = True) -> ArchiveWriter:
        key = self.uploader().folder_id

        def announce(segment: str) -> None:
            archive_segments.opened(self.connection, key, self.settings.machine or "", segment)

        return ArchiveWriter(
            self.folder, worker, self.settings, software="test", on_opened=announce if announced else None
        )

    def keep(self, writer: ArchiveWriter, start: int, count: int = 12) -> list[ArchiveRef]:
        """Write some pages, of 2 KB each that do not compress well; a segment has about eight."""
        refs = []
        for one in numbered(range(start, start + count), 4000):
            refs += writer.append([one])
            writer.sync()
        return refs

    def read(self, refs: list[ArchiveRef], *, local: bool = False) -> list[bytes]:
        reader = ArchiveReader(self.folder if local else None, self.store)
        return [reader.read(ref).body for ref in refs]

    def states(self) -> dict[str, str]:
        return dict(self.connection.execute("SELECT segment, state FROM archive_segments").fetchall())


@pytest.fixture
def machine(database: Database, connection: psycopg.Connection, tmp_path: Path) -> Machine:
    return Machine(database, connection, tmp_path)


def bodies(start: int, count: int = 12) -> list[bytes]:
    return [body_of(number, 4000) for number in range(start, start + count)]


@pytest.mark.parametrize("keep_local", [True, False])
@pytest.mark.parametrize("point", sorted(failpoints.UPLOADS))
def test_a_process_that_is_killed_in_an_upload_leaves_it_to_the_next(
    database: Database,
    connection: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    keep_local: bool,
) -> None:
    one = Machine(database, connection, tmp_path, keep_local=keep_local)
    writer = one.writer()
    refs = one.keep(writer, 0)
    writer.close()
    segments = {ref.segment for ref in refs}
    assert len(segments) > 1

    def die(name: str) -> None:
        if name == point:
            raise Died

    monkeypatch.setattr(failpoints, "reach", die)
    with pytest.raises(Died):
        one.upload()
    assert all((one.folder / segment).exists() for segment in segments), "no copy is removed before the store has it"
    monkeypatch.undo()
    assert one.upload() == len(segments) - (point == "segment_recorded")
    assert set(one.states().values()) == {"uploaded"}
    assert one.read(refs) == bodies(0)
    left = {segment for segment in segments if (one.folder / segment).exists()}
    if keep_local:
        assert left == segments
    else:
        # Of one that was recorded, and not removed any more, the copy stays: it is read first, and does no harm.
        assert len(left) == (point == "segment_recorded")
    assert one.upload() == 0


def test_an_open_segment_is_left_to_its_writer_and_uploaded_after_its_death(machine: Machine) -> None:
    writer = machine.writer()
    refs = machine.keep(writer, 0, 2)
    assert machine.upload() == 0
    assert machine.states() == {refs[0].segment: "open"}
    with pytest.raises(NotFound):
        machine.read(refs)
    assert machine.read(refs, local=True) == bodies(0, 2)
    # The writer dies: its lock goes with it, its mark stays.
    assert writer._open is not None
    writer._open._finish(keep_mark=True)
    assert list(machine.folder.glob(f"*/*{segment_file.OPEN_SUFFIX}"))
    assert machine.upload() == 1
    assert machine.read(refs) == bodies(0, 2)


def test_many_processes_upload_each_segment_once(machine: Machine) -> None:
    writer = machine.writer()
    refs = machine.keep(writer, 0, 40)
    writer.close()
    threads = [threading.Thread(target=machine.upload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    machine.upload()
    assert sorted(set(machine.store.put_names)) == sorted({ref.segment for ref in refs})
    assert set(machine.states().values()) == {"uploaded"}
    assert machine.read(refs) == bodies(0, 40)


def test_what_was_there_before_is_uploaded_last_and_stops_no_crawl(machine: Machine) -> None:
    before = machine.writer("old", announced=False)
    old = machine.keep(before, 0)
    before.close()
    writer = machine.writer("new")
    new = machine.keep(writer, 50)
    writer.close()
    machine.store.away = True
    limited = machine.settings.model_copy(update={"max_waiting": 20_000})
    uploader = SegmentUploader(machine.database, machine.folder, limited, machine.store)
    uploader.register_found()
    with pytest.raises(ArchiveUnavailable):
        uploader.upload_waiting()
    why = uploader.why_full()
    assert why is not None
    size = sum((machine.folder / segment).stat().st_size for segment in {ref.segment for ref in new})
    assert why == f"{size:,} bytes of it wait to be uploaded, and archive.max_waiting is 20,000: It is away"
    machine.store.away = False
    uploader.upload_waiting()
    assert uploader.why_full() is None
    uploader.stop(0)
    assert [name.partition("/")[0] for name in machine.store.put_names] == sorted(
        ref.segment.partition("/")[0] for ref in {ref.segment: ref for ref in new + old}.values()
    )
    assert machine.read(old + new) == bodies(0) + bodies(50)


def test_a_copy_of_another_machines_segment_is_not_uploaded(
    database: Database, connection: psycopg.Connection, tmp_path: Path, machine: Machine
) -> None:
    writer = machine.writer()
    refs = machine.keep(writer, 0, 2)
    other = Machine(database, connection, tmp_path, "m2")
    shutil.copytree(machine.folder / "w1", other.folder / "w1", ignore=shutil.ignore_patterns("*.open"))
    assert other.upload() == 0, "it may be a part only"
    more = machine.keep(writer, 2, 1)
    writer.close()
    assert machine.upload() == 1
    assert machine.read(refs + more) == bodies(0, 3)


def test_a_file_that_is_gone_is_lost_and_is_found_again(machine: Machine) -> None:
    writer = machine.writer()
    refs = machine.keep(writer, 0, 3)
    writer.close()
    path = machine.folder / refs[0].segment
    path.rename(path.with_suffix(".away"))
    assert machine.upload() == 1
    assert machine.states() == {refs[0].segment: "lost"}
    path.with_suffix(".away").rename(path)
    assert machine.upload() == 1
    assert machine.states() == {refs[0].segment: "uploaded"}
    assert machine.read(refs) == bodies(0, 3)


def test_what_a_killed_upload_left_in_a_shared_folder_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "file").write_bytes(b"0123456789" * 500_000)
    program = (
        "import os, signal; from pathlib import Path; from holdfast.archive.segment_store import FolderSegmentStore as S; "
        "S._copy = staticmethod(lambda source, to: (to.write_bytes(b'01'), os.kill(os.getpid(), signal.SIGKILL))); "
        "S(Path('shared')).put('w1/a.warc.gz', Path('file'))"
    )
    for _ in range(2):
        died = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
        assert died.returncode == -signal.SIGKILL
        (left,) = (tmp_path / "shared" / ".incoming").iterdir()
    store = FolderSegmentStore(tmp_path / "shared")
    store.put("w2/a.warc.gz", tmp_path / "file")
    assert left.exists(), "it may be of an upload of another segment that runs"
    store.put("w1/a.warc.gz", tmp_path / "file")
    assert not list((tmp_path / "shared" / ".incoming").iterdir())
    assert store.size("w1/a.warc.gz") == 5_000_000


def test_a_shared_folder(tmp_path: Path) -> None:
    store = FolderSegmentStore(tmp_path / "shared")
    (tmp_path / "file").write_bytes(b"0123456789")
    assert store.size("w1/a.warc.gz") is None
    for use in (lambda: store.read("w1/a.warc.gz", 0, 1), lambda: store.put("w1/a.warc.gz", tmp_path / "file")):
        with pytest.raises(ArchiveUnavailable, match=r"no such file or directory \(archive\.store\)"):
            use()
    (tmp_path / "shared").mkdir()
    store.put("w1/a.warc.gz", tmp_path / "file")
    assert (store.size("w1/a.warc.gz"), store.read("w1/a.warc.gz", 3, 4), store.read("w1/a.warc.gz", 8, 9)) == (
        10,
        b"3456",
        b"89",
    )
    assert (tmp_path / "shared" / "w1" / "a.warc.gz").stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotFound, match=r"no file w1/b\.warc\.gz"):
        store.read("w1/b.warc.gz", 0, 1)
    with pytest.raises(NotFound, match="not the name"):
        store.read("../file", 0, 1)
    (tmp_path / "shared" / "w1" / "link").symlink_to(tmp_path / "file")
    with pytest.raises(ArchiveUnavailable):
        store.read("w1/link", 0, 1)
    assert not list((tmp_path / "shared" / ".incoming").iterdir())
