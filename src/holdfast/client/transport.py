"""What both clients share: the setup of httpx, waiting for operations, and downloads.

The rule: only the caller and the settings decide where a request goes: no proxy and no password is taken from the
environment.
"""

import os
import ssl
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast.atomic_file import AtomicFile
from holdfast.client import endpoints
from holdfast.client.errors import from_transport_error
from holdfast.client.request_spec import RequestSpec
from holdfast.client.retry import ClientConfig, Pause, Send, Step, StepResult, backoff, request_steps
from holdfast.client.sse import READ_TIMEOUT
from holdfast.errors import HoldfastError, UsageError
from holdfast.operations.records import Operation

DEFAULT_URL: Final = "http://127.0.0.1:8080"
"""The default address of `holdfast serve`."""
FORMATS: Final = ("jsonl", "csv", "parquet")
_FIRST_POLL: Final = 0.1
_MAX_POLL: Final = 2.0


def make_config(server: str, key: str | None, timeout: float, retries: int) -> ClientConfig:
    """The configuration of a client. A key of None is that of the settings; an empty one is none."""
    return ClientConfig(server.rstrip("/"), (_key_from_settings() if key is None else key) or None, timeout, retries)


def _key_from_settings() -> str | None:
    from holdfast.settings import load  # here: a caller that passes a key does not need all settings

    known = load().api_key
    return None if known is None else known.get_secret_value()


def client_arguments(config: ClientConfig) -> dict[str, Any]:
    """The arguments of httpx's clients."""
    # The system's certificates, which include a company's own authority.
    verify = ssl.create_default_context() if config.server.startswith("https:") else False
    return {"base_url": config.server, "headers": dict(config.headers), "trust_env": False, "verify": verify}


def request_arguments(send: Send, config: ClientConfig) -> dict[str, Any]:
    """The arguments of httpx's `build_request`."""
    read = max(config.timeout, READ_TIMEOUT if send.request.stream else send.request.read_timeout)
    return {
        "method": send.request.method,
        "url": send.request.path,
        "params": send.request.parameters(),
        "content": send.content,
        "headers": dict(send.headers),
        "timeout": httpx.Timeout(config.timeout, read=read),
    }


def wait_steps(
    operation: int | Operation, config: ClientConfig, patience: float | None
) -> Generator[Step, StepResult, Operation]:
    """The steps of waiting for an operation, at most `patience` seconds. Raises HoldfastError if it failed."""
    started = time.monotonic()  # the requests and their repetitions take time as well
    while True:
        found = yield from request_steps(endpoints.operation(operation), config)
        if found.state == "failed":
            raise HoldfastError(found.problem or f"Operation {found.id} failed.")
        if found.is_over:
            return found
        waited = time.monotonic() - started
        if patience is not None and waited >= patience:
            raise HoldfastError(
                f"Operation {found.id} is still {found.state}; a `holdfast background` or `serve` must run for it."
            )
        pause = min(max(_FIRST_POLL, waited / 2), _MAX_POLL)
        yield Pause(pause if patience is None else min(pause, patience - waited))


def export_request(
    kind: str,
    file: str | os.PathLike[str],
    format: str | None,  # noqa: A002 — as the API has it
    **filters: Any,
) -> RequestSpec[httpx.Response]:
    """The request of an export into a file; the suffix of its name is the format unless `format` is given."""
    return endpoints.export(kind, check_format(format or Path(file).suffix.removeprefix(".")), **filters)


def check_format(format: str) -> str:  # noqa: A002 — as the API has it
    """The format, if it is a known one. Raises UsageError."""
    if format not in FORMATS:
        raise UsageError(f"An export is written as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not as {format!r}.")
    return format


def restart_download(file: AtomicFile, problem: httpx.TransportError, attempt: int, config: ClientConfig) -> float:
    """Restart a download that broke: seconds until the next attempt. Raises Unreachable after the last one."""
    if attempt >= config.retries:
        raise from_transport_error(problem, config.server, certainly_not_done=True) from problem
    file.restart()
    return backoff(attempt)
