"""Authentication, authorisation, rate limits and CSRF protection before every route.

The rule: no byte of the body is read and no code of a route is run before `permissions.ROUTES` has allowed the
request. A change that is authenticated by a cookie must prove that our own pages or programs sent it (same origin,
CSRF token). A request that matches no route counts for the rate limits as well.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast.accounts.tokens import Kind
from holdfast.api import errors, forms, idempotency
from holdfast.api.app_services import AppServices
from holdfast.api.permissions import ROUTES, LimitedBy, RoutePolicy
from holdfast.api.rate_limit import RateLimitStatus
from holdfast.api.thread_pools import ThreadPools, run_without_loop
from holdfast.errors import Denied, HoldfastError, StoreUnavailable, TooMany, Unauthenticated
from holdfast.model.auth import ANONYMOUS, LOCAL_ADMIN, Principal, Role
from holdfast.settings import Web

COOKIE: Final = "holdfast_session"
SECURE_COOKIE: Final = "__Host-holdfast_session"
"""The name of the cookie over TLS: browsers refuse a `__Host-` cookie that another host of the same site has set."""
CSRF_HEADER: Final = "X-CSRF-Token"
_MAX_ACTOR_LENGTH: Final = 100
"""Characters of a name in the audit log."""
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_UNMATCHED: Final = RoutePolicy(Role.ANONYMOUS, None)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Credentials(NamedTuple):
    """The credentials and the address of a request."""

    bearer: str | None
    cookie: str | None
    address: str


class AuthorizedRoute(APIRoute):
    """A route that authenticates and authorises the caller before its endpoint runs."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._is_async = iscoroutinefunction(endpoint)
        """The endpoint is a coroutine that waits for no database, so that it needs no thread."""
        super().__init__(path, _in_this_thread(endpoint), **options)

    def get_route_handler(self) -> Handler:
        """The endpoint's handler, after authentication, rate limits, permissions and CSRF checks."""
        handler = super().get_route_handler()
        (method,) = self.methods or {"GET"}
        policy, is_async = ROUTES[f"{method} {self.path_format}"], self._is_async

        async def handle(request: Request) -> Response:
            services: AppServices = request.app.state.services
            thread_pools: ThreadPools = request.app.state.thread_pools

            def respond() -> Response:
                if method != "GET" and policy.is_form:
                    _check_form(request)
                if (
                    method == "POST"
                    and policy.takes_idempotency_key
                    and (key := idempotency.key_of(request)) is not None
                ):
                    return idempotency.run_once(services, request, key, lambda: run_without_loop(handler(request)))
                return run_without_loop(handler(request))

            if policy.limited_by is LimitedBy.NOTHING:  # health checks are neither counted nor queued
                request.state.caller = LOCAL_ADMIN if services.no_auth else ANONYMOUS
                check_origin(request, request.state.caller, requires_login=False)
                return await handler(request) if is_async else await run_in_threadpool(respond)

            _reject_if_known_over_limit(services, policy, request)

            def authorize() -> None:
                _authorize(services, policy, request)

            def authorize_and_respond() -> Response:
                with services.database.one_connection():
                    authorize()
                    return respond()

            if method == "GET":
                return await thread_pools.reads.run(authorize_and_respond)
            # In the pool for reads: it waits for no lock, so that logins are not queued behind writes that do.
            await thread_pools.reads.run(authorize)
            await _read_body(request, services.settings.web)
            # Requests that wait for other servers than the database do not take a thread of the pool.
            return await (
                thread_pools.writes.run(respond) if policy.takes_idempotency_key else run_in_threadpool(respond)
            )

        return handle


def credentials_of(request: Request) -> _Credentials:
    """The API key, the session cookie and the address of a request."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    cookie = request.cookies.get(cookie_name(request))
    return _Credentials(token.strip() if scheme.lower() == "bearer" else None, cookie, client_address(request))


def cookie_name(request: Request) -> str:
    """The name of the session cookie of this request. Over TLS the plain name does not count: another host of the
    same site could have set it."""
    web: Web = request.app.state.services.settings.web
    return SECURE_COOKIE if web.secure_cookies == "always" or request.scope["scheme"] == "https" else COOKIE


def client_address(request: Request) -> str:
    """The address of the client. Of IPv6 it is the /64 network, since one customer has all of its addresses."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def check_permission(policy: RoutePolicy, caller: Principal) -> None:
    """Raise Unauthenticated or Denied if the policy of a route does not allow the caller."""
    if policy.allows(caller):
        return
    if caller.role is Role.ANONYMOUS:
        raise Unauthenticated(
            "Log in at /api/auth/login, or send an API key: `Authorization: Bearer hfk_…` (`holdfast keys add` makes one)."
        )
    if not caller.role.includes(policy.role):
        raise Denied(f"This needs the role {policy.role}; {caller.name} has the role {caller.role}.")
    if policy.scope is None:
        raise Denied("An API key does not do for this; log in.")
    raise Denied(
        f"This key lacks the scope {policy.scope}; `holdfast keys add USER NAME --scope {policy.scope}` makes one that has it."
    )


def check_origin(request: Request, caller: Principal, *, requires_login: bool) -> None:
    """Raise Denied for a request that another site may have made a browser send. `requires_login`: the route acts
    with the rights of the session, so that its CSRF token is needed."""
    if caller.via == "key":  # a browser never sends an API key by itself
        return
    headers = request.headers
    if caller.via == "no-auth" and _hostname(headers.get("Host", "")) not in _LOOPBACK_NAMES:
        raise Denied("Without authentication this server answers to localhost and 127.0.0.1 only.")
    if request.method in _SAFE_METHODS:
        return
    if headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"} or not _same_origin(request):
        raise Denied("Another site sent this request; only our own pages may.")
    if caller.via == "session" and requires_login and not _has_token(caller, headers.get(CSRF_HEADER, "")):
        raise Denied(f"Repeat the `csrf` of /api/auth/login or /api/auth/me in the header {CSRF_HEADER}.")


def _check_form(request: Request) -> None:
    """Raise Denied for a form that lacks the CSRF token of the session. Before: its body has been read, and its origin was checked."""
    caller: Principal = request.state.caller
    if caller.via == "session" and not _has_token(caller, forms.read_form(request).raw(forms.CSRF_FIELD)):
        raise Denied("This form belongs to a session that has ended; load the page again.")


def _has_token(caller: Principal, token: str) -> bool:
    return caller.csrf is not None and hmac.compare_digest(token.encode(), caller.csrf.encode())


def _same_origin(request: Request) -> bool:
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    try:
        parsed = urlsplit(origin)
    except ValueError:
        return False
    return (parsed.scheme, parsed.netloc) == (request.url.scheme, request.headers.get("Host", ""))


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _authorize(services: AppServices, policy: RoutePolicy, request: Request) -> None:
    """Authenticate the caller, count the request, and check the permission and the origin. Raises TooMany,
    Unauthenticated or Denied. After: the state of the request has the caller and the rate limits."""
    credentials = credentials_of(request)
    if policy.limited_by is LimitedBy.LOGIN:
        caller = authenticate(services, credentials)
        status = services.limiter.hit(services.login_limit, _rate_limit_key(ANONYMOUS, credentials))
    elif (
        policy.limited_by is LimitedBy.UNCOUNTED
        and (caller := authenticate(services, credentials)).role is not Role.ANONYMOUS
    ):
        request.state.caller = caller
        check_permission(policy, caller)
        check_origin(request, caller, requires_login=True)
        return
    else:
        caller, status = _authenticate_and_count(services, credentials)
    statuses = [status]
    if policy.limited_by is LimitedBy.SEED and status.allowed:
        statuses.append(services.limiter.hit(services.seed_limit, _rate_limit_key(caller, credentials)))
    request.state.caller, request.state.rate_limit_statuses = caller, statuses
    if not (policy.limited_by is LimitedBy.LOGOUT and caller.via == "session"):
        _raise_if_over_limit(statuses)
    check_permission(policy, caller)
    # The token of a form is in its body, which has not been read yet: `_check_form`.
    check_origin(request, caller, requires_login=policy.role is not Role.ANONYMOUS and not policy.is_form)


def _reject_if_known_over_limit(services: AppServices, policy: RoutePolicy, request: Request) -> None:
    """Raise TooMany for a caller without credentials whose address is known to be over its limit. It takes no thread
    and no connection, so that a flood keeps none from others."""
    credentials = credentials_of(request)
    if services.no_auth or not (credentials.bearer is None and credentials.cookie is None):
        return
    rate_limit = services.login_limit if policy.limited_by is LimitedBy.LOGIN else services.role_limits[Role.ANONYMOUS]
    if (status := services.limiter.known_refusal(rate_limit, _rate_limit_key(ANONYMOUS, credentials))) is not None:
        request.state.rate_limit_statuses = [status]
        _raise_if_over_limit([status])


def _raise_if_over_limit(statuses: list[RateLimitStatus]) -> None:
    for status in statuses:
        if not status.allowed:
            raise TooMany(_over_limit_message(status), retry_after=status.reset)


async def count_unmatched(request: Request) -> None:
    """Count a request that matches no route, like all others. Raises TooMany. While the database is unavailable it is
    not counted: the refusal needs no database."""
    services: AppServices = request.app.state.services
    thread_pools: ThreadPools = request.app.state.thread_pools

    def count() -> None:
        with services.database.one_connection():
            caller, status = _authenticate_and_count(services, credentials_of(request))
            request.state.caller, request.state.rate_limit_statuses = caller, [status]

    _reject_if_known_over_limit(services, _UNMATCHED, request)
    with suppress(StoreUnavailable):
        await thread_pools.reads.run(count)
        _raise_if_over_limit(request.state.rate_limit_statuses)


async def counted_error(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The response to a request that cannot be served: this status, or 429 if the caller is over the limit."""
    try:
        await count_unmatched(request)
    except HoldfastError as problem:
        return errors.from_error(problem)
    return errors.from_status(status, detail, headers)


def install(app: FastAPI) -> None:
    """Let requests that match no route (404, 405) count for the rate limits."""

    async def unmatched(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)  # noqa: S101 — it has a status
        detail = errors.http_detail(request, problem)
        return await counted_error(request, problem.status_code, detail, problem.headers)

    for status in (404, 405):
        app.add_exception_handler(status, unmatched)


def _authenticate_and_count(services: AppServices, credentials: _Credentials) -> tuple[Principal, RateLimitStatus]:
    """The caller and the rate limit after this request. Where the database counts, this is one statement."""
    authenticated = None
    if services.limiter.counts_in_database and not services.no_auth:
        if credentials.bearer is not None:
            authenticated = services.accounts.authenticate(
                Kind.KEY, credentials.bearer, services.limits, credentials.address
            )
        elif credentials.cookie is not None:
            authenticated = services.accounts.authenticate(
                Kind.SESSION, credentials.cookie, services.limits, credentials.address
            )
    if authenticated is not None:
        caller, rate = _shorten_name(authenticated[0]), authenticated[1]
        return caller, services.role_limits[caller.role].status(rate)
    caller = authenticate(services, credentials)
    return caller, services.limiter.hit(services.role_limits[caller.role], _rate_limit_key(caller, credentials))


def _rate_limit_key(caller: Principal, credentials: _Credentials) -> str:
    return f"user {caller.user_id}" if caller.user_id is not None else f"address {credentials.address}"


def authenticate(services: AppServices, credentials: _Credentials) -> Principal:
    """The user of an API key or a session; invalid credentials are anonymous."""
    if services.no_auth:
        return LOCAL_ADMIN
    if credentials.bearer is not None:
        return _shorten_name(services.accounts.key(credentials.bearer))
    if credentials.cookie is not None:
        return _shorten_name(services.accounts.session(credentials.cookie))
    return ANONYMOUS


def _shorten_name(caller: Principal | None) -> Principal:
    if caller is None:
        return ANONYMOUS
    return caller if len(caller.name) <= _MAX_ACTOR_LENGTH else replace(caller, name=caller.name[:_MAX_ACTOR_LENGTH])


async def _read_body(request: Request, web: Web) -> None:
    """Read the whole body within `web.request_timeout`, before any work begins that would wait for it. Raises 408 or
    400."""
    try:
        async with asyncio.timeout(web.request_timeout.total_seconds()):
            await request.body()
    except TimeoutError:
        raise HTTPException(408, "The body did not come in time.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The body broke off.") from None


def _in_this_thread(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint as a coroutine that runs in the calling thread, so that FastAPI does not move it to another one."""
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def call(**values: Any) -> Any:
        return endpoint(**values)

    return call


def _over_limit_message(status: RateLimitStatus) -> str:
    limit = status.rate_limit
    return f"{limit.requests} requests in {round(limit.window.total_seconds())} s are allowed ({limit.name}); wait, then ask again."
