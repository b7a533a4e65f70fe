"""Insert the URLs that a batch found into the frontier: of own (held) domains, of foreign (known, not held) domains, and of new ones.

The rule: a worker only inserts for domains that it does not hold: the domain itself, frontier rows, and a wake with their number.
New domains go in by name, known ones are locked FOR KEY SHARE by id, then all URLs in one statement by (domain, job, key): two
workers that found the same URLs never deadlock.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import psycopg

from holdfast.db import array_params, jobs
from holdfast.db.array_params import Row, RowType
from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.model.commit_batch import IMAGE_PRIORITY, DiscoveredUrl, Resource
from holdfast.model.outcome import JUDGED_AT_LINK, UrlState

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
        "resource": "text",
        "listed": "bool",
        "lastmod": "float8",
    },
    own={"url_key": "bytea", "parent_key": "bytea", "url": "text"},
)

_PAGE: Final = Resource.PAGE

_FOREIGN_COLUMN: Final = 7
"""Index of `foreign_to_us` among the common columns."""

_KNOWN: Final = "SELECT domain, id FROM domains WHERE domain = ANY(%(names)s)"
_WITH_WORK: Final = """
SELECT d.domain, jd.job_id FROM domains d JOIN job_domains jd ON jd.domain_id = d.id
WHERE d.domain = ANY(%(names)s) AND jd.job_id = ANY(%(jobs)s)
"""

# No other transaction knows a domain that this statement inserts: its work can be ready at once, and its URLs are new.
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
    SELECT fresh.id, j.id, priority_score, job_is_runnable(j), n.urls, n.urls
    FROM fresh JOIN unnest(%(work_names)s::text[], %(work_jobs)s::bigint[], %(work_urls)s::int[]) AS n(name, job, urls)
        ON n.name = fresh.domain JOIN crawl_jobs j ON j.id = n.job
)
SELECT domain, id FROM fresh
"""  # noqa: S608 — composed of constants only

# Makes the release of a domain wait for this transaction, so that none becomes exhausted while a URL for it is being inserted. Most
# links are known: their domains need no lock.
_SHARE: Final = """
SELECT d.id FROM domains d WHERE d.id IN (
    SELECT b.domain_id FROM unnest(%(rows)s::pg_temp.found_row[]) b WHERE b.foreign_to_us AND NOT EXISTS (
        SELECT FROM url_frontier f WHERE f.domain_id = b.domain_id AND f.job_id = b.job_id AND f.url_key = b.url_key))
ORDER BY d.id FOR KEY SHARE
"""

_INSERT: Final = """
WITH added AS (
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth, priority, hops, steps, barren, parent_key, state, reason,
                              resource, listed, lastmod)
    SELECT domain_id, job_id, url_key, url, depth, priority, hops, steps, barren, parent_key, state::frontier_state, reason,
           resource::url_resource, listed, to_timestamp(lastmod)
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

# Own rows that a sitemap lists and a link, or an earlier reading of the sitemap, brought before.
_LISTED: Final = """
UPDATE url_frontier f SET listed = true, lastmod = COALESCE(to_timestamp(b.lastmod), f.lastmod)
FROM unnest(%(rows)s::pg_temp.found_row[]) b
WHERE b.listed AND f.domain_id = b.domain_id AND f.job_id = b.job_id AND f.url_key = b.url_key
  AND (f.listed IS NOT TRUE OR to_timestamp(b.lastmod) <> COALESCE(f.lastmod, '-infinity'))
"""

_TEMPLATES: Final = """
INSERT INTO url_templates AS t (domain_id, job_id, template, urls)
SELECT * FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(templates)s::bigint[], %(urls)s::int[])
ON CONFLICT (domain_id, job_id, template) DO UPDATE SET urls = t.urls + excluded.urls
"""

# A shorter path to a known URL: the shortest path decides what depends on depth. And a URL that was denied because of the link where it
# was found (nofollow, too deep …) waits as soon as another link may be followed. Own rows only; no other worker changes them.
_NEARER: Final = f"""
WITH old AS MATERIALIZED (
    SELECT f.domain_id, f.job_id, f.url_key, f.state, b.depth, b.priority, b.parent_key, b.steps, b.barren
    FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(depths)s::smallint[], %(priorities)s::smallint[],
                %(parents)s::bytea[], %(steps)s::smallint[], %(barren)s::smallint[])
        AS b(domain_id, job_id, url_key, depth, priority, parent_key, steps, barren)
    JOIN url_frontier f ON f.domain_id = b.domain_id AND f.job_id = b.job_id AND f.url_key = b.url_key
    WHERE ((b.depth < f.depth AND f.state = 'waiting') OR (f.state = 'denied' AND split_part(f.reason, ':', 1) = ANY(%(judged)s::text[])))
      AND (b.priority > {IMAGE_PRIORITY} OR f.resource = 'image')
), nearer AS (
    UPDATE url_frontier f SET depth = o.depth, priority = GREATEST(f.priority, o.priority), parent_key = o.parent_key,
        steps = o.steps, barren = o.barren, state = 'waiting', reason = CASE WHEN f.state = 'waiting' THEN f.reason END
    FROM old o WHERE f.domain_id = o.domain_id AND f.job_id = o.job_id AND f.url_key = o.url_key
)
SELECT domain_id, job_id, count(*) FROM old WHERE state = 'denied' GROUP BY domain_id, job_id
"""  # noqa: S608 — composed of a constant only


_Link = tuple[int, DiscoveredUrl]
"""The domain of the page that has the link, and the URL."""
_Key = tuple[int, int, bytes]
"""Domain, job and key of a URL."""
_DENIED_AT_LINK: Final = sorted(JUDGED_AT_LINK)
_KEY_BYTES: Final = 16
"""Bytes of a key; the schema checks it."""


@dataclass(frozen=True, slots=True)
class Added:
    """Rows added to the frontier for one job on one held domain; a row that is no longer denied counts as minus one."""

    waiting: int
    denied: int


@dataclass(slots=True)
class Enqueued:
    """Rows that a batch really added to the frontier."""

    own: dict[tuple[int, int], Added] = field(default_factory=dict)
    """By (domain, job), of domains that are held."""
    same_domain: Counter[int] = field(default_factory=Counter)
    """By the domain of the page that has the link: new URLs that wait, on the same domain."""
    other_domains: Counter[int] = field(default_factory=Counter)
    """By the domain of the page that has the link: new URLs that wait, on other domains."""
    known_images: list[_Key] = field(default_factory=list)
    """URLs of images that were in the frontier before, perhaps as links."""
    templates: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """By (domain, job, template), of domains that are held: new URLs that are counted by their template."""


def add(
    connection: psycopg.Connection,
    found: Iterable[tuple[int, DiscoveredUrl]],
    *,
    own: Collection[int],
    defaults: NewDomains,
) -> Enqueued:
    """Insert found URLs, each with the id of the domain where its link was; returns what was really added.

    Before: the domains `own` passed the fence of this transaction, which has touched no frontier row yet; `ROW` is prepared.
    After (with its commit): every URL is in the frontier once; new domains are ready, known ones that are not `own` have a wake.
    The caller raises the counters of `own` domains. Of a foreign domain only waiting URLs are kept: its holder decides which are
    denied.
    """
    rows = _without_unknown_domains(connection, _deduplicate(found))
    result = Enqueued()
    if not rows:
        return result
    ids, fresh = _find_or_insert_domains(
        connection, {name for name, _, _ in rows if isinstance(name, str)}, rows, defaults
    )
    # The same URL may be found on its own domain and on another held domain: it is one row.
    placed: dict[_Key, _Link] = {}
    for (place, job_id, url_key), link in rows.items():
        domain_id = ids.get(place) if isinstance(place, str) else place
        if domain_id is not None:  # else it was deleted at this moment
            _keep_shallowest(placed, (domain_id, job_id, url_key), link)
    batch, foreign, others = _rows(placed, own, fresh)
    packed = ROW.array(connection, batch)
    shared = [row[0] for row in connection.execute(_SHARE, {"rows": packed})] if foreign else []
    # Only with these locks is it certain that no other transaction deletes a deleted job's URLs on them meanwhile.
    if shared and (dead := jobs.dead(connection, {job_id for _, job_id, _ in placed})):
        packed = ROW.array(connection, [row for row in batch if not (row[0][_FOREIGN_COLUMN] and row[0][1] in dead)])
    parameters = {"rows": packed, "shared": array_params.numbers(shared)}
    added = result.own
    new: set[_Key] = set()
    for domain_id, job_id, waiting, denied, keys in connection.execute(_INSERT, parameters):
        if domain_id in own:
            added[domain_id, job_id] = Added(waiting, denied)
        for i in range(0, len(keys), _KEY_BYTES):
            key = (domain_id, job_id, keys[i : i + _KEY_BYTES])
            new.add(key)
            source, url = placed[key]
            if url.template is not None and domain_id in own:
                result.templates[domain_id, job_id, url.template] += 1
            # The flood guard is for pages that make up links. A sitemap has an end, and lists what its owner wants to be crawled.
            if not others or (not url.listed and url.resource is not Resource.CHECK):
                (result.same_domain if source == domain_id else result.other_domains)[source] += 1
    _count_templates(connection, result.templates)
    known = {
        key: url
        for key, (_, url) in placed.items()
        if url.state is UrlState.WAITING and key[0] in own and key not in new
    }
    if others:
        result.known_images = [
            key for key, (_, url) in placed.items() if url.resource is Resource.IMAGE and key not in new
        ]
        _mark_listed(
            connection, [row for row, key in zip(batch, placed, strict=True) if key in known and known[key].listed]
        )
    for domain_id, job_id, revived in _shorten_paths(connection, known):
        one = added.get((domain_id, job_id), Added(0, 0))
        added[domain_id, job_id] = Added(one.waiting + revived, one.denied - revived)
    return result


def _mark_listed(connection: psycopg.Connection, rows: list[Row]) -> None:
    """Store that a sitemap lists these known URLs, and when they were last changed."""
    if rows:
        connection.execute(_LISTED, {"rows": ROW.array(connection, rows)})


def _rows(placed: Mapping[_Key, _Link], own: Collection[int], fresh: Collection[int]) -> tuple[list[Row], bool, bool]:
    """The rows in the column order of ROW, whether any is for a domain that is neither held nor new, and whether any is no plain page."""
    foreign = others = False
    rows: list[Row] = []
    for (domain_id, job_id, url_key), (_, url) in placed.items():
        theirs = domain_id not in own and domain_id not in fresh
        foreign = foreign or theirs
        resource, listed, lastmod = None, None, None
        if url.resource is not _PAGE or url.listed:  # few rows; a call for each of the others was noticed
            others = True
            resource, listed, lastmod = _beside_links(url)
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
            resource,
            listed,
            lastmod,
        )
        rows.append((common, (url_key, url.parent_key, url.url)))
    return rows, foreign, others


def _beside_links(url: DiscoveredUrl) -> tuple[Resource | None, bool | None, float | None]:
    """The columns `resource`, `listed` and `lastmod` of a URL that is no page, or that a sitemap lists; of all others they are null."""
    resource = None if url.resource is _PAGE else url.resource
    return resource, url.listed or None, None if url.lastmod is None else url.lastmod.timestamp()


def _count_templates(connection: psycopg.Connection, templates: Mapping[tuple[int, int, int], int]) -> None:
    """Raise the counts of templates. Before: the domains are held."""
    if templates:
        rows = sorted(templates.items())
        parameters = {
            "domains": array_params.numbers(key[0] for key, _ in rows),
            "jobs": array_params.numbers(key[1] for key, _ in rows),
            "templates": array_params.numbers(key[2] for key, _ in rows),
            "urls": array_params.numbers(urls for _, urls in rows),
        }
        connection.execute(_TEMPLATES, parameters)


def _shorten_paths(connection: psycopg.Connection, known: Mapping[_Key, DiscoveredUrl]) -> list[tuple[int, int, int]]:
    """Store shorter paths to known URLs; returns by domain and job how many are no longer denied."""
    if not known:
        return []
    parameters = {
        "domains": array_params.numbers(key[0] for key in known),
        "jobs": array_params.numbers(key[1] for key in known),
        "keys": array_params.keys(key[2] for key in known),
        "depths": array_params.numbers(url.depth for url in known.values()),
        "priorities": array_params.numbers(url.priority for url in known.values()),
        "parents": array_params.keys(url.parent_key for url in known.values()),
        "steps": array_params.numbers(url.steps for url in known.values()),
        "barren": array_params.numbers(url.barren for url in known.values()),
        "judged": _DENIED_AT_LINK,
    }
    return connection.execute(_NEARER, parameters).fetchall()


def _without_unknown_domains(connection: psycopg.Connection, rows: "_Rows") -> "_Rows":
    """Leave out the URLs that are for domains with URLs of their job only, and are on others."""
    asked = {(name, job_id) for (name, job_id, _), (_, url) in rows.items() if url.known_only and isinstance(name, str)}
    if not asked:
        return rows
    parameters = {"names": list({name for name, _ in asked}), "jobs": list({job_id for _, job_id in asked})}
    unknown = asked - set(connection.execute(_WITH_WORK, parameters).fetchall())
    return {key: link for key, link in rows.items() if not link[1].known_only or (key[0], key[1]) not in unknown}


_KeyType = TypeVar("_KeyType")
_Rows = dict[tuple[int | str, int, bytes], _Link]
"""By (id of an own domain or name of another, job, key)."""


def _deduplicate(found: Iterable[tuple[int, DiscoveredUrl]]) -> _Rows:
    """One link per key. Of a foreign domain only waiting URLs: its holder decides which are denied."""
    rows: _Rows = {}
    for link in found:
        domain_id, url = link
        if url.domain is None or url.state is UrlState.WAITING:
            _keep_shallowest(rows, (url.domain or domain_id, url.job_id, url.url_key), link)
    return rows


def _keep_shallowest(rows: dict[_KeyType, _Link], key: _KeyType, link: _Link) -> None:
    """Keep the link of lowest depth per key; a waiting one wins over a denied one."""
    known = rows.get(key)
    if known is None or _rank(link[1]) < _rank(known[1]):
        rows[key] = link


def _rank(url: DiscoveredUrl) -> tuple[bool, int]:
    return url.state is not UrlState.WAITING, url.depth


def _find_or_insert_domains(
    connection: psycopg.Connection, names: set[str], rows: _Rows, defaults: NewDomains
) -> tuple[dict[str, int], set[int]]:
    """The ids of the domains called `names`, and which of them this transaction inserted."""
    if not names:
        return {}, set()
    ids: dict[str, int] = dict(connection.execute(_KNOWN, {"names": list(names)}).fetchall())
    unknown = names - ids.keys()
    if not unknown:
        return ids, set()
    made = _insert_domains(connection, unknown, rows, defaults)
    ids |= made
    # Rows that another transaction inserted at the same moment are visible only to the next statement.
    if missing := names - ids.keys():
        ids |= dict(connection.execute(_KNOWN, {"names": list(missing)}).fetchall())
    return ids, set(made.values())


def _insert_domains(
    connection: psycopg.Connection, names: set[str], rows: _Rows, defaults: NewDomains
) -> dict[str, int]:
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
