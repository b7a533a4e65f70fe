"""Exports as streams: rows are read a chunk at a time, and sent as they are written.

The rule: whoever reads slowly makes us wait, and keeps no transaction and no connection of the pool: an export has a connection of its own,
and its statements are short. A file that breaks off in the middle is seen to: the connection is cut, so that no program takes it for whole.
"""

import asyncio
import io
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from holdfast import wiring
from holdfast.control import export
from holdfast.control.export import Exporter, Wanted
from holdfast.errors import TooMany
from holdfast.model.account import Principal

if TYPE_CHECKING:
    from holdfast.web.office import Office

AT_ONCE: Final = 12
"""Exports of a process at the same time; each has a connection to the database."""
OF_A_USER: Final = 3
"""Of these for one user: readers who are slow keep no place from others."""
STALLED: Final = 60.0
"""Seconds that a reader may take for a piece."""


class Places:
    """Who has an export under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = Counter[int | None]()

    def take(self, user_id: int | None) -> None:
        """A place for an export of a user; None: everybody is the same, so all places are theirs. Raises TooMany."""
        with self._lock:
            if user_id is not None and self._taken[user_id] >= OF_A_USER:
                raise TooMany(
                    f"You have {OF_A_USER} exports under way, and that is the most; try again later.", retry_after=30
                )
            if self._taken.total() >= AT_ONCE:
                raise TooMany(
                    f"{AT_ONCE} exports are under way, and that is the most; try again later.", retry_after=30
                )
            self._taken[user_id] += 1

    def give_back(self, user_id: int | None) -> None:
        """After: it is free for another export."""
        with self._lock:
            self._taken[user_id] -= 1
            self._taken += Counter()  # those that have none are forgotten


_places: Final = Places()


class Kind(StrEnum):
    """What is exported."""

    PAGES = "pages"
    ITEMS = "items"
    PRODUCTS = "products"
    URLS = "urls"
    LOG = "log"


class Format(StrEnum):
    """How."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


MEDIA_TYPES: Final = {
    Format.JSONL: "application/x-ndjson",
    Format.CSV: "text/csv; charset=utf-8",
    Format.PARQUET: "application/vnd.apache.parquet",
}
DESCRIPTION: Final[dict[str, Any]] = {
    "description": "The file.",
    "content": {
        "application/x-ndjson": {"schema": {"type": "string"}},
        "text/csv": {"schema": {"type": "string"}},
        "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
    },
}


def answer(
    office: "Office", who: Principal, kind: Kind, chosen: Format, *, job: str | None, domain: str | None, text: bool
) -> StreamingResponse:
    """The file as a stream. What cannot be meant is refused before it begins, and so is one too many."""
    wanted = Wanted(kind, text=text, job=job, domain=domain)
    export.check_wanted(wanted)
    folder = wiring.archive_folder(office.settings)
    exporter = Exporter(office.unpooled, office.settings.domains.registrable, folder if folder.is_dir() else None)
    exporter.expected(wanted)  # raises NotFound for a job or domain that does not exist
    _places.take(who.user_id)
    headers = {"Content-Disposition": f'attachment; filename="{kind}.{chosen}"'}
    pieces = _pieces(exporter, f".{chosen}", wanted)
    return _Export(who.user_id, pieces, media_type=MEDIA_TYPES[chosen], headers=headers)


class _Export(StreamingResponse):
    """Gives its place back however it ends: a stream that was never begun has no end of its own. Who stops reading is not waited for."""

    def __init__(self, user_id: int | None, pieces: Iterator[bytes], **options: Any) -> None:
        super().__init__(pieces, **options)
        self._user_id = user_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            async with asyncio.timeout(STALLED):
                await send(message)

        try:
            await super().__call__(scope, receive, patient)
        finally:
            _places.give_back(self._user_id)


def _pieces(exporter: Exporter, suffix: str, wanted: Wanted) -> Iterator[bytes]:
    sink = _Sink()
    with closing(exporter.stream(suffix, wanted, sink)) as steps:
        for _ in steps:
            if piece := sink.taken():
                yield piece
    if piece := sink.taken():
        yield piece


class _Sink(io.BytesIO):
    """Where a writer writes, and from where what it wrote is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._at += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def taken(self) -> bytes:
        """What was written since the last time."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
