"""Dates in sitemaps and feeds."""

from datetime import UTC, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parse.sitemap_dates import parse_date, parse_rfc_822, parse_w3c


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2004", "2004-01-01T00:00:00"),
        ("2004-12", "2004-12-01T00:00:00"),
        (" 2004-12-23\n", "2004-12-23T00:00:00"),
        ("2004-2-3", "2004-02-03T00:00:00"),
        ("2004-12-23T18:00Z", "2004-12-23T18:00:00"),
        ("2004-12-23T18:00+02:00", "2004-12-23T16:00:00"),
        ("2004-12-23T18:00:15+00:00", "2004-12-23T18:00:15"),
        ("2004-12-23T18:00:15-05:30", "2004-12-23T23:30:15"),
        ("2004-12-23T18:00:15.5Z", "2004-12-23T18:00:15.500000"),
        ("2004-12-23T18:00:15.123456789+01:00", "2004-12-23T17:00:15.123456"),
        ("2004-12-23T18:00:15", "2004-12-23T18:00:15"),
        ("2004-12-23 18:00:15", "2004-12-23T18:00:15"),
        ("2004-12-23 18:00:15 +0100", "2004-12-23T17:00:15"),
        ("2004-12-23T18:00:15 UTC", "2004-12-23T18:00:15"),
        ("2004-12-23T23:59:60Z", "2004-12-23T23:59:59"),
        ("2004-12-23T18:00:15+02", "2004-12-23T16:00:15"),
        ("Thu, 05 Jan 2017 12:34:50 GMT", "2017-01-05T12:34:50"),
        ("Thu, 05 Jan 17 13:34:51 +0100", "2017-01-05T12:34:51"),
        ("5 Jan 99 13:34 -0100", "1999-01-05T14:34:00"),
        ("05 January 2017 12:34:50 EST", "2017-01-05T17:34:50"),
        ("05 Jan 2017", "2017-01-05T00:00:00"),
        ("05 Jan 17 13:34:55", None),
        ("Thu, 05 Jan 2017 12:34:50 XYZ", None),
        ("05 Nil 2017", None),
        ("2004-13-01", None),
        ("2004-02-30", None),
        ("2004-12-23T25:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("2004-12-23T18:00:15+99:00", None),
        ("-2004", None),
        ("٢٠٠٤", None),
        ("", None),
        ("yesterday", None),
    ],
)
def test_dates(text: str, expected: str | None) -> None:
    found = parse_date(text)
    assert (found and found.isoformat()) == (expected and f"{expected}+00:00")


@given(st.text() | st.datetimes().map(str) | st.from_regex(r"\A[0-9TZ:+\-. ]{0,40}\Z") | st.just("1" * 10_000))
def test_any_text(text: str) -> None:
    for parse in (parse_w3c, parse_rfc_822):
        found = parse(text)
        assert found is None or (found.tzinfo is UTC and found.utcoffset() == timedelta())
