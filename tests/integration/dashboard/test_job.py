"""The pages of one job: how it stands, its URLs and domains, its actions and settings."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from holdfast.dashboard.pages import job as job_page
from holdfast.db.connection import Database
from holdfast.jobs.live import LiveJobReader, live_now
from holdfast.model.auth import LOCAL_ADMIN
from holdfast.model.domain import Claim
from holdfast.model.outcome import Outcome, UrlState
from tests.support.browsing import Browser
from tests.support.crawled import HOME, crawl_a_little
from tests.support.crawls import wait_for
from tests.support.factories import Store

PAGE = "/jobs/default"


def state(store: Store, job: str) -> object:
    return store.value("SELECT state::text FROM crawl_jobs WHERE name = %s", job)


def new_job(store: Store, name: str) -> None:
    store.seed(f"https://{name}.example/", job=store.new_job(name))


def claim_of(store: Store, worker: str, domain: str) -> Claim:
    """A claim on that domain; the worker holds others, too."""
    return next(claim for claim in store.claim(worker, 10) if claim.domain == domain)


def figure(page: str, label: str) -> str:
    """The value of one figure."""
    found = re.search(rf'<span class="label">{label}</span><span class="value">([^<]*)<', page)
    assert found, label
    return found[1]


def test_a_job_shows_figures_reasons_waits_domains_and_options(ada: Browser, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    page = ada.get(PAGE)
    assert page.status == 200
    shown = {label: figure(page.text, label) for label in ("Pages", "URLs waiting", "URLs done", "Denied", "Domains")}
    job = ada.api.services.jobs(LOCAL_ADMIN).show("default")
    assert shown == {
        "Pages": str(job.pages),
        "URLs waiting": str(job.waiting),
        "URLs done": str(job.urls_done),
        "Denied": str(job.denied),
        "Domains": str(job.domains),
    }
    assert (job.pages, job.denied) == (3, 2)
    assert "About" in page.words
    assert "URLs/s in the last" in page.words
    for left in ada.api.services.jobs(LOCAL_ADMIN).summary("default").not_crawled:
        assert f"/jobs/default/urls?reason={left.reason}" in page.text
        assert left.label in page.words
    assert "no worker is running" in page.words
    assert "example.com" in page.words
    assert 'id="depths"' in page.text
    assert "Fetch pages again when a refresh is due" in page.words
    for kind in ("csv", "jsonl", "parquet"):
        assert ada.client.get(f"/api/exports/pages?job=default&format={kind}").status_code == 200
        assert f"/api/exports/pages?job=default&amp;format={kind}" in page.text


def test_a_job_with_many_domains_says_when_it_was_counted(
    ada: Browser, database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl_a_little(database, store)
    service = ada.api.services.jobs(LOCAL_ADMIN)
    job = service.show("default")
    full, pace = LiveJobReader(database, job.id).read(), service.pace("default")
    summed, same_pace = live_now(service.now(job.id), service.breakdown(job.id))
    assert replace(summed.figures, now=full.figures.now) == full.figures
    assert [wait.what for wait in summed.waits] == [wait.what for wait in full.waits]
    assert (same_pace.pages_per_second, same_pace.urls_left) == (pace.pages_per_second, pace.urls_left)
    monkeypatch.setattr(job_page, "_MANY_DOMAINS", 0)
    wait_for(lambda: "As of" in ada.get(PAGE).words)
    page = ada.get(PAGE)
    assert "as the job has many domains" in page.words
    assert figure(page.text, "URLs waiting") == str(job.waiting)
    assert "no worker is running" in page.words


def test_a_job_moves_live(ada: Browser, rita: Browser, database: Database, store: Store) -> None:
    crawl = crawl_a_little(database, store)
    live = re.search(r'data-live="/live/([^"]+)"', ada.get(PAGE).text)
    assert live
    first = rita.client.get(f"/regions/{live[1]}").json()
    assert set(first) == {"job-head", "job-figures", "job-now"}
    assert "<form" not in json.dumps(first)
    assert figure(first["job-figures"], "Pages") == "3"
    store.seed("https://more.example/")
    claim = claim_of(store, crawl.worker, "more.example")
    crawl.commit(claim, [crawl.outcome("https://more.example/", Outcome.OK)])
    assert figure(rita.client.get(f"/regions/{live[1]}").json()["job-figures"], "Pages") == "4"
    store.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE name = 'default'")
    assert 'data-job-state="paused"' in rita.client.get(f"/regions/{live[1]}").json()["job-head"]


def test_an_empty_job_says_what_is_missing(ada: Browser, store: Store) -> None:
    store.new_job("empty")
    page = ada.get("/jobs/empty")
    assert page.status == 200
    assert "It has no domain yet." in page.words
    assert "The job has no URL yet." in ada.get("/jobs/empty/urls").words
    assert "No domain matches." in ada.get("/jobs/empty/domains").words
    assert ada.get("/jobs/none").status == 404
    assert "There is no job called 'none'" in ada.get("/jobs/none").words


def test_urls_by_state_and_domain_with_hostile_text(ada: Browser, database: Database, store: Store) -> None:
    crawl = crawl_a_little(database, store)
    denied = ada.get(f"{PAGE}/urls", state="denied")
    assert "private/x" in denied.words
    assert "Disallow: /private" in denied.words
    assert f"{HOME}a" not in denied.words
    assert f"{HOME}private/x" not in ada.get(f"{PAGE}/urls", domain="other.example").words
    assert "https://other.example/deep" in ada.get(f"{PAGE}/urls", domain="other.example").words
    assert "No URL matches." in ada.get(f"{PAGE}/urls", state="failed").words
    assert ada.get(f"{PAGE}/urls", state="great").status == 422
    assert ada.get(f"{PAGE}/urls", domain="nowhere.example").status == 404
    store.seed("https://bad.example/")
    claim = claim_of(store, crawl.worker, "bad.example")
    hostile = "https://bad.example/<b>x</b>"
    crawl.commit(
        claim,
        [crawl.outcome("https://bad.example/", Outcome.OK)],
        [crawl.found("https://bad.example/", hostile, UrlState.DENIED, "excluded: <i>rule</i>")],
    )
    page = ada.get(f"{PAGE}/urls", domain="bad.example")
    assert hostile in page.words
    assert "<b>x</b>" not in page.text
    assert "<i>rule</i>" not in page.text


def test_urls_and_domains_come_in_pages(ada: Browser, store: Store) -> None:
    store.seed(*(f"https://site{number:02}.example/" for number in range(60)), job=store.new_job("many"))
    for kind in ("urls", "domains"):
        page = ada.get(f"/jobs/many/{kind}")
        following = re.search(rf'href="(/jobs/many/{kind}\?cursor=[^"]+)" rel="next"', page.text)
        assert following, kind
        seen = set(re.findall(r"site\d\d\.example", page.words))
        rest = set(re.findall(r"site\d\d\.example", ada.get(following[1]).words))
        assert (len(seen), len(rest), len(seen | rest)) == (50, 10, 60)
    assert "No domain matches." in ada.get("/jobs/many/domains", state="done").words
    assert ada.get("/jobs/many/domains", state="great").status == 422


def test_pause_resume_cancel_and_again(ada: Browser, store: Store) -> None:
    new_job(store, "shop")
    paused = ada.send("/jobs/shop", "/jobs/shop/pause")
    assert paused.notice.startswith("Job shop is paused")
    assert state(store, "shop") == "paused"
    assert "is paused; resume it first" in ada.send("/jobs/shop/again", "/jobs/shop/again").notice
    assert ada.send("/jobs/shop", "/jobs/shop/resume").notice == "Job shop goes on where it was."
    assert state(store, "shop") == "pending"
    asked = ada.get("/jobs/shop/cancel")
    assert "1 URL that wait are not fetched" in asked.words
    cancelled = ada.send("/jobs/shop/cancel", "/jobs/shop/cancel")
    assert cancelled.notice.startswith("Job shop is cancelled. Its 0 pages stay")
    assert state(store, "shop") == "cancelled"
    assert "you cannot pause it" in ada.send("/jobs/shop", "/jobs/shop/pause").notice
    assert ada.send("/jobs/shop/again", "/jobs/shop/again").notice.startswith("Job shop is crawled again")
    wait_for(lambda: state(store, "shop") == "pending")
    assert store.value("SELECT array_agg(action ORDER BY id) FROM audit_log WHERE object_kind = 'job'") == [
        *("pause", "resume", "cancel", "again")
    ]


def test_deleting_says_what_it_deletes_and_needs_the_name(ada: Browser, store: Store) -> None:
    new_job(store, "shop")
    asked = ada.get("/jobs/shop/delete")
    assert "its 1 URL on 1 domain and the 0 pages that it fetched" in asked.words
    refused = ada.send("/jobs/shop/delete", "/jobs/shop/delete", name="shoe")
    assert refused.notice == "Type the name of the job, shop, to delete it."
    assert state(store, "shop") == "pending"
    done = ada.send("/jobs/shop/delete", "/jobs/shop/delete", name="shop")
    assert (done.path, done.notice) == (
        "/jobs",
        "Job shop is deleted with 1 URL and its pages; the archive keeps the responses.",
    )
    assert ada.get("/jobs/shop").status == 404
    wait_for(lambda: store.value("SELECT count(*) FROM url_frontier") == 0)


def test_options_are_edited_and_kept_if_one_is_wrong(ada: Browser, store: Store) -> None:
    new_job(store, "shop")
    page = ada.get("/jobs/shop/settings")
    assert 'id="field-robots" name="robots" value="yes" checked' in page.text
    same: dict[str, Any] = {"robots": "yes", "archive": "yes"}
    unchanged = ada.send("/jobs/shop/settings", "/jobs/shop/settings", **same)
    assert unchanged.notice == "Nothing was changed: all options are as before."
    done = ada.send("/jobs/shop/settings", "/jobs/shop/settings", **same, max_pages="500", delay="1.5", text="yes")
    assert done.notice.startswith("Changed: max_pages, delay, text. ")
    spec = ada.api.services.jobs(LOCAL_ADMIN).show("shop").spec
    assert (spec["max_pages"], spec["delay"], spec["text"], spec["robots"]) == (500, 1.5, True, True)
    wrong = ada.send("/jobs/shop/settings", "/jobs/shop/settings", **same, max_pages="9", delay="fast", rounds="7")
    assert (wrong.status, wrong.notice) == (422, "“Delay” must be a number of seconds, such as 0.5.")
    assert 'id="problem-delay"' in wrong.text
    assert 'value="7"' in wrong.text
    assert ada.api.services.jobs(LOCAL_ADMIN).show("shop").spec["max_pages"] == 500
    stale = ada.send("/jobs/shop/settings", "/jobs/shop/settings", **same, max_pages="9", version="0")
    assert (stale.status, "was changed since" in stale.notice) == (422, True)
    lifted = ada.send("/jobs/shop/settings", "/jobs/shop/settings", **same, text="yes", max_pages="", delay="1.5")
    assert lifted.notice.startswith("Changed: max_pages. ")
    assert ada.api.services.jobs(LOCAL_ADMIN).show("shop").spec["max_pages"] is None


def test_a_schedule_is_set_and_removed(ada: Browser, store: Store) -> None:
    new_job(store, "shop")
    done = ada.send("/jobs/shop/settings", "/jobs/shop/schedule", schedule="0 3 * * *")
    assert re.match(r"Schedule 0 3 \* \* \*: the next crawl begins at \d{4}-\d\d-\d\d 03:00 UTC\.", done.notice)
    assert store.value("SELECT schedule FROM crawl_jobs WHERE name = 'shop'") == "0 3 * * * UTC"
    wrong = ada.send("/jobs/shop/settings", "/jobs/shop/schedule", schedule="never")
    assert "never" in wrong.notice
    assert ada.send("/jobs/shop/settings", "/jobs/shop/schedule", remove="yes").notice.startswith(
        "The schedule is removed"
    )
    assert store.value("SELECT schedule FROM crawl_jobs WHERE name = 'shop'") is None


def test_secrets_are_set_and_removed_and_never_shown(ada: Browser, store: Store) -> None:
    new_job(store, "shop")
    done = ada.send("/jobs/shop/settings", "/jobs/shop/secrets", headers="X-Key: hush-1", basic_auth="bob:hush-2")
    assert done.notice == "Sent from now on: Authorization, X-Key."
    assert "hush" not in done.text
    wrong = ada.send("/jobs/shop/settings", "/jobs/shop/secrets", headers="hush without colon")
    assert wrong.notice
    assert "hush" not in wrong.text
    nothing = ada.send("/jobs/shop/settings", "/jobs/shop/secrets")
    assert nothing.notice == "Fill in headers, cookies or a password, or tick what to remove."
    removed = ada.send("/jobs/shop/settings", "/jobs/shop/secrets", remove_headers="yes")
    assert removed.notice == "Sent from now on: Authorization."
    removed = ada.send("/jobs/shop/settings", "/jobs/shop/secrets", remove_basic_auth="yes")
    assert removed.notice == "No header, cookie or password is sent any more."


@pytest.mark.parametrize("path", ["", "/urls", "/domains", "/settings"])
def test_the_job_of_all_tasks_has_its_pages_without_forms_that_it_refuses(ada: Browser, path: str) -> None:
    page = ada.get(f"/jobs/tasks{path}")
    assert page.status == 200
    assert {form for form in page.forms() if form.startswith("/jobs/")} <= {"/jobs/tasks/pause", "/jobs/tasks/resume"}
    assert "/jobs/tasks/delete" not in page.text
