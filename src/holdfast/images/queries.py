"""SQL of images: their list, one with its places, and rows for an export. What crawls write is in `db/images`."""

from collections.abc import Iterator
from typing import Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Listing, Order, SortColumn
from holdfast.db.rows import by_name, select_list
from holdfast.errors import NotFound
from holdfast.images.records import ExportedImage, Image, ImagePlace, UrlImage

PLACES: Final = 100
"""Pages and near duplicates of one image that are shown."""
EXPORT_CHUNK: Final = 1000

# `+ 0`: lists are planned without sorting, and would walk the primary key of provenance for each image instead.
_PLACE: Final = """
    LEFT JOIN LATERAL (
        SELECT p.image_url, p.alt, d.domain FROM provenance p LEFT JOIN domains d ON d.id = p.domain_id AND d.removed_at IS NULL
        WHERE p.image_id = t.id ORDER BY p.id + 0 LIMIT 1
    ) p ON true
"""
_COLUMNS: Final = select_list(
    Image, "t", sha256="encode(t.sha256, 'hex')", url="p.image_url", domain="p.domain", alt="p.alt"
)
_BY_ID: Final = (("format",), ("near",), ())

IMAGES: Final = Listing(
    "images",
    _COLUMNS,
    Image,
    {
        "domain": "EXISTS (SELECT FROM domain_images x WHERE x.domain_id = %(domain)s::bigint AND x.image_id = t.id)",
        "job": "EXISTS (SELECT FROM provenance x WHERE x.image_id = t.id AND x.job_id = %(job)s::bigint)",
        "format": Equals("t.format", "%(format)s::text"),
        "min_width": "t.width >= %(min_width)s::int",
        "min_height": "t.height >= %(min_height)s::int",
        "since": "t.first_seen_at >= %(since)s::timestamptz",
        "near": "(t.id = %(near)s::bigint OR t.near_duplicate_of = %(near)s::bigint)",
    },
    {
        "newest": Order((SortColumn("t.id", int, descending=True),), (("format",), ())),
        "oldest": Order((SortColumn("t.id", int),), (("format",), ())),
    },
    joins=_PLACE,
    selective=frozenset({"domain", "near"}),
)

_ONE: Final = f"SELECT {_COLUMNS}, t.file FROM images t {_PLACE} WHERE t.id = %(id)s AND t.file IS NOT NULL"  # noqa: S608 — constants
_FILE: Final = (
    "SELECT file, format, media_type, encode(sha256, 'hex') FROM images WHERE id = %(id)s AND file IS NOT NULL"
)
_PLACES: Final = f"""
SELECT {
    select_list(
        ImagePlace,
        "t",
        page_url="t.source_page_url",
        domain="d.domain",
        job="j.name",
        discovery_type="t.discovery_type::text",
    )
}
FROM provenance t JOIN domains d ON d.id = t.domain_id AND d.removed_at IS NULL LEFT JOIN crawl_jobs j ON j.id = t.job_id
WHERE t.image_id = %(id)s ORDER BY t.id LIMIT {PLACES}
"""  # noqa: S608 — constants
_GROUP: Final = "SELECT COALESCE(near_duplicate_of, id) FROM images WHERE id = %(id)s"
_NEAR: Final = f"""
SELECT n.id FROM (SELECT id, COALESCE(near_duplicate_of, id) AS first FROM images WHERE id = %(id)s) i
JOIN images n ON n.id = i.first OR n.near_duplicate_of = i.first
WHERE n.id <> i.id ORDER BY n.id LIMIT {PLACES}
"""  # noqa: S608 — constants
_OF_URL: Final = f"""
SELECT {select_list(UrlImage, "i", fetched_at="u.fetched_at", problem="u.problem", detail="u.detail")}
FROM image_urls u LEFT JOIN images i ON i.id = u.image_id AND i.file IS NOT NULL WHERE u.url_key = %(key)s
"""  # noqa: S608 — constants
_EXPORT: Final = f"""
WITH chunk AS MATERIALIZED (
    SELECT t.* FROM images t WHERE t.id > %(after)s AND t.file IS NOT NULL
    AND (%(domain)s::bigint IS NULL OR EXISTS (SELECT FROM domain_images x WHERE x.domain_id = %(domain)s AND x.image_id = t.id))
    AND (%(job)s::bigint IS NULL OR EXISTS (SELECT FROM provenance x WHERE x.image_id = t.id AND x.job_id = %(job)s))
    ORDER BY t.id LIMIT {EXPORT_CHUNK}
)
SELECT t.id, {
    select_list(
        ExportedImage,
        "t",
        sha256="encode(t.sha256, 'hex')",
        near_duplicate_of="encode(n.sha256, 'hex')",
        image_url="p.image_url",
        page_url="p.source_page_url",
        domain="d.domain",
        alt="p.alt",
        found_in="p.found_in",
        first_seen_at="COALESCE(p.first_seen_at, t.first_seen_at)",
        last_seen_at="COALESCE(p.last_seen_at, t.last_seen_at)",
    )
}
FROM chunk t LEFT JOIN images n ON n.id = t.near_duplicate_of
LEFT JOIN provenance p ON p.image_id = t.id AND (%(domain)s::bigint IS NULL OR p.domain_id = %(domain)s)
    AND (%(job)s::bigint IS NULL OR p.job_id = %(job)s)
LEFT JOIN domains d ON d.id = p.domain_id
ORDER BY t.id, p.id
"""  # noqa: S608 — constants


def get(connection: psycopg.Connection, image_id: int) -> tuple[Image, str]:
    """Return an image and the key of its file. Raises NotFound."""
    with connection.cursor(row_factory=by_name(_with_file, image=Image)) as cursor:
        row = cursor.execute(_ONE, {"id": image_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no image {image_id}.")
    return row


def _with_file(image: Image, file: str) -> tuple[Image, str]:
    return image, file


def file_of(connection: psycopg.Connection, image_id: int) -> tuple[str, str, str, str]:
    """Return the key of an image's file, its format, media type and hash. Raises NotFound."""
    row = connection.execute(_FILE, {"id": image_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no image {image_id}.")
    return row[0], row[1], row[2], row[3]


def group_of(connection: psycopg.Connection, image_id: int) -> int:
    """Return the first of the near duplicates of an image: the image itself if it is like none before it. Raises NotFound."""
    row = connection.execute(_GROUP, {"id": image_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no image {image_id}.")
    return int(row[0])


def places_of(connection: psycopg.Connection, image_id: int) -> list[ImagePlace]:
    """Return the first pages that have an image."""
    with connection.cursor(row_factory=by_name(ImagePlace)) as cursor:
        return cursor.execute(_PLACES, {"id": image_id}).fetchall()


def near(connection: psycopg.Connection, image_id: int) -> list[int]:
    """Return the ids of the near duplicates of an image."""
    return [row[0] for row in connection.execute(_NEAR, {"id": image_id})]


def of_url(connection: psycopg.Connection, url_key: bytes) -> UrlImage | None:
    """Return what a URL led to as an image; None: no page that was crawled for images has it."""
    with connection.cursor(row_factory=by_name(UrlImage)) as cursor:
        return cursor.execute(_OF_URL, {"key": url_key}).fetchone()


def export_chunks(
    connection: psycopg.Connection, *, domain_id: int | None = None, job_id: int | None = None
) -> Iterator[list[ExportedImage]]:
    """Yield images with the pages that have them, in chunks of images, each in a short statement; those of an image follow one another."""
    after = 0
    while True:
        with connection.cursor(row_factory=by_name(_with_id, row=ExportedImage)) as cursor:
            parameters = {"after": after, "domain": domain_id, "job": job_id}
            rows = cursor.execute(_EXPORT, parameters, prepare=False).fetchall()
        if not rows:
            return
        after = rows[-1][0]
        yield [row for _, row in rows]


def _with_id(id: int, row: ExportedImage) -> tuple[int, ExportedImage]:  # noqa: A002 — as the column
    return id, row
