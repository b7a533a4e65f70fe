"""Search over a million documents: how fast it is, how far behind, and what 20 kills while indexing leave. Prints tables; never a gate.

    python -m benchmarks.search [--documents 1000000] [--kills 20] [--queries 100] [--folder FOLDER] [--keep FOLDER] [--json FILE]

It makes texts whose words are as frequent as in real ones, in ten languages (`search_data`), in a scratch store. Then
1. an indexing process is killed by SIGKILL at random moments: each time the index must open and have exactly the documents that its
   watermark says, none twice, and at the end exactly those of the database;
2. the index is built again by one process: documents a second, memory, bytes;
3. queries of several classes are timed, through the service and over HTTP (`holdfast serve`), there while documents change.
The store is removed at the end unless --keep names its folder; what is in that is used again.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from benchmarks import search_data
from benchmarks.api_server import Served
from benchmarks.search_data import Words
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.search.index import SearchIndex
from holdfast.search.queries import DocumentId
from holdfast.search.records import IndexStatus, SearchFilter
from holdfast.search.service import FOLDER, SearchService, index_key

MIB: Final = 1024 * 1024
GOAL: Final = 100.0
"""Milliseconds that 99 of 100 answers may take."""
CHANGES_PER_SECOND: Final = 50.0


@dataclass(frozen=True)
class Asked:
    """A search as a person asks for it."""

    words: str
    where: SearchFilter = field(default_factory=SearchFilter)
    limit: int = 10
    offset: int = 0


@dataclass
class Times:
    """What the searches of a class took, in milliseconds."""

    name: str
    taken: list[float] = field(default_factory=list)
    found: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """p50, p99 and the slowest, and how many documents were found in the median."""
        ordered, found = sorted(self.taken), sorted(self.found)
        return {
            "class": self.name,
            "searches": len(ordered),
            "p50_ms": round(quantile(ordered, 0.5), 2),
            "p99_ms": round(quantile(ordered, 0.99), 2),
            "max_ms": round(ordered[-1], 2),
            "found": found[len(found) // 2],
        }


def quantile(ordered: list[float], share: float) -> float:
    """A quantile of sorted values: the smallest that this share of them is not above."""
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def main() -> None:
    if sys.argv[1:2] == ["index"]:
        index(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--queries", type=int, default=100, help="searches of each class")
    parser.add_argument("--folder", type=Path, help="where the scratch store is made")
    parser.add_argument("--keep", type=Path, help="use the store in this folder, or make it, and leave it there")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        figures = bench(folder, options.documents, options.kills, options.queries)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2))
    finally:
        embedded.stop(folder / "data")
        if options.keep is None:
            shutil.rmtree(folder)
    if figures["problems"]:
        raise SystemExit("\n".join(figures["problems"]))


def bench(folder: Path, documents: int, kills: int, queries: int) -> dict[str, Any]:
    """All of it; returns the figures."""
    data = folder / "data"
    database = Database(embedded.ensure_running(data).url(), statement_timeout=0, idle_timeout=0)
    filled = folder / f"filled-{documents}"
    if not filled.exists():
        make(database, documents)
        filled.touch()
    store = Stored(database)
    figures: dict[str, Any] = {"documents": documents, "problems": []}
    if kills:
        figures["kills"], problems = killed(data, store, kills)
        figures["problems"] += problems
    figures["build"] = build(data, store)
    words = {code: Words(code) for code in search_data.LANGUAGES}
    searches = Searches(words, documents)
    asked = {name: searches.of_class(name, queries) for name in CLASSES}
    service = SearchService(Database(store.database.url), data)
    figures["service"] = through_service(service, asked)
    figures["http"] = over_http(data, store.database, documents, asked)
    return figures


def make(database: Database, documents: int) -> None:
    """Fill the store."""
    migrate.upgrade(database)
    began = time.monotonic()
    search_data.fill(database, documents, progress("documents made", documents))
    print(f"\r{documents:,} documents made in {time.monotonic() - began:.0f} s{'':20}", flush=True)


def progress(what: str, total: int) -> Callable[[int], None]:
    """Show how far it is: each percent on a terminal, each tenth elsewhere."""
    shown, parts = -1, 100 if sys.stdout.isatty() else 10

    def show(done: int) -> None:
        nonlocal shown
        if done * parts // total != shown:
            shown = done * parts // total
            print(f"\r{done:,} of {total:,} {what} ", end="", flush=True)

    return show


# Kills ----------------------------------------------------------------------------------------------------------------


class Stored:
    """The keys of all documents of the database, in the order in which the index reads them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.session() as connection:
            rows = connection.execute(
                "SELECT changed::text::bigint, domain_id, job_id, url_key FROM documents ORDER BY changed"
            ).fetchall()
        self.changes = [row[0] for row in rows]
        self.keys = [index_key(DocumentId(*row[1:])) for row in rows]

    def problems(self, index: SearchIndex) -> list[str]:
        """What is wrong with an index that says how far it has read."""
        mark, found = index.watermark(), index.keys()
        if mark is None:
            return [f"{len(found)} documents without a watermark"] if found else []
        certain = set(self.keys[: bisect_left(self.changes, mark.changed)])
        possible = set(self.keys[: bisect_left(self.changes, mark.changed + 1)])
        known = set(found)
        wrong = {
            "documents twice": len(found) - len(known),
            "documents before the watermark missing": len(certain - known),
            "documents after the watermark": len(known - possible),
        }
        return [f"{count:,} {what}" for what, count in wrong.items() if count]


def killed(data: Path, stored: Stored, kills: int) -> tuple[dict[str, Any], list[str]]:
    """Index in processes that are killed; then let one finish."""
    folder = data / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    chance = random.Random(20)
    total, problems, commits, before = len(stored.keys), [], 0, -1
    for number in range(1, kills + 1):
        limit, rest = chance.randint(0, 2 * total // (kills + 1)), chance.uniform(0, 1)
        with indexing(data, stored.database) as child:
            for said in child.says():
                if said["read"] >= limit:
                    break
            time.sleep(rest)
            child.process.send_signal(signal.SIGKILL)
        index = SearchIndex(folder) if SearchIndex.exists(folder) else None
        wrong = [] if index is None else stored.problems(index)
        mark = index.watermark() if index is not None else None
        changed = mark.changed if mark is not None else 0
        if changed < before:
            wrong.append("the watermark went back")
        commits, before = commits + (changed > before), changed
        count = index.count() if index is not None else 0
        print(f"kill {number:>3}: {count:>9,} of {total:,} documents, {'; '.join(wrong) or 'as committed'}", flush=True)
        problems += [f"kill {number}: {one}" for one in wrong]
    with indexing(data, stored.database) as child:
        last = [said["read"] for said in child.says()][-1:]
        child.process.wait()
    index = SearchIndex(folder)
    found = index.keys()
    if sorted(found) != sorted(stored.keys):
        problems.append(f"at the end {len(found):,} keys in the index that are not those of the database")
    print(
        f"after {kills} kills: {len(found):,} documents in the index, {len(set(found)):,} different, the last process read {last}; "
        f"{problems or 'exactly those of the database'}",
        flush=True,
    )
    return {"kills": kills, "documents": len(found), "commits_seen": commits}, problems


class Child:
    """A process that indexes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self) -> Iterable[dict[str, Any]]:
        """What it says, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)


@contextmanager
def indexing(data: Path, database: Database) -> Any:
    """An indexing process, which is gone afterwards."""
    command = [sys.executable, "-m", "benchmarks.search", "index", database.url, str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()
            process.wait()


def index(url: str, data: str) -> None:
    """Bring the index up to date, and say how far it is and how much memory it takes. For a process of its own."""
    own, said = psutil.Process(), -1_000

    def memory() -> int:
        """Bytes of its own: without files that are mapped, whose pages the system takes back."""
        found = own.memory_info()
        return int(found.rss - found.shared)

    def say(read: int) -> None:
        nonlocal said
        if read - said >= 1_000:
            said = read
            print(json.dumps({"read": read, "memory": memory()}), flush=True)

    service = SearchService(Database(url), Path(data))
    say(0)
    read = service.update(say)
    print(json.dumps({"read": read, "memory": memory(), "cpu": sum(own.cpu_times()[:2])}), flush=True)


def build(data: Path, stored: Stored) -> dict[str, Any]:
    """Build the index in one go."""
    folder, total = data / FOLDER, len(stored.keys)
    shutil.rmtree(folder, ignore_errors=True)
    began, memory, cpu = time.monotonic(), {}, 0.0
    show = progress("documents indexed", total)
    with indexing(data, stored.database) as child:
        for said in child.says():
            memory[said["read"]] = said["memory"]
            cpu = said.get("cpu", cpu)
            show(said["read"])
        child.process.wait()
        if child.process.returncode:
            raise SystemExit(f"The process that indexes ended with {child.process.returncode}.")
    seconds = time.monotonic() - began
    index = SearchIndex(folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    parts = [
        max((size for read, size in memory.items() if part * total <= 10 * read <= (part + 1) * total), default=0)
        for part in range(10)
    ]
    print(
        f"\r{total:,} documents indexed in {seconds:.0f} s: {total / seconds:,.0f} a second, {cpu:.0f} s of CPU of the process; "
        f"{size / MIB:,.0f} MiB, {size / total:,.0f} bytes a document, {index.segments()} segments\n"
        f"MiB of memory at most in each tenth of it: {', '.join(f'{one / MIB:.0f}' for one in parts)}",
        flush=True,
    )
    return {
        "seconds": seconds,
        "per_second": total / seconds,
        "cpu_seconds": cpu,
        "bytes": size,
        "segments": index.segments(),
        "memory": parts,
    }


# Searches -------------------------------------------------------------------------------------------------------------

EUROPEAN: Final = ("en", "en", "en", "de", "fr", "es", "ru")


class Searches:
    """Makes searches of several classes, with words of the texts."""

    def __init__(self, words: dict[str, Words], documents: int) -> None:
        self._words, self._documents = words, documents
        self._code, self._chance = "en", random.Random(0)

    def of_class(self, name: str, count: int) -> list[Asked]:
        """Searches of a class: the same in each run."""
        self._chance = random.Random(name)
        made = []
        for _ in range(count):
            self._code = self._chance.choice(("ja", "zh") if name.startswith("Japanese") else EUROPEAN)
            asked = CLASSES[name](self)
            made.append(Asked(asked) if isinstance(asked, str) else asked)
        return made

    def ranked(self, first: int, last: int) -> str:
        """A word of a language, by how frequent it is."""
        return self._words[self._code].ranked[self._chance.randint(first, last)]

    def common(self, count: int = 1, between: str = " ") -> str:
        """Common words: each is in one of 5 to 200 documents of its language."""
        return between.join(self.ranked(20, 500) for _ in range(count))

    def most_common(self, count: int = 1) -> str:
        """Words that are in nearly all documents of their language."""
        return " ".join(self.ranked(0, 10) for _ in range(count))

    def number(self) -> int:
        """A document."""
        return self._chance.randint(1, self._documents)

    def phrase(self, length: int) -> str:
        """Words of a document, as they stand there."""
        number = self.number()
        while search_data.language_of(number) != self._code:
            number = self.number()
        found = search_data.extracted(self._words[self._code], number)["text"].split("\n\n")[2].split()
        at = self._chance.randint(0, len(found) - length)
        return '"' + " ".join(found[at : at + length]) + '"'

    def filtered(self, field: str) -> Asked:
        """A common word in a part of the documents."""
        value: Any = {
            "domain": f"site-{search_data.domain_of(self._chance.choice((20, self.number())))}.example",
            "job": f"job-{self._chance.randint(3, search_data.JOBS)}",  # 1 and 2 are the standing jobs
            "language": self._code,
            "kind": self._chance.choice(search_data.KINDS),
            "since": search_data.BEGIN + timedelta(days=self._chance.randint(0, 270)),
        }[field]
        return Asked(self.common(), SearchFilter(**{field: value}))


CLASSES: Final[dict[str, Callable[[Searches], str | Asked]]] = {
    "unique word": lambda s: search_data.unique_word(s.number()),
    "rare word": lambda s: s.ranked(1_000, 20_000),
    "common word": lambda s: s.common(),
    "most common word": lambda s: s.most_common(),
    "two common words": lambda s: s.common(2),
    "three most common words": lambda s: s.most_common(3),
    "eight words": lambda s: f"{s.most_common(2)} {s.common(6)}",
    "phrase": lambda s: s.phrase(3),
    "phrase of most common words": lambda s: f'"{s.most_common(2)}"',
    "title:": lambda s: f"title:{s.common()}",
    "OR": lambda s: s.common(3, " OR "),
    "NOT": lambda s: f"{s.common()} -{s.common()}",
    "group": lambda s: f"({s.common()} OR {s.phrase(2)}) {s.common()}",
    "Japanese, Chinese": lambda s: s.ranked(1_000, 20_000),
    **{f"in a {field}": lambda s, field=field: s.filtered(field) for field in ("domain", "job", "language", "kind")},  # type: ignore[misc]
    "since a day": lambda s: s.filtered("since"),
    "page 10 of results": lambda s: Asked(s.common(), offset=90),
    "page 1,000 of results": lambda s: Asked(s.most_common(), offset=9_990),
    "100 results": lambda s: Asked(f"{s.common()} {s.most_common()}", limit=100),
    "all documents": lambda _: "*",
}


def through_service(service: SearchService, asked: dict[str, list[Asked]]) -> dict[str, Any]:
    """Time the searches in this process: index, database and snippets."""

    def run(one: Asked) -> tuple[int, IndexStatus]:
        found = service.search(one.words, one.where, limit=one.limit, offset=one.offset)
        return found.total, found.index

    return timed("SearchService.search", run, asked)


def over_http(data: Path, database: Database, documents: int, asked: dict[str, list[Asked]]) -> dict[str, Any]:
    """Time them over HTTP while documents change; the background of `holdfast serve` indexes meanwhile."""
    begun, stop = multiprocessing.Event(), multiprocessing.Event()
    served = Served(data, "--workers", "1", WEB_ADMIN_LIMIT="1000000")
    writer = multiprocessing.Process(
        target=search_data.keep_changing, args=(database, documents, CHANGES_PER_SECOND, begun, stop)
    )
    try:
        headers = {"Authorization": f"Bearer {served.token(f'bench-{time.time_ns()}', Role.ADMIN)}"}
        writer.start()
        if not begun.wait(120):
            raise SystemExit("The process that changes documents does not begin.")
        with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", headers=headers, timeout=60) as client:

            def run(one: Asked) -> tuple[int, IndexStatus]:
                where = {key: str(value) for key, value in asdict(one.where).items() if value is not None}
                answer = client.get(
                    "/api/search", params={"q": one.words, "limit": one.limit, "offset": one.offset, **where}
                )
                answer.raise_for_status()
                found = answer.json()
                return found["total"], IndexStatus(**found["index"])

            return timed(f"GET /api/search, {CHANGES_PER_SECOND:.0f} documents a second change", run, asked)
    finally:
        stop.set()
        if writer.pid is not None:
            writer.join()
        served.stop()
        for complaint, count in served.complaints().items():
            print(f"the log says {count} times: {complaint}")


def timed(name: str, run: Callable[[Asked], tuple[int, IndexStatus]], asked: dict[str, list[Asked]]) -> dict[str, Any]:
    """Run all searches, of each class in turn, and print what they took."""
    for searches in asked.values():  # what is read for the first time is read from the disk
        run(searches[0])
    classes = {kind: Times(kind) for kind in asked}
    waiting, behind = 0, 0.0
    for turn in zip(*asked.values(), strict=True):
        for kind, one in zip(asked, turn, strict=True):
            began = time.perf_counter()
            found, status = run(one)
            classes[kind].taken.append((time.perf_counter() - began) * 1000)
            classes[kind].found.append(found)
            waiting, behind = max(waiting, status.waiting), max(behind, status.behind_seconds or 0.0)
    overall = Times(
        "all", [ms for one in classes.values() for ms in one.taken], [n for one in classes.values() for n in one.found]
    )
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"\n{name}: ms. Load of the machine: {load}\n{'p50':>9}{'p99':>9}{'max':>9}{'found':>11}  class")
    rows = [times.figures() for times in (*classes.values(), overall)]
    for row in rows:
        mark = "!" if row["p99_ms"] > GOAL else " "
        print(
            f"{row['p50_ms']:>9.1f}{row['p99_ms']:>9.1f}{row['max_ms']:>9.1f}{row['found']:>11,} {mark}{row['class']}"
        )
    print(f"every answer said how far the index was behind: at most {waiting:,} documents, {behind:.1f} s", flush=True)
    return {"classes": rows, "waiting": waiting, "behind_seconds": behind}


if __name__ == "__main__":
    main()
