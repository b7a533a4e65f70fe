"""Storage on a page."""

from holdfast.db import migrate
from tests.support.api import Api
from tests.support.browsing import Browser


def test_what_is_stored(api: Api, rita: Browser) -> None:
    page = rita.get("/storage")
    assert page.status == 200
    assert "crawled_pages" in page.words
    assert f"Revision of the schema {migrate.HEAD}" in page.words
    assert "nothing was crawled here" in page.words, "what cannot be known is said"
    assert "None in the last week." in page.words
    assert [target for target in page.forms() if target != "/logout"] == []
    assert api.services.storage.report().database_bytes > 0


def test_a_verification_is_started_here(api: Api, ada: Browser) -> None:
    page = ada.send("/storage", "/operations/verify", archive="on")
    (asked,) = api.services.operations.listing()
    assert page.path == f"/operations/{asked.id}"
    assert asked.arguments == {"archive": True}
    assert "verify waiting requested" in ada.get("/storage").words
