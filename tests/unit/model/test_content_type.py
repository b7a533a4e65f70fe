"""Groups of content types: by their names, by the first bytes, and how a body is parsed."""

import pytest

from holdfast.model.content_type import (
    BodyKind,
    ContentGroup,
    expand,
    group_of,
    is_wanted,
    is_wanted_by_content,
    kind_of,
    media_type,
    read_groups,
    sniff,
)

PDF, JSON, XML, TEXT, FEEDS, OFFICE, ALL = ContentGroup
DOCX = b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml"
ODT = b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument.text"


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("application/pdf", PDF),
        ("application/json", JSON),
        ("application/ld+json", JSON),
        ("application/feed+json", FEEDS),
        ("application/rss+xml", FEEDS),
        ("text/xml", XML),
        ("application/mathml+xml", XML),
        ("text/csv", TEXT),
        ("text/markdown", TEXT),
        ("text/rtf", OFFICE),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", OFFICE),
        ("application/vnd.oasis.opendocument.spreadsheet", OFFICE),
        ("application/vnd.ms-excel.sheet.macroenabled.12", OFFICE),
        *(
            (name, None)
            for name in ("", "text/html", "application/xhtml+xml", "text/plain", "text/css", "text/javascript")
        ),
        *((name, None) for name in ("image/svg+xml", "image/png", "video/mp4", "application/octet-stream", "x")),
    ],
)
def test_each_type_is_of_one_group_or_of_none(name: str, group: ContentGroup | None) -> None:
    assert group_of(name) is group
    assert is_wanted(name, frozenset()) is False
    if group is not None:
        assert is_wanted(name, frozenset({group})) is True
        assert is_wanted(name, expand([ALL])) is True


def test_the_first_bytes_decide_where_the_type_says_nothing() -> None:
    assert is_wanted("application/octet-stream", frozenset({PDF})) is None
    assert is_wanted("application/zip", frozenset({OFFICE})) is None
    # A feed often says that it is XML.
    assert is_wanted("text/xml", frozenset({FEEDS})) is None
    assert is_wanted("text/xml", frozenset({PDF})) is False
    assert is_wanted("image/png", expand([ALL])) is False
    assert is_wanted_by_content(b"%PDF-1.7", frozenset({PDF}))
    assert not is_wanted_by_content(b"%PDF-1.7", frozenset({OFFICE}))
    assert not is_wanted_by_content(b"", expand([ALL]))


@pytest.mark.parametrize(
    ("start", "group"),
    [
        (b"%PDF-1.4", PDF),
        (b"\r\n junk %PDF-1.4", PDF),
        (bytes(1024) + b"%PDF-1.4", None),
        (DOCX, OFFICE),
        (ODT, OFFICE),
        (b"PK\x03\x04" + bytes(26) + b"readme.txt", None),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OFFICE),
        (b"{\\rtf1", OFFICE),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- > --><rss version='2.0'>", None),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- x --><rss version='2.0'>", FEEDS),
        (b"<!DOCTYPE rss>\n<feed xmlns='http://www.w3.org/2005/Atom'>", FEEDS),
        (b"<rdf:RDF xmlns='http://purl.org/rss/1.0/'>", FEEDS),
        (b"<rssx>", None),
        (b"<html>", None),
        (b"<" * 1024, None),
        (b"", None),
    ],
)
def test_content_is_known_by_its_first_bytes(start: bytes, group: ContentGroup | None) -> None:
    assert sniff(start) is group


@pytest.mark.parametrize(
    ("body", "header", "kind"),
    [
        (b"<html>", None, BodyKind.HTML),
        (b"<html>", "text/html; charset=utf-8", BodyKind.HTML),
        (b"<html>", "image/png, Text/HTML", BodyKind.HTML),
        (b"<html>", "application/pdf", BodyKind.BINARY),
        (b"%PDF-1.4", "text/html", BodyKind.PDF),
        (b"%PDF-1.4", None, BodyKind.PDF),
        (b" %PDF-1.4", "application/octet-stream", BodyKind.PDF),
        (b"a page about %PDF-1.4", "text/html", BodyKind.HTML),
        (b"a text about %PDF-1.4", "text/plain", BodyKind.TEXT),
        (b"{}", "application/json", BodyKind.TEXT),
        (b"<a/>", "image/svg+xml", BodyKind.BINARY),
        (DOCX, None, BodyKind.BINARY),
        (DOCX, "application/octet-stream", BodyKind.BINARY),
        (b"<rss version='2.0'>", "application/octet-stream", BodyKind.TEXT),
        (b"<p>", "application/octet-stream", BodyKind.HTML),
        (b"\xff\xd8\xff", "image/jpeg", BodyKind.BINARY),
    ],
)
def test_a_body_is_parsed_as_what_it_is(body: bytes, header: str | None, kind: BodyKind) -> None:
    assert kind_of(body, header) is kind


def test_a_header_has_one_type() -> None:
    assert media_type("Application/PDF; name=x.pdf") == "application/pdf"
    assert media_type("text/plain, text/html;charset=x") == "text/html"
    assert [media_type(header) for header in (None, "", "html", ";", ",")] == [""] * 5


def test_names_of_groups_are_read_once_and_in_order() -> None:
    assert read_groups(" office,PDF,,pdf ") == (PDF, OFFICE)
    assert read_groups("") == ()
    assert expand((ALL,)) == frozenset(ContentGroup) - {ALL}
    with pytest.raises(ValueError, match="'docx' is no group of types; there are pdf, json, xml"):
        read_groups("pdf,docx")
