"""`holdfast products`: what parsers found on the pages of shops, and what it cost when."""

from dataclasses import fields
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Protocol

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.help import Command, Group
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import UsageError
from holdfast.model.json_values import utc_text
from holdfast.model.parse_result import Rating
from holdfast.products.records import Price, Product, ProductFilter
from holdfast.products.service import ProductService

app = typer.Typer(cls=Group, help="Products that parsers found, and the history of their prices.", no_args_is_help=True)

Id = Annotated[int, typer.Argument(metavar="PRODUCT", min=1, help="Its id.")]


class Products(Protocol):
    """Products of a store, or of a server."""

    def page(self, where: ProductFilter, *, after: Key | None, limit: int) -> Page[Product]: ...

    def show(self, product_id: int) -> Product: ...

    def history(self, product_id: int, *, before: datetime | None, limit: int) -> list[Price]: ...


def _products(ctx: typer.Context) -> Products:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.tasks import RemoteProducts

        return RemoteProducts(context.client)
    return ProductService(context.store(), context.settings.domains.registrable)


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            callback=command_context.valid_text,
            help='In name, brand, number or GTIN: all words, "a phrase", or, -not.',
        ),
    ] = None,
    brand: Annotated[
        str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only of this brand.")
    ] = None,
    min_price: Annotated[str | None, typer.Option(metavar="PRICE", help="At least that.")] = None,
    max_price: Annotated[str | None, typer.Option(metavar="PRICE", help="At most that.")] = None,
    currency: Annotated[str | None, typer.Option(metavar="CODE", help="Priced in this currency: EUR, USD.")] = None,
    domain: Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only of this domain.")] = None,
    available: Annotated[
        bool | None, typer.Option("--available/--not-available", help="Only what can be had now, or only the rest.")
    ] = None,
    before: option_types.Before = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List products, those that were met last first, each as the newest fetch of its page showed it.

    Examples:
        holdfast products list --search "oak table -chair" --available
        holdfast products list --brand Tischler --max-price 500 --currency EUR
        holdfast products list --domain shop.example --json
    """
    where = ProductFilter(
        search=search,
        brand=brand,
        min_price=_price("--min-price", min_price),
        max_price=_price("--max-price", max_price),
        currency=currency,
        domain=domain,
        available=available,
    )
    where.check()
    found = _products(ctx).page(where, after=None if before is None else (before,), limit=limit).rows
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"products": [_as_json(product) for product in found], "before": last})
        return
    if not found:
        chosen = (search, brand, min_price, max_price, currency, domain, available, before)
        command_context.say(
            "No products yet; a crawl with `--parser product`, or a task, finds them."
            if all(one is None for one in chosen)
            else "No product fits these options."
        )
        return
    rows = [
        (
            product.id,
            product.name,
            product.brand or "-",
            _money(product),
            _available(product),
            product.domain,
            output.format_time(product.last_seen_at),
        )
        for product in found
    ]
    output.print_table(["ID", "PRODUCT", "BRAND", "PRICE", "AVAILABLE", "DOMAIN", "SEEN"], rows, right="ID PRICE")
    if last:
        command_context.say(f"More rows: --before {last}.")


@app.command("show", cls=Command)
def show(ctx: typer.Context, product: Id, as_json: output.Json = False) -> None:
    """Show all that is known of one product.

    Examples:
        holdfast products show 12
        holdfast products show 12 --json
    """
    found = _products(ctx).show(product)
    if as_json:
        output.print_json(_as_json(found))
        return
    facts: list[tuple[str, object]] = [
        ("Product", f"{found.name} ({found.id})"),
        ("Brand", found.brand or "-"),
        ("Price", _money(found)),
        ("Available", _available(found)),
        ("Number", found.sku or "-"),
        ("GTIN", found.gtin or "-"),
        ("Rating", _rating(found.rating)),
        ("Address", found.url or "-"),
        ("On page", found.page_url),
        ("Domain", found.domain),
        ("Seen", f"from {output.format_time(found.first_seen_at)} to {output.format_time(found.last_seen_at)}"),
        ("Last task", "-" if found.last_task_id is None else found.last_task_id),
    ]
    output.print_fields([*facts, *(("Image", image) for image in found.images)])


@app.command("history", cls=Command)
def history(
    ctx: typer.Context,
    product: Id,
    before: Annotated[str | None, typer.Option(metavar="TIME", help="Only what began before then.")] = None,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show what a product cost and whether it could be had, the newest first: a row for each change, by the time of the fetch.

    Examples:
        holdfast products history 12
        holdfast products history 12 --json
    """
    moment = None if before is None else option_types.parse_time("--before", before)
    found = _products(ctx).history(product, before=moment, limit=limit)
    if as_json:
        output.print_json(found)
        return
    rows = [
        (output.format_time(run.since), output.format_time(run.until), _money(run), _available(run), run.task_id or "-")
        for run in found
    ]
    output.print_table(["SINCE", "SEEN UNTIL", "PRICE", "AVAILABLE", "TASK"], rows, right="PRICE TASK")
    if len(found) == limit:
        command_context.say(f"More rows: --before {_exactly(found[-1])}.")


def _price(option: str, text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation as problem:
        raise UsageError(f"{option} must be a number such as 9.90.") from problem


def _money(priced: Product | Price) -> str:
    return "-" if priced.price is None else f"{priced.price:f} {priced.currency or '?'}"


def _available(priced: Product | Price) -> str:
    return priced.availability.replace("_", " ") if priced.availability else "-"


def _rating(rating: Rating | None) -> str:
    if rating is None:
        return "-"
    voices = "" if rating.count is None else f", by {output.pluralize(rating.count, 'customer')}"
    return f"{rating.value:f} of {rating.best:f}{voices}"


def _exactly(run: Price) -> str:
    """With all its digits, so that it can be given back."""
    return utc_text(run.since)


def _as_json(product: Product) -> dict[str, Any]:
    return {name: getattr(product, name) for name in (field.name for field in fields(Product))}
