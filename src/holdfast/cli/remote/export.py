"""Exports from a server: its rows, written here by whatever writes those of the store."""

import json
from collections.abc import Generator
from datetime import datetime

from holdfast.client import Client
from holdfast.control.export import Exporter, Row, Wanted, unflat
from holdfast.pages.texts import MissingTexts, is_missing


class RemoteExporter(Exporter):
    """As `control/export` has it, with rows that come over the line."""

    __slots__ = ("_client",)
    _client: Client

    def __init__(self, client: Client) -> None:
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "missing", MissingTexts())

    def expected(self, wanted: Wanted) -> int | None:  # noqa: ARG002 — nobody knows before
        """Nobody knows how many there will be."""
        return None

    def rows(self, wanted: Wanted) -> Generator[Row, None, None]:
        """Every row, with the columns of its kind. What breaks off raises: a part is not passed off as the whole."""
        times = [name for name, kind in wanted.columns.items() if kind == "timestamp"]
        rest = b""
        for piece in self._client.exported(wanted.kind, job=wanted.job, domain=wanted.domain, text=wanted.text):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                row = unflat(json.loads(line), wanted.columns)
                for name in times:
                    row[name] = None if row[name] is None else datetime.fromisoformat(row[name])
                if wanted.text and is_missing(row, row["text"]):
                    self.missing.unknown += 1
                yield {name: row[name] for name in wanted.columns}
