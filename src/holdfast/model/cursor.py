"""Cursors of paginated lists: the key of the last row of a page as text, for the API and its client.

The rule: a cursor is neither secret nor trusted: an invalid one is refused, and its values are bound as SQL parameters like any other.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from holdfast.errors import UsageError

INVALID_CURSOR: Final = "This is no cursor of this list; take the `next` of a page of it, or leave it out to begin."

Key = Sequence[object]
"""The key of a row that the next page starts after: numbers, texts, bytes, times, None."""


def encode_cursor(key: Key) -> str:
    """Encode a key as a cursor."""
    text = json.dumps([_encode_part(part) for part in key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def decode_cursor(cursor: str | None, *kinds: type) -> tuple[object, ...] | None:
    """Decode the key of a cursor, with values of these types; None: the first page. Raises UsageError."""
    if cursor is None:
        return None
    problem = UsageError(INVALID_CURSOR)
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise problem
        return tuple(_decode_part(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (ValueError, binascii.Error, UnicodeError, RecursionError, OverflowError, TypeError) as cause:
        raise problem from cause


def _encode_part(part: object) -> object:
    if isinstance(part, bytes):
        return part.hex()
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    assert part is None or isinstance(part, str | int | float), part  # noqa: S101 — keys are made of these
    return part


def _decode_part(part: object, kind: type) -> object:
    if part is None:
        return None
    if kind is bytes and isinstance(part, str):
        return bytes.fromhex(part)
    if kind is datetime and isinstance(part, str):
        time = datetime.fromisoformat(part)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    if kind is float and isinstance(part, int | float) and not isinstance(part, bool):
        return float(part)
    if kind is int and isinstance(part, int) and not isinstance(part, bool) and -(2**63) <= part < 2**63:
        return part
    if kind is str and isinstance(part, str) and "\0" not in part and part.isprintable():
        return part
    raise ValueError("another kind of value")
