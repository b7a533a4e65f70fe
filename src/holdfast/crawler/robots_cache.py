"""The robots.txt files of a visit's origins: stored with the domain, fetched again when they are too old.

The rule: no page of an origin is fetched before its robots.txt is known (RFC 9309). One that is unavailable denies everything for now;
an older copy is used meanwhile.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.db.visit_state import StoredRobots
from holdfast.errors import BadUrl
from holdfast.model.activity import Wait, WaitKind
from holdfast.model.domain import UNREACHABLE_EVENTS
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.request_secrets import OriginHeaders
from holdfast.model.url import join
from holdfast.politeness import robots_txt as rules
from holdfast.politeness.error_streak import VisitAnswers
from holdfast.settings import Politeness
from holdfast.telemetry.clock import Clock

MAX_REDIRECTS: Final = 5
TIMEOUT: Final = 10.0
"""Maximum total seconds of one attempt, including its redirects."""
RETRIES: Final = (2.0, 4.0)
"""Seconds before each retry of an unavailable robots.txt."""

Fetch = Callable[[FetchRequest], Awaitable[FetchResult]]
"""Fetches when it is this domain's turn, like every request (`RequestGate.fetch_in_turn`). Raises VisitOver if the visit ends before."""
Save = Callable[..., Awaitable[object]]
IsGuessed = Callable[[], Awaitable[bool]]
"""Whether the scheme of the URL was guessed."""


async def _not_guessed() -> bool:
    return False


@dataclass(slots=True)
class CachedRobots:
    """The robots.txt of one origin."""

    robots: rules.Robots
    expires_at: float
    """Time on the worker's clock at which it is fetched again."""
    reachable: bool = True
    """False: nothing is allowed now (and there is no older copy)."""
    outcome: Outcome | None = None
    """Why it is unavailable, with `detail`; None: an earlier visit found that."""
    detail: str = ""
    no_tls: bool = False
    """Whether an https origin does not speak TLS."""


class RobotsCache:
    """The robots.txt files of a visit's origins."""

    def __init__(
        self,
        stored: dict[str, StoredRobots],
        settings: Politeness,
        clock: Clock,
        *,
        agent: str,
        allow_private: bool,
        fetch: Fetch,
        save: Save,
        answers: VisitAnswers,
        secrets: OriginHeaders | None = None,
    ) -> None:
        """`answers`: a server that cannot be reached counts for the domain, like a page."""
        self._settings = settings
        self._clock = clock
        self._agent = agent
        self._allow_private = allow_private
        self._fetch_in_turn = fetch
        self._save = save
        self._answers = answers
        self.token = rules.product_token(agent)
        """The name by which robots.txt addresses this crawler."""
        self.postponed = 0
        """Consecutive URLs that were postponed because their robots.txt is unavailable."""
        self.pause: tuple[float, str] | None = None
        """During the pause before a retry: the time of its end, and the problem."""
        self._secrets = secrets
        self._known: dict[str, CachedRobots] = {}
        for url, row in stored.items():
            if row.content is not None or row.reachable:
                self._known[url] = CachedRobots(self._parse(row.content), clock.now() + row.fresh_for)
            else:
                self._known[url] = CachedRobots(rules.UNREACHABLE, clock.now() + row.fresh_for, reachable=False)

    def _parse(self, text: str | None) -> rules.Robots:
        if text is None:
            return rules.ALLOW_ALL
        return rules.Robots(text, max_crawl_delay=self._settings.max_crawl_delay.total_seconds())

    def wait_reason(self) -> tuple[Wait, str] | None:
        """Return the pause before a retry of robots.txt, and why it is unavailable; None: there is no pause. Thread-safe."""
        if (pause := self.pause) is None:
            return None
        until, problem = pause
        return Wait(WaitKind.ROBOTS, max(0.0, until - self._clock.now())), problem

    async def get(self, url: str, is_guessed: IsGuessed = _not_guessed) -> CachedRobots:
        """Return the robots.txt of a URL's origin, fetched if necessary. Raises VisitOver if the visit ends before.

        If the origin does not speak TLS and the URL's scheme was guessed, that is not stored, and there is no retry.
        """
        robots_url = url[: url.index("/", 8)] + "/robots.txt"
        known = self._known.get(robots_url)
        if known is None or known.expires_at <= self._clock.now():
            known = self._known[robots_url] = await self._fetch(robots_url, known, is_guessed)
        return known

    async def _fetch(self, robots_url: str, previous: CachedRobots | None, is_guessed: IsGuessed) -> CachedRobots:
        result, answer = None, rules.RobotsAnswer.UNREACHABLE
        for pause in (*RETRIES, None):
            result = await self._follow(robots_url)
            answer = rules.robots_answer(result.outcome, result.status)
            if answer is rules.RobotsAnswer.UNCHANGED:
                # A 304 to an unconditional request: treated as unavailable, so an older copy is used.
                answer = rules.RobotsAnswer.UNREACHABLE
            if answer is rules.RobotsAnswer.UNREACHABLE and TREATMENT[result.outcome].event in UNREACHABLE_EVENTS:
                self._answers.record(result.outcome, result.detail, result.retry_after, logged=False)
            if result.no_tls and await is_guessed():
                expires_at = self._clock.now() + self._settings.robots_retry.total_seconds()
                return CachedRobots(
                    rules.UNREACHABLE,
                    expires_at,
                    reachable=False,
                    outcome=result.outcome,
                    detail=result.detail,
                    no_tls=True,
                )
            if (
                answer is not rules.RobotsAnswer.UNREACHABLE
                or result.outcome is Outcome.ADDRESS_REFUSED
                or pause is None
            ):
                break
            self.pause = (self._clock.now() + pause, result.detail or str(result.outcome))
            try:
                await self._clock.sleep(pause)
            finally:
                self.pause = None
        assert result is not None  # noqa: S101 — there is at least one attempt
        if answer is rules.RobotsAnswer.UNREACHABLE:
            return await self._unavailable(robots_url, result, previous)
        text = rules.decode_body(result.body) if answer is rules.RobotsAnswer.READ else None
        ttl = self._settings.robots_ttl.total_seconds()
        await self._save(url=robots_url, status=result.status, content=text, reachable=True, problem=None, ttl=ttl)
        return CachedRobots(self._parse(text), self._clock.now() + ttl)

    async def _unavailable(self, robots_url: str, result: FetchResult, previous: CachedRobots | None) -> CachedRobots:
        retry = self._settings.robots_retry.total_seconds()
        problem = f"{result.outcome}: {result.detail}" if result.detail else str(result.outcome)
        if result.outcome is not Outcome.ADDRESS_REFUSED:  # our own decision, not the server's, and it may change
            await self._save(
                url=robots_url, status=result.status, content=None, reachable=False, problem=problem, ttl=retry
            )
        expires_at = self._clock.now() + retry
        if previous is not None and previous.reachable:
            return CachedRobots(previous.robots, expires_at)
        return CachedRobots(
            rules.UNREACHABLE, expires_at, reachable=False, outcome=result.outcome, detail=result.detail
        )

    async def _follow(self, robots_url: str) -> FetchResult:
        """Return the response after up to five redirects. More redirects, or an invalid target, count as a 4xx: there is no robots.txt."""
        url, left = robots_url, TIMEOUT
        for hop in range(MAX_REDIRECTS + 1):
            result = await self._fetch_in_turn(
                FetchRequest(
                    url,
                    self._agent,
                    key=url.encode(),
                    is_page=False,
                    any_type=True,
                    max_bytes=rules.MAX_BYTES,
                    cut=True,
                    timeout=left,
                    allow_private=self._allow_private,
                    secret=None if self._secrets is None else self._secrets.for_url(url),
                )
            )
            if hop and result.outcome is Outcome.ADDRESS_REFUSED:
                break
            if result.outcome is not Outcome.REDIRECT or result.redirect is None:
                return result
            if (left := left - result.duration) <= 0:
                return replace(result, outcome=Outcome.TIMEOUT, detail="its redirects took too long")
            try:
                url = join(url, result.redirect)
            except BadUrl:
                break
        return replace(result, outcome=Outcome.TOO_MANY_REDIRECTS)
