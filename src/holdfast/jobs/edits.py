"""Edits of an existing job: its rules, limits, request rate, parser and other options.

The rule: the edit itself is one short transaction, with the limits of the open crawl; running visits are notified, or read it within two
seconds. Its consequences for the job's domains follow in chunks and are idempotent: the same edit repeats them. An edit of the rules (which
URLs belong to the job) is a new version of them, which can be undone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final

from holdfast.db import audit, crawls, job_ends, job_rules, jobs, judging
from holdfast.db.connection import Connection
from holdfast.domains.service import KEYS as DOMAIN_KEYS
from holdfast.domains.service import read_assignments
from holdfast.errors import Changed, Refused, UsageError
from holdfast.jobs.crawls import CrawlService, check_parser
from holdfast.jobs.queries import actions, scope_preview
from holdfast.jobs.records import ScopePreview
from holdfast.model.content_type import ContentGroup, read_groups
from holdfast.model.domain_name import SiteCache
from holdfast.model.job import Job, JobKind, JobSpec, JobState, Scope, Sitemaps
from holdfast.model.scope import RULES, RuleSettings, compile_rules, rules_of_spec, spec_with_rules

MAX_DEPTH: Final = 32_000
_LIMITS: Final = frozenset({"max_pages", "max_pages_per_domain", "rounds"})
_REASONS: Final = frozenset({"robots", "allow_private", "types"})
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


def _scope(text: str) -> Scope:
    if text not in set(Scope):
        raise ValueError(f"must be {', '.join(Scope)} or empty")
    return Scope(text)


def _sitemaps(text: str) -> Sitemaps:
    if text not in set(Sitemaps):
        raise ValueError(f"must be {', '.join(Sitemaps)} or empty")
    return Sitemaps(text)


def _types(text: str) -> tuple[ContentGroup, ...]:
    try:
        return read_groups(text)
    except ValueError as problem:
        raise ValueError(f"must be groups of types with commas between them, or empty: {problem}") from None


def _pattern(text: str) -> tuple[str, ...]:
    return (text,)


KEYS: Final[Mapping[str, Callable[[str], object]]] = {
    "scope": _optional(_scope),
    "include": _optional(_pattern),
    "exclude": _optional(_pattern),
    "max_pages": DOMAIN_KEYS["max_pages_per_run"],
    "max_pages_per_domain": DOMAIN_KEYS["max_pages_per_run"],
    "rounds": DOMAIN_KEYS["max_pages_per_run"],
    "max_depth": _optional(_depth),
    "delay": _optional(DOMAIN_KEYS["crawl_delay_seconds"]),
    "concurrency": _optional(DOMAIN_KEYS["max_concurrent_requests"]),
    "user_agent": DOMAIN_KEYS["user_agent"],
    "parser": DOMAIN_KEYS["parser_name"],
    "refresh": _optional(DOMAIN_KEYS["is_active"]),
    "sitemaps": _optional(_sitemaps),
    "images": _optional(DOMAIN_KEYS["is_active"]),
    "markdown": _optional(DOMAIN_KEYS["is_active"]),
    "links": _optional(DOMAIN_KEYS["is_active"]),
    "check_external": _optional(DOMAIN_KEYS["is_active"]),
    "types": _optional(_types),
    "robots": _optional(DOMAIN_KEYS["is_active"]),
    "allow_private": _optional(DOMAIN_KEYS["is_active"]),
    "archive": _optional(DOMAIN_KEYS["is_active"]),
    "text": _optional(DOMAIN_KEYS["is_active"]),
}
"""The options that can be edited, and how their values are read. None: the default."""
FIXED: Final[Mapping[str, str]] = {
    "strip_params": "URLs are stored as it left them",
    "follow": "links of pages that were fetched without it are not stored",
    "urls": "they are where the job begins",
    "seeds": "they are where the job begins",
}
"""The options that cannot be edited, and why."""
ALL_KEYS: Final = ", ".join(KEYS)
_PATTERNS: Final = ("include", "exclude")
"""Keys that may be given several times, once for each pattern."""


def parse(words: Sequence[str]) -> dict[str, object]:
    """Parse `max_pages=500 exclude=/a/ exclude=/b/ …` into fields of a spec and their values. Raises UsageError, naming the word."""
    check_names(word.partition("=")[0] for word in words)
    patterns: dict[str, tuple[str, ...]] = {}
    others = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in _PATTERNS:
            patterns[key] = patterns.get(key, ()) + ((value.strip(),) if value.strip() else ())
        else:
            others.append(word)
    changes: dict[str, object] = {}
    if others or not patterns:
        changes = read_assignments(others, KEYS, {}, what="a job", all_keys=ALL_KEYS)
    return changes | patterns


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for an option that cannot be edited."""
    for name in names:
        if name in FIXED:
            raise UsageError(
                f"{name} cannot be edited: {FIXED[name]}. Make a new job (`holdfast jobs create`); URLs are added with "
                "`holdfast crawl URL --job NAME`."
            )


def edit(
    connection: Connection,
    job_id: int,
    changes: Mapping[str, object],
    version: int | None,
    *,
    actor: str,
    settings: RuleSettings,
) -> tuple[list[str], str]:
    """Change fields of a job's spec; None: the default. With `version` only if it was not edited since, else Changed. Returns the names
    of what is different now, and the consequences as a sentence.

    After (with the commit): running visits apply it within two seconds; `follow_up` applies it to the job's domains.
    """
    check_names(changes)
    if not changes:
        raise UsageError(f"Say what to change: {ALL_KEYS}.")
    with connection.transaction():
        job, state = _lock(connection, job_id, version)
        spec = changed_spec(job.spec, changes)
        changed = {name: getattr(spec, name) for name in changes if getattr(job.spec, name) != getattr(spec, name)}
        if changed:
            if rules_of_spec(spec) == rules_of_spec(job.spec):
                crawls.set_spec(connection, job_id, spec)
            else:
                job_rules.add_version(connection, job, spec, actor=actor, settings=settings)
            crawls.set_limits(connection, job_id, spec)
            audit.write(connection, actor=actor, action="edit", kind="job", object_id=job_id, details=changed)
    return list(changed), _note(job, state, changes, changed)


def undo(
    connection: Connection, job_id: int, version: int | None, *, actor: str, settings: RuleSettings
) -> tuple[list[str], str]:
    """Restore the rules that a job had before the last edit of them; Refused if none is left to undo. `version` and the result: as of
    `edit`.

    After (with the commit): as after `edit`; `follow_up` returns the URLs that the edit removed. Pages that were crawled stay.
    """
    with connection.transaction():
        job, state = _lock(connection, job_id, version)
        target = job_rules.undoes_to(job_rules.history(connection, job_id))
        if target is None:
            raise Refused(f"The rules of job {job.name} are those that it was created with: there is no edit to undo.")
        before, spec = rules_of_spec(job.spec), spec_with_rules(job.spec, target.rules)
        changed = [name for name, value in target.rules.items() if before[name] != value]
        job_rules.add_version(connection, job, spec, actor=actor, settings=settings, restores=target.version)
        details = {"restores": target.version, **{name: target.rules[name] for name in changed}}
        audit.write(connection, actor=actor, action="undo_scope", kind="job", object_id=job_id, details=details)
    return changed, _note(job, state, changed, changed)


@dataclass(frozen=True, slots=True)
class ScopeEdit:
    """An edit of the rules of a job, as the key of its preview."""

    job_id: int
    version: int
    """The settings of the job that it was made for."""
    changes: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, job_id: int, version: int, changes: Mapping[str, object]) -> "ScopeEdit":
        """The key of an edit."""
        hashable = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
        return cls(job_id, version, tuple(sorted(hashable.items())))

    def as_changes(self) -> dict[str, object]:
        """The edit, as `preview` takes it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.changes}


def preview(
    connection: Connection,
    job_id: int,
    changes: Mapping[str, object],
    *,
    settings: RuleSettings,
    estimated: bool = False,
) -> ScopePreview:
    """Count the URLs of a job that an edit of its rules would remove and return. Reads all of its waiting URLs, up to a million; with
    `estimated` only a sample."""
    check_names(changes)
    if not changes or not changes.keys() <= set(RULES):
        raise UsageError(f"Only an edit of the rules can be previewed: give one or more of {', '.join(RULES)}.")
    job = crawls.get(connection, job_id)
    spec = changed_spec(job.spec, changes)
    depth = settings.max_depth if spec.max_depth is None else spec.max_depth
    sites = SiteCache(registrable=settings.registrable)
    rules = judging.RulesInForce(job.rules_version + 1, compile_rules(spec), depth, sites)
    count = scope_preview.estimate if estimated else scope_preview.preview
    return count(connection, job_id, rules)


def changed_spec(spec: JobSpec, changes: Mapping[str, object]) -> JobSpec:
    """The spec with these fields changed; None: the default. Raises UsageError for what cannot be: a pattern, a parser."""
    values: dict[str, Any] = {
        name: getattr(_DEFAULTS, name) if value is None else value for name, value in changes.items()
    }
    changed = JobSpec.from_json(spec.as_json() | values)
    compile_rules(changed)
    check_parser(changed)
    return changed


def _lock(connection: Connection, job_id: int, version: int | None) -> tuple[Job, JobState]:
    """Lock a job to edit it. Raises Changed if it is not at `version`."""
    job, state = crawls.lock(connection, job_id)
    if job.kind is JobKind.TASKS:
        raise Refused(f"Job {job.name} is the one of all tasks, and each of them has its own settings.")
    if version is not None and version != job.settings_version:
        raise Changed(f"Job {job.name} was changed since: it is at version {job.settings_version}, not {version}.")
    return job, state


def follow_up(crawl_service: CrawlService, job_id: int, names: Collection[str]) -> None:
    """Apply an edit of these fields to the domains of the job. Takes longer the more there are; idempotent.

    After: work that a limit kept waiting can be claimed, and belongs to the crawl that it waited in: pages fetched so far count. A job
    that had ended continues if the edit gave it something to do.
    """
    with crawl_service.database.session() as connection:
        spec = crawls.get(connection, job_id).spec
        if not set(RULES).isdisjoint(names):
            judge_all(connection, job_id)
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


def judge_all(connection: Connection, job_id: int) -> None:
    """Judge the URLs of a job by its present rules, if that is not done yet. If it is interrupted, the sweep of a worker completes it."""
    for step in (job_rules.judge_domains, jobs.unpark):
        while step(connection, job_id) is not None:
            pass


def _note(job: Job, state: JobState, names: Collection[str], changed: Collection[str]) -> str:
    name = quote(job.name)
    rules = (
        ""
        if set(RULES).isdisjoint(changed)
        else f" `holdfast jobs undo-scope {name}` takes back the edit of its rules."
    )
    return f"{_consequence(job, state, names, name)}{rules}"


def _consequence(job: Job, state: JobState, names: Collection[str], name: str) -> str:
    if state is JobState.CANCELLED:
        return f"It stays cancelled; `holdfast crawl --job {name} --again` starts it again."
    if state is JobState.PAUSED:
        return f"It stays paused; `holdfast jobs resume {name}` goes on with it."
    if state in _ENDED:
        return f"It is {state}; workers go on with it if the edit lets them crawl URLs that it had left out, under the same crawl."
    if job.crawl_id is None and not _LIMITS.isdisjoint(names):
        return "Workers go on with what a limit kept waiting, under the same crawl: its pages so far count."
    return "Visits under way go by it within two seconds."
