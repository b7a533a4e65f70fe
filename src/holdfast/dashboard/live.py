"""Live pages: regions of a page that are rendered again on the server and sent to browsers as they change.

The rule: an open page makes no requests of its own. A view (a page with its parameters) is read twice a second for all browsers that show
it, and at most a tenth of the time is spent on it; a region is sent only when its HTML changed. Regions have no forms: they are the same
for all viewers of a role.
"""

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from holdfast.api import sse
from holdfast.api.app_services import AppServices
from holdfast.api.event_hub import Missing, SnapshotPoller
from holdfast.dashboard.rendering import query, render
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.auth import Principal, Role

log: Final = logging.getLogger(__name__)

INTERVAL: Final = 0.5
"""Seconds between two looks at a view."""
SHARE: Final = 10
"""A view rests for this many times as long as it took to read."""
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

    def render(self, services: AppServices, parameters: Parameters, *, is_admin: bool) -> dict[str, str]:
        """Read the values and render all regions."""
        values = {**self.read(services, parameters), "is_admin": is_admin}
        return {region: render(template, values) for region, template in self.regions.items()}


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


@dataclass(slots=True)
class _Rendered:
    regions: dict[str, str] | None
    """None: what the view shows no longer exists."""
    due: float


class LiveRegions:
    """The regions of all views that browsers show, read and rendered once for all of them."""

    def __init__(self, services: AppServices) -> None:
        self._services = services
        self._rendered: dict[ViewKey, _Rendered] = {}
        self.poller = SnapshotPoller(self.lookup, INTERVAL)

    def lookup(self, keys: Collection[ViewKey]) -> Mapping[ViewKey, dict[str, str]]:
        """Return the regions of these views, rendered anew where that is due. Runs in a thread, one at a time."""
        self._rendered = {key: known for key, known in self._rendered.items() if key in set(keys)}
        for key in keys:
            known = self._rendered.get(key)
            if known is None or time.monotonic() >= known.due:
                self._refresh(key, known)
        return {
            key: known.regions
            for key in keys
            if (known := self._rendered.get(key)) is not None and known.regions is not None
        }

    def _refresh(self, key: ViewKey, known: _Rendered | None) -> None:
        started = time.monotonic()
        regions = None if known is None else known.regions
        try:
            regions = VIEWS[key.view].render(self._services, dict(key.parameters), is_admin=key.is_admin)
        except NotFound:
            regions = None
        except HoldfastError as problem:
            log.warning("the live view %s waits: %s", key.view, problem)
            if regions is None:
                return
        ended = time.monotonic()
        self._rendered[key] = _Rendered(regions, ended + (SHARE - 1) * (ended - started))


def view_key(view: str, caller: Principal, parameters: Parameters) -> ViewKey:
    """The key of a view for a caller. Raises NotFound for an unknown view, or one with too many parameters."""
    if view not in VIEWS or len(parameters) > _MAX_PARAMETERS:
        raise NotFound("There is no such live view.")
    return ViewKey(view, tuple(sorted(parameters.items())), caller.role is Role.ADMIN)


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
    poller = regions_of(services).poller
    sent: dict[str, str] = {}
    last_sent = last_checked = time.monotonic()
    with poller.subscribe(key) as subscription:
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
            if now - last_checked >= sse.KEEPALIVE:
                last_checked = now
                if not await run_in_threadpool(sse.still_permitted, request, services):
                    yield sse.encode_frame("logged-out", "{}")
                    return
            await poller.wait_for_next()
