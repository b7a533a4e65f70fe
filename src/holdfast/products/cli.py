"""`holdfast products`: what parsers found on the pages of shops, and what it cost when."""

from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Protocol

import typer

from holdfast.cli import output, session, written
from holdfast.cli.help import Command, Group
from holdfast.control.products import ProductDesk, Query
from holdfast.errors import UsageError
from holdfast.model.parsed import Rating
from holdfast.store.product_reports import KnownProduct, PriceSeen

app = typer.Typer(cls=Group, help="Products that parsers found, and the history of their prices.", no_args_is_help=True)

Id = Annotated[int, typer.Argument(metavar="PRODUCT", min=1, help="Its id.")]


class Products(Protocol):
    """Products of a store, or of a server."""

    def listing(self, query: Query, *, before: int | None, limit: int) -> list[KnownProduct]: ...

    def show(self, product_id: int) -> KnownProduct: ...

    def history(self, product_id: int, *, before: datetime | None, limit: int) -> list[PriceSeen]: ...


def _desk(context: typer.Context) -> Products:
    of = session.of(context)
    if of.remote:
        from holdfast.cli.remote.products import RemoteProducts

        return RemoteProducts(of.client)
    return ProductDesk(of.store(), of.settings.domains.registrable)


@app.command("list", cls=Command)
def listed(
    context: typer.Context,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            callback=session.readable,
            help='In name, brand, number or GTIN: all words, "a phrase", or, -not.',
        ),
    ] = None,
    brand: Annotated[
        str | None, typer.Option(metavar="NAME", callback=session.readable, help="Only of this brand.")
    ] = None,
    min_price: Annotated[str | None, typer.Option(metavar="PRICE", help="At least that.")] = None,
    max_price: Annotated[str | None, typer.Option(metavar="PRICE", help="At most that.")] = None,
    currency: Annotated[str | None, typer.Option(metavar="CODE", help="Priced in this currency: EUR, USD.")] = None,
    domain: Annotated[str | None, typer.Option(metavar="DOMAIN", help="Only of this domain.")] = None,
    available: Annotated[
        bool | None, typer.Option("--available/--not-available", help="Only what can be had now, or only the rest.")
    ] = None,
    before: written.Before = None,
    limit: written.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List products, those that were met last first, each as the newest fetch of its page showed it.

    Examples:
        holdfast products list --search "oak table -chair" --available
        holdfast products list --brand Tischler --max-price 500 --currency EUR
        holdfast products list --domain shop.example --json
    """
    query = Query(
        search=search,
        brand=brand,
        min_price=_price("--min-price", min_price),
        max_price=_price("--max-price", max_price),
        currency=currency,
        domain=domain,
        available=available,
    )
    query.check()
    found = _desk(context).listing(query, before=before, limit=limit)
    last = found[-1].id if len(found) == limit else None
    if as_json:
        output.print_json({"products": [_as_json(product) for product in found], "before": last})
        return
    if not found:
        chosen = (search, brand, min_price, max_price, currency, domain, available, before)
        session.say(
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
            output.when(product.last_seen_at),
        )
        for product in found
    ]
    output.print_table(["ID", "PRODUCT", "BRAND", "PRICE", "AVAILABLE", "DOMAIN", "SEEN"], rows, right="ID PRICE")
    if last:
        session.say(f"--before {last} goes on.")


@app.command("show", cls=Command)
def show(context: typer.Context, product: Id, as_json: output.Json = False) -> None:
    """Show all that is known of one product.

    Examples:
        holdfast products show 12
        holdfast products show 12 --json
    """
    found = _desk(context).show(product)
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
        ("Seen", f"from {output.when(found.first_seen_at)} to {output.when(found.last_seen_at)}"),
        ("Last task", "-" if found.last_task_id is None else found.last_task_id),
    ]
    output.print_facts([*facts, *(("Image", image) for image in found.images)])


@app.command("history", cls=Command)
def history(
    context: typer.Context,
    product: Id,
    before: Annotated[str | None, typer.Option(metavar="TIME", help="Only what began before then.")] = None,
    limit: written.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show what a product cost and whether it could be had, the newest first: a row for each change, by the time of the fetch.

    Examples:
        holdfast products history 12
        holdfast products history 12 --json
    """
    moment = None if before is None else written.moment("--before", before)
    found = _desk(context).history(product, before=moment, limit=limit)
    if as_json:
        output.print_json(found)
        return
    rows = [
        (output.when(run.since), output.when(run.until), _money(run), _available(run), run.task_id or "-")
        for run in found
    ]
    output.print_table(["SINCE", "SEEN UNTIL", "PRICE", "AVAILABLE", "TASK"], rows, right="PRICE TASK")
    if len(found) == limit:
        session.say(f"--before {_exactly(found[-1])} goes on.")


def _price(option: str, text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation as problem:
        raise UsageError(f"{option} must be a number such as 9.90.") from problem


def _money(priced: KnownProduct | PriceSeen) -> str:
    return "-" if priced.price is None else f"{priced.price:f} {priced.currency or '?'}"


def _available(priced: KnownProduct | PriceSeen) -> str:
    return priced.availability.replace("_", " ") if priced.availability else "-"


def _rating(rating: Rating | None) -> str:
    if rating is None:
        return "-"
    voices = "" if rating.count is None else f", by {output.counted(rating.count, 'customer')}"
    return f"{rating.value:f} of {rating.best:f}{voices}"


def _exactly(run: PriceSeen) -> str:
    """With all its digits, so that it can be given back."""
    return run.since.isoformat().replace("+00:00", "Z")


def _as_json(product: KnownProduct) -> dict[str, Any]:
    return {name: getattr(product, name) for name in KnownProduct.__slots__}
