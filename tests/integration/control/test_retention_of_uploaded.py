"""Retention where the archive is in an object store: objects go with their files, on any machine, and come back."""

import os
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.archive.reader import ArchiveReader
from holdfast.archive.segment_store import FolderSegmentStore, SegmentStore, open_segment_store
from holdfast.control.verify import Verifier
from holdfast.crawler.segment_uploader import SegmentUploader
from holdfast.db import archive_segments
from holdfast.db.connection import Database
from holdfast.errors import ArchiveUnavailable
from holdfast.model.fetch_types import ArchiveRef
from holdfast.pages.service import PageService
from holdfast.pages.source import SourceReader
from holdfast.retention.queries import segments
from holdfast.segments.service import upload_now
from holdfast.settings import Archive
from tests.support.aged import JobStore, Kept, crawl_site, end_job, let_pass
from tests.support.factories import Store
from tests.support.object_store import BUCKET, KEYS, object_store

DAY = timedelta(days=1)
KILLED = ("retention_archived", "retention_file_deleted", "retention_deleted")


@dataclass(frozen=True)
class Machines:
    """Two machines with one database, object store and store of archives; `one` crawled a job that ended, and one that lives."""

    one: Kept
    two: Kept
    objects: SegmentStore
    store: Store
    shop: JobStore
    settings: Archive

    def upload(self, on: Kept, *, keep_local: bool = True) -> int:
        settings = self.settings.model_copy(update={"keep_local": keep_local})
        return upload_now(SegmentUploader(self.database, on.archive, settings, self.objects)).uploaded

    @property
    def database(self) -> Database:
        return self.one.database

    def states(self) -> dict[str, str]:
        return dict(self.store.connection.execute("SELECT segment, state FROM archive_segments ORDER BY 1").fetchall())

    def stored(self) -> set[str]:
        return {name for name in self.names if self.objects.size(name) is not None}

    @property
    def names(self) -> set[str]:
        rows = self.store.connection.execute(
            "SELECT archive_segment FROM crawled_pages UNION SELECT archive_segment FROM page_versions"
        )
        return {row[0] for row in rows if row[0]}

    @property
    def old(self) -> set[str]:
        """The segments of the job that ended."""
        return {name for name in self.names if name.startswith("w-shop/")}

    def verified(self, on: Kept, *, uploaded: bool = True) -> tuple[int, int]:
        """Pages whose bytes are at fault, and pages whose bytes are archived, as `verify` on a machine counts them."""
        verifier = Verifier(self.database, 3, ArchiveReader(on.archive, self.objects), read_uploaded=uploaded)
        found = [step.finding for step in verifier.run() if step.finding is not None]
        return sum(one.faults for one in found), sum(one.archived for one in found)


@pytest.fixture(params=["folder"])
def machines(request: pytest.FixtureRequest, database: Database, store: Store, tmp_path: Path) -> Iterator[Machines]:
    if request.param == "folder":
        (tmp_path / "shared").mkdir()
        yield prepared(database, store, tmp_path, Archive(store=str(tmp_path / "shared"), machine="m1"))
        return
    with object_store() as server:
        settings = Archive.model_validate(
            {
                "store": f"s3://{BUCKET}/archive",
                "endpoint": server.endpoint,
                "access_key": KEYS["AWS_ACCESS_KEY_ID"],
                "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"],
                "machine": "m1",
            }
        )
        yield prepared(database, store, tmp_path, settings)


def prepared(database: Database, store: Store, folder: Path, settings: Archive) -> Machines:
    objects = open_segment_store(settings)
    assert objects is not None
    one, two = Kept(database, folder, objects=objects), Kept(database, folder, "parquet", objects, "archive-two")
    shop = JobStore(store.connection, store.new_job("shop"))
    crawl_site(database, shop, one.archive, "shop.example", rounds=2)
    end_job(store.connection, shop.job_id)
    crawl_site(database, store, one.archive, "live.example", rounds=2)
    return Machines(one, two, objects, store, shop, settings)


def pass_days(machines: Machines) -> None:
    let_pass(machines.store.connection, 100 * DAY)
    then = time.time() - 100 * 86_400
    for path in machines.one.archive.glob("*/*.warc.gz"):
        os.utime(path, (then, then))


def files(kept: Kept) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in kept.archive.glob("*/*.warc.gz")}


@pytest.mark.parametrize("machines", ["folder", "s3"], indirect=True)
def test_uploaded_segments_are_aged_by_any_machine_and_come_back(machines: Machines) -> None:
    one, two, old = machines.one, machines.two, machines.old
    assert machines.upload(one, keep_local=False) == len(machines.names) == 4
    assert files(one) == set()
    pass_days(machines)
    reference = machines.store.connection.execute(
        "SELECT archive_segment, archive_offset, archive_length, payload_digest FROM crawled_pages "
        "WHERE archive_segment = ANY(%s) LIMIT 1",
        (list(old),),
    ).fetchone()
    assert reference
    ref = ArchiveRef(reference[0], reference[1], reference[2], bytes(reference[3]))
    body = ArchiveReader(None, machines.objects).read(ref).body

    counted = {step.step: step for step in two.service(pages="0").run(dry_run=True).steps}["segments"]
    result = two.service(pages="0").run()
    assert result.problems == []
    done = {step.step: step for step in result.steps}["segments"]
    assert (done.rows, done.bytes) == (counted.rows, counted.bytes) == (2, counted.bytes)
    assert machines.stored() == machines.names - old, "those of a live job stay"
    assert machines.states() == dict.fromkeys(sorted(machines.names - old), "uploaded")
    for on in (one, two):
        assert machines.verified(on) == machines.verified(on, uploaded=False) == (0, 6)
    pages = PageService(machines.database, sources=SourceReader(ArchiveReader(two.archive, machines.objects)))
    assert "`holdfast archive restore " in str(pages.source("https://shop.example/").missing)

    for name in old:
        machines.objects.delete(name)  # again: nothing happens
    for entry in two.archives.listing(kind="segment"):
        assert two.archives.check(entry.id) == 1
        assert two.archives.restore(entry.id).restored == 1
    assert machines.states() == {name: "local" if name in old else "uploaded" for name in sorted(machines.names)}
    place = archive_segments.place(machines.store.connection, ref.segment)
    assert place is not None
    assert place.machine == "archive-two"
    assert machines.upload(two) == 2
    assert machines.states() == dict.fromkeys(sorted(machines.names), "uploaded")
    assert ArchiveReader(one.archive, machines.objects).read(ref).body == body
    assert machines.verified(one) == (0, 0)
    assert two.service(pages="0").run().problems == []
    assert machines.stored() == machines.names, "what was restored is kept for a while"


def test_a_copy_on_another_machine_is_not_uploaded_again_and_goes_with_its_next_run(machines: Machines) -> None:
    one, two, old = machines.one, machines.two, machines.old
    machines.upload(one)
    pass_days(machines)
    assert two.service(pages="0").run().problems == []
    assert (files(one), machines.stored()) == (machines.names, machines.names - old)
    assert machines.upload(one) == 0
    assert machines.states().keys() == machines.names - old
    assert machines.verified(one) == (0, 0)
    assert one.service(pages="0").run().problems == []
    assert files(one) == machines.names - old
    assert machines.verified(one) == (0, 6)


@pytest.mark.parametrize("failpoint", KILLED)
def test_a_run_that_was_killed_is_repeated(machines: Machines, failpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def kill(name: str) -> None:
        if name == failpoint and any(machines.one.store_files("segment")):
            raise Killed

    machines.upload(machines.one)
    pass_days(machines)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.failpoints.reach", kill)
        with pytest.raises(Killed):
            machines.one.service(pages="0").run()
    faults, archived = machines.verified(machines.two)
    assert (faults, archived > 0) == (0, failpoint == "retention_deleted")
    assert machines.one.service(pages="0").run().problems == []
    assert files(machines.one) == machines.stored() == machines.states().keys() == machines.names - machines.old
    assert machines.verified(machines.one) == (0, 6)
    assert len(machines.one.archives.listing(kind="segment", state="complete")) == 2
    assert len(list(machines.one.store_files("segment"))) == 2


def test_what_is_not_uploaded_waits_and_so_does_what_it_may_refer_to(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, old = machines.one, machines.two, machines.old
    machines.upload(one)
    waits = max(old)
    machines.store.connection.execute(
        "UPDATE archive_segments SET state = 'local', uploaded_at = NULL WHERE segment = %s", (waits,)
    )
    machines.objects.delete(waits)
    pass_days(machines)
    assert two.service(pages="0").run().problems == []
    assert two.archives.listing(kind="segment") == [], "only the machine that has it can read to what it refers"
    one.service(pages="0").run()
    assert files(one) == machines.names - (old - {waits})
    assert machines.verified(one) == (0, 3)

    machines.upload(one)
    let_pass(machines.store.connection, 100 * DAY)

    def refuse(_: object, segment: str) -> None:
        raise ArchiveUnavailable("It is away.")

    with monkeypatch.context() as patch:
        patch.setattr(FolderSegmentStore, "delete", refuse)
        assert one.service(pages="0").run().problems == ["segments: It is away."]
    assert machines.stored() == machines.names - (old - {waits})
    assert one.service(pages="0").run().problems == []
    assert machines.stored() == machines.names - old


def test_an_open_segment_on_another_machine_keeps_those_to_which_it_may_refer(machines: Machines) -> None:
    connection, folder_id = machines.store.connection, "ab" * 8
    machines.upload(machines.one, keep_local=False)
    pass_days(machines)
    archive_segments.opened(connection, folder_id, "m1", "w-shop/w-shop-9.warc.gz")
    open_since = "UPDATE archive_segments SET opened_at = now() - %s WHERE state = 'open'"
    connection.execute(open_since, (100 * DAY,))
    assert machines.two.service(pages="0").run().problems == []
    assert machines.stored() == machines.names, "it was begun within a day of them"
    connection.execute(open_since, (90 * DAY,))
    assert machines.two.service(pages="0").run().problems == []
    assert machines.stored() == machines.names - machines.old


def test_an_object_that_a_backup_may_name_stays_until_the_backup_goes(machines: Machines) -> None:
    machines.upload(machines.one, keep_local=False)
    pass_days(machines)
    machines.store.connection.execute(
        "INSERT INTO backups (generation, kind, state, place, ended_at) VALUES (1, 'full', 'complete', '/b', now())"
    )
    assert machines.two.service(pages="0").run().problems == []
    assert len(machines.two.archives.listing(kind="segment", state="complete")) == 2
    assert machines.stored() == machines.states().keys() == machines.names
    assert machines.verified(machines.two) == (0, 0), "all can be read"
    machines.store.connection.execute("UPDATE backups SET state = 'deleted'")
    assert machines.two.service(pages="0").run().problems == []
    assert machines.stored() == machines.states().keys() == machines.names - machines.old


def test_a_damaged_or_missing_object_is_named_and_the_others_go(machines: Machines, tmp_path: Path) -> None:
    machines.upload(machines.one, keep_local=False)
    pass_days(machines)
    damaged, other = sorted(machines.old)
    path = tmp_path / "shared" / damaged
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (problem,) = machines.two.service(pages="0").run().problems
    assert f"{damaged} in {tmp_path / 'shared'} is damaged" in problem
    assert machines.stored() == machines.names - {other}
    path.unlink()
    (problem,) = machines.two.service(pages="0").run().problems
    assert "has no file" in problem
    assert machines.states()[damaged] == "uploaded"


def test_gc_deletes_objects_that_nothing_names(machines: Machines) -> None:
    names, old = machines.names, machines.old
    machines.upload(machines.one, keep_local=False)
    pass_days(machines)
    assert machines.two.service().collect_segments(DAY).files == 0
    machines.store.connection.execute("DELETE FROM page_versions WHERE job_id = %s", (machines.shop.job_id,))
    machines.store.connection.execute("DELETE FROM crawled_pages WHERE job_id = %s", (machines.shop.job_id,))
    assert machines.two.service().collect_segments(DAY, dry_run=True).files == 2
    assert all(machines.objects.size(name) for name in names)
    assert machines.two.service().collect_segments(DAY).files == 2
    assert [machines.objects.size(name) for name in old] == [None, None]
    assert machines.states() == dict.fromkeys(sorted(names - old), "uploaded")


def test_the_manifest_is_read_in_pieces(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that go over several pieces, and a folder of many segments that stay: what is in memory does not grow with it."""
    names, old = machines.names, machines.old
    machines.upload(machines.one, keep_local=False)
    pass_days(machines)
    connection = machines.store.connection
    connection.execute("DELETE FROM page_versions WHERE job_id = %s", (machines.shop.job_id,))
    connection.execute("DELETE FROM crawled_pages WHERE job_id = %s", (machines.shop.job_id,))
    monkeypatch.setattr(segments, "CHUNK", 1)
    assert machines.two.service().collect_segments(DAY, dry_run=True).files == 2
    connection.execute(
        "INSERT INTO archive_segments (segment, machine_id, state, bytes, sha256, uploaded_at) SELECT 'w-many/' || n || '.warc.gz', "
        "(SELECT min(id) FROM archive_machines), 'uploaded', 1, sha256(n::text::bytea), now() FROM generate_series(1, 30000) n"
    )
    monkeypatch.setattr(segments, "CHUNK", 500)
    tracemalloc.start()
    try:
        assert machines.two.service().collect_segments(DAY).files == 2
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert machines.stored() == names - old


def test_a_lost_segment_that_was_archived_is_lost_no_more(machines: Machines) -> None:
    """It was archived before there was an object store; a backup kept its file, until the machine was gone."""
    connection = machines.store.connection
    pass_days(machines)
    connection.execute(
        "INSERT INTO backups (generation, kind, state, place, ended_at) VALUES (1, 'full', 'complete', '/b', now())"
    )
    assert Kept(machines.database, machines.one.folder).service(pages="0").run().problems == []
    machines.upload(machines.one, keep_local=False)
    connection.execute("UPDATE archive_segments SET state = 'lost', lost_at = now() WHERE segment LIKE 'w-shop/%'")
    for name in machines.old:
        machines.objects.delete(name)
    assert machines.two.service(pages="0").run().problems == []
    assert machines.states() == dict.fromkeys(sorted(machines.names - machines.old), "uploaded")
    assert machines.verified(machines.two) == (0, 6)


def test_a_shared_folder_that_is_not_mounted_deletes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnavailable, match=r"cannot be used: no such file or directory \(archive.store\)"):
        FolderSegmentStore(tmp_path / "missing").delete("w1/one.warc.gz")
