"""Lines of seed files: what each kind means, and that none stops the file."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadUrl
from holdfast.model.domain import Seed
from holdfast.model.seed_lines import SeedLineParser, make_seed
from holdfast.model.url import UrlRules, url_key
from tests.support.refusals import outcome


def _read(*lines: bytes, reader: SeedLineParser | None = None) -> list[tuple[str, str, int | None]]:
    """(domain, URL, rank) of the seeds on these lines."""
    reader = reader or SeedLineParser()
    return [(seed.domain, seed.url, seed.rank) for line in lines if (seed := reader.read(line))]


def test_a_seed_knows_its_domain_and_its_site() -> None:
    url = "http://www.shop.example.co.uk:8080/a?b=1"
    assert make_seed(f"{url}&utm_source=x#top", rank=7) == Seed(
        domain="shop.example.co.uk:8080",
        parent_domain="example.co.uk",
        base_url="http://www.shop.example.co.uk:8080",
        url=url,
        url_key=url_key(url),
        rank=7,
    )


@pytest.mark.parametrize(
    ("written", "guessed"),
    [
        *(
            (text, True)
            for text in ("example.com", "example.com:8080/a?b=1", "//example.com", " example.com/x:1", "[::1]:81")
        ),
        *((text, False) for text in ("https://example.com", "HTTP://example.com", " https://example.com:8443/")),
        *((text, False) for text in ("example.com:80", "example.com:443", "//example.com:443/x")),
    ],
)
def test_a_seed_knows_whether_its_scheme_was_guessed(written: str, guessed: bool) -> None:
    seed = make_seed(written)
    assert seed.guessed is guessed
    assert not guessed or seed.url.startswith("https://")


def test_settings_reach_the_seed() -> None:
    reader = SeedLineParser(UrlRules(tracking_parameters=("x",)), registrable=True)
    assert _read(b"https://a.b.example.com/?x=1&y=2\n", reader=reader) == [
        ("example.com", "https://a.b.example.com/?y=2", None)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"example.com\n", ("example.com", "https://example.com/", None)),
        (b"  EXAMPLE.com.  \r\n", ("example.com", "https://example.com/", None)),
        (b"www.example.com", ("example.com", "https://www.example.com/", None)),
        (b"http://example.com/a,b\n", ("example.com", "http://example.com/a,b", None)),
        (b"example.com/a,b\n", ("example.com", "https://example.com/a,b", None)),
        (b"example.com:8080/a\n", ("example.com:8080", "https://example.com:8080/a", None)),
        (b"example.com # ours\n", ("example.com", "https://example.com/", None)),
        (b"https://example.com/#part\n", ("example.com", "https://example.com/", None)),
        ("münchen.example\n".encode(), ("xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example/", None)),
        (b"1,example.com\n", ("example.com", "https://example.com/", 1)),
        (b"000007,example.com\r\n", ("example.com", "https://example.com/", 7)),
        (b"2147483647,example.com\n", ("example.com", "https://example.com/", 2**31 - 1)),
        (b'"12","www.example.com"\n', ("example.com", "https://www.example.com/", 12)),
        (b" 3 , example.com , more\n", ("example.com", "https://example.com/", 3)),
        (b"4,example.com # ours\n", ("example.com", "https://example.com/", 4)),
        (b"5,http://example.com/x\n", ("example.com", "http://example.com/x", 5)),
        (b"\xef\xbb\xbf6,example.com\n", ("example.com", "https://example.com/", 6)),
        (b"\xef\xbb\xbfexample.com\n", ("example.com", "https://example.com/", None)),
        (b"127.0.0.1\n", ("127.0.0.1", "https://127.0.0.1/", None)),
        (b"[::1]:8443/x\n", ("[::1]:8443", "https://[::1]:8443/x", None)),
    ],
)
def test_lines_that_are_seeds(line: bytes, expected: tuple[str, str, int | None]) -> None:
    assert _read(line) == [expected]


@pytest.mark.parametrize("line", [b"", b"\n", b" \t\r\n", b"# a comment\n", b"   # 1,example.com\n", b"\xef\xbb\xbf\n"])
def test_lines_without_a_seed(line: bytes) -> None:
    assert SeedLineParser().read(line) is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"ftp://example.com/\n", "'ftp://example.com/' is neither an http or https URL nor a domain."),
        (b"http://exa mple.com/\n", "'http://exa mple.com/' is not a valid URL."),
        (b"\xff\xfe\n", "The line is not UTF-8 text."),
        (b"exa\x00mple.com\n", "The line has control characters, so it is not text."),
        (b"example.com\x00\n", "The line has control characters, so it is not text."),
        (b"a.example\rb.example\r", "The line has control characters, so it is not text."),
        (b"0,example.com\n", "'0' is not a rank; a CSV line is `rank,domain`."),
        (b"-1,example.com\n", "'-1' is not a rank; a CSV line is `rank,domain`."),
        (b"1.5,example.com\n", "'1.5' is not a rank; a CSV line is `rank,domain`."),
        (b"2147483648,example.com\n", "'2147483648' is not a rank; a CSV line is `rank,domain`."),
        (b"9" * 5000 + b",example.com\n", f"'{'9' * 40}' is not a rank; a CSV line is `rank,domain`."),
        ("٣,example.com\n".encode(), "'\\u0663' is not a rank; a CSV line is `rank,domain`."),
        (b"example.com,1\n", "'example.com' is not a rank; a CSV line is `rank,domain`."),
        (b"7,\n", "'' names no host."),
    ],
)
def test_bad_lines_say_why(line: bytes, problem: str) -> None:
    reader = SeedLineParser()
    with pytest.raises(BadUrl) as caught:
        reader.read(line)
    assert str(caught.value) == problem
    assert _read(b"2,example.com\n", reader=reader) == [("example.com", "https://example.com/", 2)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b"GlobalRank,TldRank,Domain,TLD\n", b"1,9,a.example,example\n"], [("a.example", 1)]),
        ([b"# list\n", b"\n", b"Rank,Domain\n", b"3,a.example\n"], [("a.example", 3)]),
        ([b"\xef\xbb\xbfrank,domain\r\n", b"3,a.example\r\n"], [("a.example", 3)]),
        ([b"origin,rank\n", b"https://a.example,1000\n"], [("a.example", 1000)]),
        (
            [b'"domain","category"\n', b'"a.example","shops"\n', b"b.example,1\n"],
            [("a.example", None), ("b.example", None)],
        ),
        ([b"domain\n", b"a.example\n"], [("a.example", None)]),
        # Only the first line with anything on it can be a header.
        ([b"1,a.example\n", b"domain\n"], [("a.example", 1), ("domain", None)]),
    ],
)
def test_a_header_names_the_columns(lines: list[bytes], expected: list[tuple[str, int | None]]) -> None:
    assert [(domain, rank) for domain, _, rank in _read(*lines)] == expected


def test_a_line_shorter_than_its_header_is_bad() -> None:
    reader = SeedLineParser()
    reader.read(b"GlobalRank,TldRank,Domain\n")
    with pytest.raises(BadUrl, match=r"^The line ends before column 3\.$"):
        reader.read(b"1,2\n")


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5))
@example([b"domain,rank\n", b","])
@example([b"\xef\xbb\xbf", b"\xef\xbb\xbf# x"])
def test_no_line_stops_the_file(lines: list[bytes]) -> None:
    reader = SeedLineParser()
    for line in lines:
        found = outcome(reader.read, line)
        assert found in (None, BadUrl) or (isinstance(found, Seed) and found.url_key == url_key(found.url))


@settings(deadline=None)  # the first look at a domain loads the list of public suffixes
@given(
    st.integers(1, 10**9 - 1),
    st.from_regex(r"(www\.)?[a-z0-9-]{1,9}(\.[A-Za-z0-9_-]{1,9}){0,3}(:[0-9]{1,5})?", fullmatch=True),
)
def test_the_short_way_says_what_the_long_way_says(rank: int, domain: str) -> None:
    """Quotes keep a line off the short way."""

    def outcome(line: str) -> object:
        try:
            return SeedLineParser().read(line.encode())
        except BadUrl as problem:
            return str(problem)

    assert outcome(f"{rank},{domain}\n") == outcome(f'"{rank}","{domain}"\n')


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_characters="\n"), max_size=12)
    | st.from_regex(r"(https?://)?[a-z.]{1,9}[/ #,:]?[a-z0-9]{0,3}")
)
@example("a.example # a comment")
@example("a.example\x00")
@example("a.example/\u200b")
def test_a_line_after_another_is_read_like_the_first(line: str) -> None:
    """Lines after the first have a short way: none of them is a header."""
    first, later = SeedLineParser(), SeedLineParser()
    later.read(b"first.example")
    found = outcome(first.read, line.encode("utf-8", "surrogatepass"))
    if not first._has_header:
        assert outcome(later.read, line.encode("utf-8", "surrogatepass")) == found
