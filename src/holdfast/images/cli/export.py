"""`holdfast export images`: files of images and their metadata, to a folder or an S3-compatible store."""

from contextlib import closing
from pathlib import Path

import typer

from holdfast import factories
from holdfast.archive.image_store import ImageStore, S3ImageStore
from holdfast.archive.object_store import S3_PREFIX
from holdfast.cli import command_context, output
from holdfast.cli.command_context import CommandContext
from holdfast.cli.output import pluralize, safe
from holdfast.errors import UsageError
from holdfast.images.export import METADATA, ExportedImages, ImageExporter, folder_target
from holdfast.settings import Images


def export_images(context: CommandContext, target: str, *, job: str | None, domain: str | None, as_json: bool) -> None:
    """Copy images to `target` and write their metadata. Exits with 1 if files are missing."""
    context.require_local(
        "`holdfast export images`",
        "it copies files of the machine that has them. Run it there, or take the files from the API.",
    )
    settings = context.settings
    if target.startswith(S3_PREFIX):
        given = settings.images.model_dump() | {"store": target}
        try:
            store: ImageStore = S3ImageStore(Images.model_validate(given))
        except ValueError:
            # Without the error as its cause: it would quote the settings.
            raise UsageError(
                f"{target!r} is no target: s3://bucket or s3://bucket/prefix; a bucket has 3 to 63 characters."
            ) from None
        metadata = Path(METADATA)
        if metadata.exists():
            raise UsageError(f"{METADATA} exists in this folder, where the metadata go; move it away.")
    else:
        store, metadata = folder_target(Path(target))
    exporter = ImageExporter(context.store(), factories.image_store(settings), settings.domains.registrable)
    done = ExportedImages()
    with (
        output.ProgressBar("Exporting images", None, "image") as bar,
        closing(exporter.write(store, metadata, domain=domain, job=job)) as steps,
    ):
        for done in steps:
            bar.show(done.images, done.images, None)
    if as_json:
        output.print_json({"target": target, "metadata": str(metadata), **_figures(done)})
    else:
        known = done.images - done.copied - done.missing
        output.print_line(
            f"{pluralize(done.copied, 'image')} copied to {safe(store.place)}, {known:,} known already; "
            f"{pluralize(done.rows, 'row')} in {safe(str(metadata))}."
        )
    if done.missing:
        command_context.say(
            f"{pluralize(done.missing, 'image')} could not be copied: the files are not in {safe(exporter.store.place)}, or are damaged."
        )
        raise typer.Exit(1)


def _figures(done: ExportedImages) -> dict[str, int]:
    return {"rows": done.rows, "images": done.images, "copied": done.copied, "missing": done.missing}
