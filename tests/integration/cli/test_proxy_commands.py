"""`holdfast proxies`: made known, looked at, changed."""

import re

import pytest

from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.pools import Pools

SITE = "example.com"
PASSWORD = "s3cret"


@pytest.fixture
def pools(store: Store) -> Pools:
    store.seed(SITE)
    return Pools(store)


def lines(text: str) -> list[list[str]]:
    """A table's rows, without its head; notes are one cell."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[2:]]


# Making them known ----------------------------------------------------------------------------------------------------


def test_add(cli: Cli) -> None:
    words = ["--country", "de", "--city", "Köln", "--provider", "acme", "--cost", "12.5", "--limit", "none"]
    answer = cli("proxies", "add", "socks5://bob@Proxy.example:1080", *words)
    assert (answer.code, answer.out, answer.err) == (0, "Proxy 1 is socks5://proxy.example:1080.\n", "")
    again = cli("proxies", "add", "socks5://bob@proxy.example:1080")
    assert again.out == "Proxy 1 is socks5://proxy.example:1080; it was known already, and is as it was.\n"
    assert cli("proxies", "add", "proxy.example:80", "--json").json == {
        "id": 3,
        "server": "http://proxy.example:80",
        "created": True,
    }
    shown = cli("proxies", "show", "socks5://proxy.example:1080", "--json").json
    told = {"username": "bob", "country_code": "DE", "city": "Köln", "provider": "acme", "monthly_cost": "12.50"}
    assert told.items() <= shown.items()
    assert (shown["max_requests_per_hour"], shown["has_password"], shown["allow_private"]) == (None, False, False)


def test_a_password_comes_by_a_pipe_or_from_a_person(cli: Cli) -> None:
    piped = cli("proxies", "add", "http://a@proxy.example:1", "--password-stdin", stdin=f"{PASSWORD}\n".encode())
    asked = cli("proxies", "add", "http://a@proxy.example:2", stdin=f"{PASSWORD}\n")
    none = cli("proxies", "add", "http://a@proxy.example:3", stdin="\n")
    unasked = cli("proxies", "add", "http://proxy.example:4", stdin="never read\n")
    assert (piped.err, asked.err) == ("", "Password (it is not shown; none if empty): \n")
    assert unasked.err == ""
    found = cli("proxies", "list", "--json").json
    assert [one["has_password"] for one in found] == [True, True, False, False]
    assert not [answer for answer in (piped, asked, none) if PASSWORD in answer.out + answer.err]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["add", f"http://bob:{PASSWORD}@h.example:1"],
            "A password has no place on a command line, where everybody on",
        ),
        (["add", f"bob:{PASSWORD}@h.example:1"], "A password has no place on a command line, where everybody on"),
        (["add", f"http://bob:{PASSWORD}@h.example"], "A proxy is written SCHEME://USER:PASSWORD@HOST:PORT; "),
        (["add", "h.example:1", f"u:{PASSWORD}@h.example:2"], "Got unexpected extra argument(s) (u:***@h.example:2)."),
        (["add", "ftp://h.example:21"], "The scheme of a proxy is one of http, https, socks5, socks5h."),
        (
            ["add", "http://10.0.0.7:80"],
            "10.0.0.7 is not an address of the public internet (private); `allow_private` permits it.",
        ),
        (
            ["add", "http://[::1]:80"],
            "[::1] is not an address of the public internet (loopback); `allow_private` permits it.",
        ),
        (["add", "http://h.example:1", "--password-stdin"], "There is no password on standard input."),
        (["add", "http://h.example:1", "--country", "Germany"], "A country is a code of two letters, such as DE."),
        (["add", "http://h.example:1", "--cost", "a lot"], "A monthly cost is a number such as 12.50."),
        (["add", "http://h.example:1", "--cost", "1e99"], "A monthly cost is a number from 0 to 99999999.99."),
        (
            ["add", "http://h.example:1", "--limit", "0"],
            "A limit is a whole number of requests an hour, from 1 to 2147483647.",
        ),
        (["add", "http://h.example:1", "--limit", "x"], "A limit is a whole number of requests an hour, or none."),
        (["add", "http://h.example:1", "--city", "x" * 101], "A city is 1 to 100 characters on one line."),
        (
            ["show", f"http://bob:{PASSWORD}@h.example:1"],
            "A proxy is named by its id, or as SCHEME://USER@HOST:PORT without",
        ),
        (["show", "0"], "The id of a proxy is a number from 1 to 9223372036854775807."),
        (["show", "9" * 5000], "The id of a proxy is a number from 1 to 9223372036854775807."),
        (["edit", "1"], "Say what to change: --country, --city, --provider, --cost, --limit, or --password-stdin."),
        (
            ["assign", f"http://bob:{PASSWORD}@h.example:1", "1"],
            "A domain has no @ in its name; give the domain first,",
        ),
        (["assign", SITE], "Say which to assign: proxies by their names, or --provider, --country or both."),
        (
            ["assign", SITE, "1", "--country", "DE"],
            "Say which to assign: proxies by their names, or --provider, --country",
        ),
        (["assign", SITE, "1", "--priority", "11"], "Invalid value for '--priority': "),
        (["unassign", SITE], "Say which to take out: proxies by their names, or --all."),
        (["test"], "Say which to try: proxies by their names, or --all."),
        (["test", "1", "--url", "ftp://x"], "'ftp://x' is not an http or https URL."),
        (["import", "nowhere.txt"], "nowhere.txt cannot be read: No such file or directory. Check the path."),
        (
            ["advise", "inf"],
            "URLs an hour and the buffer cannot be negative, and the requests an hour of a proxy must be more than 0.",
        ),
        (["advise", "100", "--each", "0"], "URLs an hour and the buffer cannot be negative, and the requests an hour"),
    ],
    ids=range(28),
)
def test_what_cannot_be_meant_is_refused_without_a_database(bare_cli: Cli, words: list[str], sentence: str) -> None:
    refused = bare_cli("proxies", *words).refused(2)
    assert refused.startswith(sentence)
    assert PASSWORD not in refused


def test_a_private_address_needs_a_word(cli: Cli) -> None:
    assert cli("proxies", "add", "http://127.0.0.1:3128", "--allow-private").code == 0
    assert cli("proxies", "add", "http://localhost:3128").code == 0, "names are looked at when they are connected to"
    refused = cli("proxies", "edit", "1", "--no-private").refused(2)
    assert refused == ("127.0.0.1 is not an address of the public internet (loopback); `allow_private` permits it.")


# Looking and changing -------------------------------------------------------------------------------------------------


def test_list_and_show(cli: Cli, pools: Pools) -> None:
    a, b, c, d = pools.add(4, provider="acme\x1b[2J", country_code="DE")
    pools.assign(SITE, a)
    pools.used(SITE, a, requests=10, other_requests=2, success_count=6, total_failures=1, proxy_failures=1, bytes=512)
    pools.fails(b, 6)
    pools.fails(c, 10)
    cli("proxies", "disable", str(d))
    answer = cli("proxies", "list")
    table = lines(answer.out)
    states = [row[3] for row in table if len(row) == 10]
    assert states == ["active", "resting", "failed", "off"]
    assert table[0][6:9] == ["1", "12", "75.0 %"]
    assert table[2] == ["└─ refused"]
    assert "\x1b" not in answer.out
    assert cli("proxies", "list", "--limit", "2").err == f"More rows: --after {b}.\n"
    assert [one["id"] for one in cli("proxies", "list", "--after", str(b), "--not-active", "--json").json] == [c, d]
    assert cli("proxies", "list", "--provider", "nobody").err.startswith("No such proxy; `holdfast proxies add` or ")
    shown = dict(line.split(maxsplit=1) for line in cli("proxies", "show", str(b)).out.splitlines())
    assert shown["Proxy"] == "http://proxy.example:2 (2)"
    assert re.fullmatch(r"yes; it failed too often; next attempt \S+ \S+ UTC", shown["Active"])
    assert re.fullmatch(r"6 times in a row, last \S+ \S+: refused", shown["Failed"])
    assert shown["Limit"] == "1,000 requests an hour"
    assert cli("proxies", "show", "815").refused(4) == "There is no proxy 815."
    assert cli("proxies", "show", "http://nowhere.example:1").refused(4) == (
        "There is no proxy http://nowhere.example:1; `holdfast proxies list` shows those that are known."
    )


def test_one_with_several_users_is_named_by_one(cli: Cli) -> None:
    for user in ("ann", "bob"):
        cli("proxies", "add", f"http://{user}@proxy.example:80")
    assert cli("proxies", "show", "http://proxy.example:80").refused(5) == (
        "http://proxy.example:80 is known with several users: name it by its id, 1 or 2."
    )
    assert cli("proxies", "show", "http://bob@proxy.example:80", "--json").json["id"] == 2


def test_edit(cli: Cli, pools: Pools) -> None:
    pools.add(city="Bonn")
    changed = cli(
        "proxies", "edit", "1", "--limit", "none", "--country", "fr", "--city", "", "--cost", "3", "--json"
    ).json
    assert (changed["max_requests_per_hour"], changed["country_code"], changed["city"]) == (None, "FR", None)
    assert changed["monthly_cost"] == "3.00"
    assert cli("proxies", "edit", "1", "--cost", "", "--version", "2").out == "Proxy 1 is changed (version 3).\n"
    assert (
        cli("proxies", "edit", "1", "--cost", "5", "--version", "2")
        .refused(5)
        .startswith("Proxy 1 was changed meanwhile")
    )
    nobody = cli("proxies", "edit", "1", "--password-stdin", stdin=f"{PASSWORD}\n".encode()).refused(5)
    assert nobody == "Proxy 1 has no user that a password could go with: add it again with one."
    cli("proxies", "add", "http://bob@proxy.example:9")
    assert cli("proxies", "edit", "2", "--password-stdin", "--json", stdin=b"x\n").json["has_password"]
    assert not cli("proxies", "edit", "2", "--no-password", "--json").json["has_password"]
    long = cli("proxies", "edit", "2", "--password-stdin", stdin=b"x" * 1001).refused(2)
    assert long == "A proxy's password is at most 1000 characters on one line."


def test_switched_on_and_off(cli: Cli, pools: Pools) -> None:
    a, b = pools.add(2)
    assert cli("proxies", "disable", str(a), str(b)).out == f"Proxy {a} is off.\nProxy {b} is off.\n"
    assert cli("proxies", "disable", str(a)).out == f"Proxy {a} was off already.\n"
    pools.assign(SITE, a)
    pools.wait(SITE)
    assert cli("proxies", "enable", str(a)).out == f"Proxy {a} is active.\n"
    assert len(pools.store.claim()) == 1, "the domain that waited for it goes on at once"
    assert cli("proxies", "disable", str(a), "--domain", SITE).out == f"Proxy {a} is off for {SITE}.\n"
    assert cli("proxies", "enable", str(b), "--domain", SITE).refused(4).startswith(f"Proxy {b} is not in the pool of")
    some = cli("proxies", "enable", "815", str(b), "--json")
    assert (some.code, some.json["proxies"]) == (1, [{"id": b, "result": "is active"}])
    assert some.json["refused"] == [{"proxy": "815", "problem": "There is no proxy 815."}]
    assert some.err == "There is no proxy 815.\n"


def test_removed_when_somebody_insists(cli: Cli, pools: Pools) -> None:
    a, b = pools.add(2)
    assert cli("proxies", "remove", str(a)).refused(5).startswith("Nothing was removed. There is no terminal to ask on")
    assert cli("proxies", "remove", str(a), stdin="n\n").code == 5
    assert cli("proxies", "remove", str(a), stdin="y\n").out == f"Proxy {a} is forgotten.\n"
    assert cli("proxies", "remove", str(b), "--yes", "--json").json["proxies"] == [{"id": b, "result": "is forgotten"}]
    assert cli("proxies", "list", "--json").json == []
