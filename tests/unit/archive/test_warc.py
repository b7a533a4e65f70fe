"""Records: what is in them, and that nothing from the web gets out of its field."""

import hashlib
import re
import zlib
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.archive import warc
from holdfast.archive.writer import safe_name
from tests.integration.archive.exchanges import exchange

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
HOSTILE = "https://a.example/\r\nWARC-Type: warcinfo\r\n\r\nü\ud800 x\x00"


def build_records(kept: warc.Exchange, original: warc.Original | None = None) -> warc.ExchangeRecords:
    return warc.build_records(kept, warc.record_ids(), hashlib.sha256(kept.result.body).digest(), original)


def test_ids_are_uuids_and_differ() -> None:
    first, second = warc.record_ids(), warc.record_ids()
    ids = [next(first), next(first), next(second), next(second)]
    assert len(set(ids)) == 4
    assert all(re.fullmatch(r"<urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}>", text) for text in ids)


def test_the_fields_of_an_answer() -> None:
    made = build_records(exchange(http_version="2", cut=True))
    fields = warc.parse(made.response).fields
    response_id = fields.pop("warc-record-id")
    assert fields == {
        "warc-type": "response",
        "warc-truncated": "length",
        "warc-target-uri": "https://a.example/",
        "warc-date": "2026-11-15T20:15:00.250000Z",
        "warc-ip-address": "192.0.2.1",
        "warc-protocol": "h2",
        "warc-payload-digest": f"sha256:{hashlib.sha256(exchange().result.body).hexdigest()}",
        "content-type": "application/http; msgtype=response",
        "content-length": str(len(warc.parse(made.response).block)),
    }
    for text in (made.request, made.metadata):
        assert warc.parse(text).fields["warc-concurrent-to"] == response_id


def test_a_date_is_utc_with_fractions_whatever_the_zone() -> None:
    moment = datetime(2026, 1, 1, 1, 0, 0, tzinfo=timezone(timedelta(hours=2)))
    record = warc.parse(warc.warcinfo(warc.record_ids(), moment, segment="s.warc.gz", software="x"))
    assert record.fields["warc-date"] == "2025-12-31T23:00:00.000000Z"


def test_hostile_values_stay_in_their_fields() -> None:
    hostile = exchange(
        HOSTILE, address="::1\r\nX: y", http_version="1.1\nX: y", metadata={"vi:a\r\n": "a\r\nb: c\u2028\x85"}
    )
    made = build_records(hostile)
    fields = warc.parse(made.response).fields
    assert fields["warc-type"] == "response"
    assert fields["warc-target-uri"] == "https://a.example/%0D%0AWARC-Type:%20warcinfo%0D%0A%0D%0A%C3%BC?%20x%00"
    assert "x" not in fields
    assert warc.parse(made.metadata).block == b"vi_a_: a b: c\r\nfetchTimeMs: 0\r\n"


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text_makes_records_that_can_be_parsed(url: str, name: str, value: str) -> None:
    made = build_records(exchange(url, metadata={name: value}))
    fields = warc.parse(made.response).fields
    assert fields["warc-target-uri"].isascii()
    assert not re.search(r"\s", fields["warc-target-uri"])
    assert warc.parse(made.metadata).block.count(b"\r\n") == 2


def test_without_an_answer_there_is_nothing_to_keep() -> None:
    with pytest.raises(ValueError, match="no status"):
        build_records(exchange(status=None))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[1:], "does not begin"),
        (lambda text: text[:40], "does not begin"),
        (lambda text: text[:-1], "not as long"),
        (lambda text: text + b"x", "not as long"),
        (lambda text: text.replace(b"Hello", b"Jello"), "not those that were written"),
        (lambda text: text.replace(b"Content-Length: ", b"Content-Length: \xc2\xb2"), "not as long"),
    ],
)
def test_a_record_that_changed_is_refused(change: object, said: str) -> None:
    text = build_records(exchange()).response
    assert warc.parse(text).payload == b"<p>Hello"
    assert callable(change)
    with pytest.raises(ValueError, match=said):
        warc.parse(change(text))


@pytest.mark.parametrize("length", [0, 1, 400, 1023])
def test_a_small_record_is_a_stored_gzip_member(length: int) -> None:
    text = (b"WARC/1.1\r\n" * 103)[:length]
    member = warc.compress(text, 1)
    assert len(member) == length + 23
    decompressor = zlib.decompressobj(zlib.MAX_WBITS + 16)  # which checks length and checksum
    assert decompressor.decompress(member) == text
    assert decompressor.eof
    assert not decompressor.unused_data


@pytest.mark.parametrize("name", ["", "..", "a/b", "a:1", "é", "x" * 300, "\ud800"])
def test_a_worker_name_becomes_a_safe_one(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{9,60}", safe_name(name))


def test_names_that_differ_stay_different() -> None:
    assert safe_name("host-1_a") == "host-1_a"
    assert len({safe_name(name) for name in ("a b", "a_b", "a:b", "x" * 300, "x" * 301)}) == 5
