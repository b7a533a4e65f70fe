"""Proxies for workers: the pools of the domains they hold, shares of hourly limits, and the commit of statistics and health.

The rule: the statistics of a mapping are written by the holder of its domain, under the fence, in the transaction with the outcomes, so
that they agree with the log. Rows of proxies, which all workers share, are updated only when a proxy fails or recovers, in the order of
their ids. The limit of an hour is handed out in blocks in advance: it may not be used up, and is never exceeded.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import RowMaker

from holdfast.db import array_params
from holdfast.db.rows import by_name
from holdfast.db.url_results import SettledCounts
from holdfast.model.commit_batch import VisitPart
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.proxy import ProxyPauses, ProxyUse, ProxyVerdict

HOUR: Final = timedelta(hours=1)
MIN_SHARES: Final = 20
"""The smallest number of blocks that a limit is handed out in."""
STANDARD: Final = ProxyPauses()
BLAMED: Final = "it did not get through where another proxy did"

_ALL: Final = """
SELECT id, proxy_protocol AS protocol, proxy_url AS host, proxy_port AS port, proxy_username AS username, proxy_password AS token,
       country_code AS country, max_requests_per_hour IS NOT NULL AS limited, allow_private, failure_count AS failures,
       extract(epoch FROM next_try_at - clock_timestamp())::float8 AS try_in, version
FROM proxies WHERE disabled_by IS DISTINCT FROM 'operator' ORDER BY id
"""
_POOLS: Final = """
SELECT domain_id, proxy_id, priority, assigned, disabled_by IS DISTINCT FROM 'operator' AS on, failure_count AS refusals,
       extract(epoch FROM statement_timestamp() - last_used_at)::float8 AS used_ago,
       extract(epoch FROM next_try_at - clock_timestamp())::float8 AS try_in, avg_response_time_ms AS response_ms, version
FROM domain_proxies WHERE domain_id = ANY(%(ids)s) AND (assigned OR version > 1 OR NOT %(changeable)s) ORDER BY domain_id, proxy_id
"""

_EXISTING: Final = "SELECT id FROM proxies WHERE id = ANY(%(ids)s::bigint[])"
_USED: Final = """
WITH news AS MATERIALIZED (
    SELECT * FROM unnest(%(domains)s::bigint[], %(proxies)s::bigint[], %(requests)s::bigint[], %(others)s::bigint[],
                         %(successes)s::bigint[], %(refusals)s::bigint[], %(failures)s::bigint[], %(bytes)s::bigint[], %(worked)s::bool[],
                         %(streak)s::int[], %(probes)s::int[], %(averages)s::float8[], %(errors)s::text[], %(ages)s::float8[])
        AS n(domain_id, proxy_id, requests, others, successes, refusals, failures, bytes, worked, streak, probes, average, error, age)
)
INSERT INTO domain_proxies AS m (domain_id, proxy_id, assigned, requests, other_requests, success_count, total_failures, proxy_failures,
    bytes, failure_count, avg_response_time_ms, last_error, last_used_at, last_success_at, last_failure_at)
SELECT domain_id, proxy_id, false, requests, others, successes, refusals, failures, bytes, LEAST(streak, 5), average, error,
    clock_timestamp() - age * interval '1 second', CASE WHEN successes > 0 THEN clock_timestamp() END,
    CASE WHEN refusals > 0 THEN clock_timestamp() END
FROM news ORDER BY domain_id, proxy_id
ON CONFLICT (domain_id, proxy_id) DO UPDATE SET
    requests = m.requests + excluded.requests,
    other_requests = m.other_requests + excluded.other_requests,
    success_count = m.success_count + excluded.success_count,
    total_failures = m.total_failures + excluded.total_failures,
    proxy_failures = m.proxy_failures + excluded.proxy_failures,
    bytes = m.bytes + excluded.bytes,
    failure_count = (SELECT proxy_failures(m.failure_count, n.worked, n.streak, n.probes) FROM news n
                     WHERE n.domain_id = m.domain_id AND n.proxy_id = m.proxy_id),
    avg_response_time_ms = COALESCE(excluded.avg_response_time_ms, m.avg_response_time_ms),
    last_error = COALESCE(excluded.last_error, m.last_error),
    last_used_at = GREATEST(m.last_used_at, excluded.last_used_at),
    last_success_at = COALESCE(excluded.last_success_at, m.last_success_at),
    last_failure_at = COALESCE(excluded.last_failure_at, m.last_failure_at),
    updated_at = clock_timestamp()
"""
_JUDGE_MAPPINGS: Final = """
UPDATE domain_proxies m SET
    is_active = m.failure_count < 5, disabled_by = CASE WHEN m.failure_count >= 5 THEN 'health' END,
    next_try_at = clock_timestamp() + proxy_pause(m.failure_count, %(first)s, %(longest)s)
FROM unnest(%(domains)s::bigint[], %(proxies)s::bigint[], %(probes)s::int[]) AS n(domain_id, proxy_id, probes)
WHERE m.domain_id = n.domain_id AND m.proxy_id = n.proxy_id AND m.disabled_by IS DISTINCT FROM 'operator'
  AND (m.is_active <> (m.failure_count < 5) OR n.probes > 0)
"""
_JUDGE: Final = """
WITH news AS MATERIALIZED (
    SELECT p.id, n.streak > 0 AS failed, n.error, proxy_failures(p.failure_count, n.worked, n.streak, n.probes) AS failures
    FROM unnest(%(ids)s::bigint[], %(worked)s::bool[], %(streak)s::int[], %(probes)s::int[], %(errors)s::text[])
        AS n(id, worked, streak, probes, error)
    JOIN proxies p ON p.id = n.id
    WHERE p.disabled_by IS DISTINCT FROM 'operator'
      AND (n.probes > 0 OR proxy_failures(p.failure_count, n.worked, n.streak, n.probes) <> p.failure_count)
    ORDER BY p.id FOR NO KEY UPDATE OF p
)
UPDATE proxies p SET
    failure_count = n.failures, is_active = n.failures < 10, disabled_by = CASE WHEN n.failures >= 10 THEN 'health' END,
    next_try_at = clock_timestamp() + proxy_pause(n.failures, %(first)s, %(longest)s),
    last_failure_at = CASE WHEN n.failed THEN clock_timestamp() ELSE p.last_failure_at END,
    last_error = CASE WHEN n.failures > 0 THEN COALESCE(n.error, p.last_error) END, updated_at = clock_timestamp()
FROM news n WHERE p.id = n.id
"""

_LIMIT: Final = "SELECT max_requests_per_hour FROM proxies WHERE id = %(proxy)s FOR NO KEY UPDATE"
_DELETE_EXPIRED: Final = "DELETE FROM proxy_blocks WHERE proxy_id = %(proxy)s AND counts_until <= clock_timestamp()"
_TAKEN: Final = """
SELECT COALESCE(sum(requests), 0)::bigint, extract(epoch FROM min(counts_until) - clock_timestamp())::float8
FROM proxy_blocks WHERE proxy_id = %(proxy)s
"""
_ADD_BLOCK: Final = """
INSERT INTO proxy_blocks (proxy_id, requests, counts_until) VALUES (%(proxy)s, %(count)s, clock_timestamp() + %(until)s) RETURNING id
"""
_USED_OF_BLOCKS: Final = """
UPDATE proxy_blocks b SET requests = n.used FROM unnest(%(ids)s::bigint[], %(counts)s::int[]) AS n(id, used)
WHERE b.id = n.id AND n.used > 0 AND b.requests > n.used
"""
_PROBE: Final = """
UPDATE proxies SET next_try_at = clock_timestamp() + %(pause)s
WHERE id = %(proxy)s AND next_try_at <= clock_timestamp() AND disabled_by IS DISTINCT FROM 'operator'
"""


class ProxyRow(NamedTuple):
    """A proxy for workers, which do not read proxies that an operator disabled."""

    id: int
    protocol: str
    host: str
    port: int
    username: str | None
    token: str | None
    """Its password, sealed."""
    country: str | None
    limited: bool
    allow_private: bool
    failures: int
    try_in: float | None
    """After too many failures, the seconds until one request may probe it."""
    version: int
    """It rises when an operator changes it."""


class MappingRow(NamedTuple):
    """The mapping of a proxy in the pool of a domain."""

    proxy_id: int
    priority: int
    assigned: bool
    on: bool
    refusals: int
    used_ago: float | None
    try_in: float | None
    response_ms: float | None
    version: int
    """It rises when an operator changes it."""


class Block(NamedTuple):
    """A share of a proxy's hourly limit."""

    id: int | None
    """None: the proxy has no limit, or nothing is left of it."""
    requests: int | None
    """None: without a limit."""
    wait: float = 0.0
    """Seconds until the next block may be available."""


@dataclass(slots=True)
class _Sum:
    """The use of one mapping in a batch."""

    requests: int = 0
    others: int = 0
    successes: int = 0
    refusals: int = 0
    failures: int = 0
    bytes: int = 0
    worked: bool = False
    """It had a success; `streak` counts the refusals since, `probes` those of them that were probes."""
    streak: int = 0
    probes: int = 0
    average: float | None = None
    error: str | None = None
    age: float = 0.0

    def count(self, outcome: Outcome, settled: SettledCounts) -> None:
        """Add the rows of the log with this outcome."""
        verdict = TREATMENT[outcome].verdict
        self.requests += settled.outcomes
        self.bytes += settled.bytes
        self.successes += settled.outcomes if verdict is ProxyVerdict.SUCCESS else 0
        self.refusals += settled.outcomes if verdict is ProxyVerdict.REFUSED else 0
        self.failures += settled.outcomes if verdict is ProxyVerdict.FAILED else 0


@dataclass(slots=True)
class _Health:
    """The health of one proxy in a batch."""

    worked: bool = False
    streak: int = 0
    probes: int = 0
    error: str | None = None

    def judge(self, use: ProxyUse) -> None:
        """Add a request."""
        if use.verdict is ProxyVerdict.FAILED:
            self.failed(use.error, probe=use.probe)
        elif use.verdict is not ProxyVerdict.UNCLEAR:
            self.worked, self.streak, self.probes = True, 0, 0

    def failed(self, error: str | None, *, probe: bool) -> None:
        """Add a failure of the proxy."""
        self.streak += 1
        self.probes += probe
        self.error = error


@dataclass(slots=True)
class _Usage:
    """The use of all proxies in a batch."""

    mappings: dict[tuple[int, int], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    proxies: dict[int, _Health] = field(default_factory=lambda: defaultdict(_Health))

    def add(self, domain_id: int, use: ProxyUse, *, page: bool) -> None:
        """Add a request. Before: requests are added in the order in which they began."""
        one = self.mappings[domain_id, use.proxy_id]
        one.age = use.age
        one.average = one.average if use.response_ms is None else use.response_ms
        if not page:
            one.others += 1
            one.bytes += use.bytes
        elif use.verdict is ProxyVerdict.SUCCESS:
            one.worked, one.streak, one.probes = True, 0, 0
        elif use.verdict is ProxyVerdict.REFUSED:
            one.streak += 1
            one.probes += use.probe
            one.error = use.error
        self.proxies[use.proxy_id].judge(use)
        for blame in use.blames:
            self.proxies[blame.proxy_id].failed(BLAMED, probe=blame.probe)


def usable_proxies(connection: psycopg.Connection) -> list[ProxyRow]:
    """Return every proxy that is not disabled by an operator."""
    with connection.cursor(row_factory=_as_proxy) as cursor:
        return cursor.execute(_ALL).fetchall()


def pools(
    connection: psycopg.Connection, domain_ids: Sequence[int], *, changeable: bool = False
) -> dict[int, list[MappingRow]]:
    """Return the mappings of these domains; `changeable`: only those that an operator assigned or changed."""
    found: dict[int, list[MappingRow]] = defaultdict(list)
    with connection.cursor(row_factory=_as_mapping) as cursor:
        for domain_id, mapping in cursor.execute(_POOLS, {"ids": list(domain_ids), "changeable": changeable}):
            found[domain_id].append(mapping)
    return found


def _as_mapping(cursor: psycopg.Cursor[Any]) -> RowMaker[tuple[int, MappingRow]]:
    mapping = _as_mapping_row(cursor)
    return lambda row: (row[0], mapping(row))


_as_proxy: Final = by_name(ProxyRow)
_as_mapping_row: Final = by_name(MappingRow)


def record(
    connection: psycopg.Connection,
    parts: Iterable[VisitPart],
    through: Mapping[tuple[int, int], Sequence[tuple[Outcome, SettledCounts]]],
    pauses: ProxyPauses,
) -> None:
    """Commit the statistics and the health of proxies. `through`: the logged outcomes, by domain and proxy.

    Before: in the transaction of the batch, after the fence, when all rows that are shared with other workers are locked.
    """
    usage = _gather(parts, through)
    if not usage.mappings:
        return
    existing = {row[0] for row in connection.execute(_EXISTING, {"ids": array_params.numbers(sorted(usage.proxies))})}
    mappings = [(key, one) for key, one in sorted(usage.mappings.items()) if key[1] in existing]
    keys: dict[str, Any] = {
        "domains": array_params.numbers(domain_id for (domain_id, _), _ in mappings),
        "proxies": array_params.numbers(proxy_id for (_, proxy_id), _ in mappings),
    }
    columns = keys | _columns([one for _, one in mappings])
    connection.execute(_USED, columns)
    connection.execute(_JUDGE_MAPPINGS, {**columns, "first": pauses.refused_first, "longest": pauses.refused_longest})
    judged = [(proxy_id, health) for proxy_id, health in sorted(usage.proxies.items()) if proxy_id in existing]
    connection.execute(
        _JUDGE,
        {
            "ids": array_params.numbers(proxy_id for proxy_id, _ in judged),
            "worked": array_params.numbers(health.worked for _, health in judged),
            "streak": array_params.numbers(health.streak for _, health in judged),
            "probes": array_params.numbers(health.probes for _, health in judged),
            "errors": [health.error for _, health in judged],
            "first": pauses.first,
            "longest": pauses.longest,
        },
    )


def _gather(
    parts: Iterable[VisitPart], through: Mapping[tuple[int, int], Sequence[tuple[Outcome, SettledCounts]]]
) -> _Usage:
    usage = _Usage()
    for key, some in through.items():
        for outcome, settled in some:
            usage.mappings[key].count(outcome, settled)
    uses = [
        (use, part.domain_id, page)
        for part in parts
        for page, some_uses in (
            (True, [outcome.proxy for outcome in part.outcomes if outcome.proxy is not None]),
            (False, part.other_uses),
        )
        for use in some_uses
    ]
    for use, domain_id, page in sorted(uses, key=lambda one: one[0].started):
        usage.add(domain_id, use, page=page)
    return usage


def _columns(sums: Sequence[_Sum]) -> dict[str, Any]:
    return {
        "requests": array_params.numbers(one.requests for one in sums),
        "others": array_params.numbers(one.others for one in sums),
        "successes": array_params.numbers(one.successes for one in sums),
        "refusals": array_params.numbers(one.refusals for one in sums),
        "failures": array_params.numbers(one.failures for one in sums),
        "bytes": array_params.numbers(one.bytes for one in sums),
        "worked": array_params.numbers(one.worked for one in sums),
        "streak": array_params.numbers(one.streak for one in sums),
        "probes": array_params.numbers(one.probes for one in sums),
        "averages": array_params.numbers(one.average for one in sums),
        "errors": [one.error for one in sums],
        "ages": array_params.numbers(one.age for one in sums),
    }


def take_block(
    connection: psycopg.Connection, proxy_id: int, want: int, *, hold: timedelta, hour: timedelta = HOUR
) -> Block:
    """Take a block of up to `want` requests, which reach the proxy within `hold` from now. After: it counts until an hour after that."""
    key = {"proxy": proxy_id}
    with connection.transaction():
        row = connection.execute(_LIMIT, key).fetchone()
        if row is None:
            return Block(None, 0)
        if row[0] is None:
            return Block(None, None)
        connection.execute(_DELETE_EXPIRED, key)
        taken, wait = connection.execute(_TAKEN, key).fetchone() or (0, None)
        # No worker takes the whole of a small limit.
        count = min(want, max(1, row[0] // MIN_SHARES), row[0] - taken)
        if count <= 0:
            return Block(None, 0, max(wait or 0.0, 0.0))
        made = connection.execute(_ADD_BLOCK, key | {"count": count, "until": hold + hour}).fetchone()
    return Block(made[0] if made else None, count)


def give_back(connection: psycopg.Connection, used: Mapping[int, int]) -> None:
    """Return the unused requests of blocks; `used` has the number of used ones by block."""
    with connection.transaction():
        connection.execute(
            "DELETE FROM proxy_blocks WHERE id = ANY(%s)", ([block for block, count in used.items() if not count],)
        )
        counts = {"ids": list(used), "counts": list(used.values())}
        connection.execute(_USED_OF_BLOCKS, counts)


def reserve_probe(connection: psycopg.Connection, proxy_id: int, pause: timedelta) -> bool:
    """Return whether this worker may probe a proxy that has failed too often. After: no other worker may for the time of `pause`."""
    return connection.execute(_PROBE, {"proxy": proxy_id, "pause": pause}).rowcount > 0
