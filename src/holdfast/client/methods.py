"""The methods of both clients, each written once: what it asks, whoever sends it.

The rule: a method is a call of `calls` or `task_calls` by the same name; its words and parameters are those of the call.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from holdfast.client import calls, task_calls
from holdfast.client.call import Call, Listing, Stream

if TYPE_CHECKING:
    from holdfast.client.awaiting import AsyncClient
    from holdfast.client.blocking import Client

P = ParamSpec("P")
T = TypeVar("T")


class _Method:
    """A method whose client sends what `make` makes."""

    def __init__(self, make: Callable[..., object]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def bound(self, client: Any) -> Any:
        """It, for one client."""
        make = self._make

        @functools.wraps(make)
        def method(*args: Any, **options: Any) -> Any:
            made = make(*args, **options)
            if isinstance(made, Listing):
                return client.each(made)
            return client.listen(made) if isinstance(made, Stream) else client.ask(made)

        known: Any = method
        known.__signature__ = inspect.signature(make).replace(return_annotation=inspect.Signature.empty)
        return method


class Answer(_Method, Generic[P, T]):
    """Sends a call, and returns its answer."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        super().__init__(make)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: object, owner: type) -> Any:
        return self if client is None else self.bound(client)


class Items(_Method, Generic[P, T]):
    """Reads a list page by page, as far as it is asked for, or listens to a stream."""

    def __init__(self, make: Callable[P, Listing[T]] | Callable[P, Stream[T]]) -> None:
        super().__init__(make)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: object, owner: type) -> Any:
        return self if client is None else self.bound(client)


class Methods:
    """What both clients can be asked. Of `AsyncClient` answers are awaited, and lists and streams are for `async for`."""

    # One answer

    me = Answer(calls.me)
    stats = Answer(calls.stats)
    outlook = Answer(calls.outlook)
    timeseries = Answer(calls.timeseries)
    job = Answer(calls.job)
    create_job = Answer(calls.create_job)
    edit_job = Answer(calls.edit_job)
    set_secrets = Answer(calls.set_secrets)
    pause = Answer(calls.pause)
    resume = Answer(calls.resume)
    cancel = Answer(calls.cancel)
    delete_job = Answer(calls.delete_job)
    schedule = Answer(calls.schedule)
    frontier_stats = Answer(calls.frontier_stats)
    add_urls = Answer(calls.add_urls)
    seed = Answer(calls.seed)
    page = Answer(calls.page)
    explain = Answer(calls.explain)
    domain = Answer(calls.domain)
    configure_domain = Answer(calls.configure_domain)
    reset_domain = Answer(calls.reset_domain)
    unblock_domain = Answer(calls.unblock_domain)
    claim_summary = Answer(calls.claim_summary)
    release_claims = Answer(calls.release_claims)
    run = Answer(calls.run)
    verify = Answer(calls.verify)
    operation = Answer(calls.operation)
    request = Answer(calls.request)
    task = Answer(task_calls.task)
    task_stats = Answer(task_calls.task_stats)
    create_task = Answer(task_calls.create_task)
    create_tasks = Answer(task_calls.create_tasks)
    restart_task = Answer(task_calls.restart_task)
    restart_parsing = Answer(task_calls.restart_parsing)
    restart_failed = Answer(task_calls.restart_failed)
    pause_task = Answer(task_calls.pause_task)
    resume_task = Answer(task_calls.resume_task)
    cancel_task = Answer(task_calls.cancel_task)
    set_priority = Answer(task_calls.set_priority)
    batch = Answer(task_calls.batch)
    create_batch = Answer(task_calls.create_batch)
    restart_batch = Answer(task_calls.restart_batch)
    product = Answer(task_calls.product)

    # Lists, from their first item to their last

    alerts = Items(calls.alerts)
    jobs = Items(calls.jobs)
    frontier_urls = Items(calls.frontier_urls)
    pages = Items(calls.pages)
    items = Items(calls.items)
    domains = Items(calls.domains)
    transitions = Items(calls.transitions)
    tenures = Items(calls.tenures)
    claims = Items(calls.claims)
    runs = Items(calls.runs)
    workers = Items(calls.workers)
    operations = Items(calls.operations)
    tasks = Items(task_calls.tasks)
    task_history = Items(task_calls.task_history)
    batches = Items(task_calls.batches)
    products = Items(task_calls.products)
    prices = Items(task_calls.prices)

    # Live

    watch = Items(calls.watch)
    events = Items(calls.events)
    watch_stats = Items(calls.watch_stats)
