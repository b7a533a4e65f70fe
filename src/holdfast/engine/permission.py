"""What robots.txt says of the URLs that a visit is about to ask for.

The rule: a URL that may not be asked for goes into the batch with its reason. While a robots.txt cannot be had nothing of its origin is
allowed; the others of the domain go on.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.robots import Known, RobotsKeeper
from holdfast.model.batch import Waiting
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.wait import Wait, WaitKind
from holdfast.politeness.robots import product_token
from holdfast.store import visits

if TYPE_CHECKING:
    from holdfast.engine.visit import Visit


class Permission:
    """The robots.txt files of one visit."""

    def __init__(self, visit: "Visit", stored: Mapping[str, visits.StoredRobots]) -> None:
        self._visit = visit
        self._token = product_token(visit.agent)
        self._postponed = 0
        """URLs in a row that wait for a robots.txt."""
        self.hold: float | None = None
        """Robots cannot be had, or not soon: seconds until it is asked for again."""
        self._robots = RobotsKeeper(
            dict(stored),
            visit.tools.settings.politeness,
            visit.tools.clock,
            agent=visit.agent,
            allow_private=visit.allow_private,
            ask=visit.turns.ask_in_turn,
            save=self._save,
            learn=partial(visit.learn, logged=False),
            secrets=visit.secrets,
        )

    async def given(self, item: Waiting) -> bool:
        """Whether robots.txt lets us ask; if not, the URL is denied, or waits, or `hold` says that the visit has to."""
        visit = self._visit
        if not visit.job.spec.robots:
            return True
        known = await self._robots.of(item.url, lambda: visit.is_guessed(item))
        if known is None:
            visit.put_back(item)
            self.hold = visit.turns.far  # None: the visit is over anyway
            return False
        if known.no_tls and await visit.is_guessed(item):
            visit.use_http(item, known.detail)
            return False
        if not known.reachable:
            self._not_now(item, known)
            return False
        self._postponed = 0
        visit.turns.pace.set_crawl_delay(known.robots.crawl_delay(self._token))
        decision = known.robots.allowed(item.url, self._token)
        if not decision.allowed:
            visit.deny(item, Outcome.ROBOTS_DENIED, UrlState.DENIED, f"robots_denied: {decision.line or ''}"[:500])
            if visit.is_new_here and known.robots.denies_everything(self._token):
                visit.shut_out()
        return decision.allowed

    def wait_reason(self) -> tuple[Wait, str] | None:
        """The pause before a robots.txt is asked for again, and why it could not be fetched. For any thread."""
        if (pause := self._robots.pause) is None:
            return None
        until, problem = pause
        return Wait(WaitKind.ROBOTS, max(0.0, until - self._visit.tools.clock.now())), problem

    def _not_now(self, item: Waiting, known: Known) -> None:
        visit = self._visit
        wait = max(1.0, known.until - visit.tools.clock.now())
        # A host that does not exist is the end of a job's visit; a task has attempts of its own, minutes apart.
        final = {Outcome.ADDRESS_REFUSED, Outcome.NO_SUCH_HOST} if visit.for_tasks else {Outcome.ADDRESS_REFUSED}
        if known.why is not None and known.why in final:
            visit.deny(item, known.why, UrlState.FAILED, f"{known.why}: {known.detail}"[:500])
            return
        if known.why is Outcome.NO_SUCH_HOST:
            visit.not_reached(known.detail)
        self._postponed += 1
        if self._postponed > visit.tools.settings.worker.window:
            self.hold = wait
            return
        # Another origin of the domain may answer; so far only this URL waits.
        visit.deny(
            item, Outcome.ROBOTS_DENIED, UrlState.WAITING, "robots_unavailable: asked again later", retry_in=wait
        )

    async def _save(self, **facts: Any) -> object:
        visit = self._visit
        return await visit.tools.desk.call(
            visits.save_robots, worker=visit.tools.worker, domain_id=visit.domain_id, epoch=visit.epoch, **facts
        )
