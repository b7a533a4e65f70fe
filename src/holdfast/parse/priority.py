"""Lower priority for processes that no fetch should wait for.

Linux may share the processors among sessions first (autogroup, the default of most distributions): niceness then counts only among the
processes of one session, and a process in a session of its own takes as much as any other. So the session is made nice, too.
"""

import os
import time
from contextlib import suppress
from typing import Final

_ATTEMPTS: Final = 8
_PAUSE: Final = 0.11
"""Seconds: the kernel allows one change in a tenth of a second, of all processes together."""
SESSION_NICE: Final = 5
"""The niceness of the session: it has a quarter of what a session of fetching has. With less, on a busy machine, ordinary pages would reach
the timeout of their parser, which is in seconds of the clock."""


def lower_priority(by: int) -> None:
    """Make this process nicer by this much, and its session nice. After: they are, or the system does not allow it."""
    with suppress(OSError):
        os.nice(by)
    lower_session_priority()


def lower_session_priority() -> None:
    """Make the session of this process nice, if the system shares the processors among sessions."""
    for _ in range(_ATTEMPTS):
        try:
            group = os.open("/proc/self/autogroup", os.O_WRONLY)
            try:
                os.write(group, b"%d" % SESSION_NICE)
            finally:
                os.close(group)
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:
            return
        else:
            return
