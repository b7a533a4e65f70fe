"""nginx as a process of its own: unprivileged, on a free port of 127.0.0.1, with a log that judges every crawler."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.acceptance.requirements import program
from tests.support.dynamic_site import Request

_CONFIG: Final = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  include /etc/nginx/mime.types; default_type application/octet-stream; charset utf-8;
  sendfile on; tcp_nopush on; keepalive_requests 1000000; server_names_hash_bucket_size 128;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4;
  scgi_temp_path {folder}/t5;
  log_format judged '$host $msec $status $request_method $request_uri';
  access_log {folder}/access.log judged;
{servers}}}
"""
_SERVER: Final = "  server {{ listen 127.0.0.1:{port}; server_name {name}; {rules} }}\n"
_LINE: Final = re.compile(r"(\S+) (\d+\.\d+) (\d{3}) (\S+) (\S*)")


class Server:
    """nginx with one or several hosts on one port."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self.port = folder, port

    def url(self, host: str = "127.0.0.1") -> str:
        """The address of a host's first page."""
        return f"http://{host}:{self.port}/"

    def requests(self, host: str | None = None, since: float = 0.0) -> list[Request]:
        """All requests, to one host or to all, in the order of their answers."""
        found = [_LINE.fullmatch(line) for line in (self._folder / "access.log").read_text().splitlines()]
        made = [Request(hit[1], float(hit[2]), int(hit[3]), hit[5]) for hit in found if hit]
        return [each for each in made if host in (None, each.host) and each.at >= since]

    def forget(self) -> None:
        """Empty the log."""
        (self._folder / "access.log").write_text("")


@contextmanager
def served(folder: Path, hosts: Mapping[str, str]) -> Iterator[Server]:
    """Serve hosts for as long as the context lasts. `hosts`: name → rules of nginx; the first one answers to any name."""
    binary = program("nginx")
    assert binary
    folder.mkdir(parents=True)
    config = folder / "nginx.conf"
    for _ in range(5):  # a port that is free now may be taken before nginx has it
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        servers = "".join(_SERVER.format(port=port, name=name, rules=rules) for name, rules in hosts.items())
        config.write_text(_CONFIG.format(folder=folder, servers=servers))
        process = subprocess.Popen([binary, "-c", config, "-p", folder], stderr=subprocess.DEVNULL)
        try:
            if _answers(process, port):
                yield Server(folder, port)
                return
        finally:
            process.terminate()
            process.wait()
    raise AssertionError(f"nginx does not start: {(folder / 'error.log').read_text()[-500:]}")


def _answers(process: "subprocess.Popen[bytes]", port: int) -> bool:
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def longest_gap(requests: list[Request]) -> float:
    """The longest time without a request between the first and the last one."""
    times = sorted(request.at for request in requests)
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def static(root: Path) -> str:
    """Rules for a folder of files; a folder without an index page is listed."""
    return f"root {root}; index index.html; autoindex on;"
