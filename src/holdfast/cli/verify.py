"""`holdfast verify`: check the invariants of the database and the archive."""

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

import typer

from holdfast import factories
from holdfast.cli import command_context, output
from holdfast.cli.help import Command
from holdfast.cli.output import pluralize
from holdfast.control.verify import IMAGES, Step, Verifier
from holdfast.db.verify import Finding


class StoreVerifier(Protocol):
    """Checks a store, directly or through a server."""

    @property
    def archive(self) -> object | None: ...

    def run(self) -> Iterator[Step]: ...

    def names_of(self, findings: list[Finding]) -> dict[int, str]: ...


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("verify", cls=Command)(verify)


def verify(
    ctx: typer.Context,
    archive: Annotated[
        bool, typer.Option("--archive/--no-archive", help="Also read every page of the archive of this machine.")
    ] = True,
    uploaded: Annotated[
        bool, typer.Option("--uploaded", help="Also read every page that only the object store (archive.store) has.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Check that nothing is lost, doubled or miscounted. Exit code 1 if a check fails.

    The database is compared with itself: every URL has a state, no domain is held by two workers, every counter equals
    the log. Then every page is read from the archive, if it is on this machine, every image from its store, and both are
    compared with their hashes. Of pages that only the object store has, the size of their files is checked; --uploaded reads them,
    too. Pages that were lost with a machine are named as archive_lost. Nothing is
    changed, and workers may run meanwhile; on a large database it is faster when few do.

    Examples:
        holdfast verify
        holdfast verify --no-archive --json
    """
    verifier = _verifier(command_context.get(ctx), archive=archive, uploaded=uploaded)
    findings: list[Finding] = []
    with output.ProgressBar("Verifying", None, "page") as bar:
        for step in verifier.run():
            bar.show(step.number - 1 + bool(step.finding), step.looked_at, step.total)
            if step.finding:
                findings.append(step.finding)
    bad = [finding for finding in findings if finding.faults]
    read = verifier.archive is not None
    if as_json:
        output.print_json({"ok": not bad, "archive": read, "checks": [_json(f) for f in findings]})
    else:
        _print(findings, verifier.names_of(bad), archive=read)
    if bad:
        raise typer.Exit(1)


def _verifier(context: command_context.CommandContext, *, archive: bool, uploaded: bool) -> StoreVerifier:
    if context.remote:
        if uploaded:
            context.require_local(
                "--uploaded",
                "it reads all that the object store has. Run it on a machine with the settings of that store.",
            )
        from holdfast.cli.remote.monitoring import RemoteVerifier

        return RemoteVerifier(context.client, archive=archive)
    database = context.store()
    reader = factories.archive_reader(context.settings, database)
    return Verifier(
        database,
        context.settings.politeness.retries,
        reader if archive and reader.exists else None,
        factories.image_store(context.settings) if archive else None,
        context.settings.database_url is not None,
        read_uploaded=uploaded,
    )


def _print(findings: list[Finding], names: dict[int, str], *, archive: bool) -> None:
    rows = [
        (*finding.check.split(" ", 1), pluralize(finding.faults, "fault") if finding.faults else "ok")
        for finding in findings
    ]
    output.print_table(["#", "CHECK", "RESULT"], rows)
    bad = [finding for finding in findings if finding.faults]
    for finding in bad:
        output.print_line(f"\n{finding.check}:")
        for row in finding.rows:
            output.print_line(f"  {output.safe(_row_text(row, names))}")
        if finding.faults > len(finding.rows):
            output.print_line(f"  … {finding.faults:,} in all")
    images = sum(finding.skipped for finding in findings if finding.check == IMAGES)
    pages = sum(finding.skipped for finding in findings) - images
    for count, noun, place in ((pages, "page", "archive"), (images, "image", "file")):
        if count:
            were, machines = (
                ("was", f"its {place} is on another machine")
                if count == 1
                else ("were", f"their {place}s are on other machines")
            )
            command_context.say(f"{pluralize(count, noun)} {were} not read: {machines}.")
    if archived := sum(finding.archived for finding in findings):
        command_context.say(
            f"{pluralize(archived, 'page')} {'was' if archived == 1 else 'were'} not read: retention has archived the bytes; "
            "`holdfast archive list --kind segment` shows where."
        )
    if not archive:
        command_context.say("The archive was not read.")
    total = pluralize(len(findings), "check")
    output.print_line(f"\n{len(bad)} of {total} failed." if bad else f"\n{total}: all passed.")


def _row_text(row: dict[str, Any], names: dict[int, str]) -> str:
    """A row of a finding as text: the domain by its name, keys in hexadecimal."""
    shown = dict(row)
    domain_id = shown.pop("domain_id", None)
    front = [names.get(domain_id) or f"domain {domain_id}"] if domain_id is not None else []
    rest = [f"{name}={_value(value)}" for name, value in shown.items()]
    return " ".join([*front, *rest])


def _json(finding: Finding) -> dict[str, Any]:
    rows = [{name: bytes(v).hex() if isinstance(v, bytes) else v for name, v in row.items()} for row in finding.rows]
    return {
        "invariant": finding.check.split(" ", 1)[0],
        "check": finding.check.split(" ", 1)[1],
        "faults": finding.faults,
        "rows": rows,
        "seconds": round(finding.seconds, 3),
        "skipped": finding.skipped,
        "archived": finding.archived,
    }


def _value(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
