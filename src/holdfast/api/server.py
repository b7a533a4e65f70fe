"""The API process: uvicorn on a socket, alone or with a background service in the same event loop.

The rule: on a signal to stop it closes subscriptions, completes running requests, and ends; if it is killed, every
change that it has confirmed is committed.
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

from holdfast.api import app
from holdfast.api.app_services import AppServices
from holdfast.api.http_protocol import ConnectionCounter, HttpProtocol
from holdfast.db.connection import Database
from holdfast.errors import UsageError
from holdfast.settings import Settings

log: Final = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT: Final = 10
"""Seconds that running requests have to complete after the signal to stop."""
_BACKLOG: Final = 2048
"""Connections that the kernel queues before they are accepted."""


class BackgroundService(Protocol):
    """A service that runs in the same event loop as the API."""

    async def run(self) -> None:
        """Work until `stop` is called."""

    def stop(self) -> None:
        """Start nothing new."""


MakeBackgroundService = Callable[[], BackgroundService]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UsageError if the address cannot be used."""
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, kind, protocol, _, address = info
        # With the protocol: asyncio does not set TCP_NODELAY on connections of a socket whose protocol is unknown,
        # and each response takes 40 ms longer.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as problem:
        raise UsageError(
            f"{host}:{port} cannot be used: {problem.strerror}. Choose another address with --host and --port."
        ) from problem
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def uvicorn_config(services: AppServices) -> uvicorn.Config:
    """uvicorn's configuration with the app."""
    web = services.settings.web
    connections = ConnectionCounter(exempt=web.trusted_proxies)
    return uvicorn.Config(
        app.create_app(services),
        loop="none",
        http=cast(
            "type[HttpProtocol]",
            partial(HttpProtocol, head_timeout=web.request_timeout.total_seconds(), connections=connections),
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(web.trusted_proxies),
        forwarded_allow_ips=list(web.trusted_proxies),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
    )


def run(
    settings: Settings,
    database: Database,
    listener: socket.socket,
    *,
    no_auth: bool,
    make_background: MakeBackgroundService | None = None,
    supervised: bool = False,
) -> None:
    """Serve on a socket until a signal to stop. Before: this is the main thread, and the database has the right
    schema."""
    if supervised:
        threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    gc.disable()  # routes and models leave no garbage while they are made
    services = AppServices.open(settings, database, no_auth=no_auth)
    try:
        server = Server(uvicorn_config(services), services)
        gc.freeze()  # routes and models live as long as the process; to traverse them would stop all requests for 60 ms now and then
        gc.enable()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(server, listener, make_background))
    finally:
        services.close()


class Server(uvicorn.Server):
    """Closes subscriptions at once when it stops, since listeners would never disconnect by themselves. It does not
    store signals: uvicorn would raise them again at its end, and that would kill the background service in the middle
    of its work."""

    def __init__(self, config: uvicorn.Config, services: AppServices) -> None:
        super().__init__(config)
        self._office = services

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 — as its parent calls it
        self._office.hub.close()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


async def _serve(server: Server, listener: socket.socket, make_background: MakeBackgroundService | None) -> None:
    restarter = _Restarter(make_background) if make_background is not None else None
    task = asyncio.create_task(restarter.run()) if restarter is not None else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if restarter is not None and task is not None:
            restarter.stop()
            await task


class _Restarter:
    """Runs a background service and restarts it when it fails, so that it cannot take the API down."""

    def __init__(self, make: MakeBackgroundService) -> None:
        self._make = make
        self._service: BackgroundService | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._service = self._make()
                await self._service.run()
            except Exception:
                log.exception("the background service failed and is restarted")
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()
        if self._service is not None:
            self._service.stop()


def _stop_with_supervisor() -> None:
    """Stop when the supervisor is gone, which closes standard input."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
