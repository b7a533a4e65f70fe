"""`holdfast explain`: the history and the state of a URL or a domain."""

from typing import Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize
from holdfast.control.explain import DomainStory, Explainer, RobotsFile, UrlStory
from holdfast.control.explain_lines import job_lines, robots_line, url_lines
from holdfast.control.explain_text import describe_wait
from holdfast.model.domain_name import canonical_domain
from holdfast.model.proxy import ProxyMode
from holdfast.model.seed_lines import make_seed


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("explain", cls=Command)(explain)


def explain(
    ctx: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="URL|DOMAIN", help="A URL with its scheme or a path, or the bare name of a domain.")
    ],
    as_json: output.Json = False,
) -> None:
    """Show why a URL was or was not crawled: where it was found, how its requests ended, what it waits for.

    For a domain: what each job waits for, and the reasons for the states of its URLs.

    Examples:
        holdfast explain https://example.com/some/page
        holdfast explain example.com --json
    """
    context = command_context.get(ctx)
    settings = context.settings
    registrable = settings.domains.registrable
    is_url = "/" in what
    if is_url:  # invalid input is refused here, before a database is started or a server called
        make_seed(what, rules=factories.url_rules(settings), registrable=registrable)
    else:
        canonical_domain(what, registrable=registrable)
    story = _story(context, what, is_url=is_url)
    if as_json:
        output.print_json(story)
    elif isinstance(story, UrlStory):
        _print_url(story)
    else:
        _print_domain(story)


def _story(context: command_context.CommandContext, what: str, *, is_url: bool) -> UrlStory | DomainStory:
    if context.remote:
        from holdfast.cli.remote import monitoring

        return monitoring.explain(context.client, what)
    settings = context.settings
    explainer = Explainer(
        context.store(),
        factories.url_rules(settings),
        settings.domains.registrable,
        factories.user_agent(settings),
        ProxyMode(settings.proxies.use),
        settings.proxies.direct,
    )
    return explainer.url(what) if is_url else explainer.domain(what)


def _print_url(story: UrlStory) -> None:
    output.print_fields(url_lines(story))
    for entry in story.entries:
        output.print_line()
        output.print_fields(job_lines(entry, story.now))
    output.print_line()
    output.print_fields([robots_line(story)])
    if story.attempts:
        output.print_line("\nRequests, newest first")
        rows: list[tuple[object, ...]] = [
            (
                output.format_time(attempt.crawled_at),
                attempt.job,
                attempt.outcome,
                attempt.status if attempt.status is not None else "-",
                f"{attempt.duration_ms} ms" if attempt.duration_ms is not None else "-",
                attempt.worker or "-",
                attempt.proxy if attempt.proxy is not None else "-",
            )
            for attempt in story.attempts
        ]
        columns = ["WHEN", "JOB", "OUTCOME", "STATUS", "TOOK", "WORKER", "PROXY"]
        if all(attempt.proxy is None for attempt in story.attempts):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        output.print_table(columns, rows, right="STATUS TOOK PROXY")


def _print_domain(story: DomainStory) -> None:
    held = f"{story.held_by} until {output.format_time(story.held_until)} UTC" if story.held_by else "no worker"
    fields: list[tuple[str, object]] = [
        ("Domain", story.domain),
        ("Status", story.status + (f" ({story.status_reason})" if story.status_reason else "")),
        ("First seen", f"{output.format_time(story.first_seen_at)} UTC, from {story.source or 'a link'}"),
        ("Held by", held),
    ]
    for work in story.work:
        counts = (
            f"{count or 0:,} {state}"
            for state, count in (("done", work.done), ("denied", work.denied), ("failed", work.failed))
        )
        left = f"{pluralize(work.waiting or 0, 'URL')} waiting, {', '.join(counts)}"
        fields.append(("Job", f"{work.job} ({work.job_state}): {left}"))
        fields += [
            ("  waits for" if not number else "", describe_wait(wait, story.now))
            for number, wait in enumerate(work.waits)
        ]
    fields += [(("Robots" if not number else ""), _robots_file(row)) for number, row in enumerate(story.robots)]
    output.print_fields(fields)
    if story.outcomes:
        output.print_line("\nRequests by outcome")
        rows = [(count.outcome, f"{count.times:,}", output.format_time(count.last_at)) for count in story.outcomes]
        output.print_table(["OUTCOME", "TIMES", "LAST"], rows, right="TIMES")
    if story.reasons:
        output.print_line("\nURLs by reason")
        reasons = [(count.state, count.reason, f"{count.urls:,}", count.example) for count in story.reasons]
        output.print_table(["STATE", "REASON", "URLS", "EXAMPLE"], reasons, right="URLS")


def _robots_file(file: RobotsFile) -> str:
    if file.reachable:
        content = "there is none" if file.content is None else f"{len(file.content):,} characters"
    else:
        older = "; an older copy serves" if file.content else ""
        content = f"could not be fetched ({file.problem or 'no answer'}){older}"
    return f"{file.url}: {content}, {output.format_time(file.fetched_at)} UTC"
