"""The links of a server."""

from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.client import Client, endpoints
from holdfast.client.request_spec import ListSpec
from holdfast.db.keyset_pagination import Key, Page
from holdfast.links.records import (
    BrokenLink,
    LinkDegree,
    LinkPlace,
    LinkSummary,
    MissingPlace,
    Orphan,
    PageLinkList,
    RedirectedLink,
    UncheckedTarget,
)
from holdfast.model.cursor import decode_cursor, encode_cursor

T = TypeVar("T")

_ALL_PLACES: Final = 1_000
"""Pages of a target that the server lists at most."""


@dataclass(frozen=True, slots=True)
class RemoteLinks:
    """The links of a server, like `LinkService`."""

    client: Client

    def incoming(self, url: str, job: str | None = None, *, after: Key | None = None, limit: int) -> Page[LinkPlace]:
        """Return links to a URL."""
        return _page(self.client, endpoints.links_in(url, job=job), after, limit)

    def outgoing(self, url: str, job: str | None = None) -> PageLinkList:
        """Return the links of a page."""
        return self.client.links_out(url, job=job)

    def broken(
        self, job: str | None = None, *, external: bool | None, after: Key | None, limit: int, places: int | None
    ) -> Page[BrokenLink]:
        """Return broken links."""
        request = endpoints.broken_links(job=job, external=external, places=places or _ALL_PLACES)
        return _page(self.client, request, after, limit)

    def redirects(
        self,
        job: str | None = None,
        *,
        min_hops: int,
        external: bool | None,
        after: Key | None,
        limit: int,
        places: int | None,
    ) -> Page[RedirectedLink]:
        """Return links to redirects."""
        request = endpoints.redirected_links(
            job=job, min_hops=min_hops, external=external, places=places or _ALL_PLACES
        )
        return _page(self.client, request, after, limit)

    def orphans(self, job: str | None = None, *, after: Key | None, limit: int) -> Page[Orphan]:
        """Return URLs that no page links to."""
        return _page(self.client, endpoints.orphans(job=job), after, limit)

    def unchecked(self, job: str | None = None, *, after: Key | None, limit: int) -> Page[UncheckedTarget]:
        """Return targets that were not requested."""
        return _page(self.client, endpoints.unchecked_targets(job=job), after, limit)

    def missing_places(self, job: str | None = None, *, after: Key | None, limit: int) -> Page[MissingPlace]:
        """Return links to places that are missing."""
        return _page(self.client, endpoints.missing_places(job=job), after, limit)

    def top(self, job: str | None = None, *, limit: int) -> list[LinkDegree]:
        """Return the URLs that most pages link to."""
        return self.client.top_targets(job=job, limit=limit)

    def summary(self, job: str | None = None) -> LinkSummary:
        """Return what a job has recorded of links."""
        return self.client.link_summary(job=job)


def _page(client: Client, listing: ListSpec[T], after: Key | None, limit: int) -> Page[T]:
    """Return the page of a report after a key, with the key to go on from."""
    rows, following = client.ask(listing.page(None if after is None else encode_cursor(after), limit))
    return Page(rows, decode_cursor(following, int, bytes))
