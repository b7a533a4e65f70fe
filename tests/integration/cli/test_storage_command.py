"""`holdfast storage`: what is stored and how much room is left, for people and programs."""

import re
import socket

from holdfast import private
from tests.support.cli import Cli
from tests.support.factories import Store


def test_storage(cli: Cli) -> None:
    private.make_folder(cli.folder / ".holdfast" / "archive")
    (cli.folder / ".holdfast" / "archive" / "one.warc.gz").write_bytes(b"x" * 2_500_000)
    answer = cli("storage")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert re.split(r"  +", lines[0]) == ["TABLE", "ROWS, ABOUT", "DATA", "INDEXES", "A DAY"]
    assert re.search(r"^Database +[\d.]+ MB$", answer.out, re.MULTILINE)
    assert re.search(r"^Archive +2\.5 MB in 1 file, .+/archive$", answer.out, re.MULTILINE)
    assert re.search(r"^Free +[\d.]+ [MGT]B of [\d.]+ [MGT]B for archive$", answer.out, re.MULTILINE)
    assert "more tables, " in answer.err
    assert "The database is on a server of its own" in answer.err
    assert "nothing was crawled here" in answer.err
    assert "The growth a day is known when the sizes were measured on two days, by `holdfast background`" in answer.err
    told = cli("storage", "--json").json
    assert told["folders"][0]["bytes"] == 2_500_000
    assert (told["bytes_per_day"], told["domains"]) == (None, [])
    every = cli("storage", "--all")
    assert len(every.out.splitlines()) > len(lines)
    assert "more tables" not in every.err
    assert "holdfast storage --all --json" in cli("storage", "--help").out


def test_the_trend_and_when_the_disk_is_full(cli: Cli, store: Store) -> None:
    private.make_folder(cli.folder / ".holdfast" / "archive")
    (cli.folder / ".holdfast" / "archive" / "one.warc.gz").write_bytes(b"x" * 2_500_000)
    store.connection.execute(
        """INSERT INTO storage_days (day, kind, name, rows, bytes)
           SELECT CURRENT_DATE - n, kind, name, 7, size - n * growth FROM generate_series(0, 5) n, (VALUES
           ('database', '', 90000000, 3000000), ('table', 'crawl_log', 5000000, 1500000), ('folder', %s, 2500000, 2000000),
           ('domain', 'big.example', 70000000, 4000000)) v (kind, name, size, growth)""",
        (f"archive@{socket.gethostname()[:64]}",),
    )
    answer = cli("storage")
    assert re.search(r"^crawl_log .+ \+1\.5 MB$", answer.out, re.MULTILINE)
    assert re.search(r"^big\.example +7 +70\.0 MB +\+4\.0 MB$", answer.out, re.MULTILINE)
    assert re.search(r"^Database +[\d.]+ MB, \+3\.0 MB a day$", answer.out, re.MULTILINE)
    assert re.search(r"^Free .+ for archive, \+2\.0 MB a day, full in [\d,]+ days$", answer.out, re.MULTILINE)
