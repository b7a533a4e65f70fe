"""robots.txt beyond the conformance cases: bytes as they come, groups, delays, answers, hostile files."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.outcome import Outcome
from holdfast.model.url import parse_url
from holdfast.politeness.robots_txt import (
    ALLOW_ALL,
    ANSWERS,
    MAX_BYTES,
    MAX_WILDCARD_RULES,
    UNREACHABLE,
    Decision,
    Robots,
    RobotsAnswer,
    decode_body,
    path_and_query,
    product_token,
    robots_answer,
)

US = "Holdfast"
SITE = "https://example.com"


def may(text: str, path: str, agent: str = US) -> bool:
    return Robots(text).allowed(SITE + path, agent).allowed


def test_the_deciding_line_is_named() -> None:
    robots = Robots("User-agent: *\nDisallow: /private\n\nAllow: /private/door\n")
    assert robots.allowed(f"{SITE}/private/x", US) == Decision(allowed=False, line="Disallow: /private (line 2)")
    assert robots.allowed(f"{SITE}/private/door", US) == Decision(allowed=True, line="Allow: /private/door (line 4)")
    assert robots.allowed(f"{SITE}/public", US) == Decision(allowed=True, line=None)


def test_a_named_line_is_short_and_can_be_printed() -> None:
    line = Robots(f"User-agent: *\nDisallow: /\x1b[2J{'ü' * 500}\n").allowed(f"{SITE}/%1B[2J" + "%C3%BC" * 500, US).line
    assert line is None or (line.isascii() and line.isprintable())
    denied = Robots(f"User-agent: *\nDisallow: /\x1b*{'*' * 500}\n").allowed(f"{SITE}/\x1bx", US)
    assert denied.line == f"Disallow: /\\x1b{'*' * 97}\\u2026 (line 2)"


def test_robots_txt_itself_is_always_allowed() -> None:
    for robots in (Robots("User-agent: *\nDisallow: /"), UNREACHABLE, ALLOW_ALL):
        assert robots.allowed(f"{SITE}/robots.txt", US).allowed


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("User-agent: *\nDisallow: /\nUser-agent: holdfast\nDisallow: /x", True),
        ("User-agent: HOLDFAST/2.0\nDisallow: /", False),
        ("User-agent: Holdfast-Images\nDisallow: /", True),
        ("User-agent: Hold\nDisallow: /", True),
        ("User-agent: Other\nUser-agent: Holdfast\nDisallow: /", False),
        ("User-agent: Holdfast\nCrawl-delay: 3\nUser-agent: Other\nDisallow: /", False),
        ("User-agent: Holdfast\nSitemap: https://x/s\nUser-agent: Other\nDisallow: /", False),
        ("User-agent: Holdfast\nAllow: /\nUser-agent: Other\nDisallow: /", True),
        ("User-agent: Holdfast\nDisallow:", True),
        ("User-agent: *\nDisallow: /a\nUser-agent: *\nDisallow: /page", False),
        ("Disallow: /", True),
        ("User-agent: *\nDisalow: /", False),
        ("User-agent: *\ndisallow /", False),
        ("User-agent: *\nDisallow: page", True),
    ],
)
def test_groups_and_slips(text: str, allowed: bool) -> None:
    assert may(text, "/page") == allowed


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("/~joe/", "/~joe/x", True),
        ("/%7Ejoe/", "/~joe/x", True),
        ("/%7ejoe/", "/%7Ejoe/x", True),
        ("/ü", "/%C3%BC", True),
        ("/%c3%bc", "/%C3%BC", True),
        ("/a%2Fb", "/a/b", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/a%2Ab", "/a*b", True),
        ("/a%2Ab", "/axb", False),
        ("/a%24", "/a$b", True),
        ("/a$", "/a", True),
        ("/a$", "/ab", False),
        ("/a$b", "/a$bc", True),
        ("/a*$", "/abc", True),
        ("/*.gif$", "/x/y.gif", True),
        ("/*.gif$", "/x/y.gif?z", False),
        ("/*a*a$", "/a", False),
        ("*/b", "/a/b/c", True),
        ("/?", "/?q", True),
        ("/A", "/a", False),
    ],
)
def test_what_a_disallow_means(rule: str, path: str, matches: bool) -> None:
    assert may(f"User-agent: *\nDisallow: {rule}", path) != matches


RAW = {
    "/my folder/": ["/my folder/secret", "/my%20folder/secret"],
    "/sitecore modules": ["/sitecore modules/shell", "/sitecore%20modules"],
    "/{private}/": ["/{private}/p", "/%7bprivate%7D/p"],
    "/x?q='a'": ["/x?q='a'&b", "/x?q=%27a%27"],
    "/it's": ["/it's/here", "/it%27s"],
    '/"quoted"': ['/"quoted"/1', "/%22quoted%22"],
    "/<id>/*.pdf$": ["/<id>/a.pdf", "/%3Cid%3E/b/c.pdf"],
    "/a^b|c`d": ["/a^b|c`d", "/a%5Eb%7Cc%60d"],
    "/*?filter={*}": ["/list?filter={all}", "/?x=1&y?filter=%7B%7D"],
    "/caf\u00e9 menu": ["/caf\u00e9 menu", "/caf%C3%A9%20menu"],
}
"""Rules as people write them, and what a person types into a browser for a URL that they forbid."""


@pytest.mark.parametrize("rule", RAW)
def test_a_rule_with_raw_characters_is_obeyed(rule: str) -> None:
    """Whether the rule or the link is written with escapes; links are asked about as the crawler writes them."""
    escaped = "".join(each if each in "/*?$=" else "".join(f"%{byte:02x}" for byte in each.encode()) for each in rule)
    for written in (rule, escaped):
        robots = Robots(f"User-agent: *\nDisallow: {written}")
        for path in RAW[rule]:
            assert not robots.allowed(f"{SITE}{path}", US).allowed, (written, path)
            assert not robots.allowed(parse_url(f"{SITE}{path}").href, US).allowed, (written, path)
        assert robots.allowed(f"{SITE}/other%20page", US).allowed


def test_an_escaped_slash_is_another_character() -> None:
    assert may("User-agent: *\nDisallow: /a b/c", "/a%20b%2Fc")
    assert may("User-agent: *\nDisallow: /a%20b%2fc", "/a%20b/c")
    assert not may("User-agent: *\nDisallow: /a b%2fc", "/a%20b%2Fc")


def test_an_allow_with_raw_characters_means_the_url_that_browsers_make_of_it() -> None:
    text = "User-agent: *\nDisallow: /\nAllow: /my folder/\nAllow: /{id}\nAllow: /it's\nAllow: /x?{q}='a b'\n"
    for path in ("/my%20folder/a", "/%7Bid%7D", "/it's", "/x?{q}=%27a%20b%27"):
        assert may(text, path)
    for path in ("/it%27s", "/x?%7Bq%7D=%27a%20b%27"):
        assert not may(text, path), "not letter by letter"


def test_an_allow_wins_only_where_it_is_more_specific() -> None:
    assert not may("User-agent: *\nAllow: /my%20folder/\nDisallow: /my folder/x", "/my%20folder/x")
    assert may("User-agent: *\nAllow: /my folder/x\nDisallow: /my%20folder/", "/my%20folder/x")


def test_an_allow_counts_only_as_it_is_written() -> None:
    text = "User-agent: *\nDisallow: /\nAllow: /%7Ejoe"
    assert may(text, "/%7Ejoe")
    assert not may(text, "/~joe")


_LETTERS = st.text("/ab*$", max_size=8)


@settings(max_examples=300)
@given(rules=st.lists(st.tuples(st.booleans(), _LETTERS), max_size=6), path=st.text("/ab", max_size=10))
def test_the_longest_rule_decides_and_allow_wins_a_draw(rules: list[tuple[bool, str]], path: str) -> None:
    lines = [f"{'Allow' if allow else 'Disallow'}: /{pattern}" for allow, pattern in rules]
    path = f"/{path}"

    def matches(pattern: str) -> bool:
        anchored = pattern.endswith("$")
        expression = ".*".join(map(re.escape, pattern.removesuffix("$").split("*")))
        return bool((re.fullmatch if anchored else re.match)(expression, path))

    lengths = {kind: [len(p) + 1 for allow, p in rules if allow is kind and matches(f"/{p}")] for kind in (True, False)}
    expected = max(lengths[True], default=0) >= max(lengths[False], default=0)
    assert may("User-agent: *\n" + "\n".join(lines), path) == expected


@pytest.mark.parametrize(
    ("line", "delay"),
    [("2", 2.0), ("0.5", 0.5), (".5", 0.5), ("0", 0.0), ("3600", 60.0), ("9" * 15, 60.0), ("x", None), ("-1", None)],
)
def test_crawl_delay_is_clamped(line: str, delay: float | None) -> None:
    assert Robots(f"User-agent: *\nCrawl-delay: {line}").crawl_delay(US) == delay


@pytest.mark.parametrize("nonsense", ["nan", "inf", "1e999", "9" * 100_000, "٣", "1 2", ""])
def test_a_crawl_delay_that_is_no_number_is_none(nonsense: str) -> None:
    assert Robots(f"User-agent: *\nCrawl-delay: {nonsense}").crawl_delay(US) is None


def test_crawl_delay_is_of_the_group_that_counts() -> None:
    text = "User-agent: Other\nCrawl-delay: 9\n\nUser-agent: *\nCrawl-delay: 2\n\nUser-agent: Mine\nDisallow: /x\n"
    robots = Robots(text, max_crawl_delay=5)
    assert [robots.crawl_delay(agent) for agent in ("Other", US, "mine")] == [5.0, 2.0, None]


def test_sitemaps_belong_to_no_group() -> None:
    text = "Sitemap: https://a/1.xml\nUser-agent: x\nsitemap:https://a/2.xml # two\nDisallow: /\nSitemap: https://a/1.xml\nSitemap:\n"
    assert Robots(text).sitemaps() == ("https://a/1.xml", "https://a/2.xml")


@pytest.mark.parametrize(
    ("rules", "everything"),
    [
        ("Disallow: /", True),
        ("Disallow: *", True),
        ("Disallow: /*", True),
        ("Disallow: /**$", True),
        ("Disallow: /a\nDisallow: /", True),
        ("Disallow: /\nAllow: /a", False),
        ("Disallow: /$", False),
        ("Disallow: /a", False),
        ("Disallow: /*a", False),
        ("Disallow: /*a$", False),
        ("Disallow:", False),
        ("Disallow: /\nUser-agent: Holdfast\nDisallow: /x", False),
    ],
)
def test_denies_everything_only_if_nothing_can_be_allowed(rules: str, everything: bool) -> None:
    robots = Robots(f"User-agent: *\n{rules}")
    assert robots.denies_everything(US) == everything


def test_unreachable_is_not_what_the_site_wants() -> None:
    assert not UNREACHABLE.allowed(f"{SITE}/", US).allowed
    assert not UNREACHABLE.denies_everything(US)
    assert ALLOW_ALL.allowed(f"{SITE}/", US) == Decision(allowed=True)


@pytest.mark.parametrize(
    "body",
    [
        b"User-agent: *\rDisallow: /x\r",
        b"User-agent: *\r\nDisallow: /x\r\n",
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /x",
        b"User-\0agent: *\nDis\0allow: /\0x",
        "User-agent: *\nDisallow: /x\n".encode("utf-16"),
        b"\xff\xffrubbish\nUser-agent: *\nDisallow: /x\n\xff",
    ],
)
def test_bytes_are_read_leniently(body: bytes) -> None:
    robots = Robots.from_body(body)
    assert not robots.allowed(f"{SITE}/x", US).allowed
    assert robots.allowed(f"{SITE}/y", US).allowed


@given(st.binary(max_size=200))
def test_any_bytes_make_a_text_that_can_be_stored(body: bytes) -> None:
    text = decode_body(body)
    assert "\0" not in text
    text.encode()
    Robots(text).allowed(f"{SITE}/", US)


def test_latin_1_paths_match_their_escapes() -> None:
    assert not Robots.from_body(b"User-agent: *\nDisallow: /\xfcber").allowed(f"{SITE}/%FCber", US).allowed


def test_what_is_beyond_500_kib_is_ignored_from_the_last_whole_line_on() -> None:
    start = b"User-agent: *\nDisallow: /x\n"
    body = start + b"#" * (MAX_BYTES - len(start) - 12) + b"\nDisallow: /yes/and/no\n"
    robots = Robots.from_body(body)
    assert not robots.allowed(f"{SITE}/x", US).allowed
    assert robots.allowed(f"{SITE}/yes/and/no", US).allowed
    assert len(robots.text) <= MAX_BYTES
    assert Robots.from_body(body[:MAX_BYTES]).text == robots.text, "a body that the reader cut has a torn line, too"
    assert decode_body(b"x" * (MAX_BYTES + 1)) == ""


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_means_something_for_robots(outcome: Outcome) -> None:
    assert robots_answer(outcome, None) is ANSWERS[outcome]
    assert set(ANSWERS) == set(Outcome)


@pytest.mark.parametrize("status", range(400, 600))
def test_4xx_is_no_rules_and_429_and_5xx_are_unreachable(status: int) -> None:
    expected = RobotsAnswer.NO_RULES if status < 500 and status != 429 else RobotsAnswer.UNREACHABLE
    assert {robots_answer(outcome, status) for outcome in Outcome} == {expected}


@pytest.mark.parametrize(
    ("outcome", "status", "answer"),
    [
        (Outcome.OK, 200, RobotsAnswer.READ),
        (Outcome.NOT_MODIFIED, 304, RobotsAnswer.UNCHANGED),
        (Outcome.TOO_MANY_REDIRECTS, 302, RobotsAnswer.NO_RULES),
        (Outcome.TIMEOUT, 200, RobotsAnswer.UNREACHABLE),
        (Outcome.DNS_FAILURE, None, RobotsAnswer.UNREACHABLE),
    ],
)
def test_answers(outcome: Outcome, status: int | None, answer: RobotsAnswer) -> None:
    assert robots_answer(outcome, status) is answer


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Holdfast/0.2 (+https://example.com/bot)", "Holdfast"),
        ("my-bot_x/1.0", "my-bot_x"),
        ("Mozilla/5.0 (compatible; Foo-Bot/1.0; +mailto:a@example.com)", "Foo-Bot"),
        ("Mozilla/5.0 (X11; Linux)", "Mozilla"),
        ("(strange)", "Holdfast"),
        ("", "Holdfast"),
        ("360Spider/1.0 (+http://x)", "360Spider"),
        ("008/0.83", "008"),
        ("Mozilla/5.0 (compatible; 360Spider; +http://x)", "360Spider"),
        ("MJ12bot/v1.4", "MJ"),
    ],
)
def test_product_token(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


def test_a_user_agent_that_starts_with_a_digit_finds_its_group() -> None:
    text = "User-agent: *\nDisallow:\n\nUser-agent: 360spider\nDisallow: /x\n\nUser-agent: 008\nDisallow: /y\n"
    assert [may(text, path, product_token("360Spider/1.0")) for path in ("/x", "/y")] == [False, True]
    assert [may(text, path, product_token("008/0.83")) for path in ("/x", "/y")] == [True, False]
    assert may(text, "/x", "Spider")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://example.com/a?b#c", "/a?b"),
        ("https://example.com", "/"),
        ("https://example.com?q", "/?q"),
        ("https://example.com#f/g", "/"),
        ("https://example.com/go?to=http://x/y", "/go?to=http://x/y"),
        ("", "/"),
    ],
)
def test_path_of(url: str, path: str) -> None:
    assert path_and_query(url) == path


def test_many_stars_take_no_time() -> None:
    text = "User-agent: *\n" + "".join(f"Disallow: /{'*a' * 200}*{i}b\n" for i in range(150))
    robots = Robots.from_body(text.encode())
    for i in range(20):  # backtracking would not come back from the first
        assert robots.allowed(f"{SITE}/{'a' * 2000}?{i}", US).allowed


def test_a_hundred_thousand_rules_are_looked_up() -> None:
    robots = Robots("User-agent: *\n" + "".join(f"Disallow: /{i}/\n" for i in range(100_000)))
    for i in range(0, 100_000, 100):
        assert not robots.allowed(f"{SITE}/{i}/x", US).allowed
        assert robots.allowed(f"{SITE}/{i}", US).allowed


def test_beyond_the_cap_a_wildcard_forbids_more_and_allows_nothing() -> None:
    filler = "".join(f"{kind}: /f*{i}z\n" for kind in ("Disallow", "Allow") for i in range(MAX_WILDCARD_RULES))
    text = f"User-agent: *\n{filler}Disallow: /late/*.gif\nDisallow: /open\nAllow: /open/*yes\n"
    assert not may(text, "/late/x")
    cut = Robots(f"{text.replace('Allow: ', 'Disallow: /a')}Disallow: /*\n")
    assert not cut.allowed(f"{SITE}/other", US).allowed
    assert not cut.denies_everything(US), "what we cut is not what the site wants"
    assert not may(text, "/open/yes")
    assert may(text, "/other")
    assert may(text, "/f17z"), "an Allow within the cap still counts"


@pytest.mark.parametrize(
    ("text", "group", "numbers"),
    [
        ("User-agent: *\nDisallow: /a\n\nUser-agent: Holdfast\n# ours\nDisallow: /b\nCrawl-delay: 2", "holdfast", (4, 6, 7)),
        ("User-agent: *\nDisallow: /a\n\nUser-agent: Other\nDisallow: /b", "*", (1, 2)),
        ("User-agent: Other\nUser-agent: Holdfast\nAllow: /index.html\nSitemap: https://x/s", "holdfast", (2, 3)),
        ("User-agent: Holdfast\nDisallow: /a\nUser-agent: *\nDisallow: /\nUser-agent: holdfast\nDisallow: /c", "holdfast", (1, 2, 5, 6)),
        ("User-agent: Other\nDisallow: /", None, ()),
        ("Disallow: /", None, ()),
        ("", None, ()),
    ],
)  # fmt: skip
def test_the_lines_that_count_for_us_are_known(text: str, group: str | None, numbers: tuple[int, ...]) -> None:
    assert Robots(text).applied_lines(US) == (group, numbers)
