"""The names of the tables that Holdfast makes: a database may have others beside them, which are none of our business.

The rule: the names are read from the schema itself, so there is no list to keep. Partitions bear the name of their table and more.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent
_CREATED: Final = re.compile(r"^CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)
_DROPPED: Final = re.compile(r"^DROP TABLE (?:IF EXISTS )?([\w, \n]+)", re.MULTILINE)


@cache
def names() -> frozenset[str]:
    """All tables of this version in the main schema; the job queue has a schema of its own."""
    found: set[str] = set()
    for file in (_FOLDER / "schema.sql", *sorted((_FOLDER / "migrations").glob("*.up.sql"))):
        text = file.read_text(encoding="utf-8")
        found |= set(_CREATED.findall(text))
        found -= {name.strip() for listed in _DROPPED.findall(text) for name in listed.split(",")}
    return frozenset(found)
