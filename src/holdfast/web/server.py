"""The API as a process: uvicorn on a socket, alone or with the background in the same event loop.

The rule: told to stop, it sends listeners home, answers what it has begun, and ends; killed, it has promised nothing that is not done.
"""

import asyncio
import gc
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Final, Protocol, cast

import uvicorn
import uvloop

from holdfast.errors import UsageError
from holdfast.settings import Settings
from holdfast.store.connect import Database
from holdfast.web import app
from holdfast.web.line import Connected, Line
from holdfast.web.office import Office

log: Final = logging.getLogger(__name__)

GRACE: Final = 10
"""Seconds that requests have to end when it is told to stop."""
_WAITING: Final = 2048
"""Connections that the system may hold back for us."""


class Companion(Protocol):
    """What runs beside the API in the same event loop."""

    async def run(self) -> None:
        """Work until told to stop."""

    def stop(self) -> None:
        """Begin nothing more."""


Beside = Callable[[], Companion]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises UsageError if it cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, kind, protocol, _, address = found
        # With its protocol: who accepts on a socket of an unknown one does not switch Nagle's delay off, and each answer takes 40 ms more.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_WAITING)
    except OSError as problem:
        raise UsageError(
            f"{host}:{port} cannot be listened at: {problem.strerror}. Choose another with --host and --port."
        ) from problem
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def configured(office: Office) -> uvicorn.Config:
    """The app and how it is served."""
    web = office.settings.web
    connected = Connected(exempt=web.trusted_proxies)
    return uvicorn.Config(
        app.make(office),
        loop="none",
        http=cast("type[Line]", partial(Line, patience=web.request_timeout.total_seconds(), connected=connected)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(web.trusted_proxies),
        forwarded_allow_ips=list(web.trusted_proxies),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
    )


def run(
    settings: Settings,
    database: Database,
    listener: socket.socket,
    *,
    no_auth: bool,
    beside: Beside | None = None,
    supervised: bool = False,
) -> None:
    """Serve on a socket until told to stop. Before: main thread, the schema is the right one."""
    if supervised:
        threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    office = Office.open(settings, database, no_auth=no_auth)
    try:
        server = Server(configured(office), office)
        gc.freeze()  # routes and models stay for ever; to look through them would stop every request for 60 ms now and then
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(server, listener, beside))
    finally:
        office.close()


class Server(uvicorn.Server):
    """Tells the office at once that it ends, since listeners would never hang up by themselves. It does not remember signals: uvicorn
    would raise them again when it has ended, and that would kill what runs beside it in the middle of its work."""

    def __init__(self, config: uvicorn.Config, office: Office) -> None:
        super().__init__(config)
        self._office = office

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 — as its parent calls it
        self._office.hub.close()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


async def _serve(server: Server, listener: socket.socket, beside: Beside | None) -> None:
    place = _Place(beside) if beside is not None else None
    companion = asyncio.create_task(place.keep()) if place is not None else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if place is not None and companion is not None:
            place.stop()
            await companion


class _Place:
    """Where a companion works. One that fails gets a successor: it must not take the API down with it."""

    def __init__(self, make: Beside) -> None:
        self._make = make
        self._companion: Companion | None = None
        self._over = asyncio.Event()

    async def keep(self) -> None:
        while not self._over.is_set():
            try:
                self._companion = self._make()
                await self._companion.run()
            except Exception:
                log.exception("the background begins again")
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._over.wait()

    def stop(self) -> None:
        self._over.set()
        if self._companion is not None:
            self._companion.stop()


def _stop_with_supervisor() -> None:
    """Standard input ends when the supervisor is gone."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
