"""Programs and documentation trees that the acceptance tests need, as Debian packages them."""

import os
import shutil
from pathlib import Path
from typing import Final

PROGRAMS: Final = {"nginx": "nginx-light", "wget": "wget"}
TREES: Final = {
    "python": (Path("/usr/share/doc/python3.11-doc/html"), "python3.11-doc"),
    "postgresql": (Path("/usr/share/doc/postgresql-doc-15/html"), "postgresql-doc-15"),
    "handbook": (Path("/usr/share/doc/debian-handbook/html"), "debian-handbook"),
}
"""Folders of HTML files, and the packages that they come from."""
HARVESTED: Final = TREES | {"history": (Path("/usr/share/doc/debian-history"), "debian-history")}
"""Those, and one with PDFs."""


def program(name: str) -> str | None:
    """The path of an installed program."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")


def missing() -> list[str]:
    """The packages that have to be installed."""
    programs = [package for name, package in PROGRAMS.items() if program(name) is None]
    return programs + [package for folder, package in HARVESTED.values() if not folder.is_dir()]
