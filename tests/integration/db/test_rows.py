"""Row factories that take columns by their names."""

from dataclasses import dataclass

import psycopg
import pytest

from holdfast.db.rows import by_name
from holdfast.model.domain import Status


@dataclass(frozen=True)
class Thing:
    id: int
    name: str
    size: int


@dataclass(frozen=True)
class Whole:
    name: str
    area: int
    id: int


def _area(width: int, height: int) -> int:
    return width * height


@pytest.mark.parametrize(
    "columns",
    [
        "1 AS id, 'a' AS name, 3 AS size",
        "3 AS size, 1 AS id, 'a' AS name",
        "0 AS other, 1 AS id, 'a' AS name, 3 AS size, 9",
    ],
)
def test_columns_are_found_wherever_they_are(connection: psycopg.Connection, columns: str) -> None:
    with connection.cursor(row_factory=by_name(Thing)) as cursor:
        assert cursor.execute(f"SELECT {columns}".encode()).fetchall() == [Thing(1, "a", 3)]


def test_a_parameter_may_be_made_of_several_columns(connection: psycopg.Connection) -> None:
    with connection.cursor(row_factory=by_name(Whole, area=_area)) as cursor:
        made = cursor.execute("SELECT 5 AS height, 1 AS id, 4 AS width, 'a' AS name").fetchone()
    assert made == Whole("a", 20, 1)


def test_a_parameter_may_be_made_of_nothing(connection: psycopg.Connection) -> None:
    @dataclass
    class Holder:
        id: int
        kept: list[int]

    with connection.cursor(row_factory=by_name(Holder, kept=list)) as cursor:
        one, other = cursor.execute("SELECT generate_series(1, 2) AS id").fetchall()
    assert (one, other) == (Holder(1, []), Holder(2, []))
    assert one.kept is not other.kept


def test_a_parameter_may_be_a_member_of_an_enum(connection: psycopg.Connection) -> None:
    @dataclass
    class Holder:
        id: int
        status: Status

    with connection.cursor(row_factory=by_name(Holder)) as cursor:
        made = cursor.execute("SELECT 'blocked' AS status, 1 AS id").fetchone()
    assert made is not None
    assert made.status is Status.BLOCKED


def test_a_column_that_is_missing_is_named(connection: psycopg.Connection) -> None:
    for factory, missing in ((by_name(Thing), "name, size"), (by_name(Whole, area=_area), "name")):
        with (
            connection.cursor(row_factory=factory) as cursor,
            pytest.raises(TypeError, match=rf"no column {missing}\.$"),
        ):
            cursor.execute("SELECT 1 AS id, 2 AS width, 3 AS height").fetchall()
