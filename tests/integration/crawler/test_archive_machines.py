"""Two machines, each with a data folder of its own, one database and one object store: pages are read from anywhere, a lost machine
loses its open segment, and an object store that is away stops nothing until too much waits."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import factories
from holdfast.alerts.records import Alert, Kind
from holdfast.alerts.rules import Rules
from holdfast.alerts.sentences import describe
from holdfast.alerts.service import AlertService
from holdfast.archive.segment_store import open_segment_store
from holdfast.errors import SegmentMissing
from holdfast.model.fetch_types import ArchiveRef
from tests.integration.crawler.test_secret_canary import everything
from tests.support.archived import write_parser
from tests.support.crawls import Crawls, wait_for
from tests.support.object_store import BUCKET, KEYS, ObjectStore, object_store
from tests.support.pages import Page, Pages, html

PAGES = 12
STATES = (
    "SELECT segment, state FROM archive_segments s JOIN archive_machines m ON m.id = s.machine_id WHERE m.name = %s"
)


IN_OPEN = "SELECT count(*) FROM crawled_pages JOIN archive_segments ON segment = archive_segment WHERE state = 'open'"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("objects") / "record") as server:
        yield server


def machine(crawls: Crawls, name: str, objects: ObjectStore, **archive: object) -> Crawls:
    """A machine with a data folder of its own, on the same database and object store."""
    folder = crawls.folder / name
    folder.mkdir()
    one = Crawls(crawls.database, crawls.connection, folder)
    one.groups |= {group: dict(values) for group, values in crawls.groups.items()}
    one.set(
        archive={
            "store": f"s3://{BUCKET}/{crawls.folder.name}",
            "endpoint": objects.endpoint,
            "store_timeout": "2s",
            "access_key": KEYS["AWS_ACCESS_KEY_ID"],
            "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"],
            "machine": name,
            **archive,
        }
    )
    return one


def site(text: str, pages: int = PAGES) -> dict[str, Page]:
    """A home page, and pages of some KB that do not compress, each with its own words; two have the same body."""
    words = {f"/p{number}": f"{text} {number} {noise(text, number)}" for number in range(pages)}
    words[f"/p{pages - 1}"] = words["/p0"]
    return {"/": html(*words), **{path: html(text=said) for path, said in words.items()}}


def noise(text: str, number: int) -> str:
    return " ".join(hashlib.sha256(f"{text} {number} {part}".encode()).hexdigest() for part in range(40))


def crawl(on: Crawls, url: str, job: str) -> None:
    """A whole crawl by one worker of this machine."""
    begun = on.begin(url, job=job, delay=0).job
    with on.worker(begun, f"{on.folder.name}-1") as worker:
        worker.end()
    assert on.desk.end(begun).completed


def references(crawls: Crawls) -> dict[str, ArchiveRef]:
    """Where each page is, by its URL."""
    rows = crawls.rows(
        "SELECT f.url, p.archive_segment, p.archive_offset, p.archive_length, p.payload_digest FROM crawled_pages p "
        "JOIN url_frontier f USING (domain_id, job_id, url_key) WHERE p.archive_segment IS NOT NULL"
    )
    return {url: ArchiveRef(segment, offset, length, bytes(digest)) for url, segment, offset, length, digest in rows}


def bodies(on: Crawls) -> dict[str, bytes]:
    """All pages of all machines, as this one reads them."""
    reader = factories.archive_reader(on.settings, on.database)
    return {url: reader.read(ref).body for url, ref in references(on).items()}


def answer(on: Crawls, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    """What a command with --json answers on a machine."""
    capsys.readouterr()
    assert on.command(*arguments, "--json") == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_every_page_can_be_read_on_every_machine(
    crawls: Crawls, objects: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_parser(tmp_path / "parsers", "shop", "return [{'url': document.url, 'size': len(document.body)}]")
    crawls.set(parsing={"folder": str(tmp_path / "parsers")})
    one, two = machine(crawls, "m1", objects), machine(crawls, "m2", objects, keep_local=False)
    with Pages(site("first")) as first, Pages(site("second")) as second:
        crawl(one, first.url(), "one")
        crawl(two, second.url(host="127.0.0.1"), "two")
        served = {first.url(path): page.body for path, page in first.answers.items()}
        served |= {second.url(path, "127.0.0.1"): page.body for path, page in second.answers.items()}
    assert bodies(one) == bodies(two) == served
    assert not list((two.folder / "data" / "archive").glob("*/*.gz")), "its copies are removed"
    assert list((one.folder / "data" / "archive").glob("*/*.gz")), "and these are kept"
    # The manifest names what is there, with its hash.
    store = open_segment_store(one.settings.archive)
    assert store is not None
    manifest = crawls.rows("SELECT segment, state, bytes, sha256 FROM archive_segments")
    assert manifest
    for segment, state, size, sha256 in manifest:
        assert state == "uploaded"
        assert hashlib.sha256(store.read(segment, 0, size + 1)).digest() == bytes(sha256)
    # Export, texts and parsers are the same on both, also of what the other has fetched.
    for on in (one, two):
        assert on.command("export", "pages", str(on.folder / "pages.jsonl"), "--text") == 0
    assert (one.folder / "pages.jsonl").read_bytes() == (two.folder / "pages.jsonl").read_bytes()
    assert b"second 3 " in (one.folder / "pages.jsonl").read_bytes()
    again = [answer(on, capsys, "parse", "--again", "--with", "shop") for on in (one, two)]
    assert again[0] == again[1]
    assert (again[0]["parsed"], again[0]["failed"]) == (len(served), 0)
    assert answer(one, capsys, "verify", "--uploaded")["ok"]
    assert answer(two, capsys, "verify")["ok"]
    # What a crawl made due is parsed by the machine that did not fetch it.
    parsed = answer(two, capsys, "replay", "--parse", "--job", "one")
    assert (parsed["pages"], parsed["looked_at"]) == (0, len(served) // 2), "it was parsed by no parser yet"
    crawls.connection.execute("UPDATE crawl_jobs SET spec = spec || '{\"parser\": \"shop\"}' WHERE name = 'one'")
    assert answer(one, capsys, "parse", "--again", "--job", "one", "--apply")["first"] == len(served) // 2
    assert (
        answer(two, capsys, "replay", "--parse", "--job", "one", "--parser", "shop", "--dry-run")["pages"]
        == len(served) // 2
    )
    assert crawls.value("SELECT count(*) FROM page_parses WHERE due") == 0
    assert answer(two, capsys, "replay", "--parse", "--job", "one", "--parser", "shop")["pages"] == len(served) // 2
    crawls.connection.execute("UPDATE page_parses SET fetched_at = fetched_at - interval '1 minute'")
    assert answer(two, capsys, "parse")["pages"] == len(served) // 2
    assert crawls.value("SELECT count(*) FROM page_parses WHERE due OR error IS NOT NULL") == 0
    # No secret is anywhere.
    dumped = str(crawls.rows("SELECT to_jsonb(m) FROM archive_machines m")) + str(manifest)
    for secret in KEYS.values():
        assert secret not in dumped
        assert secret.encode() not in everything(one.folder / "data")


def test_a_lost_machine_loses_its_open_segment_and_it_is_replayed(
    crawls: Crawls, objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    crawls.set(flush={"pages": 2, "seconds": 0.05})
    one, two = machine(crawls, "m1", objects), machine(crawls, "m2", objects, upload_bytes=10_000, upload_age="1h")
    with Pages(site("kept", 40)) as pages:
        served = {pages.url(path): page.body for path, page in pages.answers.items()}
        with two.start("crawl", pages.url(), "--job", "site", "--delay", "0.2", "--workers", "1") as program:
            wait_for(lambda: states(crawls, "m2").count("uploaded") >= 2, "uploads")
            seen = len(states(crawls, "m2"))
            # A new one has just begun, and all others are there: it is some pages until it is full.
            wait_for(lambda: len(states(crawls, "m2")) > seen and unfinished(crawls, "m2") == ["open"], "a new segment")
            wait_for(lambda: crawls.value(IN_OPEN), "a page in it")
            program.kill()
        (open_segment,) = [segment for segment, state in crawls.rows(STATES, "m2") if state != "uploaded"]
        before = references(crawls)
        gone = {url for url, ref in before.items() if ref.segment == open_segment}
        assert 0 < len(gone) < len(references(crawls)) < len(served)
        # Until a person says that it is lost, its pages are still there, in words.
        reader = factories.archive_reader(one.settings, one.database)
        with pytest.raises(SegmentMissing, match="still on machine m2"):
            reader.read(references(crawls)[next(iter(gone))])
        assert one.command("export", "pages", str(one.folder / "pages.jsonl"), "--text") == 1
        assert (
            "in archive files that are still on machine m2: export again when it has uploaded them"
            in capsys.readouterr().err
        )
        shutil.rmtree(two.folder)
        assert one.command("segments", "lost", "m2", "--yes") == 5
        assert "its worker" in capsys.readouterr().err
        crawls.connection.execute("UPDATE workers SET heartbeat_at = heartbeat_at - interval '3 minutes'")
        assert answer(one, capsys, "segments", "lost", "m2", "--dry-run")["segments"] == [open_segment]
        assert answer(one, capsys, "segments", "lost", "m2", "--yes")["pages"] == len(gone)
        found = answer(one, capsys, "verify", code=1)
        (lost,) = [check for check in found["checks"] if check["faults"]]
        assert "archive_lost" in lost["check"]
        assert lost["faults"] == len(gone)
        assert {(row["url"], row["segment"], row["problem"]) for row in lost["rows"]} <= {
            (url, open_segment, "archive_lost") for url in gone
        }
        with pytest.raises(SegmentMissing, match="was lost with the machine m2: `holdfast replay --lost`"):
            reader.read(references(crawls)[next(iter(gone))])
        asked = len(pages.paths())
        assert answer(one, capsys, "replay", "--lost", "--dry-run")["pages"] == len(gone)
        replayed = answer(one, capsys, "replay", "--lost")
        assert (replayed["pages"], replayed["forgotten"]) == (len(gone), 0)
        assert answer(one, capsys, "replay", "--lost")["pages"] == 0
        crawl(one, pages.url(), "site")
        # Each lost page once more, and those that were not crawled yet; no other.
        again = pages.paths()[asked:]
        assert all(again.count(path) == 1 for path in again)
        assert {pages.url(path) for path in again} - gone == served.keys() - before.keys()
        assert gone <= {pages.url(path) for path in again}
    assert bodies(one) == served
    assert answer(one, capsys, "verify", "--uploaded")["ok"]
    crawls.verify()


def states(crawls: Crawls, name: str) -> list[str]:
    return [state for _, state in crawls.rows(STATES, name)]


def unfinished(crawls: Crawls, name: str) -> list[str]:
    return [state for state in states(crawls, name) if state != "uploaded"]


def test_without_the_object_store_a_crawl_goes_on_until_too_much_waits(
    crawls: Crawls, objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    crawls.set(flush={"pages": 2, "seconds": 0.05})
    one = machine(crawls, "m1", objects, upload_bytes=10_000, max_waiting=40_000, store_timeout="0.5s")
    with Pages(site("waits", 60)) as pages:
        served = {pages.url(path): page.body for path, page in pages.answers.items()}
        objects.stop()
        try:
            with one.start("crawl", pages.url(), "--job", "site", "--delay", "0", "--workers", "1") as program:
                wait_for(lambda: "the archive cannot grow since" in program.said(), "the words that it waits")
                kept = sum(path.stat().st_size for path in (one.folder / "data" / "archive").glob("*/*.gz"))
                assert 40_000 <= kept < 100_000, "the disk of the machine is bounded"
                done = crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'done'")
                assert 5 < done < len(served)
                assert len(references(crawls)) == done, "nothing is done whose bytes are not there"
                assert "archive.max_waiting is 40,000" in program.said()
                (known,) = answer(one, capsys, "segments")
                assert "no connection (archive.endpoint)" in known["problem"]
                assert known["waiting_bytes"] > 40_000
                assert alerts_of_uploads(crawls) == [], "for less than five minutes"
                crawls.connection.execute("UPDATE archive_machines SET problem_since = now() - interval '6 minutes'")
                (alert,) = alerts_of_uploads(crawls)
                assert (alert.subject, alert.value >= 360, alert.details["bytes"] > 40_000) == ("m1", True, True)
                assert "no connection (archive.endpoint)" in describe(alert).cause
                assert program.lives
                objects.start()
                assert program.end().code == 0
        finally:
            if not crawls.value("SELECT bool_and(state = 'uploaded') FROM archive_segments"):
                objects.stop()
                objects.start()
    assert bodies(one) == served
    assert set(states(crawls, "m1")) == {"uploaded"}
    assert answer(one, capsys, "segments")[0]["problem"] is None
    assert answer(one, capsys, "verify", "--uploaded")["ok"]
    assert len(alerts_of_uploads(crawls)) == 1, "it may come back"
    crawls.connection.execute("UPDATE alerts SET last_seen_at = now() - interval '31 seconds'")
    assert alerts_of_uploads(crawls) == []


def alerts_of_uploads(crawls: Crawls) -> list[Alert]:
    """Those that fire after a look of the rules."""
    crawls.connection.execute("UPDATE duties SET done_at = '-infinity'")
    Rules().look(crawls.connection)
    return [one for one in AlertService(crawls.database).list(active=True) if one.kind == Kind.UPLOADS_FAIL]


def test_an_open_segment_is_uploaded_by_its_age_while_its_worker_waits(crawls: Crawls) -> None:
    (crawls.folder / "shared").mkdir()
    crawls.set(archive={"store": str(crawls.folder / "shared"), "machine": "m1", "upload_age": "1s"})
    with Pages(site("aged", 3)) as pages, crawls.worker(None, "w1") as worker:
        crawls.begin(pages.url(), job="site", delay=0)
        wait_for(lambda: len(references(crawls)) == 4, "all pages")
        wait_for(lambda: set(states(crawls, "m1")) == {"uploaded"}, "the upload")
        assert worker.lives
        assert bodies(crawls) == {pages.url(path): page.body for path, page in pages.answers.items()}
    # Leftovers of a worker that is gone are uploaded by the background of its machine.
    segment = min((crawls.folder / "data" / "archive").glob("*/*.gz"))
    crawls.connection.execute(
        "UPDATE archive_segments SET state = 'open', bytes = NULL, sha256 = NULL, uploaded_at = NULL"
    )
    (crawls.folder / "shared" / "w1" / segment.name).unlink()
    with crawls.start("background"):
        wait_for(lambda: set(states(crawls, "m1")) == {"uploaded"}, "the upload by the background")
    assert (crawls.folder / "shared" / "w1" / segment.name).read_bytes() == segment.read_bytes()
