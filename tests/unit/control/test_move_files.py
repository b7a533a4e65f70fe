"""Files that go along when a store moves to another data folder."""

import os
from pathlib import Path

from holdfast.control import move_files


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_closed_segments_go_ahead_and_only_what_has_changed_goes_again(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    target.mkdir(mode=0o700)
    closed, growing = put(source, "archive/w1/1.warc.gz", b"closed"), put(source, "archive/w1/2.warc.gz", b"grow")
    put(source, "archive/w1/2.warc.gz.open", b"4")
    for left in ("postgres/base/1", "postgres.lock", "logs/crawl.log", "search/meta"):
        put(source, left, b"-")
    counted: list[int] = []
    ahead = move_files.copy(source, target, closed_only=True, progress=counted.append)
    assert (ahead.files, ahead.bytes, counted, names(target)) == (1, 6, [6], {"archive/w1/1.warc.gz"})
    put(target, "archive/w1/2.warc.gz.moving", b"the rest of a killed attempt")
    growing.write_bytes(b"grown")
    rest = move_files.copy(source, target, closed_only=False, progress=counted.append)
    assert (rest.files, rest.bytes) == (2, 6)
    assert names(target) == {"archive/w1/1.warc.gz", "archive/w1/2.warc.gz", "archive/w1/2.warc.gz.open"}
    assert (target / "archive/w1/2.warc.gz").read_bytes() == b"grown"
    assert (target / "archive/w1").stat().st_mode & 0o777 == 0o700
    assert move_files.copy(source, target, closed_only=False, progress=counted.append).files == 0
    # The same size, but another content and time: a torn end was cut off and written again.
    closed.write_bytes(b"CLOSED")
    os.utime(closed, ns=(1, 1))
    assert move_files.copy(source, target, closed_only=False, progress=counted.append).files == 1
    assert (target / "archive/w1/1.warc.gz").read_bytes() == b"CLOSED"


def test_links_are_not_followed(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    target.mkdir(mode=0o700)
    secret = put(tmp_path, "elsewhere/secret", b"secret")
    put(source, "archive/w1/1.warc.gz", b"one")
    (source / "archive/w1/2.warc.gz").symlink_to(secret)
    (source / "archive/w2").symlink_to(secret.parent)
    move_files.copy(source, target, closed_only=False, progress=lambda _: None)
    assert names(target) == {"archive/w1/1.warc.gz"}
