"""Every change of a domain's status goes through `db/transitions`: no other statement of ours sets the column."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import holdfast.db

STORE = Path(holdfast.db.__file__).parent
_SET = re.compile(r"UPDATE domains\b(?: AS)?(?: d)? SET(.*?)(?:\bFROM\b|\bWHERE\b|\bRETURNING\b|\Z)", re.DOTALL)


def sets_status(statement: str) -> bool:
    return any(re.search(r"(?:^|,)\s*status\s*=", assignments) for assignments in _SET.findall(statement))


def texts(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_search_finds_what_it_is_for() -> None:
    assert sets_status("UPDATE domains SET status = 'active' WHERE id = 1")
    assert sets_status("UPDATE domains d SET\n    version = 1,\n    status = CASE WHEN true THEN 'active' END FROM x")
    assert not sets_status("UPDATE domains d SET status_reason = 'x' WHERE status = 'active'")


def test_no_statement_sets_a_status_by_itself() -> None:
    modules = sorted(STORE.glob("*.py"))
    assert len(modules) > 50
    assert [module.name for module in modules if any(map(sets_status, texts(module)))] == []
