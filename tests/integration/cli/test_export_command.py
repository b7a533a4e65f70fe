"""`holdfast export`: what is in the files, and that none of them is ever half-written."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast import private
from holdfast.control import export as exports
from holdfast.control.export import COLUMNS
from holdfast.db.connection import Database
from tests.support.cli import Cli
from tests.support.crawled import HOME, NASTY, TEXT, Crawl, crawl_a_little, warc
from tests.support.documents import put_document
from tests.support.factories import Store
from tests.support.furnished import put_items, put_links
from tests.support.shop import Shop, product


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def by_url(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({row["url"] for row in rows}) == len(rows)
    return {row["url"]: row for row in rows}


def test_pages(cli: Cli, crawl: Crawl) -> None:
    answer = cli("export", "pages", "pages.jsonl")
    assert (answer.code, answer.out, answer.err) == (0, "4 rows in pages.jsonl.\n", "")
    rows = by_url(read(cli.folder / "pages.jsonl"))
    assert set(rows) == {HOME, f"{HOME}a", f"{HOME}a/b", f"{HOME}gone"}
    home = rows[HOME]
    assert list(home) == list(COLUMNS["pages"])
    assert (home["title"], home["status"], home["outcome"]) == (NASTY, 200, "ok")
    assert (home["domain"], home["job"], home["duration_ms"]) == ("example.com", "default", 42)
    assert home["content_hash"] == bytes(range(32)).hex()
    assert datetime.fromisoformat(home["crawled_at"]).tzinfo == UTC
    assert home["crawled_at"].endswith("Z")
    assert (rows[f"{HOME}gone"]["status"], rows[f"{HOME}gone"]["outcome"]) == (404, "not_found")
    assert names(cli.folder) == ["pages.jsonl"]


def test_items(cli: Cli, crawl: Crawl) -> None:
    found = {"name": "Lamp", "tags": ["a"], "_url": "mine"}, {"name": "=Sofa"}
    put_items(crawl.store.connection, HOME, *found)
    for name in ("items.jsonl", "items.csv", "items.parquet"):
        assert cli("export", "items", name, "--job", "default", "--domain", "example.com").out == f"2 rows in {name}.\n"
    lamp, sofa = read(cli.folder / "items.jsonl")
    assert (lamp["name"], lamp["tags"], lamp["_url"], lamp["_position"]) == ("Lamp", ["a"], HOME, 0)
    assert (sofa["name"], sofa["_parser"], sofa["_parser_version"], sofa["_job"]) == ("=Sofa", "shop", "1", "default")
    assert datetime.fromisoformat(lamp["_extracted_at"]) >= datetime.fromisoformat(lamp["_fetched_at"])
    table = pq.read_table(cli.folder / "items.parquet")
    assert [json.loads(text) for text in table["data"].to_pylist()] == list(found)
    with (cli.folder / "items.csv").open(newline="") as file:
        assert [json.loads(row["data"]) for row in csv.DictReader(file)] == list(found)
    assert [json.loads(line)["name"] for line in cli("export", "items", "-").out.splitlines()] == ["Lamp", "=Sofa"]
    assert cli("export", "items", "-", "--job", "tasks").out == ""


def test_products(cli: Cli, database: Database) -> None:
    with database.session() as connection:
        Shop(connection).see(1, product("Lamp", "10.50", images=("https://shop.example/a.jpg",)))
    (row,) = [json.loads(line) for line in cli("export", "products", "-").out.splitlines()]
    assert list(row) == list(COLUMNS["products"])
    assert (row["name"], row["price"], row["currency"], row["images"]) == (
        *("Lamp", "10.50", "EUR"),
        ["https://shop.example/a.jpg"],
    )
    assert cli("export", "products", "p.parquet").code == cli("export", "products", "p.csv").code == 0
    assert "not to a job" in cli("export", "products", "-", "--job", "default").refused(2)


def test_texts_are_unpacked(cli: Cli, crawl: Crawl) -> None:
    for name in ("texts.jsonl", "texts.csv", "texts.parquet"):
        assert cli("export", "pages", name, "--text").code == 1  # some have none
    expected = {HOME: TEXT, f"{HOME}a": None, f"{HOME}a/b": None, f"{HOME}gone": None}
    assert {row["url"]: row["text"] for row in read(cli.folder / "texts.jsonl")} == expected
    table = pq.read_table(cli.folder / "texts.parquet")
    assert dict(zip(table["url"].to_pylist(), table["text"].to_pylist(), strict=True)) == expected
    with (cli.folder / "texts.csv").open(newline="", encoding="utf-8") as file:
        assert {row["url"]: row["text"] or None for row in csv.DictReader(file)} == expected


def test_a_text_that_is_not_kept_is_read_from_the_archive(cli: Cli, crawl: Crawl) -> None:
    body = "<title>t</title><p>Grüße</p><script>no</script>".encode()
    path = cli.folder / ".holdfast" / "archive" / "w1" / "one.warc.gz"
    private.make_folder(path.parent)
    path.write_bytes(warc(body))
    crawl.store.connection.execute(
        """UPDATE crawled_pages SET archive_segment = 'w1/one.warc.gz', archive_offset = 0, archive_length = %s,
        payload_digest = sha256(%s),
        noindex = url_key = substr(sha256('https://example.com/a/b'), 1, 16)""",
        (len(warc(body)), body),
    )
    answer = cli("export", "pages", "texts.jsonl", "--text")
    assert (answer.code, answer.err) == (0, "")
    texts = {row["url"]: row["text"] for row in read(cli.folder / "texts.jsonl")}
    assert texts == {HOME: TEXT, f"{HOME}a": "Grüße", f"{HOME}a/b": None, f"{HOME}gone": None}
    path.write_bytes(b"damaged")
    answer = cli("export", "pages", "texts.jsonl", "--text")
    assert (answer.code, answer.out) == (1, "4 rows in texts.jsonl.\n")
    assert answer.err == "1 text is in archive files that cannot be read: `holdfast verify` names them.\n"
    assert by_url(read(cli.folder / "texts.jsonl"))[f"{HOME}a"]["text"] is None


def test_texts_that_are_on_another_machine_are_counted(cli: Cli, crawl: Crawl) -> None:
    """The rows are written all the same; who is not told would take them for empty pages."""
    crawl.store.connection.execute(
        "UPDATE crawled_pages SET archive_segment = 'far-1/one.warc.gz', archive_offset = 0, archive_length = 9, content_length = 9"
    )
    for name, stdout in (("texts.jsonl", "4 rows in texts.jsonl.\n"), ("-", None)):
        answer = cli("export", "pages", name, "--text")
        assert answer.code == 1
        assert answer.err == (
            "2 texts are in archive files that are not on this machine, of worker far-1: export there, or copy their folders "
            "into the archive folder here.\n"
        )
        assert stdout is None or answer.out == stdout
    assert cli("export", "pages", "texts.jsonl", "--text", "--json").json["texts_missing"] == 2
    assert cli("export", "pages", "pages.jsonl").code == 0  # without texts none is missing


def test_urls_and_log(cli: Cli, crawl: Crawl) -> None:
    assert cli("export", "urls", "urls.jsonl", "--json").json == {"file": "urls.jsonl", "kind": "urls", "rows": 8}
    urls = by_url(read(cli.folder / "urls.jsonl"))
    assert urls["https://outside.example/"]["state"] == "denied"
    assert urls["https://outside.example/"]["reason"] == "out_of_scope: another host"
    assert urls[f"{HOME}slow"]["not_before"].endswith("Z")
    assert urls[f"{HOME}a/b"]["parent_key"] == urls[f"{HOME}a"]["url_key"]
    assert urls[HOME]["parent_key"] is None
    assert urls["https://other.example/deep"]["domain"] == "other.example"
    assert cli("export", "log", "log.jsonl").out == "5 rows in log.jsonl.\n"
    log = read(cli.folder / "log.jsonl")
    assert sorted(row["outcome"] for row in log) == ["not_found", "ok", "ok", "ok", "timeout"]
    assert {row["run"] for row in log} == {crawl.run_id}


def test_csv_is_safe_for_spreadsheets_and_exact_for_programs(cli: Cli, crawl: Crawl) -> None:
    assert cli("export", "pages", "pages.csv").code == 0
    raw = (cli.folder / "pages.csv").read_bytes()
    assert raw.startswith(b"url,domain,job,status,outcome,title,")
    assert raw.count(b"\r\n") == 5
    with (cli.folder / "pages.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["url"]: row for row in csv.DictReader(file)}
    assert rows[HOME]["title"] == f"'{NASTY}"
    assert (rows[HOME]["noindex"], rows[HOME]["etag"]) == ("false", "")


def test_parquet_has_the_same_schema_whatever_is_in_it(cli: Cli, crawl: Crawl) -> None:
    put_items(crawl.store.connection, HOME, {"name": "Lamp"})
    Shop(crawl.store.connection).see(1, product("Lamp"))
    put_links(crawl.store.connection, HOME, "https://example.com/a")
    put_document(crawl.store.connection, HOME, "# A title", "A text.")
    for kind in COLUMNS:
        job = [] if kind == "products" else ["--job", "default"]
        assert cli("export", kind, f"all-{kind}.parquet").code == 0
        assert cli("export", kind, f"none-{kind}.parquet", "--domain", "other.example", *job).code == 0
        full = pq.ParquetFile(cli.folder / f"all-{kind}.parquet")
        none = pq.ParquetFile(cli.folder / f"none-{kind}.parquet")
        assert full.schema_arrow == none.schema_arrow
        assert full.schema_arrow.names == list(COLUMNS[kind])
        assert none.metadata.num_rows == (1 if kind == "urls" else 0)
        assert full.metadata.row_group(0).column(0).compression == "ZSTD"
    (home,) = [row for row in pq.read_table(cli.folder / "all-pages.parquet").to_pylist() if row["url"] == HOME]
    assert home["title"] == NASTY
    assert home["crawled_at"].utcoffset() == UTC.utcoffset(None)


def test_many_rows_come_in_chunks_and_none_twice(cli: Cli, crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl.store.seed(*(f"many.example/{i}" for i in range(23)), *(f"d{i}.example" for i in range(5)))
    monkeypatch.setattr("holdfast.db.exports.CHUNK", 4)
    monkeypatch.setattr("holdfast.db.exports.TEXT_CHUNK", 1)
    monkeypatch.setattr("holdfast.control.export._GROUP_ROWS", 3)
    assert cli("export", "urls", "urls.parquet").out == "36 rows in urls.parquet.\n"
    urls = pq.ParquetFile(cli.folder / "urls.parquet")
    assert (urls.num_row_groups, len(set(urls.read()["url"].to_pylist()))) == (12, 36)
    assert cli("export", "log", "log.csv").out == "5 rows in log.csv.\n"
    assert cli("export", "pages", "texts.jsonl", "--text").out == "4 rows in texts.jsonl.\n"
    assert cli("export", "urls", "some.jsonl", "--domain", "www.many.example").out == "23 rows in some.jsonl.\n"


def test_lines_on_standard_output_are_plain(cli: Cli, crawl: Crawl) -> None:
    answer = cli("export", "pages", "-", "--domain", "https://example.com/any")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.isascii()
    assert "\x1b" not in answer.out
    assert len([json.loads(line) for line in answer.out.splitlines()]) == 4


def test_a_failure_leaves_what_was_there(cli: Cli, crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    for name in ("pages.jsonl", "pages.csv", "pages.parquet"):
        (cli.folder / name).write_text("older")
        with monkeypatch.context() as patch:
            patch.setattr("holdfast.atomic_file.os.fsync", breaks)
            answer = cli("export", "pages", name)
        assert answer.refused(1) == f"'{name}' cannot be written: No space left on device. Write to another place."
        with monkeypatch.context() as patch:
            patch.setattr(exports, "as_row", breaks)
            assert cli("export", "pages", name).code == 1
        assert (cli.folder / name).read_text() == "older"
        assert cli("export", "pages", name).code == 0
    assert names(cli.folder) == ["pages.csv", "pages.jsonl", "pages.parquet"]


def test_a_link_is_followed_not_replaced(cli: Cli, crawl: Crawl) -> None:
    (cli.folder / "real").mkdir()
    (cli.folder / "link.jsonl").symlink_to(cli.folder / "real" / "data.jsonl")
    assert cli("export", "pages", "link.jsonl").code == 0
    assert (cli.folder / "link.jsonl").is_symlink()
    assert len(read(cli.folder / "real" / "data.jsonl")) == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["pages", "pages.xml"],
            "'pages.xml' must end in .jsonl, .csv or .parquet, the format of the file;",
        ),
        (["pages", "pages"], "'pages' must end in .jsonl"),
        (
            ["videos", "x.csv"],
            "'videos' cannot be exported; choose one of: pages, urls, documents, items, products, log, links.",
        ),
        (["urls", "x.csv", "--text"], "A text is for pages only; nothing else has one."),
        (["pages", "nowhere/x.csv"], "There is no folder 'nowhere' to write to."),
        (["pages", "folder.csv"], "'folder.csv' is not a file that could be replaced."),
        (["pages", "x.csv", "--domain", "http://bad host"], "'http://bad host' is not a valid URL."),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_database(bare_cli: Cli, arguments: list[str], sentence: str) -> None:
    (bare_cli.folder / "folder.csv").mkdir()
    assert bare_cli("export", *arguments).refused(2).startswith(sentence)


def test_an_unknown_job_or_domain(cli: Cli) -> None:
    assert cli("export", "pages", "x.csv", "--job", "nope").refused(4) == "There is no job called 'nope'."
    assert cli("export", "pages", "x.csv", "--domain", "nowhere.example").refused(4).startswith("There is no domain")
    assert names(cli.folder) == []
