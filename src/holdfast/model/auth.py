"""Roles, the scopes of API keys, and the principal of a request.

The rule: admins may do everything, users may read, anonymous callers see what is public. A key narrows the permissions of its owner and
never widens them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal


class Role(StrEnum):
    """A role, the least powerful first."""

    ANONYMOUS = "anonymous"
    USER = "user"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Whether this role has all permissions of `other`."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Scope(StrEnum):
    """The purpose of an API key. A key without the scope that a route requires does not open it, whatever the role of its owner."""

    READ = "read"
    """Everything that can be read, except accounts."""
    METRICS = "metrics"
    """Only the metrics for Prometheus."""
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
"""The scopes that keys of each role may have."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated (or anonymous) caller of a request."""

    name: str
    """The name in the audit log."""
    role: Role
    user_id: int | None = None
    """None: the caller is not logged in, or does not have to be (`--no-auth`)."""
    via: Literal["nobody", "session", "key", "no-auth"] = "nobody"
    scopes: frozenset[Scope] | None = None
    """The scopes of a key; None: everything that the role may do."""
    grant_id: int | None = None
    """The id of the session or the key."""
    csrf: str | None = None
    """The CSRF token of a session, which a request that changes something must repeat."""
    first_password: bool = False
    """Of a session: whether the password is still the one that the account was made with."""


ANONYMOUS: Final = Principal("anonymous", Role.ANONYMOUS)
LOCAL_ADMIN: Final = Principal("local", Role.ADMIN, via="no-auth")
"""The principal of every caller of a server that was started with --no-auth."""
