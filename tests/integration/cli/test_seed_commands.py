"""Seeds from the command line: files of every kind, bad lines with their numbers, and memory that does not grow."""

import bz2
import gzip
import io
import lzma
import os
import threading
import tracemalloc
import zipfile
from collections.abc import Iterator

import pytest

from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.errors import StoreUnavailable, UsageError
from holdfast.jobs import seed_import as seeds
from holdfast.jobs.seed_import import ImportProgress, SeedImporter
from holdfast.model.seed_lines import SeedLineParser
from holdfast.model.url import DEFAULT_RULES
from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

MAJESTIC = b"GlobalRank,TldRank,Domain,TLD\n1,1,a.example,example\n2,2,b.example,example\n"


def _zip(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("list.csv", content)
    return packed.getvalue()


def _domains(store: Store) -> dict[str, tuple[int | None, str]]:
    rows = store.connection.execute("SELECT domain, seed_rank, source FROM domains ORDER BY domain")
    return {domain: (rank, source) for domain, rank, source in rows}


def test_files_of_every_kind_that_is_text(cli: Cli, store: Store) -> None:
    for name, content, told in [
        ("tranco_20260205.csv", b"1,a.example\n2,b.example\n", "2 lines: 2 seeds (2 new domains, 2 new URLs).\n"),
        ("tranco_20260205.csv", b"1,a.example\n2,b.example\n", "2 lines: 2 seeds (0 new domains, 0 new URLs).\n"),
        ("majestic.csv.gz", gzip.compress(MAJESTIC), "3 lines: 2 seeds (0 new domains, 0 new URLs).\n"),
        (
            "windows.txt",
            b"\xef\xbb\xbfc.example\r\n\r\n# x\r\nc.example/1",
            "4 lines: 2 seeds (1 new domain, 2 new URLs).\n",
        ),
        ("empty.txt", b"", "0 lines: 0 seeds (0 new domains, 0 new URLs).\n"),
        ("empty.gz", gzip.compress(b""), "0 lines: 0 seeds (0 new domains, 0 new URLs).\n"),
        (".hidden", b"d.example\n", "1 line: 1 seed (1 new domain, 1 new URL).\n"),
        ("parts.gz", gzip.compress(b"e.exam") + gzip.compress(b"ple\n"), "1 line: 1 seed (1 new domain, 1 new URL).\n"),
        (os.fsdecode(b"\xff.txt"), b"f.example\n", "1 line: 1 seed (1 new domain, 1 new URL).\n"),
    ]:
        (cli.folder / name).write_bytes(content)
        answer = cli("seeds", "load", name)
        assert (answer.code, answer.out, answer.err) == (0, told, ""), name
    assert _domains(store) == {
        "a.example": (1, "tranco_20260205"),
        "b.example": (2, "tranco_20260205"),
        "c.example": (None, "windows"),
        "d.example": (None, ".hidden"),
        "e.example": (None, "parts"),
        "f.example": (None, "\ufffd"),
    }
    assert_invariants(store.connection)


def test_standard_input_and_a_name_for_the_source(cli: Cli, store: Store) -> None:
    answer = cli("seeds", "load", "-", "--json", stdin=b"a.example\nb ad\n")
    assert answer.code == 1
    assert answer.json == {
        "lines": 2,
        "seeds": 1,
        "domains": 1,
        "urls": 1,
        "bad": 1,
        "bytes_read": 15,
        "bad_lines": [{"line": 2, "problem": "'https://b ad' is not a valid URL."}],
        "stopped": None,
    }
    cli("seeds", "load", "-", "--source", "s" * 150, stdin=b"b.example\n")
    assert _domains(store) == {"a.example": (None, "standard input"), "b.example": (None, "s" * 100)}


def test_a_pipe_with_a_name_has_no_size(cli: Cli, store: Store) -> None:
    os.mkfifo(cli.folder / "pipe")
    writer = threading.Thread(target=(cli.folder / "pipe").write_bytes, args=[b"a.example\n"])
    writer.start()
    assert cli("seeds", "load", "pipe").out == "1 line: 1 seed (1 new domain, 1 new URL).\n"
    writer.join()


def test_bad_lines_are_told_with_their_numbers_and_the_rest_loads(cli: Cli, store: Store) -> None:
    lines = [b"a.example", b"\xff", b"", b"exa\x00mple.com", b"# x", b"a" * 10_000_000, b"b.example", b"\x1b[2J", b"9,"]
    (cli.folder / "list").write_bytes(b"\n".join(lines))
    answer = cli("seeds", "load", "list")
    assert (answer.code, answer.out) == (1, "9 lines: 2 seeds (2 new domains, 2 new URLs), 5 bad.\n")
    told = answer.err.splitlines()
    assert told[0] == "line 2: The line is not UTF-8 text."
    assert told[1] == "line 4: The line has control characters, so it is not text."
    assert told[2].startswith("line 6: 'https://aaaaaaaaaaaaa")
    assert told[3] == "line 8: The line has control characters, so it is not text."
    assert told[4] == "line 9: '' names no host."
    assert max(map(len, told)) < 200
    assert set(_domains(store)) == {"a.example", "b.example"}


def test_many_bad_lines_are_counted_and_the_first_ones_told(cli: Cli) -> None:
    content = b"\n".join([b"x,y"] * 1234)
    answer = cli("seeds", "load", "-", stdin=content)
    assert (answer.code, answer.out) == (1, "1,234 lines: 0 seeds (0 new domains, 0 new URLs), 1,234 bad.\n")
    told = answer.err.splitlines()
    assert [line.partition(":")[0] for line in told[:20]] == [f"line {i}" for i in range(1, 21)]
    assert told[20:] == ["… and 1,214 more"]
    assert len(cli("seeds", "load", "-", "--json", stdin=content).json["bad_lines"]) == 1000


NOT_TEXT = [
    (
        _zip(MAJESTIC),
        "The seed file is a ZIP archive; unpack it first, for example with `unzip -p FILE | holdfast seeds load -`.",
    ),
    (bz2.compress(MAJESTIC), "The seed file is packed with bzip2; unpack it first"),
    (lzma.compress(MAJESTIC), "The seed file is packed with xz; unpack it first"),
    (b"\x28\xb5\x2f\xfdxyz", "The seed file is packed with zstd; unpack it first"),
    (gzip.compress(_zip(MAJESTIC)), "The seed file is a ZIP archive; unpack it first"),
    ("a.example\n".encode("utf-16"), "The seed file is UTF-16 text; save it as UTF-8."),
    (
        "a.example\n".encode("utf-16-be", "strict").join([b"\xfe\xff", b""]),
        "The seed file is UTF-16 text; save it as UTF-8.",
    ),
    (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x04\xb0\nword\n",
        "The seed file is not UTF-8 text; it takes a URL, a domain or `rank,domain` a line.",
    ),
]


def test_a_file_that_is_no_text_is_refused_as_a_whole(cli: Cli, store: Store) -> None:
    for content, sentence in NOT_TEXT:
        assert cli("seeds", "load", "-", stdin=content).refused(2).startswith(sentence)
    assert _domains(store) == {}


def test_a_text_with_a_bad_character_here_and_there_is_a_text(cli: Cli) -> None:
    content = b"\0\n" + "ä.example\n".encode() * 1000
    assert (
        cli("seeds", "load", "-", stdin=content).out == "1,001 lines: 1,000 seeds (1 new domain, 1 new URL), 1 bad.\n"
    )


def test_a_damaged_file_loads_as_far_as_it_can_be_read(cli: Cli, store: Store) -> None:
    whole = gzip.compress(b"".join(b"%d,d%d.example\n" % (i, i) for i in range(1, 5001)))
    for content in (whole[: len(whole) // 2], whole + b"garbage"):
        answer = cli("seeds", "load", "-", "--json", stdin=content)
        assert answer.code == 1
        loaded = answer.json
        sentence = f"Reading stopped after line {loaded['lines']}: the gzip file is damaged or incomplete."
        assert (loaded["stopped"], answer.err) == (sentence, f"Error: {sentence}\n")
        assert 0 < loaded["seeds"] == loaded["lines"]
        assert len(_domains(store)) == loaded["lines"]


def test_a_file_that_cannot_be_read_after_all(cli: Cli) -> None:
    answer = cli("seeds", "load", "/proc/self/mem")  # it opens, and has no first page
    assert (answer.code, answer.out) == (1, "0 lines: 0 seeds (0 new domains, 0 new URLs).\n")
    assert answer.err == "Error: Reading stopped after line 0: Input/output error.\n"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing.txt", "The seed file missing.txt cannot be read: No such file or directory. Check the path."),
        (".", "The seed file . cannot be read: Is a directory. Check the path."),
        ("a\x1b.txt", "The seed file a\\x1b.txt cannot be read: No such file or directory. Check the path."),
    ],
)
def test_a_file_that_cannot_be_opened(bare_cli: Cli, name: str, sentence: str) -> None:
    assert bare_cli("seeds", "load", name).refused(2) == sentence


def test_there_may_be_no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match=r"^There is no standard input to read seeds from\.$"):
        seeds.open_seeds("-")


def test_seeds_add(cli: Cli, store: Store) -> None:
    answer = cli("seeds", "add", "https://a.example/x", "b.example", "b.example")
    assert (answer.code, answer.out, answer.err) == (0, "3 arguments: 3 seeds (2 new domains, 2 new URLs).\n", "")
    answer = cli("seeds", "add", "c.example", "http://bad host/", "\udcff")
    assert (answer.code, answer.out) == (1, "3 arguments: 1 seed (1 new domain, 1 new URL), 2 bad.\n")
    assert answer.err.splitlines()[0] == "argument 2: 'http://bad host/' is not a valid URL."
    answer = cli("seeds", "add", "mailto:me@example.com", "--json")
    assert (answer.code, answer.json["seeds"], answer.json["bad"]) == (1, 0, 1)
    assert _domains(store) == {f"{name}.example": (None, "command line") for name in "abc"}
    assert_invariants(store.connection)


def test_seeds_change_nothing_that_was_learnt(cli: Cli, store: Store) -> None:
    cli("seeds", "add", "a.example")
    store.crawl_to_the_end()
    learnt = store.row("a.example")
    cli("seeds", "load", "-", stdin=b"a.example\n")
    assert store.row("a.example") == learnt


@pytest.fixture
def sower(database: Database) -> SeedImporter:
    return SeedImporter(database, DEFAULT_RULES, NewDomains())


def test_what_was_read_before_an_interruption_is_in_the_store(
    sower: SeedImporter, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds, "BATCH", 3)
    steps = sower.load(io.BytesIO(b"".join(b"d%d.example\n" % i for i in range(10))), "test")
    next(steps)
    next(steps)
    steps.close()
    assert len(_domains(store)) == 6


def test_a_store_that_goes_away_ends_the_load(
    sower: SeedImporter, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds, "BATCH", 1)
    steps = sower.load(io.BytesIO(b"".join(b"d%d.example\n" % i for i in range(1000))), "test")
    next(steps)
    others = "pid <> pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend'"
    store.connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    with pytest.raises(StoreUnavailable, match=r"^The connection to .+ broke: "):
        list(steps)


class _Endless(io.BytesIO):
    """A file that was never in memory."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        super().__init__()
        self._lines = lines
        self._rest = b""

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        while len(self._rest) < size and (line := next(self._lines, b"")):
            self._rest += line
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad and good lines alike; a database would only add noise."""
    sower = SeedImporter(Database("unused"), DEFAULT_RULES, NewDomains())
    monkeypatch.setattr(seeds, "BATCH", 200)

    def peak(count: int) -> int:
        file = _Endless(b"%d,d%d.example\nb ad %0200d\n" % (i, i, i) for i in range(1, count))
        loaded = ImportProgress()
        tracemalloc.start()
        try:
            for _ in sower._batches(file, SeedLineParser(), loaded):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2000)  # fills caches
    assert peak(4000) < peak(2000) + 60_000
