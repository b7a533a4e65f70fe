"""`holdfast proxies import`: lists of any form and length, each line for itself, and nothing of a password in what is said."""

import gzip
import re

import pytest

from tests.support.cli import Cli
from tests.support.factories import Store

PASSWORD = "s3cret"
PLAIN = f"""\
# proxies of acme
http://bob:{PASSWORD}1@one.example:8080

socks5h://two.example:1080
one.example:8080:bob:{PASSWORD}2
http://bob:{PASSWORD}3@one.example:99999
http://:{PASSWORD}4@one.example:1
http://bob:{PASSWORD}5@10.0.0.7:1
http://two.example:80
"""


def test_import_of_lines(cli: Cli) -> None:
    (cli.folder / "list.txt").write_text(PLAIN)
    answer = cli("proxies", "import", "list.txt", "--provider", "acme", "--country", "de", "--limit", "7")
    assert answer.code == 1
    assert answer.out == "9 lines: 3 new proxies, 0 known already, 4 bad.\n"
    assert answer.err.splitlines() == [
        "line 5: A proxy is written SCHEME://USER:PASSWORD@HOST:PORT; scheme, user and password may be left out.",
        "line 6: A proxy's port is a number from 1 to 65535.",
        "line 7: A proxy's password needs a user to go with it.",
        "line 8: 10.0.0.7 is not an address of the public internet (private); `allow_private` permits it.",
    ]
    found = cli("proxies", "list", "--json").json
    assert [(one["protocol"], one["host"], one["port"]) for one in found] == [
        ("http", "one.example", 8080),
        ("socks5h", "two.example", 1080),
        ("http", "two.example", 80),
    ]
    assert {(one["provider"], one["country_code"], one["max_requests_per_hour"]) for one in found} == {
        ("acme", "DE", 7)
    }
    again = cli("proxies", "import", "list.txt", "--allow-private", "--json")
    assert (again.code, again.json["added"], again.json["known"], again.json["bad"]) == (1, 1, 3, 3)
    assert again.json["bad_lines"][0]["line"] == 5
    assert PASSWORD not in answer.out + answer.err + again.out + again.err


def test_import_of_a_table(cli: Cli) -> None:
    table = (
        "\ufeffHost, Port ,Scheme,Username,Password,Country,City,Provider,Monthly_Cost,Limit,Allow_Private\r\n"
        f'one.example,8080,HTTPS,bob,"{PASSWORD}, with ""quotes""",de,Köln,acme,12.50,none,\r\n'
        "10.0.0.7,3128,,,,,,,,50,yes\r\n"
        f"three.example,x,,bob,{PASSWORD},,,,,,\r\n"
        f"four.example,1,,bob,{PASSWORD},Germany,,,,,\r\n"
        f"five.example,1,,bob,{PASSWORD},,,,,,,{PASSWORD}\r\n"
        f'six.example,1,,bob,"{PASSWORD},,,,,,\r\n'
        "seven.example,80\r\n"
    )
    with gzip.open(cli.folder / "list.csv.gz", "wb") as packed:
        packed.write(table.encode())
    answer = cli("proxies", "import", "list.csv.gz", "--provider", "other")
    assert (answer.code, answer.out) == (1, "8 lines: 3 new proxies, 0 known already, 4 bad.\n")
    assert answer.err.splitlines() == [
        "line 4: A proxy has a host and a port, which is a number.",
        "line 5: A country is a code of two letters, such as DE.",
        "line 6: The line has more columns than the first one names.",
        "line 7: The line is no CSV: a quotation mark is missing.",
    ]
    one, two, three = cli("proxies", "list", "--json").json
    told = {"protocol": "https", "username": "bob", "has_password": True, "country_code": "DE", "city": "Köln"}
    assert told.items() <= one.items()
    assert (one["provider"], one["monthly_cost"], one["max_requests_per_hour"]) == ("acme", "12.50", None)
    assert (two["provider"], two["allow_private"], two["max_requests_per_hour"]) == ("other", True, 50)
    assert (three["host"], three["max_requests_per_hour"]) == ("seven.example", 1000)


@pytest.mark.parametrize(
    ("table", "servers"),
    [
        ("proxy;provider\nsocks5://bob:x@a.example:1;acme\n", ["socks5://a.example:1"]),
        ("url\tuser\tpassword\na.example:1\tbob\tx\n\t\t\n", ["http://a.example:1"]),
        ("proxy_url,proxy_port,proxy_username,proxy_password\na.example,1,bob,x\n", ["http://a.example:1"]),
    ],
    ids=["semicolons", "tabs", "the seed's names"],
)
def test_tables_of_other_kinds(cli: Cli, table: str, servers: list[str]) -> None:
    cli("proxies", "import", "-", stdin=table.encode())
    found = cli("proxies", "list", "--json").json
    assert [f"{one['protocol']}://{one['host']}:{one['port']}" for one in found] == servers
    assert [(one["username"], one["has_password"]) for one in found] == [("bob", True)]


def test_files_that_cannot_be_read_to_the_end(cli: Cli) -> None:
    header = cli("proxies", "import", "-", stdin=f"host,port,pasword\na.example,1,{PASSWORD}\n".encode())
    assert header.refused(2).startswith("Column 3 is not one of: proxy, host, port, protocol, username, password, ")
    packed = gzip.compress(b"".join(b"p%d.example:%d\n" % (n, n) for n in range(1, 2000)))
    cut = cli("proxies", "import", "-", stdin=packed[: len(packed) // 2])
    assert cut.code == 1
    assert re.search(r"Error: Reading stopped after line \d+: the gzip file is damaged or incomplete\.", cut.err)
    assert re.fullmatch(r"(\d+) lines: \1 new proxies, 0 known already\.\n", cut.out)
    binary = cli("proxies", "import", "-", "--json", stdin=b"\xff\xfe" + bytes(range(128, 256)) + b"x" * 20_000)
    assert (binary.code, [bad["problem"] for bad in binary.json["bad_lines"]]) == (1, ["The line is too long."])
    assert cli("proxies", "import", "-", stdin=b"").out == "0 lines: 0 new proxies, 0 known already.\n"


def test_many_lines_are_many_transactions(cli: Cli, store: Store) -> None:
    text = "".join(f"p{n}.example:80\n" for n in range(1_201))
    assert (
        cli("proxies", "import", "-", stdin=text.encode()).out == "1,201 lines: 1,201 new proxies, 0 known already.\n"
    )
    assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'proxy'") == 3
    assert store.value("SELECT count(DISTINCT created_at) FROM proxies") == 3
