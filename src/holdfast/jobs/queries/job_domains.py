"""SQL of a job's domains: a list by the state of the work, in pages.

The rule: the index has (job, state, domain), so a page is read state by state, those with work left first; its key is a state and the id of
a domain. Counters of a job's work have no index: a flush changes them.
"""

from typing import Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, SortColumn
from holdfast.db.rows import select_list
from holdfast.errors import UsageError
from holdfast.jobs.records import DOMAIN_STATES, JobDomain
from holdfast.model.cursor import INVALID_CURSOR

_COLUMNS: Final = select_list(
    JobDomain,
    "t",
    domain="d.domain",
    status="d.status::text",
    status_reason="d.status_reason",
    claimed_by="d.claimed_by",
    state="t.state::text",
    depth="t.depth_reached",
)
JOB_DOMAINS: Final = Listing(
    "job_domains",
    _COLUMNS,
    JobDomain,
    {
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "state": Equals("t.state", "%(state)s::job_domain_state"),
    },
    {"domain": Order((SortColumn("t.domain_id", int),), (("job", "state"),))},
    joins="JOIN domains d ON d.id = t.domain_id",
)
"""Domains of a job in one state, by their ids."""
FIRST: Final = f"""
SELECT {_COLUMNS} FROM job_domains t JOIN domains d ON d.id = t.domain_id WHERE t.job_id = %(job)s
ORDER BY t.state, t.domain_id LIMIT %(limit)s
"""  # noqa: S608 — constants
"""The beginning of the list of a job's domains."""


def page(
    connection: psycopg.Connection, job_id: int, state: str | None, *, after: Key | None, limit: int
) -> Page[JobDomain]:
    """Return one page of a job's domains: of one state, or of all states one after the other. Raises UsageError."""
    first, key = _position(state, after)
    states = DOMAIN_STATES[DOMAIN_STATES.index(first) :] if state is None else (state,)
    rows: list[JobDomain] = []
    for number, name in enumerate(states):
        found = JOB_DOMAINS.page(
            connection, {"job": job_id, "state": name}, order="domain", after=key, limit=limit - len(rows)
        )
        rows += found.rows
        if found.next is not None:
            return Page(rows, (name, *found.next))
        key = None
        if len(rows) == limit and number + 1 < len(states):
            return Page(rows, (states[number + 1], 0))
    return Page(rows, None)


def _position(state: str | None, after: Key | None) -> tuple[str, Key | None]:
    """The state and the id after which a page begins."""
    if state is not None and state not in DOMAIN_STATES:
        raise UsageError(f"The work on a domain is {', '.join(DOMAIN_STATES)}, not {state!r}.")
    if after is None:
        return state or DOMAIN_STATES[0], None
    if len(after) != 2 or after[0] not in DOMAIN_STATES or (state is not None and after[0] != state):
        raise UsageError(INVALID_CURSOR)
    return str(after[0]), (after[1],)
