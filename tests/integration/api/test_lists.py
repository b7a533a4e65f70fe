"""Lists of the API: every one to its end, in small pages, by cursor and by Link; filters; what cannot be meant."""

import base64
import json

import httpx
import pytest

from tests.support.api import Shared
from tests.support.furnished import furnish

LISTS = {
    "/api/jobs": 3,
    "/api/domains": 4,
    "/api/pages": 1,
    "/api/items": 2,
    "/api/links/in?url=https://example.com/a": 1,
    "/api/links/orphans?job=default": 1,
    "/api/frontier/urls": 5,
    "/api/tasks": 5,
    "/api/batches": 1,
    "/api/products": 1,
    "/api/products/1/history": 3,
    "/api/proxies": 3,
    "/api/domains/example.com/proxies": 3,
    "/api/proxies/health": 1,
    "/api/proxies/cost": 3,
    "/api/runs": 1,
    "/api/workers": 1,
    "/api/claims": 0,
    "/api/domains/example.com/transitions": 1,
    "/api/domains/example.com/tenures": 1,
    "/api/maintenance-windows": 1,
    "/api/webhooks": 0,
    "/api/alerts": 0,
    "/api/operations": 1,
    "/api/admin/audit": 3,
    "/api/admin/users": 1,
    "/api/admin/keys": 1,
}
"""Each with the least that it has in a furnished store."""


def _walk(client: httpx.Client, path: str, *, by_link: bool) -> list[str]:
    """Every item, a page of one at a time."""
    found: list[str] = []
    target: str | None = f"{path}{'&' if '?' in path else '?'}limit=1"
    for _ in range(200):
        assert target is not None
        answer = client.get(target)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [json.dumps(item, sort_keys=True) for item in page["items"]]
        link = answer.links.get("next", {}).get("url")
        assert (link is None) == (page["next"] is None)
        if page["next"] is None:
            return found
        joint = "&" if "?" in path else "?"
        target = link if by_link else f"{path}{joint}limit=1&cursor={page['next']}"
    raise AssertionError(f"{path} has no end")


@pytest.fixture(scope="module")
def furnished(stage: Shared) -> None:
    """Something of everything, for all tests that only look."""
    furnish(stage.database)


@pytest.mark.usefixtures("furnished")
def test_every_list_is_the_same_in_any_pages(shared: Shared) -> None:
    client = shared.admin
    for path, least in LISTS.items():
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        whole = [json.dumps(item, sort_keys=True) for item in answer.json()["items"]]
        assert len(whole) >= least, path
        assert len(set(whole)) == len(whole), path
        if path not in {"/api/admin/keys", "/api/admin/audit"}:  # which our own requests change
            assert _walk(client, path, by_link=len(path) % 2 == 0) == whole, path


@pytest.mark.parametrize(
    ("path", "orders"),
    [
        ("/api/domains", ["name", "crawled", "priority", "newest", "oldest"]),
        ("/api/pages", ["newest", "oldest", "key"]),
        ("/api/jobs", ["newest", "oldest"]),
        ("/api/frontier/urls", ["key"]),
    ],
    ids=["domains", "pages", "jobs", "urls"],
)
@pytest.mark.usefixtures("furnished")
def test_every_order_has_all_of_it(shared: Shared, path: str, orders: list[str]) -> None:
    client = shared.reader
    all_of_it = sorted(_walk(client, path, by_link=False))
    for order in orders:
        assert sorted(_walk(client, f"{path}?order={order}", by_link=False)) == all_of_it, order
    assert client.get(f"{path}?order=nonsense").status_code == 422


@pytest.mark.usefixtures("furnished")
def test_filters_find_what_they_say(shared: Shared) -> None:
    client = shared.reader

    def names(path: str, field: str) -> set[object]:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return {item[field] for item in answer.json()["items"]}

    assert names("/api/domains?status=blocked", "domain") == {"blocked.example"}
    assert names("/api/domains?name=exam", "domain") == {"example.com"}
    assert names("/api/domains?claimed=true", "domain") == set()
    assert names("/api/pages?domain=example.com&status_class=2", "status") == {200}
    assert names("/api/pages?status=503", "status") == set()
    assert names("/api/items?url=https://example.com/&job=default&domain=example.com", "url") == {
        "https://example.com/"
    }
    assert names("/api/items?url=https://example.com/a", "url") == names("/api/items?parser=other", "url") == set()
    assert names("/api/frontier/urls?state=denied", "state") == {"denied"}
    assert names("/api/jobs?prefix=sh", "name") == {"shop"}
    assert names("/api/tasks?status=failed", "status") == {"failed"}
    assert names("/api/proxies?provider=acme", "provider") == {"acme"}
    assert names("/api/operations?state=done", "state") == {"done"}
    for unknown in (
        "/api/pages?domain=nowhere.example",
        "/api/pages?job=nothing",
        "/api/items?job=nothing",
        "/api/frontier/urls?job=nothing",
    ):
        assert client.get(unknown).status_code == 404, unknown


def _cursor(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "%", "[]", _cursor([]), _cursor({}), _cursor(["a", "b"]), _cursor([2**70]), _cursor([True]), _cursor(["\0"]),
     _cursor([[1]]), _cursor([1, 2, 3, 4, 5]), _cursor([float("inf")])],
    ids=["empty", "x", "percent", "raw", "none", "object", "texts", "huge", "bool", "nul", "nested", "many", "infinite"],
)  # fmt: skip
def test_a_cursor_that_is_none_is_refused(shared: Shared, cursor: str) -> None:
    client = shared.admin
    for path in LISTS:
        if "{" in path or path.startswith(("/api/products/1", "/api/domains/")):
            continue
        answer = client.get(path, params={"cursor": cursor})
        assert answer.status_code == 422, (path, answer.text)


@pytest.mark.parametrize("limit", ["0", "-1", "501", "9" * 30, "x", ""])
def test_a_page_has_1_to_500(shared: Shared, limit: str) -> None:
    assert shared.reader.get("/api/domains", params={"limit": limit}).status_code == 422
