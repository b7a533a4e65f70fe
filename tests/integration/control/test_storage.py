"""The storage report: sizes of tables and folders, oldest rows, and what cannot be known."""

import os
import re
import threading
from pathlib import Path

import psycopg
import pytest

from holdfast.db.connection import Database
from holdfast.storage.service import StorageService, folder_size
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store


def test_what_is_stored_and_how_much_room_is_left(
    database: Database, store: Store, connection: psycopg.Connection, tmp_path: Path
) -> None:
    crawl_a_little(database, store)
    connection.execute("ANALYZE")
    for name, size in (("archive/w1/one.warc.gz", 5000), ("archive/w2/two.warc.gz", 700), ("logs/w1.log", 30)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    found = StorageService(database, tmp_path, tmp_path).report()
    assert found.database_bytes > 1_000_000
    tables = {table.name: table for table in found.tables}
    assert tables["crawled_pages"].rows == 4
    assert tables["crawl_log"].rows == len(connection.execute("SELECT FROM crawl_log").fetchall()), (
        "its partitions count for it"
    )
    assert not any(re.match(r"crawl_log_[0-9d]|pg_", name) for name in tables)
    assert all(table.table_bytes >= 0 and table.index_bytes >= 0 for table in found.tables)
    sizes = [table.table_bytes + table.index_bytes for table in found.tables]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) < found.database_bytes
    oldest = {row.table: row.at for row in found.oldest}
    for table in ("crawl_log", "crawled_pages"):
        assert oldest[table] == store.value(f"SELECT min(crawled_at) FROM {table}")
    assert oldest["crawl_tasks"] is None
    assert [(one.name, one.files, one.bytes, one.complete) for one in found.folders] == [
        ("archive", 2, 5700, True),
        ("logs", 1, 30, True),
    ]
    (volume,) = found.volumes
    assert volume.holds == ["archive", "logs", "database"]
    assert 0 < volume.free_bytes <= volume.total_bytes
    assert found.notes == []


def test_a_folder_of_backups_that_hangs_is_left_out(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "copies").mkdir()
    looked, answers = [], threading.Event()
    real = os.scandir

    def scandir(path: str) -> object:
        looked.append(Path(path).name)
        if looked[-1] == "copies":
            answers.wait(30)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    service = StorageService(database, tmp_path, None, backups=tmp_path / "copies", fresh_for=0, answer_seconds=0.1)
    try:
        for _ in range(3):
            found = service.report()
            assert [folder.name for folder in found.folders] == ["archive"]
            assert [note for note in found.notes if "copies" in note] == [
                f"The folder {tmp_path / 'copies'} does not answer (limit: 0.1 s), so it is left out. Is its disk or server gone?"
            ]
    finally:
        answers.set()
    assert looked.count("copies") == 1, "few threads wait"


def test_backups_and_the_log_of_the_database_take_room(
    database: Database, connection: psycopg.Connection, tmp_path: Path
) -> None:
    for name, size in (
        ("data/archive/one.gz", 7),
        ("copies/full/base", 5000),
        ("cluster/postgres/pg_wal/000000010000", 800),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    service = StorageService(database, tmp_path / "data", tmp_path / "cluster", backups=tmp_path / "copies")
    found = service.report()
    assert [(one.name, one.path, one.bytes) for one in found.folders] == [
        ("archive", f"{tmp_path}/data/archive", 7),
        ("backups", f"{tmp_path}/copies", 5000),
        ("database log", f"{tmp_path}/cluster/postgres/pg_wal", 800),
    ]
    (volume,) = found.volumes
    assert volume.holds == ["archive", "backups", "database log", "database"]
    assert service.measure(connection)
    kept = connection.execute(
        "SELECT split_part(name, '@', 1), bytes FROM storage_days WHERE kind = 'folder' ORDER BY 1"
    )
    assert kept.fetchall() == [("archive", 7), ("backups", 5000), ("database log", 800)]


def test_databases_that_restores_replaced_are_named(database: Database, tmp_path: Path) -> None:
    for name in ("postgres/pg_wal", "postgres.before-20261119T220833Z/base", "archive", "logs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "postgres.before-20261119T220833Z" / "base" / "1").write_bytes(b"x" * 2_500_000)
    assert StorageService(database, tmp_path, tmp_path).report().notes == [
        f"{tmp_path}/postgres.before-20261119T220833Z is a database that a restore replaced, 2.5 MB: delete it when it is not needed."
    ]


def test_a_report_is_cached(database: Database, tmp_path: Path) -> None:
    service = StorageService(database, tmp_path, None)
    assert service.report() is service.report()


def test_what_is_not_known_is_a_sentence(database: Database, tmp_path: Path) -> None:
    found = StorageService(database, tmp_path / "none", None).report()
    assert (found.folders, found.volumes) == ([], [])
    assert found.notes == [
        f"There is no folder {tmp_path}/none/archive on this machine: nothing was crawled here.",
        f"There is no folder {tmp_path}/none/logs on this machine: nothing was crawled here.",
        "The database is on a server of its own, so the free space of its disk is not known here.",
    ]
    (tmp_path / "archive").write_text("a file")
    notes = StorageService(database, tmp_path, None).report().notes
    assert notes[0] == f"The folder {tmp_path}/archive cannot be read: Not a directory."


def test_a_folder_is_counted_up_to_a_bound_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    (folder / "w1").mkdir(parents=True)
    for number in range(10):
        (folder / "w1" / f"{number}").write_bytes(b"12345")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large").write_bytes(b"x" * 10_000)
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "large")
    whole = folder_size(folder)
    assert (whole.files, whole.complete) == (12, True)
    assert whole.bytes < 1_000, "a link counts with its own size"
    few = folder_size(folder / "w1", max_files=4)
    assert (few.files, few.bytes, few.complete) == (4, 20, False)
    ticks = iter(range(100))
    late = folder_size(folder / "w1", max_seconds=3, clock=lambda: float(next(ticks)))
    assert (late.files, late.complete) == (2, False)


def test_a_bound_is_said(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "one").write_bytes(b"1")
    (tmp_path / "archive" / "two").write_bytes(b"2")
    monkeypatch.setattr(folder_size, "__kwdefaults__", {**(folder_size.__kwdefaults__ or {}), "max_files": 1})
    found = StorageService(database, tmp_path, None).report()
    assert found.notes[0] == f"{tmp_path}/archive has more than 1 files; only these are counted."


def test_the_trend_is_that_of_the_last_days(
    database: Database, store: Store, connection: psycopg.Connection, tmp_path: Path
) -> None:
    crawl_a_little(database, store)
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "one.warc.gz").write_bytes(b"x" * 5000)
    service = StorageService(database, tmp_path, tmp_path, fresh_for=0)
    assert (service.report().bytes_per_day, service.report().volumes[0].days_until_full) == (None, None)
    assert service.measure(connection)
    assert not service.measure(connection), "once a day"
    # Nine days before, each a megabyte smaller; the archive by a kilobyte.
    connection.execute(
        """INSERT INTO storage_days (day, kind, name, rows, bytes)
           SELECT day - n, kind, name, rows, bytes - n * CASE kind WHEN 'database' THEN 1000000 WHEN 'folder' THEN 1000 ELSE 100 END
           FROM storage_days, generate_series(1, 9) n"""
    )
    found = service.report()
    assert found.bytes_per_day == pytest.approx(1_000_000)
    assert [day.bytes - found.days[0].bytes for day in found.days] == [n * 1_000_000 for n in range(10)]
    (volume,) = found.volumes
    assert volume.holds == ["archive", "database"]
    assert volume.bytes_per_day == pytest.approx(1_001_000)
    assert volume.days_until_full == pytest.approx(volume.free_bytes / 1_001_000, rel=0.01)
    tables = {table.name: table for table in found.tables}
    assert tables["crawl_log"].bytes_per_day == pytest.approx(100)
    (domain,) = found.domains
    assert (domain.domain, domain.pages, domain.bytes) == ("example.com", 3, 900)
    assert domain.bytes_per_day == pytest.approx(100)
