"""Jobs of a server."""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import BinaryIO, Final, cast

from holdfast.cli.remote import rows
from holdfast.cli.remote.secrets import as_sent
from holdfast.cli.remote.seeds import Lines, Portion
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.client.request_spec import format_path
from holdfast.client.values import Job as RemoteJob
from holdfast.client.values import JobChanges
from holdfast.client.values import JobSpec as Spec
from holdfast.control import input_files as lists
from holdfast.control.input_files import BadLine
from holdfast.db.jobs import Acted
from holdfast.errors import UsageError
from holdfast.jobs.crawls import Wish
from holdfast.jobs.edits import Edited
from holdfast.jobs.seed_import import LONGEST_LINE, Loaded, open_seeds
from holdfast.jobs.service import Made, Watch
from holdfast.jobs.summary import CrawlSummary
from holdfast.model.job import Job, JobSpec, JobState

_KNOWN: Final = (
    "kind",
    "updated_at",
    "max_pages",
    "spent",
    "done",
    "out_of_budget",
    "state_reason",
    "secrets",
    "version",
)


@dataclass(frozen=True, slots=True)
class RemoteJobs:
    """As `jobs/service` has them."""

    client: Client

    def all(self) -> list[rows.Row]:
        """Every job."""
        return [rows.row(raw, _KNOWN) for raw in rows.listed(self.client, "/api/jobs", {"order": "oldest"})]

    def show(self, text: str | int) -> rows.Row:
        """One job, by its name or id."""
        return rows.row(self.client.request("GET", format_path("/api/jobs/{}", text)), _KNOWN)

    def summary(self, text: str | int) -> CrawlSummary:
        """How one job stands: URLs not crawled by reason, what waits until when, and the next step."""
        return read(CrawlSummary, rows.revived(self.client.request("GET", format_path("/api/jobs/{}/summary", text))))

    def create(self, wish: Wish, watch: Callable[[Loaded], None], schedule: str | None = None) -> Made:
        """Make a job. Seeds of a file are read here and sent in portions, without their ranks."""
        loaded = Loaded()
        named: Portion = [(0, url) for url in wish.urls]  # arguments have no line
        if wish.seeds_file is None:
            return Made(self._make(wish, named, schedule, loaded), loaded)
        job: Job | None = None
        file, _, _ = open_seeds(wish.seeds_file)
        with closing(file):
            lines = Lines(_lines(file, loaded))
            portions = iter(lines.portions())
            if wish.secrets:
                portions = _only_one(portions)
            for portion in portions:
                loaded.lines = lines.seen
                while lines.bad:
                    _blame(loaded, *lines.bad.pop(0))
                if job is None:
                    job = self._make(wish, [*named, *portion], schedule, loaded)
                elif portion:
                    self._sow(job, portion, loaded)
                watch(loaded)
        assert job is not None  # noqa: S101 — there is a last portion
        return Made(job, loaded)

    def schedule(self, text: str | int, when: str | None) -> datetime | None:
        """Crawl a job again and again; when it begins the next time. None: no longer."""
        return self.client.schedule(text, when).next_run_at

    def edit(self, text: str | int, changes: Mapping[str, object]) -> Edited:
        """Change limits, pace, parser and the like; the server does what follows."""
        edited = self.client.edit_job(text, **cast("JobChanges", dict(changes)))
        return Edited(edited.id, edited.name, edited.version, tuple(edited.changed), edited.note)

    def pause(self, text: str | int) -> Acted:
        """Nothing of it is fetched any more."""
        return self._acted(text, self.client.pause)

    def cancel(self, text: str | int) -> Acted:
        """It ends where it is."""
        return self._acted(text, self.client.cancel)

    def resume(self, text: str | int, watch: Watch) -> Acted:  # noqa: ARG002 — the server goes on by itself
        """Any worker goes on with it."""
        return self._acted(text, self.client.resume)

    def delete(self, text: str | int, watch: Watch) -> str:  # noqa: ARG002 — likewise
        """Forget a job, its URLs and its pages; its name."""
        name = self.client.job(text).name
        self.client.delete_job(text)
        return name

    def _acted(self, text: str | int, deed: Callable[[str | int], RemoteJob]) -> Acted:
        before = JobState(self.client.job(text).state)
        after = deed(text)
        return Acted(after.id, after.name, before, JobState(after.state))

    def _make(self, wish: Wish, seeds: Portion, schedule: str | None, loaded: Loaded) -> Job:
        spec = cast("Spec", wish.options or {})
        urls = [url for _, url in seeds]
        made = self.client.create_job(wish.job or "", urls, schedule=schedule, secrets=as_sent(wish.secrets), **spec)
        loaded.seeds += made.seeds
        for bad in made.bad_seeds:
            _blame(loaded, seeds[bad.line - 1][0], bad.problem)
        return Job(made.id, made.name, JobSpec.from_json(made.spec), None)

    def _sow(self, job: Job, seeds: Portion, loaded: Loaded) -> None:
        sown = self.client.seed([url for _, url in seeds], job=job.id)
        loaded.seeds += sown.seen - sown.bad
        for bad in sown.bad_urls:
            _blame(loaded, seeds[bad.line - 1][0], bad.problem)


def _only_one(portions: Iterator[Portion]) -> Iterator[Portion]:
    """The portion that a job is made with. Those that came later would be crawled before the server knows that secrets are for them."""
    some = list(islice(portions, 2))
    if any(some[1:]):
        raise UsageError(
            "Headers, cookies and passwords cannot be sent to a server together with so large a file of seeds; give them to the domains "
            "that need them (`holdfast domains set DOMAIN header=…`)."
        )
    return iter(some)


def _lines(file: BinaryIO, loaded: Loaded) -> Iterator[bytes]:
    """The lines of a seed file, unpacked; one that breaks off ends there."""
    try:
        with io.BufferedReader(cast("io.RawIOBase", file)) as buffered:
            yield from lists.lines(buffered, LONGEST_LINE)
    except lists.Damaged as problem:
        loaded.stop(problem)


def _blame(loaded: Loaded, line: int, problem: str) -> None:
    loaded.bad += 1
    if len(loaded.bad_lines) < lists.BAD_LINES_KEPT:
        loaded.bad_lines.append(BadLine(line, problem))
