"""The figures as a table."""

from collections.abc import Iterator

from benchmarks.scale.ledger import Entry, Ledger

BASE = 1_000_000
TARGET = 0.6


def lines(ledger: Ledger) -> Iterator[str]:
    """Everything that the file knows."""
    yield from _frontier(ledger.of("frontier"))
    yield from _claims(ledger.of("claims"))
    yield from _pages(ledger.of("pages"))
    if len(ledger.commits) > 1:
        yield f"\nNot all figures are of the same state of the code: {', '.join(sorted(ledger.commits))}."


def _frontier(entries: list[Entry]) -> Iterator[str]:
    if not entries:
        return
    bases = {shape: _base(entries, shape) for shape in {entry["shape"] for entry in entries}}
    yield "\nFrontier: rates of one process through the product's own functions, a worker at full speed, and its return after kill -9"
    yield (
        f"{'URLs':>12}{'domains':>10}{'insert/s':>10}{'share':>7}{'take+settle/s':>15}{'share':>7}{'take µs':>9}{'bytes/URL':>11}"
        f"{'worker MB':>11}{'pages/s':>9}{'back in s':>11}{'verify':>17}"
    )
    for entry in sorted(entries, key=lambda each: (each["shape"], each["urls"])):
        first = bases[entry["shape"]]
        insert, settle = (f"{entry[name] / first[name]:.0%}" for name in ("insert_per_second", "settle_per_second"))
        verify = f"{'clean' if entry['clean'] else 'NOT CLEAN'}, {entry['verify_seconds']:.0f} s"
        yield (
            f"{entry['urls']:>12,}{entry['domains']:>10,}{entry['insert_per_second']:>10,.0f}{insert:>7}"
            f"{entry['settle_per_second']:>15,.0f}{settle:>7}{entry['take_us']:>9.1f}"
            f"{entry['table_bytes'] + entry['index_bytes']:>11.0f}{entry['worker_bytes'] / 1e6:>11.0f}"
            f"{entry['requests_per_second']:>9.0f}{entry['resume_seconds']:>11.2f}{verify:>17}"
        )
    sizes = " and ".join(sorted({f"{first['urls']:,}" for first in bases.values()}))
    yield f"Shares are of the rate at {sizes} URLs; {TARGET:.0%} is the target. Every insert comes with a URL that is known."


def _base(entries: list[Entry], shape: str) -> Entry:
    """What others of this shape are compared with: a million URLs, or the least there is."""
    mine = [entry for entry in entries if entry["shape"] == shape]
    return next((entry for entry in mine if entry["urls"] == BASE), min(mine, key=lambda entry: int(entry["urls"])))


def _claims(entries: list[Entry]) -> Iterator[str]:
    if entries:
        yield f"\nClaims: milliseconds of a claim of {entries[0]['batch']} domains\n{'domains':>12}{'ready':>8}{'median':>10}{'p99':>10}"
    for entry in sorted(entries, key=lambda each: (each["ready"] != "all", each["domains"])):
        yield f"{entry['domains']:>12,}{entry['ready']:>8}{entry['claim_ms']:>10.2f}{entry['claim_ms_p99']:>10.2f}"


def _pages(entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        tables = {name: entry[name] for name in ("url_frontier", "crawled_pages", "crawl_log")}
        parts = ", ".join(f"{size:.0f} in {name}" for name, size in tables.items())
        yield f"\nDatabase, grown by commits alone, {entry['pages']:,} pages: {entry['waiting']:.0f} bytes a URL that waits,"
        yield f"{sum(tables.values()):,.0f} a page that is crawled ({parts}), indexes included"
