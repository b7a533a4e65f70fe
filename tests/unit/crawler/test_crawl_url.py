"""The walk of one URL: its steps in their order, and one row whatever happens."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.crawler.crawl_image import ImageBudget
from holdfast.crawler.crawl_sitemap import SitemapFinder
from holdfast.crawler.crawl_url import CrawlContext, crawl_url
from holdfast.crawler.request_gate import RequestWithheld, VisitOver
from holdfast.crawler.robots_cache import CachedRobots
from holdfast.crawler.visit_results import VisitResults
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem, UrlOutcome, UrlRef
from holdfast.model.domain import Claim
from holdfast.model.fetch_types import FetchRequest, FetchResult, ParsedPage
from holdfast.model.job import Job, JobSpec
from holdfast.model.outcome import Outcome, UrlState
from holdfast.politeness.error_streak import ErrorStreak, VisitAnswers
from holdfast.politeness.robots_txt import ALLOW_ALL, Robots
from holdfast.settings import Settings

ITEM = FrontierItem(b"k" * 16, "https://a.example/page", 1, 0, 0, None, False, None, None)
TARGET = DiscoveredUrl(1, b"t" * 16, "https://a.example/target", 1, 2, ITEM.url_key)
OK = FetchResult(ITEM.url, Outcome.OK, status=200, body=b"<p>hello")


class Walk:
    """Everything around a walk, which notes the steps that it sees. Settings of a test say how they end."""

    def __init__(self, result: FetchResult = OK, robots: Robots = ALLOW_ALL, *, obeys: bool = True) -> None:
        self.steps: list[str] = []
        self.rows: list[tuple[UrlOutcome, list[DiscoveredUrl]]] = []
        self.put_back: list[FrontierItem] = []
        self.result = result
        self.over: VisitOver | None = None
        self.problem: BaseException | None = None
        self.sent = True
        self.parsed = ParsedPage(links=["/target"])
        self.answers = VisitAnswers(ErrorStreak(10))
        buffer: Any = SimpleNamespace(put_back=self.put_back.append)
        links: Any = SimpleNamespace(find=self._find, redirect_target=lambda *_: TARGET)
        gate: Any = SimpleNamespace(
            turn=self._turn, fetch=self._fetch, rate=SimpleNamespace(set_crawl_delay=lambda _: None)
        )
        worker: Any = SimpleNamespace(
            settings=Settings(), rng=Random(1), run_id=1, parser=SimpleNamespace(parse=self._parse)
        )
        self.results = VisitResults(
            cast("Any", SimpleNamespace(add=self._add)),
            cast("Any", None),
            cast("Claim", SimpleNamespace(domain_id=1, epoch=1)),
            1,
            for_tasks=False,
            answers=self.answers,
            gate=gate,
            buffer=buffer,
            links=links,
            on_lost=lambda: None,
        )
        job: Any = SimpleNamespace(id=1, name="job", spec=JobSpec(robots=obeys))
        self.context = CrawlContext(
            worker=worker,
            job=cast("Job", job),
            agent="Holdfast/1",
            allow_private=False,
            secrets=None,
            parsers=(),
            robots_final=frozenset(),
            robots=cast("Any", SimpleNamespace(get=self._robots, token="Holdfast", postponed=0)),
            slots=cast("Any", SimpleNamespace(start_request=lambda: self.steps.append("start"), open_extra_slot=None)),
            gate=gate,
            fetcher=cast("Any", SimpleNamespace(settle=self._settle)),
            links=links,
            recorder=None,
            follow=True,
            sitemaps=SitemapFinder(links, wanted=False),
            image_budget=ImageBudget(0, 0),
            types=frozenset(),
            answers=self.answers,
            buffer=buffer,
            results=self.results,
        )
        self._rules = robots

    async def _robots(self, _url: str, _is_guessed: object) -> CachedRobots:
        self.steps.append("robots")
        return CachedRobots(self._rules, 1e9)

    async def _turn(self, key: bytes) -> None:
        assert key == ITEM.url_key
        self.steps.append("turn")
        if self.over is not None:
            raise self.over

    async def _fetch(self, request: FetchRequest) -> FetchResult:
        self.steps.append("fetch")
        assert (request.key, request.is_page) == (ITEM.url_key, True)
        request.sent = self.sent
        if self.problem is not None:
            raise self.problem
        return self.result

    async def _parse(self, _body: bytes, **_: object) -> ParsedPage:
        self.steps.append("parse")
        return self.parsed

    def _find(self, *_: object, **__: object) -> list[DiscoveredUrl]:
        self.steps.append("links")
        return [TARGET]

    def _settle(self, _request: FetchRequest, _result: FetchResult, outcome: Outcome) -> None:
        self.steps.append(f"settle {outcome}")

    def _add(self, _holder: object, row: UrlOutcome, found: list[DiscoveredUrl], *_: object) -> None:
        self.steps.append("batch")
        self.rows.append((row, list(found)))

    def walk(self, item: FrontierItem = ITEM) -> UrlOutcome | None:
        """Crawl it; the row that it led to."""
        asyncio.run(crawl_url(self.context, item))
        assert len(self.rows) <= 1
        assert self.results.uncommitted == len(self.rows)
        return self.rows[0][0] if self.rows else None


def test_the_steps_are_in_order_and_one_row_comes_of_them() -> None:
    walk = Walk()
    row = walk.walk()
    assert walk.steps == ["robots", "turn", "start", "fetch", "parse", "links", "settle ok", "batch"]
    assert row is not None
    assert (row.outcome, row.state, row.status, row.attempts) == (Outcome.OK, UrlState.DONE, 200, 1)
    assert walk.rows[0][1] == [TARGET]
    assert walk.answers.pages == 1


def test_a_denied_url_is_not_requested() -> None:
    walk = Walk(robots=Robots("User-agent: *\nDisallow: /\n"))
    row = walk.walk()
    assert walk.steps == ["robots", "batch"]
    assert row is not None
    assert (row.outcome, row.state, row.fetched) == (Outcome.ROBOTS_DENIED, UrlState.DENIED, False)
    assert walk.answers.event is not None, "there is nothing that may be requested"


def test_a_job_that_ignores_robots_txt_does_not_ask_for_it() -> None:
    walk = Walk(robots=Robots("User-agent: *\nDisallow: /\n"), obeys=False)
    assert walk.walk() is not None
    assert walk.steps[:2] == ["turn", "start"]


def test_a_visit_that_is_over_requests_nothing_and_records_nothing() -> None:
    walk = Walk()
    walk.over = VisitOver(7.0)
    with pytest.raises(VisitOver) as over:
        walk.walk()
    assert (over.value.wait, walk.steps, walk.rows) == (7.0, ["robots", "turn"], [])


def test_a_withheld_request_is_the_next_one_again() -> None:
    walk = Walk()
    walk.problem = RequestWithheld()
    assert walk.walk() is None
    assert walk.put_back == [ITEM]


def test_an_internal_error_costs_the_page_an_attempt() -> None:
    walk = Walk()
    walk.problem = LookupError("of ours")
    row = walk.walk()
    assert row is not None
    assert (row.outcome, row.attempts, row.state) == (Outcome.BAD_RESPONSE, 1, UrlState.WAITING)
    assert row.reason == "a fault of ours: LookupError: of ours"


@pytest.mark.parametrize(("sent", "lost", "rows"), [(True, False, 1), (False, False, 0), (True, True, 0)])
def test_a_request_that_was_sent_and_cancelled_is_in_the_log(sent: bool, lost: bool, rows: int) -> None:
    walk = Walk()
    walk.problem, walk.sent, walk.results.lost = asyncio.CancelledError(), sent, lost
    with pytest.raises(asyncio.CancelledError):
        walk.walk()
    assert [row.outcome for row, _ in walk.rows] == [Outcome.GIVEN_UP] * rows


def test_what_is_requested_again_is_the_next_one_and_teaches_the_domain_nothing() -> None:
    walk = Walk(FetchResult(ITEM.url, Outcome.PROXY_FAILED, "why", again_in=0.0))
    row = walk.walk()
    assert row is not None
    assert (row.state, row.retry_in, row.again, row.attempts) == (UrlState.WAITING, 0.0, True, 0)
    assert walk.put_back == [ITEM]
    assert walk.answers.streak.errors == 0


@pytest.mark.parametrize("tasks", [(), ((7, 1),)])
def test_the_target_of_a_redirect_waits_and_that_of_a_task_is_followed_by_the_schedule(
    tasks: tuple[tuple[int, int], ...],
) -> None:
    walk = Walk(FetchResult(ITEM.url, Outcome.REDIRECT, status=301, redirect="/target"))
    row = walk.walk(ITEM._replace(tasks=tasks))
    assert row is not None
    assert (row.outcome, row.page) == (Outcome.REDIRECT, None)
    assert row.moved_to == (UrlRef(TARGET.url, TARGET.url_key) if tasks else None)
    assert walk.rows[0][1] == ([] if tasks else [TARGET])


@pytest.mark.parametrize(
    ("parsed", "outcome"),
    [(ParsedPage(captcha=True), Outcome.CAPTCHA), (ParsedPage(password_form=True), Outcome.LOGIN_WALL)],
)
def test_what_only_the_page_tells_is_settled_with_the_fetcher_and_has_no_links(
    parsed: ParsedPage, outcome: Outcome
) -> None:
    walk = Walk()
    walk.parsed = parsed
    row = walk.walk()
    assert row is not None
    assert row.outcome is outcome
    assert f"settle {outcome}" in walk.steps
    assert "links" not in walk.steps
