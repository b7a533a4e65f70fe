"""Readers of other tools' files: CSV, Parquet, WARC and Scrapy's cache, whole, damaged and from any position."""

import base64
import gzip
import hashlib
import io
import pickle
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from holdfast.backfill.records import BadRow, Capture, RawRow
from holdfast.backfill.sources import http_message, scrapy_cache
from holdfast.backfill.sources.scrapy_cache import CacheCaptures
from holdfast.backfill.sources.tables import MAX_LINE, CsvRows, ParquetRows, check_mapping
from holdfast.backfill.sources.warc import WarcCaptures, is_digest_of
from holdfast.control.input_files import Damaged
from holdfast.errors import UsageError

Item = Capture | BadRow
MAX_BYTES = 1000


def csv_rows(content: bytes, after: int = 0, mapping: Mapping[str, str] | None = None) -> list[Any]:
    return list(CsvRows(io.BufferedReader(io.BytesIO(content)), mapping or {}, "log").rows(after))


# Tables ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_csv_with_any_separator_and_order(separator: str, pack: Callable[[bytes], bytes]) -> None:
    lines = [
        "\ufeffStatus,HOST,url",
        "200,a.example,https://a.example/",
        '404,"b.example"," https://b.example/?a"',
        "500,c.example,",
    ]
    rows = csv_rows(pack("\r\n".join(lines).replace(",", separator).encode()))
    assert [(row.number, row.domain, row.page_url, row.status, row.images_found) for row in rows] == [
        (2, "a.example", "https://a.example/", "200", None),
        (3, "b.example", "https://b.example/?a", "404", None),
        (4, "c.example", "", "500", None),
    ]
    assert csv_rows(pack("\r\n".join(lines).replace(",", separator).encode()), after=2) == rows[2:]


def test_bad_lines_of_csv() -> None:
    lines = [
        b"domain,status",
        b"\xff,200",
        b"short",
        b'"a.example,200',
        b"x" * MAX_LINE + b",200",
        b'"a,b",200',
        b"ok.example,200",
    ]
    found = csv_rows(b"\n".join(lines))
    assert [(row.number, getattr(row, "reason", None)) for row in found] == [
        (2, "not UTF-8"),
        (3, "too few columns"),
        (4, "not a line of CSV"),
        (5, "line too long"),
        (6, None),
        (7, None),
    ]
    with pytest.raises(Damaged):
        csv_rows(gzip.compress(b"domain\n" + b"a.example\n" * 20_000, mtime=0)[:-30])


def test_columns_are_found_or_named() -> None:
    assert csv_rows(b"a,b\nx.example,404", mapping={"domain": "a", "status": "B"})[0][1:4] == ("x.example", None, "404")
    layout = CsvRows(io.BufferedReader(io.BytesIO(b"source_domain,image_id\n")), {}, "log").layout
    assert (layout.is_provenance, layout.missing) == (True, ("page_url",))
    for content, mapping, problem in [
        (b"x,y\n", {}, "has no column with a domain or a URL; it has: x, y"),
        (b"domain\n", {"status": "code"}, "has no column 'code' for status"),
        (b"\xff\xfe\n", {}, "is not UTF-8 text"),
    ]:
        with pytest.raises(UsageError, match=problem):
            csv_rows(content, mapping=mapping)
    assert check_mapping(["domain=host=x"]) == {"domain": "host=x"}
    for wrong in ("domain", "domain=", "colour=x"):
        with pytest.raises(UsageError):
            check_mapping([wrong])


def test_parquet_is_read_by_groups_and_from_any_row(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    table = pa.table(
        {"host": [f"{n}.example" for n in range(25)], "status": [200, None] * 12 + [404], "more": [1.5] * 25}
    )
    parquet.write_table(table, file, row_group_size=10)
    rows = list(ParquetRows(file, {}, "log").rows(0))
    assert [(row.number, row.domain) for row in rows if isinstance(row, RawRow)] == [
        (n + 1, f"{n}.example") for n in range(25)
    ]
    assert [row.status for row in rows[:3] if isinstance(row, RawRow)] == [200, None, 200]
    for after in (0, 9, 10, 11, 24, 25):
        assert list(ParquetRows(file, {}, "log").rows(after)) == rows[after:]
    file.write_bytes(b"PAR1nothing")
    with pytest.raises(UsageError, match="is not a Parquet file"):
        ParquetRows(file, {}, "log")


# HTTP messages --------------------------------------------------------------------------------------------------------


def deflate(body: bytes, bits: int) -> bytes:
    compressor = zlib.compressobj(wbits=bits)
    return compressor.compress(body) + compressor.flush()


@pytest.mark.parametrize(
    ("headers", "stored", "expected"),
    [
        ({}, b"text", (b"text", False)),
        ({"transfer-encoding": "chunked"}, b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", (b"abcde", False)),
        ({"transfer-encoding": "chunked"}, b"3\r\nabc\r\n2\r\nd", (b"abcd", False)),
        ({"transfer-encoding": "chunked"}, b"<html>not chunked", (b"<html>not chunked", False)),
        ({"content-encoding": "gzip"}, gzip.compress(b"text", mtime=0), (b"text", False)),
        ({"content-encoding": "gzip"}, b"decoded already", (b"decoded already", False)),
        ({"content-encoding": "deflate"}, deflate(b"text", 15), (b"text", False)),
        ({"content-encoding": "deflate"}, deflate(b"text", -15), (b"text", False)),
        ({"content-encoding": "zstd"}, zstandard.compress(b"text"), (b"text", False)),
        ({"content-encoding": "gzip"}, gzip.compress(bytes(10**6), mtime=0), (bytes(MAX_BYTES), True)),
        ({"content-encoding": "zstd"}, zstandard.compress(bytes(10**6)), (bytes(MAX_BYTES), True)),
        ({}, bytes(MAX_BYTES + 1), (bytes(MAX_BYTES), True)),
    ],
)
def test_bodies_are_decoded_within_the_limit(
    headers: dict[str, str], stored: bytes, expected: tuple[bytes, bool]
) -> None:
    assert http_message.decode(stored, headers, MAX_BYTES) == expected


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip, gzip", "x" * 50])
def test_encodings_that_are_not_supported(encoding: str) -> None:
    with pytest.raises(ValueError, match="encoding"):
        http_message.decode(b"text", {"content-encoding": encoding}, MAX_BYTES)


# WARC -----------------------------------------------------------------------------------------------------------------


def warc_file(*, pack: bool, version: str = "1.0") -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # warcio leaves its temporary files open
        return _warc_file(pack=pack, version=version)


def _warc_file(*, pack: bool, version: str) -> bytes:
    """A file by warcio: three pages, a redirect, a resource, a revisit, a request, a lookup of DNS."""
    file = io.BytesIO()
    writer = WARCWriter(file, gzip=pack, warc_version=version)
    writer.write_record(writer.create_warcinfo_record("x.warc", {"software": "test"}))

    def response(url: str, status: str, headers: list[tuple[str, str]], body: bytes) -> Any:
        head = StatusAndHeaders(status, headers, protocol="HTTP/1.1")
        return writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=head)

    html = [("Content-Type", "text/html")]
    writer.write_record(response("http://a.example/1", "200 OK", html, b"<title>1</title>" + b"x" * 300))
    head = StatusAndHeaders("GET / HTTP/1.1", [("Host", "a.example")])
    writer.write_record(writer.create_warc_record("http://a.example/1", "request", http_headers=head))
    chunked = [*html, ("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip")]
    packed = gzip.compress(b"<title>2</title>", mtime=0)
    writer.write_record(
        response("http://a.example/2", "200 OK", chunked, b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed))
    )
    writer.write_record(response("http://a.example/3", "301 Moved", [("Location", "/1")], b""))
    writer.write_record(writer.create_warc_record("dns:a.example", "resource", payload=io.BytesIO(b"1.2.3.4")))
    writer.write_record(
        writer.create_warc_record(
            "http://a.example/4", "resource", payload=io.BytesIO(b"text"), warc_content_type="text/plain"
        )
    )
    ok = StatusAndHeaders("200 OK", html, protocol="HTTP/1.1")
    writer.write_record(
        writer.create_revisit_record(
            "http://a.example/5", "sha1:XYZ", "http://a.example/1", "2026-01-01T00:00:00Z", http_headers=ok
        )
    )
    writer.write_record(response("http://a.example/6", "404 Not Found", html, b"no"))
    return file.getvalue()


def captures(content: bytes, position: Any = None, number: int = 0) -> list[tuple[Any, Item]]:
    return list(WarcCaptures(io.BufferedReader(io.BytesIO(content)), max_bytes=MAX_BYTES).captures(position, number))


def shown(items: list[tuple[Any, Item]]) -> Iterator[tuple[object, ...]]:
    for _, item in items:
        if isinstance(item, Capture):
            yield item.number, item.url.removeprefix("http://a.example"), item.status, item.body[:16]
        else:
            yield item.number, item.reason


EXPECTED = [
    (1, "warcinfo record"),
    (2, "/1", 200, b"<title>1</title>"),
    (3, "request record"),
    (4, "/2", 200, b"<title>2</title>"),
    (5, "/3", 301, b""),
    (6, "no URL of the web"),
    (7, "/4", 200, b"text"),
    (8, "/5", 200, b""),
    (9, "/6", 404, b"no"),
]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("pack", ["plain", "members", "one member"])
def test_warc_files_whole_and_from_every_position(pack: str, version: str) -> None:
    content = warc_file(pack=pack == "members", version=version)
    content = gzip.compress(content, mtime=0) if pack == "one member" else content
    items = captures(content)
    assert list(shown(items)) == EXPECTED
    revisit = items[7][1]
    assert isinstance(revisit, Capture)
    assert (revisit.same_as, revisit.same_url) == ("sha1:xyz", "http://a.example/1")
    for before, (position, _) in enumerate(items):
        assert list(shown(captures(content, position, before))) == EXPECTED[before:]


def test_damaged_warc_files() -> None:
    plain = warc_file(pack=False)
    second = plain.index(b"WARC/", 10)
    third = plain.index(b"WARC/", second + 10)
    garbage = plain[:second] + b"garbage\r\nmore\r\n" + plain[second:]
    assert [item[:2] for item in shown(captures(garbage))][:3] == [
        (1, "warcinfo record"),
        (2, "not a WARC record"),
        (3, "/1"),
    ]
    flipped = plain[: third - 20] + b"Y" + plain[third - 19 :]
    assert [item[:2] for item in shown(captures(flipped))][1:3] == [(2, "damaged"), (3, "request record")]
    assert list(shown(captures(plain[: third - 20])))[1:] == [(2, "cut off")]
    packed = warc_file(pack=True)
    with pytest.raises(Damaged):
        captures(packed[:-20])
    with pytest.raises(Damaged):
        captures(packed[:700] + b"\x55" * 100 + packed[800:])
    with pytest.raises(UsageError, match="zstd"):
        captures(zstandard.compress(plain))
    assert captures(b"") == []
    huge = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 999999999999999\r\n\r\nHTTP/1.1 200 OK"
    assert list(shown(captures(huge))) == [(1, "cut off")]
    for block in (b"", b"HTTP/1.1 200 OK", b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"):
        fields = b"WARC-Type: response\r\nWARC-Target-URI: <http://a.example/>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        record = b"WARC/1.0\r\n%sContent-Length: %d\r\n\r\n%s\r\n\r\n" % (fields, len(block), block)
        assert list(shown(captures(record))) == [(1, "not an HTTP response")]


def test_digests_of_payloads() -> None:
    sha1 = hashlib.sha1(b"xxx")  # noqa: S324 — what most tools write
    for right in (f"sha1:{base64.b32encode(sha1.digest()).decode()}", f"SHA-1:{sha1.hexdigest()}", "md5:0"):
        assert is_digest_of(right, b"xxx")
    assert not is_digest_of(f"sha1:{sha1.hexdigest()}", b"other")
    assert not is_digest_of("sha256:00", b"xxx")


# Scrapy ---------------------------------------------------------------------------------------------------------------


class _Trap:
    """Unpickled, it leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("unpickled"),)


def cached(folder: Path, entry: str, *, pack: bool = False, body: bytes = b"text", **meta: object) -> None:
    values = {
        "url": "https://a.example/",
        "method": "GET",
        "status": 200,
        "response_url": "x",
        "timestamp": 1770969600.5,
    } | meta
    path = folder / entry
    path.mkdir(parents=True)
    for name, content in [
        ("meta", repr(values).encode()),
        ("pickled_meta", pickle.dumps(_Trap())),
        ("response_headers", b"Content-Type: text/html\r\nX: \xff"),
        ("response_body", body),
    ]:
        (path / name).write_bytes(gzip.compress(content, mtime=0) if pack else content)


def test_the_cache_of_scrapy_from_every_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "httpcache"
    cached(folder, "spider/ab/abcd", body=b"one")
    cached(folder, "spider/ab/abce", pack=True, body=b"two")
    cached(folder, "spider-2/ab/abcf", method="POST")
    cached(folder, "spider-2/ac/acff", status=404)
    cached(folder, "spider-2/ad/adff")
    (folder / "spider-2/ad/adff/meta").write_text("__import__('os').system('touch unpickled')")
    cached(folder, "spider-2/ae/aeff")
    (folder / "spider-2/ae/aeff/response_body").unlink()
    items = list(CacheCaptures(folder, max_bytes=MAX_BYTES).captures(None, 0))
    assert [item[1:] for item in shown(items)] == [
        ("https://a.example/", 200, b"one"),
        ("https://a.example/", 200, b"two"),
        ("not a GET",),
        ("https://a.example/", 404, b"text"),
        ("no meta",),
        ("not an HTTP response",),
    ]
    assert not (tmp_path / "unpickled").exists()
    for before, (position, _) in enumerate(items):
        again = list(CacheCaptures(folder, max_bytes=MAX_BYTES).captures(position, before))
        assert list(shown(again)) == list(shown(items))[before:]
    assert scrapy_cache.is_cache(folder)
    assert scrapy_cache.is_cache(folder / "spider")
    known = scrapy_cache.identity(folder)
    assert known == scrapy_cache.identity(folder)
    cached(folder, "spider-3/aa/aaaa")
    assert known != scrapy_cache.identity(folder)


def test_queues_of_scrapy_are_refused(tmp_path: Path) -> None:
    (tmp_path / "requests.queue").mkdir()
    with pytest.raises(UsageError, match=r"JOBDIR of Scrapy\. Its queues are pickles"):
        scrapy_cache.check(tmp_path)
    (tmp_path / "requests.queue").rmdir()
    (tmp_path / "spider.db").touch()
    with pytest.raises(UsageError, match="DBM cache of Scrapy"):
        scrapy_cache.check(tmp_path)
