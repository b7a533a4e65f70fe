"""Exports of documents: the same again while nothing changes, with another snapshot of counts after a recount."""

import json

from holdfast.control.export import Exporter, ExportRequest
from holdfast.crawler import site_blocks
from holdfast.db.connection import Database
from tests.support.documents import FOOTER, MENU, DocumentSite
from tests.support.factories import Store

NOTE = "Only some pages have this note"


def test_a_recount_gives_another_snapshot(database: Database, store: Store) -> None:
    site = DocumentSite(database, store, 12)
    for number in range(3):
        site.save(site.urls[number], MENU, f"# Page {number}", f"Text {number}.", NOTE, FOOTER)
    site_blocks.decide_some(site.connection)
    exporter, request = Exporter(database), ExportRequest("documents")
    first = list(exporter.lines(request))
    assert list(exporter.lines(request)) == first
    assert site_blocks.decide_some(site.connection) == 0
    assert list(exporter.lines(request)) == first

    for number in range(3, 6):
        site.save(site.urls[number], MENU, f"# Page {number}", f"Text {number}.", NOTE, FOOTER)
    site.connection.execute(
        "DELETE FROM documents WHERE url_key IN (SELECT url_key FROM url_frontier WHERE url LIKE '%/11')"
    )
    site_blocks.decide_some(site.connection)  # fewer documents than were counted: they are counted again
    second = list(exporter.lines(request))
    assert second != first
    assert list(exporter.lines(request)) == second
    for line in map(json.loads, second):
        noted = line["metadata"]["url"] in site.urls[:6]
        assert NOTE not in line["text"], "it stands on enough pages now"
        assert line["metadata"]["counted_pages"] == (11 if noted else 12), "the snapshot that its text was decided by"
        assert line["metadata"]["extractor"] == "1"
