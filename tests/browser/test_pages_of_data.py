"""The other half of `test_pages.py`: what the crawl yields, what operates it, and who may; and pages of an empty store."""

from tests.browser.conftest import Dashboard, MakeVisitor
from tests.browser.furnished import MISSING, PATHS
from tests.browser.judged import DATA, ODD, judge


def test_empty_pages_say_what_to_do(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    """Before the store is furnished, which the tests of this file share."""
    assert dashboard.crawls.value("SELECT count(*) FROM domains") == 0
    page = visitor(dashboard.origin).log_in("admin", dashboard.password)
    for path in PATHS:
        if "{" not in path:
            answer = page.goto(dashboard.origin + path)
            assert answer is not None
            assert answer.status == (404 if path in MISSING else 200), path
            assert len(page.locator("main").inner_text()) > 40, f"{path} says nothing"


def test_the_pages_of_data_operations_and_access(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    judge(dashboard, visitor, (*DATA, *ODD))
