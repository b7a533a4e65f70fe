"""The blocking client.

The rule: requests and the decoding of responses are in `endpoints`, retries in `retry`; this module only sends and waits.
"""

import os
import time
from collections.abc import Generator
from contextlib import closing
from typing import Self, TypeVar

import httpx

from holdfast.atomic_file import AtomicFile
from holdfast.client import endpoints
from holdfast.client.errors import from_transport_error
from holdfast.client.methods import ClientMethods
from holdfast.client.request_spec import ListSpec, RequestSpec, StreamSpec
from holdfast.client.retry import Pause, Step, StepResult, request_steps
from holdfast.client.sse import EventSubscription
from holdfast.client.transport import (
    DEFAULT_URL,
    check_format,
    client_arguments,
    export_request,
    make_config,
    request_arguments,
    restart_download,
    wait_steps,
)
from holdfast.errors import HoldfastError
from holdfast.operations.records import Operation

T = TypeVar("T")


class Client(ClientMethods):
    """Client of one Holdfast server. It may be used by several threads, and as a context manager.

    `key` is an API key (`holdfast keys add`); None: the key of the settings (`HOLDFAST_API_KEY`), an empty text:
    none. `timeout` is in seconds. A request that is safe to repeat is repeated up to `retries` times after a failed
    connection, a 429, 502, 503 or 504, and while the server is still processing it.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, key: str | None = None, timeout: float = 30.0, retries: int = 3
    ) -> None:
        self._config = make_config(url, key, timeout, retries)
        self._http = httpx.Client(**client_arguments(self._config))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.server!r})"

    def close(self) -> None:
        """Close all connections. After: no connection is left."""
        self._http.close()

    def ask(self, request: RequestSpec[T]) -> T:
        """Send any request of `holdfast.client.endpoints`, and return its decoded response."""
        return self._run(request_steps(request, self._config))

    def each(self, listing: ListSpec[T]) -> Generator[T]:
        """All items of a list, page by page."""
        items, cursor = self.ask(listing.page(None))
        yield from items
        while cursor is not None:
            items, cursor = self.ask(listing.page(cursor))
            yield from items

    def listen(self, stream: StreamSpec[T]) -> Generator[T]:
        """The events of a stream. It reconnects by itself, and resumes after the last event."""
        subscription = EventSubscription(stream, self._config)
        while not subscription.is_over():
            problem: Exception | None = None
            try:
                response = self._run(request_steps(subscription.request(), subscription.config))
                subscription.connected()
                with closing(response):
                    for chunk in response.iter_bytes():
                        yield from subscription.feed(chunk)
                        if subscription.is_over():
                            return
            except (HoldfastError, httpx.TransportError) as cause:
                problem = cause
            time.sleep(subscription.reconnect_delay(problem))

    def wait(self, operation: int | Operation, *, patience: float | None = None) -> Operation:
        """Wait until an operation is done, at most `patience` seconds (None: no limit). Raises HoldfastError if it
        failed."""
        return self._run(wait_steps(operation, self._config, patience))

    def export(
        self,
        kind: str,
        file: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002 — as the API has it
        job: endpoints.JobRef | None = None,
        domain: str | None = None,
        text: bool = False,
    ) -> int:
        """Export `pages`, `documents`, `items`, `products`, `links`, `urls` or the `log` into a file (.jsonl, .csv, .parquet), which
        appears when it is complete. Returns its size in bytes."""
        request = export_request(kind, file, format, job=job, domain=domain, text=text)
        target = AtomicFile(file)
        attempt = 0
        try:
            while True:
                try:
                    with closing(self.ask(request)) as response:
                        for chunk in response.iter_bytes():
                            target.write(chunk)
                    return target.complete()
                except httpx.TransportError as problem:
                    time.sleep(restart_download(target, problem, attempt, self._config))
                attempt += 1
        finally:
            target.discard()

    def exported(
        self,
        kind: str,
        format: str = "jsonl",  # noqa: A002 — as the API has it
        *,
        job: endpoints.JobRef | None = None,
        domain: str | None = None,
        text: bool = False,
    ) -> Generator[bytes]:
        """The chunks of an export as they arrive. A broken connection raises Unreachable; the export is not
        restarted."""
        with closing(
            self.ask(endpoints.export(kind, check_format(format), job=job, domain=domain, text=text))
        ) as response:
            try:
                yield from response.iter_bytes()
            except httpx.TransportError as problem:
                raise from_transport_error(problem, self._config.server, certainly_not_done=True) from problem

    def _run(self, steps: Generator[Step, StepResult, T]) -> T:
        """Run the steps of a generator, and return its value."""
        result: StepResult = None
        try:
            while True:
                result = self._run_step(steps.send(result))
        except StopIteration as end:
            value: T = end.value
            return value

    def _run_step(self, step: Step) -> StepResult:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        request = self._http.build_request(**request_arguments(step, self._config))
        try:
            response = self._http.send(request, stream=step.request.stream)
            if not response.is_success:
                response.read()
        except httpx.TransportError as problem:
            return problem
        return response
