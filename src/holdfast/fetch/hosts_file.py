"""The names that this machine knows by itself: its hosts file, and localhost.

The rule: what is found here is never asked of a name server. `localhost` and all below it are this machine, whatever the file says
(RFC 6761).
"""

from ipaddress import ip_address
from pathlib import Path
from typing import Final

LOOPBACK: Final = ("127.0.0.1", "::1")
_LARGEST: Final = 16 << 20
"""Bytes of a hosts file that are read: block lists of a million names are in use."""


class Hosts:
    """A hosts file, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._names: dict[str, tuple[str, ...]] = {}

    def look_up(self, name: str) -> tuple[str, ...]:
        """The addresses of *name* (lower case, without a trailing dot); none: it is for the name servers."""
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
                    self._names = read(file.read(_LARGEST))
                self._stamp = stamp
        except OSError:  # a machine without one
            self._stamp, self._names = None, {}


def is_localhost(name: str) -> bool:
    """Whether *name* (lower case, without a trailing dot) is this machine, to whomever asks."""
    return name == "localhost" or name.endswith(".localhost")


def read(text: str) -> dict[str, tuple[str, ...]]:
    """The names of a hosts file's *text* and their addresses, in its order; lines that make no sense are left out."""
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
