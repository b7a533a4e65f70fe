"""The API on a store that is being moved, or was: every request gets a sentence, and it is not ready any more."""

import psycopg

from holdfast.db import store_move
from tests.support.api import Api
from tests.support.crawls import wait_for


def test_a_moved_store_is_not_written(api: Api, connection: psycopg.Connection) -> None:
    job = {"name": "shop", "urls": ["https://a.example/"]}
    admin = api.admin
    assert admin.get("/api/jobs").status_code == 200
    assert api.anybody.get("/health/ready").status_code == 200
    store_move.begin(connection, destination="db.internal:5432/holdfast", advice="set HOLDFAST_DATABASE_URL to it")
    store_move.close(connection)
    for mark in (lambda _: None, store_move.mark_moved):
        mark(connection)
        for refused in (admin.post("/api/jobs", json=job), admin.get("/api/jobs")):
            problem = refused.json()
            assert (refused.status_code, problem["type"]) == (503, "urn:holdfast:problem:moved"), problem
            assert "The store was moved to another database, or is being moved" in problem["detail"]
            assert "db.internal" not in refused.text, "addresses of the inside are for the log"
    wait_for(lambda: api.anybody.get("/health/ready").status_code == 503, "the probe to say so")
    assert "was moved to another database" in api.anybody.get("/health/ready").text
    store_move.reopen(connection)
    assert admin.post("/api/jobs", json=job).status_code == 201
