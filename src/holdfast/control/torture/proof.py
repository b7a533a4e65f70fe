"""What proves that faults changed nothing: the store against itself, against a crawl without faults, against the truth, and the log of
the sites against all of them.

The rule: every function says what is wrong, in sentences; nothing said is the proof.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from holdfast.control.torture.ground import Ground
from holdfast.control.torture.plan import RETRIES, Plan
from holdfast.control.verify import Verifier
from holdfast.simweb import judge
from holdfast.simweb.log import Hit
from holdfast.simweb.plan import Address
from holdfast.simweb.site import ExpectedPage, Kind
from holdfast.store import exports, reports
from holdfast.store.connect import Connection, Database

_SHOWN: Final = 5
_ALL: Final = 1_000_000
_STATES: Final[dict[Kind, frozenset[str]]] = {
    Kind.PAGE: frozenset({"done"}),
    Kind.FLAKY: frozenset({"done"}),
    Kind.OTHER: frozenset({"done"}),
    Kind.FAILING: frozenset({"failed"}),
    Kind.REDIRECT: frozenset({"done", "failed"}),
    Kind.DENIED: frozenset({"denied"}),
}
_WITH_CONTENT: Final = frozenset({Kind.PAGE, Kind.FLAKY})


@dataclass(frozen=True, slots=True)
class End:
    """How a URL ended."""

    state: str
    outcome: str | None = None
    """The last one in the log; None: it was never asked for."""
    status: int | None = None
    content: str | None = None
    """The hash of what was answered."""
    rows: int = 1
    """In the frontier; more than one is a fault."""


Where = tuple[str, str]
"""Domain and URL: an address elsewhere that is not followed is a row of the domain where it was met."""
Ends = dict[Where, End]


def ends(database: Database) -> Ends:
    """How every URL in the store ended."""
    everything = exports.Only()
    with database.session() as connection:
        last = {
            (row["domain"], row["page_url"]): (row["outcome"], row["status"])
            for chunk in exports.log(connection, everything)
            for row in chunk
        }
        content = {
            (row["domain"], row["url"]): bytes(row["content_hash"]).hex()
            for chunk in exports.pages(connection, everything, text=False)
            for row in chunk
            if row["content_hash"] is not None
        }
        found = [((row["domain"], row["url"]), row) for chunk in exports.urls(connection, everything) for row in chunk]
    rows = Counter(where for where, _ in found)
    return {
        where: End(row["state"], *last.get(where, (None, None)), content=content.get(where), rows=rows[where])
        for where, row in found
    }


def store_faults(ground: Ground) -> list[str]:
    """What `holdfast verify` finds."""
    verifier = Verifier(ground.database(), RETRIES, ground.archive)
    found = [step.finding for step in verifier.run() if step.finding is not None and step.finding.faults]
    return [f"{finding.check}: {finding.faults} faults, first {finding.rows[:1]}" for finding in found]


class Tenures:
    """Log rows of tenures that are over. The time in a row is when the page was fetched, so only comparing shows a late write."""

    def __init__(self) -> None:
        self._over: Counter[tuple[int, int]] = Counter()
        self._known: set[tuple[int, int]] = set()

    def late_writes(self, database: Database) -> list[str]:
        """I5: what was written under an epoch that was over when this was asked the last time."""
        with database.session() as connection:
            domains = {domain for domain, _ in _written(connection)}
            over = {
                (domain, row["epoch"])
                for domain in domains
                for row in reports.tenures_of(connection, domain, limit=_ALL)
                if row["ended_at"] is not None
            }
            written = _written(connection)  # after it was seen which tenures are over: theirs are all there
        late = [each for each in sorted(self._known) if written[each] != self._over[each]]
        self._known, self._over = over, written
        return _said(f"I5 domain {domain}: written under epoch {epoch} after its end" for domain, epoch in late)


def _written(connection: Connection) -> Counter[tuple[int, int]]:
    return Counter(
        (row["domain_id"], row["claim_epoch"]) for chunk in exports.log(connection, exports.Only()) for row in chunk
    )


def unlike(without: Ends, under: Ends) -> list[str]:
    """I15: where a crawl with faults ended otherwise than one without."""
    different = sorted(where for where in without.keys() | under.keys() if without.get(where) != under.get(where))
    return _said(
        f"I15 {where[1]}: {_end(without.get(where))} without faults, {_end(under.get(where))} with them"
        for where in different
    )


def untrue(expected: Iterable[ExpectedPage], found: Ends) -> list[str]:
    """I1, I2: where the store is not what a complete crawl of this web must end with."""
    return _said(_untruths(list(expected), found))


def _untruths(expected: Sequence[ExpectedPage], found: Ends) -> Iterator[str]:
    for page in expected:
        end = found.get((urlsplit(page.url).netloc, page.url))
        states = _STATES.get(page.kind)
        if states is None:  # hidden or by taste
            if page.kind is Kind.HIDDEN and end is not None and end.state != "denied":
                yield f"I1 {page.url} must not be crawled, and is: {_end(end)}"
        elif end is None:
            yield f"I1 {page.url} is lost"
        elif end.rows > 1:
            yield f"I2 {page.url} is in the frontier {end.rows} times"
        elif end.state not in states:
            yield f"I1 {page.url} must be {' or '.join(sorted(states))}, and is {_end(end)}"
        elif page.kind is not Kind.DENIED and page.status is not None and end.status != page.status:
            yield f"I1 {page.url} answered {page.status}, and the store has {_end(end)}"
        elif page.kind in _WITH_CONTENT and end.content is None:
            yield f"I3 {page.url} has no content"
    known = {page.url for page in expected}
    for (_, url), end in found.items():
        if url not in known and end.state != "denied":
            yield f"I1 {url} is nobody's URL, and is {_end(end)}"


def rude(plan: Plan, address: Address, expected: Sequence[ExpectedPage], hits: Sequence[Hit]) -> list[str]:
    """I9, but for repeats: what the sites' own log says against a crawl."""
    delays = {address.host(n): plan.web.site(n).crawl_delay for n in range(plan.web.sites)}
    found = [f"I9 {page.url} was never answered with {page.status}" for page in judge.missing(expected, hits)]
    found += [
        f"I9 {hit.url} was asked for against robots.txt or rel=nofollow" for hit in judge.unwanted(expected, hits)
    ]
    found += [f"I9 {hit.url} was made up" for hit in judge.strange(expected, hits)]
    found += [f"I9 {hit.url} was asked for before robots.txt" for hit in judge.before_robots(hits)]
    for host in sorted({hit.host for hit in hits}):
        most = judge.most_at_once(hits, host)
        if most > plan.concurrency:
            found.append(f"I9 {host} had {most} requests at once instead of {plan.concurrency}")
    for host, delay in delays.items():
        close = judge.too_close([hit for hit in hits if hit.host == host], delay)
        found += [f"I9 {pair.later.url} came {pair.gap:.2f} s after the request before it" for pair in close]
    return _said(found)


def repeats(hits: Iterable[Hit], without: Iterable[Hit]) -> int:
    """Requests for pages beyond those that a crawl without faults makes."""
    usual = judge.asked(without)
    return sum(max(0, count - usual[url]) for url, count in judge.asked(hits).items())


def _said(sentences: Iterable[str]) -> list[str]:
    """The first few, and how many more."""
    all_of_them = iter(sentences)
    shown = list(islice(all_of_them, _SHOWN))
    more = sum(1 for _ in all_of_them)
    return [*shown, f"… and {more} more like the last"] if more else shown


def _end(end: End | None) -> str:
    if end is None:
        return "not known"
    words = [end.state, end.outcome or "", str(end.status or ""), (end.content or "")[:8]]
    return " ".join(word for word in words if word)
