"""The scope of a job: its rules, what other rules would do, their versions, and undo."""

from typing import Any, Final

from fastapi import BackgroundTasks, Request, Response

from holdfast.api.forms import Form, read_form
from holdfast.api.request_types import JobName
from holdfast.api.responses import log_failures
from holdfast.dashboard.job_fields import Problems, job_path, read_options, values_of_form, values_of_spec
from holdfast.dashboard.pages.job import job_of, tab
from holdfast.dashboard.pages.job_new import option_choices
from holdfast.dashboard.rendering import Context, Notice, PageContext
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import HoldfastError, UsageError
from holdfast.jobs.api import ScopeChange
from holdfast.jobs.edits import ScopeEdit, follow_up
from holdfast.jobs.records import Job, ScopePreview
from holdfast.model.job import JobSpec
from holdfast.model.scope import RULES

router = page_router()

_RULES: Final = tuple(RULES)
_AT_ONCE: Final = 10_000
"""URLs that are all counted while the page waits."""
_WAIT: Final = 0.05
"""Seconds that the preview of a job with more URLs waits for the counts."""


@router.get("/jobs/{job}/scope")
def scope_page(job: JobName, context: Context) -> Response:
    """The rules in force, a form for others, and the versions before."""
    found = job_of(context, job)
    return _page(context, found, values_of_spec(JobSpec.from_json(found.spec)), Problems())


@router.post("/jobs/{job}/scope/preview")
def preview(job: JobName, context: Context, request: Request) -> Response:
    """Show how many URLs the rules of the form would remove and return."""
    form, problems = read_form(request), Problems()
    found = job_of(context, job)
    values = values_of_spec(JobSpec.from_json(found.spec)) | {
        name: value for name, value in values_of_form(form).items() if name in _RULES
    }
    changes, previewed, counting = _changes(form, problems), None, False
    if not problems.found:
        try:
            previewed, counting = _preview(context, found, changes)
        except HoldfastError as problem:
            problems.found[_field(problem)] = str(problem)
    return _page(
        context,
        found,
        values,
        problems,
        preview=previewed,
        counting=counting,
        version=form.integer("version", "version"),
    )


@router.post("/jobs/{job}/scope")
def apply(job: JobName, context: Context, request: Request, after: BackgroundTasks) -> Response:
    """Apply the rules of the form."""
    form, problems = read_form(request), Problems()
    found = job_of(context, job)
    changes = _changes(form, problems)
    if problems.first is not None:
        raise UsageError(problems.first)
    edited = context.services.jobs(context.caller).edit(found.id, changes, form.integer("version", "version"))
    target = f"{job_path(found)}/scope"
    if not edited.changed:
        return context.redirect(target, "Nothing was changed: the rules are as before.")
    after.add_task(log_failures(follow_up), context.services.crawls, edited.id, tuple(edited.changed))
    return context.redirect(
        target, f"Rules version {edited.rules_version}: {', '.join(edited.changed)} changed. {edited.note}"
    )


@router.post("/jobs/{job}/scope/undo")
def undo(job: JobName, context: Context, request: Request, after: BackgroundTasks) -> Response:
    """Take back the last edit of the rules."""
    found = job_of(context, job)
    version = read_form(request).integer("version", "version")
    undone = context.services.jobs(context.caller).undo_scope(found.id, version)
    after.add_task(log_failures(follow_up), context.services.crawls, undone.id, tuple(undone.changed))
    return context.redirect(
        f"{job_path(found)}/scope",
        f"{plural(len(undone.changed), 'rule')} restored: {', '.join(undone.changed)}. URLs that the edit removed wait again in a moment.",
    )


def _preview(context: PageContext, job: Job, changes: dict[str, Any]) -> tuple[ScopePreview, bool]:
    """The counts of all URLs, if they are known soon; else an estimate, and that they are being counted for the next time."""
    service = context.services.jobs(context.caller)
    if not changes or job.waiting + job.denied <= _AT_ONCE:
        return service.preview_scope(job.id, changes), False
    edit = ScopeEdit.of(job.id, job.version, changes)
    counted = context.services.scope_previews.latest(edit, _WAIT)
    return (counted, False) if counted else (service.preview_scope(job.id, changes, estimated=True), True)


def _changes(form: Form, problems: Problems) -> dict[str, Any]:
    """The rules in a form, all of them: a field that was left empty is the default."""
    options = {name: value for name, value in read_options(form, problems).items() if name in _RULES and name in form}
    body = problems.model(ScopeChange, options)
    return {} if body is None else body.model_dump(exclude_unset=True)


def _field(problem: HoldfastError) -> str:
    """The field that a problem with a pattern belongs to; empty: the form as a whole."""
    return next((name for name in ("include", "exclude") if str(problem).startswith(f"The {name} pattern")), "")


def _page(
    context: PageContext,
    job: Job,
    values: dict[str, Any],
    problems: Problems,
    *,
    preview: ScopePreview | None = None,
    counting: bool = False,
    version: int | None = None,
) -> Response:
    notice = None if problems.first is None else Notice("problem", problems.first)
    return context.page(
        "jobs/scope.html",
        status=422 if problems.found else 200,
        notice=notice,
        **tab(job, "scope"),
        values=values,
        problems=problems.found,
        preview=preview,
        counting=counting,
        version=job.version if version is None else version,
        history=list(reversed(context.services.jobs(context.caller).scope_history(job.id))),
        **option_choices(context),
    )
