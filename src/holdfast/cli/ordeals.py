"""What `holdfast torture` and `holdfast demo` do."""

import sys
import time
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.cli import output
from holdfast.cli.output import counted
from holdfast.cli.session import say
from holdfast.control.torture import plan as plans
from holdfast.control.torture import trial
from holdfast.control.torture.ground import Ground, Grounds
from holdfast.control.torture.plan import Plan
from holdfast.control.torture.trial import Report
from holdfast.errors import HoldfastError

_DEMO_PAGES: Final = 400
_DEMO_KILLS: Final = 3


def torture(seed: int, pages: int, workers: int, kills: int, folder: Path | None, *, keep: bool, as_json: bool) -> None:
    """Kill a crawl again and again, and prove that nothing came of it."""
    plan = plans.make(seed=seed, pages=pages, workers=workers, kills=kills)
    report = _try(plan, folder, keep=keep)
    if as_json:
        output.print_json(report.as_json())
    else:
        _print(report)
    if not report.ok:
        raise typer.Exit(1)


def _try(plan: Plan, folder: Path | None, *, keep: bool) -> Report:
    with Grounds(folder) as grounds:
        grounds.keep = keep
        try:
            say("Crawling a made-up web without any fault …")
            calm = trial.without_faults(plan, Ground(grounds.folder / "without-faults"), keep=keep)
            say(f"  {counted(len(calm.ends), 'URL')}, {counted(len(calm.hits), 'request')}, {calm.seconds:.0f} s.")
            say(f"Crawling it again, with {counted(len(plan.strokes), 'fault')} …")
            report = trial.with_faults(
                plan, calm, Ground(grounds.folder / "with-faults"), lambda line: say(f"  {line}"), keep=keep
            )
        except HoldfastError:
            grounds.keep = True
            say(f"What it left is in {grounds.folder}.")
            raise
        report.violations[:0] = calm.violations
        if not report.ok or keep:
            grounds.keep = True
            say(f"The data folders are in {grounds.folder}.")
        return report


def _print(report: Report) -> None:
    landed = "; ".join(f"{counted(count, 'time')} {fault}" for fault, count in sorted(report.landed.items()))
    output.print_facts(
        [
            ("faults", f"{report.struck} of {report.planned} landed ({landed or 'none'})"),
            ("URLs", f"{report.urls:,}, of which {report.pages:,} are pages with content"),
            ("requests", f"{report.requests:,}; {report.repeats} repeated, at most {report.most_repeats} may be"),
            ("back at work", f"{report.first_fetch:.1f} s after a start (slowest {report.slowest_first_fetch:.1f} s)"),
            ("refused writes", f"{report.refusals} of workers that had lost their domains"),
        ]
    )
    for violation in report.violations:
        output.print_line(output.safe(violation))
    output.print_line()
    if report.ok:
        output.print_line("Nothing was lost, nothing was counted twice: the same end as without faults.")
    elif not report.violations:
        output.print_line("No fault found the crawl alive, so nothing is proven; try more --pages.")
    else:
        output.print_line(f"{counted(len(report.violations), 'violation')}. This must not happen: please report it.")


def demo() -> None:
    """A crawl, kills, the recovery and the proof."""
    began = time.monotonic()
    plan = plans.make(seed=1, pages=_DEMO_PAGES, workers=1, kills=_DEMO_KILLS)
    with Grounds() as grounds:
        _line("A small web is served on this machine; nothing leaves it.", "dim")
        _line("1  A crawl in peace, to know how it must end …", "bold")
        calm = trial.without_faults(plan, Ground(grounds.folder / "without-faults"))
        _line(f"   {counted(len(calm.ends), 'URL')} in {calm.seconds:.0f} s.", "green")
        _line(f"2  The same crawl, killed {_DEMO_KILLS} times in the middle …", "bold")
        report = trial.with_faults(
            plan, calm, Ground(grounds.folder / "with-faults"), lambda line: _line(f"   {line}", "red")
        )
        report.violations[:0] = calm.violations
        grounds.keep = not report.ok
        _line("3  The proof", "bold")
        _proof(report)
        if not report.ok:
            say(f"The data folders are in {grounds.folder}.")
            raise typer.Exit(1)
    _line(f"That took {time.monotonic() - began:.0f} s. Now your own: holdfast crawl https://example.com", "dim")


def _proof(report: Report) -> None:
    for line in (
        f"   {counted(report.struck, 'kill')} landed; each time it was back at work {report.first_fetch:.1f} s later.",
        f"   {report.repeats} of {report.requests:,} requests were repeated; up to {report.most_repeats} would be right.",
    ):
        _line(line, "")
    for violation in report.violations:
        _line(f"   {output.safe(violation)}", "red")
    if report.ok:
        _line(f"   All {report.urls:,} URLs ended as they did in peace. Nothing lost, nothing twice.", "bold green")


def _line(text: str, style: str) -> None:
    """A line of the demonstration, in colour where a person sees it."""
    if output.is_terminal(sys.stdout):
        Console(highlight=False, markup=False, emoji=False).print(Text(text, style), soft_wrap=True)
    else:
        output.print_line(text)
