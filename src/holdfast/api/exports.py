"""Exports as streaming responses: rows are read a chunk at a time, and sent as they are written.

The rule: a slow reader delays only its own export, which holds no transaction and no pooled connection: an export has
a connection of its own, and its statements are short. An export that fails in the middle cuts the connection, so that
no program takes the file for complete.
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

from holdfast import factories
from holdfast.control import export
from holdfast.control.export import Exporter, ExportRequest
from holdfast.errors import TooMany
from holdfast.model.auth import Principal

if TYPE_CHECKING:
    from holdfast.api.app_services import AppServices

MAX_EXPORTS: Final = 12
"""Concurrent exports of a process; each has a connection to the database."""
MAX_EXPORTS_PER_USER: Final = 3
"""Concurrent exports of one user, so that slow readers leave slots for others."""
STALL_TIMEOUT: Final = 60.0
"""Seconds that a reader may take to receive a chunk."""


class ExportSlots:
    """Limits concurrent exports, by process and by user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots_by_user = Counter[int | None]()

    def acquire(self, user_id: int | None) -> None:
        """Acquire a slot for an export of a user; None: the server runs without authentication, and one caller may
        have all slots. Raises TooMany."""
        with self._lock:
            if user_id is not None and self._slots_by_user[user_id] >= MAX_EXPORTS_PER_USER:
                raise TooMany(
                    f"You have {MAX_EXPORTS_PER_USER} exports running, which is the limit for one user; try again later.",
                    retry_after=30,
                )
            if self._slots_by_user.total() >= MAX_EXPORTS:
                raise TooMany(
                    f"{MAX_EXPORTS} exports are running, which is the limit; try again later.", retry_after=30
                )
            self._slots_by_user[user_id] += 1

    def release(self, user_id: int | None) -> None:
        """Release a slot. Before: `acquire`."""
        with self._lock:
            self._slots_by_user[user_id] -= 1
            self._slots_by_user += Counter()  # drops users without exports


_slots: Final = ExportSlots()


class Kind(StrEnum):
    """What is exported."""

    PAGES = "pages"
    DOCUMENTS = "documents"
    ITEMS = "items"
    PRODUCTS = "products"
    URLS = "urls"
    LOG = "log"
    LINKS = "links"


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


def export_response(
    services: "AppServices",
    caller: Principal,
    kind: Kind,
    file_format: Format,
    *,
    job: str | None,
    domain: str | None,
    text: bool,
) -> StreamingResponse:
    """The file as a stream. An invalid request, or one over the limit, is refused before the stream begins."""
    request = ExportRequest(kind, text=text, job=job, domain=domain)
    export.check_request(request)
    archive = factories.archive_reader(services.settings, services.unpooled)
    exporter = Exporter(services.unpooled, services.settings.domains.registrable, archive)
    exporter.expected(request)  # raises NotFound for a job or domain that does not exist
    _slots.acquire(caller.user_id)
    headers = {"Content-Disposition": f'attachment; filename="{kind}.{file_format}"'}
    chunks = _chunks(exporter, f".{file_format}", request)
    return _ExportResponse(caller.user_id, chunks, media_type=MEDIA_TYPES[file_format], headers=headers)


class _ExportResponse(StreamingResponse):
    """Releases its slot however it ends: a stream that was never started has no end of its own. A reader that stalls
    is disconnected."""

    def __init__(self, user_id: int | None, chunks: Iterator[bytes], **options: Any) -> None:
        super().__init__(chunks, **options)
        self._user_id = user_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_timeout(message: Message) -> None:
            async with asyncio.timeout(STALL_TIMEOUT):
                await send(message)

        try:
            await super().__call__(scope, receive, send_with_timeout)
        finally:
            _slots.release(self._user_id)


def _chunks(exporter: Exporter, suffix: str, request: ExportRequest) -> Iterator[bytes]:
    sink = _Sink()
    with closing(exporter.stream(suffix, request, sink)) as steps:
        for _ in steps:
            if chunk := sink.drain():
                yield chunk
    if chunk := sink.drain():
        yield chunk


class _Sink(io.BytesIO):
    """A buffer that a writer appends to, and that the response drains."""

    def __init__(self) -> None:
        super().__init__()
        self._buffered: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._buffered.append(chunk)
        self._position += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self._position

    def drain(self) -> bytes:
        """The bytes written since the last call."""
        chunks, self._buffered = self._buffered, []
        return b"".join(chunks)
