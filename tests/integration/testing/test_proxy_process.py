"""The proxy in a process of its own: its place, its log and its orders outlive it, and it does not outlive its holder."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.testing.simweb.proxy import reserve_port
from holdfast.testing.simweb.proxy_log import read_log
from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.integration.testing.client import PATIENCE, eventually


def status_of(proxy: ProxyProcess, url: str) -> int:
    """By one request on a connection of its own; 0: none."""
    try:
        with socket.create_connection(proxy.address, timeout=PATIENCE) as connection:
            connection.sendall(f"GET {url} HTTP/1.1\r\n\r\n".encode())
            said = connection.recv(100)
    except OSError:
        return 0
    return int(said.split()[1]) if said else 0


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path, name="one", hosts={"site.example": "127.0.0.1:1"}) as made:
        yield made


def test_a_process_keeps_its_place(proxy: ProxyProcess) -> None:
    """And its log, and how it was told to behave, through kills."""
    place = proxy.address
    proxy.behave("status", status=418)
    assert status_of(proxy, "http://a.localhost:1/first") == 418
    pid = proxy.pid
    proxy.kill()
    assert (proxy.pid, proxy.address, psutil.pid_exists(pid)) == (0, place, False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place)
    assert len(proxy.log()) == 1
    proxy.start()
    assert status_of(proxy, "http://a.localhost:1/second") == 418
    proxy.kill()
    proxy.behave("work")  # from its next start on
    proxy.start()
    assert status_of(proxy, "http://site.example/third") == 502
    assert [each["target"][-6:].strip("/") for each in proxy.log()] == ["first", "second", "third"]
    proxy.behave("refuse")
    assert status_of(proxy, "http://site.example/") == 0
    with pytest.raises(UsageError):
        proxy.behave("dance")


def test_a_process_is_frozen_and_thawed(proxy: ProxyProcess) -> None:
    proxy.freeze()
    with socket.create_connection(proxy.address, timeout=0.2) as connection:  # the kernel takes it
        connection.sendall(b"GET http://a.localhost:1/ HTTP/1.1\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.thaw()
        connection.settimeout(PATIENCE)
        assert connection.recv(12) == b"HTTP/1.1 502"
    proxy.freeze()
    proxy.kill()
    assert proxy.pid == 0


def test_a_process_that_is_frozen_can_be_stopped(proxy: ProxyProcess) -> None:
    pid = proxy.pid
    proxy.freeze()
    proxy.stop()
    assert not psutil.pid_exists(pid)


def test_a_login_of_a_process(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path, name="two", protocol="socks5", user="ann", password="a/b") as proxy:
        assert proxy.url == f"socks5://ann:a%2Fb@127.0.0.1:{proxy.address[1]}"
        assert "a/b" not in " ".join(psutil.Process(proxy.pid).cmdline())
        with socket.create_connection(proxy.address, timeout=PATIENCE) as connection:
            connection.sendall(b"\x05\x01\x02" + b"\x01\x03ann\x03a/b" + b"\x05\x01\x00\x01\x7f\0\0\x01\0\x01")
            said = b""
            while piece := connection.recv(100):
                said += piece
        assert said.startswith(b"\x05\x02\x01\x00\x05\x05")
        assert proxy.log()[0]["user"] == "ann"


def test_a_process_ends_with_its_holder(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from holdfast.testing.simweb.proxy_process import ProxyProcess\n"
        "print(ProxyProcess(Path(sys.argv[1]), name='held').start().pid, flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder.stdout:
        pid = int(holder.stdout.readline())
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(PATIENCE)
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_by_hand(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "holdfast.testing.simweb.proxy",
        "--log",
        str(tmp_path / "log"),
        "--behave",
        "status",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with socket.create_connection((ready["host"], ready["port"]), timeout=PATIENCE) as connection:
            connection.sendall(b"GET http://a.localhost/ HTTP/1.1\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 503"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert len(read_log(tmp_path / "log")) == 1


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="did not start"):
        ProxyProcess(tmp_path, name="bad", hosts={"site.example": "10.0.0.1"}).start()
    with reserve_port() as taken, pytest.raises(OSError, match="in use"), socket.socket() as other:
        other.bind(taken.getsockname())  # nobody gets the place by accident


def test_a_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert read_log(log) == []
    log.write_text('{"id": "1", "did": "work"}\n{"id": "1", "did": "tunnel"}\n{"id": "2", "di')
    assert [each["did"] for each in read_log(log)] == ["tunnel"]
