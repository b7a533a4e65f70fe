"""Length-prefixed framing of messages between Holdfast and its parser processes: four bytes of length, then the message.

The rule: a message is read whole or not at all. Nothing here trusts what the other side writes.
"""

import asyncio
import struct
from typing import IO, Final

LENGTH: Final = struct.Struct(">I")


class FrameTooLong(ValueError):
    """A message whose length prefix exceeds the limit."""


def frame(*messages: bytes) -> bytes:
    """Encode messages, each with its length prefix."""
    return b"".join(LENGTH.pack(len(message)) + message for message in messages)


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read the next message from a blocking stream; None if the other side has closed it."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


async def read_frame_async(stream: asyncio.StreamReader, limit: int) -> bytes:
    """Read the next message. Raises FrameTooLong beyond `limit` bytes, IncompleteReadError if the other side has closed the stream."""
    (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    if length > limit:
        raise FrameTooLong(f"{length} bytes; {limit} are allowed")
    return await stream.readexactly(length)
