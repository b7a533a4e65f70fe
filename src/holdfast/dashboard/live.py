"""Live pages: regions of a page that are rendered again on the server and sent to browsers as they change.

The rule: an open page makes no requests of its own. A view (a page with its parameters) is read every `INTERVAL` for all browsers that
show it, and at most a quarter of the time is spent on it; views are read one after the other. What moves is read in one statement where it
matters (the overview, a job), and what moves slowly every `SLOW_INTERVAL`, so that open pages send less than 5 % of the statements of a
crawl. A region is sent only when its HTML changed. Regions have no forms: they are the same for all viewers of a role.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from holdfast.api import sse
from holdfast.api.app_services import AppServices
from holdfast.api.auth import credentials_of
from holdfast.api.event_hub import Missing, SnapshotPoller, Subscription
from holdfast.dashboard.rendering import query, render
from holdfast.errors import NotFound
from holdfast.model.auth import Principal, Role

INTERVAL: Final = 0.7
"""Seconds from one read of a view to the next: with the time of a reading and of the way to the browser it stays below a second."""
SLOW_INTERVAL: Final = 10.0
"""Seconds from one read to the next of what moves slowly: charts, errors by cause, domains by status, depths, URLs not crawled."""
SHARE: Final = 4
"""A view is read for at most one part in this many of the time: one that takes 0.2 s is still shown within a second."""
_MAX_PARAMETERS: Final = 20

Parameters = Mapping[str, str]
Read = Callable[[AppServices, Parameters], Mapping[str, Any]]
"""Returns the values of the templates of a view. Raises NotFound if what it shows no longer exists."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """A page whose regions are sent again as they change."""

    name: str
    read: Read
    regions: Mapping[str, str]
    """The id of the element of each region, and the template of its content."""

    def address(self, parameters: Parameters) -> str:
        """The address of its stream."""
        return query(f"/live/{self.name}", **parameters)

    def render(self, values: Mapping[str, Any], *, is_admin: bool) -> dict[str, str]:
        """Render all regions with the values that `read` returned."""
        return {region: render(template, {**values, "is_admin": is_admin}) for region, template in self.regions.items()}


VIEWS: Final[dict[str, LiveView]] = {}
"""All live views, by name; each page module adds its own."""


def live_view(name: str, read: Read, regions: Mapping[str, str]) -> LiveView:
    """Register a view."""
    VIEWS[name] = LiveView(name, read, regions)
    return VIEWS[name]


@dataclass(frozen=True, slots=True)
class ViewKey:
    """What listeners have in common who are sent the same regions."""

    view: str
    parameters: tuple[tuple[str, str], ...]
    is_admin: bool

    @property
    def values(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What listeners have in common whose regions are made of the same values."""
        return self.view, self.parameters


class LiveRegions:
    """The regions of the views that browsers show, each read and rendered once for all of them. For one event loop."""

    def __init__(self, services: AppServices) -> None:
        self._services = services
        self._turns = asyncio.Semaphore()
        self._pollers: dict[Hashable, SnapshotPoller] = {}
        """By `ViewKey.values`."""
        self._checks: dict[Hashable, tuple[int, asyncio.Task[bool]]] = {}
        """Whether the caller of a stream may still read it, by credentials and route: as of which period, and the answer."""

    @contextmanager
    def subscribe(self, key: ViewKey) -> Iterator[Subscription]:
        """Subscribe to the regions of a view; they are read inside this context."""
        poller = self._pollers.get(key.values)
        if poller is None:
            poller = SnapshotPoller(self._lookup, INTERVAL, share=SHARE, turns=self._turns)
            self._pollers[key.values] = poller
        try:
            with poller.subscribe(key) as subscription:
                yield subscription
        finally:
            if not poller.is_watched and self._pollers.get(key.values) is poller:
                del self._pollers[key.values]

    @property
    def is_watched(self) -> bool:
        """Whether a stream is open."""
        return bool(self._pollers)

    def latest(self, key: ViewKey) -> Mapping[str, str]:
        """The regions of a view, once: as they were just read for a stream, or read now. From any thread. Raises NotFound."""
        poller = self._pollers.get(key.values)
        found = poller.latest(key, max_age=3 * INTERVAL) if poller is not None else None
        return found if found is not None else self._read(key)

    async def still_permitted(self, request: Request) -> bool:
        """Whether the caller of a stream may still read it. It is asked once in `KEEPALIVE` for all streams with the same credentials."""
        period = int(time.monotonic() // sse.KEEPALIVE)
        asked = (credentials_of(request), request.scope["route"].path_format)
        known = self._checks.get(asked)
        if known is None or known[0] != period:
            self._checks = {key: check for key, check in self._checks.items() if check[0] == period}
            check = asyncio.create_task(run_in_threadpool(sse.still_permitted, request, self._services))
            known = self._checks[asked] = (period, check)
        return await asyncio.shield(known[1])

    def _lookup(self, keys: Collection[ViewKey]) -> Mapping[ViewKey, dict[str, str]]:
        """Read the values of these views once, and render them; what no longer exists is left out. They differ in the role only."""
        found = {}
        with suppress(NotFound):
            values = None
            for key in keys:
                values = values or VIEWS[key.view].read(self._services, dict(key.parameters))
                found[key] = VIEWS[key.view].render(values, is_admin=key.is_admin)
        return found

    def _read(self, key: ViewKey) -> dict[str, str]:
        view = VIEWS[key.view]
        return view.render(view.read(self._services, dict(key.parameters)), is_admin=key.is_admin)


def view_key(view: str, caller: Principal, parameters: Parameters) -> ViewKey:
    """The key of a view for a caller. Raises NotFound for an unknown view, or one with too many parameters."""
    if view not in VIEWS or len(parameters) > _MAX_PARAMETERS:
        raise NotFound("There is no such live view.")
    return ViewKey(view, tuple(sorted(parameters.items())), caller.role is Role.ADMIN)


def id_of(parameters: Parameters) -> int:
    """Return the id in the parameters of a view. Raises NotFound if it is none."""
    given = parameters.get("id", "")
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise NotFound("What the page is about has no such id.")
    return int(given)


def regions_of(services: AppServices) -> LiveRegions:
    """The live regions of a process."""
    known = services.dashboard
    if known is None:
        known = services.dashboard = LiveRegions(services)
    assert isinstance(known, LiveRegions)  # noqa: S101 — only this function sets it
    return known


def stream(request: Request, services: AppServices, key: ViewKey) -> sse.EventStream:
    """Stream the regions of a view. Raises TooMany before it begins if all slots are taken."""
    caller: Principal = request.state.caller
    services.hub.reserve_slot(caller.user_id)
    frames = _frames(request, services, key)
    return sse.EventStream(services.hub, caller.user_id, frames, {"X-Accel-Buffering": "no"})


async def _frames(request: Request, services: AppServices, key: ViewKey) -> AsyncIterator[bytes]:
    sent: dict[str, str] = {}
    last_sent = last_checked = time.monotonic()
    live = regions_of(services)
    with live.subscribe(key) as subscription:
        yield b"retry: 1000\n\n"
        await subscription.wait_for_first()
        while not services.hub.closing:
            now = time.monotonic()
            regions = subscription.value()
            if regions is None:
                yield sse.encode_frame("gone", "{}")
                return
            changed = (
                {}
                if regions is Missing.NOT_POLLED
                else {name: html for name, html in regions.items() if sent.get(name) != html}
            )
            if changed:
                sent |= changed
                last_sent = now
                yield sse.encode_frame("regions", json.dumps(changed))
            elif now - last_sent >= sse.KEEPALIVE:
                last_sent = now
                yield b": alive\n\n"
            if now // sse.KEEPALIVE > last_checked // sse.KEEPALIVE:
                last_checked = now
                if not await live.still_permitted(request):
                    yield sse.encode_frame("logged-out", "{}")
                    return
            await subscription.poller.wait_for_next()
