"""Templates and static files keep the rules that make hostile text harmless."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

from markupsafe import Markup

from holdfast.dashboard import charts, text
from holdfast.dashboard.rendering import STATIC, TEMPLATES, environment, local_path, query

FORBIDDEN = {
    "a filter that switches escaping off": re.compile(r"\|\s*safe\b|autoescape\s+false|Markup\("),
    "an inline style": re.compile(r"\sstyle\s*="),
    "an inline handler": re.compile(r"\son[a-z]+\s*="),
    "an inline script or style": re.compile(r"<script(?![^>]*\ssrc=)|<style"),
    "an address of another host": re.compile(r"""(?:src|href|action)=["'](?:https?:)?//"""),
}


def test_no_template_opens_a_hole() -> None:
    found = [
        f"{path.relative_to(TEMPLATES)}: {what}"
        for path in sorted(TEMPLATES.rglob("*.html"))
        for what, pattern in FORBIDDEN.items()
        if pattern.search(path.read_text("utf-8"))
    ]
    assert found == []


def test_a_post_form_has_the_hidden_fields() -> None:
    form = re.compile(r"<form\b[^>]*method=\"post\"[^>]*>.*?</form>", re.DOTALL)
    found = [
        str(path.relative_to(TEMPLATES))
        for path in sorted(TEMPLATES.rglob("*.html"))
        if path.name != "login.html"
        for one in form.findall(path.read_text("utf-8"))
        if "hidden_fields()" not in one
    ]
    assert found == []


def test_no_field_is_filled_with_a_text_that_is_cut() -> None:
    """What a field shows is sent back, and stored."""
    field = re.compile(r"<input\b(?:[^>{]|\{\{.*?\}\}|\{%.*?%\})*>|<textarea\b.*?</textarea>", re.DOTALL)
    printed = re.compile(r"value=\"\{\{.*?\}\}|>(?:\{\{ \"\\n\" \}\})?\{\{.*?\}\}(?=</textarea>)")
    found = [
        f"{path.relative_to(TEMPLATES)}: {value}"
        for path in sorted(TEMPLATES.rglob("*.html"))
        for one in field.findall(path.read_text("utf-8"))
        for value in printed.findall(one)
        if "|whole" not in value
    ]
    assert found == []


def test_all_templates_compile() -> None:
    names = environment().list_templates()
    assert len(names) > 50
    for name in names:
        environment().get_template(name)


def test_the_script_evaluates_no_text() -> None:
    script = (STATIC / "dashboard.js").read_text("utf-8")
    assert not re.search(r"\beval\(|new Function|document\.write|setTimeout\(\s*[\"'`]", script)


def test_printed_text_cannot_control_the_page() -> None:
    page = environment().from_string("<p title='{{ x }}'>{{ x }}</p>{{ none }}")
    shown = page.render(x="<b>'\u202e\x07" + "x" * 10_000, none=None)
    assert "<b>" not in shown
    assert "\u202e" not in shown
    assert "\x07" not in shown
    assert len(shown) < 2_000
    assert "10,006 characters" in shown
    assert environment().from_string("{{ x|whole }}").render(x="y" * 10_000) == "y" * 10_000


def test_only_addresses_of_the_web_become_links() -> None:
    assert text.link_target("https://example.com/a") == "https://example.com/a"
    for bad in (
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.com",
        "http:",
        "HTTP://[",
        None,
        "file:///etc/passwd",
    ):
        assert text.link_target(bad) is None, bad


def test_a_form_leads_nowhere_else() -> None:
    assert local_path("/jobs?x=1") == "/jobs?x=1"
    for bad in ("https://evil.example/", "//evil.example", "/\\evil.example", "", "/login", "/a\nb"):
        assert local_path(bad) == "/overview", bad
    assert query("/jobs", a=None, b="", c="x y&z") == "/jobs?c=x+y%26z"


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_chart_has_a_title_a_description_and_its_table() -> None:
    start = datetime(2031, 1, 1, tzinfo=UTC)
    times = [start + timedelta(minutes=step) for step in range(4)]
    drawn = charts.line_chart("speed", "<Speed>", times, {"a": [1, None, 3, 4], "<b>": [0, 0, 0, 0]}, zoom=True)
    assert isinstance(drawn, Markup)
    parsed = _Elements()
    parsed.feed(drawn)
    tags = [tag for tag, _ in parsed.found]
    assert {"svg", "title", "desc", "table", "details"} <= set(tags)
    assert "<b>" not in drawn
    assert not [attributes for _, attributes in parsed.found if "style" in attributes]
    assert tags.count("tr") == 5
    paths = [attributes["d"] for tag, attributes in parsed.found if tag == "path"]
    assert paths[0] is not None
    assert paths[0].count("M") == 2, "a gap begins a new line"
    assert "No figures" in charts.line_chart("none", "None", [], {"a": []})


def test_numbers_are_written_for_people() -> None:
    assert [text.number(1234567), text.number(None), text.size(999), text.size(1_500_000)] == [
        "1,234,567",
        text.DASH,
        "999 B",
        "1.5 MB",
    ]
    assert [text.percent(1), text.percent(0.9999), text.percent(0)] == ["100 %", "99.9 %", "0 %"]
    assert [
        text.duration(0.05),
        text.duration(7),
        text.duration(7.25),
        text.duration(3725),
        text.duration(timedelta(days=2)),
    ] == [
        "50 ms",
        "7 s",
        "7.2 s",
        "1 h 2 min",
        "2 d",
    ]


def test_the_marks_of_an_axis_are_short_and_those_of_bytes_are_whole() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    assert "<span>1 kB/s</span><span>500 B/s</span>" in charts.line_chart(
        "c", "Bytes", times, {"b": [0, 0]}, unit="byte rate"
    )
    assert "<span>100 %</span><span>50 %</span>" in charts.line_chart(
        "c", "Success", times, {"s": [1, 1]}, unit="percent"
    )
    assert "<span>20</span><span>10</span>" in charts.line_chart("c", "Price", times, {"p": [12.5, 11]}, unit="price")
