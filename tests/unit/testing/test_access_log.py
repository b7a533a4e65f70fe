"""The access log: what is written can be read, whatever clients send."""

from pathlib import Path

import pytest

from holdfast.testing.simweb.access_log import AccessLog, format_line, parse_lines, read_file


@pytest.mark.parametrize(
    "text", ["plain", "a b", "tab\tnew\nline\rnul\0", "back\\slash", "café ü \xff", "\x1b[31m", ""]
)
def test_what_a_client_sends_stays_in_its_field(text: str) -> None:
    written = format_line(1_500_000_000, 2_500_000_000, 3_000_000_000, "GET", text, f"/{text}", 200, 4, 5, None, text)
    assert written.count("\n") == 1
    (hit,) = parse_lines([written])
    assert (hit.at, hit.ended_at, hit.wall, hit.status, hit.connection, hit.in_flight) == (1.5, 2.5, 3.0, 200, 4, 5)
    assert hit.retry_after is None
    assert hit.path == f"/{hit.host}"
    assert hit.agent.encode().decode("unicode_escape") == text
    if text in ("plain", "a b"):
        assert hit.agent == text


def test_a_line_that_is_not_whole_is_left_out() -> None:
    whole = format_line(1, 2, 3, "GET", "h", "/", 429, 1, 1, 7, "-")
    assert [hit.retry_after for hit in parse_lines([whole, whole[:-1], whole[:10], "\n"])] == [7]


def test_it_is_appended_to_and_read_in_the_order_of_beginning(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    first = AccessLog(path)
    assert first.add(format_line(9, 10, 1, "GET", "h", "/b", 200, 1, 1, None, "-")) is True
    assert first.add(format_line(5, 11, 1, "GET", "h", "/a", 200, 2, 1, None, "-")) is False
    assert path.read_bytes() == b""
    first.flush()
    assert [hit.path for hit in read_file(path)] == ["/a", "/b"]
    first.close()
    second = AccessLog(path)
    second.add(format_line(1, 2, 1, "GET", "h", "/c", 200, 1, 1, None, "-"))
    second.close()
    second.close()
    assert [hit.path for hit in read_file(path)] == ["/c", "/a", "/b"]


def test_without_a_file_nothing_is_kept() -> None:
    log = AccessLog(None)
    assert log.add("x") is False
    log.flush()
    log.close()
