"""SQL of links: pages by their targets, answers of targets, orphans, counts. What crawls write is in `db/page_links`.

The rule: a statement reads a chunk by its key, or what an index finds; only `degrees` and `summary` read all pages of a job.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import psycopg

from holdfast.db import array_params
from holdfast.db.rows import by_name, select_list
from holdfast.links.records import Answer, LinkSummary, Orphan, StoredPage, UncheckedTarget
from holdfast.model.outcome import Outcome
from holdfast.model.page_links import is_broken

Key = tuple[int, bytes]
"""A position in a report: domain and key of a URL."""
START: Final[Key] = (0, b"")

HUB: Final = 10_000
"""Pages of a job from which on a target that they link to is a hub: its pages are found by a walk through all of them."""
_SOME: Final = 1_001
"""Pages that are looked at for the jobs that link to a target."""
_NEWER_JOBS: Final = 20

# From one job to the next in the index: a subquery for each of many jobs would read all pages for each that has none.
_NEWER: Final = """
WITH RECURSIVE recording AS (
    (SELECT job_id FROM page_links WHERE job_id > %(job)s ORDER BY job_id DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT p.job_id FROM page_links p WHERE p.job_id < r.job_id AND p.job_id > %(job)s ORDER BY p.job_id DESC LIMIT 1)
    FROM recording r WHERE r.job_id IS NOT NULL)
SELECT j.id, j.name FROM recording r JOIN crawl_jobs j ON j.id = r.job_id WHERE j.deleted_at IS NULL ORDER BY j.id DESC LIMIT %(limit)s
"""
# Up to a number of pages, by whatever way the planner finds them: a million may link to the first page of their site.
_JOBS_OF_SOME: Final = """
SELECT job_id, count(*) FROM (SELECT job_id FROM page_links WHERE targets @> ARRAY[%(number)s::bigint] LIMIT %(limit)s) p GROUP BY job_id
"""
_NEWEST_OF: Final = """
SELECT id, name FROM crawl_jobs WHERE id = ANY(%(jobs)s::bigint[]) AND deleted_at IS NULL ORDER BY id DESC LIMIT 1
"""
_IS_LINKING: Final = (
    "SELECT EXISTS (SELECT FROM page_links p WHERE p.job_id = %(job)s AND p.targets @> ARRAY[%(number)s::bigint])"
)
_ANSWER: Final = select_list(Answer, "a", domain="d.domain")
_ANSWERS: Final = f"""
SELECT {_ANSWER} FROM link_answers a JOIN domains d ON d.id = a.domain_id
WHERE a.job_id = %(job)s AND (a.domain_id, a.url_key) > (%(domain)s, %(key)s) {{only}}
ORDER BY a.domain_id, a.url_key LIMIT %(limit)s
"""  # noqa: S608 — constants
_ANSWERS_OF: Final = f"""
SELECT {_ANSWER} FROM unnest(%(names)s::text[], %(keys)s::bytea[]) AS t(name, key)
JOIN domains d ON d.domain = t.name JOIN link_answers a ON a.domain_id = d.id AND a.job_id = %(job)s AND a.url_key = t.key
"""  # noqa: S608 — constants
_URLS_OF: Final = """
SELECT d.domain, f.url_key, f.state::text, f.reason FROM unnest(%(names)s::text[], %(keys)s::bytea[]) AS t(name, key)
JOIN domains d ON d.domain = t.name JOIN url_frontier f ON f.domain_id = d.id AND f.job_id = %(job)s AND f.url_key = t.key
"""
_PAGE: Final = select_list(StoredPage, "p", domain="d.domain", url="f.url", places="NULL::bytea")
_JOINS: Final = """
JOIN url_frontier f ON f.domain_id = p.domain_id AND f.job_id = p.job_id AND f.url_key = p.url_key JOIN domains d ON d.id = p.domain_id
"""
# `+ 0` keeps the planner from walking all pages in their order where it believes that many have the target.
_LINKING: Final = f"""
SELECT {_PAGE} FROM (
    SELECT * FROM page_links p
    WHERE p.job_id = %(job)s AND p.targets @> ARRAY[%(number)s::bigint] AND (p.domain_id, p.url_key) > (%(domain)s, %(key)s)
    ORDER BY p.domain_id + 0, p.url_key LIMIT %(limit)s
) p {_JOINS} ORDER BY p.domain_id, p.url_key
"""  # noqa: S608 — constants
# All of a target that many pages link to would be read and sorted for this: the walk meets them soon.
_LINKING_TO_HUB: Final = _LINKING.replace("p.domain_id + 0, p.url_key", "p.domain_id, p.url_key", 1)
# Neither sorted nor counted whole: a million pages may link to the first page of their site.
_SOME_LINKING: Final = f"""
SELECT {_PAGE} FROM (
    SELECT * FROM page_links p WHERE p.job_id = %(job)s AND p.targets @> ARRAY[%(number)s::bigint] LIMIT %(limit)s
) p {_JOINS}
"""  # noqa: S608 — constants
_COUNT_SOME: Final = """
SELECT count(*) FROM (
    SELECT FROM page_links p WHERE p.job_id = %(job)s AND p.targets @> ARRAY[%(number)s::bigint] LIMIT %(limit)s) first
"""
_COUNT_LINKING: Final = """
SELECT n, (SELECT count(*) FROM page_links p WHERE p.job_id = %(job)s AND p.targets @> ARRAY[n]) FROM unnest(%(numbers)s::bigint[]) n
"""
_PAGES: Final = f"""
SELECT {_PAGE} FROM (
    SELECT * FROM page_links p WHERE p.job_id = %(job)s AND (p.domain_id, p.url_key) > (%(domain)s, %(key)s)
    ORDER BY p.domain_id, p.url_key LIMIT %(limit)s
) p {_JOINS} ORDER BY p.domain_id, p.url_key
"""  # noqa: S608 — constants
_ONE: Final = f"""
SELECT {_PAGE} FROM page_links p {_JOINS} WHERE d.domain = %(name)s AND p.job_id = %(job)s AND p.url_key = %(key)s
"""  # noqa: S608 — constants
_JOB_OF_PAGE: Final = """
SELECT j.id, j.name FROM domains d JOIN page_links p ON p.domain_id = d.id AND p.url_key = %(key)s
JOIN crawl_jobs j ON j.id = p.job_id AND j.deleted_at IS NULL WHERE d.domain = %(name)s ORDER BY j.id DESC LIMIT 1
"""
_PLACES: Final = """
SELECT d.domain, p.url_key, p.places FROM unnest(%(names)s::text[], %(keys)s::bytea[]) AS t(name, key)
JOIN domains d ON d.domain = t.name JOIN page_links p ON p.domain_id = d.id AND p.job_id = %(job)s AND p.url_key = t.key
WHERE p.places IS NOT NULL
"""
# The job's domains one by one, so that each chunk is a range of the frontier's key.
_NAMED: Final = f"""
SELECT f.domain_id, f.url_key, {
    select_list(
        Orphan,
        "f",
        domain="d.domain",
        listed="COALESCE(f.listed, false)",
        seed="f.depth = 0 AND f.hops = 0",
        state="f.state::text",
        outcome="p.outcome",
    )
}
FROM (SELECT f.* FROM url_frontier f WHERE f.job_id = %(job)s AND f.domain_id = %(domain)s AND f.url_key > %(key)s
      AND (f.listed OR f.depth = 0) AND f.resource IS NULL ORDER BY f.url_key LIMIT %(limit)s) f
JOIN domains d ON d.id = f.domain_id
LEFT JOIN crawled_pages p ON p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.url_key
ORDER BY f.url_key
"""  # noqa: S608 — constants
_LINKED: Final = """
SELECT n FROM unnest(%(numbers)s::bigint[]) n WHERE EXISTS (SELECT FROM page_links p WHERE p.targets @> ARRAY[n] AND p.job_id = %(job)s)
"""
_MOVED_TO: Final = "SELECT url, moved_to FROM link_answers WHERE job_id = %(job)s AND moved_to = ANY(%(urls)s::text[])"
_LEFT: Final = f"""
SELECT f.domain_id, f.url_key, {
    select_list(
        UncheckedTarget,
        "f",
        domain="d.domain",
        state="f.state::text",
        reason="COALESCE(f.reason, 'waits for its turn')",
    )
}
FROM (SELECT f.* FROM url_frontier f WHERE f.job_id = %(job)s AND f.domain_id = %(domain)s AND f.url_key > %(key)s
      AND f.state IN ('waiting', 'denied') AND f.resource IS DISTINCT FROM 'sitemap'
      AND (f.reason IS NULL OR split_part(f.reason, ':', 1) <> ALL(%(besides)s::text[])) ORDER BY f.url_key LIMIT %(limit)s) f
JOIN domains d ON d.id = f.domain_id ORDER BY f.url_key
"""  # noqa: S608 — constants
_NOT_UNCHECKED: Final = ("url_refused", "other_domain", "folded", "no_https", "cleared")
"""Reasons of URLs that another URL replaces, or that are no URL: these are broken."""
_DOMAINS: Final = (
    "SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND domain_id >= %(domain)s ORDER BY domain_id"
)
_DEGREES: Final = """
SELECT n, count(*) FROM page_links p CROSS JOIN unnest(p.targets) n WHERE p.job_id = %(job)s
GROUP BY n ORDER BY count(*) DESC, n LIMIT %(limit)s
"""
_TOTALS: Final = """
SELECT count(*), COALESCE(sum(links), 0)::bigint, COALESCE(sum(cut), 0)::bigint, count(*) FILTER (WHERE cut > 0) FROM page_links
WHERE job_id = %(job)s
"""
_BY_OUTCOME: Final = """
SELECT outcome, checked, count(*) FROM link_answers WHERE job_id = %(job)s GROUP BY outcome, checked
"""
# A target out of scope is denied on each domain that links to it, and has one check.
_NOT_CHECKED: Final = """
SELECT CASE WHEN f.state = 'waiting' THEN 'waiting' ELSE split_part(f.reason, ':', 1) END, count(DISTINCT f.url_key)
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND f.state IN ('waiting', 'denied') AND f.resource IS DISTINCT FROM 'sitemap'
  AND (f.reason IS NULL OR split_part(f.reason, ':', 1) <> ALL(%(besides)s::text[]))
GROUP BY 1
"""
_CHECKS: Final = """
SELECT count(*) FILTER (WHERE f.state IN ('done', 'failed')), count(*)
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.resource = 'check'
WHERE jd.job_id = %(job)s
"""

_as_page: Final = by_name(StoredPage)
_as_answer: Final = by_name(Answer)


class Located(NamedTuple):
    """A URL as the frontier knows it."""

    state: str
    reason: str | None


class UrlName(NamedTuple):
    """The place of a URL: the name of its domain, and its key."""

    domain: str
    url_key: bytes


def newest_job(connection: psycopg.Connection) -> tuple[int, str] | None:
    """Return id and name of the newest job that has recorded links."""
    row = connection.execute(_NEWER, {"job": 0, "limit": 1}).fetchone()
    return None if row is None else (row[0], row[1])


def has_links(connection: psycopg.Connection, job_id: int) -> bool:
    """Return whether links of any page of a job are recorded."""
    row = connection.execute("SELECT EXISTS (SELECT FROM page_links WHERE job_id = %s)", [job_id]).fetchone()
    return bool(row and row[0])


def job_linking(connection: psycopg.Connection, number: int) -> tuple[int, str] | None:
    """Return id and name of the newest job with a page that links to a target; of a target that more pages link to than are looked at,
    the newest of their jobs and of a few newer ones."""
    rows = connection.execute(_JOBS_OF_SOME, {"number": number, "limit": _SOME}, prepare=False).fetchall()
    newest = connection.execute(_NEWEST_OF, {"jobs": [job for job, _ in rows]}).fetchone()
    if sum(count for _, count in rows) == _SOME:
        for job in connection.execute(_NEWER, {"job": newest[0] if newest else 0, "limit": _NEWER_JOBS}).fetchall():
            is_linking = connection.execute(_IS_LINKING, {"job": job[0], "number": number}, prepare=False).fetchone()
            if is_linking and is_linking[0]:
                return job[0], job[1]
    return None if newest is None else (newest[0], newest[1])


def job_of_page(connection: psycopg.Connection, name: UrlName) -> tuple[int, str] | None:
    """Return id and name of the newest job that has recorded the links of a page."""
    row = connection.execute(_JOB_OF_PAGE, {"name": name.domain, "key": name.url_key}).fetchone()
    return None if row is None else (row[0], row[1])


def answers(
    connection: psycopg.Connection,
    job_id: int,
    after: Key,
    limit: int,
    *,
    outcomes: Collection[str],
    checked: bool | None,
) -> list[Answer]:
    """Return answers of a job with these outcomes, by key. `checked`: only those out of scope, or only the others; None: all."""
    only = "AND a.outcome = ANY(%(outcomes)s::text[])"
    if checked is not None:
        only += " AND a.checked" if checked else " AND NOT a.checked"
    parameters = {"job": job_id, "domain": after[0], "key": after[1], "limit": limit, "outcomes": list(outcomes)}
    with connection.cursor(row_factory=_as_answer) as cursor:
        return cursor.execute(_ANSWERS.format(only=only).encode(), parameters, prepare=False).fetchall()


def answers_of(connection: psycopg.Connection, job_id: int, names: Collection[UrlName]) -> dict[UrlName, Answer]:
    """Return the answers of these URLs, of those that have one."""
    with connection.cursor(row_factory=_as_answer) as cursor:
        found = cursor.execute(_ANSWERS_OF, {"job": job_id, **_columns(names)}).fetchall()
    return {UrlName(one.domain, bytes(one.url_key)): one for one in found}


def located(connection: psycopg.Connection, job_id: int, names: Collection[UrlName]) -> dict[UrlName, Located]:
    """Return these URLs as the job knows them, of those that it knows."""
    rows = connection.execute(_URLS_OF, {"job": job_id, **_columns(names)})
    return {UrlName(domain, bytes(key)): Located(state, reason) for domain, key, state, reason in rows}


def linking(connection: psycopg.Connection, job_id: int, number: int, after: Key, limit: int) -> list[StoredPage]:
    """Return pages that link to a target, by key."""
    parameters = {"job": job_id, "number": number, "domain": after[0], "key": after[1], "limit": limit}
    is_hub = _count_some(connection, job_id, number, limit=HUB) == HUB
    return _pages(connection, _LINKING_TO_HUB if is_hub else _LINKING, parameters)


def some_linking(
    connection: psycopg.Connection, job_id: int, number: int, *, limit: int, counted: int
) -> tuple[int, list[StoredPage]]:
    """Return how many pages link to a target, counted up to a limit, and some of them, in no order."""
    parameters = {"job": job_id, "number": number, "limit": limit}
    return _count_some(connection, job_id, number, limit=counted), _pages(connection, _SOME_LINKING, parameters)


def _count_some(connection: psycopg.Connection, job_id: int, number: int, *, limit: int) -> int:
    row = connection.execute(_COUNT_SOME, {"job": job_id, "number": number, "limit": limit}, prepare=False).fetchone()
    return row[0] if row else 0


def count_linking(connection: psycopg.Connection, job_id: int, numbers: Collection[int]) -> dict[int, int]:
    """Return how many pages link to each of these targets."""
    rows = connection.execute(_COUNT_LINKING, {"job": job_id, "numbers": array_params.numbers(numbers)})
    return dict(rows)


def pages(connection: psycopg.Connection, job_id: int, after: Key, limit: int) -> list[StoredPage]:
    """Return pages of a job, by key."""
    return _pages(connection, _PAGES, {"job": job_id, "domain": after[0], "key": after[1], "limit": limit})


def page(connection: psycopg.Connection, job_id: int, name: UrlName) -> StoredPage | None:
    """Return a page with its links; None: they are not recorded."""
    return next(iter(_pages(connection, _ONE, {"job": job_id, "name": name.domain, "key": name.url_key})), None)


def places(connection: psycopg.Connection, job_id: int, names: Collection[UrlName]) -> dict[UrlName, bytes]:
    """Return the packed places of these pages, of those whose places are known."""
    rows = connection.execute(_PLACES, {"job": job_id, **_columns(names)})
    return {UrlName(domain, bytes(key)): bytes(packed) for domain, key, packed in rows}


def domains_of(connection: psycopg.Connection, job_id: int, first: int) -> list[int]:
    """Return the ids of the domains of a job, from `first` on."""
    return [row[0] for row in connection.execute(_DOMAINS, {"job": job_id, "domain": first})]


def named_urls(
    connection: psycopg.Connection, job_id: int, domain_id: int, after: bytes, limit: int
) -> list[tuple[Key, Orphan]]:
    """Return URLs of a domain that a sitemap lists or that are seeds, by key, whether pages link to them or not."""
    return _keyed(connection, _NAMED, Orphan, {"job": job_id, "domain": domain_id, "key": after, "limit": limit})


def linked(connection: psycopg.Connection, job_id: int, numbers: Collection[int]) -> set[int]:
    """Return those of these targets to which a page links."""
    rows = connection.execute(_LINKED, {"job": job_id, "numbers": array_params.numbers(numbers)})
    return {row[0] for row in rows}


def moved_to(connection: psycopg.Connection, job_id: int, urls: Sequence[str]) -> list[tuple[str, str]]:
    """Return the redirects that lead to one of these URLs: from where, and where to."""
    return [(row[0], row[1]) for row in connection.execute(_MOVED_TO, {"job": job_id, "urls": list(urls)})]


def unchecked(
    connection: psycopg.Connection, job_id: int, domain_id: int, after: bytes, limit: int
) -> list[tuple[Key, UncheckedTarget]]:
    """Return targets of a domain that were not requested, by key."""
    parameters = {"job": job_id, "domain": domain_id, "key": after, "limit": limit, "besides": list(_NOT_UNCHECKED)}
    return _keyed(connection, _LEFT, UncheckedTarget, parameters)


def degrees(connection: psycopg.Connection, job_id: int, limit: int) -> list[tuple[int, int]]:
    """Return the targets to which most pages link: their numbers, and how many pages. Reads all pages of the job."""
    return [(row[0], row[1]) for row in connection.execute(_DEGREES, {"job": job_id, "limit": limit})]


def summary(connection: psycopg.Connection, job_id: int, job: str) -> LinkSummary:
    """Return what a job has recorded. Reads all its pages and URLs."""
    job_key = {"job": job_id}
    pages, links, cut, cut_pages = connection.execute(_TOTALS, job_key).fetchone() or (0, 0, 0, 0)
    broken = redirects = refused = 0
    for outcome, checked, count in connection.execute(_BY_OUTCOME, job_key):
        if outcome == Outcome.REDIRECT:
            redirects += count
        elif is_broken(Outcome(outcome), check=checked):
            broken += count
        else:
            refused += count
    rows = connection.execute(_NOT_CHECKED, {**job_key, "besides": list(_NOT_UNCHECKED)})
    not_checked: dict[str, int] = dict(rows)
    checked, checks = connection.execute(_CHECKS, job_key).fetchone() or (0, 0)
    # Those that have a check are counted by its state.
    not_checked[Outcome.OUT_OF_SCOPE] = max(0, not_checked.get(Outcome.OUT_OF_SCOPE, 0) - checks)
    return LinkSummary(
        job=job,
        pages=pages,
        links=links,
        cut=cut,
        cut_pages=cut_pages,
        broken=broken,
        redirects=redirects,
        refused=refused,
        not_checked={name: count for name, count in sorted(not_checked.items()) if count},
        checked=checked,
    )


def export_pages(
    connection: psycopg.Connection, job_id: int, *, domain_id: int | None, size: int
) -> Iterator[list[StoredPage]]:
    """Yield the pages of a job in chunks, each in a short statement."""
    after: Key = START if domain_id is None else (domain_id, b"")
    while True:
        found = pages(connection, job_id, after, size)
        kept = [one for one in found if domain_id in (None, one.domain_id)]
        if kept:
            yield kept
            after = (kept[-1].domain_id, bytes(kept[-1].url_key))
        if len(found) < size or len(kept) < len(found):
            return


def jobs_with_links(connection: psycopg.Connection) -> list[tuple[int, str]]:
    """Return ids and names of the jobs that have recorded links."""
    rows = connection.execute(_NEWER, {"job": 0, "limit": None})
    return sorted((row[0], row[1]) for row in rows)


def _pages(connection: psycopg.Connection, query: str, parameters: dict[str, Any]) -> list[StoredPage]:
    with connection.cursor(row_factory=_as_page) as cursor:
        # Not prepared: a generic plan does not know how many pages have the target.
        return cursor.execute(query.encode(), parameters, prepare=False).fetchall()


def _keyed(
    connection: psycopg.Connection, query: str, kind: type[Any], parameters: dict[str, Any]
) -> list[tuple[Key, Any]]:
    def keyed(domain_id: int, url_key: bytes, row: Any) -> tuple[Key, Any]:
        return (domain_id, bytes(url_key)), row

    with connection.cursor(row_factory=by_name(keyed, row=kind)) as cursor:
        return cursor.execute(query.encode(), parameters, prepare=False).fetchall()


def _columns(names: Collection[UrlName]) -> dict[str, Any]:
    listed = list(names)
    return {"names": [one.domain for one in listed], "keys": array_params.keys(one.url_key for one in listed)}
