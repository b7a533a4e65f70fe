"""Shared parts of the commands about proxies: options, reading a password, and output.

The rule: a password is never an argument, and is not shown while it is typed.
"""

import io
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from holdfast.cli import command_context, output
from holdfast.cli.output import pluralize
from holdfast.control.explain_text import CAN_NOT
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.proxies.records import Proxy, ProxyMapping
from holdfast.proxies.service import ProxyService, parse_reference

if TYPE_CHECKING:
    from holdfast.cli.remote.proxies import RemoteProxies

Name = Annotated[str, typer.Argument(metavar="PROXY", help="Id of the proxy, or SCHEME://USER@HOST:PORT.")]
Names = Annotated[list[str], typer.Argument(metavar="PROXY", help="Ids of proxies, or SCHEME://USER@HOST:PORT.")]
OptionalNames = Annotated[list[str] | None, typer.Argument(metavar="PROXY", help="Ids, or SCHEME://USER@HOST:PORT.")]
Country = Annotated[str | None, typer.Option(metavar="CODE", help="Country of the proxy: two letters, such as DE.")]
City = Annotated[
    str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="City of the proxy.")
]
Provider = Annotated[
    str | None, typer.Option(metavar="NAME", callback=command_context.valid_text, help="Provider of the proxy.")
]
Cost = Annotated[str | None, typer.Option(metavar="PRICE", help="Cost a month, such as 12.50.")]
PerHour = Annotated[
    str | None, typer.Option(metavar="N", help="Limit of requests an hour over all domains; none lifts it.")
]
Stdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help="Read the password from the first line of standard input; on a terminal it is not shown.",
    ),
]
AfterId = Annotated[
    int,
    typer.Option(
        metavar="ID", min=0, max=2**63 - 1, help="Show the rows after this one, the last of the previous page."
    ),
]
AfterDomain = Annotated[
    str, typer.Option(metavar="DOMAIN", help="Show the rows after this one, the last of the previous page.")
]

_MAX_PASSWORD: Final = 4096
_WHY_LOCAL: Final = {
    "import": "it writes a whole list into the store. Run it where the store is; `holdfast proxies add` adds one over the server.",
    "alerts": "the API has no list of them. Run it where the store is; `holdfast proxies health` shows how pools are.",
    "rotate": "it needs the old and the new key, which are never sent. Run it where the store is.",
}
"""Why commands work only on the store, and what to do instead."""


def local_proxies(ctx: typer.Context) -> ProxyService:
    """The proxies of the store. Raises UsageError with `--server`."""
    local_only(ctx)
    context = command_context.get(ctx)
    return ProxyService.of(context.settings, context.store())


def local_only(ctx: typer.Context) -> None:
    """Raise UsageError with `--server`: the API has no route for this command."""
    command_context.get(ctx).require_local(
        f"`{ctx.command_path}`", _WHY_LOCAL.get(ctx.info_name or "", command_context.WORKS_ON_STORE)
    )


def proxy_service(ctx: typer.Context) -> "ProxyService | RemoteProxies":
    """The proxies of the store, or of the server (`--server`)."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.proxies import RemoteProxies

        return RemoteProxies(context.client)
    return local_proxies(ctx)


def parse_domain(ctx: typer.Context, name: str) -> str:
    """The canonical domain name. Raises UsageError before a database is started; the message does not repeat a word that may be a proxy."""
    if "@" in name:
        raise UsageError("A domain has no @ in its name; give the domain first, then its proxies.")
    return canonical_domain(name, registrable=command_context.get(ctx).settings.domains.registrable)


def read_password(question: str) -> str:
    """The first line of standard input. On a terminal it is prompted for, not shown, and may be empty."""
    if sys.stdin is None:
        raise UsageError("There is no standard input to read a password from.")
    typed = output.is_terminal(sys.stdin)
    try:
        with _echo_off(sys.stdin) if typed else nullcontext():
            if typed:
                output.write(sys.stderr, (question,))
            line = sys.stdin.readline(_MAX_PASSWORD)
    except UnicodeDecodeError:
        raise UsageError("The password is no text in the encoding of this terminal.") from None
    finally:
        if typed:
            output.write(sys.stderr, ("\n",))
    secret = line.rstrip("\r\n")
    if not secret and not typed:  # the program before the pipe has failed
        raise UsageError("There is no password on standard input.")
    return secret


@contextmanager
def _echo_off(stream: TextIO) -> Iterator[None]:
    """Turn off the echo of a terminal. After: its settings are restored."""
    try:
        fd = stream.fileno()
        before = termios.tcgetattr(fd)
    except (io.UnsupportedOperation, termios.error):  # no terminal
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)


def for_each_proxy(
    ctx: typer.Context,
    names: Sequence[str],
    action: "Callable[[ProxyService | RemoteProxies, int], str]",
    as_json: bool,
) -> None:
    """Apply `action` to each proxy and print its result. Of several, failures are printed, the others done, and the exit code is 1."""
    references = [parse_reference(name) for name in dict.fromkeys(names)]
    proxies = proxy_service(ctx)
    done: list[dict[str, object]] = []
    refused: list[dict[str, object]] = []
    for reference in references:
        try:
            proxy_id = proxies.find(reference)
            done.append({"id": proxy_id, "result": action(proxies, proxy_id)})
        except (NotFound, Refused) as problem:
            if len(references) == 1:
                raise
            refused.append({"proxy": str(reference), "problem": str(problem)})
    if as_json:
        output.print_json({"proxies": done, "refused": refused})
    else:
        for entry in done:
            output.print_line(f"Proxy {entry['id']} {output.safe(entry['result'])}.")
    for entry in refused:
        command_context.say(output.safe(entry["problem"]))
    if refused:
        raise typer.Exit(1)


def print_next_page(count: int, limit: int, last: object) -> None:
    """Print the option for the next page, if there may be one."""
    if count == limit:
        command_context.say(f"More rows: --after {output.safe(last)}.")


def without_server(found: Proxy | ProxyMapping) -> dict[str, Any]:
    """A record for `--json`, which has the parts of the address instead of the field `server`."""
    return {field.name: getattr(found, field.name) for field in fields(found) if field.name != "server"}


def proxy_state(proxy: Proxy) -> str:
    """The state of a proxy, in one word."""
    if proxy.disabled_by == "operator":
        return "off"
    if proxy.disabled_by:
        return "failed"
    return "resting" if proxy.next_try_at else "active"


def mapping_state(mapping: ProxyMapping) -> str:
    """The state of a proxy for a domain, in a few words."""
    if not mapping.assigned:
        return "not in it"
    return "active" if mapping.can_not is None else mapping.can_not.replace("_", " ")


def mapping_reason(mapping: ProxyMapping) -> str | None:
    """Why a proxy cannot be used for a domain now; None: it can."""
    if mapping.can_not is None:
        return None
    until = f" until {output.format_time(mapping.can_again)} UTC" if mapping.can_again else ""
    error = f"; last: {mapping.last_error}" if mapping.last_error and mapping.can_not == "refused" else ""
    return f"it {CAN_NOT[mapping.can_not][0]}{until}{error}"


def format_percent(part: float | None) -> str:
    """A percentage, - for None."""
    return "-" if part is None else f"{part:.1f} %"


def format_milliseconds(time: float | None) -> str:
    """A duration in milliseconds, - for None."""
    return "-" if time is None else f"{time:,.0f} ms"


def format_money(amount: Decimal | None, places: int = 2) -> str:
    """An amount of money, - for None."""
    return "-" if amount is None else f"{amount:,.{places}f}"


def success_rate(proxy: Proxy) -> float | None:
    """Per cent of successful requests, without the requests that failed at the site; None: no requests."""
    judged = proxy.success_count + proxy.total_failures + proxy.proxy_failures
    return 100 * proxy.success_count / judged if judged else None


def proxy_fields(proxy: Proxy) -> list[tuple[str, object]]:
    """The fields of one proxy, for `print_fields`."""
    words = {
        "off": "no: switched off",
        "failed": f"no: it failed too often; next attempt {output.format_time(proxy.next_try_at)} UTC",
        "resting": f"yes; it failed too often; next attempt {output.format_time(proxy.next_try_at)} UTC",
        "active": "yes",
    }
    login = f"{proxy.username}, with{'' if proxy.has_password else 'out'} a password" if proxy.username else "none"
    where = ", ".join(filter(None, (proxy.country_code, proxy.city))) or "-"
    cost = f", {format_money(proxy.monthly_cost)} a month" if proxy.monthly_cost is not None else ""
    limit = proxy.max_requests_per_hour
    failed = f"{proxy.proxy_failures:,} failed at the proxy"
    fields: list[tuple[str, object]] = [
        ("Proxy", f"{proxy.server} ({proxy.id})"),
        ("User", login),
        ("Active", words[proxy_state(proxy)]),
    ]
    if proxy.failure_count:
        error = f": {proxy.last_error}" if proxy.last_error else ""
        fields.append(
            (
                "Failed",
                f"{pluralize(proxy.failure_count, 'time')} in a row, last {output.format_time(proxy.last_failure_at)}{error}",
            )
        )
    fields += [
        ("Where", where + (", on a private address" if proxy.allow_private else "")),
        ("Provider", f"{proxy.provider or '-'}{cost}"),
        ("Limit", "none" if limit is None else f"{pluralize(limit, 'request')} an hour"),
        ("In pools", f"of {pluralize(proxy.domains, 'domain')}"),
        (
            "Requests",
            f"{proxy.requests:,}, {proxy.other_requests:,} more for robots.txt, last {output.format_time(proxy.last_used_at)}",
        ),
        ("Of them", f"{proxy.success_count:,} got through, {proxy.total_failures:,} were refused by sites, {failed}"),
        ("Took", f"{format_milliseconds(proxy.avg_response_time_ms)} on average, {output.format_bytes(proxy.bytes)}"),
    ]
    return fields
