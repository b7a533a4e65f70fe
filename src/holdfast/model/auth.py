"""Who asks: roles, the scopes of API keys, and what is known of somebody who has come in.

Admins may do everything, users may read, everybody else sees what is public. A key narrows what its owner may do, never widens it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal


class Role(StrEnum):
    """What somebody may do, the least first."""

    ANONYMOUS = "anonymous"
    USER = "user"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Whether this one may do what `other` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Scope(StrEnum):
    """What an API key is for. One without the scope that a route asks for does not open it, whoever its owner is."""

    READ = "read"
    """Everything that can be looked at, but for accounts."""
    METRICS = "metrics"
    """Only the figures for Prometheus."""
    CRAWL = "crawl"
    """Jobs, tasks, batches and the frontier."""
    DOMAINS = "domains"
    PROXIES = "proxies"
    OPERATE = "operate"
    """Claims, runs, webhooks, verification, and deleting pages."""
    ACCOUNTS = "accounts"
    """Users, sessions, keys and the audit log."""


SCOPES: Final[Mapping[Role, frozenset[Scope]]] = MappingProxyType(
    {
        Role.ANONYMOUS: frozenset(),
        Role.USER: frozenset({Scope.READ, Scope.METRICS}),
        Role.ADMIN: frozenset(Scope),
    }
)
"""What keys of somebody in a role may be for."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who asks for something."""

    name: str
    """For the audit log."""
    role: Role
    user_id: int | None = None
    """None: nobody has come in, or nobody has to (`--no-auth`)."""
    via: Literal["nobody", "session", "key", "no-auth"] = "nobody"
    scopes: frozenset[Scope] | None = None
    """Of a key; None: all that the role may."""
    grant_id: int | None = None
    """Of the session or the key."""
    csrf: str | None = None
    """Of a session: what a request that changes something must repeat."""


ANONYMOUS: Final = Principal("anonymous", Role.ANONYMOUS)
EVERYBODY: Final = Principal("local", Role.ADMIN, via="no-auth")
"""Whoever asks a server that was started with --no-auth."""
