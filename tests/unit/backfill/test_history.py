"""Rows of history: what each counts as, under which domain, and why it is bad."""

from datetime import UTC, datetime

import pytest

from holdfast.backfill.history import HistoryReader
from holdfast.backfill.records import RawRow

NOW = datetime(2026, 6, 1, tzinfo=UTC)
AT = "2026-02-13T08:00:00Z"


def row(domain: object = "a.example", **facts: object) -> RawRow:
    values = {"number": 1, "page_url": None, "status": "200", "images_found": "0", "crawled_at": AT, "image_id": None}
    return RawRow(domain=domain, **(values | facts))  # type: ignore[arg-type]


def read(*rows: RawRow) -> dict[str, tuple[int, int, int, int, bool]]:
    chunk = HistoryReader(NOW, registrable=False).read(rows)
    assert not chunk.bad_rows, chunk.bad_rows
    return {name: (s.requests, s.pages, s.errors, s.images_found, s.merged) for name, s in chunk.domains.items()}


def test_spellings_of_a_domain_are_one_domain() -> None:
    spellings = ["A.Example", "www.a.example", "a.example.", "a.example:443", "https://a.example/x?y", " a.example "]
    assert read(*map(row, spellings)) == {"a.example": (6, 6, 0, 0, True)}
    assert read(row(), row()) == {"a.example": (2, 2, 0, 0, False)}
    assert read(row("münchen.example"), row("xn--mnchen-3ya.example"), row("a.example:8080")) == {
        "xn--mnchen-3ya.example": (2, 2, 0, 0, True),
        "a.example:8080": (1, 1, 0, 0, False),
    }


def test_a_row_without_a_domain_belongs_to_that_of_its_page() -> None:
    assert read(row("", page_url="https://www.b.example/1"), row(None, page_url="http://b.example/2")) == {
        "b.example": (2, 2, 0, 0, False)
    }


@pytest.mark.parametrize(
    ("status", "counts"),
    [(given, (1, 0)) for given in ("200", "399", 304, 200.0, "200.0")]
    + [(given, (0, 1)) for given in ("400", "599", 999)]
    + [(given, (0, 0)) for given in ("", None, "0", 0, "NULL", float("nan"), "-")],
)
def test_a_status_is_a_page_an_error_or_neither(status: object, counts: tuple[int, int]) -> None:
    assert read(row(status=status)) == {"a.example": (1, *counts, 0, False)}


@pytest.mark.parametrize(
    "given",
    [
        *(
            AT,
            "2026-02-13 08:00:00",
            "2026-02-13T09:00:00+01:00",
            "1770969600",
            "1770969600000",
            "2026-02-13 08:00:00+00",
        ),
        *(
            1770969600,
            1770969600.0,
            datetime(2026, 2, 13, 8),  # noqa: DTZ001 — tables have such times
            datetime(2026, 2, 13, 8, tzinfo=UTC),
        ),
    ],
)
def test_times_in_every_usual_form(given: object) -> None:
    chunk = HistoryReader(NOW, registrable=False).read([row(crawled_at=given)])
    assert chunk.domains["a.example"].first_at == datetime(2026, 2, 13, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "at"),
    [
        # Python reads 17000101, any character, 1000.
        ("1700010141000", datetime(2023, 11, 15, 1, 2, 21, tzinfo=UTC)),
        ("20240213", datetime(2024, 2, 13, tzinfo=UTC)),
    ],
)
def test_milliseconds_are_no_date_of_the_year_1700(given: str, at: datetime) -> None:
    chunk = HistoryReader(NOW, registrable=False).read([row(crawled_at=given)])
    assert chunk.domains["a.example"].first_at == at


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"domain": "not a domain"}, "not a domain"),
        ({"domain": "a..b"}, "not a domain"),
        ({"domain": "mailto:me@a.example"}, "not a domain"),
        ({"domain": ""}, "no domain"),
        ({"domain": "", "page_url": "ftp://a.example/"}, "not a domain"),
        ({"status": "abc"}, "not an HTTP status"),
        ({"status": "99"}, "not an HTTP status"),
        ({"status": "-200"}, "not an HTTP status"),
        ({"status": "²00"}, "not an HTTP status"),
        ({"images_found": "-1"}, "not a number of images"),
        ({"images_found": "99999999999"}, "not a number of images"),
        ({"crawled_at": "yesterday"}, "not a time"),
        ({"crawled_at": "2027-01-01"}, "not a time"),
        ({"crawled_at": "1905-01-01"}, "not a time"),
        ({"crawled_at": "9" * 18}, "not a time"),
        ({"image_id": " "}, "no image_id"),
    ],
)
def test_bad_rows_have_a_reason_and_do_not_stop_the_rest(facts: dict[str, object], reason: str) -> None:
    chunk = HistoryReader(NOW, registrable=False).read([row(**facts)._replace(number=7), row("b.example")])
    assert [(bad.number, bad.reason) for bad in chunk.bad_rows] == [(7, reason)]
    assert (chunk.counts.rows, chunk.counts.bad, dict(chunk.counts.reasons)) == (2, 1, {reason: 1})
    assert chunk.domains["b.example"].requests == 1
    assert facts.get("domain", "a.example") == "a.example" or list(chunk.domains) == ["b.example"]


def test_an_image_counts_once_however_its_domain_is_written() -> None:
    seen = [("a.example", "1"), ("www.a.example", "1"), ("a.example", "2"), ("b.example", "1")]
    chunk = HistoryReader(NOW, registrable=False).read(row(domain, image_id=image) for domain, image in seen)
    assert {name: (len(one.images or ()), one.requests) for name, one in chunk.domains.items()} == {
        "a.example": (2, 0),
        "b.example": (1, 0),
    }


def test_the_base_url_is_the_origin_of_its_page() -> None:
    rows = [
        row(page_url="http://www.a.example/x"),
        row("b.example", page_url="https://other.example/x"),
        row("c.example", page_url="no URL"),
        row("d.example", page_url="https://d.example/x y"),
        row("e.example", page_url="https://e.example.other/x"),
    ]
    chunk = HistoryReader(NOW, registrable=False).read(rows)
    assert [one.base_url for one in chunk.domains.values()] == [
        "http://www.a.example",
        "https://b.example",
        "https://c.example",
        "https://d.example",
        "https://e.example",
    ]


def test_registrable_domains() -> None:
    chunk = HistoryReader(NOW, registrable=True).read([row("a.b.example"), row("c.b.example")])
    assert list(chunk.domains) == ["b.example"]
