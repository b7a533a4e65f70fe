"""Documents: written with the parse of their page, gone with it, and what is removed from them decided from the whole site."""

from datetime import UTC, datetime

import pytest

from holdfast.crawler import site_blocks
from holdfast.crawler.document_rows import document_row
from holdfast.db import documents, items
from holdfast.db.connection import Database
from holdfast.documents import queries
from holdfast.model.url import url_key
from tests.support.crawled import HOME
from tests.support.documents import FOOTER, MENU, DocumentSite, extracted
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def site(database: Database, store: Store) -> DocumentSite:
    return DocumentSite(database, store, 6)


def test_a_page_is_due_for_its_parsers_and_its_document_is_stored(site: DocumentSite) -> None:
    assert site.due() == []
    assert len(items.due(site.connection, "w1", parsers=["shop"])) == 6
    assert site.markdown().startswith(f"{MENU}\n\n# Page 0")
    assert queries.count(site.connection, job_id=site.store.job) == 6
    exported = list(queries.export(site.connection, job_id=site.store.job))
    assert sorted(row.url for row in exported) == sorted(site.urls)
    assert_invariants(site.connection)


def test_what_stands_on_many_pages_is_removed_when_the_site_is_known(site: DocumentSite) -> None:
    assert documents.undecided_domains(site.connection) == [site.domain]
    assert documents.undecided_domains(site.connection, after=site.domain) == []
    assert site_blocks.decide_some(site.connection, after=site.domain) == site.domain, "after the last comes the first"
    assert site.markdown() == "# Page 0\n\nWhat only page 0 says: ."
    found = queries.find(site.connection, site.domain, url_key(HOME), None)
    assert found is not None
    assert (found.removed, found.counted_pages) == ([0, 3], 6)
    assert len(documents.block_counts(site.connection, site.domain)) == 2
    assert site_blocks.decide_some(site.connection) == 0


def test_a_new_document_is_judged_by_the_counts_and_a_recount_follows_growth(site: DocumentSite) -> None:
    site_blocks.decide_some(site.connection)
    before = site.connection.execute("SELECT counted_at FROM domain_block_counts").fetchone()
    site.save(HOME, MENU, "# Page 0", "Changed.", FOOTER)
    assert site.markdown().startswith(MENU), "undecided: everything is shown"
    site_blocks.decide_some(site.connection)
    assert site.markdown() == "# Page 0\n\nChanged."
    assert site.connection.execute("SELECT counted_at FROM domain_block_counts").fetchone() == before
    site.connection.execute("UPDATE domain_block_counts SET documents = 4")
    site.save(HOME, MENU, "# Page 0", "Again.", FOOTER)
    site_blocks.decide_some(site.connection)
    assert site.connection.execute("SELECT documents FROM domain_block_counts").fetchone() == (6,)


def test_a_document_that_was_written_again_stays_undecided(site: DocumentSite) -> None:
    (chunk,) = documents.blocks_of(site.connection, site.domain, all_documents=False)
    site.save(HOME, "Only this.")
    documents.decide(site.connection, site.domain, 6, [(one, [0, 3]) for one in chunk])
    assert site.markdown() == "Only this."
    undecided = "SELECT count(*) FROM documents WHERE counted_pages IS NULL"
    assert site.store.connection.execute(undecided).fetchone() == (1,)


def test_a_page_without_content_has_no_document_and_a_deleted_one_is_noted(site: DocumentSite) -> None:
    site.save(HOME)
    assert queries.find(site.connection, site.domain, url_key(HOME), None) is None
    site.connection.execute("DELETE FROM crawled_pages WHERE url_key = %s", (url_key(site.urls[1]),))
    noted = site.connection.execute("SELECT url_key FROM document_deletions ORDER BY deleted_at").fetchall()
    assert noted == [(url_key(HOME),), (url_key(site.urls[1]),)]


def test_dates_and_names_are_kept(site: DocumentSite) -> None:
    data = extracted("Text.") | {"published": "2026-02-03", "author": "A. Writer", "site_name": "DocumentSite"}
    row = document_row(data)
    assert row is not None
    key = documents.DocumentKey(site.domain, site.store.job, url_key(HOME))
    documents.put(site.connection, key, row, datetime(2026, 3, 1, tzinfo=UTC))
    found = queries.find(site.connection, site.domain, url_key(HOME), site.store.job)
    assert found is not None
    assert (str(found.published), found.author, found.site_name) == ("2026-02-03", "A. Writer", "DocumentSite")
