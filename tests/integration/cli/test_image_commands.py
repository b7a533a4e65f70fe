"""`holdfast images`, `holdfast gc` and `holdfast export images`."""

import os
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from holdfast.archive.image_store import FolderImageStore
from holdfast.db.connection import Database
from tests.support.cli import Cli
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.object_store import BUCKET, KEYS, object_store
from tests.support.pictures import jpeg
from tests.support.stored_images import PICTURES, put_images


@pytest.fixture
def files(cli: Cli) -> Path:
    return cli.folder / ".holdfast" / "images"


@pytest.fixture
def ids(cli: Cli, database: Database, connection: psycopg.Connection, files: Path) -> list[int]:
    crawl_a_little(database, Store(connection))
    return put_images(connection, FolderImageStore(files))


def test_list_and_show(cli: Cli, ids: list[int]) -> None:
    answer = cli("images", "list", "--format", "webp")
    assert [line.split() for line in answer.out.splitlines()[2:]] == [
        [
            str(ids[1]),
            "webp",
            "160",
            "x",
            "120",
            *answer.out.splitlines()[2].split()[5:7],
            str(ids[0]),
            "example.com",
            "https://cdn.example/small.webp",
        ]
    ]
    found = cli("images", "list", "--near", str(ids[1]), "--json").json
    assert [one["id"] for one in found["images"]] == [ids[1], ids[0]]
    assert f"--before {ids[2]}" in cli("images", "list", "--limit", "2").err
    assert cli("images", "list", "--min-width", "9000").err == "No image fits these options.\n"
    shown = cli("images", "show", str(ids[0]))
    assert "320 x 240" in shown.out
    assert HOME in shown.out
    assert cli("images", "show", "999").refused(4) == "There is no image 999."
    assert cli("images", "list", "--format", "heic").refused(2).startswith("There is no format 'heic'")


def test_columns_of_images_are_shown_where_there_are_some(
    cli: Cli, database: Database, connection: psycopg.Connection, files: Path
) -> None:
    crawl_a_little(database, Store(connection))
    for command in (("top-domains",), ("domains", "status")):
        assert cli(*command).out.splitlines()[0].split() == ["DOMAIN", "STATUS", "PAGES", "LAST", "CRAWLED"]
    put_images(connection, FolderImageStore(files))
    for command in (("top-domains",), ("domains", "status")):
        assert cli(*command).out.splitlines()[0].split() == [
            "DOMAIN",
            "STATUS",
            "PAGES",
            "IMAGES",
            "YIELD",
            "LAST",
            "CRAWLED",
        ]


def test_garbage(cli: Cli, ids: list[int], files: Path, connection: psycopg.Connection) -> None:
    store = FolderImageStore(files)
    orphan = store.put(b"\1" * 32, "png", b"orphan")
    (files / "incoming" / "x.png.1234").write_bytes(b"half")
    assert cli("gc").out == (
        "0 images without a page, 0 files without an image (0 B) and 0 unfinished files deleted.\n"
    )
    for path in (files / orphan, files / "incoming" / "x.png.1234"):
        os.utime(path, (0, 0))
    connection.execute("DELETE FROM provenance WHERE image_id = %s", (ids[3],))
    connection.execute("DELETE FROM domain_images WHERE image_id = %s", (ids[3],))
    connection.execute(
        "UPDATE images SET last_seen_at = now() - interval '2 days', first_seen_at = now() - interval '2 days'"
    )
    for path in files.rglob("*.svg"):
        os.utime(path, (0, 0))
    said = "1 image without a page, {} without an image ({} B) and 1 unfinished file {}.\n"
    assert cli("gc", "--dry-run").out == said.format("1 file", 6, "would be deleted")
    assert store.exists(orphan)
    svg = len(PICTURES["https://cdn.example/logo.svg"])
    assert cli("gc").out == said.format("2 files", svg + 6, "deleted")
    assert len(store.list()) == 3
    nothing = {"images": 0, "files": 0, "bytes": 0, "leftovers": 0, "dry_run": False, "for_backups": 0}
    assert cli("gc", "--json").json == nothing
    assert cli("gc", "--grace", "soon").code == 2
    connection.execute("INSERT INTO backups (generation, kind, state, place) VALUES (1, 'full', 'complete', '/b')")
    named = store.put(b"\2" * 32, "png", b"orphan")
    os.utime(files / named, (0, 0))
    assert cli("gc").out.endswith(
        "1 file more: a kept backup may name them and has no copy, so they stay until it is deleted (`holdfast backup list`).\n"
    )
    assert store.exists(named)
    connection.execute("UPDATE backups SET started_at = clock_timestamp()")
    assert cli("gc", "--json").json["files"] == 1
    assert not store.exists(named)
    connection.execute("UPDATE domains SET images_stored = images_stored - 1 WHERE images_stored > 0")
    checked = cli("verify", "--json").json
    assert [one["check"] for one in checked["checks"] if one["faults"] and "image" in one["check"]] == []


def test_a_file_that_is_missing_or_damaged_is_found_by_verify(
    cli: Cli, ids: list[int], files: Path, connection: psycopg.Connection
) -> None:
    keys = [row[0] for row in connection.execute("SELECT file FROM images ORDER BY id")]
    (files / keys[0]).unlink()
    (files / keys[1]).write_bytes(b"other")
    checks = {one["check"]: one for one in cli("verify", "--json").json["checks"]}
    found = checks["every image has its file, with its hash"]
    assert (found["faults"], found["skipped"]) == (2, 0)
    assert [row["image_id"] for row in found["rows"]] == ids[:2]


def test_an_export_goes_on_where_it_was(cli: Cli, ids: list[int], files: Path, connection: psycopg.Connection) -> None:
    target = cli.folder / "pictures"
    done = cli("export", "images", str(target), "--json").json
    assert (done["rows"], done["images"], done["copied"], done["missing"]) == (4, 4, 4, 0)
    rows = pq.read_table(target / "images.parquet").to_pylist()
    assert {row["image_url"] for row in rows} == set(PICTURES)
    assert {(target / "files" / row["file"]).read_bytes() for row in rows} == set(PICTURES.values())
    assert rows[1]["near_duplicate_of"] == rows[0]["sha256"]
    more = put_images(connection, FolderImageStore(files), {"https://cdn.example/new.jpg": jpeg(9)})
    (target / "images.parquet").unlink()
    again = cli("export", "images", str(target), "--domain", "example.com", "--json").json
    assert (again["images"], again["copied"]) == (5, 1)
    (key,) = connection.execute("SELECT file FROM images WHERE id = %s", (more[0],)).fetchone() or ("",)
    (files / key).unlink()
    (target / "files" / key).unlink()
    gone = cli("export", "images", str(target))
    assert gone.code == 1
    assert "1 image could not be copied" in gone.err


def test_targets_that_cannot_be_written_to(cli: Cli, ids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    file = cli.folder / "a-file"
    file.write_text("here")
    assert cli("export", "images", str(file)).refused(2).endswith("cannot be made: it is a file. Name another folder.")
    assert "not a directory. Name another folder." in cli("export", "images", str(file / "x")).refused(2)
    assert "s3://bucket/prefix; a bucket has" in cli("export", "images", "s3://x").refused(2)
    for store in ("s3:/pictures", "S3://pictures", "https://pictures.example"):
        monkeypatch.setenv("HOLDFAST_IMAGES_STORE", store)
        assert "must be a folder, or s3://bucket" in cli("images", "list").refused(2)


def test_an_export_to_an_object_store(cli: Cli, ids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store() as server:
        monkeypatch.setenv("HOLDFAST_IMAGES_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HOLDFAST_IMAGES_ACCESS_KEY", KEYS["AWS_ACCESS_KEY_ID"])
        monkeypatch.setenv("HOLDFAST_IMAGES_SECRET_KEY", KEYS["AWS_SECRET_ACCESS_KEY"])
        monkeypatch.chdir(cli.folder)
        done = cli("export", "images", f"s3://{BUCKET}/copy", "--json").json
        assert (done["images"], done["copied"]) == (4, 4)
        assert len(pq.read_table(cli.folder / "images.parquet")) == 4
        shown = cli("config", "show", "--json")
        assert "images.secret_key" in shown.out
        assert KEYS["AWS_SECRET_ACCESS_KEY"] not in shown.out + shown.err
