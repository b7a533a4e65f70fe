"""What the commands about proxies have in common: options, how a password comes in, and words for what is told.

The rule: a password is never an argument, and is not shown while it is typed.
"""

import io
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from typing import Annotated, Final, TextIO

import typer

from holdfast.cli import output, session
from holdfast.cli.output import counted
from holdfast.control.proxies import ProxyDesk, named
from holdfast.control.reasons import CAN_NOT
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.host import canonical_domain
from holdfast.store.proxies import Proxy
from holdfast.store.proxy_pools import Mapping

Name = Annotated[str, typer.Argument(metavar="PROXY", help="Its id, or SCHEME://USER@HOST:PORT.")]
Names = Annotated[list[str], typer.Argument(metavar="PROXY", help="Ids, or SCHEME://USER@HOST:PORT.")]
Country = Annotated[str | None, typer.Option(metavar="CODE", help="Where it is: two letters, such as DE.")]
City = Annotated[str | None, typer.Option(metavar="NAME", callback=session.readable, help="In which city.")]
Provider = Annotated[str | None, typer.Option(metavar="NAME", callback=session.readable, help="Who runs it.")]
Cost = Annotated[str | None, typer.Option(metavar="PRICE", help="What it costs a month: 12.50.")]
PerHour = Annotated[str | None, typer.Option(metavar="N", help="Requests an hour, over all domains; none: any number.")]
Stdin = Annotated[
    bool, typer.Option("--password-stdin", help="Its password is the first line of standard input, or is typed unseen.")
]
AfterId = Annotated[
    int, typer.Option(metavar="ID", min=0, max=2**63 - 1, help="Go on behind this one, the last that you have seen.")
]
AfterDomain = Annotated[str, typer.Option(metavar="DOMAIN", help="Go on behind this one, the last that you have seen.")]

_LONGEST: Final = 4096


def desk(context: typer.Context) -> ProxyDesk:
    """The proxies of this invocation's store."""
    of = session.of(context)
    return ProxyDesk.of(of.settings, of.store())


def domain(context: typer.Context, name: str) -> str:
    """A domain that is named, refused if it is none before a server is started for it. Proxies stand beside it, so it is not repeated."""
    if "@" in name:
        raise UsageError("There is no @ in the name of a domain; the domain comes first, then its proxies.")
    return canonical_domain(name, registrable=session.of(context).settings.domains.registrable)


def password(question: str) -> str:
    """The first line of standard input, without its end. Typed on a terminal it is asked for, not shown, and may be empty."""
    if sys.stdin is None:
        raise UsageError("There is no standard input to read a password from.")
    typed = output.is_terminal(sys.stdin)
    try:
        with _unseen(sys.stdin) if typed else nullcontext():
            if typed:
                output.write(sys.stderr, (question,))
            line = sys.stdin.readline(_LONGEST)
    except UnicodeDecodeError:
        raise UsageError("The password is no text in the encoding of this terminal.") from None
    finally:
        if typed:
            output.write(sys.stderr, ("\n",))
    secret = line.rstrip("\r\n")
    if not secret and not typed:  # whatever was to write it has failed
        raise UsageError("There is no password on standard input.")
    return secret


@contextmanager
def _unseen(stream: TextIO) -> Iterator[None]:
    """Let a terminal not show what is typed. After: it is as it was."""
    try:
        fd = stream.fileno()
        before = termios.tcgetattr(fd)
    except (io.UnsupportedOperation, termios.error):  # nothing that could show it
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)


def each(context: typer.Context, names: Sequence[str], deed: Callable[[ProxyDesk, int], str], as_json: bool) -> None:
    """Do it to each proxy, and tell what `deed` says. Of several, what is refused is said, the rest is done, and the exit code is 1."""
    wanted = [named(name) for name in dict.fromkeys(names)]
    proxies = desk(context)
    done: list[dict[str, object]] = []
    refused: list[dict[str, object]] = []
    for one in wanted:
        try:
            proxy_id = proxies.find(one)
            done.append({"id": proxy_id, "result": deed(proxies, proxy_id)})
        except (NotFound, Refused) as problem:
            if len(wanted) == 1:
                raise
            refused.append({"proxy": str(one), "problem": str(problem)})
    if as_json:
        output.print_json({"proxies": done, "refused": refused})
    else:
        for told in done:
            output.print_line(f"Proxy {told['id']} {output.safe(told['result'])}.")
    for told in refused:
        session.say(output.safe(told["problem"]))
    if refused:
        raise typer.Exit(1)


def page_end(count: int, limit: int, last: object) -> None:
    """Say how a list goes on, if it may."""
    if count == limit:
        session.say(f"--after {output.safe(last)} goes on.")


def state(proxy: Proxy) -> str:
    """Whether a proxy is used, in a word."""
    if proxy.disabled_by == "operator":
        return "off"
    if proxy.disabled_by:
        return "failed"
    return "resting" if proxy.next_try_at else "active"


def place_state(one: Mapping) -> str:
    """Whether a proxy is used for a domain, in a word."""
    if not one.assigned:
        return "not in it"
    return "active" if one.can_not is None else str(one.can_not).replace("_", " ")


def reason(one: Mapping) -> str | None:
    """Why a proxy cannot be used for a domain now."""
    if one.can_not is None:
        return None
    until = f" until {output.when(one.can_again)} UTC" if one.can_again else ""
    error = f"; last: {one.last_error}" if one.last_error and one.can_not == "refused" else ""
    return f"it {CAN_NOT[one.can_not][0]}{until}{error}"


def percent(part: float | None) -> str:
    """A share for people."""
    return "-" if part is None else f"{part:.1f} %"


def milliseconds(time: float | None) -> str:
    """A time for people."""
    return "-" if time is None else f"{time:,.0f} ms"


def money(amount: Decimal | None, places: int = 2) -> str:
    """A price for people."""
    return "-" if amount is None else f"{amount:,.{places}f}"


def success(proxy: Proxy) -> float | None:
    """Per cent of the requests that say something of a proxy; the errors of sites do not."""
    judged = proxy.success_count + proxy.total_failures + proxy.proxy_failures
    return 100 * proxy.success_count / judged if judged else None


def facts(proxy: Proxy) -> list[tuple[str, object]]:
    """One proxy, for people."""
    words = {
        "off": "no: switched off",
        "failed": f"no: it failed too often, and is tried again {output.when(proxy.next_try_at)} UTC",
        "resting": f"yes; it failed too often, and is tried again {output.when(proxy.next_try_at)} UTC",
        "active": "yes",
    }
    login = f"{proxy.username}, with{'' if proxy.has_password else 'out'} a password" if proxy.username else "none"
    where = ", ".join(filter(None, (proxy.country_code, proxy.city))) or "-"
    cost = f", {money(proxy.monthly_cost)} a month" if proxy.monthly_cost is not None else ""
    limit = proxy.max_requests_per_hour
    failed = f"{proxy.proxy_failures:,} failed at the proxy"
    told: list[tuple[str, object]] = [
        ("Proxy", f"{proxy.server} ({proxy.id})"),
        ("User", login),
        ("Active", words[state(proxy)]),
    ]
    if proxy.failure_count:
        error = f": {proxy.last_error}" if proxy.last_error else ""
        told.append(
            (
                "Failed",
                f"{counted(proxy.failure_count, 'time')} in a row, last {output.when(proxy.last_failure_at)}{error}",
            )
        )
    told += [
        ("Where", where + (", on a private address" if proxy.allow_private else "")),
        ("Provider", f"{proxy.provider or '-'}{cost}"),
        ("Limit", "none" if limit is None else f"{counted(limit, 'request')} an hour"),
        ("In pools", f"of {counted(proxy.domains, 'domain')}"),
        (
            "Requests",
            f"{proxy.requests:,}, {proxy.other_requests:,} more for robots.txt, last {output.when(proxy.last_used_at)}",
        ),
        ("Of them", f"{proxy.success_count:,} got through, {proxy.total_failures:,} were refused by sites, {failed}"),
        ("Took", f"{milliseconds(proxy.avg_response_time_ms)} on average, {proxy.bytes:,} bytes"),
    ]
    return told
