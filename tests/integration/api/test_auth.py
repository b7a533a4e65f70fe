"""What a request must prove: that our own pages sent it, that its session is its own, that it is not too long."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from pydantic import SecretStr

from holdfast import __version__
from holdfast.db import migrate
from holdfast.db.connection import Database
from holdfast.errors import StoreUnavailable
from holdfast.jobs.service import JobService
from holdfast.model.auth import Role
from tests.support.api import PASSWORD, Api, Shared, serving, settings

JOB = {"name": "shop", "urls": ["https://a.example/"]}


def _session(api: Api) -> httpx.Client:
    api.user("ann", Role.ADMIN)
    return api.login("ann")


def test_another_site_cannot_use_a_session(api: Api) -> None:
    client = _session(api)
    for headers in (  # no token, a wrong one, an odd one; another origin, a hidden one; another site, a sister
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "x" * 43},
        {"X-CSRF-Token": "ü".encode()},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        answer = client.post("/api/jobs", json=JOB, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 403, (headers, answer.text)
        assert client.get("/api/jobs/shop").status_code == 404
    assert client.post("/api/jobs", json=JOB, headers={"Origin": api.url}).status_code == 201


def test_the_token_of_another_session_does_not_do(api: Api) -> None:
    client = _session(api)
    api.user("eve", Role.ADMIN)
    eve = api.login("eve")
    stolen = eve.headers["X-CSRF-Token"]
    assert client.post("/api/jobs", json=JOB, headers={"X-CSRF-Token": stolen}).status_code == 403


def test_a_form_of_another_site_is_no_json(api: Api) -> None:
    client = _session(api)
    sent = '{"name": "shop", "urls": ["https://a.example/"]}'
    answer = client.post("/api/jobs", content=sent, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 422
    assert client.get("/api/jobs/shop").status_code == 404


def test_a_login_never_keeps_the_session_that_was_there(api: Api) -> None:
    """Fixation: who slips a victim a session of his own must not be in when the victim has logged in."""
    api.user("ann", Role.ADMIN)
    api.user("eve")
    eve = api.login("eve")
    planted = eve.cookies["holdfast_session"]
    victim = api.client(cookies={"holdfast_session": planted})
    answer = victim.post("/api/auth/login", json={"name": "ann", "password": PASSWORD})
    assert answer.status_code == 200
    assert answer.cookies["holdfast_session"] != planted
    assert api.client(cookies={"holdfast_session": planted}).get("/api/auth/me").status_code == 401
    made_up = api.client(cookies={"holdfast_session": "hfs_" + "a" * 43})
    chosen = made_up.post("/api/auth/login", json={"name": "ann", "password": PASSWORD})
    assert chosen.cookies["holdfast_session"] != "hfs_" + "a" * 43


def test_what_was_logged_out_cannot_be_replayed(api: Api) -> None:
    client = _session(api)
    cookie, csrf = client.cookies["holdfast_session"], client.headers["X-CSRF-Token"]
    replay = api.client(cookies={"holdfast_session": cookie}, headers={"X-CSRF-Token": csrf})
    assert replay.post("/api/jobs", json=JOB).status_code == 201
    assert client.post("/api/auth/logout").status_code == 204
    assert replay.post("/api/jobs", json={**JOB, "name": "other"}).status_code == 401
    assert replay.get("/api/jobs").status_code == 401


def test_another_password_ends_every_session(api: Api) -> None:
    client, other = _session(api), api.login("ann")
    wrong = client.post("/api/auth/password", json={"old": "not the password", "new": "a better password"})
    assert wrong.status_code == 401
    assert client.post("/api/auth/password", json={"old": PASSWORD, "new": "a better password"}).status_code == 204
    assert [one.get("/api/auth/me").status_code for one in (client, other)] == [401, 401]
    assert api.login("ann", "a better password").get("/api/auth/me").status_code == 200


def test_sessions_and_keys_of_others_are_not_mine(api: Api) -> None:
    client = _session(api)
    api.user("eve")
    eve = api.login("eve")
    (mine,) = client.get("/api/auth/sessions").json()["items"]
    assert mine["current"]
    assert eve.delete(f"/api/auth/sessions/{mine['id']}").status_code == 404
    made = client.post("/api/auth/keys", json={"name": "k", "scopes": ["read"], "expires_in": "P90D"})
    assert made.status_code == 201, made.text
    assert eve.delete(f"/api/auth/keys/{made.json()['id']}").status_code == 404
    key = api.client(made.json()["token"])
    assert key.get("/api/auth/me").status_code == 200
    assert client.delete(f"/api/auth/keys/{made.json()['id']}").status_code == 204
    assert key.get("/api/auth/me").status_code == 401
    beyond = eve.post("/api/auth/keys", json={"name": "k", "scopes": ["crawl"]})
    assert beyond.status_code == 422


def test_over_tls_the_cookie_is_for_tls_and_this_host_only(database: Database, tmp_path: Path) -> None:
    given = settings(tmp_path, trusted_proxies=("127.0.0.1",))
    with serving(database, given) as api:
        api.user("ann")
        behind = api.client(headers={"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7"})
        answer = behind.post("/api/auth/login", json={"name": "ann", "password": PASSWORD})
        assert answer.headers["Set-Cookie"].startswith("__Host-holdfast_session=hfs_")
        assert {"secure", "path=/", "httponly"} <= {
            part.strip().lower() for part in answer.headers["Set-Cookie"].split(";")
        }
        with database.session() as connection:
            assert connection.execute("SELECT address FROM sessions").fetchone() == ("198.51.100.7",)


def test_who_is_no_trusted_proxy_is_not_believed(api: Api, connection: psycopg.Connection) -> None:
    api.user("ann")
    liar = api.client(headers={"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7"})
    answer = liar.post("/api/auth/login", json={"name": "ann", "password": PASSWORD})
    assert "secure" not in answer.headers["Set-Cookie"].lower()
    assert connection.execute("SELECT address FROM sessions").fetchone() == ("127.0.0.1",)


def test_a_body_has_an_end(database: Database, tmp_path: Path) -> None:
    with serving(database, settings(tmp_path, body_bytes=2000)) as api:
        admin = api.admin
        long = {**JOB, "urls": ["https://a.example/" + "x" * 3000]}
        assert admin.post("/api/jobs", json=long).status_code == 413

        def pieces() -> object:
            yield b'{"name": "shop", "urls": ["'
            for _ in range(100):
                yield b"x" * 100

        streamed = admin.post("/api/jobs", content=pieces(), headers={"Content-Type": "application/json"})  # type: ignore[arg-type]
        assert streamed.status_code == 413
        assert admin.get("/api/jobs/shop").status_code == 404


def test_a_body_that_does_not_come_is_not_waited_for(database: Database, tmp_path: Path) -> None:
    with serving(database, settings(tmp_path, request_timeout="1s")) as api:
        token = api.key(Role.ADMIN)
        host, port = api.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as slow:
            slow.sendall(
                f"POST /api/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{".encode()
            )
            assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_over_tls_a_plain_cookie_opens_nothing(database: Database, tmp_path: Path) -> None:
    """Another host of the same site can set it."""
    with serving(database, settings(tmp_path, trusted_proxies=("127.0.0.1",))) as api:
        api.user("eve")
        planted = api.login("eve").cookies["holdfast_session"]
        secure = api.client(cookies={"holdfast_session": planted}, headers={"X-Forwarded-Proto": "https"})
        assert secure.get("/api/auth/me").status_code == 401


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"[" * 400 + b"]" * 400, {}),
        (b'{"name": ' + b"[" * 5000 + b"]" * 5000 + b"}", {}),
        (b"{}", {"Origin": "http://["}),
        (b"{}", {"Host": "["}),
    ],
    ids=["a deep list", "a deep field", "an odd origin", "an odd host"],
)
def test_what_strangers_send_is_never_our_fault(shared: Shared, body: bytes, headers: dict[str, str]) -> None:
    sent = {"Content-Type": "application/json", **headers}
    answer = shared.anybody.post("/api/auth/login", content=body, headers=sent)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_our_faults_say_nothing_of_our_insides(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client = api.admin
    monkeypatch.setattr(JobService, "page", lambda *_, **__: 1 / 0)
    answer = client.get("/api/jobs")
    assert (answer.status_code, "division" in answer.text) == (500, False)
    assert answer.headers["Content-Security-Policy"]
    assert client.get("/health").status_code == 200

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("The database at db.internal:5432/holdfast does not answer.")

    monkeypatch.setattr(JobService, "page", away)
    answer = client.get("/api/jobs")
    assert (answer.status_code, "db.internal" in answer.text, answer.headers["Retry-After"]) == (503, False, "5")


@pytest.mark.parametrize("path", ["/api/jobs/%00", "/api/jobs?prefix=%00", "/api/jobs/%ff", "/api/jobs?prefix=%ff"])
def test_addresses_that_are_no_text_are_turned_away(shared: Shared, path: str) -> None:
    answer = shared.reader.get(path)
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:holdfast:problem:bad-request"


def test_every_answer_is_safe_to_show(shared: Shared) -> None:
    for path in ("/health", "/api/jobs", "/nowhere"):
        headers = shared.anybody.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "server" not in headers


def test_what_does_not_exist_is_a_problem_too(shared: Shared) -> None:
    missing, wrong = shared.anybody.get("/api/nothing"), shared.anybody.delete("/health")
    assert (missing.status_code, wrong.status_code, wrong.headers["Allow"]) == (404, 405, "GET")
    for answer in (missing, wrong):
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert {"type", "title", "status", "detail"} <= answer.json().keys()


def test_without_authentication_only_this_machine_is_answered(database: Database, tmp_path: Path) -> None:
    with serving(database, settings(tmp_path), no_auth=True) as api:
        client = api.client()
        assert client.get("/api/auth/me").json() == {
            "name": "local", "role": "admin", "via": "no-auth", "scopes": None, "csrf": None,
        }  # fmt: skip
        assert client.post("/api/jobs", json=JOB).status_code == 201
        rebound = client.get("/api/jobs", headers={"Host": "evil.example"})
        assert rebound.status_code == 403
        foreign = client.post("/api/jobs", json={**JOB, "name": "b"}, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403


def test_ready_says_what_does_not_work(api: Api, connection: psycopg.Connection) -> None:
    alive = {"status": "ok", "database": "ok", "redis": "not configured", "version": __version__}
    assert api.anybody.get("/health").json() == alive
    assert api.anybody.get("/health/ready").json() == {
        "status": "ready",
        "parts": [
            {"name": name, "works": True, "cause": None} for name in ("database", "schema", "crawl", "backups", "disk")
        ],
    }
    connection.execute("UPDATE schema_version SET version_num = '0001'")
    while (answer := api.anybody.get("/health/ready")).status_code == 200:
        pass  # what was seen serves for a second
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
    assert "0001" in answer.json()["parts"][1]["cause"]
    liveness = api.anybody.get("/health")
    assert (liveness.status_code, liveness.json()) == (200, alive | {"status": "degraded", "database": "unavailable"})


def test_a_server_whose_database_hangs_still_lives(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, one look hangs, and nobody waits for it."""
    looks, over = [], threading.Event()

    def hangs(*_: object, **__: object) -> None:
        looks.append(1)
        over.wait(30)
        raise StoreUnavailable("The database at db.internal:5432 does not answer.")

    monkeypatch.setattr(migrate, "current", hangs)
    try:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: api.anybody.get("/health"), range(100)))
        ready = api.anybody.get("/health/ready")
    finally:
        over.set()
    assert {(answer.status_code, answer.json()["database"]) for answer in answers} == {(200, "unavailable")}
    assert (ready.status_code, ready.json()["parts"][0]["cause"]) == (503, "It does not answer in time.")
    assert "db.internal" not in ready.text
    assert len(looks) == 1


def test_health_names_redis(database: Database, tmp_path: Path) -> None:
    given = settings(tmp_path).model_copy(update={"redis_url": SecretStr("redis://127.0.0.1:1/0")})
    with serving(database, given) as api:
        answer = api.anybody.get("/health")
    found = answer.json()
    assert (answer.status_code, found["status"], found["database"], found["redis"]) == (
        200, "degraded", "ok", "unavailable",
    )  # fmt: skip
    assert "127.0.0.1" not in answer.text
