"""The example package: its own tests pass, and both ways to install it lead to the same parser."""

import asyncio
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from holdfast.model.parsed import ParseDone
from holdfast.parse.loading import judged
from holdfast.parse.registry import GROUP, Kind, scan
from holdfast.parse.runner import Runner
from holdfast.parse.testkit import document, run

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
    points = project["entry-points"][GROUP]
    metadata = tmp_path / "holdfast_bookshop-1.0.dist-info"  # what an installer would write
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[{GROUP}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE)
    source = scan().sources["bookshop"]
    assert (source.kind, source.package) == (Kind.PACKAGE, "holdfast-bookshop")
    parser = EntryPoint(source.name, source.target, GROUP).load()
    assert judged("bookshop", parser).version == "1.0"
    assert [product.sku for product in run(parser, PAGE).products] == ["B-1978"]


def test_its_file_in_a_folder_is_the_same_parser(tmp_path: Path) -> None:
    (tmp_path / "bookshop.py").write_text((EXAMPLE / "bookshop.py").read_text())

    async def whole() -> None:
        runner = Runner(scan(tmp_path))
        try:
            done = await runner.parse("bookshop", PAGE)
        finally:
            await runner.aclose()
        assert isinstance(done, ParseDone), done
        assert [product.sku for product in done.extracted.products] == ["B-1978"]

    asyncio.run(whole())
