"""Commands that are killed at a failpoint, again and again, until they come to their end."""

import subprocess
import sys
from pathlib import Path

# Each life is a fork of one process that has imported everything: an import takes longer than what is tested.
_LIVES = """
import os, signal, sys
from importlib import import_module
from holdfast import failpoints
from holdfast.cli.app import run
failpoint, nth, most, imported, *arguments = sys.argv[1:]
for name in filter(None, imported.split(",")):
    import_module(name)
for kills in range(int(most)):
    child = os.fork()
    if not child:
        failpoints.arm(failpoint, int(nth))
        os._exit(run(arguments))
    _, status = os.waitpid(child, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        print(kills)
        sys.exit(os.waitstatus_to_exitcode(status))
sys.exit(f"It died {most} times at {failpoint}.")
"""


def run_through_kills(
    failpoint: str, *arguments: str, folder: Path, most: int = 30, nth: int = 2, imported: tuple[str, ...] = ()
) -> int:
    """Run a command that dies the `nth` time that it reaches a failpoint, until it does not; returns how often it died. `imported`:
    modules that the command imports when it needs them."""
    done = subprocess.run(
        [sys.executable, "-c", _LIVES, failpoint, str(nth), str(most), ",".join(imported), *arguments],
        cwd=folder,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr.decode()
    assert done.stdout.split(), done.stderr.decode()
    return int(done.stdout.split()[-1])
