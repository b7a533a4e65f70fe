"""Hostile pages, on which Lexbor needs seconds or gigabytes, each followed by a link; and ordinary pages."""

from typing import Final

TAIL: Final = b'<a href="/after">after</a></a>'
_SIZE: Final = 500_000


def _fill(piece: bytes, size: int = _SIZE) -> bytes:
    return piece * (size // len(piece))


def _number(form: bytes, count: int) -> bytes:
    return b"".join(form.replace(b"#", b"%d" % i) for i in range(count))


BOMBS: Final[dict[str, bytes]] = {
    "nested": _fill(b"<div>"),
    "attributes": b"<p " + _number(b"a# ", 60_000) + b">",
    "quoted_ends": b"<p " + b"".join(b"a%d " % i + (b'b="<>" ' if i % 50 == 0 else b"") for i in range(20_000)) + b">",
    "body_attributes": _number(b"<body a#>", 2000) + _number(b"<BODY b#>", 30_000),
    "formatting": _number(b"<p><b a#>x", 30_000),
    "small_formatting": b"<div>" + _number(b"<b a#>", 760) + b"</div>" + b"</z>" * 500 + b"<p>x" * 760,
    "misnested": b"<div>" * 400 + _fill(b"<b></div>"),
    "hidden_in_object": _fill(b"<div><object></div></object>"),
    "closed_in_comments": _fill(b"<div><!--</div>-->"),
    "lists": _fill(b"<ul><li>"),
    "table_comments": b"<table>" + _fill(b"x<!---->"),
    "names": _number(b"<x#></x#>", 100_000),
}
"""Hostile pages by what they consist of."""


def ordinary(count: int) -> bytes:
    """Make an ordinary page with `count` paragraphs."""
    rows = "".join(
        f'<div class="row r{i}"><h2>Title {i}</h2><p>Some text <b>here</b> and <a class="l" href="/p/{i}">there</a>.<br></p></div>\n'
        for i in range(count)
    )
    head = '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>T</title><script>let x = a => a < 1</script></head>'
    return f"{head}<body><ul><li>a<li>b</ul>{rows}</body></html>".encode()
