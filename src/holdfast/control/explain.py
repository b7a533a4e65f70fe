"""Why a URL or a domain is where it is: where it came from, what came of it, what it waits for.

The rule: only what the store holds. `control/explain_text` puts it into words.
"""

from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.control.explain_text import Wait, waits, why, why_not
from holdfast.db import domains, explain, workers
from holdfast.db.connection import Connection, Database
from holdfast.domains import queries as domain_queries
from holdfast.errors import NotFound
from holdfast.model.activity import Activity
from holdfast.model.domain import Seed
from holdfast.model.domain_name import canonical_domain
from holdfast.model.proxy import ProxyMode
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DroppedParameter, UrlRules, dropped_parameters, url_key
from holdfast.politeness.robots_txt import ALLOW_ALL, PRODUCT, UNREACHABLE, Robots, product_token
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.records import PoolState

MOST_PARENTS: Final = 10
_MOST_FOREIGN: Final = 3
"""Steps to a page on another domain: each is looked for under all domains of the job."""
SILENCE: Final = timedelta(seconds=120)
"""A worker that was not heard of for so long counts as dead."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the robots.txt of a URL's origin says of it."""

    url: str
    fetched_at: datetime | None
    status: int | None
    reachable: bool
    problem: str | None
    allowed: bool | None
    """None: nobody has asked for that robots.txt yet."""
    line: str | None
    """The line that decided."""
    agent: str


@dataclass(slots=True)
class Entry:
    """A URL as one job sees it."""

    job: str
    state: str
    why: str
    detail: str | None
    row: dict[str, Any]
    change: str | None = None
    """The option or setting that changes it, if it was not crawled."""
    waits: list[Wait] = field(default_factory=list)
    ahead: int | None = None
    came_from: list[str] = field(default_factory=list)
    """The pages that led here, the nearest first; empty: it is a seed."""
    from_seed: bool = True
    """Whether that chain begins with a seed, as far as it was followed."""
    page: dict[str, Any] | None = None
    robots: bool = True
    """Whether the job asks robots.txt."""


@dataclass(slots=True)
class UrlStory:
    """Everything about a URL."""

    now: datetime
    """By the database's clock."""
    url: str
    domain: str
    status: str
    entries: list[Entry]
    robots: Verdict
    attempts: list[dict[str, Any]]
    asked: str | None = None
    """The URL as it was asked for, where it is stored under another spelling."""
    dropped: list[DroppedParameter] = field(default_factory=list)
    """Its parameters that are dropped, each with the setting that says so."""


@dataclass(slots=True)
class DomainStory:
    """Everything about a domain that says why it is where it is."""

    now: datetime
    domain: str
    status: str
    status_reason: str | None
    source: str | None
    first_seen_at: datetime
    held_by: str | None
    held_until: datetime | None
    work: list[dict[str, Any]]
    """A row a job, each with what it waits for."""
    robots: list[dict[str, Any]]
    outcomes: list[dict[str, Any]]
    reasons: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains what is in one store."""

    database: Database
    rules: UrlRules
    registrable: bool = False
    user_agent: str = PRODUCT
    use: ProxyMode = ProxyMode.DIRECT
    """Which proxies a domain uses that says nothing."""
    direct: bool = False
    """Whether such a domain may be asked without one."""

    def url(self, text: str) -> UrlStory:
        """The story of a URL, written as in a seed file. NotFound says where else to look."""
        seed = make_seed(text, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            known = domains.ids(connection, [seed.domain])
            rows = explain.of_url(connection, known[0], seed.url_key) if known else []
            denied = [] if rows else self._denied(connection, seed.url_key)
            if not (rows or denied):
                raise NotFound(self._unknown(connection, seed.url, known))
            if not known:
                return self._outside(connection, text, seed, denied)
            domain = asdict(domain_queries.get(connection, seed.domain))
            robots = explain.robots_of(connection, domain["id"])
            moment = _moment(connection, domain)
            pool = self._pool(connection, domain["id"])
            return UrlStory(
                now=moment["now"],
                url=seed.url,
                domain=seed.domain,
                status=domain["status"],
                entries=[_entry(connection, row, domain, robots, moment, pool) for row in rows or denied],
                robots=self.verdict(seed.url, domain["user_agent"], robots),
                attempts=explain.attempts_on(connection, domain["id"], seed.url_key),
                asked=_asked(text, seed.url),
                dropped=dropped_parameters(text, self.rules) if _asked(text, seed.url) else [],
            )

    def _denied(self, connection: Connection, key: bytes) -> list[dict[str, Any]]:
        """Rows of a URL under other domains than its own: a link that is not followed is a row of the domain where it was met."""
        places = {row["domain_id"] for row in explain.elsewhere(connection, key)}
        return [row for place in sorted(places) for row in explain.of_url(connection, place, key)]

    def _outside(self, connection: Connection, text: str, seed: Seed, denied: list[dict[str, Any]]) -> UrlStory:
        """The story of a URL on a domain that no job crawls: what kept it out."""
        return UrlStory(
            now=explain.now(connection),
            url=seed.url,
            domain=seed.domain,
            status="not crawled by any job",
            entries=[_entry(connection, row, None, [], {}, None) for row in denied],
            robots=self.verdict(seed.url, None, []),
            attempts=[],
            asked=_asked(text, seed.url),
            dropped=dropped_parameters(text, self.rules) if _asked(text, seed.url) else [],
        )

    def domain(self, text: str) -> DomainStory:
        """The story of a domain; NotFound if there is none."""
        with self.database.session() as connection:
            domain = asdict(domain_queries.get(connection, canonical_domain(text, registrable=self.registrable)))
            robots = explain.robots_of(connection, domain["id"])
            moment = _moment(connection, domain)
            work = explain.of_domain(connection, domain["id"])
            pool = self._pool(connection, domain["id"])
            for row in work:
                row["waits"] = waits(domain, row, robots, moment, pool=pool) if row["waiting"] else []
            return DomainStory(
                now=moment["now"],
                domain=domain["domain"],
                status=domain["status"],
                status_reason=domain["status_reason"],
                source=domain["source"],
                first_seen_at=domain["first_seen_at"],
                held_by=domain["claimed_by"],
                held_until=domain["claim_expires_at"],
                work=work,
                robots=robots,
                outcomes=explain.outcomes_of(connection, domain["id"]),
                reasons=explain.reasons_of(connection, domain["id"]),
            )

    def _pool(self, connection: Connection, domain_id: int) -> PoolState:
        return proxy_pools.pool_state(connection, domain_id, default=self.use, direct=self.direct)

    def verdict(self, url: str, user_agent: str | None, robots: list[dict[str, Any]]) -> Verdict:
        """What the stored robots.txt of the URL's origin says of it."""
        address = f"{url[: url.index('/', 8)]}/robots.txt"
        token = product_token(user_agent or self.user_agent)
        stored = next((row for row in robots if row["url"] == address), None)
        if stored is None:
            return Verdict(address, None, None, True, None, None, None, token)
        absent = ALLOW_ALL if stored["reachable"] else UNREACHABLE
        rules = absent if stored["content"] is None else Robots(stored["content"])
        decision = rules.allowed(url, token)
        return Verdict(
            address,
            stored["fetched_at"],
            stored["status"],
            stored["reachable"],
            stored["problem"],
            decision.allowed,
            decision.line,
            token,
        )

    def _unknown(self, connection: Connection, url: str, known: list[int]) -> str:
        """Why a URL may not be known, and what is."""
        sentence = f"No job has discovered {url}"
        for spelling in _spellings(url):
            if known and explain.of_url(connection, known[0], url_key(spelling)):
                return f"{sentence}, but {spelling} is known: `holdfast explain {spelling}`."
        domain = "" if known else ", nor its domain"
        return (
            f"{sentence}{domain}: no link to it was found on the pages that were crawled so far (of each page the first "
            f"`crawl.links_per_page` links are read). `holdfast seeds add {url}` makes it known."
        )


def _moment(connection: Connection, domain: dict[str, Any]) -> dict[str, Any]:
    """The present, with the wait (`live`) that the worker tells of which holds the domain."""
    moment = explain.moment(connection, domain["id"], silence=SILENCE)
    if domain["claimed_by"]:
        activity = workers.activities(connection, silence=SILENCE).get(domain["claimed_by"], Activity())
        moment["live"] = next((wait for wait in activity.waits if wait.domain == domain["domain"]), None)
    return moment


def _entry(
    connection: Connection,
    row: dict[str, Any],
    domain: dict[str, Any] | None,
    robots: list[dict[str, Any]],
    moment: dict[str, Any],
    pool: PoolState | None,
) -> Entry:
    """A URL as one job sees it. `domain` None: the row is one that was denied, and waits for nothing."""
    page = explain.page_of(connection, row["domain_id"], row["job_id"], row["url_key"])
    reason, detail = why(row, page)
    waiting = row["state"] == "waiting"
    chain, from_seed = _chain(connection, row)
    return Entry(
        job=row["job"],
        state=row["state"],
        why=reason,
        detail=detail,
        row={name: value for name, value in row.items() if name not in {"url_key", "parent_key", "spec", "domain_id"}},
        change=why_not(row["reason"]).change if row["state"] in {"denied", "failed"} else None,
        waits=waits(domain, row, robots, moment, row, pool) if waiting and domain else [],
        ahead=explain.ahead_of(connection, row) if waiting else None,
        came_from=chain,
        from_seed=from_seed,
        page=page,
        robots=(row["spec"] or {}).get("robots", True),
    )


def _asked(text: str, url: str) -> str | None:
    """The URL as it was asked for, if it is stored under another spelling: parameters were dropped, for example."""
    return text if text.partition("://")[2] and text != url else None


def _chain(connection: Connection, row: dict[str, Any]) -> tuple[list[str], bool]:
    """The pages that led to a URL, the nearest first, and whether the last of them is a seed."""
    chain: list[str] = []
    foreign = 0
    domain_id, job_id, key = row["domain_id"], row["job_id"], row["parent_key"]
    while key is not None:
        if len(chain) == MOST_PARENTS:
            return chain, False
        parent = explain.row_of(connection, domain_id, job_id, key)
        if parent is None:
            foreign += 1
            if foreign > _MOST_FOREIGN:
                return chain, False
            parent = next(iter(explain.elsewhere(connection, key, job_id=job_id, limit=1)), None)
        if parent is None or parent["url"] in chain:
            return chain, False
        chain.append(parent["url"])
        domain_id, key = parent["domain_id"], parent["parent_key"]
    return chain, True


def _spellings(url: str) -> list[str]:
    """What a person may have meant: the other scheme, www. or not, with a slash at the end or without."""
    scheme, _, rest = url.partition("://")
    other = "http" if scheme == "https" else "https"
    site, slash, path = rest.partition("/")
    host = site.removeprefix("www.") if site.startswith("www.") else f"www.{site}"
    ends = [path, path.removesuffix("/") if path.endswith("/") else f"{path}/"] if path else [path]
    spellings = [f"{s}://{h}{slash}{end}" for end in ends for h in (site, host) for s in (scheme, other)]
    return [spelling for spelling in spellings if spelling != url]
