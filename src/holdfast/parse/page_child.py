"""The child process that parses pages which may be too expensive for the worker: `python -m holdfast.parse.page_child`.

Owns parsed pages as JSON. The rule: `parse/child_loop` serves; nothing is kept between two pages.
"""

from typing import Any

from holdfast.model.fetch_types import Anchor, FoundImage, FoundLink, ParsedPage
from holdfast.model.page_links import LinkKind
from holdfast.parse.child_loop import serve
from holdfast.parse.html import parse_page


def main() -> None:
    """Serve requests. Before: nothing. After: standard input has ended, and with it this process."""
    serve(lambda body, request: as_json(parse_page(body, **request)))


def as_json(parsed: ParsedPage) -> dict[str, Any]:
    """Encode a parsed page for the pipe."""
    fields = {name: getattr(parsed, name) for name in ParsedPage.__slots__}
    return fields | {"content_hash": parsed.content_hash.hex()}


def from_json(reply: dict[str, Any]) -> ParsedPage:
    """Decode a parsed page from the pipe."""
    anchors = [Anchor(*one) for one in reply["anchors"]]
    images = [FoundImage(*one) for one in reply["found_images"]]
    links = [FoundLink(href, text, rel, LinkKind(kind)) for href, text, rel, kind in reply["found_links"]]
    content_hash = bytes.fromhex(reply["content_hash"])
    made = {"content_hash": content_hash, "anchors": anchors, "found_images": images, "found_links": links}
    return ParsedPage(**reply | made)


if __name__ == "__main__":
    main()
