"""Proxies and pools on pages."""

import psycopg
import pytest

from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.factories import Store
from tests.support.pools import Pools

SECRET = "s3cret-word"


@pytest.fixture
def pools(store: Store) -> Pools:
    store.seed("a.example", "b.example")
    return Pools(store)


def test_without_proxies_it_says_what_to_do(ada: Browser, rita: Browser) -> None:
    assert "There are no proxies. Domains are asked directly." in ada.get("/proxies").words
    assert "/proxies/new" in ada.get("/proxies").text
    assert "/proxies/new" not in rita.get("/proxies").text
    assert "No domain has or uses proxies." in rita.get("/proxies/health").words
    assert "There are no proxies." in rita.get("/proxies/cost").words


def test_many_are_pasted_and_no_password_is_shown(api: Api, ada: Browser, connection: psycopg.Connection) -> None:
    pasted = f"http://bob:{SECRET}@one.example:8080\nsocks5://two.example:1080\n"
    fields = {"provider": "acme", "country_code": "de", "monthly_cost": "12.50", "max_requests_per_hour": "500"}
    page = ada.send("/proxies/new", "/proxies", proxies=pasted, **fields)
    assert page.notice == "Added 2 proxies."
    assert SECRET not in page.text
    one, two = api.services.proxies.page().rows
    assert (one.server, one.username, one.has_password, one.provider) == (
        "http://one.example:8080",
        "bob",
        True,
        "acme",
    )
    assert (two.country_code, two.max_requests_per_hour, str(two.monthly_cost)) == ("DE", 500, "12.50")
    assert SECRET not in ada.get(f"/proxies/{one.id}").text
    stored = connection.execute("SELECT proxy_password FROM proxies ORDER BY id LIMIT 1").fetchone()
    assert stored
    assert SECRET not in stored[0]
    again = ada.send("/proxies/new", "/proxies", proxies=f"http://bob:{SECRET}@one.example:8080\nhttp://x:y:z\n")
    assert again.notice.startswith("Added 0 proxies. 1 proxy known before, unchanged. 1 line refused. Line 2:")
    assert SECRET not in again.text
    assert (
        "must be a whole number"
        in ada.send("/proxies/new", "/proxies", proxies="a.example:1", max_requests_per_hour="x").notice
    )
    assert "two letters" in ada.send("/proxies/new", "/proxies", proxies="a.example:1", country_code="D").notice
    assert len(api.services.proxies.page().rows) == 2


def test_filters_and_orders(ada: Browser, pools: Pools) -> None:
    pools.add(2, provider="acme", country_code="DE")
    pools.add(1, provider="other")
    page = ada.get("/proxies", provider="acme")
    assert "2 rows shown" in page.words
    assert 'value="acme"' in page.text
    assert "No proxy fits these filters." in ada.get("/proxies", country="fr").words
    assert "2 rows shown" in ada.get("/proxies", country="de", state="active").words
    assert "must be active or inactive" in ada.get("/proxies", state="odd").notice
    first = ada.get("/proxies", order="newest").words
    assert first.index("proxy.example:3") < first.index("proxy.example:1")
    assert ada.get("/proxies", order="odd").notice


def test_edit_enable_disable(api: Api, ada: Browser, pools: Pools) -> None:
    (proxy_id,) = pools.add()
    here = f"/proxies/{proxy_id}"
    version = api.services.proxies.show(proxy_id).version
    page = ada.send(here, f"{here}/edit", provider="new <b>", city="Ulm", max_requests_per_hour="", version=version)
    assert page.notice == f"Proxy {proxy_id} is changed."
    assert "<b>" not in page.text
    found = api.services.proxies.show(proxy_id)
    assert (found.provider, found.city, found.max_requests_per_hour) == ("new <b>", "Ulm", None)
    assert "was changed meanwhile" in ada.send(here, f"{here}/edit", version=version).notice
    assert "is disabled" in ada.send(here, f"{here}/disable").notice
    assert not api.services.proxies.show(proxy_id).is_active
    assert "is enabled" in ada.send(here, f"{here}/enable").notice
    assert api.services.proxies.show(proxy_id).is_active


def test_a_pool(api: Api, ada: Browser, rita: Browser, pools: Pools) -> None:
    one, two = pools.add(2)
    here = "/proxies/domains/a.example"
    assert "This domain has no proxies." in ada.get(here).words
    page = ada.send(here, f"{here}/add", proxies=f"{one}, {two}", priority="3")
    assert page.notice == "Added 2 proxies to the pool of a.example. The domain uses its pool from now on."
    assert "It would go through http://proxy.example:1" in page.words
    assert [(each.proxy_id, each.priority) for each in api.services.proxies.pool("a.example")] == [(one, 3), (two, 3)]
    assert ada.send(here, f"{here}/{two}/priority", priority="1").notice == f"Proxy {two} has priority 1 for a.example."
    assert "is not used" in ada.send(here, f"{here}/{two}/disable").notice
    assert "it is switched off for this domain" in ada.get(here).words
    assert "again" in ada.send(here, f"{here}/{two}/enable").notice
    assert "1 proxy is left" in ada.send(here, f"{here}/{two}/remove").notice
    assert [each.proxy_id for each in api.services.proxies.pool("a.example") if each.assigned] == [one]
    assert "must be ids" in ada.send(here, f"{here}/add", proxies="x").notice
    assert "There is no proxy 815" in ada.send(here, f"{here}/add", proxies="815").notice
    assert "a.example pool 1 1 0" in ada.get("/proxies/health").words
    assert ada.get("/proxies/pool", domain="https://A.example/x").path == here
    assert ada.get("/proxies/domains/unknown.example").status == 404
    assert not [target for target in rita.get(here).forms() if target != "/logout"]
    for deed in ("add", f"{one}/priority", f"{one}/enable", f"{one}/disable", f"{one}/remove"):
        assert rita.forge(f"{here}/{deed}", proxies=str(two), priority="9").status == 403
    assert [each.priority for each in api.services.proxies.pool("a.example") if each.assigned] == [3]


def test_deleting_names_the_domains_that_lose_it(api: Api, ada: Browser, pools: Pools) -> None:
    one, two = pools.add(2)
    pools.assign("a.example", one)
    pools.assign("b.example", one, two)
    page = ada.get(f"/proxies/{one}/delete")
    assert "takes it from the pools of 2 domains" in page.words
    assert "a.example : its only proxy" in page.words
    assert "b.example : 1 other proxy left" in page.words
    done = ada.send(f"/proxies/{one}/delete", f"/proxies/{one}/delete")
    assert done.notice == f"Proxy {one}, http://proxy.example:1, is deleted."
    assert [each.id for each in api.services.proxies.page().rows] == [two]
    assert ada.get(f"/proxies/{one}").status == 404


def test_the_result_of_a_test_is_shown(ada: Browser, pools: Pools) -> None:
    (proxy_id,) = pools.add(allow_private=True)
    page = ada.send(f"/proxies/{proxy_id}", f"/proxies/{proxy_id}/test", url="http://127.0.0.1:1/")
    assert page.status == 200
    assert "It does not work" in page.words
    assert "nothing was sent, for the site cannot be asked" in page.words


def test_a_user_only_reads(api: Api, rita: Browser, pools: Pools) -> None:
    (proxy_id,) = pools.add(provider="acme", monthly_cost=10)
    page = rita.get(f"/proxies/{proxy_id}")
    assert page.status == 200
    assert [target for target in page.forms() if target != "/logout"] == []
    assert "acme 1 1 0" in rita.get("/proxies/cost").words
    for path in ("/proxies/new", f"/proxies/{proxy_id}/delete"):
        assert [target for target in rita.get(path).forms() if target != "/logout"] == []
        assert "Only an admin can do this" in rita.get(path).words
    for deed in ("edit", "enable", "disable", "test", "delete"):
        assert rita.forge(f"/proxies/{proxy_id}/{deed}").status == 403
    assert rita.forge("/proxies", proxies="evil.example:1").status == 403
    assert [each.id for each in api.services.proxies.page().rows] == [proxy_id]
