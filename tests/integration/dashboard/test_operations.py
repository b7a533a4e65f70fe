"""Operations on pages: started, watched, and their results."""

import re

from holdfast import factories
from holdfast.operations.service import OperationRunner
from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.factories import Store


def run_one(api: Api) -> None:
    """What a background process does."""
    handlers = factories.operation_handlers(api.services.settings, api.services.unpooled)
    assert OperationRunner(api.services.unpooled, handlers.by_kind()).work()


def test_a_verification_is_started_and_its_result_is_shown(api: Api, ada: Browser, store: Store) -> None:
    store.seed("a.example")
    assert "There are no operations." in ada.get("/operations").words
    page = ada.send("/operations", "/operations/verify")
    (asked,) = api.services.operations.listing()
    assert page.path == f"/operations/{asked.id}"
    assert page.notice == f"The verification is operation {asked.id}."
    assert asked.arguments == {"archive": False}
    assert "A background process takes it soon" in page.words
    run_one(api)
    done = ada.get(f"/operations/{asked.id}").words
    assert "checks hold." in done
    assert "archive of the server's machine was not read" in done
    assert "verify done" in ada.get("/operations", state="done").words


def test_faults_come_first(api: Api, ada: Browser, store: Store) -> None:
    store.seed("a.example")
    store.connection.execute("UPDATE job_domains SET discovered = discovered + 1")
    page = ada.send("/operations", "/operations/verify")
    run_one(api)
    words = ada.get(page.path).words
    assert re.search(r"\d+ checks? of \d+ found faults\.", words)
    assert words.index("1 fault") < words.index(" ok ")


def test_filters_and_what_is_not_there(ada: Browser) -> None:
    assert "No operation matches." in ada.get("/operations", state="failed").words
    assert "An operation is" in ada.get("/operations", state="odd").notice
    assert ada.get("/operations/815").status == 404
    assert ada.client.get("/regions/operation?id=815").status_code == 404
    assert ada.client.get("/regions/operation?id=x").status_code == 404


def test_a_user_starts_none(api: Api, rita: Browser) -> None:
    assert [target for target in rita.get("/operations").forms() if target != "/logout"] == []
    assert rita.forge("/operations/verify").status == 403
    assert api.services.operations.listing() == []
