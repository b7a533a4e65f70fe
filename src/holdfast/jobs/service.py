"""Jobs: looked at, made, edited, paused, resumed, cancelled, deleted.

The rule: pausing and cancelling are a state in the store. Workers hear of it, commit, and let go; a crash takes the same way.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.db import audit, jobs, operator_reports, retry_now
from holdfast.db import crawls as store_crawls
from holdfast.db.connection import Connection, Database
from holdfast.errors import NotFound, Refused
from holdfast.jobs import edits as job_edits
from holdfast.jobs.crawls import CrawlService, Wish
from holdfast.jobs.edits import Edited
from holdfast.jobs.seed_import import Loaded
from holdfast.jobs.summary import CrawlSummary, stands
from holdfast.model.job import Job, JobAction, JobState
from holdfast.model.request_secrets import RequestSecrets
from holdfast.model.schedule import parse

Watch = Callable[[int], None]
"""Told how many domains were made ready, or URLs forgotten, so far."""


def _unwatched(_: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new job."""

    job: Job
    loaded: Loaded
    """What became of its seeds."""


@dataclass(frozen=True, slots=True)
class JobService:
    """The jobs of one store, for one person or program."""

    database: Database
    actor: str
    """Who does it, for the audit log."""

    def all(self) -> list[dict[str, Any]]:
        """Every job, with what there is to do and what was done."""
        with self.database.session() as connection:
            return operator_reports.jobs(connection)

    def some(self, job_ids: Collection[int]) -> list[dict[str, Any]]:
        """Those of these jobs that there are, by id."""
        with self.database.session() as connection:
            return operator_reports.jobs(connection, list(job_ids))

    def show(self, text: str | int) -> dict[str, Any]:
        """One job, by its name or id."""
        with self.database.session() as connection:
            found = operator_reports.jobs(connection, [_id(connection, text)])
        if not found:
            raise NotFound(f"There is no job called {text!r} any more.")
        return found[0]

    def summary(self, text: str | int) -> CrawlSummary:
        """How one job stands: URLs not crawled by reason, what waits until when, and the next step. Goes over all of its URLs."""
        with self.database.session() as connection:
            job_id = _id(connection, text)
            state = jobs.state(connection, job_id)
            return stands(connection, store_crawls.get(connection, job_id), completed=state is JobState.COMPLETED)

    def create(
        self, crawls: CrawlService, wish: Wish, watch: Callable[[Loaded], None], schedule: str | None = None
    ) -> Made:
        """Make a job without working on it. Refused if there is one of that name."""
        if schedule is not None:
            parse(schedule)  # what is none is refused before anything is made
        crawls.check_seeds(wish)
        name = wish.job or ""
        with self.database.session() as connection:
            if jobs.is_named(connection, name):
                raise Refused(f"There is a job called {name!r} already.")
        made = crawls.make(wish, watch)
        job, loaded = made.job, made.loaded
        if made.known:  # it was made by another process in this moment
            raise Refused(f"There is a job called {name!r} already.")
        crawls.retry(job.id)
        with self.database.session() as connection, connection.transaction():
            facts: dict[str, object] = {"name": job.name, "seeds": loaded.seeds}
            if wish.secrets:
                facts["secrets"] = [name for text in wish.secrets.texts() for name in text.names]
            self._record(connection, "create", job.id, facts)
        if schedule is not None:
            self.schedule(job.id, schedule)
        return Made(job, loaded)

    def schedule(self, text: str | int, when: str | None) -> datetime | None:
        """Crawl a job again and again, by an interval or a cron expression; when it begins the next time. None: no longer."""
        schedule = parse(when) if when is not None else None
        with self.database.session() as connection, connection.transaction():
            job_id = _id(connection, text)
            jobs.check_schedulable(connection, job_id)
            following = schedule.next_after(jobs.now(connection)) if schedule is not None else None
            jobs.set_schedule(connection, job_id, str(schedule) if schedule is not None else None, following)
            self._record(connection, "schedule", job_id, {"schedule": str(schedule) if schedule is not None else None})
        return following

    def edit(self, text: str | int, changes: Mapping[str, object], version: int | None = None) -> Edited:
        """Change limits, pace, parser and the like (see `job_edits`), also for visits under way; `follow_up` is the other half."""
        with self.database.session() as connection:
            return job_edits.edit(connection, _id(connection, text), changes, version, actor=self.actor)

    def give_secrets(self, crawls: CrawlService, job_id: int, secrets: RequestSecrets) -> list[str]:
        """Change the headers, cookies and credentials of a job, also for visits under way; the names of those that it has.

        Domains of the job that want a login are tried again, and the job goes on for it if it had ended: the reason may be removed.
        """
        assert crawls.sealer is not None  # noqa: S101 — made with one wherever secrets are taken
        with self.database.session() as connection, connection.transaction():
            names = crawls.sealer.give_job(connection, job_id, secrets, ())
            self._record(connection, "secrets", job_id, {"secrets": names})
            retries = bool(secrets.texts()) and retry_now.wants_login(connection, job_id)
            if retries:
                jobs.reopen(connection, job_id, "it was given a header, a cookie or a password")
                jobs.ask_for_crawl(connection, [job_id])
        if retries:
            crawls.retry(job_id, logged_in=True)
        return names

    def pause(self, text: str | int) -> jobs.Acted:
        """Nothing of it is fetched any more, a second or two from now. Resuming goes on where it was."""
        return self._act(text, JobAction.PAUSE)

    def cancel(self, text: str | int) -> jobs.Acted:
        """It ends where it is. What it found stays."""
        return self._act(text, JobAction.CANCEL)

    def resume(self, text: str | int, watch: Watch = _unwatched) -> jobs.Acted:
        """Any worker goes on with it. What this cannot finish, the next sweep of a worker does."""
        acted = self.let_go_on(text)
        self.unpark(acted.job_id, watch)
        return acted

    def let_go_on(self, text: str | int) -> jobs.Acted:
        """The first half of `resume`, which is short: `unpark` is the other."""
        return self._act(text, JobAction.RESUME)

    def unpark(self, job_id: int, watch: Watch = _unwatched) -> None:
        """Make ready what was put aside while a job was paused. Takes as long as that is much."""
        self._step(jobs.unpark, job_id, watch)

    def delete(self, text: str | int, watch: Watch = _unwatched) -> str:
        """Forget a job, its URLs and its pages; its name. The log and the archive keep what was asked of servers, and their answers."""
        job_id, name = self.bury(text)
        self.forget(job_id, watch)
        return name

    def bury(self, text: str | int) -> tuple[int, str]:
        """The first half of `delete`, which is short: nobody finds the job any more; its id and name. `forget` is the other."""
        with self.database.session() as connection, connection.transaction():
            job_id = _id(connection, text)
            name = jobs.delete(connection, job_id)
            self._record(connection, "delete", job_id, {"name": name})
        return job_id, name

    def forget(self, job_id: int, watch: Watch = _unwatched) -> None:
        """Forget what a deleted job had. Takes as long as that is much; what this cannot finish, the sweep of a worker does."""
        self._step(jobs.forget, job_id, watch)

    def _act(self, text: str | int, action: JobAction) -> jobs.Acted:
        with self.database.session() as connection, connection.transaction():
            acted = jobs.act(connection, _id(connection, text), action)
            if acted.after is not acted.before:
                self._record(connection, action, acted.job_id, {"name": acted.name, "before": acted.before})
        return acted

    def _record(self, connection: Connection, action: str, job_id: int, details: dict[str, Any]) -> None:
        audit.write(connection, actor=self.actor, action=action, kind="job", object_id=job_id, details=details)

    def _step(self, step: Callable[[Connection, int], int | None], job_id: int, watch: Watch) -> None:
        total = 0
        with self.database.session() as connection:
            while (done := step(connection, job_id)) is not None:
                total += done
                watch(total)


def _id(connection: Connection, which: str | int) -> int:
    """Of the job that a person names, or that a program has looked at before."""
    return which if isinstance(which, int) else jobs.find(connection, which)
