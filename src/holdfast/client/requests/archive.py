"""Requests about retention and its archives, segments, replays and rebuilt counters."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.client.request_spec import ListSpec, RequestSpec, decode_list, decode_one, format_path
from holdfast.operations.records import Operation
from holdfast.retention.records import ArchiveDetails, ArchiveEntry, RetentionStatus
from holdfast.segments.records import ArchiveMachine, Segment


def replay(
    mode: str,
    *,
    job: str | None = None,
    domain: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    parser: str | None = None,
    as_of: datetime | None = None,
    dry_run: bool = False,
) -> RequestSpec[Operation]:
    """Replay pages in the background (mode `fetch`, `parse` or `lost`); `wait` for the operation."""
    body = {
        "mode": mode,
        "job": job,
        "domain": domain,
        "since": since,
        "until": until,
        "parser": parser,
        "as_of": as_of,
        "dry_run": dry_run,
    }
    return RequestSpec("POST", "/api/admin/replay", decode_one(Operation), body=body)


def rebuild_counters(
    *, domain: str | None = None, wait: timedelta = timedelta(0), dry_run: bool = False
) -> RequestSpec[Operation]:
    """Rebuild counters from the log and the frontier in the background; `wait` for the operation. The operation waits as long as `wait`
    for domains that workers hold."""
    body = {"domain": domain, "wait": wait, "dry_run": dry_run}
    return RequestSpec("POST", "/api/admin/rebuild/counters", decode_one(Operation), body=body)


def archive_machines() -> RequestSpec[list[ArchiveMachine]]:
    """The machines whose archives go to an object store, and what only they have."""
    return RequestSpec("GET", "/api/archive/machines", decode_list(ArchiveMachine))


def segments(*, state: str | None = None, machine: str | None = None) -> ListSpec[Segment]:
    """Files of the archive, by name, and which machine has them."""
    return ListSpec("/api/archive/segments", Segment, {"state": state, "machine": machine})


def lose_machine(machine: str | int, *, dry_run: bool = False) -> RequestSpec[Operation]:
    """Declare a machine lost for good, in the background; `wait` for the operation."""
    path = format_path("/api/admin/archive/machines/{}/lost", machine)
    return RequestSpec("POST", path, decode_one(Operation), body={"dry_run": dry_run})


def retention() -> RequestSpec[RetentionStatus]:
    """What is kept how long, when retention ran, and what it has archived."""
    return RequestSpec("GET", "/api/retention", decode_one(RetentionStatus))


def run_retention(*, dry_run: bool = False) -> RequestSpec[Operation]:
    """Archive and delete what is old, in the background; `wait` for the operation."""
    return RequestSpec("POST", "/api/admin/retention", decode_one(Operation), body={"dry_run": dry_run})


def archives(*, kind: str | None = None, job: str | None = None, state: str | None = None) -> ListSpec[ArchiveEntry]:
    """What retention has archived, the newest first."""
    return ListSpec("/api/archives", ArchiveEntry, {"kind": kind, "job": job, "state": state})


def archive(archive_id: int) -> RequestSpec[ArchiveDetails]:
    """An archive with its files."""
    return RequestSpec("GET", format_path("/api/archives/{}", archive_id), decode_one(ArchiveDetails))


def check_archive(archive_id: int) -> RequestSpec[Operation]:
    """Read the files of an archive and compare them with their hashes, in the background; `wait` for the operation."""
    return RequestSpec("POST", format_path("/api/admin/archives/{}/check", archive_id), decode_one(Operation))


def restore_archive(archive_id: int) -> RequestSpec[Operation]:
    """Restore an archive into its tables, in the background; `wait` for the operation."""
    return RequestSpec("POST", format_path("/api/admin/archives/{}/restore", archive_id), decode_one(Operation))


def restore_archives(
    ids: Sequence[int] = (),
    *,
    kind: str | None = None,
    job: str | None = None,
    schema: str | None = None,
    keep: timedelta = timedelta(days=30),
) -> RequestSpec[Operation]:
    """Restore these archives, or all of a kind and a job, into their tables or into a schema, in the background; `wait` for the
    operation."""
    body = {"ids": list(ids), "kind": kind, "job": job, "schema": schema, "keep": keep}
    return RequestSpec("POST", "/api/admin/archives/restore", decode_one(Operation), body=body)
