"""A page of a shop that is fetched and parsed again and again, by the product's own functions; days are times of fetches."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg

from holdfast.db import parse_results
from holdfast.db.parse_results import ToParse
from holdfast.model.parse_result import Availability, Extracted, ParseDone, Product
from holdfast.model.task import TaskStatus
from holdfast.products import queries, records
from holdfast.products.records import ProductFilter
from holdfast.tasks import queries as task_queries
from tests.support.tasks import Tasks

PAGE = "https://shop.example/p"
START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def product(name: str = "Lamp", price: str | None = "10", **fields: Any) -> Product:
    known: dict[str, Any] = {"sku": name[:3].upper(), "currency": "EUR", "availability": Availability.IN_STOCK} | fields
    return Product(name=name, price=None if price is None else Decimal(price), **known)


def done(*products: Product, version: str = "1", **data: Any) -> ParseDone:
    return ParseDone("product", version, Extracted(data, products))


@dataclass(frozen=True)
class Shop:
    """Pages of shops in a test's database."""

    connection: psycopg.Connection

    @property
    def tasks(self) -> Tasks:
        return Tasks(self.connection)

    def fetch(self, number: int, url: str = PAGE, **how: Any) -> int:
        """A new task, fetched on that day and waiting to be parsed."""
        task_id = self.tasks.one(url, **how)
        assert task_id in self.tasks.due()
        self.tasks.fetched(task_id)
        self.on(number, task_id)
        return task_id

    def on(self, number: int, task_id: int) -> None:
        """Let the fetch of a task have been on that day."""
        moved = self.connection.execute(
            "UPDATE task_events SET at = %s WHERE task_id = %s AND from_status = 'crawling' AND to_status = 'downloaded'",
            (day(number), task_id),
        )
        assert moved.rowcount == 1

    def take(self, task_id: int) -> ToParse:
        taken = parse_results.take(self.connection, task_id)
        assert taken
        return taken

    def parse(self, task_id: int, *products: Product, **how: Any) -> None:
        assert parse_results.finish(self.connection, self.take(task_id), done(*products, **how))

    def see(self, number: int, *products: Product, url: str = PAGE) -> int:
        """Fetch and parse a page; the task."""
        task_id = self.fetch(number, url)
        self.parse(task_id, *products)
        return task_id

    def miss(self, number: int, url: str = PAGE) -> int:
        """Fetch a page and fail to parse it; the task."""
        task_id = self.fetch(number, url)
        assert parse_results.fail_parse(
            self.connection, task_id, self.take(task_id).task.attempt, error="x", permanent=True
        ) is (TaskStatus.FAILED)
        return task_id

    def again(self, task_id: int, *products: Product, **how: Any) -> None:
        """Parse a task's page again, as a person may ask for it."""
        assert task_queries.restart_parsing(self.connection, task_id, actor="test")
        self.parse(task_id, *products, **how)

    def all(self, domain_id: int | None = None, **chosen: Any) -> list[records.Product]:
        return queries.page(self.connection, ProductFilter(**chosen), domain_id=domain_id).rows

    def only(self) -> records.Product:
        (found,) = self.all()
        return found

    def history(self, product_id: int | None = None) -> list[tuple[int, int, str]]:
        """First and last day and price of each run, the oldest first; of the only product, unless one is named."""
        runs = queries.history(self.connection, product_id or self.only().id)
        return [((run.since - START).days, (run.until - START).days, f"{run.price}") for run in reversed(runs)]

    def everything(self) -> list[str]:
        """All that is known of products, to be compared with another moment."""
        tables = ("products", "product_prices")
        return [
            str(row[0])
            for table in tables
            for row in self.connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1")
        ]
