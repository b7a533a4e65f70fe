"""Pages, one by one with all that is known of them, and forgotten when people say so. Lists of them are in `control/listings`."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.db import audit, domains, jobs
from holdfast.db.connection import Connection, Database
from holdfast.errors import NotFound, UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DEFAULT_RULES, UrlRules
from holdfast.pages import queries as pages
from holdfast.pages.queries import PageFacts, Purge

KIND: Final = "pages"


@dataclass(frozen=True, slots=True)
class PageService:
    """The pages of one store."""

    database: Database
    rules: UrlRules = DEFAULT_RULES
    registrable: bool = False

    def facts(self, url: str, job: str | int | None = None) -> list[PageFacts]:
        """What each job, or one, knows of a URL, the newest answer first. Raises NotFound if none has met it."""
        seed = make_seed(url, rules=self.rules, registrable=self.registrable)
        with self.database.session() as connection:
            job_id = None if job is None else _job(connection, job)
            found = pages.facts(connection, domains.id_of(connection, seed.domain), seed.url_key, job_id)
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
        """What `purge` is to be given, in words that JSON has: a job by its id, a domain by its name, and a time in any case, so that
        the same order means the same pages when it is carried out later, or twice. Raises NotFound, UsageError."""
        _check(before)
        if not everything and job is None and domain is None and before is None:
            raise UsageError("Name a job, a domain or a time (`before`); `?confirm=all` forgets all pages of all jobs.")
        with self.database.session() as connection:
            job_id = None if job is None else _job(connection, job)
            name = None if domain is None else self._canonical(domain)
            if name is not None:
                domains.id_of(connection, name)
            now = jobs.now(connection)
        return {"job": job_id, "domain": name, "before": min(before or now, now).isoformat()}

    def purge(
        self,
        *,
        actor: str,
        job: str | int | None = None,
        domain: str | None = None,
        before: datetime | None = None,
        watch: Callable[[int], None] = lambda _: None,
    ) -> Purge:
        """Forget pages and their texts: of a job, of a domain, fetched before a time, or all that there are now; how many.

        Their URLs stay done, and the log, the counters and the archive are as they were. A page that its domain's holder is about to
        fetch once more stays. `watch` hears after each step how many have gone; killed in between, another call does the rest.
        """
        _check(before)
        with self.database.session() as connection:
            with connection.transaction():
                job_id = None if job is None else _job(connection, job)
                domain_id = None if domain is None else domains.id_of(connection, self._canonical(domain))
                order = pages.order_purge(connection, job_id=job_id, domain_id=domain_id, before=before)
                details = {"job": job_id, "domain": domain, "before": order.before.isoformat()}
                audit.write(connection, actor=actor, action="purge", kind=KIND, object_id=order.id, details=details)
            while pages.purge(connection, order):
                watch(order.forgotten)
        watch(order.forgotten)
        return order

    def _canonical(self, name: str) -> str:
        return canonical_domain(name, registrable=self.registrable)


def _check(before: datetime | None) -> None:
    if before is not None and before.tzinfo is None:
        raise UsageError("A time is written with its time zone.")


def _job(connection: Connection, named: str | int) -> int:
    if isinstance(named, int):
        jobs.state(connection, named)  # raises NotFound
        return named
    return jobs.find(connection, named)
