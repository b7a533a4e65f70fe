"""Requests through proxies: sites, proxies and a client that trust each other, all on loopback."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.fetch.http_client import HttpClient
from holdfast.model.proxy import Protocol, ProxyRoute, ProxyServer
from holdfast.testing.simweb.proxy import Proxy
from holdfast.testing.simweb.proxy_log import read_log
from holdfast.testing.simweb.proxy_protocol import close_writer
from tests.support.web import Answer, Certificate, Web, client, response

SITE = "site.example"
PROXY = "proxy.example"
NAMES = (SITE, PROXY, "localhost")
PROTOCOLS = tuple(str(each) for each in Protocol)
PASSWORD = "s3cret-of-the-proxy"
PAGES: Mapping[str, Answer] = {"/": response(b"hi")}


def certificate(folder: Path) -> Certificate:
    """For sites and proxies alike."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    names = ",".join([*(f"DNS:{name}" for name in NAMES), "IP:127.0.0.1"])
    wanted = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2"]
    files = ["-keyout", str(made.key), "-out", str(made.file)]
    subprocess.run(
        [openssl, "req", *wanted, "-subj", f"/CN={SITE}", "-addext", f"subjectAltName={names}", *files],
        check=True,
        capture_output=True,
    )
    return made


def route(
    port: int,
    protocol: str = "http",
    *,
    user: str | None = None,
    password: str | None = None,
    host: str = "127.0.0.1",
    allow_private: bool = True,
    resolves: bool = False,
) -> ProxyRoute:
    """A way through the proxy that listens there."""
    server = ProxyServer(Protocol(protocol), host, port, user)
    return ProxyRoute(1, server, password, allow_private=allow_private, resolves=resolves)


class Site(Web):
    """A server whose connections are closed when it is: through TLS that takes more than a moment."""

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super()._talk(reader, writer)
        finally:
            await close_writer(writer)


class Ground:
    """A site with and one without TLS, a client, and proxies as they are asked for."""

    def __init__(self, folder: Path, certified: Certificate, one: HttpClient, plain: Web, tls: Web) -> None:
        self.client, self.plain, self.tls = one, plain, tls
        self._folder, self._certificate, self._proxies = folder, certified, 0

    def web(self, scheme: str) -> Web:
        return self.tls if scheme == "https" else self.plain

    def url(self, scheme: str, path: str = "/", host: str = SITE) -> str:
        return self.web(scheme).url(path, host)

    @asynccontextmanager
    async def proxy(self, protocol: str = "http", **more: Any) -> AsyncIterator["Watched"]:
        """A proxy of ours that knows where the sites are."""
        self._proxies += 1
        log = self._folder / f"proxy{self._proxies}.log"
        tls = self._certificate.context() if protocol == "https" else None
        hosts = {SITE: "127.0.0.1", **more.pop("hosts", {})}
        async with Proxy(protocol=protocol, log=log, tls=tls, hosts=hosts, **more) as made:
            yield Watched(made, log)


class Watched:
    """A proxy that runs, and what it says of itself."""

    def __init__(self, proxy: Proxy, log: Path) -> None:
        self.proxy, self._log = proxy, log
        self.behave = proxy.behave

    @property
    def port(self) -> int:
        return self.proxy.address[1]

    def log(self) -> list[dict[str, Any]]:
        return read_log(self._log)

    def route(self, protocol: str | None = None, **more: Any) -> ProxyRoute:
        return route(self.port, protocol or self.proxy.protocol, **more)


@asynccontextmanager
async def ground(
    folder: Path,
    certified: Certificate,
    pages: Mapping[str, Answer] = PAGES,
    *,
    hosts: str = f"127.0.0.1 {SITE} {PROXY}",
    **settings: Any,
) -> AsyncIterator[Ground]:
    """*hosts*: the hosts file of the client."""
    (folder / "hosts").write_text(hosts)
    async with (
        Site(pages) as plain,
        Site(pages, tls=certified.context()) as tls,
        client(hosts_file=folder / "hosts", ca_file=str(certified.file), **settings) as one,
    ):
        yield Ground(folder, certified, one, plain, tls)
