"""Whether `lastmod` can be trusted."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.politeness.sitemap_trust import MAX_COUNT, LastmodEvidence, Trust, is_generated

NOW = datetime(2024, 5, 6, 7, 8, tzinfo=UTC)


def evidence(newer_changed: int, newer_unchanged: int, older_changed: int, older_unchanged: int) -> LastmodEvidence:
    return LastmodEvidence(newer_changed, newer_unchanged, older_changed, older_unchanged)


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        (evidence(0, 0, 0, 0), Trust.UNKNOWN),
        (evidence(500, 0, 0, 0), Trust.UNKNOWN),  # news alone say nothing about silence
        (evidence(0, 0, 0, 19), Trust.UNKNOWN),
        (evidence(0, 0, 0, 20), Trust.TRUSTED),
        (evidence(5, 14, 0, 20), Trust.TRUSTED),
        (evidence(0, 19, 0, 20), Trust.TRUSTED),
        (evidence(0, 20, 0, 20), Trust.UNTRUSTED),
        (evidence(1, 20, 0, 500), Trust.UNTRUSTED),
        (evidence(2, 18, 0, 20), Trust.TRUSTED),
        (evidence(0, 0, 1, 0), Trust.UNKNOWN),
        (evidence(0, 0, 1, 30), Trust.UNKNOWN),
        (evidence(0, 0, 1, 49), Trust.TRUSTED),
        (evidence(50, 0, 2, 0), Trust.UNTRUSTED),
        (evidence(50, 0, 2, 97), Trust.UNTRUSTED),
        (evidence(50, 0, 2, 98), Trust.TRUSTED),
    ],
)
def test_thresholds(counters: LastmodEvidence, expected: Trust) -> None:
    assert counters.trust() is expected


def test_a_host_is_learnt_and_may_change_its_ways() -> None:
    counters = LastmodEvidence()
    seen = [counters.trust()]
    for newer, changed, times in ((False, False, 30), (True, True, 5), (False, True, 3), (False, False, 2 * MAX_COUNT)):
        for _ in range(times):
            counters = counters.record(newer=newer, changed=changed)
        seen.append(counters.trust())
    assert seen == [Trust.UNKNOWN, Trust.TRUSTED, Trust.TRUSTED, Trust.UNTRUSTED, Trust.TRUSTED]
    counted = LastmodEvidence().record(newer=True, changed=False).record(newer=False, changed=True)
    assert counted == evidence(0, 1, 1, 0)
    assert sum((counters.newer_changed, counters.older_changed, counters.older_unchanged)) < MAX_COUNT


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ([], False),
        ([None, None], False),
        ([86400] * 4, False),
        ([86400] * 5, True),
        ([86400] * 5 + [None], True),
        ([86400] * 5 + [3600], False),
        ([0], False),  # a site with one page may have just changed it
        ([0, 1], True),
        ([-200, 200, 5], True),
        ([0] * 9 + [86400], False),
        ([0] * 10 + [86400], True),
        ([0, 400], False),
    ],
)
def test_dates_of_generation(ages: list[int | None], expected: bool) -> None:
    assert is_generated([None if age is None else NOW - timedelta(seconds=age) for age in ages], NOW) is expected
