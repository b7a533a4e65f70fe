"""Real crawls that store images are killed: a file is there before its row, nothing is lost, and nothing is left behind after `gc`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.db import embedded
from holdfast.testing.simweb.spec import ImageKind, Robots, Site, SpecialUrl, Web
from holdfast.testing.torture import checks, experiment, image_checks
from holdfast.testing.torture import scenario as plans
from holdfast.testing.torture.scenario import IMAGE_KINDS, Fault, Scenario
from tests.crash.conftest import SEED, new_database
from tests.prove.sandbox import ExternalSandbox

Figure = Callable[[str], None]
KILLS = 3


@pytest.fixture
def scenario() -> Scenario:
    """Two sites that show images, one on a host that has nothing else."""
    site = Site(10, 6, 1500, images=3, gallery=len(IMAGE_KINDS), image_kinds=IMAGE_KINDS, image_host=2)
    site = replace(site, robots=Robots.DENY, flaky=0.1, odd={SpecialUrl.COPY: 0.1})
    own = tuple(kind for kind in IMAGE_KINDS if kind is not ImageKind.AWAY)
    special = {1: replace(site, image_kinds=own, image_host=None), 2: Site(1, robots=Robots.DENY, crawl_delay=0.1)}
    made = plans.make_scenario(seed=SEED, pages=80, workers=1, kills=KILLS, faults=(Fault.KILL_ALL,), images=True)
    return replace(made, web=Web(SEED, 3, site, special), delay=0.1)


def test_a_crawl_that_stores_images_is_killed(
    server: embedded.Server, template: str, scenario: Scenario, tmp_path: Path, figure: Figure
) -> None:
    with new_database(server, template, "images_calm") as database:
        calm = experiment.run_reference(scenario, ExternalSandbox(tmp_path / "calm", database))
    assert calm.violations == []
    assert calm.images is not None
    assert calm.images.near_duplicates > 0
    assert calm.images.exact_duplicates > 0
    with new_database(server, template, "images_killed") as database:
        sandbox = ExternalSandbox(tmp_path / "killed", database)
        report = experiment.run_with_faults(scenario, calm, sandbox, print)
        assert report.violations == []
        assert report.landed_count == KILLS
        files = {file.key for file in sandbox.images.list()}
        assert report.images == len(files) == len(calm.images.stored)
        assert report.garbage is not None
        figure(
            f"{KILLS} kills of a crawl that stores {len(files)} images: {report.repeats} requests repeated, "
            f"{report.garbage.files} orphans and {report.garbage.leftovers} unfinished files deleted"
        )
        lost = sandbox.images.list(limit=1)[0].key  # the proof can fail: a file is missing, another is no image
        sandbox.images.delete(lost)
        sandbox.images.put(bytes(32), "png", b"nothing")
        assert any("I11 every image has its file" in fault for fault in checks.verify_store(sandbox))
        garbage, faults = image_checks.collect_garbage(database, sandbox.images)
        assert (garbage.files, len(faults)) == (1, 1)
        assert lost in faults[0]
