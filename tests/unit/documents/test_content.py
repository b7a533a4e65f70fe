"""The content of documents: without some of its blocks, with headings where they are then."""

from typing import Any

from holdfast.crawler.document_rows import document_row
from holdfast.documents.content import Content, compose, read_content
from tests.support.documents import extracted

PAGE = extracted("# Home > Docs", "# Install", "Run it.", "## Linux", "Use the wheel.", "© Example", title="Install")


def offsets(content: Content) -> list[tuple[str, str, str]]:
    return [
        (
            heading.title,
            content.markdown[heading.markdown_offset :].split("\n")[0],
            content.text[heading.text_offset :].split("\n")[0],
        )
        for heading in content.headings
    ]


def test_a_document_is_read_as_it_was_extracted() -> None:
    row = document_row(PAGE)
    assert row is not None
    content = read_content(row.body)
    assert (content.markdown, content.text) == (PAGE["markdown"], PAGE["text"])
    assert (row.title, row.words, row.heading_blocks) == ("Install", len(PAGE["text"].split()), [0, 1, 3])
    assert row.block_words == [3, 1, 2, 1, 3, 2]
    assert [heading.path for heading in content.headings] == [["Home > Docs"], ["Install"], ["Install", "Linux"]]


def test_removed_blocks_are_left_out_and_headings_move() -> None:
    content = compose(PAGE, [0, 5])
    assert content.markdown == "# Install\n\nRun it.\n\n## Linux\n\nUse the wheel."
    assert content.text == "Install\n\nRun it.\n\nLinux\n\nUse the wheel."
    assert offsets(content) == [("Install", "# Install", "Install"), ("Linux", "## Linux", "Linux")]


def test_all_blocks_may_be_removed() -> None:
    assert compose(PAGE, range(6)) == Content("", "", [])


def test_a_page_without_content_has_no_row() -> None:
    nothing: dict[str, Any] = {}
    assert document_row(nothing) is None
    assert document_row(extracted()) is None
