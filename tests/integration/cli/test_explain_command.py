"""`holdfast explain`: where a URL came from, what came of it, and what it waits for."""

import re

import pytest

from holdfast.db.connection import Database
from holdfast.model.domain import Event
from holdfast.model.outcome import Outcome, UrlState
from tests.support.cli import Cli
from tests.support.crawled import HOME, Crawl, crawl_a_little
from tests.support.crawls import Crawls
from tests.support.factories import Store
from tests.support.pages import Page, Pages, html
from tests.support.pools import Pools

TIME = r"20\d\d-\d\d-\d\d \d\d:\d\d"


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


def facts(out: str) -> dict[str, str]:
    """Labels and what is behind them; lines without a label go on with the last one."""
    found: dict[str, str] = {}
    last = ""
    for line in out.splitlines():
        if (label := line[:16].strip()) and len(line) > 16:
            last, found[label] = label, line[16:]
        elif last and line.startswith(" " * 16):
            found[last] += " | " + line[16:]
    return found


def test_a_page_that_was_crawled(cli: Cli, crawl: Crawl) -> None:
    answer = cli("explain", HOME)
    assert (answer.code, answer.err) == (0, "")
    told = facts(answer.out)
    assert told["Domain"] == "example.com (active)"
    assert told["State"] == "done: it was fetched, and is a page."
    assert re.fullmatch(rf"{TIME} UTC, depth 0, priority 3, a seed", told["Discovered"])
    assert re.fullmatch(rf"{TIME} UTC, ok, status 200, 1,234 bytes, text/html; charset=utf-8", told["Last answer"])
    assert told["Title"].startswith('=HYPERLINK("x")\\x1b[2J')
    assert re.search(rf"^{TIME}  default  ok +200  42 ms  w1$", answer.out, re.MULTILINE)
    assert re.fullmatch(rf"https://example.com/robots.txt of {TIME} UTC allows it for Holdfast", told["Robots"])
    assert "\x1b" not in answer.out


def test_the_chain_of_pages_that_led_there(cli: Cli, crawl: Crawl) -> None:
    told = facts(cli("explain", f"{HOME}a/b").out)
    assert told["Discovered"].endswith(f"a link on {HOME}a | from {HOME} | which is a seed")
    foreign = cli("explain", "https://other.example/deep", "--json").json
    (entry,) = foreign["entries"]
    assert (entry["came_from"], entry["from_seed"]) == ([HOME], True)


def test_denied_failed_and_redirected(cli: Cli, crawl: Crawl) -> None:
    told = facts(cli("explain", f"{HOME}private/x").out)
    assert told["State"] == "denied: robots.txt denies it."
    assert told["Detail"] == "Disallow: /private (line 2)"
    assert re.search(r"denies it for Holdfast by 'Disallow: /private", told["Robots"])
    assert facts(cli("explain", f"{HOME}gone").out)["State"] == "done: the server has no such page."


def test_what_a_url_waits_for(cli: Cli, crawl: Crawl) -> None:
    told = facts(cli("explain", f"{HOME}slow").out)
    assert told["State"] == "waiting: it was tried once, and will be tried again: it took longer than `fetch.timeout`."
    assert told["Detail"] == "no answer within 30 s"
    assert re.search(rf"a pause before attempt 2 on this URL, until {TIME} UTC", told["Waits for"])
    waits = facts(cli("explain", "https://other.example/deep").out)["Waits for"]
    assert waits == "a worker: none is running; `holdfast crawl` or `holdfast worker` starts one"
    crawl.store.connection.execute(
        "INSERT INTO workers (name, host, pid) VALUES ('w1', 'h', 1); UPDATE crawl_jobs SET state = 'paused'"
    )
    waits = facts(cli("explain", "https://other.example/deep").out)["Waits for"]
    assert waits == "the job default is paused; `holdfast jobs resume default`"


def test_what_a_held_and_a_stopped_domain_waits_for(cli: Cli, crawl: Crawl) -> None:
    (claim,) = crawl.store.claim("w\x1b7")
    assert claim.domain == "other.example"
    waits = facts(cli("explain", "https://other.example/deep").out)["Waits for"]
    assert waits == r"worker w\x1b7 holds the domain and takes its URLs in turn"
    crawl.store.release(claim, "w\x1b7", event=Event.FORBIDDEN)
    waits = facts(cli("explain", "https://other.example/deep").out)["Waits for"]
    reset = "`holdfast domains unblock other.example` ends that"
    assert re.fullmatch(rf"other.example is blocked \(it answers 403 Forbidden\), until {TIME} UTC; {reset}", waits)
    story = cli("explain", "other.example", "--json").json
    assert story["status"] == "blocked"
    assert story["work"][0]["waits"][0]["until"].endswith("Z")


def test_a_domain(cli: Cli, crawl: Crawl) -> None:
    answer = cli("explain", "WWW.example.com")
    assert (answer.code, answer.err) == (0, "")
    told = facts(answer.out)
    assert told["Status"].startswith("active (outcome")
    assert told["Job"] == "default (pending): 1 URL waiting, 4 done, 2 denied, 0 failed"
    assert re.match(
        rf"every URL that the job has on this domain waits for its next attempt, until {TIME} UTC", told["waits for"]
    )
    assert re.fullmatch(rf"https://example.com/robots.txt: 32 characters, {TIME} UTC", told["Robots"])
    assert re.search(rf"^ok +3  {TIME}$", answer.out, re.MULTILINE)
    assert re.search(r"^denied +out_of_scope +1  https://outside.example/$", answer.out, re.MULTILINE)


def test_out_of_scope_is_an_answer(cli: Cli, crawl: Crawl) -> None:
    answer = cli("explain", "https://outside.example/")
    assert (answer.code, answer.err) == (0, "")
    told = facts(answer.out)
    assert told["Domain"] == "outside.example (not crawled by any job)"
    assert told["State"] == "denied: it is outside of the job's scope."
    assert told["Changed by"] == "`--scope domain` or `--scope any`"
    assert told["Discovered"].endswith(f"a link on {HOME} | which is a seed")
    assert cli("explain", "https://outside.example/", "--json").json["entries"][0]["job"] == "default"


def test_a_denied_link_to_a_known_domain_is_an_answer(cli: Cli, crawl: Crawl) -> None:
    """The row hangs on the domain where the link was met, not on its own."""
    (claim,) = crawl.store.claim(crawl.worker)
    page = "https://other.example/deep"
    out = crawl.found(page, f"{HOME}other", UrlState.DENIED, "out_of_scope: example.com is not other.example")
    crawl.commit(claim, [crawl.outcome(page, Outcome.OK)], [out])
    told = facts(cli("explain", f"{HOME}other").out)
    assert told["Domain"] == "example.com (active)"
    assert told["State"] == "denied: it is outside of the job's scope."
    assert told["Discovered"].startswith("20")
    assert f"a link on {page}" in told["Discovered"]


def test_a_url_that_nobody_met(cli: Cli, crawl: Crawl) -> None:
    assert cli("explain", "http://www.example.com/a/").refused(4) == (
        "No job has discovered http://www.example.com/a/, but https://example.com/a is known: `holdfast explain https://example.com/a`."
    )
    assert cli("explain", "example.com/never").refused(4) == (
        "No job has discovered https://example.com/never: no link to it was found on the pages that were crawled so far (of each page "
        "the first `crawl.links_per_page` links are read). `holdfast seeds add https://example.com/never` makes it known."
    )
    assert (
        cli("explain", "https://never.example/")
        .refused(4)
        .startswith("No job has discovered https://never.example/, nor its domain")
    )
    assert cli("explain", "never.example").refused(4).startswith("There is no domain 'never.example'")


def test_addresses_are_normalized_like_seeds(cli: Cli, crawl: Crawl) -> None:
    asked = "HTTPS://Example.com:443/a?utm_source=x#part"
    story = cli("explain", asked, "--json").json
    assert (story["url"], story["asked"]) == (f"{HOME}a", asked)
    assert facts(cli("explain", asked).out)["Given"] == (
        f"{asked}, which is crawled as the URL above, without utm_source (`urls.tracking_parameters`)"
    )
    assert cli("explain", f"{HOME}a", "--json").json["asked"] is None


def test_a_url_of_two_jobs(cli: Cli, crawl: Crawl) -> None:
    other = crawl.store.new_job("other")
    crawl.store.seed(HOME, job=other)
    entries = cli("explain", HOME, "--json").json["entries"]
    assert [(entry["job"], entry["state"]) for entry in entries] == [("default", "done"), ("other", "waiting")]
    assert entries[1]["waits"][0]["what"] == "the next sweep, which has news for this domain"


def test_many_foreign_parents_end_somewhere(cli: Cli, crawl: Crawl) -> None:
    """A ring of pages on several domains is not walked forever."""
    parent = "https://other.example/deep"
    for number in range(6):
        url = f"https://hop{number}.example/"
        crawl.store.seed(url)
        (claim,) = [c for c in crawl.store.claim(count=9) if c.domain == f"hop{number}.example"]
        crawl.commit(claim, [], [crawl.found(url, f"{url}{number}", UrlState.WAITING)])
        crawl.store.connection.execute(
            "UPDATE url_frontier SET parent_key = substr(sha256(%s), 1, 16) WHERE url = %s", (parent.encode(), url)
        )
        parent = url
    (entry,) = cli("explain", "https://hop5.example/5", "--json").json["entries"]
    assert entry["came_from"] == [f"https://hop{number}.example/" for number in (5, 4, 3, 2)]
    assert entry["from_seed"] is False


@pytest.mark.parametrize("text", ["http://bad host/", "ftp://example.com/x", "::", "/path"])
def test_what_is_no_url_is_refused_without_a_database(bare_cli: Cli, text: str) -> None:
    assert bare_cli("explain", text).refused(2)


def test_a_domain_that_waits_for_a_proxy(cli: Cli, crawl: Crawl) -> None:
    """Its pool is empty, then used up, then may be gone without."""
    url, pools = "https://other.example/deep", Pools(crawl.store)
    cli("domain-set", "other.example", "proxy=pool")
    assert facts(cli("explain", url).out)["Waits for"] == (
        "no proxy is assigned to it; `holdfast proxies assign other.example PROXY`"
    )
    a, b = pools.add(2, max_requests_per_hour=5)
    pools.assign("other.example", a, b)
    assert facts(cli("explain", url).out)["Waits for"].startswith("a worker: none is running")
    pools.used_up(a)
    pools.fails(b, 6)
    told = r"no proxy of its pool can be used: 1 has used up its limit, 1 rests after failures, for another \d+ s"
    assert re.fullmatch(told, facts(cli("explain", url).out)["Waits for"])
    (wait,) = cli("explain", "other.example", "--json").json["work"][0]["waits"]
    assert wait["until"].endswith("Z")
    cli("domain-set", "other.example", "proxy_direct=yes")
    assert facts(cli("explain", url).out)["Waits for"].startswith("a worker: none is running")


def test_the_usual_way_counts_where_a_domain_says_nothing(
    cli: Cli, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PROXIES_USE", "any")
    assert facts(cli("explain", "other.example").out)["waits for"] == (
        "there is no proxy; `holdfast proxies add` makes one known"
    )
    monkeypatch.setenv("HOLDFAST_PROXIES_DIRECT", "true")
    assert facts(cli("explain", "other.example").out)["waits for"].startswith("a worker: none is running")


def test_attempts_say_which_proxy_they_went_through(cli: Cli, crawl: Crawl) -> None:
    assert "PROXY" not in cli("explain", HOME).out
    crawl.store.connection.execute("UPDATE crawl_log SET proxy_id = 7")
    assert re.search(rf"^{TIME}  default  ok +200  42 ms  w1 +7$", cli("explain", HOME).out, re.MULTILINE)
    assert cli("explain", HOME, "--json").json["attempts"][0]["proxy"] == 7


def test_links_that_were_not_followed_are_explained_truly(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> None:
    """A real crawl: nofollow links, a nofollow page, a frame, a refresh, a link out of scope, and a domain that another job has."""
    pages = {
        "/": html("/plain", "/shut"),
        "/plain": Page(
            b"<a rel=nofollow href=/advert>x</a><iframe src=/frame></iframe><a href=http://elsewhere.test/>y</a>"
        ),
        "/shut": Page(b"<meta name=robots content=nofollow><a href=/behind>x</a>"),
        "/frame": Page(b"<meta http-equiv=refresh content='0; url=/fresh'>"),
        "/fresh": html(),
    }
    with Pages(pages) as site:
        crawls.crawl(site.url(), delay=0)

        def told(url: str) -> tuple[int, dict[str, str]]:
            capsys.readouterr()
            return crawls.command("explain", url), facts(capsys.readouterr().out)

        states = {path: told(site.url(path)) for path in ("/advert", "/behind", "/frame", "/fresh")}
        states["elsewhere"] = told("http://elsewhere.test/")
    assert {path: (code, found["State"].partition(":")[0]) for path, (code, found) in states.items()} == {
        "/advert": (0, "denied"),
        "/behind": (0, "denied"),
        "/frame": (0, "done"),
        "/fresh": (0, "done"),
        "elsewhere": (0, "denied"),
    }
    for path in ("/advert", "/behind"):
        assert "nofollow" in states[path][1]["State"]
    assert "scope" in states["elsewhere"][1]["State"]
    assert f"a link on {site.url('/plain')}" in states["/frame"][1]["Discovered"]
    assert f"a link on {site.url('/frame')}" in states["/fresh"][1]["Discovered"]
