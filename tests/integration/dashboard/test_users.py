"""Users, keys and the audit log on pages."""

import re

import psycopg
import pytest

from holdfast.model.auth import Role, Scope
from tests.support.accounts import deeds
from tests.support.api import PASSWORD, Api
from tests.support.browsing import Browser

FORMS = ("/users", "/users/ada/role", "/users/ada/disable", "/users/ada/enable", "/users/ada/password")


def generated(text: str) -> str:
    """The password that a page shows."""
    found = re.search(r'<pre id="password">([^<]+)</pre>', text)
    assert found, "no password is shown"
    return found[1]


def test_a_user_is_added_with_a_password_that_is_shown_once(api: Api, ada: Browser) -> None:
    page = ada.send("/users", "/users", name="bob", role="user")
    assert page.status == 200
    assert page.path == "/users"
    password = generated(page.text)
    api.login("bob", password)
    assert password not in ada.get("/users").text
    assert "bob" in ada.get("/users").words
    assert api.accounts.show("bob").role is Role.USER
    assert ada.send("/users", "/users", name="bob").notice == "There is a user bob already."


def test_a_password_of_ones_choice_is_not_shown(api: Api, ada: Browser) -> None:
    page = ada.send("/users", "/users", name="bob", role="admin", password="a long enough password")
    assert page.path == "/users/bob"
    assert page.notice == "bob is added."
    assert "a long enough password" not in page.text
    assert api.accounts.show("bob").role is Role.ADMIN
    api.login("bob", "a long enough password")


def test_role_disable_enable(api: Api, ada: Browser) -> None:
    api.user("bob")
    session = api.login("bob")
    page = ada.send("/users/bob", "/users/bob/role", role="admin")
    assert page.notice == "bob is an admin now; all sessions have ended."
    assert session.get("/api/auth/me").status_code == 401
    assert ada.send("/users/bob", "/users/bob/role", role="admin").notice == "bob is an admin, as before."
    assert "Choose a role" in ada.send("/users/bob", "/users/bob/role", role="").notice
    assert "must be one of" in ada.send("/users/bob", "/users/bob/role", role="king").notice
    assert ada.send("/users/bob", "/users/bob/disable").notice.startswith("bob is disabled")
    page = ada.get("/users/bob")
    assert "/users/bob/enable" in page.forms()
    assert "/users/bob/disable" not in page.forms()
    assert ada.send("/users/bob", "/users/bob/enable").notice == "bob is enabled."
    assert api.accounts.show("bob").disabled_at is None


def test_the_last_admin_stays(api: Api, ada: Browser) -> None:
    assert "the only enabled admin" in ada.send("/users/ada", "/users/ada/disable").notice
    assert "the only enabled admin" in ada.send("/users/ada/delete", "/users/ada/delete").notice
    assert api.accounts.show("ada").is_active_admin


def test_a_new_password_ends_sessions(api: Api, ada: Browser) -> None:
    api.user("bob")
    api.login("bob")
    page = ada.send("/users/bob", "/users/bob/password")
    assert "1 session of bob ended." in page.words
    api.login("bob", generated(page.text))
    page = ada.send("/users/bob", "/users/bob/password", password="another long password")
    assert page.notice == "bob has another password; 1 session ended."
    assert "another long password" not in page.text
    api.login("bob", "another long password")
    assert "characters" in ada.send("/users/bob", "/users/bob/password", password="x").notice


def test_sessions_of_a_user_end(api: Api, ada: Browser) -> None:
    api.user("bob")
    session = api.login("bob")
    assert "is not logged in" not in ada.get("/users/bob").words
    page = ada.send("/users/bob", "/users/bob/sessions/end")
    assert page.notice == "1 session of bob ended."
    assert session.get("/api/auth/me").status_code == 401
    assert "bob is not logged in." in page.words


def test_deleting_says_what_goes(api: Api, ada: Browser) -> None:
    user_id = api.user("bob")
    api.accounts.create_key(user_id, "nightly", [Scope.READ], None, actor="test")
    api.login("bob")
    page = ada.get("/users/bob/delete")
    assert "deletes the account with 1 session and 1 API key" in page.words
    assert "nightly hfk_" in page.words
    assert ada.send("/users/bob/delete", "/users/bob/delete").notice.startswith("bob is deleted")
    missing = ada.get("/users/bob")
    assert missing.status == 404
    assert "bob" in missing.words


def test_keys_of_all_users(api: Api, ada: Browser) -> None:
    assert "There are no API keys." in ada.get("/users/all/keys").words
    user_id = api.user("bob")
    key, token = api.accounts.create_key(user_id, "nightly", [Scope.READ], None, actor="test")
    page = ada.get("/users/all/keys")
    assert "bob nightly" in page.words
    assert token not in page.text
    assert api.client(token).get("/api/jobs").status_code == 200
    assert "Requests with this key are refused at once. It cannot be undone." in ada.get("/users/all/keys").words
    page = ada.send("/users/all/keys", f"/users/all/keys/{key.id}/revoke")
    assert page.notice == f"Key {key.id} is revoked; requests with it are refused from now on."
    assert f"/users/all/keys/{key.id}/revoke" not in page.forms()
    assert api.client(token).get("/api/jobs").status_code == 401


def test_users_by_pages(api: Api, ada: Browser) -> None:
    for number in range(55):
        api.accounts.add(f"user-{number:02}", Role.USER, PASSWORD, actor="test")
    first = ada.get("/users")
    assert "user-48" in first.words
    assert "user-49" not in first.words
    following = re.search(r'<a href="([^"]+)" rel="next">', first.text)
    assert following
    second = ada.get(following[1].replace("&amp;", "&"))
    assert "user-49" in second.words
    assert "First page" in second.words
    assert 'rel="next"' not in second.text
    assert "cursor" in ada.get("/users", cursor="nonsense").notice


def test_only_admins_come_here(api: Api, ada: Browser, rita: Browser) -> None:
    for path in ("/users", "/users/ada", "/users/ada/delete", "/users/all/keys", "/audit"):
        assert rita.get(path).status == 403, path
        assert path not in re.findall(r'href="([^"]+)"', rita.get("/account").text)
    for target in (*FORMS, "/users/ada/sessions/end", "/users/ada/delete", "/users/all/keys/1/revoke"):
        assert rita.forge(target, name="eve", role="admin").status == 403, target
    assert [user.name for user in api.accounts.users()] == ["ada", "rita"]
    assert ada.post("/users", name="eve").status == 403, "a form without the token of the session"


@pytest.mark.parametrize("path", ["/users", "/users/ada", "/users/all/keys", "/audit"])
def test_a_visitor_is_asked_to_log_in(api: Api, path: str) -> None:
    answer = api.anybody.get(path)
    assert answer.status_code == 401
    assert 'action="/login"' in answer.text


def test_the_first_password_is_mentioned_until_it_is_changed(rita: Browser, connection: psycopg.Connection) -> None:
    before = "created_at = created_at - interval '1 h', password_changed_at = password_changed_at - interval '1 h'"
    connection.execute(f"UPDATE users SET {before}")
    hint = 'id="first-password"'
    assert hint in rita.get("/overview").text
    assert hint in rita.get("/account").text
    new = "a password of my own"
    rita.send("/account", "/account/password", old=PASSWORD, new=new, repeat=new)
    rita.client.post("/login", data={"name": "rita", "password": new})
    assert rita.get("/overview").status == 200
    assert hint not in rita.get("/overview").text
    assert hint not in rita.get("/account").text


def test_the_audit_log(api: Api, ada: Browser, connection: psycopg.Connection) -> None:
    ada.send("/users", "/users", name="bob")
    ada.send("/users/bob", "/users/bob/disable")
    assert ("ada", "disable", "user", str(api.accounts.show("bob").id)) in deeds(connection)
    page = ada.get("/audit")
    assert "ada disable user" in page.words
    mine = ada.get("/audit", actor="ada", action="disable")
    assert "ada disable user" in mine.words
    assert "ada add user" not in mine.words
    assert 'value="ada"' in mine.text, "filters stay in the form"
    assert "No entry fits these filters." in ada.get("/audit", actor="nobody").words
    assert "No entry fits these filters." in ada.get("/audit", since="2090-01-01T00:00").words
    assert "ada disable user" in ada.get("/audit", since="2020-01-01T00:00", until="2090-01-01T00:00").words
    assert "name the kind, too" in ada.get("/audit", object_id="1").notice
    assert "“Since” must be a time" in ada.get("/audit", since="yesterday").notice
    assert ada.get("/audit", actor="a\0b").status == 400


def test_hostile_text_in_the_audit_log_is_escaped(ada: Browser, connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO audit_log (actor, action, object_kind, object_id, details)"
        """ VALUES ('<script>alert(1)</script>', 'edit', 'job', '"><img src=x>', '{"name": "<i>x</i>"}')"""
    )
    page = ada.get("/audit")
    assert "<script>alert" not in page.text
    assert "<img src=x>" not in page.text
    assert "<i>x</i>" not in page.text
    assert "<script>alert(1)</script>" in page.words
