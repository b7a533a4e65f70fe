"""What a function of URLs says: a value, or no."""

from collections.abc import Callable

from holdfast.errors import BadUrl


def outcome(function: Callable[..., object], *arguments: object) -> object:
    """The value, or that it was refused."""
    try:
        return function(*arguments)
    except BadUrl:
        return BadUrl
