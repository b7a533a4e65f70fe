"""How we talk with a process of ours that parses: a message is a length of four bytes and that many bytes.

The rule: a message is whole or it is none. Nothing here trusts the other side to write sense.
"""

import asyncio
import struct
from typing import IO, Final

LENGTH: Final = struct.Struct(">I")


class TooLong(ValueError):
    """A message that says it is longer than it may be."""


def framed(*messages: bytes) -> bytes:
    """Messages as they are written."""
    return b"".join(LENGTH.pack(len(message)) + message for message in messages)


def receive(stream: IO[bytes]) -> bytes | None:
    """The next message; None: the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


async def next_message(stream: asyncio.StreamReader, longest: int) -> bytes:
    """The next message. Raises TooLong, and IncompleteReadError if the other side is gone."""
    (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    if length > longest:
        raise TooLong(f"{length} bytes; {longest} are allowed")
    return await stream.readexactly(length)
