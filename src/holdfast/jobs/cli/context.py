"""What all commands about jobs need: the job, and the jobs of the database or of a server."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Protocol

import typer

from holdfast.cli import command_context, job_options
from holdfast.jobs.records import (
    ComparedPage,
    Comparison,
    CrawlSummary,
    EditedJob,
    Job,
    PageChange,
    RulesVersion,
    ScopePreview,
    StateChange,
)
from holdfast.jobs.service import JobService, OnProgress

Which = Annotated[str, typer.Argument(metavar="JOB", help="Its name or its id.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Jobs(Protocol):
    """Jobs of a database, or of a server."""

    def all(self) -> list[Job]: ...

    def show(self, job: str | int) -> Job: ...

    def summary(self, job: str | int) -> CrawlSummary: ...

    def compare(self, job: str | int) -> Comparison: ...

    def some_compared(self, job: str | int, change: PageChange, limit: int) -> list[ComparedPage]: ...

    def schedule(self, job: str | int, when: str | None) -> datetime | None: ...

    def pause(self, job: str | int) -> StateChange: ...

    def cancel(self, job: str | int) -> StateChange: ...

    def resume(self, job: str | int, on_progress: OnProgress) -> StateChange: ...

    def delete(self, job: str | int, on_progress: OnProgress) -> str: ...

    def preview_scope(self, job: str | int, changes: Mapping[str, object]) -> ScopePreview: ...

    def undo_scope(self, job: str | int) -> EditedJob: ...

    def scope_history(self, job: str | int) -> list[RulesVersion]: ...


def job_service(ctx: typer.Context) -> Jobs:
    """The jobs of the store, or of the server (`--server`)."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client)
    return local_jobs(context)


def local_jobs(context: command_context.CommandContext) -> JobService:
    """The jobs of the store. Before: there is no server."""
    return JobService(context.store(), command_context.actor(), job_options.rule_settings(context))
