"""Kills of a worker that stores images: a file is there before its row, nothing is lost, nothing is left behind."""

import hashlib
import random
import time
from pathlib import Path

from tests.integration.crawler.test_images import files, picture, png, with_images
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Pages, html

KILLS = 5
PAGES = 40
IMAGES = 60
"""URLs on two hosts; two of them have the same bytes."""
ON_A_PAGE = 5


def test_a_worker_that_stores_images_is_killed(crawls: Crawls) -> None:
    crawls.set(flush={"pages": 20})
    chance = random.Random(3)
    bodies = [png(number % (IMAGES // 2) + 1, 16) for number in range(IMAGES)]
    with Pages() as site:
        site.answers["localhost/"] = html(*(f"/p{page}" for page in range(PAGES)))
        for number, body in enumerate(bodies):
            site.answers |= {f"{host}/i{number}.png": picture(body) for host in ("localhost", "cdn.localhost")}
        for page in range(PAGES):
            shown = [f"/i{(page * 3 + at) % IMAGES}.png" for at in range(ON_A_PAGE)]
            urls = [site.url(path, host="cdn.localhost") if at % 2 else path for at, path in enumerate(shown)]
            site.answers[f"localhost/p{page}"] = with_images(*urls)
        job = crawls.begin(site.url(), images=True).job.name
        for _ in range(KILLS):
            with crawls.start("worker", "--name", "w1", "--job", job) as program:
                site.asked.clear()
                wait_for(lambda: site.asked or not waits(crawls), "a request")
                time.sleep(chance.uniform(0, 0.1))
                program.kill()
            assert {Path(file).stem for (file,) in crawls.rows("SELECT file FROM images")} <= set(files(crawls))
            crawls.verify()
        with crawls.start("worker", "--name", "w1", "--job", job):
            wait_for(lambda: not waits(crawls), "the end")
        host = f"localhost:{site.port}"
    assert crawls.run("gc", "--grace", "0s").code == 0
    expected = {hashlib.sha256(body).hexdigest() for body in bodies}
    assert set(files(crawls)) == expected
    assert {name for (name,) in crawls.rows("SELECT encode(sha256, 'hex') FROM images")} == expected
    assert (crawls.domain(host)["images_stored"], crawls.domain(host)["pages_crawled"]) == (len(expected), PAGES + 1)
    crawls.verify()


def waits(crawls: Crawls) -> bool:
    """Whether a URL waits."""
    found: bool = crawls.value("SELECT EXISTS (SELECT FROM url_frontier WHERE state = 'waiting')")
    return found
