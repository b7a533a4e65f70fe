"""Commands that look after proxies: try them, and change what their passwords are sealed with."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.command_context import actor
from holdfast.cli.output import pluralize
from holdfast.control.secret_box import Safe
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.url import checked_host, parse_url
from holdfast.proxies.cli.output import proxy_service
from holdfast.proxies.service import Rotated, named

_SHOWN: Final = 10
_FAULTS: Final = {
    "proxy": "the proxy's fault",
    "unclear": "the proxy's fault or the site's",
    "site": "not the proxy's fault",
}


def tried(
    ctx: typer.Context,
    proxies: Annotated[
        list[str] | None, typer.Argument(metavar="PROXY", help="Ids, or SCHEME://USER@HOST:PORT.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are known.")] = False,
    url: Annotated[str, typer.Option(metavar="URL", help="What to ask for through them.")] = "http://example.com/",
    as_json: output.Json = False,
) -> None:
    """Try proxies: ask for a page through each of them. The exit code is 1 if one does not work.

    A proxy that works is active again if it had failed too often; one that does not is as it was. A test counts against
    the limit of the proxy.

    Examples:
        holdfast proxies test 7
        holdfast proxies test --all --url https://example.org/
    """
    if bool(proxies) == every:
        raise UsageError("Say which to try: proxies by their names, or --all.")
    checked_host(parse_url(url))
    wanted = [named(name) for name in proxies or ()]
    found = proxy_service(ctx)
    ids = found.matching() if every else list(dict.fromkeys(map(found.find, wanted)))

    from holdfast.proxies.tester import Tested, Tester  # here, for only this command needs the web

    settings = command_context.get(ctx).settings
    done = 0

    def progress(_: Tested) -> None:
        nonlocal done
        done += 1
        bar.show(done, done)

    with output.ProgressBar("Trying", len(ids), "test", hidden=as_json) as bar:
        tester = Tester(found.database, settings, factories.user_agent(settings))
        tested = tester.test(ids, url, actor=actor(), progress=progress)
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


def new_key(as_json: output.Json = False) -> None:
    """Print a new key for HOLDFAST_SECRET_KEY. It is kept nowhere.

    Examples:
        holdfast proxies new-key
        export HOLDFAST_SECRET_KEY="$(holdfast proxies new-key)"
    """
    key = Safe.new_key()
    if as_json:
        output.print_json({"key": key})
    else:
        output.print_line(key)


def rotate(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Seal all secrets with the newest key, the first in HOLDFAST_SECRET_KEY. Afterwards the others are not needed.

    These are the passwords of proxies, and the headers, cookies and logins of jobs and domains. It can be interrupted; the
    same command goes on with the rest. Secrets that no key opens are named, and the exit code is 1.

    Examples:
        HOLDFAST_SECRET_KEY="$NEW,$OLD" holdfast proxies rotate
    """
    proxies = proxy_service(ctx)

    def progress(so_far: Rotated) -> None:
        bar.show(so_far.seen, so_far.seen)

    with output.ProgressBar("Sealing", None, "secret", hidden=as_json) as bar:
        done = proxies.rotate(actor=actor(), progress=progress)
    if as_json:
        output.print_json(done)
    else:
        rest = done.seen - done.resealed - len(done.failed) - len(done.failed_secrets)
        output.print_line(f"{pluralize(done.resealed, 'secret')} re-encrypted, {rest:,} had the newest key already.")
    failed = [*(f"proxy {proxy_id}" for proxy_id in done.failed), *done.failed_secrets]
    if failed:
        which = ", ".join(failed[:_SHOWN]) + ("" if len(failed) <= _SHOWN else ", …")
        raise HoldfastError(f"{pluralize(len(failed), 'secret')} could not be opened (of {which}). {done.problem}")


COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {"test": tried, "rotate": rotate, "new-key": new_key}
