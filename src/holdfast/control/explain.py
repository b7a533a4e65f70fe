"""Explanations of the state of a URL or a domain: where it came from, how its requests ended, what it waits for.

The rule: only what the database holds. `control/explain_text` has the sentences.
"""

from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.control.explain_text import Wait, waits, why, why_not
from holdfast.db import domains, explain, workers
from holdfast.db.connection import Connection, Database
from holdfast.db.explain import Attempt, OutcomeCount, ReasonCount
from holdfast.domains import queries as domain_queries
from holdfast.errors import NotFound
from holdfast.images import queries as image_queries
from holdfast.images.records import UrlImage
from holdfast.model.activity import Activity
from holdfast.model.domain_name import canonical_domain
from holdfast.model.proxy import ProxyMode
from holdfast.model.record import record
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DroppedParameter, UrlRules, dropped_parameters, url_key
from holdfast.pages.records import LastResponse
from holdfast.politeness.robots_txt import ALLOW_ALL, PRODUCT, UNREACHABLE, Robots, product_token
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.records import PoolState
from holdfast.sitemaps import queries as sitemap_queries
from holdfast.sitemaps.records import ReadSitemap

MAX_PARENTS: Final = 10
_MAX_FOREIGN: Final = 3
"""Steps to a page on another domain: each is searched under all domains of the job."""
_NOT_SHOWN: Final = frozenset({"url_key", "parent_key", "spec", "domain_id"})
"""Columns of a URL's row that only the queries need."""
SILENCE: Final = timedelta(seconds=120)
"""A worker without a heartbeat for this long counts as dead."""


@record
class RobotsRuling:
    """What the robots.txt of a URL's origin says about the URL."""

    url: str
    fetched_at: datetime | None
    status: int | None
    reachable: bool
    problem: str | None
    allowed: bool | None
    """None: that robots.txt was not requested yet."""
    line: str | None
    """The line that decided."""
    agent: str


@record
class RobotsFile:
    """The robots.txt of an origin, as it was last fetched."""

    url: str
    status: int | None
    content: str | None
    reachable: bool
    problem: str | None
    fetched_at: datetime | None
    expires_at: datetime | None


@record
class JobWork:
    """The work of a job on a domain; its counts are null if the job has none there."""

    job_id: int
    job: str
    job_state: str
    work_state: str | None
    ready: bool | None
    work_not_before: datetime | None
    discovered: int | None
    waiting: int | None
    done: int | None
    denied: int | None
    failed: int | None
    limit_reached: str | None
    budget_limit: int | None
    yielded_until: datetime | None
    budget_used: int
    crawl_state: str | None
    max_pages: int | None
    pages_granted: int | None
    used_up: bool | None


@record
class DomainWork(JobWork):
    """The work of a job on a domain, and what it waits for."""

    spec: dict[str, Any] | None
    waits: list[Wait]


@record
class UrlWork(JobWork):
    """The row of a URL in the frontier, with the job's work on the domain."""

    url: str
    state: str
    kind: str
    reason: str | None
    depth: int
    hops: int
    priority: int
    attempts: int
    discovered_at: datetime
    not_before: datetime | None
    resource: str = "page"
    """What it is expected to lead to: `page`, `sitemap` (a sitemap, an index of sitemaps, or a feed), `image`, or `check` (a link that is
    checked only)."""
    listed: bool = False
    """A sitemap or a feed lists it."""
    lastmod: datetime | None = None
    """When it was last changed, as its sitemap says."""


@record
class UrlInJob:
    """A URL as one job knows it."""

    job: str
    state: str
    why: str
    detail: str | None
    row: UrlWork
    change: str | None
    """The option or setting that changes it, if it was not crawled."""
    waits: list[Wait]
    ahead: int | None
    """How many URLs of its domain a visit takes before it, if it waits."""
    came_from: list[str]
    """The pages that led here, the nearest first; empty: it is a seed."""
    from_seed: bool
    """Whether that chain begins with a seed, as far as it was followed."""
    page: LastResponse | None
    robots: bool
    """Whether the job obeys robots.txt."""
    found_in: str = "page"
    """What the nearest of `came_from` is: `page`, or `sitemap`."""
    sitemap: ReadSitemap | None = None
    """What was read, if it is a sitemap."""
    image: UrlImage | None = None
    """What it led to, if it is the URL of an image."""


@record
class UrlStory:
    """The explanation of a URL."""

    now: datetime
    """By the database's clock."""
    url: str
    domain: str
    status: str
    entries: list[UrlInJob]
    robots: RobotsRuling
    attempts: list[Attempt]
    asked: str | None = None
    """The URL as it was asked for, if it is stored under another spelling."""
    dropped: list[DroppedParameter] = field(default_factory=list)
    """Its parameters that are dropped, each with the setting that says so."""


@record
class DomainStory:
    """The explanation of a domain."""

    now: datetime
    domain: str
    status: str
    status_reason: str | None
    source: str | None
    first_seen_at: datetime
    held_by: str | None
    held_until: datetime | None
    work: list[DomainWork]
    robots: list[RobotsFile]
    outcomes: list[OutcomeCount]
    reasons: list[ReasonCount]


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains the state of URLs and domains of one database."""

    database: Database
    rules: UrlRules
    registrable: bool = False
    user_agent: str = PRODUCT
    use: ProxyMode = ProxyMode.DIRECT
    """Which proxies a domain without an own setting uses."""
    direct: bool = False
    """Whether such a domain may be crawled without a proxy."""

    def url(self, text: str) -> UrlStory:
        """Explain a URL, written as in a seed file. Raises NotFound, with a suggestion."""
        seed = make_seed(text, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            known = domains.ids(connection, [seed.domain])
            rows = explain.of_url(connection, known[0], seed.url_key) if known else []
            denied = [] if rows else self._denied(connection, seed.url_key)
            if not (rows or denied):
                raise NotFound(self._unknown(connection, seed.url, known))
            domain = (
                asdict(domain_queries.get(connection, seed.domain)) if known else None
            )  # None: no job crawls its domain
            robots = explain.robots_of(connection, domain["id"]) if domain else []
            moment = _moment(connection, domain) if domain else {"now": explain.now(connection)}
            pool = self._pool(connection, domain["id"]) if domain else None
            asked = _asked(text, seed.url)
            return UrlStory(
                now=moment["now"],
                url=seed.url,
                domain=seed.domain,
                status=domain["status"] if domain else "not crawled by any job",
                entries=[_entry(connection, row, domain, robots, moment, pool) for row in rows or denied],
                robots=self._robots_ruling(seed.url, domain["user_agent"] if domain else None, robots),
                attempts=explain.attempts_on(connection, domain["id"], seed.url_key) if domain else [],
                asked=asked,
                dropped=dropped_parameters(text, self.rules) if asked else [],
            )

    def _denied(self, connection: Connection, key: bytes) -> list[dict[str, Any]]:
        """Return rows of a URL under other domains than its own: a link that is not followed is a row of the domain whose page has it."""
        domain_ids = {row["domain_id"] for row in explain.elsewhere(connection, key)}
        return [row for domain_id in sorted(domain_ids) for row in explain.of_url(connection, domain_id, key)]

    def work(self, text: str) -> list[DomainWork]:
        """Return the work of each job on a domain, and what it waits for; unlike `domain`, quick on a domain of any size. Raises
        NotFound."""
        with self.database.session() as connection:
            domain = self._domain(connection, text)
            robots = explain.robots_of(connection, domain["id"])
            return self._work(connection, domain, robots, _moment(connection, domain))

    def domain(self, text: str) -> DomainStory:
        """Explain a domain. Raises NotFound."""
        with self.database.session() as connection:
            domain = self._domain(connection, text)
            robots = explain.robots_of(connection, domain["id"])
            moment = _moment(connection, domain)
            return DomainStory(
                now=moment["now"],
                domain=domain["domain"],
                status=domain["status"],
                status_reason=domain["status_reason"],
                source=domain["source"],
                first_seen_at=domain["first_seen_at"],
                held_by=domain["claimed_by"],
                held_until=domain["claim_expires_at"],
                work=self._work(connection, domain, robots, moment),
                robots=[RobotsFile(**row) for row in robots],
                outcomes=explain.outcomes_of(connection, domain["id"]),
                reasons=explain.reasons_of(connection, domain["id"]),
            )

    def _domain(self, connection: Connection, text: str) -> dict[str, Any]:
        return asdict(domain_queries.get(connection, canonical_domain(text, registrable=self.registrable)))

    def _work(
        self,
        connection: Connection,
        domain: dict[str, Any],
        robots: list[dict[str, Any]],
        moment: dict[str, Any],
    ) -> list[DomainWork]:
        pool = self._pool(connection, domain["id"])
        return [
            DomainWork(**row, waits=waits(domain, row, robots, moment, pool=pool) if row["waiting"] else [])
            for row in explain.of_domain(connection, domain["id"])
        ]

    def _pool(self, connection: Connection, domain_id: int) -> PoolState:
        return proxy_pools.pool_state(connection, domain_id, default=self.use, direct=self.direct)

    def _robots_ruling(self, url: str, user_agent: str | None, robots: list[dict[str, Any]]) -> RobotsRuling:
        """Return what the stored robots.txt of the URL's origin says about it."""
        address = f"{url[: url.index('/', 8)]}/robots.txt"
        token = product_token(user_agent or self.user_agent)
        stored = next((row for row in robots if row["url"] == address), None)
        if stored is None:
            return RobotsRuling(address, None, None, True, None, None, None, token)
        absent = ALLOW_ALL if stored["reachable"] else UNREACHABLE
        rules = absent if stored["content"] is None else Robots(stored["content"])
        decision = rules.allowed(url, token)
        return RobotsRuling(
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
        """Return a sentence about a URL that is not known, with a similar one that is."""
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
    """Return `db/explain.moment`, with the wait (`live`) that the holder of the domain has reported."""
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
) -> UrlInJob:
    """Return a URL as one job knows it. `domain` None: the row is of a denied link, which waits for nothing."""
    key, resource = row["url_key"], row["resource"]
    # What was a link before a page showed it as an image has a response from then, which says nothing about the image.
    page = None if resource == "image" else explain.last_response(connection, row["domain_id"], row["job_id"], key)
    reason, detail = why(row, page.outcome if page else None)
    waiting = row["state"] == "waiting"
    chain, found_in, from_seed = _chain(connection, row)
    return UrlInJob(
        job=row["job"],
        state=row["state"],
        why=reason,
        detail=detail,
        row=UrlWork(**{name: value for name, value in row.items() if name not in _NOT_SHOWN}),
        change=why_not(row["reason"]).change if row["state"] in {"denied", "failed"} else None,
        waits=waits(domain, row, robots, moment, row, pool) if waiting and domain else [],
        ahead=explain.ahead_of(connection, row) if waiting else None,
        came_from=chain,
        from_seed=from_seed,
        page=page,
        robots=(row["spec"] or {}).get("robots", True),
        found_in=found_in,
        sitemap=sitemap_queries.of_url(connection, row["domain_id"], row["job_id"], key)
        if resource == "sitemap"
        else None,
        image=image_queries.of_url(connection, key) if resource == "image" else None,
    )


def _asked(text: str, url: str) -> str | None:
    """Return the URL as it was asked for, if it is stored under another spelling: parameters were dropped, for example."""
    return text if text.partition("://")[2] and text != url else None


def _chain(connection: Connection, row: dict[str, Any]) -> tuple[list[str], str, bool]:
    """Return the pages that led to a URL, the nearest first, what that one is, and whether the last of them is a seed."""
    chain: list[str] = []
    foreign = 0
    found_in = "page"
    domain_id, job_id, key = row["domain_id"], row["job_id"], row["parent_key"]
    while key is not None:
        if len(chain) == MAX_PARENTS:
            return chain, found_in, False
        parent = explain.row_of(connection, domain_id, job_id, key)
        if parent is None:
            foreign += 1
            if foreign > _MAX_FOREIGN:
                return chain, found_in, False
            parent = next(iter(explain.elsewhere(connection, key, job_id=job_id, limit=1)), None)
        if parent is None or parent["url"] in chain:
            return chain, found_in, False
        found_in = found_in if chain else parent["resource"]
        chain.append(parent["url"])
        domain_id, key = parent["domain_id"], parent["parent_key"]
    return chain, found_in, True


def _spellings(url: str) -> list[str]:
    """Return other spellings of a URL: with the other scheme, with or without www. and a slash at the end."""
    scheme, _, rest = url.partition("://")
    other = "http" if scheme == "https" else "https"
    site, slash, path = rest.partition("/")
    host = site.removeprefix("www.") if site.startswith("www.") else f"www.{site}"
    ends = [path, path.removesuffix("/") if path.endswith("/") else f"{path}/"] if path else [path]
    spellings = [f"{s}://{h}{slash}{end}" for end in ends for h in (site, host) for s in (scheme, other)]
    return [spelling for spelling in spellings if spelling != url]
