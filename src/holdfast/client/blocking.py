"""The client for programs that wait for each answer.

The rule: what is asked and how answers are read is in `calls`, when it is asked again in `exchange`; here it is only sent.
"""

import os
import time
from collections.abc import Generator
from contextlib import closing
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


class Client(Methods):
    """Asks one Holdfast server. It may be used by several threads, and as a context manager.

    `key` is an API key (`holdfast keys add`); None: that of the settings (`HOLDFAST_API_KEY`), an empty text: none. A request that may
    be repeated is repeated so many times (`retries`) after failures of the connection, 502, 503, 504 and 429, and
    while the server is still at it.
    """

    def __init__(self, url: str = LOCAL, *, key: str | None = None, timeout: float = 30.0, retries: int = 3) -> None:
        self._manner = manner_of(url, key, timeout, retries)
        self._http = httpx.Client(**options(self._manner))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._manner.server!r})"

    def close(self) -> None:
        """After: no connection is left."""
        self._http.close()

    def ask(self, call: Call[T]) -> T:
        """Send any call of `holdfast.client.calls`."""
        return self._play(exchange(call, self._manner))

    def each(self, listing: Listing[T]) -> Generator[T]:
        """All items of a list."""
        items, cursor = self.ask(listing.page(None))
        yield from items
        while cursor is not None:
            items, cursor = self.ask(listing.page(cursor))
            yield from items

    def listen(self, stream: Stream[T]) -> Generator[T]:
        """What a stream says, connected again by itself where it broke off."""
        seat = Seat(stream, self._manner)
        while not seat.is_over():
            problem: Exception | None = None
            try:
                response = self._play(exchange(seat.call(), seat.manner))
                seat.opened()
                with closing(response):
                    for chunk in response.iter_bytes():
                        yield from seat.hear(chunk)
                        if seat.is_over():
                            return
            except (HoldfastError, httpx.TransportError) as cause:
                problem = cause
            time.sleep(seat.broke(problem))

    def wait(self, operation: int | Operation, *, patience: float | None = None) -> Operation:
        """Wait until long work is done, for so many seconds at the most. Raises HoldfastError if it failed."""
        return self._play(finishing(operation, self._manner, patience))

    def export(
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
                    with closing(self.ask(call)) as response:
                        for chunk in response.iter_bytes():
                            target.write(chunk)
                    return target.complete()
                except httpx.TransportError as problem:
                    time.sleep(begun_again(target, problem, attempt, self._manner))
                attempt += 1
        finally:
            target.discard()

    def exported(
        self,
        kind: str,
        format: str = "jsonl",  # noqa: A002 — as the API has it
        *,
        job: calls.JobRef | None = None,
        domain: str | None = None,
        text: bool = False,
    ) -> Generator[bytes]:
        """The same in pieces, as they come. What breaks off in the middle raises, and is not begun again."""
        with closing(self.ask(calls.export(kind, checked(format), job=job, domain=domain, text=text))) as response:
            try:
                yield from response.iter_bytes()
            except httpx.TransportError as problem:
                raise of_transport(problem, self._manner.server, certainly_not_done=True) from problem

    def _play(self, steps: Generator[Step, Outcome, T]) -> T:
        """Do one step after the other; what comes of it in the end."""
        outcome: Outcome = None
        try:
            while True:
                outcome = self._do(steps.send(outcome))
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        request = self._http.build_request(**parts(step, self._manner))
        try:
            response = self._http.send(request, stream=step.call.stream)
            if not response.is_success:
                response.read()
        except httpx.TransportError as problem:
            return problem
        return response
