"""The figures as a picture: cost against the size of the frontier. Flat is good.

The rule: costs begin at zero, so that what looks flat is flat. Matplotlib is asked for only here.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.scale.ledger import Entry, Ledger

COLOURS = {"insert": "#1b6ca8", "take and settle": "#c4572b"}
STYLES = {"many": "-", "one": "--"}
SHAPES = {"many": "many domains", "one": "one domain"}
GREY = "#555555"


def available() -> str | None:
    """Why no chart can be drawn."""
    try:
        import_module("matplotlib")
    except ImportError:
        return "A chart needs matplotlib: pip install matplotlib"
    return None


def draw(ledger: Ledger, path: Path) -> None:
    """After: the chart of all sizes in the file is at `path`."""
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    entries = sorted(ledger.of("frontier"), key=lambda entry: int(entry["urls"]))
    figure, (costs, memory, back) = pyplot.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    for shape, words in SHAPES.items():
        mine = [entry for entry in entries if entry["shape"] == shape]
        _line(costs, mine, [entry["insert_us"] for entry in mine], f"insert, {words}", COLOURS["insert"], shape)
        both = [entry["take_us"] + entry["settle_us"] for entry in mine]
        _line(costs, mine, both, f"take and settle, {words}", COLOURS["take and settle"], shape)
        _line(memory, mine, [entry["worker_bytes"] / 1e6 for entry in mine], words, GREY, shape)
        _line(back, mine, [entry["resume_seconds"] for entry in mine], words, GREY, shape)
    for panel, title in (
        (costs, "Cost of a URL (µs)"),
        (memory, "Memory of a worker, peak (MB)"),
        (back, "Start to first request after kill -9 (s)"),
    ):
        _dress(panel, title, sorted({entry["urls"] for entry in entries}))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, facecolor="white")
    pyplot.close(figure)


def _line(panel: Any, entries: list[Entry], values: list[float], label: str, colour: str, shape: str) -> None:
    sizes = [entry["urls"] for entry in entries]
    panel.plot(sizes, values, STYLES[shape], marker="o", markersize=5, color=colour, label=label)


def _dress(panel: Any, title: str, sizes: list[int]) -> None:
    panel.set_title(title, loc="left", fontsize=11)
    panel.set_xscale("log")
    panel.set_xticks(sizes, [_short(size) for size in sizes])
    panel.minorticks_off()
    panel.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    panel.set_ylim(0, panel.get_ylim()[1] * (1.1 + 0.09 * len(panel.lines)))  # with room for the legend
    panel.set_xlabel("URLs in the frontier")
    panel.grid(axis="y", color="#dddddd", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9, loc="upper left")


def _short(size: int) -> str:
    return f"{size / 1e6:g} million" if size >= 1_000_000 else f"{size:,}"
