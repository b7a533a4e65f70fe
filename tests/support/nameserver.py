"""A name server on loopback that answers what a test tells it to, or never."""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

A: Final = 1
CNAME: Final = 5
AAAA: Final = 28
_SERVFAIL: Final = 2
_NXDOMAIN: Final = 3
_HEADER: Final = struct.Struct("!6H")


@dataclass(frozen=True)
class Answer:
    """What is said of a name. Without addresses it exists and has none."""

    addresses: tuple[str, ...] = ()
    ttl: int = 60
    error: int = 0
    silent: bool = False
    """Nothing is said at all."""
    alias: str | None = None
    """The addresses are this name's, which the first one is an alias of."""


NOWHERE: Final = Answer(error=_NXDOMAIN)
BROKEN: Final = Answer(error=_SERVFAIL)
SILENT: Final = Answer(silent=True)

Records = Mapping[str, "Answer | Callable[[int], Answer]"]
"""By name; a function is given how often the name was asked for before (A and AAAA together)."""


class NameServer(asyncio.DatagramProtocol):
    """Answers over UDP. What it has no record of does not exist."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.asked: list[tuple[str, int]] = []
        """Names and types, in the order of the questions."""
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def address(self) -> str:
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._transport is not None
        self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        name, end = _name(data, _HEADER.size)
        kind = int.from_bytes(data[end : end + 2], "big")
        found = self.records.get(name, NOWHERE)
        answer = found if isinstance(found, Answer) else found(sum(asked == name for asked, _ in self.asked))
        self.asked.append((name, kind))
        if not answer.silent:
            self._transport.sendto(_reply(data, end + 4, kind, answer), addr)


def _name(data: bytes, at: int) -> tuple[str, int]:
    labels = []
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode().lower())
        at += 1 + length
    return ".".join(labels), at + 1


def _wire(name: str) -> bytes:
    return b"".join(bytes((len(label),)) + label.encode() for label in name.split(".")) + b"\0"


def _reply(query: bytes, end: int, kind: int, answer: Answer) -> bytes:
    owner = b"\xc0\x0c"  # the question's name
    records = []
    if answer.alias is not None:
        alias = _wire(answer.alias)
        records.append(owner + struct.pack("!HHIH", CNAME, 1, answer.ttl, len(alias)) + alias)
        owner = alias
    for address in answer.addresses:
        family, of_kind = (socket.AF_INET6, AAAA) if ":" in address else (socket.AF_INET, A)
        if of_kind == kind:
            packed = socket.inet_pton(family, address)
            records.append(owner + struct.pack("!HHIH", kind, 1, answer.ttl, len(packed)) + packed)
    head = _HEADER.pack(int.from_bytes(query[:2], "big"), 0x8180 | answer.error, 1, len(records), 0, 0)
    return head + query[_HEADER.size : end] + b"".join(records)
