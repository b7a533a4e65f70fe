"""Alerts on pages."""

import psycopg
import pytest

from tests.support.browsing import Browser

FIRING = "worker_silent"


@pytest.fixture
def alert(connection: psycopg.Connection) -> int:
    """An alert that fires; another one was resolved."""
    details = '{"host": "<b>box</b>", "domains": 3, "last_heard_of": "2031-12-24T18:00:00+00:00"}'
    connection.execute(
        "INSERT INTO alerts (kind, subject, value, details, resolved_at)"
        """ VALUES ('few_proxies', 'shop.example', 1, '{"proxies": 4}', now())"""
    )
    row = connection.execute(
        "INSERT INTO alerts (kind, subject, value, details) VALUES (%s, 'w1 <i>', 90, %s) RETURNING id",
        (FIRING, details),
    ).fetchone()
    assert row
    return int(row[0])


def test_without_alerts(rita: Browser) -> None:
    words = rita.get("/alerts").words
    assert "No alert is firing." in words
    assert "None in the last 90 days." in words


def test_firing_and_past(rita: Browser, alert: int) -> None:
    assert alert
    page = rita.get("/alerts")
    assert "1 alert firing" in page.words
    assert "worker silent" in page.words
    assert "<i>" not in page.text
    assert "<b>box" not in page.text
    assert "/proxies/domains/shop.example" in page.text
    assert "<form" not in rita.client.get("/regions/alerts").json()["alerts-firing"]
    assert "cursor" in rita.get("/alerts", cursor="odd").notice


def test_it_is_acknowledged(ada: Browser, rita: Browser, connection: psycopg.Connection, alert: int) -> None:
    assert "3 domains" in rita.get("/alerts").words, "in the words of its kind"
    assert "/alerts/acknowledge" not in rita.get("/alerts").text
    assert "<button" not in rita.client.get("/regions/alerts").json()["alerts-firing"]
    assert rita.forge("/alerts/acknowledge", id=alert).status == 403
    region = ada.client.get("/regions/alerts").json()["alerts-firing"]
    assert f'form="acknowledge" name="id" value="{alert}"' in region
    assert "<form" not in region
    page = ada.send("/alerts", "/alerts/acknowledge", id=alert)
    assert page.notice == f"Alert {alert} is acknowledged by ada; it fires until its cause is gone."
    assert "acknowledged worker silent" in page.words
    stored = connection.execute("SELECT acknowledged_by, resolved_at FROM alerts WHERE id = %s", (alert,)).fetchone()
    assert stored == ("ada", None)
    assert "There is no alert 815" in ada.send("/alerts", "/alerts/acknowledge", id=815).notice
    assert "is resolved" in ada.send("/alerts", "/alerts/acknowledge", id=alert - 1).notice
    assert "Choose an alert." in ada.send("/alerts", "/alerts/acknowledge").notice
