"""The list of jobs, actions on many of them, and the form for a new one, on pages."""

import re
from typing import Any

import pytest

from holdfast.model.auth import LOCAL_ADMIN
from tests.support.api import Api
from tests.support.browsing import Browser
from tests.support.factories import Store

HOSTILE = '<script>alert("x")</script>'


def names(page: str) -> list[str]:
    """The jobs in the list, in their order."""
    return re.findall(r'<th scope="row"><a class="name" href="[^"]+">([^<]+)</a>', page)


def make(store: Store, *given: str) -> None:
    for name in given:
        store.seed(f"https://{name.lower()}.example/", job=store.new_job(name))


def test_the_list_shows_filters_orders_and_pages(api: Api, ada: Browser, store: Store) -> None:
    make(store, *(f"job{number:02}" for number in range(55)))
    store.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE name IN ('job03', 'job05')")
    store.connection.execute("UPDATE crawl_jobs SET schedule = '6h' WHERE name = 'job05'")
    page = ada.get("/jobs")
    assert names(page.text)[0] == "job54"
    assert len(names(page.text)) == 50
    following = re.search(r'href="(/jobs\?cursor=[^"]+)" rel="next"', page.text)
    assert following
    assert names(ada.get(following[1]).text) == ["job04", "job03", "job02", "job01", "job00", "tasks", "default"]
    assert names(ada.get("/jobs", order="oldest").text)[:3] == ["default", "tasks", "job00"]
    assert names(ada.get("/jobs", state="paused").text) == ["job05", "job03"]
    assert names(ada.get("/jobs", prefix="job1", order="oldest").text) == [f"job1{number}" for number in range(10)]
    scheduled = ada.get("/jobs", scheduled="yes")
    assert names(scheduled.text) == ["job05"]
    assert "every 6 h" in scheduled.words
    nothing = ada.get("/jobs", state="failed")
    assert "No job matches." in nothing.words
    assert 'value="failed" selected' in nothing.text
    assert ada.get("/jobs", state="great").status == 422
    assert ada.get("/jobs", cursor="nonsense").status == 422


def test_the_overview_lists_jobs_under_way_the_crawled_ones_first(ada: Browser, store: Store) -> None:
    make(store, "old", "paused", "crawled", "new", "ended")
    store.new_job("empty")
    for name, state in (("paused", "paused"), ("crawled", "processing"), ("ended", "cancelled")):
        store.connection.execute("UPDATE crawl_jobs SET state = %s WHERE name = %s", (state, name))
    shown = ada.get("/overview").text
    assert re.findall(r'<td><a class="name" href="/jobs/([^"]+)">', shown) == ["crawled", "new", "old", "paused"]


def test_hostile_names_are_text(ada: Browser, store: Store) -> None:
    store.new_job(HOSTILE)
    page = ada.get("/jobs")
    assert HOSTILE in page.words
    assert HOSTILE not in page.text
    assert (
        ada.get("/jobs/%3Cscript%3Ealert(%22x%22)%3C%2Fscript%3E").status == 404
    )  # a name with a slash has no address
    job_id = store.value("SELECT id FROM crawl_jobs WHERE name = %s", HOSTILE)
    page = ada.get(f"/jobs/{job_id}")
    assert (page.status, HOSTILE in page.text, HOSTILE in page.words) == (200, False, True)


def test_an_action_on_all_jobs_asks_first_and_says_how_many(api: Api, ada: Browser, store: Store) -> None:
    make(store, "news-a", "news-b", "shop")
    asked = ada.get("/jobs", prefix="news", do="pause")
    assert "Pause 2 jobs" in asked.words
    assert "news-a" in asked.words
    assert "shop" not in asked.words
    assert store.value("SELECT count(*) FROM crawl_jobs WHERE state = 'paused'") == 0
    done = ada.send("/jobs?prefix=news&do=pause", "/jobs/actions", action="pause", prefix="news")
    assert done.notice == "2 jobs paused."
    assert done.path == "/jobs?prefix=news"
    assert store.value("SELECT array_agg(name ORDER BY name) FROM crawl_jobs WHERE state = 'paused'") == [
        "news-a",
        "news-b",
    ]
    resumed = ada.send("/jobs?state=paused&do=resume", "/jobs/actions", action="resume", state="paused")
    assert resumed.notice == "2 jobs resumed."
    assert "No job that matches can be resumed." in ada.get("/jobs", state="paused", do="resume").words
    assert "Choose an action" in ada.send("/jobs?do=cancel", "/jobs/actions", action="explode").notice


def test_a_user_sees_no_controls_and_is_refused(ada: Browser, rita: Browser, store: Store) -> None:
    make(store, "shop")
    for path in (
        "/jobs",
        "/jobs?do=pause",
        "/jobs/shop",
        "/jobs/shop/settings",
        "/jobs/shop/urls",
        "/jobs/shop/domains",
    ):
        page = rita.get(path)
        assert (page.status, page.forms()) == (200, ["/logout"]), path
        assert "/jobs/new" not in page.text
        assert "/delete" not in page.text
    for path in ("/jobs/new", "/jobs/shop/delete", "/jobs/shop/cancel", "/jobs/shop/again"):
        page = rita.get(path)
        assert (page.forms(), page.notice.startswith("Only an admin can")) == (["/logout"], True), path
    for path in (
        "/jobs/actions",
        "/jobs/new",
        *(f"/jobs/shop/{deed}" for deed in ("pause", "resume", "cancel", "again", "delete", "settings")),
        "/jobs/shop/schedule",
        "/jobs/shop/secrets",
    ):
        assert rita.forge(path, action="cancel", name="shop").status == 403, path
        assert ada.post(path, action="cancel", name="shop").status == 403, path  # without the token of the session
    assert store.value("SELECT state::text FROM crawl_jobs WHERE name = 'shop'") == "pending"


def test_a_job_is_created_with_all_its_options(api: Api, ada: Browser, store: Store) -> None:
    page = ada.send(
        "/jobs/new",
        "/jobs/new",
        name="shop",
        seeds="https://a.example/\n\n# a comment\nnonsense://x\nb.example\n",
        scope="domain",
        sitemaps="only",
        include="/news/\n/shop/",
        exclude="/login",
        strip_params="utm_*",
        types="Office, pdf",
        max_pages="100",
        max_pages_per_domain="50",
        max_depth="3",
        rounds="2",
        delay="0.5",
        concurrency="2",
        robots="yes",
        archive="yes",
        text="yes",
        links="yes",
        user_agent="ExampleBot/1.0",
        parser="product",
        schedule="6h",
        headers="X-Api-Key: 12345",
        cookies="session=77",
    )
    assert page.path == "/jobs/shop", page.notice
    assert page.notice.startswith("Job shop is created with 2 seeds. 1 line left out. Line 4: ")
    job = api.services.jobs(LOCAL_ADMIN).show("shop")
    assert job.spec == {
        "scope": "domain",
        "sitemaps": "only",
        "include": ["/news/", "/shop/"],
        "exclude": ["/login"],
        "strip_params": ["utm_*"],
        "types": ["pdf", "office"],
        "max_pages": 100,
        "max_pages_per_domain": 50,
        "max_depth": 3,
        "rounds": 2,
        "delay": 0.5,
        "concurrency": 2,
        "robots": True,
        "archive": True,
        "follow": False,  # a box that is not ticked
        "text": True,
        "allow_private": False,
        "refresh": False,
        "images": False,
        "markdown": False,
        "links": True,
        "check_external": False,
        "user_agent": "ExampleBot/1.0",
        "parser": "product",
    }
    assert (job.schedule, job.discovered, job.domains) == ("6h", 2, 2)
    assert job.secrets == ["Cookie", "X-Api-Key"]
    assert "12345" not in page.text
    assert "Options in force" in page.words


def test_seeds_come_from_a_file(ada: Browser, store: Store) -> None:
    hidden = ada.get("/jobs/new").fields("/jobs/new")
    fields = {
        **hidden,
        "name": "top",
        "seeds": "https://typed.example/",
        "scope": "host",
        "robots": "yes",
        "archive": "yes",
    }
    file = {"file": ("top.csv", "1,first.example\n2,second.example\n", "text/csv")}
    answer = ada.client.post("/jobs/new", data=fields, files=file, follow_redirects=True)
    assert answer.url.path == "/jobs/top"
    found = store.value(
        "SELECT array_agg(d.domain ORDER BY 1) FROM job_domains w JOIN domains d ON d.id = w.domain_id "
        "JOIN crawl_jobs j ON j.id = w.job_id WHERE j.name = 'top'"
    )
    assert found == ["first.example", "second.example", "typed.example"]


def test_seeds_of_a_file_are_kept_when_another_field_is_wrong(ada: Browser) -> None:
    fields = {**ada.get("/jobs/new").fields("/jobs/new"), "name": "a/b", "seeds": "typed.example", "scope": "host"}
    answer = ada.client.post("/jobs/new", data=fields, files={"file": ("s.txt", "filed.example", "text/plain")})
    assert answer.status_code == 422
    assert "typed.example\nfiled.example</textarea>" in answer.text


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "a/b", "a name has no slash"),
        ("name", "", "a name has no slash"),
        ("name", "taken", "There is a job called 'taken' already."),
        ("seeds", "", "Write at least one seed."),
        ("seeds", "nonsense://x", "No line is a seed. Line 1: "),
        ("scope", "galaxy", "“Scope”: input should be 'host', 'domain' or 'any'."),
        ("include", "(", "is not a regular expression"),
        ("exclude", "[", "is not a regular expression"),
        ("max_pages", "many", "“Pages of a crawl” must be a whole number."),
        ("max_pages", "0", "“Pages of a crawl”: input should be greater than or equal to 1."),
        ("max_depth", "1001", "“Depth”: input should be less than or equal to 1000."),
        ("delay", "soon", "“Delay” must be a number of seconds"),
        ("types", "pdf, docx", "“Other content”: 'docx' is no group of types"),
        ("delay", "nan", "“Delay”"),
        ("concurrency", "5000", "“Requests at once”"),
        ("user_agent", "é\u00a0", "“User agent”"),
        ("parser", "nobody", "o parser is called 'nobody'"),
        ("schedule", "sometimes", "sometimes"),
        ("headers", "no colon", "header"),
        ("cookies", "=", "cookie"),
    ],
)
def test_a_mistake_keeps_the_form_and_stands_at_its_field(
    api: Api, ada: Browser, store: Store, field: str, value: str, problem: str
) -> None:
    store.new_job("taken")
    before = store.value("SELECT count(*) FROM crawl_jobs")
    right: dict[str, Any] = {
        "name": "shop",
        "seeds": "https://kept.example/",
        "scope": "domain",
        "include": "/kept-include/",
        "max_pages_per_domain": "77",
        "robots": "yes",
        "user_agent": "KeptBot/1.0",
        "schedule": "6h",
        "cookies": "a=b",
    }
    page = ada.send("/jobs/new", "/jobs/new", **{**right, field: value})
    assert page.status == 422
    assert problem.lower() in page.notice.lower()
    at = {"cookies": "headers"}.get(field, field)
    assert f'id="problem-{at}"' in page.text
    kept = {**right, field: value}
    for name, text in kept.items():
        if name not in {"robots", "scope", "parser"} and name != field:
            assert text in page.text, name
    assert ('id="field-robots" name="robots" value="yes" checked' in page.text) is True
    assert 'name="archive" value="yes" checked' not in page.text
    assert store.value("SELECT count(*) FROM crawl_jobs") == before


def test_a_job_called_new_has_its_page(ada: Browser) -> None:
    page = ada.send("/jobs/new", "/jobs/new", name="new", seeds="https://a.example/", scope="host")
    assert re.fullmatch(r"/jobs/[0-9]+", page.path)
    assert f'href="{page.path}"' in ada.get("/jobs").text
