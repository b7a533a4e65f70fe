"""Domains: the list with actions on all that match, one domain live, its history, settings, reset and removal."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import BackgroundTasks, Query, Request, Response

from holdfast.api.app_services import AppServices
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import Domain as DomainName
from holdfast.api.responses import log_failures
from holdfast.control.explain_text import BLOCKED, CAN_NOT
from holdfast.dashboard import text
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context, PageContext, query
from holdfast.dashboard.route import page_router
from holdfast.domains.api import BulkAction
from holdfast.domains.records import DomainAction, DomainDetails, DomainFilter, MatchingDomains
from holdfast.domains.service import parse_assignments
from holdfast.errors import NotFound, UsageError
from holdfast.frontier.records import UrlFilter
from holdfast.model.activity import Activity
from holdfast.model.domain import Status
from holdfast.model.outcome import UrlState
from holdfast.operations.handlers import CHANGE_DOMAINS
from holdfast.operations.records import Operation
from holdfast.pages.records import PageFilter
from holdfast.settings import render_duration

router = page_router()

_ROWS: Final = 50
_SHOWN: Final = 10
"""Rows of each small list on the page of a domain."""
_SAMPLED_JOBS: Final = 4
"""Jobs of a domain whose next URLs are shown."""
_RECENT: Final = timedelta(minutes=10)
"""How long an action that has ended is still shown above the list."""
_FILTERS: Final = ("name", "status", "active", "claimed", "worker", "parent")
ORDERS: Final = {
    "name": "name",
    "crawled": "last visit",
    "priority": "priority",
    "newest": "newest first",
    "oldest": "oldest first",
}
ACTIONS: Final = {
    DomainAction.UNBLOCK: ("Unblock", "Unblocks", "are tried again"),
    DomainAction.RESET: ("Reset", "Resets", "are crawled again from the beginning"),
    DomainAction.SWITCH_OFF: ("Switch off", "Switches off", "are not crawled until they are switched on"),
    DomainAction.SWITCH_ON: ("Switch on", "Switches on", "may be crawled"),
}
"""Of each action on many domains: its button, the verb of a sentence, and what happens to them."""
DELAY_SOURCES: Final = {
    "robots": "Crawl-delay of robots.txt",
    "job": "the job asks for it",
    "learnt": "the server has become slower",
    "domain": "set for this domain",
    "default": "the setting domains.crawl_delay",
}
SETTINGS: Final = (
    "crawl_delay_seconds",
    "max_concurrent_requests",
    "max_pages_per_run",
    "default_crawl_frequency",
    "parser_name",
    "user_agent",
    "maintenance_window",
    "strip_params",
    "base_url",
)
"""The fields of the form of a domain's settings."""


# The list


def read_list(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the list show."""
    order = parameters.get("order") or "name"
    after = decode_list_cursor("domains", order, parameters.get("cursor") or None)
    found = services.domains.page(parse_filter(parameters), order=order, after=after, limit=_ROWS)
    return {
        "domains": found.rows,
        "next_key": found.next,
        "operations": _recent_operations(services),
        "actions": ACTIONS,
        "is_filtered": any(parameters.get(name) for name in _FILTERS),
        "is_first": not parameters.get("cursor"),
        "blocked": BLOCKED,
    }


LIST: Final = live_view(
    "domains", read_list, {"domains-operations": "domains/_operations.html", "domains-list": "domains/_list.html"}
)


@router.get("/domains")
def domains(
    context: Context, request: Request, action: Annotated[str, Query(max_length=20)] = "", cursor: CursorText = None
) -> Response:
    """The list; with an action, the page that says what the action would do to all domains that match."""
    parameters = {
        name: value for name, value in request.query_params.items() if name in {*_FILTERS, "order"} and value.strip()
    }
    if action:
        return _confirm_action(context, _action(action), parameters)
    shown = read_list(context.services, {**parameters, **({"cursor": cursor} if cursor else {})})
    return context.page(
        "domains/list.html",
        **shown,
        next_page=context.next_page(shown["next_key"]),
        first_page=context.with_query(cursor=None) if cursor else "",
        live=LIST.address({**parameters, **({"cursor": cursor} if cursor else {})}),
        statuses=list(Status),
        orders=ORDERS,
        here=lambda **changes: context.with_query(cursor=None, **changes),
    )


@router.post("/domains")
def add(context: Context, request: Request) -> Response:
    """Add a domain."""
    name = read_form(request).required("domain", "Domain")
    added = context.services.domains.add(name, actor=context.caller.name)
    done = (
        f"Added {added.domain}. Nothing of it is crawled until a job has a URL there."
        if added.created
        else f"{added.domain} was known already, and is unchanged."
    )
    return context.redirect(_path(added.domain), done)


@router.post("/domains/bulk")
def change_matching(context: Context, request: Request) -> Response:
    """Start an action on all domains that match, in the background."""
    form = read_form(request)
    values: dict[str, Any] = {name: form.text(name) for name in _FILTERS if form.text(name)}
    reason = form.text("reason") or "by the dashboard"
    body = form.model(BulkAction, {**values, "action": form.raw("action"), "reason": reason, "all_domains": True})
    found = context.services.domains.count_matching(body.action, body.where())
    back = query("/domains", **values)
    if not found.domains:
        return context.redirect(back, problem="No domain matches any more; nothing was done.")
    asked = context.services.operations.ask(CHANGE_DOMAINS, body.arguments(), actor=context.caller.name)
    verb = ACTIONS[body.action][1]
    return context.redirect(back, f"Operation {asked.id}: {verb} {_count(found)} in the background.")


def _confirm_action(context: PageContext, action: DomainAction, parameters: Parameters) -> Response:
    where = parse_filter(parameters)
    return context.page(
        "domains/bulk.html",
        action=action,
        words=ACTIONS[action],
        found=context.services.domains.count_matching(action, where),
        filters={name: parameters[name] for name in _FILTERS if name in parameters},
        back=query("/domains", **parameters),
    )


def _action(name: str) -> DomainAction:
    try:
        return DomainAction(name)
    except ValueError:
        raise UsageError(f"An action on domains is {', '.join(DomainAction)}; not {name!r}.") from None


def _count(found: MatchingDomains) -> str:
    return f"{'' if found.exact else 'more than '}{text.plural(found.domains, 'domain')}"


def _recent_operations(services: AppServices) -> list[Operation]:
    """Actions on many domains that are under way, or have just ended."""
    recent = datetime.now(UTC) - _RECENT
    return [
        one
        for one in services.operations.listing(limit=20)
        if one.kind == CHANGE_DOMAINS and (one.ended_at is None or one.ended_at > recent)
    ]


def parse_filter(parameters: Parameters) -> DomainFilter:
    """Read the filter of the list from the parameters of the page. Raises UsageError."""
    status = parameters.get("status") or None
    if status is not None and status not in set(Status):
        raise UsageError(f"A domain is {', '.join(Status)}; not {status!r}.")
    return DomainFilter(
        status=None if status is None else Status(status),
        active=_flag(parameters, "active"),
        claimed=_flag(parameters, "claimed"),
        worker=parameters.get("worker", "").strip() or None,
        name=parameters.get("name", "").strip() or None,
        parent=parameters.get("parent", "").strip() or None,
    )


def _flag(parameters: Parameters, name: str) -> bool | None:
    return {"true": True, "false": False}.get(parameters.get(name, ""))


# One domain


def read_domain(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the page of a domain show. Raises NotFound."""
    found = services.domains.info(parameters.get("domain", ""))
    facts, name = found.facts, found.domain
    work = services.explainer.work(name)
    return {
        "domain": found,
        "facts": facts,
        "work": work,
        "samples": {
            one.job: services.frontier.page(
                UrlFilter(domain=name, job=one.job_id, state=UrlState.WAITING), order="taken", limit=5
            ).rows
            for one in [one for one in work if one.waiting][:_SAMPLED_JOBS]
        },
        "holder": _holder(services, facts),
        "pages": services.pages.page(PageFilter(domain=name), limit=_SHOWN).rows,
        "pool": services.proxies.pool(name)[: 2 * _SHOWN],
        "pool_health": services.proxies.pool_health(name),
        "can_not": CAN_NOT,
        "blocked": BLOCKED,
        "delay_sources": DELAY_SOURCES,
        "refreshes": any(one.refresh for one in found.work),
    }


def _holder(services: AppServices, facts: DomainDetails) -> Mapping[str, Any] | None:
    """Return the worker that holds a domain, with its wait and its requests there."""
    if facts.claimed_by is None:
        return None
    try:
        worker = services.workers.show(facts.claimed_by)
    except NotFound:
        return None
    activity = Activity.from_json(worker.activity)
    origins = tuple(f"{scheme}://{www}{facts.domain}/" for scheme in ("https", "http") for www in ("", "www."))
    return {
        "worker": worker,
        "waits": [wait for wait in activity.waits if wait.domain == facts.domain],
        "fetching": [one for one in activity.fetching if one.url.startswith(origins)],
    }


DOMAIN: Final = live_view(
    "domain",
    read_domain,
    {
        "domain-figures": "domains/_figures.html",
        "domain-work": "domains/_work.html",
        "domain-sitemaps": "domains/_sitemaps.html",
        "domain-state": "domains/_state.html",
        "domain-history": "domains/_history.html",
        "domain-pages": "domains/_pages.html",
    },
)


@router.get("/domains/{domain}")
def domain(domain: DomainName, context: Context) -> Response:
    """Everything about a domain."""
    shown = read_domain(context.services, {"domain": domain})
    name = shown["domain"].domain
    return context.page(
        "domains/domain.html",
        **shown,
        robots=context.services.domains.robots(name),
        settings=settings_of(shown["facts"]),
        live=DOMAIN.address({"domain": name}),
    )


@router.get("/domains/{domain}/history")
def history(
    domain: DomainName,
    context: Context,
    what: Annotated[str, Query(pattern="^(transitions|tenures)$")] = "transitions",
    cursor: CursorText = None,
) -> Response:
    """All changes of a domain's status, or all workers that held it."""
    service = context.services.domains
    after = decode_list_cursor(what, "newest", cursor)
    found: Any = (service.transitions if what == "transitions" else service.tenures)(domain, after=after, limit=_ROWS)
    return context.page(
        "domains/history.html",
        name=service.canonical(domain),
        what=what,
        rows=found.rows,
        next_page=context.next_page(found.next),
        first_page=context.with_query(cursor=None) if cursor else "",
    )


@router.post("/domains/{domain}/unblock")
def unblock(domain: DomainName, context: Context) -> Response:
    """Try a blocked or unreachable domain again."""
    done = context.services.domains.unblock(domain, "by the dashboard", actor=context.caller.name)
    waits = f"{text.plural(done.waiting, 'URL')} {'waits' if done.waiting == 1 else 'wait'}"
    return context.redirect(_path(done.domain), f"{done.domain} was {done.was} and is tried again; {waits}.")


@router.post("/domains/{domain}/active")
def switch(domain: DomainName, context: Context, request: Request) -> Response:
    """Switch a domain on or off."""
    on = read_form(request).flag("on")
    after = context.services.domains.configure(domain, {"is_active": on}, actor=context.caller.name)
    done = "is switched on and may be crawled" if on else "is switched off: a worker that holds it stops within 2 s"
    return context.redirect(_path(after.domain), f"{after.domain} {done}.")


@router.post("/domains/{domain}/settings")
def configure(domain: DomainName, context: Context, request: Request) -> Response:
    """Change the settings of a domain that differ from those that the form showed."""
    form = read_form(request)
    service = context.services.domains
    facts = service.info(domain).facts
    words = _changed_settings(form, facts)
    if not words:
        return context.redirect(_path(facts.domain), "No setting was changed: the form had the values in force.")
    version = form.integer("settings_version", "settings_version")
    service.configure(facts.domain, parse_assignments(words), actor=context.caller.name, settings_version=version)
    return context.redirect(
        _path(facts.domain), f"Changed: {', '.join(words)}. A worker that visits {facts.domain} applies it within 2 s."
    )


def settings_of(facts: DomainDetails) -> dict[str, str]:
    """Return the settings of a domain as the form shows them, by `SETTINGS`; empty: none of its own."""
    return {
        "crawl_delay_seconds": f"{facts.crawl_delay_seconds:g}",
        "max_concurrent_requests": str(facts.max_concurrent_requests),
        "max_pages_per_run": str(facts.max_pages_per_run) if facts.max_pages_is_limit else "",
        "default_crawl_frequency": render_duration(facts.default_crawl_frequency),
        "parser_name": facts.parser_name if facts.parser_chosen else "",
        "user_agent": facts.user_agent or "",
        "maintenance_window": facts.maintenance_window or "",
        "strip_params": ", ".join(facts.strip_params or ()),
        "base_url": facts.base_url,
    }


def _changed_settings(form: Form, facts: DomainDetails) -> list[str]:
    """Return the assignments (`key=value`) of the fields that differ from the settings in force."""
    shown = settings_of(facts)
    return [
        f"{name}={value}"
        for name in SETTINGS
        if name in form and (value := form.text(name) or "") != shown[name].strip()
    ]


@router.get("/domains/{domain}/reset")
def confirm_reset(domain: DomainName, context: Context) -> Response:
    """What a reset would do."""
    found = context.services.domains.info(domain)
    return context.page("domains/reset.html", domain=found, work=found.work)


@router.post("/domains/{domain}/reset")
def reset(domain: DomainName, context: Context, request: Request) -> Response:
    """Reset a domain."""
    reason = read_form(request).text("reason") or "by the dashboard"
    done = context.services.domains.reset(domain, reason[:200], actor=context.caller.name)
    held = f"; worker {done.was_held_by} lost it" if done.was_held_by else ""
    waits = f"{text.plural(done.waiting, 'URL')} {'waits' if done.waiting == 1 else 'wait'} now"
    return context.redirect(_path(done.domain), f"{done.domain} was {done.was} and is reset{held}; {waits}.")


@router.get("/domains/{domain}/remove")
def confirm_removal(domain: DomainName, context: Context) -> Response:
    """What a removal would delete."""
    return context.page("domains/remove.html", found=context.services.domains.preview_removal(domain))


@router.post("/domains/{domain}/remove")
def remove(domain: DomainName, context: Context, after: BackgroundTasks) -> Response:
    """Remove a domain; its rows are deleted after the response."""
    removed = context.services.domains.remove(domain, actor=context.caller.name)
    after.add_task(log_failures(context.services.domains.forget), removed.id)
    return context.redirect("/domains", f"Removed {removed.domain}; its URLs and pages are deleted in the background.")


def _path(domain: str) -> str:
    return f"/domains/{quote(domain, safe='')}"
