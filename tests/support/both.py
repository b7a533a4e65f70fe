"""The command line on a store, and on a server of that store: what both answer is the same."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.cli import Answer, Cli

UNSAID = {"kind", "updated_at", "max_pages", "spent", "done"}
"""What a server may leave out of its lists: then it is null."""


@dataclass
class Both:
    """The command line on a store, and on a server of that store."""

    near: Cli
    api: Api
    key: str
    monkeypatch: pytest.MonkeyPatch

    def far(self, *arguments: str, key: str | None = None, stdin: str | bytes | None = None) -> Answer:
        """Ask the server, where no store could be opened."""
        with self.monkeypatch.context() as patch:
            patch.setenv("HOLDFAST_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
            patch.setenv("HOLDFAST_API_KEY", self.key if key is None else key)
            return self.near("--server", self.api.url, *arguments, stdin=stdin)

    def same(self, *arguments: str, but: tuple[str, ...] = ()) -> Any:
        """The answer in JSON, which is the same from both, `but` for these fields."""
        near, far = self.near(*arguments, "--json"), self.far(*arguments, "--json")
        assert (far.code, far.err) == (near.code, near.err)
        assert_alike(near.json, far.json, {*but})
        return far.json

    def shown(self, *arguments: str) -> str:
        """The answer for people, which is the same from both."""
        near, far = self.near(*arguments), self.far(*arguments)
        assert (far.code, far.out, far.err) == (near.code, near.out, near.err)
        return far.out

    def refused(self, *arguments: str) -> str:
        """The sentence of a refusal, which is the same from both, with the same exit code."""
        near, far = self.near(*arguments), self.far(*arguments)
        assert far.refused(near.code) == near.refused(near.code)
        return far.err


def assert_alike(near: Any, far: Any, but: set[str], place: str = "") -> None:
    if isinstance(near, dict):
        assert set(far) <= set(near), place
        for name in set(near) - but:
            if name not in far or (far[name] is None and near[name] is not None):
                assert name in UNSAID or place.startswith(".domains["), f"{place}.{name} is not said"
            else:
                assert_alike(near[name], far[name], but, f"{place}.{name}")
    elif isinstance(near, list):
        assert len(near) == len(far), place
        for number, (one, other) in enumerate(zip(near, far, strict=True)):
            assert_alike(one, other, but, f"{place}[{number}]")
    else:
        assert near == far, place
