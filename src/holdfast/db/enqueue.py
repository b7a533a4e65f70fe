"""URLs that a batch found, into the frontier: of domains that are held, of known ones that are not, and of new ones.

The rule: whoever does not hold a domain only ever inserts for it: the domain itself, rows of the frontier, and a wake that says how
many. New domains go in by name, known ones are shared by id, then all URLs in one statement by (domain, job, key): two workers
that found the same things never wait for each other in a circle.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import psycopg

from holdfast.model.batch import FoundUrl
from holdfast.model.outcome import JUDGED_AT_LINK, UrlState
from holdfast.store import arrays, jobs
from holdfast.store.arrays import Row, RowType
from holdfast.store.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains

ROW: Final = RowType(
    "found_row",
    common={
        "domain_id": "int8",
        "job_id": "int8",
        "depth": "int2",
        "priority": "int2",
        "hops": "int2",
        "steps": "int2",
        "barren": "int2",
        "foreign_to_us": "bool",
        "state": "text",
        "reason": "text",
    },
    own={"url_key": "bytea", "parent_key": "bytea", "url": "text"},
)

_THEIRS: Final = 7
"""The place of `foreign_to_us` among the common columns."""

_KNOWN: Final = "SELECT domain, id FROM domains WHERE domain = ANY(%(names)s)"

# A domain that this very statement inserts is unknown to everybody else: its work can be ready at once, and its URLs are new.
_FRESH: Final = f"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%(names)s::text[], %(parents)s::text[], %(bases)s::text[], %(urls)s::int[]) AS w(name, parent, base, urls)
), fresh AS (
    INSERT INTO domains (domain, parent_domain, base_url, source, pages_discovered, frontier_size, frontier_updated_at,
                         priority_score, priority_computed_at, {TREATMENT_COLUMNS})
    SELECT name, parent, base, 'link', urls, urls, now(),
           LEAST(urls, 500) * 2 - staleness_points(now() - interval '30 days'), now(),
           {TREATMENT_VALUES}
    FROM wanted ORDER BY name COLLATE "C"
    ON CONFLICT (domain) DO NOTHING
    RETURNING id, domain, priority_score
), work AS (
    INSERT INTO job_domains (domain_id, job_id, priority, ready, discovered, waiting)
    SELECT fresh.id, j.id, priority_score, j.state IN ('pending', 'processing'), n.urls, n.urls
    FROM fresh JOIN unnest(%(work_names)s::text[], %(work_jobs)s::bigint[], %(work_urls)s::int[]) AS n(name, job, urls)
        ON n.name = fresh.domain JOIN crawl_jobs j ON j.id = n.job
)
SELECT domain, id FROM fresh
"""  # noqa: S608 — composed of constants only

# Makes the release of a domain wait for us, so that none becomes exhausted while a URL for it is on its way. Most links are known:
# their domains need no lock.
_SHARE: Final = """
SELECT d.id FROM domains d WHERE d.id IN (
    SELECT b.domain_id FROM unnest(%(rows)s::pg_temp.found_row[]) b WHERE b.foreign_to_us AND NOT EXISTS (
        SELECT FROM url_frontier f WHERE f.domain_id = b.domain_id AND f.job_id = b.job_id AND f.url_key = b.url_key))
ORDER BY d.id FOR KEY SHARE
"""

_INSERT: Final = """
WITH added AS (
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth, priority, hops, steps, barren, parent_key, state, reason)
    SELECT domain_id, job_id, url_key, url, depth, priority, hops, steps, barren, parent_key, state::frontier_state, reason
    FROM unnest(%(rows)s::pg_temp.found_row[]) WHERE NOT foreign_to_us OR domain_id = ANY(%(shared)s::bigint[])
    ORDER BY domain_id, job_id, url_key
    ON CONFLICT DO NOTHING
    RETURNING domain_id, job_id, url_key, state
), woken AS (
    INSERT INTO domain_wakes (domain_id, job_id, inserted)
    SELECT domain_id, job_id, count(*) FROM added WHERE domain_id = ANY(%(shared)s::bigint[])
    GROUP BY domain_id, job_id ORDER BY domain_id, job_id
)
SELECT domain_id, job_id, count(*) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'denied'),
       COALESCE(string_agg(url_key, ''::bytea) FILTER (WHERE state = 'waiting'), ''::bytea)
FROM added GROUP BY domain_id, job_id
"""

_TEMPLATES: Final = """
INSERT INTO url_templates AS t (domain_id, job_id, template, urls)
SELECT * FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(templates)s::bigint[], %(urls)s::int[])
ON CONFLICT (domain_id, job_id, template) DO UPDATE SET urls = t.urls + excluded.urls
"""

# A shorter way to a URL that is known: what depends on its depth is judged by the shortest. And a URL that was denied because of the
# link where it was met (nofollow, too deep …) waits as soon as another link may be followed. Own rows only; nobody else changes them.
_NEARER: Final = """
WITH old AS MATERIALIZED (
    SELECT f.domain_id, f.job_id, f.url_key, f.state, b.depth, b.priority, b.parent_key, b.steps, b.barren
    FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(depths)s::smallint[], %(priorities)s::smallint[],
                %(parents)s::bytea[], %(steps)s::smallint[], %(barren)s::smallint[])
        AS b(domain_id, job_id, url_key, depth, priority, parent_key, steps, barren)
    JOIN url_frontier f ON f.domain_id = b.domain_id AND f.job_id = b.job_id AND f.url_key = b.url_key
    WHERE (b.depth < f.depth AND f.state = 'waiting') OR (f.state = 'denied' AND split_part(f.reason, ':', 1) = ANY(%(judged)s::text[]))
), nearer AS (
    UPDATE url_frontier f SET depth = o.depth, priority = GREATEST(f.priority, o.priority), parent_key = o.parent_key,
        steps = o.steps, barren = o.barren, state = 'waiting', reason = CASE WHEN f.state = 'waiting' THEN f.reason END
    FROM old o WHERE f.domain_id = o.domain_id AND f.job_id = o.job_id AND f.url_key = o.url_key
)
SELECT domain_id, job_id, count(*) FROM old WHERE state = 'denied' GROUP BY domain_id, job_id
"""


_Link = tuple[int, FoundUrl]
"""The domain of the page that has the link, and the URL."""
_Key = tuple[int, int, bytes]
"""Domain, job and key of a URL."""
_JUDGED: Final = sorted(JUDGED_AT_LINK)
_KEY: Final = 16
"""Bytes of a key; the schema checks it."""


@dataclass(frozen=True, slots=True)
class Added:
    """Rows that the frontier got for one job on one domain that is held; a row that is denied no more counts as one less."""

    waiting: int
    denied: int


@dataclass(slots=True)
class Enqueued:
    """What the frontier really got from a batch."""

    own: dict[tuple[int, int], Added] = field(default_factory=dict)
    """By (domain, job), of domains that are held."""
    here: Counter[int] = field(default_factory=Counter)
    """By the domain of the page that has the link: new URLs that wait, on the same domain."""
    elsewhere: Counter[int] = field(default_factory=Counter)
    """The same, on other domains."""
    templates: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """By (domain, job, template), of domains that are held: new URLs that are counted by their template."""


def add(
    connection: psycopg.Connection,
    found: Iterable[tuple[int, FoundUrl]],
    *,
    own: Collection[int],
    defaults: NewDomains,
) -> Enqueued:
    """Insert what was found, each with the id of the domain on which; what was really added.

    Before: the domains `own` passed the fence of this transaction, which has touched no frontier row yet; `ROW` is prepared.
    After (with its commit): every URL is in the frontier once; new domains are ready, known ones that are not `own` have a wake.
    The counters of `own` domains are the caller's to raise. Of a foreign domain only URLs that wait are kept: why one is denied
    is for its holder to say.
    """
    rows = _without_repeats(found)
    result = Enqueued()
    if not rows:
        return result
    ids, fresh = _domains(connection, {name for name, _, _ in rows if isinstance(name, str)}, rows, defaults)
    # A URL may be met at home and on another domain that is held as well, which names its own: it is one row.
    placed: dict[_Key, _Link] = {}
    for (place, job_id, url_key), link in rows.items():
        domain_id = ids.get(place) if isinstance(place, str) else place
        if domain_id is not None:  # else it was deleted at this moment
            _keep_nearest(placed, (domain_id, job_id, url_key), link)
    foreign = False
    batch: list[Row] = []
    for (domain_id, job_id, url_key), (_, url) in placed.items():
        theirs = domain_id not in own and domain_id not in fresh
        foreign = foreign or theirs
        common = (
            domain_id,
            job_id,
            url.depth,
            url.priority,
            url.hops,
            url.steps,
            url.barren,
            theirs,
            url.state,
            url.reason,
        )
        batch.append((common, (url_key, url.parent_key, url.url)))
    packed = ROW.array(connection, batch)
    shared = [row[0] for row in connection.execute(_SHARE, {"rows": packed})] if foreign else []
    # Only now is it certain that nobody forgets a deleted job's URLs on them behind our back.
    if shared and (dead := jobs.dead(connection, {job_id for _, job_id, _ in placed})):
        packed = ROW.array(connection, [row for row in batch if not (row[0][_THEIRS] and row[0][1] in dead)])
    parameters = {"rows": packed, "shared": arrays.numbers(shared)}
    added = result.own
    new: set[_Key] = set()
    for domain_id, job_id, waiting, denied, keys in connection.execute(_INSERT, parameters):
        if domain_id in own:
            added[domain_id, job_id] = Added(waiting, denied)
        for i in range(0, len(keys), _KEY):
            key = (domain_id, job_id, keys[i : i + _KEY])
            new.add(key)
            source, url = placed[key]
            if url.template is not None and domain_id in own:
                result.templates[domain_id, job_id, url.template] += 1
            (result.here if source == domain_id else result.elsewhere)[source] += 1
    _count_templates(connection, result.templates)
    known = {
        key: url
        for key, (_, url) in placed.items()
        if url.state is UrlState.WAITING and key[0] in own and key not in new
    }
    for domain_id, job_id, revived in _bring_nearer(connection, known):
        one = added.get((domain_id, job_id), Added(0, 0))
        added[domain_id, job_id] = Added(one.waiting + revived, one.denied - revived)
    return result


def _count_templates(connection: psycopg.Connection, templates: Mapping[tuple[int, int, int], int]) -> None:
    """Raise the counts of templates. Before: the domains are held."""
    if templates:
        rows = sorted(templates.items())
        parameters = {
            "domains": arrays.numbers(key[0] for key, _ in rows),
            "jobs": arrays.numbers(key[1] for key, _ in rows),
            "templates": arrays.numbers(key[2] for key, _ in rows),
            "urls": arrays.numbers(urls for _, urls in rows),
        }
        connection.execute(_TEMPLATES, parameters)


def _bring_nearer(connection: psycopg.Connection, known: Mapping[_Key, FoundUrl]) -> list[tuple[int, int, int]]:
    """Shorten the ways to URLs that were known; by domain and job, how many are denied no more."""
    if not known:
        return []
    parameters = {
        "domains": arrays.numbers(key[0] for key in known),
        "jobs": arrays.numbers(key[1] for key in known),
        "keys": arrays.keys(key[2] for key in known),
        "depths": arrays.numbers(url.depth for url in known.values()),
        "priorities": arrays.numbers(url.priority for url in known.values()),
        "parents": arrays.keys(url.parent_key for url in known.values()),
        "steps": arrays.numbers(url.steps for url in known.values()),
        "barren": arrays.numbers(url.barren for url in known.values()),
        "judged": _JUDGED,
    }
    return connection.execute(_NEARER, parameters).fetchall()


_Any = TypeVar("_Any")
_Rows = dict[tuple[int | str, int, bytes], _Link]
"""By (id of an own domain or name of another, job, key)."""


def _without_repeats(found: Iterable[tuple[int, FoundUrl]]) -> _Rows:
    """One for each key. Of a foreign domain only those that wait: why one is denied is for its holder to say."""
    rows: _Rows = {}
    for link in found:
        domain_id, url = link
        if url.domain is None or url.state is UrlState.WAITING:
            _keep_nearest(rows, (url.domain or domain_id, url.job_id, url.url_key), link)
    return rows


def _keep_nearest(rows: dict[_Any, _Link], key: _Any, link: _Link) -> None:
    """The nearest of those with one key; one that may be asked for before one that is denied."""
    known = rows.get(key)
    if known is None or _rank(link[1]) < _rank(known[1]):
        rows[key] = link


def _rank(url: FoundUrl) -> tuple[bool, int]:
    return url.state is not UrlState.WAITING, url.depth


def _domains(
    connection: psycopg.Connection, names: set[str], rows: _Rows, defaults: NewDomains
) -> tuple[dict[str, int], set[int]]:
    """The ids of the domains called `names`, and which of them this transaction has made."""
    if not names:
        return {}, set()
    ids: dict[str, int] = dict(connection.execute(_KNOWN, {"names": list(names)}).fetchall())
    unknown = names - ids.keys()
    if not unknown:
        return ids, set()
    made = _make(connection, unknown, rows, defaults)
    ids |= made
    # What somebody else made at the same moment is seen by the next statement only.
    if missing := names - ids.keys():
        ids |= dict(connection.execute(_KNOWN, {"names": list(missing)}).fetchall())
    return ids, set(made.values())


def _make(connection: psycopg.Connection, names: set[str], rows: _Rows, defaults: NewDomains) -> dict[str, int]:
    homes: dict[str, tuple[str, str]] = {}
    work: Counter[tuple[str, int]] = Counter()
    for (name, job_id, _), (_, url) in rows.items():
        if isinstance(name, str) and name in names:
            homes[name] = (url.parent_domain or name, url.base_url or f"https://{name}")
            work[name, job_id] += 1
    urls: Counter[str] = Counter()
    for (name, _), count in work.items():
        urls[name] += count
    parameters = {
        "names": list(homes),
        "parents": [parent for parent, _ in homes.values()],
        "bases": [base for _, base in homes.values()],
        "urls": [urls[name] for name in homes],
        "work_names": [name for name, _ in work],
        "work_jobs": [job_id for _, job_id in work],
        "work_urls": list(work.values()),
        **defaults.columns(),
    }
    return dict(connection.execute(_FRESH, parameters).fetchall())
