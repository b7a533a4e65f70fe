"""How values are written on pages: values of JSON, and commands in sentences."""

from datetime import UTC, datetime, timedelta

from holdfast.dashboard import text


def test_values_of_json_in_words() -> None:
    assert text.plain(True) == "yes"
    assert text.plain([]) == "none"
    assert text.plain(["read", 1000]) == "read, 1,000"
    assert text.plain({"pages_total": 3, "ok": False}) == "pages total 3, ok no"


def test_commands_of_a_sentence_are_code_and_the_rest_is_escaped() -> None:
    assert text.commands("run `holdfast <x>` & wait") == "run <code>holdfast &lt;x&gt;</code> &amp; wait"


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
