"""Steps along a pagination, and where a chain of them ends."""

import pytest

from holdfast.politeness.crawler_traps import Pagination, chain_end_reason


@pytest.mark.parametrize(
    ("page", "url"),
    [
        ("https://h/?page=1", "https://h/?page=2"),
        ("https://h/?page=9", "https://h/?page=10"),
        ("https://h/?page=2", "https://h/?page=60"),
        ("https://h/list/page/09/", "https://h/list/page/10/"),
        ("https://h/2024/05/?start=0&order=asc", "https://h/2024/05/?start=20&order=asc"),
        ("https://h2:81/a-1.html", "https://h2:81/a-2.html"),
    ],
)
def test_one_number_that_grows_is_a_step(page: str, url: str) -> None:
    assert Pagination(page).is_step(url)
    assert not Pagination(url).is_step(page), "back is none"


@pytest.mark.parametrize(
    ("page", "url"),
    [
        ("https://h/?page=1", "https://h/?page=1"),
        ("https://h/", "https://h/?page=2"),
        ("https://h/?page=1", "https://h/?page=2&order=asc"),
        ("https://h/?page=1&size=10", "https://h/?page=2&size=20"),
        ("https://h/a1b", "https://h/ab2"),
        ("https://h/?m=0", "https://h/?m=-1"),
        ("https://h1/", "https://h2/"),
        ("https://h:80/x1", "https://h:81/x1"),
        ("http://h/?page=1", "https://h/?page=2"),
        ("https://h/archive/2023/12", "https://h/archive/2024/01"),
    ],
)
def test_what_is_no_step(page: str, url: str) -> None:
    assert not Pagination(page).is_step(url)


def test_rel_next_is_a_step_within_its_template_only() -> None:
    page = Pagination("https://h/archive/2023/12")
    assert page.is_step("https://h/archive/2024/01", is_next=True)
    assert not page.is_step("https://h/archive/2023/12", is_next=True)
    assert not page.is_step("https://h/chapter/2024/01", is_next=True)
    assert not page.is_step("https://other/archive/2024/01", is_next=True)
    assert not Pagination("https://h/intro").is_step("https://h/usage", is_next=True)


def test_a_chain_ends_after_its_steps() -> None:
    assert chain_end_reason(1000, 1000) is None
    assert chain_end_reason(1001, 1000) == "step 1001 of a pagination, more than 1000"
