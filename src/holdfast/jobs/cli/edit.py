"""`holdfast jobs set`, `undo-scope` and `scope-history`: the options of a job, and the versions of its rules."""

from typing import Annotated

import typer

from holdfast.cli import command_context, job_options, output
from holdfast.cli.output import pluralize
from holdfast.jobs.cli.context import Which, job_service, local_jobs
from holdfast.jobs.edits import ALL_KEYS, follow_up, parse
from holdfast.jobs.records import EditedJob, ScopePreview
from holdfast.model.scope import describe_rules


def _edit(ctx: typer.Context, job: str, changes: dict[str, object]) -> EditedJob:
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        return RemoteJobs(context.client).edit(job, changes)
    if isinstance(parser := changes.get("parser"), str):
        from holdfast.control.parsers import check_known

        check_known(parser, context.settings.parsing)
    edited = local_jobs(context).edit(job, changes)
    follow_up(job_options.crawl_service(context), edited.id, tuple(changes))
    return edited


def edit(
    ctx: typer.Context,
    job: Which,
    assignments: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help=f"What to set; empty lifts it. Keys: {ALL_KEYS}.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many URLs other rules would remove and return.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Change rules, limits, request rate, parser and other options of a job; running visits apply them within two seconds.

    A job that stopped at a limit continues the same crawl once the limit is raised or lifted: pages fetched so far count.

    The rules are scope (host, domain, any), include, exclude and max_depth. Waiting URLs that do not fit any more are denied, URLs that
    were left out and fit now wait; pages that were crawled stay. Several patterns: give include= or exclude= once for each; together
    they replace the ones before. `holdfast jobs undo-scope` takes the last edit of the rules back.

    Examples:
        holdfast jobs set news max_pages=5000 delay=2
        holdfast jobs set news max_pages= max_depth=20
        holdfast jobs set shop parser=product refresh=yes
        holdfast jobs set news scope=domain exclude=/tag/ exclude=/private/
        holdfast jobs set news include=/blog/ --dry-run
        holdfast jobs set news exclude=
    """
    changes = parse(assignments)
    if dry_run:
        _print_preview(job_service(ctx).preview_scope(job, changes), as_json)
        return
    _print_edit(_edit(ctx, job, changes), as_json)


def undo_scope(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """Take back the last edit of a job's rules (scope, include, exclude, max_depth); repeated, the one before that.

    URLs that the edit removed wait again; pages that were crawled stay. Exit code 5 if there is no edit to undo.

    Examples:
        holdfast jobs undo-scope news
    """
    context = command_context.get(ctx)
    undone = job_service(ctx).undo_scope(job)
    if not context.remote:
        follow_up(job_options.crawl_service(context), undone.id, tuple(undone.changed))
    _print_edit(undone, as_json)


def scope_history(ctx: typer.Context, job: Which, as_json: output.Json = False) -> None:
    """List the versions of a job's rules (scope, include, exclude, max_depth); the last one is in force.

    Examples:
        holdfast jobs scope-history news
        holdfast jobs scope-history news --json
    """
    versions = job_service(ctx).scope_history(job)
    if as_json:
        output.print_json(versions)
        return
    rows = [
        (
            one.version,
            output.format_time(one.at),
            one.actor or "-",
            "-" if one.restores is None else f"of version {one.restores}",
            describe_rules(one.rules),
        )
        for one in versions
    ]
    output.print_table(["VERSION", "SINCE", "BY", "RESTORED", "RULES"], rows, right="VERSION")


def _print_edit(edited: EditedJob, as_json: bool) -> None:
    if as_json:
        identity = {"id": edited.id, "job": edited.name, "version": edited.version}
        rules = {"rules_version": edited.rules_version}
        output.print_json(identity | rules | {"changed": edited.changed, "note": edited.note})
        return
    what = f"changed {', '.join(edited.changed)}" if edited.changed else "it is so already"
    output.print_line(output.safe(f"Job {edited.name}: {what}. {edited.note}"))


def _print_preview(preview: ScopePreview, as_json: bool) -> None:
    if as_json:
        output.print_json(preview)
        return
    about = "" if preview.exact else "about "
    output.print_line(
        f"It would remove {about}{pluralize(preview.removes, 'waiting URL')} and return "
        f"{about}{pluralize(preview.returns, 'URL')} that the rules left out. Nothing was changed."
    )
    for what, urls in (("Removed", preview.removed_urls), ("Returned", preview.returned_urls)):
        for url in urls:
            output.print_line(output.safe(f"{what}, for example: {url}"))
    if not preview.exact:
        output.print_line("The numbers are estimated from a part of its URLs: there are too many to read.")
