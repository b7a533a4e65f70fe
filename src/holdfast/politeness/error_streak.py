"""Streaks of refusals and failures: when a domain has refused or failed so often in a row that the visit ends.

The rule: refusals and missing answers are counted together, and the last one names the event; a proper answer breaks the streak. Redirects
and server errors neither add to it nor break it: they occur on the way to a refusal as well as on the way to a page. Errors of every kind
in a row are counted separately, for reports only; no decision depends on them.
"""

import re
from datetime import timedelta
from typing import Final

from holdfast.model.domain import UNREACHABLE_EVENTS, Event
from holdfast.model.outcome import STREAK_BREAKING, TREATMENT, Circuit, Outcome

MAX_LOGIN_WALLS: Final = 3
"""Login walls in a row that end a visit to a domain that never gave a proper answer. A domain that gave one may have a members' area with
many links, and ends by the long streak only."""

_LOGIN_PATH: Final = re.compile(
    r"/(?:wp-)?(?:login|log-in|log_in|signin|sign-in|sign_in|logon|log-on|sso|auth|oauth2?|authorize|authenticate|saml2?)"
    r"(?:\.[a-z]{2,5})?(?=[/;]|\Z)",
    re.IGNORECASE,
)
_LOGIN_HOST: Final = re.compile(r"https?://(?:login|signin|sso|auth|idp)\.[^/.]+\.", re.IGNORECASE)


class ErrorStreak:
    """Refusals and failures in a row on one domain, over its visits."""

    __slots__ = ("_answered", "_last", "_length", "_max_errors", "_refusals", "_walls", "answered", "errors")

    def __init__(self, max_errors: int, *, length: int = 0, errors: int = 0, had_pages: bool = False) -> None:
        """`length`, `errors`: the stored values; `had_pages`: the domain has given a page before."""
        self._max_errors = max_errors
        self._length = length
        self.errors = errors
        """Errors of every kind in a row, for the store."""
        self._answered = had_pages
        self.answered = False
        """This visit got a proper answer."""
        self._refusals = 0
        self._walls = 0
        self._last: Event | None = None

    @property
    def length(self) -> int:
        """Refusals and failures in a row, for the store."""
        return self._length

    def record(self, outcome: Outcome, *, logged: bool = True) -> Event | None:
        """Count `outcome`. Returns the event that ends the visit once there are too many in a row; else None.

        `logged`: the log has a row for it, which the total of errors counts; False for robots.txt.
        """
        event = TREATMENT[outcome].event
        if TREATMENT[outcome].error:
            self.errors += logged
        elif outcome in STREAK_BREAKING:
            self.errors = 0
        if event is None:
            if outcome in STREAK_BREAKING:
                self._length = self._walls = 0
                self._answered = self.answered = True
            return None
        self._refusals += 1
        self._length += 1
        self._last = event
        self._walls = self._walls + 1 if event is Event.LOGIN_REQUIRED else 0
        return event if self._length >= self._max_errors or self._login_walled() else None

    def final_event(self) -> Event | None:
        """The event of a visit that ends because no URL waits: the last one if every request ever was refused or failed, else None.

        Without it, a domain with fewer URLs than the streak needs would end as exhausted without a page (000 §8.1: "all 403: blocked").
        """
        return None if self._answered else self._last

    def _login_walled(self) -> bool:
        """Whether login walls end the visit: before the first proper answer, one is enough if it is the first refusal, else
        `MAX_LOGIN_WALLS`."""
        if self._answered:
            return False
        return self._walls >= MAX_LOGIN_WALLS or (self._walls == self._refusals == 1)


class VisitAnswers:
    """What the answers to the requests of one visit mean for its domain, and whether they end the visit."""

    def __init__(self, streak: ErrorStreak, *, keeps_status: bool = False) -> None:
        """`keeps_status`: the results of the visit do not change the status of the domain."""
        self.streak = streak
        self.keeps_status = keeps_status
        self.pages = 0
        """Pages since the last grant of a budget."""
        self.event: Event | None = None
        """Why the visit ends, with `detail`; None: the answers are no reason to end it."""
        self.detail = ""
        self.unreached: Event | None = None
        """Why the server could not be reached, if that was the last failure."""
        self.last_refusal = ""
        """Detail of the last request that was refused, or did not reach the server."""
        self.retry_after: timedelta | None = None

    def record(
        self, outcome: Outcome, detail: str = "", retry_after: timedelta | None = None, *, logged: bool = True
    ) -> None:
        """Record the answer to a request. `logged`: it is that of a page, not of a robots.txt."""
        treatment = TREATMENT[outcome]
        if treatment.page:
            self.pages += 1
        if retry_after is not None:
            self.retry_after = retry_after
        if treatment.event is not None:
            self.last_refusal = detail or str(outcome)
        if treatment.circuit is not Circuit.NOTHING:
            self.unreached = treatment.event if treatment.event in UNREACHABLE_EVENTS else None
        event = self.streak.record(outcome, logged=logged)
        if event is not None and self.event is None and not self.keeps_status:
            self.event, self.detail = event, f"{self.streak.length} in a row, the last: {self.last_refusal}"[:500]

    def record_unreachable(self, detail: str) -> None:
        """Record that not even robots.txt can be requested. After: if the visit has no page yet, it ends."""
        if not self.pages and self.event is None:
            self.event, self.detail = self.streak.final_event(), detail[:500]

    def record_all_denied(self) -> None:
        """Record that robots.txt denies everything. After: if the visit has no page yet, and may change the status, it ends."""
        if not self.keeps_status and not self.pages:
            self.event, self.detail = Event.ROBOTS_DENIED, "robots.txt denies everything"


def is_login_redirect(url: str, requested: str | None = None) -> bool:
    """Whether a redirect to `url` leads to a login page. It does not count if `requested`, the requested URL, is a login page itself."""
    if not _looks_like_login(url):
        return False
    return requested is None or not _looks_like_login(requested)


def _looks_like_login(url: str) -> bool:
    front = url.partition("?")[0].partition("#")[0]
    return bool(_LOGIN_PATH.search(front, max(front.find("/", 8), 8)) or _LOGIN_HOST.match(front))
