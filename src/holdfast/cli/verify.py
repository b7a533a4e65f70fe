"""`holdfast verify`: whether the store is what it promises to be."""

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

import typer

from holdfast import wiring
from holdfast.cli import output, session
from holdfast.cli.help import Command
from holdfast.cli.output import counted
from holdfast.control.verify import Step, Verifier
from holdfast.store.verify import Finding


class Verifies(Protocol):
    """Checks a store, here or on a server."""

    @property
    def archive(self) -> object | None: ...

    def run(self) -> Iterator[Step]: ...

    def names_of(self, findings: list[Finding]) -> dict[int, str]: ...


def register(app: typer.Typer) -> None:
    """Add this command to the program."""
    app.command("verify", cls=Command)(verify)


def verify(
    context: typer.Context,
    archive: Annotated[
        bool, typer.Option("--archive/--no-archive", help="Also read every page in the archive of this machine.")
    ] = True,
    as_json: output.Json = False,
) -> None:
    """Check that nothing is lost, doubled or miscounted. Exit code 1 if something is.

    All of the database is compared with itself: every URL is accounted for, no domain has two holders, every counter is
    what the log says. Then every page is looked up in the archive, if it is on this machine, and compared with its hash.
    Nothing is changed, and workers may go on meanwhile; on a large store better when few do.

    Examples:
        holdfast verify
        holdfast verify --no-archive --json
    """
    verifier = _verifier(session.of(context), archive=archive)
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


def _verifier(of: session.Session, *, archive: bool) -> Verifies:
    if of.remote:
        from holdfast.cli.remote.store import RemoteVerifier

        return RemoteVerifier(of.client, archive=archive, say=session.say)
    folder = wiring.archive_folder(of.settings)
    wanted = folder if archive and folder.is_dir() else None
    return Verifier(of.store(), of.settings.politeness.retries, wanted, of.settings.database_url is not None)


def _print(findings: list[Finding], names: dict[int, str], *, archive: bool) -> None:
    rows = [
        (*finding.check.split(" ", 1), counted(finding.faults, "fault") if finding.faults else "ok")
        for finding in findings
    ]
    output.print_table(["#", "CHECK", "RESULT"], rows)
    bad = [finding for finding in findings if finding.faults]
    for finding in bad:
        output.print_line(f"\n{finding.check}:")
        for row in finding.rows:
            output.print_line(f"  {output.safe(_words(row, names))}")
        if finding.faults > len(finding.rows):
            output.print_line(f"  … {finding.faults:,} in all")
    skipped = sum(finding.skipped for finding in findings)
    if skipped:
        were, machines = (
            ("was", "its archive is on another machine")
            if skipped == 1
            else ("were", "their archives are on other machines")
        )
        session.say(f"{counted(skipped, 'page')} {were} not read: {machines}.")
    if not archive:
        session.say("The archive was not read.")
    total = counted(len(findings), "check")
    output.print_line(f"\n{len(bad)} of {total} failed." if bad else f"\n{total}: all hold.")


def _words(row: dict[str, Any], names: dict[int, str]) -> str:
    """A row of a finding: the domain by its name, keys in hexadecimal."""
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
    }


def _value(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value
