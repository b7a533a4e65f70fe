"""Proxies and the pools of domains: list, add, edit, enable, disable, test, delete; pools, health and cost. No page shows a password."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response

from holdfast.api.app_services import AppServices, Services
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import decode_id_cursor, decode_list_cursor
from holdfast.api.request_types import Domain, Id
from holdfast.control.explain_text import CAN_NOT
from holdfast.dashboard.lists import ROWS, id_page, list_at, read_list
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context, PageContext, query
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.db.keyset_pagination import Page
from holdfast.errors import UsageError
from holdfast.model.cursor import decode_cursor
from holdfast.model.url import checked_host, parse_url
from holdfast.proxies import import_file
from holdfast.proxies.import_file import parse_cost
from holdfast.proxies.records import (
    DEFAULT_PRIORITY,
    FIRST_PRIORITY,
    LAST_PRIORITY,
    PoolHealth,
    Proxy,
    ProxyFilter,
    ProxyOptions,
    ProxyTest,
)
from holdfast.proxies.tester import DEFAULT_URL

router = page_router()

_POOLS_SHOWN: Final = 500
"""Pools of a proxy that a page names."""
_PROBLEMS_SHOWN: Final = 5
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9]+://)?[^\s:@,;|/]*(?::[^\s:@,;|/]*)?/?")
"""A proxy without a user and a password, right or wrong; lists of proxies write those in many ways."""
_PRIORITIES: Final = range(FIRST_PRIORITY, LAST_PRIORITY + 1)


def read_proxies(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return the list of proxies."""

    def read(form: Form) -> Page[Proxy]:
        order = form.text("order") or "oldest"
        state, country = form.text("state"), form.text("country")
        if state not in {None, "active", "inactive"}:
            raise UsageError("“State” must be active or inactive.")
        where = ProxyFilter(
            None if state is None else state == "active", form.text("provider"), country and country.upper()
        )
        after = decode_list_cursor("proxies", order, form.text("cursor"))
        return services.proxies.page(where, order=order, after=after, limit=ROWS)

    return {"shown": list_at("/proxies", parameters, read)}


LIST: Final = live_view("proxies", read_proxies, {"proxies-list": "proxies/_list.html"})


@router.get("/proxies")
def proxies(context: Context, services: Services) -> Response:
    """All proxies with their health and use."""
    parameters = context.request.query_params
    shown = read_proxies(services, parameters)["shown"]
    live = LIST.address(parameters) if shown.moves else ""
    return context.page("proxies/list.html", notice=shown.notice, shown=shown, live=live)


@router.get("/proxies/new")
def new(context: Context) -> Response:
    """A form for one or many new proxies."""
    return context.page("proxies/new.html", options=ProxyOptions())


@router.post("/proxies")
def add(context: Context, request: Request, services: Services) -> Response:
    """Add the proxies of a form, a line each; known ones stay as they are."""
    form = read_form(request)
    lines = "\n".join(form.all("proxies")).splitlines()
    form.replace("proxies", _without_secrets(lines))
    if not any(line.strip() for line in lines):
        raise UsageError("Fill in “Proxies”: one on each line, such as http://user:password@proxy.example:8080.")
    file = io.BytesIO("\n".join(lines).encode())
    *_, done = import_file.load(services.proxies, file, _options(form), actor=context.caller.name)
    known = f" {plural(done.known, 'proxy', 'proxies')} known before, unchanged." if done.known else ""
    bad = " ".join(f"Line {one.line}: {one.problem}" for one in done.bad_lines[:_PROBLEMS_SHOWN])
    said = f"Added {plural(done.added, 'proxy', 'proxies')}.{known}"
    if done.bad:
        form.replace("proxies", _without_secrets([lines[one.line - 1] for one in done.bad_lines]))
        return new(context.refused(form, f"{said} {plural(done.bad, 'line')} refused. {bad}"))
    return context.redirect(query("/proxies", order="newest"), said)


@router.get("/proxies/health")
def health(context: Context, services: Services) -> Response:
    """The pools of all domains in numbers, and those that need attention."""

    def read(form: Form) -> Page[PoolHealth]:
        key = decode_cursor(form.text("cursor"), str)
        found = services.proxies.health(after="" if key is None else str(key[0]), limit=ROWS)
        return Page(found, (found[-1].domain,) if len(found) == ROWS else None)

    shown = read_list(context, read)
    return context.page(
        "proxies/health.html", notice=shown.notice, shown=shown, alerts=services.proxies.alerts(limit=ROWS)
    )


@router.get("/proxies/cost")
def cost(context: Context, services: Services) -> Response:
    """What proxies cost, by provider and each."""
    shown = read_list(
        context,
        lambda form: id_page(services.proxies.costs(after=decode_id_cursor(form.text("cursor")) or 0, limit=ROWS)),
    )
    return context.page(
        "proxies/cost.html", notice=shown.notice, shown=shown, providers=services.proxies.provider_costs()
    )


# Pools of domains


@router.get("/proxies/domains/{domain}")
def pool(domain: Domain, context: Context, services: Services) -> Response:
    """The pool of a domain in the order of use, its numbers, and the proxy of the next request."""
    return context.page(
        "proxies/pool.html",
        domain=services.proxies.canonical(domain),
        pool=services.proxies.pool(domain)[:_POOLS_SHOWN],
        health=services.proxies.pool_health(domain),
        next=services.proxies.next(domain),
        reasons=CAN_NOT,
        priorities=_PRIORITIES,
        default_priority=DEFAULT_PRIORITY,
    )


@router.get("/proxies/pool")
def find_pool(context: Context, services: Services, request: Request) -> Response:
    """Go to the pool of the domain that was typed."""
    name = services.proxies.canonical(Form(list(request.query_params.multi_items())).required("domain", "Domain"))
    return context.redirect(_pool_path(name))


@router.post("/proxies/domains/{domain}/add")
def assign(domain: Domain, context: Context, request: Request, services: Services) -> Response:
    """Add proxies to the pool of a domain."""
    form = read_form(request)
    words = form.required("proxies", "Proxies").replace(",", " ").split()
    if not all(word.isascii() and word.isdigit() and int(word[:19]) > 0 for word in words):
        raise UsageError("“Proxies” must be ids of proxies, such as 7 8 9; the list of proxies shows them.")
    priority = form.integer("priority", "Priority")
    done = services.proxies.assign(
        domain, [int(word[:19]) for word in words], actor=context.caller.name, priority=priority
    )
    parts = [f"Added {plural(len(done.added), 'proxy', 'proxies')} to the pool of {done.domain}."]
    if done.changed:
        parts.append(f"{plural(len(done.changed), 'proxy', 'proxies')} got priority {priority}.")
    if done.unchanged:
        parts.append(f"{plural(len(done.unchanged), 'proxy', 'proxies')} there before, unchanged.")
    if done.now_uses_pool:
        parts.append("The domain uses its pool from now on.")
    return context.redirect(_pool_path(done.domain), " ".join(parts))


@router.post("/proxies/domains/{domain}/{id}/priority")
def set_priority(
    domain: Domain,
    id: Id,  # noqa: A002 — the name of the parameter
    context: Context,
    request: Request,
    services: Services,
) -> Response:
    """Set the priority of a proxy in the pool of a domain."""
    priority = read_form(request).integer("priority", "Priority")
    if priority is None:
        raise UsageError("Choose a priority.")
    done = services.proxies.edit_mapping(domain, id, actor=context.caller.name, priority=priority)
    return context.redirect(_pool_path(done.domain), f"Proxy {id} has priority {done.priority} for {done.domain}.")


@router.post("/proxies/domains/{domain}/{id}/enable")
def enable_here(domain: Domain, id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Let a domain use a proxy of its pool again."""
    done = services.proxies.edit_mapping(domain, id, actor=context.caller.name, on=True)
    return context.redirect(_pool_path(done.domain), f"Proxy {id} is used for {done.domain} again.")


@router.post("/proxies/domains/{domain}/{id}/disable")
def disable_here(domain: Domain, id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Keep a domain from using a proxy of its pool."""
    done = services.proxies.edit_mapping(domain, id, actor=context.caller.name, on=False)
    return context.redirect(_pool_path(done.domain), f"Proxy {id} is not used for {done.domain} until it is enabled.")


@router.post("/proxies/domains/{domain}/{id}/remove")
def unassign(domain: Domain, id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Remove a proxy from the pool of a domain; its statistics stay."""
    done = services.proxies.unassign(domain, [id], actor=context.caller.name)
    if done.unknown:
        return context.redirect(_pool_path(done.domain), problem=f"Proxy {id} is not in the pool of {done.domain}.")
    left = plural(done.left, "proxy is", "proxies are")
    return context.redirect(_pool_path(done.domain), f"Proxy {id} is removed from the pool; {left} left.")


# One proxy


@router.get("/proxies/{id}")
def proxy(id: Id, context: Context) -> Response:  # noqa: A002 — the name of the parameter
    """One proxy: health, use, options, pools."""
    return _proxy(context, id)


@router.post("/proxies/{id}/edit")
def edit(id: Id, context: Context, request: Request, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Change the options of a proxy, or its password."""
    form = read_form(request)
    options = _options(form)
    changes = {name: getattr(options, name) for name in ProxyOptions.__dataclass_fields__}
    password = "" if form.flag("no_password") else form.raw("password") or None
    version = form.integer("version", "Version")
    services.proxies.edit(id, changes, actor=context.caller.name, password=password, version=version)
    return context.redirect(f"/proxies/{id}", f"Proxy {id} is changed.")


@router.post("/proxies/{id}/enable")
def enable(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Enable a proxy, and reset its failures."""
    changed = services.proxies.switch(id, on=True, actor=context.caller.name)
    said = "is enabled, and its failures are reset" if changed else "was enabled before"
    return context.redirect(f"/proxies/{id}", f"Proxy {id} {said}.")


@router.post("/proxies/{id}/disable")
def disable(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Disable a proxy until it is enabled."""
    changed = services.proxies.switch(id, on=False, actor=context.caller.name)
    said = "is disabled: no domain uses it until it is enabled" if changed else "was disabled before"
    return context.redirect(f"/proxies/{id}", f"Proxy {id} {said}.")


@router.post("/proxies/{id}/test")
def run_test(id: Id, context: Context, request: Request, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Request a page through a proxy, and show the result."""
    url = parse_url(read_form(request).text("url") or DEFAULT_URL)
    checked_host(url)
    (tested,) = services.proxy_tester.test([id], url.href, actor=context.caller.name)
    return _proxy(context, id, tested=tested, url=url.href)


@router.get("/proxies/{id}/delete")
def confirm_delete(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """What deleting a proxy does: which domains lose it."""
    found = services.proxies.show(id)
    pools = services.proxies.pools_of(id, limit=_POOLS_SHOWN)
    health = {one.domain: services.proxies.pool_health(one.domain) for one in pools[:ROWS]}
    return context.page("proxies/delete.html", proxy=found, pools=pools, health=health, more=len(pools) == _POOLS_SHOWN)


@router.post("/proxies/{id}/delete")
def delete(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Delete a proxy with its places in pools and its statistics."""
    found = services.proxies.show(id)
    services.proxies.remove(id, actor=context.caller.name)
    return context.redirect("/proxies", f"Proxy {id}, {found.server}, is deleted.")


def _proxy(context: PageContext, proxy_id: int, *, tested: ProxyTest | None = None, url: str = DEFAULT_URL) -> Response:
    services = context.services
    return context.page(
        "proxies/proxy.html",
        proxy=services.proxies.show(proxy_id),
        pools=services.proxies.pools_of(proxy_id, limit=ROWS),
        reasons=CAN_NOT,
        tested=tested,
        url=url,
    )


def _options(form: Form) -> ProxyOptions:
    country, cost = form.text("country_code"), form.text("monthly_cost")
    return ProxyOptions(
        country_code=country and country.upper(),
        city=form.text("city"),
        provider=form.text("provider"),
        monthly_cost=None if cost is None else parse_cost(cost),
        max_requests_per_hour=form.integer("max_requests_per_hour", "Requests an hour"),
        allow_private=form.flag("allow_private"),
    )


def _without_secrets(lines: Sequence[str]) -> str:
    """Return the lines that a page may show again: those that are nothing but an address."""
    return "\n".join(line for line in lines if _ADDRESS.fullmatch(line.strip()))


def _pool_path(domain: str) -> str:
    return f"/proxies/domains/{domain}"
