"""Parsing stored pages again, from the archive: pages of completed tasks and of crawls, and how their results differ.

The rule: a new result replaces the old one only with `apply`, page by page, and only if the parse succeeded and the page was not fetched or
taken again meanwhile. Names and texts of results come from the web or a plug-in, so everything that is reported is bounded.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from holdfast.archive.reader import ArchiveReader
from holdfast.control.parse_phase import failure_line, read_page
from holdfast.crawler.extraction import failure_text, parsed_page, read_archived
from holdfast.db import audit, domains, items, jobs, parse_results
from holdfast.db.connection import Connection, Database
from holdfast.db.items import Due, PageKey, Parsed
from holdfast.db.parse_results import Result, ToParse
from holdfast.db.products import identity_key
from holdfast.errors import HoldfastError, StoreError, StoreUnavailable, UsageError
from holdfast.items import queries as item_queries
from holdfast.items.queries import Archived
from holdfast.model.domain_name import canonical_domain
from holdfast.model.parse_result import Document, ParseDone, ParseFailed, encode
from holdfast.parse.plugin_pool import PluginPool
from holdfast.settings import Parsing
from holdfast.tasks.queries import KIND

CHUNK: Final = 500
"""Pages that one statement reads."""
EXAMPLES: Final = 10
MAX_CHANGES: Final = 20
"""Changes of one page that are shown."""
MAX_VALUE: Final = 100
"""Characters of a value that are shown."""
MAX_FIELDS: Final = 200
"""Names of fields that are counted separately; further ones are counted together."""
OTHERS: Final = "(others)"
_MAX_PATH: Final = 200
_MISSING: Final = object()
_TASKS_AT_ONCE: Final = 4
_PAGES_AT_ONCE: Final = 8
_MAX_VERSION: Final = 100


# Differences ---------------------------------------------------------------------------------------------------------


class ChangeKind(StrEnum):
    """How a field differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs; its old and new value as JSON, shortened."""

    field: str
    kind: ChangeKind
    old: str | None = None
    new: str | None = None
    product: str | None = None
    """The name of the product that it belongs to, if it does."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a page as JSON values; products by their identity keys."""

    data: Mapping[str, Any]
    products: Mapping[bytes, Mapping[str, Any]]


@dataclass(slots=True)
class FieldCounts:
    """How often each field differs, by kind."""

    fields: dict[str, dict[ChangeKind, int]] = field(default_factory=dict)

    def count(self, change: Change) -> None:
        """Count one change."""
        name = change.field if change.field in self.fields or len(self.fields) < MAX_FIELDS else OTHERS
        kinds = self.fields.setdefault(name, dict.fromkeys(ChangeKind, 0))
        kinds[change.kind] += 1


def differences(old: Found, new: Found) -> Iterator[Change]:
    """Yield every field that differs: of the data, by its path; then products, and the fields of those that are in both."""
    yield from _field_changes(old.data, new.data, "")
    for key in (*old.products, *(key for key in new.products if key not in old.products)):
        was, now = old.products.get(key), new.products.get(key)
        if was is not None and now is not None:
            name = _shorten(str(now.get("name")))
            for change in _field_changes(was, now, "product."):
                yield Change(change.field, change.kind, change.old, change.new, name)
        elif was is not None:
            yield Change("product", ChangeKind.REMOVED, old=_as_json(was.get("name")))
        elif now is not None:
            yield Change("product", ChangeKind.ADDED, new=_as_json(now.get("name")))


def _field_changes(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    for name in (*old, *(name for name in new if name not in old)):
        was, now = old.get(name, _MISSING), new.get(name, _MISSING)
        where = f"{path}{name}"[:_MAX_PATH]
        if now is _MISSING:
            yield Change(where, ChangeKind.REMOVED, old=_as_json(was))
        elif was is _MISSING:
            yield Change(where, ChangeKind.ADDED, new=_as_json(now))
        elif isinstance(was, dict) and isinstance(now, dict):
            yield from _field_changes(was, now, f"{where}.")
        elif not _same(was, now):
            yield Change(where, ChangeKind.CHANGED, _as_json(was), _as_json(now))


def _same(was: object, now: object) -> bool:
    """Equal as JSON: true is not 1, though Python has it so; 1 and 1.0 are one number."""
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_same, was, now))
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(_same(value, now[name]) for name, value in was.items())
    return isinstance(was, bool) is isinstance(now, bool) and was == now


def _as_json(value: object) -> str:
    return _shorten(json.dumps(value, ensure_ascii=False))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


# Selection and report ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pages of completed tasks and of crawls are parsed again; None: all."""

    domain: str | None = None
    since: datetime | None = None
    """Fetched then or later; `until`: before then."""
    until: datetime | None = None
    parser: str | None = None
    """That parsed them the last time."""
    below: str | None = None
    """Parsed by a version before this one."""
    after: int = 0
    """Tasks with a higher id: where an earlier call ended."""
    limit: int | None = None
    job: str | None = None
    """Of crawls only: pages of this job."""
    use_parser: str | None = None
    """Of crawls only: parse by this parser instead of the pages' own."""

    @property
    def includes_tasks(self) -> bool:
        """Whether pages of tasks are selected, too."""
        return self.job is None and self.use_parser is None

    def check(self) -> None:
        """Raise UsageError if a value is invalid. Needs no database."""
        if any(time is not None and time.tzinfo is None for time in (self.since, self.until)):
            raise UsageError("A time is written with its time zone.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError("Nothing was fetched since a time and before an earlier one.")
        if self.below is not None and not 0 < len(self.below) <= _MAX_VERSION:
            raise UsageError(f"A version is a text of 1 to {_MAX_VERSION} characters.")
        if self.domain is not None:
            canonical_domain(self.domain)

    def matches(self, candidate: ToParse) -> bool:
        """Whether a task matches, apart from its domain."""
        task = candidate.task
        return (
            task.archive is not None
            and self.is_in_time(candidate.fetched_at)
            and (self.parser is None or task.parsed_by == self.parser)
            and self.is_below(task.parser_version)
        )

    def is_in_time(self, fetched_at: datetime) -> bool:
        """Whether a page that was fetched at this time matches."""
        return (self.since is None or fetched_at >= self.since) and (self.until is None or fetched_at < self.until)

    def is_below(self, version: str | None) -> bool:
        """Whether a page that this version parsed matches; None: no version did."""
        return self.below is None or version is None or _version_key(version) < _version_key(self.below)


def _version_key(version: str) -> list[tuple[int | str, ...]]:
    """The sort key of a version: numbers are compared as numbers, and a word after them comes before them (1.0rc1, 1.0, 1.0.1)."""
    parts = re.findall(r"[0-9]+|[^0-9.\-_+]+", version)
    return [*((2, int(part)) if part.isascii() and part.isdigit() else (0, part) for part in parts), (1,)]


@dataclass(frozen=True, slots=True)
class Example:
    """A page whose result differs: the first of its changes, and how many there are."""

    task_id: int | None
    """None: a page of a crawl; likewise below."""
    url: str
    changes: tuple[Change, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A page that cannot be parsed now. Its old result stays."""

    task_id: int | None
    url: str
    reason: str


@dataclass(slots=True)
class ReparseReport:
    """The progress and the result of parsing again."""

    applied: bool
    """False: nothing is written, and the report says what would differ."""
    last_id: int = 0
    """All tasks up to this one are done: another call continues after it."""
    max_examples: int = EXAMPLES
    parsed: int = 0
    """Pages, of which `same` have the same result, `different` another one, and `first` had none before."""
    same: int = 0
    different: int = 0
    first: int = 0
    failed: int = 0
    taken: int = 0
    """Tasks that were restarted, or pages that were fetched, meanwhile; they were left alone."""
    counts: FieldCounts = field(default_factory=FieldCounts)
    examples: list[Example] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add(self, task_id: int | None, url: str, changes: Sequence[Change] | None) -> None:
        """Count a parsed page; `changes` is None if it had no result before."""
        self.parsed += 1
        if changes is None:
            self.first += 1
        elif not changes:
            self.same += 1
        else:
            self.different += 1
            for change in changes:
                self.counts.count(change)
            if len(self.examples) < self.max_examples:
                self.examples.append(Example(task_id, url, tuple(changes[:MAX_CHANGES]), len(changes)))

    def fail(self, task_id: int | None, url: str, reason: str) -> None:
        """Count a page that cannot be parsed."""
        self.failed += 1
        if len(self.failures) < self.max_examples:
            self.failures.append(Failure(task_id, url, reason))


OnProgress = Callable[[ReparseReport], None]


async def _parse(pool: PluginPool, parser: str, document: Document) -> ParseDone | ParseFailed:
    try:
        return await pool.parse(parser, document)
    except OSError as problem:
        raise HoldfastError(f"No process for parsers could be started: {problem.strerror}.") from problem


# Tasks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskReparser:
    """Parses pages of completed tasks again."""

    database: Database
    pool: PluginPool
    archive: ArchiveReader
    actor: str
    """For the audit log."""
    registrable: bool = False

    async def run(
        self, selection: Selection, report: ReparseReport, on_progress: OnProgress = lambda _: None
    ) -> ReparseReport:
        """Parse the selected pages again, by their present parsers, and add to the report; `on_progress` is called after each group.

        Before: nothing. After: with `report.applied`, each page whose parse succeeded has its new result, replaced in a transaction of its
        own that leaves a row in the audit log if something differs; all others, and without it all, are as they were. If it is
        interrupted, another call continues after `last_id`.
        """
        selection.check()
        report.last_id = selection.after
        with self.database.session() as connection:
            domain_id = _domain_id(connection, selection, self.registrable)
            left = selection.limit
            while left is None or left > 0:
                chunk = parse_results.completed(connection, after=report.last_id, limit=CHUNK, domain_id=domain_id)
                if not chunk:
                    break
                wanted = [candidate for candidate in chunk if selection.matches(candidate)][:left]
                for start in range(0, len(wanted), _TASKS_AT_ONCE):
                    group = wanted[start : start + _TASKS_AT_ONCE]
                    await self._parse_group(connection, group, report)
                    report.last_id = group[-1].task.id
                    on_progress(report)
                left = None if left is None else left - len(wanted)
                if left != 0:
                    report.last_id = chunk[-1].task.id
        return report

    async def _parse_group(self, connection: Connection, group: list[ToParse], report: ReparseReport) -> None:
        results = await asyncio.gather(*map(self._parse, group))
        for one, done in zip(group, results, strict=True):
            if isinstance(done, str):
                report.fail(one.task.id, one.task.url, done)
            else:
                self._compare(connection, one, done, report)

    async def _parse(self, one: ToParse) -> ParseDone | str:
        """Return the result of a parse, or the reason of its failure."""
        try:
            document = await asyncio.to_thread(read_page, self.archive, one.task)
        except (HoldfastError, OSError) as problem:
            return str(problem)
        parsed = await _parse(self.pool, one.parser, document)
        return failure_line(parsed) if isinstance(parsed, ParseFailed) else parsed

    def _compare(self, connection: Connection, one: ToParse, done: ParseDone, report: ReparseReport) -> None:
        changes = _task_changes(parse_results.get(connection, one.task.id), done)
        if report.applied and not self._replace(connection, one, done, report, changed=changes != []):
            return
        report.add(one.task.id, one.task.url, changes)

    def _replace(
        self, connection: Connection, one: ToParse, done: ParseDone, report: ReparseReport, *, changed: bool
    ) -> bool:
        try:
            with connection.transaction():
                own = parse_results.replace(connection, one, done)
                if own and changed:
                    details = {
                        "was": [one.task.parsed_by, one.task.parser_version],
                        "is": [done.parser, done.version],
                    }
                    audit.write(
                        connection,
                        actor=self.actor,
                        action="parse_again",
                        kind=KIND,
                        object_id=one.task.id,
                        details=details,
                    )
        except StoreUnavailable:
            raise
        except StoreError as problem:
            report.fail(one.task.id, one.task.url, str(problem))
            return False
        report.taken += not own
        return own


def _task_changes(old: Result | None, done: ParseDone) -> list[Change] | None:
    """Return the changes of a result; None: there was none before."""
    if old is None:
        return None
    new = json.loads(encode(done.extracted))
    keys = map(identity_key, done.extracted.products)
    was = Found(old.data, dict(zip(old.product_keys, old.products, strict=True)))
    return list(differences(was, Found(done.extracted.record, dict(zip(keys, new["products"], strict=True)))))


def _domain_id(connection: Connection, selection: Selection, registrable: bool) -> int | None:
    if selection.domain is None:
        return None
    return domains.id_of(connection, canonical_domain(selection.domain, registrable=registrable))


# Crawls --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PageReparser:
    """Parses pages of crawls again, by the parsers that they are for, or by another one."""

    database: Database
    pool: PluginPool
    archive: ArchiveReader
    actor: str
    settings: Parsing
    registrable: bool = False

    async def run(
        self, selection: Selection, report: ReparseReport, on_progress: OnProgress = lambda _: None
    ) -> ReparseReport:
        """Parse the selected pages again and add to the report; `on_progress` is called after each group.

        Before: the selection is checked. After: with `report.applied`, each page whose parse succeeded has its new items; all others are
        as they were.
        """
        left = None if selection.limit is None else selection.limit - report.parsed - report.failed
        with self.database.session() as connection:
            job_id = None if selection.job is None else jobs.find(connection, selection.job)
            domain_id = _domain_id(connection, selection, self.registrable)
            before = report.different + report.first
            after: tuple[object, ...] = items.FIRST[:3]
            while left is None or left > 0:
                chunk = item_queries.archived(connection, after=after, limit=CHUNK, job_id=job_id, domain_id=domain_id)
                if not chunk:
                    break
                after = (chunk[-1].domain_id, chunk[-1].job_id, chunk[-1].url_key)
                wanted = [work for page in chunk for work in self._matching(page, selection)][:left]
                for start in range(0, len(wanted), _PAGES_AT_ONCE):
                    group = wanted[start : start + _PAGES_AT_ONCE]
                    for done in await asyncio.gather(*(self._parse(due, url) for due, url in group)):
                        self._compare(connection, done, report)
                    on_progress(report)
                left = None if left is None else left - len(wanted)
            changed = report.different + report.first - before
            if report.applied and changed:
                what = selection.job or selection.domain or "all"
                details = {"pages": changed, "job": selection.job, "domain": selection.domain}
                audit.write(
                    connection, actor=self.actor, action="parse_again", kind="page", object_id=what, details=details
                )
        return report

    def _matching(self, page: Archived, selection: Selection) -> Iterator[tuple[Due, str]]:
        """Yield a page with each parser that is for it."""
        if page.ref is None or not selection.is_in_time(page.crawled_at):
            return
        own = page.job_parser or page.domain_parser
        parsers = [selection.use_parser] if selection.use_parser else [own] if own else list(page.parses)
        if selection.parser is not None and selection.parser not in page.parses:
            return
        for parser in parsers:
            if selection.is_below(page.parses.get(parser)):
                yield Due(PageKey(page.domain_id, page.job_id, page.url_key, parser), page.ref), page.url or ""

    async def _parse(self, page: Due, url: str) -> Parsed:
        parser = page.key.parser
        try:
            document = await asyncio.to_thread(read_archived, self.archive, page)
        except (HoldfastError, OSError) as problem:
            return Parsed(page, url, None, error=str(problem), again=True)
        parsed = await _parse(self.pool, parser, document)
        if isinstance(parsed, ParseFailed):
            return Parsed(page, document.url, None, error=failure_text(parsed), again=True)
        return parsed_page(page, document.url, parsed, self.settings, again=True)

    def _compare(self, connection: Connection, one: Parsed, report: ReparseReport) -> None:
        if one.done is None:
            report.fail(None, one.url, one.error or "")
            return
        key = one.page.key
        known = item_queries.is_parsed(connection, key)
        changes = _item_changes(item_queries.of_page(connection, key), one.items) if known else None
        if report.applied:
            item_queries.make_known(connection, [key])
            if not items.save(connection, [one], attempts=self.settings.attempts):
                report.taken += 1
                return
        report.add(None, one.url, changes)


def _item_changes(old: list[dict[str, Any]], new: Any) -> list[Change]:
    new = json.loads(json.dumps(new))
    return list(differences(Found({"items": old}, {}), Found({"items": new}, {})))
