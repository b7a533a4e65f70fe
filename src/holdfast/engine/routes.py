"""The way of a visit's requests through proxies, and what each of them says of the proxy it went through.

The rule: a URL never fails by a proxy's fault. What may be one is tried through another proxy, at once and without using up an attempt;
only if several agree that there is no answer is it the site's. A site that refuses one proxy is asked through others, within the
attempts that a URL has. None of that teaches the domain anything: neither pace nor circuit nor streak hear of it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.engine.board import Board, Taken
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.page import FetchResult
from holdfast.model.proxy import Blame, Fault, ProxyRules, ProxyUse, Route, Verdict
from holdfast.politeness.pool import NEVER, Choice, Member, Pool
from holdfast.politeness.retry import asked_for
from holdfast.store.proxy_use import MappingRow
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

ENOUGH: Final = 9
"""What opinions of proxies that do not get through, and do not know why, must weigh before an attempt on a URL counts as the site's
failure: so many of proxies that may be at fault themselves, or 3 of those that other requests got through meanwhile."""
TRUSTED: Final = 3
IDLE: Final = 300.0
"""Seconds until a domain is looked at again that has no proxy which will ever be usable by itself."""


@dataclass(slots=True)
class _Trip:
    """A request on its way."""

    member: Member
    taken: Taken
    started: float
    probe: bool


@dataclass(slots=True)
class _Story:
    """What became of one URL so far."""

    tried: set[int] = field(default_factory=set)
    doubts: list[Blame] = field(default_factory=list)
    """Proxies that did not get through, and nobody knows why."""
    weight: int = 0
    """Of those of the present attempt."""
    answer: tuple[Outcome, int, str] | None = None
    """What one of these got: an error is more than silence."""


class Routes:
    """The proxies of one visit."""

    def __init__(
        self,
        board: Board,
        clock: Clock,
        domain: str,
        domain_id: int,
        rules: ProxyRules,
        rows: Sequence[MappingRow],
        *,
        patience: float,
    ) -> None:
        """`patience`: seconds that the visit waits for something."""
        self._board = board
        self._clock = clock
        self._domain = domain
        self.domain_id = domain_id
        self._rules = rules
        self._patience = patience
        self._joined = clock.now()
        self._pool = Pool(rules, self._members(rows), first=domain_id, now=self._joined)
        self._ready: dict[bytes, _Trip | None] = {}
        """By URL the way that its request is to go; None: without a proxy."""
        self._under_way: dict[bytes, _Trip] = {}
        self._stories: dict[bytes, _Story] = {}
        board.join(self)

    def renew(self, rows: Sequence[MappingRow]) -> None:
        """The domain's pool by now."""
        self._pool.renew(self._members(rows))

    def _members(self, rows: Sequence[MappingRow]) -> list[Member]:
        now = self._clock.now()
        return [
            Member(
                row.proxy_id,
                self._board.country(row.proxy_id),
                row.priority,
                assigned=row.assigned,
                used=-NEVER if row.used_ago is None else now - row.used_ago,
                speed=self._board.speed(row.proxy_id) if row.response_ms is None else row.response_ms,
                on=row.on,
                refusals=row.refusals,
                try_at=now + (row.try_in or 0.0),
                response_ms=row.response_ms,
                version=row.version,
            )
            for row in rows
        ]

    # Before a request -------------------------------------------------------------------------------------------------

    async def reserve(self, key: bytes) -> float:
        """Choose a way for a URL's request; 0: there is one, and `begin` takes it. Otherwise seconds until another look is worth it."""
        if self.reserved(key):
            return 0.0
        await self._board.look()
        story = self._stories.get(key)
        while True:
            choice = self._choose(story)
            if choice.member is not None:
                if await self._board.prepare(choice.member.proxy_id) and self._take(key, choice.member):
                    return 0.0
            elif self._board.looked < self._joined:
                await self._board.look(since=self._joined)  # what we wait for may have just come
            elif story is not None and story.tried:
                story.tried.clear()  # all others were tried, or cannot be used: once more through these
            elif choice.wait is None:
                self._ready[key] = None
                return 0.0
            else:
                if choice.wait == NEVER:
                    log.warning("%s waits: no proxy that it may use can be used", self._domain)
                return min(choice.wait, IDLE)

    def _choose(self, story: _Story | None) -> Choice:
        return self._pool.choose(
            self._board.usable,
            self._clock.now(),
            besides=story.tried if story else (),
            others=self._board.everyone,
            # Where one got an error, one that another has blamed for an error may clear itself.
            suspects_first=story is not None and story.answer is not None and len(story.doubts) == 1,
        )

    def _take(self, key: bytes, member: Member) -> bool:
        if not self._pool.has(member):
            return False  # people have changed it meanwhile
        taken = self._board.take(member.proxy_id, resolves=self._rules.resolves)
        if taken is None:
            return False
        now = self._clock.now()
        probe = self._pool.used(member, now, self._board.longest.total_seconds())
        self._ready[key] = _Trip(member, taken, now, taken.probe or probe)
        return True

    def reserved(self, key: bytes) -> bool:
        """Whether it has a way. One that it has had for too long may not be used any more."""
        trip = self._ready.get(key)
        if trip is not None and self._board.is_old(trip.taken):
            self._board.put_back(trip.taken)
            del self._ready[key]
        return key in self._ready

    def begin(self, key: bytes) -> Route | None:
        """The way of a request that begins now; None: without a proxy. Before: it is reserved."""
        trip = self._ready.pop(key)
        if trip is None:
            return None
        self._under_way[key] = trip
        return trip.taken.route

    def close(self) -> None:
        """Nothing more is asked for."""
        self._board.leave(self)
        for trip in self._ready.values():
            if trip is not None:
                self._board.put_back(trip.taken)
        self._ready.clear()

    # After it ---------------------------------------------------------------------------------------------------------

    def judge(self, key: bytes, result: FetchResult, *, last: bool) -> None:
        """Whether another proxy is asked next: then `again_in` is set, and a failure is none of the site's. `last`: the URL has no
        attempt left after this one."""
        trip = self._under_way.get(key)
        if trip is None:
            return
        story = self._stories.setdefault(key, _Story())
        story.tried.add(trip.member.proxy_id)
        if result.fault is Fault.PROXY:
            result.again_in = 0.0
        elif result.fault is Fault.UNCLEAR:
            self._weigh(story, trip, result, last=last)
        else:
            self.judge_answer(key, result.outcome, result, last=last)
        if result.again_in is not None and result.fault is Fault.UNCLEAR:
            result.detail = f"{result.outcome} through proxy {trip.member.proxy_id}: {result.detail}"
            result.outcome = Outcome.PROXY_FAILED if result.status is None else Outcome.PROXY_UNCLEAR

    def _weigh(self, story: _Story, trip: _Trip, result: FetchResult, *, last: bool) -> None:
        """After: it is known whether another opinion is wanted; if not, the result is what all of them say together."""
        proxy_id = trip.member.proxy_id
        story.doubts.append(Blame(proxy_id, trip.probe))
        story.weight += TRUSTED if self._board.worked_since(proxy_id, trip.started) else 1
        if result.status is not None:
            story.answer = (result.outcome, result.status, result.detail)
        wait = self._another(story) if story.weight < ENOUGH else None
        # In the last attempt only what this very visit can wait for, which remembers who was asked: else it could wait for ever.
        result.again_in = None if wait and last and wait > self._patience else wait
        if result.again_in is None:
            if story.answer is not None:
                result.outcome, result.status, result.detail = story.answer
            story.weight, story.answer = 0, None

    def judge_answer(self, key: bytes, outcome: Outcome, result: FetchResult, *, last: bool) -> None:
        """The same for an answer, once it is known what it is: a site that refuses this proxy may want another."""
        story = self._stories.get(key)
        if key in self._under_way and story is not None and TREATMENT[outcome].verdict is Verdict.REFUSED:
            result.again_in = None if last else self._another(story)

    def _another(self, story: _Story) -> float | None:
        """In how many seconds a proxy can be used that was not tried; None: there is none. Until one that rests can be asked nobody
        knows more than now."""
        choice = self._choose(story)
        if choice.member is not None:
            return 0.0
        return None if choice.wait is None or choice.wait == NEVER else min(choice.wait, IDLE)

    def ended(self, key: bytes, outcome: Outcome, result: FetchResult, *, page: bool = True) -> ProxyUse | None:
        """What the request says of the proxy, for the store; None: it went without. After: it counts for the next choices."""
        trip = self._under_way.pop(key, None)
        if trip is None:
            return None
        if result.status is None and result.fault is None:  # it was not even sent, and says nothing of any proxy
            self._board.put_back(trip.taken)
            self._stories.pop(key, None)
            return None
        member, now = trip.member, self._clock.now()
        verdict = _verdict(outcome, result.fault, page=page)
        use = ProxyUse(member.proxy_id, verdict, trip.started, probe=trip.probe, bytes=result.wire_bytes or 0)
        if verdict in (Verdict.REFUSED, Verdict.FAILED):
            use.error = (result.detail or str(outcome))[:500]
        member.judge(verdict, now, self._board.rests, probe=trip.probe)
        if verdict is Verdict.SUCCESS:
            member.answered(result.duration * 1000)
            self._board.answered(member.proxy_id, result.duration * 1000)
            use.response_ms = member.response_ms
        if outcome is Outcome.RATE_LIMITED:
            member.rests_until = now + asked_for(result.retry_after)
        if verdict is Verdict.FAILED:
            self._board.ended(member.proxy_id, trip.started, through=False)
        elif verdict is not Verdict.UNCLEAR:
            self._board.ended(member.proxy_id, trip.started, through=True)
            use.blames = self._blamed(key, member.proxy_id)
        if result.again_in is None and verdict is not Verdict.UNCLEAR:
            self._stories.pop(key, None)
        return use

    def _blamed(self, key: bytes, by: int) -> tuple[Blame, ...]:
        """Who had not got through where this one has."""
        story = self._stories.get(key)
        if story is None:
            return ()
        blamed = tuple(doubt for doubt in story.doubts if doubt.proxy_id != by)
        for doubt in blamed:
            self._board.ended(doubt.proxy_id, self._clock.now(), through=False)
            self._pool.suspect(doubt.proxy_id, is_one=story.answer is not None)
        story.doubts.clear()
        return blamed


def _verdict(outcome: Outcome, fault: Fault | None, *, page: bool) -> Verdict:
    if fault is Fault.UNCLEAR:
        return Verdict.UNCLEAR
    verdict = TREATMENT[outcome].verdict
    # Whether a robots.txt is there for all is up to the site.
    return Verdict.ERROR if verdict is Verdict.REFUSED and not page else verdict
