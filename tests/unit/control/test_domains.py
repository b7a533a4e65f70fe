"""`key=value` words: what each may be, and what is said of one that may not."""

import re
from datetime import timedelta

import pytest

from holdfast.domains.queries import EDITABLE
from holdfast.domains.service import ALIASES, KEYS, parse_assignments
from holdfast.errors import UsageError


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
        ("parser=", "parser_name", None),
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
        (
            "window= mon-fri  9:00-17:30 ; sat 22:00-02:00  Europe/Berlin",
            "maintenance_window",
            "mon-fri 9:00-17:30 ; sat 22:00-02:00 Europe/Berlin",
        ),
        ("window=", "maintenance_window", None),
        ("strip_params=sid, f_*,sid", "strip_params", ["sid", "f_*"]),
        ("strip_params=", "strip_params", None),
        ("proxy=any", "proxy_use", "any"),
        ("proxy=", "proxy_use", None),
        ("proxy_direct=yes", "proxy_direct", True),
        ("proxy_direct=", "proxy_direct", None),
        ("proxy_resolves=no", "proxy_resolves", False),
        ("proxy_country=de", "proxy_country", "DE"),
        ("proxy_country=", "proxy_country", None),
        ("proxy_sticky=10m", "proxy_sticky", timedelta(minutes=10)),
        ("proxy_sticky=", "proxy_sticky", None),
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
        ("parser=a b", "parser must be one word of letters, digits, dots and dashes"),
        ("user_agent=Böt", "user_agent must be plain ASCII on one line, 255 characters at most"),
        ("user_agent=a\nX: y", "user_agent must be plain ASCII on one line, 255 characters at most"),
        (f"user_agent={'a' * 256}", "user_agent must be plain ASCII on one line, 255 characters at most"),
        ("active=maybe", "active must be yes or no"),
        ("budget=0", "budget must be a whole number from 1 to 2147483647"),
        ("budget=2147483648", "budget must be a whole number from 1 to 2147483647"),
        ("proxy=all", "proxy must be direct, pool, any or empty"),
        ("proxy=POOL", "proxy must be direct, pool, any or empty"),
        ("proxy_direct=maybe", "proxy_direct must be yes or no"),
        ("proxy_country=Germany", "proxy_country must be a code of two letters, such as DE, or empty"),
        ("proxy_country=ÄÖ", "proxy_country must be a code of two letters, such as DE, or empty"),
        ("proxy_sticky=0", "proxy_sticky must be more than 0s and at most a day, or empty"),
        ("proxy_sticky=2d", "proxy_sticky must be more than 0s and at most a day, or empty"),
    ],
)
def test_words_that_cannot(word: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_assignments([word])
    assert str(caught.value) == f"{word!r} cannot be set: {problem}."


@pytest.mark.parametrize("word", ["headers=X-Key: canary", "Cookie=a=canary", "password=canary", "header: canary"])
def test_a_misspelt_key_does_not_show_what_may_be_a_secret(word: str) -> None:
    with pytest.raises(UsageError, match="is not a setting of a domain") as caught:
        parse_assignments([word])
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        (
            "22-06",
            r"^'22-06' is not a maintenance window; one is written 22:00-06:00, or mon-fri 09:00-17:30 Europe/Berlin\.$",
        ),
        ("24:00-06:00", r"^'24:00-06:00' has no length; "),
        ("10:00-10:00", r"^'10:00-10:00' has no length; "),
        ("25:00-06:00", r"^25:00 is not a time of day; "),
        ("00:00-24:00", r"^These windows leave no time to crawl; "),
        ("22:00-06:00 Europe", r"^'Europe' is not a time zone that is known here; "),
        ("22:00-06:00 ../../etc/passwd", r"^'\.\./\.\./etc/passwd' is not a time zone that is known here; "),
        (";".join(["22:00-06:00"] * 51), r"^A domain has at most 50 maintenance windows, "),
    ],
)
def test_windows_that_cannot_be_meant_are_refused_in_their_own_words(window: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_assignments([f"window={window}"])


@pytest.mark.parametrize("word", ["colour=red", "delay", "=2", "Delay=2", ""])
def test_a_word_that_is_no_setting_is_answered_with_those_that_are(word: str) -> None:
    known = "crawl_delay_seconds (delay), max_concurrent_requests (concurrency), parser_name (parser), user_agent, is_active (active), "
    more = "max_pages_per_run (budget), default_crawl_frequency (frequency), maintenance_window (window), base_url, strip_params, "
    proxies = "proxy_use (proxy), proxy_direct, proxy_resolves, proxy_country, proxy_sticky"
    every = re.escape(f"with one of: {known}{more}{proxies}, header, cookie, basic_auth.")
    with pytest.raises(UsageError, match=rf"{every}$"):
        parse_assignments([word])


def test_several_words_are_one_change_and_none_is_no_change() -> None:
    assert parse_assignments(["delay=1", "active=yes"]) == {"crawl_delay_seconds": 1.0, "is_active": True}
    with pytest.raises(UsageError, match=r"^Say what to set: "):
        parse_assignments([])


def test_every_word_is_a_column_that_people_may_change() -> None:
    assert set(KEYS) == EDITABLE
    assert set(ALIASES.values()) <= EDITABLE


def test_a_setting_has_the_name_of_its_column_and_a_short_form() -> None:
    for alias, column in ALIASES.items():
        value = {"frequency": "7d", "window": "10:00-11:00", "proxy": "pool", "parser": "product"}.get(alias, "1")
        assert parse_assignments([f"{alias}={value}"]) == parse_assignments([f"{column}={value}"])
        assert list(parse_assignments([f"{alias}={value}", f"{column}={value}"])) == [column], (
            "the same twice is no contradiction"
        )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["delay=1", "crawl_delay_seconds=2"],
            "delay and crawl_delay_seconds are the same setting, with different values",
        ),
        (["is_active=no", "active=yes"], "is_active and active are the same setting, with different values"),
        (["delay=1", "delay=2"], "delay is given twice, with different values"),
    ],
)
def test_two_names_of_a_setting_that_differ_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=f"^{why}"):
        parse_assignments(words)


@pytest.mark.parametrize(
    ("value", "base_url"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTP://www.Example.com/some/page?x", "http://www.example.com"),
        ("https://example.com:8443/", "https://example.com:8443"),
    ],
)
def test_a_base_url_is_an_origin(value: str, base_url: str) -> None:
    assert parse_assignments([f"base_url={value}"]) == {"base_url": base_url}


@pytest.mark.parametrize("value", ["", "example.com", "ftp://example.com", "https://"])
def test_what_is_no_base_url(value: str) -> None:
    with pytest.raises(UsageError):
        parse_assignments([f"base_url={value}"])
