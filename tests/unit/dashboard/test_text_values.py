"""How values are written on pages: values of JSON, and commands in sentences."""

from holdfast.dashboard import text


def test_values_of_json_in_words() -> None:
    assert text.plain(True) == "yes"
    assert text.plain([]) == "none"
    assert text.plain(["read", 1000]) == "read, 1,000"
    assert text.plain({"pages_total": 3, "ok": False}) == "pages total 3, ok no"


def test_commands_of_a_sentence_are_code_and_the_rest_is_escaped() -> None:
    assert text.commands("run `holdfast <x>` & wait") == "run <code>holdfast &lt;x&gt;</code> &amp; wait"
