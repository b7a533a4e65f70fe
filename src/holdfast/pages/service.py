"""Pages: list, all facts of one, purge."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.control.listings import read_page
from holdfast.db import audit, domains, jobs
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import NotFound, UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DEFAULT_RULES, UrlRules
from holdfast.pages import queries
from holdfast.pages.queries import Purge
from holdfast.pages.records import CrawledPage, PageCount, PageFacts, PageFilter

KIND: Final = "pages"


@dataclass(frozen=True, slots=True)
class PageService:
    """The pages of one database."""

    database: Database
    rules: UrlRules = DEFAULT_RULES
    registrable: bool = False

    def page(
        self, where: PageFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[CrawledPage]:
        """Return one page of the list of last responses; `after` is the `next` of the page before. Raises UsageError, NotFound."""
        return read_page(self.database, queries.PAGES, where, order, after, limit, registrable=self.registrable)

    def facts(self, url: str, job: str | int | None = None) -> list[PageFacts]:
        """Return what each job, or one, knows of a URL, the newest response first. Raises NotFound if none has discovered it."""
        seed = make_seed(url, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            found = queries.facts(connection, domains.id_of(connection, seed.domain), seed.url_key, job_id)
        if not found:
            raise NotFound(f"{seed.url} is not in the frontier; `holdfast explain {seed.url}` may know why.")
        return found

    def check_purge(
        self,
        job: str | int | None = None,
        domain: str | None = None,
        before: datetime | None = None,
        *,
        everything: bool = False,
    ) -> dict[str, Any]:
        """Return the arguments of `purge` as JSON: a job by its id, a domain by its name, and always a time, so that the same order
        means the same pages when it is executed later, or twice. Raises NotFound, UsageError."""
        _check_time(before)
        if not everything and job is None and domain is None and before is None:
            raise UsageError("Name a job, a domain or a time (`before`); `?confirm=all` forgets all pages of all jobs.")
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            name = None if domain is None else self._canonical(domain)
            if name is not None:
                domains.id_of(connection, name)
            now = jobs.now(connection)
        return {"job": job_id, "domain": name, "before": min(before or now, now).isoformat()}

    def count_purge(
        self, job: str | int | None = None, domain: str | None = None, before: datetime | None = None
    ) -> PageCount:
        """Count the pages that `purge` would delete: exactly up to 100 000. Raises NotFound, UsageError."""
        _check_time(before)
        with self.database.session() as connection:
            job_id = None if job is None else jobs.id_of(connection, job)
            domain_id = None if domain is None else domains.id_of(connection, self._canonical(domain))
            until = before or jobs.now(connection)
            return queries.count_purge(connection, job_id=job_id, domain_id=domain_id, before=until)

    def purge(
        self,
        *,
        actor: str,
        job: str | int | None = None,
        domain: str | None = None,
        before: datetime | None = None,
        watch: Callable[[int], None] = lambda _: None,
    ) -> Purge:
        """Purge pages and their texts: of a job, of a domain, fetched before a time, or all that there are now.

        After: they are deleted, except those that their domain's holder is about to fetch again; their URLs stay done; log, counters
        and archive are unchanged. `watch` is called after each step with the number of pages so far; if it is killed in between,
        another call deletes the rest.
        """
        _check_time(before)
        with self.database.session() as connection:
            with connection.transaction():
                job_id = None if job is None else jobs.id_of(connection, job)
                domain_id = None if domain is None else domains.id_of(connection, self._canonical(domain))
                order = queries.order_purge(connection, job_id=job_id, domain_id=domain_id, before=before)
                details = {"job": job_id, "domain": domain, "before": order.before.isoformat()}
                audit.write(connection, actor=actor, action="purge", kind=KIND, object_id=order.id, details=details)
            while queries.purge(connection, order):
                watch(order.forgotten)
        watch(order.forgotten)
        return order

    def _canonical(self, name: str) -> str:
        return canonical_domain(name, registrable=self.registrable)


def _check_time(before: datetime | None) -> None:
    if before is not None and before.tzinfo is None:
        raise UsageError("A time is written with its time zone.")
