"""Services of a server for commands with `--server`: the same methods and the same records as those of the nouns' services.

The rule: each method is a call of the client. A field that the server does not return is None.
"""

from typing import TypeVar

from holdfast.client import Client
from holdfast.client.request_spec import ListSpec
from holdfast.db.keyset_pagination import Key, Page
from holdfast.model.cursor import encode_cursor

T = TypeVar("T")


def page_after(client: Client, listing: ListSpec[T], after: Key | None, limit: int) -> Page[T]:
    """Return the page of a list after a key; None: the first one."""
    rows, _ = client.ask(listing.page(None if after is None else encode_cursor(after), limit))
    return Page(rows, None)
