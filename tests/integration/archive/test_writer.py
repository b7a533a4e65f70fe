"""What the archive keeps: warcio can read all of it, and `read` gives back what was put in."""

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.archive.reader import ArchiveReader
from holdfast.archive.writer import ArchiveWriter
from holdfast.errors import ArchiveDamaged, NotFound
from holdfast.model.fetch_types import ArchiveRef
from holdfast.settings import Archive
from holdfast.telemetry.clock import SystemClock
from tests.integration.archive.exchanges import (
    MOMENT,
    body_of,
    exchange,
    files,
    keep,
    numbered,
    records,
    warcio_check,
    writer,
)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_record_is_read_by_warcio(tmp_path: Path, level: int) -> None:
    segments = writer(tmp_path, level=level)
    keep(segments, [exchange(metadata={"job": "default", "via": "https://a.example/up"}), *numbered(range(3))])
    segments.close()
    (path,) = files(tmp_path)
    assert re.fullmatch(r"holdfast-\d{8}T\d{6}Z-00001-w1\.warc\.gz", path.name)
    found = records(path)
    assert [kind for kind, _, _ in found] == ["warcinfo", *["request", "response", "metadata"] * 4]
    assert b"software: holdfast test\r\n" in found[0][2]
    _, response, content = found[2]
    assert content == b"<p>Hello"
    assert response.http_headers.get_header("Content-Length") == "8"
    assert response.http_headers.get_header("X-Archive-Orig-Transfer-Encoding") == "chunked"
    assert found[1][1].http_headers.get_header("Host") == "a.example"
    assert found[3][2] == b"job: default\r\nvia: https://a.example/up\r\nfetchTimeMs: 0\r\n"
    judged = warcio_check(tmp_path)
    assert (judged.returncode, judged.stdout) == (0, "")
    assert list(ArchiveReader(tmp_path).check()) == []


def test_warcio_check_would_see_a_changed_body(tmp_path: Path) -> None:
    segments = writer(tmp_path, level=0)
    incompressible = exchange(body=os.urandom(2000))
    (ref,) = keep(segments, [incompressible])
    segments.close()
    (path,) = files(tmp_path)
    with path.open("rb+") as file:
        file.seek(ref.offset + ref.length // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    assert warcio_check(tmp_path).returncode == 1
    (problem,) = ArchiveReader(tmp_path).check()
    assert (problem.offset, problem.detail) == (ref.offset, "it is not whole")
    with pytest.raises(ArchiveDamaged, match="cannot be unpacked"):
        ArchiveReader(tmp_path).read(ref)


def test_reading_gives_what_was_kept(tmp_path: Path) -> None:
    segments = writer(tmp_path)
    (ref,) = keep(segments, [exchange(body=b"ab" * 10, cut=True)])  # read while the segment is open
    stored = ArchiveReader(tmp_path).read(ref)
    assert (stored.url, stored.fetched_at, stored.status) == ("https://a.example/", MOMENT, 200)
    assert (stored.body, stored.cut) == (b"ab" * 10, True)
    assert stored.headers["content-type"] == "text/html"
    segments.close()
    assert ArchiveReader(tmp_path).read(ref) == stored


def test_empty_and_large_bodies(tmp_path: Path) -> None:
    segments = writer(tmp_path, level=1)
    large = body_of(1, 10 * 1024 * 1024)
    exchanges = [exchange(body=b""), exchange(body=large), exchange(body=b"", status=304), exchange(request_head=b"")]
    refs = keep(segments, exchanges)
    segments.close()
    assert [ArchiveReader(tmp_path).read(ref).body for ref in refs] == [b"", large, b"", b"<p>Hello"]
    assert warcio_check(tmp_path).returncode == 0
    assert list(ArchiveReader(tmp_path).check()) == []


def test_segments_are_closed_when_they_are_long_enough(tmp_path: Path) -> None:
    segments = writer(tmp_path, segment_bytes=10_000)
    refs = [ref for n in range(0, 100, 5) for ref in keep(segments, numbered(range(n, n + 5)))]
    assert segments.append([]) == []
    segments.close()
    paths = files(tmp_path)
    assert len(paths) > 3
    assert all(path.stat().st_size >= 10_000 for path in paths[:-1])
    assert {ref.segment for ref in refs} == {f"w1/{path.name}" for path in paths}
    assert [ArchiveReader(tmp_path).read(ref).body for ref in refs] == [body_of(n) for n in range(100)]
    assert all(records(path)[0][0] == "warcinfo" for path in paths)
    assert warcio_check(tmp_path).returncode == 0
    assert not list(tmp_path.rglob("*.open"))


def test_names_are_new_in_each_life_and_for_each_worker(tmp_path: Path) -> None:
    refs: list[ArchiveRef] = []
    for life in range(3):
        for worker in ("w1", "host:1"):
            segments = writer(tmp_path, worker)
            refs += keep(segments, numbered([life]))
            segments.close()
    assert len({ref.segment for ref in refs}) == 6
    assert len(files(tmp_path)) == 6
    assert [ArchiveReader(tmp_path).read(ref).body for ref in refs] == [body_of(n) for n in (0, 0, 1, 1, 2, 2)]


def test_nothing_appended_leaves_nothing(tmp_path: Path) -> None:
    segments = writer(tmp_path)
    segments.sync()
    segments.close()
    assert [path.name for path in tmp_path.rglob("*")] == ["w1"]


class SetClock(SystemClock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


class TestRepeats:
    """A body that was kept before is only referred to."""

    def test_a_repeat_is_a_revisit(self, tmp_path: Path) -> None:
        segments = writer(tmp_path)
        (first,) = keep(segments, [exchange("https://a.example/1", body_of(1, 5000))])
        repeat = exchange("https://a.example/2", body_of(1, 5000), response_head=b"HTTP/1.1 404 Gone\r\nX: y\r\n\r\n")
        (second,) = keep(segments, [repeat])
        segments.close()
        assert second.length < first.length / 2
        assert second.payload_digest == first.payload_digest
        stored = ArchiveReader(tmp_path).read(second)
        assert (stored.url, stored.status, stored.headers["x"]) == ("https://a.example/2", 404, "y")
        assert stored.body == body_of(1, 5000)
        found = records(files(tmp_path)[0])
        original, revisit = found[2][1].rec_headers, found[5][1].rec_headers
        assert revisit.get_header("WARC-Type") == "revisit"
        assert revisit.get_header("WARC-Profile").endswith("/warc/1.1/revisit/identical-payload-digest")
        for name in ("Record-ID", "Target-URI", "Date", "Payload-Digest"):
            field = {"Record-ID": "WARC-Refers-To", "Payload-Digest": "WARC-Payload-Digest"}.get(
                name, f"WARC-Refers-To-{name}"
            )
            assert revisit.get_header(field) == original.get_header(f"WARC-{name}")
        assert warcio_check(tmp_path).returncode == 0
        assert list(ArchiveReader(tmp_path).check()) == []

    def test_only_what_is_synced_is_referred_to(self, tmp_path: Path) -> None:
        segments = writer(tmp_path)
        segments.append(numbered([1, 1]))
        segments.append(numbered([1]))
        keep(segments, numbered([1]))
        keep(segments, numbered([1]))
        segments.close()
        kinds = [kind for kind, _, _ in records(files(tmp_path)[0]) if kind in {"response", "revisit"}]
        assert kinds == ["response"] * 4 + ["revisit"]

    @pytest.mark.parametrize(("size", "cut", "dedup"), [(255, False, 9), (400, True, 9), (400, False, 0)])
    def test_some_bodies_are_always_kept(self, tmp_path: Path, size: int, cut: bool, dedup: int) -> None:
        segments = writer(tmp_path, dedup=dedup)
        for _ in range(2):
            keep(segments, [exchange(body=body_of(1, size), cut=cut)])
        segments.close()
        assert "revisit" not in [kind for kind, _, _ in records(files(tmp_path)[0])]

    def test_the_memory_holds_what_was_met_last(self, tmp_path: Path) -> None:
        segments = writer(tmp_path, dedup=2)
        for n in (1, 2, 1, 3, 1, 2):
            keep(segments, numbered([n]))
        segments.close()
        kinds = [kind for kind, _, _ in records(files(tmp_path)[0]) if kind in {"response", "revisit"}]
        assert kinds == ["response", "response", "revisit", "response", "revisit", "response"]

    def test_a_body_is_stored_again_when_it_is_old(self, tmp_path: Path) -> None:
        clock = SetClock()
        settings = Archive(dedup_age=timedelta(days=1))
        segments = ArchiveWriter(tmp_path, "w1", settings, software="holdfast test", clock=clock)
        for hours in (0, 23, 2, 23):  # the age of the record that has the body counts, not that of its last use
            clock.seconds += hours * 3600.0
            keep(segments, numbered([1]))
        segments.close()
        kinds = [kind for kind, _, _ in records(files(tmp_path)[0]) if kind in {"response", "revisit"}]
        assert kinds == ["response", "revisit", "response", "revisit"]

    def test_an_original_that_is_gone_is_not_referred_to(self, tmp_path: Path) -> None:
        segments = writer(tmp_path, segment_bytes=10_000)
        keep(segments, numbered(range(40)))
        files(tmp_path)[0].unlink()
        refs = keep(segments, numbered(range(40)))
        segments.close()
        assert [ArchiveReader(tmp_path).read(ref).body for ref in refs] == [body_of(n) for n in range(40)]

    def test_a_lost_original_is_reported(self, tmp_path: Path) -> None:
        segments = writer(tmp_path, segment_bytes=10_000)
        keep(segments, numbered(range(40)))
        (ref,) = keep(segments, numbered([7]))
        segments.close()
        files(tmp_path)[0].unlink()
        with pytest.raises(NotFound, match="no segment"):
            ArchiveReader(tmp_path).read(ref)
        (problem,) = ArchiveReader(tmp_path).check()
        assert (problem.segment, problem.offset) == (ref.segment, ref.offset)
        assert "no segment" in problem.detail


class TestDamage:
    """A reference never gives other bytes than those it was made for."""

    def test_a_wrong_place_or_digest(self, tmp_path: Path) -> None:
        segments = writer(tmp_path)
        first, second = keep(segments, numbered([1, 2]))
        segments.close()
        for ref, said in [
            (ArchiveRef(first.segment, first.offset, first.length, second.payload_digest), "not the one that is asked"),
            (ArchiveRef(first.segment, first.offset + 1, first.length, first.payload_digest), "cannot be unpacked"),
            (ArchiveRef(first.segment, first.offset, first.length - 9, first.payload_digest), "cannot be unpacked"),
            (ArchiveRef(first.segment, 10**9, first.length, first.payload_digest), "not whole"),
            (ArchiveRef("../w1/x", 0, 10, first.payload_digest), "name of its segment is invalid"),
            (ArchiveRef("w1/../../x", 0, 10, first.payload_digest), "name of its segment is invalid"),
        ]:
            with pytest.raises(ArchiveDamaged, match=said):
                ArchiveReader(tmp_path).read(ref)
        with pytest.raises(NotFound, match="no segment w1/gone"):
            ArchiveReader(tmp_path).read(ArchiveRef("w1/gone", 0, 10, first.payload_digest))

    def test_a_missing_end_is_reported(self, tmp_path: Path) -> None:
        segments = writer(tmp_path)
        (ref,) = keep(segments, numbered([1]))
        segments.close()
        (path,) = files(tmp_path)
        os.truncate(path, ref.offset + 20)
        (problem,) = ArchiveReader(tmp_path).check()
        assert str(problem) == f"In {ref.segment}, the record at {ref.offset} is damaged: it is not whole."
