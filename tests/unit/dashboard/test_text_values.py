"""How values are written on pages: values of JSON, and commands in sentences."""

from datetime import UTC, datetime, timedelta

from holdfast.dashboard import text
from holdfast.model.domain import Event


def test_values_of_json_in_words() -> None:
    assert text.plain(True) == "yes"
    assert text.plain([]) == "none"
    assert text.plain(["read", 1000]) == "read, 1,000"
    assert text.plain({"pages_total": 3, "ok": False}) == "pages total 3, ok no"


def test_commands_of_a_sentence_are_code_and_the_rest_is_escaped() -> None:
    assert text.commands("run `holdfast <x>` & wait") == "run <code>holdfast &lt;x&gt;</code> &amp; wait"


def test_options_of_a_command_are_not_broken_after_a_hyphen_and_commands_are_escaped() -> None:
    option = '<span class="nowrap">--parser</span>'
    assert text.code("holdfast crawl --parser ./<b>.py") == f"<code>holdfast crawl {option} ./&lt;b&gt;.py</code>"
    assert text.commands("use `--parser`") == f"use <code>{option}</code>"


def test_the_reason_of_a_status_is_written_in_words() -> None:
    assert text.status_reason("outcome: the first result of a visit") == "the first result of a visit"
    assert text.status_reason("cooldown_ended: a person asked") == "the cool-down ended: a person asked"
    assert text.status_reason("frontier_empty") == "no URL waits"
    assert text.status_reason("forbidden: 403 not_ours") == "forbidden: 403 not_ours"
    assert text.status_reason("outcome") == "outcome"
    known = {text.status_reason(str(event)) for event in Event}
    assert not [words for words in known if "_" in words]


def test_schedules_and_estimates_are_written_as_people_read_them() -> None:
    assert text.schedule("7d") == "every 7 d"
    assert text.schedule("1 day 12 hours") == "every 1 d 12 h"
    assert text.schedule("0 3 * * * Europe/Berlin") == "cron 0 3 * * * Europe/Berlin"
    assert [text.rounded(seconds) for seconds in (0.2, 7.9, 83.4)] == ["1 s", "8 s", "1 min 23 s"]


def test_a_url_breaks_before_its_parts_and_is_escaped() -> None:
    url = "https://shop.example/a/<b>?x=1&y=/"
    assert text.breakable(url) == "https://shop.example<wbr>/a<wbr>/&lt;b&gt;<wbr>?x=1<wbr>&amp;y=/"
    assert text.breakable("https://shop.example/") == "https://shop.example/"
    assert text.breakable("a\u202eb") == "a\ufffdb"
    assert text.breakable("/" * 600).count("/") == 500


def test_the_code_of_a_reason_is_written_in_words() -> None:
    assert text.reason("not_found: 404 not_here") == "not found: 404 not_here"
    assert text.reason("trap") == "trap"


def test_how_long_ago_is_in_whole_seconds() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert ">10 s ago<" in text.ago(now - timedelta(seconds=9.9), now)
    assert ">in 1 s<" in text.ago(now + timedelta(seconds=0.2), now)
