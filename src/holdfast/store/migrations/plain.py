"""Runs a revision's SQL file as it is.

The rule: a file goes to the server in one piece, inside the migration's transaction; nothing in it is taken for a parameter.
"""

from pathlib import Path
from typing import Final

from alembic import op

_FOLDER: Final = Path(__file__).with_name("sql")


def run_sql(name: str) -> None:
    """Execute one file of `sql/`."""
    execute((_FOLDER / name).read_text(encoding="utf-8"))


def execute(text: str) -> None:
    """Execute any number of statements."""
    raw = op.get_bind().connection.driver_connection
    if raw is None:
        raise RuntimeError("migrations run on a live connection only")
    with raw.cursor() as cursor:
        cursor.execute(text)
