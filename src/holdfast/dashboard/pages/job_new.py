"""The form for a new job, and its plan before it starts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from fastapi import Request, Response

from holdfast.api.forms import read_form
from holdfast.control.parsers import check_known
from holdfast.dashboard.job_fields import (
    FLAGS,
    Problems,
    SeedLines,
    job_path,
    read_options,
    read_secrets,
    read_seeds,
    values_of_form,
    values_of_spec,
)
from holdfast.dashboard.rendering import Context, Notice, PageContext
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import HoldfastError, UsageError
from holdfast.jobs.api import MAX_SEEDS, Spec
from holdfast.jobs.crawls import CrawlRequest, check_parser
from holdfast.jobs.records import CrawlPlan
from holdfast.model.job import JobSpec, Sitemaps, check_job_name
from holdfast.model.schedule import parse
from holdfast.model.scope import compile_rules

router = page_router()

SCOPES: Final = {
    "host": "the same host as the page",
    "domain": "the same registrable domain",
    "any": "any site",
}
SITEMAPS: Final = {
    Sitemaps.ALSO: "URLs come from sitemaps and from links",
    Sitemaps.ONLY: "the links of pages are not followed",
    Sitemaps.NO: "none is read",
}


@router.get("/jobs/new")
def new_job(context: Context) -> Response:
    """The empty form."""
    if not context.is_admin:
        return context.redirect("/jobs", problem="Only an admin can create jobs.")
    values = {**values_of_spec(JobSpec()), **dict.fromkeys(("name", "seeds", "schedule"), "")}
    return _form(context, {**values, "headers": "", "cookies": "", "basic_auth": ""}, Problems())


@router.post("/jobs/new")
def create_job(context: Context, request: Request) -> Response:
    """Create the job, or show the form again with what is wrong."""
    problems = Problems()
    wanted, seeds, values = _read(context, request, problems)
    created = None
    if not problems.found:
        try:
            created = context.services.jobs(context.caller).create(
                context.services.crawls, wanted, schedule=str(values["schedule"]).strip() or None
            )
        except HoldfastError as problem:
            field = "name" if "job called" in str(problem) else ""
            problems.found[field] = str(problem)
    if created is None:
        return _form(context, values, problems, status=422)
    left_out = f" {plural(seeds.bad_count, 'line')} left out. {' '.join(seeds.bad)}" if seeds.bad_count else ""
    return context.redirect(
        job_path(created.job),
        f"Job {created.job.name} is created with {plural(created.seeds, 'seed')}.{left_out}",
    )


@router.post("/jobs/plan")
def plan_job(context: Context, request: Request) -> Response:
    """Show the plan of the job above the form, which stays filled in."""
    problems = Problems()
    wanted, seeds, values = _read(context, request, problems)
    plan = None
    if not problems.found:
        try:
            service, crawls = context.services.jobs(context.caller), context.services.crawls
            plan = service.plan(crawls, replace(wanted, secrets=None), seeds.seeds)
        except HoldfastError as problem:
            problems.found["name" if "job called" in str(problem) else ""] = str(problem)
    return _form(context, values, problems, status=200 if plan else 422, plan=plan, bad_lines=seeds.bad)


def _read(context: PageContext, request: Request, problems: Problems) -> tuple[CrawlRequest, SeedLines, dict[str, Any]]:
    """Return what the form asks for, its seeds, and its values to show it again."""
    services = context.services
    form = read_form(request)
    values = values_of_form(form)
    name = form.raw("name").strip()
    problems.check("name", lambda: check_job_name(name))
    importer = services.seed_importer
    seeds = read_seeds(form, importer.rules, registrable=importer.registrable)
    values["seeds"] = seeds.text
    problems.check("seeds", lambda: _check_seeds(seeds))
    options = read_options(form, problems)
    spec = problems.model(Spec, {name: value for name, value in options.items() if value is not None})
    if spec is not None:
        lists = {
            "include": tuple(spec.include),
            "exclude": tuple(spec.exclude),
            "strip_params": tuple(spec.strip_params),
            "types": tuple(spec.types),
        }
        options = {**spec.model_dump(), **lists}
        problems.check("include", lambda: compile_rules(JobSpec(include=lists["include"])))
        problems.check("exclude", lambda: compile_rules(JobSpec(exclude=lists["exclude"])))
        if spec.parser is not None:
            parser = spec.parser
            problems.check("parser", lambda: check_known(parser, services.settings.parsing))
        problems.check("archive", lambda: check_parser(JobSpec(parser=spec.parser, archive=spec.archive)))
    schedule = form.text("schedule")
    if schedule is not None:
        problems.check("schedule", lambda: parse(schedule))
    secrets = read_secrets(form, problems)
    return CrawlRequest(seeds.urls, job=name, options=options, secrets=secrets), seeds, values


def _check_seeds(seeds: SeedLines) -> None:
    if not seeds.urls:
        raise UsageError(f"No line is a seed. {' '.join(seeds.bad)}" if seeds.bad else "Write at least one seed.")
    if len(seeds.urls) > MAX_SEEDS:
        raise UsageError(
            f"{len(seeds.urls):,} seeds are too many for this form, which takes {MAX_SEEDS:,}; `holdfast jobs create NAME --seeds FILE` "
            "takes a file of any length."
        )


def _form(
    context: PageContext,
    values: dict[str, Any],
    problems: Problems,
    *,
    status: int = 200,
    plan: CrawlPlan | None = None,
    bad_lines: Sequence[str] = (),
) -> Response:
    notice = None if problems.first is None else Notice("problem", problems.first)
    return context.page(
        "jobs/new.html",
        status=status,
        notice=notice,
        values=values,
        problems=problems.found,
        flags=FLAGS,
        max_seeds=MAX_SEEDS,
        plan=plan,
        bad_lines=bad_lines,
        **option_choices(context),
    )


def option_choices(context: PageContext) -> dict[str, Any]:
    """Return what the fields of a job offer, and the defaults that they name."""
    settings = context.services.settings
    return {
        "scopes": SCOPES,
        "sitemap_choices": SITEMAPS,
        "default_sitemaps": settings.crawl.sitemaps,
        "parsers": context.services.parser_names.get(),
        "default_depth": settings.crawl.max_depth,
        "share": settings.domains.max_pages_per_run,
    }
