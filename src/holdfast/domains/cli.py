"""`holdfast domains`: list, show, configure, reset and unblock domains."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from inspect import cleandoc
from typing import Annotated, Final, Protocol

import typer

from holdfast import factories
from holdfast.cli import command_context, output, secret_options
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.domains.records import Domain, DomainDetails, DomainFacts, DomainReset
from holdfast.domains.service import ALL_KEYS, DomainService, parse_assignments
from holdfast.model.domain import Status
from holdfast.model.domain_name import canonical_domain
from holdfast.model.request_secrets import RequestSecrets
from holdfast.settings import render_duration
from holdfast.sitemaps.cli import print_sitemaps

Name = Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain, or a URL on it.")]
_USES = {"direct": "uses none", "pool": "uses those of its pool", "any": "uses those of its pool, then any other"}

_SOURCES = {"robots": "Crawl-delay of robots.txt", "job": "asked for by the job", "learnt": "the server is slow"}

Limit = Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Maximum number of domains.")]


class Domains(Protocol):
    """Domains of a store, or of a server."""

    def recent(self, status: Status | None, limit: int) -> Sequence[Domain]: ...

    def counts(self) -> dict[str, int]: ...

    def info(self, name: str) -> DomainFacts: ...

    def reset(self, name: str, why: str, *, actor: str) -> DomainReset: ...

    def unblock(self, name: str, why: str, *, actor: str) -> DomainReset: ...

    def configure(
        self,
        name: str,
        changes: Mapping[str, object],
        *,
        actor: str,
        secrets: RequestSecrets | None = None,
        plain_http: bool = False,
    ) -> DomainDetails: ...

    def recalculate(self) -> Iterator[tuple[int, int, int]]: ...


def register(app: typer.Typer) -> None:
    """Add these commands to the program: as the group `domains`, and each under the name that it has without the group."""
    group = typer.Typer(cls=Group, help="Domains: list, show, configure, unblock and reset them.", no_args_is_help=True)
    commands: dict[str, Callable[..., None]] = {
        "status": domain_status,
        "info": domain_info,
        "set": domain_set,
        "reset": domain_reset,
        "unblock": domain_unblock,
        "top": top_domains,
        "priorities": recalculate_priorities,
    }
    for short, command in commands.items():
        name = command.__name__.replace("_", "-")
        app.command(name, cls=Command)(command)
        help_text = cleandoc(command.__doc__ or "").replace(f"holdfast {name}", f"holdfast domains {short}")
        group.command(short, cls=Command, help=help_text)(command)
    app.add_typer(group, name="domains")


def _domains(ctx: typer.Context, name: str | None = None) -> Domains:
    """Domains of the store or the server; an invalid `name` is refused before either is started or asked."""
    context = command_context.get(ctx)
    if name is not None:
        canonical_domain(name, registrable=context.settings.domains.registrable)
    if context.remote:
        from holdfast.cli.remote.domains import RemoteDomains

        return RemoteDomains(context.client)
    return _local_domains(ctx)


def _local_domains(ctx: typer.Context) -> DomainService:
    """Domains of the store itself."""
    context = command_context.get(ctx)
    settings = context.settings
    return DomainService(
        context.store(),
        settings.domains.registrable,
        factories.new_domains(settings),
        factories.secret_sealer(settings),
        settings.parsing,
    )


def domain_status(
    ctx: typer.Context,
    status: Annotated[
        Status | None, typer.Option(metavar="STATUS", help=f"Only domains that are {', '.join(Status)}.")
    ] = None,
    limit: Limit = 50,
    as_json: output.Json = False,
) -> None:
    """List domains and how far they are.

    Examples:
        holdfast domain-status --status blocked
        holdfast domain-status --limit 1000 --json
    """
    domains = _domains(ctx)
    rows = domains.recent(status, limit)
    counts = domains.counts()
    if as_json:
        output.print_json({"domains": rows, "counts": counts})
        return
    _print_domains(rows)
    known = counts[status] if status else sum(counts.values())
    if known > len(rows):
        command_context.say(f"{len(rows):,} of {known:,} domains; --limit shows more.")
    elif not rows:
        command_context.say(
            f"No domain is {status}." if status else "No domains yet; `holdfast seeds add URL` adds some."
        )


def top_domains(ctx: typer.Context, limit: Limit = 20, as_json: output.Json = False) -> None:
    """Show the domains that yield most images a page.

    Examples:
        holdfast top-domains --limit 5
    """
    rows = _local_domains(ctx).top(limit)
    if as_json:
        output.print_json({"domains": rows})
    elif rows:
        _print_domains(rows)
    else:
        command_context.say("No domain has been crawled yet.")


_OF_IMAGES: Final = ("IMAGES", "YIELD")
"""Columns of domains that have images."""


def _print_domains(rows: Sequence[Domain]) -> None:
    notes = {i: f"reason: {_reason(row)}" for i, row in enumerate(rows) if row.block_reason_code or row.block_reason}
    cells: list[tuple[object, ...]] = [
        (
            row.domain,
            row.status,
            f"{row.pages_done}/{row.pages_known}",
            row.images_stored,
            _rate(row.image_yield_rate),
            output.format_time(row.last_crawled_at),
        )
        for row in rows
    ]
    header = ["DOMAIN", "STATUS", "PAGES", "IMAGES", "YIELD", "LAST CRAWLED"]
    if not any(row.images_stored for row in rows):  # of no use where no images are stored
        header = [title for title in header if title not in _OF_IMAGES]
        cells = [(*cell[:3], cell[5]) for cell in cells]
    output.print_table(header, cells, notes, right="PAGES IMAGES YIELD")


def _reason(row: Domain) -> str:
    code, words = row.block_reason_code, row.block_reason
    return f"{code} ({words})" if code and words else str(code or words)


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:.2f}" if 0 < rate < 1 else f"{rate:.1f}"


def domain_info(ctx: typer.Context, name: Name, as_json: output.Json = False) -> None:
    """Show everything about a domain.

    Examples:
        holdfast domain-info example.com
        holdfast domain-info https://example.com/some/page --json
    """
    found = _domains(ctx, name).info(name)
    if as_json:
        history = {"work": found.work, "transitions": found.transitions, "tenures": found.tenures}
        history |= {"sitemaps": found.sitemaps, "lastmod": found.lastmod}
        output.print_json(asdict(found.facts) | history)
        return
    output.print_fields(_facts(found))
    if found.work:
        output.print_line("\nWork")
        columns = ["JOB", "STATE", "READY", "WAITING", "DONE", "DENIED", "FAILED"]
        work = [
            (one.job, one.state, "yes" if one.ready else "no", one.waiting, one.done, one.denied, one.failed)
            for one in found.work
        ]
        output.print_table(columns, work, right="WAITING DONE DENIED FAILED")
    if found.sitemaps:
        print_sitemaps(found.sitemaps)
    if found.transitions:
        output.print_line("\nChanges of status, newest first")
        changes = [
            (output.format_time(one.at), f"{one.from_status} → {one.to_status}", one.reason, one.worker or "-")
            for one in found.transitions
        ]
        output.print_table(["WHEN", "CHANGE", "REASON", "WORKER"], changes)
    if found.tenures:
        output.print_line("\nHeld by, newest first")
        tenures = [
            (
                one.epoch,
                one.worker,
                output.format_time(one.claimed_at),
                output.format_time(one.ended_at),
                one.why or "-",
            )
            for one in found.tenures
        ]
        output.print_table(["EPOCH", "WORKER", "FROM", "UNTIL", "ENDED"], tenures, right="EPOCH")


def _facts(found: DomainFacts) -> list[tuple[str, object]]:
    info = found.facts
    expired = " (expired)" if info.claim_expired else ""
    held = f"{info.claimed_by} until {output.format_time(info.claim_expires_at)}{expired}"
    again = "only after a reset" if info.stays_blocked else output.format_time(info.next_crawl_after)
    if info.status == Status.EXHAUSTED and not any(work.refresh for work in found.work):
        again = "never by itself: no job of it asked for refresh (`--refresh`)"
    stored = f"{info.images_stored} stored of {info.images_found} found"
    limit = f"at most {info.max_pages_per_run:,} pages a crawl" if info.max_pages_is_limit else "no page limit"
    configuration = [
        _delay(info),
        f"{pluralize(info.max_concurrent_requests, 'request')} at once",
        limit,
        f"parser {info.parser_name}",
        f"every {render_duration(info.default_crawl_frequency)}",
    ]
    facts: list[tuple[str, object]] = [
        ("Domain", info.domain),
        ("Part of", info.parent_domain),
        ("Status", info.status + (f" ({info.status_reason})" if info.status_reason else "")),
        ("Held by", held if info.claimed_by else "no worker"),
        ("Pages", _pages(info)),
        ("Images", f"{stored}, {_rate(info.image_yield_rate)} a page"),
        ("Errors", _errors(info)),
        ("Priority", f"{info.priority}" + (f" (rank {info.seed_rank})" if info.seed_rank else "")),
        ("First seen", f"{output.format_time(info.first_seen_at)}, from {info.source or 'a link'}"),
        ("Last crawled", output.format_time(info.last_crawled_at)),
        ("Again after", again),
        ("Active", "yes" if info.is_active else "no: switched off"),
        ("Configuration", ", ".join(configuration)),
    ]
    if info.user_agent:
        facts.append(("User agent", info.user_agent))
    if info.secrets:
        facts.append(("Is sent", f"{', '.join(info.secrets)} (values are not shown)"))
    if info.maintenance_window:
        facts.append(("Not during", info.maintenance_window))
    if proxies := _proxies(info):
        facts.append(("Proxies", ", ".join(proxies)))
    if found.lastmod is not None:
        facts.append(("lastmod", f"of its sitemaps {found.lastmod.sentence}"))
    return facts


def _pages(info: DomainDetails) -> str:
    """Pages that are done, of those of the job that knows most; and how often all jobs fetched pages."""
    done = f"{info.pages_done:,} done of {info.pages_known:,} known"
    return f"{done}, {info.pages_crawled:,} fetched in all, depth {info.crawl_depth_reached}"


def _errors(info: DomainDetails) -> str:
    """The number of errors, and of those that count towards a block."""
    shown = [f"{info.total_error_count:,} in all", f"{info.consecutive_error_count:,} in a row"]
    if info.refusal_streak:
        shown.append(f"{pluralize(info.refusal_streak, 'refusal')} or failures to reach it in a row")
    if info.retry_count:
        shown.append(f"blocked or unreachable {pluralize(info.retry_count, 'time')} in a row")
    return ", ".join(shown)


def _delay(info: DomainDetails) -> str:
    """The delay in force, and the domain's own if it differs."""
    own, in_force = info.crawl_delay_seconds, info.delay_in_force_seconds
    if in_force == own:
        return f"delay {own:g} s"
    return f"delay {in_force:g} s ({_SOURCES[info.delay_source]}; its own is {own:g} s)"


def _proxies(info: DomainDetails) -> list[str]:
    """The domain's own settings of proxies."""
    direct, resolves = info.proxy_direct, info.proxy_resolves
    return [
        *([_USES[info.proxy_use]] if info.proxy_use else []),
        *([f"{'may' if direct else 'must not'} be asked without one"] if direct is not None else []),
        *([f"names are looked up by {'them' if resolves else 'us'}"] if resolves is not None else []),
        *([f"only those in {info.proxy_country}"] if info.proxy_country else []),
        *([f"the same one for {render_duration(info.proxy_sticky)}"] if info.proxy_sticky else []),
    ]


def domain_set(
    ctx: typer.Context,
    name: Name,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help=f"One or more of: {ALL_KEYS}.")],
    as_json: output.Json = False,
) -> None:
    """Configure how a domain is crawled.

    Keys have the names that `holdfast domains info --json` shows; each short form means the same. A change takes effect within two seconds,
    also in running crawls.

    delay and frequency are durations (2, 0.5s, 7d), concurrency and budget (maximum of pages in a crawl) whole numbers,
    active is yes or no, window the time of day without requests, base_url the scheme, host and port of its home page,
    strip_params the names of parameters to drop from its URLs. proxy is direct, pool or any; proxy_direct (requests without
    a proxy are allowed) and proxy_resolves (the proxy resolves names) are yes or no; proxy_country is a code, proxy_sticky a
    duration. With nothing after the =, budget is unlimited, and user_agent, window and all keys of proxies follow the settings.

    header ("Name: value"), cookie (name=value) and basic_auth (user:password) are sent with every request to the domain,
    over https only unless it is named as http://DOMAIN. @FILE or env:NAME after the = reads the value from there, header
    and cookie may be repeated, nothing after the = removes them. They are stored sealed and never shown.

    Examples:
        holdfast domain-set example.com delay=2 concurrency=3 budget=500
        holdfast domain-set example.com active=no
        holdfast domain-set example.com base_url=https://www.example.com
        holdfast domain-set example.com strip_params=sid,ref
        holdfast domain-set example.com window="22:00-06:00 Europe/Berlin"
        holdfast domain-set example.com proxy=pool proxy_sticky=10m
        holdfast domain-set example.com basic_auth=@login.txt header='X-Team: a'
    """
    words, secrets = secret_options.split_secrets(assignments)
    changes = parse_assignments(words) if words or not secrets else {}
    plain_http = name.lower().startswith("http://")
    found = _domains(ctx, name).configure(name, changes, actor=actor(), secrets=secrets, plain_http=plain_http)
    if as_json:
        output.print_json(found)
        return
    changed = ", ".join(output.safe(secret_options.mask(word)) for word in assignments if word.partition("=")[2])
    cleared = ", ".join(output.safe(word[:-1]) for word in assignments if not word.partition("=")[2])
    done = [f"set {changed}"] * bool(changed) + [f"cleared {cleared}"] * bool(cleared)
    output.print_line(f"{found.domain}: {'; '.join(done)}.")
    if secrets and found.secrets:
        where = "https and http" if plain_http else "https only"
        output.print_line(f"Sent to {found.domain} by {where}, to no subdomain but www: {', '.join(found.secrets)}.")
        if not plain_http and found.base_url.startswith("http://"):
            command_context.say(
                f"{found.domain} is known by http; `holdfast domains set http://{found.domain} …` sends them over http, too."
            )


def domain_reset(
    ctx: typer.Context,
    name: Name,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", callback=command_context.valid_text, help="Why; it is kept with the domain.")
    ] = "by hand",
    as_json: output.Json = False,
) -> None:
    """Clear a domain's blocks; crawl all its pages again.

    It is pending again, its cool-down and its blocks are forgotten. Its jobs go on, also completed ones, by a worker that runs or by
    `holdfast crawl --job NAME`; cancelled ones do not. A worker that holds it loses it; what that worker still writes is refused. To try
    a blocked domain again without crawling all of it, use `holdfast domains unblock`.

    Examples:
        holdfast domain-reset example.com --reason "site was moved"
    """
    report = _domains(ctx, name).reset(name, reason, actor=actor())
    if as_json:
        output.print_json(report)
        return
    taken = f"; taken from {report.was_held_by}" if report.was_held_by else ""
    output.print_line(
        f"{report.domain}: {report.was} → pending, {pluralize(report.waiting, 'URL')} to crawl{output.safe(taken)}."
    )


def domain_unblock(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="DOMAIN", help="Domains, or URLs on them.")],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", callback=command_context.valid_text, help="Why; it is kept with the domain.")
    ] = "by hand",
    as_json: output.Json = False,
) -> None:
    """Try blocked or unreachable domains again now, without crawling all of their pages.

    Each is pending again, and its cool-down and the number of its blocks are forgotten. Only URLs that wait, were refused or could not be
    reached are crawled, by a worker that runs or by `holdfast crawl --job NAME`; completed jobs go on for it, cancelled ones do not.

    Examples:
        holdfast domain-unblock example.com
        holdfast domain-unblock example.com example.org --reason "allowed now"
    """
    for name in names:  # an unknown domain is refused before any is changed
        domains = _domains(ctx, name)
        domains.info(name)
    reports: list[DomainReset] = []
    try:
        reports.extend(domains.unblock(name, reason, actor=actor()) for name in names)
    finally:  # one may be refused after others were unblocked
        if as_json:
            output.print_json(reports)
        for report in () if as_json else reports:
            output.print_line(f"{report.domain}: {report.was} → pending, {pluralize(report.waiting, 'URL')} to crawl.")


def recalculate_priorities(ctx: typer.Context, as_json: output.Json = False) -> None:
    """Compute every domain's priority anew, a few thousand at a time.

    Examples:
        holdfast recalculate-priorities
    """
    domains = _domains(ctx)
    seen = changed = 0
    with output.ProgressBar("Recalculating", None, "domain") as bar:
        for step in domains.recalculate():
            seen, changed, total = step
            bar.show(seen, seen, total)
    if as_json:
        output.print_json({"domains": seen, "changed": changed})
    else:
        priorities = "1 priority" if changed == 1 else f"{changed:,} priorities"
        output.print_line(f"{pluralize(seen, 'domain')}, {priorities} changed.")
