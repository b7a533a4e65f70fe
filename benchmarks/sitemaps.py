"""What a large site's sitemaps cost: URLs a second into the frontier, and the memory of the worker. Prints a table; never a gate.

    python -m benchmarks.sitemaps [--sitemaps 200] [--urls 50000] [--folder /dev/shm] [--hostile]

An index of so many sitemaps with so many URLs each is served from loopback, made while it is sent, and crawled by one worker. Its
robots.txt disallows the listed pages, and the crawl is stopped when all sitemaps are read, so that nothing else is fetched. It is crawled
twice: as a whole, and killed (SIGKILL) at a third and at two thirds of the URLs. Both must end with every URL in the frontier once, and
`holdfast verify` must find nothing. `--hostile` crawls sitemaps without an end and gzip bombs instead, and prints the memory only.
"""

import argparse
import multiprocessing
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from holdfast.db import migrate
from holdfast.testing.torture import checks
from holdfast.testing.torture.process import CrawlProcess, send
from holdfast.testing.torture.sandbox import Sandbox

MEBIBYTE = 1 << 20
POLL = 0.2
PATIENCE = 3600.0
MARKS = (10, 100, 200)
"""Sitemaps after which the memory is printed."""
HOSTILE = ("/maps/bomb.xml", "/maps/packed.xml", "/maps/endless.xml", "/maps/deep.xml")
SETTINGS = {
    "fetch.allow_private": "true",
    "domains.crawl_delay": "0",
    "flush.seconds": "1s",
    "fetch.timeout": "20s",
    "claims.lease": "30s",
    "claims.sweep_interval": "1s",
    "worker.heartbeat": "1s",
}
COUNT = "SELECT count(*), count(lastmod) FROM url_frontier WHERE listed"
READ = "SELECT count(*), COALESCE(sum(entries), 0) FROM sitemaps"


class Handler(BaseHTTPRequestHandler):
    """A site with an index of sitemaps. Before: `sitemaps` and `urls` are set."""

    protocol_version = "HTTP/1.1"
    sitemaps = 0
    urls = 0
    hostile = False

    def do_GET(self) -> None:
        origin = f"http://{self.headers['Host']}"
        if self.path == "/robots.txt":
            self._send(f"User-agent: *\nDisallow: /p/\nSitemap: {origin}/maps/index.xml\n".encode(), "text/plain")
        elif self.path == "/maps/index.xml":
            paths = HOSTILE if self.hostile else [f"/maps/{number}.xml" for number in range(self.sitemaps)]
            locations = "".join(f"<sitemap><loc>{origin}{path}</loc></sitemap>" for path in paths)
            self._send(f"<sitemapindex>{locations}</sitemapindex>".encode(), "application/xml")
        elif self.path in HOSTILE:
            self._send_hostile()
        elif self.path.startswith("/maps/"):
            number = int(self.path.removeprefix("/maps/").removesuffix(".xml"))
            entry = "<url><loc>{}/p/{}/{}</loc><lastmod>2026-0{}-01</lastmod><priority>0.1</priority></url>"
            entries = "".join(entry.format(origin, number, n, 1 + n % 9) for n in range(self.urls))
            self._send(f"<urlset>{entries}</urlset>".encode(), "application/xml")
        else:
            self._send(b"<!doctype html><title>home</title>", "text/html")

    def _send(self, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _send_hostile(self) -> None:
        try:
            if self.path == "/maps/bomb.xml":  # 1 GiB, packed on the way
                self._send(_bomb(), "application/xml", Content_Encoding="gzip")
            elif self.path == "/maps/packed.xml":  # the same as a file
                self._send(_bomb(), "application/x-gzip")
            else:
                self.send_response(200)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                piece = (b"<a>" if self.path == "/maps/deep.xml" else b"<url><!-- nothing --></url>") * 4000
                self._chunk(b"<urlset>")
                while True:
                    self._chunk(piece)
        except OSError:  # the crawler has enough
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, *_args: object) -> None:
        """Log nothing."""


def _bomb() -> bytes:
    """1 GiB of a sitemap that is white space, packed."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    blank = b" " * MEBIBYTE
    return b"".join([packer.compress(b"<urlset>"), *(packer.compress(blank) for _ in range(1024)), packer.flush()])


def _serve(ready: Connection, sitemaps: int, urls: int, hostile: bool) -> None:
    Handler.sitemaps, Handler.urls, Handler.hostile = sitemaps, urls, hostile
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ready.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def served(sitemaps: int, urls: int, *, hostile: bool = False) -> Iterator[str]:
    """The site, in a process of its own; yields the URL of its home page."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_serve, args=(theirs, sitemaps, urls, hostile), daemon=True)
    process.start()
    try:
        yield f"http://localhost:{ours.recv()}/"
    finally:
        process.kill()
        process.join()


@dataclass(slots=True)
class Reading:
    """The reading of all sitemaps, perhaps by several lives of the worker."""

    sandbox: Sandbox
    home: str
    peak: int = 0
    """Bytes: the largest resident memory of a worker."""
    marks: dict[int, int] = field(default_factory=dict)
    """Resident memory of the worker after so many sitemaps."""
    seconds: float = 0.0

    def live(self, until: Callable[[int, int], bool], *, kill: bool) -> None:
        """Crawl until `until(sitemaps read, URLs in the frontier)` is true; then kill the worker, or stop it."""
        database = self.sandbox.database()
        migrate.upgrade(database)
        began = time.monotonic()
        arguments = [
            "crawl",
            self.home,
            "--job",
            "sitemaps",
            "--workers",
            "1",
            "--sitemaps",
            "only",
            "--concurrency",
            "4",
        ]
        crawl = CrawlProcess(
            ["--data", str(self.sandbox.data), *arguments], settings=SETTINGS, folder=self.sandbox.folder
        )
        try:
            with database.session() as connection:
                while crawl.alive and time.monotonic() - began < PATIENCE:
                    time.sleep(POLL)
                    self._measure(crawl.pid)
                    read, entries = connection.execute(READ).fetchone() or (0, 0)
                    for mark in MARKS:
                        if read > mark and mark not in self.marks:  # the index is one of them
                            self.marks[mark] = self._measure(crawl.pid)
                    if until(read, int(entries)):
                        break
            if not kill:
                self.seconds = time.monotonic() - began
                send(crawl.pid, signal.SIGTERM)
                crawl.wait(60)
                print((self.sandbox.folder / "crawl.log").read_text("utf-8"), flush=True)
        finally:
            crawl.kill()

    def _measure(self, pid: int) -> int:
        try:
            resident = int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
        self.peak = max(self.peak, resident)
        return resident

    def problems(self, urls: int) -> list[str]:
        """What is wrong with the store when every sitemap is read."""
        with self.sandbox.database().session() as connection:
            rows, dated = connection.execute(COUNT).fetchone() or (0, 0)
        print(f"{rows:,} URLs in the frontier, each once (its key is unique), {dated:,} with lastmod", flush=True)
        wrong = [] if rows == dated == urls else [f"{urls:,} URLs were listed"]
        return wrong + checks.verify_store(self.sandbox)


def whole(folder: Path, sitemaps: int, urls: int) -> list[str]:
    """Read all sitemaps by one worker."""
    with Sandbox(folder / "whole") as sandbox, served(sitemaps, urls) as home:
        reading = Reading(sandbox, home)
        reading.live(lambda read, _: read > sitemaps, kill=False)
        rate = sitemaps * urls / reading.seconds
        print(f"{sitemaps} sitemaps of {urls:,} URLs in {reading.seconds:.0f} s: {rate:,.0f} URLs a second", flush=True)
        after = ", ".join(f"{size / MEBIBYTE:.0f} after {mark}" for mark, size in reading.marks.items())
        print(f"MiB of memory of the worker: {after}; {reading.peak / MEBIBYTE:.0f} at most", flush=True)
        return reading.problems(sitemaps * urls)


def killed(folder: Path, sitemaps: int, urls: int) -> list[str]:
    """Read them by a worker that is killed twice."""
    with Sandbox(folder / "killed") as sandbox, served(sitemaps, urls) as home:
        reading = Reading(sandbox, home)
        for share in (1, 2):
            reading.live(lambda read, _, share=share: read > share * sitemaps // 3, kill=True)  # type: ignore[misc]
            print(f"killed after about {share * sitemaps // 3} sitemaps", flush=True)
        reading.live(lambda read, _: read > sitemaps, kill=False)
        return reading.problems(sitemaps * urls)


def hostile(folder: Path) -> list[str]:
    """Crawl sitemaps that are without an end, or larger than they seem."""
    with Sandbox(folder / "hostile") as sandbox, served(1, 1, hostile=True) as home:
        reading = Reading(sandbox, home)
        reading.live(lambda _read, _urls: False, kill=False)
        with sandbox.database().session() as connection:
            for row in connection.execute(
                "SELECT url, state::text, reason FROM url_frontier WHERE resource = 'sitemap'"
            ):
                print(row)
            for row in connection.execute("SELECT format, entries, bytes, problem FROM sitemaps"):
                print(row)
        print(f"{reading.seconds:.0f} s, {reading.peak / MEBIBYTE:.0f} MiB of memory of the worker at most", flush=True)
        return checks.verify_store(sandbox)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sitemaps", type=int, default=200)
    parser.add_argument("--urls", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, help="where the data folders are made")
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.folder) as name:
        folder = Path(name)
        folder.chmod(0o755)
        if options.hostile:
            problems = hostile(folder)
        else:
            problems = whole(folder, options.sitemaps, options.urls) + killed(folder, options.sitemaps, options.urls)
    print("\n".join(problems) or "holdfast verify finds nothing", flush=True)
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
