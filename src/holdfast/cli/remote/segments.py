"""The manifest of a server's archive, and the machines that have its files."""

from dataclasses import dataclass

from holdfast.cli.remote import page_after
from holdfast.cli.remote.operations import finish
from holdfast.client import Client, endpoints
from holdfast.client.decoding import read
from holdfast.segments.records import ArchiveMachine, LostMachine, Segment


@dataclass(frozen=True, slots=True)
class RemoteSegments:
    """The segments of a server, like `SegmentService`. The actor is the owner of the API key."""

    client: Client

    def machines(self) -> list[ArchiveMachine]:
        """Return the machines whose archives go to an object store."""
        return self.client.archive_machines()

    def list(self, *, state: str | None, machine: str | None, after: str, limit: int) -> "list[Segment]":
        """Return segments by name; `after` is the last one of the page before."""
        listing = endpoints.segments(state=state, machine=machine)
        return page_after(self.client, listing, (after,) if after else None, limit).rows

    def count_lost(self, machine: str) -> LostMachine:
        """Return what `lose` would declare lost."""
        return self._lose(machine, dry_run=True)

    def lose(self, machine: str, *, actor: str) -> LostMachine:  # noqa: ARG002 — see the class
        """Declare a machine lost for good."""
        return self._lose(machine, dry_run=False)

    def _lose(self, machine: str, *, dry_run: bool) -> LostMachine:
        return read(LostMachine, finish(self.client, self.client.lose_machine(machine, dry_run=dry_run)))
