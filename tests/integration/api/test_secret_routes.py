"""Headers, cookies and credentials through the API: stored sealed, answered by name, in no kept answer, audit entry or refusal."""

from pathlib import Path

import psycopg
import pytest

from holdfast.control.secret_box import SecretBox
from tests.support.api import Api

CANARY = "canary-Zq8!"
SECRETS = {"headers": [f"X-Key: {CANARY}"], "cookies": [f"a={CANARY}"], "basic_auth": f"bob:{CANARY}"}
JOB = {"name": "wiki", "urls": ["https://a.example/", "http://b.example/x"]}


def everything(connection: psycopg.Connection) -> str:
    """All tables, as text."""
    tables = connection.execute(
        "SELECT quote_ident(table_name) FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
    ).fetchall()
    texts = [
        connection.execute(f"SELECT string_agg(to_jsonb(t)::text, ' ') FROM {table} t".encode()).fetchone()
        for (table,) in tables
    ]
    return " ".join(text for row in texts if row for text in row if text)


def test_a_job_sends_what_it_was_given_to_its_seeds(api: Api, connection: psycopg.Connection, tmp_path: Path) -> None:
    client = api.admin
    key = {"Idempotency-Key": "once"}
    made = client.post("/api/jobs", json={**JOB, "secrets": SECRETS, "spec": {"user_agent": "Wiki/1.0"}}, headers=key)
    assert made.status_code == 201, made.text
    assert made.json()["job"]["secrets"] == ["Authorization", "Cookie", "X-Key"]
    assert made.json()["job"]["spec"]["user_agent"] == "Wiki/1.0"
    rows = connection.execute("SELECT kind, origins, sealed FROM job_secrets ORDER BY kind").fetchall()
    origins = ["https://a.example", "http://b.example", "https://b.example"]
    assert [(kind, sorted(found)) for kind, found, _ in rows] == [
        (kind, sorted(origins)) for kind in ("basic_auth", "cookies", "headers")
    ]
    safe = SecretBox.of(api.services.settings)
    assert CANARY in safe.open(rows[0][2])
    repeated = client.post("/api/jobs", json={**JOB, "secrets": {}, "spec": {"user_agent": "Wiki/1.0"}}, headers=key)
    assert repeated.json() == made.json(), "of the secrets not even a hash is kept"
    changed = client.put("/api/jobs/wiki/secrets", json={"cookies": [], "headers": ["X-Other: 1"]})
    assert changed.json()["secrets"] == ["Authorization", "X-Other"]
    twice = client.put("/api/jobs/wiki/secrets", json={"headers": [f"Authorization: {CANARY}"]})
    assert (twice.status_code, "keep one of them" in twice.json()["detail"]) == (422, True)
    answers = [made, changed, twice, client.get("/api/jobs/wiki"), client.get("/api/jobs"), client.get("/api/audit")]
    assert CANARY not in "".join(answer.text for answer in answers)
    assert CANARY not in everything(connection)
    assert client.delete("/api/jobs/wiki").status_code == 204
    assert connection.execute("SELECT count(*) FROM job_secrets").fetchone() == (0,)


def test_a_domain_is_sent_what_it_was_given_by_https(api: Api, connection: psycopg.Connection) -> None:
    client = api.admin
    client.post("/api/admin/domains", json={"domain": "a.example"})
    changed = client.patch("/api/admin/domains/a.example", json={**SECRETS, "delay": 2})
    assert changed.status_code == 200, changed.text
    assert changed.json()["facts"]["secrets"] == ["Authorization", "Cookie", "X-Key"]
    (origins,) = connection.execute("SELECT DISTINCT origins FROM domain_secrets").fetchone() or ([],)
    assert origins == ["https://a.example", "https://www.a.example"]
    over_http = client.patch("/api/admin/domains/a.example", json={"basic_auth": "bob:x", "plain_http": True})
    (origins,) = connection.execute("SELECT origins FROM domain_secrets WHERE kind = 'basic_auth'").fetchone() or ([],)
    assert "http://a.example" in origins
    removed = client.patch("/api/admin/domains/a.example", json={"headers": None, "cookies": [], "basic_auth": ""})
    assert removed.json()["facts"]["secrets"] == []
    answers = [changed, over_http, removed, client.get("/api/domains/a.example"), client.get("/api/audit")]
    assert CANARY not in "".join(answer.text for answer in answers)
    assert CANARY not in everything(connection)


def test_a_refusal_does_not_repeat_the_value(api: Api) -> None:
    """And the server reads no files or variables of its own for whoever asks."""
    admin = api.admin
    for secrets, sentence in [
        ({"headers": [f"Host: {CANARY}"]}, "The header Host cannot be set"),
        ({"headers": [f"{CANARY}\r\nX: y"]}, "A header is written"),
        ({"headers": CANARY}, "valid list"),
        ({"basic_auth": CANARY}, "written 'user:password'"),
        ({"cookies": [{"a": CANARY}]}, "valid string"),
        ({"headers": ["@/etc/passwd"]}, "A header is written"),
        ({"basic_auth": "env:HOME"}, ""),
    ]:
        answer = admin.post("/api/jobs", json={**JOB, "secrets": secrets})
        if not sentence:
            assert answer.status_code == 201, "it is a user called env"
            continue
        assert answer.status_code == 422
        assert sentence in answer.text
        assert CANARY not in answer.text


def test_a_job_whose_secrets_are_refused_is_not_made(api: Api, connection: psycopg.Connection) -> None:
    """Otherwise the corrected request is refused because of the name, and a job without seeds stays."""
    two = {"headers": [f"Authorization: {CANARY}"], "basic_auth": f"bob:{CANARY}"}
    refused = api.admin.post("/api/jobs", json={**JOB, "secrets": two})
    assert (refused.status_code, "keep one of them" in refused.json()["detail"]) == (422, True)
    assert connection.execute("SELECT count(*) FROM crawl_jobs WHERE name = 'wiki'").fetchone() == (0,)
    made = api.admin.post("/api/jobs", json={**JOB, "secrets": SECRETS})
    assert (made.status_code, made.json().get("seeds")) == (201, 2), made.text


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "wiki", "urls": ["https://a.example/"], "secrets": {}, "\\ud800": 1}',
        b'{"secrets": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_cannot_be_meant_is_refused_also_with_a_key(api: Api, body: bytes) -> None:
    headers = {"Idempotency-Key": "once", "Content-Type": "application/json"}
    answer = api.admin.post("/api/jobs", content=body, headers=headers)
    assert answer.status_code in (400, 422), answer.text


def test_a_secret_behind_an_escaped_name_is_not_hashed(api: Api) -> None:
    body = '{"name": "wiki", "urls": ["https://a.example/"], "sec\\u0072ets": {"b\\u0061sic_auth": "bob:%s"}}'
    headers = {"Idempotency-Key": "once", "Content-Type": "application/json"}
    client = api.admin
    first, second = (client.post("/api/jobs", content=body % value, headers=headers) for value in "ab")
    assert (first.status_code, first.json()["job"]["secrets"]) == (201, ["Authorization"])
    assert second.json() == first.json()


def test_the_summary_of_a_job(api: Api) -> None:
    api.admin.post("/api/jobs", json={**JOB, "name": "a\\d"})
    found = api.reader.get("/api/jobs/a%5Cd/summary")
    assert (found.status_code, found.json()["ending"], found.json()["waiting"]) == (200, "unfinished", 2), found.text
    assert api.reader.get("/api/jobs/other/summary").status_code == 404
