"""Images: list, show, read their files and thumbnails, and collect garbage."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.archive.image_store import ImageStore, sha256_of
from holdfast.control.listings import read_page
from holdfast.db import backups, images
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import NotFound
from holdfast.images import queries
from holdfast.images.records import Garbage, Image, ImageDetails, ImageFilter
from holdfast.images.thumbnails import Thumbnails

GRACE: Final = timedelta(days=1)
"""Files and rows that are younger are no garbage: a crawl writes the bytes of an image before its row."""
IMAGE: Final = "image"
"""The kind of these files, among those that nothing names."""
_FILES_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class ImageFileContent:
    """The file of an image, as it is sent."""

    body: bytes
    format: str
    media_type: str
    sha256: str


def _nowhere(_key: str) -> bool:
    """There are no copies."""
    return False


@dataclass(frozen=True, slots=True)
class ImageService:
    """The images of one store."""

    database: Database
    store: ImageStore
    thumbnails: Thumbnails
    registrable: bool = False
    is_backed_up: Callable[[str], bool] = _nowhere
    """Whether the backups of this machine have a copy of a file."""

    def page(
        self, where: ImageFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Image]:
        """Return one page of the list. Raises UsageError, NotFound."""
        filters = (where or ImageFilter()).given()
        if "near" in filters and where is not None and where.near is not None:
            with self.database.session() as connection:
                filters["near"] = queries.group_of(connection, where.near)
        return read_page(self.database, queries.IMAGES, filters, order, after, limit, registrable=self.registrable)

    def show(self, image_id: int) -> ImageDetails:
        """Return an image with pages that have it and near duplicates. Raises NotFound."""
        with self.database.session() as connection:
            image, file = queries.get(connection, image_id)
            return ImageDetails(
                image=image,
                file=file,
                places=queries.places_of(connection, image_id),
                near=queries.near(connection, image_id),
            )

    def sha256(self, image_id: int) -> str:
        """Return the hash of an image, in hexadecimal digits. Raises NotFound."""
        with self.database.session() as connection:
            return queries.file_of(connection, image_id)[3]

    def file(self, image_id: int) -> ImageFileContent:
        """Return the bytes of an image. Raises NotFound, ArchiveDamaged, ImageStoreUnavailable."""
        with self.database.session() as connection:
            key, name, media_type, sha256 = queries.file_of(connection, image_id)
        return ImageFileContent(self.store.get(key), name, media_type, sha256)

    def thumbnail(self, image_id: int) -> bytes:
        """Return the thumbnail of an image as WebP. Raises NotFound if it has none: an SVG, which is not rendered."""
        with self.database.session() as connection:
            key, name, _, sha256 = queries.file_of(connection, image_id)
        made = None if name == "svg" else self.thumbnails.get(sha256, lambda: self.store.get(key))
        if made is None:
            raise NotFound(f"Image {image_id} is a {name.upper()} of which no thumbnail can be made.")
        return made

    def collect_garbage(
        self,
        grace: timedelta = GRACE,
        *,
        dry_run: bool = False,
        watch: Callable[[int], None] = lambda _: None,
    ) -> Garbage:
        """Delete images that no page has, files to which no image points, and unfinished files, all older than `grace`.

        After: no file is left that was there for longer than `grace` and that neither a row names nor a kept backup that has no copy of
        it. A file that a crawl puts at this moment, and whose row is not committed yet, stays. `watch` is called with the number of files
        that were looked at. Raises ImageStoreUnavailable.
        """
        with self.database.session() as connection:
            rows = images.count_unused(connection, grace) if dry_run else images.delete_unused(connection, grace)
        files = size = seen = for_backups = 0
        last = ""
        while found := self.store.list(last, _FILES_AT_ONCE):
            last = found[-1].key
            with self.database.session() as connection:
                known = images.known_files(connection, [sha256_of(one.key) for one in found])
                named = [one.key for one in found if sha256_of(one.key) in known]
                now = datetime.now(UTC)
                # Decided again by the store, as a file may be put now.
                old = [one for one in found if sha256_of(one.key) not in known and now - one.modified_at >= grace]
                copied = {one.key for one in old if self.is_backed_up(one.key)}
                alone = [one.key for one in old if one.key not in copied]
                free = copied | backups.deletable(connection, IMAGE, alone, dry_run=dry_run)
                deleted = [
                    one for one in old if one.key in free and (dry_run or self.store.delete_orphan(one.key, grace))
                ]
                for_backups += sum(one.key not in free for one in old)
                if not dry_run:
                    backups.forget_unnamed(connection, IMAGE, [*named, *(one.key for one in deleted)])
            files += len(deleted)
            size += sum(one.size for one in deleted)
            seen += len(found)
            watch(seen)
        return Garbage(rows, files, size, self.store.delete_leftovers(grace, dry_run=dry_run), dry_run, for_backups)
