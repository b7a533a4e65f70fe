"""Live answers: Server-Sent Events from the hub, for as long as somebody listens and may.

The rule: every event has the id that goes on behind it (`Last-Event-ID`); figures have none, as the next ones replace them. Somebody whose
session ends, or whose key is revoked, is sent home within a quarter of a minute.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Header, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from holdfast.errors import StoreError
from holdfast.model.account import Principal, Role
from holdfast.store import events
from holdfast.store.connect import Database
from holdfast.store.events import Cursor, Event
from holdfast.web.access import ROUTES
from holdfast.web.guard import asked, identify
from holdfast.web.hub import Figures, Hub, Unknown, Wanted, Watch
from holdfast.web.office import Office

MEDIA_TYPE: Final = "text/event-stream"
ALIVE: Final = 15.0
"""Seconds after which a listener hears that the line still holds, and is asked for the session or key again."""
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events as they happen, until one of us hangs up.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=100,
        description="Go on behind this event; browsers send it by themselves when they connect again.",
    ),
]


class Happened(BaseModel):
    """An event."""

    kind: str
    at: str
    job_id: int | None
    domain: str | None
    data: dict[str, Any]


def place(database: Database, last_event_id: str | None = None) -> tuple[Cursor, bool]:
    """Where a listener goes on, and whether what came right behind it may be forgotten already. Raises UsageError.

    Looked up before the answer begins: who has it misses nothing that happens from then on.
    """
    asked = Cursor.parse(last_event_id.strip()) if last_event_id is not None and last_event_id.strip() else None
    with database.session() as connection:
        if asked is None:
            return events.head(connection), False
        # A place that is forgotten, or of another life of the database, leads nowhere: who looks at everything anew begins here.
        return (events.head(connection), True) if events.missed(connection, asked) else (asked, False)


@dataclass(frozen=True, slots=True)
class Shown:
    """Figures that go with a stream: where from, of what, and how they are called."""

    figures: Figures
    key: int
    name: str


def answer(
    request: Request, office: Office, wanted: Wanted, place: tuple[Cursor, bool], shown: Shown | None = None
) -> StreamingResponse:
    """A stream of events and, where they are asked for, of figures. One too many is refused before it begins."""
    who: Principal = request.state.who
    office.hub.take_place(who.user_id)
    headers = {"X-Accel-Buffering": "no"}  # nginx would hold events back
    pieces = _seated(request, office, wanted, place, shown)
    return _Live(office.hub, who.user_id, pieces, headers)


class _Live(StreamingResponse):
    """Gives its place back however it ends: a stream that was never begun has no end of its own."""

    def __init__(self, hub: Hub, user_id: int | None, pieces: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(pieces, media_type=MEDIA_TYPE, headers=headers)
        self._hub = hub
        self._user_id = user_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.give_place_back(self._user_id)


async def _seated(
    request: Request, office: Office, wanted: Wanted, place: tuple[Cursor, bool], shown: Shown | None
) -> AsyncIterator[bytes]:
    after, missed = place
    with office.hub.seat(), shown.figures.watching(shown.key) if shown is not None else nullcontext() as watch:
        yield f"id: {after}\nretry: 2000\n\n".encode()  # who is cut off before the first event goes on from here
        if missed:
            yield _event("reset", '{"detail":"Events behind your last one are forgotten; look at everything again."}')
        if watch is not None:
            await watch.first()
        name = shown.name if shown is not None else ""
        async for piece in _pieces(request, office, office.hub.listen(wanted, after), watch, name):
            yield piece


async def _pieces(
    request: Request, office: Office, source: AsyncIterator[list[Event]], watch: Watch | None, name: str
) -> AsyncIterator[bytes]:
    said = looked = time.monotonic()
    last = ""
    async for found in source:
        now = time.monotonic()
        pieces = [
            _event(event.kind, _happened(event).model_dump_json(ensure_ascii=True), str(event.cursor))
            for event in found
        ]
        if watch is not None and (value := watch.now()) is not Unknown.YET:
            if value is None:
                yield b"".join([*pieces, _event("gone", "{}")])
                return
            text = value.model_dump_json(ensure_ascii=True)
            pieces += [_event(name, text)] if text != last else []
            last = text
        if not pieces and now - said >= ALIVE:
            pieces.append(b": alive\n\n")
        if pieces:
            said = now
            yield b"".join(pieces)
        if now - looked >= ALIVE:
            looked = now
            if not await run_in_threadpool(_may_still, request, office):
                return


def _may_still(request: Request, office: Office) -> bool:
    route = request.scope["route"]
    try:
        who = identify(office, asked(request))
    except StoreError:  # nobody can tell; the next time somebody can
        return True
    return who.role is not Role.ANONYMOUS and ROUTES[f"{request.method} {route.path_format}"].allows(who)


def _happened(event: Event) -> Happened:
    return Happened(
        kind=event.kind,
        at=event.at.isoformat().replace("+00:00", "Z"),
        job_id=event.job_id,
        domain=event.domain,
        data=event.data,
    )


def _event(name: str, data: str, number: str | None = None) -> bytes:
    """As the standard writes it. The data is JSON in ASCII on one line: nothing in it can end the event."""
    first = f"id: {number}\n" if number else ""
    return f"{first}event: {name}\ndata: {data}\n\n".encode()
