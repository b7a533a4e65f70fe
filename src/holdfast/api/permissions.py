"""The permission table: role, scope, rate limit and idempotency of every route.

The rule: the app does not start with a route that is not in the table, nor with an entry that has no route. Reads
need a user, writes an admin; an API key needs the scope as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.model.auth import Principal, Role, Scope


class LimitedBy(StrEnum):
    """The rate limit that a request counts for."""

    ROLE = "role"
    """The limit of the caller's role."""
    SEED = "seed"
    """The limit of the caller's role, and the one of adding seeds."""
    LOGIN = "login"
    """The limit of logins from an address, and no other: other requests from there must not keep a user from logging
    in."""
    LOGOUT = "logout"
    """The limit of the caller's role, but a session that is over it is let through: it ends with this request."""
    NOTHING = "free"
    """No limit, and no authentication: a monitor must not be refused."""
    UNCOUNTED = "uncounted"
    """No limit for an authenticated caller: the live stream of an open page, which waits more than it works. Without authentication it
    counts like any other request."""


@dataclass(frozen=True, slots=True)
class RoutePolicy:
    """Who may use a route, and what it counts for."""

    role: Role
    scope: Scope | None
    """The scope that an API key needs; None: no key is accepted (only a session), unless the route is public."""
    limited_by: LimitedBy = LimitedBy.ROLE
    takes_idempotency_key: bool = True
    """Whether a POST takes an Idempotency-Key. A request that takes many locks, waits for other servers than the
    database, or counts failures cannot be one transaction; and of a body with a password not even a hash is stored."""
    is_form: bool = False
    """A form of the dashboard: the CSRF token and the idempotency key are fields of its body, not headers."""

    def allows(self, caller: Principal) -> bool:
        """Whether the caller may use the route."""
        if self.role is Role.ANONYMOUS:
            return True
        if not caller.role.includes(self.role):
            return False
        return caller.scopes is None or (self.scope is not None and self.scope in caller.scopes)


_ANYBODY: Final = RoutePolicy(Role.ANONYMOUS, None)
_WATCH: Final = RoutePolicy(Role.ANONYMOUS, None, LimitedBy.NOTHING)
_SELF: Final = RoutePolicy(Role.USER, None)
_READ: Final = RoutePolicy(Role.USER, Scope.READ)
_METRICS: Final = RoutePolicy(Role.USER, Scope.METRICS)
_CRAWL: Final = RoutePolicy(Role.ADMIN, Scope.CRAWL)
_SEED: Final = RoutePolicy(Role.ADMIN, Scope.CRAWL, LimitedBy.SEED)
_DOMAINS: Final = RoutePolicy(Role.ADMIN, Scope.DOMAINS)
_PROXIES: Final = RoutePolicy(Role.ADMIN, Scope.PROXIES)
_OPERATE: Final = RoutePolicy(Role.ADMIN, Scope.OPERATE)
_ACCOUNTS: Final = RoutePolicy(Role.ADMIN, Scope.ACCOUNTS)
_STREAM: Final = RoutePolicy(Role.USER, Scope.READ, LimitedBy.UNCOUNTED)
_OWN_FORM: Final = RoutePolicy(Role.USER, None, is_form=True)
_UNKEYED_CRAWL_FORM: Final = RoutePolicy(Role.ADMIN, Scope.CRAWL, takes_idempotency_key=False, is_form=True)
_SECRET_FORM: Final = RoutePolicy(Role.USER, None, takes_idempotency_key=False, is_form=True)
_CRAWL_FORM: Final = RoutePolicy(Role.ADMIN, Scope.CRAWL, is_form=True)
_DOMAINS_FORM: Final = RoutePolicy(Role.ADMIN, Scope.DOMAINS, is_form=True)
_PROXIES_FORM: Final = RoutePolicy(Role.ADMIN, Scope.PROXIES, is_form=True)
_OPERATE_FORM: Final = RoutePolicy(Role.ADMIN, Scope.OPERATE, is_form=True)
_ACCOUNTS_FORM: Final = RoutePolicy(Role.ADMIN, Scope.ACCOUNTS, is_form=True)
_PROXY_FORM: Final = RoutePolicy(Role.ADMIN, Scope.PROXIES, takes_idempotency_key=False, is_form=True)
_PASSWORD_FORM: Final = RoutePolicy(Role.ADMIN, Scope.ACCOUNTS, takes_idempotency_key=False, is_form=True)

ROUTES: Final[Mapping[str, RoutePolicy]] = {
    # Pages for people
    "GET /": _WATCH,
    "GET /docs": _READ,
    "GET /docs/assets/{name}": _WATCH,
    # Whether it works
    "GET /health": _WATCH,
    "GET /health/ready": _WATCH,
    "GET /metrics": _METRICS,
    "GET /api/openapi.json": _READ,
    # Who asks
    "POST /api/auth/login": RoutePolicy(Role.ANONYMOUS, None, LimitedBy.LOGIN, takes_idempotency_key=False),
    "POST /api/auth/logout": RoutePolicy(Role.USER, None, LimitedBy.LOGOUT, takes_idempotency_key=False),
    "GET /api/auth/me": _READ,
    "POST /api/auth/password": RoutePolicy(Role.USER, None, takes_idempotency_key=False),
    "GET /api/auth/sessions": _SELF,
    "DELETE /api/auth/sessions/{id}": _SELF,
    "GET /api/auth/keys": _SELF,
    "POST /api/auth/keys": _SELF,
    "DELETE /api/auth/keys/{id}": _SELF,
    "GET /api/admin/users": _ACCOUNTS,
    "POST /api/admin/users": RoutePolicy(Role.ADMIN, Scope.ACCOUNTS, takes_idempotency_key=False),
    "GET /api/admin/users/{name}": _ACCOUNTS,
    "PATCH /api/admin/users/{name}": _ACCOUNTS,
    "DELETE /api/admin/users/{name}": _ACCOUNTS,
    "GET /api/admin/users/{name}/sessions": _ACCOUNTS,
    "DELETE /api/admin/users/{name}/sessions": _ACCOUNTS,
    "GET /api/admin/keys": _ACCOUNTS,
    "DELETE /api/admin/keys/{id}": _ACCOUNTS,
    "GET /api/admin/audit": _ACCOUNTS,
    # Figures and events
    "GET /api/stats": _ANYBODY,
    "GET /api/stats/outlook": _READ,
    "GET /api/stats/timeseries": _READ,
    "GET /api/stats/errors": _READ,
    "GET /api/stats/tasks": _READ,
    "GET /api/stats/events": _READ,
    "GET /api/events": _READ,
    "GET /api/alerts": _READ,
    "POST /api/admin/alerts/{id}/acknowledge": _OPERATE,
    # Jobs
    "GET /api/jobs": _READ,
    "POST /api/jobs": _CRAWL,
    "POST /api/jobs/actions": RoutePolicy(Role.ADMIN, Scope.CRAWL, takes_idempotency_key=False),
    "POST /api/jobs/plan": RoutePolicy(Role.ADMIN, Scope.CRAWL, takes_idempotency_key=False),
    "GET /api/jobs/{job}": _READ,
    "PATCH /api/jobs/{job}": _CRAWL,
    "GET /api/jobs/{job}/summary": _READ,
    "GET /api/jobs/{job}/comparison": _READ,
    "GET /api/jobs/{job}/comparison/pages": _READ,
    "POST /api/jobs/{job}/scope/preview": _CRAWL,
    "POST /api/jobs/{job}/scope/undo": _CRAWL,
    "GET /api/jobs/{job}/scope/history": _READ,
    "GET /api/jobs/{job}/plan": _READ,
    "GET /api/jobs/{job}/depths": _READ,
    "GET /api/jobs/{job}/log": _READ,
    "GET /api/jobs/{job}/pace": _READ,
    "GET /api/jobs/{job}/domains": _READ,
    "POST /api/jobs/{job}/again": _CRAWL,
    "DELETE /api/jobs/{job}": _CRAWL,
    "POST /api/jobs/{job}/pause": _CRAWL,
    "POST /api/jobs/{job}/resume": _CRAWL,
    "POST /api/jobs/{job}/cancel": _CRAWL,
    "POST /api/jobs/{job}/retry": RoutePolicy(Role.ADMIN, Scope.CRAWL, takes_idempotency_key=False),
    "PUT /api/jobs/{job}/secrets": _CRAWL,
    "PUT /api/jobs/{job}/schedule": _CRAWL,
    "DELETE /api/jobs/{job}/schedule": _CRAWL,
    "GET /api/jobs/{job}/events": _READ,
    # The frontier and pages
    "GET /api/frontier/stats": _READ,
    "GET /api/frontier/urls": _READ,
    "POST /api/frontier/add": _CRAWL,
    "POST /api/frontier/seed": _SEED,
    "POST /api/frontier/recover": RoutePolicy(Role.ADMIN, Scope.CRAWL, takes_idempotency_key=False),
    "DELETE /api/frontier": _CRAWL,
    "GET /api/pages": _READ,
    "GET /api/pages/page": _READ,
    "GET /api/pages/versions": _READ,
    "GET /api/pages/diff": _READ,
    "GET /api/pages/source": _READ,
    "GET /api/pages/count": _READ,
    "GET /api/pages/markdown": _READ,
    "GET /api/search": _READ,
    "GET /api/search/status": _READ,
    "GET /api/items": _READ,
    "GET /api/links/in": _READ,
    "GET /api/links/out": _READ,
    "GET /api/links/broken": _READ,
    "GET /api/links/redirects": _READ,
    "GET /api/links/orphans": _READ,
    "GET /api/links/fragments": _READ,
    "GET /api/links/unchecked": _READ,
    "GET /api/links/top": _READ,
    "GET /api/links/summary": _READ,
    "GET /api/images": _READ,
    "GET /api/images/{image_id}": _READ,
    "GET /api/images/{image_id}/file": _READ,
    "GET /api/images/{image_id}/thumbnail": _READ,
    "DELETE /api/admin/pages": _OPERATE,
    "GET /api/explain": _READ,
    "GET /api/exports/{kind}": _READ,
    # Domains
    "GET /api/domains": _READ,
    "GET /api/domains/{domain}": _READ,
    "GET /api/domains/{domain}/robots": _READ,
    "GET /api/domains/{domain}/transitions": _READ,
    "GET /api/domains/{domain}/tenures": _READ,
    "POST /api/admin/domains": _DOMAINS,
    "POST /api/admin/domains/bulk": _DOMAINS,
    "POST /api/admin/domains/bulk/count": _DOMAINS,
    "PATCH /api/admin/domains/{domain}": _DOMAINS,
    "DELETE /api/admin/domains/{domain}": _DOMAINS,
    "POST /api/admin/domains/{domain}/reset": _DOMAINS,
    "POST /api/admin/domains/{domain}/unblock": _DOMAINS,
    "POST /api/admin/priorities": _DOMAINS,
    "GET /api/maintenance-windows": _READ,
    "PUT /api/admin/domains/{domain}/maintenance-window": _DOMAINS,
    "DELETE /api/admin/domains/{domain}/maintenance-window": _DOMAINS,
    # Tasks, batches, products
    "GET /api/tasks": _READ,
    "GET /api/tasks/{id}": _READ,
    "GET /api/tasks/failed/count": _READ,
    "GET /api/tasks/{id}/history": _READ,
    "POST /api/admin/tasks": _CRAWL,
    "POST /api/admin/tasks/bulk": _CRAWL,
    "POST /api/admin/tasks/restart-failed": _CRAWL,
    "POST /api/admin/tasks/{id}/restart": _CRAWL,
    "POST /api/admin/tasks/{id}/restart-parsing": _CRAWL,
    "POST /api/admin/tasks/{id}/pause": _CRAWL,
    "POST /api/admin/tasks/{id}/resume": _CRAWL,
    "POST /api/admin/tasks/{id}/cancel": _CRAWL,
    "PATCH /api/admin/tasks/{id}/priority": _CRAWL,
    "GET /api/batches": _READ,
    "GET /api/batches/{name}": _READ,
    "POST /api/admin/batches": _CRAWL,
    "POST /api/admin/batches/{name}/restart": _CRAWL,
    "GET /api/products": _READ,
    "GET /api/products/{id}": _READ,
    "GET /api/products/{id}/history": _READ,
    # Proxies
    "GET /api/proxies": _READ,
    "GET /api/proxies/health": _READ,
    "GET /api/proxies/cost": _READ,
    "GET /api/proxies/{id}": _READ,
    "GET /api/proxies/{id}/domains": _READ,
    "POST /api/admin/proxies": RoutePolicy(Role.ADMIN, Scope.PROXIES, takes_idempotency_key=False),
    "PATCH /api/admin/proxies/{id}": _PROXIES,
    "DELETE /api/admin/proxies/{id}": _PROXIES,
    "POST /api/admin/proxies/{id}/enable": _PROXIES,
    "POST /api/admin/proxies/{id}/disable": _PROXIES,
    "POST /api/admin/proxies/{id}/test": RoutePolicy(Role.ADMIN, Scope.PROXIES, takes_idempotency_key=False),
    "GET /api/domains/{domain}/proxies": _READ,
    "GET /api/domains/{domain}/proxies/health": _READ,
    "GET /api/domains/{domain}/proxies/next": _READ,
    "POST /api/admin/domains/{domain}/proxies": _PROXIES,
    "PATCH /api/admin/domains/{domain}/proxies/{id}": _PROXIES,
    "DELETE /api/admin/domains/{domain}/proxies/{id}": _PROXIES,
    # Operating
    "GET /api/claims": _READ,
    "GET /api/claims/summary": _READ,
    "POST /api/admin/claims/release": _OPERATE,
    "GET /api/runs": _READ,
    "GET /api/runs/{id}": _READ,
    "POST /api/admin/runs/cleanup": _OPERATE,
    "GET /api/workers": _READ,
    "GET /api/workers/{name}": _READ,
    "GET /api/storage": _READ,
    "GET /api/backups": _READ,
    "GET /api/retention": _READ,
    "POST /api/admin/retention": _OPERATE,
    "GET /api/archives": _READ,
    "GET /api/archives/{id}": _READ,
    "POST /api/admin/archives/restore": _OPERATE,
    "POST /api/admin/archives/{id}/check": _OPERATE,
    "POST /api/admin/archives/{id}/restore": _OPERATE,
    "GET /api/webhooks": _READ,
    "GET /api/webhooks/stats": _READ,
    "GET /api/webhooks/{id}": _READ,
    "POST /api/admin/webhooks/{id}/retry": _OPERATE,
    "POST /api/admin/verify": _OPERATE,
    "POST /api/admin/replay": _OPERATE,
    "POST /api/admin/rebuild/counters": _OPERATE,
    "GET /api/archive/machines": _READ,
    "GET /api/archive/segments": _READ,
    "POST /api/admin/archive/machines/{machine}/lost": _OPERATE,
    "GET /api/operations": _READ,
    "GET /api/operations/{id}": _READ,
    # The dashboard: what all pages need
    "GET /static/{name}": _WATCH,
    "GET /live/{view}": _STREAM,
    "GET /regions/{view}": _STREAM,
    "GET /search": _READ,
    # The dashboard: session and account
    "GET /login": _ANYBODY,
    "POST /login": RoutePolicy(Role.ANONYMOUS, None, LimitedBy.LOGIN, takes_idempotency_key=False),
    "POST /logout": RoutePolicy(Role.USER, None, LimitedBy.LOGOUT, takes_idempotency_key=False, is_form=True),
    "GET /account": _SELF,
    "POST /account/password": _SECRET_FORM,
    "POST /account/sessions/{id}/end": _OWN_FORM,
    "POST /account/keys": _SECRET_FORM,
    "POST /account/keys/{id}/revoke": _OWN_FORM,
    # The dashboard: overview
    "GET /overview": _READ,
    # The dashboard: jobs
    "GET /jobs": _READ,
    "POST /jobs/actions": _UNKEYED_CRAWL_FORM,
    "GET /jobs/new": _READ,
    "POST /jobs/new": _UNKEYED_CRAWL_FORM,
    "POST /jobs/plan": _UNKEYED_CRAWL_FORM,
    "GET /jobs/{job}": _READ,
    "GET /jobs/{job}/domains": _READ,
    "POST /jobs/{job}/pause": _CRAWL_FORM,
    "POST /jobs/{job}/resume": _CRAWL_FORM,
    "GET /jobs/{job}/cancel": _READ,
    "POST /jobs/{job}/cancel": _CRAWL_FORM,
    "GET /jobs/{job}/again": _READ,
    "POST /jobs/{job}/again": _CRAWL_FORM,
    "GET /jobs/{job}/delete": _READ,
    "POST /jobs/{job}/delete": _CRAWL_FORM,
    "GET /jobs/{job}/settings": _READ,
    "POST /jobs/{job}/settings": _UNKEYED_CRAWL_FORM,
    "POST /jobs/{job}/schedule": _CRAWL_FORM,
    "POST /jobs/{job}/secrets": _UNKEYED_CRAWL_FORM,
    "GET /jobs/{job}/urls": _READ,
    "POST /jobs/{job}/retry": _UNKEYED_CRAWL_FORM,
    "GET /jobs/{job}/retry": _READ,
    "GET /jobs/{job}/scope": _READ,
    "POST /jobs/{job}/scope/preview": _UNKEYED_CRAWL_FORM,
    "POST /jobs/{job}/scope": _CRAWL_FORM,
    "POST /jobs/{job}/scope/undo": _CRAWL_FORM,
    "GET /jobs/{job}/compare": _READ,
    "GET /jobs/{job}/log": _READ,
    "GET /jobs/{job}/links": _READ,
    # The dashboard: domains
    "GET /domains": _READ,
    "POST /domains": _DOMAINS_FORM,
    "POST /domains/bulk": _DOMAINS_FORM,
    "GET /domains/{domain}": _READ,
    "GET /domains/{domain}/history": _READ,
    "POST /domains/{domain}/unblock": _DOMAINS_FORM,
    "POST /domains/{domain}/active": _DOMAINS_FORM,
    "POST /domains/{domain}/settings": _DOMAINS_FORM,
    "GET /domains/{domain}/reset": _READ,
    "POST /domains/{domain}/reset": _DOMAINS_FORM,
    "GET /domains/{domain}/remove": _READ,
    "POST /domains/{domain}/remove": _DOMAINS_FORM,
    # The dashboard: workers and claims
    "GET /workers": _READ,
    "POST /workers/release-expired": _OPERATE_FORM,
    "POST /workers/close-silent-runs": _OPERATE_FORM,
    "GET /workers/runs": _READ,
    "GET /workers/claims": _READ,
    "GET /workers/claims/release": _READ,
    "POST /workers/claims/release": _OPERATE_FORM,
    "GET /workers/{name}": _READ,
    "GET /workers/{name}/release": _READ,
    "POST /workers/{name}/release": _OPERATE_FORM,
    # The dashboard: pages, items, products
    "GET /pages": _READ,
    "GET /pages/page": _READ,
    "GET /pages/content": _READ,
    "GET /documents": _READ,
    "GET /pages/text": _READ,
    "GET /pages/links": _READ,
    "GET /pages/incoming": _READ,
    "GET /pages/source": _READ,
    "GET /pages/changes": _READ,
    "POST /pages/retry": _CRAWL_FORM,
    "POST /pages/task": _CRAWL_FORM,
    "POST /pages/seed": RoutePolicy(Role.ADMIN, Scope.CRAWL, LimitedBy.SEED, is_form=True),
    "GET /pages/purge": _READ,
    "POST /pages/purge": _OPERATE_FORM,
    "GET /items": _READ,
    "GET /items/item": _READ,
    "GET /images": _READ,
    "GET /images/{image_id}": _READ,
    "GET /products": _READ,
    "GET /products/{id}": _READ,
    # The dashboard: tasks
    "GET /tasks": _READ,
    "GET /tasks/new": _READ,
    "POST /tasks": _CRAWL_FORM,
    "GET /tasks/restart-failed": _READ,
    "POST /tasks/restart-failed": _CRAWL_FORM,
    "GET /tasks/{id}": _READ,
    "POST /tasks/{id}/restart": _CRAWL_FORM,
    "POST /tasks/{id}/restart-parsing": _CRAWL_FORM,
    "POST /tasks/{id}/pause": _CRAWL_FORM,
    "POST /tasks/{id}/resume": _CRAWL_FORM,
    "POST /tasks/{id}/cancel": _CRAWL_FORM,
    "POST /tasks/{id}/priority": _CRAWL_FORM,
    "GET /batches": _READ,
    "POST /batches": _CRAWL_FORM,
    "GET /batches/{name}": _READ,
    "POST /batches/{name}/restart": _CRAWL_FORM,
    # The dashboard: proxies
    "GET /proxies": _READ,
    "GET /proxies/new": _READ,
    "POST /proxies": _PROXY_FORM,
    "GET /proxies/health": _READ,
    "GET /proxies/cost": _READ,
    "GET /proxies/pool": _READ,
    "GET /proxies/domains/{domain}": _READ,
    "POST /proxies/domains/{domain}/add": _PROXIES_FORM,
    "POST /proxies/domains/{domain}/{id}/priority": _PROXIES_FORM,
    "POST /proxies/domains/{domain}/{id}/enable": _PROXIES_FORM,
    "POST /proxies/domains/{domain}/{id}/disable": _PROXIES_FORM,
    "POST /proxies/domains/{domain}/{id}/remove": _PROXIES_FORM,
    "GET /proxies/{id}": _READ,
    "POST /proxies/{id}/edit": _PROXY_FORM,
    "POST /proxies/{id}/enable": _PROXIES_FORM,
    "POST /proxies/{id}/disable": _PROXIES_FORM,
    "POST /proxies/{id}/test": _PROXY_FORM,
    "GET /proxies/{id}/delete": _READ,
    "POST /proxies/{id}/delete": _PROXIES_FORM,
    # The dashboard: alerts, webhooks, storage
    "GET /alerts": _READ,
    "POST /alerts/acknowledge": _OPERATE_FORM,
    "GET /webhooks": _READ,
    "POST /webhooks/retry": _OPERATE_FORM,
    "GET /webhooks/{id}": _READ,
    "POST /webhooks/{id}/retry": _OPERATE_FORM,
    "GET /storage": _READ,
    "GET /operations": _READ,
    "POST /operations/verify": _OPERATE_FORM,
    "POST /operations/retention": _OPERATE_FORM,
    "GET /operations/{id}": _READ,
    # The dashboard: users, keys, audit
    "GET /users": _ACCOUNTS,
    "POST /users": _PASSWORD_FORM,
    "GET /users/{name}": _ACCOUNTS,
    "POST /users/{name}/role": _ACCOUNTS_FORM,
    "POST /users/{name}/disable": _ACCOUNTS_FORM,
    "POST /users/{name}/enable": _ACCOUNTS_FORM,
    "POST /users/{name}/password": _PASSWORD_FORM,
    "POST /users/{name}/sessions/end": _ACCOUNTS_FORM,
    "GET /users/{name}/delete": _ACCOUNTS,
    "POST /users/{name}/delete": _ACCOUNTS_FORM,
    "GET /users/all/keys": _ACCOUNTS,
    "POST /users/all/keys/{id}/revoke": _ACCOUNTS_FORM,
    "GET /audit": _ACCOUNTS,
}
"""By method and path, as the app knows them."""
