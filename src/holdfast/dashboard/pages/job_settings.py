"""The settings of a job: options, schedule, headers and cookies."""

from typing import Any

from fastapi import BackgroundTasks, Request, Response

from holdfast.api.forms import Form, read_form
from holdfast.api.request_types import JobName
from holdfast.api.responses import log_failures
from holdfast.control.parsers import check_known
from holdfast.dashboard.job_fields import (
    FLAGS,
    Problems,
    job_path,
    read_options,
    read_secrets,
    values_of_form,
    values_of_spec,
)
from holdfast.dashboard.pages.job import job_of, options_of, tab
from holdfast.dashboard.pages.job_new import option_choices
from holdfast.dashboard.rendering import Context, Notice, PageContext
from holdfast.dashboard.route import page_router
from holdfast.errors import HoldfastError, UsageError
from holdfast.jobs.api import JobChange
from holdfast.jobs.edits import KEYS, follow_up
from holdfast.jobs.records import Job
from holdfast.model.job import JobSpec
from holdfast.model.request_secrets import RequestSecrets

router = page_router()

EDITED_FLAGS = {name: label for name, label in FLAGS.items() if name in KEYS}


@router.get("/jobs/{job}/settings")
def settings_page(job: JobName, context: Context) -> Response:
    """The options in force, and forms to change them."""
    found = job_of(context, job)
    return _page(context, found, values_of_spec(JobSpec.from_json(found.spec)), Problems())


@router.post("/jobs/{job}/settings")
def edit(job: JobName, context: Context, request: Request, after: BackgroundTasks) -> Response:
    """Change options, or show the form again with what is wrong."""
    form, problems = read_form(request), Problems()
    service = context.services.jobs(context.caller)
    found = service.show(job)
    options = {
        name: value for name, value in read_options(form, problems).items() if name in KEYS and _sent(name, form)
    }
    body = problems.model(JobChange, options)
    parser = None if body is None else body.parser
    if parser is not None:
        problems.check("parser", lambda: check_known(parser, context.services.settings.parsing))
    if body is not None and not problems.found:
        changes = body.model_dump(exclude_unset=True)
        try:
            edited = service.edit(found.id, changes, form.integer("version", "version"))
        except HoldfastError as problem:
            problems.found[""] = str(problem)
        else:
            if not edited.changed:
                return context.redirect(
                    f"{job_path(found)}/settings", "Nothing was changed: all options are as before."
                )
            after.add_task(log_failures(follow_up), context.services.crawls, edited.id, tuple(edited.changed))
            names = ", ".join(edited.changed)
            return context.redirect(f"{job_path(found)}/settings", f"Changed: {names}. {edited.note}")
    return _page(
        context, found, values_of_spec(JobSpec.from_json(found.spec)) | values_of_form(form), problems, status=422
    )


@router.post("/jobs/{job}/schedule")
def schedule(job: JobName, context: Context, request: Request) -> Response:
    """Set or remove the schedule."""
    form = read_form(request)
    found = job_of(context, job)
    when = None if form.flag("remove") else form.required("schedule", "Crawl it again")
    following = context.services.jobs(context.caller).schedule(found.id, when)
    done = (
        "The schedule is removed; a crawl that runs continues."
        if following is None
        else f"Schedule {when}: the next crawl begins at {following:%Y-%m-%d %H:%M} UTC."
    )
    return context.redirect(f"{job_path(found)}/settings", done)


@router.post("/jobs/{job}/secrets")
def set_secrets(job: JobName, context: Context, request: Request) -> Response:
    """Set or remove the headers, cookies and credentials."""
    form, problems = read_form(request), Problems()
    found = job_of(context, job)
    service = context.services.jobs(context.caller)
    removed = {name for name in ("headers", "cookies", "basic_auth") if form.flag(f"remove_{name}")}
    secrets = _with_removed(form, removed, problems)
    if problems.first is not None:
        raise UsageError(problems.first)
    if secrets is None:
        raise UsageError("Fill in headers, cookies or a password, or tick what to remove.")
    names = service.set_secrets(context.services.crawls, found.id, secrets)
    sent = f"Sent from now on: {', '.join(names)}." if names else "No header, cookie or password is sent any more."
    return context.redirect(f"{job_path(found)}/settings", sent)


def _with_removed(form: Form, removed: set[str], problems: Problems) -> RequestSecrets | None:
    if not removed:
        return read_secrets(form, problems)
    return RequestSecrets.parse(
        [] if "headers" in removed else form.lines("headers") or None,
        [] if "cookies" in removed else form.lines("cookies") or None,
        "" if "basic_auth" in removed else form.text("basic_auth"),
    )


def _sent(name: str, form: Form) -> bool:
    """Whether a form has a field: a box that is not ticked is not sent, so all boxes of the form count."""
    return name in form or name in EDITED_FLAGS


def _page(context: PageContext, job: Job, values: dict[str, Any], problems: Problems, *, status: int = 200) -> Response:
    notice = None if problems.first is None else Notice("problem", problems.first)
    empty = dict.fromkeys(("headers", "cookies", "basic_auth"), "")
    return context.page(
        "jobs/settings.html",
        status=status,
        notice=notice,
        **tab(job, "settings"),
        values={**values, **empty},
        problems=problems.found,
        flags=EDITED_FLAGS,
        options=options_of(job),
        **option_choices(context),
    )
