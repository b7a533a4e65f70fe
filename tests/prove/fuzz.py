"""The whole API, asked at random by schemathesis from its own description: no 500, and no answer that it does not describe.

    python -m tests.prove.fuzz [--calls 10000] [--seed N]

A server of its own with data in every table; limits are raised by setting. Live streams never end, and to test a proxy is to connect to
whatever a made-up address means: both are left to tests of their own.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
from psycopg import sql

from holdfast.accounts.service import AccountService
from holdfast.api.auth import COOKIE, CSRF_HEADER
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.model.auth import SCOPES, Role
from tests.support.api import Api, serving, settings
from tests.support.furnished import furnish
from tests.support.servers import data_in_memory

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
LEFT_OUT = "/events$|/test$"
OWN = "^/api/auth/"
"""What only a session opens; one that logs out, or sets another password, would end it."""


@contextmanager
def furnished() -> Iterator[tuple[Api, str]]:
    """A server with something of everything, and an admin's key."""
    with data_in_memory() as data, tempfile.TemporaryDirectory() as folder:
        server = embedded.ensure_running(data, extra_settings={"fsync": "off", "full_page_writes": "off"})
        with psycopg.connect(server.admin_url(), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(sql.Identifier("fuzz")))
        database = Database(server.url("fuzz"))
        migrate.upgrade(database)
        furnish(database)
        with serving(database, settings(Path(folder))) as api:
            yield api, _admin(api.accounts)


def _admin(accounts: AccountService) -> str:
    """The key of one whom no small number or usual name means, lest it be revoked by what is asked."""
    for number in range(20):
        user, _ = accounts.add(f"fuzz-{number}-of-20", Role.ADMIN, None, actor="fuzz")
        key = accounts.create_key(user.id, "fuzz", SCOPES[Role.ADMIN], None, actor="fuzz")[1]
    return key


def examples_for(calls: int, operations: int) -> int:
    """How many calls each operation gets so that all together are at least so many."""
    return -(-calls // operations)


def run(
    api: Api, headers: Mapping[str, str], *, calls: int, of: str, but: str, seed: int | None
) -> tuple[int, int, str]:
    """The exit code of schemathesis, how many calls it made, and what it said. `of`, `but`: patterns of paths."""
    paths = api.admin.get("/api/openapi.json").json()["paths"]
    operations = sum(len(paths[path]) for path in paths if re.search(of, path) and not re.search(but, path))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{api.url}/api/openapi.json"),
        *(word for name, value in headers.items() for word in ("--header", f"{name}: {value}")),
        *("--checks", ",".join(CHECKS), "--max-examples", str(examples_for(calls, operations))),
        *("--include-path-regex", of, "--exclude-path-regex", but),
        *("--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--request-timeout", "30"),
        *("--generation-with-security-parameters", "false", "--no-color"),
        *(("--seed", str(seed)) if seed is not None else ()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Test cases:\s*\n?.*?([\d,]+) generated", done.stdout, re.DOTALL)
    made = int(found[1].replace(",", "")) if found else 0
    return done.returncode, made, done.stdout + done.stderr


def main() -> int:
    """Ask, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    worst = 0
    with furnished() as (api, key):
        api.user("somebody", Role.ADMIN)
        client = api.login("somebody")  # before all the wrong passwords, which keep this address out for a while
        session = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}", CSRF_HEADER: client.headers[CSRF_HEADER]}
        passes: list[tuple[Mapping[str, str], int, str, str]] = [
            ({"Authorization": f"Bearer {key}"}, options.calls, "^/", LEFT_OUT),
            (session, options.calls // 20, OWN, "logout|password"),
        ]
        for headers, calls, of, but in passes:
            code, made, said = run(api, headers, calls=calls, of=of, but=but, seed=options.seed)
            print(f"{said}\n{made} calls, exit code {code}", flush=True)
            mine = httpx.get(f"{api.url}/api/auth/me", headers=dict(headers)).status_code == 200
            if "Authorization" in headers and not mine:
                print("Void: what was asked ended the key that it was asked with, so that the rest was refused. Again!")
                code = code or 1
            worst = worst or code
    return worst


if __name__ == "__main__":
    sys.exit(main())
