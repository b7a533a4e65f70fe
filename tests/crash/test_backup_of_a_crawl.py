"""A crawl is backed up while it and the backups are killed; two seconds of its past are restored and go on to the same end.

The long form is `make prove COLUMN=backup`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.testing.torture import experiment
from holdfast.testing.torture.experiment import Reference
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Fault
from tests.crash.conftest import MakePlan
from tests.prove.backups import BackedUp
from tests.support.servers import data_in_memory


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_in_memory() as data:
        yield data.parent / "crawl"


def test_a_crawl_is_restored_to_seconds_of_its_past(
    reference: Reference, make_plan: MakePlan, folder: Path, figure: Callable[[str], None]
) -> None:
    crawl = BackedUp(5, seconds=2)
    report = experiment.run_with_faults(make_plan(1, (Fault.KILL_ALL,)), reference, Sandbox(folder), print, crawl=crawl)
    assert report.violations == []
    assert len(crawl.figures["restored"]) == 2
    rows = [restored["rows"] for restored in crawl.figures["restored"]]
    assert rows == sorted(rows)
    figure(
        f"restored to {len(rows)} seconds of a crawl: {rows} rows of its log, all as committed by then; "
        f"{crawl.figures['refused']} results of a worker of the old generation refused"
    )
