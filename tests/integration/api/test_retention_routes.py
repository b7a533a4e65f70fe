"""Retention and archives over the API: what is kept, a run and a restore in the background."""

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import factories
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.operations.handlers import CHECK_ARCHIVE, RESTORE
from holdfast.operations.service import OperationRunner
from tests.support.aged import JobStore, crawl_site, end_job, let_pass
from tests.support.api import serving, settings
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


def test_a_run_and_a_restore(database: Database, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shop = JobStore(store.connection, store.new_job("shop"))
    crawl_site(database, shop, tmp_path / "data" / "archive", "shop.example", rounds=2)
    end_job(store.connection, shop.job_id)
    let_pass(store.connection, timedelta(days=100))
    ours = settings(tmp_path)
    handlers = factories.operation_handlers(ours, database).by_kind()
    runner = OperationRunner(database, handlers)
    with serving(database, ours) as api:
        ada = api.client(api.key(Role.ADMIN))
        before = ada.get("/api/retention").json()
        assert (before["schedule"], before["archives"], before["log_begins_at"]) == (None, [], None)
        assert {rule["step"]: rule["kept"] for rule in before["rules"]}["pages"] == 90 * 86_400

        asked = ada.post("/api/admin/retention", json={"dry_run": True})
        assert asked.status_code == 202
        assert runner.work()
        done = ada.get(asked.headers["Location"]).json()
        steps = {step["step"]: step["rows"] for step in done["result"]["steps"]}
        assert (steps["pages"], done["result"]["dry_run"]) == (4, True)
        asked = ada.post("/api/admin/retention")
        assert runner.work()
        (step,) = (
            one for one in ada.get(asked.headers["Location"]).json()["result"]["steps"] if one["step"] == "pages"
        )
        assert (step["rows"], step["archives"], step["problem"]) == (4, 1, None)
        assert store.value("SELECT count(*) FROM crawled_pages") == 0

        first = ada.get("/api/archives", params={"kind": "pages", "limit": 1}).json()
        (pages,) = first["items"]
        assert (pages["job"], pages["state"]) == ("shop", "complete")
        files = ada.get(f"/api/archives/{pages['id']}").json()["files"]
        assert {file["table_name"]: file["rows"] for file in files}["crawled_pages"] == 4
        assert ada.get("/api/archives/999").status_code == 404
        asked = ada.post(f"/api/admin/archives/{pages['id']}/restore")
        assert asked.status_code == 202
        assert runner.work()
        (restored,) = ada.get(asked.headers["Location"]).json()["result"]["archives"]
        assert (restored["id"], restored["into"]) == (pages["id"], "tables")
        assert store.value("SELECT count(*) FROM crawled_pages") == 4
        assert ada.get("/api/archives", params={"state": "restored"}).json()["items"][0]["id"] == pages["id"]
    # Whoever runs it again after a kill changes nothing more, and says how far it is.
    seen: list[object] = []
    arguments = {"ids": [pages["id"]], "keep": 86_400.0}
    again = handlers[RESTORE](arguments, "test", seen.append)["archives"]
    assert isinstance(again, list)
    assert [one["restored"] for one in again] == [0]
    assert seen == [{"archives": 0, "of": 1, "rows": 0}, {"archives": 1, "of": 1, "rows": 0}]
    seen.clear()
    checked = handlers[CHECK_ARCHIVE]({"archive": pages["id"]}, "test", seen.append)
    assert checked == {"archive": pages["id"], "files": len(files)}
    assert seen == [{"files": number, "of": len(files)} for number in range(1, len(files) + 1)]
    rest = handlers[RESTORE]({"job": "shop"}, "test", seen.append)["archives"]
    assert isinstance(rest, list)
    assert rest
    assert pages["id"] not in {one["id"] for one in rest}, "those that are restored are done"
    assert handlers[RESTORE]({"job": "shop"}, "test", seen.append)["archives"] == []
    assert_invariants(store.connection)
