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
from limits.storage import MovingWindowSupport, RedisStorage, Storage
from limits.strategies import MovingWindowRateLimiter

from holdfast.settings import Settings
from holdfast.store import rates
from holdfast.store.connect import Database

log: Final = logging.getLogger(__name__)

_AWAY: Final = 10.0
"""Seconds for which Redis is left alone after it failed `_FAILURES` times in a row."""
_FAILURES: Final = 5
_REDIS_TIMEOUT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Tier:
    """So many requests in a window; its name is what the headers call it."""

    name: str
    most: int
    window: timedelta


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


class DatabaseStorage(Storage, MovingWindowSupport):
    """The sliding windows of `limits`, kept in our database."""

    STORAGE_SCHEME = ["holdfast"]  # noqa: RUF012 — as its parent declares it

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last = threading.local()
        super().__init__()

    @property
    def base_exceptions(self) -> type[Exception]:
        """What a failure looks like."""
        return Exception

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count a hit if there is room for it."""
        rate = self._hit(key, limit, expiry, amount)
        self._last.seen = (key, rate)
        return rate.allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the first hit that counts was, and how many do. Right after a hit of the same thread, what that one saw."""
        last, rate = self._last.__dict__.pop("seen", (None, None))
        if rate is None or last != key:
            rate = self._hit(key, limit, expiry, 0)
        return (rate.oldest.timestamp() if rate.oldest else time.time(), rate.used)

    def _hit(self, key: str, limit: int, expiry: int, amount: int) -> rates.Rate:
        with self._database.session() as connection:
            return rates.hit(connection, key, most=limit, span=timedelta(seconds=expiry), amount=amount)

    def clear(self, key: str) -> None:
        """Forget a key."""
        with self._database.session() as connection:
            rates.forget(connection, key)

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Fixed windows are not kept."""
        raise NotImplementedError

    def get(self, key: str) -> int:
        """Fixed windows are not kept."""
        raise NotImplementedError

    def get_expiry(self, key: str) -> float:
        """Fixed windows are not kept."""
        raise NotImplementedError

    def check(self) -> bool:
        """Whether the database answers."""
        with self._database.session():
            return True

    def reset(self) -> int | None:
        """Nobody forgets all keys."""
        raise NotImplementedError


class Limiter:
    """Counts requests."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = MovingWindowRateLimiter(DatabaseStorage(database))
        self._redis = _redis(settings)
        self._lock = threading.Lock()
        self._failures = 0
        self._away_until = 0.0

    def hit(self, tier: Tier, who: str) -> Standing:
        """Count a request of somebody, if the tier has room for it."""
        redis = self._redis if time.monotonic() >= self._away_until else None
        if redis is not None:
            try:
                standing = _hit(redis, tier, who)
            except StorageError as problem:
                self._failed(problem)
            else:
                self._failures = 0
                return standing
        return _hit(self._database, tier, who)

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


def _hit(limiter: MovingWindowRateLimiter, tier: Tier, who: str) -> Standing:
    item = RateLimitItemPerSecond(tier.most, max(1, round(tier.window.total_seconds())), namespace="holdfast")
    allowed = limiter.hit(item, tier.name, who)
    window = limiter.get_window_stats(item, tier.name, who)
    return Standing(
        tier,
        allowed,
        max(0, window.remaining),
        min(max(0.0, window.reset_time - time.time()), tier.window.total_seconds()),
    )
