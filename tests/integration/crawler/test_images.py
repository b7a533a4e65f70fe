"""Images in a crawl: found, fetched in their lane, stored once, and counted for the domains of their pages."""

import hashlib
import io
import signal
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from holdfast.frontier import queries
from holdfast.frontier.records import UrlFilter
from holdfast.jobs import summary
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import MISSING, Page, Pages, html, moved


def png(red: int, size: int = 32, *, noise: int = 0) -> bytes:
    """An image with a shape that depends on the colour, so that others are no near duplicates of it."""
    image = Image.new("RGB", (size, size))
    image.putdata(
        [((x * red) % 256, (y * (red + 7)) % 256, (x * y + noise) % 256) for y in range(size) for x in range(size)]
    )
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def picture(body: bytes, kind: str = "image/png") -> Page:
    return Page(body, headers={"Content-Type": kind})


def with_images(*urls: str, links: tuple[str, ...] = ()) -> Page:
    return html(*links, text="".join(f'<img src="{url}" alt="of {url[-5:]}">' for url in urls))


def files(crawls: Crawls) -> dict[str, bytes]:
    """The stored files, by the hash that they are named by."""
    folder = crawls.folder / "data" / "images"
    return {path.stem: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def stored(crawls: Crawls, host: str) -> int:
    found: int = crawls.domain(host)["images_stored"]
    return found


def told(crawls: Crawls, capsys: pytest.CaptureFixture[str], url: str) -> str:
    """What `holdfast explain` says of a URL."""
    capsys.readouterr()
    assert crawls.command("explain", url) == 0
    return capsys.readouterr().out


def test_images_of_pages_are_stored_once_and_counted_for_the_domains_of_their_pages(
    crawls: Crawls, capsys: pytest.CaptureFixture[str]
) -> None:
    with Pages() as site:
        cdn = site.url("/shared.png", host="cdn.localhost")
        site.answers |= {
            "localhost/": with_images("/one.png", "/copy.png", cdn, links=("/b",)),
            "localhost/b": with_images("/one.png", cdn, "/gone.png", "/page.png", "/moved.png"),
            "localhost/one.png": picture(png(3)),
            "localhost/copy.png": picture(png(3), "image/jpeg"),
            "localhost/gone.png": MISSING,
            "localhost/page.png": html(),
            "localhost/moved.png": moved(site.url("/target.png", host="cdn.localhost")),
            "cdn.localhost/shared.png": picture(png(5)),
            "cdn.localhost/target.png": picture(png(11)),
        }
        job = crawls.begin(site.url(), images=True).job
        assert crawls.crawl(site.url(), images=True).completed
        host, other = f"localhost:{site.port}", f"cdn.localhost:{site.port}"
        asked = site.paths()
        paths = {path.partition("/")[2] and f"/{path.partition('/')[2]}" for path in site.answers}
    assert crawls.total() == 2, "images are no pages"
    said = list(summary.lines(summary.summarize_job(crawls.connection, job)))
    assert said[0] == f"Images: 3 images are stored (`holdfast images list --job {job.name}`)."
    assert set(files(crawls)) == {hashlib.sha256(png(number)).hexdigest() for number in (3, 5, 11)}
    assert all(hashlib.sha256(body).hexdigest() == name for name, body in files(crawls).items())
    assert len(asked) == len(set(asked)), "no image is fetched twice"
    assert (stored(crawls, host), stored(crawls, other)) == (3, 0)
    assert crawls.domain(host)["image_yield_rate"] == 1.5
    rows = crawls.rows(
        "SELECT encode(sha256, 'hex'), source_page_url, discovery_type::text FROM provenance JOIN images i ON i.id = image_id"
    )
    one, two, three = (hashlib.sha256(png(number)).hexdigest() for number in (3, 5, 11))
    assert sorted((image, page.rpartition("/")[2]) for image, page, _ in rows) == sorted(
        [(one, ""), (one, "b"), (two, ""), (two, "b"), (three, "b")]
    )
    assert {kind for *_, kind in rows} == {"discovery"}
    shown = queries.page(
        crawls.connection, UrlFilter(resource="image").given(), order="key", after=None, limit=100
    ).rows
    assert {row.url.partition(str(site.port))[2] for row in shown} == {path for path in paths if path.endswith(".png")}
    assert {row.resource for row in shown} == {"image"}
    assert crawls.outcomes("%/page.png") == {site.url("/page.png"): ["bad_image"]}
    crawls.verify()
    first, size = crawls.rows("SELECT id, size FROM images WHERE encode(sha256, 'hex') = %s", one)[0]
    explained = told(crawls, capsys, site.url("/copy.png"))
    assert "State           done: it is an image, and is stored.\n" in explained
    assert (
        f"Image           {first}, png, 32 x 32 pixels, {size:,} bytes; `holdfast images show {first}` shows"
        in explained
    )
    assert f", found on {site.url()}\n" in explained
    refused = told(crawls, capsys, site.url("/page.png"))
    assert "State           done: what it led to is no image, or none that can be stored.\n" in refused
    assert "Detail          not_an_image: it is an HTML page" in refused
    assert "State           done: the server has no such page." in told(crawls, capsys, site.url("/gone.png"))


def test_a_link_that_a_page_shows_is_an_image_whichever_is_met_first(
    crawls: Crawls, capsys: pytest.CaptureFixture[str]
) -> None:
    with Pages() as site:
        linked = [f"/i{number}.png" for number in range(8)]
        pages = [f"/p{number}" for number in range(8)]
        site.answers |= {
            "/": html(*linked, *pages, text='<a rel="nofollow" href="/n.png">n</a>'),
            "/n.png": picture(png(90)),
        }
        site.answers |= {image: picture(png(number + 1)) for number, image in enumerate(linked)}
        site.answers |= {page: with_images(image, "/n.png") for page, image in zip(pages, linked, strict=True)}
        site.answers["/only-linked.png"] = picture(png(91))
        site.answers["/p0"] = with_images(linked[0], "/n.png", links=("/only-linked.png",))
        assert crawls.crawl(site.url(), images=True, concurrency=1).completed
        asked = Counter(site.paths())
    assert stored(crawls, f"localhost:{site.port}") == 9
    assert max(asked.values()) <= 2, "as a link, and then as an image"
    assert asked["/n.png"] == asked["/only-linked.png"] == 1
    outcomes = crawls.outcomes("%.png")
    assert {tuple(outcomes[site.url(image)]) for image in linked} == {("wrong_type", "image")}
    assert (outcomes[site.url("/n.png")], outcomes[site.url("/only-linked.png")]) == (["image"], ["wrong_type"])
    crawls.verify()
    explained = told(crawls, capsys, site.url(linked[0]))
    assert "State           done: it is an image, and is stored." in explained
    assert "Last answer" not in explained, "the one of the link is none of the image"
    assert "Last answer" in told(crawls, capsys, site.url("/only-linked.png"))


def test_a_crawl_without_images_asks_for_none(crawls: Crawls) -> None:
    with Pages({"/": with_images("/one.png"), "/one.png": picture(png(3))}) as site:
        assert crawls.crawl(site.url()).completed
        assert site.paths() == ["/"]
    assert crawls.value("SELECT images_found FROM domains") == 1


def test_pages_that_are_not_modified_are_fetched_whole_for_their_images(crawls: Crawls) -> None:
    """Before: without images, and once more, not modified. After --images --again: all images, however often it is crawled again."""
    with Pages() as site:
        pages = {"/": with_images("/one.png", links=("/a",)), "/a": with_images("/one.png", "/two.png")}
        site.answers |= {path: replace(one, headers={**one.headers, "ETag": '"1"'}) for path, one in pages.items()}
        site.answers |= {"/one.png": picture(png(3)), "/two.png": picture(png(5))}
        seen = []
        for options in ({}, {"again": True}, {"again": True, "images": True}, {"again": True}):
            crawls.connection.execute("UPDATE images SET last_seen_at = '2020-01-01'")
            crawls.connection.execute("UPDATE provenance SET last_seen_at = '2020-01-01'")
            assert crawls.crawl(site.url(), job="site", **options).completed
            seen.append(crawls.rows("SELECT count(*) FROM provenance WHERE last_seen_at > '2020-01-02'")[0][0])
        sent = [headers.get("if-none-match") for asked, headers in site.headers if asked == "localhost/a"]
    assert seen == [0, 0, 3, 3]
    assert sent == [None, '"1"', None, None]
    assert stored(crawls, f"localhost:{site.port}") == 2
    assert crawls.rows("SELECT count(*), min(last_seen_at) > '2020-01-02' FROM images") == [(2, True)]
    crawls.verify()


def test_pages_come_before_most_images_and_images_do_not_starve(crawls: Crawls) -> None:
    with Pages() as site:
        pages = [f"/p{number}" for number in range(30)]
        images = [f"/i{number}.png" for number in range(30)]
        site.answers["/"] = with_images(*images, links=tuple(pages))
        site.answers |= {page: html() for page in pages}
        site.answers |= {image: picture(png(number)) for number, image in enumerate(images)}
        assert crawls.crawl(site.url(), images=True, concurrency=1).completed
        order = [path[1] for path in site.paths()[1:]]
    assert order[:40].count("i") == 10, "a quarter of the slots"
    assert order.count("i") == 30
    crawls.verify()


def test_a_limit_of_images_of_a_host(crawls: Crawls) -> None:
    crawls.set(images={"max_per_host": 2})
    with Pages() as site:
        images = [f"/i{number}.png" for number in range(5)]
        site.answers |= {"/": with_images(*images)} | {
            image: picture(png(number)) for number, image in enumerate(images)
        }
        assert crawls.crawl(site.url(), images=True, concurrency=1).completed
    assert len(files(crawls)) == 2
    reasons = {reason for _, reason in crawls.frontier("%.png").values() if reason}
    assert reasons == {"image_limit: 2 images of this host (images.max_per_host)"}
    crawls.verify()


def test_bombs_and_oddities_are_refused_and_the_worker_lives(
    crawls: Crawls, capsys: pytest.CaptureFixture[str]
) -> None:
    crawls.set(images={"max_bytes": 50_000})
    header = (
        b"\x89PNG\r\n\x1a\n"
        + (13).to_bytes(4)
        + b"IHDR"
        + (60_000).to_bytes(4)
        + (60_000).to_bytes(4)
        + b"\x08\2\0\0\0"
    )
    bomb = header + zlib.crc32(header[12:]).to_bytes(4) + png(3)[33:]
    with Pages() as site:
        site.answers |= {
            "/": with_images(
                *("/bomb.png", "/cut.png", "/not.png", "/good.png", "/long.png"),
                *("data:image/png;base64,AAAA", "http://["),
            ),
            "/bomb.png": picture(bomb),
            "/cut.png": picture(png(3, 200)[:500]),
            "/not.png": picture(b"GIF99 no image"),
            "/long.png": picture(png(3) + bytes(60_000)),
            "/good.png": picture(png(9)),
        }
        assert crawls.crawl(site.url(), images=True).completed
        assert site.paths().count("/bomb.png") == 1
    assert len(files(crawls)) == 1
    assert dict(crawls.rows("SELECT right(url, 8), problem FROM image_urls WHERE problem IS NOT NULL")) == {
        "bomb.png": "image_too_large",
        "/cut.png": "image_damaged",
        "/not.png": "not_an_image",
        "long.png": "image_too_large",
    }
    assert "it has more than the 50,000 bytes that images.max_bytes allows" in told(
        crawls, capsys, site.url("/long.png")
    )
    assert crawls.value("SELECT total_error_count FROM domains") == 0
    crawls.verify()


@pytest.mark.parametrize("failpoint", ["after_fetch:3", "archive_written:2", "before_commit:2", "after_commit:2"])
def test_a_kill_leaves_no_row_without_its_file(crawls: Crawls, failpoint: str) -> None:
    crawls.set(flush={"pages": 3})
    with Pages() as site:
        images = [f"/i{number}.png" for number in range(12)]
        site.answers |= {"/": with_images(*images)} | {image: picture(png(n + 1)) for n, image in enumerate(images)}
        job = crawls.begin(site.url(), images=True).job.name
        killed = crawls.run("worker", "--name", "w1", "--job", job, "--failpoint", failpoint)
        assert killed.code == -signal.SIGKILL
        named = {Path(file).stem for (file,) in crawls.rows("SELECT file FROM images")}
        assert named <= set(files(crawls))
        crawls.verify()
        with crawls.start("worker", "--name", "w1", "--job", job):
            wait_for(lambda: not crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'"), "the end")
    assert len(files(crawls)) == crawls.value("SELECT count(*) FROM images") == 12
    assert crawls.value("SELECT images_stored FROM domains") == 12
    crawls.verify()


def test_a_store_that_is_away_pauses_the_crawl_and_it_goes_on(crawls: Crawls) -> None:
    folder = crawls.folder / "data" / "images"
    folder.parent.mkdir(exist_ok=True, mode=0o700)
    folder.write_text("in the way")
    with Pages() as site:
        site.answers |= {"/": with_images("/one.png"), "/one.png": picture(png(3))}
        job = crawls.begin(site.url(), images=True).job
        with crawls.worker(job) as worker:
            wait_for(lambda: "/one.png" in site.paths(), "the image")
            waits = "SELECT activity::text LIKE '%%images cannot be stored%%' FROM workers WHERE activity IS NOT NULL"
            wait_for(lambda: crawls.value(waits), "the word that it waits")
            assert worker.lives
            assert crawls.value("SELECT count(*) FROM images") == 0
            folder.unlink()
            worker.end()
    assert len(files(crawls)) == 1
    crawls.verify()
