"""`holdfast torture` and `holdfast demo`: crawl a simulated web, kill the crawl, and check that nothing was lost.

`holdfast.testing` is imported inside the commands, so that other commands do not load it.
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.cli import command_context, output
from holdfast.cli.command_context import say
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.testing.torture.experiment import Report
    from holdfast.testing.torture.scenario import Scenario

_DEMO_PAGES: Final = 400
_DEMO_KILLS: Final = 3
_DEMO_DELAY: Final = "0.5s"
"""Between two requests to a site of the demo, so that there is time to look."""


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    app.command("torture", cls=Command)(torture)
    app.command("demo", cls=Command)(demo)


def torture(
    ctx: typer.Context,
    kills: Annotated[int, typer.Option(min=1, max=1000, help="Number of faults to inject.")] = 10,
    pages: Annotated[int, typer.Option(min=50, max=100_000, help="Number of pages of the simulated web.")] = 1000,
    workers: Annotated[
        int, typer.Option(min=1, max=32, help="Worker processes; with 1, every fault kills the worker.")
    ] = 2,
    seed: Annotated[
        int, typer.Option(help="Seed of the random generator: another seed is another web and other moments.")
    ] = 1,
    images: Annotated[
        bool, typer.Option("--images", help="Pages show images, which are stored, and checked like pages.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folders of both crawls.")] = False,
    as_json: output.Json = False,
) -> None:
    """Kill a crawl again and again, and check that nothing was lost or doubled. Exit code 1 if something was.

    A simulated web is served on this machine; no request leaves it, and your own data is not touched. It is crawled once
    without faults and once with faults: kill -9 of all processes, kill -9 of single workers, workers frozen for longer
    than their lease. The command then checks that both crawls ended with the same pages, that the store was consistent
    after every fault, and, in the access log of the sites, that every page was requested and politeness was kept.

    Examples:
        holdfast torture
        holdfast torture --kills 50 --workers 4 --seed 7
    """
    from holdfast.testing.torture import scenario

    data = command_context.get(ctx).data
    plan = scenario.make_scenario(seed=seed, pages=pages, workers=workers, kills=kills, images=images)
    report = _crawl_twice(plan, None if data is None else data / "torture", keep=keep)
    if as_json:
        output.print_json(report.as_json())
    else:
        _print(report)
    if not report.ok:
        raise typer.Exit(1)


def _crawl_twice(plan: "Scenario", folder: Path | None, *, keep: bool) -> "Report":
    """Crawl without and with faults, and compare. After: the data folders are kept if `keep`, or if a check or a crawl failed."""
    from holdfast.testing.torture import experiment
    from holdfast.testing.torture.sandbox import Sandbox, SandboxFolder

    with SandboxFolder(folder) as grounds:
        grounds.keep = keep
        try:
            say("Crawling a simulated web without faults …")
            calm = experiment.run_reference(plan, Sandbox(grounds.folder / "without-faults"), keep=keep)
            say(
                f"  {pluralize(len(calm.results), 'URL')}, {pluralize(len(calm.hits), 'request')}, {calm.seconds:.0f} s."
            )
            say(f"Crawling it again, with {pluralize(len(plan.planned_faults), 'fault')} …")
            report = experiment.run_with_faults(
                plan, calm, Sandbox(grounds.folder / "with-faults"), lambda line: say(f"  {line}"), keep=keep
            )
        except HoldfastError:
            grounds.keep = True
            say(f"The data folders are in {grounds.folder}.")
            raise
        report.violations[:0] = calm.violations
        if not report.ok or keep:
            grounds.keep = True
            say(f"The data folders are in {grounds.folder}.")
        return report


def _print(report: "Report") -> None:
    landed = "; ".join(f"{pluralize(count, 'time')} {fault}" for fault, count in sorted(report.landed.items()))
    images = []
    if report.images is not None and report.garbage is not None:
        orphans, unfinished = report.garbage.files, report.garbage.leftovers
        found = f"{pluralize(orphans, 'orphan')} and {pluralize(unfinished, 'unfinished file')}"
        images = [("images", f"{report.images:,} to be stored; `holdfast gc` deleted {found}")]
    output.print_fields(
        [
            ("faults", f"{report.landed_count} of {report.planned} landed ({landed or 'none'})"),
            ("URLs", f"{report.urls:,}, of which {report.pages:,} are pages with content"),
            ("requests", f"{report.requests:,}; {report.repeats} repeated (allowed: {report.max_repeats})"),
            (
                "first request",
                f"{report.first_fetch:.1f} s after a restart (median; slowest {report.slowest_first_fetch:.1f} s)",
            ),
            ("refused writes", f"{report.refusals}, by workers whose claims had passed to others"),
            *images,
        ]
    )
    for violation in report.violations:
        output.print_line(output.safe(violation))
    output.print_line()
    if report.ok:
        output.print_line("Nothing was lost and nothing was counted twice: both crawls ended with the same result.")
    elif not report.violations:
        output.print_line("The crawl ended before the first fault, so nothing is proven; try more --pages.")
    else:
        output.print_line(f"{pluralize(len(report.violations), 'violation')}. This must not happen: please report it.")


def demo(
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Show the dashboard with a crawl under way, until Ctrl-C; nothing is left behind."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="With --serve: the port of the dashboard (0: any free port).")
    ] = 8080,
) -> None:
    """Show a crawl, kill -9, the recovery and the proof, in under a minute and without internet.

    Examples:
        holdfast demo
        holdfast demo --serve
    """
    if serve:
        _serve_demo(port)
        return
    from holdfast.testing.torture import experiment, scenario
    from holdfast.testing.torture.sandbox import Sandbox, SandboxFolder

    began = time.monotonic()
    plan = scenario.make_scenario(seed=1, pages=_DEMO_PAGES, workers=1, kills=_DEMO_KILLS)
    with SandboxFolder() as grounds:
        _line("A small simulated web is served on this machine; no request leaves it.", "dim")
        _line("1  A crawl without faults, as the expected result …", "bold")
        calm = experiment.run_reference(plan, Sandbox(grounds.folder / "without-faults"))
        _line(f"   {pluralize(len(calm.results), 'URL')} in {calm.seconds:.0f} s.", "green")
        _line(f"2  The same crawl, killed {_DEMO_KILLS} times in the middle …", "bold")
        report = experiment.run_with_faults(
            plan, calm, Sandbox(grounds.folder / "with-faults"), lambda line: _line(f"   {line}", "red")
        )
        report.violations[:0] = calm.violations
        grounds.keep = not report.ok
        _line("3  The proof", "bold")
        _proof(report)
        if not report.ok:
            say(f"The data folders are in {grounds.folder}.")
            raise typer.Exit(1)
    _line(f"That took {time.monotonic() - began:.0f} s. Now your own: holdfast crawl https://example.com", "dim")


def _proof(report: "Report") -> None:
    for line in (
        (
            f"   {pluralize(report.landed_count, 'kill')} landed; "
            f"the first request came {report.first_fetch:.1f} s after the restart (median)."
        ),
        f"   {report.repeats} of {report.requests:,} requests were repeated (allowed: {report.max_repeats}).",
    ):
        _line(line, "")
    for violation in report.violations:
        _line(f"   {output.safe(violation)}", "red")
    if report.ok:
        _line(
            f"   All {report.urls:,} URLs ended as in the crawl without faults: nothing lost, nothing twice.",
            "bold green",
        )


def _line(text: str, style: str) -> None:
    """Print a line of the demonstration, in colour on a terminal."""
    if output.is_terminal(sys.stdout):
        Console(highlight=False, markup=False, emoji=False).print(Text(text, style), soft_wrap=True)
    else:
        output.print_line(text)


def _serve_demo(port: int) -> None:
    """Serve the dashboard on a crawl of the simulated web until Ctrl-C. After: its data, database and processes are gone."""
    from holdfast.testing.simweb.presets import PRESETS
    from holdfast.testing.simweb.process import WebProcess
    from holdfast.testing.torture.process import PROGRAM, environment
    from holdfast.testing.torture.sandbox import Sandbox, SandboxFolder

    settings = {"fetch.allow_private": "true", "domains.crawl_delay": _DEMO_DELAY}
    with (
        SandboxFolder() as grounds,
        WebProcess(PRESETS["demo"](1), log=grounds.folder / "access.log") as web,
        Sandbox(grounds.folder / "demo") as sandbox,
    ):
        program = [*environment(settings), *PROGRAM, "--data", str(sandbox.data)]
        subprocess.run([*program, "jobs", "create", "demo", *web.urls], check=True, stdout=subprocess.DEVNULL)
        _line(
            "A small simulated web is crawled on this machine; no request leaves it. Ctrl-C ends it and removes all of it.",
            "dim",
        )
        with subprocess.Popen([*program, "serve", "--no-auth", "--port", str(port), "--workers", "1"]) as server:
            while True:  # Ctrl-C reaches the server, too, which stops in order
                with suppress(KeyboardInterrupt):
                    server.wait()
                    break
    say("The demo and its data are gone.")
