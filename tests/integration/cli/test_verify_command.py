"""`holdfast verify`: a table of what was checked, the exit code, and the bytes of the archive."""

import hashlib
import shutil
from pathlib import Path

import pytest

from holdfast import private
from holdfast.archive.image_store import FolderImageStore
from holdfast.db.connection import Database
from holdfast.db.verify import CHECKS
from holdfast.model.fetch_types import ArchiveRef
from tests.support.cli import Cli
from tests.support.crawled import HOME, Crawl, crawl_a_little, warc
from tests.support.factories import Store
from tests.support.stored_images import put_images

BODY = b"<p>hello</p>"
SEGMENT = "w1/one.warc.gz"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The archive of this machine, with one page in it."""
    path = tmp_path / ".holdfast" / "archive" / SEGMENT
    private.make_folder(path.parent)
    path.write_bytes(warc(BODY))
    return path


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    ref = ArchiveRef(SEGMENT, 0, len(warc(BODY)), hashlib.sha256(BODY).digest())
    return crawl_a_little(database, store, ref)


def test_a_sound_store(cli: Cli, crawl: Crawl, archive: Path) -> None:
    answer = cli("verify")
    assert (answer.code, answer.err) == (0, "")
    header, rule, *rows, blank, last = answer.out.splitlines()
    assert header.split() == ["#", "CHECK", "RESULT"]
    assert set(rule) == {"─"}
    assert len(rows) == len(CHECKS) + 2
    assert all(row.endswith("  ok") for row in rows)
    assert rows[0].startswith("I1   every URL that was counted is in the frontier")
    assert (blank, last) == ("", f"{len(rows)} checks: all passed.")
    told = cli("verify", "--json").json
    assert (told["ok"], told["archive"], len(told["checks"])) == (True, True, len(rows))
    assert {check["faults"] for check in told["checks"]} == {0}


def test_faults_are_named_with_their_domain_and_end_with_one(cli: Cli, crawl: Crawl) -> None:
    crawl.store.connection.execute("UPDATE domains SET pages_crawled = 77 WHERE domain = 'example.com'")
    crawl.store.connection.execute("UPDATE url_frontier SET attempts = 9")
    answer = cli("verify")
    assert (answer.code, answer.err) == (1, "The archive was not read.\n")
    assert "  I7   a domain's pages" not in answer.out
    assert "I7   a domain's pages and errors are those of the log" in answer.out
    assert "\n  example.com pages_crawled=77 logged_pages=3 total_error_count=1 logged_errors=1\n" in answer.out, (
        answer.out
    )
    assert "\n  … 8 in all\n" in answer.out
    assert answer.out.endswith(f"2 of {len(CHECKS)} checks failed.\n")
    told = cli("verify", "--json")
    assert told.code == 1
    bad = {check["invariant"]: check for check in told.json["checks"] if check["faults"]}
    assert set(bad) == {"I7", "I13"}
    assert len(bad["I13"]["rows"][0]["url_key"]) == 32


def test_bytes_that_are_not_those_that_were_kept(cli: Cli, crawl: Crawl, archive: Path) -> None:
    archive.write_bytes(warc(b"<p>jello</p>"))
    answer = cli("verify")
    assert answer.code == 1
    assert "every reference leads to bytes with its hash" in answer.out
    assert f"example.com job_id={crawl.store.job} url={HOME} problem=In {SEGMENT}, the record at 0" in answer.out
    assert cli("verify", "--no-archive").code == 0
    archive.unlink()
    assert "The archive has no segment w1/one.warc.gz" in cli("verify").out


def test_an_archive_that_is_on_another_machine_is_no_fault(cli: Cli, crawl: Crawl, archive: Path) -> None:
    archive.unlink()
    archive.parent.rmdir()
    answer = cli("verify")
    assert answer.code == 0
    assert answer.err == "1 page was not read: its archive is on another machine.\n"
    (archive.parent.parent / "w2").mkdir()
    assert cli("verify", "--json").json["checks"][-2]["skipped"] == 1


def test_an_image_that_is_on_another_machine_is_no_fault_and_one_that_is_missing_here_is(
    cli: Cli, crawl: Crawl, archive: Path, tmp_path: Path
) -> None:
    here = FolderImageStore(tmp_path / ".holdfast" / "images")
    put_images(crawl.store.connection, here)
    assert cli("verify").code == 0
    first, *others = here.list()
    here.delete(first.key)
    answer = cli("verify")
    assert (answer.code, answer.err) == (1, "")
    assert f"file={first.key} problem=There is no file" in answer.out
    crawl.store.connection.execute("UPDATE images SET store_id = 'another' WHERE file = %s", (first.key,))
    answer = cli("verify")
    assert (answer.code, answer.err) == (0, "1 image was not read: its file is on another machine.\n")
    shutil.rmtree(tmp_path / ".holdfast" / "images")
    assert cli("verify").err == f"{1 + len(others)} images were not read: their files are on other machines.\n"


def test_what_was_crawled_cannot_steer_the_terminal(cli: Cli, crawl: Crawl, archive: Path) -> None:
    archive.unlink()
    crawl.store.connection.execute(
        "UPDATE url_frontier SET url = url || E'\\x1b[2J' WHERE url = 'https://example.com/'"
    )
    answer = cli("verify")
    assert (answer.code, "\x1b" in answer.out) == (1, False)
    assert f"url={HOME}\\x1b[2J" in answer.out


def test_an_empty_store_is_sound(cli: Cli) -> None:
    answer = cli("verify")
    assert (answer.code, answer.err) == (0, "The archive was not read.\n")
