"""Cells of CSV files: exact for programs, harmless in spreadsheets."""

from datetime import datetime, timedelta, timezone

import pytest

from holdfast.control.export import cell


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, None),
        (-5, -5),
        (True, "true"),
        (False, "false"),
        ("=1+1", "'=1+1"),
        ("+49 123", "'+49 123"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("a=1", "a=1"),
        ("'already", "'already"),
        (datetime(2026, 2, 5, 13, 0, 0, 5, tzinfo=timezone(timedelta(hours=1))), "2026-02-05T12:00:00.000005Z"),
    ],
)
def test_a_cell(value: object, written: object) -> None:
    assert cell(value) == written
