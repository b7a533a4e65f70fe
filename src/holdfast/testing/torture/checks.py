"""Checks after faults: the store against its invariants, against a crawl without faults, against the expected pages, and against the
access log of the simulated sites.

The rule: every function returns its violations as sentences; an empty list is the proof.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from holdfast.control.verify import Verifier
from holdfast.db import exports
from holdfast.db.connection import Database
from holdfast.domains import queries
from holdfast.model.outcome import Outcome
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.site import ExpectedPage, UrlKind
from holdfast.testing.simweb.spec import Address
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import RETRIES, Scenario

_MAX_SHOWN: Final = 5
_NO_LIMIT: Final = 1_000_000
_STATES: Final[dict[UrlKind, frozenset[str]]] = {
    UrlKind.PAGE: frozenset({"done"}),
    UrlKind.FLAKY: frozenset({"done"}),
    UrlKind.OTHER: frozenset({"done"}),
    UrlKind.FAILING: frozenset({"failed"}),
    UrlKind.REDIRECT: frozenset({"done", "failed"}),
    UrlKind.DENIED: frozenset({"denied"}),
}
_WITH_CONTENT: Final = frozenset({UrlKind.PAGE, UrlKind.FLAKY})


@dataclass(frozen=True, slots=True)
class UrlResult:
    """The final state of a URL."""

    state: str
    outcome: str | None = None
    """The last outcome in the log; None: it was never requested."""
    status: int | None = None
    content: str | None = None
    """The content hash of the page, in hexadecimal."""
    rows: int = 1
    """Rows in the frontier; more than one is a violation."""


UrlKey = tuple[str, str]
"""Domain and URL: an external URL that is not followed is a row of the domain that links to it."""
UrlResults = dict[UrlKey, UrlResult]


def read_results(database: Database) -> UrlResults:
    """Read the final state of every URL in the store."""
    with database.session() as connection:
        last: dict[tuple[str | None, str], tuple[str | None, int | None]]
        last = {(row.domain, row.url): (row.outcome, row.status) for row in exports.log(connection)}
        content = {
            (stored.page.domain, stored.page.url): stored.page.content_hash
            for stored in exports.pages(connection, text=False)
        }
        found = [((row.domain or "", row.url), row) for row in exports.urls(connection)]
    rows = Counter(key for key, _ in found)
    return {
        key: UrlResult(row.state, *last.get(key, (None, None)), content=content.get(key), rows=rows[key])
        for key, row in found
    }


def verify_store(sandbox: Sandbox) -> list[str]:
    """Run the checks of `holdfast verify`, also of all files."""
    verifier = Verifier(sandbox.database(), RETRIES, sandbox.archive, sandbox.images)
    found = [step.finding for step in verifier.run() if step.finding is not None and step.finding.faults]
    return [f"{finding.check}: {finding.faults} faults, first {finding.rows[:1]}" for finding in found]


class LateWriteCheck:
    """Detects log rows written after the end of their tenure. The time in a row is that of the fetch, so only comparing two readings
    shows a late write."""

    def __init__(self) -> None:
        self._written_before: Counter[tuple[int, int]] = Counter()
        self._ended: set[tuple[int, int]] = set()

    def late_writes(self, database: Database) -> list[str]:
        """I5: rows written under an epoch that had already ended at the previous call."""
        with database.session() as connection:
            domains = {domain for domain, _ in exports.logged_by_epoch(connection)}
            over = {
                (domain, tenure.epoch)
                for domain in domains
                for tenure in queries.tenures_of(connection, domain, limit=_NO_LIMIT)
                if tenure.ended_at is not None
            }
            written = exports.logged_by_epoch(
                connection
            )  # read after the ended tenures, so all of their rows are included
        late = [each for each in sorted(self._ended) if written[each] != self._written_before[each]]
        self._ended, self._written_before = over, written
        return limit_lines(f"I5 domain {domain}: written under epoch {epoch} after its end" for domain, epoch in late)


def compare_results(without: UrlResults, under: UrlResults) -> list[str]:
    """I15: URLs that a crawl with faults ended differently from one without."""
    different = sorted(key for key in without.keys() | under.keys() if without.get(key) != under.get(key))
    return limit_lines(
        f"I15 {key[1]}: {_describe(without.get(key))} without faults, {_describe(under.get(key))} with them"
        for key in different
    )


def compare_expected(expected: Iterable[ExpectedPage], found: UrlResults) -> list[str]:
    """I1, I2: URLs whose final state differs from that of a complete crawl of this web."""
    return limit_lines(_differences(list(expected), found))


def _differences(expected: Sequence[ExpectedPage], found: UrlResults) -> Iterator[str]:
    for page in expected:
        result = found.get((urlsplit(page.url).netloc, page.url))
        states = _STATES.get(page.kind)
        if states is None:  # hidden, or optional
            if page.kind is UrlKind.HIDDEN and result is not None and result.state != "denied":
                yield f"I1 {page.url} must not be crawled, and is: {_describe(result)}"
        elif result is None:
            yield f"I1 {page.url} is lost"
        elif result.rows > 1:
            yield f"I2 {page.url} is in the frontier {result.rows} times"
        elif result.state not in states:
            yield f"I1 {page.url} must be {' or '.join(sorted(states))}, and is {_describe(result)}"
        elif page.kind is not UrlKind.DENIED and page.status is not None and result.status != page.status:
            yield f"I1 {page.url} answered {page.status}, and the store has {_describe(result)}"
        elif page.kind in _WITH_CONTENT and result.content is None:
            yield f"I3 {page.url} has no content"
    known = {page.url for page in expected}
    for (_, url), result in found.items():
        if url not in known and result.state != "denied" and result.outcome != Outcome.NO_SITEMAP:
            yield f"I1 {url} exists nowhere in the web, and is {_describe(result)}"


def check_politeness(
    scenario: Scenario, address: Address, expected: Sequence[ExpectedPage], hits: Sequence[Hit]
) -> list[str]:
    """I9 except repeats: violations of politeness in the access log of the sites."""
    delays = {address.host(n): scenario.web.site(n).crawl_delay for n in range(scenario.web.sites)}
    found = [
        f"I9 {page.url} was never answered with {page.status}" for page in log_checks.missing_pages(expected, hits)
    ]
    found += [
        f"I9 {hit.url} was requested against robots.txt or rel=nofollow"
        for hit in log_checks.forbidden_requests(expected, hits)
    ]
    found += [
        f"I9 {hit.url} was requested and exists nowhere in the web" for hit in log_checks.unknown_urls(expected, hits)
    ]
    found += [f"I9 {hit.url} was requested before robots.txt" for hit in log_checks.before_robots(hits)]
    for host in sorted({hit.host for hit in hits}):
        concurrent = log_checks.max_concurrent(hits, host)
        if concurrent > scenario.concurrency:
            found.append(f"I9 {host} had {concurrent} requests at once instead of {scenario.concurrency}")
    for host, delay in delays.items():
        close = log_checks.too_close([hit for hit in hits if hit.host == host], delay)
        found += [f"I9 {pair.later.url} came {pair.gap:.2f} s after the request before it" for pair in close]
    return limit_lines(found)


def count_repeats(hits: Iterable[Hit], without: Iterable[Hit]) -> int:
    """Count requests for pages beyond those of a crawl without faults."""
    reference = log_checks.count_requests(without)
    return sum(max(0, count - reference[url]) for url, count in log_checks.count_requests(hits).items())


def limit_lines(sentences: Iterable[str]) -> list[str]:
    """The first few sentences and the number of the rest."""
    remaining = iter(sentences)
    shown = list(islice(remaining, _MAX_SHOWN))
    more = sum(1 for _ in remaining)
    return [*shown, f"… and {more} more like the last"] if more else shown


def _describe(result: UrlResult | None) -> str:
    if result is None:
        return "not known"
    words = [result.state, result.outcome or "", str(result.status or ""), (result.content or "")[:8]]
    return " ".join(word for word in words if word)
