"""Host names that resolve without DNS: the hosts file and localhost.

The rule: a name found here is never sent to a name server. `localhost` and its subdomains are this machine, whatever the file says
(RFC 6761).
"""

from ipaddress import ip_address
from pathlib import Path
from typing import Final

LOOPBACK: Final = ("127.0.0.1", "::1")
_MAX_BYTES: Final = 16 << 20
"""Bytes read of a hosts file; block lists of a million names fit."""


class HostsFile:
    """A hosts file, reloaded when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._names: dict[str, tuple[str, ...]] = {}

    def lookup(self, name: str) -> tuple[str, ...]:
        """The addresses of *name* (lower case, without a trailing dot); empty: not in the file."""
        if is_localhost(name):
            return LOOPBACK
        self._refresh()
        return self._names.get(name, ())

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                with self._path.open(encoding="utf-8", errors="replace") as file:
                    self._names = parse_hosts(file.read(_MAX_BYTES))
                self._stamp = stamp
        except OSError:  # the machine has no hosts file
            self._stamp, self._names = None, {}


def is_localhost(name: str) -> bool:
    """Whether *name* (lower case, without a trailing dot) is localhost or below it."""
    return name == "localhost" or name.endswith(".localhost")


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a hosts file into names and their addresses, in its order; invalid lines are skipped."""
    names: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *aliases = line.partition("#")[0].split() or [""]
        try:
            ip_address(address)
        except ValueError:
            continue
        for alias in aliases:
            name = alias.lower().removesuffix(".")
            if address not in names.get(name, ()):
                names[name] = (*names.get(name, ()), address)
    return names
