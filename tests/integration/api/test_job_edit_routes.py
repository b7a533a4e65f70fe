"""Jobs are edited through the API: by version, and with a sentence for what cannot be."""

import psycopg

from tests.support.api import Api

JOB = {"name": "shop", "urls": ["https://a.example/"], "spec": {"max_pages": 5}}


def test_a_job_is_edited_by_version_and_it_is_recorded(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    client.post("/api/jobs", json=JOB)
    seen = client.get("/api/jobs/shop")
    assert seen.headers["ETag"] == f'"{seen.json()["version"]}"'
    match = {"If-Match": seen.headers["ETag"]}
    edited = client.patch("/api/jobs/shop", json={"max_pages": None, "delay": 2, "refresh": True}, headers=match)
    assert edited.status_code == 200, edited.text
    answer = edited.json()
    assert (answer["changed"], answer["version"]) == (["max_pages", "delay", "refresh"], seen.json()["version"] + 1)
    assert (answer["spec"]["max_pages"], answer["spec"]["delay"], answer["spec"]["refresh"]) == (None, 2, True)
    assert edited.headers["ETag"] == f'"{answer["version"]}"' != seen.headers["ETag"]
    late = client.patch("/api/jobs/shop", json={"delay": 9}, headers=match)
    assert (late.status_code, "was changed since" in late.json()["detail"]) == (412, True)
    same = client.patch("/api/jobs/shop", json={"delay": 2}).json()
    assert (same["changed"], same["version"]) == ([], answer["version"])
    rows = connection.execute("SELECT details FROM audit_log WHERE object_kind = 'job' AND action = 'edit'").fetchall()
    assert rows == [({"max_pages": None, "delay": 2.0, "refresh": True},)]


def test_what_cannot_be_edited_is_said_in_a_sentence(api: Api) -> None:
    admin = api.admin
    admin.post("/api/jobs", json=JOB)
    for body, says in [
        ({"scope": "any"}, "scope cannot be edited: it says which URLs belong to the job"),
        ({"urls": ["https://b.example/"]}, "urls cannot be edited"),
        ({}, "Say what to change"),
        ({"max_pages": 0}, "max_pages"),
        ({"parser": "nothing"}, "nothing"),
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
