"""A crawl, from the request to its end: find or create the job, import its seeds, begin, report progress, end.

The rule: the same request again continues where the crawl was. That does not depend on this module: the database holds the state.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from shlex import quote
from typing import Any, Final, NamedTuple

from holdfast.control.request_secrets import SecretSealer
from holdfast.db import audit, crawls, job_ends, job_rules, jobs
from holdfast.db.connection import Connection, Database
from holdfast.errors import BadUrl, NotFound, Refused, UsageError
from holdfast.jobs.queries import actions
from holdfast.jobs.queries import progress as progress_queries
from holdfast.jobs.queries import seeds as seed_queries
from holdfast.jobs.queries.progress import CrawlProgress
from holdfast.jobs.records import CrawlSummary
from holdfast.jobs.seed_import import (
    BATCH,
    ImportProgress,
    SeedImporter,
    file_mark,
    fingerprint,
    open_seeds,
    read_seeds,
    restore_seeds,
    rules_of,
)
from holdfast.jobs.summary import summarize
from holdfast.model.domain import Seed
from holdfast.model.job import Job, JobKind, JobSpec, JobState, check_job_name
from holdfast.model.request_secrets import RequestSecrets
from holdfast.model.scope import RULES, RuleSettings, compile_rules, describe_rules, rules_of_spec, spec_with_rules
from holdfast.model.seed_lines import make_seed

STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class CrawlRequest:
    """What to crawl: seeds, the name of the job, and its options."""

    urls: tuple[str, ...] = ()
    seeds_file: str | None = None
    job: str | None = None
    options: dict[str, Any] | None = None
    """The fields of a JobSpec to set; the others stay as they are."""
    again: bool = False
    """Crawl all pages of the job again."""
    secrets: RequestSecrets | None = None
    """Headers, cookies and credentials to send; they are not part of what identifies the job."""


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that was found or created, with its seeds."""

    job: Job
    known: bool
    """The job existed before."""
    seeds: ImportProgress
    unrelated_job: str | None = None
    """The job that this seed file was known for, but shares no seed with any more."""


@dataclass(frozen=True, slots=True)
class StartedCrawl:
    """A crawl that workers can take up."""

    job: Job
    resumed: bool
    """It continues an interrupted crawl."""
    known: bool
    """The job existed before."""
    seeds: ImportProgress
    held_back: tuple[actions.HeldBack, ...] = ()
    """Domains that are not tried yet because their servers asked for a pause; the first ones."""
    unrelated_job: str | None = None
    """As in `PreparedJob`."""
    secrets: tuple[str, ...] = ()
    """The names of headers that an earlier command gave to the job, and that are still sent."""
    edited_rules: str | None = None
    """The rules of the job, as words, if they were edited since and are not those of this request."""


class _Match(NamedTuple):
    """The job that a request is for."""

    job: Job | None
    """None: it does not exist yet."""
    fingerprint: bytes | None = None
    file: seed_queries.SeedFile | None = None
    unrelated_job: str | None = None


@dataclass(frozen=True, slots=True)
class FinishedCrawl:
    """A crawl that has ended."""

    completed: bool
    """Every URL of the job is settled."""
    status: crawls.CrawlStatus
    progress: CrawlProgress


def _refuse_forgotten(connection: Connection, job: Job) -> None:
    """Raise Refused for a job that has ended and whose URLs retention has archived: it would fetch all of them again."""
    at = crawls.forgotten_at(connection, job.id)
    if at is not None:
        raise Refused(
            f"Job {job.name} has ended, and retention archived what it has crawled ({at:%Y-%m-%d}). `--again` crawls all of it anew; "
            f"`holdfast archive restore --job {quote(job.name)}` brings it back."
        )


@dataclass(frozen=True, slots=True)
class CrawlService:
    """The crawls of one database."""

    database: Database
    importer: SeedImporter
    sealer: SecretSealer | None = None
    """Required where secrets are passed."""
    max_depth: int = 10
    """Of a job without one of its own: `crawl.max_depth`."""
    actor: str | None = None
    """The user who passes secrets, for the audit log; None: the caller records it."""

    def begin(
        self,
        request: CrawlRequest,
        on_progress: Callable[[ImportProgress], None] = lambda _: None,
        while_paused: Callable[[Job], object] | None = None,
    ) -> StartedCrawl:
        """Find or create the job of a request, import its seeds, and open a crawl of it.

        `on_progress` is called while seeds are imported, `while_paused` repeatedly while the job is paused; None: Refused then.
        """
        prepared = self.prepare(request, on_progress)
        job, known = prepared.job, prepared.known
        if known:
            self._restore_seeds(job)
        held_back = self.retry(job.id, logged_in=bool(request.secrets and request.secrets.texts()))
        with self.database.session() as connection:
            names = () if self.sealer is None else tuple(self.sealer.check(connection, job.id))
            if request.again and known:
                crawls.restart(connection, job.id)
        while while_paused is not None and self.state(job) is JobState.PAUSED:
            while_paused(job)
        with self.database.session() as connection:
            crawl_id, resumed = crawls.begin(connection, job.id)
            # The id that `begin` returned: if nothing is left to do, the sweep of a worker may have finished the crawl by now.
            job = replace(crawls.get(connection, job.id), crawl_id=crawl_id)
            earlier = () if request.secrets else names
            edited = self._edited_rules(connection, request, job)
            return StartedCrawl(
                job, resumed, known, prepared.seeds, tuple(held_back), prepared.unrelated_job, earlier, edited
            )

    def retry(self, job_id: int, *, logged_in: bool = False) -> list[actions.HeldBack]:
        """Try again what failed on the domains of a job, at an operator's request; returns domains whose server asked for a pause.

        `logged_in`: also what failed for want of a login.
        """
        with self.database.session() as connection:
            return actions.retry(connection, job_id, crawls.get(connection, job_id).spec, logged_in=logged_in)

    def restart(self, job_id: int) -> None:
        """Let workers fetch all pages of a job again, in a new crawl with new budgets, as its schedule would. Idempotent."""
        with self.database.session() as connection:
            job = crawls.get(connection, job_id)
        self._restore_seeds(job)
        with self.database.session() as connection:
            crawls.restart(connection, job_id)

    def prepare(
        self, request: CrawlRequest, on_progress: Callable[[ImportProgress], None] = lambda _: None
    ) -> PreparedJob:
        """Find or create the job of a request and import its seeds, without a crawl of it."""
        options = JobSpec(**(request.options or {}))
        compile_rules(options)  # an invalid pattern is refused before anything is created
        check_parser(options)
        seeds, invalid = self._read(request.urls)
        if not (seeds or request.seeds_file or request.job) and request.urls:
            raise BadUrl(f"{invalid.bad_lines[0].problem} Write it as https://example.com/path.")
        with self.database.session() as connection:
            match = self._find(connection, request, seeds)
            job, known = match.job, match.job is not None
            if job is not None and job.kind is JobKind.TASKS:
                raise Refused(f"Job {job.name} is the one of all tasks; workers serve it (`holdfast serve`).")
            if job is not None and not request.again and not (request.job and request.urls):
                _refuse_forgotten(connection, job)
            if job is None:
                with connection.transaction():  # a job whose secrets are refused is not created: its name stays free
                    job = self._create(connection, request, seeds, match)
                    self._set_secrets(connection, job, request, seeds)  # before its seeds, which are fetched at once
            else:
                self._change_spec(connection, job, request, seeds)
            if match.file is not None:
                seed_queries.know_file(connection, job.id, match.file)
        return PreparedJob(job, known, self._import(job, request, seeds, invalid, on_progress), match.unrelated_job)

    def _change_spec(self, connection: Connection, job: Job, request: CrawlRequest, seeds: list[Seed]) -> None:
        """Give a known job the options of a request. Its rules are edited, as a new version, where the request names other ones than those
        that the job was created with."""
        spec = self._spec(connection, request, job)
        check_parser(spec)
        self._set_secrets(connection, job, request, seeds)  # first: if they are refused, the job stays as it is
        # A job that is found by its seeds has their rules already, except for the depth, which is the request's until it is edited.
        is_edit = rules_of_spec(spec) != rules_of_spec(job.spec) and bool(_by_name(request) or job.rules_version)
        is_deeper = not is_edit and (depth := self.depth(spec)) > self.depth(job.spec)
        if is_deeper:
            actions.raise_depth_limit(connection, job.id, depth)  # before the spec: the same command repeats it
        if is_edit:
            with connection.transaction():
                locked, _ = crawls.lock(connection, job.id)
                settings = RuleSettings(self.max_depth, self.importer.registrable)
                spec = self._spec(connection, request, locked)  # another edit may have come between
                job_rules.add_version(connection, locked, spec, actor=self.actor, settings=settings)
        else:
            crawls.set_spec(connection, job.id, spec)
        if spec.refresh and not job.spec.refresh:
            actions.make_refresh_due(connection, job.id)
        if is_deeper:  # once more: visits that began before it still apply the old depth
            actions.raise_depth_limit(connection, job.id, depth)
        while job_rules.judge_domains(connection, job.id) is not None:
            pass

    def _created_rules(self, connection: Connection, job: Job) -> dict[str, Any]:
        """The rules that a job was created with."""
        return job_rules.history(connection, job.id)[0].rules if job.rules_version else rules_of_spec(job.spec)

    def _edited_rules(self, connection: Connection, request: CrawlRequest, job: Job) -> str | None:
        """The rules of a job, as words, where they are not those that the request names; None: they are."""
        if not job.rules_version:
            return None
        created = self._created_rules(connection, job)
        asked = rules_of_spec(JobSpec(**(request.options or {})))
        named = dict(created) if _by_name(request) else {**asked, "max_depth": created["max_depth"]}
        named |= {name: asked[name] for name in RULES if name in (request.options or {})}
        present = rules_of_spec(job.spec)
        return None if present == named else describe_rules(present)

    def depth(self, spec: JobSpec) -> int:
        """The number of links to follow from a seed under this spec."""
        return self.max_depth if spec.max_depth is None else spec.max_depth

    def _set_secrets(self, connection: Connection, job: Job, request: CrawlRequest, seeds: list[Seed]) -> None:
        if not request.secrets:
            return
        assert self.sealer is not None  # noqa: S101 — services that take secrets have one
        if request.seeds_file == STDIN:
            raise UsageError(
                "Headers, cookies and passwords go to the origins of the seeds, which standard input tells only once: put them in a file."
            )
        urls = (seed.url for seed in self._all_seeds(request, seeds))
        names = self.sealer.set_job_secrets(connection, job.id, request.secrets, urls)
        if self.actor is not None:
            audit.write(
                connection, actor=self.actor, action="secrets", kind="job", object_id=job.id, details={"secrets": names}
            )

    def check_seeds(self, request: CrawlRequest) -> None:
        """Raise BadUrl if none of the URLs of a request can be crawled. Needs no database."""
        seeds, invalid = self._read(request.urls)
        if request.urls and not seeds and request.seeds_file is None:
            raise BadUrl(invalid.bad_lines[0].problem)

    def state(self, job: Job) -> JobState:
        """The present state of the job; NotFound if it was deleted."""
        with self.database.session() as connection:
            return jobs.state(connection, job.id)

    def was_paused(self, job: Job, since: datetime) -> bool:
        """Whether its workers may have left it because it was paused or cancelled, even if it was resumed by now."""
        with self.database.session() as connection:
            return actions.was_paused(connection, job.id, since)

    def now(self) -> datetime:
        """The time of the database's clock."""
        with self.database.session() as connection:
            return jobs.now(connection)

    def job(self, name: str) -> Job:
        """The job of that name; NotFound if there is none."""
        with self.database.session() as connection:
            return crawls.named(connection, name)

    def http_fallbacks(self, request: CrawlRequest, job: Job) -> list[str]:
        """The URLs of a request without a scheme that are crawled over http because nothing answers TLS there."""
        seeds, _ = self._read(request.urls)
        guessed = [seed for seed in seeds if seed.guessed]
        if not guessed:
            return []
        with self.database.session() as connection:
            return seed_queries.moved_to_http(connection, job.id, guessed)

    def is_first(self, job: Job) -> bool:
        """Whether its crawl is the first one of this database."""
        with self.database.session() as connection:
            return progress_queries.is_first_crawl(connection, _crawl(job))

    def status(self, job: Job) -> crawls.CrawlStatus:
        """What is left to do."""
        with self.database.session() as connection:
            return crawls.status(connection, job.id, _crawl(job))

    def has_work(self, job: Job, patience: timedelta) -> bool:
        """Whether a worker would find something to do, or would wait for it."""
        status = self.status(job)
        soon = status.next_in is not None and status.next_in <= patience.total_seconds()
        return bool(status.ready or status.held or status.wakes or status.spent or soon)

    def stop(self, job: Job) -> CrawlProgress:
        """Stop an interrupted crawl: the next command continues it."""
        with self.database.session() as connection:
            crawls.stop(connection, _crawl(job))
            return progress_queries.crawl_progress(connection, job.id, _crawl(job))

    def end(self, job: Job) -> FinishedCrawl:
        """End a crawl whose workers found nothing more to do. After: the crawl is finished; the job too, if that is proven."""
        with self.database.session() as connection:
            status = crawls.status(connection, job.id, _crawl(job))
            progress = progress_queries.crawl_progress(connection, job.id, _crawl(job))
            return FinishedCrawl(job_ends.finish(connection, _crawl(job)), status, progress)

    def end_idle(self) -> None:
        """End crawls that no worker serves and that have nothing more to do, without waiting for the sweep of another worker."""
        with self.database.session() as connection:
            job_ends.finish_idle(connection)

    def summary(self, job: Job, finished: FinishedCrawl, without_proxy: Sequence[str] = ()) -> CrawlSummary:
        """How a crawl ended, with the URLs that were not crawled by reason. Reads all of the job's URLs that are not pages."""
        with self.database.session() as connection:
            return summarize(
                connection,
                job,
                pages=finished.progress.pages,
                errors=finished.progress.errors,
                completed=finished.completed,
                limits=finished.status.limits,
                without_proxy=without_proxy,
            )

    def interrupted_summary(self, job: Job, progress: CrawlProgress) -> CrawlSummary:
        """What an interrupted crawl has left to do. Reads counters only."""
        with self.database.session() as connection:
            return summarize(connection, job, pages=progress.pages, interrupted=True)

    def _read(self, urls: Iterable[str]) -> tuple[list[Seed], ImportProgress]:
        """The seeds of URLs, and the invalid ones."""
        invalid = ImportProgress()
        seeds = []
        for text in urls:
            invalid.lines += 1
            try:
                seeds.append(make_seed(text, rules=self.importer.rules, registrable=self.importer.registrable))
            except BadUrl as problem:
                invalid.refuse(str(problem))
        return seeds, invalid

    def _spec(self, connection: Connection, request: CrawlRequest, job: Job) -> JobSpec:
        """A job that is found by its seeds has the options of this request; one that is found by its name keeps the others.

        Rules that were edited stay, unless the request names other ones than those that the job was created with: the same command
        continues the job as it is now.
        """
        spec = replace(job.spec if _by_name(request) else JobSpec(), **(request.options or {}))
        if not job.rules_version:
            return spec
        asked, created = rules_of_spec(spec), self._created_rules(connection, job)
        new = {name: asked[name] for name in RULES if name in (request.options or {}) and asked[name] != created[name]}
        return spec_with_rules(spec, rules_of_spec(job.spec) | new)

    def _find(self, connection: Connection, request: CrawlRequest, seeds: list[Seed]) -> _Match:
        if request.job is not None:
            found = crawls.find(connection, name=request.job)
            if found is None and not seeds and request.seeds_file is None:
                raise NotFound(
                    f"There is no job called {request.job!r}: `holdfast jobs list` shows all. With a URL or --seeds it is made."
                )
            return _Match(found)
        if request.seeds_file is not None:
            return self._find_by_file(connection, request, request.seeds_file, seeds)
        if not seeds:
            return _Match(crawls.find(connection, name=jobs.DEFAULT))
        rules = rules_of(JobSpec(**(request.options or {})))
        mark = fingerprint({seed.url_key: seed for seed in seeds}.values(), *rules)
        return _Match(crawls.by_fingerprint(connection, mark), mark)

    def _find_by_file(self, connection: Connection, request: CrawlRequest, name: str, seeds: list[Seed]) -> _Match:
        """By the path of a seed file, if it still has a seed of that job; else by its content. The file is read once."""
        if name == STDIN:
            raise UsageError("Seeds from standard input need --job NAME, so that the crawl can be found again.")
        path = os.path.abspath(name)  # noqa: PTH100 — not resolved: a symbolic link is a name of its own
        spec = JobSpec(**(request.options or {}))
        mark = file_mark(path, seeds, spec)
        by_path = seed_queries.by_file(connection, mark)
        shared = by_path is not None and seed_queries.has_none(connection, by_path)
        empty = True

        def checked_seeds() -> Iterator[Seed]:
            nonlocal shared, empty
            everything = self._all_seeds(request, seeds)
            while batch := list(islice(everything, BATCH)):
                empty = False
                if by_path is not None and not shared:
                    shared = seed_queries.has_any(connection, by_path, [seed.url_key for seed in batch])
                yield from batch

        content = fingerprint(checked_seeds(), *rules_of(spec))
        file = seed_queries.SeedFile(mark, os.fsencode(path).decode(errors="replace"), content)
        if by_path is not None and (shared or empty):
            return _Match(crawls.get(connection, by_path), content, file)
        by_content = seed_queries.by_content(connection, content)
        job = crawls.by_fingerprint(connection, content) if by_content is None else crawls.get(connection, by_content)
        return _Match(job, content, file, None if by_path is None else crawls.get(connection, by_path).name)

    def _create(self, connection: Connection, request: CrawlRequest, seeds: list[Seed], match: _Match) -> Job:
        spec = JobSpec(**(request.options or {}))
        if request.job is not None:
            check_job_name(request.job)
            return crawls.create(connection, name=request.job, spec=spec, fingerprint=None)
        assert match.fingerprint is not None  # noqa: S101 — a job without a name is found by its seeds
        what = seeds[0].domain if seeds else "seeds"
        name = f"{what[:80]}-{match.fingerprint.hex()[:6]}"
        return crawls.create(connection, name=name, spec=spec, fingerprint=match.fingerprint)

    def _restore_seeds(self, job: Job) -> None:
        """Import the seeds of a job again if its frontier is gone."""
        importer = self.importer
        with self.database.session() as connection:
            restore_seeds(
                connection,
                job.id,
                rules=importer.rules,
                registrable=importer.registrable,
                defaults=importer.defaults,
            )

    def _all_seeds(self, request: CrawlRequest, seeds: list[Seed]) -> Iterator[Seed]:
        """The seeds of the request's URLs, and those of its file."""
        yield from seeds
        if request.seeds_file is not None:
            stream, _, _ = open_seeds(request.seeds_file)
            with stream:
                yield from read_seeds(stream, self.importer.rules, registrable=self.importer.registrable)

    def _import(
        self,
        job: Job,
        request: CrawlRequest,
        seeds: list[Seed],
        invalid: ImportProgress,
        on_progress: Callable[[ImportProgress], None],
    ) -> ImportProgress:
        importer = replace(self.importer, job=job.name)
        arguments = importer.add(list(request.urls)) if seeds else invalid
        if request.seeds_file is None:
            return arguments
        progress = ImportProgress()
        stream, _, name = open_seeds(request.seeds_file)
        with stream, closing(importer.load(stream, name)) as steps:
            for progress in steps:
                on_progress(progress)
        progress.add_arguments(arguments)
        return progress


def _by_name(request: CrawlRequest) -> bool:
    """Whether a request names its job (or means the standing one), instead of the seeds by which it is found."""
    return request.job is not None or not (request.urls or request.seeds_file)


def check_parser(spec: JobSpec) -> None:
    """Raise UsageError for a parser without an archive to read from."""
    if spec.parser is not None and not spec.archive:
        raise UsageError(
            "A parser reads pages from the archive, so a job with one cannot do without it (--no-archive)."
        )
    if spec.markdown and not spec.archive:
        raise UsageError(
            "Markdown is made from the archive, so a job with --markdown cannot do without it (--no-archive)."
        )


def _crawl(job: Job) -> int:
    assert job.crawl_id is not None  # noqa: S101 — begin() opened one
    return job.crawl_id
