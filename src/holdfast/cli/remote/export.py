"""Exports from a server: its rows, written to a file here."""

import json
from collections.abc import Generator
from datetime import datetime

from holdfast.client import Client
from holdfast.control.export import Exporter, ExportRequest, Row, unflat
from holdfast.pages.texts import MissingTexts, has_text


class RemoteExporter(Exporter):
    """The exporter of `control/export`, with rows from a server."""

    __slots__ = ("_client",)
    _client: Client

    def __init__(self, client: Client) -> None:
        object.__setattr__(self, "_client", client)
        object.__setattr__(self, "missing", MissingTexts())

    def expected(self, request: ExportRequest) -> int | None:  # noqa: ARG002 — a server does not say it
        """Return None: the number of rows is unknown."""
        return None

    def rows(self, request: ExportRequest) -> Generator[Row, None, None]:
        """Read every row, with the columns of its kind; an older server may lack some, which are null. Raises if the stream breaks off."""
        columns = request.columns
        times = [name for name, kind in columns.items() if kind == "timestamp"]
        rest = b""
        for chunk in self._client.exported(request.kind, job=request.job, domain=request.domain, text=request.text):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                row: Row = dict.fromkeys(columns) | unflat(json.loads(line), columns)
                for name in times:
                    row[name] = None if row[name] is None else datetime.fromisoformat(row[name])
                if request.text and row["text"] is None:
                    self.missing.unknown += has_text(row["outcome"], row["noindex"], row["content_length"])
                yield {name: row[name] for name in columns}
