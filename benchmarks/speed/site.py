"""A site of plain files, and the server that hands it out.

The rule: the same seed makes the same bytes, every page can be reached from the first, and the server's own log is what counts pages.
"""

import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PAGE_BYTES = 20_000
SECTION = 500
"""Pages in a folder."""
CHILDREN = 8
RANDOM_LINKS = 20
PARAGRAPHS = 3000
_LINE = re.compile(r"(\S+) (\d+\.\d+) (\d{3}) (\S+)")

NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  types {{ text/html html; text/plain txt; }}
  default_type text/html; charset utf-8; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4;
  scgi_temp_path {folder}/t5;
  log_format short '$server_addr $msec $status $uri';
  access_log {folder}/access.log short buffer=64k flush=200ms;
{servers}}}
"""
SERVER = "  server {{ listen {address}:{port}; root {root}; }}\n"


def generate(folder: Path, pages: int, seed: int) -> Path:
    """A site of so many pages in `folder`, made once; the folder."""
    done = folder / ".done"
    key = f"{pages} {seed} {PAGE_BYTES} 2"
    if done.exists() and done.read_text() == key:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    dice = random.Random(seed)
    words = ["".join(dice.choices("aeioustrnlmdpkb", k=dice.randint(2, 10))) for _ in range(2000)]
    pool = [f"<p>{' '.join(dice.choices(words, k=60)).capitalize()}.</p>\n" for _ in range(PARAGRAPHS)]
    for first in range(0, pages, SECTION):
        (folder / path_of(first, words)[1:]).parent.mkdir(parents=True)
        for number in range(first, min(first + SECTION, pages)):
            (folder / path_of(number, words)[1:]).write_text(_page(number, pages, words, pool, dice))
    (folder / "index.html").write_text(_page(0, pages, words, pool, dice))
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private/\nDisallow: /*?session=\n")
    done.write_text(key)
    return folder


def path_of(number: int, words: Sequence[str]) -> str:
    """Of a page: words, as sites have them; thousands of numbers would look like a trap."""
    section, place = divmod(number, SECTION)
    rest = number
    letters = ""
    while rest or not letters:
        rest, letter = divmod(rest, 26)
        letters += chr(97 + letter)
    return f"/{words[section]}-{words[-section - 1]}/{words[place]}-{words[number % len(words)]}-{letters}.html"


def _page(number: int, pages: int, words: Sequence[str], pool: Sequence[str], dice: random.Random) -> str:
    first = number * CHILDREN + 1
    children = range(first, min(first + CHILDREN, pages))
    others = [dice.randrange(pages) for _ in range(RANDOM_LINKS)]
    navigation = "".join(f'<li><a href="{path_of(n, words)}">{words[n]}</a></li>\n' for n in range(min(10, pages)))
    links = "".join(
        f'<li><a class="more" href="{path_of(n, words)}">{words[n % 2000]} {n}</a></li>\n' for n in (*children, *others)
    )
    start = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Page {number} {words[number % 2000]}</title>\n'
        f'<meta name="description" content="About {words[(number + 7) % 2000]}">\n<link rel="stylesheet" href="/style.css">\n'
        f'</head><body class="page"><nav><ul>\n{navigation}</ul></nav><main id="content"><h1>Page {number}</h1>\n'
        f'<img src="/img/{number}.png" alt="{words[number % 2000]}"><ul>\n{links}</ul>\n'
    )
    end = (
        '<p><a href="https://elsewhere.example/">Elsewhere</a> <a href="#content">Top</a>'
        ' <a href="mailto:a@b.example">Mail</a></p></main></body></html>\n'
    )
    body = []
    room = PAGE_BYTES - len(start) - len(end)
    while room > 0:
        body.append(dice.choice(pool))
        room -= len(body[-1])
    return start + "".join(body) + end


class Server:
    """nginx on one core, with one or several hosts: addresses of loopback."""

    def __init__(self, folder: Path, roots: Sequence[Path], core: int, port: int) -> None:
        self._folder, self._core, self._port = folder, core, port
        self._roots = {f"127.0.0.{place + 1}": root for place, root in enumerate(roots)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def urls(self) -> list[str]:
        """Where each host begins."""
        return [f"http://{address}:{self._port}/" for address in self._roots]

    def start(self) -> None:
        """After: it answers, and its log is empty. RuntimeError: another server has its port."""
        for address in self._roots:
            with suppress(OSError):
                socket.create_connection((address, self._port), timeout=1).close()
                raise RuntimeError(f"something else listens at {address}:{self._port}: its pages would be measured")
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        servers = "".join(SERVER.format(address=a, port=self._port, root=r.resolve()) for a, r in self._roots.items())
        config = self._folder / "nginx.conf"
        config.write_text(NGINX.format(folder=self._folder.resolve(), servers=servers))
        command = [
            "taskset",
            "-c",
            str(self._core),
            program,
            "-c",
            str(config.resolve()),
            "-p",
            str(self._folder.resolve()),
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection((next(iter(self._roots)), self._port), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"nginx does not start; see {self._folder / 'error.log'}") from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """After: it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()

    def pages(self, since: float) -> list[tuple[float, str]]:
        """When each page was had for the first time, and which, since a moment; other files do not count.

        RuntimeError: the server failed, and whatever was measured is not the crawler's speed.
        """
        time.sleep(0.3)  # the log is flushed every 200 ms
        seen: dict[str, float] = {}
        if b" 500 " in (self._folder / "access.log").read_bytes():
            raise RuntimeError(f"the server failed; see {self._folder / 'error.log'}")
        with (self._folder / "access.log").open() as lines:
            for line in lines:
                if (
                    (hit := _LINE.match(line))
                    and hit[3] == "200"
                    and hit[4].endswith(".html")
                    and float(hit[2]) >= since
                ):
                    seen.setdefault(hit[1] + hit[4], float(hit[2]))
        return sorted((at, url) for url, at in seen.items())


@contextmanager
def served(folder: Path, roots: Sequence[Path], *, core: int = 0, port: int = 8960) -> Iterator[Server]:
    """A server for as long as it is needed."""
    server = Server(folder, roots, core, port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
