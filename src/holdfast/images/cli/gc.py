"""`holdfast gc`: delete files of images that no row names, and images that no page has."""

from datetime import timedelta
from typing import Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import format_bytes, pluralize
from holdfast.errors import UsageError
from holdfast.images.service import GRACE
from holdfast.model import duration


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("gc", cls=Command)(gc)


def gc(
    ctx: typer.Context,
    grace: Annotated[
        str, typer.Option("--grace", metavar="TIME", help="What is younger is kept: a crawl writes files before rows.")
    ] = duration.render(GRACE),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted; delete nothing.")] = False,
    segments: Annotated[
        bool, typer.Option("--segments", help="Also files of the archive (WARC) that no page, version or task names.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Delete images that no page has, files of images to which nothing points, and what killed processes left unfinished.

    Crawls may run meanwhile. A crawl that was killed may leave such files; nothing ever points to a file that is not there. A file that a
    kept backup may name stays until that backup is deleted. With --segments files of the archive go, too, without a copy: pages that were
    purged, jobs that were deleted; `holdfast retention run` moves them to the store of archives instead.

    Examples:
        holdfast gc --dry-run
        holdfast gc --grace 7d
        holdfast gc --segments --dry-run
    """
    context = command_context.get(ctx)
    service = factories.image_service(context.settings, context.store())
    with output.ProgressBar("Looking at files", None, "file") as bar:
        found = service.collect_garbage(_grace(grace), dry_run=dry_run, watch=lambda seen: bar.show(seen, seen, None))
        collected = None
        if segments:
            collected = factories.retention_service(context.settings, context.store()).collect_segments(
                _grace(grace), dry_run=dry_run, watch=lambda seen: bar.show(seen, seen, None)
            )
    if as_json:
        output.print_json(found if collected is None else {"images": found, "segments": collected})
        return
    verb = "would be deleted" if dry_run else "deleted"
    output.print_line(
        f"{pluralize(found.images, 'image')} without a page, {pluralize(found.files, 'file')} without an image "
        f"({format_bytes(found.bytes)}) and {pluralize(found.leftovers, 'unfinished file')} {verb}."
    )
    if collected is not None:
        output.print_line(
            f"{pluralize(collected.files, 'file')} of the archive that nothing names ({format_bytes(collected.bytes)}) {verb}."
        )
    if waiting := found.for_backups + (collected.for_backups if collected else 0):
        output.print_line(
            f"{pluralize(waiting, 'file')} more: a kept backup may name them and has no copy, so they stay until it is deleted "
            "(`holdfast backup list`)."
        )


def _grace(text: str) -> timedelta:
    try:
        found = duration.parse(text)
    except ValueError as problem:
        raise UsageError(f"--grace {problem}.") from problem
    return found
