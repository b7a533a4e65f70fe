"""`holdfast explain`: the history and the state of a URL or a domain."""

from datetime import datetime
from typing import Annotated, Final

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize
from holdfast.control.explain import DomainStory, Explainer, RobotsFile, RobotsRuling, UrlInJob, UrlStory
from holdfast.control.explain_text import describe_wait
from holdfast.db.rows import names_of
from holdfast.model.domain_name import canonical_domain
from holdfast.model.proxy import ProxyMode
from holdfast.model.seed_lines import make_seed
from holdfast.pages.records import LastResponse

_SHOWN_TOGETHER: Final = frozenset(
    {
        *("crawled_at", "status", "outcome", "content_type", "content_length", "content_hash"),
        *("archive_segment", "archive_offset", "archive_length"),
    }
)
"""Fields of the last response that are in a line with others, or not shown; every other field has a line of its own."""


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
    without = ", ".join(f"{parameter.name} (`{parameter.rule}`)" for parameter in story.dropped)
    text = f"{story.asked}, which is crawled as the URL above" + (f", without {without}" if without else "")
    asked = [("Given", text)] if story.asked else []
    output.print_fields([("URL", story.url), *asked, ("Domain", f"{story.domain} ({story.status})")])
    for entry in story.entries:
        output.print_line()
        output.print_fields(_entry_fields(entry, story.now))
    output.print_line()
    ignored = [entry.job for entry in story.entries if not entry.robots]
    note = f"; ignored by {', '.join(ignored)}" if ignored else ""
    output.print_fields([("Robots", _robots_ruling(story.robots) + note)])
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


def _entry_fields(entry: UrlInJob, now: datetime) -> list[tuple[str, object]]:
    row = entry.row
    fields: list[tuple[str, object]] = [
        ("Job", f"{entry.job} ({row.job_state})"),
        ("State", f"{entry.state}: {entry.why}."),
    ]
    if entry.detail:
        fields.append(("Detail", entry.detail))
    if entry.change:
        fields.append(("Changed by", entry.change))
    fields += [("Waits for" if not number else "", describe_wait(wait, now)) for number, wait in enumerate(entry.waits)]
    if entry.ahead:
        fields.append(("Before it", f"{entry.ahead:,}{' or more' if entry.ahead >= 10_000 else ''} URLs of its domain"))
    source = "a seed" if entry.from_seed and not entry.came_from else "a link on"
    met = f"{output.format_time(row.discovered_at)} UTC, depth {row.depth}, priority {row.priority}"
    fields.append(("Discovered", f"{met}, {source if not entry.came_from else source + ' ' + entry.came_from[0]}"))
    fields += [("", f"from {url}") for url in entry.came_from[1:]]
    if entry.came_from:
        fields.append(("", "which is a seed" if entry.from_seed else "and so on"))
    if entry.page:
        fields += _page_fields(entry.page)
    return fields


def _page_fields(page: LastResponse) -> list[tuple[str, object]]:
    text = f"{output.format_time(page.crawled_at)} UTC, {page.outcome}, status {page.status}, {page.content_length:,} bytes"
    fields: list[tuple[str, object]] = [("Last answer", text + (f", {page.content_type}" if page.content_type else ""))]
    others = ((name, getattr(page, name)) for name in names_of(LastResponse) if name not in _SHOWN_TOGETHER)
    fields += [(name.removeprefix("content_").replace("_", " ").capitalize(), value) for name, value in others if value]
    if page.archive_segment:
        fields.append(("Archive", f"{page.archive_segment}, {page.archive_length:,} bytes at {page.archive_offset:,}"))
    return fields


def _robots_ruling(ruling: RobotsRuling) -> str:
    if ruling.allowed is None:
        return f"{ruling.url} was not fetched yet"
    text = "allows it" if ruling.allowed else "denies it"
    line = f" by {ruling.line!r}" if ruling.line else ""
    missing = "" if ruling.reachable else f"; the last fetch failed ({ruling.problem or 'no answer'})"
    return f"{ruling.url} of {output.format_time(ruling.fetched_at)} UTC {text} for {ruling.agent}{line}{missing}"


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
