"""The command that serves a simulated web: for people by preset, for `process.WebProcess` by spec.

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
from holdfast.simweb.log import AccessLog
from holdfast.simweb.plan import Web
from holdfast.simweb.presets import PRESETS, preset
from holdfast.simweb.server import Server

_LOOK_EVERY: Final = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop. The exit code."""
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
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, server.stop)
    if held:
        loop.add_reader(sys.stdin.fileno(), _when_said, loop, server)
        _look_for_holder(loop, server, os.getppid())
    print(json.dumps({"ports": address.ports, "by_port": address.by_port, "token": token}), flush=True)  # noqa: T201
    await server.stopped.wait()


def _when_said(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    """Standard input has something: its end means that the holder is gone."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        server.stop()


def _look_for_holder(loop: asyncio.AbstractEventLoop, server: Server, holder: int) -> None:
    """Stop if the holder died while a child that it forked keeps our standard input open."""
    if os.getppid() != holder:
        server.stop()
    elif not server.stopped.is_set():
        loop.call_later(_LOOK_EVERY, _look_for_holder, loop, server, holder)


def _allow_many_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has limits that it does not let anybody reach
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m holdfast.simweb", description="Serve a simulated web on loopback.")
    parser.add_argument("--preset", default="demo", choices=list(PRESETS), help="a web with a name (demo)")
    parser.add_argument("--spec", help="instead: a web as JSON, or a file with it")
    parser.add_argument("--seed", type=int, default=1, help="another seed is another web (1)")
    parser.add_argument("--sites", type=int, help="how many sites of the preset")
    parser.add_argument("--pages", type=int, help="how many pages its usual sites have")
    parser.add_argument("--by-port", action="store_true", help="a port for each site instead of a name under localhost")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0 = wherever is free")
    parser.add_argument("--log", type=Path, help="append the access log to this file")
    parser.add_argument("--held", action="store_true", help="stop when standard input ends")
    return parser


if __name__ == "__main__":
    sys.exit(main())
