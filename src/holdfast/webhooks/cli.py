"""`holdfast webhooks`: messages about ended tasks: what was sent, what was not and why; send it again; what they are signed with."""

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import command_context, output
from holdfast.cli.command_context import actor
from holdfast.cli.help import Command, Group
from holdfast.cli.output import pluralize
from holdfast.errors import HoldfastError, UsageError
from holdfast.jobs.cli.context import Yes
from holdfast.webhooks.records import Delivery, DeliveryFilter, DeliveryState
from holdfast.webhooks.service import WebhookService
from holdfast.webhooks.signing import Signing

if TYPE_CHECKING:
    from holdfast.cli.remote.monitoring import RemoteWebhooks

app = typer.Typer(
    cls=Group, help="Webhooks: what was sent, what was not; send it again; the secret.", no_args_is_help=True
)

_LAST_ID = 2**63 - 1


def _webhooks(ctx: typer.Context) -> "WebhookService | RemoteWebhooks":
    context = command_context.get(ctx)
    if context.remote:
        from holdfast.cli.remote.monitoring import RemoteWebhooks

        return RemoteWebhooks(context.client)
    return WebhookService(context.store())


@app.command("list", cls=Command)
def listed(
    ctx: typer.Context,
    state: Annotated[DeliveryState | None, typer.Option("--state", help="Only those.")] = None,
    task: Annotated[int | None, typer.Option("--task", metavar="ID", min=1, max=_LAST_ID, help="Of this task.")] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", min=1, max=_LAST_ID, help="Continue after this message.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="How many at most.")] = 50,
    as_json: output.Json = False,
) -> None:
    """List messages, the newest first.

    Examples:
        holdfast webhooks list
        holdfast webhooks list --state given_up --json
    """
    service = _webhooks(ctx)
    found = service.page(DeliveryFilter(state, task), after=None if before is None else (before,), limit=limit).rows
    if as_json:
        output.print_json(found)
        return
    rows = [(one.id, one.task_id or "-", one.event, one.state, one.attempts, _when(one), one.url) for one in found]
    notes = {number: one.last_error for number, one in enumerate(found) if one.last_error}
    output.print_table(["ID", "TASK", "EVENT", "STATE", "SENT", "WHEN", "TO"], rows, notes, right="ID TASK SENT")
    stats = service.stats()
    output.print_line(
        f"\n{stats.waiting:,} waiting, {stats.delivered:,} delivered, {stats.given_up:,} given up; "
        f"{pluralize(stats.endpoints_off, 'receiver')} switched off."
    )


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    message: Annotated[int, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="The message.")],
    as_json: output.Json = False,
) -> None:
    """Show one message: what is in it, and how sending it ended.

    Examples:
        holdfast webhooks show 7
        holdfast webhooks show 7 --json
    """
    found = _webhooks(ctx).show(message)
    if as_json:
        output.print_json(found)
        return
    others = f"alert {found.alert_id}" if found.alert_id else f"job {found.job_id}"
    about = f"task {found.task_id}" if found.task_id else others
    facts: list[tuple[str, object]] = [
        ("Message", f"{found.id} ({found.message_id})"),
        ("Event", f"{found.event}, {about}, {output.format_time(found.created_at)}"),
        ("To", found.url),
        ("State", f"{found.state}, {_when(found)}"),
        ("Sent", f"{pluralize(found.attempts, 'time')}, last {output.format_time(found.last_attempt_at)}"),
    ]
    if found.last_status is not None:
        facts.append(("Answer", f"HTTP {found.last_status}"))
    if found.last_error is not None:
        facts.append(("Problem", found.last_error))
    facts += [(name, "-" if value is None else value) for name, value in sorted(found.body.items())]
    output.print_fields(facts)


@app.command("retry", cls=Command)
def retry(
    ctx: typer.Context,
    messages: Annotated[list[int] | None, typer.Argument(metavar="ID", min=1, max=_LAST_ID, help="Messages.")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            callback=command_context.valid_text,
            help="All that were given up for this receiver.",
        ),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Send messages again, now and with all attempts before them, in any state. A receiver that was switched off is switched on.

    Examples:
        holdfast webhooks retry 7 8
        holdfast webhooks retry --url https://example.com/hook
    """
    if bool(messages) == (url is not None):
        raise UsageError("Say what to send again: messages by their ids, or --url for all that were given up.")
    service = _webhooks(ctx)
    if url is not None:
        with output.ProgressBar("Sending again", None, "message", hidden=as_json) as bar:
            count = service.retry_all(url, actor=actor(), progress=lambda done: bar.show(done, done))
        if as_json:
            output.print_json({"url": url, "messages": count})
        else:
            output.print_line(f"{pluralize(count, 'message')} will be sent again.")
        return
    changed: dict[int, bool | None] = {}
    problems: dict[int, HoldfastError] = {}
    for message in dict.fromkeys(messages or ()):
        try:
            changed[message] = service.retry(message, actor=actor())
        except HoldfastError as found:
            if len(messages or ()) == 1:
                raise
            problems[message] = found
    if as_json:
        results = [{"id": message, "changed": did} for message, did in changed.items()]
        output.print_json(results + [{"id": message, "problem": str(problem)} for message, problem in problems.items()])
    else:
        for message, did in changed.items():
            output.print_line(f"Message {message} {'is due already' if did is False else 'will be sent again'}.")
        for problem in problems.values():
            output.print_error(str(problem))
    if problems:
        raise typer.Exit(1)


@app.command("secret", cls=Command)
def secret(
    ctx: typer.Context,
    reveal: Annotated[bool, typer.Option("--reveal", help="Print it, for receivers that check signatures.")] = False,
    yes: Yes = False,
    as_json: output.Json = False,
) -> None:
    """Say where the secret is that messages are signed with. With --reveal it is printed, and made if there is none.

    Examples:
        holdfast webhooks secret
        holdfast webhooks secret --reveal
    """
    context = command_context.get(ctx)
    context.require_local(
        "`holdfast webhooks secret`", "the secret never leaves the machine of the server. Run it there."
    )
    signing = Signing.of(context.settings)
    where = signing.origin if signing.configured is not None else str(signing.file)
    known = signing.known()
    if reveal:
        if not yes:
            command_context.confirm("Print the secret on this terminal?", "The secret was not printed.")
        known = signing.ensure()
    if as_json:
        state: dict[str, object] = {"where": where, "set": bool(known), "secrets": len(known)}
        output.print_json(state | ({"values": known} if reveal else {}))
    elif reveal:
        output.print_line("\n".join(known))
    elif known:
        them = "it" if len(known) == 1 else "them"
        output.print_line(f"{pluralize(len(known), 'secret')} in {output.safe(where)}; --reveal prints {them}.")
    else:
        output.print_line(f"There is none yet; the first message, or --reveal, makes {output.safe(where)}.")


def _when(one: Delivery) -> str:
    """When it ended, or when it is sent next."""
    return output.format_time(one.delivered_at or one.gave_up_at or one.next_attempt_at)
