"""Free space on the volumes that this machine writes to, and whether it is enough to crawl.

The rule: reading it costs a system call for each volume and writes nothing, so it also works while the database is away. A state ends only
when there is a tenth more room than at its begin, so that a crawl on the edge does not stop and go.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.model.health import DiskSpace, SpaceState

HYSTERESIS: Final = 1.1
"""A state ends when this many times its bound is free."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class DiskWatch:
    """The volumes of this machine, and their states so far. Used by one thread at a time."""

    def __init__(self, places: Mapping[str, Path], *, min_free: int, warn_free: int) -> None:
        """`places`: what is written (database, archive, logs …), and the folder of each, which need not exist yet. With less than
        `min_free` bytes a volume is full, with less than `warn_free` it is low; 0 switches a bound off."""
        self._places = dict(places)
        self._min_free = min_free
        self._warn_free = warn_free
        self._states: dict[int, SpaceState] = {}

    def look(self) -> list[DiskSpace]:
        """Return each volume with its free space and state, in the order of the places. A folder that cannot be read is left out."""
        found: dict[int, DiskSpace] = {}
        for name, folder in self._places.items():
            try:
                place = existing_folder(folder)
                device, usage = place.stat().st_dev, os.statvfs(place)
            except OSError:
                continue
            if device in found:
                found[device].holds.append(name)
                continue
            free, total = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
            state = next_state(self._states.get(device, "ok"), free, min_free=self._min_free, warn_free=self._warn_free)
            needed = self._min_free if state == "full" else self._warn_free
            found[device] = DiskSpace([name], str(place), total, free, state, needed)
        self._states = {device: one.state for device, one in found.items()}
        return list(found.values())

    def full(self) -> DiskSpace | None:
        """Return the first volume that has too little room to crawl; None: all have enough."""
        return next((one for one in self.look() if one.state == "full"), None)


def next_state(before: SpaceState, free: int, *, min_free: int, warn_free: int) -> SpaceState:
    """Return the state of a volume with `free` bytes that was in the state `before`."""
    if free < min_free * (HYSTERESIS if before == "full" else 1):
        return "full"
    return "low" if free < warn_free * (HYSTERESIS if before != "ok" else 1) else "ok"


def describe(space: DiskSpace, *, where: bool = True) -> str:
    """Say how much room is left on a volume, and how much is needed: a sentence without its end. `where`: with its folder."""
    option = "disk.min_free" if space.state == "full" else "disk.warn_free"
    folder = f" ({space.path})" if where else ""
    *others, last = space.holds
    holds = f"{', '.join(others)} and {last}" if others else last
    return (
        f"the disk of the {holds}{folder} has {in_bytes(space.free_bytes)} free of "
        f"{in_bytes(space.total_bytes)}, less than {in_bytes(space.needed_bytes)} ({option})"
    )


def in_bytes(count: float) -> str:
    """A number of bytes with its unit, in powers of 1000, as the command line writes it."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the closest one above it that exists: what is created below is on its volume."""
    return next((place for place in (folder, *folder.absolute().parents) if place.exists()), folder)
