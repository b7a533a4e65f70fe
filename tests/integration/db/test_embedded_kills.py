"""Kills: of the process that started the server, of initdb, of the postmaster. The next call mends what they left."""

import itertools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.db import embedded
from holdfast.db.embedded import binaries, layout, os_user, process, safe_files, sockets, watchdog
from holdfast.errors import EmbeddedServerError
from tests.support import servers as case


def test_survives_the_kill_of_its_starter(data: Path) -> None:
    embedded.stop(data)
    with case.child(data, stay=60) as starter:
        assert starter.stdout
        starter.stdout.readline()
        pid = int(starter.stdout.readline())
        os.killpg(starter.pid, signal.SIGKILL)
    server = embedded.find(data)
    assert server
    assert server.pid == pid
    assert case.query(server, "SELECT 1") == 1


def test_killed_at_any_moment_of_the_first_start(folder: Path) -> None:
    data = folder / "data"
    with case.child(data) as starter:

        def initdb() -> list[psutil.Process]:
            if not list(data.glob("postgres.new-*/base")):
                return []
            return [one for one in psutil.Process(starter.pid).children() if one.name() == "initdb"]

        case.wait_until(initdb)
        for one in initdb():
            one.kill()
        assert "initdb was ended by signal 9, try again" in starter.communicate()[0]
    assert [path.name for path in data.iterdir()] == ["postgres.lock"], "nothing half-made"

    for delay in (0.05, 0.6, 1.2):
        with case.child(data) as starter:
            assert starter.stdout
            starter.stdout.readline()
            time.sleep(delay)
            os.killpg(starter.pid, signal.SIGKILL)
    server = embedded.ensure_running(data)
    assert case.query(server, "SELECT 1") == 1
    assert not list(data.rglob("*.new-*"))


def test_a_starter_killed_in_the_first_milliseconds_of_the_server(data: Path) -> None:
    """The server lives but has not written its process number yet: it is joined, not taken for a left-over."""
    embedded.stop(data)
    here = layout.choose_layout(data, print)
    programs, _ = binaries.usable(
        here.account, embedded._copy_folders(here), print
    )  # a home folder's are not for its user
    launched = process._launch(here, programs, sockets.choose_folder(here), {}, time.monotonic(), print)
    assert launched
    os.kill(launched.pid, signal.SIGSTOP)
    waiter = threading.Thread(target=embedded.ensure_running, args=(data,))
    waiter.start()
    time.sleep(0.2)
    assert waiter.is_alive()
    os.kill(launched.pid, signal.SIGCONT)
    waiter.join()
    assert embedded.ensure_running(data).pid == launched.pid


def test_what_a_killed_process_left_is_removed(data: Path) -> None:
    server = embedded.ensure_running(data)
    embedded.stop(data)
    left = [data / "postgres.password.new-0123abcd", server.cluster / "holdfast.conf.new-0123abcd"]
    for path in left:
        path.write_text("half a")
    theirs = data / "notes.new-0123abcd"
    theirs.write_text("not ours")
    shutil.rmtree(server.socket_dir)
    server.socket_dir.mkdir()
    server.socket_dir.chmod(0o755)
    again = embedded.ensure_running(data)
    assert again.url() == server.url()
    assert safe_files.is_private(again.socket_dir, again.cluster.stat().st_uid)
    assert not [path for path in left if path.exists()]
    assert theirs.read_text() == "not ours"
    theirs.unlink()


def test_kill_of_the_postmaster_costs_nothing_committed(data: Path, figure: Callable[[str], None]) -> None:
    server = embedded.ensure_running(data)
    case.query(server, "DROP TABLE IF EXISTS counted; CREATE TABLE counted (n int)")
    for n in range(3):
        with psycopg.connect(server.url()) as connection:
            connection.execute("INSERT INTO counted VALUES (%s)", (n,))
            connection.commit()
            case.kill(server)
            began = time.perf_counter()
            server = embedded.ensure_running(data)
            figure(f"back after a kill of the postmaster: {(time.perf_counter() - began) * 1000:.0f} ms")
    assert case.query(server, "SELECT array_agg(n ORDER BY n) FROM counted") == [0, 1, 2]


def test_waits_for_the_last_process_of_a_killed_server(data: Path) -> None:
    """Two servers on one cluster would destroy it: an orphan that still writes must end first."""
    server = embedded.ensure_running(data)
    said: list[str] = []
    with psycopg.connect(server.url()) as connection:
        orphan = connection.info.backend_pid
        os.kill(orphan, signal.SIGSTOP)
        case.kill(server)
        waiter = threading.Thread(target=embedded.ensure_running, args=(data, said.append))
        waiter.start()
        try:
            case.wait_until(lambda: said)
            assert "last processes of a killed PostgreSQL" in said[0]
            assert waiter.is_alive()
            assert embedded.find(data) is None
        finally:
            os.kill(orphan, signal.SIGCONT)
            waiter.join()
    again = embedded.find(data)
    assert again
    assert case.query(again, "SELECT 1") == 1


def test_a_stale_pid_that_now_belongs_to_somebody_else(data: Path) -> None:
    server = embedded.ensure_running(data)
    owner = os_user.of_owner(server.cluster)
    lines = safe_files.read(server.cluster / "postmaster.pid").splitlines()
    embedded.stop(data)
    # The same user's, because PostgreSQL itself sees through a number of another user.
    with os_user.popen(owner, [shutil.which("sleep") or "/bin/sleep", "60"]) as stranger:
        lines[0] = str(stranger.pid)
        for name in (server.cluster / "postmaster.pid", server.socket_dir / ".s.PGSQL.5432.lock"):
            safe_files.write(name, "\n".join(lines) + "\n", uid=owner.uid, gid=owner.gid)
        assert embedded.find(data) is None
        assert not embedded.stop(data)
        assert case.query(embedded.ensure_running(data), "SELECT 1") == 1
        assert stranger.poll() is None
        stranger.kill()


def test_waits_for_a_server_that_stops(data: Path) -> None:
    server = embedded.ensure_running(data)
    with psycopg.connect(server.url()):
        os.kill(server.pid, signal.SIGTERM)  # the slow way: it stops when the last connection has gone
        case.wait_until(lambda: embedded.find(data) is None)
        waiter = threading.Thread(target=embedded.ensure_running, args=(data,))
        waiter.start()
        time.sleep(0.2)
        assert waiter.is_alive()
        assert process.is_alive(server.cluster, server.pid)
    waiter.join()
    again = embedded.find(data)
    assert again
    assert again.pid != server.pid


def test_a_dead_server_is_revived_once_by_all_who_notice(data: Path) -> None:
    server = embedded.ensure_running(data)
    assert embedded.state(data) is embedded.State.RUNS
    case.kill(server)
    assert embedded.state(data) is embedded.State.DIED
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: embedded.restart_if_died(data), range(6)))
    assert len({one.pid for one in found if one}) == 1
    assert None not in found
    # A start that failed leaves no number of a process, as an orderly stop does.
    case.kill(embedded.ensure_running(data))
    (server.cluster / "postmaster.pid").unlink()
    assert embedded.state(data) is embedded.State.DIED
    assert embedded.restart_if_died(data)


def test_a_process_killed_while_it_revives_the_server(data: Path) -> None:
    server = embedded.ensure_running(data)
    case.kill(server)
    with case.child(data, stay=60, call="restart_if_died") as reviver:
        assert reviver.stdout
        reviver.stdout.readline()
        time.sleep(0.05)
        os.killpg(reviver.pid, signal.SIGKILL)
    again = embedded.restart_if_died(data)
    assert again
    assert case.query(again, "SELECT 1") == 1


def test_a_stopped_server_stays_down_until_it_is_started(data: Path) -> None:
    server = embedded.ensure_running(data)
    embedded.stop(data)
    assert (embedded.state(data), embedded.restart_if_died(data)) == (embedded.State.STOPPED, None)
    server = embedded.ensure_running(data)
    assert embedded.state(data) is embedded.State.RUNS

    case.kill(server)
    assert not embedded.stop(data), "it did not run, and now it is not meant to"
    assert (embedded.state(data), embedded.restart_if_died(data)) == (embedded.State.STOPPED, None)

    server = embedded.ensure_running(data)
    os.kill(server.pid, signal.SIGINT)  # what `pg_ctl stop` does
    case.wait_until(lambda: not process.is_alive(server.cluster, server.pid))
    assert (embedded.state(data), embedded.restart_if_died(data)) == (embedded.State.STOPPED, None)


def test_the_keeper_tries_again_with_growing_pauses_and_says_why(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(watchdog, "FIRST_PAUSE", 0.02)
    attempts: list[float] = []
    revive = embedded.restart_if_died

    def full_disk(where: Path, say: safe_files.Say) -> embedded.Server | None:
        attempts.append(time.monotonic())
        if len(attempts) < 5:
            raise EmbeddedServerError("The disk is full.")
        return revive(where, say)

    monkeypatch.setattr(embedded, "restart_if_died", full_disk)
    said: list[str] = []
    case.kill(embedded.ensure_running(data))
    with watchdog.Watchdog(data, said.append):
        case.wait_until(lambda: embedded.find(data))
        case.wait_until(lambda: said[-1] == "PostgreSQL had died and runs again.")
    assert [sentence for sentence in said if "disk" in sentence] == [
        "PostgreSQL cannot be started again, and is tried at least every minute: The disk is full."
    ]
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert all(pause >= 0.02 * 2**n for n, pause in enumerate(pauses)), pauses
