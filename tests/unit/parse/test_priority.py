"""The priority of parser processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.parse.priority import SESSION_NICE

_PROGRAM = """
import os, sys
from pathlib import Path
from holdfast.parse.priority import lower_priority
before = os.getpriority(os.PRIO_PROCESS, 0)
lower_priority(3)
group = Path("/proc/self/autogroup")
print(os.getpriority(os.PRIO_PROCESS, 0) - before, group.read_text().split()[-1] if group.exists() else "none")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares the processors among sessions")
def test_a_process_and_its_session_are_nicer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True, start_new_session=True
    )
    process, session = done.stdout.split()
    assert process == "3"
    assert session == (str(SESSION_NICE) if Path("/proc/self/autogroup").exists() else "none")
