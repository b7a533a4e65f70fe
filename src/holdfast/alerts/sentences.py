"""Alerts in words: the cause with its number, and the next step.

The rule: every kind has its words here, for the command line and the dashboard. Details that an older server left out are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.alerts.records import Alert, Kind
from holdfast.model import duration
from holdfast.telemetry.disk_space import in_bytes


@dataclass(frozen=True, slots=True)
class AlertText:
    """An alert in words."""

    cause: str
    """One sentence: what is wrong, with the number."""
    next_step: str
    """What the operator can do, and the section of the runbook that says more."""


def describe(alert: Alert) -> AlertText:
    """Return an alert in words. The subject and details are as the store has them: a terminal or a page still has to escape them."""
    words = _WORDS.get(alert.kind)
    if words is None:  # of a newer server
        about = f" about {alert.subject}" if alert.subject else ""
        return AlertText(
            f"An alert of the kind {alert.kind}{about} with the value {alert.value:,.3g}.",
            "This version does not know the kind; use the version of the server.",
        )
    text = words(alert)
    return AlertText(text.cause, f"{text.next_step} More: docs/runbook.md#{alert.kind}.")


def format_value(alert: Alert) -> str:
    """Return the value of an alert with its unit, for people; that of an unknown kind is a bare number."""
    if alert.kind in _SHARES:
        return f"{alert.value:,.1%}"
    if alert.kind in _BYTES:
        return in_bytes(alert.value)
    if alert.kind == Kind.FEW_PROXIES:
        return _number(alert.value)
    if alert.kind == Kind.DATABASE_SLOW:
        return f"{alert.value:,.1f} s"
    return _length(alert.value) if alert.kind in _SECONDS else f"{alert.value:,.3g}"


_SHARES: Final = frozenset({Kind.ERROR_RATE, Kind.BACKLOG, Kind.PROXIES_FAIL})
_BYTES: Final = frozenset({Kind.DISK_LOW, Kind.DISK_FULL})
_SECONDS: Final = frozenset(Kind) - _SHARES - _BYTES - {Kind.FEW_PROXIES, Kind.DATABASE_SLOW}


def _error_rate(alert: Alert) -> AlertText:
    details = alert.details
    counted = ""
    if "errors" in details and "requests" in details:
        counted = f" ({_number(details['errors'])} of {_number(details['requests'])})"
    causes = "; ".join(
        f"{str(one['cause']).replace('_', ' ')} {_number(one['requests'])}" for one in details.get("causes") or ()
    )
    return AlertText(
        f"{alert.value:.0%} of the requests{counted} of the last {_minutes(details)} were errors"
        f"{f': {causes}' if causes else ''}.",
        "`holdfast explain DOMAIN` says why a domain fails; `holdfast domain-status` lists the domains with their errors.",
    )


def _backlog(alert: Alert) -> AlertText:
    details = alert.details
    sizes = ""
    if "from" in details and "to" in details:
        sizes = f", from {_number(details['from'])} to {_number(details['to'])} URLs in {_minutes(details)}"
    return AlertText(
        f"The frontier grows by {alert.value:.0%} a minute{sizes}: more URLs are found than crawled.",
        "Start more workers, or limit the crawl: `holdfast jobs set JOB max_depth=N` or `max_pages=N`.",
    )


def _worker_silent(alert: Alert) -> AlertText:
    details = alert.details
    host = f" on {details['host']}" if "host" in details else ""
    held = details.get("domains")
    holds = "" if held is None else f" and holds {_count(held, 'domain')}"
    return AlertText(
        f"Worker {alert.subject}{host} sent no heartbeat for {_length(alert.value)}{holds}.",
        "Look at its machine. Other workers take over the domains of a dead one within 150 s; those of a frozen one are freed by "
        f"`holdfast release-stuck-claims --force --worker-id {alert.subject}`.",
    )


def _few_proxies(alert: Alert) -> AlertText:
    known = alert.details.get("proxies")
    of = "" if known is None else f" of {_number(known)}"
    proxies = "proxy is" if (known if known is not None else alert.value) == 1 else "proxies are"
    return AlertText(
        f"Only {_number(alert.value)}{of} {proxies} active in the pool of {alert.subject}.",
        f"`holdfast proxies health {alert.subject}` shows why; `holdfast proxies assign {alert.subject} PROXY` adds one to the pool.",
    )


def _proxies_fail(alert: Alert) -> AlertText:
    details = alert.details
    counted = ""
    if {"requests", "refused", "failed"} <= set(details):
        counted = (
            f": of {_number(details['requests'])} requests the site refused {_number(details['refused'])}, and "
            f"{_number(details['failed'])} failed in the proxy"
        )
    return AlertText(
        f"{alert.value:.0%} of the requests through the proxies of {alert.subject} fail{counted}.",
        f"`holdfast proxies health {alert.subject}` shows which; `holdfast proxies disable ID` takes one out.",
    )


def _disk_low(alert: Alert) -> AlertText:
    return AlertText(
        f"{_reported(alert, f'The disk of {alert.subject} has little room')}. When it is full, its workers stop fetching.",
        "`holdfast storage` says what takes the room; make room before it is full, or change `disk.warn_free`.",
    )


def _disk_full(alert: Alert) -> AlertText:
    machine = alert.subject.partition(" (")[0]  # what is on the disk is in what was reported
    where = machine if alert.details.get("text") else alert.subject
    return AlertText(
        f"On {where} {_reported(alert, 'fetching is paused: the disk has too little room', capital=False)}.",
        "Make room: `holdfast storage` says what takes it. Workers go on by themselves within seconds; `disk.min_free` is the bound.",
    )


def _archive_unavailable(alert: Alert) -> AlertText:
    return AlertText(
        f"On {alert.subject} {_reported(alert, 'the archive cannot be written', capital=False)}; its workers fetch nothing.",
        "Look at the disk and the permissions of the folder `archive/` of that machine; its workers go on by themselves.",
    )


def _images_unavailable(alert: Alert) -> AlertText:
    return AlertText(
        f"{_reported(alert, 'Images cannot be stored')}; {_workers(alert)} fetch nothing.",
        "The message names the setting; `holdfast config show` shows what is set. Workers go on by themselves when the store is back.",
    )


def _database_slow(alert: Alert) -> AlertText:
    return AlertText(
        f"Commits are slow: half of those of the last minute took {alert.value:,.1f} s or longer at {_workers(alert)}.",
        "Look at the disk and the load of the database server, and end transactions that are open for long: `holdfast db psql`.",
    )


def _database_unavailable(alert: Alert) -> AlertText:
    seconds = duration.render(timedelta(seconds=max(1, round(alert.value))))
    return AlertText(
        f"The database refused or did not answer for {seconds}: {_reported(alert, 'its log says why', capital=False)}.",
        "Look at the database server and its log. Nothing is lost, and workers go on by themselves.",
    )


def _background_silent(alert: Alert) -> AlertText:
    due = alert.details.get("due") or {}
    names = {
        "tasks": "task",
        "parses": "page to parse",
        "jobs": "job",
        "webhooks": "webhook",
        "operations": "operation",
    }
    counted = [
        f"{_number(count)} {names[what] if count == 1 else _MANY.get(what, what)}"
        for what, count in due.items()
        if what in names
    ]
    since = "" if not alert.value else f" for {duration.render(timedelta(seconds=round(alert.value)))}"
    return AlertText(
        f"No background process has run{since}, and work is due: {', '.join(counted) or 'it was not counted'}.",
        "Start `holdfast serve` or `holdfast background`; what is due stays due and is done within seconds.",
    )


_MANY: Final = {"parses": "pages to parse"}


def _backup_failed(alert: Alert) -> AlertText:
    why = str(alert.details.get("why") or "")
    if alert.subject == "backup":
        return AlertText(
            f"The last backup failed, or makes no progress: {why or 'it is not known why.'}",
            "`holdfast backup` makes one when the cause is gone; `holdfast backup list` shows them.",
        )
    return AlertText(
        f"The log between backups is not kept: {why or 'it is not known why.'}",
        "Look at the disk of the backups (backup.folder); `holdfast backup list` shows which seconds can be restored.",
    )


def _uploads_fail(alert: Alert) -> AlertText:
    why = str(alert.details.get("why") or "it is not known why.")
    size = alert.details.get("bytes")
    waiting = "" if not size else f" {in_bytes(int(size))} of its archive are on its own disk only."
    return AlertText(
        f"Machine {alert.subject} has uploaded nothing of its archive for {_length(alert.value)}: {why}{waiting}",
        "Look at the object store (archive.store) and its credentials; `holdfast segments` shows what waits. It goes on by itself; beyond "
        "archive.max_waiting fetching pauses.",
    )


_WORDS: Final[Mapping[str, Callable[[Alert], AlertText]]] = {
    Kind.ERROR_RATE: _error_rate,
    Kind.BACKLOG: _backlog,
    Kind.WORKER_SILENT: _worker_silent,
    Kind.FEW_PROXIES: _few_proxies,
    Kind.PROXIES_FAIL: _proxies_fail,
    Kind.DISK_LOW: _disk_low,
    Kind.DISK_FULL: _disk_full,
    Kind.ARCHIVE_UNAVAILABLE: _archive_unavailable,
    Kind.IMAGES_UNAVAILABLE: _images_unavailable,
    Kind.DATABASE_SLOW: _database_slow,
    Kind.DATABASE_UNAVAILABLE: _database_unavailable,
    Kind.BACKGROUND_SILENT: _background_silent,
    Kind.BACKUP_FAILED: _backup_failed,
    Kind.UPLOADS_FAIL: _uploads_fail,
}


def _reported(alert: Alert, otherwise: str, *, capital: bool = True) -> str:
    """What workers said of it, without its end; `otherwise`: for details without it."""
    text = str(alert.details.get("text") or otherwise)
    return text[:1].upper() + text[1:] if capital else text


def _workers(alert: Alert) -> str:
    count = int(alert.details.get("workers") or 0)
    return _count(count, "worker") if count else "the workers"


def _number(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) and value != int(value) else f"{int(str(value).split('.')[0]):,}"


def _length(seconds: float) -> str:
    """A duration with its two largest units, such as `2 h 5 min`."""
    left, parts = round(seconds), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def _minutes(details: Mapping[str, Any]) -> str:
    return _count(int(details.get("minutes", 5)), "minute")
