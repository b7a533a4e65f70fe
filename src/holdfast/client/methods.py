"""The methods of both clients, declared once.

The rule: a method has the name, the parameters and the docstring of a function of `endpoints`.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from holdfast.client import endpoints
from holdfast.client.request_spec import ListSpec, RequestSpec, StreamSpec

if TYPE_CHECKING:
    from holdfast.client.async_client import AsyncClient
    from holdfast.client.sync_client import Client

P = ParamSpec("P")
T = TypeVar("T")


class _Method:
    """A method that sends the request that `make_spec` returns."""

    def __init__(self, make_spec: Callable[..., object]) -> None:
        self._make_spec = make_spec
        self.__doc__ = make_spec.__doc__

    def bind(self, client: Any) -> Any:
        """The method, bound to a client."""
        make_spec = self._make_spec

        @functools.wraps(make_spec)
        def method(*args: Any, **options: Any) -> Any:
            spec = make_spec(*args, **options)
            if isinstance(spec, ListSpec):
                return client.each(spec)
            return client.listen(spec) if isinstance(spec, StreamSpec) else client.ask(spec)

        untyped: Any = method
        untyped.__signature__ = inspect.signature(make_spec).replace(return_annotation=inspect.Signature.empty)
        return method


class RequestMethod(_Method, Generic[P, T]):
    """A method that sends a request, and returns its decoded response."""

    def __init__(self, make_spec: Callable[P, RequestSpec[T]]) -> None:
        super().__init__(make_spec)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: object, owner: type) -> Any:
        return self if client is None else self.bind(client)


class IteratorMethod(_Method, Generic[P, T]):
    """A method that iterates over a list page by page, or over the events of a stream."""

    def __init__(self, make_spec: Callable[P, ListSpec[T]] | Callable[P, StreamSpec[T]]) -> None:
        super().__init__(make_spec)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, Generator[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, client: object, owner: type) -> Any:
        return self if client is None else self.bind(client)


class ClientMethods:
    """The methods of both clients. Those of `AsyncClient` are awaited, and its lists and streams are for `async for`."""

    # Single responses

    health = RequestMethod(endpoints.health)
    me = RequestMethod(endpoints.me)
    user = RequestMethod(endpoints.user)
    create_user = RequestMethod(endpoints.create_user)
    change_user = RequestMethod(endpoints.change_user)
    delete_user = RequestMethod(endpoints.delete_user)
    end_user_sessions = RequestMethod(endpoints.end_user_sessions)
    revoke_api_key = RequestMethod(endpoints.revoke_api_key)
    stats = RequestMethod(endpoints.stats)
    outlook = RequestMethod(endpoints.outlook)
    recent_errors = RequestMethod(endpoints.recent_errors)
    timeseries = RequestMethod(endpoints.timeseries)
    acknowledge_alert = RequestMethod(endpoints.acknowledge_alert)
    delivery = RequestMethod(endpoints.delivery)
    outbox = RequestMethod(endpoints.outbox)
    retry_delivery = RequestMethod(endpoints.retry_delivery)
    job = RequestMethod(endpoints.job)
    job_summary = RequestMethod(endpoints.job_summary)
    job_pace = RequestMethod(endpoints.job_pace)
    act_on_jobs = RequestMethod(endpoints.act_on_jobs)
    crawl_again = RequestMethod(endpoints.crawl_again)
    comparison = RequestMethod(endpoints.comparison)
    plan_job = RequestMethod(endpoints.plan_job)
    job_plan = RequestMethod(endpoints.job_plan)
    job_depths = RequestMethod(endpoints.job_depths)
    create_job = RequestMethod(endpoints.create_job)
    edit_job = RequestMethod(endpoints.edit_job)
    preview_scope = RequestMethod(endpoints.preview_scope)
    undo_scope = RequestMethod(endpoints.undo_scope)
    scope_history = RequestMethod(endpoints.scope_history)
    set_secrets = RequestMethod(endpoints.set_secrets)
    pause = RequestMethod(endpoints.pause)
    resume = RequestMethod(endpoints.resume)
    cancel = RequestMethod(endpoints.cancel)
    delete_job = RequestMethod(endpoints.delete_job)
    schedule = RequestMethod(endpoints.schedule)
    frontier_stats = RequestMethod(endpoints.frontier_stats)
    add_urls = RequestMethod(endpoints.add_urls)
    retry_urls = RequestMethod(endpoints.retry_urls)
    seed = RequestMethod(endpoints.seed)
    recover_frontier = RequestMethod(endpoints.recover_frontier)
    clear_frontier = RequestMethod(endpoints.clear_frontier)
    page = RequestMethod(endpoints.page)
    page_versions = RequestMethod(endpoints.page_versions)
    page_diff = RequestMethod(endpoints.page_diff)
    page_source = RequestMethod(endpoints.page_source)
    page_markdown = RequestMethod(endpoints.page_markdown)
    search = RequestMethod(endpoints.search)
    search_status = RequestMethod(endpoints.search_status)
    count_pages = RequestMethod(endpoints.count_pages)
    purge_pages = RequestMethod(endpoints.purge_pages)
    image = RequestMethod(endpoints.image)
    image_file = RequestMethod(endpoints.image_file)
    links_out = RequestMethod(endpoints.links_out)
    top_targets = RequestMethod(endpoints.top_targets)
    link_summary = RequestMethod(endpoints.link_summary)
    image_thumbnail = RequestMethod(endpoints.image_thumbnail)
    explain = RequestMethod(endpoints.explain)
    domain = RequestMethod(endpoints.domain)
    robots = RequestMethod(endpoints.robots)
    add_domain = RequestMethod(endpoints.add_domain)
    configure_domain = RequestMethod(endpoints.configure_domain)
    reset_domain = RequestMethod(endpoints.reset_domain)
    unblock_domain = RequestMethod(endpoints.unblock_domain)
    count_matching_domains = RequestMethod(endpoints.count_matching_domains)
    change_matching_domains = RequestMethod(endpoints.change_matching_domains)
    remove_domain = RequestMethod(endpoints.remove_domain)
    set_maintenance_window = RequestMethod(endpoints.set_maintenance_window)
    recalculate_priorities = RequestMethod(endpoints.recalculate_priorities)
    claim_summary = RequestMethod(endpoints.claim_summary)
    release_claims = RequestMethod(endpoints.release_claims)
    run = RequestMethod(endpoints.run)
    worker = RequestMethod(endpoints.worker)
    close_silent_runs = RequestMethod(endpoints.close_silent_runs)
    storage = RequestMethod(endpoints.storage)
    backups = RequestMethod(endpoints.backups)
    verify = RequestMethod(endpoints.verify)
    replay = RequestMethod(endpoints.replay)
    rebuild_counters = RequestMethod(endpoints.rebuild_counters)
    archive_machines = RequestMethod(endpoints.archive_machines)
    lose_machine = RequestMethod(endpoints.lose_machine)
    retention = RequestMethod(endpoints.retention)
    run_retention = RequestMethod(endpoints.run_retention)
    archive = RequestMethod(endpoints.archive)
    check_archive = RequestMethod(endpoints.check_archive)
    restore_archive = RequestMethod(endpoints.restore_archive)
    restore_archives = RequestMethod(endpoints.restore_archives)
    operation = RequestMethod(endpoints.operation)
    request = RequestMethod(endpoints.request)
    task = RequestMethod(endpoints.task)
    task_stats = RequestMethod(endpoints.task_stats)
    create_task = RequestMethod(endpoints.create_task)
    create_tasks = RequestMethod(endpoints.create_tasks)
    restart_task = RequestMethod(endpoints.restart_task)
    restart_parsing = RequestMethod(endpoints.restart_parsing)
    count_failed = RequestMethod(endpoints.count_failed)
    restart_failed = RequestMethod(endpoints.restart_failed)
    pause_task = RequestMethod(endpoints.pause_task)
    resume_task = RequestMethod(endpoints.resume_task)
    cancel_task = RequestMethod(endpoints.cancel_task)
    set_priority = RequestMethod(endpoints.set_priority)
    batch = RequestMethod(endpoints.batch)
    create_batch = RequestMethod(endpoints.create_batch)
    restart_batch = RequestMethod(endpoints.restart_batch)
    product = RequestMethod(endpoints.product)
    proxy = RequestMethod(endpoints.proxy)
    add_proxy = RequestMethod(endpoints.add_proxy)
    edit_proxy = RequestMethod(endpoints.edit_proxy)
    enable_proxy = RequestMethod(endpoints.enable_proxy)
    disable_proxy = RequestMethod(endpoints.disable_proxy)
    delete_proxy = RequestMethod(endpoints.delete_proxy)
    test_proxy = RequestMethod(endpoints.test_proxy)
    provider_costs = RequestMethod(endpoints.provider_costs)
    pool_health = RequestMethod(endpoints.pool_health)
    next_proxy = RequestMethod(endpoints.next_proxy)
    assign_proxies = RequestMethod(endpoints.assign_proxies)
    edit_pool_proxy = RequestMethod(endpoints.edit_pool_proxy)
    unassign_proxy = RequestMethod(endpoints.unassign_proxy)

    # Lists

    users = IteratorMethod(endpoints.users)
    user_sessions = IteratorMethod(endpoints.user_sessions)
    api_keys = IteratorMethod(endpoints.api_keys)
    audit = IteratorMethod(endpoints.audit)
    alerts = IteratorMethod(endpoints.alerts)
    deliveries = IteratorMethod(endpoints.deliveries)
    jobs = IteratorMethod(endpoints.jobs)
    job_domains = IteratorMethod(endpoints.job_domains)
    compared_pages = IteratorMethod(endpoints.compared_pages)
    job_log = IteratorMethod(endpoints.job_log)
    frontier_urls = IteratorMethod(endpoints.frontier_urls)
    pages = IteratorMethod(endpoints.pages)
    items = IteratorMethod(endpoints.items)
    images = IteratorMethod(endpoints.images)
    links_in = IteratorMethod(endpoints.links_in)
    broken_links = IteratorMethod(endpoints.broken_links)
    redirected_links = IteratorMethod(endpoints.redirected_links)
    orphans = IteratorMethod(endpoints.orphans)
    missing_places = IteratorMethod(endpoints.missing_places)
    unchecked_targets = IteratorMethod(endpoints.unchecked_targets)
    domains = IteratorMethod(endpoints.domains)
    transitions = IteratorMethod(endpoints.transitions)
    tenures = IteratorMethod(endpoints.tenures)
    maintenance_windows = IteratorMethod(endpoints.maintenance_windows)
    claims = IteratorMethod(endpoints.claims)
    runs = IteratorMethod(endpoints.runs)
    workers = IteratorMethod(endpoints.workers)
    operations = IteratorMethod(endpoints.operations)
    archives = IteratorMethod(endpoints.archives)
    segments = IteratorMethod(endpoints.segments)
    tasks = IteratorMethod(endpoints.tasks)
    task_history = IteratorMethod(endpoints.task_history)
    batches = IteratorMethod(endpoints.batches)
    products = IteratorMethod(endpoints.products)
    prices = IteratorMethod(endpoints.prices)
    proxies = IteratorMethod(endpoints.proxies)
    pools_health = IteratorMethod(endpoints.pools_health)
    proxy_costs = IteratorMethod(endpoints.proxy_costs)
    pool = IteratorMethod(endpoints.pool)
    proxy_pools = IteratorMethod(endpoints.proxy_pools)

    # Streams of events

    watch = IteratorMethod(endpoints.watch)
    events = IteratorMethod(endpoints.events)
    watch_stats = IteratorMethod(endpoints.watch_stats)
