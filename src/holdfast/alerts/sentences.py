"""Alerts in words: the cause with its number, and the next step.

The rule: every kind has its words here, for the command line and the dashboard. Details that an older server left out are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast.alerts.records import Alert, Kind
from holdfast.model import duration


@dataclass(frozen=True, slots=True)
class AlertText:
    """An alert in words."""

    cause: str
    """One sentence: what is wrong, with the number."""
    next_step: str
    """One sentence: what the operator can do."""


def describe(alert: Alert) -> AlertText:
    """Return an alert in words. The subject and details are as the store has them: a terminal or a page still has to escape them."""
    words = _WORDS.get(alert.kind)
    if words is None:  # of a newer server
        about = f" about {alert.subject}" if alert.subject else ""
        return AlertText(
            f"An alert of the kind {alert.kind}{about} with the value {alert.value:,.3g}.",
            "This version does not know the kind; use the version of the server.",
        )
    return words(alert)


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
        f"Worker {alert.subject}{host} sent no heartbeat for {duration.render(timedelta(seconds=round(alert.value)))}{holds}.",
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


def _backup_failed(alert: Alert) -> AlertText:
    why = str(alert.details.get("why") or "")
    if alert.subject == "backup":
        return AlertText(
            f"The last backup failed: {why or 'it is not known why.'}",
            "`holdfast backup` makes one when the cause is gone; `holdfast backup list` shows them.",
        )
    return AlertText(
        f"The log between backups is not kept: {why or 'it is not known why.'}",
        "Look at the disk of the backups (backup.folder); `holdfast backup list` shows which seconds can be restored.",
    )


_WORDS: Final[Mapping[str, Callable[[Alert], AlertText]]] = {
    Kind.ERROR_RATE: _error_rate,
    Kind.BACKLOG: _backlog,
    Kind.WORKER_SILENT: _worker_silent,
    Kind.FEW_PROXIES: _few_proxies,
    Kind.PROXIES_FAIL: _proxies_fail,
    Kind.BACKUP_FAILED: _backup_failed,
}


def _number(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) and value != int(value) else f"{int(str(value).split('.')[0]):,}"


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def _minutes(details: Mapping[str, Any]) -> str:
    return _count(int(details.get("minutes", 5)), "minute")
