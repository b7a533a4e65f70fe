"""Products as pages show them, and what they cost when: written down.

The rule: the time of the fetch decides, never that of the parse. The newest fetch that has a product says what it is; an older one,
parsed later, only adds to its history; the same one, parsed again, corrects what it said before.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from holdfast.db.price_history import Price, Run, needs_others, observed, unobserved
from holdfast.model.parse_result import Availability, Product

_SPACE: Final = 0x70726F64  # "prod"
# One parse of a page at a time: what is read below is what is changed. Two pages that share a lock wait for each other, no more.
_LOCK: Final = "SELECT pg_advisory_xact_lock(%(space)s, hashtext(%(domain)s::text || encode(%(page)s, 'hex')))"

_FACTS: Final = (
    "name, brand, sku, gtin, price, currency, availability, images, rating_value, rating_best, rating_count, url, page_url, "
    "last_seen_at, last_task_id"
)
_NEW_FACTS: Final = ", ".join(f"excluded.{name}" for name in _FACTS.split(", "))
_OLD_FACTS: Final = ", ".join(f"p.{name}" for name in _FACTS.split(", "))
_PUT: Final = f"""
INSERT INTO products AS p (domain_id, page_key, identity_key, identity, first_seen_at, {_FACTS})
SELECT %(domain)s, %(page)s, decode(w.key, 'hex'), w.identity, %(at)s, w.name, w.brand, w.sku, w.gtin, w.price, w.currency,
       w.availability, ARRAY(SELECT jsonb_array_elements_text(w.images)), (w.rating->>0)::numeric, (w.rating->>1)::numeric,
       (w.rating->>2)::int, w.url, %(page_url)s, %(at)s, %(task)s
FROM jsonb_to_recordset(%(products)s) AS w(key text, identity text, name text, brand text, sku text, gtin text, price numeric,
     currency text, availability product_availability, images jsonb, rating jsonb, url text)
ON CONFLICT (domain_id, page_key, identity_key) DO UPDATE SET ({_FACTS}) = ROW ({_NEW_FACTS})
WHERE excluded.last_seen_at >= p.last_seen_at AND ({_OLD_FACTS}) IS DISTINCT FROM ({_NEW_FACTS})
"""  # noqa: S608 — composed of constants only
_IDS: Final = """
SELECT identity_key, id FROM products WHERE domain_id = %(domain)s AND page_key = %(page)s AND identity_key = ANY(%(keys)s::bytea[])
"""

# What one fetch can change: the run that it lies in or behind, the one before that, and the next.
_RUN: Final = "fetched_at, task_id, seen_until, last_task_id, price, currency, availability"
_NEAR: Final = f"""
SELECT w.id, r.price, r.currency, r.availability::text, r.fetched_at, r.task_id, r.seen_until, r.last_task_id
FROM unnest(%(ids)s::bigint[]) AS w(id), LATERAL (
    (SELECT {_RUN} FROM product_prices WHERE product_id = w.id AND fetched_at <= %(at)s ORDER BY fetched_at DESC LIMIT 2)
    UNION ALL (SELECT {_RUN} FROM product_prices WHERE product_id = w.id AND fetched_at > %(at)s ORDER BY fetched_at LIMIT 1)) r
"""  # noqa: S608 — composed of constants only
_OTHERS: Final = """
SELECT r.fetched_at, r.task_id, ARRAY(SELECT k FROM unnest(r.product_keys) k WHERE k = ANY(%(keys)s::bytea[]))
FROM crawl_tasks t JOIN parse_results r ON r.task_id = t.id
WHERE t.url_hash = %(page)s AND t.domain_id = %(domain)s AND r.fetched_at <> %(at)s AND r.product_keys && %(keys)s::bytea[]
UNION ALL
SELECT r.fetched_at, NULL, ARRAY(SELECT k FROM unnest(r.product_keys) k WHERE k = ANY(%(keys)s::bytea[]))
FROM job_domains jd JOIN page_parses r ON r.domain_id = jd.domain_id AND r.job_id = jd.job_id AND r.url_key = %(page)s
WHERE jd.domain_id = %(domain)s AND r.fetched_at <> %(at)s AND r.product_keys && %(keys)s::bytea[]
"""
_END_RUNS: Final = """
DELETE FROM product_prices p USING unnest(%(ids)s::bigint[], %(times)s::timestamptz[]) AS w(id, at)
WHERE p.product_id = w.id AND p.fetched_at = w.at
"""
_PUT_RUNS: Final = f"""
INSERT INTO product_prices AS p (product_id, {_RUN})
SELECT * FROM unnest(%(ids)s::bigint[], %(since)s::timestamptz[], %(tasks)s::bigint[], %(until)s::timestamptz[], %(last_tasks)s::bigint[],
                     %(prices)s::numeric[], %(currencies)s::text[], %(availabilities)s::product_availability[])
ON CONFLICT (product_id, fetched_at) DO UPDATE SET task_id = excluded.task_id, seen_until = excluded.seen_until,
    last_task_id = excluded.last_task_id, price = excluded.price, currency = excluded.currency, availability = excluded.availability
"""  # noqa: S608 — composed of constants only
_FORGET: Final = """
DELETE FROM products p WHERE p.id = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM product_prices r WHERE r.product_id = p.id)
"""
# The ends of the history are those of the product. Only what is parsed late, or not found any more, makes a difference.
_SETTLE: Final = """
UPDATE products p SET first_seen_at = f.fetched_at, last_seen_at = l.seen_until, last_task_id = l.last_task_id,
    price = l.price, currency = l.currency, availability = l.availability
FROM unnest(%(ids)s::bigint[]) AS w(id),
     LATERAL (SELECT fetched_at FROM product_prices WHERE product_id = w.id ORDER BY fetched_at LIMIT 1) f,
     LATERAL (SELECT * FROM product_prices WHERE product_id = w.id ORDER BY fetched_at DESC LIMIT 1) l
WHERE p.id = w.id AND (p.first_seen_at, p.last_seen_at, p.last_task_id, p.price, p.currency, p.availability)
    IS DISTINCT FROM (f.fetched_at, l.seen_until, l.last_task_id, l.price, l.currency, l.availability)
"""


@dataclass(frozen=True, slots=True)
class Look:
    """One fetch of a page."""

    domain_id: int
    page_key: bytes
    page_url: str
    task_id: int | None
    """None: a crawl fetched it."""
    at: datetime
    """When it was fetched."""


def identity_key(product: Product) -> bytes:
    """By which the store knows the product again on its page."""
    return hashlib.sha256(product.identity.encode()).digest()[:16]


def observe(
    connection: psycopg.Connection,
    look: Look,
    found: Sequence[Product],
    written: Sequence[Mapping[str, Any]],
    gone: Sequence[bytes],
) -> None:
    """Write down which products a fetch showed; `written` are the same as JSON, `gone` those that it was wrongly said to show.

    Before: a transaction is open. After (with its commit): each is known once, with this look in its history; the newest look at
    each says what it is. Doing it again changes nothing.
    """
    if not found and not gone:
        return
    keys = [identity_key(product) for product in found]
    page = {"domain": look.domain_id, "page": look.page_key}
    connection.execute(_LOCK, page | {"space": _SPACE})
    rows = [
        {**fields, "key": key.hex(), "identity": product.identity}
        for key, product, fields in zip(keys, found, written, strict=True)
    ]
    values = {"products": Jsonb(rows), "page_url": look.page_url, "at": look.at, "task": look.task_id}
    connection.execute(_PUT, page | values)
    ids: dict[bytes, int] = dict(connection.execute(_IDS, page | {"keys": [*keys, *gone]}).fetchall())
    prices: dict[bytes, Price | None] = {key: None for key in gone if key in ids}
    prices |= {key: Price(one.price, one.currency, one.availability) for key, one in zip(keys, found, strict=True)}
    runs = _near(connection, ids.values(), look.at)
    others = _others(
        connection, look, [key for key, price in prices.items() if needs_others(runs[ids[key]], look.at, price)]
    )
    after = {
        ids[key]: unobserved(runs[ids[key]], look.at, others[key])
        if price is None
        else observed(runs[ids[key]], look.at, look.task_id, price, others[key])
        for key, price in prices.items()
    }
    _rewrite(connection, runs, after)
    connection.execute(_FORGET, {"ids": [ids[key] for key in gone if key in ids]})
    connection.execute(_SETTLE, {"ids": list(ids.values())})


def _near(connection: psycopg.Connection, ids: Iterable[int], at: datetime) -> dict[int, list[Run]]:
    runs: dict[int, list[Run]] = {product_id: [] for product_id in ids}
    for product_id, amount, currency, availability, *span in connection.execute(_NEAR, {"ids": list(runs), "at": at}):
        price = Price(amount, currency, Availability(availability) if availability else None)
        runs[product_id].append(Run(price, *span))
    return runs


def _others(
    connection: psycopg.Connection, look: Look, keys: Sequence[bytes]
) -> dict[bytes, list[tuple[datetime, int | None]]]:
    """The other fetches of the page that had each of these products, as far as their results are kept; of all other keys none."""
    others: dict[bytes, list[tuple[datetime, int | None]]] = defaultdict(list)
    if keys:
        values = {"domain": look.domain_id, "page": look.page_key, "keys": list(keys), "at": look.at}
        for at, task_id, shown in connection.execute(_OTHERS, values):
            for key in shown:
                others[key].append((at, task_id))
    return others


def _rewrite(
    connection: psycopg.Connection, before: Mapping[int, Sequence[Run]], after: Mapping[int, Sequence[Run]]
) -> None:
    """Make `after` of `before`: runs that are no more go, those that are new or other are written."""
    begun = {product_id: {run.since for run in runs} for product_id, runs in after.items()}
    over = [(one, run.since) for one in after for run in before[one] if run.since not in begun[one]]
    if over:
        connection.execute(_END_RUNS, {"ids": [one for one, _ in over], "times": [at for _, at in over]})
    new = [(one, run) for one, runs in after.items() for run in runs if run not in before[one]]
    if new:
        prices = [run.price for _, run in new]
        columns = {
            "ids": [one for one, _ in new],
            "since": [run.since for _, run in new],
            "tasks": [run.since_task for _, run in new],
            "until": [run.until for _, run in new],
            "last_tasks": [run.until_task for _, run in new],
            "prices": [price.amount for price in prices],
            "currencies": [price.currency for price in prices],
            "availabilities": [price.availability and price.availability.value for price in prices],
        }
        connection.execute(_PUT_RUNS, columns)
