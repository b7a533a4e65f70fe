"""Alerts in words: each kind says its cause with the number, and what to do."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.alerts.records import Alert, Kind
from holdfast.alerts.sentences import describe, format_value

NOW = datetime(2031, 12, 24, tzinfo=UTC)


def alert(kind: str, value: float, subject: str = "", /, **details: Any) -> Alert:
    return Alert(1, kind, subject, "firing", value, NOW, NOW, None, details)


WORDS = {
    Kind.ERROR_RATE: (
        alert(
            Kind.ERROR_RATE,
            0.254,
            requests=1200,
            errors=305,
            minutes=5,
            causes=[{"cause": "server_error", "requests": 300}],
        ),
        "25% of the requests (305 of 1,200) of the last 5 minutes were errors: server error 300.",
        "holdfast explain",
    ),
    Kind.BACKLOG: (
        alert(Kind.BACKLOG, 0.31, "", **{"from": 1000, "to": 2950, "minutes": 5}),
        "The frontier grows by 31% a minute, from 1,000 to 2,950 URLs in 5 minutes: more URLs are found than crawled.",
        "max_pages=N",
    ),
    Kind.WORKER_SILENT: (
        alert(Kind.WORKER_SILENT, 190.4, "crawler-7", host="box", domains=1),
        "Worker crawler-7 on box sent no heartbeat for 3 min 10 s and holds 1 domain.",
        "--worker-id crawler-7",
    ),
    Kind.FEW_PROXIES: (
        alert(Kind.FEW_PROXIES, 1, "shop.example", proxies=4),
        "Only 1 of 4 proxies are active in the pool of shop.example.",
        "holdfast proxies assign shop.example",
    ),
    Kind.BACKUP_FAILED: (
        alert(Kind.BACKUP_FAILED, 75, "log", why="The log cannot be copied: no space."),
        "The log between backups is not kept: The log cannot be copied: no space.",
        "backup.folder",
    ),
    Kind.UPLOADS_FAIL: (
        alert(Kind.UPLOADS_FAIL, 400, "m1", why="The archive cannot be reached: no connection.", bytes=40_960),
        (
            "Machine m1 has uploaded nothing of its archive for 6 min 40 s: The archive cannot be reached: no connection. "
            "41.0 kB of its archive are on its own disk only."
        ),
        "archive.max_waiting",
    ),
    Kind.PROXIES_FAIL: (
        alert(Kind.PROXIES_FAIL, 0.4, "shop.example", requests=100, refused=30, failed=10),
        "40% of the requests through the proxies of shop.example fail: of 100 requests the site refused 30, and 10 failed in the proxy.",
        "holdfast proxies disable",
    ),
    Kind.DISK_LOW: (
        alert(
            Kind.DISK_LOW,
            1.5e9,
            "box (archive)",
            text="the disk of archive (/srv/a) has 1.5 GB free of 20.0 GB, less than 2.0 GB (disk.warn_free)",
        ),
        (
            "The disk of archive (/srv/a) has 1.5 GB free of 20.0 GB, less than 2.0 GB (disk.warn_free). "
            "When it is full, its workers stop fetching."
        ),
        "holdfast storage",
    ),
    Kind.DISK_FULL: (
        alert(Kind.DISK_FULL, 9, "box (logs)", text="fetching is paused since 2031: the disk of logs has 9 B free"),
        "On box fetching is paused since 2031: the disk of logs has 9 B free.",
        "disk.min_free",
    ),
    Kind.ARCHIVE_UNAVAILABLE: (
        alert(
            Kind.ARCHIVE_UNAVAILABLE, 60, "box", text="the archive cannot be written since 2031: Read-only file system"
        ),
        "On box the archive cannot be written since 2031: Read-only file system; its workers fetch nothing.",
        "permissions",
    ),
    Kind.IMAGES_UNAVAILABLE: (
        alert(Kind.IMAGES_UNAVAILABLE, 60, "", text="images cannot be stored since 2031: no connection", workers=3),
        "Images cannot be stored since 2031: no connection; 3 workers fetch nothing.",
        "holdfast config show",
    ),
    Kind.DATABASE_SLOW: (
        alert(Kind.DATABASE_SLOW, 4.25, "", workers=1),
        "Commits are slow: half of those of the last minute took 4.2 s or longer at 1 worker.",
        "database server",
    ),
    Kind.DATABASE_UNAVAILABLE: (
        alert(
            Kind.DATABASE_UNAVAILABLE, 43, "", text="it did not answer for 43 s since 14:03:10 UTC (connection refused)"
        ),
        "The database refused or did not answer for 43s: it did not answer for 43 s since 14:03:10 UTC (connection refused).",
        "Nothing is lost",
    ),
    Kind.BACKGROUND_SILENT: (
        alert(Kind.BACKGROUND_SILENT, 180, "", due={"tasks": 3, "jobs": 1, "parses": 2}),
        "No background process has run for 3m, and work is due: 3 tasks, 1 job, 2 pages to parse.",
        "holdfast background",
    ),
}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_its_words(kind: Kind) -> None:
    given, cause, step = WORDS[kind]
    text = describe(given)
    assert text.cause == cause
    assert step in text.next_step
    assert text.next_step.endswith(".")


@pytest.mark.parametrize("kind", Kind)
def test_details_may_be_missing(kind: Kind) -> None:
    text = describe(alert(kind, 2, "somewhere"))
    assert text.cause.endswith(".")
    assert "None" not in text.cause


def test_a_kind_of_a_newer_server_is_named() -> None:
    text = describe(alert("moon_full", 0.98, "box"))
    assert text.cause == "An alert of the kind moon_full about box with the value 0.98."


VALUES = {
    Kind.ERROR_RATE: (0.254, "25.4%"),
    Kind.BACKLOG: (12.5, "1,250.0%"),
    Kind.WORKER_SILENT: (190.4, "3 min 10 s"),
    Kind.FEW_PROXIES: (1.0, "1"),
    Kind.PROXIES_FAIL: (0.4, "40.0%"),
    Kind.DISK_LOW: (7.41e10, "74.1 GB"),
    Kind.DISK_FULL: (9.0, "9 B"),
    Kind.ARCHIVE_UNAVAILABLE: (60.0, "1 min"),
    Kind.IMAGES_UNAVAILABLE: (3_700.0, "1 h 1 min"),
    Kind.DATABASE_SLOW: (4.25, "4.2 s"),
    Kind.DATABASE_UNAVAILABLE: (43.2, "43 s"),
    Kind.BACKGROUND_SILENT: (180.0, "3 min"),
    Kind.BACKUP_FAILED: (90_000.0, "1 d 1 h"),
    Kind.UPLOADS_FAIL: (400.0, "6 min 40 s"),
}


@pytest.mark.parametrize("kind", Kind)
def test_every_value_has_its_unit(kind: Kind) -> None:
    value, text = VALUES[kind]
    assert format_value(alert(kind, value)) == text


def test_the_value_of_an_unknown_kind_is_a_number() -> None:
    assert format_value(alert("of_tomorrow", 1234.5)) == "1.23e+03"
