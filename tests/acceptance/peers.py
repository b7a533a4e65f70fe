"""wget and Scrapy, told to take everything of one host, as their users tell them."""

import subprocess
import time
from pathlib import Path

from benchmarks.speed.contenders import PEERS
from tests.acceptance.requirements import program

_SPIDER = """
import sys
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor


class Everything(scrapy.Spider):
    name = "everything"
    start_urls = [sys.argv[1]]
    allowed_domains = ["127.0.0.1"]
    links = LinkExtractor()

    def parse(self, response):
        if not hasattr(response, "text"):
            return
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in self.links.extract_links(response):
            yield response.follow(link, self.parse)


process = CrawlerProcess({
    "ROBOTSTXT_OBEY": False, "LOG_LEVEL": "ERROR", "DOWNLOAD_DELAY": 0, "CONCURRENT_REQUESTS": 32, "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 32, "FEEDS": {"pages.jsonl": {"format": "jsonlines"}},
})
process.crawl(Everything)
process.start()
"""


def wget(url: str, folder: Path) -> float:
    """Mirror the site into the folder; the seconds that it took."""
    binary = program("wget")
    assert binary
    folder.mkdir(parents=True)
    began = time.monotonic()
    done = subprocess.run(
        [binary, "--quiet", "-r", "-l", "inf", "--no-parent", "-e", "robots=off", url],
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=900,
    )
    assert done.returncode in {0, 8}, done.stderr  # 8: the server answered some URL with an error
    return time.monotonic() - began


def scrapy(url: str, folder: Path) -> float:
    """Crawl the site with a spider that follows every link of the host; the seconds that it took."""
    folder.mkdir(parents=True)
    (folder / "spider.py").write_text(_SPIDER)
    began = time.monotonic()
    command = [str(PEERS / "scrapy" / "bin" / "python"), "spider.py", url]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    return time.monotonic() - began
