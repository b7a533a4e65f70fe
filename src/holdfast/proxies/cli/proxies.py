"""`holdfast proxies`: servers that ask the web for us: make them known, try them, put them into the pools of domains."""

import sys
from contextlib import closing
from typing import Annotated, Final

import typer

from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.control import input_files as lists
from holdfast.errors import HoldfastError, UsageError
from holdfast.model import proxy as model
from holdfast.proxies import import_file as proxy_import
from holdfast.proxies.cli import maintenance as proxy_upkeep
from holdfast.proxies.cli import output as proxy_output
from holdfast.proxies.cli import pools as proxy_pools
from holdfast.proxies.cli.output import City, Cost, Country, PerHour, Provider, Stdin, proxy_service
from holdfast.proxies.import_file import Imported
from holdfast.proxies.queries.proxies import Facts
from holdfast.proxies.service import ProxyService, check, check_place, named

app = typer.Typer(
    cls=Group, help="Proxies: make them known, try them, put them into the pools of domains.", no_args_is_help=True
)

_BAD_SHOWN: Final = 20
_NOT_HERE: Final = (
    "A password has no place on a command line, where everybody on this machine can read it: leave it out and say "
    "--password-stdin, or type it when you are asked for it, or put the proxy into a file for `holdfast proxies import FILE`."
)
_ASK: Final = "Password (it is not shown; none if empty): "

AllowPrivate = Annotated[bool, typer.Option("--allow-private", help="It has a private address, and that is meant.")]
InDomain = Annotated[str | None, typer.Option("--domain", metavar="DOMAIN", help="For this domain only.")]


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    proxy: Annotated[str, typer.Argument(metavar="PROXY", help="SCHEME://USER@HOST:PORT, without its password.")],
    country: Country = None,
    city: City = None,
    provider: Provider = None,
    cost: Cost = None,
    limit: PerHour = None,
    allow_private: AllowPrivate = False,
    password_stdin: Stdin = False,
    as_json: output.Json = False,
) -> None:
    """Make a proxy known. Its scheme is http, https, socks5 or socks5h.

    The password of its user is asked for, or read from standard input; it is stored sealed. Domains use the proxy when it
    is assigned to them.

    Examples:
        holdfast proxies add http://bob@proxy.example:8080 --country DE
        pass one | holdfast proxies add socks5://bob@a.example --password-stdin
        holdfast proxies add http://10.0.0.7:3128 --allow-private --limit none
    """
    said = model.parse_proxy(proxy)
    if said.password is not None:
        raise UsageError(_NOT_HERE)
    server, username = said.server, said.server.username or ""
    facts = _facts(country, city, provider, cost, limit, allow_private)
    check_place(server, allow_private=allow_private)
    secret = ""
    if password_stdin or (username and output.is_terminal(sys.stdin)):
        secret = proxy_output.read_password(_ASK)
    whole = model.make_proxy(server.protocol, server.host, server.port, username, secret)
    added = proxy_service(ctx).add(whole, facts, actor=actor())
    if as_json:
        output.print_json(added)
    else:
        known = "" if added.created else "; it was known already, and is as it was"
        output.print_line(f"Proxy {added.id} is {output.safe(added.server)}{known}.")


@app.command("import", cls=Command)
def load(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, plain or gzip; - is standard input.")],
    country: Country = None,
    city: City = None,
    provider: Provider = None,
    cost: Cost = None,
    limit: PerHour = None,
    allow_private: AllowPrivate = False,
    as_json: output.Json = False,
) -> None:
    """Make the proxies of a file known: a line each, SCHEME://USER:PASSWORD@HOST:PORT, or CSV. # begins a comment.

    The first line of CSV names the columns: proxy, or host and port; protocol, username, password, country, city,
    provider, monthly_cost, limit, allow_private. Options are for those of which the file says nothing. Lines that are no
    proxies are reported with their numbers; the rest is added, and the exit code is 1.

    Examples:
        holdfast proxies import proxies.txt --provider acme --country DE
        zcat list.csv.gz | holdfast proxies import -
    """
    facts = _facts(country, city, provider, cost, limit, allow_private)
    stream, size = lists.opened(file, "proxies")
    done = Imported()
    with stream:
        typed = stream.isatty()
        if typed:
            command_context.say("Type a proxy a line; Ctrl-D ends.")
        steps = proxy_import.load(proxy_service(ctx), stream, facts, actor=actor())
        # Closed in any case, so that a batch that is under way when Ctrl-C comes is in the store before we say so.
        with output.ProgressBar("Importing", size, "line", hidden=typed) as bar, closing(steps):
            for done in steps:
                bar.show(done.lines if size is None else stream.tell(), done.lines)
    _tell_imported(done, as_json)


def _tell_imported(done: Imported, as_json: bool) -> None:
    for bad in done.bad_lines[:_BAD_SHOWN]:
        command_context.say(f"line {bad.line}: {output.safe(bad.problem)}")
    if done.bad > _BAD_SHOWN:
        command_context.say(f"… and {done.bad - _BAD_SHOWN:,} more")
    if as_json:
        output.print_json(done)
    else:
        refused = f", {done.bad:,} bad" if done.bad else ""
        new = "1 new proxy" if done.added == 1 else f"{done.added:,} new proxies"
        output.print_line(f"{pluralize(done.lines, 'line')}: {new}, {done.known:,} known already{refused}.")
    if done.stopped:
        raise HoldfastError(done.stopped)
    if done.bad:
        raise typer.Exit(1)


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    active: Annotated[
        bool | None, typer.Option("--active/--not-active", help="Only those that are, or only the others.")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=command_context.valid_text, help="Only those of this provider."),
    ] = None,
    country: Annotated[str | None, typer.Option(metavar="CODE", help="Only those in this country.")] = None,
    after: proxy_output.AfterId = 0,
    limit: option_types.Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List proxies, in the order of their ids, and how they fare.

    Examples:
        holdfast proxies list
        holdfast proxies list --not-active --json
        holdfast proxies list --provider acme --country DE
    """
    code = country and country.upper()
    found = proxy_service(ctx).listing(active=active, provider=provider, country=code, after=after, limit=limit)
    if as_json:
        output.print_json(found)
        return
    if not found:
        command_context.say("No such proxy; `holdfast proxies add` or `holdfast proxies import` adds some.")
        return
    rows = [
        (
            one.id,
            one.server,
            one.username or "-",
            proxy_output.proxy_state(one),
            one.country_code or "-",
            one.provider or "-",
            one.domains,
            f"{one.requests + one.other_requests:,}",
            proxy_output.format_percent(proxy_output.success_rate(one)),
            proxy_output.format_milliseconds(one.avg_response_time_ms),
        )
        for one in found
    ]
    notes = {number: one.last_error for number, one in enumerate(found) if one.last_error}
    columns = ["ID", "PROXY", "USER", "STATE", "COUNTRY", "PROVIDER", "DOMAINS", "REQUESTS", "SUCCESS", "TOOK"]
    output.print_table(columns, rows, notes, right="ID DOMAINS REQUESTS SUCCESS TOOK")
    proxy_output.print_next_page(len(found), limit, found[-1].id)


@app.command("show", cls=Command)
def show(ctx: typer.Context, proxy: proxy_output.Name, as_json: output.Json = False) -> None:
    """Show one proxy: whether it is used, and what went through it.

    Examples:
        holdfast proxies show 7
        holdfast proxies show http://bob@proxy.example:8080 --json
    """
    wanted = named(proxy)
    proxies = proxy_service(ctx)
    found = proxies.show(proxies.find(wanted))
    if as_json:
        output.print_json(found)
    else:
        output.print_fields(proxy_output.proxy_fields(found))


@app.command("edit", cls=Command)
def edit(
    ctx: typer.Context,
    proxy: proxy_output.Name,
    country: Country = None,
    city: City = None,
    provider: Provider = None,
    cost: Cost = None,
    limit: PerHour = None,
    allow_private: Annotated[
        bool | None, typer.Option("--allow-private/--no-private", help="Whether it may have a private address.")
    ] = None,
    password_stdin: Stdin = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="It has none any more.")] = False,
    version: Annotated[int | None, typer.Option(metavar="N", help="Only if it still has this version.")] = None,
    as_json: output.Json = False,
) -> None:
    """Change what is said of a proxy, or its password. An empty word says nothing.

    Examples:
        holdfast proxies edit 7 --limit 500 --country DE
        holdfast proxies edit 7 --city "" --cost ""
        holdfast proxies edit 7 --password-stdin
    """
    wanted = named(proxy)
    changes: dict[str, object] = {}
    for column, text in (("country_code", country and country.upper()), ("city", city), ("provider", provider)):
        if text is not None:
            changes[column] = text or None
    if cost is not None:
        changes["monthly_cost"] = proxy_import.cost(cost) if cost else None
    if limit is not None:
        changes["max_requests_per_hour"] = proxy_import.limit(limit)
    if allow_private is not None:
        changes["allow_private"] = allow_private
    if not changes and not password_stdin and not no_password:
        raise UsageError("Say what to change: --country, --city, --provider, --cost, --limit, or --password-stdin.")
    secret = "" if no_password else None
    if password_stdin:
        secret = proxy_output.read_password(_ASK)
    proxies = proxy_service(ctx)
    changed = proxies.edit(proxies.find(wanted), changes, actor=actor(), password=secret, version=version)
    if as_json:
        output.print_json(changed)
    else:
        output.print_line(f"Proxy {changed.id} is changed (version {changed.version}).")


@app.command("enable", cls=Command)
def enable(
    ctx: typer.Context, proxies: proxy_output.Names, domain: InDomain = None, as_json: output.Json = False
) -> None:
    """Let proxies be used, for all domains or for one; what they failed is forgotten.

    Examples:
        holdfast proxies enable 7 8
        holdfast proxies enable 7 --domain example.com
    """
    _switch(ctx, proxies, domain, as_json, on=True)


@app.command("disable", cls=Command)
def disable(
    ctx: typer.Context, proxies: proxy_output.Names, domain: InDomain = None, as_json: output.Json = False
) -> None:
    """Let proxies be used no more, for all domains or for one, until somebody enables them.

    Examples:
        holdfast proxies disable 7 8
        holdfast proxies disable 7 --domain example.com
    """
    _switch(ctx, proxies, domain, as_json, on=False)


def _switch(ctx: typer.Context, names: list[str], domain: str | None, as_json: bool, *, on: bool) -> None:
    site = None if domain is None else proxy_output.parse_domain(ctx, domain)
    state = "active" if on else "off"

    def deed(proxies: ProxyService, proxy_id: int) -> str:
        if site is None:
            return f"is {state}" if proxies.switch(proxy_id, on=on, actor=actor()) else f"was {state} already"
        proxies.edit_mapping(site, proxy_id, on=on, actor=actor())
        return f"is {state} for {site}"

    proxy_output.for_each_proxy(ctx, names, deed, as_json)


@app.command("remove", cls=Command)
def remove(
    ctx: typer.Context, proxies: proxy_output.Names, yes: option_types.Yes = False, as_json: output.Json = False
) -> None:
    """Forget proxies, their places in pools and what they did there. `disable` keeps all that.

    Examples:
        holdfast proxies remove 7
        holdfast proxies remove 7 8 --yes
    """
    if not yes:
        question = f"Forget {'1 proxy' if len(proxies) == 1 else f'{len(proxies)} proxies'} and all that they did?"
        command_context.confirm(question, "Nothing was removed.")

    def deed(found: ProxyService, proxy_id: int) -> str:
        found.remove(proxy_id, actor=actor())
        return "is forgotten"

    proxy_output.for_each_proxy(ctx, proxies, deed, as_json)


def _facts(
    country: str | None,
    city: str | None,
    provider: str | None,
    cost: str | None,
    limit: str | None,
    allow_private: bool,
) -> Facts:
    """What the options say of a proxy, checked."""
    usual = Facts()
    facts = Facts(
        country.upper() if country else None,
        city or None,
        provider or None,
        proxy_import.cost(cost) if cost else None,
        proxy_import.limit(limit) if limit else usual.max_requests_per_hour,
        allow_private,
    )
    check(facts)
    return facts


for _name, _command in {**proxy_pools.COMMANDS, **proxy_upkeep.COMMANDS}.items():
    app.command(_name, cls=Command)(_command)
