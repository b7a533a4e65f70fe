"""The links of pages, and the answers of URLs that are no page, of jobs that record links.

The rule: one row a page, written in the transaction that settles its URL, so links are those of the answer that is stored. All rows belong
to domains that the transaction has fenced: no other worker writes them. See docs/adr/0075.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg

from holdfast.db import array_params
from holdfast.model.commit_batch import UrlOutcome, VisitPart
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import RECORDED, PageLinks, target_number
from holdfast.model.url import url_key

_PAGES: Final = """
INSERT INTO page_links AS p (domain_id, job_id, url_key, links, cut, targets, body, places)
SELECT domain_id, job_id, url_key, links, cut, targets::bigint[], body, places
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(links)s::int[], %(cuts)s::int[], %(targets)s::text[],
            %(bodies)s::bytea[], %(places)s::bytea[]) AS r(domain_id, job_id, url_key, links, cut, targets, body, places)
ORDER BY domain_id, job_id, url_key
ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET links = excluded.links, cut = excluded.cut, targets = excluded.targets,
    body = excluded.body, places = excluded.places
WHERE (p.body, p.places, p.cut) IS DISTINCT FROM (excluded.body, excluded.places, excluded.cut)
"""
_NO_PAGES: Final = """
DELETE FROM page_links p USING unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS r(domain_id, job_id, url_key)
WHERE p.domain_id = r.domain_id AND p.job_id = r.job_id AND p.url_key = r.url_key
"""
_ANSWERS: Final = """
INSERT INTO link_answers AS a (domain_id, job_id, url_key, url, checked, outcome, status, detail, moved_to, answered_at)
SELECT domain_id, job_id, url_key, url, checked, outcome, status, left(detail, 500), moved_to, clock_timestamp()
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(urls)s::text[], %(checked)s::boolean[], %(outcomes)s::text[],
            %(statuses)s::smallint[], %(details)s::text[], %(moved)s::text[])
    AS r(domain_id, job_id, url_key, url, checked, outcome, status, detail, moved_to)
ORDER BY domain_id, job_id, url_key
ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET checked = excluded.checked, outcome = excluded.outcome, status = excluded.status,
    detail = excluded.detail, moved_to = excluded.moved_to, answered_at = excluded.answered_at
"""
_NO_ANSWERS: Final = """
DELETE FROM link_answers a USING unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS r(domain_id, job_id, url_key)
WHERE a.domain_id = r.domain_id AND a.job_id = r.job_id AND a.url_key = r.url_key
"""

_Key = tuple[int, int, bytes]


def record(connection: psycopg.Connection, parts: Sequence[VisitPart]) -> None:
    """Write what these parts know of links. Before: every part's domain passed the fence of this transaction. After (with its commit): each
    page has the links of its last answer; a URL whose last answer is none has none, and is an answer if links to it are worth a word."""
    pages: dict[_Key, tuple[PageLinks, bytes]] = {}
    no_pages: set[_Key] = set()
    answers: dict[_Key, dict[str, Any]] = {}
    fine: set[_Key] = set()
    for part in parts:
        for outcome in part.outcomes:
            facts = outcome.link_facts
            if facts is None or outcome.state is UrlState.WAITING:
                continue
            key = (part.domain_id, outcome.job_id, outcome.url_key)
            if facts.page is not None:
                pages[key] = facts.page, facts.packed
                answers.update(_refused(part.domain_id, outcome.job_id, facts.page))
            elif outcome.outcome is not Outcome.NOT_MODIFIED:
                no_pages.add(key)
            if outcome.outcome in RECORDED:
                answers[key] = _answer(outcome)
            else:
                fine.add(key)
    if pages:
        _write_pages(connection, pages)
    if no_pages:
        connection.execute(_NO_PAGES, _keys(no_pages))
    if answers:
        _write_answers(connection, answers)
    if fine:
        connection.execute(_NO_ANSWERS, _keys(fine))


def _write_pages(connection: psycopg.Connection, pages: dict[_Key, tuple[PageLinks, bytes]]) -> None:
    rows = list(pages.values())
    parameters = {
        **_keys(pages),
        "links": array_params.numbers(len(page.links) for page, _ in rows),
        "cuts": array_params.numbers(page.cut for page, _ in rows),
        "targets": [array_params.numbers(_targets(page, own=key)) for key, (page, _) in pages.items()],
        "bodies": array_params.keys(body for _, body in rows),
        "places": [page.places for page, _ in rows],
    }
    connection.execute(_PAGES, parameters)


def _targets(page: PageLinks, own: _Key) -> list[int]:
    """The numbers of the targets of a page, without itself, in order."""
    numbers = {target_number(url_key(link.url if link.valid else f"refused:{link.url}")) for link in page.links}
    return sorted(numbers - {target_number(own[2])})


def _write_answers(connection: psycopg.Connection, answers: dict[_Key, dict[str, Any]]) -> None:
    rows = list(answers.values())
    columns = {name: [row[name] for row in rows] for name in ("urls", "outcomes", "details", "moved")}
    numbers = {name: array_params.numbers(row[name] for row in rows) for name in ("checked", "statuses")}
    connection.execute(_ANSWERS, {**_keys(answers), **columns, **numbers})


def _answer(outcome: UrlOutcome) -> dict[str, Any]:
    facts = outcome.link_facts
    return {
        "urls": outcome.url,
        "checked": facts is not None and facts.check,
        "outcomes": str(outcome.outcome),
        "statuses": outcome.status,
        "details": (outcome.reason or "").partition(": ")[2],
        "moved": None if facts is None else facts.moved_to,
    }


def _refused(domain_id: int, job_id: int, page: PageLinks) -> Iterable[tuple[_Key, dict[str, Any]]]:
    """Links of a page that are no URLs, as answers: nothing is ever asked for them."""
    for link in page.links:
        if not link.valid:
            row = {"urls": link.url, "checked": False, "outcomes": str(Outcome.URL_REFUSED), "statuses": None}
            row |= {"details": "the link is no valid URL", "moved": None}
            yield (domain_id, job_id, url_key(f"refused:{link.url}")), row


def _keys(keys: Iterable[_Key]) -> dict[str, str]:
    listed = list(keys)
    return {
        "domains": array_params.numbers(domain_id for domain_id, _, _ in listed),
        "jobs": array_params.numbers(job_id for _, job_id, _ in listed),
        "keys": array_params.keys(url_key for _, _, url_key in listed),
    }
