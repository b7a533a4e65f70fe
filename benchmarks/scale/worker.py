"""A real `holdfast crawl` on a frontier of a given size: what it weighs, and how soon it is back after a kill -9."""

import statistics
import subprocess
import time
from typing import Any

from benchmarks.scale.fill import JOB, Place
from benchmarks.scale.progress import step
from benchmarks.scaling import end, holdfast, now, start, wait_until, watch
from holdfast.testing.simweb.process import WebProcess

WATCHED = 20.0
RESTARTS = 3
IN_THE_MIDDLE = 2.0
"""Seconds of work before the next kill."""
PATIENCE = 300.0
COMMAND = ("--job", JOB, "--workers", "1")


def measure(place: Place, web: WebProcess) -> dict[str, Any]:
    """Before: URLs wait, and nobody holds a domain. After: the same, a few thousand of them crawled."""
    with step("a worker at full speed"):
        asked, crawl = _asked(web), start(place.data, [], *COMMAND)
        try:
            _wait_for_a_request(crawl, web, asked)
            seen = watch(crawl, web, WATCHED)
        finally:
            crawl.kill()
            crawl.wait()
    back = []
    for number in range(RESTARTS):
        with step(f"kill -9 and back, {number + 1} of {RESTARTS}"):
            asked, began = _asked(web), now()
            crawl = start(place.data, [], *COMMAND)
            try:
                _wait_for_a_request(crawl, web, asked)
                time.sleep(IN_THE_MIDDLE)
                if number == RESTARTS - 1:
                    end(crawl)
            finally:
                crawl.kill()
                crawl.wait()
        back.append(next(hit.at for hit in web.log() if hit.at > began) - began)
    return {
        "worker_bytes": seen["rss"],
        "requests_per_second": seen["rate"],
        "resume_seconds": statistics.median(back),
        "resumes": back,
    }


def verify(place: Place) -> dict[str, Any]:
    """Whether the figures are of a store that is right."""
    with step("holdfast verify") as here:
        clean = holdfast(place.data, "verify", "--no-archive", "--json").returncode == 0
    return {"clean": clean, "verify_seconds": here.seconds}


def _wait_for_a_request(crawl: "subprocess.Popen[bytes]", web: WebProcess, asked: int) -> None:
    wait_until(lambda: crawl.poll() is not None or _asked(web) > asked, PATIENCE)
    if crawl.poll() is not None:
        raise SystemExit(f"The crawl ended with code {crawl.returncode} before it had asked for a page.")


def _asked(web: WebProcess) -> int:
    return sum(web.stats()["requests"].values())
