"""Row factories that take columns by their names, at the price of positions.

psycopg's `class_row` and `kwargs_row` pass every row by keywords, which for 40 columns takes three times as long as to pass them in
order. Here the order is found once for the columns of a query.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from inspect import signature
from typing import Any, TypeVar, get_type_hints

import psycopg
from psycopg.rows import RowFactory, RowMaker

Made = TypeVar("Made")


def by_name(make: Callable[..., Made], **parts: Callable[..., object]) -> RowFactory[Made]:
    """A row factory: what `make` makes of the columns that are named like its parameters, wherever they are in the row.

    A parameter of `parts` is made by its function, of the columns that are named like the parameters of that one (`dict` and `list`
    are made of none). A parameter whose type is an enum becomes a member of it. Further columns are left alone, one that is missing is a
    TypeError.
    """
    wanted = names_of(make)
    columns_of = {name: names_of(part) for name, part in parts.items()}
    for name, kind in get_type_hints(make).items():
        if name in wanted and name not in parts and isinstance(kind, type) and issubclass(kind, Enum):
            parts[name], columns_of[name] = kind, (name,)

    @cache
    def orders(
        found: tuple[str, ...],
    ) -> tuple[list[int], slice | None, list[tuple[int, Callable[..., object], list[int]]]]:
        order = places([found[0] if name in parts else name for name in wanted], found)
        special = [(wanted.index(name), part, places(columns_of[name], found)) for name, part in parts.items()]
        first, end = order[0], order[0] + len(order)
        return order, slice(first, end) if order == [*range(first, end)] else None, special

    def factory(cursor: psycopg.Cursor[Any]) -> RowMaker[Made]:
        order, in_order, special = orders(tuple(column.name for column in cursor.description or ()))

        def plain(row: Sequence[Any]) -> Made:
            # As it is in most queries a slice will do, which costs half as much.
            return make(*(row[in_order] if in_order else [row[place] for place in order]))

        def made(row: Sequence[Any]) -> Made:
            values = [row[place] for place in order]
            for at, part, its in special:
                values[at] = part(*[row[place] for place in its])
            return make(*values)

        return made if special else plain

    return factory


def select_list(record: Callable[..., object], table: str, **expressions: str) -> str:
    """Return the columns of a SELECT for the fields of a record: the column of `table` with that name, or the expression for it."""
    return ", ".join(
        f"{expressions[name]} AS {name}" if name in expressions else f"{table}.{name}" for name in names_of(record)
    )


@cache
def names_of(make: Callable[..., object]) -> tuple[str, ...]:
    """The names of the parameters."""
    return () if make in (dict, list) else tuple(signature(make).parameters)


def places(wanted: Sequence[str], found: Sequence[str]) -> list[int]:
    """Where the columns are in a row. Raises TypeError if one is missing."""
    if missing := [name for name in wanted if name not in found]:
        raise TypeError(f"The query has no column {', '.join(missing)}.")
    return [found.index(name) for name in wanted]
