"""The built-in parser `product`: what a shop's page says to machines about its products.

Reads JSON-LD, microdata, RDFa and Open Graph (`parse/structured`). The rule: what two of them say of one product is one product, and the
first in that order that says a thing is believed; nothing is guessed from how the page looks.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from holdfast.model.parsed import (
    MAX_BRAND,
    MAX_COUNT,
    MAX_IMAGES,
    MAX_NAME,
    MAX_PRODUCTS,
    MAX_SKU,
    Document,
    Extracted,
    Product,
    Rating,
    is_gtin,
    line,
    merged,
)
from holdfast.parse import structured
from holdfast.parse.graph import Graph
from holdfast.parse.money import read_currency, read_money, read_number
from holdfast.parse.offers import best_offer, read_availability
from holdfast.parse.plugin import join, tree
from holdfast.parse.structured import Item

version: Final = "2"

_PRODUCTS: Final = frozenset(
    {"Product", "ProductGroup", "ProductModel", "IndividualProduct", "SomeProducts", "Vehicle", "Car"}
)
_GTINS: Final = ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "upc", "isbn")
_BESTS: Final = (Decimal(5), Decimal(10), Decimal(100))


def parse(document: Document) -> Extracted:
    """The products of a page; `data` says in which grammars they were found."""
    page = tree(document)
    found = structured.read(page, document.url)
    by_grammar = {
        "json_ld": list(_products(found.json_ld, document.url)),
        "microdata": list(_products(found.microdata, document.url)),
        "rdfa": list(_products(found.rdfa, document.url)),
    }
    products: list[Product] = []
    for those in by_grammar.values():
        products = _joined(products, list(merged(those)))
    graph = _from_open_graph(found.open_graph, document.url)
    if graph is not None:
        by_grammar["open_graph"] = [graph]
        if not products:
            products = [graph]
        elif len(products) == 1:
            products = [products[0].filled(graph)]
    sources = [name for name, those in by_grammar.items() if those]
    return Extracted({"sources": sources}, merged(products)[:MAX_PRODUCTS])


def _joined(known: list[Product], more: list[Product]) -> list[Product]:
    """`known`, each with what it lacks from the one of `more` that is the same; then those that are none of them."""
    left = list(more)
    alone = len(known) == len(more) == 1
    joined = []
    for product in known:
        same = next((other for other in left if _same(product, other, alone=alone)), None)
        if same is not None:
            left.remove(same)
        joined.append(product.filled(same) if same else product)
    return joined + left


def _same(one: Product, other: Product, *, alone: bool) -> bool:
    for mine, theirs in ((one.sku, other.sku), (one.gtin, other.gtin)):
        if mine and theirs:
            return mine == theirs
    return alone or one.name.casefold() == other.name.casefold() or (one.url is not None and one.url == other.url)


def _products(items: list[Item], url: str) -> Iterator[Product]:
    graph = Graph(items)
    variants: set[int] = set()
    for item in graph.all(aside=False):
        if id(item) in variants or not _PRODUCTS.intersection(structured.types(item)):
            continue
        own = [variant for variant in graph.items(item, "hasVariant", "model") if _is_variant(graph, variant)]
        variants.update(map(id, own))
        for variant in own or [item]:
            group = item if own else next(iter(graph.items(item, "isVariantOf")), {})
            # What a variant does not say is said by its group, but for what only the group is.
            inherited = {
                key: value for key, value in group.items() if key not in {"hasVariant", "model", "sku", "url", "@id"}
            }
            product = _product(graph, inherited | variant, url)
            if product is not None:
                yield product


def _is_variant(graph: Graph, item: Item) -> bool:
    return bool(graph.values(item, "offers") or graph.values(item, "sku") or graph.values(item, *_GTINS))


def _product(graph: Graph, item: Item, url: str) -> Product | None:
    name = graph.text(item, "name", "title")
    if name is None:
        return None
    offer, offers = best_offer(graph, item)
    only = offer.item if offers == 1 and offer.item is not None else {}
    sku = graph.text(item, "sku", "productID", "productId") or graph.text(only, "sku")
    address = graph.text(item, "url") or graph.text(only, "url")
    return Product(
        name=name[:MAX_NAME],
        price=offer.price,
        currency=offer.currency,
        availability=offer.availability,
        sku=sku if sku and len(sku) <= MAX_SKU else None,
        gtin=_gtin(graph, item) or _gtin(graph, only),
        brand=(graph.text(item, "brand", "manufacturer") or "")[:MAX_BRAND] or None,
        images=_images(url, graph.texts(_addressed(graph, item), "image")),
        rating=_rating(graph, item),
        url=join(url, address),
    )


def _addressed(graph: Graph, item: Item) -> Item:
    """The images of an item, each by its address rather than its name."""
    images = [_address_of(graph, value) for value in graph.values(item, "image", "images", "photo")]
    return {"image": [image for image in images if isinstance(image, str)]}


def _address_of(graph: Graph, value: Any) -> Any:
    return graph.text(value, "contentUrl", "url", "@id") if isinstance(value, dict) else value


def _images(url: str, written: Iterator[str]) -> tuple[str, ...]:
    found = dict.fromkeys(image for address in written if (image := join(url, address)))
    return tuple(found)[:MAX_IMAGES]


def _gtin(graph: Graph, item: Item) -> str | None:
    for name in (*_GTINS, "productID", "identifier"):
        for text in graph.texts(item, name):
            digits = re.sub(
                r"[\s-]", "", text.casefold().removeprefix("ean:").removeprefix("isbn:").removeprefix("upc:")
            )
            if is_gtin(digits) and (name in _GTINS or ":" in text):
                return digits
    return None


def _rating(graph: Graph, item: Item) -> Rating | None:
    for aggregate in graph.items(item, "aggregateRating"):
        words = graph.text(aggregate, "ratingValue")
        value = read_number(words) if words else None
        if value is None:
            continue
        stated = read_number((graph.text(aggregate, "bestRating") or "").replace(",", "."))
        if stated is None and words and "/" in words:
            stated = read_number(words.partition("/")[2])
        best = next((best for best in ((stated,) if stated else _BESTS) if value <= best), None)
        if best is not None:
            return Rating(value, best, _count(graph.text(aggregate, "ratingCount", "reviewCount")))
    return None


def _count(text: str | None) -> int | None:
    """A whole number, whatever groups its thousands."""
    digits = re.match(r"\D{0,3}(\d{1,3}(?:[.,'\s]\d{3})+|\d+)", text or "")
    count = int(re.sub(r"\D", "", digits[1])[:12]) if digits else None
    return count if count is not None and count <= MAX_COUNT else None


def _from_open_graph(graph: dict[str, list[str]], url: str) -> Product | None:
    """The product that the page is about by its Open Graph; None if it is about none."""

    def first(*names: str) -> str | None:
        return next((line(graph[name][0]) for name in names if name in graph), None) or None

    amount = first("product:sale_price:amount", "product:price:amount", "og:price:amount", "product:price")
    name = first("og:title", "product:title")
    if name is None or (amount is None and not (first("og:type") or "").startswith(("product", "og:product"))):
        return None
    currency = read_currency(first("product:sale_price:currency", "product:price:currency", "og:price:currency"))
    money = read_money(amount, currency) if amount else None
    gtin = re.sub(r"\D", "", first("product:gtin", "product:ean", "product:upc", "product:isbn") or "")
    sku = first("product:retailer_item_id", "product:retailer_part_no", "product:sku")
    return Product(
        name=name[:MAX_NAME],
        price=money.amount if money else None,
        currency=money.currency if money else currency,
        availability=read_availability(first("product:availability", "og:availability")),
        sku=sku if sku and len(sku) <= MAX_SKU else None,
        gtin=gtin if is_gtin(gtin) else None,
        brand=(first("product:brand", "og:brand") or "")[:MAX_BRAND] or None,
        images=_images(url, iter(graph.get("og:image", []) + graph.get("og:image:secure_url", []))),
        url=join(url, first("og:url")),
    )
