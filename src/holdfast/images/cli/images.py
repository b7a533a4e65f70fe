"""`holdfast images`: images that crawls stored."""

from typing import Annotated, Protocol

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command, Group
from holdfast.cli.output import format_bytes, safe
from holdfast.db.keyset_pagination import Key, Page
from holdfast.images.records import Image, ImageDetails, ImageFilter

app = typer.Typer(cls=Group, help="Images that crawls stored, and the pages that have them.", no_args_is_help=True)


class Images(Protocol):
    """Images of a store, or of a server."""

    def page(self, where: ImageFilter, *, after: Key | None, limit: int) -> Page[Image]: ...

    def show(self, image_id: int) -> ImageDetails: ...


def _images(ctx: typer.Context) -> Images:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.tasks import RemoteImages

        return RemoteImages(context.client)
    return factories.image_service(context.settings, context.store())


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    domain: Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only on pages of this domain.")] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only what this job saw first."),
    ] = None,
    format: Annotated[str | None, typer.Option(metavar="FORMAT", help="Only of this format: jpeg, png …")] = None,  # noqa: A002 — the option
    min_width: Annotated[int | None, typer.Option(metavar="PIXELS", min=1, help="Minimum width.")] = None,
    min_height: Annotated[int | None, typer.Option(metavar="PIXELS", min=1, help="Minimum height.")] = None,
    near: Annotated[int | None, typer.Option(metavar="IMAGE", min=1, help="Only near duplicates of this one.")] = None,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List images, those that were stored last first.

    Examples:
        holdfast images list --domain example.com --min-width 800
        holdfast images list --near 12 --json
    """
    where = ImageFilter(domain, job, format, min_width, min_height, None, near)
    page = _images(ctx).page(where, after=None if before is None else (before,), limit=limit)
    found = page.rows
    last = found[-1].id if page.next is not None and found else None
    if as_json:
        output.print_json({"images": found, "before": last})
        return
    if not found:
        filtered = any(one is not None for one in (domain, job, format, min_width, min_height, near, before))
        command_context.say(
            "No image fits these options."
            if filtered
            else "No images are stored yet; `holdfast crawl URL --images` stores those of its pages."
        )
        return
    rows = [
        (
            one.id,
            one.format + (" (animated)" if one.animated else ""),
            _size(one),
            format_bytes(one.size),
            one.near_duplicate_of or "-",
            one.domain or "-",
            one.url or "-",
        )
        for one in found
    ]
    output.print_table(["ID", "FORMAT", "PIXELS", "SIZE", "LIKE", "DOMAIN", "URL"], rows, right="ID SIZE LIKE")
    if last:
        command_context.say(f"More rows: --before {last}.")


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    image: Annotated[int, typer.Argument(metavar="IMAGE", min=1, help="Its id.")],
    as_json: output.Json = False,
) -> None:
    """Show all that is known of one image, and the pages that have it.

    Examples:
        holdfast images show 12
        holdfast images show 12 --json
    """
    found = _images(ctx).show(image)
    if as_json:
        output.print_json(found)
        return
    one = found.image
    output.print_fields(
        [
            ("Image", one.id),
            ("Format", f"{one.format} ({one.media_type})"),
            ("Pixels", _size(one)),
            ("Frames", one.frames),
            ("Size", format_bytes(one.size)),
            ("SHA-256", one.sha256),
            ("File", found.file),
            ("Looks like", ", ".join(map(str, found.near)) or "no other"),
            ("Seen", f"from {output.format_time(one.first_seen_at)} to {output.format_time(one.last_seen_at)}"),
        ]
    )
    rows = [
        (safe(place.page_url), place.found_in or "-", place.alt or "-", place.image_url or "-")
        for place in found.places
    ]
    output.print_line()
    output.print_table(["PAGE", "IN", "ALT", "URL"], rows)


def _size(image: Image) -> str:
    return "-" if image.width is None or image.height is None else f"{image.width} x {image.height}"
