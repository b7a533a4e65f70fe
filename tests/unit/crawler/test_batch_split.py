"""A rejected batch is bisected until the row that the database refuses stands alone."""

import pytest

from holdfast.crawler.batch_writer import mark_unstorable, split_batch
from holdfast.errors import StoreError
from holdfast.model.commit_batch import CommitBatch, DiscoveredUrl, PageRow, PolitenessClocks, UrlOutcome, VisitPart
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import LinkFacts, PageLinks


def outcome(name: str) -> UrlOutcome:
    url = f"https://a.example/{name}"
    return UrlOutcome(1, name.encode(), url, 0, Outcome.OK, UrlState.DONE, page=PageRow(200, title=name))


def found(name: str, parent: str) -> DiscoveredUrl:
    return DiscoveredUrl(1, name.encode(), f"https://a.example/{name}", 1, 2, parent.encode())


def part(domain_id: int, *names: str) -> VisitPart:
    links = [found(f"{name}{i}", name) for name in names for i in range(2)]
    return VisitPart(
        domain_id, 5, [outcome(name) for name in names], links, PolitenessClocks(next_request_in=1.0), 4, 3
    )


def test_parts_are_parted_first() -> None:
    batch = CommitBatch(9, [part(1, "a"), part(2, "b"), part(3, "c")])
    halves = split_batch(batch)
    assert halves is not None
    assert [half.run_id for half in halves] == [9, 9]
    assert [[part.domain_id for part in half.parts] for half in halves] == [[1], [2, 3]]


def test_what_a_page_led_to_goes_with_the_page() -> None:
    halves = split_batch(CommitBatch(9, [part(1, "a", "b", "c")]))
    assert halves is not None
    first, second = (half.parts[0] for half in halves)
    assert [one.url_key for one in first.outcomes] == [b"a"]
    assert [one.url_key for one in second.outcomes] == [b"b", b"c"]
    assert [url.parent_key for url in first.found] == [b"a", b"a"]
    assert [url.parent_key for url in second.found] == [b"b", b"b", b"c", b"c"]
    for one in (first, second):
        assert (one.domain_id, one.epoch, one.clocks) == (1, 5, PolitenessClocks(next_request_in=1.0))
        assert (one.consecutive_errors, one.refusal_streak) == (4, 3)


def test_nothing_is_lost_or_doubled_down_to_single_pages() -> None:
    names = [f"p{i}" for i in range(13)]
    whole = CommitBatch(9, [part(1, *names[:6]), part(2, *names[6:])])
    whole.parts[0].found.append(found("x", "somewhere else"))
    alone: list[VisitPart] = []
    waiting = [whole]
    while waiting:
        batch = waiting.pop()
        halves = split_batch(batch)
        if halves is None:
            alone += batch.parts
        else:
            waiting += halves
    assert sorted(one.url_key.decode() for part in alone for one in part.outcomes) == sorted(names)
    assert len([url for part in alone for url in part.found]) == 2 * 13 + 1
    assert all(len(part.outcomes) == 1 for part in alone)


def test_the_halves_of_what_was_fetched_for_tasks_are_for_tasks_too() -> None:
    whole = part(1, "a", "b", "c")
    whole.for_tasks = True
    waiting = split_batch(CommitBatch(9, [whole, part(2, "d")])) or []
    alone: list[VisitPart] = []
    while waiting:
        batch = waiting.pop(0)
        halves = split_batch(batch)
        alone += batch.parts if halves is None else []
        waiting += halves or []
    assert {one.outcomes[0].url_key: one.for_tasks for one in alone} == {
        b"a": True,
        b"b": True,
        b"c": True,
        b"d": False,
    }


def test_the_last_one_is_not_split() -> None:
    assert split_batch(CommitBatch(9, [part(1, "a")])) is None
    assert split_batch(CommitBatch(9, [])) is None
    assert split_batch(CommitBatch(9, [VisitPart(1, 5)])) is None


def test_the_page_that_cannot_be_stored_fails_with_the_reason() -> None:
    batch = CommitBatch(9, [part(1, "a")])
    batch.parts[0].outcomes[0].link_facts = LinkFacts(PageLinks(()))
    mark_unstorable(batch, "invalid byte sequence")
    (one,) = batch.parts[0].outcomes
    assert (one.outcome, one.state, one.page, one.retry_in) == (Outcome.BAD_RESPONSE, UrlState.FAILED, None, None)
    assert one.reason == "cannot be stored: invalid byte sequence"
    assert one.link_facts is None
    assert batch.parts[0].found == []


def test_what_was_given_up_already_is_a_fault() -> None:
    batch = CommitBatch(9, [part(1, "a")])
    mark_unstorable(batch, "first")
    with pytest.raises(StoreError, match="second"):
        mark_unstorable(batch, "second")
    with pytest.raises(StoreError):
        mark_unstorable(CommitBatch(9, [VisitPart(1, 5)]), "clocks alone")
