"""Jobs are edited through the API: by version, and with a sentence for what cannot be."""

import psycopg

from tests.support.api import Api
from tests.support.crawls import wait_for
from tests.support.invariants import assert_invariants

JOB = {"name": "shop", "urls": ["https://a.example/"], "spec": {"max_pages": 5}}


def test_a_job_is_edited_by_version_and_it_is_recorded(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB)
    seen = client.get("/api/jobs/shop")
    assert seen.headers["ETag"] == f'"{seen.json()["version"]}"'
    match = {"If-Match": seen.headers["ETag"]}
    edited = client.patch(
        "/api/jobs/shop", json={"max_pages": None, "delay": 2, "refresh": True, "types": ["pdf"]}, headers=match
    )
    assert edited.status_code == 200, edited.text
    answer = edited.json()
    assert (answer["changed"], answer["version"]) == (
        ["max_pages", "delay", "refresh", "types"],
        seen.json()["version"] + 1,
    )
    assert (answer["spec"]["max_pages"], answer["spec"]["delay"], answer["spec"]["refresh"]) == (None, 2, True)
    assert edited.headers["ETag"] == f'"{answer["version"]}"' != seen.headers["ETag"]
    late = client.patch("/api/jobs/shop", json={"delay": 9}, headers=match)
    assert (late.status_code, "was changed since" in late.json()["detail"]) == (412, True)
    same = client.patch("/api/jobs/shop", json={"delay": 2}).json()
    assert (same["changed"], same["version"]) == ([], answer["version"])
    rows = connection.execute("SELECT details FROM audit_log WHERE object_kind = 'job' AND action = 'edit'").fetchall()
    assert rows == [({"max_pages": None, "delay": 2.0, "refresh": True, "types": ["pdf"]},)]


def test_what_cannot_be_edited_is_said_in_a_sentence(api: Api) -> None:
    admin = api.admin
    admin.post("/api/jobs", json=JOB)
    for body, says in [
        ({"strip_params": ["sid"]}, "strip_params cannot be edited: URLs are stored as it left them"),
        ({"follow": False}, "follow cannot be edited: links of pages that were fetched without it are not stored"),
        ({"exclude": ["("]}, "is not a regular expression"),
        ({"scope": "planet"}, "scope"),
        ({"urls": ["https://b.example/"]}, "urls cannot be edited"),
        ({}, "Say what to change"),
        ({"max_pages": 0}, "max_pages"),
        ({"parser": "nothing"}, "nothing"),
        ({"types": ["docx"]}, "types"),
        ({"archive": False, "parser": "product"}, "reads pages from the archive"),
    ]:
        refused = admin.patch("/api/jobs/shop", json=body)
        assert refused.status_code == 422, body
        assert says in refused.text
        assert admin.get("/api/jobs/shop").json()["spec"]["max_pages"] == 5


def test_the_answer_says_what_follows(api: Api) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB)
    client.post("/api/jobs/shop/pause")
    assert "jobs resume shop" in client.patch("/api/jobs/shop", json={"max_depth": 3}).json()["note"]
    client.post("/api/jobs/shop/cancel")
    assert "--again" in client.patch("/api/jobs/shop", json={"max_depth": 4}).json()["note"]
    assert client.get("/api/jobs/shop").json()["state"] == "cancelled"
    assert client.patch("/api/jobs/tasks", json={"delay": 1}).status_code == 409
    assert client.patch("/api/jobs/nothing", json={"delay": 1}).status_code == 404


def test_the_rules_of_a_job_are_previewed_edited_and_restored(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB | {"urls": ["https://a.example/", "https://b.example/"]})
    connection.execute(
        "INSERT INTO url_frontier (domain_id, job_id, url_key, url, depth) SELECT d.id, j.id, decode(md5('x'), 'hex'), "
        "'https://a.example/x', 1 FROM domains d, crawl_jobs j WHERE d.domain = 'a.example' AND j.name = 'shop'"
    )
    connection.execute(
        "SELECT add_counts(d.id, j.id, 1) FROM domains d, crawl_jobs j WHERE d.domain = 'a.example' AND j.name = 'shop'"
    )
    rules = {"exclude": ["/x"], "scope": "domain"}
    seen = client.post("/api/jobs/shop/scope/preview", json=rules)
    assert seen.json() == {
        "removes": 1,
        "returns": 0,
        "exact": True,
        "removed_urls": ["https://a.example/x"],
        "returned_urls": [],
    }
    for body, says in [({}, "Only an edit of the rules can be previewed"), ({"max_pages": 3}, "max_pages")]:
        refused = client.post("/api/jobs/shop/scope/preview", json=body)
        assert (refused.status_code, says in refused.text) == (422, True)
    before = client.get("/api/jobs/shop")
    edited = client.patch("/api/jobs/shop", json=rules, headers={"If-Match": before.headers["ETag"]}).json()
    assert (edited["changed"], edited["rules_version"]) == (["scope", "exclude"], 1)
    assert "jobs undo-scope shop" in edited["note"]
    reason = "SELECT state::text, reason FROM url_frontier WHERE url = 'https://a.example/x'"
    denied = "excluded: it matches the exclude pattern /x (rules 1)"
    wait_for(lambda: connection.execute(reason).fetchall() == [("denied", denied)], "the consequence")
    late = client.post("/api/jobs/shop/scope/undo", headers={"If-Match": before.headers["ETag"]})
    assert (late.status_code, "was changed since" in late.json()["detail"]) == (412, True)
    assert connection.execute(reason).fetchall() == [("denied", denied)]
    undone = client.post("/api/jobs/shop/scope/undo")
    assert undone.headers["ETag"] == f'"{undone.json()["version"]}"'
    assert (undone.json()["changed"], undone.json()["rules_version"]) == (["scope", "exclude"], 2)
    wait_for(lambda: connection.execute(reason).fetchall() == [("waiting", None)], "the return")
    history = client.get("/api/jobs/shop/scope/history").json()
    assert [(one["version"], one["restores"], one["rules"]["exclude"]) for one in history] == [
        (0, None, []),
        (1, None, ["/x"]),
        (2, 0, []),
    ]
    assert client.post("/api/jobs/shop/scope/undo").status_code == 409
    assert_invariants(connection)
