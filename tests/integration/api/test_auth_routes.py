"""Logging in and out, sessions, keys: over a real socket."""

from holdfast.model.auth import Role, Scope
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


def test_who_did_what_can_be_asked_for_in_many_ways(api: Api) -> None:
    client = api.admin
    for name in ("a", "b"):
        assert client.post("/api/admin/batches", json={"name": name}).status_code == 201

    def told(**asked: str) -> list[str]:
        answer = client.get("/api/admin/audit", params={"kind": "batch", **asked})
        assert answer.status_code == 200, answer.text
        return [entry["details"]["name"] for entry in answer.json()["items"]]

    newest = client.get("/api/admin/audit", params={"kind": "batch", "limit": 1})
    (entry,) = newest.json()["items"]
    assert client.get(newest.links["next"]["url"]).json()["items"][0]["details"]["name"] == "a"
    assert told() == ["b", "a"]
    assert told(object_id=entry["object_id"]) == ["b"]
    assert told(actor=entry["actor"], action=entry["action"]) == ["b", "a"]
    assert told(since=entry["at"]) == ["b"]
    assert told(until=entry["at"]) == ["a"]
    assert told(action="remove") == told(actor="nobody") == []
    assert client.get("/api/admin/audit", params={"object_id": "1"}).status_code == 422
