"""What differs between two results is named by field, counted, and bounded whatever a plug-in calls its fields."""

from typing import Any

import pytest

from holdfast.control.reparsing import (
    MAX_FIELDS,
    MAX_VALUE,
    OTHERS,
    Change,
    ChangeKind,
    FieldCounts,
    Found,
    differences,
)


def between(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    return list(differences(Found(old, {}), Found(new, {})))


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({}, {}, []),
        ({"a": 1, "b": [1, {"c": None}]}, {"b": [1, {"c": None}], "a": 1.0}, []),
        ({"a": 1}, {"a": 2}, [Change("a", ChangeKind.CHANGED, "1", "2")]),
        ({"a": 1}, {"a": True}, [Change("a", ChangeKind.CHANGED, "1", "true")]),
        ({"a": [1]}, {"a": [True]}, [Change("a", ChangeKind.CHANGED, "[1]", "[true]")]),
        ({"a": [{"b": 0}]}, {"a": [{"b": False}]}, [Change("a", ChangeKind.CHANGED, '[{"b": 0}]', '[{"b": false}]')]),
        ({"a": None}, {}, [Change("a", ChangeKind.REMOVED, "null")]),
        ({}, {"a": None}, [Change("a", ChangeKind.ADDED, None, "null")]),
        (
            {"a": {"b": 1, "c": 2}},
            {"a": {"c": 3}},
            [Change("a.b", ChangeKind.REMOVED, "1"), Change("a.c", ChangeKind.CHANGED, "2", "3")],
        ),
        ({"a": {}}, {"a": []}, [Change("a", ChangeKind.CHANGED, "{}", "[]")]),
        ({"t": "Grüße"}, {"t": "x"}, [Change("t", ChangeKind.CHANGED, '"Grüße"', '"x"')]),
    ],
    ids=str,
)
def test_fields(old: dict[str, Any], new: dict[str, Any], changes: list[Change]) -> None:
    assert between(old, new) == changes


def test_products_are_compared_by_what_they_are_known_by() -> None:
    old = {b"1": {"name": "Lamp", "price": "10"}, b"2": {"name": "Sofa", "price": "5"}}
    new = {b"3": {"name": "Desk"}, b"1": {"name": "Lamp", "price": "12"}}
    assert list(differences(Found({}, old), Found({}, new))) == [
        Change("product.price", ChangeKind.CHANGED, '"10"', '"12"', "Lamp"),
        Change("product", ChangeKind.REMOVED, '"Sofa"'),
        Change("product", ChangeKind.ADDED, None, '"Desk"'),
    ]


def test_long_values_and_names_are_cut() -> None:
    deep: dict[str, Any] = {"x" * 500: {"y" * 500: "z" * 500}}
    (change,) = between(deep, {"x" * 500: {"y" * 500: 1}})
    assert (len(change.field), len(change.old or "")) == (200, MAX_VALUE)


def test_endless_names_are_counted_together() -> None:
    tally = FieldCounts()
    for change in between({}, {f"k{number}": 1 for number in range(MAX_FIELDS + 50)}):
        tally.count(change)
    tally.count(Change("k0", ChangeKind.CHANGED))
    assert len(tally.fields) == MAX_FIELDS + 1
    assert tally.fields[OTHERS] == {ChangeKind.ADDED: 50, ChangeKind.REMOVED: 0, ChangeKind.CHANGED: 0}
    assert tally.fields["k0"] == {ChangeKind.ADDED: 1, ChangeKind.REMOVED: 0, ChangeKind.CHANGED: 1}
