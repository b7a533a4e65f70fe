"""`holdfast storage`: what is stored and how much room is left, for people and programs."""

import re

from holdfast import private
from tests.support.cli import Cli


def test_storage(cli: Cli) -> None:
    private.make_folder(cli.folder / ".holdfast" / "archive")
    (cli.folder / ".holdfast" / "archive" / "one.warc.gz").write_bytes(b"x" * 2_500_000)
    answer = cli("storage")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert re.split(r"  +", lines[0]) == ["TABLE", "ROWS, ABOUT", "DATA", "INDEXES"]
    assert re.search(r"^Database +[\d.]+ MB$", answer.out, re.MULTILINE)
    assert re.search(r"^Archive +2\.5 MB in 1 file, .+/archive$", answer.out, re.MULTILINE)
    assert re.search(r"^Free +[\d.]+ [MGT]B of [\d.]+ [MGT]B for archive$", answer.out, re.MULTILINE)
    assert "more tables, " in answer.err
    assert "The database is on a server of its own" in answer.err
    assert "nothing was crawled here" in answer.err
    told = cli("storage", "--json").json
    assert told["folders"][0]["bytes"] == 2_500_000
    every = cli("storage", "--all")
    assert len(every.out.splitlines()) > len(lines)
    assert "more tables" not in every.err
    assert "holdfast storage --all --json" in cli("storage", "--help").out
