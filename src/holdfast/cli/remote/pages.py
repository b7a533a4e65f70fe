"""Pages of a server."""

from dataclasses import dataclass

from holdfast.client import Client
from holdfast.documents.records import Document
from holdfast.pages.records import PageDiff, PageVersion
from holdfast.search.records import IndexStatus, SearchFilter, SearchResults


@dataclass(frozen=True, slots=True)
class RemotePages:
    """The pages of a server, with the methods of `pages/service`."""

    client: Client

    def versions(self, url: str, job: str | int | None = None) -> list[PageVersion]:
        """Return the versions of a page, the newest first."""
        return self.client.page_versions(url, job=job)

    def diff(
        self, url: str, job: str | int | None = None, older: int | None = None, newer: int | None = None
    ) -> PageDiff:
        """Return the differences between two versions of a page."""
        return self.client.page_diff(url, job=job, older=older, newer=newer)


@dataclass(frozen=True, slots=True)
class RemoteDocuments:
    """The documents of a server, with the methods of `documents/service`."""

    client: Client

    def show(self, url: str, job: str | int | None = None) -> Document:
        """Return the document of a page."""
        return self.client.page_markdown(url, job=job)


@dataclass(frozen=True, slots=True)
class RemoteSearch:
    """The search of a server, with the methods of `search/service`."""

    client: Client

    def search(self, words: str, where: SearchFilter, *, limit: int = 10, offset: int = 0) -> SearchResults:
        """Find documents with these words."""
        return self.client.search(
            words,
            domain=where.domain,
            job=where.job,
            language=where.language,
            kind=where.kind,
            since=where.since,
            until=where.until,
            limit=limit,
            offset=offset,
        )

    def status(self) -> IndexStatus:
        """Return how far the index of the server's machine is."""
        return self.client.search_status()
