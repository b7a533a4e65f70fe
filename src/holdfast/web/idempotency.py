"""Requests that may be sent twice: with an Idempotency-Key, what they do and the answer to them commit in one transaction.

The rule: whoever repeats a request with the same key gets the answer of the first one, however often the server was killed meanwhile, and
nothing is done again. A request that failed has left nothing, and may be sent again.
"""

import hashlib
import re
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from holdfast import failpoints
from holdfast.errors import RolledBack, UsageError
from holdfast.model.account import Principal
from holdfast.store import answers
from holdfast.store.answers import Answer
from holdfast.store.pooled import Work

if TYPE_CHECKING:
    from holdfast.web.guard import Handler
    from holdfast.web.office import Office

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
_AGAIN: Final = 3
_PATIENCE: Final = timedelta(seconds=5)
_KEPT_HEADERS: Final = ("content-type", "location", "etag")


async def once(office: "Office", who: Principal, request: Request, handler: "Handler") -> Response:
    """Do what a request asks for, unless it was done before; the answer of the first time."""
    key = request.headers[HEADER].strip()
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise UsageError(f"{HEADER} must be 1 to 255 printable ASCII characters without spaces, such as a UUID.")
    owner = str(who.user_id) if who.user_id is not None else who.via
    mark = fingerprint(request.method, request.url.path, request.url.query, await request.body())
    for _ in range(_AGAIN):
        with suppress(RolledBack):  # others were in the way, and nothing was done: the whole of it may be done again
            return await _once(office, request, handler, owner, key, mark)
    return await _once(office, request, handler, owner, key, mark)


async def _once(office: "Office", request: Request, handler: "Handler", owner: str, key: str, mark: bytes) -> Response:
    work, before = await run_in_threadpool(_begin, office, owner, key, mark)
    try:
        if before is not None:
            return _again(before, mark)
        with office.database.bind(work.connection):
            response = await handler(request)
        body = getattr(request.state, "kept", None) or bytes(response.body)
        await run_in_threadpool(_end, office, work, owner, key, response, body)
    except Exception:
        await run_in_threadpool(work.rollback)
        raise
    finally:
        work.abandon()  # we were stopped, and a thread may still be at it: it must not go on behind a rollback
    return response


def fingerprint(*parts: str | bytes) -> bytes:
    """Of a request: the same for the same."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def _begin(office: "Office", owner: str, key: str, mark: bytes) -> tuple[Work, Answer | None]:
    work = office.database.begin()
    try:
        keep = office.settings.web.replays
        with office.database.explained(work.connection):
            before = answers.reserve(
                work.connection, owner=owner, key=key, fingerprint=mark, keep=keep, patience=_PATIENCE
            )
    except BaseException:
        work.rollback()
        raise
    if before is not None:
        work.rollback()
    return work, before


def keep_instead(request: Request, answer: BaseModel) -> None:
    """What is given away once is not kept: who repeats the request gets this answer instead."""
    request.state.kept = answer.model_dump_json().encode()


def _end(office: "Office", work: Work, owner: str, key: str, response: Response, body: bytes) -> None:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    with office.database.explained(work.connection):
        answers.keep(work.connection, owner=owner, key=key, status=response.status_code, headers=headers, body=body)
    failpoints.reach("api_before_commit")
    work.commit()
    failpoints.reach("api_after_commit")


def _again(before: Answer, mark: bytes) -> Response:
    if before.fingerprint != mark:
        raise UsageError(f"This {HEADER} was used for another request; take a new one for each.")
    headers: dict[str, Any] = {**before.headers, REPLAYED: "true"}
    return Response(before.body, before.status, headers=headers)
