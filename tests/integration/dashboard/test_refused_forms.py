"""A form that is refused comes back in the same response: with the reason, with what was typed, and without secrets."""

import html
import re

import psycopg
import pytest

from holdfast.db.connection import Database
from holdfast.domains.service import DomainService, parse_assignments
from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.factories import Store
from tests.support.pools import Pools

SECRET = "s3cret-of-the-proxy"


@pytest.fixture
def store(connection: psycopg.Connection) -> Store:
    """A domain, a job, a proxy."""
    made = Store(connection)
    made.seed("a.example/")
    made.new_job("shop")
    Pools(made).add(1)
    return made


REFUSED = (
    ("/domains", "/domains", {"domain": "no domain"}, "valid"),
    (
        "/domains/a.example",
        "/domains/a.example/settings",
        {"crawl_delay_seconds": "soon", "user_agent": "Lamp/1"},
        "must be a duration",
    ),
    ("/jobs/shop/settings", "/jobs/shop/schedule", {"schedule": "now and then"}, "schedule"),
    ("/jobs/shop/delete", "/jobs/shop/delete", {"name": "shops"}, "Type the name"),
    (
        "/tasks/new",
        "/tasks",
        {"urls": "https://a.example/1\nhttps://a.example/2", "crawl_frequency": "often"},
        "duration",
    ),
    ("/batches", "/batches", {"name": " x\u0001"}, ""),
    ("/proxies/new", "/proxies", {"proxies": "a.example:1", "country_code": "D", "city": "<Bonn>"}, "two letters"),
    ("/proxies/1", "/proxies/1/edit", {"monthly_cost": "much", "city": "Bonn"}, "number such as"),
    ("/proxies/1", "/proxies/1/test", {"url": "http://"}, ""),
    ("/proxies/domains/a.example", "/proxies/domains/a.example/add", {"proxies": "one"}, "must be ids"),
    ("/users", "/users", {"name": "x y\tz", "role": "admin"}, ""),
    ("/account", "/account/keys", {"name": "export"}, "at least one scope"),
    ("/workers", "/workers/close-silent-runs", {"minutes": "soon"}, "whole number"),
)
"""The page of a form, its target, what is typed, and a part of the reason."""


def test_what_was_typed_comes_back_with_the_reason(ada: Browser, store: Store) -> None:
    for page, target, typed, reason in REFUSED:
        refused = ada.send(page, target, **typed)
        assert 400 <= refused.status < 500, (target, refused.notice)
        assert refused.notice, target
        assert reason in refused.notice, (target, refused.notice)
        assert f'data-address="{page}"' in refused.text, target
        form = next(form for form in re.findall(r"<form.*?</form>", refused.text, re.DOTALL) if _is(form, target))
        for value in typed.values():
            shown = html.escape(value.replace("\u0001", "\ufffd"), quote=True)
            assert shown in form, (target, value, form)
        assert refused.fields(target)["back"] == page, target
    assert len(re.findall("checked", ada.send("/account", "/account/keys", name="x").text)) == 0, (
        "the scope was unticked"
    )


def test_the_same_form_is_accepted_once_it_is_right(api: Api, ada: Browser, store: Store) -> None:
    refused = ada.send("/domains", "/domains", domain="no domain")
    added = ada.post("/domains", **{**refused.fields("/domains"), "domain": "b.example"})
    assert (added.path, added.notice.partition(".")[0]) == ("/domains/b.example", "Added b")


def test_no_secret_comes_back(ada: Browser, store: Store) -> None:
    refused = ada.send("/account", "/account/password", old=SECRET, new="one of my own", repeat="another one")
    assert "The two new passwords differ" in refused.notice
    assert not any(word in refused.text for word in (SECRET, "one of my own", "another one"))
    refused = ada.send("/users", "/users", name="x y\tz", password=SECRET)
    assert refused.notice
    assert SECRET not in refused.text
    refused = ada.send("/jobs/shop/settings", "/jobs/shop/secrets", headers=f"X-Key: {SECRET}\nno header", cookies="=")
    assert refused.notice
    assert SECRET not in refused.text
    lines = (
        f"http://bob:{SECRET}@b.example:1",
        f"b.example:1:bob:{SECRET}",
        f"b.example;1;bob;{SECRET}",
        "right.example:1",
        "wrong.example",
    )
    refused = ada.send("/proxies/new", "/proxies", proxies="\n".join(lines), country_code="DE")
    assert "refused" in refused.notice
    assert SECRET not in refused.text
    assert "\nwrong.example</textarea>" in refused.text
    assert "right.example" not in refused.text.partition("<textarea")[2], "it is added"
    assert 'name="country_code" value="DE"' in refused.text


def test_only_the_lines_that_were_refused_come_back(ada: Browser, store: Store) -> None:
    refused = ada.send(
        "/tasks/new", "/tasks", urls="https://a.example/1\nnonsense://\nhttps://a.example/2", priority="7"
    )
    assert (refused.status, refused.notice.partition(" Line")[0]) == (422, "Created 2 tasks. 1 line refused.")
    assert "\nnonsense://</textarea>" in refused.text
    assert "<option selected>7</option>" in refused.text


def test_values_that_were_changed_meanwhile_are_shown_instead(ada: Browser, database: Database, store: Store) -> None:
    target = "/domains/a.example/settings"
    hidden = ada.get("/domains/a.example").fields(target)
    DomainService(database).configure("a.example", parse_assignments(["delay=7"]), actor="ann")
    changed = ada.post(target, **hidden, crawl_delay_seconds="3")
    assert "changed meanwhile" in changed.notice
    assert 'name="crawl_delay_seconds" value="7"' in changed.text


def test_a_page_of_another_site_or_without_a_form_is_never_shown(ada: Browser, store: Store) -> None:
    for back in (
        "https://evil.example/",
        "//evil.example",
        "/login",
        "/api/jobs",
        "/no/such/page",
        "/static/dashboard.css",
    ):
        token = ada.client.get("/api/auth/me").json()["csrf"]
        answer = ada.post("/domains", follow=False, csrf=token, back=back, domain="no domain")
        assert answer.status in {303, 404, 422}, back
        assert "<main" in answer.text or answer.status == 303, back
        assert "evil" not in answer.text, back
    gone = ada.post("/domains", csrf=token, back="/domains/none.example", domain="no domain")
    assert (gone.status, "valid" in gone.notice) == (404, True)


def _is(form: str, target: str) -> bool:
    return f'action="{target}"' in form.partition(">")[0] and 'method="post"' in form.partition(">")[0]
