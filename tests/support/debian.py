"""Real proxies of Debian's, tinyproxy and Dante: as they are installed, or else unpacked into a folder of the project.

Nothing is installed, and nobody needs to be root: `.peers/debian` keeps what apt-get downloaded. Where a program cannot be had, the test
that asks for it is skipped, and says what is missing. All of them listen on 127.0.0.1 and go nowhere else.
"""

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / ".peers" / "debian"
_PATIENCE = 20.0
_DOWNLOAD = 120.0
_HURRY = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=5", "-o", "APT::Sandbox::User=root"]
_DEEPEST = 5
_EVERYWHERE = {"libc6", "libgcc-s1", "libcrypt1"}


@dataclass(frozen=True)
class Program:
    """An executable, and where its libraries are."""

    path: Path
    libraries: tuple[Path, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        places = os.pathsep.join([*map(str, self.libraries), os.environ.get("LD_LIBRARY_PATH", "")])
        return {**os.environ, "LD_LIBRARY_PATH": places.removesuffix(os.pathsep)} if places else dict(os.environ)

    def lacks(self) -> list[str]:
        """Libraries that are not here."""
        found = subprocess.run(["ldd", self.path], env=self.environment, capture_output=True, text=True, check=False)
        return re.findall(r"(\S+) => not found", found.stdout)


@dataclass(frozen=True)
class Server:
    """A proxy that runs."""

    port: int
    pid: int
    log_file: Path

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""


def program(package: str, name: str) -> Program:
    """The program *name* of *package*. Skips the test if it is not to be had."""
    found = _find(package, name)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@contextmanager
def tinyproxy(folder: Path, *, user: str | None = None, password: str | None = None) -> Iterator[Server]:
    """An HTTP proxy, which asks for *user* and *password* if it is given them."""
    made = program("tinyproxy-bin", "tinyproxy")
    log = folder / "tinyproxy.log"

    def command(port: int) -> list[str]:
        lines = ["Listen 127.0.0.1", f"Port {port}", "Allow 127.0.0.1", "Timeout 60", "MaxClients 20"]
        lines += [f'LogFile "{log}"', "LogLevel Connect"]
        lines += [f"BasicAuth {user} {password}"] if user else []
        return [str(made.path), "-d", "-c", str(_write(folder / "tinyproxy.conf", lines))]

    with _running(made, command, log) as server:
        yield server


@contextmanager
def danted(folder: Path) -> Iterator[Server]:
    """A SOCKS proxy for everybody: passwords it knows are those of the system's users."""
    made = program("dante-server", "danted")
    log = folder / "danted.log"
    here = "from: 127.0.0.1/32 to: 127.0.0.1/32"

    def command(port: int) -> list[str]:
        lines = [f"logoutput: {log}", f"internal: 127.0.0.1 port = {port}", "external: 127.0.0.1"]
        lines += ["clientmethod: none", "socksmethod: none"]
        if os.geteuid() == 0:
            lines += ["user.privileged: root", "user.unprivileged: nobody"]
        lines += ["client pass {", here, "}", "socks pass {", here, "command: connect", "log: connect error", "}"]
        config = _write(folder / "danted.conf", lines)
        return [str(made.path), "-f", str(config), "-p", str(folder / "danted.pid"), "-N", "1"]

    with _running(made, command, log) as server:
        yield server


def _write(file: Path, lines: Sequence[str]) -> Path:
    file.write_text("\n".join([*lines, ""]))
    return file


@contextmanager
def _running(made: Program, command: Callable[[int], list[str]], log: Path) -> Iterator[Server]:
    """Start it on a port that is free, which somebody else may have been given meanwhile; then on another one."""
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen(
            command(port),
            env=made.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            if _listens(process, port):
                yield Server(port, process.pid, log)
                return
        finally:
            _end(process)
    said = log.read_text()[-500:] if log.exists() else "nothing"
    raise AssertionError(f"{made.path.name} did not start; it said: {said}")


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return process.poll() is None
        time.sleep(0.02)
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """After: it is gone, with its children, which are in a session of their own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_PATIENCE)


# getting it


@cache
def _find(package: str, name: str) -> Program | str:
    """The program, or why there is none."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    if installed := shutil.which(name, path=path):
        return Program(Path(installed))
    missing = [tool for tool in ("apt-get", "apt-cache", "dpkg", "ldd") if shutil.which(tool) is None]
    if missing:
        return f"there is no {name}, and no {missing[0]} to get it with"
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes run tests
            return _unpacked(package, name) or _get(package, name)
    except PermissionError:  # another user's
        return _unpacked(package, name) or f"there is no {name}, and it cannot be unpacked into {FOLDER.name}"


def _unpacked(package: str, name: str) -> Program | None:
    root = FOLDER / package
    found = next((path for path in root.glob(f"usr/*bin/{name}") if os.access(path, os.X_OK)), None)
    if found is None:
        return None
    made = Program(found, tuple(sorted({path.parent for path in root.rglob("lib/*-linux-gnu/*.so*")})))
    return None if made.lacks() else made


def _get(package: str, name: str) -> Program | str:
    for lists in _lists():
        wanted, had = {package}, set[str]()
        for _ in range(_DEEPEST):  # itself, the libraries that it needs, those that they need
            _download(package, wanted, lists)
            if made := _unpacked(package, name):
                return made
            had |= wanted
            wanted = {each for one in wanted for each in _libraries(one, lists)} - had - _EVERYWHERE
    return f"there is no {name}, and apt-get could not download {package} with all that it needs"


def _lists() -> Iterator[list[str]]:
    """Options of apt: none, for the system's lists; then those for lists of our own, which are new and need not be root's."""
    yield []
    folder = FOLDER / "apt"
    for each in ("state/lists/partial", "cache/archives/partial"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    places = {"Dir::State": "state", "Dir::State::lists": "state/lists", "Dir::Cache": "cache"}
    own = [word for name, place in places.items() for word in ("-o", f"{name}={folder / place}")]
    own += ["-o", "Dir::State::status=/var/lib/dpkg/status"]
    _apt(["apt-get", *_HURRY, *own, "update"], folder)
    yield own


def _libraries(package: str, lists: Sequence[str]) -> list[str]:
    """Packages of libraries that *package* needs."""
    said = _apt(["apt-cache", *lists, "depends", package], FOLDER)
    return re.findall(r"Depends: (lib[a-z0-9.+-]+)$", said, re.MULTILINE)


def _download(package: str, wanted: Iterable[str], lists: Sequence[str]) -> None:
    """After: what could be had of *wanted* is in the folder of *package*."""
    folder = FOLDER / f"{package}.debs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for each in wanted:  # one by one: one that there is not would keep all others away
        _apt(["apt-get", *_HURRY, *lists, "download", each], folder)
    for file in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", file, FOLDER / package], check=True, capture_output=True)
    shutil.rmtree(folder)


def _apt(command: Sequence[str], folder: Path) -> str:
    """What it prints; nothing if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_DOWNLOAD)
    except subprocess.TimeoutExpired:
        return ""
    return "" if done.returncode else done.stdout
