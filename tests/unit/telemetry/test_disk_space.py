"""Free space of volumes: states with their hysteresis, and what is said about them. The disk itself is replaced by a number."""

import os
from pathlib import Path

import pytest

from holdfast.model.health import DiskSpace, SpaceState
from holdfast.telemetry.disk_space import DiskWatch, describe, existing_folder, in_bytes, next_state

MB = 1_000_000


@pytest.mark.parametrize(
    ("before", "free", "after"),
    [
        ("ok", 2_000 * MB, "ok"),
        ("ok", 2_000 * MB - 1, "low"),
        ("low", 2_199 * MB, "low"),
        ("low", 2_200 * MB, "ok"),
        ("ok", 500 * MB, "low"),
        ("low", 500 * MB - 1, "full"),
        ("full", 549 * MB, "full"),
        ("full", 551 * MB, "low"),
        ("full", 2_100 * MB, "low"),
        ("full", 2_200 * MB, "ok"),
    ],
)
def test_a_state_ends_with_a_tenth_more_than_it_began_with(before: SpaceState, free: int, after: SpaceState) -> None:
    assert next_state(before, free, min_free=500 * MB, warn_free=2_000 * MB) == after


def test_bounds_of_zero_are_switched_off() -> None:
    assert next_state("ok", 0, min_free=0, warn_free=0) == "ok"
    assert next_state("full", 0, min_free=0, warn_free=0) == "ok"


def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: list[int]) -> DiskWatch:
    """Two places of one volume, whose free megabytes are taken from the list, look by look."""
    real = os.statvfs(tmp_path)

    def statvfs(_path: Path) -> os.statvfs_result:
        values = list(real)
        values[0], values[1], values[2], values[4] = 4096, MB, 10_000, free.pop(0)
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", statvfs)
    places = {"database": tmp_path, "archive": tmp_path / "data" / "archive"}
    return DiskWatch(places, min_free=500 * MB, warn_free=2_000 * MB)


def test_places_of_one_volume_are_one_and_remember_their_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(tmp_path, monkeypatch, [4_000, 4_000, 499, 499, 520, 520, 600, 600, 520, 520])
    seen = []
    for _ in range(5):
        (space,) = watch.look()
        assert space.holds == ["database", "archive"]
        seen.append((space.free_bytes // MB, space.state))
    assert seen == [(4_000, "ok"), (499, "full"), (520, "full"), (600, "low"), (520, "low")]


def test_a_full_volume_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(tmp_path, monkeypatch, [1_000, 1_000, 10, 10])
    assert watch.full() is None
    full = watch.full()
    assert full is not None
    assert (full.free_bytes, full.needed_bytes, full.total_bytes) == (10 * MB, 500 * MB, 10_000 * MB)


def test_a_folder_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_path: Path) -> os.statvfs_result:
        raise PermissionError

    monkeypatch.setattr(os, "statvfs", fails)
    assert DiskWatch({"logs": tmp_path}, min_free=1, warn_free=1).look() == []


def test_the_closest_folder_that_exists(tmp_path: Path) -> None:
    assert existing_folder(tmp_path / "not" / "yet") == tmp_path
    assert existing_folder(tmp_path) == tmp_path


def test_words() -> None:
    space = DiskSpace(["database", "archive"], "/srv/holdfast", 20_000 * MB, 120 * MB, "full", 500 * MB)
    assert describe(space) == (
        "the disk of the database and archive (/srv/holdfast) has 120.0 MB free of 20.0 GB, less than 500.0 MB (disk.min_free)"
    )
    assert "/srv" not in describe(space, where=False)
    space.holds[:] = ["database", "archive", "logs", "images"]
    assert describe(space, where=False).startswith("the disk of the database, archive, logs and images has")
    space.holds[:] = ["images"]
    assert describe(space, where=False).startswith("the disk of the images has")
    assert [in_bytes(count) for count in (0, 999, 1000, 1.5e13, 1e16)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "15.0 TB",
        "10000.0 TB",
    ]
