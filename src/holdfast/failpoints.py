"""Failpoints: named places where tests kill the process, to show that any moment is safe.

The rule: none is armed unless the program was started with it; then the process dies there as by `kill -9`, without a message, without
clean-up.
"""

import os
import signal
from typing import Final

NAMES: Final = frozenset(
    {
        "api_after_commit",
        "api_before_commit",
        "in_claim",
        "after_fetch",
        "in_batch",
        "archive_written",
        "before_commit",
        "after_commit",
        "in_backfill",
        "in_heartbeat",
        "in_migration",
        "move_closed",
        "move_compared",
        "move_copied",
        "move_copied_ahead",
        "move_indexed",
        "move_marked",
        "move_prepared",
        "move_switched",
        "round_raised",
        "segment_recorded",
        "segment_uploaded",
        "sitemap_read",
        "retention_read",
        "retention_archived",
        "retention_deleted",
        "retention_file_deleted",
        "retention_restored",
        "retention_scratch",
    }
)
API: Final = frozenset({"api_after_commit", "api_before_commit"})
"""The failpoints of an API server; no worker reaches them."""
MOVE: Final = frozenset(name for name in NAMES if name.startswith("move_"))
"""The failpoints of `holdfast db move`."""
RETENTION: Final = frozenset(name for name in NAMES if name.startswith("retention_"))
"""The failpoints of `holdfast retention run` and of restores of archives."""
COMMANDS: Final = frozenset({"in_migration", "in_backfill"}) | MOVE | RETENTION
"""The failpoints of commands; no worker reaches them either."""
UPLOADS: Final = frozenset({"segment_recorded", "segment_uploaded"})
"""The failpoints of uploads of the archive; a worker reaches them only with an object store."""
_armed: dict[str, int] = {}


def arm(name: str, nth: int = 1) -> None:
    """Kill the process the `nth` time that `name` is reached."""
    if name not in NAMES:
        raise ValueError(f"There is no failpoint {name!r}; there are: {', '.join(sorted(NAMES))}.")
    _armed[name] = nth


def reach(name: str) -> None:
    """Kill the process here if the failpoint is armed."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
