"""Commands that are killed at a failpoint, again and again, until they come to their end."""

import subprocess
import sys
from pathlib import Path

_ARMED = """
import sys
from holdfast import failpoints
from holdfast.cli.app import run
failpoints.arm(sys.argv[1], int(sys.argv[2]))
sys.exit(run(sys.argv[3:]))
"""


def run_through_kills(failpoint: str, *arguments: str, folder: Path, most: int = 30) -> int:
    """Run a command that dies the second time that it reaches a failpoint, until it does not; returns how often it died."""
    for kills in range(most):
        done = subprocess.run(
            [sys.executable, "-c", _ARMED, failpoint, "2", *arguments],
            cwd=folder,
            capture_output=True,
            timeout=60,
            check=False,
        )
        if done.returncode != -9:
            assert done.returncode in {0, 1}, done.stderr.decode()
            return kills
    raise AssertionError(f"It died {most} times at {failpoint}.")
