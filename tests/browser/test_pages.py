"""Every page in a browser: hostile text does nothing, nothing leaves the origin, no serious barrier, and it fits a phone.

The pages are loaded once for all of it; `test_pages_of_data.py` has the other half.
"""

from tests.browser.conftest import Dashboard, MakeVisitor
from tests.browser.judged import CRAWL, judge


def test_the_pages_of_the_crawl(dashboard: Dashboard, visitor: MakeVisitor) -> None:
    judge(dashboard, visitor, CRAWL)
