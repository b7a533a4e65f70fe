"""Keyset pagination: each page continues after the key of the last row, and costs about the same wherever it is in the list.

The rule: the rows that a page scans are bounded. Where an index has the requested order, rows are read from it. The rows of a selective
filter are sorted. Any other filter scans at most `SCAN_LIMIT` rows: the page may be short then, and has the key to continue from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, TypeVar

import psycopg
from psycopg.rows import RowFactory, RowMaker

from holdfast.db.planner_hints import fetch_with_settings
from holdfast.db.rows import by_name
from holdfast.errors import UsageError
from holdfast.model.list_filter import is_storable_text

SCAN_LIMIT: Final = 10_000
"""Maximum rows that one page scans for a filter that no index serves."""
SORT_LIMIT: Final = 5_000
"""Maximum rows that are sorted for one page."""
MAX_PAGE: Final = 500
"""Rows of one page."""

Key = tuple[object, ...]
"""The position after which a page continues: numbers, texts, bytes, times with their zone, None."""
Row = TypeVar("Row")
Record = TypeVar("Record")

_INDEX_WALK: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",  # what belongs to the rows of a page is looked up for those
    "enable_mergejoin": "off",
    "max_parallel_workers_per_gather": "0",  # to start one takes longer than a page
}
# Where an index has the whole order no other would do: a statement is planned once, which takes longer than to read a page.
_COVERED: Final = _INDEX_WALK | {"enable_incremental_sort": "off", "plan_cache_mode": "force_generic_plan"}
_PARTLY_COVERED: Final = _INDEX_WALK | {"plan_cache_mode": "force_custom_plan"}
_CASTS: Final[Mapping[type, str]] = {int: "bigint", str: "text", bytes: "bytea", datetime: "timestamptz"}
_INT8_LIMIT: Final = 2**63


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """A part of a list. It may be short, or empty, and not be the last one."""

    rows: list[Row]
    next: Key | None
    """The key after which the next page begins; None: this is the last one."""
    scanned: int | None = None
    """How many rows were looked at, if the page ends there although it is not full; None: it is full, or the last one."""


@dataclass(frozen=True, slots=True)
class Equals:
    """A filter for one value of a column that leads an index."""

    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.column} = {self.value}"


@dataclass(frozen=True, slots=True)
class Range:
    """A range filter on a column: from a value on, below another, or both."""

    column: str
    at_least: str | None = None
    below: str | None = None

    def __str__(self) -> str:
        sides = ((">=", self.at_least), ("<", self.below))
        return " AND ".join(f"{self.column} {sign} {value}" for sign, value in sides if value is not None)


Filter = str | Equals | Range
"""A condition on `t`, with its own value if it has one."""


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column of a sort order."""

    column: str
    type_: type
    descending: bool = False
    nullable: bool = False
    """Allowed for the first column only. Rows with NULL come last in both directions."""


@dataclass(frozen=True, slots=True)
class Order:
    """A sort order that an index has; together its columns identify one row."""

    columns: tuple[SortColumn, ...]
    index_filters: tuple[tuple[str, ...], ...] = ((),)
    """Sets of filters by which an index finds rows in this order, the best first, each in the order of the index's columns; a request
    must use all filters of at least one set."""
    range_filters: frozenset[str] = frozenset()
    """Range filters on the columns of this order, served with every set of `index_filters`."""
    covered_by_index: bool = True
    """The indexes have all columns. Otherwise they have the first, and rows that are equal in it are sorted."""

    @property
    def planner_settings(self) -> Mapping[str, str]:
        """Planner settings that force an index walk. The planner estimates badly how many rows follow a key; where it expects few, it
        would read all of them and sort."""
        return _COVERED if self.covered_by_index else _PARTLY_COVERED

    @property
    def key_types(self) -> tuple[type, ...]:
        """The types of a key's values."""
        return tuple(by.type_ for by in self.columns)

    @property
    def one_direction(self) -> bool:
        """Whether all columns are sorted in one direction and none is nullable."""
        return not self.columns[0].nullable and len({by.descending for by in self.columns}) == 1

    def order_by(self, lead: Sequence[Equals] = (), *, nulls: bool = False) -> str:
        """The ORDER BY expression. `nulls`: rows with and without NULL in the first column are in one result."""
        words = [f"{by.column}{' DESC' if by.descending else ''}" for by in self.columns]
        if nulls and self.columns[0].nullable:
            words[0] += " NULLS LAST"
        return ", ".join([*(f"{one.column}{' DESC' if self.columns[0].descending else ''}" for one in lead), *words])

    def check(self, after: Key | None) -> None:
        """Raise UsageError for a key that does not belong to this order."""
        if after is None:
            return
        fits = len(after) == len(self.columns) and all(
            (value is None and by.nullable) or _is_of_type(value, by.type_)
            for by, value in zip(self.columns, after, strict=False)
        )
        if not fits:
            raise UsageError(
                "This cursor belongs to another list or order; start without it, or continue with the `next` of the last page."
            )

    def segments(self, after: Key | None, lead: Sequence[Equals] = ()) -> list[str]:
        """Conditions for the rows after a key; each is one range of an index, in order."""
        first = self.columns[0]
        if after is None:
            return [f"{first.column} IS NOT NULL", f"{first.column} IS NULL"] if first.nullable else ["true"]
        if not first.nullable:
            return _after_key(self.columns, lead=lead)
        if after[0] is not None:
            return [f"{first.column} IS NOT NULL AND {it}" for it in _after_key(self.columns)] + [
                f"{first.column} IS NULL"
            ]
        return [f"{first.column} IS NULL AND {it}" for it in _after_key(self.columns, skip=1)]


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """A list: of which table, what of it is shown, which filters and orders there are."""

    table: str
    columns: str
    """The selected columns, of the rows `t` and their joins."""
    build_row: Callable[..., Row]
    """Makes a row of the columns that are named like its parameters."""
    filters: Mapping[str, Filter]
    orders: Mapping[str, Order]
    joins: str = ""
    condition: str = "true"
    """A condition that holds for every row of the list."""
    selective: frozenset[str] = frozenset()
    """Filters by which an index finds rows, in any order."""
    sort_limit: int = field(default=SORT_LIMIT, kw_only=True)
    scan_limit: int = field(default=SCAN_LIMIT, kw_only=True)

    def page(
        self,
        connection: psycopg.Connection,
        filters: Mapping[str, object],
        *,
        order: str,
        after: Key | None = None,
        limit: int = 100,
        extra: Mapping[str, object] | None = None,
    ) -> Page[Row]:
        """Up to `limit` rows after the key `after` that match all `filters`; `extra`: values of further parameters in `columns`."""
        chosen = self.order(order)
        chosen.check(after)
        values: dict[str, object] = {**(extra or {}), **filters, "limit": limit + 1}
        values |= {f"key{place}": value for place, value in enumerate(after or ())}
        plan = self._plan(chosen, filters.keys())
        found = filters.keys() & self.selective
        # Filters that the index serves need no check: the walk reads only matching rows.
        if not found.isdisjoint(plan.rest) and self._is_selective(connection, found, values):
            # Never prepared: the best index depends on the values.
            statement = self._sorted(chosen, found, filters.keys() - found, after)
            with connection.cursor(row_factory=self._scanned(chosen)) as cursor:
                return _page(cursor.execute(statement, values, prepare=False).fetchall(), limit, self.scan_limit)
        seen: list[_ScannedRow[Row]] = []
        for statement in self._index_walks(chosen, plan, after):
            values["limit"] = limit + 1 - len(seen)
            seen += fetch_with_settings(
                connection, chosen.planner_settings, statement, values, row_factory=self._scanned(chosen)
            )
            if len(seen) > limit or (seen and seen[-1].last):
                break
        return _page(seen, limit, self.scan_limit)

    def records(
        self,
        connection: psycopg.Connection,
        read: "Callable[[psycopg.Connection, Sequence[Row]], Mapping[Row, Record]]",
        given: Mapping[str, object],
        *,
        order: str,
        after: Key | None = None,
        limit: int = 100,
    ) -> "Page[Record]":
        """Of a list of ids: a page of the records that `read` returns for them. Ids without a record are left out."""
        found = self.page(connection, given, order=order, after=after, limit=limit)
        by_id = read(connection, found.rows)
        return Page([by_id[one] for one in found.rows if one in by_id], found.next, found.scanned)

    def order(self, name: str) -> Order:
        """The order of that name. Raises UsageError if there is none."""
        found = self.orders.get(name)
        if found is None:
            raise UsageError(f"There is no order {name!r} here; there are {', '.join(self.orders)}.")
        return found

    def statements(self, given: Mapping[str, object], *, order: str, after: Key | None = None) -> Iterator[str]:
        """The statements of `page`, under the `planner_settings` of its order, where no filter is selective enough to be sorted."""
        chosen = self.order(order)
        yield from self._index_walks(chosen, self._plan(chosen, given.keys()), after)

    def _plan(self, order: Order, given: AbstractSet[str]) -> "_Plan":
        """Plan how the index of an order serves these filters."""
        way = next((way for way in order.index_filters if given >= set(way)), None)
        if way is None:
            needed = " and ".join(sorted(set(order.index_filters[-1]) - given))
            raise UsageError(f"In this order the list needs {needed}.")
        columns = [by.column for by in order.columns]
        inside, lead, where = list[Equals](), list[Equals](), [self.condition]
        for name in way:
            one = self.filters[name]
            if isinstance(one, Equals) and order.one_direction:
                begins = len(inside) < len(columns) and one.column == columns[len(inside)]
                (inside if begins else lead).append(one)
            else:
                where.append(str(one))
        stretch = [self.filters[name] for name in sorted(order.range_filters & given)]
        low, high = _bounds(inside or lead, [one for one in stretch if isinstance(one, Range)])
        return _Plan(" AND ".join(where), low, high, tuple(lead), sorted(given - set(way) - order.range_filters))

    def _index_walks(self, order: Order, plan: "_Plan", after: Key | None) -> Iterator[str]:
        """Rows in the order of an index, from a key on."""
        by = order.order_by(plan.lead)
        # Of two lower bounds the server would use the first. So a page after a key has only one.
        ends = [plan.low, plan.high]
        if after is not None and order.one_direction:
            ends.pop(1 if order.columns[0].descending else 0)
        for segment in order.segments(after, plan.lead):
            where = " AND ".join([plan.where, *(end for end in ends if end is not None), segment])
            inner = f"FROM {self.table} t WHERE {where} ORDER BY {by}"
            if plan.rest:
                fits = " AND ".join(f"({self.filters[name]})" for name in plan.rest)
                # The last scanned row is returned, whether it matches or not: the next page begins there.
                inner = f"""
                    SELECT * FROM (
                        SELECT t.*, ({fits}) IS TRUE AS fits, row_number() OVER (ORDER BY {by}) = {self.scan_limit} AS last
                        {inner} LIMIT {self.scan_limit}) t WHERE t.fits OR t.last ORDER BY {by} LIMIT %(limit)s
                """  # noqa: S608 — constants
            else:
                inner = f"SELECT t.*, true AS fits, false AS last {inner} LIMIT %(limit)s"
            yield self._select(order, inner, by)

    def _is_selective(self, connection: psycopg.Connection, found: Iterable[str], values: Mapping[str, object]) -> bool:
        where = " AND ".join([self.condition, *(f"({self.filters[name]})" for name in sorted(found))])
        query = f"SELECT count(*) FROM (SELECT FROM {self.table} t WHERE {where} LIMIT {self.sort_limit + 1}) few"  # noqa: S608 — constants
        row = connection.execute(query, values, prepare=False).fetchone()
        return row is not None and row[0] <= self.sort_limit

    def _sorted(self, order: Order, found: Iterable[str], rest: Iterable[str], after: Key | None) -> str:
        """A statement that finds few rows by any index, then sorts them. Materialized, or the planner may walk another index."""
        where = " AND ".join([self.condition, *(f"({self.filters[name]})" for name in sorted(found))])
        beyond = " OR ".join(f"({segment})" for segment in order.segments(after))
        fits = " AND ".join([f"({beyond})", *(f"({self.filters[name]})" for name in sorted(rest))])
        by = order.order_by(nulls=True)
        inner = f"""
            WITH few AS MATERIALIZED (SELECT t.* FROM {self.table} t WHERE {where})
            SELECT t.*, true AS fits, false AS last FROM few t WHERE {fits} ORDER BY {by} LIMIT %(limit)s
        """  # noqa: S608 — constants
        return self._select(order, inner, by)

    def _select(self, order: Order, inner: str, by: str) -> str:
        keys = ", ".join(one.column for one in order.columns)
        return f"SELECT {self.columns}, {keys}, t.fits, t.last FROM ({inner}) t {self.joins} ORDER BY {by}"  # noqa: S608 — constants

    def _scanned(self, order: Order) -> RowFactory["_ScannedRow[Row]"]:
        size = len(order.columns) + 2
        made = _made_by(self.build_row)

        def factory(cursor: psycopg.Cursor[Any]) -> RowMaker[_ScannedRow[Row]]:
            make = made(cursor)
            return lambda row: _ScannedRow(row, tuple(row[-size:-2]), row[-2], row[-1], make)

        return factory


@dataclass(frozen=True, slots=True)
class _Plan:
    """How an index serves one page."""

    where: str
    """Condition on all scanned rows."""
    low: str | None
    """Lower bound in the index; None: its beginning. `high`: upper bound, likewise."""
    high: str | None
    lead: tuple[Equals, ...]
    """Index columns before those of the order."""
    rest: list[str]
    """Filters that the index does not serve."""


@dataclass(slots=True)
class _ScannedRow(Generic[Row]):
    """A row as the server gave it."""

    values: Sequence[Any]
    key: Key
    fits: bool
    last: bool
    """Whether the scan ended with this row."""
    make: RowMaker[Row]

    def build(self) -> Row:
        return self.make(self.values)


_made_by: Final = cache(by_name)


def only_id(id: int) -> int:  # noqa: A002 — as the column
    """What makes the rows of a list that shows ids alone."""
    return id


def _page(seen: Sequence[_ScannedRow[Row]], limit: int, scan_limit: int) -> Page[Row]:
    fitting = [row for row in seen if row.fits]
    rows = [row.build() for row in fitting[:limit]]
    if len(fitting) > limit:
        return Page(rows, fitting[limit - 1].key)
    if seen and seen[-1].last:
        return Page(rows, seen[-1].key, scan_limit)
    return Page(rows, None)


def check_page_size(limit: int) -> None:
    """Raise UsageError if a page cannot have that many rows."""
    if not 1 <= limit <= MAX_PAGE:
        raise UsageError(f"A list gives 1 to {MAX_PAGE} at once, not {limit}.")


def _is_of_type(value: object, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT8_LIMIT <= value < _INT8_LIMIT
    if kind is datetime:
        return isinstance(value, datetime) and value.tzinfo is not None
    if kind is str:
        return isinstance(value, str) and is_storable_text(value)
    return isinstance(value, kind)


def _after_key(columns: Sequence[SortColumn], skip: int = 0, lead: Sequence[Equals] = ()) -> list[str]:
    """Conditions for rows after a key, in index order; a row comparison cannot mix ascending and descending columns."""
    names = [(by.column, f"%(key{place})s::{_CASTS[by.type_]}", by.descending) for place, by in enumerate(columns)][
        skip:
    ]
    run = 1
    while run < len(names) and names[run][2] == names[0][2]:
        run += 1
    left = _row_expression([*(one.column for one in lead), *(name for name, _, _ in names[:run])])
    right = _row_expression([*(one.value for one in lead), *(value for _, value, _ in names[:run])])
    beyond = f"{left} {'<' if names[0][2] else '>'} {right}"
    if run == len(names):
        return [beyond]
    same = " AND ".join(f"{name} = {value}" for name, value, _ in names[:run])
    return [*(f"{same} AND {it}" for it in _after_key(columns, skip + run)), beyond]


def _bounds(found: Sequence[Equals], stretches: Sequence[Range]) -> tuple[str | None, str | None]:
    """Lower and upper bound of rows in an index with these leading columns. Not as "=": the planner would drop the column from the order
    and use any index that has the rest of it."""
    names, values = [one.column for one in found], [one.value for one in found]
    low = f"{_row_expression(names)} >= {_row_expression(values)}" if found else None
    high = f"{_row_expression(names)} <= {_row_expression(values)}" if found else None
    for one in stretches:
        if one.at_least is not None:
            low = f"{_row_expression([*names, one.column])} >= {_row_expression([*values, one.at_least])}"
        if one.below is not None:
            high = f"{_row_expression([*names, one.column])} < {_row_expression([*values, one.below])}"
    return low, high


def _row_expression(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"({', '.join(values)})"
