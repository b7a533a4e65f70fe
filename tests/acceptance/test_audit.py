"""Every fault that an audit and an attack found stays mended; `python -m tests.acceptance.audit` prints the same as a table."""

import os
from collections.abc import Callable

import pytest

from tests.acceptance.audit import CASES, Case, try_case

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]


@pytest.mark.parametrize("tried", CASES, ids=lambda tried: tried.name)
def test_the_fault_is_gone(tried: Case, report: Callable[[str], None]) -> None:
    if tried.needs_root and os.geteuid():
        pytest.skip("needs root")
    report(f"{tried.point} {tried.name}: {try_case(tried)}")
