"""The same kills for Holdfast and for Scrapy with a JOBDIR, on the same site: how many pages does each find in the end?

Prints a table; it informs and never fails a build. Scrapy is installed into a virtual environment of its own (.peers/).

    python benchmarks/crash_peers.py [--pages 1500] [--kills 1 5] [--seed 1]
"""

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from holdfast.db import embedded, exports
from holdfast.db.connection import Database
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, Web
from holdfast.testing.torture.process import PROGRAM, CrawlProcess

PEERS = Path(__file__).parents[1] / ".peers"
CONCURRENCY = 8
PATIENCE = 300.0

SPIDER = '''
import scrapy


class Everything(scrapy.Spider):
    """Follows every link of the site; what it has got is on disk at once."""

    name = "everything"
    custom_settings = {
        "CONCURRENT_REQUESTS_PER_DOMAIN": %(concurrency)d, "DOWNLOAD_DELAY": 0, "ROBOTSTXT_OBEY": True, "LOG_LEVEL": "ERROR",
        "DEPTH_LIMIT": 0, "TELNETCONSOLE_ENABLED": False, "AUTOTHROTTLE_ENABLED": False, "RETRY_TIMES": 3,
    }
    start_urls = ["%(url)s"]
    allowed_domains = ["127.0.0.1"]

    def parse(self, response):
        with open("%(out)s", "a") as out:
            out.write(response.url + "\\n")
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse)
'''


class Crawler(Protocol):
    """One of those that are compared."""

    name: str

    def start(self) -> CrawlProcess:
        """The same command every time."""
        ...

    def found(self) -> set[str]:
        """URLs of the pages that it has."""
        ...

    def close(self) -> None:
        """After: nothing of it runs."""
        ...


class Holdfast:
    """`holdfast crawl`, with the bundled server."""

    name = "Holdfast"

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self._data = folder / "data"
        embedded.ensure_running(self._data)  # as Scrapy's virtual environment, it is there before the clock runs

    def start(self) -> CrawlProcess:
        arguments = ["--data", str(self._data), "crawl", self._url, "--allow-private", "--delay", "0", "--json"]
        arguments += ["--concurrency", str(CONCURRENCY), "--workers", "1", "--max-pages-per-domain", "1000000"]
        settings = {"crawl.discovered_per_second": "0", "domains.max_pages_per_run": "1000000"}
        return CrawlProcess(arguments, settings=settings, folder=self._folder, program=PROGRAM)

    def found(self) -> set[str]:
        with Database(embedded.ensure_running(self._data).url()).session() as connection:
            pages = [stored.page for stored in exports.pages(connection, text=False)]
        return {page.url for page in pages if page.status == 200 and page.url is not None}

    def close(self) -> None:
        embedded.stop(self._data)


class Scrapy:
    """`scrapy runspider` with a JOBDIR, as its documentation says for crawls that are to be resumed."""

    name = "Scrapy + JOBDIR"

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._out = folder / "pages.txt"
        self._spider = folder / "spider.py"
        self._spider.write_text(SPIDER % {"concurrency": CONCURRENCY, "url": url, "out": self._out}, encoding="utf-8")

    def start(self) -> CrawlProcess:
        program = (str(_scrapy()), "-m", "scrapy", "runspider", str(self._spider))
        return CrawlProcess(["-s", f"JOBDIR={self._folder / 'job'}"], settings={}, folder=self._folder, program=program)

    def found(self) -> set[str]:
        return set(self._out.read_text("utf-8").splitlines()) if self._out.exists() else set()

    def close(self) -> None:
        """It has nothing that outlives its process."""


@dataclass(frozen=True)
class Result:
    """What one crawler made of one trial."""

    crawler: str
    kills: int
    landed: int
    found: int
    requests: int
    repeated: int
    seconds: float
    ended: str


def _scrapy() -> Path:
    """The interpreter that has Scrapy; installed if it is not there yet."""
    python = PEERS / "scrapy" / "bin" / "python"
    ready = PEERS / "scrapy" / ".ready"
    if not ready.exists():
        print("Installing Scrapy into .peers/scrapy …", file=sys.stderr, flush=True)
        PEERS.mkdir(exist_ok=True)
        (PEERS / ".gitignore").write_text("*\n", encoding="utf-8")
        venv.create(PEERS / "scrapy", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "scrapy"], check=True)
        ready.touch()
    return python


def _requests(web: WebProcess) -> int:
    return sum(web.stats()["requests"].values())


def _trial(kind: type[Holdfast] | type[Scrapy], site: Web, kills: int) -> Result:
    """Killed whenever another part of the site has been asked for; if it ends before that, the kill does not land."""
    pages = site.default.pages
    with WebProcess(site) as web, tempfile.TemporaryDirectory(prefix="holdfast-peers-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        crawler: Crawler = kind(folder, web.url())
        began, landed = time.monotonic(), 0
        try:
            for number in range(1, kills + 1):
                victim = crawler.start()
                while victim.alive and _requests(web) < pages * number / (kills + 1):
                    time.sleep(0.02)
                landed += victim.alive
                victim.kill()
            last = crawler.start()
            ended = f"exit code {last.code}" if last.wait(PATIENCE) else "did not end"
            last.kill()
            wanted = {page.url for page in web.expected() if page.status == 200}
            found = len(crawler.found() & wanted)
        finally:
            crawler.close()
        hits = web.log()
        repeated = log_checks.count_refetches(hits).total()
        return Result(crawler.name, kills, landed, found, len(hits), repeated, time.monotonic() - began, ended)


def _print(results: Sequence[Result], pages: int) -> None:
    print(f"{pages} pages, kill -9 and the same command again:\n")
    print(
        f"{'crawler':<18}{'kills':>6}{'landed':>8}{'pages found':>13}{'lost':>7}{'requests':>10}{'again':>7}{'time':>8}  last run"
    )
    for result in results:
        print(
            f"{result.crawler:<18}{result.kills:>6}{result.landed:>8}{result.found:>13}{pages - result.found:>7}"
            f"{result.requests:>10}{result.repeated:>7}{result.seconds:>6.0f} s  {result.ended}"
        )


def main() -> None:
    """Try each with each number of kills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1500)
    parser.add_argument("--kills", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    site = Web(
        options.seed, 1, Site(options.pages, 20, 4000, latency=0.04, jitter=0.02, robots=Robots.ALLOW), by_port=True
    )
    _scrapy()
    results = [_trial(kind, site, kills) for kills in options.kills for kind in (Holdfast, Scrapy)]
    _print(results, options.pages)


if __name__ == "__main__":
    main()
