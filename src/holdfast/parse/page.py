"""A page's bytes to what they mean, in this process and at once.

The rule: whoever calls this has asked `parse/prescan` first, or can afford to die. Bodies that are no HTML are text.
"""

from holdfast.model.page import Parsed
from holdfast.parse import charset
from holdfast.parse.html import content_hash, parse_html
from holdfast.parse.words import folded, robots_tag


def is_plain(content_type: str | None) -> bool:
    """Whether a body of this type is text and nothing else."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == "text/plain"


def parse_page(
    body: bytes, *, content_type: str | None, x_robots_tag: str | None = None, links_per_page: int = 1000
) -> Parsed:
    """What `body` means. Addresses are as written, not joined."""
    encoded = charset.detect(body, content_type)
    if is_plain(content_type):
        text = folded(charset.decode(body[encoded.skip :], encoded.name))
        parsed = Parsed(text=text, content_hash=content_hash(None, text, body))
    else:
        markup = body[encoded.skip :] if encoded.skip else body
        if encoded.name != charset.UTF8:
            markup = charset.decode(markup, encoded.name).encode("utf-8", "replace")
        parsed = parse_html(markup, links_per_page=links_per_page)
        if not parsed.text:
            parsed.content_hash = content_hash(None, "", body)
    parsed.charset = encoded.name
    if x_robots_tag:
        noindex, nofollow = robots_tag(x_robots_tag)
        parsed.noindex |= noindex
        parsed.nofollow |= nofollow
    return parsed
