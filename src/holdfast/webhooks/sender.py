"""The sender of webhooks.

The rule: a message is taken from the store, and its result is recorded there; without a result it is sent again. Nothing is sent to an
address that is not public unless the settings allow it, and redirects are not followed.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.db.connection import Database
from holdfast.fetch.dns import Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.fetch.response import strip_controls
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.webhook import DeliveryDecision, NextStep, RetryPolicy, decide_delivery, delivery_request
from holdfast.settings import Settings
from holdfast.telemetry.clock import Clock, SystemClock
from holdfast.webhooks import queries
from holdfast.webhooks.queries import Attempt, Taken
from holdfast.webhooks.signing import Signing

log: Final = logging.getLogger(__name__)

SPARE: Final = 30.0
"""Seconds of a lease beyond the timeout of the receiver: to start, and to record the result."""
TIDY: Final = 3600.0
"""Seconds between two deletions of old messages."""
_MAX_RESPONSE: Final = 500
"""Characters of a response that are stored."""


@dataclass(slots=True)
class Sent:
    """The results of a sender, counted."""

    delivered: int = 0
    again: int = 0
    given_up: int = 0

    def count(self, what: NextStep) -> None:
        """Count one more attempt by its next step."""
        if what is NextStep.DELIVERED:
            self.delivered += 1
        elif what is NextStep.AGAIN:
            self.again += 1
        else:
            self.given_up += 1


class Sender:
    """Sends messages that are due. It is bound to the event loop in which it first sends."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        agent: str,
        *,
        patience: RetryPolicy | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._agent = agent
        self._signing = Signing.of(settings)
        self._patience = patience or RetryPolicy(attempts=settings.webhook.attempts)
        self._timeout = settings.webhook.timeout.total_seconds()
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()  # noqa: S311 — jitter, not secrets
        self._db_thread = DbThread(database, "webhooks")
        self._opened = AsyncExitStack()
        self._client: HttpClient | None = None
        self._busy = False
        self._tidy_at = 0.0

    async def deliver_due(self) -> Sent:
        """Send all messages that are due; return the results. A second call meanwhile returns at once: the first one sends.

        After: no attempt is under way, and all results are in the store; or the database is unavailable and the sender was closed,
        and the last messages are sent again.
        """
        sent = Sent()
        if self._busy:
            return sent
        self._busy = True
        try:
            if await self._db_thread.call(queries.any_due):
                await self._deliver(sent)
            if self._clock.now() >= self._tidy_at:
                await self._db_thread.call(queries.purge, older_than=self._settings.webhook.keep)
                self._tidy_at = self._clock.now() + TIDY
        except StoppedWaiting:
            log.warning("webhooks: stopped while the database is unavailable")
        finally:
            self._busy = False
        return sent

    async def aclose(self) -> None:
        """After: no connection is open, and a call that waits for the database has ended."""
        self._db_thread.give_up()
        await asyncio.to_thread(self._db_thread.close)
        await self._opened.aclose()

    async def _deliver(self, sent: Sent) -> None:
        secrets = [secret.encode() for secret in await asyncio.to_thread(self._signing.ensure)]
        client = await self._open()
        flying: set[asyncio.Task[None]] = set()
        try:
            while True:
                asked_at = self._clock.now()
                for taken in await self._take(self._settings.webhook.at_once - len(flying)):
                    flying.add(asyncio.create_task(self._send(client, taken, secrets, asked_at, sent)))
                if not flying:
                    return
                done, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
                for flight in done:
                    flight.result()
        finally:
            for flight in flying:
                flight.cancel()
            await asyncio.gather(*flying, return_exceptions=True)

    async def _open(self) -> HttpClient:
        if self._client is None:
            resolver = await self._opened.enter_async_context(Resolver(self._settings.fetch))
            self._client = await self._opened.enter_async_context(HttpClient(self._settings.fetch, resolver))
        return self._client

    async def _take(self, count: int) -> list[Taken]:
        lease = timedelta(seconds=self._timeout + SPARE)
        return await self._db_thread.call(queries.take, count=count, lease=lease, max_attempts=self._patience.attempts)

    async def _send(
        self, client: HttpClient, taken: Taken, secrets: Sequence[bytes], asked_at: float, sent: Sent
    ) -> None:
        """Make one attempt. A fault of ours costs this message, not the others: it is sent again when its lease is over."""
        if self._clock.now() - asked_at > SPARE / 2:
            log.warning(
                "message %d: taken too long ago to be sent now", taken.id
            )  # this process was frozen; another one may have taken it
            return
        try:
            wire = delivery_request(
                taken.url,
                taken.message,
                secrets,
                datetime.now(UTC),
                user_agent=self._agent,
                allow_private=self._settings.fetch.allow_private,
            )
            wire.timeout = self._timeout
            result = await client.fetch(wire)
            follows = decide_delivery(result, taken.number, self._chance.random(), self._patience)
            attempt = Attempt(
                follows.next, follows.wait, result.status, _error(result), _rest(result, follows, self._patience)
            )
            if await self._db_thread.call(queries.record, taken, attempt):
                sent.count(follows.next)
        except StoppedWaiting:
            raise
        except Exception:
            log.exception("message %d could not be sent", taken.id)


def _error(result: FetchResult) -> str | None:
    """Return why a message was not accepted, as text; None: it was."""
    if result.status is None:
        return f"{result.outcome}: {result.detail}" if result.detail else str(result.outcome)
    if 200 <= result.status < 300:
        return None
    if result.outcome is Outcome.REDIRECT:
        return f"HTTP {result.status}: it points to {strip_controls(result.redirect or '')[:_MAX_RESPONSE]}, and redirects are not followed"
    said = strip_controls(result.body[: 4 * _MAX_RESPONSE].decode("utf-8", "replace"))[:_MAX_RESPONSE]
    return f"HTTP {result.status}: {said}" if said else f"HTTP {result.status}"


def _rest(result: FetchResult, follows: DeliveryDecision, patience: RetryPolicy) -> timedelta | None:
    """Return how long nothing more is sent to the receiver. One that answers with an error is fast, and may accept the next message."""
    if follows.wait is None:
        return None
    if result.retry_after is not None:
        return min(result.retry_after, follows.wait)
    return patience.first if result.status is None else None
