"""Pages of a server."""

from dataclasses import dataclass

from holdfast.client import Client
from holdfast.pages.records import PageDiff, PageVersion


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
