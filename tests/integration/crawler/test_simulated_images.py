"""The images of the simulated web: a crawl finds, stores, refuses and counts exactly what was generated, politely and in bounded memory."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from holdfast.archive.image_store import FolderImageStore, sha256_of
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.expected_images import expected_images
from holdfast.testing.simweb.presets import preset
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.site import UrlKind
from holdfast.testing.torture.image_checks import compare_images
from tests.support.crawls import Crawls, Program

Figure = Callable[[str], None]
SITES = range(4)
"""Those with pages; the others serve images only."""
CONCURRENCY = 2
MAX_RSS = {"worker": 300 << 20, "image_child": 150 << 20}
"""A bomb that is decoded has 256 MB; six that are unpacked at once have 100 MB each, of which a crawler needs 20 to refuse one."""


def peaks(program: Program) -> Counter[str]:
    """The most memory (RSS) that a worker and its helpers have had so far, in bytes."""
    found: Counter[str] = Counter()
    with suppress(psutil.NoSuchProcess):
        main = psutil.Process(program.pid)
        for process in (main, *main.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                words = " ".join(process.cmdline())
                kind = next((name for name in ("image_child", "page_child") if name in words), "worker")
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak = re.search(r"VmHWM:\s*(\d+) kB", status)  # none: it has just ended
                found[kind] = max(found[kind], int(peak[1]) << 10 if peak else 0)
    return found


def test_images_end_exactly_as_generated(crawls: Crawls, figure: Figure) -> None:
    crawls.set(politeness={"circuit_failures": 100})  # hosts of images that always fail are not given up
    web = preset("images")
    highest: Counter[str] = Counter()
    options = ("--images", "--delay", "0", "--concurrency", str(CONCURRENCY), "--allow-private")
    with WebProcess(web) as served:
        truth = expected_images(web, served.address, SITES)
        urls = [page for site in SITES for page in served.expected(site)] + truth.pages
        with crawls.start("crawl", *(served.url(site) for site in SITES), *options) as program:
            while program.lives:
                highest |= peaks(program)
                time.sleep(0.05)
            assert program.end().code == 0
        hits = served.log()
        slow = 5
        host = served.address.host(slow)
    # found, stored, duplicates, yields
    kinds = {UrlKind.OTHER, UrlKind.FAILING, UrlKind.REDIRECT, UrlKind.DENIED}
    assert {image.kind for image in truth.urls.values()} == kinds
    assert compare_images(truth, crawls.database) == []
    store = FolderImageStore(crawls.folder / "data" / "images")
    assert {sha256_of(file.key) for file in store.list()} == truth.stored
    assert all(hashlib.sha256(store.get(file.key)).digest() == sha256_of(file.key) for file in store.list())
    crawls.verify()
    # judged by the hosts' own log
    assert log_checks.missing_pages(urls, hits) == []
    assert log_checks.forbidden_requests(urls, hits) == []
    assert log_checks.unknown_urls(urls, hits) == []
    assert log_checks.robots_first(hits)
    assert max(log_checks.max_concurrent(hits, each) for each in log_checks.by_host(hits)) <= CONCURRENCY
    assert log_checks.too_close([hit for hit in hits if hit.host == host], web.site(slow).crawl_delay) == []
    assert log_checks.count_refetches(hits) == {}
    # in memory
    assert {kind: peak for kind, peak in highest.items() if peak > MAX_RSS.get(kind, MAX_RSS["worker"])} == {}
    assert highest.keys() >= MAX_RSS.keys()
    peaks_said = ", ".join(f"{kind} {peak >> 20} MB" for kind, peak in sorted(highest.items()))
    figure(
        f"{len(truth.urls)} image URLs: {len(truth.stored)} stored, {truth.exact_duplicates} exact and {truth.near_duplicates} near "
        f"duplicates; most memory: {peaks_said}"
    )
    # what is wrong is seen
    crawls.connection.execute("UPDATE images SET near_duplicate_of = NULL WHERE near_duplicate_of IS NOT NULL")
    crawls.connection.execute("DELETE FROM provenance WHERE id = (SELECT min(id) FROM provenance)")
    crawls.connection.execute("UPDATE image_urls SET problem = 'not_found' WHERE problem = 'image_damaged'")
    crawls.connection.execute("UPDATE domains SET images_stored = 1 WHERE domain = %s", (served.address.host(0),))
    said = " ".join(compare_images(truth, crawls.database))
    assert all(part in said for part in ("instead of image_damaged", "… and "))
