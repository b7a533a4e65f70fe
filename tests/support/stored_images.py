"""Images in a store, as if a crawl had stored them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from holdfast.archive.image_store import ImageStore
from holdfast.db import images
from holdfast.db.connection import Connection
from holdfast.model.image import FetchedImage, ImageFacts, ImageLink
from holdfast.model.url import url_key
from holdfast.parse.image_check import ImageChecker, ImageLimits
from tests.support.crawled import HOME
from tests.support.pictures import encoded, jpeg, photo

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='10' height='20'><script>alert(1)</script></svg>"
PICTURES = {
    "https://cdn.example/one.jpg": jpeg(1),
    "https://cdn.example/small.webp": encoded(photo(1, (160, 120)), "WEBP"),
    "https://cdn.example/two.png": encoded(photo(2, (640, 480)), "PNG"),
    "https://cdn.example/logo.svg": SVG,
}
"""By URL: two that look alike, another, and one that is not rendered."""


def put_images(
    connection: Connection,
    store: ImageStore,
    pictures: dict[str, bytes] | None = None,
    *,
    page: str = HOME,
    alt: str = "A picture",
) -> list[int]:
    """Store images that a crawled page has; returns their ids in the order of `pictures`."""
    pictures = PICTURES if pictures is None else pictures
    with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
        facts = thread.submit(asyncio.run, _checked(list(pictures.values()))).result()
    where = "SELECT domain_id, job_id FROM url_frontier WHERE url_key = %s"
    domain_id, job_id = connection.execute(where, (url_key(page),)).fetchone() or (0, 0)
    ids = []
    for (url, body), one in zip(pictures.items(), facts, strict=True):
        assert one.problem is None
        assert one.extension is not None
        file = store.put(one.sha256, one.extension, body)
        link = ImageLink(domain_id, job_id, url_key(page), page, url_key(url), url, alt)
        with connection.transaction():
            recorded = images.record(
                connection,
                links=[link],
                fetched=[FetchedImage(url_key(url), url, one, file, store_id=store.store_id())],
                own=[domain_id],
                near_distance=5,
            )
            count = recorded.images_stored[domain_id]
            connection.execute(
                "UPDATE domains SET images_stored = images_stored + %s WHERE id = %s", (count, domain_id)
            )
        found = connection.execute("SELECT id FROM images WHERE sha256 = %s", (one.sha256,)).fetchone()
        assert found is not None
        ids.append(int(found[0]))
    return ids


async def _checked(bodies: list[bytes]) -> list[ImageFacts]:
    checker = ImageChecker(ImageLimits(), deadline=60)
    try:
        return [await checker.check(body) for body in bodies]
    finally:
        await checker.aclose()
