"""What must hold in every store, at every moment when no transaction is open: the checks of `holdfast verify`, as tests use them."""

from typing import Any, Final

import psycopg

from holdfast.db.verify import CHECKS, STRUCTURE, verify
from holdfast.settings import Politeness

__all__ = ["CHECKS", "assert_invariants", "violations"]

_NOTHING_FETCHED: Final = "SELECT NOT EXISTS (SELECT FROM crawl_log) AND NOT EXISTS (SELECT FROM crawled_pages)"


def violations(
    connection: psycopg.Connection, *, retries: int = Politeness().retries
) -> dict[str, list[dict[str, Any]]]:
    """The invariants that do not hold, each with the first rows that show it.

    Where a test has written counters by hand and nothing was ever fetched, what only a log can prove is left out.
    """
    row = connection.execute(_NOTHING_FETCHED).fetchone()
    checks = STRUCTURE if row and row[0] else CHECKS
    return {
        finding.check: finding.rows for finding in verify(connection, retries=retries, checks=checks) if finding.faults
    }


def assert_invariants(connection: psycopg.Connection, *, retries: int = Politeness().retries) -> None:
    """Fail, naming every invariant that does not hold."""
    assert violations(connection, retries=retries) == {}
