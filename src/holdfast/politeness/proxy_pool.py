"""The proxy pool of a domain: which proxy its next request uses.

The rule: of the proxies that are usable now, the one with the highest priority; among equals the least recently used; among those the
faster one. The order is exact, since only the holder of a domain chooses for it. The global pool comes after the domain's own proxies.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.model.proxy import (
    PROBED_ONLY_AFTER,
    ProxyMode,
    ProxyPauses,
    ProxyRules,
    ProxyVerdict,
    moving_average,
    pause_after,
)

NEVER: Final = math.inf
GlobalProxy = tuple[int, str | None]
"""The id and the country of a proxy of the global pool."""
_Order = tuple[bool, int, float, float, int]


@dataclass(slots=True)
class PoolMember:
    """A proxy as one domain uses it. Times are seconds on the caller's clock."""

    proxy_id: int
    country: str | None = None
    priority: int = 5
    assigned: bool = True
    """False: it comes from the global pool, which is used after the domain's own proxies."""
    used: float = -NEVER
    """Time of its last use."""
    speed: float = NEVER
    """Milliseconds to an answer, as known at the start of the visit; orders members that were used at the same time. NEVER: unknown. Of two
    equally fast ones the one with the lower id comes first."""
    enabled: bool = True
    """False: an operator has switched it off for this domain."""
    refusals: int = 0
    """Refusals by the site in a row."""
    failures: int = 0
    """Failures in a row to reach this site; it may reach other sites."""
    suspect: bool = False
    """Another proxy got an answer where this one got an error, and it has had no success since."""
    probe_at: float = 0.0
    """After too many refusals or failures, the time of the next single probe."""
    paused_until: float = 0.0
    """The end of the pause that the site asked for (Retry-After)."""
    response_ms: float | None = None
    version: int = 0

    @property
    def order(self) -> _Order:
        """The sort key: the smallest is used first."""
        return (not self.assigned, self.priority, self.used, self.speed, self.proxy_id)

    @property
    def probed_only(self) -> bool:
        """Whether it has failed too often and only single probes use it."""
        return max(self.refusals, self.failures) >= PROBED_ONLY_AFTER

    def wait(self, now: float) -> float:
        """Seconds until this domain may use it."""
        if not self.enabled:
            return NEVER
        return max(self.probe_at - now if self.probed_only else 0.0, self.paused_until - now, 0.0)

    def record(self, verdict: ProxyVerdict, now: float, pauses: ProxyPauses, *, probe: bool) -> None:
        """Record the verdict on a request. Results of requests that were still running when it failed too often belong to the same incident
        and do not count."""
        was_probed_only = self.probed_only
        if verdict is ProxyVerdict.SUCCESS:
            self.refusals = self.failures = 0
            self.suspect = False
        elif verdict is ProxyVerdict.ERROR:
            self.failures = 0
        elif verdict is ProxyVerdict.UNCLEAR or (was_probed_only and not probe):
            return
        elif verdict is ProxyVerdict.REFUSED:
            self.refusals, self.failures = self.refusals + 1, 0
            self._set_pause(self.refusals, now, pauses.refused_first, pauses.refused_longest)
        else:
            self.failures += 1
            self._set_pause(self.failures, now, pauses.first, pauses.longest)

    def _set_pause(self, failures: int, now: float, first: timedelta, longest: timedelta) -> None:
        pause = pause_after(failures, first, longest)
        if pause is not None:
            self.probe_at = now + pause.total_seconds()

    def record_response_time(self, milliseconds: float) -> None:
        """Add a response time to the moving average."""
        self.response_ms = moving_average(self.response_ms, milliseconds)


class ProxyChoice(NamedTuple):
    """A proxy to use now, or the seconds to wait for one; both None: the request goes without a proxy."""

    member: PoolMember | None = None
    wait: float | None = None


class ProxyPool:
    """The proxies of one domain in one visit."""

    def __init__(self, rules: ProxyRules, members: Iterable[PoolMember], *, start: int = 0, now: float = 0.0) -> None:
        """`start`: the index in the global pool to begin at, so that not all domains begin with the same proxies. A sticky session of the
        previous visit that has not ended at `now` goes on."""
        self._rules = rules
        self._members: dict[int, PoolMember] = {}
        self._order: list[_Order] = []
        self._next_index = start
        self._exhausted: Sequence[GlobalProxy] | None = None
        """The last global pool in which no unused proxy was left."""
        self._sticky: PoolMember | None = None
        self._sticky_until = 0.0
        self._set(members)
        latest = max(self._members.values(), key=lambda member: member.used, default=None)
        if rules.sticky is not None and latest is not None and now < latest.used + rules.sticky.total_seconds():
            self._sticky, self._sticky_until = latest, latest.used + rules.sticky.total_seconds()

    def _set(self, members: Iterable[PoolMember]) -> None:
        self._members = {member.proxy_id: member for member in members}
        self._exhausted = None
        self._order = sorted(member.order for member in self._members.values())

    def renew(self, members: Iterable[PoolMember]) -> None:
        """Replace the members. The state of a member is kept unless an operator has changed it (its version differs)."""
        # Members taken from the global pool may not be in the store yet.
        renewed = {proxy_id: member for proxy_id, member in self._members.items() if not member.assigned}
        for member in members:
            before = self._members.get(member.proxy_id)
            if before is not None and before.version == member.version:
                before.country = member.country
                renewed[member.proxy_id] = before
            else:
                if before is not None:
                    member.used, member.paused_until = max(before.used, member.used), before.paused_until
                renewed[member.proxy_id] = member
        self._set(renewed.values())

    def choose(
        self,
        usable_in: Callable[[int], float],
        now: float,
        *,
        exclude: Collection[int] = (),
        global_pool: Sequence[GlobalProxy] = (),
        suspects_first: bool = False,
    ) -> ProxyChoice:
        """Choose the proxy of the next request.

        `usable_in` returns the seconds until a proxy is usable at all (0: now, NEVER: not at all); `exclude` holds the ids of proxies that
        were tried; `global_pool` holds all proxies, in case this domain may use them. `suspects_first`: prefer a suspect, so that it can
        clear itself.
        """
        sticky_member = self._sticky_member(now)
        if (
            sticky_member is not None
            and sticky_member.proxy_id not in exclude
            and not self._wait(sticky_member, usable_in, now)
        ):
            return ProxyChoice(sticky_member)
        if suspects_first and (suspect := self._suspect(usable_in, now, exclude)) is not None:
            return ProxyChoice(suspect)
        soonest, unused_left = NEVER, self._rules.use is ProxyMode.ANY
        for not_assigned, _, _, _, proxy_id in self._order:
            if unused_left and not_assigned:
                unused, wait = self._unused_global(usable_in, exclude, global_pool)
                if unused is not None:
                    return ProxyChoice(unused)
                soonest, unused_left = min(soonest, wait), False
            member = self._members[proxy_id]
            wait = self._wait(member, usable_in, now)
            if wait:
                soonest = min(soonest, wait)
            elif proxy_id not in exclude:
                return ProxyChoice(member)
        if unused_left:
            unused, wait = self._unused_global(usable_in, exclude, global_pool)
            if unused is not None:
                return ProxyChoice(unused)
            soonest = min(soonest, wait)
        return ProxyChoice() if self._rules.direct else ProxyChoice(None, soonest)

    def _sticky_member(self, now: float) -> PoolMember | None:
        """The proxy of the current sticky session, if there is one."""
        sticky_member = self._sticky
        is_valid = (
            sticky_member is not None
            and now < self._sticky_until
            and self._members.get(sticky_member.proxy_id) is sticky_member
        )
        return sticky_member if is_valid else None

    def _suspect(self, usable_in: Callable[[int], float], now: float, exclude: Collection[int]) -> PoolMember | None:
        for member in self._members.values():
            if member.suspect and member.proxy_id not in exclude and not self._wait(member, usable_in, now):
                return member
        return None

    def _unused_global(
        self, usable_in: Callable[[int], float], exclude: Collection[int], global_pool: Sequence[GlobalProxy]
    ) -> tuple[PoolMember | None, float]:
        """A proxy of the global pool that this domain has never used, in round-robin order, and the seconds until one is usable."""
        soonest, unused_left = NEVER, False
        if global_pool is self._exhausted:
            return None, NEVER
        for step in range(len(global_pool)):
            index = (self._next_index + step) % len(global_pool)
            proxy_id, country = global_pool[index]
            if proxy_id in self._members or self._wrong_country(country):
                continue
            unused_left = True
            if proxy_id in exclude:
                continue
            wait = usable_in(proxy_id)
            if not wait:
                self._next_index = index
                return PoolMember(proxy_id, country, assigned=False, version=1), 0.0
            soonest = min(soonest, wait)
        self._exhausted = None if unused_left else global_pool
        return None, soonest

    def _wait(self, member: PoolMember, usable_in: Callable[[int], float], now: float) -> float:
        if (not member.assigned and self._rules.use is not ProxyMode.ANY) or self._wrong_country(member.country):
            return NEVER
        return max(member.wait(now), usable_in(member.proxy_id))

    def _wrong_country(self, country: str | None) -> bool:
        return self._rules.country is not None and country != self._rules.country

    def set_suspect(self, proxy_id: int, *, suspected: bool) -> None:
        """Mark or unmark a proxy as suspect: another proxy got an answer where it had got an error."""
        if (member := self._members.get(proxy_id)) is not None:
            member.suspect = suspected

    def is_current(self, member: PoolMember) -> bool:
        """Whether a member is still as it was chosen: an operator may have changed the pool since."""
        current = self._members.get(member.proxy_id)
        return current is member or (current is None and not member.assigned)

    def mark_used(self, member: PoolMember, now: float, timeout: float) -> bool:
        """Record that a request uses the member now, for at most `timeout` seconds: its next turn is after all others. Returns whether this
        request is a probe.

        Before: the pool has the member.
        """
        probe = member.probed_only
        if probe:
            member.probe_at = now + timeout  # one probe at a time
        if member.proxy_id in self._members:
            del self._order[bisect_left(self._order, member.order)]
        member.used = now
        self._members[member.proxy_id] = member
        insort(self._order, member.order)
        sticky = self._rules.sticky
        if sticky is not None and (self._sticky is not member or now >= self._sticky_until):
            self._sticky, self._sticky_until = member, now + sticky.total_seconds()
        return probe
