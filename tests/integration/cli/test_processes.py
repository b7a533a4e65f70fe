"""The program as the shell sees it: pipes that close, disks that are full, Ctrl-C, a terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.cli import Cli, command, program
from tests.support.factories import Store


def _on_a_terminal(*arguments: str, typed: bytes = b"", width: int = 80) -> tuple[int, str]:
    """Run with a terminal of that width in all three places; exit code and what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen(command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.write(ours, typed)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the last one who had it open has gone
            break
    os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")


@pytest.fixture(autouse=True)
def cli(shared_cli: Cli) -> Cli:
    """All tests here are on one database."""
    return shared_cli


def test_a_reader_who_leaves_early_is_no_failure(shared_store: Store) -> None:
    shared_store.domains(1500)  # more than a pipe holds
    process = subprocess.Popen(
        command("domain-status", "--limit", "1500", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline() == b"{\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_an_answer_that_cannot_be_written_is_a_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command("config", "check"), stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b"Error: The answer cannot be written: No space left on device.\n"
    assert done.returncode == 1


def test_streams_that_are_closed() -> None:
    shell = f"{sys.executable} -m holdfast"
    for line, code in ((f"{shell} config check >&-", 0), (f"{shell} bogus 2>&-", 2), (f"{shell} seeds load - <&-", 2)):
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False)
        assert done.returncode == code, line
        assert b"Traceback" not in done.stderr


def test_domain_status_on_a_terminal(shared_store: Store) -> None:
    shared_store.seed(f"{'x' * 60}.{'y' * 60}.example", rank=1)
    code, shown = _on_a_terminal("domain-status", "--limit", "1", width=70)
    assert code == 0
    assert "\x1b[1mDOMAIN\x1b[0m" in shown
    assert "\x1b[36mpending\x1b[0m" in shown
    assert "─" * 70 in shown
    assert "─" * 71 not in shown


def test_a_question_on_a_terminal_that_lacks_our_characters(
    shared_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_store.connection.execute(
        "INSERT INTO crawl_runs (worker, heartbeat_at) VALUES ('dead', now() - interval '2 h')"
    )
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    code, shown = _on_a_terminal("cleanup-stale-runs", typed=b"y\n")
    assert code == 0
    assert re.search(r"\x1b\[2m\?+\x1b\[0m\n", shown)
    assert shown.endswith("Mark 1 run as failed? [y/N] Marked 1 run as failed.\n")


def test_seeds_typed_on_a_terminal_end_with_one_ctrl_d() -> None:
    code, shown = _on_a_terminal("seeds", "load", "-", typed=b"typed.example\n\x04")
    assert code == 0
    assert "Type a URL or a domain a line; Ctrl-D ends.\n" in shown
    assert shown.endswith("1 line: 1 seed (1 new domain, 1 new URL).\n")


def test_ctrl_c_while_seeds_load(shared_store: Store) -> None:
    """What was read by whole batches is in the store, and the person is told."""
    process = subprocess.Popen(
        command("seeds", "load", "-", "--source", "interrupted"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    process.stdin.write(b"".join(b"%d,interrupted%d.example\n" % (i, i) for i in range(1, 24_001)))
    process.stdin.flush()
    loaded = "SELECT count(*) FROM domains WHERE source = 'interrupted'"
    deadline = time.monotonic() + 60
    while not shared_store.value(loaded) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err == b"Interrupted; what was done so far is in the store.\n"
    assert shared_store.value(loaded) == 20_000


def test_ctrl_c_while_the_program_loads_is_no_traceback(cli: Cli) -> None:
    code = "import signal, sys; signal.raise_signal(signal.SIGINT)"
    (cli.folder / "rich.py").write_text(code)  # found before the real one, in the middle of our imports
    done = program("claims", env=os.environ | {"PYTHONPATH": str(cli.folder)})
    assert (done.code, done.out, done.err) == (130, "", "")
