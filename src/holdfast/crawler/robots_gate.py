"""The robots.txt gate of a visit: which URLs it may request.

The rule: a denied URL goes into the batch with its reason. While a robots.txt is unavailable nothing of its origin is allowed; the other
origins of the domain go on.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.crawler.robots_cache import CachedRobots, RobotsCache
from holdfast.db import visit_state
from holdfast.model.commit_batch import FrontierItem
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.wait import Wait, WaitKind
from holdfast.politeness.robots_txt import product_token

if TYPE_CHECKING:
    from holdfast.crawler.visit import Visit


class RobotsGate:
    """Applies the robots.txt files of one visit's origins."""

    def __init__(self, visit: "Visit", stored: Mapping[str, visit_state.StoredRobots]) -> None:
        self._visit = visit
        self._token = product_token(visit.agent)
        self._postponed = 0
        """Consecutive URLs that were postponed because their robots.txt is unavailable."""
        self.visit_wait: float | None = None
        """Seconds until robots.txt is fetched again, if the visit must end because of it; None: it need not."""
        self._cache = RobotsCache(
            dict(stored),
            visit.context.settings.politeness,
            visit.context.clock,
            agent=visit.agent,
            allow_private=visit.allow_private,
            send=visit.gate.send_in_turn,
            save=self._save,
            on_unreachable=partial(visit.record_answer, logged=False),
            secrets=visit.secrets,
        )

    async def allows(self, item: FrontierItem) -> bool:
        """Whether robots.txt allows the URL. After: if not, the URL is denied or postponed, or `visit_wait` is set: the visit must end."""
        visit = self._visit
        if not visit.job.spec.robots:
            return True
        known = await self._cache.get(item.url, lambda: visit.is_guessed(item))
        if known is None:
            visit.put_back(item)
            self.visit_wait = visit.gate.next_turn_in  # None: the visit is over anyway
            return False
        if known.no_tls and await visit.is_guessed(item):
            visit.use_http(item, known.detail)
            return False
        if not known.reachable:
            self._handle_unavailable(item, known)
            return False
        self._postponed = 0
        visit.gate.rate.set_crawl_delay(known.robots.crawl_delay(self._token))
        decision = known.robots.allowed(item.url, self._token)
        if not decision.allowed:
            visit.deny(item, Outcome.ROBOTS_DENIED, UrlState.DENIED, f"robots_denied: {decision.line or ''}"[:500])
            if visit.is_first_contact and known.robots.denies_everything(self._token):
                visit.end_as_denied()
        return decision.allowed

    def wait_reason(self) -> tuple[Wait, str] | None:
        """Return the pause before a retry of robots.txt, and why it is unavailable; None: there is no pause. Thread-safe."""
        if (pause := self._cache.pause) is None:
            return None
        until, problem = pause
        return Wait(WaitKind.ROBOTS, max(0.0, until - self._visit.context.clock.now())), problem

    def _handle_unavailable(self, item: FrontierItem, known: CachedRobots) -> None:
        visit = self._visit
        wait = max(1.0, known.expires_at - visit.context.clock.now())
        # A host that does not exist ends the visit of a job; a task has its own attempts, minutes apart.
        final = {Outcome.ADDRESS_REFUSED, Outcome.NO_SUCH_HOST} if visit.for_tasks else {Outcome.ADDRESS_REFUSED}
        if known.outcome is not None and known.outcome in final:
            visit.deny(item, known.outcome, UrlState.FAILED, f"{known.outcome}: {known.detail}"[:500])
            return
        if known.outcome is Outcome.NO_SUCH_HOST:
            visit.record_unreachable(known.detail)
        self._postponed += 1
        if self._postponed > visit.context.settings.worker.window:
            self.visit_wait = wait
            return
        # Another origin of the domain may be available; so far only this URL waits.
        visit.deny(
            item, Outcome.ROBOTS_DENIED, UrlState.WAITING, "robots_unavailable: asked again later", retry_in=wait
        )

    async def _save(self, **facts: Any) -> object:
        visit = self._visit
        return await visit.context.db.call(
            visit_state.save_robots, worker=visit.context.worker, domain_id=visit.domain_id, epoch=visit.epoch, **facts
        )
