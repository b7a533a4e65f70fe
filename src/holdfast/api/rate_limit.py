"""Rate limits: sliding windows, counted in Redis if it is configured, and in the database otherwise.

The rule: the window is exact, and all processes of the API count together. While Redis is unavailable the database
counts instead, only slower.
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

from holdfast.db import rate_limits
from holdfast.db.connection import Database
from holdfast.db.rate_limits import RateUsage
from holdfast.settings import Settings

log: Final = logging.getLogger(__name__)

_REDIS_PAUSE: Final = 10.0
"""Seconds without requests to Redis after it failed `_MAX_FAILURES` times in a row."""
_MAX_FAILURES: Final = 5
_REDIS_TIMEOUT: Final = 1.0
_MAX_REFUSALS: Final = 10_000
"""Callers over their limit that are remembered."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A number of requests in a window; its name is in the headers."""

    name: str
    requests: int
    window: timedelta

    @property
    def seconds(self) -> int:
        """The length of the window in whole seconds."""
        return max(1, round(self.window.total_seconds()))

    def status(self, rate: RateUsage) -> "RateLimitStatus":
        """The status after what the database has counted."""
        span = self.window.total_seconds()
        reset = span if rate.oldest is None else rate.oldest.timestamp() + self.seconds - time.time()
        return RateLimitStatus(self, rate.allowed, max(0, self.requests - rate.used), min(max(0.0, reset), span))


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """A caller's use of a rate limit."""

    rate_limit: RateLimit
    allowed: bool
    remaining: int
    reset: float
    """Seconds until the oldest request of the window no longer counts."""

    def headers(self) -> dict[str, str]:
        """The RateLimit headers of the IETF's draft."""
        name, seconds = self.rate_limit.name, round(self.rate_limit.window.total_seconds())
        return {
            "RateLimit-Policy": f'"{name}";q={self.rate_limit.requests};w={seconds}',
            "RateLimit": f'"{name}";r={self.remaining};t={max(0, round(self.reset))}',
        }


class RateLimiter:
    """Counts requests against rate limits."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._redis = _redis(settings)
        self._lock = threading.Lock()
        self._failures = 0
        self._redis_paused_until = 0.0
        self._refusals: dict[tuple[str, str], tuple[float, RateLimit]] = {}
        """The end of the refusal (monotonic clock) and its limit, by the name of the limit and the caller."""

    @property
    def counts_in_database(self) -> bool:
        """Whether the database counts now, so that authentication and counting can be one statement."""
        return self._redis is None or time.monotonic() < self._redis_paused_until

    def hit(self, rate_limit: RateLimit, caller: str) -> RateLimitStatus:
        """Count a request of the caller, if it is within the limit."""
        status = self._hit(rate_limit, caller)
        if not status.allowed and status.reset > 0:
            self._remember(rate_limit, caller, status)
        return status

    def known_refusal(self, rate_limit: RateLimit, caller: str) -> RateLimitStatus | None:
        """The refusal that another request would get, as the last one did: the window is full until its oldest
        request leaves it. A caller that repeats requests then costs neither the database nor Redis anything. None:
        the request has to be counted."""
        found = self._refusals.get((rate_limit.name, caller))
        left = 0.0 if found is None or found[1] != rate_limit else found[0] - time.monotonic()
        return RateLimitStatus(rate_limit, allowed=False, remaining=0, reset=left) if left > 0 else None

    def _remember(self, rate_limit: RateLimit, caller: str, status: RateLimitStatus) -> None:
        with self._lock:
            refusals = self._refusals
            refusals.pop((rate_limit.name, caller), None)
            if len(refusals) >= _MAX_REFUSALS:
                del refusals[next(iter(refusals))]
            refusals[rate_limit.name, caller] = time.monotonic() + status.reset, rate_limit

    def _hit(self, rate_limit: RateLimit, caller: str) -> RateLimitStatus:
        redis = self._redis
        if redis is not None and not self.counts_in_database:
            try:
                status = _hit_redis(redis, rate_limit, caller)
            except StorageError as problem:
                self._redis_failed(problem)
            else:
                self._failures = 0
                return status
        with self._database.session() as connection:
            key = rate_limits.key(rate_limit.name, caller, rate_limit.requests, rate_limit.seconds)
            return rate_limit.status(
                rate_limits.hit(
                    connection, key, limit=rate_limit.requests, window=timedelta(seconds=rate_limit.seconds)
                )
            )

    def redis_answers(self) -> bool | None:
        """Whether Redis answers; None: no Redis is configured."""
        if self._redis is None:
            return None
        try:
            return bool(self._redis.storage.check())
        except Exception:  # noqa: BLE001 — whatever its client raises, the answer is no
            return False

    def _redis_failed(self, problem: Exception) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= _MAX_FAILURES:
                self._failures = 0
                self._redis_paused_until = time.monotonic() + _REDIS_PAUSE
                log.warning("Redis is unavailable, the database counts requests for %.0f s: %s", _REDIS_PAUSE, problem)


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


def _hit_redis(limiter: MovingWindowRateLimiter, rate_limit: RateLimit, caller: str) -> RateLimitStatus:
    item = RateLimitItemPerSecond(rate_limit.requests, rate_limit.seconds, namespace="holdfast")
    allowed = limiter.hit(item, rate_limit.name, caller)
    window = limiter.get_window_stats(item, rate_limit.name, caller)
    return RateLimitStatus(
        rate_limit,
        allowed,
        max(0, window.remaining),
        min(max(0.0, window.reset_time - time.time()), rate_limit.window.total_seconds()),
    )
