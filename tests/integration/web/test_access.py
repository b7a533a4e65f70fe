"""Every route, asked by everybody: exactly those pass who may."""

import re
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest

from holdfast.model.account import SCOPES, Role, Scope
from holdfast.web.access import ROUTES
from tests.support.api import Api

PUBLIC = {"GET /health", "GET /health/ready", "GET /api/stats", "POST /api/auth/login"}
"""What anybody may, and nothing else."""
NEVER_BY_KEY = re.compile(r"(POST|GET|DELETE) /api/auth/(logout|password|sessions.*|keys.*)$")
SCOPE_OF_WRITES = {
    r"/api/(jobs|frontier)|/api/admin/(tasks|batches)": Scope.CRAWL,
    r"/api/admin/domains/\{domain\}/proxies|/api/admin/proxies": Scope.PROXIES,
    r"/api/admin/(domains|priorities)": Scope.DOMAINS,
    r"/api/admin/(users|keys|audit)": Scope.ACCOUNTS,
    r"/api/admin/(pages|claims|runs|webhooks|verify)": Scope.OPERATE,
}


def _role(route: str) -> Role:
    """What the requirements say: reads need a user, admin paths and other writes an admin; one's own account is one's own."""
    method, path = route.split()
    if route in PUBLIC:
        return Role.ANONYMOUS
    if path.startswith("/api/auth/"):
        return Role.USER
    return Role.ADMIN if path.startswith("/api/admin/") or method != "GET" else Role.USER


def _scope(route: str) -> Scope | None:
    method, path = route.split()
    if NEVER_BY_KEY.match(route):
        return None
    if path == "/metrics":
        return Scope.METRICS
    if method == "GET" and not path.startswith("/api/admin/"):
        return Scope.READ
    return next(scope for pattern, scope in SCOPE_OF_WRITES.items() if re.match(pattern, path))


def _ask(client: httpx.Client, route: str) -> int:
    """The status of an answer. What is asked for does not exist, and bodies are empty: who may pass hears that, and nothing is changed."""
    method, path = route.split()
    for name, value in {"id": "999999", "domain": "nowhere.example", "job": "no-such-job", "name": "nobody"}.items():
        path = path.replace(f"{{{name}}}", value)
    with client.stream(method, path.replace("{kind}", "pages")) as answer:  # some never end: the head is enough
        return answer.status_code


def _refused(status: int) -> bool:
    return status in {401, 403}


def _expired(api: Api, connection: psycopg.Connection) -> httpx.Client:
    client = api.login(_named(api, Role.ADMIN))
    connection.execute(
        "UPDATE sessions SET created_at = created_at - interval '2 days', expires_at = clock_timestamp()"
    )
    return client


def _named(api: Api, role: Role) -> str:
    name = f"{role}-with-a-session"
    api.user(name, role)
    return name


def _disabled(api: Api) -> httpx.Client:
    api.user("boss", Role.ADMIN)
    name = _named(api, Role.ADMIN)
    client = api.login(name)
    api.accounts.disable(name, actor="test")
    return client


def _revoked(api: Api) -> httpx.Client:
    token = api.key(Role.ADMIN)
    api.accounts.revoke_key(api.accounts.keys()[0].id, actor="test")
    return api.client(token)


Somebody = Callable[[Api, psycopg.Connection], httpx.Client]
PEOPLE: dict[str, tuple[Somebody, Callable[[str], bool]]] = {
    "anonymous": (lambda api, _: api.client(), lambda route: _role(route) is Role.ANONYMOUS),
    "made-up key": (lambda api, _: api.client("hfk_" + "x" * 43), lambda route: _role(route) is Role.ANONYMOUS),
    "revoked key": (lambda api, _: _revoked(api), lambda route: _role(route) is Role.ANONYMOUS),
    "expired session": (_expired, lambda route: _role(route) is Role.ANONYMOUS),
    "disabled user": (lambda api, _: _disabled(api), lambda route: _role(route) is Role.ANONYMOUS),
    "user": (lambda api, _: api.login(_named(api, Role.USER)), lambda route: _role(route) is not Role.ADMIN),
    "admin": (lambda api, _: api.login(_named(api, Role.ADMIN)), lambda _: True),
    "user's key": (
        lambda api, _: api.client(api.key(Role.USER)),
        lambda route: route in PUBLIC or (_scope(route) in SCOPES[Role.USER] and _role(route) is Role.USER),
    ),
    "admin's key": (
        lambda api, _: api.client(api.key(Role.ADMIN)),
        lambda route: route in PUBLIC or _scope(route) is not None,
    ),
}


def _keys() -> Iterator[tuple[str, Scope, bool]]:
    for scope in Scope:
        yield f"key with {scope} only", scope, True
        yield f"key without {scope}", scope, False


@pytest.mark.parametrize("person", PEOPLE)
def test_exactly_those_pass_who_may(api: Api, connection: psycopg.Connection, person: str) -> None:
    somebody, may = PEOPLE[person]
    client = somebody(api, connection)
    ends_it = "POST /api/auth/logout"
    routes = [route for route in ROUTES if route != ends_it] + [ends_it]
    wrong = [(route, status) for route in routes if _refused(status := _ask(client, route)) == may(route)]
    assert wrong == []


@pytest.mark.parametrize(
    ("only", "scope"), [(only, scope) for _, scope, only in _keys()], ids=[name for name, *_ in _keys()]
)
def test_a_key_opens_what_its_scopes_say(api: Api, scope: Scope, only: bool) -> None:
    scopes = {scope} if only else set(Scope) - {scope}
    client = api.client(api.key(Role.ADMIN, *scopes))
    wrong = [
        (route, status)
        for route in ROUTES
        if _refused(status := _ask(client, route)) == (route in PUBLIC or _scope(route) in scopes)
    ]
    assert wrong == []


def test_the_table_is_what_is_served_and_what_the_requirements_say(api: Api) -> None:
    answer = api.reader.get("/api/openapi.json").json()
    described = {f"{method.upper()} {path}" for path, methods in answer["paths"].items() for method in methods}
    assert described == set(ROUTES)
    assert {route: access.role for route, access in ROUTES.items()} == {route: _role(route) for route in ROUTES}
    for route, access in ROUTES.items():
        method, path = route.split()
        assert answer["paths"][path][method.lower()]["x-role"] == access.role


def test_a_route_that_is_not_in_the_table_is_not_served(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.web import app

    fewer = {route: access for route, access in ROUTES.items() if route != "GET /api/jobs"}
    monkeypatch.setattr(app, "ROUTES", fewer)
    with pytest.raises(AssertionError, match="GET /api/jobs"):
        app.make(api.office)
    monkeypatch.setattr(app, "ROUTES", {**ROUTES, "GET /api/nothing": ROUTES["GET /api/jobs"]})
    with pytest.raises(AssertionError, match="GET /api/nothing"):
        app.make(api.office)
