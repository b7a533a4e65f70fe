"""The documentation says what is: every link, command, path, variable, table and number in it is looked up.

Its one rule: code formatting means "exists today". What is only planned is written in plain words, so it is not looked up.
"""

import os
import pkgutil
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import typer.main
from markdown_it import MarkdownIt
from markdown_it.token import Token

from holdfast import __version__
from holdfast.alerts.records import Kind
from holdfast.cli.app import build_app, split_global_options
from holdfast.errors import HoldfastError
from holdfast.model.domain import Status
from holdfast.settings import catalog, groups
from holdfast.settings.loader import NOT_SETTINGS
from holdfast.settings.schema import FORMER_NAMES
from tests.support.invariants import CHECKS
from tests.support.routes import is_route

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "holdfast"
DOCS: Final = ROOT / "docs"

OUTSIDE: Final = (
    "./shop.py",
    "./bookshop.py",
    "../shared/conformance",
    ".venv/",
    ".holdfast",
    "postgres/",
    "postgres.socket/",
    "logs/",
    "scratch/",
)
"""Paths that exist only where Holdfast is set up or runs."""
SYSTEM: Final = ("/var/lib/holdfast", "/srv/holdfast", "/tmp", "/dev/shm", "/etc/passwd", "/root")
"""The only absolute paths that a page may name."""
FILES: Final = {
    *("shop.py", "shop_spider.py", "serve.log"),
    *("holdfast.toml", "holdfast.conf", "postgresql.conf", "pg_hba.local.conf", "pg_ident.local.conf"),
    *("postgres.start.log", "postgres.location", "postgres.password", "postgres.lock"),
}
"""Files of people, or of a running server."""


@cache
def whole_program() -> Any:
    return typer.main.get_command(build_app())


def files() -> Iterator[Path]:
    for folder, below, names in os.walk(ROOT):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in {"build", "dist"})
        yield from (Path(folder, name) for name in sorted(names))


PAGES: Final = tuple(path for path in files() if path.suffix == ".md")


# Reading pages --------------------------------------------------------------------------------------------------------


@cache
def tokens(page: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8")))


def inline(page: Path) -> Iterator[Token]:
    for token in tokens(page):
        yield from token.children or ()


def links(page: Path) -> Iterator[str]:
    for token in inline(page):
        if token.type in {"link_open", "image"}:
            yield str(token.attrGet("href") or token.attrGet("src"))
    for token in (*tokens(page), *inline(page)):
        if token.type in {"html_block", "html_inline"}:
            yield from re.findall(r"""(?:href|src)=["']([^"']*)""", token.content)


def headings(page: Path, level: int | None = None) -> list[str]:
    """The text of headings, without their formatting."""
    found = []
    for opening, content in zip(tokens(page), tokens(page)[1:], strict=False):
        if opening.type == "heading_open" and level in {None, int(opening.tag[1])}:
            found.append("".join(child.content for child in content.children or ()))
    return found


def slugs(titles: list[str]) -> set[str]:
    """The anchors that GitHub makes of headings: repeated ones are numbered."""
    seen: Counter[str] = Counter()
    made = set()
    for title in titles:
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        made.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return made


def spans(page: Path) -> list[str]:
    return [token.content for token in inline(page) if token.type == "code_inline"]


def fenced_lines(page: Path) -> list[str]:
    blocks = (t.content for t in tokens(page) if t.type in {"fence", "code_block"} and t.info != "python")
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def tables(page: Path) -> list[list[list[str]]]:
    """Every table as rows of cells, the head first; cells as they are written."""
    found: list[list[list[str]]] = []
    for token, content in zip(tokens(page), tokens(page)[1:], strict=False):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in {"td_open", "th_open"}:
            found[-1][-1].append(content.content)
    return found


def table_of(page: Path, first_head: str) -> list[list[str]]:
    """The rows of the one table whose first column has that head."""
    (table,) = [table for table in tables(page) if table[0][0] == first_head]
    return table[1:]


def sections(page: Path, title: str) -> dict[str, str]:
    """What stands under each heading of level 3 below the heading of level 2 called `title`."""
    text = re.split(rf"^## {title}\n", page.read_text("utf-8"), flags=re.MULTILINE)[1]
    text = re.split(r"^## ", text, flags=re.MULTILINE)[0]
    _, *parts = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    assert len(dict(pairs)) == len(pairs), "a word is defined twice"
    return dict(pairs)


# Looking things up ----------------------------------------------------------------------------------------------------


def programs(line: str, name: str) -> Iterator[list[str]]:
    """The arguments of each call of the program `name` in a line of shell, also inside "$(…)"."""
    try:
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # an apostrophe in a program's output
        words = line.split()
    for place, word in enumerate(words):
        if Path(word).name == name and "://" not in word:
            rest = words[place + 1 :]
            end = next((i for i, other in enumerate(rest) if re.fullmatch(r"[();<>|&]+", other)), len(rest))
            if rest[:end]:
                yield rest[:end]
        elif "$(" in word:
            yield from programs(word[word.index("$(") + 2 :].partition(")")[0], name)


def command_problem(arguments: list[str]) -> str | None:
    """Why the command line would refuse these arguments. A command that is only named needs none."""
    command: Any = whole_program()
    front, others = split_global_options(arguments)
    try:
        context = command.make_context("holdfast", front + others)
        rest = [*context._protected_args, *context.args]
        while rest:
            name, command, rest = command.resolve_command(context, rest)
            if not rest:
                return None
            context = command.make_context(name, rest, parent=context)
            if not hasattr(command, "commands"):
                return None
            rest = [*context._protected_args, *context.args]
    except typer.Exit:  # --help, --version
        return None
    except typer.TyperException as problem:
        return f"holdfast {shlex.join(arguments)}: {problem.format_message()}"
    return None


def options(command: Any) -> set[str]:
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help", "-h"}, *(options(child) for child in getattr(command, "commands", {}).values()))


def path_exists(text: str, page: Path) -> bool:
    """Whether `text` is a file or folder, a module without its ending, or something that a module defines."""
    found = any((base / text).exists() or (base / f"{text}.py").is_file() for base in (ROOT, PACKAGE, page.parent))
    return found or module_exists(f"holdfast.{text.replace('/', '.')}")


def module_exists(dotted: str) -> bool:
    """Whether that is a module, or something in one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def words_of(page: Path) -> Iterator[str]:
    """Words in code; of blocks only those that begin like a path of this repository, since output has slashes too."""
    for span in spans(page):
        yield from span.split()
    for line in fenced_lines(page):
        yield from (word for word in line.split() if word.startswith(("src/", "tests/", "docs/", "benchmarks/")))


# All pages ------------------------------------------------------------------------------------------------------------


def on_all_pages(problems: Callable[[Path], Iterable[object]]) -> list[str]:
    """What `problems` finds, each with its page."""
    return [f"{page.relative_to(ROOT)}: {problem}" for page in PAGES for problem in problems(page)]


def test_links_lead_somewhere() -> None:
    def broken(page: Path) -> Iterator[str]:
        for link in links(page):
            if link.startswith(("https://", "mailto:")):
                continue
            target, _, anchor = unquote(link).partition("#")
            file = (page.parent / target).resolve() if target else page
            inside = file.is_relative_to(ROOT) and not link.startswith("/")
            if not inside or not file.is_file() or (anchor and anchor not in slugs(headings(file))):
                yield link

    assert on_all_pages(broken) == []


def test_markdown_is_whole() -> None:
    """What the parser took for text is text: no unclosed code, no reference that is not defined, no bare block."""

    def broken(page: Path) -> Iterator[str]:
        text = [token.content for token in inline(page) if token.type == "text"]
        yield from (part for part in text if "`" in part or re.search(r"\]\[|\]\(", part))
        bare = [token.content for token in tokens(page) if token.type == "fence" and not token.info.strip()]
        yield from (f"a block without its language: {block}" for block in bare)
        yield from (f"twice: {title}" for title, times in Counter(headings(page, 2)).items() if times > 1)
        if len(headings(page, 1)) != 1:
            yield f"headings of level 1: {headings(page, 1)}"

    assert on_all_pages(broken) == []


def test_commands_exist_and_can_be_given_so() -> None:
    def refused(page: Path) -> Iterator[str]:
        calls = [call for line in (*spans(page), *fenced_lines(page)) for call in programs(line, "holdfast")]
        yield from (problem for call in calls if (problem := command_problem(call)))

    assert on_all_pages(refused) == []


def test_options_exist() -> None:
    known = options(whole_program())
    named = {page: {span.split()[0] for span in spans(page) if span.startswith("--")} for page in PAGES}
    assert any(named.values())
    assert on_all_pages(lambda page: named[page] - known) == []


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    def unknown(page: Path) -> set[str]:
        calls = [call for line in (*spans(page), *fenced_lines(page)) for call in programs(line, "make")]
        return {word for call in calls for word in call if "=" not in word} - targets

    assert on_all_pages(unknown) == []


def test_paths_exist() -> None:
    def missing(page: Path) -> set[str]:
        words = {word.rstrip(".,;:") for word in words_of(page) if re.fullmatch(r"[\w.*-]+(?:/[\w.*-]*)+[.,;:]?", word)}
        return {path for path in words if not path.startswith(OUTSIDE) and not path_exists(path, page)}

    assert on_all_pages(missing) == []


def test_files_named_alone_exist() -> None:
    known = FILES | {path.name for path in files()}

    def missing(page: Path) -> set[str]:
        named = {
            span for span in spans(page) if re.fullmatch(r"[\w-]+(?:\.\w+)*\.(?:py|sql|toml|md|txt|conf|log)", span)
        }
        return {name for name in named if not name.startswith("NNNN_")} - known

    assert on_all_pages(missing) == []


def test_modules_exist() -> None:
    def missing(page: Path) -> set[str]:
        code = " ".join((*spans(page), *fenced_lines(page)))
        named = set(re.findall(r"(?<![\w/.-])holdfast(?:\.\w+)+", code)) - FILES - {"holdfast.dump"}
        return {name for name in named if not module_exists(name)}

    assert on_all_pages(missing) == []


def test_variables_and_settings_exist() -> None:
    variables = NOT_SETTINGS.union(*((setting.env, *setting.aliases) for setting in catalog()))
    settings = {setting.name for setting in catalog()}.union(FORMER_NAMES.values())

    def unknown(page: Path) -> set[str]:
        named = set(re.findall(r"\b(?:HOLDFAST|ENABLE|DOMAIN_STATS)_[A-Z_]*[A-Z]\b", page.read_text("utf-8")))
        dotted = {span for span in spans(page) if re.fullmatch(rf"(?:{'|'.join(groups())})\.[a-z_]+", span)}
        return (named - variables) | (dotted - settings)

    assert on_all_pages(unknown) == []


def test_pages_are_about_this_project_and_no_machine() -> None:
    def foreign(page: Path) -> Iterator[str]:
        text = re.sub(r"\w+://\S+", "", page.read_text("utf-8"))
        paths = set(re.findall(r"(?<![\w.…)}>*-])(/[a-z]\w*(?:/[\w.-]+)*)", text)) - {
            "/a",
            "/private",
            "/sitemap.xml",
            "/sitemap",
        }
        yield from (path for path in paths if not (path.startswith(SYSTEM) or is_route(path)))
        # Sites of the simulated web are called s0.localhost and so on.
        yield from re.findall(r"pypi\.org|pythonhosted|(?<!\bs[0-9]\.)localhost(?!`)", page.read_text("utf-8"))

    assert on_all_pages(foreign) == []


# Single pages ---------------------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_leads_everywhere() -> None:
    readme = ROOT / "README.md"
    assert len(readme.read_text("utf-8").splitlines()) <= 120
    assert {"make crawl URL=https://example.com", "make test"} <= set(fenced_lines(readme))
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(readme) if "://" not in link}
    records = {page for page in PAGES if page.parent == DOCS / "adr" and page.name != "README.md"}
    assert set(PAGES) - records - {readme} - linked == set()


def test_the_architecture_explains_every_package_and_table() -> None:
    page = DOCS / "architecture.md"
    packages = {row[0].strip("`") for row in table_of(page, "package")}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert packages == modules | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    sql = "\n".join(
        path.read_text("utf-8") for path in sorted([PACKAGE / "db/schema.sql", *PACKAGE.glob("db/migrations/*.up.sql")])
    )
    created = set(re.findall(r"^CREATE (?:UNLOGGED )?TABLE (\w+) \(", sql, re.MULTILINE))
    dropped = {
        name.strip() for names in re.findall(r"^DROP TABLE ([\w, ]+)", sql, re.MULTILINE) for name in names.split(",")
    }
    assert created
    assert {row[0].strip("`") for row in table_of(page, "table")} == created - dropped


def test_the_glossary_is_sorted_and_has_every_status_and_verb() -> None:
    page = DOCS / "glossary.md"
    words, verbs = sections(page, "Words"), sections(page, "Verbs")
    assert list(words) == sorted(words, key=str.casefold)
    assert list(verbs) == sorted(verbs, key=str.casefold)
    assert set(Status) <= set(words)
    wanted = ("claim", "renew", "release", "take", "enqueue", "commit", "fence", "reclaim")
    assert set(verbs) == {f"to {verb}" for verb in wanted}
    for word, text in (words | verbs).items():
        meaning, separator, elsewhere = text.partition("\n\nElsewhere called: ")
        assert separator, f"{word}: how do other crawlers, PostgreSQL or general practice call it?"
        assert 5 <= len(meaning.split()) <= 50, f"{word}: {len(meaning.split())} words"
        assert re.fullmatch(r"[^\n].*\.", elsewhere.strip(), re.DOTALL), f"{word}: {elsewhere!r}"


def test_every_word_of_the_glossary_is_used_in_the_code() -> None:
    sources = (path.read_text("utf-8") for suffix in ("py", "sql") for path in (ROOT / "src").rglob(f"*.{suffix}"))
    code = re.findall(r"[A-Z]*[a-z]+|[A-Z]+", "\n".join(sources))
    text = f" {' '.join(code)} ".casefold()
    words = {word: re.sub(r"[_-]", " ", word).casefold() for word in sections(DOCS / "glossary.md", "Words")}
    assert [
        word for word, said in words.items() if not any(f" {said}{end} " in text for end in ("", "s", "d", "ed"))
    ] == []


def test_operations_names_every_exit_code() -> None:
    def codes(kind: type[HoldfastError]) -> set[int]:
        return {kind.exit_code}.union(*(codes(child) for child in kind.__subclasses__()))

    named = [int(row[0]) for row in table_of(DOCS / "operations.md", "code")]
    assert named == sorted({0, 130} | codes(HoldfastError))


def test_testing_says_which_invariants_are_checked() -> None:
    rows = table_of(DOCS / "testing.md", "#")
    assert [row[0] for row in rows] == [f"I{number}" for number in range(1, 16)]
    assert {row[0] for row in rows if row[2] == "yes"} == {check.split()[0] for check in CHECKS}


def test_the_changelog_knows_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## \[Unreleased\]", text, re.MULTILINE)
    assert re.search(rf"^##+ \[?{re.escape(__version__)}\b", text, re.MULTILINE)


def test_every_alert_has_its_row_and_its_section() -> None:
    kinds = list(map(str, Kind))
    assert [row[0].strip("`") for row in table_of(DOCS / "metrics.md", "alert")] == kinds
    told = sections(DOCS / "runbook.md", "Alerts")
    assert sorted(told) == sorted(kinds)
    assert [kind for kind, text in told.items() if "**You see**" not in text or "**Do**" not in text] == []


def test_decisions_are_numbered_listed_and_of_one_form() -> None:
    folder = DOCS / "adr"
    records = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert [path.name[:5] for path in records] == [f"{number:04}-" for number in range(1, len(records) + 1)]
    index = []
    for path in records:
        lines = path.read_text("utf-8").splitlines()
        number, _, title = headings(path, 1)[0].partition(". ")
        status = next(line for line in lines if line.startswith("Status: "))
        assert headings(path, 2) == ["Context", "Decision", "Consequences"], path.name
        assert 10 <= len(lines) <= 25, path.name
        assert number == path.name[:4]
        index.append([number, f"[{title}]({path.name})", status.removeprefix("Status: ").rstrip(".")])
    assert table_of(folder / "README.md", "#") == index


# The checks themselves ------------------------------------------------------------------------------------------------


def test_a_command_line_is_really_parsed() -> None:
    fine = (
        "holdfast domain-status --status blocked --limit 5",
        "$ HOLDFAST_CLAIMS_LEASE=1m .venv/bin/holdfast --data x config show | head",
        'pg_dump "$(holdfast db url)"',
        "holdfast db",
        "holdfast --version",
        'holdfast db psql -c "SELECT 1; SELECT 2"',
    )
    wrong = (
        "holdfast domain-stats",
        "holdfast db upgrade --nonsense",
        "holdfast domain-status --status asleep",
        "echo | holdfast seeds sow -",
        'psql "$(holdfast db uri)"',
        "holdfast domain-info one two",
    )
    calls = {line: call for line in (*fine, *wrong) for call in programs(line, "holdfast")}
    assert [line for line, call in calls.items() if command_problem(call) is None] == list(fine)
    assert list(calls) == [*fine, *wrong]


def test_what_is_not_there_is_not_found() -> None:
    here = DOCS / "architecture.md"
    assert path_exists("db/claims.fence", here)
    assert path_exists("adr/README.md", here)
    assert not path_exists("db/claims.unfence", here)
    assert not path_exists("api/dashboard.py", here)
    assert module_exists("holdfast.db.claims.claim")
    assert slugs(["The `ready` hint", "A, b", "A b"]) == {"the-ready-hint", "a-b", "a-b-1"}
