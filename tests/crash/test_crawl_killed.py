"""Real crawls that are killed, frozen and cut off, a few times each; `make prove` does the same hundreds of times."""

from collections.abc import Callable

from holdfast.control.torture import trial
from holdfast.control.torture.plan import Fault
from holdfast.control.torture.trial import Reference, Report
from tests.crash.conftest import MakePlan
from tests.prove.faults import AtCommits, AtPoints
from tests.prove.ground import BorrowedGround
from tests.prove.proxied import Through
from tests.support.severing import Cut

Figure = Callable[[str], None]


def _say(figure: Figure, what: str, report: Report) -> None:
    figure(f"{what}: {report.struck} of {report.planned} faults landed, {report.repeats} requests repeated")


def test_the_only_process_is_killed(
    make_plan: MakePlan, reference: Reference, ground: BorrowedGround, figure: Figure
) -> None:
    plan = make_plan(2, (Fault.KILL_ALL,))
    report = trial.with_faults(plan, reference, ground, print)
    assert report.violations == []
    assert report.struck == 2
    _say(figure, "the only process", report)


def test_workers_of_four_are_killed_and_frozen(
    make_plan: MakePlan, reference: Reference, ground: BorrowedGround, figure: Figure
) -> None:
    plan = make_plan(3, (Fault.KILL_ONE, Fault.FREEZE), workers=4)
    report = trial.with_faults(plan, reference, ground, print)
    assert report.violations == []
    assert {fault for fault, count in report.landed.items() if count} == {Fault.KILL_ONE, Fault.FREEZE}
    assert report.refusals > 0, "a worker that woke up must have been refused something, or nothing is shown"
    _say(figure, "one of four", report)


def test_the_process_dies_at_named_points(
    make_plan: MakePlan, reference: Reference, ground: BorrowedGround, figure: Figure
) -> None:
    orders = ["in_batch:2", "archive_written:2", "round_raised:1", "after_commit:1"]
    crawl = AtPoints(orders)
    report = trial.with_faults(make_plan(4, (Fault.KILL_ALL,)), reference, ground, print, crawl=crawl)
    assert report.violations == []
    assert crawl.reached == {"in_batch": 1, "archive_written": 1, "after_commit": 1, "round_raised": 1}
    _say(figure, "failpoints", report)


def test_connections_are_cut_at_commit(
    make_plan: MakePlan, reference: Reference, ground: BorrowedGround, figure: Figure
) -> None:
    crawl = AtCommits(ground, 4, seed=1)
    report = trial.with_faults(make_plan(4, (Fault.KILL_ONE,), workers=2), reference, ground, print, crawl=crawl)
    assert report.violations == []
    assert crawl.cuts == {Cut.AFTER_COMMIT: 2, Cut.BEFORE_COMMIT: 2}
    assert report.repeats == 0, "nobody died, so nothing was asked for twice"
    _say(figure, "cut at commit", report)


def test_workers_and_the_proxies_that_they_use_are_killed(
    make_plan: MakePlan, reference: Reference, ground: BorrowedGround, figure: Figure
) -> None:
    crawl = Through(seed=3, bad=["refuse", "status"])
    report = trial.with_faults(make_plan(2, (Fault.KILL_ONE,), workers=2), reference, ground, print, crawl=crawl)
    assert report.violations == []
    assert report.struck == 2
    assert crawl.deeds.total() > 3
    assert sum(failed for _, _, failed in crawl.figures) > 0, "some requests met a proxy that did not work"
    _say(figure, f"with proxies that fail ({crawl.deeds.total()} times)", report)
