"""Pages of crawls parsed again, from the archive: by the parsers that they are for, or by another one.

The rule: what is found replaces what was found before only when it is applied, page by page, and only for the answer that was parsed.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.control.parse_diff import Change, Found, differences
from holdfast.control.parse_phase import CHANGES, CHUNK, EXAMPLES, Again, Example, Failure, Selection, Watch
from holdfast.crawler.extraction import failure_text, over_limits, read_archived
from holdfast.db import audit, domains, items, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.items import Due, PageKey, Parsed
from holdfast.errors import HoldfastError
from holdfast.items import queries as item_queries
from holdfast.items.queries import Archived
from holdfast.model.domain_name import canonical_domain
from holdfast.model.parse_result import ParseFailed
from holdfast.parse.plugin_pool import PluginPool
from holdfast.settings import Parsing

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class PageReparser:
    """Parses pages of crawls again."""

    database: Database
    runner: PluginPool
    archive: Path
    actor: str
    settings: Parsing
    registrable: bool = False
    examples: int = EXAMPLES

    async def again(self, selection: Selection, so_far: Again, watch: Watch = lambda _: None) -> Again:
        """Parse the selected pages again and add to `so_far` what differs; `watch` hears how far it is.

        Before: the selection is checked. After: with `so_far.applied`, the items of each page are those of now wherever the parse was
        good; all others are as they were.
        """
        left = None if selection.limit is None else selection.limit - so_far.parsed - so_far.failed
        with self.database.session() as connection:
            job_id = None if selection.job is None else jobs.find(connection, selection.job)
            domain_id = None
            if selection.domain is not None:
                domain_id = domains.id_of(connection, canonical_domain(selection.domain, registrable=self.registrable))
            before = so_far.different + so_far.first
            after: tuple[object, ...] = items.FIRST[:3]
            while left is None or left > 0:
                chunk = item_queries.archived(connection, after=after, limit=CHUNK, job_id=job_id, domain_id=domain_id)
                if not chunk:
                    break
                after = (chunk[-1].domain_id, chunk[-1].job_id, chunk[-1].url_key)
                wanted = [work for page in chunk for work in self._wanted(page, selection)][:left]
                for start in range(0, len(wanted), _AT_ONCE):
                    group = wanted[start : start + _AT_ONCE]
                    for done in await asyncio.gather(*(self._parse(due, url) for due, url in group)):
                        self._compare(connection, done, so_far)
                    watch(so_far)
                left = None if left is None else left - len(wanted)
            changed = so_far.different + so_far.first - before
            if so_far.applied and changed:
                what = selection.job or selection.domain or "all"
                details = {"pages": changed, "job": selection.job, "domain": selection.domain}
                audit.write(
                    connection, actor=self.actor, action="parse_again", kind="page", object_id=what, details=details
                )
        return so_far

    def _wanted(self, page: Archived, selection: Selection) -> Iterator[tuple[Due, str]]:
        """A page with each parser that is for it."""
        if page.ref is None or not selection.is_in_time(page.crawled_at):
            return
        own = page.job_parser or page.domain_parser
        parsers = [selection.by] if selection.by else [own] if own else list(page.parses)
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
        try:
            found = await self.runner.parse(parser, document)
        except OSError as problem:
            raise HoldfastError(f"No process for parsers could be started: {problem.strerror}.") from problem
        if isinstance(found, ParseFailed):
            return Parsed(page, document.url, None, error=failure_text(found), again=True)
        kept = found.extracted.page_items()
        if (problem_text := over_limits(kept, self.settings)) is not None:
            return Parsed(page, document.url, None, error=f"The parser {parser!r} {problem_text}", again=True)
        return Parsed(page, document.url, found, kept, again=True)

    def _compare(self, connection: Connection, one: Parsed, so_far: Again) -> None:
        if one.done is None:
            so_far.failed += 1
            if len(so_far.failures) < self.examples:
                so_far.failures.append(Failure(None, one.url, one.error or ""))
            return
        key = one.page.key
        known = item_queries.is_parsed(connection, key)
        changes = list(_differences(item_queries.of_page(connection, key), one.items)) if known else []
        if so_far.applied:
            item_queries.make_known(connection, [key])
            if not items.save(connection, [one], attempts=self.settings.attempts):
                so_far.taken += 1
                return
        so_far.parsed += 1
        if not known:
            so_far.first += 1
        elif not changes:
            so_far.same += 1
        else:
            so_far.different += 1
            for change in changes:
                so_far.tally.count(change)
            if len(so_far.examples) < self.examples:
                so_far.examples.append(Example(None, one.url, tuple(changes[:CHANGES]), len(changes)))


def _differences(old: list[dict[str, Any]], new: Any) -> Iterator[Change]:
    new = json.loads(json.dumps(new))
    return differences(Found({"items": old}, {}), Found({"items": new}, {}))
