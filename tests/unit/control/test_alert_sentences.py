"""Alerts in words: each kind says its cause with the number, and what to do."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.alerts.records import Alert, Kind
from holdfast.alerts.sentences import describe

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
        "Worker crawler-7 on box sent no heartbeat for 3m10s and holds 1 domain.",
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
    Kind.PROXIES_FAIL: (
        alert(Kind.PROXIES_FAIL, 0.4, "shop.example", requests=100, refused=30, failed=10),
        "40% of the requests through the proxies of shop.example fail: of 100 requests the site refused 30, and 10 failed in the proxy.",
        "holdfast proxies disable",
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
    text = describe(alert("disk_full", 0.98, "box"))
    assert text.cause == "An alert of the kind disk_full about box with the value 0.98."
