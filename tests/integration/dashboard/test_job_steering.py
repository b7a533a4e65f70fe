"""Plans, retries, live rules, comparisons and the log of a job, on pages."""

import re
import threading
from typing import Any

import pytest

from holdfast.dashboard.pages import job_scope, job_urls
from holdfast.db.connection import Database
from holdfast.jobs.queries import retries, scope_preview
from holdfast.jobs.records import ScopePreview
from holdfast.model.auth import LOCAL_ADMIN
from holdfast.model.outcome import Outcome
from tests.support.api import Api
from tests.support.browsing import Browser, Loaded
from tests.support.crawled import HOME, crawl_a_little
from tests.support.crawls import wait_for
from tests.support.factories import Store

PAGE = "/jobs/default"


def with_failures(database: Database, store: Store) -> None:
    """Three URLs of one site that failed, two of them with a server error."""
    crawl = crawl_a_little(database, store)
    urls = [f"https://shaky.example/{name}" for name in ("a", "b", "c")]
    store.seed(*urls)
    claim = next(claim for claim in store.claim(crawl.worker, 10) if claim.domain == "shaky.example")
    crawl.commit(
        claim,
        [
            crawl.outcome(url, outcome, status=None, reason=f"{outcome}: <b>{url}</b>")
            for url, outcome in zip(urls, (Outcome.SERVER_ERROR, Outcome.SERVER_ERROR, Outcome.TOO_LARGE), strict=True)
        ],
    )
    store.release(claim, crawl.worker)


def states(store: Store) -> dict[str, str]:
    rows = store.connection.execute("SELECT url, state::text FROM url_frontier WHERE url LIKE 'https://shaky%'")
    return {url.rpartition("/")[2]: state for url, state in rows}


def test_a_plan_is_shown_above_the_form_that_stays_filled_in(ada: Browser, rita: Browser, store: Store) -> None:
    before = store.value("SELECT count(*) FROM crawl_jobs")
    hidden: dict[str, Any] = ada.get("/jobs/new").fields("/jobs/new")
    fields: dict[str, Any] = {
        "name": "shop",
        "seeds": "https://a.example/\nnonsense://x",
        "scope": "host",
        "robots": "yes",
    }
    more = {"max_pages_per_domain": "120", "delay": "2", "cookies": "a=hush", "follow": "yes"}
    answer = ada.client.post("/jobs/plan", data={**hidden, **fields, **more})
    page = Loaded(answer.status_code, answer.text, answer.url.path)
    assert page.status == 200, page.notice
    assert 'id="plan"' in page.text
    assert "a.example" in page.words
    assert "120" in page.words
    assert "Line 2: " in page.words
    assert "What it assumes" in page.words
    assert len(re.findall(r"<li", page.text.partition("What it assumes")[2].partition("</ul>")[0])) >= 1
    assert "https://a.example/\nnonsense://x</textarea>" in page.text
    assert 'name="max_pages_per_domain" inputmode="numeric" pattern="[0-9]*" maxlength="18" value="120"' in page.text
    assert store.value("SELECT count(*) FROM crawl_jobs") == before
    created = ada.post("/jobs/new", **{**fields, **page.fields("/jobs/new"), "delay": "2"})
    assert created.path == "/jobs/shop"
    wrong = ada.post("/jobs/plan", **{**hidden, **fields, "name": "shop"})
    assert (wrong.status, "There is a job called 'shop' already" in wrong.notice) == (422, True)
    assert 'id="problem-name"' in wrong.text
    assert rita.forge("/jobs/plan", **fields).status == 403


def test_urls_are_listed_by_reason_and_retried_by_row(
    ada: Browser, rita: Browser, database: Database, store: Store
) -> None:
    with_failures(database, store)
    listed = ada.get(f"{PAGE}/urls", reason="server_error")
    assert set(re.findall(r"shaky\.example/\w", listed.words)) == {"shaky.example/a", "shaky.example/b"}
    assert "<b>" not in listed.text
    assert "/retry" not in rita.get(f"{PAGE}/urls", reason="server_error").text
    hidden: dict[str, Any] = listed.fields(f"{PAGE}/retry")
    done = ada.post(f"{PAGE}/retry", **{**hidden, "url": "https://shaky.example/a"})
    assert done.notice.startswith("1 URL on 1 domain waits again.")
    assert done.path == f"{PAGE}/urls?reason=server_error"
    wait_for(lambda: states(store) == {"a": "waiting", "b": "failed", "c": "failed"})
    assert rita.forge(f"{PAGE}/retry", url="https://shaky.example/b").status == 403
    unknown = ada.post(f"{PAGE}/retry", **{**hidden, "url": "https://shaky.example/none"})
    assert "the job does not know it" in unknown.notice


def test_a_retry_of_all_that_match_says_how_many_first(
    ada: Browser, rita: Browser, database: Database, store: Store
) -> None:
    with_failures(database, store)
    assert f"{PAGE}/retry?state=failed" in ada.get(f"{PAGE}/urls", state="failed").text
    asked = ada.get(f"{PAGE}/retry", reason="server_error")
    assert "Retry 2 URLs on 1 domain?" in asked.words
    assert "2 \N{MULTIPLICATION SIGN} server error" in asked.words
    assert set(states(store).values()) == {"failed"}
    done = ada.send(f"{PAGE}/retry?reason=server_error", f"{PAGE}/retry", reason="server_error")
    assert done.notice.startswith("2 URLs on 1 domain wait again.")
    wait_for(lambda: states(store) == {"a": "waiting", "b": "waiting", "c": "failed"})
    assert "No URL that matches can be retried." in ada.get(f"{PAGE}/retry", reason="timeout").words
    assert rita.get(f"{PAGE}/retry", reason="timeout").notice == "Only an admin can change jobs."
    assert ada.get(f"{PAGE}/urls", reason="nonsense").status == 422
    scope = ada.get(f"{PAGE}/urls", reason="out_of_scope")
    assert "URLs with this reason are not retried" in scope.words
    assert "Retry all" not in scope.words


def test_a_retry_of_a_big_job_is_estimated_if_counting_takes_long(
    ada: Browser, database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_failures(database, store)
    monkeypatch.setattr(job_urls, "_AT_ONCE", 0)
    monkeypatch.setattr(
        retries, "_COUNT", retries._COUNT.replace("ORDER BY", "HAVING pg_sleep(30) IS NOT NULL ORDER BY")
    )
    asked = ada.get(f"{PAGE}/retry", reason="server_error")
    assert "Retry about 2 URLs?" in asked.words
    assert "Estimated from a sample" in asked.words
    assert "Retry all that match?" in ada.get(f"{PAGE}/retry", reason="timeout").words
    done = ada.send(f"{PAGE}/retry?reason=server_error", f"{PAGE}/retry", reason="server_error")
    assert done.notice.startswith("about 2 URLs wait again. They follow in chunks.")
    wait_for(lambda: states(store) == {"a": "waiting", "b": "waiting", "c": "failed"})


def test_a_preview_of_a_big_job_is_an_estimate_until_all_is_counted(
    ada: Browser, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, urls = store.new_job("big"), [f"https://big.example/drop/{number}" for number in range(40)]
    store.seed("https://big.example/", *urls, job=job)
    store.connection.execute("UPDATE url_frontier SET depth = 1 WHERE url LIKE '%/drop/%'")
    go_on = threading.Event()
    counted = scope_preview.preview

    def late(*given: Any, **more: Any) -> ScopePreview:
        assert go_on.wait(30)
        return counted(*given, **more)

    monkeypatch.setattr(job_scope, "_AT_ONCE", 0)
    monkeypatch.setattr(scope_preview, "preview", late)
    rules: dict[str, Any] = {"scope": "host", "include": "", "exclude": "/drop/", "max_depth": ""}
    first = ada.send("/jobs/big/scope", "/jobs/big/scope/preview", **rules)
    assert "Removes about 40 waiting URLs, returns about 0" in first.words
    assert "All of them are being counted" in first.words
    go_on.set()
    wait_for(lambda: "Removes 40 waiting URLs" in ada.send("/jobs/big/scope", "/jobs/big/scope/preview", **rules).words)


def test_rules_are_previewed_applied_and_undone(ada: Browser, rita: Browser, store: Store) -> None:
    urls = [f"https://big.example/{kind}/{number}" for kind in ("keep", "drop") for number in range(5)]
    job = store.new_job("big")
    store.seed("https://big.example/", job=job)
    store.connection.execute(
        """INSERT INTO url_frontier (domain_id, job_id, url_key, url, parent_key, depth)
        SELECT d.id, %s, substring(sha256(u::bytea) for 16), u, '\\x00', 1 FROM domains d, unnest(%s::text[]) u
        WHERE d.domain = 'big.example'""",
        (job, urls),
    )
    store.connection.execute(
        "SELECT add_counts(domain_id, job_id, 10, 0, 0, 0) FROM job_domains WHERE job_id = %s", (job,)
    )
    rules: dict[str, Any] = {"scope": "host", "include": "", "exclude": "/drop/", "max_depth": ""}
    preview = ada.send("/jobs/big/scope", "/jobs/big/scope/preview", **rules)
    assert preview.status == 200, preview.notice
    assert "Removes 5 waiting URLs, returns 0" in preview.words
    assert "https://big.example/drop/0" in preview.words
    waiting = "SELECT count(*) FROM url_frontier WHERE state = 'waiting' AND job_id = %s"
    assert store.value(waiting, job) == 11
    done = ada.post("/jobs/big/scope", **{**rules, **preview.fields("/jobs/big/scope")})
    assert done.notice.startswith("Rules version 1: exclude changed.")
    wait_for(lambda: store.value(waiting, job) == 6)
    history = ada.get("/jobs/big/scope")
    assert "in force" in history.words
    assert "/drop/" in history.words
    assert rita.get("/jobs/big/scope").forms() == ["/logout"]
    undone = ada.send("/jobs/big/scope", "/jobs/big/scope/undo")
    assert undone.notice.startswith("1 rule restored: exclude.")
    wait_for(lambda: store.value(waiting, job) == 11)
    assert "restores version 0" in ada.get("/jobs/big/scope").words
    for path in ("/jobs/big/scope", "/jobs/big/scope/preview", "/jobs/big/scope/undo"):
        assert rita.forge(path, **rules).status == 403


def test_wrong_rules_keep_the_form_and_stale_ones_are_refused(ada: Browser, store: Store) -> None:
    store.seed("https://big.example/", job=store.new_job("big"))
    rules: dict[str, Any] = {"scope": "domain", "include": "/kept/", "exclude": "(", "max_depth": "4"}
    wrong = ada.send("/jobs/big/scope", "/jobs/big/scope/preview", **rules)
    assert (wrong.status, "is not a regular expression" in wrong.notice) == (422, True)
    assert 'id="problem-exclude"' in wrong.text
    assert "/kept/" in wrong.text
    hidden: dict[str, Any] = ada.get("/jobs/big/scope").fields("/jobs/big/scope/preview")
    ada.api.services.jobs(LOCAL_ADMIN).edit("big", {"max_pages": 5})
    stale = ada.post("/jobs/big/scope", **{**hidden, **rules, "exclude": "/x/"})
    assert "was changed since" in stale.notice
    assert ada.api.services.jobs(LOCAL_ADMIN).show("big").rules_version == 0


def test_the_comparison_lists_pages_by_what_became_of_them(
    api: Api, ada: Browser, database: Database, store: Store
) -> None:
    assert "The job was not crawled yet." in ada.get(f"{PAGE}/compare").words
    crawl_a_little(database, store)
    page = ada.get(f"{PAGE}/compare")
    assert page.status == 200
    counts = api.services.jobs(LOCAL_ADMIN).compare("default")
    assert f"{counts.new} new" in page.words
    assert "It is the first crawl, so every page is new." in page.words
    assert HOME in ada.get(f"{PAGE}/compare", kind="new").words
    assert "No page is gone." in ada.get(f"{PAGE}/compare", kind="gone").words
    assert "<script>" not in page.text
    assert ada.get(f"{PAGE}/compare", kind="great").status == 422


def test_the_log_says_what_happened(ada: Browser, store: Store) -> None:
    store.new_job("quiet")
    store.seed("https://shop.example/", job=store.new_job("shop"))
    ada.send("/jobs/shop", "/jobs/shop/pause")
    ada.send("/jobs/shop/settings", "/jobs/shop/schedule", schedule="6h")
    page = ada.get("/jobs/shop/log")
    assert page.status == 200
    assert "paused" in page.words
    assert "6h" in page.words
    assert page.words.count("ada") >= 2
    assert ada.get("/jobs/quiet/log").status == 200
    assert ada.get("/jobs/shop/log", cursor="nonsense").status == 422
