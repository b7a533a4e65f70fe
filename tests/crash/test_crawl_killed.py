"""Real crawls that are killed, frozen and cut off, a few times each; `make prove` does the same hundreds of times."""

from collections.abc import Callable
from dataclasses import replace

from holdfast.testing.torture import experiment
from holdfast.testing.torture.experiment import Reference, Report
from holdfast.testing.torture.scenario import Fault
from tests.crash.conftest import MakePlan
from tests.prove.faults import AtCommits, AtPoints
from tests.prove.proxied import Through
from tests.prove.sandbox import ExternalSandbox
from tests.support.severing import Cut

Figure = Callable[[str], None]


def _say(figure: Figure, what: str, report: Report) -> None:
    figure(f"{what}: {report.landed_count} of {report.planned} faults landed, {report.repeats} requests repeated")


def test_the_only_process_is_killed(
    make_plan: MakePlan, reference: Reference, sandbox: ExternalSandbox, figure: Figure
) -> None:
    scenario = make_plan(1, (Fault.KILL_ALL,))
    report = experiment.run_with_faults(scenario, reference, sandbox, print)
    assert report.violations == []
    assert report.landed_count == 1
    _say(figure, "the only process", report)


def test_one_of_two_workers_is_killed_and_one_is_frozen(
    make_plan: MakePlan, reference: Reference, sandbox: ExternalSandbox, figure: Figure
) -> None:
    scenario = make_plan(2, (Fault.KILL_ONE,), workers=2)
    scenario = replace(
        scenario, planned_faults=(scenario.planned_faults[0], replace(scenario.planned_faults[1], fault=Fault.FREEZE))
    )
    report = experiment.run_with_faults(scenario, reference, sandbox, print)
    assert report.violations == []
    assert {fault for fault, count in report.landed.items() if count} == {Fault.KILL_ONE, Fault.FREEZE}
    assert report.refusals > 0, "a worker that woke up must have been refused something, or nothing is shown"
    _say(figure, "one of two", report)


def test_the_process_dies_at_named_points(
    make_plan: MakePlan, reference: Reference, sandbox: ExternalSandbox, figure: Figure
) -> None:
    orders = ["sitemap_read:2", "in_batch:2", "archive_written:2", "round_raised:1", "after_commit:1"]
    crawl = AtPoints(orders)
    scenario = replace(make_plan(len(orders), (Fault.KILL_ALL,)), delay=0.1)
    report = experiment.run_with_faults(scenario, reference, sandbox, print, crawl=crawl)
    assert report.violations == []
    assert crawl.reached == {order.partition(":")[0]: 1 for order in orders}
    _say(figure, "failpoints", report)


def test_connections_are_cut_at_commit(
    make_plan: MakePlan, reference: Reference, sandbox: ExternalSandbox, figure: Figure
) -> None:
    crawl = AtCommits(sandbox, 2, seed=1)
    report = experiment.run_with_faults(
        make_plan(2, (Fault.KILL_ONE,), workers=2), reference, sandbox, print, crawl=crawl
    )
    assert report.violations == []
    assert crawl.cuts == {Cut.AFTER_COMMIT: 1, Cut.BEFORE_COMMIT: 1}
    assert report.repeats == 0, "nobody died, so nothing was asked for twice"
    _say(figure, "cut at commit", report)


def test_workers_and_the_proxies_that_they_use_are_killed(
    make_plan: MakePlan, reference: Reference, sandbox: ExternalSandbox, figure: Figure
) -> None:
    crawl = Through(seed=3, bad=["refuse", "status"])
    report = experiment.run_with_faults(
        make_plan(1, (Fault.KILL_ONE,), workers=2), reference, sandbox, print, crawl=crawl
    )
    assert report.violations == []
    assert report.landed_count == 1
    assert crawl.deeds.total() > 3
    assert sum(failed for _, _, failed in crawl.figures) > 0, "some requests met a proxy that did not work"
    _say(figure, f"with proxies that fail ({crawl.deeds.total()} times)", report)
