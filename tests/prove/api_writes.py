"""What clients ask the API for while its server is killed: what takes an Idempotency-Key, and how the store shows what came of it."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from holdfast.api.idempotency import REPLAYED
from holdfast.frontier.service import KIND as FRONTIER


@dataclass(frozen=True)
class Kind:
    """A kind of write: what to ask, what must come, and where the store has it."""

    path: str
    body: Callable[[str, str], dict[str, object]]
    """Of a name that is new, and the address of a site."""
    status: int
    told: Callable[[dict[str, Any]], tuple[str, str]]
    """The object's id and name that an answer tells."""
    there: str
    """All ids and names that the store has."""
    audit: str
    """How the audit log calls such an object."""
    session: bool = False
    """A key does not do."""


KINDS: Final[dict[str, Kind]] = {
    "job": Kind(
        "/api/jobs",
        lambda name, site: {"name": name, "urls": [f"{site}job/{name}"], "spec": {"allow_private": True}},
        201,
        lambda told: (str(told["job"]["id"]), told["job"]["name"]),
        "SELECT id::text, name FROM crawl_jobs WHERE starts_with(name, 'proof-')",
        "job",
    ),
    "task": Kind(
        "/api/admin/tasks",
        lambda name, site: {"url": f"{site}task/{name}", "is_recurring": False, "max_retries": 0},
        201,
        lambda told: (str(told["id"]), told["url"]),
        "SELECT id::text, url FROM crawl_tasks",
        "task",
    ),
    "domain": Kind(
        "/api/admin/domains",
        lambda name, _: {"domain": f"{name}.localhost", "delay": 2},
        201,
        lambda told: (told["domain"], told["domain"]),
        "SELECT domain, domain FROM domains WHERE starts_with(domain, 'proof-')",
        "domain",
    ),
    "batch": Kind(
        "/api/admin/batches",
        lambda name, _: {"name": name},
        201,
        lambda told: (str(told["id"]), told["name"]),
        "SELECT id::text, name FROM crawl_batches",
        "batch",
    ),
    "key": Kind(
        "/api/auth/keys",
        lambda name, _: {"name": name, "scopes": ["read"]},
        201,
        lambda told: (str(told["id"]), told["name"]),
        "SELECT id::text, name FROM api_keys WHERE starts_with(name, 'proof-')",
        "key",
        session=True,
    ),
    "operation": Kind(
        "/api/admin/priorities",
        lambda _, __: {},
        202,
        lambda told: (str(told["id"]), told["kind"]),
        "SELECT id::text, kind FROM operations",
        "operation",
    ),
    "seed": Kind(
        "/api/frontier/add",
        lambda name, site: {"urls": [f"{site}seed/{name}"]},
        200,
        lambda told: (str(told["urls"]), str(told["bad"])),
        "SELECT '1', '0' FROM url_frontier WHERE url LIKE '%/seed/proof-%'",
        FRONTIER,
    ),
}


@dataclass
class Asked:
    """A request and what came of it."""

    kind: str
    name: str
    body: dict[str, object]
    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    tries: int = 0
    answer: httpx.Response | None = None
    """The last one; None: none yet."""

    @property
    def replayed(self) -> bool:
        """Whether it was answered with what was kept of an earlier try."""
        return self.answer is not None and self.answer.headers.get(REPLAYED) == "true"
