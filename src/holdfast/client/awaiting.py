"""The client for programs that do other things meanwhile.

The rule: what is asked and how answers are read is in `calls`, when it is asked again in `exchange`; here it is only sent.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Self, TypeVar

import httpx

from holdfast.client import calls
from holdfast.client.call import Call, Listing, Stream
from holdfast.client.exchange import Outcome, Pause, Step, exchange
from holdfast.client.files import NewFile
from holdfast.client.live import Seat
from holdfast.client.methods import Methods
from holdfast.client.problems import of_transport
from holdfast.client.sending import LOCAL, begun_again, checked, export_call, finishing, manner_of, options, parts
from holdfast.client.values import Operation
from holdfast.errors import HoldfastError

T = TypeVar("T")


class AsyncClient(Methods):
    """Asks one Holdfast server, for one event loop. It may be used as a context manager.

    `key` is an API key (`holdfast keys add`); None: that of the settings (`HOLDFAST_API_KEY`), an empty text: none. A request that may
    be repeated is repeated so many times (`retries`) after failures of the connection, 502, 503, 504 and 429, and
    while the server is still at it.
    """

    def __init__(self, url: str = LOCAL, *, key: str | None = None, timeout: float = 30.0, retries: int = 3) -> None:
        self._manner = manner_of(url, key, timeout, retries)
        self._http = httpx.AsyncClient(**options(self._manner))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._manner.server!r})"

    async def close(self) -> None:
        """After: no connection is left."""
        await self._http.aclose()

    async def ask(self, call: Call[T]) -> T:
        """Send any call of `holdfast.client.calls`."""
        return await self._play(exchange(call, self._manner))

    async def each(self, listing: Listing[T]) -> AsyncGenerator[T]:
        """All items of a list."""
        items, cursor = await self.ask(listing.page(None))
        for item in items:
            yield item
        while cursor is not None:
            items, cursor = await self.ask(listing.page(cursor))
            for item in items:
                yield item

    async def listen(self, stream: Stream[T]) -> AsyncGenerator[T]:
        """What a stream says, connected again by itself where it broke off."""
        seat = Seat(stream, self._manner)
        while not seat.is_over():
            problem: Exception | None = None
            try:
                response = await self._play(exchange(seat.call(), seat.manner))
                seat.opened()
                async with aclosing(response):
                    async for chunk in response.aiter_bytes():
                        for heard in seat.hear(chunk):
                            yield heard
                        if seat.is_over():
                            return
            except (HoldfastError, httpx.TransportError) as cause:
                problem = cause
            await asyncio.sleep(seat.broke(problem))

    async def wait(self, operation: int | Operation, *, patience: float | None = None) -> Operation:
        """Wait until long work is done, for so many seconds at the most. Raises HoldfastError if it failed."""
        return await self._play(finishing(operation, self._manner, patience))

    async def export(
        self,
        kind: str,
        file: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002 — as the API has it
        job: calls.JobRef | None = None,
        domain: str | None = None,
        text: bool = False,
    ) -> int:
        """All `pages`, `urls` or the `log` into a file (.jsonl, .csv, .parquet), which appears when it is whole; its size."""
        call = export_call(kind, file, format, job=job, domain=domain, text=text)
        target = NewFile(file)
        attempt = 0
        try:
            while True:
                try:
                    async with aclosing(await self.ask(call)) as response:
                        async for chunk in response.aiter_bytes():
                            target.write(chunk)
                    return await asyncio.to_thread(target.complete)
                except httpx.TransportError as problem:
                    await asyncio.sleep(begun_again(target, problem, attempt, self._manner))
                attempt += 1
        finally:
            target.discard()

    async def exported(
        self,
        kind: str,
        format: str = "jsonl",  # noqa: A002 — as the API has it
        *,
        job: calls.JobRef | None = None,
        domain: str | None = None,
        text: bool = False,
    ) -> AsyncGenerator[bytes]:
        """The same in pieces, as they come. What breaks off in the middle raises, and is not begun again."""
        call = calls.export(kind, checked(format), job=job, domain=domain, text=text)
        async with aclosing(await self.ask(call)) as response:
            try:
                async for chunk in response.aiter_bytes():
                    yield chunk
            except httpx.TransportError as problem:
                raise of_transport(problem, self._manner.server, certainly_not_done=True) from problem

    async def _play(self, steps: Generator[Step, Outcome, T]) -> T:
        """Do one step after the other; what comes of it in the end."""
        outcome: Outcome = None
        try:
            while True:
                outcome = await self._do(steps.send(outcome))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        request = self._http.build_request(**parts(step, self._manner))
        try:
            response = await self._http.send(request, stream=step.call.stream)
            if not response.is_success:
                await response.aread()
        except httpx.TransportError as problem:
            return problem
        return response
