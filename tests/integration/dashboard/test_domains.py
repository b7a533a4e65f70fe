"""Domains in the dashboard: the list and its filters, one domain, its forms, actions on all that match."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import factories
from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.model.auth import Role
from holdfast.model.domain import Status
from holdfast.operations.service import OperationRunner
from tests.support.api import Api, serving, settings
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.furnished import furnish
from tests.support.invariants import assert_invariants
from tests.support.page_reader import PageReader


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    with serving(database, settings(tmp_path)) as served:
        yield served


@pytest.fixture
def operator(api: Api) -> PageReader:
    return PageReader.of(api, Role.ADMIN)


@pytest.fixture
def viewer(api: Api) -> PageReader:
    return PageReader.of(api, Role.USER)


def operate(api: Api, database: Database) -> None:
    """Do what waits to be done, as a background would."""
    background = OperationRunner(database, factories.operation_handlers(api.services.settings, database).by_kind())
    while background.work():
        pass


# The list -------------------------------------------------------------------------------------------------------------


def test_an_empty_list_says_what_to_do_next(operator: PageReader, viewer: PageReader) -> None:
    assert "No domain is known yet." in operator.text("/domains")
    assert "Create a job" in operator.text("/domains")
    assert "Create a job" not in viewer.text("/domains")


def test_the_list_shows_each_domain_with_its_state(viewer: PageReader, database: Database, store: Store) -> None:
    furnish(database)
    store.seed("held.example/")
    store.connection.execute("UPDATE domains SET is_active = false WHERE domain = 'a.example'")
    store.claim("w1", 10)
    shown = viewer.text("/domains")
    for words in ("example.com", "blocked.example", "held.example", "switched off", "w1"):
        assert words in shown
    page = viewer.get("/domains")
    assert 'href="/domains/example.com"' in page
    assert 'data-live="/live/domains' in page
    assert "Remove" not in shown
    assert "Unblock" not in shown


def test_filters_and_orders_are_those_of_the_address(viewer: PageReader, database: Database, store: Store) -> None:
    furnish(database)
    store.seed("held.example/", "x.shop.example/")
    store.claim("w7", 10)

    def names(query: str) -> set[str]:
        listed = viewer.get(f"/domains?{query}").partition('id="domains-list"')[2]
        known = ("example.com", "blocked.example", "a.example", "held.example", "x.shop.example")
        return {name for name in known if f'href="/domains/{name}"' in listed}

    assert names("status=blocked") == {"blocked.example"}
    assert names("name=exam") == {"example.com"}
    assert names("parent=shop.example") == {"x.shop.example"}
    assert "held.example" in names("claimed=true&worker=w7")
    assert "held.example" not in names("claimed=false")
    assert names("active=false") == set()
    assert "No domain matches." in viewer.text("/domains?active=false")
    assert names("order=priority") == names("order=newest") == names("")
    assert "A domain is pending" in viewer.text("/domains?status=odd", 422)
    assert "There is no order" in viewer.text("/domains?order=odd", 422)
    assert viewer.get("/domains?cursor=nonsense", 422)
    assert 'value="exam"' in viewer.get("/domains?name=exam"), "the form keeps what was asked for"


def test_the_list_goes_on_page_by_page(viewer: PageReader, store: Store) -> None:
    store.seed(*(f"d{number:03}.example/" for number in range(120)))
    seen: list[str] = []
    path: str | None = "/domains?name=d"
    while path:
        page = viewer.get(path)
        seen += [f"d{number:03}.example" for number in range(120) if f'href="/domains/d{number:03}.example"' in page]
        _, found, _ = page.partition('rel="next"')
        path = (
            page[: page.index(found)].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&") if found else None
        )
        assert "name=d" in (path or "name=d")
    assert seen == sorted(seen)
    assert len(seen) == 120


def test_the_live_list_has_the_same_rows(viewer: PageReader, store: Store) -> None:
    store.seed("a.example/", "b.example/")
    regions = viewer.client.get("/regions/domains?name=a").json()
    assert "a.example" in regions["domains-list"]
    assert "b.example" not in regions["domains-list"]
    assert "<form" not in str(regions)


# Actions on all that match --------------------------------------------------------------------------------------------


def test_all_that_match_are_unblocked_after_a_page_says_how_many(
    api: Api, operator: PageReader, database: Database, store: Store
) -> None:
    store.seed("a.shop.example/", "b.shop.example/", "c.shop.example/", "other.example/")
    for name in ("a.shop.example", "b.shop.example", "other.example"):
        store.become(name, Status.BLOCKED)
    listed = operator.get("/domains?parent=shop.example")
    target = "/domains?parent=shop.example&action=unblock"
    assert f'href="{target.replace("&", "&amp;")}"' in listed
    asked = operator.text(target)
    assert "Unblock 2 domains" in asked
    assert "sub-domain of shop.example" in asked
    assert store.status("a.shop.example") == Status.BLOCKED, "the page changes nothing"
    done = operator.send(target, "/domains/bulk", reason="let in")
    assert "Unblocks 2 domains in the background" in done
    assert "waits for a background process" in done
    operate(api, database)
    assert store.status("a.shop.example") == store.status("b.shop.example") == Status.PENDING
    assert store.status("other.example") == Status.BLOCKED
    assert "2 domains changed" in operator.text("/domains")
    entry = next(entry for entry in audit.listing(store.connection, kind="domain") if entry.action == "unblock")
    assert (entry.actor, entry.details["why"]) == ("admin-reader", "let in")
    assert "There is nothing to do." in operator.text(target)
    assert_invariants(store.connection)


def test_each_action_says_what_it_does(operator: PageReader, store: Store) -> None:
    store.seed("a.example/", "b.example/")
    store.claim_one("w1")
    reset = operator.text("/domains?action=reset")
    assert "Reset 2 domains" in reset
    assert "1 domain of these is held by workers now" in reset
    assert "(all that are known, without a filter)" in reset
    assert "Switch off 2 domains" in operator.text("/domains?action=switch-off")
    assert "No domain that matches is switched off." in operator.text("/domains?action=switch-on")
    assert "An action on domains is" in operator.text("/domains?action=burn", 422)


def test_an_action_whose_domains_are_gone_does_nothing(operator: PageReader, store: Store) -> None:
    store.seed("a.example/")
    store.become("a.example", Status.BLOCKED)
    fields = operator.form("/domains?action=unblock", "/domains/bulk")
    store.connection.execute("UPDATE domains SET status = 'pending'")
    answer = operator.post("/domains/bulk", fields)
    assert "nothing was done" in operator.text(answer.headers["Location"])
    assert store.value("SELECT count(*) FROM operations") == 0


# One domain -----------------------------------------------------------------------------------------------------------


def test_the_page_of_a_domain_shows_everything(viewer: PageReader, database: Database, store: Store) -> None:
    furnish(database)
    shown = viewer.text("/domains/example.com")
    for words in (
        "State", "Claim", "Pace and circuit", "Counters and signals", "Work of each job", "History", "Recent pages", "robots.txt",
        "closed", "No worker holds it", "default", "Not crawled during 22:00-06:00", "Its pool of proxies",
    ):  # fmt: skip
        assert words in shown, words
    page = viewer.get("/domains/example.com")
    assert "<mark>Disallow: /private</mark>" in page
    assert "No group is named Holdfast , so that of * counts" in shown
    assert 'href="/pages?domain=example.com"' in page
    assert 'data-live="/live/domain?domain=example.com"' in page
    assert "<script>" not in page
    assert "Settings" not in shown
    assert "Remove" not in shown
    assert "There is no domain" in viewer.text("/domains/nobody.example", 404) or "not known" in viewer.text(
        "/domains/nobody.example", 404
    )


def test_a_held_domain_shows_its_holder_and_why_it_waits(viewer: PageReader, store: Store) -> None:
    store.seed("a.example/")
    store.connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'host', 1)")
    store.connection.execute("INSERT INTO crawl_runs (worker) VALUES ('w1')")
    store.claim_one("w1")
    store.connection.execute(
        "UPDATE workers SET heartbeat_at = clock_timestamp(), activity_at = clock_timestamp(), activity = "
        '\'{"requests": {"1": 1}, "fetching": [{"url": "https://a.example/lamp", "job": 1, "seconds": 1}], "waiting": 1, "waits": '
        '[{"domain": "a.example", "job": 1, "kind": "back_off", "seconds": 9, "detail": "HTTP 429"}]}\''
    )
    shown = viewer.text("/domains/a.example")
    assert "Held by w1" in shown
    assert "fetching https://a.example/lamp" in shown
    assert "waits: back off (HTTP 429)" in shown
    assert "a.example asked for fewer requests (HTTP 429)" in shown
    assert 'href="/workers/w1"' in viewer.get("/domains/a.example")
    regions = viewer.client.get("/regions/domain?domain=a.example").json()
    names = ("figures", "work", "sitemaps", "state", "history", "pages")
    assert set(regions) == {f"domain-{name}" for name in names}
    assert "<form" not in str(regions)
    assert viewer.client.get("/regions/domain?domain=gone.example").status_code == 404


def test_hostile_texts_are_escaped(viewer: PageReader, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    nasty = "<script>alert(1)</script>"
    store.connection.execute("UPDATE crawled_pages SET title = %s", (nasty,))
    store.connection.execute(
        "UPDATE domain_robots SET robots_txt_content = %s", (f"User-agent: *\nDisallow: /{nasty}",)
    )
    store.connection.execute("UPDATE domains SET status_reason = %s, block_reason = %s", (nasty, nasty))
    page = viewer.get("/domains/example.com")
    assert nasty not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3
    assert nasty not in viewer.get("/domains")
    assert nasty not in viewer.client.get("/regions/domain?domain=example.com").text.replace("\\/", "/")


def test_history_goes_on_page_by_page(viewer: PageReader, store: Store) -> None:
    store.seed("a.example/")
    for _ in range(30):
        store.become("a.example", Status.BLOCKED)
        store.connection.execute("UPDATE domains SET status = 'pending' WHERE domain = 'a.example'")
    page = viewer.get("/domains/a.example/history")
    assert page.count("<tr>") == 51
    assert 'rel="next"' in page
    assert "No worker has held it yet." in viewer.text("/domains/a.example/history?what=tenures")
    store.claim_one("w1")
    assert "still held" in viewer.text("/domains/a.example/history?what=tenures")
    assert viewer.get("/domains/a.example/history?what=odd", 422)


# Forms ----------------------------------------------------------------------------------------------------------------


def test_a_domain_is_added(operator: PageReader, store: Store) -> None:
    done = operator.send("/domains", "/domains", domain="https://www.New.example/page")
    assert "Added new.example. Nothing of it is crawled until a job has a URL there." in done
    assert store.row("new.example")["source"] == "person"
    assert "new.example was known already" in operator.send("/domains", "/domains", domain="new.example")
    assert "is not a" in operator.refused("/domains", "/domains", domain="no domain")
    assert "Fill in “Domain”." in operator.refused("/domains", "/domains", domain=" ")


def test_settings_are_changed_and_only_those_that_differ(operator: PageReader, store: Store) -> None:
    store.seed("a.example/")
    page, action = "/domains/a.example", "/domains/a.example/settings"
    done = operator.send(
        page, action, crawl_delay_seconds="2.5", max_concurrent_requests="3", max_pages_per_run="500",
        maintenance_window="22:00-06:00 Europe/Berlin", default_crawl_frequency="2d", strip_params="sid, ref", user_agent="Lamp/1",
        base_url="http://www.a.example", parser_name="generic",
    )  # fmt: skip
    assert "Changed: crawl_delay_seconds=2.5" in done, done
    row = store.row("a.example")
    assert (row["crawl_delay_seconds"], row["max_concurrent_requests"], row["max_pages_per_run"]) == (2.5, 3, 500)
    assert (row["maintenance_window"], row["strip_params"]) == ("22:00-06:00 Europe/Berlin", ["sid", "ref"])
    assert (row["user_agent"], row["base_url"], row["parser_name"]) == ("Lamp/1", "http://www.a.example", "generic")
    assert row["parser_chosen"]
    entry = audit.listing(store.connection, kind="domain")[0]
    assert (entry.actor, entry.action, len(entry.details)) == ("admin-reader", "edit", 9)
    assert "No setting was changed" in operator.send(page, action)
    assert "Changed: max_pages_per_run=." in operator.send(page, action, max_pages_per_run="")
    assert store.row("a.example")["max_pages_is_limit"] is False
    for field, value, problem in (
        ("crawl_delay_seconds", "soon", "cannot be set"),
        ("max_concurrent_requests", "0", "must be a whole number from 1 to 1000"),
        ("maintenance_window", "at night", "at night"),
        ("base_url", "https://b.example", "is a URL of b.example, not of a.example"),
        ("parser_name", "nonsuch", "nonsuch"),
    ):
        assert problem in operator.refused(page, action, **{field: value}), field
    assert_invariants(store.connection)


def test_settings_that_another_person_edited_are_not_overwritten(
    operator: PageReader, database: Database, store: Store
) -> None:
    store.seed("a.example/")
    fields = operator.form("/domains/a.example", "/domains/a.example/settings")
    DomainService(database).configure("a.example", parse_assignments(["delay=7"]), actor="ann")
    answer = operator.post("/domains/a.example/settings", fields | {"max_concurrent_requests": "4"})
    assert "were changed meanwhile" in operator.text(answer.headers["Location"])
    assert store.row("a.example")["crawl_delay_seconds"] == 7


def test_a_domain_is_switched_off_and_on(operator: PageReader, store: Store) -> None:
    store.seed("a.example/")
    assert "is switched off" in operator.send("/domains/a.example", "/domains/a.example/active")
    assert not store.row("a.example")["is_active"]
    assert "may be crawled" in operator.send("/domains/a.example", "/domains/a.example/active")
    assert store.row("a.example")["is_active"]


def test_a_blocked_domain_is_unblocked(operator: PageReader, store: Store) -> None:
    store.seed("a.example/")
    assert 'action="/domains/a.example/unblock"' not in operator.get("/domains/a.example")
    store.become("a.example", Status.BLOCKED)
    fields = operator.form("/domains/a.example", "/domains/a.example/unblock")
    done = operator.text(operator.post("/domains/a.example/unblock", fields).headers["Location"])
    assert "a.example was blocked and is tried again; 1 URL waits." in done
    assert store.status("a.example") == Status.PENDING
    fields = {**fields, "idempotency_key": "another"}
    refused = operator.post("/domains/a.example/unblock", fields)
    assert (refused.status_code, "is pending, not blocked" in refused.text) == (409, True)
    assert_invariants(store.connection)


def test_a_reset_says_what_it_does_and_does_it(operator: PageReader, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    asked = operator.text("/domains/example.com/reset")
    work = store.work("example.com")
    assert f"{work['done']} are done" in asked
    done = operator.send("/domains/example.com/reset", "/domains/example.com/reset", reason="it was moved")
    assert "is reset" in done
    assert store.status("example.com") == Status.PENDING
    assert store.work("example.com")["waiting"] > work["waiting"]
    entry = audit.listing(store.connection, kind="domain")[0]
    assert (entry.action, entry.details["why"]) == ("reset", "it was moved")
    assert_invariants(store.connection)


def test_a_domain_is_removed_with_what_the_page_says(operator: PageReader, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    urls = store.value(
        "SELECT count(*) FROM url_frontier f JOIN domains d ON d.id = f.domain_id WHERE d.domain = 'example.com'"
    )
    asked = operator.text("/domains/example.com/remove")
    assert f"Deletes {urls} URLs of 1 job" in asked
    assert "The archive keeps the responses" in asked
    done = operator.send("/domains/example.com/remove", "/domains/example.com/remove")
    assert "Removed example.com" in done
    assert operator.get("/domains/example.com", 404)
    store.seed("held.example/")
    store.claim("w1", 5)
    refused = operator.text("/domains/held.example/remove")
    assert "It cannot be removed now: held.example is held by worker w1" in refused
    assert "<button" not in operator.get("/domains/held.example/remove").partition('id="what-happens"')[2]


# Permissions ----------------------------------------------------------------------------------------------------------


def test_a_user_may_look_and_change_nothing(viewer: PageReader, store: Store) -> None:
    store.seed("a.example/")
    store.become("a.example", Status.BLOCKED)
    page = viewer.get("/domains") + viewer.get("/domains/a.example")
    assert 'action="/domains' not in page.replace('<form class="filters" action="/domains" method="get"', "")
    for path in ("/domains/a.example/reset", "/domains/a.example/remove"):
        assert "Only an administrator may do this." in viewer.text(path)
        assert '<form action="/domains' not in viewer.get(path)
    fields = {"csrf": viewer.csrf(), "domain": "b.example", "action": "reset", "on": "no", "crawl_delay_seconds": "1"}
    for action in ("/domains", "/domains/bulk", *(f"/domains/a.example/{what}" for what in FORMS)):
        assert viewer.post(action, fields).status_code == 403, action
    assert store.status("a.example") == Status.BLOCKED
    assert store.value("SELECT count(*) FROM domains") == 1
    assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'domain'") == 0


FORMS = ("unblock", "active", "settings", "reset", "remove")


def test_a_form_without_its_token_is_refused(operator: PageReader, store: Store) -> None:
    store.seed("a.example/")
    assert operator.post("/domains/a.example/active", {"on": "no"}).status_code == 403
    assert store.row("a.example")["is_active"]
