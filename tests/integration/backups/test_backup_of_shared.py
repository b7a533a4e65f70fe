"""Dumps of a shared server: the folder of this machine, which other machines may call the same."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast import factories
from holdfast.backups.service import BackupService
from holdfast.db.connection import Database
from holdfast.db.embedded import binaries
from holdfast.errors import BackupsUnavailable, NotFound, StoreError
from holdfast.settings import Settings
from tests.support.backups import Bundled, bundled
from tests.support.servers import data_in_memory
from tests.support.shared_server import debian


@pytest.fixture(scope="module")
def server() -> Iterator[Bundled]:
    with data_in_memory() as data:
        yield bundled(data)


def machine(server: Bundled, data: Path, folder: Path) -> BackupService:
    """The backups of a machine that has the store on a server elsewhere."""
    url = server.server.url()
    settings = Settings.model_validate({"data": data, "database_url": url, "backup": {"folder": folder}})
    return factories.backup_service(settings, Database(url))


def states(service: BackupService) -> dict[str, str]:
    return {one.name: one.state for one in service.report().backups if one.state != "failed"}


def test_a_dump_is_not_written_where_a_disk_is_not_mounted(server: Bundled, tmp_path: Path) -> None:
    folder, shelf = tmp_path / "backups", tmp_path / "shelf"
    here, there = (machine(server, tmp_path / name, folder) for name in ("here", "there"))
    first = here.make(actor="test")
    assert first.kind == "dump"
    folder.rename(shelf)  # the disk is taken away: an empty folder is left
    folder.mkdir(mode=0o700)
    with pytest.raises(BackupsUnavailable, match="`holdfast backup --anew` begins anew"):
        here.make_daily()
    assert list(folder.iterdir()) == []
    failed = here.report().backups[0]
    assert (failed.state, "mount its disk" in str(failed.error)) == ("failed", True)
    time.sleep(1.1)  # a name is a second, and the other machine would not have one of the same
    second = there.make(actor="test")  # of another machine, whose folder has the same name: nothing was there
    with pytest.raises(BackupsUnavailable):
        here.make(actor="test")  # what another machine made is not ours
    anew = here.make(anew=True, actor="test")
    assert states(here) == {anew.name: "complete", second.name: "complete"}, "that of the other machine is kept"
    assert here.make(actor="test").state == "complete"


def test_a_folder_whose_dumps_were_deleted_is_no_folder_that_is_away(server: Bundled, tmp_path: Path) -> None:
    here = machine(server, tmp_path / "data", tmp_path / "backups")
    made = here.make(actor="test")
    known = json.loads((tmp_path / "data" / "backups.json").read_text())
    assert known == {str(tmp_path / "backups"): [made.name]}
    here.delete(made.name, actor="test")
    with pytest.raises(NotFound):
        here.repository().find(made.name)
    assert here.make(actor="test").state == "complete"


def test_a_server_that_is_newer_than_pg_dump(server: Bundled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with what to do, and leaves nothing; a pg_dump of the server's version in PATH is found."""
    older = debian(15)
    if older is None:
        pytest.skip("Debian's package postgresql-15 is not installed")
    newer = binaries.wheel().bin
    here = machine(server, tmp_path / "data", tmp_path / "backups")
    monkeypatch.setattr(binaries, "wheel", lambda: SimpleNamespace(bin=older))
    monkeypatch.setenv("PATH", str(older))
    with pytest.raises(StoreError) as refused:
        here.make(actor="test")
    sentence = str(refused.value)
    assert "server version mismatch" in sentence
    assert sentence.endswith("install the pg_dump of the server's version.")
    monkeypatch.setattr(binaries, "wheel", lambda: SimpleNamespace(bin=newer))
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.backups.service.DUMP", "no/such/folder")
        with pytest.raises(StoreError, match=r"pg_dump failed: .*No such file") as other:
            here.make(actor="test")
    assert "refuses servers" not in str(other.value)
    monkeypatch.setattr(binaries, "wheel", lambda: SimpleNamespace(bin=older))
    failed = here.report().backups[0]
    assert (failed.state, failed.error) == ("failed", str(other.value))
    assert list((tmp_path / "backups").iterdir()) == []
    monkeypatch.setenv("PATH", str(newer))
    assert here.make(actor="test").state == "complete"
