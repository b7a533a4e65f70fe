"""The guard before every route: who asks, how often, whether they may, and whether it is really them.

The rule: nothing of a request's body is read, and nothing of a route is run, before the table of `access` has allowed it. What changes
something on the strength of a cookie must prove that our own pages or programs sent it. A request that no route serves counts, too.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from holdfast.control.tokens import Kind
from holdfast.errors import Denied, StoreUnavailable, TooMany, Unauthenticated
from holdfast.model.account import ANONYMOUS, EVERYBODY, Principal, Role
from holdfast.settings import Web
from holdfast.web import idempotency, problems
from holdfast.web.access import ROUTES, Access, Counted
from holdfast.web.gate import Gates, finished
from holdfast.web.limits import Standing
from holdfast.web.office import Given, Office

COOKIE: Final = "holdfast_session"
SECURE_COOKIE: Final = "__Host-holdfast_session"
"""Its name over TLS: browsers then refuse one that another host of the same site has set."""
CSRF_HEADER: Final = "X-CSRF-Token"
_LONGEST_ACTOR: Final = 100
"""Characters of a name in the audit log."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_UNSERVED: Final = Access(Role.ANONYMOUS, None)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Asked(NamedTuple):
    """What of a request says who sends it."""

    bearer: str | None
    cookie: str | None
    address: str


class GuardedRoute(APIRoute):
    """A route behind the guard."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._is_quick = iscoroutinefunction(endpoint)
        """It asks nobody for anything, so that it needs no thread."""
        super().__init__(path, _at_once(endpoint), **options)
        self._begins = self.path_format.partition("{")[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As its parent finds; but of a hundred routes all but a few are told by how they begin, at a tenth of the cost."""
        return super().matches(scope) if scope["path"].startswith(self._begins) else (Match.NONE, {})

    def get_route_handler(self) -> Handler:
        """The route's own handler, behind everything that has to hold first."""
        handler = super().get_route_handler()
        (method,) = self.methods or {"GET"}
        access, is_quick = ROUTES[f"{method} {self.path_format}"], self._is_quick

        async def guarded(request: Request) -> Response:
            office: Office = request.app.state.office
            gates: Gates = request.app.state.gates

            def answer() -> Response:
                if method == "POST" and access.keeps and idempotency.HEADER in request.headers:
                    return idempotency.once(office, request, lambda: finished(handler(request)))
                return finished(handler(request))

            if access.counted is Counted.FREE:  # who watches is not kept waiting
                request.state.who = EVERYBODY if office.no_auth else ANONYMOUS
                check_origin(request, request.state.who, proven=False)
                return await handler(request) if is_quick else await run_in_threadpool(answer)

            _enter_refused(office, access, request)

            def enter() -> None:
                _enter(office, access, request)

            def enter_and_answer() -> Response:
                with office.database.kept():
                    enter()
                    return answer()

            if method == "GET":
                return await gates.reads.work(enter_and_answer)
            await gates.reads.work(enter)  # it waits for no lock: who logs in is not kept waiting by writes that do
            await _receive(request, office.settings.web)
            # What waits for others than the database keeps nobody waiting.
            return await (gates.writes.work(answer) if access.keeps else run_in_threadpool(answer))

        return guarded


def asked(request: Request) -> _Asked:
    """Who a request says that it comes from."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    cookie = request.cookies.get(cookie_name(request))
    return _Asked(token.strip() if scheme.lower() == "bearer" else None, cookie, address_of(request))


def cookie_name(request: Request) -> str:
    """The one cookie that counts: over TLS another host of the same site could have set the plain one."""
    web: Web = request.app.state.office.settings.web
    return SECURE_COOKIE if web.secure_cookies == "always" or request.scope["scheme"] == "https" else COOKIE


def address_of(request: Request) -> str:
    """Where a request comes from; of IPv6 the network that one customer has, since every machine there has any number of addresses."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host or "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def check(access: Access, who: Principal) -> None:
    """Raise what somebody is told who may not."""
    if access.allows(who):
        return
    if who.role is Role.ANONYMOUS:
        raise Unauthenticated(
            "Log in at /api/auth/login, or send an API key: `Authorization: Bearer hfk_…` (`holdfast keys add` makes one)."
        )
    if not who.role.includes(access.role):
        raise Denied(f"This needs the role {access.role}; {who.name} has the role {who.role}.")
    if access.scope is None:
        raise Denied("An API key does not do for this; log in.")
    raise Denied(f"This key lacks the scope {access.scope}; make one with it.")


def check_origin(request: Request, who: Principal, *, proven: bool) -> None:
    """Raise Denied for a request that another site may have made a browser send. `proven`: it goes by the session that it came with."""
    if who.via == "key":  # which no browser sends by itself
        return
    headers = request.headers
    if who.via == "no-auth" and _hostname(headers.get("Host", "")) not in _LOOPBACK_NAMES:
        raise Denied("Without authentication this server answers to localhost and 127.0.0.1 only.")
    if request.method in _SAFE:
        return
    if headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"} or not _same_origin(request):
        raise Denied("Another site sent this request; only our own pages may.")
    if who.via == "session" and proven:
        given = headers.get(CSRF_HEADER, "")
        if who.csrf is None or not hmac.compare_digest(given.encode(), who.csrf.encode()):
            raise Denied(f"Repeat the `csrf` of /api/auth/login or /api/auth/me in the header {CSRF_HEADER}.")


def _same_origin(request: Request) -> bool:
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    try:
        given = urlsplit(origin)
    except ValueError:
        return False
    return (given.scheme, given.netloc) == (request.url.scheme, request.headers.get("Host", ""))


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _enter(office: Office, access: Access, request: Request) -> None:
    """Raise what keeps somebody out. After: the request says who sent it."""
    credentials = asked(request)
    if access.counted is Counted.LOGIN:
        who = identify(office, credentials)
        standing = office.limiter.hit(office.login_tier, _counted_as(ANONYMOUS, credentials))
    else:
        who, standing = _counted(office, credentials)
    standings = [standing]
    if access.counted is Counted.SEED and standing.allowed:
        standings.append(office.limiter.hit(office.seed_tier, _counted_as(who, credentials)))
    request.state.who, request.state.standings = who, standings
    if not (access.counted is Counted.LOGOUT and who.via == "session"):
        _refuse(standings)
    check(access, who)
    check_origin(request, who, proven=access.role is not Role.ANONYMOUS)


def _enter_refused(office: Office, access: Access, request: Request) -> None:
    """Raise TooMany for a caller without credentials whose address is known to have no request left. It takes no thread and no connection,
    so that a flood keeps none from others."""
    credentials = asked(request)
    if office.no_auth or not (credentials.bearer is None and credentials.cookie is None):
        return
    tier = office.login_tier if access.counted is Counted.LOGIN else office.tiers[Role.ANONYMOUS]
    if (standing := office.limiter.refusal(tier, _counted_as(ANONYMOUS, credentials))) is not None:
        request.state.standings = [standing]
        _refuse([standing])


def _refuse(standings: list[Standing]) -> None:
    for standing in standings:
        if not standing.allowed:
            raise TooMany(_too_many(standing), retry_after=standing.reset)


async def count_unserved(request: Request) -> None:
    """Count a request that no route serves, like all others. Raises TooMany. With the database away it is not counted: its refusal needs
    no database."""
    office: Office = request.app.state.office
    gates: Gates = request.app.state.gates

    def count() -> None:
        with office.database.kept():
            request.state.standings = [_counted(office, asked(request))[1]]

    _enter_refused(office, _UNSERVED, request)
    with suppress(StoreUnavailable):
        await gates.reads.work(count)
        _refuse(request.state.standings)


async def counted_refusal(request: Request, status: int, detail: str) -> Response:
    """The answer to a request that cannot be served, or that the caller has asked too often."""
    try:
        await count_unserved(request)
    except TooMany as problem:
        return problems.of_error(problem)
    return problems.plain(status, detail)


def _counted(office: Office, asked: _Asked) -> tuple[Principal, Standing]:
    """Who asks, and where they stand now that they did. Where the database counts, that is one statement."""
    found = None
    if office.limiter.is_local and not office.no_auth:
        if asked.bearer is not None:
            found = office.accounts.enter(Kind.KEY, asked.bearer, office.limits, asked.address)
        elif asked.cookie is not None:
            found = office.accounts.enter(Kind.SESSION, asked.cookie, office.limits, asked.address)
    if found is not None:
        who, rate = _named(found[0]), found[1]
        return who, office.tiers[who.role].standing(rate)
    who = identify(office, asked)
    return who, office.limiter.hit(office.tiers[who.role], _counted_as(who, asked))


def _counted_as(who: Principal, asked: _Asked) -> str:
    return f"user {who.user_id}" if who.user_id is not None else f"address {asked.address}"


def identify(office: Office, asked: _Asked) -> Principal:
    """Somebody by their key or session; what is not valid is nobody's."""
    if office.no_auth:
        return EVERYBODY
    if asked.bearer is not None:
        return _named(office.accounts.key(asked.bearer))
    if asked.cookie is not None:
        return _named(office.accounts.session(asked.cookie))
    return ANONYMOUS


def _named(who: Principal | None) -> Principal:
    if who is None:
        return ANONYMOUS
    return who if len(who.name) <= _LONGEST_ACTOR else replace(who, name=who.name[:_LONGEST_ACTOR])


async def _receive(request: Request, web: Web) -> None:
    """Read the whole body now, if there is one: within its time, and before anything is begun that would wait for it."""
    try:
        async with asyncio.timeout(web.request_timeout.total_seconds()):
            await request.body()
    except TimeoutError:
        raise HTTPException(408, "The body did not come in time.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The body broke off.") from None


def _at_once(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The same function for a caller that is in a thread already, so that nobody takes it to another one. What the guard gives it is not
    seen from outside, but for the request that it is taken from."""
    asked = signature(endpoint).parameters
    given = {
        name: one.by for name, part in asked.items() for one in get_args(part.annotation)[1:] if isinstance(one, Given)
    }
    named = next((name for name, part in asked.items() if part.annotation is Request), None)
    seen = [part.replace(kind=Parameter.KEYWORD_ONLY) for name, part in asked.items() if name not in given]
    if given and named is None:
        seen.append(Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request))

    @wraps(endpoint)
    async def called(**values: Any) -> Any:
        if given:
            request = values[named] if named is not None else values.pop("request")
            for name, by in given.items():
                values[name] = by(request)
        found = endpoint(**values)
        return await found if is_quick else found

    is_quick = iscoroutinefunction(endpoint)
    called.__signature__ = signature(endpoint).replace(parameters=seen)  # type: ignore[attr-defined]  # FastAPI looks there
    return called


def _too_many(standing: Standing) -> str:
    tier = standing.tier
    return f"{tier.most} requests in {round(tier.window.total_seconds())} s are allowed ({tier.name}); wait, then ask again."
