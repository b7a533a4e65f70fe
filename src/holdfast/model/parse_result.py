"""The input and output of parsers, and the validation of what they return.

The rule: a parser is third-party code that reads input from the web. `validate_result` turns its return value into an `Extracted` that the
store can take as it is (no NUL, no lone surrogate, no NaN, nothing longer than the limits here), or raises `BadResult` with a sentence.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from holdfast.model.record import record

MAX_DATA_BYTES: Final = 1024 * 1024
"""Maximum size of `data` as JSON in UTF-8."""
MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of data, products and items together, as JSON in UTF-8."""
MAX_DEPTH: Final = 32
MAX_PRODUCTS: Final = 500
MAX_ITEMS: Final = 10_000
"""Maximum number of items that a parser may return; the setting `parsing.items_per_page` may allow fewer."""
MAX_IMAGES: Final = 50
MAX_KEY: Final = 500
MAX_NAME: Final = 1000
MAX_BRAND: Final = 500
MAX_SKU: Final = 200
MAX_ADDRESS: Final = 2048
MAX_PRICE: Final = Decimal(10) ** 12
MAX_DECIMALS: Final = 6
MAX_COUNT: Final = 2**31 - 1
_INT64: Final = 2**63

_CODES: Final = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLF CLP
    CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR
    ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP
    MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG
    SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV
    WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES: Final = frozenset(_CODES.split())
"""ISO 4217, including codes that only old pages use."""

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BLANK: Final = re.compile(r"\s+")


class BadResult(Exception):
    """A parser returned an invalid result; the message says what is wrong."""


class Availability(StrEnum):
    """The availability of a product, by the list of schema.org."""

    IN_STOCK = "in_stock"
    LIMITED = "limited"
    ONLINE_ONLY = "online_only"
    IN_STORE_ONLY = "in_store_only"
    MADE_TO_ORDER = "made_to_order"
    PRE_ORDER = "pre_order"
    PRE_SALE = "pre_sale"
    BACK_ORDER = "back_order"
    RESERVED = "reserved"
    OUT_OF_STOCK = "out_of_stock"
    SOLD_OUT = "sold_out"
    DISCONTINUED = "discontinued"


class FailureKind(StrEnum):
    """Why a parser returned no result."""

    UNKNOWN_PARSER = "unknown_parser"
    BROKEN_PARSER = "broken_parser"
    """It cannot be loaded."""
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    DIED = "died"
    """Its process ended, by a signal or by itself."""
    RAISED = "raised"
    BAD_RESULT = "bad_result"
    """It returned an invalid result: a wrong type, or too much."""


@dataclass(frozen=True, slots=True)
class Document:
    """A page as input of a parser."""

    url: str
    body: bytes
    """Decoded from its content encoding."""
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    fetched_at: datetime | None = None
    """With its time zone; None if unknown."""


@record
class Rating:
    """The rating of a product by customers: `value` of `best`, from `count` ratings."""

    value: Decimal
    best: Decimal = Decimal(5)
    count: int | None = None
    """Customers who rated it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product on a page. Unknown values are None."""

    name: str
    price: Decimal | None = None
    currency: str | None = None
    """ISO 4217."""
    availability: Availability | None = None
    sku: str | None = None
    """The shop's own number."""
    gtin: str | None = None
    """8, 12, 13 or 14 digits with a valid check digit."""
    brand: str | None = None
    images: tuple[str, ...] = ()
    """Absolute URLs."""
    rating: Rating | None = None
    url: str | None = None
    """An absolute URL."""

    @property
    def identity(self) -> str:
        """The key that identifies the product on the same page: the first of SKU, GTIN, URL and name that it has."""
        if self.sku:
            return f"sku:{self.sku}"
        if self.gtin:
            return f"gtin:{self.gtin.zfill(14)}"
        return f"url:{self.url}" if self.url else f"name:{self.name.casefold()}"

    def filled_from(self, other: "Product") -> "Product":
        """This product with its missing values taken from `other`. A currency is taken with its price."""
        lacking = {
            f.name: theirs
            for f in fields(self)
            if not _is_set(getattr(self, f.name)) and _is_set(theirs := getattr(other, f.name))
        }
        if self.price is None and other.price is not None:
            lacking["currency"] = other.currency or self.currency
        elif other.price not in (None, self.price):
            lacking.pop("currency", None)
        return replace(self, **lacking)


def _is_set(value: object) -> bool:
    return value is not None and value != ()


@dataclass(frozen=True, slots=True)
class Extracted:
    """The result of a parser: facts about the page, products, and items."""

    data: dict[str, Any] = field(default_factory=dict)
    """Facts about the page, as JSON values. In a crawl they are an item of the page."""
    products: tuple[Product, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    """Records of the parser's own shape, as JSON values."""

    @property
    def record(self) -> dict[str, Any]:
        """Data and items as one object, as a task stores them."""
        return {**self.data, "items": list(self.items)} if self.items else self.data

    def page_items(self) -> list[dict[str, Any]]:
        """All items of the page that a crawl stores: its data unless empty, the items, and every product that has a field."""
        found = [self.data] if self.data else []
        products = ({name: v for name, v in _product_json(one).items() if _is_set(v)} for one in self.products)
        return [*found, *self.items, *products]


@dataclass(frozen=True, slots=True)
class ParseDone:
    """A document was parsed by this parser in this version."""

    parser: str
    version: str
    extracted: Extracted


@dataclass(frozen=True, slots=True)
class ParseFailed:
    """A document was not parsed; `reason` is a sentence for display, in clean text."""

    parser: str
    kind: FailureKind
    reason: str


# Validation -----------------------------------------------------------------------------------------------------------


def validate_result(result: object) -> Extracted:
    """Validate the result of a parser: text is cleaned, products with the same identity are merged. Raises BadResult.

    A parser returns an Extracted, or for short a dict, a dataclass or a Product, or any number of them: a list, or a generator.
    """
    if not isinstance(result, Extracted):
        result = _collect(result)
    if not isinstance(result.data, dict):
        raise BadResult(f"data is {_type_of(result.data)} instead of a dict")
    data = _json(result.data, "data", MAX_DEPTH)
    size = len(json.dumps(data, ensure_ascii=False).encode())
    if size > MAX_DATA_BYTES:
        raise BadResult(f"data is {size} bytes as JSON; {MAX_DATA_BYTES} are allowed")
    if not isinstance(result.products, tuple | list):
        raise BadResult(f"products is {_type_of(result.products)} instead of a tuple")
    if len(result.products) > MAX_PRODUCTS:
        raise BadResult(f"there are {len(result.products)} products; {MAX_PRODUCTS} are allowed")
    products = [_product(product, f"products[{number}]") for number, product in enumerate(result.products)]
    if not isinstance(result.items, tuple | list):
        raise BadResult(f"items is {_type_of(result.items)} instead of a tuple")
    if len(result.items) > MAX_ITEMS:
        raise BadResult(f"there are {len(result.items)} items; {MAX_ITEMS} are allowed")
    items = tuple(_item(item, f"items[{number}]") for number, item in enumerate(result.items))
    return Extracted(data, merge_products(products), items)


def _collect(result: object) -> Extracted:
    """The returned or yielded values of a parser as an Extracted. Raises BadResult, and everything that the parser raises while it
    yields."""
    if result is None:
        return Extracted()
    if isinstance(result, dict | Product) or (is_dataclass(result) and not isinstance(result, type)):
        result = [result]
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        raise BadResult(f"the parser returned {_type_of(result)} instead of items or an Extracted")
    products: list[Product] = []
    items: list[Any] = []
    for one in result:
        if isinstance(one, Extracted):
            raise BadResult("the parser yields an Extracted; it returns one, or yields items")
        (products if isinstance(one, Product) else items).append(one)
        if len(items) > MAX_ITEMS:
            raise BadResult(f"there are more than {MAX_ITEMS} items")
        if len(products) > MAX_PRODUCTS:
            raise BadResult(f"there are more than {MAX_PRODUCTS} products")
    return Extracted({}, tuple(products), tuple(items))


def _item(item: object, where: str) -> dict[str, Any]:
    if is_dataclass(item) and not isinstance(item, type):
        item = asdict(item)
    if not isinstance(item, dict):
        raise BadResult(f"{where} is {_type_of(item)} instead of a dict")
    found: dict[str, Any] = _json(item, where, MAX_DEPTH)
    size = len(json.dumps(found, ensure_ascii=False).encode())
    if size > MAX_DATA_BYTES:
        raise BadResult(f"{where} is {size} bytes as JSON; {MAX_DATA_BYTES} are allowed")
    return found


def merge_products(products: Iterable[Product]) -> tuple[Product, ...]:
    """The products without duplicates: those with the same identity are merged into the first one."""
    known: dict[str, Product] = {}
    for product in products:
        key = product.identity
        known[key] = known[key].filled_from(product) if key in known else product
    return tuple(known.values())


def clean_text(text: str) -> str:
    """The text as the store accepts it: NUL and lone surrogates become U+FFFD, other control characters except white space are removed."""
    return _CONTROL.sub("", _UNSTORABLE.sub("\ufffd", text))


def single_line(text: str) -> str:
    """`clean_text`, with white space collapsed to single spaces and stripped."""
    return _BLANK.sub(" ", clean_text(text)).strip()


def is_gtin(digits: str) -> bool:
    """Whether it is a GTIN: length and check digit are valid, and it is not all zeros."""
    if not re.fullmatch(r"(?:[0-9]{8}|[0-9]{12,14})", digits) or not digits.strip("0"):
        return False
    weighted = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return weighted % 10 == 0


def _type_of(value: object) -> str:
    return f"a value of type {single_line(type(value).__name__)[:60]}"


def _json(value: object, where: str, depth: int) -> Any:
    """The value in plain JSON types with clean text."""
    if depth == 0:
        raise BadResult(f"{where[:200]} is nested too deep; {MAX_DEPTH} levels are allowed")
    if isinstance(value, str):
        return clean_text(str(value))
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise BadResult(f"{where[:200]} is a whole number beyond 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadResult(f"{where[:200]} is {value}, which JSON does not know")
        return float(value)
    if isinstance(value, list | tuple):
        return [_json(part, f"{where}[{number}]", depth - 1) for number, part in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, where): _json(part, f"{where}.{key}", depth - 1) for key, part in value.items()}
    raise BadResult(f"{where[:200]} is {_type_of(value)}, which JSON does not know")


def _key(key: object, where: str) -> str:
    if type(key) is not str:
        raise BadResult(f"{where[:200]} has a key that is {_type_of(key)}")
    if len(key) > MAX_KEY:
        raise BadResult(f"{where[:200]} has a key of {len(key)} characters; {MAX_KEY} are allowed")
    return clean_text(key)


def _product(product: object, where: str) -> Product:
    if not isinstance(product, Product):
        raise BadResult(f"{where} is {_type_of(product)} instead of a Product")
    name = _text(product.name, f"{where}.name", MAX_NAME)
    if name is None:
        raise BadResult(f"{where}.name is empty")
    availability = product.availability
    if availability is not None and type(availability) is not Availability:
        raise BadResult(f"{where}.availability is {_type_of(availability)} instead of an Availability")
    currency = _text(product.currency, f"{where}.currency", 3)
    if currency is not None and currency not in CURRENCIES:
        raise BadResult(f"{where}.currency is {currency}, which is not an ISO 4217 code")
    gtin = _text(product.gtin, f"{where}.gtin", 14)
    if gtin is not None and not is_gtin(gtin):
        raise BadResult(f"{where}.gtin is {gtin}: not 8, 12, 13 or 14 digits with the right check digit")
    if not isinstance(product.images, tuple | list):
        raise BadResult(f"{where}.images is {_type_of(product.images)} instead of a tuple")
    if len(product.images) > MAX_IMAGES:
        raise BadResult(f"{where} has {len(product.images)} images; {MAX_IMAGES} are allowed")
    images = [_address(image, f"{where}.images[{number}]") for number, image in enumerate(product.images)]
    return Product(
        name=name,
        price=_number(product.price, f"{where}.price", MAX_PRICE),
        currency=currency,
        availability=availability,
        sku=_text(product.sku, f"{where}.sku", MAX_SKU),
        gtin=gtin,
        brand=_text(product.brand, f"{where}.brand", MAX_BRAND),
        images=tuple(dict.fromkeys(image for image in images if image)),
        rating=_rating(product.rating, f"{where}.rating"),
        url=_address(product.url, f"{where}.url"),
    )


def _text(value: object, where: str, limit: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadResult(f"{where} is {_type_of(value)} instead of a str")
    text = single_line(str(value))
    if len(text) > limit:
        raise BadResult(f"{where} has {len(text)} characters; {limit} are allowed")
    return text or None


def _address(value: object, where: str) -> str | None:
    text = _text(value, where, MAX_ADDRESS)
    if text is not None and not re.match(r"https?://[^/\s]", text, re.IGNORECASE):
        raise BadResult(f"{where} is not an absolute http or https URL")
    return text


def _number(value: object, where: str, limit: Decimal) -> Decimal | None:
    if value is None:
        return None
    if type(value) is not Decimal:
        raise BadResult(f"{where} is {_type_of(value)} instead of a Decimal")
    if not value.is_finite() or not 0 <= value < limit:
        raise BadResult(f"{where} is not between 0 and {limit:f}")
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -MAX_DECIMALS:
        raise BadResult(f"{where} has more than {MAX_DECIMALS} decimals")
    if isinstance(exponent, int) and exponent > 0:
        value = value.quantize(Decimal(1))  # so that 0E+999999 becomes 0
    return abs(value)  # -0 is 0


def _rating(rating: object, where: str) -> Rating | None:
    if rating is None:
        return None
    if not isinstance(rating, Rating):
        raise BadResult(f"{where} is {_type_of(rating)} instead of a Rating")
    value, best = _number(rating.value, f"{where}.value", MAX_PRICE), _number(rating.best, f"{where}.best", MAX_PRICE)
    if value is None or best is None or not value <= best or not best:
        raise BadResult(f"{where} is not a value up to its best")
    count = rating.count
    if count is not None and (type(count) is not int or not 0 <= count <= MAX_COUNT):
        raise BadResult(f"{where}.count is not a whole number between 0 and {MAX_COUNT}")
    return Rating(value, best, count)


# Over the wire --------------------------------------------------------------------------------------------------------


def encode(extracted: Extracted) -> bytes:
    """Encode a validated result as JSON; exact numbers are strings. Raises BadResult if it is too long."""
    record = {
        "data": extracted.data,
        "products": [_product_json(product) for product in extracted.products],
        "items": extracted.items,
    }
    message = json.dumps(record, ensure_ascii=False).encode()
    if len(message) > MAX_RESULT_BYTES:
        raise BadResult(f"the result is {len(message)} bytes as JSON; {MAX_RESULT_BYTES} are allowed")
    return message


def encode_products(products: Iterable[Product]) -> list[dict[str, Any]]:
    """Validated products as JSON values."""
    return [_product_json(product) for product in products]


def _product_json(product: Product) -> dict[str, Any]:
    record = {f.name: getattr(product, f.name) for f in fields(product)}
    if product.price is not None:
        record["price"] = str(product.price)
    if product.rating is not None:
        record["rating"] = [str(product.rating.value), str(product.rating.best), product.rating.count]
    return record


def decode(message: bytes) -> Extracted:
    """The inverse of `encode`, with validation: the sender is not trusted. Raises BadResult."""
    try:
        record = json.loads(message)
        products = tuple(_from_product_json(product) for product in record["products"])
        return validate_result(Extracted(record["data"], products, tuple(record["items"])))
    except (ArithmeticError, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"the answer cannot be read ({type(error).__name__})") from error


def _from_product_json(record: dict[str, Any]) -> Product:
    rating = record["rating"]
    read = {
        "price": None if record["price"] is None else Decimal(record["price"]),
        "availability": None if record["availability"] is None else Availability(record["availability"]),
        "rating": None if rating is None else Rating(Decimal(rating[0]), Decimal(rating[1]), rating[2]),
    }
    return Product(**record | read)
