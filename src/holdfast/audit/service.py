"""The audit log: which user or program changed what, when. Entries are written by the transactions that make the changes (`db/audit`)."""

from dataclasses import dataclass

from holdfast.audit import queries
from holdfast.audit.records import AuditFilter, Entry
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size


@dataclass(frozen=True, slots=True)
class AuditService:
    """The audit log of one database."""

    database: Database

    def page(
        self, where: AuditFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Entry]:
        """Return one page of entries; `after` is the `next` of the page before. Raises UsageError."""
        check_page_size(limit)
        where = where or AuditFilter()
        filters = where.given()
        with self.database.session() as connection:
            return queries.page(connection, where, filters, order=order, after=after, limit=limit)
