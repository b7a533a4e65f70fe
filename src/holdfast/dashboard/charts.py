"""Charts, drawn on the server as SVG: lines over time, bars, and the parts of a whole.

The rule: a chart has a title, a description and the table of its values behind it, so that nothing is said by colour alone. Colours are
classes of the style sheet (`series-1` and so on); no element has a `style`. The axes are HTML, so that text keeps its size on a phone.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from markupsafe import Markup

from holdfast.dashboard import text

WIDTH: Final = 1000
HEIGHT: Final = 200
MAX_TABLE_ROWS: Final = 200
_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "number": lambda value: text.number(value, 0 if value == int(value) or value >= 100 else 1),
    "rate": lambda value: text.number(value, 1),
    "bytes": text.size,
    "byte rate": lambda value: f"{text.size(value)}/s",
    "percent": text.percent,
    "ms": lambda value: text.duration(value / 1000),
    "price": lambda value: text.number(value, 2),
}
_LOWEST_TOP: Final = {"bytes": 1000.0, "byte rate": 1000.0}
"""The least that an axis ends at: there are no parts of a byte."""

Values = Sequence[float | None]


def line_chart(
    name: str,
    title: str,
    times: Sequence[datetime],
    series: Mapping[str, Values],
    *,
    unit: str = "number",
    zoom: bool = False,
    until: datetime | None = None,
) -> Markup:
    """Return a chart of one or several series over time; None is a gap. `zoom`: dragging over it loads the page for that span."""
    shown = _UNITS[unit]
    known = [value for values in series.values() for value in values if value is not None]
    if not times or not known:
        return _figure(name, title, Markup('<p class="chart-empty">No figures for this time.</p>'), Markup(""))
    top = max(_rounded_up(max(known)), _LOWEST_TOP.get(unit, 0.0))
    last = until or times[-1]
    span = max((last - times[0]).total_seconds(), 1.0)
    places = [round((at - times[0]).total_seconds() / span * WIDTH, 1) for at in times]
    paths = Markup("").join(_line(place, places, values, top) for place, values in enumerate(series.values(), start=1))
    described = "; ".join(
        f"{label}: last {shown(_last(values))}, highest {shown(max((v for v in values if v is not None), default=0.0))}"
        for label, values in series.items()
    )
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y)
        for y in (0, HEIGHT / 2, HEIGHT)
    )
    svg = Markup(
        '<svg role="img" aria-labelledby="{0}-title {0}-desc" viewBox="0 0 {1} {2}" preserveAspectRatio="none">'
        '<title id="{0}-title">{3}</title><desc id="{0}-desc">{4}</desc>{5}{6}</svg>'
    ).format(name, WIDTH, HEIGHT, title, described, grid, paths)
    marks = [times[0], times[0] + (last - times[0]) / 2, last]
    only = "date" if span > 3 * 86_400 else "minute"
    frame = Markup(
        '<div class="chart-frame"><div class="chart-y" aria-hidden="true"><span>{}</span><span>{}</span><span>0</span></div>'
        '<div class="chart-plot"{}>{}</div></div><div class="chart-x" aria-hidden="true">{}</div>'
    ).format(
        _mark(shown(top)),
        _mark(shown(top / 2)),
        Markup(' data-zoom data-from="{}" data-to="{}"').format(times[0].isoformat(), last.isoformat()) if zoom else "",
        svg,
        Markup("").join(text.time(at, only=only) for at in marks),
    )
    return _figure(name, title, frame, _time_table(times, series, shown), list(series) if len(series) > 1 else [])


def bar_chart(name: str, title: str, bars: Mapping[str, float], *, unit: str = "number", label: str = "") -> Markup:
    """Return a chart of horizontal bars with their values; `label` is the heading of their names."""
    shown = _UNITS[unit]
    if not bars:
        return _figure(name, title, Markup('<p class="chart-empty">Nothing to show yet.</p>'), Markup(""))
    top = max(max(bars.values()), 1e-9)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th><td class="bar-cell">{}</td><td class="num">{}</td></tr>').format(
            text.clean(key), _bar(value / top), shown(value)
        )
        for key, value in bars.items()
    )
    head = Markup('<thead class="visually-hidden"><tr><th>{}</th><th>Bar</th><th>Value</th></tr></thead>').format(
        label or title
    )
    return _figure(
        name, title, Markup('<table class="bars">{}<tbody>{}</tbody></table>').format(head, rows), Markup("")
    )


def stacked_bar(name: str, title: str, parts: Mapping[str, float]) -> Markup:
    """Return one bar with the parts of a whole, and a legend with their numbers."""
    total = sum(parts.values())
    if not total:
        return Markup("")
    left, pieces = 0.0, []
    for place, (label, value) in enumerate(parts.items(), start=1):
        width = value / total * WIDTH
        pieces.append(
            Markup('<rect class="series-{}" x="{}" y="0" width="{}" height="20"><title>{}: {}</title></rect>').format(
                place, round(left, 2), round(width, 2), text.clean(label), text.number(value)
            )
        )
        left += width
    legend = Markup("").join(
        Markup('<li><span class="key series-{}"></span>{} <b>{}</b></li>').format(
            place, text.clean(label), text.number(value)
        )
        for place, (label, value) in enumerate(parts.items(), start=1)
    )
    return Markup(
        '<div class="stacked" id="{0}"><svg role="img" aria-label="{1}" viewBox="0 0 {2} 20" preserveAspectRatio="none">{3}</svg>'
        '<ul class="legend">{4}</ul></div>'
    ).format(name, title, WIDTH, Markup("").join(pieces), legend)


def _figure(name: str, title: str, drawn: Markup, table: Markup, legend: Sequence[str] = ()) -> Markup:
    keys = Markup("").join(
        Markup('<li><span class="key series-{}"></span>{}</li>').format(place, label)
        for place, label in enumerate(legend, start=1)
    )
    behind = (
        Markup(
            '<details id="{}-table"><summary>Table of values</summary><div class="scroll">{}</div></details>'
        ).format(name, table)
        if table
        else ""
    )
    return Markup('<figure class="chart" id="{}"><figcaption>{}{}</figcaption>{}{}</figure>').format(
        name, title, Markup('<ul class="legend">{}</ul>').format(keys) if keys else "", drawn, behind
    )


def _line(place: int, places: Sequence[float], values: Values, top: float) -> Markup:
    """A line, with a new beginning after each gap; the first series also has its area."""
    steps: list[str] = []
    open_ = False
    points = list(zip(places, values, strict=True))
    for x, value in points:
        if value is None:
            open_ = False
            continue
        steps.append(f"{'L' if open_ else 'M'}{x} {_y(value, top)}")
        open_ = True
    drawn = " ".join(steps)
    area = Markup("")
    known = [(x, value) for x, value in points if value is not None]
    if place == 1 and len(known) == len(points) and len(known) > 1:
        area = Markup('<path class="area series-1" d="{} L{} {} L{} {} Z"/>').format(
            drawn, known[-1][0], HEIGHT, known[0][0], HEIGHT
        )
    dots = ""
    if len(known) == 1:  # one point has no line
        x, value = known[0]
        dots = Markup('<rect class="dot series-{}" x="{}" y="{}" width="6" height="6"/>').format(
            place, min(max(x - 3, 0), WIDTH - 6), min(max(_y(value, top) - 3, 0), HEIGHT - 6)
        )
    return Markup('{}<path class="line series-{}" d="{}"/>{}').format(area, place, drawn, dots)


def _bar(share: float) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {} 14" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="series-1" x="0" y="0" width="{}" height="14"/></svg>'
    ).format(WIDTH, round(max(share, 0.0) * WIDTH, 1))


def _time_table(times: Sequence[datetime], series: Mapping[str, Values], shown: Callable[[float], str]) -> Markup:
    first = max(0, len(times) - MAX_TABLE_ROWS)
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(label) for label in series)
    rows = Markup("").join(
        Markup("<tr><td>{}</td>{}</tr>").format(
            text.time(times[place]),
            Markup("").join(
                Markup('<td class="num">{}</td>').format(
                    text.DASH if (value := values[place]) is None else shown(value)
                )
                for values in series.values()
            ),
        )
        for place in range(len(times) - 1, first - 1, -1)
    )
    return Markup('<table><thead><tr><th scope="col">Time</th>{}</tr></thead><tbody>{}</tbody></table>').format(
        head, rows
    )


def _mark(label: str) -> str:
    """A mark of an axis: a round number has no decimals."""
    return re.sub(r"\.0+(?!\d)", "", label)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - min(max(value / top, 0.0), 1.0) * HEIGHT, 1)


def _last(values: Values) -> float:
    return next((value for value in reversed(values) if value is not None), 0.0)


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-9))
