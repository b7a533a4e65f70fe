"""Plans are values: they go to JSON and back, refuse nonsense, and the presets keep what they promise."""

from dataclasses import replace

import pytest

from holdfast.errors import UsageError
from holdfast.testing.simweb.presets import PRESETS, preset
from holdfast.testing.simweb.spec import Address, ImageKind, Robots, Site, SpecialUrl, Trap, Wall, Web


@pytest.mark.parametrize("name", PRESETS)
def test_presets_go_to_json_and_back(name: str) -> None:
    web = preset(name, seed=7)
    assert Web.from_json(web.as_json()) == web
    assert web.seed == 7


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_never_deeper_than_a_crawl_goes(name: str) -> None:
    web = preset(name)
    assert max(web.site(n).depth for n in range(web.sites)) <= 9


def test_every_field_survives_json() -> None:
    site = Site(
        3, 4, 5, images=6, gallery=7, image_kinds=tuple(ImageKind), image_host=4, external=0.1,
        latency=0.2, jitter=0.3, slow=0.4, robots=Robots.REDIRECT, crawl_delay=1.5, wall=Wall.LOGIN,
        flaky=0.5, flaky_times=2, rate_limit=7, rate_window=8.0, changing=0.9, traps=tuple(Trap), odd=dict.fromkeys(SpecialUrl, 0.25),
    )  # fmt: skip
    web = Web(9, 10, site, {3: replace(site, pages=11), 4: Site()}, by_port=True)
    assert Web.from_json(web.as_json()) == web
    assert web.site(3).pages == 11
    assert web.site(5) is site


def test_the_nasty_kinds_are_all_in_the_hostile_web() -> None:
    web = preset("hostile")
    plans = [web.site(n) for n in range(50, web.sites)]
    assert {Trap.CALENDAR, Trap.ECHO, Trap.SESSION} == {trap for plan in plans for trap in plan.traps}
    assert {plan.wall for plan in plans} == set(Wall)
    assert {SpecialUrl.DRIP, SpecialUrl.BOMB, SpecialUrl.ENDLESS, SpecialUrl.HEADERS, SpecialUrl.DEEP} <= {
        odd for plan in plans for odd in plan.odd
    }
    assert all(web.site(n) == web.default for n in range(50))


def test_a_preset_can_be_made_smaller_and_larger() -> None:
    web = preset("torture", sites=3, pages=17, by_port=True)
    assert (web.sites, web.site(0).pages, web.by_port, web.special) == (3, 17, True, {})
    assert preset("fast", sites=100_000).sites == 100_000
    with pytest.raises(UsageError, match="no web called 'slow'"):
        preset("slow")


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"colour": 1}', '{"default": {"colour": 1}}', '{"default": {"odd": {"colour": 1}}}', '{"sites": 0}',
        '{"default": {"robots": "perhaps"}}', '{"default": {"pages": 0}}', '{"default": {"flaky": 2}}', '{"special": {"1": {}}}',
        '{"default": {"image_kinds": ["colour"]}}',
        '{"default": {"odd": {"missing": -1}}}', '{"default": {"latency": -1}}', '{"default": {"latency": NaN}}',
    ],
)  # fmt: skip
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Web.from_json(text)


@pytest.mark.parametrize(
    ("pages", "links", "depth"), [(1, 20, 0), (2, 20, 1), (11, 20, 1), (12, 20, 2), (1000, 2, 9), (10**6, 50, 5)]
)
def test_depth_is_that_of_the_tree(pages: int, links: int, depth: int) -> None:
    assert Site(pages, links).depth == depth


def test_where_sites_are() -> None:
    assert Address((8000,)).origin(3) == "http://s3.localhost:8000"
    assert Address((8000, 8001), by_port=True).origin(1) == "http://127.0.0.1:8001"
