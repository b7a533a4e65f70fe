"""A folder of backups on a small disk that becomes full, read-only or is away while a crawl runs.

The crawl goes on, the follower says why it does not, the disk of the database does not fill, and after the outage any second of it can
be restored.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.alerts.queries import list_alerts
from holdfast.alerts.rules import Rules
from holdfast.backups import queries
from holdfast.backups.records import Following
from holdfast.backups.repository import LATEST
from holdfast.backups.service import BackupService
from holdfast.control import health
from holdfast.errors import BackupsUnavailable, HoldfastError
from holdfast.model.auth import Role
from tests.support import disks
from tests.support.api import Api, serving, settings
from tests.support.backups import Bundled, bundled
from tests.support.crawls import wait_for
from tests.support.disks import SmallDisk
from tests.support.page_reader import PageReader
from tests.support.pages import Pages, html
from tests.support.servers import data_in_memory

pytestmark = pytest.mark.skipif(disks.missing() is not None, reason=f"{disks.missing()}")

PAGES = 600
MEGABYTES = 300
LONGEST_RETURN = 30.0
"""Seconds after which the log is copied again at the latest when the disk is back."""
WAL_LIMIT = 64_000_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with disks.small_disk(tmp_path / "backups", MEGABYTES) as made:
        yield made


@pytest.fixture
def made(disk: SmallDisk) -> Iterator[Bundled]:
    with data_in_memory() as data:
        yield bundled(data, backup={"daily": True, "folder": disk.folder, "wal_limit": WAL_LIMIT})


def following(made: Bundled) -> Following:
    found = made.service.report().following
    assert found is not None
    return found


def goes_beyond(made: Bundled, at: datetime) -> bool:
    """Whether the newest log has that second."""
    logs = made.repository.logs()
    follow = made.repository.follow(logs[-1]) if logs else None
    return follow is not None and follow.until > at


def second_of(made: Bundled, name: str) -> datetime:
    """Commit a domain of this name; returns a moment after it."""
    with made.store() as store:
        store.seed(f"{name}.example")
    at: datetime = made.value("SELECT clock_timestamp()")
    return at


def has(made: Bundled, at: datetime, name: str) -> bool:
    """Whether the store of that second, restored from the newest backup before it, is whole and has the domain."""
    plan = made.restorer.plan(LATEST, at)
    with made.restorer.scratch(plan, made.data) as (_, recovered), recovered.database.session() as connection:
        row = connection.execute("SELECT count(*) FROM domains WHERE domain = %s", (f"{name}.example",)).fetchone()
        archive = made.repository.folder / "archive"
        faults = [one for one in made.restorer.verify(recovered, archive, made.repository.image_store()) if one.faults]
    assert faults == []
    return row == (1,)


def alerts_of_backups(made: Bundled) -> list[str]:
    """The subjects of alerts that fire now, after a look of the rules."""
    with made.connection() as connection:
        connection.execute("UPDATE duties SET done_at = '-infinity'")
        Rules().look(connection)
        return [one.subject for one in list_alerts(connection, active=True) if one.kind == "backup_failed"]


def said(made: Bundled, api: Api, page: PageReader) -> dict[str, Any]:
    """What commands, the health check and the dashboard say of backups."""
    listed = made.run("backup", "list", "--json")
    ready = api.anybody.get("/health/ready")
    assert ready.status_code == 200
    return {
        "status": " ".join(made.run("status").out.split()),
        "list": json.loads(listed.out)["following"]["problem"],
        "storage": page.text("/storage"),
        "ready": {part["name"]: part for part in ready.json()["parts"]}["backups"],
        "text": ready.text,
    }


def test_a_folder_of_backups_that_is_full_read_only_or_away(
    made: Bundled, disk: SmallDisk, figure: Callable[[str], None]
) -> None:
    outages: list[tuple[str, str, Callable[[], object], Callable[[], None]]] = [
        ("full", "No space left on device", disk.fill, disk.make_room),
        ("readonly", "Read-only file system", disk.make_read_only, disk.make_writable),
        ("away", "mount its disk", disk.take_away, disk.bring_back),
    ]
    moments = {}
    with (
        site() as pages,
        serving(made.database, settings(made.data)) as api,
        made.start("background") as background,
        made.start("crawl", pages.url(), "--delay", "0.2", "--workers", "1") as crawl,
    ):
        page = PageReader.of(api, Role.USER)
        wait_for(made.repository.backups, "the first backup")
        wait_for(lambda: made.service.report().following, "the record of the log")
        for name, reason, begin, end in outages:
            begin()
            wait_for(lambda: following(made).problem, f"the words for {name}")
            moments[name] = second_of(made, name)
            asked = len(pages.paths())
            told = said(made, api, page)
            for where in ("status", "list", "storage"):
                assert reason in told[where], (name, where, told[where])
            assert "backup.wal_limit" in told["list"]
            assert following(made).restorable_since is not None, "what is copied can still be restored"
            assert told["ready"] == {
                "name": "backups",
                "works": False,
                "cause": "The log between backups is not copied, or was given up.",
            }
            assert str(disk.folder) not in told["text"], "it is public"
            fails_and_leaves_nothing(made, disk, name)
            with made.connection() as connection:
                connection.execute("UPDATE backup_following SET problem_since = problem_since - interval '2 minutes'")
            assert sorted(alerts_of_backups(made)) == ["backup", "log"]
            assert len(pages.paths()) > asked, "the crawl goes on"
            begun = time.monotonic()
            end()
            wait_for(partial(goes_beyond, made, moments[name]), f"the log after {name}", LONGEST_RETURN)
            figure(f"folder of backups {name}: the log goes on after {time.monotonic() - begun:.1f} s")
            wait_for(lambda: following(made).problem is None, "the end of the problem")
            made.service.make_daily()
            assert sorted(alerts_of_backups(made)) == ["backup", "log"], "it may come back"
            with made.connection() as connection:
                connection.execute("UPDATE alerts SET last_seen_at = now() - interval '31 seconds'")
            assert alerts_of_backups(made) == []
            assert not list(disk.folder.glob("*.new"))
        assert background.lives
        crawl.send(signal.SIGINT)
        assert crawl.end().code == 130
        background.kill()
    assert len(made.repository.logs()) == 1, "no log was given up"
    assert made.violations() == {}
    for name, at in moments.items():
        assert has(made, at, name), name


def fails_and_leaves_nothing(made: Bundled, disk: SmallDisk, name: str) -> None:
    """A scheduled backup fails, is listed with its reason, and leaves no half of it, neither there nor under a disk that is away."""
    known = {one.name for one in made.repository.backups()}
    with pytest.raises(HoldfastError):
        made.service.make_daily()
    assert {one.name for one in made.repository.backups()} == known
    assert not list(disk.folder.glob("*.new"))
    newest = made.service.report().backups[0]
    assert (newest.state, bool(newest.error)) == ("failed", True)
    if name == "away":
        assert list(disk.folder.iterdir()) == []
        with pytest.raises(BackupsUnavailable, match="mount its disk"):
            made.service.make(actor="test")


def test_a_log_that_cannot_be_copied_is_given_up_at_its_limit(
    made: Bundled, disk: SmallDisk, figure: Callable[[str], None]
) -> None:
    """The server's log grows to its limit and no further; then another chain begins by itself, and the first one can be restored."""
    with made.start("backup", "follow") as program:
        wait_for(lambda: "Every second from" in program.said(), "the first backup")
        before = second_of(made, "before")
        wait_for(partial(goes_beyond, made, before), "that second")
        (first,) = made.repository.logs()
        disk.fill()
        largest = 0
        with made.connection(admin=True) as connection:
            for _ in range(20):
                connection.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 16000000))")
                written = made.value("SELECT clock_timestamp()")
                slot = queries.slot(connection)
                largest = max(largest, 0 if slot is None or slot.lost else slot.behind)
                wait_for(partial(looked, made, written), "a look of the follower")
        figure(
            f"320 MB of log written, a limit of {WAL_LIMIT >> 20} MB: {largest >> 20} MB are kept for backups at most"
        )
        assert WAL_LIMIT / 2 < largest < WAL_LIMIT + 3 * 2**24, "the limit, and what is written between two looks"
        given_up = str(following(made).given_up)
        assert "backup.wal_limit" in given_up
        assert f"Seconds up to {before:%Y-%m-%d %H:%M}" in given_up
        assert "given up" in made.run("status").out
        disk.make_room()
        begun = time.monotonic()
        wait_for(lambda: program.said().count("Every second from") == 2, "another log")
        figure(f"log that was given up: another backup and log {time.monotonic() - begun:.1f} s after there is room")
        after = second_of(made, "after")
        wait_for(partial(goes_beyond, made, after), "that second")
        wait_for(lambda: following(made).given_up is None, "the end of the words")
        program.kill()
    assert {one.name: bool(one.given_up) for one in made.repository.logs()}[first.name]
    assert len(made.repository.logs()) == 2
    assert has(made, before, "before")
    assert has(made, after, "after")


def looked(made: Bundled, at: datetime) -> bool:
    """Whether the follower has failed after that moment, or has given up."""
    found = made.value("SELECT given_up IS NOT NULL OR updated_at > %s FROM backup_following", at)
    return bool(found)


def test_a_folder_that_is_gone_for_good_begins_anew(made: Bundled, disk: SmallDisk) -> None:
    old = made.service.make(actor="test").name
    disk.take_away()
    with pytest.raises(BackupsUnavailable, match="`holdfast backup --anew` begins anew"):
        made.service.make_daily()
    answer = made.run("backup", "--anew", "--json")
    assert answer.code == 0, answer.err
    states = {one.name: one.state for one in made.service.report().backups if one.state != "failed"}
    assert states == {json.loads(answer.out)["name"]: "complete"}, f"{old} is forgotten"
    disk.bring_back()


def test_a_disk_too_small_for_a_backup_is_named_with_the_setting(made: Bundled, disk: SmallDisk) -> None:
    disk.fill(leave=20_000_000)
    early = made.run("backup")
    assert early.code == 5
    assert f"The disk of {disk.folder} has" in early.err
    assert "free, and a full backup takes about" in early.err
    assert early.err.rstrip().endswith("free some space, or set backup.folder to a folder on another disk.")
    with pytest.MonkeyPatch.context() as patch:  # what is written meanwhile may take the room
        patch.setattr(BackupService, "_needed", lambda *_: 0)
        with pytest.raises(BackupsUnavailable, match=r"No space left on device, and .* MB are free without it") as late:
            made.service.make(actor="test")
    assert str(late.value).endswith("Free some space, or set backup.folder to a folder on another disk.")
    assert not list(disk.folder.glob("*.new"))


def site() -> Pages:
    pages = Pages()
    pages.answers["/"] = html(*(f"/p{page}" for page in range(PAGES)))
    pages.answers |= {f"/p{page}": html(text=f"page {page}") for page in range(PAGES)}
    return pages


def test_the_health_check_knows_a_backup_that_failed(made: Bundled) -> None:
    with made.connection() as connection:
        connection.execute("INSERT INTO backups (kind, place, generation, state) VALUES ('full', '/x', 1, 'failed')")
    (part,) = [one for one in health.look(made.database) if one.name == "backups"]
    assert (part.works, part.cause) == (False, "The last backup failed, or makes no progress.")
