"""How values are written on pages: texts from the web, numbers, bytes, durations, times.

The rule: `clean` is applied to every text that a template prints, so that no title or URL can control the layout: control and direction
characters are replaced, and long texts are cut. `whole` marks a text that is meant to be long.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from holdfast.model.duration import parse_units

MAX_LENGTH: Final = 500
"""Characters of a text that are shown."""
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:\+00:00|Z)")
_PART_OF_URL: Final = re.compile("(?:[^/?&]*//[^/?&]*|[/?&][^/?&]*|[^/?&]+)(?:/$)?")
"""The host with its scheme, and each part of a path or query with the character before it."""
_SPAN: Final = re.compile(r"(\d+ days?), 0:00:00")
_EVENTS: Final = {
    "outcome": "",
    "frontier_empty": "no URL waits",
    "cooldown_ended": "the cool-down ended",
    "refresh_due": "a refresh was due",
    "woken": "new URLs arrived",
    "unblocked": "unblocked by a person",
    "reset": "reset by a person",
    "dns_failure": "its name cannot be resolved",
    "tls_failure": "no secure connection",
    "robots_denied": "denied by robots.txt",
}
"""What begins the reason of a status, where its code alone is no phrase; an empty one is told by what follows it."""
DASH: Final = "\N{EN DASH}"


class WholeText(str):
    """A text that is shown in full."""

    __slots__ = ()


def clean(value: object) -> object:
    """Return a value as it is shown: a text without control and direction characters, cut to `MAX_LENGTH`; None as a dash."""
    if value is None:
        return DASH
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = _CONTROL.sub("\ufffd", str(value))
    if len(text) <= MAX_LENGTH or isinstance(value, WholeText):
        return text
    return f"{text[:MAX_LENGTH]}… ({len(text):,} characters)"


def whole(value: object) -> WholeText:
    """Mark a text that is not to be cut: it is meant to be long, or is the value of a field and sent back. None is an empty text."""
    return WholeText("" if value is None else value)


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with separators of thousands; a dash for None."""
    return DASH if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """Return a share from 0 to 1 as a percentage."""
    if share is None:
        return DASH
    return (
        f"{share * 100:.0f} %" if share in (0, 1) else f"{min(share * 100, 99.9) if share < 1 else share * 100:.1f} %"
    )


def size(count: float | None) -> str:
    """Return a number of bytes with its unit, in powers of 1000."""
    if count is None:
        return DASH
    for unit in _UNITS:
        if abs(count) < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("the last unit has no end")


def growth(count: float | None) -> str:
    """Return a growth in bytes with its sign."""
    return DASH if count is None else f"{'+' if count >= 0 else '-'}{size(abs(count))}"


def duration(value: timedelta | float | None) -> str:
    """Return a duration with its two largest units, such as `2 h 5 min`."""
    if value is None:
        return DASH
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    left, words = round(seconds), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            words.append(f"{count} {unit}")
        elif words:
            break
    return " ".join(words[:2])


def plural(count: int, thing: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 page`, `2,000 pages`."""
    return f"{count:,} {thing if count == 1 else many or f'{thing}s'}"


def time(moment: datetime | None, *, only: str = "") -> Markup:
    """Return a `<time>` element in UTC, which the script of the page shows in the time zone of the viewer. `only`: `time`, `minute`,
    `date`, or `short` without seconds."""
    if moment is None:
        return Markup("&ndash;")
    at = moment.astimezone(UTC)
    shown = at.strftime(
        {"time": "%H:%M:%S", "minute": "%H:%M", "short": "%Y-%m-%d %H:%M", "date": "%Y-%m-%d"}.get(
            only, "%Y-%m-%d %H:%M:%S"
        )
    )
    return Markup('<time datetime="{}" data-only="{}">{}</time>').format(at.isoformat(), only, shown)


def ago(moment: datetime | None, now: datetime) -> Markup:
    """Return how long ago a time was, or in how long it will be, as a `<time>` element."""
    if moment is None:
        return Markup("&ndash;")
    seconds = (now - moment).total_seconds()
    length = duration(max(1, round(abs(seconds))))
    words = f"{length} ago" if seconds >= 0 else f"in {length}"
    return Markup('<time datetime="{}" data-only="title">{}</time>').format(moment.astimezone(UTC).isoformat(), words)


def link_target(url: str | None) -> str | None:
    """Return a URL from the web if a page may link to it: of http or https; None: it is shown as text only."""
    if url is None or len(url) > 4096:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in {"http", "https"} and parts.netloc else None


def words(name: str) -> str:
    """Return a name with underscores as words: `not_found` as `not found`."""
    return name.replace("_", " ")


def breakable(url: str) -> Markup:
    """Return a URL that a narrow column breaks between its parts, rather than anywhere."""
    parts = _PART_OF_URL.findall(str(clean(url)))
    return Markup("<wbr>").join(parts)


def reason(why: str) -> str:
    """Return the reason of a URL with its code in words: `not_found: 404` as `not found: 404`."""
    code, colon, detail = why.partition(":")
    return f"{words(code)}{colon}{detail}"


def status_reason(why: str) -> str:
    """Return the reason of a domain's status, as the store keeps it, in words: `cooldown_ended` as `the cool-down ended`."""
    event, colon, detail = why.partition(": ")
    begins = _EVENTS.get(event, words(event))
    return f"{begins}{colon}{detail}" if begins else detail or words(event)


def schedule(expression: str) -> str:
    """Return a schedule as people read it: `7d` as `every 7 d`, five fields of cron as they are."""
    interval = parse_units(expression)
    return f"cron {expression}" if interval is None else f"every {duration(interval)}"


def rounded(seconds: float) -> str:
    """Return an estimated duration, at least a second: an estimate has no fractions of one."""
    return duration(max(1, round(seconds)))


def format_name(name: str) -> str:
    """Return the name of a file format as people write it."""
    return {"csv": "CSV", "jsonl": "JSONL", "parquet": "Parquet"}[name]


def plain(value: object) -> str:
    """Return a value of JSON in words: `yes`, `no`, the items of a list after one another, a time without its fractions."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{words(str(name))} {plain(one)}" for name, one in value.items())
    if isinstance(value, str):
        moment, span = _MOMENT.fullmatch(value), _SPAN.fullmatch(value)
        return f"{moment[1]} {moment[2]} UTC" if moment else span[1] if span else value
    return f"{value:,}" if isinstance(value, int) else str(value)


def is_rows(value: object) -> bool:
    """Whether a value of JSON is a list of objects, which is shown as a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def commands(value: str | None) -> Markup:
    """Return a sentence whose commands, written between backticks, are `<code>` elements."""
    parts = str(clean(value)).split("`")
    return Markup("").join(code(part) if place % 2 else part for place, part in enumerate(parts))


def code(command: str) -> Markup:
    """Return a command as a `<code>` element whose options are not broken after a hyphen."""
    shown = Markup(" ").join(
        Markup('<span class="nowrap">{}</span>').format(word) if word.startswith("-") else word
        for word in str(clean(command)).split(" ")
    )
    return Markup("<code>{}</code>").format(shown)


def state_class(state: object) -> str:
    """Return the CSS class of the badge of a state."""
    return f"state-{re.sub('[^a-z0-9]+', '-', str(escape(str(state).lower())))}"
