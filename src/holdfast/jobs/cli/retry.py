"""`holdfast jobs retry`: URLs of a job that were not crawled, once more."""

from collections.abc import Callable, Iterator
from functools import partial
from shlex import quote
from typing import Annotated

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.output import pluralize
from holdfast.frontier.records import Retried
from holdfast.frontier.service import FrontierService
from holdfast.jobs.cli.context import Which, Yes
from holdfast.model.outcome import UrlState


def _valid_texts(texts: list[str] | None) -> list[str] | None:
    """Check each text, as `command_context.valid_text` does."""
    for text in texts or ():
        command_context.valid_text(text)
    return texts


def _count_and_retry(ctx: typer.Context) -> tuple[Callable[..., Retried], Callable[..., Retried]]:
    """The functions that count and retry URLs: of the database, or of a server."""
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.jobs import RemoteJobs

        remote = RemoteJobs(context.client)
        return remote.count_retry, remote.retry
    store = context.store()
    frontier = FrontierService(store, factories.seed_importer(context.settings, store))
    return frontier.count_retry, partial(frontier.retry, actor=command_context.actor())


def retry(
    ctx: typer.Context,
    job: Which,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", callback=_valid_texts, help="Only this URL; may be given several times."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            callback=command_context.valid_text,
            help="Only URLs of this reason, as `jobs show --json` names it: server_error, not_found, robots_denied …",
        ),
    ] = None,
    state: Annotated[
        UrlState | None, typer.Option(metavar="STATE", help="Only URLs in this state: failed, denied or done.")
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(metavar="DOMAIN", callback=command_context.valid_text, help="Only URLs of this domain."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Retry URLs of a job that were not crawled: by default all that failed. They wait again with all their attempts.

    A job that had ended is reopened; running workers go on with it, or `holdfast crawl --job JOB`. Robots.txt, delays, pauses that
    servers asked for and blocks still hold. URLs out of scope or too deep are not retried: it says what to do instead.

    Examples:
        holdfast jobs retry news --dry-run
        holdfast jobs retry news --reason server_error --domain example.com
        holdfast jobs retry news --url https://example.com/broken --yes
    """
    count, act = _count_and_retry(ctx)
    what = {"urls": url or [], "reason": reason, "state": state, "domain": domain}
    found = count(job, **what)
    if not dry_run and found.urls:
        if not yes:
            question = f"Retry {_retried_urls(found)} of job {output.safe(found.job)}?"
            command_context.confirm(question, "Nothing was retried.")
        found = act(job, **what)
    if as_json:
        output.print_json(found)
        return
    for line in _retry_lines(found):
        output.print_line(output.safe(line))


def _retried_urls(found: Retried) -> str:
    urls = f"more than {found.urls:,} URLs" if found.more else pluralize(found.urls, "URL")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in found.by_reason.items())
    return f"{urls} on {pluralize(found.domains, 'domain')} ({reasons})" if found.urls else urls


def _retry_lines(found: Retried) -> Iterator[str]:
    """What was retried, or would be, what was left out, and what keeps it waiting."""
    if not found.urls:
        yield f"Job {found.job} has no such URL to retry; `holdfast jobs show {quote(found.job)}` lists reasons."
    elif found.dry_run:
        yield f"{_retried_urls(found)} would be retried."
    else:
        goes_on = f"; the job is open again: workers go on with it, or `holdfast crawl --job {quote(found.job)}`"
        later = "" if found.finished else "; the server does it in chunks"
        yield f"Retried {_retried_urls(found)}{goes_on if found.reopened else ''}{later}."
    for left in found.left_out:
        more = f" and {left.urls - 1:,} more" if left.urls > 1 else ""
        yield f"Left out: {left.example}{more} ({left.reason}): {left.why}."
    yield from found.notes
