"""Headers, cookies and credentials as people write them, and the origins that they go to."""

import base64

import pytest

from holdfast.errors import UsageError
from holdfast.model.request_secrets import (
    MAX_ORIGINS,
    RequestSecrets,
    SealedSecret,
    check_user_agent,
    domain_origins,
    headers_by_origin,
    seed_origins,
)

VALUE = "canary-5f1c"


def sent(secrets: RequestSecrets, origins: list[str], url: str) -> tuple[bytes, ...]:
    opened = [(SealedSecret(text.kind, text.names, origins, "sealed"), text.text) for text in secrets.texts()]
    composed = headers_by_origin(opened)
    found = composed.for_url(url) if composed else None
    return found.lines if found else ()


def test_what_is_given_becomes_headers() -> None:
    given = RequestSecrets.parse([f"X-Key:  {VALUE} "], ["a=1; b=2", "c="], "bob:pass:wörd")
    login = base64.b64encode("bob:pass:wörd".encode())
    assert sent(given, ["https://a.example"], "https://a.example/p?q=1") == (
        f"X-Key: {VALUE}".encode(),
        b"Cookie: a=1; b=2; c=",
        b"Authorization: Basic " + login,
    )
    assert [(text.kind, text.names) for text in given.texts()] == [
        ("headers", ["X-Key"]),
        ("cookies", ["Cookie"]),
        ("basic_auth", ["Authorization"]),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/",
        "https://www.a.example/",
        "https://sub.a.example/",
        "https://a.example:8443/",
        "https://a.example.evil.example/",
        "https://b.example/?https://a.example/",
        "https://a.example@evil.example/",
        "https://evil.example#a.example",
    ],
)
def test_https_goes_to_its_own_origin_only(url: str) -> None:
    given = RequestSecrets.parse([f"X-Key: {VALUE}"])
    assert sent(given, seed_origins(["https://a.example/start"]), "https://a.example/other")
    assert sent(given, seed_origins(["https://a.example/start"]), url) == ()


def test_http_stands_for_https_of_the_same_host_and_port() -> None:
    assert seed_origins(["http://a.example/x", "http://b.example:8080/", "https://c.example/"]) == [
        "http://a.example",
        "https://a.example",
        "http://b.example:8080",
        "https://b.example:8080",
        "https://c.example",
    ]


def test_a_domain_is_its_own_name_by_https_unless_http_is_meant() -> None:
    assert domain_origins("a.example", plain_http=False) == ["https://a.example", "https://www.a.example"]
    assert domain_origins("127.0.0.1:81", plain_http=True) == ["http://127.0.0.1:81", "https://127.0.0.1:81"]
    assert domain_origins("[::1]:81", plain_http=False) == ["https://[::1]:81"]


def test_too_many_origins_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 1,000 origins"):
        seed_origins(f"https://s{number}.example/" for number in range(MAX_ORIGINS + 1))


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Connection",
        "Transfer-Encoding",
        "Accept-Encoding",
        "Range",
        "If-None-Match",
        "Proxy-Connection",
    ],
)
def test_headers_that_are_ours_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"The header {name} cannot be set: Holdfast writes it itself") as refusal:
        RequestSecrets.parse([f"{name}: {VALUE}"])
    assert VALUE not in str(refusal.value)


@pytest.mark.parametrize(
    ("headers", "cookies", "login", "sentence"),
    [
        ([f"X: a\r\nY: {VALUE}"], None, None, "has a line break, a NUL"),
        ([f"X: {VALUE}\0"], None, None, "has a line break, a NUL"),
        ([f"X: {VALUE}\N{SNOWMAN}"], None, None, "not in ISO 8859-1"),
        ([VALUE], None, None, "A header is written 'Name: value'"),
        ([f"a b: {VALUE}"], None, None, "A header is written 'Name: value'"),
        ([f"X: {VALUE}", f"x: {VALUE}"], None, None, "given twice"),
        ([f"Cookie: {VALUE}"], None, None, "give it as a cookie"),
        (["User-Agent: x"], None, None, "give it as a user agent"),
        (None, [VALUE], None, "A cookie is written 'name=value'"),
        (None, [f"a={VALUE}\n"], None, "has a line break, a NUL"),
        (None, [f"a={VALUE}\N{SNOWMAN}"], None, "not in ISO 8859-1"),
        (None, None, VALUE, "written 'user:password'"),
        (None, None, f"bob:{VALUE}\n", "has a line break, a NUL"),
        (None, None, f"bob:{VALUE}\udcff", "is not UTF-8 text"),
    ],
)
def test_what_cannot_be_sent_is_refused_without_its_value(
    headers: list[str] | None, cookies: list[str] | None, login: str | None, sentence: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        RequestSecrets.parse(headers, cookies, login)
    assert sentence in str(refusal.value)
    assert VALUE not in str(refusal.value)


def test_empty_removes_and_left_out_stays() -> None:
    given = RequestSecrets.parse([""], None, "")
    assert given
    assert (given.texts(), given.removed()) == ([], ["headers", "basic_auth"])
    assert not RequestSecrets.parse()


def test_no_repr_has_a_value() -> None:
    given = RequestSecrets.parse([f"X-Key: {VALUE}"], [f"a={VALUE}"], f"bob:{VALUE}")
    sealed = SealedSecret(given.texts()[0].kind, ["X-Key"], ["https://a.example"], VALUE)
    composed = headers_by_origin([(sealed, given.texts()[0].text)])
    assert composed is not None
    headers = composed.for_url("https://a.example/")
    assert VALUE not in repr((given, given.texts(), sealed, composed, headers))
    assert headers is not None
    assert headers.shown == (b"X-Key: [redacted]",)


def test_the_later_one_of_two_with_one_name_counts() -> None:
    domain, job = (RequestSecrets.parse([f"X-Key: {value}"]).texts()[0] for value in ("domain", "job"))
    origins = ["https://a.example"]
    opened = [(SealedSecret(text.kind, text.names, origins, "s"), text.text) for text in (domain, job)]
    composed = headers_by_origin(opened)
    assert composed is not None
    found = composed.for_url("https://a.example/")
    assert found is not None
    assert found.lines == (b"X-Key: job",)


@pytest.mark.parametrize("text", ["Bot/1.0 (+https://x.example)", "Bot"])
def test_user_agents(text: str) -> None:
    assert check_user_agent(text) == text
    with pytest.raises(ValueError, match="plain ASCII on one line"):
        check_user_agent(f"{text}\r\nX: y")
