"""Tasks whose pages are really in an archive, and parsers to read them with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from holdfast.db import task_frontier
from holdfast.model.fetch_types import ArchiveRef
from tests.integration.archive.exchanges import exchange, keep, writer
from tests.support.shop import Shop

HEAD = "import os, time\nfrom decimal import Decimal\nfrom holdfast.parse.plugin_api import Extracted, Product\n"


def shop_page(name: str, price: str, sku: str = "L-1") -> bytes:
    """A page that says to machines what it sells."""
    offer = f'{{"@type":"Offer","price":"{price}","priceCurrency":"EUR","availability":"InStock"}}'
    product = f'{{"@type":"Product","name":"{name}","sku":"{sku}","offers":{offer}}}'
    return f'<title>{name}</title><script type="application/ld+json">{product}</script>'.encode()


def write_parser(folder: Path, name: str, body: str, version: str = "1") -> None:
    """A parser, as the file of a folder; `body` is one statement of its function."""
    folder.mkdir(exist_ok=True)
    text = f"{HEAD}version = {version!r}\ndef parse(document):\n    {body}\n"
    (folder / f"{name}.py").write_text(text)


@dataclass(frozen=True)
class Archived:
    """Pages of tasks: in the archive `folder`, and waiting to be parsed."""

    connection: psycopg.Connection
    folder: Path

    @property
    def shop(self) -> Shop:
        return Shop(self.connection)

    def keep(self, url: str, body: bytes, worker: str = "w1") -> ArchiveRef:
        """Put an answer into the archive."""
        segments = writer(self.folder, worker)
        (ref,) = keep(segments, [exchange(url, body)])
        segments.close()
        return ref

    def fetch(self, body: bytes, url: str = "https://shop.example/p", *, on: int = 1, **how: Any) -> int:
        """A task that was fetched on that day, and waits to be parsed."""
        tasks = self.shop.tasks
        task_id = tasks.one(url, **how)
        assert task_id in tasks.due()
        result = tasks.result(task_id, archive=self.keep(url, body), http_status=200)
        assert task_frontier.record_results(self.connection, [result])
        self.shop.on(on, task_id)
        return task_id
