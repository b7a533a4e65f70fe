"""When a domain may be visited at all, by its maintenance windows.

The rule: windows that cannot be read (somebody wrote them in SQL, past our checks) close nothing, and that is said.
"""

import logging
from datetime import datetime
from functools import lru_cache
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.window import Windows

log: Final = logging.getLogger(__name__)


def closed_until(window: str | None, moment: datetime) -> datetime | None:
    """When a domain with these windows opens; None: it is open at *moment*."""
    return None if window is None else _windows(window).closed_until(moment)


@lru_cache(maxsize=1024)
def _windows(text: str) -> Windows:
    try:
        return Windows.parse(text)
    except UsageError as problem:  # written in SQL, past our checks
        log.warning("a maintenance window is not heeded: %s", problem)
        return Windows()
