"""Edits of a job that exists: limits, pace, parser and the like.

The rule: the edit itself is one short transaction, with the limits of the open crawl; visits under way hear of it by notice or within
two seconds. What follows from it for the job's domains goes in chunks behind it and may be done again: the same edit repeats it. Which
URLs belong to a job cannot be edited.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Final

from holdfast.db import audit, crawls, jobs
from holdfast.db.connection import Connection
from holdfast.domains.service import KEYS as DOMAIN_KEYS
from holdfast.domains.service import read_assignments
from holdfast.errors import Changed, Refused, UsageError
from holdfast.jobs.crawls import CrawlService, check_parser
from holdfast.model.job import Job, JobKind, JobSpec, JobState

DEEPEST: Final = 32_000
_LIMITS: Final = frozenset({"max_pages", "max_pages_per_domain", "rounds"})
_CAUSES: Final = frozenset({"robots", "allow_private"})
"""Options that remove a reason why URLs were not crawled."""
_ENDED: Final = (JobState.COMPLETED, JobState.FAILED)
_USUAL: Final = JobSpec()


def _perhaps(read: Callable[[str], object]) -> Callable[[str], object]:
    """Empty: as for a job that says nothing of it."""
    return lambda text: read(text) if text else None


def _depth(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > DEEPEST:
        raise ValueError(f"must be a whole number from 0 to {DEEPEST}, or empty")
    return int(text)


KEYS: Final[Mapping[str, Callable[[str], object]]] = {
    "max_pages": DOMAIN_KEYS["max_pages_per_run"],
    "max_pages_per_domain": DOMAIN_KEYS["max_pages_per_run"],
    "rounds": DOMAIN_KEYS["max_pages_per_run"],
    "max_depth": _perhaps(_depth),
    "delay": _perhaps(DOMAIN_KEYS["crawl_delay_seconds"]),
    "concurrency": _perhaps(DOMAIN_KEYS["max_concurrent_requests"]),
    "user_agent": DOMAIN_KEYS["user_agent"],
    "parser": DOMAIN_KEYS["parser_name"],
    "refresh": _perhaps(DOMAIN_KEYS["is_active"]),
    "robots": _perhaps(DOMAIN_KEYS["is_active"]),
    "allow_private": _perhaps(DOMAIN_KEYS["is_active"]),
    "archive": _perhaps(DOMAIN_KEYS["is_active"]),
    "text": _perhaps(DOMAIN_KEYS["is_active"]),
}
"""What can be edited, and how its value is read. None: as for a job that says nothing of it."""
FIXED: Final = ("scope", "include", "exclude", "strip_params", "follow", "urls", "seeds")
"""What cannot: it says which URLs belong to the job."""
ALL_KEYS: Final = ", ".join(KEYS)


@dataclass(frozen=True, slots=True)
class Edited:
    """A job that was edited."""

    job_id: int
    name: str
    version: int
    changed: tuple[str, ...]
    """The names of what is different now."""
    note: str
    """What follows, for people."""


def parse(words: Sequence[str]) -> dict[str, object]:
    """`max_pages=500 delay=2 …` as fields of a spec and their values. Raises UsageError, naming the word."""
    check_names(word.partition("=")[0] for word in words)
    return read_assignments(words, KEYS, {}, what="a job", all_keys=ALL_KEYS)


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for one that says which URLs belong to a job."""
    for name in names:
        if name in FIXED:
            raise UsageError(
                f"{name} cannot be edited: it says which URLs belong to the job. Make a new job (`holdfast jobs create`); URLs are added "
                "with `holdfast crawl URL --job NAME`."
            )


def edit(
    connection: Connection, job_id: int, changes: Mapping[str, object], version: int | None, *, actor: str
) -> Edited:
    """Change fields of a job's spec; None: as for a job that says nothing of it. With `version` only if nobody edited it since, else
    Changed. After (with the commit): visits under way go by it within two seconds; `follow_up` does what follows for its domains."""
    check_names(changes)
    if not changes:
        raise UsageError(f"Say what to change: {ALL_KEYS}.")
    with connection.transaction():
        job, state = crawls.lock(connection, job_id)
        if job.kind is JobKind.TASKS:
            raise Refused(f"Job {job.name} is the one of all tasks, and each of them has its own settings.")
        if version is not None and version != job.settings_version:
            raise Changed(f"Job {job.name} was changed since: it is at version {job.settings_version}, not {version}.")
        given: dict[str, Any] = {
            name: getattr(_USUAL, name) if value is None else value for name, value in changes.items()
        }
        spec = replace(job.spec, **given)
        check_parser(spec)
        changed = {name: value for name, value in given.items() if getattr(job.spec, name) != value}
        if changed:
            crawls.set_spec(connection, job_id, spec)
            crawls.set_limits(connection, job_id, spec)
            audit.write(connection, actor=actor, action="edit", kind="job", object_id=job_id, details=changed)
        after = crawls.get(connection, job_id)
    return Edited(job_id, job.name, after.settings_version, tuple(changed), _note(job, state, changes))


def follow_up(desk: CrawlService, job_id: int, names: Collection[str]) -> None:
    """Do what follows from an edit of these fields for the domains of the job. Takes as long as they are many; doing it twice changes
    nothing.

    After: what a limit kept waiting can be claimed, and belongs to the crawl that it waited in: what was fetched so far counts. A job that
    had ended goes on if the edit gave it something to do.
    """
    with desk.database.session() as connection:
        spec = crawls.get(connection, job_id).spec
        if "max_depth" in names:
            crawls.raise_depth_limit(connection, job_id, desk.depth(spec))
        if "refresh" in names and spec.refresh:
            crawls.make_refresh_due(connection, job_id)
        if not _LIMITS.isdisjoint(names):
            crawls.reopen_limited(connection, job_id)
    if not _CAUSES.isdisjoint(names):
        desk.retry(job_id)
    with desk.database.session() as connection:
        if jobs.state(connection, job_id) in _ENDED and crawls.can_continue(connection, job_id):
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
