"""What a visit knows of robots.txt: kept with the domain, asked for when it is too old.

The rule: no page of an origin is asked for before its robots.txt is known (RFC 9309). One that cannot be had denies everything for
now; a copy from before serves meanwhile.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.domain import UNREACHING
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.page import FetchRequest, FetchResult
from holdfast.model.request_secrets import OriginHeaders
from holdfast.model.url import join
from holdfast.politeness import robots as rules
from holdfast.settings import Politeness
from holdfast.store.visits import StoredRobots
from holdfast.telemetry.clock import Clock

MOST_REDIRECTS: Final = 5
TIMEOUT: Final = 10.0
"""Seconds that the answers to one attempt may take in all, with those of its redirects."""
RETRIES: Final = (2.0, 4.0)
"""Pauses before asking again for one that could not be had."""

Ask = Callable[[FetchRequest], Awaitable[FetchResult | None]]
"""Send one request when it is this domain's turn; None: the visit has to end first."""
Save = Callable[..., Awaitable[object]]
Learn = Callable[[Outcome, FetchResult], None]
"""The server could not be reached: that counts for the domain, whatever was asked for."""
Guessed = Callable[[], Awaitable[bool]]
"""Whether the scheme of the URL that is asked about was guessed."""


async def _given() -> bool:
    return False


@dataclass(slots=True)
class Known:
    """The robots.txt of one origin."""

    robots: rules.Robots
    until: float
    """By the engine's clock; then it is asked for again."""
    reachable: bool = True
    """False: nothing is allowed now (and there is no copy from before)."""
    why: Outcome | None = None
    """How it could not be had, and in words; None: in an earlier visit."""
    detail: str = ""
    no_tls: bool = False
    """Nothing speaks TLS at an https origin."""


class RobotsKeeper:
    """The robots.txt of a visit's origins."""

    def __init__(
        self,
        stored: dict[str, StoredRobots],
        settings: Politeness,
        clock: Clock,
        *,
        agent: str,
        allow_private: bool,
        ask: Ask,
        save: Save,
        learn: Learn,
        secrets: OriginHeaders | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._agent = agent
        self._allow_private = allow_private
        self._ask = ask
        self._save = save
        self._learn = learn
        self.pause: tuple[float, str] | None = None
        """While one that could not be fetched is asked for again: when the pause is over, and what was wrong."""
        self._secrets = secrets
        self._known: dict[str, Known] = {}
        for url, row in stored.items():
            if row.content is not None or row.reachable:
                self._known[url] = Known(self._read(row.content), clock.now() + row.fresh_for)
            else:
                self._known[url] = Known(rules.NOT_NOW, clock.now() + row.fresh_for, reachable=False)

    def _read(self, text: str | None) -> rules.Robots:
        if text is None:
            return rules.ALLOW_ALL
        return rules.Robots(text, max_crawl_delay=self._settings.max_crawl_delay.total_seconds())

    async def of(self, url: str, guessed: Guessed = _given) -> Known | None:
        """What holds for a URL's origin; None: the visit has to end before it could be asked.

        Where nothing speaks TLS and the URL's scheme was only guessed, that is not kept, and another attempt is not made.
        """
        where = url[: url.index("/", 8)] + "/robots.txt"
        known = self._known.get(where)
        if known is None or known.until <= self._clock.now():
            known = await self._fetch(where, known, guessed)
            if known is not None:
                self._known[where] = known
        return known

    async def _fetch(self, where: str, before: Known | None, guessed: Guessed) -> Known | None:
        result, answer = None, rules.Answer.NOT_NOW
        for pause in (*RETRIES, None):
            result = await self._follow(where)
            if result is None:
                return None
            answer = rules.policy(result.outcome, result.status)
            if answer is rules.Answer.UNCHANGED:
                # Nobody asked for that: what is at hand counts on, and without it nothing is known.
                answer = rules.Answer.NOT_NOW
            if answer is rules.Answer.NOT_NOW and TREATMENT[result.outcome].event in UNREACHING:
                self._learn(result.outcome, result)
            if result.no_tls and await guessed():
                until = self._clock.now() + self._settings.robots_retry.total_seconds()
                return Known(
                    rules.NOT_NOW, until, reachable=False, why=result.outcome, detail=result.detail, no_tls=True
                )
            if answer is not rules.Answer.NOT_NOW or result.outcome is Outcome.ADDRESS_REFUSED or pause is None:
                break
            self.pause = (self._clock.now() + pause, result.detail or str(result.outcome))
            try:
                await self._clock.sleep(pause)
            finally:
                self.pause = None
        assert result is not None  # noqa: S101 — there is at least one attempt
        if answer is rules.Answer.NOT_NOW:
            return await self._unavailable(where, result, before)
        text = rules.text_of(result.body) if answer is rules.Answer.READ else None
        ttl = self._settings.robots_ttl.total_seconds()
        await self._save(url=where, status=result.status, content=text, reachable=True, problem=None, ttl=ttl)
        return Known(self._read(text), self._clock.now() + ttl)

    async def _unavailable(self, where: str, result: FetchResult, before: Known | None) -> Known:
        retry = self._settings.robots_retry.total_seconds()
        problem = f"{result.outcome}: {result.detail}" if result.detail else str(result.outcome)
        if (
            result.outcome is not Outcome.ADDRESS_REFUSED
        ):  # that is our decision, not the server's, and may be another tomorrow
            await self._save(url=where, status=result.status, content=None, reachable=False, problem=problem, ttl=retry)
        until = self._clock.now() + retry
        if before is not None and before.reachable:
            return Known(before.robots, until)
        return Known(rules.NOT_NOW, until, reachable=False, why=result.outcome, detail=result.detail)

    async def _follow(self, where: str) -> FetchResult | None:
        """The answer behind up to five redirects. More of them, or one to nowhere, is as good as none: a 4xx."""
        url, result, left = where, None, TIMEOUT
        for hop in range(MOST_REDIRECTS + 1):
            result = await self._ask(
                FetchRequest(
                    url,
                    self._agent,
                    any_type=True,
                    max_bytes=rules.MAX_BYTES,
                    cut=True,
                    timeout=left,
                    allow_private=self._allow_private,
                    secret=None if self._secrets is None else self._secrets.of(url),
                )
            )
            if hop and result is not None and result.outcome is Outcome.ADDRESS_REFUSED:
                break
            if result is None or result.outcome is not Outcome.REDIRECT or result.redirect is None:
                return result
            if (left := left - result.duration) <= 0:
                return replace(result, outcome=Outcome.TIMEOUT, detail="its redirects took too long")
            try:
                url = join(url, result.redirect)
            except BadUrl:
                break
        return replace(result, outcome=Outcome.TOO_MANY_REDIRECTS) if result else None
