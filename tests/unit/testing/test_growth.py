"""The judge of soaks: what grows is told from what has settled, and from what only swings."""

import pytest

from tests.prove.growth import growth

LIMITS = {"rss": (1.05, 10)}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([100, 900, 1000, 1000, 1000, 1000, 1000, 1000], []),
        ([1000, 1000, 1000, 1000, 1030, 1040, 1060, 1060], []),
        ([1000, 1000, 1000, 1000, 1000, 1000, 1061, 1061], ["worker rss grew from 1,000 to 1,061"]),
        ([5, 500, 100, 900, 5, 500, 100, 900], []),
        ([1000, 1000, 1000, 1200], ["worker rss grew from 1,000 to 1,200"]),
        ([1000, 1200], []),
    ],
)
def test_the_last_quarter_is_compared_with_the_second(values: list[int], said: list[str]) -> None:
    assert list(growth({"worker rss": values}, LIMITS)) == said
