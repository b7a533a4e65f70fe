"""The explanation of a URL as lines with labels, for the terminal and for a page of the dashboard.

The rule: pure functions of a story of `control/explain`; texts from the web are in them as they are, so what prints a line cleans it.
"""

from datetime import UTC, datetime
from typing import Final

from holdfast.control.explain import RobotsRuling, UrlInJob, UrlStory
from holdfast.control.explain_text import describe_wait
from holdfast.db.rows import names_of
from holdfast.images.records import UrlImage
from holdfast.pages.records import LastResponse
from holdfast.sitemaps.records import ReadSitemap

_SHOWN_TOGETHER: Final = frozenset(
    {
        *("crawled_at", "status", "outcome", "content_type", "content_length", "content_hash"),
        *("archive_segment", "archive_offset", "archive_length"),
    }
)
"""Fields of the last response that are in a line with others, or not shown; every other field has a line of its own."""

Line = tuple[str, str]
"""A label and a text. An empty label: the line continues the one before."""


def url_lines(story: UrlStory) -> list[Line]:
    """The URL as it is stored, how it was asked for if that differs, and its domain."""
    without = ", ".join(f"{parameter.name} (`{parameter.rule}`)" for parameter in story.dropped)
    text = f"{story.asked}, which is crawled as the URL above" + (f", without {without}" if without else "")
    asked = [("Given", text)] if story.asked else []
    return [("URL", story.url), *asked, ("Domain", f"{story.domain} ({story.status})")]


def job_lines(entry: UrlInJob, now: datetime) -> list[Line]:
    """What one job knows of the URL: its state with the reason, what it waits for, where it came from, the last answer."""
    row = entry.row
    lines = [("Job", f"{entry.job} ({row.job_state})"), ("State", f"{entry.state}: {entry.why}.")]
    if entry.detail:
        lines.append(("Detail", entry.detail))
    if entry.change:
        lines.append(("Changed by", entry.change))
    lines += [("Waits for" if not number else "", describe_wait(wait, now)) for number, wait in enumerate(entry.waits)]
    if entry.ahead:
        lines.append(("Before it", f"{entry.ahead:,}{' or more' if entry.ahead >= 10_000 else ''} URLs of its domain"))
    met = f"{_utc(row.discovered_at)}, depth {row.depth}, priority {row.priority}"
    lines.append(("Discovered", f"{met}, {_source(entry)}"))
    lines += [("", f"from {url}") for url in entry.came_from[1:]]
    if entry.came_from:
        lines.append(("", "which is a seed" if entry.from_seed else "and so on"))
    if row.listed:
        lines.append(
            ("Listed", "by a sitemap" + (f", last changed {_utc(row.lastmod)}" if row.lastmod else ", without a date"))
        )
    if entry.sitemap:
        lines += _sitemap_lines(entry.sitemap)
    if entry.image:
        lines += _image_lines(entry.image)
    if entry.page:
        lines += _response_lines(entry.page)
    return lines


def _source(entry: UrlInJob) -> str:
    """Where a URL came from, in words."""
    if not entry.came_from:
        return "a seed" if entry.from_seed else "a link on"
    parent = entry.came_from[0]
    if entry.found_in == "sitemap":
        return f"{'named' if entry.row.resource == 'sitemap' else 'listed'} by {parent}"
    if entry.row.resource == "sitemap":
        return f"by robots.txt, at the usual address or by a page, when this was crawled: {parent}"
    # A link that a page shows later becomes an image, and where it was met remains.
    return f"{'found' if entry.row.resource == 'image' else 'a link'} on {parent}"


def _sitemap_lines(sitemap: ReadSitemap) -> list[Line]:
    entries = f"{sitemap.entries:,} {'entry' if sitemap.entries == 1 else 'entries'}"
    skipped = f", {sitemap.skipped:,} left out" if sitemap.skipped else ""
    what = sitemap.format or "not a sitemap"
    lines = [("Sitemap", f"{what}, {entries}{skipped}, {sitemap.bytes:,} bytes, read {_utc(sitemap.read_at)}")]
    return [*lines, ("Problem", sitemap.problem)] if sitemap.problem else lines


def _image_lines(image: UrlImage) -> list[Line]:
    lines: list[Line] = []
    if image.id is not None:
        pixels = f"{image.width:,} x {image.height:,} pixels, " if image.width and image.height else ""
        facts = f"{image.id}, {image.format}, {pixels}{image.size:,} bytes"
        lines.append(("Image", f"{facts}; `holdfast images show {image.id}` shows the pages that have it"))
        if image.problem:
            lines.append(("", f"from a fetch before the last one, which led to none ({image.problem})"))
    return lines


def robots_line(story: UrlStory) -> Line:
    """What robots.txt says about the URL, and which jobs ignore it."""
    ignored = [entry.job for entry in story.entries if not entry.robots]
    return "Robots", _robots_ruling(story.robots) + (f"; ignored by {', '.join(ignored)}" if ignored else "")


def _response_lines(page: LastResponse) -> list[Line]:
    text = f"{_utc(page.crawled_at)}, {page.outcome}, status {page.status}, {page.content_length:,} bytes"
    lines = [("Last answer", text + (f", {page.content_type}" if page.content_type else ""))]
    others = ((name, getattr(page, name)) for name in names_of(LastResponse) if name not in _SHOWN_TOGETHER)
    lines += [
        (name.removeprefix("content_").replace("_", " ").capitalize(), str(value)) for name, value in others if value
    ]
    if page.archive_segment:
        lines.append(("Archive", f"{page.archive_segment}, {page.archive_length:,} bytes at {page.archive_offset:,}"))
    return lines


def _robots_ruling(ruling: RobotsRuling) -> str:
    if ruling.allowed is None or ruling.fetched_at is None:
        return f"{ruling.url} was not fetched yet"
    text = "allows it" if ruling.allowed else "denies it"
    line = f" by {ruling.line!r}" if ruling.line else ""
    missing = "" if ruling.reachable else f"; the last fetch failed ({ruling.problem or 'no answer'})"
    return f"{ruling.url} of {_utc(ruling.fetched_at)} {text} for {ruling.agent}{line}{missing}"


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
