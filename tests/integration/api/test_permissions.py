"""Every route, asked by everybody: exactly those pass who may."""

import http.client
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from urllib.parse import urlencode

import httpx
import pytest

from holdfast.api.app import create_unserved_app, served_routes
from holdfast.api.permissions import ROUTES
from holdfast.model.auth import SCOPES, Role, Scope
from tests.conftest import MakeDatabase
from tests.support.api import Api, serving, settings

PUBLIC = {
    "GET /",
    "GET /docs/assets/{name}",
    "GET /health",
    "GET /health/ready",
    "GET /api/stats",
    "POST /api/auth/login",
    "GET /static/{name}",
    "GET /login",
    "POST /login",
}
"""What anybody may, and nothing else."""
NEVER_BY_KEY = re.compile(r"(POST|GET|DELETE) (/api/auth/(logout|password|sessions.*|keys.*)|/logout|/account.*)$")
ENDS_SESSION = ("POST /api/auth/logout", "POST /logout")
OF_ADMINS = re.compile(r"/(users|audit)\b")
"""Pages of the dashboard that a user does not see."""
SCOPE_OF_WRITES = {
    r"/api/(jobs|frontier)|/api/admin/(tasks|batches)": Scope.CRAWL,
    r"/api/admin/domains/\{domain\}/proxies|/api/admin/proxies": Scope.PROXIES,
    r"/api/admin/(domains|priorities)": Scope.DOMAINS,
    r"/api/admin/(users|keys|audit)": Scope.ACCOUNTS,
    r"/api/admin/(alerts|pages|claims|runs|webhooks|verify|replay|rebuild|retention|archives?)": Scope.OPERATE,
    # Forms and pages of the dashboard
    r"/(users|audit)": Scope.ACCOUNTS,
    r"/(jobs|tasks|batches)": Scope.CRAWL,
    r"/pages/(task|seed|retry)": Scope.CRAWL,
    r"/domains": Scope.DOMAINS,
    r"/proxies": Scope.PROXIES,
    r"/(workers|alerts|webhooks|storage|operations|pages)": Scope.OPERATE,
}

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def api(make_database: MakeDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One server for everybody: who they are is what differs."""
    with make_database() as database, serving(database, settings(tmp_path_factory.mktemp("access"))) as served:
        yield served


def _role(route: str) -> Role:
    """What the requirements say: reads need a user, admin paths and other writes an admin; one's own account is one's own."""
    method, path = route.split()
    if route in PUBLIC:
        return Role.ANONYMOUS
    if path.startswith(("/api/auth/", "/account", "/logout")):
        return Role.USER
    if OF_ADMINS.match(path):
        return Role.ADMIN
    return Role.ADMIN if path.startswith("/api/admin/") or method != "GET" else Role.USER


def _scope(route: str) -> Scope | None:
    method, path = route.split()
    if NEVER_BY_KEY.match(route):
        return None
    if path == "/metrics":
        return Scope.METRICS
    if method == "GET" and not path.startswith("/api/admin/") and not OF_ADMINS.match(path):
        return Scope.READ
    return next(scope for pattern, scope in SCOPE_OF_WRITES.items() if re.match(pattern, path))


class Asker:
    """Somebody over one connection, at a fifth of what a whole client takes: these are thousands of requests."""

    def __init__(self, client: httpx.Client) -> None:
        self._line = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=30)
        self._headers = {
            name: client.headers[name] for name in ("Authorization", "X-CSRF-Token") if name in client.headers
        }
        if client.cookies:
            self._headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in client.cookies.items())

    def ask(self, route: str) -> int:
        """The status of an answer. What is asked for does not exist, and bodies are empty: who may pass hears that and changes nothing."""
        method, path = route.split()
        missing = {
            "id": "999999",
            "machine": "no-such-machine",
            "domain": "nowhere.example",
            "job": "no-such-job",
            "name": "nobody",
            "kind": "pages",
            "view": "overview",
        }
        for name, value in missing.items():
            path = path.replace(f"{{{name}}}", value)
        headers, body = self._headers, None
        if ROUTES[route].is_form:  # its token is a field
            body = urlencode({"csrf": headers.get("X-CSRF-Token", "")})
            headers = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        self._line.request(method, path, body, headers=headers)
        answer = self._line.getresponse()
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            answer.close()  # it never ends: the head is enough
            self._line.close()
        else:
            answer.read()
        return answer.status

    def close(self) -> None:
        self._line.close()


def _refused(status: int) -> bool:
    return status in {401, 403}


def _expired(api: Api) -> httpx.Client:
    client = _with_session(api, Role.ADMIN)
    with api.services.database.session() as connection:
        connection.execute(
            "UPDATE sessions SET created_at = created_at - interval '2 days', expires_at = clock_timestamp()"
        )
    return client


def _with_session(api: Api, role: Role) -> httpx.Client:
    name = f"{role}-{next(_numbers)}-with-a-session"
    api.user(name, role)
    return api.login(name)


def _disabled(api: Api) -> httpx.Client:
    api.user(f"boss-{next(_numbers)}", Role.ADMIN)
    client = _with_session(api, Role.ADMIN)
    api.accounts.disable(client.get("/api/auth/me").json()["name"], actor="test")
    return client


def _revoked(api: Api) -> httpx.Client:
    key, token = api.accounts.create_key(
        api.user(f"careless-{next(_numbers)}", Role.ADMIN), "test", SCOPES[Role.ADMIN], None, actor="test"
    )
    assert api.client(token).get("/api/auth/me").status_code == 200
    api.accounts.revoke_key(key.id, actor="test")
    return api.client(token)


Somebody = Callable[[Api], httpx.Client]
PEOPLE: dict[str, tuple[Somebody, Callable[[str], bool]]] = {
    "anonymous": (lambda api: api.client(), lambda route: _role(route) is Role.ANONYMOUS),
    "made-up key": (lambda api: api.client("hfk_" + "x" * 43), lambda route: _role(route) is Role.ANONYMOUS),
    "revoked key": (_revoked, lambda route: _role(route) is Role.ANONYMOUS),
    "expired session": (_expired, lambda route: _role(route) is Role.ANONYMOUS),
    "disabled user": (_disabled, lambda route: _role(route) is Role.ANONYMOUS),
    "user": (lambda api: _with_session(api, Role.USER), lambda route: _role(route) is not Role.ADMIN),
    "admin": (lambda api: _with_session(api, Role.ADMIN), lambda _: True),
    "user's key": (
        lambda api: api.client(api.key(Role.USER)),
        lambda route: route in PUBLIC or (_scope(route) in SCOPES[Role.USER] and _role(route) is Role.USER),
    ),
    "admin's key": (
        lambda api: api.client(api.key(Role.ADMIN)),
        lambda route: route in PUBLIC or _scope(route) is not None,
    ),
}


def _keys() -> Iterator[tuple[str, Scope, bool]]:
    for scope in Scope:
        yield f"key with {scope} only", scope, True
        yield f"key without {scope}", scope, False


@pytest.mark.parametrize("person", PEOPLE)
def test_exactly_those_pass_who_may(api: Api, person: str) -> None:
    somebody, may = PEOPLE[person]
    wrong: list[tuple[str, int]] = []
    others = sorted(set(ROUTES) - set(ENDS_SESSION))
    for routes in ([*others, ENDS_SESSION[0]], [ENDS_SESSION[1]]):
        with closing(Asker(somebody(api))) as asker:
            wrong += [(route, status) for route in routes if _refused(status := asker.ask(route)) == may(route)]
    assert wrong == []


@pytest.mark.parametrize(
    ("only", "scope"), [(only, scope) for _, scope, only in _keys()], ids=[name for name, *_ in _keys()]
)
def test_a_key_opens_what_its_scopes_say(api: Api, scope: Scope, only: bool) -> None:
    scopes = {scope} if only else set(Scope) - {scope}
    with closing(Asker(api.client(api.key(Role.ADMIN, *scopes)))) as asker:
        wrong = [
            (route, status)
            for route in ROUTES
            if _refused(status := asker.ask(route)) == (route in PUBLIC or _scope(route) in scopes)
        ]
    assert wrong == []


def test_the_table_is_what_is_served_and_what_the_requirements_say(api: Api) -> None:
    answer = api.reader.get("/api/openapi.json").json()
    described = {f"{method.upper()} {path}" for path, methods in answer["paths"].items() for method in methods}
    pages = served_routes(create_unserved_app(), include_in_schema=False)
    assert described | pages == set(ROUTES)
    assert not {page for page in pages if page.split()[1].startswith("/api")}, "only pages are not described"
    assert {route: access.role for route, access in ROUTES.items()} == {route: _role(route) for route in ROUTES}
    for route, access in ROUTES.items():
        if route in pages:
            continue
        method, path = route.split()
        assert answer["paths"][path][method.lower()]["x-role"] == access.role


def test_a_route_that_is_not_in_the_table_is_not_served(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.api import app

    fewer = {route: access for route, access in ROUTES.items() if route != "GET /api/jobs"}
    monkeypatch.setattr(app, "ROUTES", fewer)
    with pytest.raises(AssertionError, match="GET /api/jobs"):
        app.create_app(api.services)
    monkeypatch.setattr(app, "ROUTES", {**ROUTES, "GET /api/nothing": ROUTES["GET /api/jobs"]})
    with pytest.raises(AssertionError, match="GET /api/nothing"):
        app.create_app(api.services)
