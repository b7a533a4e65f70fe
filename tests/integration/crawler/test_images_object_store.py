"""Images in an S3-compatible store that is killed during a crawl and during exports: nothing is lost, and everything says so."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.archive.image_store import FolderImageStore, ImageStore, S3ImageStore, open_store
from holdfast.db import embedded
from holdfast.model.auth import Role
from tests.integration.crawler.test_images import picture, png, with_images
from tests.integration.crawler.test_secret_canary import dumped, everything
from tests.support.api import serving, settings
from tests.support.crawls import Crawls, wait_for
from tests.support.object_store import BUCKET, KEYS, ObjectStore, object_store
from tests.support.page_reader import PageReader
from tests.support.pages import Pages, html

PAGES, ON_A_PAGE = 12, 3
BODIES = [png(number + 1, 16) for number in range(PAGES * ON_A_PAGE)]
FILES = {hashlib.sha256(body).hexdigest() for body in BODIES}
BATCH = 4
IN_FLIGHT = 8
"""The default concurrency of a domain."""


def test_a_store_that_is_killed_in_a_crawl_and_in_exports(
    crawls: Crawls,
    server: embedded.Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    monkeypatch.chdir(tmp_path)
    with object_store(tmp_path / "record") as objects:
        crawls.set(
            flush={"pages": BATCH},
            images={
                "store": f"s3://{BUCKET}/of/crawl",
                "endpoint": objects.endpoint,
                "store_timeout": "1s",
                "access_key": KEYS["AWS_ACCESS_KEY_ID"],
                "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"],
            },
        )
        said = crawl_with_a_kill(crawls, objects, capsys)
        store = open_store(crawls.settings.images, tmp_path)
        assert crawls.command("verify", "--json") == 0
        said += export_with_a_kill(crawls, objects, capsys, monkeypatch, str(tmp_path / "copy"), FolderImageStore)
        metadata = pq.read_table(tmp_path / "copy" / "images.parquet").to_pylist()
        copied = {row["file"]: (tmp_path / "copy" / "files" / row["file"]).read_bytes() for row in metadata}
        assert sorted(copied.values()) == sorted(BODIES)
        said += export_with_a_kill(crawls, objects, capsys, monkeypatch, f"s3://{BUCKET}/copy", S3ImageStore)
        assert pq.read_table(tmp_path / "images.parquet").to_pylist() == metadata
        target = open_store(crawls.settings.images.model_copy(update={"store": f"s3://{BUCKET}/copy"}), tmp_path)
        assert [file.key for file in target.list()] == [file.key for file in store.list()] == sorted(copied)
    for command in ("config show --json", "audit --json", "jobs list --json", "status --json", "storage", "gc --json"):
        crawls.command(*command.split())
    printed = capsys.readouterr()
    said += printed.out + printed.err + caplog.text
    assert "images.secret_key" in said
    stored = dumped(crawls, server)
    assert f"s3://{BUCKET}" not in stored, "where images are is a setting, and each row has the key alone"
    left = everything(crawls.folder / "data").decode("latin-1")
    for secret in KEYS.values():
        places = {"output": said, "database": stored, "files": left}
        assert [place for place, text in places.items() if secret in text] == []
    crawls.verify()


def crawl_with_a_kill(crawls: Crawls, server: ObjectStore, capsys: pytest.CaptureFixture[str]) -> str:
    """Crawl, kill the store in the middle and start it again; returns what was said."""
    with Pages() as site:
        site.answers["/"] = html(*(f"/p{page}" for page in range(PAGES)))
        site.answers |= {f"/i{number}.png": picture(body) for number, body in enumerate(BODIES)}
        for page in range(PAGES):
            site.answers[f"/p{page}"] = with_images(*(f"/i{page * ON_A_PAGE + at}.png" for at in range(ON_A_PAGE)))
        with crawls.start("crawl", site.url(), "--images", "--delay", "0.02") as program:
            wait_for(lambda: crawls.value("SELECT count(*) FROM images") > BATCH, "images")
            server.stop()
            wait_for(lambda: waits(crawls), "the words that it waits")
            wait_for(lambda: "waits: images cannot be stored since" in program.said(), "the words of the crawl itself")
            stored, asked = crawls.rows("SELECT file FROM images ORDER BY id"), site.paths()
            assert len(stored) < len(BODIES)
            # The batch that is being committed, the one that fills, and what was in flight.
            fetched = crawls.value("SELECT count(*) FROM url_frontier WHERE state <> 'waiting'")
            assert len(asked) <= fetched + 2 * BATCH + IN_FLIGHT < 1 + PAGES + len(BODIES)
            done = "SELECT count(*) FROM url_frontier WHERE resource = 'image' AND state = 'done'"
            assert crawls.value(done) == len(stored)
            crawls.verify()
            why = "cannot be used: no connection (images.endpoint)"
            said = shown(crawls, capsys)
            for place, text in said.items():
                assert "images cannot be stored since 20" in text, place
                assert why in text, place
                assert server.endpoint in text, place
            assert (crawls.rows("SELECT file FROM images ORDER BY id"), site.paths()) == (stored, asked), "it goes on"
            assert program.lives
            server.start()
            ended = program.end()
        assert (ended.code, sorted(site.paths())) == (0, sorted(site.answers)), "each URL is asked for once"
    assert f"Images: {len(BODIES)} images are stored" in ended.out
    rows = {Path(file).stem: file for (file,) in crawls.rows("SELECT file FROM images")}
    assert set(rows) == FILES
    store = open_store(crawls.settings.images, crawls.folder)
    assert [file.key for file in store.list()] == sorted(rows.values())
    assert dict(crawls.rows("SELECT state::text, count(*) FROM url_frontier GROUP BY state")) == {
        "done": len(site.answers)
    }
    assert crawls.value("SELECT sum(images_stored) FROM domains") == len(BODIES)
    return "".join([*said.values(), ended.out, ended.err])


def waits(crawls: Crawls) -> bool:
    found = crawls.value(
        "SELECT activity::text LIKE '%%images cannot be stored%%' FROM workers WHERE activity IS NOT NULL"
    )
    return bool(found)


def shown(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What the commands, the API and the dashboard say at this moment."""
    capsys.readouterr()
    said = {}
    for command in ("status", "status --json"):
        assert crawls.command(*command.split()) == 0
        said[command] = capsys.readouterr().out
    name, job = crawls.rows("SELECT name, id FROM crawl_jobs WHERE id > 2")[0]
    worker, domain = crawls.value("SELECT name FROM workers"), crawls.value("SELECT domain FROM domains")
    with serving(crawls.database, settings(crawls.folder / "data")) as api:
        said["/api/workers"] = api.reader.get(f"/api/workers/{worker}").text
        with api.reader.stream("GET", f"/api/jobs/{job}/events") as stream:
            said["live"] = next(line for line in stream.iter_lines() if '"waits":' in line)
        page = PageReader.of(api, Role.USER)
        said |= {path: page.text(path) for path in (f"/jobs/{name}", f"/workers/{worker}", f"/domains/{domain}")}
    return said


def export_with_a_kill(
    crawls: Crawls,
    server: ObjectStore,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    kind: type[ImageStore],
) -> str:
    """Export to `target`, kill the store in the middle, start it again and export again; returns what was said."""
    count, put = 0, kind.put

    def put_and_kill(self: Any, *image: Any) -> str:
        nonlocal count
        count += 1
        if count == ON_A_PAGE:
            server.stop()
        return put(self, *image)

    metadata = Path(target if kind is FolderImageStore else ".") / "images.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(kind, "put", put_and_kill)
        capsys.readouterr()
        assert crawls.command("export", "images", target) == 3
        first = capsys.readouterr()
    copied = ON_A_PAGE - (kind is S3ImageStore)
    assert "cannot be used: no connection (images.endpoint). " in first.err
    assert (
        f"{copied} of {ON_A_PAGE + (kind is FolderImageStore)} images were copied before; the same command copies"
        in first.err
    )
    assert list(metadata.parent.glob("images.parquet*")) == []
    server.start()
    assert crawls.command("export", "images", target, "--json") == 0
    second = capsys.readouterr()
    done = json.loads(second.out)
    assert (done["images"], done["copied"], done["missing"]) == (len(BODIES), len(BODIES) - copied, 0)
    return first.out + first.err + second.out + second.err
