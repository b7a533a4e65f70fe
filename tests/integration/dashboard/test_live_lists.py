"""Lists that move while they are shown: their regions are what the page shows, show what changes, and have no forms."""

import html
import re

import pytest

from holdfast.db.connection import Database
from holdfast.tasks.records import TaskOptions
from tests.support.browsing import Browser
from tests.support.factories import Store
from tests.support.furnished import furnish

LISTS = {
    "/tasks": (
        "tasks-list",
        "UPDATE crawl_tasks SET error_message = 'moved' WHERE id = (SELECT max(id) FROM crawl_tasks)",
    ),
    "/tasks?order=oldest&priority=5": ("tasks-list", "UPDATE crawl_tasks SET error_message = 'moved'"),
    "/webhooks": (
        "webhooks-list",
        "INSERT INTO webhook_deliveries (job_id, event, url, body) VALUES (1, 'moved', 'https://hooks.example', '{}')",
    ),
    "/operations": ("operations-list", "UPDATE operations SET asked_by = 'moved'"),
    "/storage": ("storage-operations", "UPDATE operations SET asked_by = 'moved'"),
    "/proxies": ("proxies-list", "UPDATE proxies SET provider = 'moved'"),
    "/alerts": (
        "alerts-past",
        "INSERT INTO alerts (kind, value, details, resolved_at, subject) VALUES ('worker_silent', 0, '{}', now(), 'moved')",
    ),
    "/workers/runs": ("runs-list", "UPDATE crawl_runs SET error_message = 'moved'"),
    "/workers/claims": (
        "claims-list",
        "UPDATE domains SET claimed_by = 'moved', claim_expires_at = now() WHERE domain = 'a.example'",
    ),
    "/jobs/default/domains": ("job-domains", "UPDATE job_domains SET errors = 54321"),
    "/jobs/default/urls?state=denied": ("job-urls", "UPDATE url_frontier SET reason = 'moved' WHERE state = 'denied'"),
}
"""Their pages, the region of the list, and a change that shows one of `MOVED` in it."""
MOVED = ("moved", "54,321")


def test_lists_move_without_forms(ada: Browser, rita: Browser, database: Database, store: Store) -> None:
    furnish(database)
    wrong: list[str] = []
    addresses: dict[str, str] = {}
    for path, (region, _) in LISTS.items():
        for viewer in (ada, rita):
            page = viewer.get(path)
            live = re.search(r'data-live="/live/([^"]+)"', page.text)
            assert live, path
            addresses[path] = f"/regions/{html.unescape(live[1])}"
            before = viewer.client.get(addresses[path]).json()
            if "<form" in str(before):
                wrong.append(f"{path}: a form")
            if f'<div id="{region}">' not in page.text or any(word in before[region] for word in MOVED):
                wrong.append(f"{path}: {region} is not on the page, or did not change")
    for path, (region, change) in LISTS.items():
        store.connection.execute(change.encode())
        after = rita.client.get(addresses[path]).json()[region]
        if not any(word in after for word in MOVED):
            wrong.append(f"{path}: {region} does not move")
    assert wrong == []


@pytest.mark.parametrize("path", ["/workers/runs", "/tasks"])
def test_only_the_first_page_of_a_list_moves(ada: Browser, store: Store, path: str) -> None:
    store.connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'host', 1)")
    store.connection.execute(
        "INSERT INTO crawl_runs (worker, status, completed_at) SELECT 'w1', 'completed', now() FROM generate_series(1, 60)"
    )
    for number in range(60 if path == "/tasks" else 0):
        ada.api.services.tasks.add(f"https://a.example/{number}", TaskOptions(), actor="test")
    first = ada.get(path)
    assert first.next is not None
    assert "data-live" in first.text
    rest = ada.get(first.next)
    assert "data-live" not in rest.text
    assert "First page" in rest.words
    assert rest.next is None


def test_a_page_that_asks_instead_of_streaming_does_not_count_for_the_rate_limits(rita: Browser) -> None:
    counted = rita.client.get("/alerts")
    answer = rita.client.get("/regions/alerts")
    assert answer.status_code == 200
    assert "RateLimit" in counted.headers
    assert "RateLimit" not in answer.headers
    assert "RateLimit" in rita.api.client().get("/regions/alerts").headers, "without a session it counts"
