"""Blocks: when a domain that refuses is blocked, what becomes of the refused URLs, and how often it is tried again."""

import pytest

from tests.support.crawls import Crawls, wait_for
from tests.support.pages import MISSING, Page, Pages, html

REFUSED = Page(b"no", 403)
BUSY = Page(b"later", 429)


def links(number: int) -> list[str]:
    return [f"/{i}" for i in range(number)]


def walled(number: int, answer: Page = REFUSED, *, first: Page | None = None) -> dict[str, Page]:
    """A home page with that many links, all of which are refused."""
    return {"/": first or html(*links(number)), **dict.fromkeys(links(number), answer)}


@pytest.mark.parametrize(("number", "concurrency"), [(11, 1), (10, 10)])
def test_ten_refusals_block_whatever_is_left_to_ask_for(crawls: Crawls, number: int, concurrency: int) -> None:
    slow = Page(b"no", 403, delay=0.1 if concurrency > 1 else 0)
    with Pages(walled(number, slow)) as site:
        ended = crawls.crawl(site.url(), concurrency=concurrency)
        asked = site.paths()
    domain = crawls.domain(f"localhost:{site.port}")
    assert (domain["status"], domain["block_reason_code"], domain["retry_count"]) == ("blocked", "forbidden", 1)
    # What was refused waits again, with all its attempts, and the page that was had stays.
    assert len(asked) in (11, number + 1)
    assert crawls.rows("SELECT state::text, attempts, count(*) FROM url_frontier GROUP BY 1, 2 ORDER BY 3") == [
        ("done", 1, 1),
        ("waiting", 0, number),
    ]
    work = crawls.rows("SELECT waiting, done, failed, state::text, ready FROM job_domains")
    assert work == [(number, 1, 0, "open", False)]
    assert (ended.completed, ended.status.cooling) == (False, 1)
    crawls.verify()


def test_refusals_that_other_answers_were_between_stay_failed(crawls: Crawls) -> None:
    """Only the streak that blocks goes back; what was refused before the last proper answer is settled."""
    crawls.set(domains={"max_errors": 3})
    answers = {"/": html("/a", "/b"), "/a": REFUSED, "/b": html("/c", "/d", "/e"), "/c": MISSING}
    answers |= {"/d": html("/x", "/y", "/z"), "/e": REFUSED} | dict.fromkeys(["/x", "/y", "/z"], REFUSED)
    with Pages(answers) as site:
        crawls.crawl(site.url(), concurrency=1)
        base = site.url("")
    assert crawls.domain(f"localhost:{site.port}")["status"] == "blocked"
    states = {url.removeprefix(base): state for url, (state, _) in crawls.frontier().items()}
    assert states["/a"] == "failed"
    assert {states[path] for path in ("/x", "/y", "/z")} == {"waiting"}
    crawls.verify()


def test_after_the_cool_down_the_refused_urls_are_asked_for_again(crawls: Crawls) -> None:
    with Pages(walled(10)) as site:
        job = crawls.crawl(site.url(), job="walls", concurrency=1)
        assert not job.completed
        assert crawls.domain(f"localhost:{site.port}")["status"] == "blocked", "though nothing was left to ask for"
        site.answers.update(dict.fromkeys(links(10), html()))
        site.asked.clear()
        crawls.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp()")
        assert crawls.crawl(site.url(), job="walls").completed
        assert sorted(site.paths()) == sorted(links(10))  # and not the home page
    assert crawls.domain(f"localhost:{site.port}")["retry_count"] == 0  # forgiven by pages
    crawls.verify()


def test_a_site_that_refuses_everything_is_tried_three_times_more_and_then_left_to_a_person(crawls: Crawls) -> None:
    """429 to everything: visits end by the back-off before the fourth, and their refusals add up."""
    crawls.set(
        crawl={"patience": 0.1},
        politeness={"max_back_off": 1, "circuit_failures": 100, "retry_delay": 0.01},
        cooldown={"rate_limited": 0.1, "jitter": 0},
        domains={
            "max_errors": 4,
            "max_concurrent_requests": 1,
        },  # else four requests may be under way before the first answer
    )
    with Pages(walled(3, BUSY, first=BUSY)) as site:
        assert crawls.command("seeds", "add", *(site.url(path) for path in ["/", *links(3)])) == 0
        with crawls.worker(None):
            wait_for(lambda: crawls.value("SELECT next_crawl_after = 'infinity' FROM domains"), "the last block")
            asked = len(site.asked)
        assert len(site.asked) == asked
    assert crawls.value("SELECT count(*) FROM domain_transitions WHERE to_status = 'blocked'") == 4
    assert crawls.value("SELECT count(*) FROM claim_log") > 4  # most visits ended without a block
    domain = crawls.domain(f"localhost:{site.port}")
    assert (domain["status"], domain["retry_count"], domain["pages_crawled"]) == ("blocked", 4, 0)
    crawls.verify()
