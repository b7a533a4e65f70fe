"""`holdfast proxies`: add, import, list, edit and test proxies; their keys. Commands about pools are in `pools`."""

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, option_types, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.control import input_files
from holdfast.control.secret_box import SecretBox
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.proxy import make_proxy, parse_proxy
from holdfast.model.url import checked_host, parse_url
from holdfast.proxies import import_file
from holdfast.proxies.cli import output as proxy_output
from holdfast.proxies.cli import pools
from holdfast.proxies.cli.output import (
    City,
    Cost,
    Country,
    PerHour,
    Provider,
    Stdin,
    local_only,
    local_proxies,
    proxy_service,
)
from holdfast.proxies.import_file import Imported, parse_cost, parse_limit
from holdfast.proxies.records import ProxyFilter, ProxyOptions, ProxyTest
from holdfast.proxies.service import ProxyService, Rotation, check_address, check_options, parse_reference

if TYPE_CHECKING:
    from holdfast.cli.remote.proxies import RemoteProxies
    from holdfast.proxies.tester import ProxyTester

app = typer.Typer(cls=Group, help="Proxies: add and test them, assign them to domains.", no_args_is_help=True)

_MAX_BAD_LINES: Final = 20
_MAX_FAILED: Final = 10
_FAULTS: Final = {
    "proxy": "the proxy's fault",
    "unclear": "the proxy's fault or the site's",
    "site": "not the proxy's fault",
}
_ON_COMMAND_LINE: Final = (
    "A password has no place on a command line, where everybody on this machine can read it: leave it out and say "
    "--password-stdin, or type it when you are asked for it, or put the proxy into a file for `holdfast proxies import FILE`."
)
_ASK: Final = "Password (it is not shown; none if empty): "

AllowPrivate = Annotated[bool, typer.Option("--allow-private", help="It may have a private address.")]
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
    """Add a proxy. Its scheme is http, https, socks5 or socks5h.

    The password of its user is prompted for, or read from standard input, and stored sealed. Domains use the proxy when it
    is assigned to them.

    Examples:
        holdfast proxies add http://bob@proxy.example:8080 --country DE
        pass one | holdfast proxies add socks5://bob@a.example:1080 --password-stdin
        holdfast proxies add http://10.0.0.7:3128 --allow-private --limit none
    """
    parsed = parse_proxy(proxy)
    if parsed.password is not None:
        raise UsageError(_ON_COMMAND_LINE)
    server, username = parsed.server, parsed.server.username or ""
    options = _options(country, city, provider, cost, limit, allow_private)
    check_address(server, allow_private=allow_private)
    secret = ""
    if password_stdin or (username and output.is_terminal(sys.stdin)):
        secret = proxy_output.read_password(_ASK)
    whole = make_proxy(server.protocol, server.host, server.port, username, secret)
    added = proxy_service(ctx).add(whole, options, actor=actor())
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
    """Add the proxies of a file: one per line, SCHEME://USER:PASSWORD@HOST:PORT, or CSV. # begins a comment.

    The first line of CSV names the columns: proxy, or host and port; protocol, username, password, country, city,
    provider, monthly_cost, limit, allow_private. Options apply to proxies for which the file has no value. Bad lines
    are reported with their numbers; the others are added, and the exit code is 1.

    Examples:
        holdfast proxies import proxies.txt --provider acme --country DE
        zcat list.csv.gz | holdfast proxies import -
    """
    options = _options(country, city, provider, cost, limit, allow_private)
    local_only(ctx)
    stream, size = input_files.opened(file, "proxies")
    done = Imported()
    with stream:
        typed = stream.isatty()
        if typed:
            command_context.say("Type a proxy a line; Ctrl-D ends.")
        steps = import_file.load(local_proxies(ctx), stream, options, actor=actor())
        # Closed in any case, so that a batch that is being committed at Ctrl-C is in the store before the message.
        with output.ProgressBar("Importing", size, "line", hidden=typed) as bar, closing(steps):
            for done in steps:
                bar.show(done.lines if size is None else stream.tell(), done.lines)
    _print_imported(done, as_json)


def _print_imported(done: Imported, as_json: bool) -> None:
    for bad in done.bad_lines[:_MAX_BAD_LINES]:
        command_context.say(f"line {bad.line}: {output.safe(bad.problem)}")
    if done.bad > _MAX_BAD_LINES:
        command_context.say(f"… and {done.bad - _MAX_BAD_LINES:,} more")
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
        bool | None, typer.Option("--active/--not-active", help="Only active proxies, or only the others.")
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
    """List proxies by id, with the statistics of their use.

    Examples:
        holdfast proxies list
        holdfast proxies list --not-active --json
        holdfast proxies list --provider acme --country DE
    """
    where = ProxyFilter(active, provider, country and country.upper())
    found = proxy_service(ctx).page(where, after=(after,), limit=limit).rows
    if as_json:
        output.print_json([proxy_output.without_server(one) for one in found])
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
    """Show one proxy: whether it is used, and the statistics of its use.

    Examples:
        holdfast proxies show 7
        holdfast proxies show http://bob@proxy.example:8080 --json
    """
    reference = parse_reference(proxy)
    proxies = proxy_service(ctx)
    found = proxies.show(proxies.find(reference))
    if as_json:
        output.print_json(proxy_output.without_server(found))
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
    no_password: Annotated[bool, typer.Option("--no-password", help="Remove the password.")] = False,
    version: Annotated[int | None, typer.Option(metavar="N", help="Only if it still has this version.")] = None,
    as_json: output.Json = False,
) -> None:
    """Change options of a proxy, or its password. An empty value removes an option.

    Examples:
        holdfast proxies edit 7 --limit 500 --country DE
        holdfast proxies edit 7 --city "" --cost ""
        holdfast proxies edit 7 --password-stdin
    """
    reference = parse_reference(proxy)
    changes: dict[str, object] = {}
    for column, text in (("country_code", country and country.upper()), ("city", city), ("provider", provider)):
        if text is not None:
            changes[column] = text or None
    if cost is not None:
        changes["monthly_cost"] = parse_cost(cost) if cost else None
    if limit is not None:
        changes["max_requests_per_hour"] = parse_limit(limit)
    if allow_private is not None:
        changes["allow_private"] = allow_private
    if not changes and not password_stdin and not no_password:
        raise UsageError("Say what to change: --country, --city, --provider, --cost, --limit, or --password-stdin.")
    secret = "" if no_password else None
    if password_stdin:
        secret = proxy_output.read_password(_ASK)
    proxies = proxy_service(ctx)
    changed = proxies.edit(proxies.find(reference), changes, actor=actor(), password=secret, version=version)
    if as_json:
        output.print_json(proxy_output.without_server(changed))
    else:
        output.print_line(f"Proxy {changed.id} is changed (version {changed.version}).")


@app.command("enable", cls=Command)
def enable(
    ctx: typer.Context, proxies: proxy_output.Names, domain: InDomain = None, as_json: output.Json = False
) -> None:
    """Enable proxies, for all domains or for one, and reset their failures.

    Examples:
        holdfast proxies enable 7 8
        holdfast proxies enable 7 --domain example.com
    """
    _switch(ctx, proxies, domain, as_json, on=True)


@app.command("disable", cls=Command)
def disable(
    ctx: typer.Context, proxies: proxy_output.Names, domain: InDomain = None, as_json: output.Json = False
) -> None:
    """Disable proxies, for all domains or for one, until they are enabled again.

    Examples:
        holdfast proxies disable 7 8
        holdfast proxies disable 7 --domain example.com
    """
    _switch(ctx, proxies, domain, as_json, on=False)


def _switch(ctx: typer.Context, names: list[str], domain: str | None, as_json: bool, *, on: bool) -> None:
    site = None if domain is None else proxy_output.parse_domain(ctx, domain)
    state = "active" if on else "off"

    def switch(proxies: "ProxyService | RemoteProxies", proxy_id: int) -> str:
        if site is None:
            return f"is {state}" if proxies.switch(proxy_id, on=on, actor=actor()) else f"was {state} already"
        proxies.edit_mapping(site, proxy_id, on=on, actor=actor())
        return f"is {state} for {site}"

    proxy_output.for_each_proxy(ctx, names, switch, as_json)


@app.command("remove", cls=Command)
def remove(
    ctx: typer.Context, proxies: proxy_output.Names, yes: option_types.Yes = False, as_json: output.Json = False
) -> None:
    """Remove proxies with their membership in pools and their statistics. `disable` keeps these.

    Examples:
        holdfast proxies remove 7
        holdfast proxies remove 7 8 --yes
    """
    if not yes:
        question = f"Forget {'1 proxy' if len(proxies) == 1 else f'{len(proxies)} proxies'} and all that they did?"
        command_context.confirm(question, "Nothing was removed.")

    def delete(service: "ProxyService | RemoteProxies", proxy_id: int) -> str:
        service.remove(proxy_id, actor=actor())
        return "is forgotten"

    proxy_output.for_each_proxy(ctx, proxies, delete, as_json)


@app.command("test", cls=Command)
def run_test(
    ctx: typer.Context,
    proxies: proxy_output.OptionalNames = None,
    every: Annotated[bool, typer.Option("--all", help="All that are known.")] = False,
    url: Annotated[str, typer.Option(metavar="URL", help="The page to request through them.")] = "http://example.com/",
    as_json: output.Json = False,
) -> None:
    """Test proxies: request a page through each of them. The exit code is 1 if one does not work.

    A proxy that works is active again if it had failed too often; one that does not is unchanged. A test counts against
    the limit of the proxy.

    Examples:
        holdfast proxies test 7
        holdfast proxies test --all --url https://example.org/
    """
    if bool(proxies) == every:
        raise UsageError("Say which to try: proxies by their names, or --all.")
    checked_host(parse_url(url))
    references = [parse_reference(name) for name in proxies or ()]
    service = proxy_service(ctx)
    ids = service.matching() if every else list(dict.fromkeys(map(service.find, references)))
    done = 0

    def progress(_: ProxyTest) -> None:
        nonlocal done
        done += 1
        bar.show(done, done)

    with output.ProgressBar("Testing", len(ids), "test", hidden=as_json) as bar:
        tested = _tester(ctx, service).test(ids, url, actor=actor(), progress=progress)
    if as_json:
        output.print_json(tested)
    else:
        rows = [
            (
                one.id,
                one.server,
                ("yes, active again" if one.recovered else "yes") if one.works else "no",
                "-" if one.status is None else one.status,
                "-" if one.seconds is None else f"{1000 * one.seconds:,.0f} ms",
            )
            for one in tested
        ]
        notes = {
            number: f"{one.problem}{f' ({_FAULTS[one.fault]})' if one.fault else ''}"
            for number, one in enumerate(tested)
            if one.problem
        }
        output.print_table(["ID", "PROXY", "WORKS", "STATUS", "TOOK"], rows, notes, right="ID STATUS TOOK")
    if not all(one.works for one in tested):
        raise typer.Exit(1)


def _tester(ctx: typer.Context, service: "ProxyService | RemoteProxies") -> "ProxyTester | RemoteProxies":
    if not isinstance(service, ProxyService):
        return service
    from holdfast.proxies.tester import ProxyTester  # here: only this command needs the web

    settings = command_context.get(ctx).settings
    return ProxyTester(service.database, settings, factories.user_agent(settings))


@app.command("rotate", cls=Command)
def rotate(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Seal all secrets with the newest key, the first in HOLDFAST_SECRET_KEY. Afterwards the others are not needed.

    Secrets are the passwords of proxies, and the headers, cookies and logins of jobs and domains. It can be interrupted; the
    same command continues with the rest. Secrets that no key opens are listed, and the exit code is 1.

    Examples:
        HOLDFAST_SECRET_KEY="$NEW,$OLD" holdfast proxies rotate
    """
    proxies = local_proxies(ctx)

    def progress(rotation: Rotation) -> None:
        bar.show(rotation.seen, rotation.seen)

    with output.ProgressBar("Sealing", None, "secret", hidden=as_json) as bar:
        done = proxies.rotate(actor=actor(), progress=progress)
    if as_json:
        output.print_json(done)
    else:
        rest = done.seen - done.resealed - len(done.failed) - len(done.failed_secrets)
        output.print_line(f"{pluralize(done.resealed, 'secret')} re-encrypted, {rest:,} had the newest key already.")
    failed = [*(f"proxy {proxy_id}" for proxy_id in done.failed), *done.failed_secrets]
    if failed:
        which = ", ".join(failed[:_MAX_FAILED]) + ("" if len(failed) <= _MAX_FAILED else ", …")
        raise HoldfastError(f"{pluralize(len(failed), 'secret')} could not be opened (of {which}). {done.problem}")


@app.command("new-key", cls=Command)
def new_key(as_json: output.Json = False) -> None:
    """Print a new key for HOLDFAST_SECRET_KEY. It is not stored.

    Examples:
        holdfast proxies new-key
        export HOLDFAST_SECRET_KEY="$(holdfast proxies new-key)"
    """
    key = SecretBox.new_key()
    if as_json:
        output.print_json({"key": key})
    else:
        output.print_line(key)


def _options(
    country: str | None,
    city: str | None,
    provider: str | None,
    cost: str | None,
    limit: str | None,
    allow_private: bool,
) -> ProxyOptions:
    """The options of a proxy, checked."""
    options = ProxyOptions(
        country.upper() if country else None,
        city or None,
        provider or None,
        parse_cost(cost) if cost else None,
        parse_limit(limit) if limit else ProxyOptions().max_requests_per_hour,
        allow_private,
    )
    check_options(options)
    return options


for _name, _command in pools.COMMANDS.items():
    app.command(_name, cls=Command)(_command)
