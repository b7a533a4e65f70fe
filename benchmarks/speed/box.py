"""One crawler in a time box: pages by the server's log, CPU, memory and disk by the machine.

The rule: the server has one core, the crawler and everything that it needs (its database too) the other; the clock runs from the first
page, so that nobody pays for the start of a program.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.speed.contenders import Contender
from benchmarks.speed.site import Server

SERVER_CORE, CRAWLER_CORE = 0, 1
LOOK = 0.25
FIRST_PAGE = 60.0
"""Seconds in which a crawler has asked for a page, or is given up."""
STOP = 30.0


@dataclass
class Figures:
    """What a box showed."""

    name: str
    pages: int
    seconds: float
    cpu: float
    """Seconds of CPU, of all its processes."""
    memory: int
    """Bytes, at the most: proportional set size of all its processes."""
    disk: int
    """Bytes more than before the first page."""
    said: str = ""
    finished: bool = field(default=False)

    @property
    def rate(self) -> float:
        """Pages a second."""
        return self.pages / self.seconds if self.seconds else 0.0

    @property
    def cost(self) -> float:
        """Milliseconds of CPU a page."""
        return self.cpu / self.pages * 1000 if self.pages else 0.0


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """What is started in here stays on that core, with all that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run(contender: Contender, server: Server, seconds: float) -> Figures:
    """Let it crawl for so long from its first page on."""
    folder = contender.folder
    folder.mkdir(parents=True)
    with pinned(CRAWLER_CORE):
        contender.prepare()
    since = time.time()
    with (folder / "output").open("wb") as output, pinned(CRAWLER_CORE):
        process = subprocess.Popen(
            contender.command(server.urls),
            cwd=folder,
            env={**os.environ, **contender.environment()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        first = first_page(server, since, process)
        disk, meter = _bytes_in(folder), _Meter()
        while process.poll() is None and time.time() < first + seconds:
            time.sleep(LOOK)
            meter.look()
        ended = min(time.time(), first + seconds)
        finished = process.poll() is not None
    finally:
        stop(process)
    pages = [at for at, _ in server.pages(since) if at <= ended]
    grown = _bytes_in(folder) - disk
    with pinned(CRAWLER_CORE):
        said = contender.afterwards()
    took = (pages[-1] if finished else ended) - pages[0] if len(pages) > 1 else 0.0
    return Figures(contender.name, len(pages), took, meter.cpu, meter.memory, grown, said, finished)


class _Meter:
    """Adds up the processes on the crawler's core."""

    def __init__(self) -> None:
        self._cpu: dict[tuple[int, float], float] = {}
        self._start: dict[tuple[int, float], float] = {}
        self.memory = 0
        self._looks = 0
        self.look()
        self._start = dict(self._cpu)

    @property
    def cpu(self) -> float:
        return sum(used - self._start.get(key, 0.0) for key, used in self._cpu.items())

    def look(self) -> None:
        memory = 0
        heavy = self._looks % 4 == 0  # to ask for the memory costs more
        self._looks += 1
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.cpu_affinity() != [CRAWLER_CORE]:
                    continue
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
                if heavy:
                    memory += process.memory_full_info().pss
        self.memory = max(self.memory, memory)


def first_page(server: Server, since: float, process: subprocess.Popen[bytes]) -> float:
    """When it was; RuntimeError if there is none."""
    deadline = time.time() + FIRST_PAGE
    while True:
        if pages := server.pages(since):
            return pages[0][0]
        if time.time() > deadline or process.poll() is not None:
            raise RuntimeError("it has not asked for a page")


def stop(process: subprocess.Popen[bytes]) -> None:
    """After: it is gone, asked kindly first."""
    for number, patience in ((signal.SIGTERM, STOP), (signal.SIGKILL, 5.0)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _bytes_in(folder: Path) -> int:
    total = 0
    for entry in folder.rglob("*"):
        with suppress(OSError):
            total += entry.lstat().st_blocks * 512
    return total
