"""The example package: its own tests pass, and both ways to install it lead to the same parser."""

import asyncio
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from holdfast.model.parse_result import ParseDone
from holdfast.parse.plugin_loader import validate_parser
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import ENTRY_POINT_GROUP, SourceKind, discover
from holdfast.parse.plugin_testing import document, run

EXAMPLE = Path(__file__).parents[3] / "examples" / "bookshop"
PAGE = document(EXAMPLE / "tests" / "pages" / "novel.html")


def test_its_own_tests_pass() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "tests"],
        cwd=EXAMPLE,
        env={"PYTHONPATH": str(EXAMPLE), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stdout
    assert "3 passed" in ran.stdout


def test_its_entry_point_is_found_and_is_a_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = project["entry-points"][ENTRY_POINT_GROUP]
    metadata = tmp_path / "holdfast_bookshop-1.0.dist-info"  # what an installer would write
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[{ENTRY_POINT_GROUP}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE)
    source = discover().sources["bookshop"]
    assert (source.kind, source.package) == (SourceKind.PACKAGE, "holdfast-bookshop")
    parser = EntryPoint(source.name, source.target, ENTRY_POINT_GROUP).load()
    assert validate_parser("bookshop", parser).version == "1.0"
    assert [product.sku for product in run(parser, PAGE).products] == ["B-1978"]


def test_its_file_in_a_folder_is_the_same_parser(tmp_path: Path) -> None:
    (tmp_path / "bookshop.py").write_text((EXAMPLE / "bookshop.py").read_text())

    async def whole() -> None:
        pool = PluginPool(discover(tmp_path))
        try:
            done = await pool.parse("bookshop", PAGE)
        finally:
            await pool.aclose()
        assert isinstance(done, ParseDone), done
        assert [product.sku for product in done.extracted.products] == ["B-1978"]

    asyncio.run(whole())
