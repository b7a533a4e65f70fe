"""The built-in parser `product`: products and their offers from the structured data of a page.

Reads JSON-LD, microdata, RDFa and Open Graph (`parse/structured_data`). The rules: one product in several notations is one product, and
for each field the first notation in that order that has it counts; nothing is guessed from the layout. Of several offers the cheapest
available one counts; if none is available, the cheapest of all. Crossed-out prices never count.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from holdfast.model.content_type import BodyKind, kind_of
from holdfast.model.parse_result import (
    CURRENCIES,
    MAX_BRAND,
    MAX_COUNT,
    MAX_DECIMALS,
    MAX_IMAGES,
    MAX_NAME,
    MAX_PRICE,
    MAX_PRODUCTS,
    MAX_SKU,
    Availability,
    Document,
    Extracted,
    Product,
    Rating,
    is_gtin,
    merge_products,
    single_line,
)
from holdfast.parse import structured_data
from holdfast.parse.plugin_api import absolute_url, tree
from holdfast.parse.prices import Money, parse_currency, parse_number, parse_price
from holdfast.parse.structured_data import Graph, Item, as_decimal, as_text, local_name

version: Final = "2"

_PRODUCT_TYPES: Final = frozenset(
    {"Product", "ProductGroup", "ProductModel", "IndividualProduct", "SomeProducts", "Vehicle", "Car"}
)
_GTIN_PROPERTIES: Final = ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "upc", "isbn")
_USUAL_BEST_RATINGS: Final = (Decimal(5), Decimal(10), Decimal(100))

_MAX_OFFERS: Final = 1000
_CROSSED_OUT: Final = re.compile(r"list|strikethrough|srp|msrp|regular", re.IGNORECASE)
_UNAVAILABLE: Final = frozenset({Availability.OUT_OF_STOCK, Availability.SOLD_OUT, Availability.DISCONTINUED})
_BY_TERM: Final = {
    "instock": Availability.IN_STOCK, "in": Availability.IN_STOCK, "available": Availability.IN_STOCK,
    "availablefororder": Availability.IN_STOCK, "auflager": Availability.IN_STOCK, "lieferbar": Availability.IN_STOCK,
    "sofortlieferbar": Availability.IN_STOCK, "enstock": Availability.IN_STOCK, "disponible": Availability.IN_STOCK,
    "disponibile": Availability.IN_STOCK, "yes": Availability.IN_STOCK, "true": Availability.IN_STOCK,
    "limitedavailability": Availability.LIMITED, "limited": Availability.LIMITED, "lowstock": Availability.LIMITED,
    "onlineonly": Availability.ONLINE_ONLY, "instoreonly": Availability.IN_STORE_ONLY, "madetoorder": Availability.MADE_TO_ORDER,
    "preorder": Availability.PRE_ORDER, "presale": Availability.PRE_SALE, "backorder": Availability.BACK_ORDER,
    "onbackorder": Availability.BACK_ORDER, "backordered": Availability.BACK_ORDER, "reserved": Availability.RESERVED,
    "outofstock": Availability.OUT_OF_STOCK, "oos": Availability.OUT_OF_STOCK, "unavailable": Availability.OUT_OF_STOCK,
    "notavailable": Availability.OUT_OF_STOCK, "currentlyunavailable": Availability.OUT_OF_STOCK, "agotado": Availability.OUT_OF_STOCK,
    "ausverkauft": Availability.SOLD_OUT, "nichtlieferbar": Availability.OUT_OF_STOCK, "rupturedestock": Availability.OUT_OF_STOCK,
    "no": Availability.OUT_OF_STOCK, "false": Availability.OUT_OF_STOCK, "soldout": Availability.SOLD_OUT,
    "discontinued": Availability.DISCONTINUED,
}  # fmt: skip
"""By the term without white space and punctuation, in lower case."""


def parse(document: Document) -> Extracted:
    """Extract the products of a page; `data` names the notations in which they were found. What is not HTML has none."""
    if kind_of(document.body, document.content_type) is not BodyKind.HTML:
        return Extracted({"sources": []})
    page = tree(document)
    found = structured_data.extract(page, document.url)
    by_grammar = {
        "json_ld": list(_products(found.json_ld, document.url)),
        "microdata": list(_products(found.microdata, document.url)),
        "rdfa": list(_products(found.rdfa, document.url)),
    }
    products: list[Product] = []
    for group_products in by_grammar.values():
        products = _combine(products, list(merge_products(group_products)))
    graph = _from_open_graph(found.open_graph, document.url)
    if graph is not None:
        by_grammar["open_graph"] = [graph]
        if not products:
            products = [graph]
        elif len(products) == 1:
            products = [products[0].filled_from(graph)]
    sources = [name for name, group_products in by_grammar.items() if group_products]
    return Extracted({"sources": sources}, merge_products(products)[:MAX_PRODUCTS])


def _combine(products: list[Product], others: list[Product]) -> list[Product]:
    """Fill in missing fields of `products` from the same product in `others`; append the products that are only in `others`."""
    unmatched = list(others)
    single = len(products) == len(others) == 1
    combined = []
    for product in products:
        same = next((other for other in unmatched if _is_same_product(product, other, single=single)), None)
        if same is not None:
            unmatched.remove(same)
        combined.append(product.filled_from(same) if same else product)
    return combined + unmatched


def _is_same_product(one: Product, other: Product, *, single: bool) -> bool:
    for mine, theirs in ((one.sku, other.sku), (one.gtin, other.gtin)):
        if mine and theirs:
            return mine == theirs
    return single or one.name.casefold() == other.name.casefold() or (one.url is not None and one.url == other.url)


def _products(items: list[Item], url: str) -> Iterator[Product]:
    graph = Graph(items)
    variants: set[int] = set()
    for item in graph.all(include_related=False):
        if id(item) in variants or not _PRODUCT_TYPES.intersection(structured_data.types(item)):
            continue
        own = [variant for variant in graph.items(item, "hasVariant", "model") if _is_variant(graph, variant)]
        variants.update(map(id, own))
        for variant in own or [item]:
            group = item if own else next(iter(graph.items(item, "isVariantOf")), {})
            # A variant inherits the properties of its group, except for those that identify the group.
            inherited = {
                key: value for key, value in group.items() if key not in {"hasVariant", "model", "sku", "url", "@id"}
            }
            product = _product(graph, inherited | variant, url)
            if product is not None:
                yield product


def _is_variant(graph: Graph, item: Item) -> bool:
    return bool(graph.values(item, "offers") or graph.values(item, "sku") or graph.values(item, *_GTIN_PROPERTIES))


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
        images=_images(url, graph.texts(_images_by_url(graph, item), "image")),
        rating=_rating(graph, item),
        url=absolute_url(url, address),
    )


def _images_by_url(graph: Graph, item: Item) -> Item:
    """Return an item with only the images of `item`, each as its URL instead of its name."""
    images = [_image_url(graph, value) for value in graph.values(item, "image", "images", "photo")]
    return {"image": [image for image in images if isinstance(image, str)]}


def _image_url(graph: Graph, value: Any) -> Any:
    return graph.text(value, "contentUrl", "url", "@id") if isinstance(value, dict) else value


def _images(url: str, hrefs: Iterator[str]) -> tuple[str, ...]:
    found = dict.fromkeys(image for address in hrefs if (image := absolute_url(url, address)))
    return tuple(found)[:MAX_IMAGES]


def _gtin(graph: Graph, item: Item) -> str | None:
    for name in (*_GTIN_PROPERTIES, "productID", "identifier"):
        for text in graph.texts(item, name):
            digits = re.sub(
                r"[\s-]", "", text.casefold().removeprefix("ean:").removeprefix("isbn:").removeprefix("upc:")
            )
            if is_gtin(digits) and (name in _GTIN_PROPERTIES or ":" in text):
                return digits
    return None


def _rating(graph: Graph, item: Item) -> Rating | None:
    for aggregate in graph.items(item, "aggregateRating"):
        words = graph.text(aggregate, "ratingValue")
        value = parse_number(words) if words else None
        if value is None:
            continue
        stated_best = parse_number((graph.text(aggregate, "bestRating") or "").replace(",", "."))
        if stated_best is None and words and "/" in words:
            stated_best = parse_number(words.partition("/")[2])
        best = next((best for best in ((stated_best,) if stated_best else _USUAL_BEST_RATINGS) if value <= best), None)
        if best is not None:
            return Rating(value, best, _count(graph.text(aggregate, "ratingCount", "reviewCount")))
    return None


def _count(text: str | None) -> int | None:
    """Parse a whole number with any thousands separator."""
    digits = re.match(r"\D{0,3}(\d{1,3}(?:[.,'\s]\d{3})+|\d+)", text or "")
    count = int(re.sub(r"\D", "", digits[1])[:12]) if digits else None
    return count if count is not None and count <= MAX_COUNT else None


def _from_open_graph(graph: dict[str, list[str]], url: str) -> Product | None:
    """Return the product that Open Graph describes; None if the page is not about a product."""

    def first(*names: str) -> str | None:
        return next((single_line(graph[name][0]) for name in names if name in graph), None) or None

    amount = first("product:sale_price:amount", "product:price:amount", "og:price:amount", "product:price")
    name = first("og:title", "product:title")
    if name is None or (amount is None and not (first("og:type") or "").startswith(("product", "og:product"))):
        return None
    currency = parse_currency(first("product:sale_price:currency", "product:price:currency", "og:price:currency"))
    money = parse_price(amount, currency) if amount else None
    gtin = re.sub(r"\D", "", first("product:gtin", "product:ean", "product:upc", "product:isbn") or "")
    sku = first("product:retailer_item_id", "product:retailer_part_no", "product:sku")
    return Product(
        name=name[:MAX_NAME],
        price=money.amount if money else None,
        currency=money.currency if money else currency,
        availability=parse_availability(first("product:availability", "og:availability")),
        sku=sku if sku and len(sku) <= MAX_SKU else None,
        gtin=gtin if is_gtin(gtin) else None,
        brand=(first("product:brand", "og:brand") or "")[:MAX_BRAND] or None,
        images=_images(url, iter(graph.get("og:image", []) + graph.get("og:image:secure_url", []))),
        url=absolute_url(url, first("og:url")),
    )


@dataclass(frozen=True, slots=True)
class Offer:
    """One offer of a product, and the item it was read from."""

    price: Decimal | None = None
    currency: str | None = None
    availability: Availability | None = None
    item: Item | None = None

    @property
    def sort_key(self) -> tuple[bool, bool, Decimal]:
        """The key by which offers are compared: the smallest is the best offer."""
        return self.price is None, self.availability in _UNAVAILABLE, self.price or Decimal(0)


def best_offer(graph: Graph, product: Item) -> tuple[Offer, int]:
    """Return the best offer, and the number of offers; an empty offer if there is none."""
    found = []
    for item in _offers(graph, product):
        offer = _read_offer(graph, item)
        if offer.price is not None or offer.availability is not None:
            found.append(offer)
    return (min(found, key=lambda offer: offer.sort_key), len(found)) if found else (Offer(), 0)


def parse_availability(text: str | None) -> Availability | None:
    """Parse an availability: the URL of a schema.org term in any spelling, or words."""
    if not text:
        return None
    term = re.sub(r"[\W_]+", "", local_name(text[:200])).lower()
    return _BY_TERM.get(term) or _BY_TERM.get(re.sub(r"[\W_]+", "", text[:200]).lower())


def _offers(graph: Graph, product: Item) -> Iterator[Item]:
    """Iterate over the offers, including those in aggregates. Without any, the product itself: microdata may have the price there."""
    stack = list(reversed(graph.items(product, "offers", "offer"))) or [product]
    for _ in range(_MAX_OFFERS):
        if not stack:
            return
        item = stack.pop()
        inner = graph.items(item, "offers") if item is not product else []
        if inner and not graph.values(item, "lowPrice", "price"):
            stack.extend({"priceCurrency": item.get("priceCurrency"), **offer} for offer in reversed(inner))
        else:
            yield item


def _read_offer(graph: Graph, item: Item) -> Offer:
    currency = _currency(graph, item)
    money = _price(graph, item, currency)
    for specification in () if money else graph.items(item, "priceSpecification"):
        if _CROSSED_OUT.search(graph.text(specification, "priceType") or ""):
            continue
        own = _currency(graph, specification) or currency
        money = _price(graph, specification, own)
        if money:
            break
    availability = parse_availability(graph.text(item, "availability"))
    if availability is None and "offers" in item:  # an aggregate offer that has the price itself
        inner = [parse_availability(graph.text(offer, "availability")) for offer in graph.items(item, "offers")]
        availability = next((one for one in inner if one not in _UNAVAILABLE), inner[0] if inner else None)
    return Offer(money.amount if money else None, money.currency if money else currency, availability, item)


def _currency(graph: Graph, item: Item) -> str | None:
    raw = (graph.text(item, "priceCurrency", "currency") or "").strip().upper()
    return raw if raw in CURRENCIES else parse_currency(raw)


def _price(graph: Graph, item: Item, currency: str | None) -> Money | None:
    """Return the first valid price of `item`. JSON numbers are taken as they are, strings are parsed."""
    for value in (
        *graph.values(item, "lowPrice"),
        *graph.values(item, "price"),
        *graph.values(item, "minPrice", "highPrice"),
    ):
        number = as_decimal(value)
        if number is not None and 0 <= number < MAX_PRICE:
            return Money(round(number, MAX_DECIMALS) if _decimals(number) > MAX_DECIMALS else number, currency)
        text = None if number is not None else as_text(value)
        if text and (money := parse_price(text, currency)):
            return money
    return None


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
