"""Commands about the pools of domains: assign, unassign, health, alerts, cost, advise."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.output import format_bytes, pluralize
from holdfast.errors import NotFound, UsageError
from holdfast.model.proxy import DEFAULT_BUFFER
from holdfast.proxies.cli import output as proxy_output
from holdfast.proxies.cli.output import (
    format_money,
    format_percent,
    local_proxies,
    parse_domain,
    print_next_page,
    proxy_service,
)
from holdfast.proxies.queries.reports import MAX_FAILURE_PERCENT, MIN_ACTIVE, MIN_REQUESTS
from holdfast.proxies.records import FIRST_PRIORITY, LAST_PRIORITY, Advice, ProxyMapping
from holdfast.proxies.service import DEFAULT_EACH, advise, parse_reference

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain, or a URL on it.")]


def assign(
    ctx: typer.Context,
    site: Domain,
    proxies: proxy_output.OptionalNames = None,
    provider: Annotated[
        str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="All of this provider.")
    ] = None,
    country: Annotated[str | None, typer.Option(metavar="CODE", help="All in this country.")] = None,
    priority: Annotated[
        int | None,
        typer.Option(metavar="N", min=FIRST_PRIORITY, max=LAST_PRIORITY, help="From 1 (first) to 10 (default 5)."),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Assign proxies to a domain. From then on it uses its pool, unless it is configured otherwise.

    Proxies that are assigned already are unchanged, or get the new priority.

    Examples:
        holdfast proxies assign example.com 1 2 3
        holdfast proxies assign example.com 4 --priority 9
        holdfast proxies assign example.com --provider acme --country DE
    """
    chosen = provider is not None or country is not None
    if bool(proxies) == chosen:
        raise UsageError("Say which to assign: proxies by their names, or --provider, --country or both.")
    name = parse_domain(ctx, site)
    references = [parse_reference(proxy) for proxy in proxies or ()]
    service = proxy_service(ctx)
    code = country and country.upper()
    ids = service.matching(provider=provider, country=code) if chosen else [service.find(one) for one in references]
    if not ids:
        raise NotFound("No proxy has this provider and country; `holdfast proxies list` shows those that exist.")
    done = service.assign(name, list(dict.fromkeys(ids)), actor=actor(), priority=priority)
    if as_json:
        output.print_json(done)
        return
    changed = f", {len(done.changed):,} with another priority" if done.changed else ""
    output.print_line(f"{name}: {len(done.added):,} added to its pool{changed}, {len(done.unchanged):,} as before.")
    if done.now_uses_pool:
        output.print_line(f"It uses its pool from now on; `holdfast domains set {name} proxy=direct` ends that.")
    elif done.use == "direct":
        command_context.say(f"It still uses no proxies: `holdfast domains set {name} proxy=pool` lets it.")


def unassign(
    ctx: typer.Context,
    site: Domain,
    proxies: proxy_output.OptionalNames = None,
    every: Annotated[bool, typer.Option("--all", help="All that are in it.")] = False,
    as_json: output.Json = False,
) -> None:
    """Remove proxies from the pool of a domain. Their statistics are kept.

    Examples:
        holdfast proxies unassign example.com 2
        holdfast proxies unassign example.com --all
    """
    if bool(proxies) == every:
        raise UsageError("Say which to take out: proxies by their names, or --all.")
    name = parse_domain(ctx, site)
    references = [parse_reference(proxy) for proxy in proxies or ()]
    service = proxy_service(ctx)
    ids = None if every else [service.find(one) for one in references]
    done = service.unassign(name, ids, actor=actor())
    if as_json:
        output.print_json(done)
        return
    missing = len(done.unknown)
    unknown = f", {missing:,} {'was' if missing == 1 else 'were'} not in it" if missing else ""
    output.print_line(f"{name}: {len(done.removed):,} taken out of its pool{unknown}, {done.left:,} left.")
    if not done.left:
        command_context.say(f"Its pool is empty; `holdfast explain {name}` says whether it waits for one.")


def health(
    ctx: typer.Context,
    site: Annotated[str | None, typer.Argument(metavar="DOMAIN", help="Show the pool of this domain.")] = None,
    after: proxy_output.AfterDomain = "",
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show the health of the pools of all domains, or of each proxy in the pool of one.

    Examples:
        holdfast proxies health
        holdfast proxies health example.com --json
    """
    if site is not None:
        pool = proxy_service(ctx).pool(parse_domain(ctx, site))
        if as_json:
            output.print_json([proxy_output.without_server(one) for one in pool])
        else:
            _print_pool(pool)
        return
    found = proxy_service(ctx).health(after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        command_context.say("No domain uses proxies; `holdfast proxies assign DOMAIN PROXY` lets one.")
        return
    rows = [
        (
            one.domain,
            one.use,
            one.proxies,
            one.active,
            one.failing,
            f"{one.requests:,}",
            f"{one.success_count:,}",
            f"{one.total_failures:,}",
            f"{one.proxy_failures:,}",
            proxy_output.format_milliseconds(one.avg_response_time_ms),
        )
        for one in found
    ]
    columns = ["DOMAIN", "USES", "PROXIES", "ACTIVE", "FAILING", "REQUESTS", "SUCCESS", "REFUSED", "FAILED", "TOOK"]
    output.print_table(columns, rows, right="PROXIES ACTIVE FAILING REQUESTS SUCCESS REFUSED FAILED TOOK")
    print_next_page(len(found), limit, found[-1].domain)


def _print_pool(pool: list[ProxyMapping]) -> None:
    rows = [
        (
            one.proxy_id,
            one.server,
            one.priority if one.assigned else "-",
            proxy_output.mapping_state(one),
            f"{one.requests:,}",
            format_percent(one.success_percent),
            f"{one.total_failures:,}",
            f"{one.proxy_failures:,}",
            proxy_output.format_milliseconds(one.avg_response_time_ms),
            output.format_time(one.last_used_at),
        )
        for one in pool
    ]
    notes = {number: reason for number, one in enumerate(pool) if (reason := proxy_output.mapping_reason(one))}
    columns = ["ID", "PROXY", "PRIORITY", "STATE", "REQUESTS", "SUCCESS", "REFUSED", "FAILED", "TOOK", "LAST USED"]
    output.print_table(columns, rows, notes, right="ID PRIORITY REQUESTS SUCCESS REFUSED FAILED TOOK")


def alerts(
    ctx: typer.Context,
    fewer_than: Annotated[
        int, typer.Option("--fewer-than", metavar="N", min=1, help="A domain should have N active proxies.")
    ] = MIN_ACTIVE,
    failures: Annotated[
        float, typer.Option("--failures", metavar="PERCENT", min=0, max=100, help="Share of failures that is an alert.")
    ] = MAX_FAILURE_PERCENT,
    after: proxy_output.AfterDomain = "",
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show the domains whose pools need attention: too few active proxies, or too many failures.

    Examples:
        holdfast proxies alerts
        holdfast proxies alerts --fewer-than 5 --failures 20 --json
    """
    found = local_proxies(ctx).alerts(min_active=fewer_than, max_percent=failures, after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found.few_active and not found.many_failures:
        output.print_line("No pool needs attention.")
        return
    if found.few_active:
        output.print_line(f"Fewer than {fewer_than} active proxies")
        few = [(one.domain, one.active, one.proxies) for one in found.few_active]
        output.print_table(["DOMAIN", "ACTIVE", "PROXIES"], few, right="ACTIVE PROXIES")
    if found.many_failures:
        output.print_line(f"\nMore than {failures:g} % failures, of at least {pluralize(MIN_REQUESTS, 'request')}")
        many = [
            (
                one.domain,
                format_percent(one.failure_percent),
                f"{one.requests:,}",
                one.total_failures,
                one.proxy_failures,
            )
            for one in found.many_failures
        ]
        columns = ["DOMAIN", "FAILURES", "REQUESTS", "REFUSED", "FAILED"]
        output.print_table(columns, many, right="FAILURES REQUESTS REFUSED FAILED")
    ends = [part[-1].domain for part in (found.few_active, found.many_failures) if len(part) == limit]
    if ends:
        print_next_page(limit, limit, min(ends))


def cost(
    ctx: typer.Context,
    each: Annotated[bool, typer.Option("--each", help="Each proxy, not each provider.")] = False,
    after: proxy_output.AfterId = 0,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """Show the cost and use of proxies: by provider, or one by one.

    PER-1000 is the cost of 1,000 requests since a proxy was added. A proxy is paid by the month, for at least one.

    Examples:
        holdfast proxies cost
        holdfast proxies cost --each --json
    """
    if each:
        ones = proxy_service(ctx).costs(after=after, limit=limit)
        if as_json:
            output.print_json(ones)
            return
        rows: list[tuple[object, ...]] = [
            (
                one.id,
                one.server,
                one.provider or "-",
                f"{one.requests:,}",
                format_bytes(one.bytes),
                format_money(one.monthly_cost),
                format_money(one.cost_per_1000, 4),
            )
            for one in ones
        ]
        columns = ["ID", "PROXY", "PROVIDER", "REQUESTS", "BYTES", "MONTHLY", "PER-1000"]
        output.print_table(columns, rows, right="ID REQUESTS BYTES MONTHLY PER-1000")
        print_next_page(len(ones), limit, ones[-1].id if ones else 0)
        return
    found = proxy_service(ctx).provider_costs()
    if as_json:
        output.print_json(found)
        return
    rows = [
        (
            one.provider or "-",
            one.proxies,
            one.active,
            f"{one.requests:,}",
            format_bytes(one.bytes),
            format_money(one.monthly_cost),
            format_money(one.cost_per_1000, 4),
        )
        for one in found
    ]
    columns = ["PROVIDER", "PROXIES", "ACTIVE", "REQUESTS", "BYTES", "MONTHLY", "PER-1000"]
    output.print_table(columns, rows, right="PROXIES ACTIVE REQUESTS BYTES MONTHLY PER-1000")


def advice(
    ctx: typer.Context,
    urls: Annotated[float, typer.Argument(metavar="URLS", min=0, help="URLs an hour.")],
    each: Annotated[
        float, typer.Option(metavar="N", help="Requests an hour that the site accepts from one proxy.")
    ] = DEFAULT_EACH,
    buffer: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, max=1000, help="Spare proxies, for those that fail.")
    ] = 100 * DEFAULT_BUFFER,
    site: Annotated[
        str | None, typer.Option("--domain", metavar="DOMAIN", help="Show how many more this domain needs.")
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Compute how many proxies a domain needs for a number of URLs an hour.

    Examples:
        holdfast proxies advise 100
        holdfast proxies advise 1000 --each 15 --domain example.com
    """
    found = advise(urls, each, buffer / 100)
    if site is not None:
        name = parse_domain(ctx, site)
        found = replace(found, domain=name, active=proxy_service(ctx).pool_health(name).active)
    if as_json:
        output.print_json(found)
        return
    many = "1 proxy" if found.needed == 1 else f"{found.needed:,} proxies"
    output.print_line(
        f"{many}: {urls:g} URLs an hour, {each:g} through each, and {buffer:g} % more for those that fail."
    )
    if found.active is not None:
        output.print_line(_format_missing(found, found.active))


def _format_missing(advice: Advice, active: int) -> str:
    more = advice.needed - active
    return f"{advice.domain} has {active:,} active: {f'{more:,} more are needed' if more > 0 else 'that is enough'}."


COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {
    "assign": assign,
    "unassign": unassign,
    "health": health,
    "alerts": alerts,
    "cost": cost,
    "advise": advice,
}
