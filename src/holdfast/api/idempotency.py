"""Idempotency keys: the changes of a request with an Idempotency-Key and the response to it commit in one
transaction.

The rule: a repeated request with the same key gets the first response, however often the server was killed in
between, and nothing is done again. A request that failed has changed nothing, and may be sent again.
"""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response

from holdfast import failpoints
from holdfast.api.forms import KEY_FIELD, Form
from holdfast.api.responses import dump_json
from holdfast.api.thread_pools import run_without_loop
from holdfast.db import idempotency_keys
from holdfast.db.idempotency_keys import StoredResponse
from holdfast.errors import RolledBack, UsageError
from holdfast.model.auth import Principal

if TYPE_CHECKING:
    from holdfast.api.app_services import AppServices

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
_RETRIES: Final = 3
_WAIT_TIMEOUT: Final = timedelta(seconds=5)
_SECRET_NAMES: Final = frozenset({"secrets", "headers", "cookies", "basic_auth"})
"""Fields of bodies; see `request_types.SecretFields`."""
_STORED_HEADERS: Final = ("content-type", "location", "etag")


def key_of(request: Request) -> str | None:
    """The idempotency key of a request: its header, or the field of a form that was read; None: it has none."""
    key = request.headers.get(HEADER)
    form = getattr(request.state, "form", None)
    if key is None and isinstance(form, Form):
        key = form.text(KEY_FIELD)
    return None if key is None else key.strip()


def run_once(services: "AppServices", request: Request, key: str, handle: Callable[[], Response]) -> Response:
    """Handle a request, unless a request with the same key was handled before; returns the first response. Before:
    the body has been read."""
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise UsageError(f"{HEADER} must be 1 to 255 printable ASCII characters without spaces, such as a UUID.")
    caller: Principal = request.state.caller
    owner = str(caller.user_id) if caller.user_id is not None else caller.via
    digest = fingerprint(request.method, request.url.path, request.url.query, _body_without_secrets(request))
    for _ in range(_RETRIES):
        with suppress(
            RolledBack
        ):  # a conflict with other transactions: nothing was done, and all of it may be repeated
            return _run_once(services, request, owner, key, digest, handle)
    return _run_once(services, request, owner, key, digest, handle)


def _run_once(
    services: "AppServices", request: Request, owner: str, key: str, digest: bytes, handle: Callable[[], Response]
) -> Response:
    keep = services.settings.web.replays
    with services.database.one_transaction() as connection:
        stored = idempotency_keys.reserve(
            connection, owner=owner, key=key, fingerprint=digest, ttl=keep, timeout=_WAIT_TIMEOUT
        )
        if stored is not None:
            return _replay(stored, digest)
        response = handle()
        body = getattr(request.state, "replay_body", None) or bytes(response.body)
        headers = {name: response.headers[name] for name in _STORED_HEADERS if name in response.headers}
        idempotency_keys.save_response(
            connection, owner=owner, key=key, status=response.status_code, headers=headers, body=body
        )
        failpoints.reach("api_before_commit")
    failpoints.reach("api_after_commit")
    return response


def fingerprint(*parts: str | bytes) -> bytes:
    """A hash of the parts of a request: equal requests have equal hashes."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def _body_without_secrets(request: Request) -> bytes:
    form = getattr(request.state, "form", None)
    if isinstance(form, Form):
        return json.dumps([field for field in form.fields if field[0] not in _SECRET_NAMES]).encode()
    return _without_secrets(run_without_loop(request.body()))


def _without_secrets(body: bytes) -> bytes:
    """The body without secrets, which are not stored, not even as a hash to guess at: requests that differ only in
    secrets are equal."""
    if b"\\" not in body and not any(name.encode() in body for name in _SECRET_NAMES):
        return body
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # not JSON: another format, or it will be refused
        return body
    if not isinstance(document, dict):
        return body
    return json.dumps({name: value for name, value in document.items() if name not in _SECRET_NAMES}).encode()


def store_instead(request: Request, response: object) -> None:
    """Store this response instead of the real one, which has a secret that is shown once: a repeated request gets
    this one."""
    request.state.replay_body = dump_json(response).encode()


def _replay(stored: StoredResponse, digest: bytes) -> Response:
    if stored.fingerprint != digest:
        raise UsageError(f"This {HEADER} was used for another request; take a new one for each.")
    headers: dict[str, Any] = {**stored.headers, REPLAYED: "true"}
    return Response(stored.body, stored.status, headers=headers)
