"""Logging in and out, sessions, keys: over a real socket."""

from holdfast.model.account import Role, Scope
from tests.support.api import PASSWORD, Api


def test_a_session_from_login_to_logout(api: Api) -> None:
    api.user("ann", Role.ADMIN)
    client = api.client()
    answer = client.post("/api/auth/login", json={"name": "ann", "password": PASSWORD})
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/auth/me").json()["name"] == "ann"
    assert client.get("/api/admin/users").json()["items"][0]["name"] == "ann"
    client.headers["X-CSRF-Token"] = answer.json()["csrf"]
    kept = client.cookies["holdfast_session"]
    assert client.post("/api/auth/logout").status_code == 204
    again = api.client(cookies={"holdfast_session": kept})
    assert again.get("/api/auth/me").status_code == 401


def test_a_key_does_what_its_scopes_say(api: Api) -> None:
    reader = api.client(api.key(Role.ADMIN, Scope.READ))
    assert reader.get("/api/auth/me").status_code == 200
    refused = reader.get("/api/admin/users")
    assert refused.status_code == 403
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert "accounts" in refused.json()["detail"]
