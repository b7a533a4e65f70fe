"""Domain identity and registrable domains, held against the idna and publicsuffixlist packages."""

from itertools import product
from pathlib import Path

import idna
import publicsuffixlist
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadUrl
from holdfast.model import domain_name as module
from holdfast.model.domain_name import canonical_domain, domain_of_base, host_to_ascii, parent_domain
from holdfast.model.url import normalize
from tests.support.refusals import outcome

thorough = settings(deadline=None, max_examples=100)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
HOSTISH = st.lists(
    st.sampled_from(
        ["a", "b", "1", "0x", "-", "_", ".", "..", "www.", "WWW.", "xn--", "example", ".com", ".co.uk", ".ck"]
    )
    | st.sampled_from(
        ["é", "ß", "😀", "。", "%41", ":80", ":443", ":8080", ":0", "[::1]", "127.0.0.1", " ", "\t", "@", "\ud800"]
    ),
    max_size=8,
).map("".join)
TEXT = st.tuples(
    st.sampled_from(["", "http://", "https://", "//", "ftp://", "https:"]),
    HOSTISH,
    st.sampled_from(["", "/", "/a b", "?x", "#y", "\\z", "/\n", "/@"]),
).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the seven rules
        ("https://example.com", "example.com"),
        ("http://example.com/a?b#c", "example.com"),
        ("www.example.com", "example.com"),
        ("example.com:443", "example.com"),
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("münchen.de", "xn--mnchen-3ya.de"),
        ("blog.example.com", "blog.example.com"),
        # all at once
        ("HTTPS://WWW.Bücher.Example.COM.:443/x", "xn--bcher-kva.example.com"),
        # www
        ("www.com", "www.com"),
        ("www.co.uk", "www.co.uk"),
        ("www.github.io", "www.github.io"),
        ("www.www.com", "www.com"),
        ("www.www.example.com", "www.example.com"),
        ("www.example.co.uk", "example.co.uk"),
        ("www.localhost", "www.localhost"),
        ("www", "www"),
        ("www2.example.com", "www2.example.com"),
        ("wwwexample.com", "wwwexample.com"),
        # ports
        ("http://example.com:80", "example.com"),
        ("http://example.com:443", "example.com"),
        ("https://example.com:80", "example.com"),
        ("example.com:80", "example.com"),
        ("example.com:8080", "example.com:8080"),
        ("www.example.com:8080/a", "example.com:8080"),
        ("https://example.com:08443", "example.com:8443"),
        ("localhost:8000", "localhost:8000"),
        # IP literals
        ("127.0.0.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("http://2130706433:8080/", "127.0.0.1:8080"),
        ("[2001:DB8:0::1]", "[2001:db8::1]"),
        ("http://[::1]:8080/a", "[::1]:8080"),
        ("[::1]:80", "[::1]"),
        # names that exist although IDNA 2008 or STD 3 has none of them
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("I❤.ws", "xn--i-7iq.ws"),
        ("a-b.x--y.example.com", "a-b.x--y.example.com"),
        ("_.a_.example.com", "_.a_.example.com"),
        ("r3---sn-4g5e6nsz.example.com", "r3---sn-4g5e6nsz.example.com"),
        # mapping
        ("\uff25\uff38ample\u3002com", "example.com"),
        ("faß.de", "xn--fa-hia.de"),
        ("ex%41mple.com", "example.com"),
        # spellings
        ("//example.com/a", "example.com"),
        ("example.com/a", "example.com"),
        ("  example.com\r\n", "example.com"),
        ("https://user:pw@example.com/", "example.com"),
        ("a" * 63 + ".com", "a" * 63 + ".com"),
        ("a." * 125 + "com", "a." * 125 + "com"),
    ],
)
def test_canonical_domain(text: str, expected: str) -> None:
    assert canonical_domain(text) == expected


# fmt: off
NONSENSE = [
    "", " ", ".", "..", "a..b", ".example.com", "exa mple.com", "example.com foo", "a\tb.com", "a.com\nb.com", "\0",
    "\ud800.com", "mailto:x", "mailto:joe@example.com", "ftp://x", "ftp://example.com", "javascript:void(0)",
    "javascript:1", "tel:911", "data:text/html,x", "file:///etc", "ws://example.com", "C:\\x", "https://",
    "http:///", "/", "/a", "///a", "?a", "#a", "joe@example.com", "\\\\host\\share", "{{host}}", "a,b.com",
    "*.example.com", "a|b", "a^b.com", "<x>", "example.com:", "example.com:x", "example.com:0", "example.com:65536",
    "1.2.3.4.5", "256.256.256.256", "[::1", "[::g]", "::1", "\u200d.com", "a" * 64 + ".com", "a." * 126 + "com",
    "-bad-.com", "-a.example.com", "a-.example.com", "x.-", "https://a-/", "http://-.example.com:8080/x", "xn--a-.com",
    "ü" * 63 + ".com", "a." * 125 + "b:65535", "https://" + "a" * 2_000_000,
]
# fmt: on


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_no_domain(text: str) -> None:
    with pytest.raises(BadUrl) as refused:
        canonical_domain(text)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "registrable", "parent"),
    [
        ("blog.example.com", "example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk", "example.co.uk"),
        ("www.example.com", "example.com", "example.com"),
        ("https://a.example.com:8080/", "example.com:8080", "example.com"),
        ("a.b.github.io", "b.github.io", "b.github.io"),
        ("www.com", "www.com", "www.com"),
        ("com", "com", "com"),
        ("co.uk", "co.uk", "co.uk"),
        ("localhost:8000", "localhost:8000", "localhost"),
        ("a.b.unlisted", "b.unlisted", "b.unlisted"),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1"),
        ("[::1]", "[::1]", "[::1]"),
        ("[::1]:8080", "[::1]:8080", "[::1]"),
        ("a.b.c.kawasaki.jp", "b.c.kawasaki.jp", "b.c.kawasaki.jp"),
        ("a.city.kawasaki.jp", "city.kawasaki.jp", "city.kawasaki.jp"),
        ("a.www.ck", "www.ck", "www.ck"),
        ("a.食狮.公司.cn", "xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("_dmarc.example.com", "example.com", "example.com"),
    ],
)
def test_registrable_and_parent_domain(text: str, registrable: str, parent: str) -> None:
    assert canonical_domain(text, registrable=True) == registrable
    assert parent_domain(canonical_domain(text)) == parent
    assert parent_domain(parent) == parent


def test_every_rule_of_the_list_is_read_as_publicsuffixlist_reads_it() -> None:
    reference = publicsuffixlist.PublicSuffixList()
    lines = Path(publicsuffixlist.PSLFILE).read_text("utf-8").splitlines()
    rules = [line.split()[0] for line in lines if line.strip() and not line.startswith("//")]
    assert len(rules) > 9000
    for rule in rules:
        name = host_to_ascii(rule.removeprefix("!").replace("*", "wild"))
        for domain in (name, f"a.{name}", f"b.a.{name}", name.partition(".")[2] or name):
            assert parent_domain(domain) == (reference.privatesuffix(domain) or domain), domain


def test_rules_that_cross_are_read_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of today has no rule below a wildcard; one of tomorrow may."""
    text = "// comment\ncom\n*.wild\n!free.wild\na.b.wild\nx.y.z and more\n*.é.com\n"
    reference = publicsuffixlist.PublicSuffixList(source=text)
    rules = module._read_rules(text)
    monkeypatch.setattr(module, "_suffix_rules", lambda: rules)
    labels = ["a", "b", "x", "y", "z", "wild", "free", "com", "xn--9ca"]
    for name in (".".join(chosen) for length in range(1, 5) for chosen in product(labels, repeat=length)):
        assert parent_domain(name) == (reference.privatesuffix(name) or name), name


@thorough
@given(ANY_TEXT | TEXT)
def test_nothing_but_bad_url_is_ever_raised(text: str) -> None:
    outcome(host_to_ascii, text)
    domain = outcome(canonical_domain, text)
    if isinstance(domain, str):
        assert domain
        assert domain.isascii()
        assert len(domain) <= 255
        assert domain == domain.lower()
        assert parent_domain(parent_domain(domain)) == parent_domain(domain)


def the_long_way(text: str) -> object:
    return outcome(lambda: module._host_and_port(text)[0])


@thorough
@given(TEXT)
@example("https://" + "a." * 126 + "a/")
@example("https://" + "a." * 127 + "a/")
@example("https://a/" + "b" * 1_100_000)
def test_the_shortcut_is_the_long_way(text: str) -> None:
    plain = module._plain_host(text)
    assert plain is None or plain == the_long_way(text)


def test_the_shortcut_knows_every_shape_of_a_host() -> None:
    hosts = ["".join(shape) for length in range(1, 6) for shape in product("ax0-_.", repeat=length)]
    hosts += [f"a{chr(code)}b.c" for code in range(128)] + [f"a.c{chr(code)}" for code in range(128)]
    taken = 0
    spelled = [*hosts, *(f"http://{host}/" for host in hosts), *(f"{host.upper()}." for host in hosts)]
    spelled += [
        form for host in hosts for form in (f"{host}:80", f"{host}:80.", f"HTTPS://{host}:443?", f"https://{host}:80")
    ]
    spelled += [f"{name}:{port}" for name in ("tel", "mailto", "javascript") for port in (80, 443)]
    spelled += ["\u017f.example", "\u212a.example", "https://\u017f.example/"]  # in lowercase ASCII: "s" and "k"
    for text in spelled:
        plain = module._plain_host(text)
        if plain is not None:
            taken += 1
            assert (plain, "") == outcome(module._host_and_port, text)
    assert taken > 10_000  # it is a shortcut


@thorough
@given(TEXT.filter(lambda text: text.startswith("http")))
def test_whatever_can_be_stored_has_a_domain_and_normalizing_keeps_it(url: str) -> None:
    normal = outcome(normalize, url)
    if isinstance(normal, str):
        assert canonical_domain(normal) == canonical_domain(url)
        base_url = normal[: normal.index("/", len("https://"))]
        for registrable in (False, True):
            assert domain_of_base(base_url, registrable=registrable) == canonical_domain(
                normal, registrable=registrable
            )


@thorough
@given(
    st.lists(
        st.text(st.characters(min_codepoint=0x80, categories=["L", "M", "N", "S"]), min_size=1, max_size=4), min_size=1
    )
)
@example(["faß"])
@example(["ẞ"])
@example(["βόλος"])
@example(["\u0646\u0627\u0645\u0647\u200c\u0627\u06cc"])
@example(["①K"])
def test_a_name_that_idna_2008_knows_is_spelled_as_it_spells_it(labels: list[str]) -> None:
    name = ".".join([*labels, "com"])
    try:
        expected = idna.encode(name, uts46=True, std3_rules=False).decode()
    except (idna.IDNAError, UnicodeError):
        return
    assert outcome(host_to_ascii, name) in (expected, BadUrl)  # the two know different versions of Unicode


# fmt: off
HOSTS = [
    ("a..b", "a..b"), ("{a}", "{a}"), ("[::0]", "[::]"), ("1", "0.0.0.1"), ("a:80", BadUrl), ("[::]:80", BadUrl),
    ("a/b", BadUrl), ("u@a", BadUrl), ("a\\b", BadUrl), ("a?b", BadUrl), ("a#b", BadUrl), ("a\tb", BadUrl),
    ("", BadUrl), (" a", BadUrl),
]
# fmt: on


@pytest.mark.parametrize(("host", "expected"), HOSTS)
def test_host_to_ascii_takes_a_host_and_nothing_else(host: str, expected: object) -> None:
    assert outcome(host_to_ascii, host) == expected
