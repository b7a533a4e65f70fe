"""The one transaction: what it writes, that it counts once, and that a lost domain leaves it."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.db import crawls, domain_removal, frontier, sweeper, visit_state
from holdfast.db.connection import Database
from holdfast.errors import RolledBack, StoreError
from holdfast.frontier import queries as frontier_queries
from holdfast.model.commit_batch import PageRow, PolitenessClocks
from holdfast.model.domain import Status
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.url import url_key
from holdfast.model.visit_report import FrontierGrowth
from tests.support.batches import Worker, found, links, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

HOME = "https://d0.example/"


@pytest.fixture
def worker(store: Store, database: Database) -> Worker:
    return Worker(database, store)


def test_a_page_and_its_links_are_written_and_counted(store: Store, worker: Worker) -> None:
    store.domains(1)
    crawl, _ = crawls.begin(store.connection, store.job)
    claim = store.claim_one()
    page = PageRow(
        200, "text/html", 12, b"h" * 32, "Title", archive=ArchiveRef("a.warc.gz", 10, 20, b"d" * 32), text=b"zstd"
    )
    denied = found("https://d0.example/trap", store.job, state=UrlState.DENIED, reason="trap: repeats")
    done = worker.commit(
        worker.part(
            claim,
            [outcome(HOME, store.job, page=page, images_found=3, depth=2)],
            [*links("d0.example", 5, store.job), denied, found(HOME, store.job)],
            PolitenessClocks(0.7, 30, 2, 120.5, 80.25, 1, 2, 60),
            streak=0,
        )
    )
    assert done.refused == set()
    assert done.growth == {claim.domain_id: FrontierGrowth(5, 0, 5)}, (
        "the page was known, and what is denied does not count"
    )
    row = store.row("d0.example")
    assert (row["pages_discovered"], row["frontier_size"], row["pages_crawled"], row["images_found"]) == (7, 5, 1, 3)
    assert (row["status"], row["crawl_depth_reached"], row["total_error_count"]) == ("active", 2, 0)
    work = store.work("d0.example")
    assert [work[name] for name in ("discovered", "waiting", "done", "denied", "failed")] == [7, 5, 1, 1, 0]
    assert (work["crawl_id"], work["budget_used"], work["granted"]) == (crawl, 1, 1)
    assert store.value("SELECT title FROM crawled_pages WHERE archive_segment = 'a.warc.gz'") == "Title"
    assert store.value("SELECT body FROM page_texts") == b"zstd"
    assert store.value("SELECT outcome || claim_epoch || crawl_run_id FROM crawl_log") == f"ok1{worker.run_id}"
    run = store.connection.execute("SELECT pages_crawled, errors, bytes, images_found FROM crawl_runs").fetchone()
    assert run == (1, 0, 1000, 3)
    assert_invariants(store.connection)


def test_clocks_come_back_as_they_went_and_stay_where_nothing_is_said(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    worker.commit(worker.part(claim, clocks=PolitenessClocks(100, 200, 2, 120.5, 80.25, 1, 2, 300), streak=4))
    worker.commit(worker.part(claim, [outcome(HOME, store.job)]))
    state = visit_state.load(store.connection, [claim.domain_id])[claim.domain_id]
    clocks = state.clocks
    assert 90 < clocks.next_request_in <= 100
    assert 190 < clocks.back_off_in <= 200
    assert clocks.circuit_open_in is not None
    assert 290 < clocks.circuit_open_in <= 300
    assert (clocks.back_off_level, clocks.response_ms, clocks.best_response_ms) == (2, 120.5, 80.25)
    assert (clocks.circuit_failures, clocks.circuit_successes) == (1, 2)
    assert (state.refusal_streak, state.pages_crawled, state.status) == (4, 1, Status.ACTIVE)
    worker.commit(worker.part(claim, clocks=PolitenessClocks(), streak=0))
    state = visit_state.load(store.connection, [claim.domain_id])[claim.domain_id]
    assert state.clocks.next_request_in <= 0, "how long ago a request could have started: a new delay counts from then"
    assert replace(state.clocks, next_request_in=0.0) == PolitenessClocks()
    assert (state.refusal_streak, state.consecutive_errors) == (0, 0)


def test_the_same_batch_twice_counts_once(store: Store, worker: Worker) -> None:
    """As after a crash that hid the first commit from a worker that took its claim back."""
    store.domains(1)
    claim = store.claim_one()
    part = worker.part(claim, [outcome(HOME, store.job)], links("d0.example", 3, store.job))
    assert worker.commit(part).growth == {claim.domain_id: FrontierGrowth(3, 0, 3)}
    before = store.everything()
    assert worker.commit(part).growth == {}
    after = store.everything()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"domains"}, "only the lease is a full one again"
    assert_invariants(store.connection)


def test_a_domain_whose_fence_fails_leaves_the_batch_with_all_that_was_learnt(store: Store, worker: Worker) -> None:
    store.domains(3)
    kept, lost, old = store.claim(count=3)
    store.expire(lost.domain_id)
    sweeper.release_expired(store.connection)
    store.connection.execute("UPDATE domains SET claim_epoch = claim_epoch + 1 WHERE id = %s", (old.domain_id,))
    store.connection.execute("UPDATE claim_log SET epoch = epoch + 1 WHERE domain_id = %s", (old.domain_id,))
    done = worker.commit(
        *(
            worker.part(
                claim,
                [outcome(f"https://{claim.domain}/", store.job)],
                [
                    *links(claim.domain, 2, store.job),
                    found(f"https://new-{claim.domain}/", store.job, domain=f"new-{claim.domain}"),
                ],
            )
            for claim in (lost, kept, old)
        )
    )
    assert done.refused == {lost.domain_id, old.domain_id}
    assert done.growth == {kept.domain_id: FrontierGrowth(3, 1, 2)}, "two here, and one on a new domain"
    assert store.value("SELECT count(*) FROM crawl_log") == 1
    assert store.value("SELECT count(*) FROM url_frontier") == 3 + 2 + 1
    assert store.value("SELECT string_agg(domain, ' ') FROM domains WHERE source = 'link'") == f"new-{kept.domain}"
    assert_invariants(store.connection)


def test_of_two_tenures_in_a_batch_only_the_newest_counts(store: Store, worker: Worker) -> None:
    store.domains(1)
    first = store.claim_one()
    store.expire(first.domain_id)
    sweeper.release_expired(store.connection)
    second = store.claim_one()
    stale = worker.part(first, [outcome(HOME, store.job)])
    fresh = worker.part(second, [outcome(HOME, store.job, Outcome.NOT_FOUND)])
    assert worker.commit(fresh, stale).refused == set()
    assert store.value("SELECT string_agg(outcome || claim_epoch, ' ') FROM crawl_log") == "not_found2"
    assert_invariants(store.connection)


def test_attempts_are_logged_each_and_the_url_waits_until_its_time(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    again: dict[str, Any] = {"state": UrlState.WAITING, "retry_in": 1000.0}
    worker.commit(worker.part(claim, [outcome(HOME, store.job, Outcome.TIMEOUT, attempts=1, **again)]))
    work = store.work("d0.example")
    assert (work["waiting"], work["failed"], work["budget_used"]) == (1, 0, 0)
    taken = frontier.take(store.connection, domain_id=claim.domain_id, job_id=store.job, count=9, exclude=[])
    assert taken.urls == []
    assert taken.next_in is not None
    assert 990 < taken.next_in <= 1000
    # An attempt that fails and one that succeeds, in one batch; what comes after the end of a URL is none of its attempts.
    worker.commit(
        worker.part(
            claim,
            [
                outcome(HOME, store.job, Outcome.SERVER_ERROR, attempts=2, **again),
                outcome(HOME, store.job, attempts=3),
                outcome(HOME, store.job, Outcome.NOT_FOUND, attempts=4),
            ],
        )
    )
    outcomes = store.value("SELECT string_agg(outcome, ' ' ORDER BY outcome) FROM crawl_log")
    assert outcomes == "ok server_error timeout"
    row = store.row("d0.example")
    assert (row["total_error_count"], row["pages_crawled"], row["frontier_size"]) == (2, 1, 0)
    assert store.value("SELECT attempts || ' ' || state FROM url_frontier") == "3 done"
    assert_invariants(store.connection)


def test_what_is_decided_without_a_request_is_not_in_the_log(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    worker.commit(worker.part(claim, [outcome(HOME, store.job, Outcome.ROBOTS_DENIED, fetched=False, status=None)]))
    assert store.value("SELECT count(*) FROM crawl_log") == 0
    assert store.value("SELECT state || ' ' || reason FROM url_frontier") == "denied robots_denied"
    assert store.status("d0.example") is Status.ACTIVE
    assert_invariants(store.connection)


def test_links_to_foreign_domains_make_new_ones_and_wake_known_ones(store: Store, worker: Worker) -> None:
    store.seed("d0.example", "known.example", "held.example")
    other = store.new_job("other")
    store.seed("known.example", job=other)
    claims_ = {claim.domain: claim for claim in store.claim(count=3)}
    store.release(claims_["known.example"])
    mine = claims_["d0.example"]
    done = worker.commit(
        worker.part(
            mine,
            [outcome(HOME, store.job)],
            [
                *links("new.example", 2, store.job, foreign=True),
                *links("new.example", 1, other, foreign=True),
                *links("known.example", 3, store.job, foreign=True),
                found("https://known.example/", store.job, domain="known.example"),  # a URL that is there already
                found("https://held.example/x", store.job, domain="held.example"),
                found("https://held.example/no", store.job, domain="held.example", state=UrlState.DENIED),
                found("https://d0.example/by-name", store.job, domain="d0.example"),
            ],
        )
    )
    assert done.growth == {mine.domain_id: FrontierGrowth(8, 7, 1)}, (
        "new domains, known and held ones; a link that names ours is ours"
    )
    assert store.value("SELECT string_agg(inserted::text, ' ' ORDER BY inserted) FROM domain_wakes") == "1 3"
    new = store.row("new.example")
    assert (new["pages_discovered"], new["frontier_size"], new["status"], new["source"]) == (3, 3, "pending", "link")
    assert store.work("new.example")["ready"]
    assert store.work("new.example", other)["waiting"] == 1
    assert_invariants(store.connection)
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.work("known.example")["waiting"] == 4
    assert store.value("SELECT count(*) FROM domain_wakes") == 1, "the held one's is folded by its holder"
    assert worker.waiting(claims_["held.example"]) == ["https://held.example/", "https://held.example/x"]
    assert_invariants(store.connection)


def test_a_url_that_a_foreigner_brought_is_counted_by_the_holder_who_settles_it(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    worker.crawl(claim)
    with store.connection.transaction():
        store.insert_foreign(claim.domain_id, "https://d0.example/brought")
    assert worker.crawl(claim) == 1
    work = store.work("d0.example")
    assert (work["discovered"], work["waiting"], work["done"]) == (2, 0, 2)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)


def test_a_foreign_domain_in_the_same_batch_counts_as_own_if_its_fence_passed(store: Store, worker: Worker) -> None:
    store.domains(3)
    one, two, lost = store.claim(count=3)
    store.expire(lost.domain_id)
    other = store.new_job("other")
    done = worker.commit(
        worker.part(
            one,
            [],
            [
                *links(two.domain, 2, store.job, foreign=True),
                *links(two.domain, 1, other, foreign=True),
                *links(lost.domain, 4, store.job, foreign=True),
            ],
        ),
        worker.part(two, [], links(two.domain, 3, store.job)),
        worker.part(lost, [], links(lost.domain, 9, store.job)),
    )
    assert done.refused == {lost.domain_id}
    assert done.growth[one.domain_id].elsewhere == 3 + 4
    assert done.growth[two.domain_id] == FrontierGrowth(1, 0, 1 + 4), "two of its three were found by the other first"
    assert store.work(two.domain, other)["waiting"] == 1, "a job that had nothing to do there before"
    assert store.value("SELECT inserted FROM domain_wakes WHERE domain_id = %s", lost.domain_id) == 4
    assert_invariants(store.connection)


def test_an_answer_not_modified_leaves_what_is_known_of_the_page(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    page = PageRow(200, "text/html", 12, b"h" * 32, "Title", etag='"1"', last_modified="yesterday", text=b"text")
    page.content_language = "de"
    worker.commit(worker.part(claim, [outcome(HOME, store.job, page=page)]))
    store.release(claim)
    crawls.restart(store.connection, store.job)
    assert store.status("d0.example") is Status.PENDING
    claim = store.claim_one()
    taken = frontier.take(store.connection, domain_id=claim.domain_id, job_id=store.job, count=9, exclude=[])
    (waiting,) = taken.urls
    assert (waiting.refresh, waiting.etag, waiting.last_modified) == (True, '"1"', "yesterday")
    unchanged = outcome(
        HOME, store.job, Outcome.NOT_MODIFIED, status=304, page=PageRow(304, etag='"2"', content_language="en")
    )
    worker.commit(worker.part(claim, [unchanged]))
    row = store.connection.execute(
        "SELECT title, status, outcome, etag, last_modified, content_hash, content_language FROM crawled_pages"
    ).fetchone()
    assert row == ("Title", 304, "not_modified", '"2"', "yesterday", b"h" * 32, "de")
    assert store.value("SELECT count(*) FROM page_texts") == 1
    assert store.row("d0.example")["pages_crawled"] == 2
    assert_invariants(store.connection)


def test_a_page_that_is_gone_loses_its_text(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    worker.commit(worker.part(claim, [outcome(HOME, store.job, page=PageRow(200, text=b"text"))]))
    store.release(claim)
    crawls.restart(store.connection, store.job)
    claim = store.claim_one()
    worker.commit(worker.part(claim, [outcome(HOME, store.job, Outcome.NOT_FOUND, status=404, page=PageRow(404))]))
    assert store.value("SELECT count(*) FROM page_texts") == 0
    assert store.value("SELECT status FROM crawled_pages") == 404
    assert_invariants(store.connection)


def test_what_servers_say_is_cut_to_what_columns_hold(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    absurd = PageRow(99_999, "t" * 10_000, charset="c" * 1000, links_count=2**40, title="ü" * 100_000)
    worker.commit(worker.part(claim, [outcome(HOME, store.job, page=absurd, status=99_999, depth=70_000, bytes=2**50)]))
    assert store.value("SELECT length(content_type) FROM crawled_pages") == 255
    assert store.value("SELECT length(title) FROM crawled_pages") == 100_000
    assert_invariants(store.connection)


def test_log_rows_lie_in_the_tenure_whatever_the_worker_believes(store: Store, worker: Worker) -> None:
    store.seed("d0.example/a", "d0.example/b")
    claim = store.claim_one()
    rows = [
        outcome("https://d0.example/a", store.job, age=86_400.0),
        outcome("https://d0.example/b", store.job, age=-86_400.0),
    ]
    worker.commit(worker.part(claim, rows))
    store.release(claim)
    assert store.value("SELECT count(*) FROM crawl_log WHERE crawled_at <= clock_timestamp()") == 2
    assert_invariants(store.connection)


def test_a_batch_that_cannot_be_written_says_so_and_writes_nothing(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    before = store.everything()
    with pytest.raises(StoreError, match="cannot be written") as refused:
        worker.commit(
            worker.part(claim, [outcome(HOME, store.job)], [found("https://d0.example/x", store.job, priority=13)])
        )
    assert not isinstance(refused.value, RolledBack)
    slow = worker.part(claim, [outcome(HOME, store.job)], links("d0.example", 20_000, store.job))
    store.connection.execute("SET statement_timeout = 1")
    with pytest.raises(RolledBack):
        worker.commit(slow)
    store.connection.execute("RESET statement_timeout")
    assert store.everything() == before
    worker.commit(slow)
    assert_invariants(store.connection)


def test_taking_goes_by_priority_then_depth_and_leaves_out_what_is_in_memory(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    urls = [
        found("https://d0.example/deep", store.job, depth=5),
        found("https://d0.example/near", store.job, depth=1),
        found("https://d0.example/late", store.job, depth=0, priority=1),
    ]
    worker.commit(worker.part(claim, [], urls))
    assert worker.waiting(claim) == [
        HOME,
        "https://d0.example/near",
        "https://d0.example/deep",
        "https://d0.example/late",
    ]
    taken = frontier.take(
        store.connection,
        domain_id=claim.domain_id,
        job_id=store.job,
        count=2,
        exclude=[url_key(HOME), url_key("https://d0.example/deep")],
    )
    assert [waiting.url for waiting in taken.urls] == ["https://d0.example/near", "https://d0.example/late"]
    assert taken.next_in is None
    assert taken.urls[0].parent_key == b"p" * 16


def test_a_url_that_two_own_domains_lead_to_is_revived_once_by_the_shorter_way(
    store: Store, database: Database
) -> None:
    worker = Worker(database, store)
    store.seed("https://a.example/", "https://b.example/")
    held = {claim.domain: claim for claim in store.claim(count=2)}
    here, there = held["a.example"], held["b.example"]
    deep = found("https://b.example/deep", store.job, depth=9, state=UrlState.DENIED, reason=f"{Outcome.TOO_DEEP}: 9")
    worker.commit(worker.part(there, [], [deep]))
    from_there = found("https://b.example/deep", store.job, depth=3)
    from_here = found("https://b.example/deep", store.job, domain="b.example", depth=2)
    worker.commit(worker.part(here, [], [from_here]), worker.part(there, [], [from_there]))
    work = store.work("b.example")
    assert (work["discovered"], work["waiting"], work["denied"]) == (2, 2, 0)
    assert store.value("SELECT depth FROM url_frontier WHERE url LIKE '%%/deep'") == 2
    assert_invariants(store.connection)


def test_urls_are_counted_by_template_once_and_only_those_that_are_new(store: Store, worker: Worker) -> None:
    store.seed("https://a.example/", "https://b.example/")
    held = {claim.domain: claim for claim in store.claim(count=2)}
    here, there = held["a.example"], held["b.example"]
    urls = [found(f"https://a.example/{n}", store.job, template=-5) for n in range(4)]
    denied = found("https://a.example/no", store.job, template=-5, state=UrlState.DENIED, reason="trap: x")
    other = found("https://a.example/x", store.job, template=7)
    done = worker.commit(worker.part(here, [], [*urls, denied, other]))
    assert done.growth[here.domain_id].templates == {(store.job, -5): 4, (store.job, 7): 1}
    assert worker.commit(worker.part(here, [], urls)).growth == {}
    from_there = found("https://a.example/9", store.job, domain="a.example", template=-5)
    done = worker.commit(worker.part(here, [], urls[:1]), worker.part(there, [], [from_there]))
    assert done.growth[here.domain_id].templates == {(store.job, -5): 1}
    state = visit_state.load(store.connection, [here.domain_id, there.domain_id], store.job)
    assert (state[here.domain_id].templates, state[there.domain_id].templates) == ({-5: 5, 7: 1}, {})
    assert visit_state.load(store.connection, [here.domain_id], store.new_job("other"))[here.domain_id].templates == {}
    assert_invariants(store.connection)


def test_counts_of_templates_go_with_what_they_count(store: Store, worker: Worker) -> None:
    store.domains(2)
    for claim in store.claim(count=2):
        urls = [found(f"https://{claim.domain}/{n}", store.job, template=n % 2) for n in range(4)]
        worker.commit(worker.part(claim, [outcome(f"https://{claim.domain}/", store.job)], urls))
        store.release(claim)
    one, two = (store.row(name)["id"] for name in ("d0.example", "d1.example"))
    frontier_queries.clear(store.connection, [one], frontier_queries.ClearScope([store.job]))
    assert store.value("SELECT array_agg(DISTINCT domain_id) FROM url_templates") == [two]
    domain_removal.remove(store.connection, "d1.example")
    while domain_removal.delete_chunk(store.connection, two) is not None:
        pass
    assert store.value("SELECT count(*) FROM url_templates") == 0
    assert_invariants(store.connection)


def test_counts_of_templates_go_however_many_there_are(
    store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_queries, "ROWS", 6)
    store.domains(2)
    many, one = store.claim(count=2)
    urls = [found(f"https://{many.domain}/{n}", store.job, template=n) for n in range(8)]
    worker.commit(worker.part(many, [outcome(f"https://{many.domain}/", store.job)], urls))
    worker.commit(worker.part(many, [outcome(url.url, store.job) for url in urls[1:]]))
    urls = [found(f"https://{one.domain}/{n}", store.job, template=1) for n in range(5)]
    worker.commit(worker.part(one, [outcome(f"https://{one.domain}/", store.job)], urls))
    ids = [many.domain_id, one.domain_id]
    assert frontier_queries.clear(store.connection, ids, frontier_queries.ClearScope([store.job])).forgotten == 6
    assert store.value("SELECT count(*) FROM url_templates") == 0
    assert_invariants(store.connection)
