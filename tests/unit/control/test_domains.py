"""`key=value` words: what each may be, and what is said of one that may not."""

from datetime import timedelta

import pytest

from holdfast.control.domains import KEYS, parse_assignments
from holdfast.errors import UsageError
from holdfast.store.domains import EDITABLE


@pytest.mark.parametrize(
    ("word", "column", "value"),
    [
        ("delay=2", "crawl_delay_seconds", 2.0),
        ("delay=0", "crawl_delay_seconds", 0.0),
        ("delay= 1m30s ", "crawl_delay_seconds", 90.0),
        ("delay=1d", "crawl_delay_seconds", 86_400.0),
        ("concurrency=1", "max_concurrent_requests", 1),
        ("concurrency=1000", "max_concurrent_requests", 1000),
        ("parser=my-parser.v2", "parser_name", "my-parser.v2"),
        ("user_agent=Bot/1.0 (+https://example.com/?a=b)", "user_agent", "Bot/1.0 (+https://example.com/?a=b)"),
        ("user_agent=", "user_agent", None),
        ("active=no", "is_active", False),
        ("active=YES", "is_active", True),
        ("active=0", "is_active", False),
        ("budget=1", "max_pages_per_run", 1),
        ("budget=2147483647", "max_pages_per_run", 2**31 - 1),
        ("budget=", "max_pages_per_run", None),
        ("frequency=7 days", "default_crawl_frequency", timedelta(days=7)),
        ("window=22:00-06:00", "maintenance_window", "22:00-06:00"),
        ("window=22:00-06:00 Europe/Berlin", "maintenance_window", "22:00-06:00 Europe/Berlin"),
        ("window=", "maintenance_window", None),
    ],
)
def test_words_that_can_be_meant(word: str, column: str, value: object) -> None:
    assert parse_assignments([word]) == {column: value}


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("delay=soon", 'delay must be a duration: seconds, or a text such as "45s", "1h30m" or "7 days"'),
        ("delay=-1", "delay must be at least 0s"),
        ("delay=2d", "delay must be at most a day"),
        ("delay=nan", 'delay must be a duration: seconds, or a text such as "45s", "1h30m" or "7 days"'),
        ("concurrency=0", "concurrency must be a whole number from 1 to 1000"),
        ("concurrency=1001", "concurrency must be a whole number from 1 to 1000"),
        ("concurrency=2.5", "concurrency must be a whole number from 1 to 1000"),
        ("concurrency=٣", "concurrency must be a whole number from 1 to 1000"),
        ("parser=", "parser must be one word of letters, digits, dots and dashes"),
        ("parser=a b", "parser must be one word of letters, digits, dots and dashes"),
        ("user_agent=Böt", "user_agent must be plain ASCII on one line, 255 characters at most"),
        ("user_agent=a\nX: y", "user_agent must be plain ASCII on one line, 255 characters at most"),
        (f"user_agent={'a' * 256}", "user_agent must be plain ASCII on one line, 255 characters at most"),
        ("active=maybe", "active must be yes or no"),
        ("budget=0", "budget must be a whole number from 1 to 2147483647"),
        ("budget=2147483648", "budget must be a whole number from 1 to 2147483647"),
        ("window=22-06", "window must be HH:MM-HH:MM, perhaps with a time zone, such as 22:00-06:00 Europe/Berlin"),
        (
            "window=24:00-06:00",
            "window must be HH:MM-HH:MM, perhaps with a time zone, such as 22:00-06:00 Europe/Berlin",
        ),
        (
            "window=22:00-06:00 Europe",
            "window has a time zone that this machine does not know, 'Europe'; one is called Europe/Berlin",
        ),
        (
            "window=22:00-06:00 ../../etc/passwd",
            "window has a time zone that this machine does not know, '../../etc/passwd'; one is called Europe/Berlin",
        ),
    ],
)
def test_words_that_cannot(word: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_assignments([word])
    assert str(caught.value) == f"{word!r} cannot be set: {problem}."


@pytest.mark.parametrize("word", ["colour=red", "delay", "=2", "Delay=2", ""])
def test_a_word_that_is_no_setting_is_answered_with_those_that_are(word: str) -> None:
    with pytest.raises(
        UsageError, match=r"with one of: delay, concurrency, parser, user_agent, active, budget, frequency, window\.$"
    ):
        parse_assignments([word])


def test_several_words_are_one_change_and_none_is_no_change() -> None:
    assert parse_assignments(["delay=1", "active=yes", "delay=2"]) == {"crawl_delay_seconds": 2.0, "is_active": True}
    with pytest.raises(UsageError, match=r"^Say what to set: "):
        parse_assignments([])


def test_every_word_is_a_column_that_people_may_change() -> None:
    assert {column for column, _ in KEYS.values()} == EDITABLE
