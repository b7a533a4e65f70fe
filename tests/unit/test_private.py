"""The data folder: closed to other users, another user's refused, links in it not followed."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import factories, private
from holdfast.archive.writer import ArchiveWriter
from holdfast.control import secret_box as key_files
from holdfast.crawler.supervisor import Supervisor
from holdfast.errors import UsageError
from holdfast.settings import Settings
from holdfast.settings.crawling import Archive
from holdfast.telemetry import log
from holdfast.telemetry.log import open_log

STRANGER = 65_534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A path for a data folder, under the usual umask."""
    before = os.umask(0o022)
    yield tmp_path / "data"
    os.umask(before)
    while log._installed:
        handler = log._installed.pop()
        logging.getLogger().removeHandler(handler)
        handler.close()


def segments(data: Path) -> ArchiveWriter:
    return ArchiveWriter(data / "archive", "w1", Archive(), software="test")


def test_archive_and_logs_are_made_private(data: Path) -> None:
    segments(data)
    log.set_up(data / "logs" / "crawl.log")
    supervisor = Supervisor(lambda _: ["true"], 1, data / "logs")
    supervisor.start()
    supervisor.kill()
    for folder in (data, data / "archive", data / "archive" / "w1", data / "logs"):
        assert mode(folder) == 0o700, folder
    assert {mode(file) for file in (data / "logs").iterdir()} == {0o600}


def test_what_an_earlier_version_left_open_is_closed_with_one_line(data: Path) -> None:
    for folder in (data, data / "archive", data / "logs"):
        folder.mkdir(mode=0o755)
    (data / "logs" / "crawl.log").touch(0o644)
    said: list[str] = []
    private.close(data, said.append)
    assert said == [
        f"Closed {data} and {data}/archive and {data}/logs to other users, who could look into it before.",
    ]
    assert {mode(folder) for folder in (data, data / "archive", data / "logs")} == {0o700}
    os.close(open_log(data / "logs" / "crawl.log"))
    assert mode(data / "logs" / "crawl.log") == 0o600
    private.close(data, said.append)
    assert len(said) == 1
    data.chmod(0o755)
    settings = Settings.model_validate({"data": data, "database_url": "postgresql://elsewhere.example/x"})
    factories.database(settings, said.append)
    assert (mode(data), len(said)) == (0o700, 2), "with another server, too"


@pytest.mark.parametrize("place", ["archive", "archive/w1", "logs", "logs/worker-1.log"])
def test_links_in_the_data_folder_are_not_followed(data: Path, tmp_path: Path, place: str) -> None:
    target = tmp_path / "elsewhere"
    (data / place).parent.mkdir(parents=True, mode=0o700)
    if place.endswith(".log"):
        target.write_text("theirs")
    else:
        target.mkdir()
    (data / place).symlink_to(target)
    with pytest.raises(UsageError, match="is a symbolic link"):
        segments(data) if place.startswith("archive") else Supervisor(lambda _: ["true"], 1, data / "logs").start()
    assert target.read_text() == "theirs" if target.is_file() else not list(target.iterdir())


def test_an_open_mark_that_is_a_link_is_left_alone(data: Path, tmp_path: Path) -> None:
    (data / "archive" / "w1").mkdir(parents=True)
    target = tmp_path / "precious"
    target.write_bytes(b"not a record")
    (data / "archive" / "w1" / "x.warc.gz").symlink_to(target)
    (data / "archive" / "w1" / "x.warc.gz.open").write_bytes(b"%020d\n" % 0)
    assert not segments(data).recovered
    assert target.read_bytes() == b"not a record"


@root_only
def test_another_users_data_folder_is_refused_for_root_too(data: Path) -> None:
    data.mkdir(mode=0o700)
    os.chown(data, STRANGER, STRANGER)
    settings = Settings.model_validate({"data": data})
    for use in (
        lambda: factories.archive_folder(settings),
        lambda: factories.log_folder(settings),
        lambda: factories.database(settings, print),
        lambda: key_files.make(data / "secret.key", "x"),
        lambda: private.make_folder(data),
    ):
        with pytest.raises(UsageError, match=r"belongs to user nobody \(mode 0700\): run Holdfast as that user"):
            use()
    assert not list(data.iterdir())


@root_only
def test_a_data_folder_behind_another_users_link_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    data.symlink_to(tmp_path / "ours")
    private.check(data)
    os.chown(data, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(UsageError, match="data belongs to user nobody"):
        private.check(data)


def test_a_folder_that_is_not_for_holdfast_alone_is_not_closed(data: Path) -> None:
    data.mkdir()
    (data / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"is open to other users \(mode 0755\) and holds 'thesis.txt'"):
        private.close(data, print)
    data.chmod(0o777)
    with pytest.raises(UsageError, match="can be written by every user"):
        private.close(data, print)
    assert mode(data) == 0o777
    data.chmod(0o700)
    private.close(data, print)


def test_closing_a_data_folder_does_not_look_at_its_backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be on a network folder whose server is gone, where each look waits; making a backup closes it."""
    data, looked = tmp_path / "data", []
    private.make_folder(data / "archive")
    (data / "backups").mkdir(mode=0o755)
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        looked.append(path.name)
        return real(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    private.close(data, lambda _: None)
    assert "archive" in looked
    assert "backups" not in looked
    private.make_folder(data / "backups")
    assert stat.S_IMODE((data / "backups").stat().st_mode) == 0o700
