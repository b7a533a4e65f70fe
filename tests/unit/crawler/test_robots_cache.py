"""The robots.txt cache: fetched once per origin, stored, and closed where it is unavailable."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.crawler.request_gate import VisitOver
from holdfast.crawler.robots_cache import RobotsCache
from holdfast.db.visit_state import StoredRobots
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome
from holdfast.politeness.error_streak import VisitAnswers
from holdfast.settings import Politeness

SITE = "https://a.example"
DENIES = b"User-agent: *\nDisallow: /private\nCrawl-delay: 3\n"


class FakeClock:
    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Origin:
    """Answers for robots.txt what it is told to, and remembers."""

    def __init__(
        self, *answers: FetchResult | None, stored: Mapping[str, StoredRobots] | None = None, **settings: Any
    ) -> None:
        self.answers = list(answers)
        self.asked: list[FetchRequest] = []
        self.saved: list[dict[str, Any]] = []
        self.learnt: list[Outcome] = []
        self.clock = FakeClock()
        self.cache = RobotsCache(
            dict(stored or {}),
            Politeness(**settings),
            self.clock,
            agent="Holdfast/1",
            allow_private=False,
            fetch=self._ask,
            save=self._save,
            answers=cast("VisitAnswers", SimpleNamespace(record=lambda outcome, *_, **__: self.learnt.append(outcome))),
        )

    async def _ask(self, request: FetchRequest) -> FetchResult:
        self.asked.append(request)
        if (answer := self.answers.pop(0)) is None:
            raise VisitOver
        return answer

    async def _save(self, **facts: Any) -> None:
        self.saved.append(facts)

    def allows(self, path: str) -> bool | None:
        """None: the visit had to end first."""
        try:
            known = asyncio.run(self.cache.get(SITE + path))
        except VisitOver:
            return None
        return known.robots.allowed(SITE + path, "Holdfast").allowed


def got(body: bytes = DENIES, status: int = 200, outcome: Outcome = Outcome.OK, **more: Any) -> FetchResult:
    return FetchResult(f"{SITE}/robots.txt", outcome, status=status, body=body, **more)


BROKEN = got(b"", 500, Outcome.SERVER_ERROR)
SILENT = FetchResult(f"{SITE}/robots.txt", Outcome.TIMEOUT, "no answer")


def test_it_is_asked_for_once_and_obeyed() -> None:
    origin = Origin(got())
    assert (origin.allows("/"), origin.allows("/private/x"), origin.allows("/")) == (True, False, True)
    (request,) = origin.asked
    assert (request.url, request.user_agent, request.any_type, request.cut) == (
        f"{SITE}/robots.txt",
        "Holdfast/1",
        True,
        True,
    )
    (saved,) = origin.saved
    assert (saved["status"], saved["reachable"], saved["ttl"]) == (200, True, 3600)
    assert saved["content"] == DENIES.decode()


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_one_that_is_not_there_allows_everything(status: int) -> None:
    origin = Origin(got(b"no", status, Outcome.NOT_FOUND))
    assert origin.allows("/private/x") is True
    assert (origin.saved[0]["content"], origin.saved[0]["reachable"]) == (None, True)


@pytest.mark.parametrize("answer", [BROKEN, SILENT, got(b"", 429, Outcome.RATE_LIMITED)])
def test_one_that_cannot_be_had_denies_everything_after_two_more_attempts(answer: FetchResult) -> None:
    origin = Origin(answer, answer, answer)
    assert origin.allows("/") is False
    assert (len(origin.asked), origin.clock.slept) == (3, [2.0, 4.0])
    (saved,) = origin.saved
    assert (saved["reachable"], saved["content"], saved["ttl"]) == (False, None, 3600)
    assert saved["problem"].startswith(str(answer.outcome))
    assert origin.allows("/other") is False  # and it is not asked for again before it is time
    assert len(origin.asked) == 3


def test_a_server_that_is_not_there_counts_for_the_domain() -> None:
    nowhere = FetchResult(f"{SITE}/robots.txt", Outcome.NO_SUCH_HOST, "nobody knows it")
    origin = Origin(nowhere, SILENT, BROKEN)
    known = asyncio.run(origin.cache.get(f"{SITE}/"))
    assert known is not None
    assert (known.reachable, known.outcome) == (False, Outcome.SERVER_ERROR)
    assert origin.learnt == [Outcome.NO_SUCH_HOST, Outcome.TIMEOUT]


def test_an_address_that_we_refuse_is_asked_for_once_and_not_kept() -> None:
    """It is our own decision: another job, or another setting, may decide otherwise."""
    origin = Origin(FetchResult(f"{SITE}/robots.txt", Outcome.ADDRESS_REFUSED, "loopback"))
    known = asyncio.run(origin.cache.get(f"{SITE}/"))
    assert known is not None
    assert (known.reachable, known.outcome, known.detail) == (False, Outcome.ADDRESS_REFUSED, "loopback")
    assert (len(origin.asked), origin.saved, origin.learnt, origin.clock.slept) == (1, [], [], [])


def test_it_is_asked_for_again_when_it_is_too_old() -> None:
    origin = Origin(got(), got(b""), robots_ttl=60)
    assert origin.allows("/private") is False
    origin.clock.time += 61
    assert origin.allows("/private") is True
    assert len(origin.asked) == 2


def test_a_copy_from_before_serves_while_it_cannot_be_had() -> None:
    origin = Origin(got(), BROKEN, BROKEN, BROKEN, robots_ttl=60, robots_retry=600)
    assert origin.allows("/private") is False
    origin.clock.time += 61
    assert (origin.allows("/private"), origin.allows("/")) == (False, True)
    assert len(origin.asked) == 4


def test_what_the_store_keeps_is_used_while_it_is_fresh() -> None:
    kept = StoredRobots(200, DENIES.decode(), True, fresh_for=10.0, problem=None)
    origin = Origin(got(b""), stored={f"{SITE}/robots.txt": kept})
    assert origin.allows("/private") is False
    assert origin.asked == []
    origin.clock.time += 11
    assert origin.allows("/private") is True


def test_a_stored_failure_denies_until_it_is_time() -> None:
    kept = StoredRobots(None, None, False, fresh_for=10.0, problem="timeout")
    origin = Origin(got(), stored={f"{SITE}/robots.txt": kept})
    assert origin.allows("/") is False
    origin.clock.time += 11
    assert origin.allows("/") is True


def test_redirects_are_followed_within_five() -> None:
    step = got(b"", 301, Outcome.REDIRECT, redirect="/moved.txt")
    origin = Origin(step, step, got())
    assert origin.allows("/private") is False
    assert [request.url for request in origin.asked] == [f"{SITE}/robots.txt"] + [f"{SITE}/moved.txt"] * 2
    # More than five are as good as a 404 (RFC 9309, 2.3.1.2).
    endless = Origin(*[step] * 6)
    assert endless.allows("/private") is True
    assert len(endless.asked) == 6
    # One to an address that we do not visit leads nowhere, too.
    inwards = Origin(step, FetchResult(SITE, Outcome.ADDRESS_REFUSED, "loopback"))
    assert inwards.allows("/private") is True


def test_a_visit_that_has_to_end_learns_nothing() -> None:
    origin = Origin(None, got())
    assert origin.allows("/") is None
    assert origin.saved == []
    assert origin.allows("/") is True


def test_each_origin_has_its_own() -> None:
    origin = Origin(got(), got(b""))
    other = asyncio.run(origin.cache.get("http://a.example:8080/private"))
    assert other is not None
    assert other.robots.allowed("http://a.example:8080/private", "Holdfast").allowed is False
    assert origin.allows("/private") is True
    assert [request.url for request in origin.asked] == ["http://a.example:8080/robots.txt", f"{SITE}/robots.txt"]


def test_redirects_may_not_take_longer_in_all_than_one_answer_may() -> None:
    """Each of six answers just in time, three times over, would be three minutes."""
    slow = [got(b"", 301, Outcome.REDIRECT, redirect=f"/{i}.txt", duration=4.0) for i in range(9)]
    origin = Origin(*slow)
    assert origin.allows("/") is False
    assert [request.timeout for request in origin.asked] == [10.0, 6.0, 2.0] * 3
    assert origin.learnt == [Outcome.TIMEOUT] * 3
