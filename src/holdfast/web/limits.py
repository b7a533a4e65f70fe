"""How often somebody may ask: sliding windows, counted in Redis where there is one, and in the database otherwise.

The rule: the window is exact, and all processes of the API count together. Redis that is away costs nothing but its speed: the database
counts meanwhile.
"""

import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from limits import RateLimitItemPerSecond
from limits.errors import StorageError
from limits.storage import RedisStorage
from limits.strategies import MovingWindowRateLimiter

from holdfast.settings import Settings
from holdfast.store import rates
from holdfast.store.connect import Database
from holdfast.store.rates import Rate

log: Final = logging.getLogger(__name__)

_AWAY: Final = 10.0
"""Seconds for which Redis is left alone after it failed `_FAILURES` times in a row."""
_FAILURES: Final = 5
_REDIS_TIMEOUT: Final = 1.0
_REMEMBERED: Final = 10_000
"""Refusals that are remembered."""


@dataclass(frozen=True, slots=True)
class Tier:
    """So many requests in a window; its name is what the headers call it."""

    name: str
    most: int
    window: timedelta

    @property
    def seconds(self) -> int:
        """Of the window."""
        return max(1, round(self.window.total_seconds()))

    def standing(self, rate: Rate) -> "Standing":
        """What the database has counted."""
        span = self.window.total_seconds()
        reset = span if rate.oldest is None else rate.oldest.timestamp() + self.seconds - time.time()
        return Standing(self, rate.allowed, max(0, self.most - rate.used), min(max(0.0, reset), span))


@dataclass(frozen=True, slots=True)
class Standing:
    """Where somebody stands with a limit."""

    tier: Tier
    allowed: bool
    remaining: int
    reset: float
    """Seconds until the first request of the window counts no longer."""

    def headers(self) -> dict[str, str]:
        """The RateLimit headers of the IETF's draft."""
        name, seconds = self.tier.name, round(self.tier.window.total_seconds())
        return {
            "RateLimit-Policy": f'"{name}";q={self.tier.most};w={seconds}',
            "RateLimit": f'"{name}";r={self.remaining};t={max(0, round(self.reset))}',
        }


class Limiter:
    """Counts requests."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._redis = _redis(settings)
        self._lock = threading.Lock()
        self._failures = 0
        self._away_until = 0.0
        self._refusals: dict[tuple[str, str], tuple[float, Tier]] = {}
        """Until when, by tier and caller."""

    @property
    def is_local(self) -> bool:
        """The database counts, so that who looks somebody up there may have him counted at once."""
        return self._redis is None or time.monotonic() < self._away_until

    def hit(self, tier: Tier, who: str) -> Standing:
        """Count a request of somebody, if the tier has room for it."""
        standing = self._hit(tier, who)
        if not standing.allowed and standing.reset > 0:
            self._remember(tier, who, standing)
        return standing

    def refusal(self, tier: Tier, who: str) -> Standing | None:
        """The refusal that another request would get, as the last one did: the window has no room before its oldest request leaves it.
        A caller that goes on asking costs neither the database nor Redis anything. None: it has to be counted."""
        found = self._refusals.get((tier.name, who))
        left = 0.0 if found is None or found[1] != tier else found[0] - time.monotonic()
        return Standing(tier, allowed=False, remaining=0, reset=left) if left > 0 else None

    def _remember(self, tier: Tier, who: str, standing: Standing) -> None:
        with self._lock:
            refusals = self._refusals
            refusals.pop((tier.name, who), None)
            if len(refusals) >= _REMEMBERED:
                del refusals[next(iter(refusals))]
            refusals[tier.name, who] = time.monotonic() + standing.reset, tier

    def _hit(self, tier: Tier, who: str) -> Standing:
        redis = self._redis
        if redis is not None and not self.is_local:
            try:
                standing = _hit_redis(redis, tier, who)
            except StorageError as problem:
                self._failed(problem)
            else:
                self._failures = 0
                return standing
        with self._database.session() as connection:
            key = rates.key(tier.name, who, tier.most, tier.seconds)
            return tier.standing(rates.hit(connection, key, most=tier.most, span=timedelta(seconds=tier.seconds)))

    def redis_answers(self) -> bool | None:
        """Whether Redis does; None: there is none."""
        if self._redis is None:
            return None
        try:
            return bool(self._redis.storage.check())
        except Exception:  # noqa: BLE001 — whatever its client raises, the answer is no
            return False

    def _failed(self, problem: Exception) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._failures = 0
                self._away_until = time.monotonic() + _AWAY
                log.warning("Redis is away, the database counts requests for %.0f s: %s", _AWAY, problem)


def _redis(settings: Settings) -> MovingWindowRateLimiter | None:
    if settings.redis_url is None:
        return None
    options: dict[str, Any] = {
        "socket_timeout": _REDIS_TIMEOUT,
        "socket_connect_timeout": _REDIS_TIMEOUT,
        "wrap_exceptions": True,
        "key_prefix": "crawler:ratelimit",
    }
    address = settings.redis_url.get_secret_value()
    uri = address.replace("unix://", "redis+unix://", 1) if address.startswith("unix://") else address
    return MovingWindowRateLimiter(RedisStorage(uri, **options))


def _hit_redis(limiter: MovingWindowRateLimiter, tier: Tier, who: str) -> Standing:
    item = RateLimitItemPerSecond(tier.most, tier.seconds, namespace="holdfast")
    allowed = limiter.hit(item, tier.name, who)
    window = limiter.get_window_stats(item, tier.name, who)
    return Standing(
        tier,
        allowed,
        max(0, window.remaining),
        min(max(0.0, window.reset_time - time.time()), tier.window.total_seconds()),
    )
