"""Server-Sent Events from the hub, for as long as the client listens and is permitted to.

The rule: every event has the id to resume after (`Last-Event-ID`); snapshots have none, as the next one replaces
them. The stream of a caller whose session ends, or whose key is revoked, is closed within 15 seconds.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final

from fastapi import Header, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from holdfast.api.app_services import AppServices
from holdfast.api.auth import authenticate, credentials_of
from holdfast.api.event_hub import EventFilter, EventHub, Missing, SnapshotPoller, Subscription
from holdfast.api.permissions import ROUTES
from holdfast.api.responses import dump_json
from holdfast.db import events
from holdfast.db.connection import Database
from holdfast.db.events import Cursor, Event
from holdfast.errors import StoreError
from holdfast.model.auth import Principal, Role
from holdfast.model.json_values import utc_text

MEDIA_TYPE: Final = "text/event-stream"
KEEPALIVE: Final = 15.0
"""Seconds after which a silent stream gets a comment, and the session or key is checked again."""
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


class EventData(BaseModel):
    """The data of an event."""

    kind: str
    at: str
    job_id: int | None
    domain: str | None
    data: dict[str, Any]


def start_position(database: Database, last_event_id: str | None = None) -> tuple[Cursor, bool]:
    """The cursor that a listener resumes after, and whether events after its last one may have been deleted. Raises
    UsageError.

    It is read before the response begins, so that the listener misses nothing that happens from then on.
    """
    cursor = Cursor.parse(last_event_id.strip()) if last_event_id is not None and last_event_id.strip() else None
    with database.session() as connection:
        if cursor is None:
            return events.latest_cursor(connection), False
        # A cursor that was deleted, or is of another life of the database, leads nowhere: the stream starts at the
        # head, with a reset.
        return (events.latest_cursor(connection), True) if events.has_gap(connection, cursor) else (cursor, False)


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """The snapshots in a stream: their poller, the key of the value, and the name of the event."""

    poller: SnapshotPoller
    key: int
    name: str


def stream_response(
    request: Request,
    services: AppServices,
    event_filter: EventFilter,
    start: tuple[Cursor, bool],
    snapshots: SnapshotSource | None = None,
) -> StreamingResponse:
    """A stream of events and, with `snapshots`, of snapshots. Raises TooMany before it begins if all slots are taken."""
    caller: Principal = request.state.caller
    services.hub.reserve_slot(caller.user_id)
    headers = {"X-Accel-Buffering": "no"}  # otherwise nginx buffers events
    frames = _stream(request, services, event_filter, start, snapshots)
    return EventStream(services.hub, caller.user_id, frames, headers)


class EventStream(StreamingResponse):
    """A stream of events with a slot of the hub. Before: the slot is reserved. It is released however the stream ends: one that was never
    started has no end of its own."""

    def __init__(
        self, hub: EventHub, user_id: int | None, frames: AsyncIterator[bytes], headers: Mapping[str, str]
    ) -> None:
        super().__init__(frames, media_type=MEDIA_TYPE, headers=headers)
        self._hub = hub
        self._user_id = user_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.release_slot(self._user_id)


async def _stream(
    request: Request,
    services: AppServices,
    event_filter: EventFilter,
    start: tuple[Cursor, bool],
    snapshots: SnapshotSource | None,
) -> AsyncIterator[bytes]:
    after, missed = start
    with (
        services.hub.subscribed(),
        snapshots.poller.subscribe(snapshots.key) if snapshots is not None else nullcontext() as subscription,
    ):
        yield f"id: {after}\nretry: 2000\n\n".encode()  # a client that disconnects before the first event resumes from here
        if missed:
            yield encode_frame(
                "reset", '{"detail":"Events behind your last one are forgotten; look at everything again."}'
            )
        if subscription is not None:
            await subscription.wait_for_first()
        name = snapshots.name if snapshots is not None else ""
        async for frame in _frames(request, services, services.hub.stream(event_filter, after), subscription, name):
            yield frame


async def _frames(
    request: Request,
    services: AppServices,
    source: AsyncIterator[list[Event]],
    subscription: Subscription | None,
    name: str,
) -> AsyncIterator[bytes]:
    last_sent = last_checked = time.monotonic()
    last = ""
    async for found in source:
        now = time.monotonic()
        frames = [
            encode_frame(event.kind, dump_json(_event_data(event), ensure_ascii=True), str(event.cursor))
            for event in found
        ]
        if subscription is not None and (value := subscription.value()) is not Missing.NOT_POLLED:
            if value is None:
                yield b"".join([*frames, encode_frame("gone", "{}")])
                return
            text = dump_json(value, ensure_ascii=True)
            frames += [encode_frame(name, text)] if text != last else []
            last = text
        if not frames and now - last_sent >= KEEPALIVE:
            frames.append(b": alive\n\n")
        if frames:
            last_sent = now
            yield b"".join(frames)
        if now - last_checked >= KEEPALIVE:
            last_checked = now
            if not await run_in_threadpool(still_permitted, request, services):
                return


def still_permitted(request: Request, services: AppServices) -> bool:
    """Whether the caller of a stream may still read it: its session has not ended, its key was not revoked."""
    route = request.scope["route"]
    try:
        caller = authenticate(services, credentials_of(request))
    except StoreError:  # it is checked again next time
        return True
    return caller.role is not Role.ANONYMOUS and ROUTES[f"{request.method} {route.path_format}"].allows(caller)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _event_data(event: Event) -> EventData:
    return EventData(
        kind=event.kind,
        at=utc_text(event.at),
        job_id=event.job_id,
        domain=event.domain,
        data=event.data,
    )


def encode_frame(name: str, data: str, event_id: str | None = None) -> bytes:
    """One event in the format of the standard. The data is JSON in ASCII on one line: nothing in it can end the
    event."""
    prefix = f"id: {event_id}\n" if event_id else ""
    return f"{prefix}event: {name}\ndata: {data}\n\n".encode()
