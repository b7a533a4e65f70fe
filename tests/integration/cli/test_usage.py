"""How the program is used and misused: help, options, settings, and one sentence for whatever goes wrong."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import __version__, errors
from holdfast.cli.app import ALIASES, COMMAND_MODULES, HELP_SECTIONS, CommandModule, build_app
from holdfast.cli.help import describe_range
from holdfast.db.connection import Database
from tests.support.cli import Cli

COMMANDS = [
    ["crawl"],
    ["worker"],
    ["status"],
    ["stats"],
    ["alerts"],
    ["alerts", "acknowledge"],
    ["operations"],
    ["operations", "show"],
    ["storage"],
    ["backup"],
    *(["backup", name] for name in ("list", "verify", "delete", "drill", "follow")),
    ["restore"],
    ["export"],
    ["backfill"],
    ["verify"],
    ["explain"],
    ["show"],
    ["search"],
    ["torture"],
    ["demo"],
    ["background"],
    ["serve"],
    ["seeds", "add"],
    ["seeds", "load"],
    *(
        ["jobs", name]
        for name in ("list", "show", "create", "set", "pause", "resume", "cancel", "schedule", "delete", "watch")
    ),
    *(["jobs", name] for name in ("compare", "plan", "log", "retry", "undo-scope", "scope-history")),
    *(["pages", name] for name in ("versions", "diff")),
    *(["tasks", name] for name in ("add", "list", "show", "history", "stats", "priority", "pause", "resume", "cancel")),
    *(["tasks", name] for name in ("restart", "restart-parsing", "restart-failed")),
    *(["webhooks", name] for name in ("list", "show", "retry", "secret")),
    *(["proxies", name] for name in ("add", "import", "list", "show", "edit", "enable", "disable", "remove", "test")),
    *(["proxies", name] for name in ("assign", "unassign", "health", "alerts", "cost", "advise", "rotate", "new-key")),
    *(["users", name] for name in ("add", "list", "passwd", "role", "disable", "enable", "remove", "sessions")),
    *(["keys", name] for name in ("add", "list", "revoke")),
    *(["batches", name] for name in ("list", "create", "show", "restart")),
    *(["products", name] for name in ("list", "show", "history")),
    *(["images", name] for name in ("list", "show")),
    ["gc"],
    *(["retention", name] for name in ("status", "run")),
    *(["archive", name] for name in ("list", "show", "restore")),
    ["parse"],
    ["audit"],
    ["domain-status"],
    ["domain-info"],
    ["domain-set"],
    ["domain-reset"],
    ["domain-unblock"],
    ["top-domains"],
    ["recalculate-priorities"],
    ["replay"],
    *(["rebuild", name] for name in ("counters", "search")),
    ["segments"],
    *(["segments", name] for name in ("list", "upload", "lost")),
    *(["domains", name] for name in ("status", "info", "set", "reset", "unblock", "top", "priorities")),
    *(
        ["links", name]
        for name in ("in", "out", "broken", "redirects", "orphans", "fragments", "unchecked", "top", "summary")
    ),
    ["claims"],
    ["release-stuck-claims"],
    ["cleanup-stale-runs"],
    ["db", "upgrade"],
    ["db", "downgrade"],
    ["db", "current"],
    ["db", "url"],
    ["db", "psql"],
    ["db", "stop"],
    ["db", "move"],
    ["config", "show"],
    ["config", "check"],
]

QUIET = [["db", "psql"], ["worker"], ["background"], ["serve"], ["demo"], ["jobs", "watch"], ["backup", "follow"]]
"""Those that do not report."""

SENTENCE = (
    r"Error: The database at 127\.0\.0\.1:1/nothing does not answer: [^\n]*"
    r" Check that it runs and that HOLDFAST_DATABASE_URL is right\.\n"
)


def test_every_command_is_in_the_list_above() -> None:
    app = build_app()
    own = [[command.name] for command in app.registered_commands if not command.hidden]
    # A group may be a command, too.
    own += [
        [group.name]
        for group in app.registered_groups
        if group.typer_instance and group.typer_instance.info.invoke_without_command is True
    ]
    grouped = [
        [group.name, command.name]
        for group in app.registered_groups
        if group.typer_instance
        for command in group.typer_instance.registered_commands
    ]
    assert sorted(map(str, own + grouped)) == sorted(map(str, COMMANDS))


def test_a_part_of_the_program_has_the_commands_that_it_is_loaded_for() -> None:
    def commands(part: CommandModule) -> tuple[str | None, ...]:
        app = build_app([part])
        own = (command.name for command in app.registered_commands)
        return (*own, *(group.name for group in app.registered_groups))

    assert {part.module: commands(part) for part in COMMAND_MODULES} == {
        part.module: part.commands for part in COMMAND_MODULES
    }


def test_help_of_every_command(bare_cli: Cli) -> None:
    def problems(command: list[str]) -> Iterator[str]:
        answer = bare_cli(*command, "--help")
        text = re.sub(r" +\n", "\n", answer.out)
        name = " ".join(command)
        if (answer.code, answer.err) != (0, ""):
            yield f"ends with {answer.code}: {answer.err}"
        if f"Usage: holdfast {name} [" not in text:
            yield "no usage"
        if not re.search(rf"\n Examples:\n(   .*\n)*   .*holdfast {name}", text):
            yield "no example of itself"
        if re.search(r"\n Examples:\n(   .*\n)* \S", text):
            yield "an example is longer than a line"
        if command not in QUIET and "--json" not in text:
            yield "no --json"
        yield from (f"longer than 80: {line}" for line in text.splitlines() if len(line) > 80)
        raw = r"\[/?dim\]|<bool>|<str>|\{[A-Z]|range[\]>]|x[<>]=|<=x|<(?:int|float|list)|INTEGER|FLOAT"
        yield from (f"for programs, not for people: {word}" for word in re.findall(raw, text))

    assert {" ".join(command): found for command in COMMANDS if (found := list(problems(command)))} == {}


@pytest.mark.parametrize(
    ("group", "member"), [([], "domain-status"), (["seeds"], "load"), (["db"], "psql"), (["config"], "check")]
)
def test_without_a_command_the_help_is_shown(bare_cli: Cli, group: list[str], member: str) -> None:
    answer = bare_cli(*group)
    assert (answer.code, answer.err) == (2, "")
    assert member in answer.out
    assert answer.out.strip() == bare_cli(*group, "--help").out.strip()


def test_the_help_shows_everyday_commands_first_and_each_command_once_on_a_line_of_its_own(bare_cli: Cli) -> None:
    text = bare_cli("--help").out
    shown = re.findall(r"^│ ([a-z][a-z-]*) ", text, re.MULTILINE)
    assert shown == [name for commands in HELP_SECTIONS.values() for name in commands]
    assert shown[:6] == ["crawl", "status", "jobs", "explain", "export", "serve"]
    assert sorted([*shown, *ALIASES, "front"]) == sorted(name for part in COMMAND_MODULES for name in part.commands)
    assert set(ALIASES) <= set(re.findall(r"[a-z-]+", text))
    assert text.index("crawl") < text.index("--data")
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) - len(shown) < 33, "besides a line for each command"


def test_a_command_of_domains_has_one_implementation_under_two_names(bare_cli: Cli) -> None:
    app = build_app([part for part in COMMAND_MODULES if part.module == "holdfast.domains.cli"])
    own = {command.name: command.callback for command in app.registered_commands}
    (group,) = app.registered_groups
    assert group.typer_instance is not None
    grouped = {command.name: command.callback for command in group.typer_instance.registered_commands}
    assert {other: own[other] for other in ALIASES} == {o: grouped[short] for o, short in ALIASES.items()}
    helps = {other: bare_cli("domains", short, "--help").out for other, short in ALIASES.items()}
    assert [other for other, text in helps.items() if f"holdfast {other}" in text] == []


def test_the_options_of_a_crawl_are_shown_by_subject(bare_cli: Cli) -> None:
    limits = ["--max-pages", "--max-pages-per-domain", "--rounds", "--max-depth"]
    for command in (["crawl"], ["jobs", "create"]):
        text = bare_cli(*command, "--help").out
        panels = re.findall(r"^╭─ ([\w ]+) ─", text, re.MULTILINE)
        assert panels == ["Arguments", "What to crawl", "Limits", "Pace", "Requests", "Results", "Output"], command
        panel = text.partition("─ Limits ─")[2].partition("╰")[0]
        assert re.findall(r"│ (--[a-z-]+)", panel) == limits, command


def test_the_range_of_a_number_in_words() -> None:
    assert describe_range(1, None) == "1 or more"
    assert describe_range(0, 86_400) == "0 to 86,400"
    assert describe_range(None, 5) == "up to 5"
    assert describe_range(1, 2**63 - 1) == "1 or more"
    assert describe_range(None, None) == ""


def test_help_names_every_exit_code(bare_cli: Cli) -> None:
    told = " ".join(bare_cli("--help").out.partition("Exit codes:")[2].split())
    table = (Path(__file__).parents[3] / "docs/operations.md").read_text().partition("## Exit codes")[2]
    codes = {"0", "130", *(str(kind.exit_code) for kind in vars(errors).values() if hasattr(kind, "exit_code"))}
    assert {"6", "7"} < codes
    assert (
        {part.split()[0] for part in told.split(";")} == codes == set(re.findall(r"^\| (\d+) \|", table, re.MULTILINE))
    )


def test_help_has_a_short_name(bare_cli: Cli) -> None:
    assert bare_cli("claims", "-h").out == bare_cli("claims", "--help").out


def test_version(bare_cli: Cli) -> None:
    answer = bare_cli("--version")
    assert (answer.code, answer.out, answer.err) == (0, f"holdfast {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["domain-stats"],
            "No such command 'domain-stats'. Did you mean 'domain-status', 'domain-set', 'domain-reset'? See `holdfast --help`.",
        ),
        (["seeds", "laod"], "No such command 'laod'. Did you mean 'load'? See `holdfast seeds --help`."),
        (["--nope"], "No such option: --nope. See `holdfast --help`."),
        (["claims", "--nope"], "No such option: --nope. See `holdfast claims --help`."),
        (["claims", "extra"], "Got unexpected extra argument(s) (extra). See `holdfast claims --help`."),
        (["claims", "\x1b[2J"], "Got unexpected extra argument(s) (\\x1b[2J). See `holdfast claims --help`."),
        (
            ["crawl", "a.example", "--max-pages", "0"],
            "Invalid value for '--max-pages': It must be at least 1. See `holdfast crawl --help`.",
        ),
        (
            ["crawl", "a.example", "--concurrency", "many"],
            "Invalid value for '--concurrency': It must be a whole number. See `holdfast crawl --help`.",
        ),
        (["seeds", "add"], "Missing argument 'URL'. See `holdfast seeds add --help`."),
        (["domain-status", "--limit"], "Option '--limit' requires an argument."),
        (["domain-status", "--data"], "--data needs a value."),
        (["--config"], "--config needs a value."),
        (["--data", "x"], "Missing command. See `holdfast --help`."),
        (["domain-status", "--config", "nope.toml"], "There is no settings file nope.toml."),
    ],
)
def test_what_cannot_be_meant(bare_cli: Cli, arguments: list[str], sentence: str) -> None:
    assert bare_cli(*arguments).refused(2) == sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "there", "config", "show", "--json"],
        ["config", "--data", "there", "show", "--json"],
        ["config", "show", "--json", "--data", "there"],
        ["config", "show", "--data=there", "--json", "--config", "mine.toml"],
        ["config", "show", "--json", "--config=mine.toml", "--data", "there"],
    ],
)
def test_the_options_of_all_commands_may_stand_anywhere(bare_cli: Cli, arguments: list[str]) -> None:
    (bare_cli.folder / "mine.toml").write_text("[claims]\nbatch = 7\n")
    rows = {row["name"]: (row["value"], row["source"]) for row in bare_cli(*arguments).json}
    assert rows["data"] == ("there", "option")
    assert rows["claims.batch"] == (("7", "file") if "mine.toml" in "".join(arguments) else ("10", "default"))


def test_behind_a_double_dash_nothing_is_an_option(bare_cli: Cli) -> None:
    sentence = bare_cli("domain-info", "--", "--data=x").refused(2)
    assert sentence == "'https://--data=x/' names a host with a part that begins or ends with a hyphen."


def test_config_show(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CLAIMS_LEASE", "10m")
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://me:canary@db.example/x")
    answer = bare_cli("config", "show")
    assert (answer.code, answer.err) == (0, "")
    assert re.search(r"^claims\.lease +10m +environment$", answer.out, re.MULTILINE)
    assert re.search(r"^claims\.batch +10 +default$", answer.out, re.MULTILINE)
    assert "canary" not in answer.out + bare_cli("config", "show", "--json").out


def test_config_check(bare_cli: Cli) -> None:
    assert bare_cli("config", "check").out == "The settings are valid.\n"
    assert bare_cli("config", "check", "--json").json == {"ok": True, "problems": []}
    (bare_cli.folder / "holdfast.toml").write_text('bogus = 1\n[claims]\nbatch = "x\\u001b"\n')
    answer = bare_cli("config", "check")
    assert (answer.code, answer.err) == (2, "")
    assert answer.out.splitlines()[0] == "'bogus' (in holdfast.toml) is not a setting."
    assert answer.out.splitlines()[1].startswith("claims.batch (in holdfast.toml) must be a whole number, not 'x")
    assert "\x1b" not in answer.out
    assert bare_cli("config", "check", "--json").json["ok"] is False


def test_every_wrong_setting_is_a_line_of_its_own(bare_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CLAIM_LEASE", "1h")
    monkeypatch.setenv("HOLDFAST_CLAIMS_BATCH", "many")
    answer = bare_cli("domain-status", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines() == [
        "Error: The environment variable 'HOLDFAST_CLAIM_LEASE' is not a setting; did you mean HOLDFAST_CLAIMS_LEASE?",
        "Error: HOLDFAST_CLAIMS_BATCH must be a whole number, not 'many'.",
    ]


def test_a_database_that_is_not_there_is_a_sentence(bare_cli: Cli) -> None:
    (bare_cli.folder / "list").write_bytes(b"a.example\n")
    words = {
        "add": ["a.example"],
        "load": ["list"],
        "domain-info": ["a.example"],
        "domain-reset": ["a.example"],
        "domain-unblock": ["a.example"],
        "domain-set": ["a.example", "delay=1"],
        "domains info": ["a.example"],
        "domains reset": ["a.example"],
        "domains unblock": ["a.example"],
        "domains set": ["a.example", "delay=1"],
        "downgrade": ["base", "--yes"],
        "alerts acknowledge": ["1"],
        "explain": ["a.example"],
        "show": ["https://a.example/"],
        "search": ["word"],
        "links in": ["https://a.example/"],
        "links out": ["https://a.example/"],
        "export": ["pages", "pages.csv"],
        "backfill": ["--check"],
        "crawl": ["a.example"],
        "jobs create": ["news", "a.example"],
        "jobs set": ["news", "delay=1"],
        "jobs retry": ["news", "--yes"],
        "pages versions": ["https://a.example/"],
        "pages diff": ["https://a.example/"],
        "batches create": ["news"],
        "proxies add": ["a.example:1"],
        "import": ["list"],
        "role": ["ann", "admin"],
        "keys add": ["ann", "ci", "--scope", "read"],
        **{
            name: ["7"]
            for name in ("passwd", "sessions", "revoke", "undo-scope", "scope-history", "compare", "plan", "log")
        },
        "edit": ["7", "--city", "Bonn"],
        "db move": ["--to", "/elsewhere"],
        "remove": ["7", "--yes"],
        "advise": ["10", "--domain", "a.example"],
        **{name: ["a.example", "7"] for name in ("assign", "unassign")},
        "parse": ["--again"],
        "replay": ["--lost"],
        "rebuild search": ["--json"],
        "segments lost": ["crawler-3"],
        "schedule": ["7", "6h"],
        "priority": ["7", "1"],
        "restart-failed": ["--yes"],
        **{name: ["7"] for name in ("show", "pause", "resume", "cancel", "delete", "watch", "history")},
        **{name: ["7"] for name in ("restart", "restart-parsing", "retry", "enable", "disable", "test")},
    }
    need_none = (["db", "stop"], ["db", "url"], ["db", "psql"], ["webhooks", "secret"], ["proxies", "new-key"])
    # A restore looks for the backup first, and makes a database of it.
    asking = [c for c in COMMANDS if c[0] not in {"config", "torture", "demo", "restore"} and c not in need_none]
    other = {}
    for command in asking:
        name = " ".join(command)
        answer = bare_cli(*command, *(words.get(name) or words.get(command[-1], [])))
        if (answer.code, answer.out) != (3, "") or not re.fullmatch(SENTENCE, answer.err):
            other[name] = answer
    assert other == {}


def test_a_database_that_is_no_such_database(
    bare_cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", re.sub(r"@/\w+", "@/nothing", database.url))
    assert re.search(r'does not answer: .*database "nothing" does not exist', bare_cli("claims").refused(3))
