"""`holdfast explain`: the history and the state of a URL or a domain."""

from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize
from holdfast.control.explain import DomainStory, Entry, Explainer, UrlStory, Verdict
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
        from holdfast.cli.remote import store

        return store.explain(context.client, what)
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
    output.print_fields([("Robots", _robots_verdict(story.robots) + note)])
    if story.attempts:
        output.print_line("\nRequests, newest first")
        rows: list[tuple[object, ...]] = [
            (
                output.format_time(a["crawled_at"]),
                a["job"],
                a["outcome"],
                a["status"] if a["status"] is not None else "-",
                f"{a['duration_ms']} ms" if a["duration_ms"] is not None else "-",
                a["worker"] or "-",
                a["proxy"] if a["proxy"] is not None else "-",
            )
            for a in story.attempts
        ]
        columns = ["WHEN", "JOB", "OUTCOME", "STATUS", "TOOK", "WORKER", "PROXY"]
        if all(a["proxy"] is None for a in story.attempts):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        output.print_table(columns, rows, right="STATUS TOOK PROXY")


def _entry_fields(entry: Entry, now: datetime) -> list[tuple[str, object]]:
    row = entry.row
    fields: list[tuple[str, object]] = [
        ("Job", f"{entry.job} ({row['job_state']})"),
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
    met = f"{output.format_time(row['discovered_at'])} UTC, depth {row['depth']}, priority {row['priority']}"
    fields.append(("Discovered", f"{met}, {source if not entry.came_from else source + ' ' + entry.came_from[0]}"))
    fields += [("", f"from {url}") for url in entry.came_from[1:]]
    if entry.came_from:
        fields.append(("", "which is a seed" if entry.from_seed else "and so on"))
    if entry.page:
        fields += _page_fields(entry.page)
    return fields


def _page_fields(page: dict[str, Any]) -> list[tuple[str, object]]:
    text = f"{output.format_time(page['crawled_at'])} UTC, {page['outcome']}, status {page['status']}, {page['content_length']:,} bytes"
    fields: list[tuple[str, object]] = [
        ("Last answer", text + (f", {page['content_type']}" if page["content_type"] else ""))
    ]
    if page["title"]:
        fields.append(("Title", page["title"]))
    if page["archive_segment"]:
        fields.append(
            ("Archive", f"{page['archive_segment']}, {page['archive_length']:,} bytes at {page['archive_offset']:,}")
        )
    return fields


def _robots_verdict(verdict: Verdict) -> str:
    if verdict.allowed is None:
        return f"{verdict.url} was not fetched yet"
    text = "allows it" if verdict.allowed else "denies it"
    line = f" by {verdict.line!r}" if verdict.line else ""
    missing = "" if verdict.reachable else f"; the last fetch failed ({verdict.problem or 'no answer'})"
    return f"{verdict.url} of {output.format_time(verdict.fetched_at)} UTC {text} for {verdict.agent}{line}{missing}"


def _print_domain(story: DomainStory) -> None:
    held = f"{story.held_by} until {output.format_time(story.held_until)} UTC" if story.held_by else "no worker"
    fields: list[tuple[str, object]] = [
        ("Domain", story.domain),
        ("Status", story.status + (f" ({story.status_reason})" if story.status_reason else "")),
        ("First seen", f"{output.format_time(story.first_seen_at)} UTC, from {story.source or 'a link'}"),
        ("Held by", held),
    ]
    for work in story.work:
        left = f"{pluralize(work['waiting'], 'URL')} waiting, {work['done']:,} done, {work['denied']:,} denied, {work['failed']:,} failed"
        fields.append(("Job", f"{work['job']} ({work['job_state']}): {left}"))
        fields += [
            ("  waits for" if not number else "", describe_wait(wait, story.now))
            for number, wait in enumerate(work["waits"])
        ]
    fields += [(("Robots" if not number else ""), _robots_file(row)) for number, row in enumerate(story.robots)]
    output.print_fields(fields)
    if story.outcomes:
        output.print_line("\nRequests by outcome")
        rows = [(o["outcome"], f"{o['times']:,}", output.format_time(o["last_at"])) for o in story.outcomes]
        output.print_table(["OUTCOME", "TIMES", "LAST"], rows, right="TIMES")
    if story.reasons:
        output.print_line("\nURLs by reason")
        reasons = [(r["state"], r["reason"], f"{r['urls']:,}", r["example"]) for r in story.reasons]
        output.print_table(["STATE", "REASON", "URLS", "EXAMPLE"], reasons, right="URLS")


def _robots_file(row: dict[str, Any]) -> str:
    had = (
        "there is none" if row["content"] is None and row["reachable"] else f"{len(row['content'] or ''):,} characters"
    )
    if not row["reachable"]:
        had = f"could not be fetched ({row['problem'] or 'no answer'})" + (
            "; an older copy serves" if row["content"] else ""
        )
    return f"{row['url']}: {had}, {output.format_time(row['fetched_at'])} UTC"
