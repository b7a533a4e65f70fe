"""`holdfast explain`: why a URL or a domain is where it is."""

from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast import wiring
from holdfast.cli import output, session
from holdfast.cli.help import Command
from holdfast.cli.output import counted
from holdfast.control.explain import DomainStory, Entry, Explainer, UrlStory, Verdict
from holdfast.control.reasons import describe_wait
from holdfast.model.host import canonical_domain
from holdfast.model.proxy import Use
from holdfast.model.seeds import make_seed


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("explain", cls=Command)(explain)


def explain(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(metavar="URL|DOMAIN", help="A URL with its scheme or a path, or the bare name of a domain.")
    ],
    as_json: output.Json = False,
) -> None:
    """Say why a URL was or was not crawled: where it was found, how its requests ended, what it waits for.

    Of a domain it says what each job waits for, and why its URLs are where they are.

    Examples:
        holdfast explain https://example.com/some/page
        holdfast explain example.com --json
    """
    of = session.of(context)
    settings = of.settings
    registrable = settings.domains.registrable
    is_url = "/" in what
    if is_url:  # refused here if it is none, before a server is started or asked for it
        make_seed(what, rules=wiring.url_rules(settings), registrable=registrable)
    else:
        canonical_domain(what, registrable=registrable)
    story = _story(of, what, is_url=is_url)
    if as_json:
        output.print_json(story)
    elif isinstance(story, UrlStory):
        _print_url(story)
    else:
        _print_domain(story)


def _story(of: session.Session, what: str, *, is_url: bool) -> UrlStory | DomainStory:
    if of.remote:
        from holdfast.cli.remote import store

        return store.explain(of.client, what)
    settings = of.settings
    explainer = Explainer(
        of.store(),
        wiring.url_rules(settings),
        settings.domains.registrable,
        wiring.user_agent(settings),
        Use(settings.proxies.use),
        settings.proxies.direct,
    )
    return explainer.url(what) if is_url else explainer.domain(what)


def _print_url(story: UrlStory) -> None:
    without = ", ".join(f"{parameter.name} (`{parameter.rule}`)" for parameter in story.dropped)
    told = f"{story.asked}, which is crawled as the URL above" + (f", without {without}" if without else "")
    asked = [("Asked for", told)] if story.asked else []
    output.print_facts([("URL", story.url), *asked, ("Domain", f"{story.domain} ({story.status})")])
    for entry in story.entries:
        output.print_line()
        output.print_facts(_facts(entry, story.now))
    output.print_line()
    ignored = [entry.job for entry in story.entries if not entry.robots]
    note = f"; not asked by {', '.join(ignored)}" if ignored else ""
    output.print_facts([("Robots", _verdict(story.robots) + note)])
    if story.attempts:
        output.print_line("\nAsked for, newest first")
        rows: list[tuple[object, ...]] = [
            (
                output.when(a["crawled_at"]),
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


def _facts(entry: Entry, now: datetime) -> list[tuple[str, object]]:
    row = entry.row
    facts: list[tuple[str, object]] = [
        ("Job", f"{entry.job} ({row['job_state']})"),
        ("State", f"{entry.state}: {entry.why}."),
    ]
    if entry.detail:
        facts.append(("Detail", entry.detail))
    if entry.change:
        facts.append(("Changed by", entry.change))
    facts += [("Waits for" if not number else "", describe_wait(wait, now)) for number, wait in enumerate(entry.waits)]
    if entry.ahead:
        facts.append(("Before it", f"{entry.ahead:,}{' or more' if entry.ahead >= 10_000 else ''} URLs of its domain"))
    source = "a seed" if entry.from_seed and not entry.came_from else "a link on"
    met = f"{output.when(row['discovered_at'])} UTC, depth {row['depth']}, priority {row['priority']}"
    facts.append(("Met", f"{met}, {source if not entry.came_from else source + ' ' + entry.came_from[0]}"))
    facts += [("", f"from {url}") for url in entry.came_from[1:]]
    if entry.came_from:
        facts.append(("", "which is a seed" if entry.from_seed else "and farther back"))
    if entry.page:
        facts += _page(entry.page)
    return facts


def _page(page: dict[str, Any]) -> list[tuple[str, object]]:
    told = f"{output.when(page['crawled_at'])} UTC, {page['outcome']}, status {page['status']}, {page['content_length']:,} bytes"
    facts: list[tuple[str, object]] = [
        ("Last answer", told + (f", {page['content_type']}" if page["content_type"] else ""))
    ]
    if page["title"]:
        facts.append(("Title", page["title"]))
    if page["archive_segment"]:
        facts.append(
            ("Archive", f"{page['archive_segment']}, {page['archive_length']:,} bytes at {page['archive_offset']:,}")
        )
    return facts


def _verdict(verdict: Verdict) -> str:
    if verdict.allowed is None:
        return f"{verdict.url} was not asked for yet"
    told = "allows it" if verdict.allowed else "denies it"
    line = f" by {verdict.line!r}" if verdict.line else ""
    missing = "" if verdict.reachable else f"; the last time it could not be had ({verdict.problem or 'no answer'})"
    return f"{verdict.url} of {output.when(verdict.fetched_at)} UTC {told} for {verdict.agent}{line}{missing}"


def _print_domain(story: DomainStory) -> None:
    held = f"{story.held_by} until {output.when(story.held_until)} UTC" if story.held_by else "no worker"
    facts: list[tuple[str, object]] = [
        ("Domain", story.domain),
        ("Status", story.status + (f" ({story.status_reason})" if story.status_reason else "")),
        ("Seen first", f"{output.when(story.first_seen_at)} UTC, from {story.source or 'a link'}"),
        ("Held by", held),
    ]
    for work in story.work:
        left = f"{counted(work['waiting'], 'URL')} waiting, {work['done']:,} done, {work['denied']:,} denied, {work['failed']:,} failed"
        facts.append(("Job", f"{work['job']} ({work['job_state']}): {left}"))
        facts += [
            ("  waits for" if not number else "", describe_wait(wait, story.now))
            for number, wait in enumerate(work["waits"])
        ]
    facts += [(("Robots" if not number else ""), _robots(row)) for number, row in enumerate(story.robots)]
    output.print_facts(facts)
    if story.outcomes:
        output.print_line("\nRequests by outcome")
        rows = [(o["outcome"], f"{o['times']:,}", output.when(o["last_at"])) for o in story.outcomes]
        output.print_table(["OUTCOME", "TIMES", "LAST"], rows, right="TIMES")
    if story.reasons:
        output.print_line("\nURLs by reason")
        reasons = [(r["state"], r["reason"], f"{r['urls']:,}", r["example"]) for r in story.reasons]
        output.print_table(["STATE", "REASON", "URLS", "EXAMPLE"], reasons, right="URLS")


def _robots(row: dict[str, Any]) -> str:
    had = (
        "there is none" if row["content"] is None and row["reachable"] else f"{len(row['content'] or ''):,} characters"
    )
    if not row["reachable"]:
        had = f"could not be had ({row['problem'] or 'no answer'})" + (
            "; an older copy serves" if row["content"] else ""
        )
    return f"{row['url']}: {had}, {output.when(row['fetched_at'])} UTC"
