"""The client and the records of all nouns where nothing but httpx, pydantic and what these two need is installed."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import holdfast

PACKAGE = Path(holdfast.__file__).parent


def required(names: list[str]) -> set[str]:
    """The installed distributions that these need, and these."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another system or Python
            continue
        found.add(name)
        pending += [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]
    return found


def test_client_and_records_need_httpx_and_pydantic_only(tmp_path: Path) -> None:
    for name in required(["httpx", "pydantic"]):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            (tmp_path / top).symlink_to(Path(str(distribution.locate_file(top))))
    (tmp_path / "holdfast").symlink_to(PACKAGE)
    assert not {"psycopg", "pycurl", "fastapi", "ada_url"} & {path.name for path in tmp_path.iterdir()}
    records = [f"holdfast.{path.parent.name}.records" for path in PACKAGE.glob("*/records.py")]
    assert len(records) >= 4
    code = f"""
import importlib
from holdfast import AsyncClient, Client
for name in {["holdfast.client", *records]!r}:
    importlib.import_module(name)
Client("http://127.0.0.1:9").close()
"""
    run = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
