"""The asynchronous client.

The rule: requests and the decoding of responses are in `endpoints`, retries in `retry`; this module only sends and waits.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
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


class AsyncClient(ClientMethods):
    """Client of one Holdfast server, for one event loop. It may be used as an async context manager.

    `key` is an API key (`holdfast keys add`); None: the key of the settings (`HOLDFAST_API_KEY`), an empty text:
    none. `timeout` is in seconds. A request that is safe to repeat is repeated up to `retries` times after a failed
    connection, a 429, 502, 503 or 504, and while the server is still processing it.
    """

    def __init__(
        self, url: str = DEFAULT_URL, *, key: str | None = None, timeout: float = 30.0, retries: int = 3
    ) -> None:
        self._config = make_config(url, key, timeout, retries)
        self._http = httpx.AsyncClient(**client_arguments(self._config))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.server!r})"

    async def close(self) -> None:
        """Close all connections. After: no connection is left."""
        await self._http.aclose()

    async def ask(self, request: RequestSpec[T]) -> T:
        """Send any request of `holdfast.client.endpoints`, and return its decoded response."""
        return await self._run(request_steps(request, self._config))

    async def each(self, listing: ListSpec[T]) -> AsyncGenerator[T]:
        """All items of a list, page by page."""
        items, cursor = await self.ask(listing.page(None))
        for item in items:
            yield item
        while cursor is not None:
            items, cursor = await self.ask(listing.page(cursor))
            for item in items:
                yield item

    async def listen(self, stream: StreamSpec[T]) -> AsyncGenerator[T]:
        """The events of a stream. It reconnects by itself, and resumes after the last event."""
        subscription = EventSubscription(stream, self._config)
        while not subscription.is_over():
            problem: Exception | None = None
            try:
                response = await self._run(request_steps(subscription.request(), subscription.config))
                subscription.connected()
                async with aclosing(response):
                    async for chunk in response.aiter_bytes():
                        for event in subscription.feed(chunk):
                            yield event
                        if subscription.is_over():
                            return
            except (HoldfastError, httpx.TransportError) as cause:
                problem = cause
            await asyncio.sleep(subscription.reconnect_delay(problem))

    async def wait(self, operation: int | Operation, *, patience: float | None = None) -> Operation:
        """Wait until an operation is done, at most `patience` seconds (None: no limit). Raises HoldfastError if it
        failed."""
        return await self._run(wait_steps(operation, self._config, patience))

    async def export(
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
                    async with aclosing(await self.ask(request)) as response:
                        async for chunk in response.aiter_bytes():
                            target.write(chunk)
                    return await asyncio.to_thread(target.complete)
                except httpx.TransportError as problem:
                    await asyncio.sleep(restart_download(target, problem, attempt, self._config))
                attempt += 1
        finally:
            target.discard()

    async def exported(
        self,
        kind: str,
        format: str = "jsonl",  # noqa: A002 — as the API has it
        *,
        job: endpoints.JobRef | None = None,
        domain: str | None = None,
        text: bool = False,
    ) -> AsyncGenerator[bytes]:
        """The chunks of an export as they arrive. A broken connection raises Unreachable; the export is not
        restarted."""
        request = endpoints.export(kind, check_format(format), job=job, domain=domain, text=text)
        async with aclosing(await self.ask(request)) as response:
            try:
                async for chunk in response.aiter_bytes():
                    yield chunk
            except httpx.TransportError as problem:
                raise from_transport_error(problem, self._config.server, certainly_not_done=True) from problem

    async def _run(self, steps: Generator[Step, StepResult, T]) -> T:
        """Run the steps of a generator, and return its value."""
        result: StepResult = None
        try:
            while True:
                result = await self._run_step(steps.send(result))
        except StopIteration as end:
            value: T = end.value
            return value

    async def _run_step(self, step: Step) -> StepResult:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        request = self._http.build_request(**request_arguments(step, self._config))
        try:
            response = await self._http.send(request, stream=step.request.stream)
            if not response.is_success:
                await response.aread()
        except httpx.TransportError as problem:
            return problem
        return response
