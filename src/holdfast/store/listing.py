"""Lists in pages: each goes on behind the key of the last row that was seen, and costs about what it shows, wherever it is.

The rule: the rows that a page looks at are bounded. Where an index has them in the order asked for, they are read from there. A filter
that finds few rows is sorted. Any other filter looks at so many rows and no more: the page is short then, and says where to go on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import psycopg

from holdfast.errors import UsageError
from holdfast.store.planning import planned

LOOK: Final = 10_000
"""Rows that one page looks at for a filter that no index serves."""
FEW: Final = 5_000
"""Rows that are sorted for one page."""

Key = tuple[object, ...]
"""Where a list goes on: numbers, texts, bytes, times with their zone, None."""
Row = TypeVar("Row")

_WALK: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",  # what belongs to the rows of a page is looked up for those
    "enable_mergejoin": "off",
    "max_parallel_workers_per_gather": "0",  # to start one takes longer than a page
}
# Where an index has the whole order no other would do: a statement is planned once, which takes longer than to read a page.
_WHOLE: Final = _WALK | {"enable_incremental_sort": "off", "plan_cache_mode": "force_generic_plan"}
_PARTLY: Final = _WALK | {"plan_cache_mode": "force_custom_plan"}
_CASTS: Final[Mapping[type, str]] = {int: "bigint", str: "text", bytes: "bytea", datetime: "timestamptz"}
_BIGGEST: Final = 2**63


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """A part of a list. It may be short, or empty, and not be the last one."""

    rows: list[Row]
    next: Key | None
    """Where the next page begins; None: this is the last one."""


@dataclass(frozen=True, slots=True)
class Is:
    """A filter for one value of a column that leads an index."""

    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.column} = {self.value}"


@dataclass(frozen=True, slots=True)
class Within:
    """A filter for a stretch of a column: from a value on, below another, or both."""

    column: str
    at_least: str | None = None
    below: str | None = None

    def __str__(self) -> str:
        sides = ((">=", self.at_least), ("<", self.below))
        return " AND ".join(f"{self.column} {sign} {value}" for sign, value in sides if value is not None)


Filter = str | Is | Within
"""A condition on `t`, with its own value if it has one."""


@dataclass(frozen=True, slots=True)
class By:
    """A column that a list goes by."""

    column: str
    kind: type
    down: bool = False
    nullable: bool = False
    """Of the first column only. Rows without it come last, upwards or downwards."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order that an index has; together its columns name one row."""

    columns: tuple[By, ...]
    ways: tuple[tuple[str, ...], ...] = ((),)
    """Filters by which an index finds rows in this order, the best first, each in the order of the index's columns; all of one of these
    have to be given."""
    ranges: frozenset[str] = frozenset()
    """Filters that are a part of this order, whichever way is taken."""
    whole: bool = True
    """The indexes have all columns. Otherwise they have the first, and rows that are equal in it are sorted."""

    @property
    def planning(self) -> Mapping[str, str]:
        """Settings with which the planner walks along its indexes. It knows little of how many rows are behind a key, and where it
        expects few it would read all of them and sort."""
        return _WHOLE if self.whole else _PARTLY

    @property
    def kinds(self) -> tuple[type, ...]:
        """Of the values of a key."""
        return tuple(by.kind for by in self.columns)

    @property
    def is_plain(self) -> bool:
        """All columns go in one direction, and none of them is missing in a row."""
        return not self.columns[0].nullable and len({by.down for by in self.columns}) == 1

    def sorting(self, lead: Sequence[Is] = (), *, nulls: bool = False) -> str:
        """What stands behind ORDER BY. `nulls`: rows with and without the first column are together."""
        words = [f"{by.column}{' DESC' if by.down else ''}" for by in self.columns]
        if nulls and self.columns[0].nullable:
            words[0] += " NULLS LAST"
        return ", ".join([*(f"{one.column}{' DESC' if self.columns[0].down else ''}" for one in lead), *words])

    def check(self, after: Key | None) -> None:
        """Raise UsageError for a key that is none of this order."""
        if after is None:
            return
        fits = len(after) == len(self.columns) and all(
            (value is None and by.nullable) or _is_a(value, by.kind)
            for by, value in zip(self.columns, after, strict=False)
        )
        if not fits:
            raise UsageError(
                "This is not where a page of this list ended; begin anew, or go on with what the last page said."
            )

    def segments(self, after: Key | None, lead: Sequence[Is] = ()) -> list[str]:
        """What is behind a key, as conditions that each a piece of an index answers, in their order."""
        first = self.columns[0]
        if after is None:
            return [f"{first.column} IS NOT NULL", f"{first.column} IS NULL"] if first.nullable else ["true"]
        if not first.nullable:
            return _behind(self.columns, lead=lead)
        if after[0] is not None:
            return [f"{first.column} IS NOT NULL AND {it}" for it in _behind(self.columns)] + [
                f"{first.column} IS NULL"
            ]
        return [f"{first.column} IS NULL AND {it}" for it in _behind(self.columns, skip=1)]


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """A list: of which table, what of it is shown, which filters and orders there are."""

    table: str
    show: str
    """The columns that `make` takes, of the rows `t` and whatever is joined to them."""
    make: Callable[..., Row]
    filters: Mapping[str, Filter]
    orders: Mapping[str, Order]
    joined: str = ""
    always: str = "true"
    """What holds for every row of the list."""
    narrow: frozenset[str] = frozenset()
    """Filters by which an index finds rows, in whatever order."""
    few: int = field(default=FEW, kw_only=True)
    look: int = field(default=LOOK, kw_only=True)

    def page(
        self,
        connection: psycopg.Connection,
        given: Mapping[str, object],
        *,
        order: str,
        after: Key | None = None,
        limit: int = 100,
        also: Mapping[str, object] | None = None,
    ) -> Page[Row]:
        """Up to `limit` rows behind `after` that fit all filters of `given`; `also` are values that what is shown needs."""
        chosen = self.order(order)
        chosen.check(after)
        values: dict[str, object] = {**(also or {}), **given, "limit": limit + 1}
        values |= {f"key{place}": value for place, value in enumerate(after or ())}
        plan = self._plan(chosen, given.keys())
        found = given.keys() & self.narrow
        # What the way serves by itself is few enough to be walked along.
        if not found.isdisjoint(plan.rest) and self._are_few(connection, found, values):
            # Never prepared: by which index few are found hangs on the values.
            statement = self._sorted(chosen, found, given.keys() - found, after)
            return _page(self._seen(chosen, connection.execute(statement, values, prepare=False)), limit)
        seen: list[_Seen[Row]] = []
        for statement in self._walks(chosen, plan, after):
            values["limit"] = limit + 1 - len(seen)
            seen += self._seen(chosen, planned(connection, chosen.planning, statement, values))
            if len(seen) > limit or (seen and seen[-1].last):
                break
        return _page(seen, limit)

    def order(self, name: str) -> Order:
        """The order of that name. Raises UsageError."""
        found = self.orders.get(name)
        if found is None:
            raise UsageError(f"There is no order {name!r} here; there are {', '.join(self.orders)}.")
        return found

    def statements(self, given: Mapping[str, object], *, order: str, after: Key | None = None) -> Iterator[str]:
        """What `page` asks the server, by the `planning` of its order, where no filter is narrow enough to be sorted."""
        chosen = self.order(order)
        yield from self._walks(chosen, self._plan(chosen, given.keys()), after)

    def _plan(self, order: Order, given: AbstractSet[str]) -> "_Plan":
        """How the index of an order is used for these filters."""
        way = next((way for way in order.ways if given >= set(way)), None)
        if way is None:
            needed = " and ".join(sorted(set(order.ways[-1]) - given))
            raise UsageError(f"In this order the list needs {needed}.")
        columns = [by.column for by in order.columns]
        inside, lead, where = list[Is](), list[Is](), [self.always]
        for name in way:
            one = self.filters[name]
            if isinstance(one, Is) and order.is_plain:
                begins = len(inside) < len(columns) and one.column == columns[len(inside)]
                (inside if begins else lead).append(one)
            else:
                where.append(str(one))
        stretch = [self.filters[name] for name in sorted(order.ranges & given)]
        low, high = _bounds(inside or lead, [one for one in stretch if isinstance(one, Within)])
        return _Plan(" AND ".join(where), low, high, tuple(lead), sorted(given - set(way) - order.ranges))

    def _walks(self, order: Order, plan: "_Plan", after: Key | None) -> Iterator[str]:
        """Rows in the order of an index, from a key on."""
        by = order.sorting(plan.lead)
        # Of two conditions that say where to begin the server would take the first. So behind a key there is only one.
        ends = [plan.low, plan.high]
        if after is not None and order.is_plain:
            ends.pop(1 if order.columns[0].down else 0)
        for segment in order.segments(after, plan.lead):
            where = " AND ".join([plan.where, *(end for end in ends if end is not None), segment])
            inner = f"FROM {self.table} t WHERE {where} ORDER BY {by}"
            if plan.rest:
                fits = " AND ".join(f"({self.filters[name]})" for name in plan.rest)
                # The last row that is looked at is told, whether it fits or not: there the next page begins.
                inner = f"""
                    SELECT * FROM (
                        SELECT t.*, ({fits}) IS TRUE AS fits, row_number() OVER (ORDER BY {by}) = {self.look} AS last
                        {inner} LIMIT {self.look}) t WHERE t.fits OR t.last ORDER BY {by} LIMIT %(limit)s
                """  # noqa: S608 — constants
            else:
                inner = f"SELECT t.*, true AS fits, false AS last {inner} LIMIT %(limit)s"
            yield self._whole(order, inner, by)

    def _are_few(self, connection: psycopg.Connection, found: Iterable[str], values: Mapping[str, object]) -> bool:
        where = " AND ".join([self.always, *(f"({self.filters[name]})" for name in sorted(found))])
        query = f"SELECT count(*) FROM (SELECT FROM {self.table} t WHERE {where} LIMIT {self.few + 1}) few"  # noqa: S608 — constants
        row = connection.execute(query, values, prepare=False).fetchone()
        return row is not None and row[0] <= self.few

    def _sorted(self, order: Order, found: Iterable[str], rest: Iterable[str], after: Key | None) -> str:
        """Few rows, found by whichever index, then sorted. Materialized, or the planner may walk along another one."""
        where = " AND ".join([self.always, *(f"({self.filters[name]})" for name in sorted(found))])
        beyond = " OR ".join(f"({segment})" for segment in order.segments(after))
        fits = " AND ".join([f"({beyond})", *(f"({self.filters[name]})" for name in sorted(rest))])
        by = order.sorting(nulls=True)
        inner = f"""
            WITH few AS MATERIALIZED (SELECT t.* FROM {self.table} t WHERE {where})
            SELECT t.*, true AS fits, false AS last FROM few t WHERE {fits} ORDER BY {by} LIMIT %(limit)s
        """  # noqa: S608 — constants
        return self._whole(order, inner, by)

    def _whole(self, order: Order, inner: str, by: str) -> str:
        keys = ", ".join(one.column for one in order.columns)
        return f"SELECT {self.show}, {keys}, t.fits, t.last FROM ({inner}) t {self.joined} ORDER BY {by}"  # noqa: S608 — constants

    def _seen(self, order: Order, rows: Iterable[tuple[Any, ...]]) -> list["_Seen[Row]"]:
        size = len(order.columns) + 2
        return [_Seen(row, row[-size:-2], row[-2], row[-1], self.make, size) for row in rows]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a page is found."""

    where: str
    """What holds for all rows of the index that are looked at."""
    low: str | None
    """Where they begin and end in it; None: with it."""
    high: str | None
    lead: tuple[Is, ...]
    """Columns that it has before those of the order."""
    rest: list[str]
    """Filters that it does not answer."""


@dataclass(slots=True)
class _Seen(Generic[Row]):
    """A row as the server gave it."""

    values: tuple[Any, ...]
    key: Key
    fits: bool
    last: bool
    """The look ended with it."""
    make: Callable[..., Row]
    size: int

    def made(self) -> Row:
        return self.make(*self.values[: -self.size])


def _page(seen: Sequence[_Seen[Row]], limit: int) -> Page[Row]:
    fitting = [row for row in seen if row.fits]
    rows = [row.made() for row in fitting[:limit]]
    if len(fitting) > limit:
        return Page(rows, fitting[limit - 1].key)
    return Page(rows, seen[-1].key if seen and seen[-1].last else None)


def _is_a(value: object, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_BIGGEST <= value < _BIGGEST
    if kind is datetime:
        return isinstance(value, datetime) and value.tzinfo is not None
    if kind is str:
        return isinstance(value, str) and is_text(value)
    return isinstance(value, kind)


def is_text(value: str) -> bool:
    """Whether the server can hold it."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _behind(columns: Sequence[By], skip: int = 0, lead: Sequence[Is] = ()) -> list[str]:
    """Conditions for what comes after a key, in the order of an index, which cannot compare rows that go up and down at once."""
    names = [(by.column, f"%(key{place})s::{_CASTS[by.kind]}", by.down) for place, by in enumerate(columns)][skip:]
    run = 1
    while run < len(names) and names[run][2] == names[0][2]:
        run += 1
    left = _row([*(one.column for one in lead), *(name for name, _, _ in names[:run])])
    right = _row([*(one.value for one in lead), *(value for _, value, _ in names[:run])])
    beyond = f"{left} {'<' if names[0][2] else '>'} {right}"
    if run == len(names):
        return [beyond]
    same = " AND ".join(f"{name} = {value}" for name, value, _ in names[:run])
    return [*(f"{same} AND {it}" for it in _behind(columns, skip + run)), beyond]


def _bounds(found: Sequence[Is], stretches: Sequence[Within]) -> tuple[str | None, str | None]:
    """Where rows lie in an index that these columns lead. Not as "=", after which a column would not count in the order, and any index
    that has the rest of it would do."""
    names, values = [one.column for one in found], [one.value for one in found]
    low = f"{_row(names)} >= {_row(values)}" if found else None
    high = f"{_row(names)} <= {_row(values)}" if found else None
    for one in stretches:
        if one.at_least is not None:
            low = f"{_row([*names, one.column])} >= {_row([*values, one.at_least])}"
        if one.below is not None:
            high = f"{_row([*names, one.column])} < {_row([*values, one.below])}"
    return low, high


def _row(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"({', '.join(values)})"
