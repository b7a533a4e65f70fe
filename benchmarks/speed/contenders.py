"""The crawlers that are compared: how each is got and how it is told to crawl everything it finds, as fast as it can.

The rule: all get the same start URLs, follow all links of their hosts, obey robots.txt where they can, and write down what they got in
their own ordinary way. Peers live in virtual environments of their own under `.peers/`.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

PEERS = Path(__file__).parents[2] / ".peers"
CONCURRENCY = 16


class Contender:
    """A crawler that works in `folder`, which is empty at first."""

    name: ClassVar[str]
    keeps_state: ClassVar[bool]
    """Does what it knows outlive the process?"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def missing(self) -> str | None:
        """Get it where it is not there; why it cannot be had, if so."""
        return None

    def command(self, urls: Sequence[str]) -> list[str]:
        """What to run in the folder."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """What it needs besides."""
        return {}

    def prepare(self) -> None:
        """What comes before the clock runs."""

    def afterwards(self) -> str:
        """What it says of its own work when it was stopped; after: nothing of it runs."""
        return ""


class Holdfast(Contender):
    """With the bundled PostgreSQL, durable commits, robots.txt and the crawl log."""

    name = "Holdfast"
    keeps_state = True
    options: ClassVar[tuple[str, ...]] = ()

    def command(self, urls: Sequence[str]) -> list[str]:
        how = [
            "--delay",
            "0",
            "--concurrency",
            str(CONCURRENCY),
            "--workers",
            "1",
            "--allow-private",
            "--max-pages-per-domain",
            "1000000",
            *self.options,
        ]
        return [*self._program(), "crawl", *urls, *how]

    def environment(self) -> dict[str, str]:
        return {"HOLDFAST_CRAWL_DISCOVERED_PER_SECOND": "0"}

    def prepare(self) -> None:
        subprocess.run([*self._program(), "db", "upgrade"], check=True, capture_output=True)

    def afterwards(self) -> str:
        verified = subprocess.run([*self._program(), "verify"], capture_output=True, text=True, check=False)
        self.end()
        return "verify clean" if verified.returncode == 0 else f"VERIFY: {verified.stdout}{verified.stderr}"

    def end(self) -> None:
        """After: its database does not run."""
        subprocess.run([*self._program(), "db", "stop"], check=True, capture_output=True)

    def address(self) -> str:
        """Of its database."""
        asked = subprocess.run([*self._program(), "db", "url"], check=True, capture_output=True, text=True)
        return asked.stdout.strip()

    def _program(self) -> list[str]:
        return [str(Path(sys.executable).with_name("holdfast")), "--data", str(self.folder / "data")]


class HoldfastWithoutArchive(Holdfast):
    """Without the bytes of the pages, which peers do not keep either."""

    name = "Holdfast, no archive"
    options = ("--no-archive",)


class FromPyPI(Contender):
    """A peer in a virtual environment of its own."""

    packages: ClassVar[tuple[str, ...]]
    script: ClassVar[str]

    def missing(self) -> str | None:
        home = self._home()
        ready = home / ".ready"
        if ready.exists() and ready.read_text() == " ".join(self.packages):
            return None
        venv.create(home, with_pip=True, clear=True)
        install = [
            str(home / "bin" / "pip"),
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]
        got = subprocess.run([*install, *self.packages], capture_output=True, text=True, check=False)
        if got.returncode:
            return got.stderr.strip().splitlines()[-1] if got.stderr.strip() else "it cannot be installed"
        ready.write_text(" ".join(self.packages))
        return None

    def command(self, urls: Sequence[str]) -> list[str]:
        program = self.folder / "spider.py"
        program.write_text(self.script)
        return [str(self._home() / "bin" / "python"), str(program), *urls]

    def _home(self) -> Path:
        return PEERS / self.packages[0].partition("[")[0]


class Scrapy(FromPyPI):
    """With a JOBDIR, as whoever wants to go on after a stop runs it."""

    name = "Scrapy + JOBDIR"
    keeps_state = True
    packages = ("scrapy",)
    script = """
import sys
from urllib.parse import urlsplit
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor


class Everything(scrapy.Spider):
    name = "everything"
    start_urls = [url for url in sys.argv[1:] if not url.startswith("-")]
    allowed_domains = [urlsplit(url).hostname for url in start_urls]
    links = LinkExtractor()

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in self.links.extract_links(response):
            yield response.follow(link, self.parse)


process = CrawlerProcess({
    "ROBOTSTXT_OBEY": True, "LOG_LEVEL": "ERROR", "DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS": 64, "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY, "FEEDS": {"pages.jsonl": {"format": "jsonlines"}}, "JOBDIR": "job",
})
process.crawl(Everything)
process.start()
"""

    def command(self, urls: Sequence[str]) -> list[str]:
        made = super().command(urls)
        program = self.folder / "spider.py"
        program.write_text(program.read_text().replace("CONCURRENCY,", f"{CONCURRENCY},"))
        return made


class Crawlee(FromPyPI):
    """With the storage that it uses by default: files."""

    name = "Crawlee"
    keeps_state = True
    packages = ("crawlee[parsel]",)
    storage: ClassVar[str] = "None"
    script = """
import asyncio, logging, sys
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler
from crawlee.storage_clients import MemoryStorageClient


async def main() -> None:
    crawler = ParselCrawler(
        respect_robots_txt_file=True, storage_client=STORAGE,
        concurrency_settings=ConcurrencySettings(min_concurrency=CONCURRENCY, desired_concurrency=CONCURRENCY, max_concurrency=64),
    )

    @crawler.router.default_handler
    async def handle(context):
        await context.push_data({"url": context.request.url, "title": context.selector.css("title::text").get()})
        await context.enqueue_links()

    await crawler.run(sys.argv[1:])


logging.disable(logging.WARNING)
asyncio.run(main())
"""

    def command(self, urls: Sequence[str]) -> list[str]:
        made = super().command(urls)
        program = self.folder / "spider.py"
        program.write_text(
            program.read_text().replace("STORAGE,", f"{self.storage},").replace("=CONCURRENCY", f"={CONCURRENCY}")
        )
        return made


class CrawleeInMemory(Crawlee):
    """With the storage for those who need none."""

    name = "Crawlee, in memory"
    keeps_state = False
    storage = "MemoryStorageClient()"


class FromDebian(Contender):
    """A program of the machine's own."""

    program: ClassVar[str]
    keeps_state = False

    def missing(self) -> str | None:
        if shutil.which(self.program) is None and os.geteuid() == 0 and shutil.which("apt-get"):
            subprocess.run(
                ["apt-get", "install", "--yes", "--no-install-recommends", self.program],
                capture_output=True,
                check=False,
            )
        return None if shutil.which(self.program) else f"there is no {self.program} on this machine"


class Wget2(FromDebian):
    """A mirror: files on disk."""

    name = program = "wget2"

    def command(self, urls: Sequence[str]) -> list[str]:
        how = [
            "--recursive",
            "--level=0",
            "--quiet",
            "--no-parent",
            f"--max-threads={CONCURRENCY}",
            "--directory-prefix=mirror",
        ]
        return [self.program, *how, *urls]


class Httrack(FromDebian):
    """A mirror that rewrites links."""

    name = program = "httrack"

    def command(self, urls: Sequence[str]) -> list[str]:
        how = [
            "--quiet",
            "-O",
            "mirror",
            f"--sockets={CONCURRENCY}",
            "--max-rate=0",
            "--connection-per-second=0",
            "--disable-security-limits",
        ]
        return [self.program, *urls, *how, "--robots=2", "--depth=100"]


ALL: tuple[type[Contender], ...] = (
    Holdfast,
    HoldfastWithoutArchive,
    Scrapy,
    Crawlee,
    CrawleeInMemory,
    Wget2,
    Httrack,
)
