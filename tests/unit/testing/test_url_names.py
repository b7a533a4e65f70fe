"""Names of pages: one each, and back again."""

import pytest

from holdfast.testing.simweb.spec import SpecialUrl
from holdfast.testing.simweb.url_names import TOPICS, chance, draw, draws, name_of, number_of, page_of, path_of


def test_every_page_has_a_name_of_its_own_that_leads_back() -> None:
    paths = [path_of(i) for i in (*range(9000), 10**6, 10**9)]
    assert len(set(paths)) == len(paths)
    assert [page_of(path) for path in paths] == [*range(9000), 10**6, 10**9]
    assert not any(c.isdigit() for path in paths for c in path)


@pytest.mark.parametrize(
    "path", ["", "/garden", "/garden/", "/nowhere/c", "/garden/c", "/harbor/bc", "/harbor/a", "/harbor/C", "harbor/c", "//harbor/c"]
)  # fmt: skip
def test_a_path_that_no_page_has_leads_nowhere(path: str) -> None:
    assert page_of(path) is None


def test_names_are_canonical() -> None:
    assert number_of("bc") is None  # 01
    assert number_of("") is None
    assert number_of("z" * 13) is None
    assert number_of(name_of(0)) == 0


def test_odd_urls_never_bear_the_name_of_a_topic() -> None:
    assert not set(TOPICS) & {*SpecialUrl, "cal", "echo", "img", "login"}


def test_dice_are_fair_and_always_the_same() -> None:
    assert draw(1, 2, "x", 3) == draw(1, 2, "x", 3)
    assert len({draw(seed, site, what, 0) for seed in (1, 2) for site in (1, 2) for what in "xy"}) == 8
    assert 450 < sum(chance(1, 0, "coin", n) < 0.5 for n in range(1000)) < 550
    assert len(set(draws(1, 0, "many", 0, 100))) == 100
