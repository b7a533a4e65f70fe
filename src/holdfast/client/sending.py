"""What both clients send with: how httpx is set up, and long conversations step by step.

The rule: nothing but what the caller and the settings say decides where a request goes: no proxy and no password of the environment.
"""

import os
import ssl
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast.client import calls
from holdfast.client.call import Call
from holdfast.client.exchange import Manner, Outcome, Pause, Send, Step, backing_off, exchange
from holdfast.client.files import NewFile
from holdfast.client.live import SILENCE
from holdfast.client.problems import of_transport
from holdfast.client.values import Operation
from holdfast.errors import HoldfastError, UsageError

LOCAL: Final = "http://127.0.0.1:8080"
"""Where `holdfast serve` listens unless it is told otherwise."""
FORMATS: Final = ("jsonl", "csv", "parquet")
_FIRST_LOOK: Final = 0.1
_LATER_LOOKS: Final = 2.0


def manner_of(server: str, key: str | None, timeout: float, retries: int) -> Manner:
    """How a client asks. A key that is not given is that of the settings; an empty one is none."""
    return Manner(server.rstrip("/"), (_known_key() if key is None else key) or None, timeout, retries)


def _known_key() -> str | None:
    from holdfast.settings import load  # here, for whoever gives a key does not need all settings

    known = load().api_key
    return None if known is None else known.get_secret_value()


def options(manner: Manner) -> dict[str, Any]:
    """What httpx's clients are made with."""
    # The system's certificates: of a company's own authority, too.
    verify = ssl.create_default_context() if manner.server.startswith("https:") else False
    return {"base_url": manner.server, "headers": dict(manner.headers), "trust_env": False, "verify": verify}


def parts(send: Send, manner: Manner) -> dict[str, Any]:
    """What a request is built of."""
    read = max(manner.timeout, SILENCE) if send.call.stream else manner.timeout
    return {
        "method": send.call.method,
        "url": send.call.path,
        "params": send.call.parameters(),
        "content": send.content,
        "headers": dict(send.headers),
        "timeout": httpx.Timeout(manner.timeout, read=read),
    }


def finishing(
    operation: int | Operation, manner: Manner, patience: float | None
) -> Generator[Step, Outcome, Operation]:
    """The steps of waiting for long work, for so many seconds at the most. Raises what it failed with."""
    began = time.monotonic()  # the requests and their repetitions take time as well
    while True:
        found = yield from exchange(calls.operation(operation), manner)
        if found.state == "failed":
            raise HoldfastError(found.problem or f"Operation {found.id} failed.")
        if found.is_over:
            return found
        waited = time.monotonic() - began
        if patience is not None and waited >= patience:
            raise HoldfastError(
                f"Operation {found.id} is still {found.state}; a `holdfast background` or `serve` must run for it."
            )
        pause = min(max(_FIRST_LOOK, waited / 2), _LATER_LOOKS)
        yield Pause(pause if patience is None else min(pause, patience - waited))


def export_call(
    kind: str,
    file: str | os.PathLike[str],
    format: str | None,  # noqa: A002 — as the API has it
    **only: Any,
) -> Call[httpx.Response]:
    """The export into a file, whose name says how it is written unless `format` does."""
    return calls.export(kind, checked(format or Path(file).suffix.removeprefix(".")), **only)


def checked(format: str) -> str:  # noqa: A002 — as the API has it
    """A format that there is."""
    if format not in FORMATS:
        raise UsageError(f"An export is written as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not as {format!r}.")
    return format


def begun_again(file: NewFile, problem: httpx.TransportError, attempt: int, manner: Manner) -> float:
    """A download broke off: seconds until it begins anew. Raises Unreachable when that was often enough."""
    if attempt >= manner.retries:
        raise of_transport(problem, manner.server, certainly_not_done=True) from problem
    file.begin_again()
    return backing_off(attempt)
