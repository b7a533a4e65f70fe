"""Work that continues after the response has been sent.

The rule: the response stands whether or not the work succeeds, so a failure is logged and not raised. The next sweep
of a worker does what is left undone.
"""

import logging
from collections.abc import Callable
from typing import Final, ParamSpec

from holdfast.errors import HoldfastError

log: Final = logging.getLogger(__name__)

P = ParamSpec("P")


def log_failures(work: Callable[P, object]) -> Callable[P, None]:
    """The function, with errors logged instead of raised."""

    def run(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            work(*arguments, **options)
        except HoldfastError as problem:
            log.warning("work after a response failed and is left to the next sweep: %s", problem)
        except Exception:
            log.exception("work after a response failed")

    return run
