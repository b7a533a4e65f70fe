"""The command line with the bundled server: it starts by itself and comes back after any kill (Must show 9)."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.db import embedded, migrate
from tests.support.cli import Cli, command, only_ours, program
from tests.support.servers import data_in_memory

STARTED = "Started PostgreSQL 18"


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with data_in_memory() as folder:
        yield folder


@pytest.fixture
def own(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`holdfast` on a bundled server of its own."""
    only_ours(monkeypatch, tmp_path, None)
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    return Cli(tmp_path, monkeypatch, capsys)


def _running(data: Path) -> embedded.Server:
    server = embedded.find(data)
    assert server
    return server


def test_the_server_outlives_the_process_that_started_it(own: Cli, data: Path, figure: Callable[[str], None]) -> None:
    embedded.stop(data)
    with subprocess.Popen(
        command("seeds", "load", "-"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as starter:
        assert starter.stderr
        while STARTED.encode() not in starter.stderr.readline():
            assert starter.poll() is None
        starter.kill()
    pid = _running(data).pid
    began = time.monotonic()
    answer = program("domain-status")
    assert answer.code == 0
    assert STARTED not in answer.err
    figure(f"domain-status after kill -9 of the server's starter: {time.monotonic() - began:.1f} s")
    assert _running(data).pid == pid


def test_a_killed_server_comes_back_by_itself_with_all_that_was_committed(own: Cli, data: Path) -> None:
    assert own("seeds", "add", "example.com").code == 0
    before = _running(data).pid
    os.kill(before, signal.SIGKILL)
    answer = program("domain-status")
    assert answer.code == 0
    assert STARTED in answer.err
    assert [line.split()[:2] for line in answer.out.splitlines()[2:]] == [["example.com", "pending"]]
    assert _running(data).pid != before


def test_stop_and_start(own: Cli, data: Path) -> None:
    own("claims")
    assert (own("db", "stop").out, embedded.find(data)) == ("The database server is stopped.\n", None)
    assert own("db", "stop").out == "The database server was not running.\n"
    assert own("db", "stop", "--json").json == {"stopped": False}
    current = own("db", "current", "--json")
    assert (current.code, current.json["needed"]) == (0, migrate.HEAD)
    assert STARTED in current.err
    assert own("db", "url").out == f"{_running(data).url()}\n"


def test_psql_of_the_bundled_server(own: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATA")
    answer = program("db", "psql", "--data", str(data), "-Atc", "SELECT current_user, count(*) FROM domains")
    assert (answer.code, answer.out.rstrip("\n")[:-1]) == (0, "holdfast|")


def test_a_schema_taken_back_is_brought_up_by_the_next_command(own: Cli) -> None:
    assert own("db", "downgrade", "base", "--yes").out == f"{migrate.HEAD} → no schema\n"
    assert own("domain-status", "--json").json["domains"] == []


def test_a_slip_of_the_pen_starts_no_server(own: Cli) -> None:
    for arguments in (
        ["domain-info", "http://bad host/"],
        ["domain-set", "example.com", "delay=x"],
        ["release-stuck-claims", "--all-active"],
        ["seeds", "load", "missing.txt"],
        ["domain-status", "--limit", "0"],
    ):
        own(*arguments, "--data", "elsewhere").refused(2)
    assert not (own.folder / "elsewhere").exists()


def test_a_data_folder_that_is_none(own: Cli) -> None:
    (own.folder / "file").write_text("")
    assert "is a file, not a folder: choose another folder with --data." in own("claims", "--data", "file").refused(3)
