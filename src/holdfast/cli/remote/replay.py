"""Replays by a server, and counters that it rebuilds."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.cli.remote.operations import finish
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.rebuild.records import RebuiltCounters
from holdfast.replay.records import Replay
from holdfast.replay.service import ReplayRequest


@dataclass(frozen=True, slots=True)
class RemoteReplays:
    """The replays of a server, like `ReplayService`. The actor is the owner of the API key."""

    client: Client

    def begun(self, request: ReplayRequest) -> ReplayRequest:
        """The request as it is: the server takes the time at which it is asked."""
        return request

    def count(self, request: ReplayRequest, watch: Callable[[int, int], None]) -> Replay:
        """Count what `run` would replay."""
        return self._replay(request, watch, dry_run=True)

    def run(self, request: ReplayRequest, *, actor: str, watch: Callable[[int, int], None]) -> Replay:  # noqa: ARG002 — see the class
        """Replay pages, in the background of the server."""
        return self._replay(request, watch, dry_run=False)

    def _replay(self, request: ReplayRequest, watch: Callable[[int, int], None], *, dry_run: bool) -> Replay:
        asked = self.client.replay(
            request.mode,
            job=None if request.job is None else str(request.job),
            domain=request.domain,
            since=request.since,
            until=request.until,
            parser=request.parser,
            as_of=request.as_of,
            dry_run=dry_run,
        )
        result = finish(self.client, asked, lambda progress: watch(progress["looked_at"], progress["pages"]))
        return read(Replay, result)


@dataclass(frozen=True, slots=True)
class RemoteCounters:
    """The counters of a server, like `CounterRebuilder`. The actor is the owner of the API key."""

    client: Client

    def run(
        self,
        *,
        domain: str | None,
        dry_run: bool,
        wait: timedelta,
        actor: str,  # noqa: ARG002 — see the class
        watch: Callable[[int], None],
    ) -> RebuiltCounters:
        """Rebuild counters, in the background of the server."""
        asked = self.client.rebuild_counters(domain=domain, wait=wait, dry_run=dry_run)
        return read(RebuiltCounters, finish(self.client, asked, lambda progress: watch(progress["domains"])))
