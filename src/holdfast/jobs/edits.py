"""Edits of an existing job: limits, request rate, parser and other options.

The rule: the edit itself is one short transaction, with the limits of the open crawl; running visits are notified, or read it within two
seconds. Its consequences for the job's domains follow in chunks and are idempotent: the same edit repeats them. Which URLs belong to a job
cannot be edited.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any, Final

from holdfast.db import audit, crawls, job_ends, jobs
from holdfast.db.connection import Connection
from holdfast.domains.service import KEYS as DOMAIN_KEYS
from holdfast.domains.service import read_assignments
from holdfast.errors import Changed, Refused, UsageError
from holdfast.jobs.crawls import CrawlService, check_parser
from holdfast.jobs.queries import actions
from holdfast.model.job import Job, JobKind, JobSpec, JobState

MAX_DEPTH: Final = 32_000
_LIMITS: Final = frozenset({"max_pages", "max_pages_per_domain", "rounds"})
_REASONS: Final = frozenset({"robots", "allow_private"})
"""Options that remove a reason why URLs were not crawled."""
_ENDED: Final = (JobState.COMPLETED, JobState.FAILED)
_DEFAULTS: Final = JobSpec()


def _optional(read: Callable[[str], object]) -> Callable[[str], object]:
    """A reader that takes an empty text for the default."""
    return lambda text: read(text) if text else None


def _depth(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_DEPTH:
        raise ValueError(f"must be a whole number from 0 to {MAX_DEPTH}, or empty")
    return int(text)


KEYS: Final[Mapping[str, Callable[[str], object]]] = {
    "max_pages": DOMAIN_KEYS["max_pages_per_run"],
    "max_pages_per_domain": DOMAIN_KEYS["max_pages_per_run"],
    "rounds": DOMAIN_KEYS["max_pages_per_run"],
    "max_depth": _optional(_depth),
    "delay": _optional(DOMAIN_KEYS["crawl_delay_seconds"]),
    "concurrency": _optional(DOMAIN_KEYS["max_concurrent_requests"]),
    "user_agent": DOMAIN_KEYS["user_agent"],
    "parser": DOMAIN_KEYS["parser_name"],
    "refresh": _optional(DOMAIN_KEYS["is_active"]),
    "robots": _optional(DOMAIN_KEYS["is_active"]),
    "allow_private": _optional(DOMAIN_KEYS["is_active"]),
    "archive": _optional(DOMAIN_KEYS["is_active"]),
    "text": _optional(DOMAIN_KEYS["is_active"]),
}
"""The options that can be edited, and how their values are read. None: the default."""
FIXED: Final = ("scope", "include", "exclude", "strip_params", "follow", "urls", "seeds")
"""The options that cannot be edited: they say which URLs belong to the job."""
ALL_KEYS: Final = ", ".join(KEYS)


def parse(words: Sequence[str]) -> dict[str, object]:
    """Parse `max_pages=500 delay=2 …` into fields of a spec and their values. Raises UsageError, naming the word."""
    check_names(word.partition("=")[0] for word in words)
    return read_assignments(words, KEYS, {}, what="a job", all_keys=ALL_KEYS)


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for an option that says which URLs belong to a job."""
    for name in names:
        if name in FIXED:
            raise UsageError(
                f"{name} cannot be edited: it says which URLs belong to the job. Make a new job (`holdfast jobs create`); URLs are added "
                "with `holdfast crawl URL --job NAME`."
            )


def edit(
    connection: Connection, job_id: int, changes: Mapping[str, object], version: int | None, *, actor: str
) -> tuple[list[str], str]:
    """Change fields of a job's spec; None: the default. With `version` only if it was not edited since, else Changed. Returns the names
    of what is different now, and the consequences as a sentence.

    After (with the commit): running visits apply it within two seconds; `follow_up` applies it to the job's domains.
    """
    check_names(changes)
    if not changes:
        raise UsageError(f"Say what to change: {ALL_KEYS}.")
    with connection.transaction():
        job, state = crawls.lock(connection, job_id)
        if job.kind is JobKind.TASKS:
            raise Refused(f"Job {job.name} is the one of all tasks, and each of them has its own settings.")
        if version is not None and version != job.settings_version:
            raise Changed(f"Job {job.name} was changed since: it is at version {job.settings_version}, not {version}.")
        values: dict[str, Any] = {
            name: getattr(_DEFAULTS, name) if value is None else value for name, value in changes.items()
        }
        spec = replace(job.spec, **values)
        check_parser(spec)
        changed = {name: value for name, value in values.items() if getattr(job.spec, name) != value}
        if changed:
            crawls.set_spec(connection, job_id, spec)
            crawls.set_limits(connection, job_id, spec)
            audit.write(connection, actor=actor, action="edit", kind="job", object_id=job_id, details=changed)
    return list(changed), _note(job, state, changes)


def follow_up(crawl_service: CrawlService, job_id: int, names: Collection[str]) -> None:
    """Apply an edit of these fields to the domains of the job. Takes longer the more there are; idempotent.

    After: work that a limit kept waiting can be claimed, and belongs to the crawl that it waited in: pages fetched so far count. A job
    that had ended continues if the edit gave it something to do.
    """
    with crawl_service.database.session() as connection:
        spec = crawls.get(connection, job_id).spec
        if "max_depth" in names:
            actions.raise_depth_limit(connection, job_id, crawl_service.depth(spec))
        if "refresh" in names and spec.refresh:
            actions.make_refresh_due(connection, job_id)
        if not _LIMITS.isdisjoint(names):
            crawls.reopen_limited(connection, job_id)
    if not _REASONS.isdisjoint(names):
        crawl_service.retry(job_id)
    with crawl_service.database.session() as connection:
        if jobs.state(connection, job_id) in _ENDED and job_ends.can_continue(connection, job_id):
            jobs.reopen(connection, job_id, f"it was edited: {', '.join(sorted(names))}")
            crawls.begin(connection, job_id, reopen=True)


def _note(job: Job, state: JobState, names: Collection[str]) -> str:
    name = quote(job.name)
    if state is JobState.CANCELLED:
        return f"It stays cancelled; `holdfast crawl --job {name} --again` starts it again."
    if state is JobState.PAUSED:
        return f"It stays paused; `holdfast jobs resume {name}` goes on with it."
    if state in _ENDED:
        return f"It is {state}; workers go on with it if the edit lets them crawl URLs that it had left out, under the same crawl."
    if job.crawl_id is None and not _LIMITS.isdisjoint(names):
        return "Workers go on with what a limit kept waiting, under the same crawl: its pages so far count."
    return "Visits under way go by it within two seconds."
