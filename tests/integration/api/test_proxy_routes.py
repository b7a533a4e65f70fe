"""Proxies over HTTP: made known, listed, changed, switched, tried, forgotten; and no password ever comes back."""

from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from holdfast.db.connection import Database
from holdfast.proxies.queries import proxies
from holdfast.settings import Fetch
from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.support.accounts import deeds
from tests.support.api import Api, Shared, serving, settings
from tests.support.factories import Store
from tests.support.pages import Page, Pages
from tests.support.pools import Pools

ADMIN = "admin-1 (key test)"
CANARY = "canary-Zw7!"
BEYOND = 2**63


@pytest.fixture
def pools(store: Store) -> Pools:
    return Pools(store)


def walked(client: httpx.Client, path: str, field: str = "id") -> list[list[Any]]:
    """One field of what is on all pages of a list, by their Link headers."""
    found, target = [], path
    while target:
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        found.append([item[field] for item in answer.json()["items"]])
        target = answer.links.get("next", {}).get("url", "")
    return found


def everything(connection: psycopg.Connection) -> str:
    """All rows of all tables, as text."""
    tables = connection.execute(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'public'"
    )
    return "\n".join(
        str(row[0]) for (name,) in tables.fetchall() for row in connection.execute(f"SELECT t::text FROM {name} t")
    )


def test_a_proxy_is_made_known_by_its_url(api: Api, store: Store) -> None:
    client = api.admin
    body = {
        "url": f"socks5://bob:{CANARY}@proxy.example:1080",
        "country_code": "DE",
        "city": "Bonn",
        "provider": "acme",
        "monthly_cost": "12.50",
        "max_requests_per_hour": None,
    }
    answers = [client.post("/api/admin/proxies", json=body, headers={"Idempotency-Key": "p1"}) for _ in range(2)]
    made = answers[0].json()
    assert [answer.status_code for answer in answers] == [201, 409], "of a password nothing is kept, not even a hash"
    assert answers[0].headers["Location"] == f"/api/proxies/{made['id']}"
    assert answers[0].headers["ETag"] == f'"{made["version"]}"'
    assert (made["server"], made["username"], made["has_password"]) == ("socks5://proxy.example:1080", "bob", True)
    assert (made["country_code"], made["city"], made["provider"]) == ("DE", "Bonn", "acme")
    assert (made["monthly_cost"], made["max_requests_per_hour"]) == ("12.50", None)
    token = proxies.token(store.connection, made["id"])
    assert token is not None
    assert api.services.proxies.secrets.open(token) == CANARY
    seen = client.get(answers[0].headers["Location"])
    assert seen.json() == made
    assert deeds(store.connection)[2:] == [(ADMIN, "add", "proxy", str(made["id"]))]

    known = client.post("/api/admin/proxies", json=body)
    assert known.status_code == 409
    assert f"is known as proxy {made['id']} already" in known.json()["detail"]
    answers += [known, seen, client.get("/api/proxies"), client.get("/api/admin/audit")]
    assert [answer for answer in answers if CANARY in answer.text or token in answer.text] == []
    assert CANARY not in everything(store.connection)


def test_a_proxy_is_made_known_by_its_parts(api: Api) -> None:
    client = api.admin
    plain = client.post("/api/admin/proxies", json={"host": "PROXY.example", "port": 8080})
    assert plain.status_code == 201, plain.text
    assert (plain.json()["server"], plain.json()["has_password"]) == ("http://proxy.example:8080", False)
    assert plain.json()["max_requests_per_hour"] == 1000
    whole = {"protocol": "https", "host": "proxy.example", "port": 8080, "username": "bob", "password": CANARY}
    made = client.post("/api/admin/proxies", json=whole)
    assert (made.status_code, made.json()["has_password"]) == (201, True)
    private = client.post("/api/admin/proxies", json={"url": "10.0.0.7:3128", "allow_private": True})
    assert (private.status_code, private.json()["allow_private"]) == (201, True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"host": "proxy.example"},
        {"port": 1},
        {"url": f"http://bob:{CANARY}@proxy.example:1", "host": "proxy.example"},
        {"url": f"http://bob:{CANARY}@pro xy.example:1"},
        {"url": f"ftp://bob:{CANARY}@proxy.example:1"},
        {"url": f"http://bob:{CANARY}@proxy.example:99999"},
        {"url": f"http://bob:{CANARY}%ff@proxy.example:1"},
        {"url": f"http://bob:{CANARY}\0@proxy.example:1"},
        {"url": f"http://bob:{CANARY}@10.0.0.1:1"},
        {"url": f"{CANARY}{'x' * 5000}"},
        {"url": ""},
        {"url": "proxy.example:1", "colour": CANARY},
        {"host": "proxy.example", "port": 0},
        {"host": "proxy.example", "port": BEYOND},
        {"host": "proxy.example", "port": 1, "password": CANARY},
        {"host": "proxy.example", "port": 1, "username": "a:b", "password": CANARY},
        {"host": "proxy.example", "port": 1, "username": "bob", "password": f"{CANARY}\n"},
        {"host": "/", "port": 1},
        {"host": "proxy.example", "port": 1, "protocol": "gopher"},
        {"host": "proxy.example", "port": 1, "country_code": "de"},
        {"host": "proxy.example", "port": 1, "country_code": "DE\n"},
        {"host": "proxy.example", "port": 1, "city": ""},
        {"host": "proxy.example", "port": 1, "provider": "a\nb"},
        {"host": "proxy.example", "port": 1, "monthly_cost": "NaN"},
        {"host": "proxy.example", "port": 1, "monthly_cost": "1e-9999"},
        {"host": "proxy.example", "port": 1, "monthly_cost": 1e300},
        {"host": "proxy.example", "port": 1, "monthly_cost": -1},
        {"host": "proxy.example", "port": 1, "max_requests_per_hour": 0},
        {"host": "proxy.example", "port": 1, "max_requests_per_hour": 2**31},
        [],
    ],
)
def test_a_proxy_that_cannot_be_meant(shared: Shared, body: Any) -> None:
    answer = shared.admin.post("/api/admin/proxies", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]
    assert CANARY not in answer.text
    assert shared.value("SELECT count(*) FROM proxies") == 0


def test_the_list_goes_on_to_its_end(api: Api, pools: Pools) -> None:
    client = api.reader
    acme = pools.add(3, provider="acme", country_code="DE")
    others = pools.add(2, country_code="FR")
    pools.fails(acme[1], 10)
    every = [*acme, *others]
    assert walked(client, "/api/proxies?limit=2") == [every[:2], every[2:4], every[4:]]
    assert walked(client, "/api/proxies?provider=acme&limit=2") == [acme[:2], acme[2:]]
    assert walked(client, "/api/proxies?order=newest&limit=3") == [every[:1:-1], every[1::-1]]
    assert walked(client, "/api/proxies?country=FR") == [others]
    assert walked(client, "/api/proxies?active=false") == [[acme[1]]]
    assert walked(client, "/api/proxies?provider=nobody") == [[]]
    row = client.get("/api/proxies?active=false").json()["items"][0]
    assert (row["disabled_by"], row["failure_count"], row["last_error"]) == ("health", 10, "refused")
    for odd in ("active=7", "limit=0", "cursor=%F0%9F%90%88", f"provider={'x' * 256}"):
        assert client.get(f"/api/proxies?{odd}").status_code == 422


def test_health_of_all_pools(api: Api, store: Store, pools: Pools) -> None:
    client = api.reader
    store.domains(5)
    (one,) = pools.add()
    for number in range(5):
        pools.assign(f"d{number}.example", one)
    pools.used("d3.example", one, requests=4, success_count=3, total_failures=1)
    names = [f"d{number}.example" for number in range(5)]
    assert walked(client, "/api/proxies/health?limit=2", "domain") == [names[:2], names[2:4], names[4:]]
    (row,) = (item for item in client.get("/api/proxies/health").json()["items"] if item["domain"] == "d3.example")
    assert (row["use"], row["proxies"], row["active"], row["requests"]) == ("pool", 1, 1, 4)
    assert row["failure_percent"] == 25.0


def test_what_proxies_cost(api: Api, store: Store, pools: Pools) -> None:
    client = api.reader
    store.seed("a.example")
    dear = pools.add(3, provider="acme", monthly_cost="10.00")
    cheap = pools.add(2)
    pools.used("a.example", dear[0], requests=500, other_requests=500)
    assert walked(client, "/api/proxies/cost?limit=2") == [dear[:2], [dear[2], cheap[0]], [cheap[1]]]
    first = client.get("/api/proxies/cost?limit=2").json()
    assert (first["items"][0]["requests"], first["items"][0]["cost_per_1000"]) == (1000, "10.0000")
    assert [(one["provider"], one["proxies"], one["monthly_cost"]) for one in first["providers"]] == [
        ("acme", 3, "30.00"),
        (None, 2, None),
    ]
    assert client.get("/api/proxies/cost", params={"cursor": first["next"]}).json()["providers"] == []
    assert client.get("/api/proxies/cost?cursor=W251bGxd").status_code == 422, "that is [null]"


def test_change_and_its_version(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    (proxy_id,) = pools.add(city="Bonn", country_code="DE")
    path = f"/api/admin/proxies/{proxy_id}"
    seen = client.get(f"/api/proxies/{proxy_id}")
    change = {"city": None, "provider": "acme", "monthly_cost": 3, "max_requests_per_hour": None}
    answer = client.patch(path, json=change, headers={"If-Match": seen.headers["ETag"]})
    assert answer.status_code == 200, answer.text
    changed = answer.json()
    assert (changed["city"], changed["provider"], changed["country_code"]) == (None, "acme", "DE")
    assert (changed["monthly_cost"], changed["max_requests_per_hour"]) == ("3.00", None)
    assert changed["version"] == seen.json()["version"] + 1
    assert answer.headers["ETag"] == f'"{changed["version"]}"'
    assert deeds(store.connection)[-1] == (ADMIN, "edit", "proxy", str(proxy_id))

    stale = client.patch(path, json={"city": "Köln"}, headers={"If-Match": seen.headers["ETag"]})
    assert stale.status_code == 412, stale.text
    assert client.get(f"/api/proxies/{proxy_id}").json()["city"] is None
    assert client.patch(path, json={"city": "Köln"}, headers={"If-Match": "*"}).json()["city"] == "Köln"
    for odd in ({}, {"allow_private": None}, {"city": ""}, {"host": "x"}, {"monthly_cost": "x"}, [1], None):
        assert client.patch(path, json=odd).status_code == 422
    assert client.patch(path, json={"city": "x"}, headers={"If-Match": "yesterday"}).status_code == 422
    assert client.patch("/api/admin/proxies/815", json={"city": "x"}).status_code == 404


def test_another_password(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    made = client.post("/api/admin/proxies", json={"url": "http://bob:old@proxy.example:1"}).json()
    path = f"/api/admin/proxies/{made['id']}"
    pools.fails(made["id"], 10)
    changed = client.patch(path, json={"password": CANARY})
    assert (changed.status_code, changed.json()["has_password"], changed.json()["is_active"]) == (200, True, True)
    assert CANARY not in changed.text + everything(store.connection)
    token = proxies.token(store.connection, made["id"])
    assert token is not None
    assert api.services.proxies.secrets.open(token) == CANARY
    assert client.patch(path, json={"password": f"{CANARY}\n"}).status_code == 422
    assert client.patch(path, json={"password": None}).json()["has_password"] is False
    (nameless,) = pools.add()
    refused = client.patch(f"/api/admin/proxies/{nameless}", json={"password": CANARY})
    assert refused.status_code == 409
    assert CANARY not in refused.text


def test_switched_off_and_on_and_forgotten(api: Api, store: Store, pools: Pools) -> None:
    client = api.admin
    (proxy_id,) = pools.add()
    path = f"/api/admin/proxies/{proxy_id}"
    for verb, active in (("disable", False), ("enable", True)):
        for _ in range(2):  # asking twice is no error
            answer = client.post(f"{path}/{verb}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["is_active"] is active
        assert deeds(store.connection)[-1] == (ADMIN, verb, "proxy", str(proxy_id))
    pools.fails(proxy_id, 10)
    enabled = client.post(f"{path}/enable").json()
    assert (enabled["is_active"], enabled["failure_count"]) == (True, 0)
    assert client.delete(path).status_code == 204
    assert deeds(store.connection)[-1] == (ADMIN, "remove", "proxy", str(proxy_id))
    assert store.value("SELECT count(*) FROM proxies") == 0
    assert client.delete(path).status_code == 404


def test_a_proxy_is_tried(database: Database, store: Store, pools: Pools, tmp_path: Path) -> None:
    given = settings(tmp_path).model_copy(update={"fetch": Fetch(allow_private=True)})
    page = Page(b"hi", 404)
    with (
        serving(database, given) as api,
        Pages({"/x": page}) as site,
        ProxyProcess(tmp_path, name="p", user="bob", password=CANARY) as proxy,
    ):
        client = api.admin
        body = {"url": proxy.url, "allow_private": True, "max_requests_per_hour": 2}
        made = client.post("/api/admin/proxies", json=body).json()
        path = f"/api/admin/proxies/{made['id']}/test"
        pools.fails(made["id"], 10)
        target = {"url": site.url("/x", host="127.0.0.1")}
        works = client.post(path, json=target)
        assert works.status_code == 200, works.text
        found = works.json()
        assert (found["works"], found["status"], found["recovered"], found["problem"]) == (True, 404, True, None)
        assert [hit["target"] for hit in proxy.log()] == [target["url"]]
        assert client.get(f"/api/proxies/{made['id']}").json()["is_active"] is True
        assert deeds(store.connection)[-1] == (ADMIN, "recover", "proxy", str(made["id"]))

        client.patch(f"/api/admin/proxies/{made['id']}", json={"password": "wrong"})
        wrong = client.post(path, json=target)
        assert (wrong.status_code, wrong.json()["works"], wrong.json()["fault"]) == (200, False, "proxy")
        spent = client.post(path, json=target).json()
        assert spent["works"] is False
        assert spent["problem"].startswith("Its limit is used up")
        assert len(proxy.log()) == 2
        assert CANARY not in works.text + wrong.text
        for odd in ("ftp://x", "", "x", "http://", "http:///", "a b", "http://a.example:99999/"):
            assert client.post(path, json={"url": odd}).status_code == 422
        assert client.post("/api/admin/proxies/815/test", json=target).status_code == 404


def test_what_is_not_there(api: Api) -> None:
    client = api.admin
    for missing in (815, BEYOND - 1):
        assert client.get(f"/api/proxies/{missing}").status_code == 404
        for verb in ("enable", "disable", "test"):
            answer = client.post(f"/api/admin/proxies/{missing}/{verb}")
            assert (answer.status_code, answer.json()["detail"]) == (404, f"There is no proxy {missing}.")
    for odd in ("0", "-1", str(BEYOND), "x"):
        assert client.get(f"/api/proxies/{odd}").status_code == 422
        assert client.delete(f"/api/admin/proxies/{odd}").status_code == 422


def test_the_pools_that_a_proxy_is_in(api: Api, store: Store) -> None:
    store.seed("a.example", "b.example", "c.example")
    pools = Pools(store)
    one, two = pools.add(2)
    for domain in ("b.example", "a.example"):
        pools.assign(domain, one)
    pools.used("c.example", one, requests=1)
    client = api.reader
    first = client.get(f"/api/proxies/{one}/domains?limit=1")
    assert [item["domain"] for item in first.json()["items"]] == ["a.example"]
    second = client.get(first.links["next"]["url"])
    assert [item["domain"] for item in second.json()["items"]] == ["b.example"], "it is used, but not in that pool"
    assert client.get(f"/api/proxies/{two}/domains").json()["items"] == []
    assert client.get("/api/proxies/815/domains").status_code == 404
