"""The log of a job in words: the sentences of its entries.

The rule: pure. An action or event that has no sentence here is shown by its name, with its details.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.jobs.queries.log import LogRow
from holdfast.jobs.records import JobEvent, JobEventKind

_STATE_ACTIONS: Final = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "delete": "deleted"}
_URL_ACTIONS: Final = frozenset({"add", "seed", "clear", "retry"})


def event(row: LogRow) -> JobEvent:
    """Return an entry of a job's log."""
    kind, text = _describe(row)
    return JobEvent(row.at, kind, text, row.actor, row.details)


def _describe(row: LogRow) -> tuple[JobEventKind, str]:
    details = row.details
    match row.source:
        case "made":
            seeds = f" with {_urls(details['seeds'], 'seed')}" if "seeds" in details else ""
            return JobEventKind.STATE, f"created{seeds}"
        case "crawl":
            limit = f", up to {details['max_pages']:,} pages" if details["max_pages"] and row.what == "began" else ""
            return JobEventKind.CRAWL, f"crawl {details['crawl']} {row.what}{limit}"
        case "worker":
            worker, status, error = details.get("worker"), details.get("status"), details.get("error")
            failed = f": {error or 'it failed'}" if status == "failed" else ""
            return JobEventKind.WORKER, f"worker {worker} {row.what}{failed}"
        case "job":
            reason = f": {details['reason']}" if details.get("reason") else ""
            what = "reopened" if row.what == "reopened" else f"{details.get('from')} → {details.get('to')}"
            return JobEventKind.STATE, f"{what}{reason}"
    return _audited(row.what, details)


def _audited(action: str, details: Mapping[str, Any]) -> tuple[JobEventKind, str]:
    """The kind and the sentence of an entry of the audit log."""
    if action in _STATE_ACTIONS:
        return JobEventKind.STATE, _STATE_ACTIONS[action]
    if action == "start":
        return JobEventKind.STATE, f"started by its schedule ({details.get('schedule')})"
    if action in _URL_ACTIONS:
        return JobEventKind.URLS, _of_urls(action, details)
    if action == "edit":
        changed = {name: "default" if value is None else value for name, value in details.items()}
        return JobEventKind.EDIT, f"edited: {_values(changed)}"
    if action == "schedule":
        when = details.get("schedule")
        return JobEventKind.EDIT, f"scheduled: {when}" if when else "not scheduled any more"
    if action == "secrets":
        return (
            JobEventKind.EDIT,
            f"sends {', '.join(details.get('secrets') or ()) or 'no secret'} to the sites of its seeds",
        )
    return JobEventKind.EDIT, f"{action}: {_values(details)}" if details else action


def _of_urls(action: str, details: Mapping[str, Any]) -> str:
    if action == "clear":
        domain = f" of {details['domain']}" if details.get("domain") else ""
        return f"waiting URLs{domain} were cleared"
    if action == "retry":
        which = _values({name: details.get(name) for name in ("reason", "state", "domain")})
        return f"{_urls(details.get('urls', 0))} retried{f' ({which})' if which else ''}"
    return f"{_urls(details.get('urls', 0), 'new URL')} added"


def _urls(count: int, thing: str = "URL") -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _values(details: Mapping[str, Any]) -> str:
    """`name value, name value`; what is null is left out."""
    return ", ".join(f"{name} {_value(value)}" for name, value in details.items() if value is not None)


def _value(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
