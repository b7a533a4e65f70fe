"""What a product costs and whether it can be had, out of the offers that a page makes for it.

The rule: of several offers the cheapest counts among those that can be had; if none can, the cheapest of all. Crossed-out prices never do.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from holdfast.model.parsed import CURRENCIES, MAX_DECIMALS, MAX_PRICE, Availability
from holdfast.parse.graph import Graph, as_decimal, as_text
from holdfast.parse.money import Money, read_currency, read_money
from holdfast.parse.structured import Item, last_part

_MAX_OFFERS: Final = 1000
_CROSSED_OUT: Final = re.compile(r"list|strikethrough|srp|msrp|regular", re.IGNORECASE)
_GONE: Final = frozenset({Availability.OUT_OF_STOCK, Availability.SOLD_OUT, Availability.DISCONTINUED})
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
"""Without blanks and signs, in lower case."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One offer."""

    price: Decimal | None = None
    currency: str | None = None
    availability: Availability | None = None
    item: Item | None = None

    @property
    def rank(self) -> tuple[bool, bool, Decimal]:
        """The least counts."""
        return self.price is None, self.availability in _GONE, self.price or Decimal(0)


def best_offer(graph: Graph, product: Item) -> tuple[Offer, int]:
    """The offer that counts, and how many there are; an empty one if there is none."""
    found = []
    for item in _offers(graph, product):
        offer = _read(graph, item)
        if offer.price is not None or offer.availability is not None:
            found.append(offer)
    return (min(found, key=lambda offer: offer.rank), len(found)) if found else (Offer(), 0)


def read_availability(text: str | None) -> Availability | None:
    """From the address of a term of schema.org in any spelling, or from words."""
    if not text:
        return None
    term = re.sub(r"[\W_]+", "", last_part(text[:200])).lower()
    return _BY_TERM.get(term) or _BY_TERM.get(re.sub(r"[\W_]+", "", text[:200]).lower())


def _offers(graph: Graph, product: Item) -> Iterator[Item]:
    """Offers, also those in aggregates. Microdata without an offer has the price at the product itself."""
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


def _read(graph: Graph, item: Item) -> Offer:
    currency = _currency(graph, item)
    money = _money(graph, item, currency)
    for specification in () if money else graph.items(item, "priceSpecification"):
        if _CROSSED_OUT.search(graph.text(specification, "priceType") or ""):
            continue
        own = _currency(graph, specification) or currency
        money = _money(graph, specification, own)
        if money:
            break
    availability = read_availability(graph.text(item, "availability"))
    if availability is None and "offers" in item:  # of an aggregate that says the price itself
        inner = [read_availability(graph.text(offer, "availability")) for offer in graph.items(item, "offers")]
        availability = next((one for one in inner if one not in _GONE), inner[0] if inner else None)
    return Offer(money.amount if money else None, money.currency if money else currency, availability, item)


def _currency(graph: Graph, item: Item) -> str | None:
    written = (graph.text(item, "priceCurrency", "currency") or "").strip().upper()
    return written if written in CURRENCIES else read_currency(written)


def _money(graph: Graph, item: Item, currency: str | None) -> Money | None:
    """The first price of `item` that is one. A number of JSON is what it is; words are read."""
    for value in (
        *graph.values(item, "lowPrice"),
        *graph.values(item, "price"),
        *graph.values(item, "minPrice", "highPrice"),
    ):
        number = as_decimal(value)
        if number is not None and 0 <= number < MAX_PRICE:
            return Money(round(number, MAX_DECIMALS) if _decimals(number) > MAX_DECIMALS else number, currency)
        words = None if number is not None else as_text(value)
        if words and (money := read_money(words, currency)):
            return money
    return None


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
