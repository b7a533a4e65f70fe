"""A crawl, from what a person asks for to its end: find or make the job, sow its seeds, begin, look, end.

The rule: asking for the same again goes on where it was. Nothing here is needed for that to be true; the store knows.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.control.request_secrets import SecretSealer
from holdfast.db import audit, crawls, job_seeds, jobs, operator_reports, retry_now
from holdfast.db.connection import Connection, Database
from holdfast.errors import BadUrl, NotFound, Refused, UsageError
from holdfast.jobs.seed_import import (
    BATCH,
    Loaded,
    SeedImporter,
    file_mark,
    fingerprint,
    open_seeds,
    read_seeds,
    rules_of,
    sow_again,
)
from holdfast.jobs.summary import CrawlSummary, stands, summarize
from holdfast.model.domain import Seed
from holdfast.model.job import Job, JobKind, JobSpec, JobState, check_job_name
from holdfast.model.request_secrets import RequestSecrets
from holdfast.model.seed_lines import make_seed
from holdfast.politeness.scope import compile_rules

STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person asks for."""

    urls: tuple[str, ...] = ()
    seeds_file: str | None = None
    job: str | None = None
    options: dict[str, Any] | None = None
    """Fields of a JobSpec that were given; the others stay as they are."""
    again: bool = False
    secrets: RequestSecrets | None = None
    """Headers, cookies and credentials that were given; no part of what the job is known by."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A crawl that can be worked on."""

    job: Job
    resumed: bool
    """It goes on with one that was interrupted."""
    known: bool
    """The job was there before."""
    loaded: Loaded
    held_back: tuple[retry_now.HeldBack, ...] = ()
    """Domains that are not tried yet because their servers asked for a pause; the first ones."""
    not_job: str | None = None
    """The job that this seed file was known for, but shares no seed with any more."""
    secrets: tuple[str, ...] = ()
    """Headers that an earlier command gave to the job, by name, and that are still sent."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that was found or made, with its seeds."""

    job: Job
    known: bool
    """The job was there before."""
    loaded: Loaded
    not_job: str | None = None
    """As in `Begun`."""


class _Found(NamedTuple):
    """What the seeds of a command lead to."""

    job: Job | None
    """None: it has to be made."""
    fingerprint: bytes | None = None
    file: job_seeds.SeedFile | None = None
    not_job: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a crawl ended."""

    completed: bool
    """Every URL of the job is dealt with."""
    standing: crawls.CrawlStatus
    progress: operator_reports.CrawlProgress


@dataclass(frozen=True, slots=True)
class CrawlService:
    """Crawls of one store."""

    database: Database
    sower: SeedImporter
    sealer: SecretSealer | None = None
    """Needed where secrets are given."""
    max_depth: int = 10
    """Of a job that says nothing: `crawl.max_depth`."""
    actor: str | None = None
    """Who gives secrets, for the audit log; None: the caller records it."""

    def begin(
        self,
        wish: Wish,
        watch: Callable[[Loaded], None] = lambda _: None,
        while_paused: Callable[[Job], object] | None = None,
    ) -> Begun:
        """Find or make the job of this wish, sow its seeds, and open a crawl of it.

        `watch` hears how far the seeds are. `while_paused` is called again and again while the job is paused; None: it is Refused then.
        """
        prepared = self.make(wish, watch)
        job, known = prepared.job, prepared.known
        if known:
            self._sow_again(job)
        held_back = self.retry(job.id, logged_in=bool(wish.secrets and wish.secrets.texts()))
        with self.database.session() as connection:
            names = () if self.sealer is None else tuple(self.sealer.check(connection, job.id))
            if wish.again and known:
                crawls.restart(connection, job.id)
        while while_paused is not None and self.state(job) is JobState.PAUSED:
            while_paused(job)
        with self.database.session() as connection:
            crawl_id, resumed = crawls.begin(connection, job.id)
            # Its number as it was given: where nothing is left to do, the sweep of a worker may have finished the crawl by now.
            begun = replace(crawls.get(connection, job.id), crawl_id=crawl_id)
            before = () if wish.secrets else names
            return Begun(begun, resumed, known, prepared.loaded, tuple(held_back), prepared.not_job, before)

    def retry(self, job_id: int, *, logged_in: bool = False) -> list[retry_now.HeldBack]:
        """Try again what failed on the job's domains, since a person asks for them; those that wait for what their server asked for.

        `logged_in`: what failed for want of a login, too.
        """
        with self.database.session() as connection:
            return retry_now.ask(connection, job_id, crawls.get(connection, job_id).spec, logged_in=logged_in)

    def make(self, wish: Wish, watch: Callable[[Loaded], None] = lambda _: None) -> Prepared:
        """Find or make the job of this wish and sow its seeds, without a crawl of it."""
        said = JobSpec(**(wish.options or {}))
        compile_rules(said)  # a pattern that is none is refused before anything is made
        check_parser(said)
        seeds, bad = self._read(wish.urls)
        if not (seeds or wish.seeds_file or wish.job) and wish.urls:
            raise BadUrl(f"{bad.bad_lines[0].problem} Write it as https://example.com/path.")
        with self.database.session() as connection:
            found = self._find(connection, wish, seeds)
            job, known = found.job, found.job is not None
            if job is not None and job.kind is JobKind.TASKS:
                raise Refused(f"Job {job.name} is the one of all tasks; workers serve it (`holdfast serve`).")
            if job is None:
                with connection.transaction():  # a job whose secrets are refused is not made: its name stays free
                    job = self._create(connection, wish, seeds, found)
                    self._give_secrets(connection, job, wish, seeds)  # before its seeds, which are fetched at once
            else:
                spec = self._spec(wish, job.spec)
                check_parser(spec)
                self._give_secrets(connection, job, wish, seeds)  # first: if they are refused, the job stays as it is
                if is_deeper := (depth := self.depth(spec)) > self.depth(job.spec):
                    crawls.raise_depth_limit(connection, job.id, depth)  # before the spec: the same command repeats it
                crawls.set_spec(connection, job.id, spec)
                if spec.refresh and not job.spec.refresh:
                    crawls.make_refresh_due(connection, job.id)
                if is_deeper:  # once more: visits that began before it still judge by the depth of before
                    crawls.raise_depth_limit(connection, job.id, depth)
            if found.file is not None:
                job_seeds.know_file(connection, job.id, found.file)
        return Prepared(job, known, self._sow(job, wish, seeds, bad, watch), found.not_job)

    def depth(self, spec: JobSpec) -> int:
        """Links to follow from a seed under this spec."""
        return self.max_depth if spec.max_depth is None else spec.max_depth

    def _give_secrets(self, connection: Connection, job: Job, wish: Wish, seeds: list[Seed]) -> None:
        if not wish.secrets:
            return
        assert self.sealer is not None  # noqa: S101 — likewise
        if wish.seeds_file == STDIN:
            raise UsageError(
                "Headers, cookies and passwords go to the origins of the seeds, which standard input tells only once: put them in a file."
            )
        urls = (seed.url for seed in self._everything(wish, seeds))
        names = self.sealer.give_job(connection, job.id, wish.secrets, urls)
        if self.actor is not None:
            audit.write(
                connection, actor=self.actor, action="secrets", kind="job", object_id=job.id, details={"secrets": names}
            )

    def check_seeds(self, wish: Wish) -> None:
        """Raise BadUrl if none of the URLs that were given can be crawled. Needs no database."""
        seeds, bad = self._read(wish.urls)
        if wish.urls and not seeds and wish.seeds_file is None:
            raise BadUrl(bad.bad_lines[0].problem)

    def state(self, job: Job) -> JobState:
        """Where the job is now; NotFound if it was deleted."""
        with self.database.session() as connection:
            return jobs.state(connection, job.id)

    def was_paused(self, job: Job, since: datetime) -> bool:
        """Whether its workers may have left it because it was paused or cancelled, though it may go on by now."""
        with self.database.session() as connection:
            return jobs.was_paused(connection, job.id, since)

    def now(self) -> datetime:
        """The database's clock."""
        with self.database.session() as connection:
            return jobs.now(connection)

    def job(self, name: str) -> Job:
        """The job of that name; NotFound if there is none."""
        with self.database.session() as connection:
            found = crawls.find(connection, name=name)
        if found is None:
            raise NotFound(f"There is no job called {name!r}.")
        return found

    def over_http(self, wish: Wish, job: Job) -> list[str]:
        """The URLs of a command, given without a scheme, that are crawled over http because nothing speaks TLS there."""
        seeds, _ = self._read(wish.urls)
        guessed = [seed for seed in seeds if seed.guessed]
        with self.database.session() as connection:
            return crawls.seeds_moved_to_http(connection, job.id, guessed) if guessed else []

    def is_first(self, job: Job) -> bool:
        """Whether its crawl is the first one of this store, and has just begun or was not finished."""
        with self.database.session() as connection:
            return crawls.is_first(connection, _crawl(job))

    def standing(self, job: Job) -> crawls.CrawlStatus:
        """What there is still to do."""
        with self.database.session() as connection:
            return crawls.status(connection, job.id, _crawl(job))

    def has_work(self, job: Job, patience: timedelta) -> bool:
        """Whether a worker would find something to do, or would wait for it."""
        standing = self.standing(job)
        soon = standing.next_in is not None and standing.next_in <= patience.total_seconds()
        return bool(standing.ready or standing.held or standing.wakes or standing.spent or soon)

    def progress(self, job: Job) -> operator_reports.CrawlProgress:
        """How far it is."""
        with self.database.session() as connection:
            return operator_reports.crawl_progress(connection, job.id, _crawl(job))

    def stop(self, job: Job) -> operator_reports.CrawlProgress:
        """It was interrupted: the same crawl goes on the next time."""
        with self.database.session() as connection:
            crawls.stop(connection, _crawl(job))
            return operator_reports.crawl_progress(connection, job.id, _crawl(job))

    def end(self, job: Job) -> Ended:
        """Its workers found nothing more to do. After: the crawl is over; the job too, if that is proven."""
        with self.database.session() as connection:
            standing = crawls.status(connection, job.id, _crawl(job))
            progress = operator_reports.crawl_progress(connection, job.id, _crawl(job))
            return Ended(crawls.finish(connection, _crawl(job)), standing, progress)

    def end_idle(self) -> None:
        """End crawls that no worker serves and that have nothing more to do, without waiting for the sweep of another worker."""
        with self.database.session() as connection:
            crawls.finish_idle(connection)

    def summary(self, job: Job, ended: Ended, without_proxy: Sequence[str] = ()) -> CrawlSummary:
        """How a crawl ended, with the URLs that were not crawled by reason. Goes over all of the job's URLs that are not pages."""
        with self.database.session() as connection:
            return summarize(
                connection,
                job,
                pages=ended.progress.pages,
                errors=ended.progress.errors,
                completed=ended.completed,
                limits=ended.standing.limits,
                without_proxy=without_proxy,
            )

    def stands(self, job: Job, *, completed: bool) -> CrawlSummary:
        """How a job stands that others crawl, with the URLs that were not crawled by reason."""
        with self.database.session() as connection:
            return stands(connection, job, completed=completed)

    def left(self, job: Job, done: operator_reports.CrawlProgress) -> CrawlSummary:
        """What an interrupted crawl has left to do. Looks at counters only."""
        with self.database.session() as connection:
            return summarize(connection, job, pages=done.pages, interrupted=True)

    def _read(self, urls: Iterable[str]) -> tuple[list[Seed], Loaded]:
        loaded = Loaded()
        seeds = []
        for text in urls:
            loaded.lines += 1
            try:
                seeds.append(make_seed(text, rules=self.sower.rules, registrable=self.sower.registrable))
            except BadUrl as problem:
                loaded.refuse(str(problem))
        return seeds, loaded

    def _spec(self, wish: Wish, before: JobSpec) -> JobSpec:
        """A job that is known by its seeds is what this command says; one that is known by its name keeps what is not said."""
        by_name = wish.job is not None or not (wish.urls or wish.seeds_file)
        return replace(before if by_name else JobSpec(), **(wish.options or {}))

    def _find(self, connection: Connection, wish: Wish, seeds: list[Seed]) -> _Found:
        if wish.job is not None:
            found = crawls.find(connection, name=wish.job)
            if found is None and not seeds and wish.seeds_file is None:
                raise NotFound(
                    f"There is no job called {wish.job!r}: `holdfast jobs list` shows all. With a URL or --seeds it is made."
                )
            return _Found(found)
        if wish.seeds_file is not None:
            return self._find_by_file(connection, wish, wish.seeds_file, seeds)
        if not seeds:
            return _Found(crawls.find(connection, name=jobs.DEFAULT))
        rules = rules_of(JobSpec(**(wish.options or {})))
        mark = fingerprint({seed.url_key: seed for seed in seeds}.values(), *rules)
        return _Found(crawls.by_fingerprint(connection, mark), mark)

    def _find_by_file(self, connection: Connection, wish: Wish, name: str, seeds: list[Seed]) -> _Found:
        """By its path, if it still has a seed of that job; else by its content. The file is read once, whatever its length."""
        if name == STDIN:
            raise UsageError("Seeds from standard input need --job NAME, so that the crawl can be found again.")
        path = os.path.abspath(name)  # noqa: PTH100 — not resolved: a symbolic link is a name of its own
        spec = JobSpec(**(wish.options or {}))
        mark = file_mark(path, seeds, spec)
        by_path = job_seeds.by_file(connection, mark)
        shared = by_path is not None and job_seeds.has_none(connection, by_path)
        empty = True

        def looked_at() -> Iterator[Seed]:
            nonlocal shared, empty
            everything = self._everything(wish, seeds)
            while batch := list(islice(everything, BATCH)):
                empty = False
                if by_path is not None and not shared:
                    shared = job_seeds.has_any(connection, by_path, [seed.url_key for seed in batch])
                yield from batch

        content = fingerprint(looked_at(), *rules_of(spec))
        file = job_seeds.SeedFile(mark, os.fsencode(path).decode(errors="replace"), content)
        if by_path is not None and (shared or empty):
            return _Found(crawls.get(connection, by_path), content, file)
        by_content = job_seeds.by_content(connection, content)
        job = crawls.by_fingerprint(connection, content) if by_content is None else crawls.get(connection, by_content)
        return _Found(job, content, file, None if by_path is None else crawls.get(connection, by_path).name)

    def _create(self, connection: Connection, wish: Wish, seeds: list[Seed], found: _Found) -> Job:
        spec = JobSpec(**(wish.options or {}))
        if wish.job is not None:
            check_job_name(wish.job)
            return crawls.create(connection, name=wish.job, spec=spec, fingerprint=None)
        assert found.fingerprint is not None  # noqa: S101 — a job without a name is known by its seeds
        what = seeds[0].domain if seeds else "seeds"
        name = f"{what[:80]}-{found.fingerprint.hex()[:6]}"
        return crawls.create(connection, name=name, spec=spec, fingerprint=found.fingerprint)

    def _sow_again(self, job: Job) -> None:
        """A job whose frontier is gone starts from its seeds, since a person starts it."""
        sower = self.sower
        with self.database.session() as connection:
            sow_again(connection, job.id, rules=sower.rules, registrable=sower.registrable, defaults=sower.defaults)

    def _everything(self, wish: Wish, seeds: list[Seed]) -> Iterator[Seed]:
        """The seeds that were given as arguments, and those of the file."""
        yield from seeds
        if wish.seeds_file is not None:
            stream, _, _ = open_seeds(wish.seeds_file)
            with stream:
                yield from read_seeds(stream, self.sower.rules, registrable=self.sower.registrable)

    def _sow(self, job: Job, wish: Wish, seeds: list[Seed], bad: Loaded, watch: Callable[[Loaded], None]) -> Loaded:
        sower = replace(self.sower, job=job.name)
        given = sower.add(list(wish.urls)) if seeds else bad
        if wish.seeds_file is None:
            return given
        loaded = Loaded()
        stream, _, name = open_seeds(wish.seeds_file)
        with stream, closing(sower.load(stream, name)) as steps:
            for loaded in steps:
                watch(loaded)
        loaded.after(given)
        return loaded


def check_parser(spec: JobSpec) -> None:
    """Raise UsageError for a parser without an archive to read from."""
    if spec.parser is not None and not spec.archive:
        raise UsageError(
            "A parser reads pages from the archive, so a job with one cannot do without it (--no-archive)."
        )


def _crawl(job: Job) -> int:
    assert job.crawl_id is not None  # noqa: S101 — begin() opened one
    return job.crawl_id
