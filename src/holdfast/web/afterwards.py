"""Work that goes on when the answer has been given.

The rule: the answer stands whatever becomes of it, so a failure here is a line of the log. What is left undone, the next sweep of a worker
does.
"""

import logging
from collections.abc import Callable
from typing import Final, ParamSpec

from holdfast.errors import HoldfastError

log: Final = logging.getLogger(__name__)

P = ParamSpec("P")


def quietly(work: Callable[P, object]) -> Callable[P, None]:
    """The same, raising nothing."""

    def done(*arguments: P.args, **named: P.kwargs) -> None:
        try:
            work(*arguments, **named)
        except HoldfastError as problem:
            log.warning("what follows an answer is left to a sweep: %s", problem)
        except Exception:
            log.exception("what follows an answer: a fault of ours")

    return done
