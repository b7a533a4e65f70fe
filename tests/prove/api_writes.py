"""The writes that clients send while the API's server is killed: each route that takes an Idempotency-Key, and its rows in the store."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from holdfast.api.idempotency import REPLAYED
from holdfast.frontier.service import KIND as FRONTIER


@dataclass(frozen=True)
class Kind:
    """A kind of write: the request, the expected response, and where the store has the result."""

    path: str
    body: Callable[[str, str], dict[str, object]]
    """The request's body, made of a new name and the address of a site."""
    status: int
    acknowledged: Callable[[dict[str, Any]], tuple[str, str]]
    """The object's id and name, read from the response."""
    there: str
    """A query of all ids and names in the store."""
    audit: str
    """The kind of object in the audit log."""
    session: bool = False
    """The route needs a session; an API key is refused."""


KINDS: Final[dict[str, Kind]] = {
    "job": Kind(
        "/api/jobs",
        lambda name, site: {"name": name, "urls": [f"{site}job/{name}"], "spec": {"allow_private": True}},
        201,
        lambda answer: (str(answer["job"]["id"]), answer["job"]["name"]),
        "SELECT id::text, name FROM crawl_jobs WHERE starts_with(name, 'proof-')",
        "job",
    ),
    "task": Kind(
        "/api/admin/tasks",
        lambda name, site: {"url": f"{site}task/{name}", "is_recurring": False, "max_retries": 0},
        201,
        lambda answer: (str(answer["id"]), answer["url"]),
        "SELECT id::text, url FROM crawl_tasks",
        "task",
    ),
    "domain": Kind(
        "/api/admin/domains",
        lambda name, _: {"domain": f"{name}.localhost", "delay": 2},
        201,
        lambda answer: (answer["domain"], answer["domain"]),
        "SELECT domain, domain FROM domains WHERE starts_with(domain, 'proof-')",
        "domain",
    ),
    "batch": Kind(
        "/api/admin/batches",
        lambda name, _: {"name": name},
        201,
        lambda answer: (str(answer["id"]), answer["name"]),
        "SELECT id::text, name FROM crawl_batches",
        "batch",
    ),
    "key": Kind(
        "/api/auth/keys",
        lambda name, _: {"name": name, "scopes": ["read"]},
        201,
        lambda answer: (str(answer["id"]), answer["name"]),
        "SELECT id::text, name FROM api_keys WHERE starts_with(name, 'proof-')",
        "key",
        session=True,
    ),
    "operation": Kind(
        "/api/admin/priorities",
        lambda _, __: {},
        202,
        lambda answer: (str(answer["id"]), answer["kind"]),
        "SELECT id::text, kind FROM operations",
        "operation",
    ),
    "seed": Kind(
        "/api/frontier/add",
        lambda name, site: {"urls": [f"{site}seed/{name}"]},
        200,
        lambda answer: (str(answer["urls"]), str(answer["bad"])),
        "SELECT '1', '0' FROM url_frontier WHERE url LIKE '%/seed/proof-%'",
        FRONTIER,
    ),
}


@dataclass
class Asked:
    """A request and its response."""

    kind: str
    name: str
    body: dict[str, object]
    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    tries: int = 0
    answer: httpx.Response | None = None
    """The last response; None: there is none yet."""

    @property
    def replayed(self) -> bool:
        """Whether it was answered with the stored response of an earlier try."""
        return self.answer is not None and self.answer.headers.get(REPLAYED) == "true"
