"""Reading, joining and normalizing URLs; tables for what is meant, generated text for what must hold of all."""

import hashlib
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadUrl, SettingsError, UsageError
from holdfast.model import url as module
from holdfast.model.url import (
    DEFAULT_RULES,
    MAX_INPUT,
    Url,
    UrlRules,
    absolute_url,
    check_parameter_names,
    dropped_parameters,
    join,
    normalize,
    parse_url,
    resolve,
    seed_url,
    url_key,
)
from tests.support.refusals import outcome

thorough = settings(deadline=None, max_examples=100)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)  # lone surrogates and NUL included
# fmt: off
NASTY_PIECES = [
    "/", "//", "\\", ".", "..", "/../", "/./", "%2e", "%2E%2e", ";", ";jsessionid=1", ";sid=2", "..;sid=", "?", "&",
    "=", "&&", "utm_x=1", "&b=2", "&a=%41", "a=%7e", "ref", "&SID=9", "%", "%%", "%4", "%34%31", "%25", "%2f",
    "%c3%a9", "%zz", "#", "@", ":", ":80", ":443", ":8080", "[::1]", "0x7f.1", "é", "ß", "xn--a", "www.", "a", "A",
    "~", " ", "\t", "\n", "{", "|", "^", "'", '"', "<", "+", "\0", "\ud800", "\udc00", "http:", "https://",
    "user:pw@", "example.com", "_x",
]
# fmt: on
PIECES = st.sampled_from(NASTY_PIECES)
NASTY = st.lists(PIECES | ANY_TEXT, max_size=14).map("".join)
NASTY_URL = st.tuples(st.sampled_from(["http://h.example/", "https://h.example?", "HTTPS://", "http:", ""]), NASTY).map(
    "".join
)
RULES = st.builds(
    UrlRules,
    tracking_parameters=st.sampled_from([(), ("utm_*", "ref"), ("*",)]),
    session_parameters=st.sampled_from([(), ("sid", "jsessionid")]),
    strip_trailing_slash=st.booleans(),
    sort_query=st.booleans(),
)
PLAINISH = st.lists(
    st.sampled_from("abz019-._~!$&()*+,;=:@%/?#'^|\\ é")
    | st.sampled_from(["/.", "/..", "//", "%2e", "/%2E", "%41", "xn--", "0x1"]),
    max_size=10,
).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.com", Url("https://example.com/", "https", "example.com", None, "/", None, None)),
        (" HTTP://Example.COM:80/a/../b ", Url("http://example.com/b", "http", "example.com", None, "/b", None, None)),
        ("http://h:8080/p?#", Url("http://h:8080/p?#", "http", "h", 8080, "/p", "", "")),
        ("https://u:p%40@h/?q=@#f?g", Url("https://u:p%40@h/?q=@#f?g", "https", "h", None, "/", "q=@", "f?g")),
        ("http://[2001:DB8::0:1]:81/", Url("http://[2001:db8::1]:81/", "http", "[2001:db8::1]", 81, "/", None, None)),
        ("http://0x7f.1/", Url("http://127.0.0.1/", "http", "127.0.0.1", None, "/", None, None)),
        ("http://h/\ud800", Url("http://h/%EF%BF%BD", "http", "h", None, "/%EF%BF%BD", None, None)),
        ("http://h/\ud83d\ude00", Url("http://h/%F0%9F%98%80", "http", "h", None, "/%F0%9F%98%80", None, None)),
    ],
)
def test_parse_reads_what_a_browser_reads(text: str, expected: Url) -> None:
    assert parse_url(text) == expected


def test_origin_is_scheme_host_and_port() -> None:
    assert parse_url("http://u@H.example:8080/a?b").origin == "http://h.example:8080"
    assert parse_url("https://H.example:443/a?b").origin == "https://h.example"


# fmt: off
NO_WEB_URLS = [
    "", " ", "example.com", "/a", "//h/a", "http://", "https://?a", "http://a b/", "http://a:99999/", "http://[::1",
    "http://\0/", "ftp://h/", "mailto:a@b.example", "javascript:alert(1)", "data:,x", "file:///etc/passwd",
    "ws://h/", "about:blank",
]
# fmt: on


@pytest.mark.parametrize("text", NO_WEB_URLS)
def test_parse_and_normalize_refuse_what_is_no_web_url(text: str) -> None:
    for function in (parse_url, normalize):
        with pytest.raises(BadUrl):
            function(text)


@thorough
@given(ANY_TEXT | NASTY_URL, ANY_TEXT | NASTY_URL)
def test_nothing_but_bad_url_is_ever_raised(base: str, text: str) -> None:
    found = [outcome(function, text) for function in (parse_url, normalize, seed_url, url_key)]
    found += [outcome(join, base, text), outcome(resolve, "https://h.example/a/b", text)]
    assert all(one is BadUrl or isinstance(one, Url | str | bytes) for one in found)


def test_huge_input_is_refused_unread() -> None:
    longest = "http://h/" + "a" * (MAX_INPUT - 9)
    assert parse_url(longest).href == longest
    for text in (longest + "a", "http://" + "é" * MAX_INPUT, "\ud800" * (MAX_INPUT + 1), "/" + "a" * MAX_INPUT):
        assert outcome(parse_url, text) is BadUrl
        assert outcome(join, "http://h/", text) is BadUrl
        assert outcome(join, text, "/a") is BadUrl


def test_a_refusal_is_one_short_escaped_sentence_without_credentials() -> None:
    for secret in (
        "http://joe:hunter2@exa mple.com/é",
        "joe:hunter2@example.com",
        "\t//joe:hunter2@a b/",
        "ftp:\\joe:hunter2@h",
    ):
        for function in (parse_url, normalize, seed_url):
            with pytest.raises(BadUrl) as refused:
                function(secret)
            message = str(refused.value)
            assert "hunter2" not in message
            assert message.isascii()
            assert message.endswith(".")
            assert "\n" not in message
    with pytest.raises(BadUrl) as refused:
        normalize("http://h/?" + "😀" * 1000)
    assert str(refused.value).count("…") == 1
    assert len(str(refused.value)) < 160


@pytest.mark.parametrize(
    ("base", "href", "expected"),
    [
        ("http://a/b/c/d;p?q", "g", "http://a/b/c/g"),
        ("http://a/b/c/d;p?q", "/g?x=1#f", "http://a/g?x=1#f"),
        ("http://a/b/c/d;p?q", "?y", "http://a/b/c/d;p?y"),
        ("http://a/b/c/d;p?q", "../../../g", "http://a/g"),
        ("http://a/b/c/d;p?q", "/./g", "http://a/g"),
        ("http://a/b/c/d;p?q", "/x/%2e%2E/g", "http://a/g"),
        ("https://a/b", "//c/d", "https://c/d"),
        ("https://a/b", "\\\\c\\d", "https://c/d"),
        ("https://a:8443/b", "/d", "https://a:8443/d"),
        ("https://u:p@a/b", "/d", "https://u:p@a/d"),
        ("https://a/b", "", "https://a/b"),
        ("https://a/b", "https://c.example/d", "https://c.example/d"),
        ("about:blank", "https://c.example/d", "https://c.example/d"),
        ("about:blank", "/d", BadUrl),
        ("no base", "https://c.example/d", BadUrl),
        ("https://a/b", "mailto:x@y.example", BadUrl),
        ("https://a/b", "javascript:void(0)", BadUrl),
        ("https://a/b", "http://a b/", BadUrl),
    ],
)
def test_join(base: str, href: str, expected: object) -> None:
    assert outcome(join, base, href) == expected


BASES = [
    "https://www.example.com/q/w?e#r",
    "http://u:p@127.0.0.1:8080/a/",
    "https://[::1]/x",
    "http://a..b",
    "about:blank",
]


@thorough
@given(
    base=st.sampled_from(BASES),
    start=st.sampled_from(["/", "/a", "https://h.example/", "http://", "https://a-1.xn--b_.c2/", ""]),
    rest=PLAINISH,
)
@example(base=BASES[0], start="http://", rest="a" * 300 + ".a/")
def test_the_shortcuts_of_join_and_parse_say_what_ada_says(base: str, start: str, rest: str) -> None:
    href = start + rest
    assert outcome(join, base, href) == outcome(module._parse_with_ada, href, base.encode())
    assert outcome(module._serialize, href) == outcome(module._parse_with_ada, href, None)


def test_the_shortcuts_know_every_character_and_every_shape_of_a_path() -> None:
    pairs = ["".join(pair) for pair in product(map(chr, range(128)), repeat=2)]
    targets = [place + pair for place in ("/", "/?", "/#") for pair in pairs]
    shapes = ["/", ".", "%2e", "%2E", "a", "?", "#", ";"]
    targets += ["/" + "".join(shape) for length in range(5) for shape in product(shapes, repeat=length)]
    base = "https://h.example/x/y?z"
    for target in targets:
        url = "https://h.example" + target
        assert module._serialize(url) == module._parse_with_ada(url, None)
        assert outcome(join, base, target) == outcome(module._parse_with_ada, target, base.encode())
    assert sum(bool(module._PLAIN_PATH.fullmatch(target)) for target in targets) > 15_000  # it is a shortcut


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://www.example.com/", "https://www.example.com/"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://example.com.:8443/a", "https://example.com:8443/a"),
        ("https://user:secret@example.com/a", "https://example.com/a"),
        ("https://münchen.de/", "https://xn--mnchen-3ya.de/"),
        ("https://_dmarc.example.com/", "https://_dmarc.example.com/"),
        ("http://0x7f.1:8080/", "http://127.0.0.1:8080/"),
        ("http://[::0001]/", "http://[::1]/"),
        ("https://h/a#b?c", "https://h/a"),
        ("https://h/a/./b/../c/%2e%2E/d", "https://h/a/d"),
        ("https://h/a//b/", "https://h/a//b/"),
        ("https://h/%7Ejoe/%41%5f%2D", "https://h/~joe/A_-"),
        ("https://h/%2f%3f%23%25%c3%a9", "https://h/%2F%3F%23%25%C3%A9"),
        ("https://h/é?q=é", "https://h/%C3%A9?q=%C3%A9"),
        ("https://h/a%2Eb", "https://h/a.b"),
        ("https://h/100%?q=5%", "https://h/100%?q=5%"),
        ("https://h/%%34%31", "https://h/%%341"),
        ("https://h/%4%31/%2%65", "https://h/%4%31/%2%65"),
        ("https://h/%%41%zz%41", "https://h/%%41%zzA"),
        ("https://h/?", "https://h/"),
        ("https://h/?&&", "https://h/"),
        ("https://h/?b=2&a=1&b=1&a=0", "https://h/?a=1&a=0&b=2&b=1"),
        ("https://h/?a=1&Z=2&_=3&%7e=4&é=5", "https://h/?%C3%A9=5&Z=2&_=3&a=1&~=4"),
        ("https://h/?b&a=&a&=x", "https://h/?=x&a=&a&b"),
        ("https://h/?q=a+b%20c&r=%2B%26%3d", "https://h/?q=a+b%20c&r=%2B%26%3D"),
        ("https://h/?utm_source=x&UTM_Medium=y&q=1&%75tm_id=2", "https://h/?q=1"),
        (
            "https://h/?gclid=1&fbclid=1&msclkid=1&dclid=1&yclid=1&mc_cid=1&mc_eid=1&igshid=1&_ga=1",
            "https://h/",
        ),
        ("https://h/?reference=1&resource=2&utmost=3", "https://h/?reference=1&resource=2&utmost=3"),
        ("https://h/?PHPSESSID=1&jsessionid=3&ASPSESSIONIDQQ=4&side=5", "https://h/?side=5"),
        ("https://h/?ref=1&sessionid=2&sid=3&source=4", "https://h/?ref=1&sessionid=2&sid=3&source=4"),
        ("https://h/a;jsessionid=0F?b=1", "https://h/a?b=1"),
        ("https://h/a;JSESSIONID=0F;v=1/b;v=2", "https://h/a;v=1/b;v=2"),
        ("https://h/a/..;jsessionid=1/b", "https://h/b"),
        ("https://h/a/%2e;jsessionid=1", "https://h/a/"),
        ("https://h/a;sid=1", "https://h/a;sid=1"),
        ("https://h/a%3Bjsessionid=1", "https://h/a%3Bjsessionid=1"),
    ],
)
def test_normalize(url: str, expected: str) -> None:
    assert normalize(url) == expected
    assert normalize(expected) == expected


@pytest.mark.parametrize(
    ("rules", "url", "expected"),
    [
        (UrlRules(strip_trailing_slash=True), "https://h/a/?b=1", "https://h/a?b=1"),
        (UrlRules(strip_trailing_slash=True), "https://h/a//", "https://h/a"),
        (UrlRules(strip_trailing_slash=True), "https://h//", "https://h/"),
        (UrlRules(strip_trailing_slash=True), "https://h/a/b/..;jsessionid=1", "https://h/a"),
        (UrlRules(sort_query=False), "https://h/?b=2&&_ga=1&a=1", "https://h/?b=2&a=1"),
        (UrlRules(strip_parameters=("SID", "x*")), "https://h/a;sid=1?a=1&sid=2&xy=3&X=4", "https://h/a?a=1"),
        (UrlRules().with_stripped(["a"]).with_stripped(["b"]), "https://h/?a=1&b=2&c=3&utm_x=4", "https://h/?c=3"),
        (
            UrlRules(tracking_parameters=("X-*", "y")),
            "https://h/?x-1=1&Y=2&utm_id=3&ref=4",
            "https://h/?ref=4&utm_id=3",
        ),
        (UrlRules(session_parameters=()), "https://h/a;jsessionid=1?sid=2", "https://h/a;jsessionid=1?sid=2"),
        (UrlRules(max_bytes=10), "https://h/", "https://h/"),
    ],
)
def test_normalize_by_other_rules(rules: UrlRules, url: str, expected: str) -> None:
    assert normalize(url, rules) == expected


# fmt: off
UNKNOWN_HOSTS = [
    "http://a..b/", "http://.a/", "http://a{b}.com/", "http://a,b/", "http://*.example.com/",
    "http://example.com:0/", "http://" + "a" * 64 + ".com/", "http://" + "a." * 127 + "com/",
    "http://u@" + "a" * 100_000 + "/", "http://./",
]
# fmt: on


@pytest.mark.parametrize("url", UNKNOWN_HOSTS)
def test_normalize_refuses_hosts_that_nobody_can_look_up(url: str) -> None:
    assert parse_url(url).host
    with pytest.raises(BadUrl):
        normalize(url)


def test_credentials_are_neither_stored_nor_remembered() -> None:
    module._normalized_site.cache_clear()
    for secret in ("a", "b:c", "d" * 5000, "e@f"):
        assert normalize(f"https://{secret}@h.example:8443/a@b") == "https://h.example:8443/a@b"
    assert module._normalized_site.cache_info().currsize == 1


def test_the_limit_is_of_the_normalized_url_in_bytes() -> None:
    fits = "https://h/" + "a" * 2038
    assert normalize(f"{fits}?utm_source={'x' * 5000}#{'y' * 5000}") == fits
    for url in (f"{fits}a", f"https://h/{'é' * 340}"):
        with pytest.raises(BadUrl, match="2048 bytes"):
            normalize(url)


@thorough
@given(NASTY_URL, RULES)
@example("http://h/%%34%31", DEFAULT_RULES)
@example("http://h/?utm_x=%&a=%41", DEFAULT_RULES)
@example("http://h/%41;jsessionid=%", DEFAULT_RULES)
@example("http://h/.;sid=1./..;sid=2/..", DEFAULT_RULES)
def test_a_normalized_url_stays_as_it_is(url: str, rules: UrlRules) -> None:
    try:
        normal = normalize(url, rules)
    except BadUrl:
        return
    assert normalize(normal, rules) == normal
    assert module._parse_with_ada(normal, None) == normal
    parsed = parse_url(normal)
    assert normal == parsed.origin + parsed.path + (f"?{parsed.query}" if parsed.query else "")
    assert not parsed.host.endswith(".")


@thorough
@given(NASTY, RULES)
def test_resolve_is_join_then_normalize(href: str, rules: UrlRules) -> None:
    base = "https://u:p@www.example.com/a/b?c"
    assert outcome(resolve, base, href, rules) == outcome(lambda: normalize(join(base, href), rules))


def test_url_key_is_half_a_sha256_of_the_normalized_url() -> None:
    assert url_key("https://example.com/") == hashlib.sha256(b"https://example.com/").digest()[:16]
    assert url_key("https://example.com/").hex() == "0f115db062b7c0dd030b16878c99dea5"
    with pytest.raises(BadUrl):
        url_key("https://example.com/é")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.com", "https://example.com/"),
        ("  Example.COM.\r\n", "https://example.com/"),
        ("www.example.com", "https://www.example.com/"),
        ("münchen.de", "https://xn--mnchen-3ya.de/"),
        ("example.com:8080", "https://example.com:8080/"),
        ("example.com:443", "https://example.com/"),
        ("example.com:80/a", "http://example.com/a"),
        ("[::1]:80", "http://[::1]/"),
        ("//example.com/a?b#c", "https://example.com/a?b"),
        ("example.com/a?u=http://x/@y", "https://example.com/a?u=http://x/@y"),
        ("http://www.Example.com/a/?utm_id=1", "http://www.example.com/a/"),
        ("127.0.0.1", "https://127.0.0.1/"),
        ("localhost:8000", "https://localhost:8000/"),
        ("https:example.com", "https://example.com/"),
    ],
)
def test_seed_url(text: str, expected: str) -> None:
    assert seed_url(text) == expected


# fmt: off
NO_SEEDS = [
    "", "#", "# comment", "/a", "///a", "\\\\host\\share", "?a", "joe@example.com", "//joe@example.com",
    "a.com\tb.com", "mailto:x", "ftp://x", "javascript:1", "tel:911", "C:\\x", "example.com:", "example.com:port",
    "example.com:70000", "two words", "a..b", "\ufeffhttps://example.com", "1.2.3.400",
]
# fmt: on


@pytest.mark.parametrize("text", NO_SEEDS)
def test_seed_url_refuses_what_names_no_server(text: str) -> None:
    with pytest.raises(BadUrl):
        seed_url(text)


@thorough
@given(PLAINISH, st.sampled_from([DEFAULT_RULES, UrlRules(max_bytes=12)]))
@example("a." * 126 + "b", DEFAULT_RULES)
@example("a." * 127 + "b", DEFAULT_RULES)
def test_the_shortcut_of_seed_url_is_the_long_way(text: str, rules: UrlRules) -> None:
    assert outcome(seed_url, text, rules) == outcome(lambda: normalize(module.to_absolute(text), rules))


def test_rules_that_cannot_be_meant_are_refused() -> None:
    for wrong in ({"tracking_parameters": ("utm_*_x",)}, {"session_parameters": ("",)}, {"max_bytes": 0}):
        with pytest.raises(SettingsError):
            UrlRules(**wrong)
    assert UrlRules(tracking_parameters=("a",)) == UrlRules(tracking_parameters=("a",))
    assert hash(UrlRules(max_bytes=9)) == hash(UrlRules(max_bytes=9))


def test_which_parameters_are_dropped_and_by_which_rule() -> None:
    rules = UrlRules().with_stripped(["ref", "f_*"])
    url = "https://h/a;jsessionid=1/b;f_x=2;keep=3?utm_source=x&%72ef=1&ref=2&q=3&PhpSessId=4&f_size=9#utm_y=1"
    assert dropped_parameters(url, rules) == [
        ("jsessionid", "urls.session_parameters"),
        ("f_x", "strip_params"),
        ("utm_source", "urls.tracking_parameters"),
        ("ref", "strip_params"),
        ("PhpSessId", "urls.session_parameters"),
        ("f_size", "strip_params"),
    ]
    assert normalize(url, rules) == "https://h/a/b;keep=3?q=3"
    assert dropped_parameters(normalize(url, rules), rules) == []
    assert dropped_parameters("https://h/?sid=1&ref=2&source=3&sessionid=4") == []


def test_names_of_parameters_to_drop() -> None:
    check_parameter_names(["sid", "utm_*", "a[b]", "x-y.z~%20"])
    for wrong in ("", "*", "a*b", "a=b", "a&b", "a b", "é", "x" * 102):
        with pytest.raises(UsageError, match="parameter to drop"):
            check_parameter_names([wrong])


@pytest.mark.parametrize(
    ("base", "href", "url"),
    [
        (None, "/x", "https://a.example/x"),
        (None, "y?b=1&a=2#f", "https://a.example/dir/y?b=1&a=2#f"),
        ("/other/", "y", "https://a.example/other/y"),
        ("//cdn.example/o/", "y", "https://cdn.example/o/y"),
        ("https://[", "y", "https://a.example/dir/y"),
        (None, "HTTP://B.example:80/ü", "http://b.example/%C3%BC"),
        (None, "http://[", None),
        (None, "mailto:x@y", None),
    ],
)
def test_an_address_on_a_page_becomes_absolute(base: str | None, href: str, url: str | None) -> None:
    assert absolute_url("https://a.example/dir/page", base, href) == url
