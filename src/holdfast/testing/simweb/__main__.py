"""The command that serves a simulated web: by preset for users, by spec for `process.WebProcess`.

The rule: it prints one line of JSON when it is ready (ports, token), and nothing else.
"""

import argparse
import asyncio
import json
import os
import resource
import secrets
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import uvloop

from holdfast.errors import HoldfastError
from holdfast.testing.simweb.access_log import AccessLog
from holdfast.testing.simweb.presets import PRESETS, preset
from holdfast.testing.simweb.server import Server
from holdfast.testing.simweb.spec import Web

_PARENT_POLL_SECONDS: Final = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal or the end of standard input. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.spec:
            text = options.spec if options.spec.lstrip().startswith("{") else Path(options.spec).read_text("utf-8")
            web = Web.from_json(text)
        else:
            web = preset(
                options.preset, seed=options.seed, sites=options.sites, pages=options.pages, by_port=options.by_port
            )
        uvloop.run(_serve(web, options.log, options.port, held=options.held))
    except (HoldfastError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


async def _serve(web: Web, log: Path | None, port: int, *, held: bool) -> None:
    _allow_many_connections()
    token = secrets.token_urlsafe(16)
    server = Server(web, AccessLog(log), token)
    address = await server.listen(port)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    if held:
        loop.add_reader(sys.stdin.fileno(), _on_stdin, loop, server)
        _check_parent(loop, server, os.getppid())
    print(json.dumps({"ports": address.ports, "by_port": address.by_port, "token": token}), flush=True)  # noqa: T201
    await server.stopped.wait()


def _on_stdin(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    """Read standard input; its end means that the parent has ended."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        server.stop()


def _check_parent(loop: asyncio.AbstractEventLoop, server: Server, parent: int) -> None:
    """Stop if the parent died while another child of it keeps standard input open."""
    if os.getppid() != parent:
        server.stop()
    elif not server.stopped.is_set():
        loop.call_later(_PARENT_POLL_SECONDS, _check_parent, loop, server, parent)


def _allow_many_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS reports a hard limit that cannot be set
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.simweb", description="Serve a simulated web on loopback."
    )
    parser.add_argument("--preset", default="demo", choices=list(PRESETS), help="a named web (demo)")
    parser.add_argument("--spec", help="a web as JSON, or a file with it, instead of a preset")
    parser.add_argument("--seed", type=int, default=1, help="seed of the web (1)")
    parser.add_argument("--sites", type=int, help="number of sites")
    parser.add_argument("--pages", type=int, help="number of pages of the default site")
    parser.add_argument("--by-port", action="store_true", help="a port for each site instead of a name under localhost")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 = any free port")
    parser.add_argument("--log", type=Path, help="append the access log to this file")
    parser.add_argument("--held", action="store_true", help="stop when standard input ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
