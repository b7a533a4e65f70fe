"""Images that a commit stores: images by their content, the URLs that led to them, and the pages on which they were seen.

The rule: an image is one row however many workers store it, and a domain counts it once however many of its pages have it; both are
counted from what was really inserted. A page and its images belong to different domains and come in different commits, in either order:
rows of `image_urls` are where the two meet. All rows are written in the order of their keys, so that two workers never deadlock.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db import array_params
from holdfast.model.commit_batch import IMAGE_PRIORITY
from holdfast.model.image import FetchedImage, ImageFacts, ImageLink, near_keys
from holdfast.model.outcome import JUDGED_AT_LINK, Outcome

LOCK_ATTEMPTS: Final = 5
"""How often an image is inserted that `gc` deletes at the same moment."""
_MAX_HOPS: Final = 20
"""Redirects of an image that are followed in the rows of its URLs."""
_SEEN_AGAIN: Final = timedelta(hours=1)
"""The least time between two updates of when an image was last seen: images on many pages would be written with every commit."""

_KNOW_URLS: Final = """
INSERT INTO image_urls (url_key, url) SELECT * FROM unnest(%(keys)s::bytea[], %(urls)s::text[]) AS u(url_key, url) ORDER BY url_key
ON CONFLICT DO NOTHING
"""
# The commit of a page whose image is not stored yet, and the commit of that image, wait for each other here: the later one sees what the
# other did. A URL that led to an image needs no lock: the page finds the image, or the one that replaces it just now.
_LOCK_URLS: Final = """
SELECT url_key, moved_to IS NOT NULL FROM image_urls
WHERE url_key = ANY(%(keys)s::bytea[]) AND (image_id IS NULL OR url_key = ANY(%(fetched)s::bytea[])) ORDER BY url_key FOR {strength}
"""
# Where URLs were redirected to at last. Sites may redirect in a circle: such a chain has no end.
_MOVED: Final = """
WITH RECURSIVE hops AS (
    SELECT url_key AS old, moved_to AS new, 1 AS hop FROM image_urls WHERE url_key = ANY(%(keys)s::bytea[]) AND moved_to IS NOT NULL
    UNION ALL
    SELECT h.old, u.moved_to, h.hop + 1 FROM hops h JOIN image_urls u ON u.url_key = h.new
    WHERE u.moved_to IS NOT NULL AND h.hop < %(hops)s
)
SELECT DISTINCT ON (h.old) h.old, u.url_key, u.url, u.moved_to IS NOT NULL
FROM hops h JOIN image_urls u ON u.url_key = h.new ORDER BY h.old, h.hop DESC
"""
_FIND: Final = "SELECT sha256, id FROM images WHERE sha256 = ANY(%(hashes)s::bytea[]) ORDER BY sha256 FOR KEY SHARE"
_INSERT: Final = """
INSERT INTO images (sha256, size, dhash, width, height, frames, animated, format, media_type, file, store_id)
SELECT * FROM unnest(%(hashes)s::bytea[], %(sizes)s::bigint[], %(dhashes)s::bigint[], %(widths)s::int[], %(heights)s::int[],
                     %(frames)s::int[], %(animated)s::boolean[], %(formats)s::text[], %(types)s::text[], %(files)s::text[],
                     %(stores)s::text[])
    AS i(sha256, size, dhash, width, height, frames, animated, format, media_type, file, store_id)
ORDER BY sha256
ON CONFLICT DO NOTHING RETURNING id, dhash
"""
# Only images that are like none before them are compared with, so that the images of a group all name the same one. `+ 0` keeps the
# planner from reading the whole primary key for a condition that nearly all rows fulfil.
_NEAR: Final = """
SELECT n.id, c.id, bit_count((c.dhash # n.dhash)::bit(64))
FROM unnest(%(ids)s::bigint[], %(dhashes)s::bigint[], %(keys)s::text[]) AS n(id, dhash, keys)
CROSS JOIN LATERAL (
    SELECT i.id, i.dhash FROM images i
    WHERE i.dhash IS NOT NULL AND i.near_duplicate_of IS NULL AND image_bands(i.dhash) && n.keys::int[] AND i.id + 0 < n.id
      AND bit_count((i.dhash # n.dhash)::bit(64)) <= %(maximum)s
    ORDER BY bit_count((i.dhash # n.dhash)::bit(64)), i.id LIMIT %(limit)s
) c
ORDER BY n.id, 3, c.id
"""
_MARK_NEAR: Final = """
UPDATE images i SET near_duplicate_of = n.near FROM unnest(%(ids)s::bigint[], %(near)s::bigint[]) AS n(id, near) WHERE i.id = n.id
"""
_LEAD: Final = """
UPDATE image_urls u SET fetched_at = clock_timestamp(), image_id = COALESCE(n.image_id, u.image_id), problem = n.problem,
    detail = n.detail, moved_to = n.moved_to
FROM unnest(%(keys)s::bytea[], %(images)s::bigint[], %(problems)s::text[], %(details)s::text[], %(targets)s::bytea[])
    AS n(url_key, image_id, problem, detail, moved_to)
WHERE u.url_key = n.url_key
"""
_LINKS: Final = """
    SELECT domain_id, job_id, image_key, page_key, discovery_type, page_url, alt, found_in
    FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(page_keys)s::bytea[], %(kinds)s::text[],
                %(pages)s::text[], %(alts)s::text[], %(places)s::text[])
        AS l(domain_id, job_id, image_key, page_key, discovery_type, page_url, alt, found_in)
"""
# Links of these pages whose image is not there yet wait for it; those that waited for what was fetched now are taken.
_WAIT: Final = f"""
INSERT INTO image_links (domain_id, job_id, image_key, page_key, discovery_type, page_url, alt, found_in)
SELECT l.* FROM ({_LINKS}) l JOIN image_urls u ON u.url_key = l.image_key AND u.image_id IS NULL
ORDER BY l.image_key, l.domain_id, l.page_key
ON CONFLICT DO NOTHING
"""  # noqa: S608 — composed of the constant above only
_MOVE: Final = """
WITH moved AS (
    DELETE FROM image_links w USING unnest(%(old)s::bytea[], %(new)s::bytea[]) AS m(old, new) WHERE w.image_key = m.old
    RETURNING m.new, w.*
)
INSERT INTO image_links (domain_id, job_id, seen_at, image_key, page_key, discovery_type, page_url, alt, found_in)
SELECT domain_id, job_id, seen_at, new, page_key, discovery_type, page_url, alt, found_in FROM moved ORDER BY new, domain_id, page_key
ON CONFLICT DO NOTHING
"""
_SEE: Final = f"""
WITH waited AS (
    DELETE FROM image_links w USING image_urls u
    WHERE w.image_key = ANY(%(led)s::bytea[]) AND u.url_key = w.image_key AND u.image_id IS NOT NULL
    RETURNING w.domain_id, w.job_id, w.image_key, w.page_key, w.discovery_type, w.page_url, w.alt, w.found_in
), seen AS MATERIALIZED (
    SELECT DISTINCT ON (l.domain_id, u.image_id, l.page_key) l.*, u.image_id, u.url
    FROM (SELECT * FROM waited UNION ALL {_LINKS}) l JOIN image_urls u ON u.url_key = l.image_key AND u.image_id IS NOT NULL
    ORDER BY l.domain_id, u.image_id, l.page_key, l.image_key
), new AS (
    INSERT INTO domain_images (domain_id, image_id) SELECT DISTINCT domain_id, image_id FROM seen ORDER BY domain_id, image_id
    ON CONFLICT DO NOTHING RETURNING domain_id, image_id
), places AS (
    INSERT INTO provenance (domain_id, image_id, source_page_url, discovery_type, job_id, page_key, image_key, image_url, alt, found_in)
    SELECT domain_id, image_id, page_url, discovery_type::frontier_kind, job_id, page_key, image_key, url, alt, found_in
    FROM seen ORDER BY domain_id, image_id, page_key
    ON CONFLICT (domain_id, image_id, page_key) DO UPDATE SET last_seen_at = excluded.last_seen_at, image_key = excluded.image_key,
        image_url = excluded.image_url, alt = excluded.alt, found_in = excluded.found_in
)
SELECT n.domain_id, min(s.job_id), count(DISTINCT n.image_id) FROM new n JOIN seen s USING (domain_id, image_id)
GROUP BY n.domain_id ORDER BY n.domain_id
"""  # noqa: S608 — composed of the constant above only
# Of images that other workers write at this moment, these say when they were seen.
_SEEN_AT: Final = """
WITH stale AS MATERIALIZED (
    SELECT id FROM images WHERE id IN (SELECT image_id FROM image_urls WHERE url_key = ANY(%(keys)s::bytea[]))
      AND last_seen_at < now() - %(pause)s ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE images i SET last_seen_at = now() FROM stale WHERE i.id = stale.id
"""
_WAKE: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, images_stored)
SELECT w.domain_id, w.job_id, 0, w.images FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(images)s::int[])
    AS w(domain_id, job_id, images) JOIN domains d ON d.id = w.domain_id ORDER BY w.domain_id
"""
# The page and the link may be committed at one moment: after the locks on their URL the later of the two sees the other.
_REOPEN: Final = f"""
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_key, priority, hops)
SELECT f.domain_id, f.job_id, 0, f.url_key, {IMAGE_PRIORITY}, f.hops
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS k(domain_id, job_id, url_key)
JOIN url_frontier f ON f.domain_id = k.domain_id AND f.job_id = k.job_id AND f.url_key = k.url_key
WHERE f.resource IS NULL AND (
    (f.state = 'done' AND split_part(f.reason, ':', 1) = '{Outcome.WRONG_TYPE}')
    OR (f.state = 'denied' AND split_part(f.reason, ':', 1) = ANY(%(judged)s::text[])))
  AND EXISTS (SELECT FROM image_links l WHERE l.image_key = f.url_key AND l.job_id = f.job_id)
ORDER BY f.domain_id, f.job_id, f.url_key
"""  # noqa: S608 — composed of constants only


@dataclass(slots=True)
class RecordedImages:
    """What a batch really added."""

    images_stored: Counter[int] = field(default_factory=Counter)
    """By own domain: images that its pages have, and had not before. The caller raises the counters of its own domains."""
    new: int = 0
    """Images that were not known before."""
    near_duplicates: int = 0
    """Of the new ones, those that look like an earlier one."""


def record(
    connection: psycopg.Connection,
    *,
    links: Iterable[ImageLink] = (),
    fetched: Iterable[FetchedImage] = (),
    linked: Mapping[bytes, str] | None = None,
    own: Collection[int],
    near_distance: int,
) -> RecordedImages:
    """Record the images on pages (`links`), and what URLs of images led to (`fetched`). `linked`: URLs that were fetched as links and left
    out by their type, by key; only locked here, for `reopen`.

    Before: the domains `own` passed the fence of this transaction, which has touched no row of images yet; the files of `fetched` are on
    disk. After (with its commit): each image is one row; each page with an image that is stored is a row of provenance, or waits for its
    image; domains that are not `own` have a wake with the images that are new to them. The caller adds `images_stored` to its own.
    """
    by_key = {one.image_key: one for one in sorted(fetched, key=lambda one: one.facts is not None)}
    links = list(links)
    result = RecordedImages()
    linked = linked or {}
    if not by_key and not links and not linked:
        return result
    moved = {key: one.moved_to for key, one in sorted(by_key.items()) if one.moved_to is not None}
    shown = {one.image_key for one in links} | {key for key, _ in moved.values()}
    targets, endless = _targets(connection, shown - by_key.keys(), moved)
    followed = [_followed(one, targets) for one in links]
    pages = {(one.domain_id, one.page_key, one.image_key): one for one in followed}
    moved = {key: targets[key] for key in moved if key in targets}
    urls = {**linked, **{one.image_key: one.image_url for one in pages.values()}} | {
        key: one.image_url for key, one in by_key.items()
    }
    first_targets = {key: one.moved_to for key, one in by_key.items() if one.moved_to is not None and key in moved}
    urls |= dict(moved.values()) | dict(first_targets.values())
    known_ends = {one.image_key for one in followed} - by_key.keys() - endless
    _lock_urls(connection, urls, by_key.keys() | linked.keys(), moved_later=known_ends)
    images = _store(connection, by_key.values(), near_distance, result)
    if by_key:
        rows = [by_key[key] for key in sorted(by_key)]
        answers = {
            "keys": array_params.keys(one.image_key for one in rows),
            "images": array_params.numbers(images.get(one.facts.sha256) if one.facts else None for one in rows),
            "problems": [one.problem for one in rows],
            "details": [one.detail[:500] or None for one in rows],
            "targets": [first_targets[one.image_key][0] if one.image_key in first_targets else None for one in rows],
        }
        connection.execute(_LEAD, answers)
    found = _columns([pages[key] for key in sorted(pages)])
    if pages:
        connection.execute(_WAIT, found)
    if moved:
        ends = [key for key, _ in moved.values()]
        connection.execute(_MOVE, {"old": array_params.keys(moved), "new": array_params.keys(ends)})
    led = sorted(by_key.keys() | {key for key, _ in moved.values()})
    seen = connection.execute(_SEE, {**found, "led": array_params.keys(led)}).fetchall()
    result.images_stored.update({domain_id: count for domain_id, _, count in seen if domain_id in own})
    if foreign := [row for row in seen if row[0] not in own]:
        domains, jobs, counts = zip(*foreign, strict=True)
        connection.execute(_WAKE, {"domains": list(domains), "jobs": list(jobs), "images": list(counts)})
    connection.execute(_SEEN_AT, {"keys": array_params.keys(sorted(urls)), "pause": _SEEN_AGAIN})
    return result


def reopen(connection: psycopg.Connection, urls: Sequence[tuple[int, int, bytes]]) -> None:
    """Ask for another fetch, as images, of URLs that pages show and that were links before. `urls`: domain, job and key.

    Before: `record` has locked them in this transaction, and their outcomes are written. After: those that were left out by their type, or
    denied because of their link, and for which a page of the job waits, have a wake; their holder folds it.
    """
    if urls:
        domains, jobs, keys = zip(*urls, strict=True)
        parameters = {"domains": list(domains), "jobs": list(jobs), "keys": array_params.keys(keys)}
        connection.execute(_REOPEN, parameters | {"judged": sorted(JUDGED_AT_LINK)})


_Target = tuple[bytes, str]
"""The key and the URL that a URL was redirected to."""


def _targets(
    connection: psycopg.Connection, fetched_before: Collection[bytes], moved: Mapping[bytes, _Target]
) -> tuple[dict[bytes, _Target], set[bytes]]:
    """Where URLs were redirected to at last: those of `fetched_before` by earlier commits, and those that are `moved` by this one. Those
    that are redirected in a circle are left out; they and their targets are the second value."""
    keys = array_params.keys(sorted(fetched_before))
    found = connection.execute(_MOVED, {"keys": keys, "hops": _MAX_HOPS}).fetchall() if fetched_before else []
    endless = {bytes(key) for old, new, _, goes_on in found if goes_on for key in (old, new)}
    known: dict[bytes, _Target] = {bytes(old): (bytes(new), url) for old, new, url, goes_on in found if not goes_on}
    known |= moved
    targets: dict[bytes, _Target] = {}
    for key in known:
        target = known[key]
        for _ in range(_MAX_HOPS):
            target = known.get(target[0], target)
        if target[0] in known or target[0] in endless:
            endless |= {key, target[0]}
        else:
            targets[key] = target
    return targets, endless


def _followed(link: ImageLink, targets: Mapping[bytes, _Target]) -> ImageLink:
    """The link with the URL that its own was redirected to."""
    target = targets.get(link.image_key)
    return link if target is None else replace(link, image_key=target[0], image_url=target[1])


def _lock_urls(
    connection: psycopg.Connection,
    urls: dict[bytes, str],
    fetched: Collection[bytes],
    *,
    moved_later: Collection[bytes],
) -> None:
    """Before: nothing. After: each URL has a row, and no other transaction is between finding an image and waiting for it. Raises
    SerializationFailure if one of `moved_later` was redirected at this moment: the batch is written again."""
    keys = sorted(urls)
    packed = array_params.keys(keys)
    connection.execute(_KNOW_URLS, {"keys": packed, "urls": [urls[key] for key in keys]})
    # One strength for all rows, in one statement: rows that are locked in two rounds would be locked in two orders.
    query = _LOCK_URLS.format(strength="NO KEY UPDATE" if fetched else "SHARE")
    rows = connection.execute(query, {"keys": packed, "fetched": array_params.keys(sorted(fetched))})
    if any(moved and bytes(key) in moved_later for key, moved in rows):
        raise psycopg.errors.SerializationFailure("an image was redirected as its page was written")


def _store(
    connection: psycopg.Connection, fetched: Iterable[FetchedImage], near_distance: int, result: RecordedImages
) -> dict[bytes, int]:
    """Insert the images that are not known; returns the ids of all by their hash. After: no other transaction deletes them."""
    files = {
        one.facts.sha256: (one.facts, one.file, one.store_id)
        for one in fetched
        if one.facts is not None and one.file is not None
    }
    if not files:
        return {}
    hashes = {"hashes": array_params.keys(sorted(files))}
    for _ in range(LOCK_ATTEMPTS):
        ids = {bytes(sha256): number for sha256, number in connection.execute(_FIND, hashes)}
        missing = [files[sha256] for sha256 in sorted(files.keys() - ids.keys())]
        if not missing:
            return ids
        new = connection.execute(_INSERT, _image_columns(missing)).fetchall()
        result.new += len(new)
        result.near_duplicates += _mark_near(connection, new, near_distance)
    raise psycopg.errors.SerializationFailure("images were deleted as often as they were inserted")


def _mark_near(connection: psycopg.Connection, new: Sequence[tuple[int, int | None]], maximum: int) -> int:
    """Find for each new image the one that it looks like; returns how many have one."""
    compared = [(number, dhash) for number, dhash in new if dhash is not None]
    if not compared:
        return 0
    parameters = {
        "ids": array_params.numbers(number for number, _ in compared),
        "dhashes": array_params.numbers(dhash for _, dhash in compared),
        "keys": [array_params.numbers(near_keys(dhash, maximum)) for _, dhash in compared],
        "maximum": maximum,
        "limit": 1
        + len(compared),  # one of an earlier commit, if others of this one turn out to be no first of a group
    }
    near: dict[int, int] = {}
    for number, other, _ in connection.execute(_NEAR, parameters).fetchall():
        if number not in near and other not in near:
            near[number] = other
    if near:
        numbers = sorted(near)
        marks = {"ids": array_params.numbers(numbers), "near": array_params.numbers(near[one] for one in numbers)}
        connection.execute(_MARK_NEAR, marks)
    return len(near)


def _image_columns(images: Sequence[tuple[ImageFacts, str, str | None]]) -> dict[str, Any]:
    facts = [one for one, _, _ in images]
    return {
        "hashes": array_params.keys(one.sha256 for one in facts),
        "sizes": array_params.numbers(one.size for one in facts),
        "dhashes": array_params.numbers(one.dhash for one in facts),
        "widths": array_params.numbers(one.width for one in facts),
        "heights": array_params.numbers(one.height for one in facts),
        "frames": array_params.numbers(one.frames for one in facts),
        "animated": array_params.numbers(one.animated for one in facts),
        "formats": [one.format for one in facts],
        "types": [one.media_type for one in facts],
        "files": [file for _, file, _ in images],
        "stores": [store for _, _, store in images],
    }


def _columns(links: Sequence[ImageLink]) -> dict[str, Any]:
    return {
        "domains": array_params.numbers(one.domain_id for one in links),
        "jobs": array_params.numbers(one.job_id for one in links),
        "keys": array_params.keys(one.image_key for one in links),
        "page_keys": array_params.keys(one.page_key for one in links),
        "kinds": [one.discovery_type for one in links],
        "pages": [one.page_url for one in links],
        "alts": [one.alt for one in links],
        "places": [one.found_in for one in links],
    }


# Garbage --------------------------------------------------------------------------------------------------------------

# A commit that stores the image shares its row, and is waited for by the next run.
_UNUSED: Final = """
SELECT id FROM images i
WHERE i.id > %(after)s AND i.last_seen_at < now() - %(grace)s AND NOT EXISTS (SELECT FROM provenance p WHERE p.image_id = i.id)
ORDER BY i.id LIMIT %(chunk)s FOR UPDATE SKIP LOCKED
"""
_COUNT_UNUSED: Final = """
SELECT count(*) FROM images i
WHERE i.last_seen_at < now() - %(grace)s AND NOT EXISTS (SELECT FROM provenance p WHERE p.image_id = i.id)
"""
# A statement of its own: it sees what was committed before the rows were locked.
_DELETE_UNUSED: Final = """
WITH gone AS (
    DELETE FROM images i WHERE i.id = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM provenance p WHERE p.image_id = i.id) RETURNING i.id
), likes AS (
    UPDATE images SET near_duplicate_of = NULL WHERE near_duplicate_of IN (SELECT id FROM gone)
), urls AS (
    UPDATE image_urls SET image_id = NULL WHERE image_id IN (SELECT id FROM gone)
)
SELECT count(*) FROM gone
"""
_DELETE_LINKS: Final = """
DELETE FROM image_links WHERE ctid = ANY(ARRAY(SELECT ctid FROM image_links WHERE seen_at < now() - %(grace)s LIMIT %(chunk)s))
"""
_KNOWN_FILES: Final = "SELECT sha256 FROM images WHERE sha256 = ANY(%(hashes)s::bytea[])"
_REFERENCES: Final = """
SELECT id, sha256, file, store_id FROM images WHERE id > %(after)s AND file IS NOT NULL ORDER BY id LIMIT %(chunk)s
"""
CHUNK: Final = 1000
LINK_AGE: Final = timedelta(days=30)
"""How long a page waits for an image whose URL is not fetched; the next visit of the page begins anew."""


def count_unused(connection: psycopg.Connection, grace: timedelta) -> int:
    """Return how many images no page has, that were last seen before `grace`."""
    row = connection.execute(_COUNT_UNUSED, {"grace": grace}).fetchone()
    return int(row[0]) if row else 0


def delete_unused(connection: psycopg.Connection, grace: timedelta) -> int:
    """Delete the rows of images that no page has; returns how many. Before: no transaction is open. Their files are orphans then."""
    after = deleted = 0
    while True:
        with connection.transaction():
            parameters = {"after": after, "grace": grace, "chunk": CHUNK}
            ids = [row[0] for row in connection.execute(_UNUSED, parameters)]
            if ids:
                row = connection.execute(_DELETE_UNUSED, {"ids": ids}).fetchone()
                deleted += row[0] if row else 0
                after = ids[-1]
        if len(ids) < CHUNK:
            break
    while connection.execute(_DELETE_LINKS, {"grace": LINK_AGE, "chunk": CHUNK}).rowcount == CHUNK:
        pass
    return deleted


def has_any(connection: psycopg.Connection) -> bool:
    """Return whether any image is stored."""
    row = connection.execute("SELECT EXISTS (SELECT FROM images)").fetchone()
    return bool(row and row[0])


def problems(connection: psycopg.Connection) -> dict[str, str | None]:
    """Return why what the URL of an image led to is not stored, for each URL that was fetched; None: it is stored."""
    rows = connection.execute("SELECT url, problem FROM image_urls WHERE fetched_at IS NOT NULL ORDER BY url")
    return dict(rows.fetchall())


def known_files(connection: psycopg.Connection, hashes: Sequence[bytes]) -> set[bytes]:
    """Return those of these hashes that are images."""
    rows = connection.execute(_KNOWN_FILES, {"hashes": array_params.keys(hashes)})
    return {bytes(row[0]) for row in rows}


def references(connection: psycopg.Connection, after: int = 0) -> Iterable[list[dict[str, Any]]]:
    """Yield all images with their files, in chunks, each in a short statement."""
    while True:
        with connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(_REFERENCES, {"after": after, "chunk": CHUNK}).fetchall()
        if rows:
            yield rows
            after = rows[-1]["id"]
        if len(rows) < CHUNK:
            return
