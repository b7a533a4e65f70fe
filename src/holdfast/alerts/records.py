"""Alerts, and the kinds of them."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.model.record import record


class Kind(StrEnum):
    """The kind of an alert."""

    ERROR_RATE = "error_rate"
    """In each of the last minutes too many requests were errors; the value is their share over all of them."""
    BACKLOG = "backlog"
    """The frontier grows too fast; the value is its growth per minute."""
    WORKER_SILENT = "worker_silent"
    """A worker that holds domains, or has a running run, sends no heartbeats; the value is the seconds since the last one."""
    FEW_PROXIES = "few_proxies"
    """A domain that uses its pool has too few active proxies; the value is their number."""
    PROXIES_FAIL = "proxies_fail"
    """The proxies of a domain fail too often; the value is the share of requests."""
    DISK_LOW = "disk_low"
    """A disk of a machine has less room than `disk.warn_free`; the value is its free bytes."""
    DISK_FULL = "disk_full"
    """A disk of a machine has less room than `disk.min_free`, and its workers fetch nothing; the value is its free bytes."""
    ARCHIVE_UNAVAILABLE = "archive_unavailable"
    """Workers of a machine cannot write the archive; the value is the seconds since then, likewise of the next one."""
    IMAGES_UNAVAILABLE = "images_unavailable"
    """Workers cannot store images."""
    DATABASE_SLOW = "database_slow"
    """Commits of workers take long; the value is the seconds of the slowest worker's median commit of a minute."""
    DATABASE_UNAVAILABLE = "database_unavailable"
    """The database refused or did not answer; the value is for how many seconds, as the process saw it that saw it for longest."""
    BACKGROUND_SILENT = "background_silent"
    """Work is due, and no background process does it; the value is the seconds since one did."""
    BACKUP_FAILED = "backup_failed"
    """The last backup failed or makes no progress, or the log between backups is not kept; the value is the seconds since then."""
    UPLOADS_FAIL = "uploads_fail"
    """A machine cannot upload its part of the archive; the value is the seconds since then."""


@record
class Alert:
    """A problem that exists now (firing), or existed (resolved). `alerts/sentences` says it in words."""

    id: int
    kind: str
    subject: str
    """A worker, a domain, or a machine (with what is on its disk); empty: the whole store."""
    state: str
    """`firing` or `resolved`."""
    value: float
    since: datetime
    last_seen_at: datetime
    resolved_at: datetime | None
    details: dict[str, Any]
    acknowledged_at: datetime | None = None
    """When an operator acknowledged it; null: no operator has. It fires until its cause is gone."""
    acknowledged_by: str | None = None
    """The name of that operator."""
