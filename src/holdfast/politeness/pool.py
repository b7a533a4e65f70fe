"""Which proxy a domain's next request goes through.

The rule: of those that can be used now the one with the highest priority, and among equals the one that was used least recently, and of
those that rested as long the faster; in that order exactly, since the holder of a domain is the only one who chooses for it. The global
pool comes after the domain's own.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.model.proxy import NOT_CHOSEN, ProxyRules, Rests, Use, Verdict, moving, rest

NEVER: Final = math.inf
Other = tuple[int, str | None]
"""A proxy of the global pool, and where it is."""
_Order = tuple[bool, int, float, float, int]


@dataclass(slots=True)
class Member:
    """A proxy as one domain uses it. Times are seconds on the caller's clock."""

    proxy_id: int
    country: str | None = None
    priority: int = 5
    assigned: bool = True
    """False: it is of the global pool, which comes after the domain's own."""
    used: float = -NEVER
    """When it was used last."""
    speed: float = NEVER
    """Milliseconds to an answer, as known when the visit began, by which those are ordered that rested as long; NEVER: not known. Of two
    as fast the one with the lower id comes first."""
    on: bool = True
    """No person has switched it off for this domain."""
    refusals: int = 0
    """Times in a row that the site refused it."""
    failures: int = 0
    """Times in a row that it did not get through, to this site: others it may reach."""
    suspect: bool = False
    """Another one got an answer where it got an error, and it has not got one since."""
    try_at: float = 0.0
    """After too many of either it may be tried once then."""
    rests_until: float = 0.0
    """The site has asked for this."""
    response_ms: float | None = None
    version: int = 0

    @property
    def order(self) -> _Order:
        """What comes first is used first."""
        return (not self.assigned, self.priority, self.used, self.speed, self.proxy_id)

    @property
    def off(self) -> bool:
        """It is only tried now and then."""
        return max(self.refusals, self.failures) >= NOT_CHOSEN

    def wait(self, now: float) -> float:
        """Seconds until it may be used here."""
        if not self.on:
            return NEVER
        return max(self.try_at - now if self.off else 0.0, self.rests_until - now, 0.0)

    def judge(self, verdict: Verdict, now: float, rests: Rests, *, probe: bool) -> None:
        """A request ended so. What is still under way when it goes off belongs to the same incident, and counts no more."""
        was_off = self.off
        if verdict is Verdict.SUCCESS:
            self.refusals = self.failures = 0
            self.suspect = False
        elif verdict is Verdict.ERROR:
            self.failures = 0
        elif verdict is Verdict.UNCLEAR or (was_off and not probe):
            return
        elif verdict is Verdict.REFUSED:
            self.refusals, self.failures = self.refusals + 1, 0
            self._rest(self.refusals, now, rests.refused_first, rests.refused_longest)
        else:
            self.failures += 1
            self._rest(self.failures, now, rests.first, rests.longest)

    def _rest(self, times: int, now: float, first: timedelta, longest: timedelta) -> None:
        pause = rest(times, first, longest)
        if pause is not None:
            self.try_at = now + pause.total_seconds()

    def answered(self, milliseconds: float) -> None:
        """It took so long."""
        self.response_ms = moving(self.response_ms, milliseconds)


class Choice(NamedTuple):
    """A proxy to use now, or how many seconds to wait for one; both None: the request goes without."""

    member: Member | None = None
    wait: float | None = None


class Pool:
    """The proxies of one domain in one visit."""

    def __init__(self, rules: ProxyRules, members: Iterable[Member], *, first: int = 0, now: float = 0.0) -> None:
        """`first`: where in the global pool it begins, so that not all domains begin with the same ones. A session of the visit before,
        by `now`, goes on."""
        self._rules = rules
        self._members: dict[int, Member] = {}
        self._order: list[_Order] = []
        self._place = first
        self._met: Sequence[Other] | None = None
        """A global pool in which there is nobody new."""
        self._kept: Member | None = None
        self._keep_until = 0.0
        self._set(members)
        latest = max(self._members.values(), key=lambda member: member.used, default=None)
        if rules.sticky is not None and latest is not None and now < latest.used + rules.sticky.total_seconds():
            self._kept, self._keep_until = latest, latest.used + rules.sticky.total_seconds()

    def _set(self, members: Iterable[Member]) -> None:
        self._members = {member.proxy_id: member for member in members}
        self._met = None
        self._order = sorted(member.order for member in self._members.values())

    def renew(self, members: Iterable[Member]) -> None:
        """These are the proxies by now. What is known of one stays, unless people have changed it since."""
        # Those that were taken from the global pool may not be in the store yet.
        renewed = {proxy_id: member for proxy_id, member in self._members.items() if not member.assigned}
        for member in members:
            before = self._members.get(member.proxy_id)
            if before is not None and before.version == member.version:
                before.country = member.country
                renewed[member.proxy_id] = before
            else:
                if before is not None:
                    member.used, member.rests_until = max(before.used, member.used), before.rests_until
                renewed[member.proxy_id] = member
        self._set(renewed.values())

    def choose(
        self,
        usable: Callable[[int], float],
        now: float,
        *,
        besides: Collection[int] = (),
        others: Sequence[Other] = (),
        suspects_first: bool = False,
    ) -> Choice:
        """What the next request goes through. `usable` knows in how many seconds a proxy can be used by anybody, 0: now, NEVER: it
        cannot; `besides` have been tried; `others` are all proxies there are, in case this domain may use them. `suspects_first`: one
        that is suspected wrongly can clear itself."""
        kept = self._kept_for(now)
        if kept is not None and kept.proxy_id not in besides and not self._wait(kept, usable, now):
            return Choice(kept)
        if suspects_first and (suspect := self._suspect(usable, now, besides)) is not None:
            return Choice(suspect)
        soonest, new_ones = NEVER, self._rules.use is Use.ANY
        for not_assigned, _, _, _, proxy_id in self._order:
            if new_ones and not_assigned:
                newcomer, wait = self._newcomer(usable, besides, others)
                if newcomer is not None:
                    return Choice(newcomer)
                soonest, new_ones = min(soonest, wait), False
            member = self._members[proxy_id]
            wait = self._wait(member, usable, now)
            if wait:
                soonest = min(soonest, wait)
            elif proxy_id not in besides:
                return Choice(member)
        if new_ones:
            newcomer, wait = self._newcomer(usable, besides, others)
            if newcomer is not None:
                return Choice(newcomer)
            soonest = min(soonest, wait)
        return Choice() if self._rules.direct else Choice(None, soonest)

    def _kept_for(self, now: float) -> Member | None:
        """The proxy of the present session, if there is one."""
        kept = self._kept
        is_there = kept is not None and now < self._keep_until and self._members.get(kept.proxy_id) is kept
        return kept if is_there else None

    def _suspect(self, usable: Callable[[int], float], now: float, besides: Collection[int]) -> Member | None:
        for member in self._members.values():
            if member.suspect and member.proxy_id not in besides and not self._wait(member, usable, now):
                return member
        return None

    def _newcomer(
        self, usable: Callable[[int], float], besides: Collection[int], others: Sequence[Other]
    ) -> tuple[Member | None, float]:
        """One of the global pool that this domain has never used; they come one after the other."""
        soonest, new_ones = NEVER, False
        if others is self._met:
            return None, NEVER
        for step in range(len(others)):
            place = (self._place + step) % len(others)
            proxy_id, country = others[place]
            if proxy_id in self._members or self._foreign(country):
                continue
            new_ones = True
            if proxy_id in besides:
                continue
            wait = usable(proxy_id)
            if not wait:
                self._place = place
                return Member(proxy_id, country, assigned=False, version=1), 0.0
            soonest = min(soonest, wait)
        self._met = None if new_ones else others
        return None, soonest

    def _wait(self, member: Member, usable: Callable[[int], float], now: float) -> float:
        if (not member.assigned and self._rules.use is not Use.ANY) or self._foreign(member.country):
            return NEVER
        return max(member.wait(now), usable(member.proxy_id))

    def _foreign(self, country: str | None) -> bool:
        return self._rules.country is not None and country != self._rules.country

    def suspect(self, proxy_id: int, *, is_one: bool) -> None:
        """Another proxy got an answer where it had got an error (`is_one`), or nothing."""
        if (member := self._members.get(proxy_id)) is not None:
            member.suspect = is_one

    def has(self, member: Member) -> bool:
        """Whether it is still as it was chosen: people may have changed the pool since."""
        there = self._members.get(member.proxy_id)
        return there is member or (there is None and not member.assigned)

    def used(self, member: Member, now: float, longest: float) -> bool:
        """It is used now, for at most so long: its next turn is after all others'. Whether this is to show if it can be used again.

        Before: the pool has it.
        """
        probe = member.off
        if probe:
            member.try_at = now + longest  # one at a time
        if member.proxy_id in self._members:
            del self._order[bisect_left(self._order, member.order)]
        member.used = now
        self._members[member.proxy_id] = member
        insort(self._order, member.order)
        sticky = self._rules.sticky
        if sticky is not None and (self._kept is not member or now >= self._keep_until):
            self._kept, self._keep_until = member, now + sticky.total_seconds()
        return probe
