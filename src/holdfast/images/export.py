"""Export of images: their files, and one Parquet file with a row for each page that has one.

The rule: an export that was interrupted continues: files that are there are not copied again, and the file of metadata appears when all
are there.
"""

from collections.abc import Generator
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.archive.image_store import FolderImageStore, ImageStore, sha256_of
from holdfast.atomic_file import AtomicFile
from holdfast.control.listings import resolve_names
from holdfast.db.connection import Database
from holdfast.errors import ArchiveDamaged, ImageStoreUnavailable, NotFound, UsageError
from holdfast.images import queries
from holdfast.images.records import ExportedImage

METADATA: Final = "images.parquet"
_TYPES: Final = {int: pa.int64(), str: pa.string(), datetime: pa.timestamp("us", tz="UTC")}
_SCHEMA: Final = pa.schema(
    [
        (field.name, _TYPES[next(kind for kind in _TYPES if kind.__name__ in str(field.type))])
        for field in fields(ExportedImage)
    ]
)


@dataclass(slots=True)
class ExportedImages:
    """How far an export of images is."""

    rows: int = 0
    images: int = 0
    copied: int = 0
    """Of the images; the others were there."""
    missing: int = 0
    """Images whose file is not in the store of this machine, or is damaged."""


@dataclass(frozen=True, slots=True)
class ImageExporter:
    """Copies images of one store to a folder, or to an S3-compatible store."""

    database: Database
    store: ImageStore
    registrable: bool = False

    def write(
        self, target: ImageStore, metadata: Path, *, domain: str | None = None, job: str | None = None
    ) -> Generator[ExportedImages, None, None]:
        """Copy images to `target`, then write the file `metadata`. Yields after each chunk. Raises NotFound, ImageStoreUnavailable."""
        done = ExportedImages()
        file = AtomicFile(metadata)
        try:
            with self.database.session() as connection, pq.ParquetWriter(file.stream, _SCHEMA) as writer:
                names = {name: value for name, value in (("domain", domain), ("job", job)) if value is not None}
                ids: dict[str, Any] = resolve_names(connection, names, registrable=self.registrable)
                for rows in queries.export_chunks(connection, domain_id=ids.get("domain"), job_id=ids.get("job")):
                    for key in dict.fromkeys(row.file for row in rows):
                        self._copy(target, key, done)
                    writer.write_table(pa.Table.from_pylist([asdict(row) for row in rows], _SCHEMA))
                    done.rows += len(rows)
                    yield done
            file.complete()
        except ImageStoreUnavailable as problem:
            raise ImageStoreUnavailable(
                f"{problem} {done.copied:,} of {done.images:,} images were copied before; the same command copies what is missing "
                f"and then writes {metadata.name}."
            ) from None
        finally:
            file.discard()
        yield done

    def _copy(self, target: ImageStore, key: str, done: ExportedImages) -> None:
        done.images += 1
        if target.exists(key):
            return
        try:
            body = self.store.get(key)
        except (NotFound, ArchiveDamaged):
            done.missing += 1
            return
        target.put(sha256_of(key), key.rpartition(".")[2], body)
        done.copied += 1


def folder_target(folder: Path) -> tuple[ImageStore, Path]:
    """The target of an export to a folder, and the place of its metadata. After: the folder exists. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        why = "it is a file" if isinstance(problem, FileExistsError) else (problem.strerror or str(problem)).lower()
        raise UsageError(f"The folder {str(folder)!r} cannot be made: {why}. Name another folder.") from problem
    return FolderImageStore(folder / "files"), folder / METADATA
