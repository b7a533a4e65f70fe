"""How exact the limits of the API are: how many of a burst pass, at several speeds, beside how many may.

Two processes of the API count together, with the limits as they are by default. Every burst is somebody else's: a new user, or another
address of 127.0.0.0/8, all of which Linux has on its loopback.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks.api_client import Answer, Api, until
from benchmarks.api_server import Served, serving
from holdfast.model.auth import Role
from holdfast.settings import Web

RATES = (20.0, 100.0, 0.0)
"""Requests a second; 0: all at once."""
OVER = 1.3
"""How many more are sent than may pass."""
WINDOWS = 2.2
"""How many windows the steady stream lasts."""


@dataclass(frozen=True)
class Tier:
    """A limit, and how it is met."""

    name: str
    most: int
    role: Role | None
    method: str = "GET"
    path: str = "/api/auth/me"
    body: object | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A request."""

    at: float
    answered: float
    passed: bool
    status: int


def tiers(web: Web) -> list[Tier]:
    """The limits as they are by default."""
    return [
        Tier("anonymous", web.anonymous_limit, None, path="/api/stats"),
        Tier("user", web.user_limit, Role.USER),
        Tier("admin", web.admin_limit, Role.ADMIN),
        Tier("seed", web.seed_limit, Role.ADMIN, "POST", "/api/frontier/seed", {"urls": ["http://s0.localhost/"]}),
    ]


def bench() -> list[dict[str, Any]]:
    """All tiers at all speeds."""
    web = Web()
    window = web.window.total_seconds()
    print(f"\nLimits: as they are by default, in {window:.0f} s; two processes of the API")
    print(f"{'limit':<12}{'of':>6}{'speed':>12}{'sent':>7}{'passed':>8}{'off by':>8}   other answers")
    with serving("--api-only", "--workers", "2") as served:
        someone = Somebody(served)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(bursts(someone, web, window))
            print(f"\nA steady stream for {WINDOWS} windows: the most that passed within any {window:.0f} s")
            print(f"{'limit':<12}{'of':>6}{'speed':>12}{'sent':>7}{'passed':>8}{'most in a window':>18}")
            found += runner.run(streams(someone, web, window))
    return found


class Somebody:
    """Makes up people who have not asked for anything yet."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._count = 0

    def new(self, role: Role | None) -> Api:
        """A new user, or another address."""
        self._count += 1
        if role is None:
            return Api(self._served.port, None, address=f"127.0.1.{self._count}")
        return Api(self._served.port, self._served.token(f"somebody-{self._count}", role))


async def bursts(someone: Somebody, web: Web, window: float) -> list[dict[str, Any]]:
    """So many more than may pass, at each speed, within a window."""
    found = []
    for tier in tiers(web):
        for rate in RATES:
            count = max(tier.most + 5, round(tier.most * OVER))
            if rate and count / rate > 0.8 * window:
                continue
            sent = await stream(someone.new(tier.role), tier, count, rate)
            passed = sum(one.passed for one in sent)
            speed = f"{rate:.0f}/s" if rate else "at once"
            others = {one.status for one in sent} - {200, 429}
            print(
                f"{tier.name:<12}{tier.most:>6}{speed:>12}{count:>7}{passed:>8}{passed - tier.most:>+8}   {others or ''}",
                flush=True,
            )
            found.append({"tier": tier.name, "most": tier.most, "rate": rate, "sent": count, "passed": passed})
    return found


async def streams(someone: Somebody, web: Web, window: float) -> list[dict[str, Any]]:
    """Faster than may be, for longer than a window, all tiers at the same time."""
    seconds = WINDOWS * window

    async def one(tier: Tier) -> dict[str, Any]:
        rate = 2 * tier.most / window
        sent = await stream(someone.new(tier.role), tier, round(rate * seconds), rate)
        passed = [each for each in sent if each.passed]
        most = crowded(passed, window)
        print(f"{tier.name:<12}{tier.most:>6}{f'{rate:.1f}/s':>12}{len(sent):>7}{len(passed):>8}{most:>18}", flush=True)
        return {
            "tier": tier.name,
            "most": tier.most,
            "rate": rate,
            "sent": len(sent),
            "passed": len(passed),
            "in_a_window": most,
        }

    return list(await asyncio.gather(*map(one, tiers(web))))


async def stream(api: Api, tier: Tier, count: int, rate: float) -> list[Sent]:
    """So many requests at this speed."""
    request = api.request(tier.method, tier.path, tier.body)
    began = time.monotonic()

    async def one(number: int) -> Sent:
        await until(began + number / rate if rate else began)
        at = time.monotonic()
        answer: Answer = await api.ask(request)
        return Sent(at, time.monotonic(), answer.status != 429, answer.status)

    try:
        return list(await asyncio.gather(*(one(number) for number in range(count))))
    finally:
        api.close()


def crowded(passed: Sequence[Sent], window: float) -> int:
    """The most of them that were all counted within one window: sent after its beginning and answered before its end."""
    found = 0
    for first in passed:
        found = max(found, sum(first.at <= each.at and each.answered < first.at + window for each in passed))
    return found
