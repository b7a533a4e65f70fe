"""Images of crawls: one row for each content, counted once for a domain, whichever commit comes first."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from holdfast.db import claims, domain_removal, images, sweeper, verify
from holdfast.db.connection import Database
from holdfast.model.image import (
    FetchedImage,
    ImageFacts,
    ImageLink,
    ImageProblem,
    band_keys,
    distance,
    near_keys,
    to_signed,
)
from holdfast.model.url import url_key
from holdfast.model.visit_report import DomainProgress
from tests.support.factories import LEASE, Store
from tests.support.races import beside, wait_until_blocked

_CHECKS = {name: query for name, query in verify.CHECKS.items() if "image" in name}


def facts(text: str, dhash: int | None = None) -> ImageFacts:
    body = text.encode()
    return ImageFacts(hashlib.sha256(body).digest(), len(body), "png", 30, 20, dhash=dhash)


def fetched(url: str, text: str, dhash: int | None = None) -> FetchedImage:
    found = facts(text, dhash)
    name = found.sha256.hex()
    return FetchedImage(url_key(url), url, found, f"{name[:2]}/{name[2:4]}/{name}.png")


class Crawled:
    """Two domains with pages, and the domain of their images."""

    def __init__(self, store: Store) -> None:
        self.store, self.connection = store, store.connection
        store.seed("a.example", "b.example", "cdn.example")
        rows: dict[str, int] = dict(self.connection.execute("SELECT domain, id FROM domains").fetchall())
        self.a, self.b, self.cdn = rows["a.example"], rows["b.example"], rows["cdn.example"]

    def link(self, domain: int, page: str, image: str, **more: object) -> ImageLink:
        link = ImageLink(domain, self.store.job, url_key(page), page, url_key(image), image)
        return replace(link, **more)  # type: ignore[arg-type]

    def record(
        self,
        *rows: ImageLink | FetchedImage,
        own: tuple[int, ...] = (),
        connection: psycopg.Connection | None = None,
        near: int = 5,
    ) -> images.RecordedImages:
        connection = connection or self.connection
        with connection.transaction():
            links = [one for one in rows if isinstance(one, ImageLink)]
            found = [one for one in rows if isinstance(one, FetchedImage)]
            recorded = images.record(connection, links=links, fetched=found, own=own, near_distance=near)
            for domain_id, count in recorded.images_stored.items():
                connection.execute(
                    "UPDATE domains SET images_stored = images_stored + %s WHERE id = %s", (count, domain_id)
                )
        return recorded

    def stored(self) -> tuple[int, int]:
        """Images stored of both domains, after the sweep."""
        sweeper.sweep(self.connection, run_silence=LEASE)
        rows: dict[int, int] = dict(self.connection.execute("SELECT id, images_stored FROM domains").fetchall())
        return rows[self.a], rows[self.b]

    def provenance(self) -> list[tuple[object, ...]]:
        return self.connection.execute(
            "SELECT source_page_url, image_url, alt, found_in, discovery_type::text FROM provenance ORDER BY 1, 2"
        ).fetchall()

    def check(self) -> None:
        found = list(verify.verify(self.connection, retries=3, checks=_CHECKS))
        assert len(found) == 5
        assert [one for one in found if one.faults] == []


@pytest.fixture
def crawled(store: Store) -> Crawled:
    return Crawled(store)


@pytest.mark.parametrize("order", ["page first", "image first", "together"])
def test_pages_and_images_meet(crawled: Crawled, order: str) -> None:
    pages = [
        crawled.link(crawled.a, "http://a/1", "http://cdn/x", alt="X", found_in="srcset"),
        crawled.link(crawled.a, "http://a/2", "http://cdn/x", discovery_type="refresh"),
        crawled.link(crawled.b, "http://b/1", "http://cdn/x"),
        crawled.link(crawled.b, "http://b/1", "http://cdn/y"),
    ]
    found = [fetched("http://cdn/x", "one"), fetched("http://cdn/y", "one")]  # two URLs with the same bytes
    if order == "page first":
        crawled.record(*pages[:2], own=(crawled.a,))
        crawled.record(*pages[2:], own=(crawled.b,))
        assert crawled.provenance() == []
        assert crawled.record(*found, own=(crawled.cdn,)).new == 1
    elif order == "image first":
        crawled.record(*found, own=(crawled.cdn,))
        assert crawled.record(*pages[:2], own=(crawled.a,)).images_stored == {crawled.a: 1}
        crawled.record(*pages[2:], own=(crawled.b,))
    else:
        assert crawled.record(*pages, *found, own=(crawled.a, crawled.cdn)).images_stored == {crawled.a: 1}
    assert crawled.stored() == (1, 1)
    assert crawled.connection.execute("SELECT count(*) FROM image_links").fetchone() == (0,)
    assert crawled.provenance() == [
        ("http://a/1", "http://cdn/x", "X", "srcset", "discovery"),
        ("http://a/2", "http://cdn/x", "", "img", "refresh"),
        (
            "http://b/1",
            "http://cdn/" + ("x" if url_key("http://cdn/x") < url_key("http://cdn/y") else "y"),
            "",
            "img",
            "discovery",
        ),
    ]
    crawled.check()


def test_seen_again_changed_and_refused(crawled: Crawled) -> None:
    link = crawled.link(crawled.a, "http://a/1", "http://cdn/x")
    crawled.record(link, fetched("http://cdn/x", "one"), own=(crawled.a,))
    crawled.connection.execute(
        "UPDATE images SET first_seen_at = now() - interval '1 day', last_seen_at = now() - interval '1 day'"
    )
    crawled.connection.execute("UPDATE provenance SET last_seen_at = now() - interval '1 day'")
    # The page again; and the URL, not modified, and gone: the image stays.
    crawled.record(replace(link, alt="new"), own=(crawled.a,))
    crawled.record(FetchedImage(link.image_key, link.image_url))
    crawled.record(FetchedImage(link.image_key, link.image_url, problem="not_found"))
    row = crawled.connection.execute(
        "SELECT i.last_seen_at > now() - interval '1 hour', i.first_seen_at < now() - interval '1 hour',"
        " p.last_seen_at > now() - interval '1 hour', p.alt, u.problem"
        " FROM images i JOIN provenance p ON p.image_id = i.id JOIN image_urls u ON u.image_id = i.id"
    ).fetchone()
    assert row == (True, True, True, "new", "not_found")
    # Other bytes behind the URL: another image, and the page has had both.
    crawled.record(fetched("http://cdn/x", "two"))
    crawled.record(link, own=(crawled.a,))
    assert crawled.stored() == (2, 0)
    # Refused: its page waits for it, and has it when another URL of the same key leads to it later.
    bad = replace(facts("bomb"), problem=ImageProblem.TOO_LARGE)
    bomb = crawled.link(crawled.b, "http://b/1", "http://cdn/bomb")
    refused = FetchedImage(bomb.image_key, bomb.image_url, bad, None, str(bad.problem), "x" * 1000)
    assert crawled.record(bomb, refused, own=(crawled.b,)).new == 0
    assert crawled.stored() == (2, 0)
    crawled.check()
    crawled.record(fetched("http://cdn/bomb", "no bomb any more"))
    assert crawled.stored() == (2, 1)
    crawled.check()
    assert crawled.record() == images.RecordedImages()


def test_a_count_reaches_the_domain_of_the_page_through_its_holder(crawled: Crawled, store: Store) -> None:
    claim = next(one for one in store.claim(count=3) if one.domain_id == crawled.a)
    crawled.record(crawled.link(crawled.a, "http://a/1", "http://cdn/x"), own=(crawled.a,))
    crawled.record(fetched("http://cdn/x", "one"))
    before = store.connection.execute(
        "SELECT waiting, discovered, seeded, ready FROM job_domains WHERE domain_id = %s", (crawled.a,)
    ).fetchone()
    assert crawled.stored() == (0, 0)  # the sweep folds no wake of a domain that is held
    crawled.check()
    with store.connection.transaction():
        claims.fence(store.connection, worker="w1", held=[(claim.domain_id, claim.epoch)])
        claims.flush(
            store.connection, progress=[DomainProgress(claim.domain_id, images_stored=2)], lease=LEASE, run_id=None
        )
    store.release(claim)
    row = store.connection.execute("SELECT images_stored FROM domains WHERE id = %s", (crawled.a,)).fetchone()
    assert row == (3,)  # one by the wake, two by the flush
    after = store.connection.execute(
        "SELECT waiting, discovered, seeded, ready FROM job_domains WHERE domain_id = %s", (crawled.a,)
    ).fetchone()
    assert before is not None
    assert after is not None
    assert after[:3] == before[:3]  # a wake of images is no news of URLs


def test_near_duplicates_name_the_first_of_their_group(crawled: Crawled) -> None:
    def near() -> dict[str, str | None]:
        rows = crawled.connection.execute("SELECT id, sha256, near_duplicate_of FROM images ORDER BY id").fetchall()
        names = {hashlib.sha256(text.encode()).digest(): text for text in "abcdefgh"}
        by_id = {number: names[bytes(sha256)] for number, sha256, _ in rows}
        return {by_id[number]: other and by_id[other] for number, _, other in rows}

    first = crawled.record(
        fetched("http://c/a", "a", -1), fetched("http://c/b", "b", 0), fetched("http://c/c", "c", None)
    )
    assert (first.new, first.near_duplicates) == (3, 0)
    second = crawled.record(fetched("http://c/d", "d", to_signed(-1 ^ 0b11111)))
    assert (second.new, second.near_duplicates) == (1, 1)
    crawled.record(
        fetched("http://c/e", "e", to_signed(-1 ^ 0b11111_11111)), near=5
    )  # near d, which is of the group of a
    assert near() == {"a": None, "b": None, "c": None, "d": "a", "e": None}
    # In one batch: two that look alike, and neither like one before.
    together = crawled.record(
        fetched("http://c/f", "f", 0x0F0F << 20), fetched("http://c/g", "g", 0x0F0F << 20 | 1), near=1
    )
    assert (together.new, together.near_duplicates) == (2, 1)
    assert sorted(str(near()[name]) for name in "fg") == [
        "None",
        min("fg", key=lambda name: hashlib.sha256(name.encode()).digest()),
    ]
    crawled.check()


def test_the_bands_of_the_schema_are_those_of_the_model(connection: psycopg.Connection) -> None:
    draw = random.Random(1)
    for dhash in (-1, 0, 1, 2**63 - 1, -(2**63), *(to_signed(draw.getrandbits(64)) for _ in range(200))):
        assert connection.execute("SELECT image_bands(%s)", (dhash,)).fetchone() == (band_keys(dhash),)


def test_near_ones_are_found_by_index_among_many(connection: psycopg.Connection, crawled: Crawled) -> None:
    connection.execute(
        """INSERT INTO images (sha256, dhash) SELECT sha256(n::text::bytea),
           ('x' || substr(md5(n::text), 1, 16))::bit(64)::bigint FROM generate_series(1, 20000) n"""
    )
    connection.execute("ANALYZE images")
    rows = connection.execute("SELECT id, dhash FROM images").fetchall()
    draw = random.Random(2)
    for _ in range(20):
        number, dhash = draw.choice(rows)
        other = to_signed(dhash ^ sum(1 << bit for bit in draw.sample(range(64), 5)))
        near = [one for one, its in rows if distance(its, other) <= 5]
        parameters = {
            "ids": [10**9],
            "dhashes": [other],
            "keys": [str(near_keys(other, 5)).replace("[", "{").replace("]", "}")],
            "maximum": 5,
            "limit": 9,
        }
        found = connection.execute(images._NEAR, parameters).fetchall()
        assert number in near
        assert sorted(row[1] for row in found) == sorted(near)
    plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + images._NEAR, parameters, prepare=False))
    assert "images_bands" in plan


@pytest.mark.parametrize("known", [False, True], ids=["new URL", "known URL"])
@pytest.mark.parametrize("second", ["page", "image"])
def test_a_page_and_its_image_wait_for_each_other(
    database: Database, crawled: Crawled, second: str, known: bool
) -> None:
    if known:
        crawled.record(crawled.link(crawled.b, "http://b/1", "http://cdn/x"), own=(crawled.b,))
    page, image = crawled.link(crawled.a, "http://a/1", "http://cdn/x"), fetched("http://cdn/x", "one")
    rows = (image, page) if second == "page" else (page, image)
    with beside(database) as (other, thread):
        with crawled.connection.transaction():
            first = crawled.record(rows[0], own=(crawled.a, crawled.cdn))
            running = thread.submit(crawled.record, rows[1], own=(crawled.a,), connection=other.connection)
            with database.connect() as watch:
                assert wait_until_blocked(watch, other.connection, running)
        running.result()
    assert first.images_stored == {}
    assert crawled.stored() == (1, int(known))
    crawled.check()


def test_workers_that_store_the_same_images_never_deadlock(database: Database, crawled: Crawled) -> None:
    urls = [f"http://cdn/{number}" for number in range(30)]

    def work(seed: int) -> None:
        draw = random.Random(seed)
        domain = (crawled.a, crawled.b)[seed % 2]
        with database.connect() as connection:
            for turn in range(15):
                some = draw.sample(urls, 12)
                rows: list[ImageLink | FetchedImage] = [
                    crawled.link(domain, f"http://{seed}/{turn}", url) for url in some[:8]
                ]
                rows += [fetched(url, f"{url}", draw.getrandbits(60)) for url in some[6:]]
                draw.shuffle(rows)
                crawled.record(*rows, own=() if turn % 3 else (domain,), connection=connection)

    _together([lambda seed=seed: work(seed) for seed in range(4)])  # type: ignore[misc]
    assert crawled.connection.execute("SELECT count(*), count(DISTINCT sha256) FROM images").fetchone() == (30, 30)
    assert crawled.stored() == (30, 30)
    crawled.check()


def _together(tasks: list[Callable[[], None]]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(tasks)) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def test_garbage(database: Database, crawled: Crawled) -> None:
    connection = crawled.connection
    link = crawled.link(crawled.a, "http://a/1", "http://cdn/x")
    crawled.record(link, fetched("http://cdn/x", "one", 5), fetched("http://cdn/y", "two", 5), own=(crawled.a,))
    grace = LEASE
    assert images.count_unused(connection, grace) == images.delete_unused(connection, grace) == 0
    connection.execute(
        "UPDATE images SET last_seen_at = now() - interval '1 day', first_seen_at = now() - interval '1 day'"
    )
    assert images.count_unused(connection, grace) == 1
    # A commit that stores it again at this moment keeps it.
    with database.connect() as other, other.transaction():
        images.record(other, fetched=[fetched("http://cdn/y", "two", 5)], own=(), near_distance=5)
        assert images.delete_unused(connection, grace) == 0
    connection.execute(
        "UPDATE images SET last_seen_at = now() - interval '1 day', first_seen_at = now() - interval '1 day'"
    )
    assert images.delete_unused(connection, grace) == 1
    assert images.known_files(connection, [facts("two").sha256, facts("one").sha256]) == {facts("one").sha256}
    assert [len(chunk) for chunk in images.references(connection)] == [1]
    crawled.check()
    # And it can be stored again, when a page has it.
    crawled.record(crawled.link(crawled.a, "http://a/1", "http://cdn/y"), own=(crawled.a,))
    crawled.record(fetched("http://cdn/y", "two", 5))
    assert crawled.stored() == (2, 0)
    crawled.check()


@pytest.mark.parametrize("order", ["one by one", "together", "the end first"])
def test_pages_have_the_image_that_a_chain_of_redirects_leads_to(crawled: Crawled, order: str) -> None:
    def moved(old: str, new: str) -> FetchedImage:
        return FetchedImage(url_key(old), old, problem="redirect", moved_to=(url_key(new), new))

    first, second, end = (
        moved("http://cdn/x", "http://cdn/y"),
        moved("http://cdn/y", "http://cdn/z"),
        fetched("http://cdn/z", "one"),
    )
    before = crawled.link(crawled.a, "http://a/1", "http://cdn/x")
    crawled.record(before, own=(crawled.a,))
    batches = [[first], [second], [end]] if order == "one by one" else [[end], [second], [first]]
    for rows in [[first, second, end]] if order == "together" else batches:
        crawled.record(*rows, own=(crawled.cdn,))
    later = crawled.record(crawled.link(crawled.b, "http://b/1", "http://cdn/x"), own=(crawled.b,))
    assert later.images_stored == {crawled.b: 1}
    crawled.record(crawled.link(crawled.b, "http://b/2", "http://cdn/y"), own=(crawled.b,))
    assert crawled.stored() == (1, 1)
    assert [(page, image) for page, image, *_ in crawled.provenance()] == [
        (page, "http://cdn/z") for page in ("http://a/1", "http://b/1", "http://b/2")
    ]
    crawled.check()
    crawled.record(fetched("http://cdn/x", "two"), own=(crawled.cdn,))  # it is no redirect any more
    crawled.record(crawled.link(crawled.b, "http://b/3", "http://cdn/x"), own=(crawled.b,))
    assert crawled.provenance()[-1][1] == "http://cdn/x"
    crawled.check()


@pytest.mark.parametrize("together", [False, True])
def test_images_that_are_redirected_in_a_circle_hold_up_nobody(crawled: Crawled, together: bool) -> None:
    urls = [f"http://cdn/{name}" for name in "xyz"]
    circle = [
        FetchedImage(url_key(old), old, problem="redirect", moved_to=(url_key(new), new))
        for old, new in zip(urls, [*urls[1:], urls[0]], strict=True)
    ]
    crawled.record(crawled.link(crawled.a, "http://a/1", urls[0]), own=(crawled.a,))
    for rows in [circle] if together else [[one] for one in circle]:
        crawled.record(*rows, own=(crawled.cdn,))
    for number, url in enumerate(urls):
        crawled.record(crawled.link(crawled.b, f"http://b/{number}", url), own=(crawled.b,))
        crawled.check()
    # Two workers may close a circle at one moment.
    crawled.connection.execute("UPDATE image_urls SET moved_to = %s WHERE url = %s", (url_key(urls[1]), urls[0]))
    crawled.connection.execute("UPDATE image_urls SET moved_to = %s WHERE url = %s", (url_key(urls[2]), urls[1]))
    crawled.connection.execute("UPDATE image_urls SET moved_to = %s WHERE url = %s", (url_key(urls[0]), urls[2]))
    crawled.record(crawled.link(crawled.b, "http://b/9", urls[1]), own=(crawled.b,))
    crawled.record(fetched(urls[2], "one"), own=(crawled.cdn,))
    crawled.record(crawled.link(crawled.b, "http://b/10", urls[0]), own=(crawled.b,))
    assert ("http://b/10", urls[2]) in [row[:2] for row in crawled.provenance()]


def test_a_page_that_meets_an_image_as_it_is_redirected_is_written_again(crawled: Crawled, database: Database) -> None:
    crawled.record(crawled.link(crawled.a, "http://a/1", "http://cdn/x"), own=(crawled.a,))
    moved = FetchedImage(
        url_key("http://cdn/x"), "http://cdn/x", problem="redirect", moved_to=(url_key("http://cdn/z"), "http://cdn/z")
    )
    page = crawled.link(crawled.b, "http://b/1", "http://cdn/x")
    with beside(database) as (other, thread), database.connect() as watch:
        with crawled.connection.transaction():
            images.record(crawled.connection, fetched=[moved], own=(crawled.cdn,), near_distance=5)
            late = thread.submit(crawled.record, page, own=(crawled.b,), connection=other.connection)
            assert wait_until_blocked(watch, other.connection, late)
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.result()
    crawled.record(page, own=(crawled.b,))
    crawled.record(fetched("http://cdn/z", "one"), own=(crawled.cdn,))
    assert crawled.stored() == (1, 1)
    crawled.check()


def test_a_page_and_a_link_to_its_image_at_one_moment_wake_the_link_once(crawled: Crawled, database: Database) -> None:
    url = "http://cdn/x"
    where = (crawled.cdn, crawled.store.job, url_key(url))
    crawled.connection.execute(
        "INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth, priority) VALUES (%s, %s, %s, %s, 1, 5)",
        (*where, url),
    )
    page = crawled.link(crawled.a, "http://a/1", url)

    def show(connection: psycopg.Connection) -> None:
        with connection.transaction():
            images.record(connection, links=[page], own=(crawled.a,), near_distance=5)
            images.reopen(connection, [where])

    with beside(database) as (other, thread), database.connect() as watch:
        with crawled.connection.transaction():
            images.record(crawled.connection, linked={url_key(url): url}, own=(crawled.cdn,), near_distance=5)
            late = thread.submit(show, other.connection)
            assert wait_until_blocked(watch, other.connection, late)
            crawled.connection.execute(
                "UPDATE url_frontier SET state = 'done', reason = 'wrong_type: image/png' WHERE url = %s", (url,)
            )
            images.reopen(crawled.connection, [where])
        late.result()
    wakes = crawled.connection.execute("SELECT domain_id, again_key FROM domain_wakes").fetchall()
    assert wakes == [(crawled.cdn, url_key(url))]
    sweeper.sweep(crawled.connection, run_silence=LEASE)
    row = crawled.connection.execute(
        "SELECT state::text, resource::text, priority FROM url_frontier WHERE url = %s", (url,)
    )
    assert row.fetchone() == ("waiting", "image", 0)
    images.reopen(crawled.connection, [where])
    assert crawled.connection.execute("SELECT count(*) FROM domain_wakes").fetchone() == (0,)


def test_a_removed_domain_takes_its_rows_along(crawled: Crawled) -> None:
    crawled.record(
        crawled.link(crawled.a, "http://a/1", "http://cdn/x"),
        crawled.link(crawled.a, "http://a/1", "http://cdn/z"),
        own=(crawled.a,),
    )
    crawled.record(fetched("http://cdn/x", "one"))
    with crawled.connection.transaction():
        domain_removal.remove(crawled.connection, "a.example")
    crawled.connection.execute("UPDATE domains SET removed_at = now() - interval '1 hour' WHERE removed_at IS NOT NULL")
    while domain_removal.delete_chunk(crawled.connection, crawled.a) is not None:
        pass
    for table in ("provenance", "domain_images", "image_links"):
        assert crawled.connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert crawled.connection.execute("SELECT count(*) FROM domains WHERE id = %s", (crawled.a,)).fetchone() == (0,)
    crawled.record(fetched("http://cdn/z", "late"))
    crawled.check()
