"""Headers, cookies and credentials of jobs and domains, sealed.

The rule: what is read and written here is sealed; the key is never in the store. A row per kind, replaced as a whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.db import edits
from holdfast.model.request_secrets import SealedSecret, SecretKind

_SET: Final = {
    "job": """
INSERT INTO job_secrets (job_id, kind, names, origins, sealed) VALUES (%(id)s, %(kind)s, %(names)s, %(origins)s, %(sealed)s)
ON CONFLICT (job_id, kind) DO UPDATE SET
    names = excluded.names, origins = excluded.origins, sealed = excluded.sealed, set_at = clock_timestamp()
""",
    "domain": """
INSERT INTO domain_secrets (domain_id, kind, names, origins, sealed) VALUES (%(id)s, %(kind)s, %(names)s, %(origins)s, %(sealed)s)
ON CONFLICT (domain_id, kind) DO UPDATE SET
    names = excluded.names, origins = excluded.origins, sealed = excluded.sealed, set_at = clock_timestamp()
""",
}
_REMOVE: Final = {
    "job": "DELETE FROM job_secrets WHERE job_id = %(id)s AND kind = ANY(%(kinds)s)",
    "domain": "DELETE FROM domain_secrets WHERE domain_id = %(id)s AND kind = ANY(%(kinds)s)",
}
_OF_JOB: Final = "SELECT kind, names, origins, sealed FROM job_secrets WHERE job_id = %(job)s ORDER BY kind"
_OF_DOMAINS: Final = """
SELECT domain_id, kind, names, origins, sealed FROM domain_secrets WHERE domain_id = ANY(%(ids)s) ORDER BY domain_id, kind
"""
_SEED_ORIGINS: Final = """
SELECT DISTINCT substring(url FROM '^https?://[^/]+') FROM job_seeds WHERE job_id = %(job)s LIMIT %(most)s
"""
_TOKENS: Final = """
SELECT 'job' AS owner, job_id AS id, kind, sealed FROM job_secrets
UNION ALL SELECT 'domain', domain_id, kind, sealed FROM domain_secrets ORDER BY 1, 2, 3
"""
_RESEAL: Final = {
    "job": "UPDATE job_secrets SET sealed = %(new)s WHERE job_id = %(id)s AND kind = %(kind)s AND sealed = %(old)s",
    "domain": "UPDATE domain_secrets SET sealed = %(new)s WHERE domain_id = %(id)s AND kind = %(kind)s AND sealed = %(old)s",
}
_ANY: Final = """
SELECT EXISTS (SELECT FROM job_secrets) OR EXISTS (SELECT FROM domain_secrets)
    OR EXISTS (SELECT FROM proxies WHERE proxy_password IS NOT NULL)
"""


class Token(NamedTuple):
    """A sealed text and where it is."""

    owner: str
    """`job` or `domain`."""
    id: int
    kind: str
    sealed: str


def change_of_job(
    connection: psycopg.Connection, job_id: int, given: Iterable[SealedSecret], removed: Sequence[SecretKind]
) -> None:
    """Set these kinds of a job's secrets and remove those. After (with the commit): visits under way begin anew, and send them."""
    edits.touch_job(connection, job_id)
    _change(connection, "job", job_id, given, removed)


def change_of_domain(
    connection: psycopg.Connection, domain_id: int, given: Iterable[SealedSecret], removed: Sequence[SecretKind]
) -> None:
    """The same for a domain. Before: the domain row is locked by this transaction."""
    edits.touch_domains(connection, [domain_id])
    _change(connection, "domain", domain_id, given, removed)


def _change(
    connection: psycopg.Connection, owner: str, key: int, given: Iterable[SealedSecret], removed: Sequence[SecretKind]
) -> None:
    if removed:
        connection.execute(_REMOVE[owner], {"id": key, "kinds": list(removed)})
    for secret in given:
        values = {"names": secret.names, "origins": secret.origins, "sealed": secret.sealed}
        connection.execute(_SET[owner], {"id": key, "kind": secret.kind, **values})


def of_job(connection: psycopg.Connection, job_id: int) -> list[SealedSecret]:
    """What is sent with a job's requests."""
    return [SealedSecret(SecretKind(kind), *rest) for kind, *rest in connection.execute(_OF_JOB, {"job": job_id})]


def of_domains(connection: psycopg.Connection, domain_ids: Sequence[int]) -> Iterator[tuple[int, SealedSecret]]:
    """What is sent with all requests to these domains."""
    for domain_id, kind, *rest in connection.execute(_OF_DOMAINS, {"ids": list(domain_ids)}):
        yield domain_id, SealedSecret(SecretKind(kind), *rest)


def forget_job(connection: psycopg.Connection, job_id: int) -> None:
    """A job is deleted: its secrets go at once, not when the rest of it is forgotten."""
    connection.execute("DELETE FROM job_secrets WHERE job_id = %s", (job_id,))


def forget_domain(connection: psycopg.Connection, domain_id: int) -> None:
    """The same for a domain that is removed."""
    connection.execute("DELETE FROM domain_secrets WHERE domain_id = %s", (domain_id,))


def seed_origins(connection: psycopg.Connection, job_id: int, limit: int) -> list[str]:
    """The origins of the seeds that a job has, up to `limit` of them; of one without a scheme https alone."""
    found = connection.execute(_SEED_ORIGINS, {"job": job_id, "most": limit})
    return sorted(row[0] for row in found)


def tokens(connection: psycopg.Connection) -> list[Token]:
    """Everything that is sealed here, for new keys."""
    return [Token(*row) for row in connection.execute(_TOKENS)]


def reseal(connection: psycopg.Connection, token: Token, sealed: str) -> bool:
    """Store what is sealed anew; False if a person changed it meanwhile."""
    parameters = {"id": token.id, "kind": token.kind, "old": token.sealed, "new": sealed}
    return connection.execute(_RESEAL[token.owner], parameters).rowcount > 0


def is_anything_sealed(connection: psycopg.Connection) -> bool:
    """Whether a key is needed to read something in this store, the passwords of proxies included."""
    row = connection.execute(_ANY).fetchone()
    return bool(row and row[0])
