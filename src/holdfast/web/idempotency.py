"""Requests that may be sent twice: with an Idempotency-Key, what they do and the answer to them commit in one transaction.

The rule: whoever repeats a request with the same key gets the answer of the first one, however often the server was killed meanwhile, and
nothing is done again. A request that failed has left nothing, and may be sent again.
"""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from pydantic import BaseModel

from holdfast import failpoints
from holdfast.errors import RolledBack, UsageError
from holdfast.model.account import Principal
from holdfast.store import answers
from holdfast.store.answers import Answer
from holdfast.web.gate import finished

if TYPE_CHECKING:
    from holdfast.web.office import Office

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
_AGAIN: Final = 3
_PATIENCE: Final = timedelta(seconds=5)
_SECRET_NAMES: Final = frozenset({"secrets", "headers", "cookies", "basic_auth"})
"""Fields of bodies; see `shapes.SecretFields`."""
_KEPT_HEADERS: Final = ("content-type", "location", "etag")


def once(office: "Office", request: Request, do: Callable[[], Response]) -> Response:
    """Do what a request asks for, unless it was done before; the answer of the first time. Before: its body has been read."""
    key = request.headers[HEADER].strip()
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise UsageError(f"{HEADER} must be 1 to 255 printable ASCII characters without spaces, such as a UUID.")
    who: Principal = request.state.who
    owner = str(who.user_id) if who.user_id is not None else who.via
    mark = fingerprint(request.method, request.url.path, request.url.query, _without_secrets(finished(request.body())))
    for _ in range(_AGAIN):
        with suppress(RolledBack):  # others were in the way, and nothing was done: the whole of it may be done again
            return _once(office, request, owner, key, mark, do)
    return _once(office, request, owner, key, mark, do)


def _once(
    office: "Office", request: Request, owner: str, key: str, mark: bytes, do: Callable[[], Response]
) -> Response:
    keep = office.settings.web.replays
    with office.database.one_transaction() as connection:
        before = answers.reserve(connection, owner=owner, key=key, fingerprint=mark, keep=keep, patience=_PATIENCE)
        if before is not None:
            return _again(before, mark)
        response = do()
        body = getattr(request.state, "kept", None) or bytes(response.body)
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        answers.keep(connection, owner=owner, key=key, status=response.status_code, headers=headers, body=body)
        failpoints.reach("api_before_commit")
    failpoints.reach("api_after_commit")
    return response


def fingerprint(*parts: str | bytes) -> bytes:
    """Of a request: the same for the same."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def _without_secrets(body: bytes) -> bytes:
    """A body without what must not be kept, not even as a hash to guess at: requests that differ in these only are one and the same."""
    if b"\\" not in body and not any(name.encode() in body for name in _SECRET_NAMES):
        return body
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):  # lines of another format, or it will be refused and leave nothing
        return body
    if not isinstance(given, dict):
        return body
    return json.dumps({name: value for name, value in given.items() if name not in _SECRET_NAMES}).encode()


def keep_instead(request: Request, answer: BaseModel) -> None:
    """What is given away once is not kept: who repeats the request gets this answer instead."""
    request.state.kept = answer.model_dump_json().encode()


def _again(before: Answer, mark: bytes) -> Response:
    if before.fingerprint != mark:
        raise UsageError(f"This {HEADER} was used for another request; take a new one for each.")
    headers: dict[str, Any] = {**before.headers, REPLAYED: "true"}
    return Response(before.body, before.status, headers=headers)
