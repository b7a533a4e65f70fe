"""The outcomes of URLs and their consequences.

The rule: every end of a fetch, and every URL that is not fetched, is one `Outcome`, and `TREATMENT` has its consequences for the URL, the
domain's circuit and status, and the proxy that was used. The table is data and total; nothing else decides.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.model.domain import Event
from holdfast.model.proxy import ProxyVerdict


class Outcome(StrEnum):
    """The outcome of a request, or the reason why a URL was not requested."""

    # an answer that is a page
    OK = "ok"
    NOT_MODIFIED = "not_modified"
    # an answer that is not a page
    SITEMAP = "sitemap"
    """A sitemap or a feed, which lists URLs."""
    NO_SITEMAP = "no_sitemap"
    """There is none where sitemaps are by custom."""
    IMAGE = "image"
    CHECKED = "checked"
    """What a link out of scope leads to is there."""
    BAD_IMAGE = "bad_image"
    """What the URL of an image led to is none, or is too large, damaged or too costly to decode."""
    REDIRECT = "redirect"
    REDIRECT_LOOP = "redirect_loop"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    NOT_FOUND = "not_found"
    CLIENT_ERROR = "client_error"
    LOGIN_WALL = "login_wall"
    FORBIDDEN = "forbidden"
    CAPTCHA = "captcha"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    SERVER_ERROR = "server_error"
    WRONG_TYPE = "wrong_type"
    TOO_LARGE = "too_large"
    BAD_ENCODING = "bad_encoding"
    BAD_RESPONSE = "bad_response"
    # no answer
    DNS_FAILURE = "dns_failure"
    NO_SUCH_HOST = "no_such_host"
    CONNECTION_FAILED = "connection_failed"
    CONNECTION_BROKEN = "connection_broken"
    """A reused connection broke, for the first time in a row: the URL is requested again in its turn."""
    GIVEN_UP = "given_up"
    """We cancelled it before its answer was processed (its job was paused, the worker stopped): the URL waits as before."""
    TLS_FAILURE = "tls_failure"
    TIMEOUT = "timeout"
    TOO_SLOW = "too_slow"
    ADDRESS_REFUSED = "address_refused"
    NO_HTTPS = "no_https"
    """No scheme was given, https was tried, and the server does not speak TLS: the same URL over http replaces it."""
    PROXY_FAILED = "proxy_failed"
    PROXY_UNCLEAR = "proxy_unclear"
    # not requested
    ROBOTS_DENIED = "robots_denied"
    OUT_OF_SCOPE = "out_of_scope"
    EXCLUDED = "excluded"
    TOO_DEEP = "too_deep"
    TRAP = "trap"
    URL_REFUSED = "url_refused"
    NOFOLLOW = "nofollow"
    IMAGE_LIMIT = "image_limit"
    """The job has as many images of this host as it may have."""
    CHECK_LIMIT = "check_limit"
    """The job has checked as many links to this host as it may."""
    FOLDED = "folded"
    PAGINATION = "pagination"
    OTHER_DOMAIN = "other_domain"


class UrlState(StrEnum):
    """The state of a URL in the frontier."""

    WAITING = "waiting"
    DONE = "done"
    DENIED = "denied"
    FAILED = "failed"


class Circuit(StrEnum):
    """The meaning of an outcome for the circuit breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    NOTHING = "nothing"


class Treatment(NamedTuple):
    """The consequences of an outcome."""

    state: UrlState
    """The state of the URL when no attempt is left or none is due."""
    retry: bool = False
    """Another attempt is made later."""
    page: bool = False
    """Counts as a page: in counters, budgets and the log."""
    error: bool = False
    """Counts as an error of the domain."""
    circuit: Circuit = Circuit.NOTHING
    back_off: bool = False
    """The server asks for less: one step of back-off an incident."""
    event: Event | None = None
    """The event that ends the visit after too many of these in a row."""
    verdict: ProxyVerdict = ProxyVerdict.ERROR
    """The verdict on the proxy that was used."""


_ANSWERED: Final = Treatment(UrlState.DONE, circuit=Circuit.SUCCESS, verdict=ProxyVerdict.SUCCESS)
_ODD: Final = Treatment(UrlState.FAILED, error=True)
_DENIED: Final = Treatment(UrlState.DENIED)


def _blocking(event: Event, *, retry: bool, verdict: ProxyVerdict = ProxyVerdict.REFUSED) -> Treatment:
    return Treatment(
        UrlState.FAILED,
        retry=retry,
        error=True,
        circuit=Circuit.FAILURE if retry else Circuit.NOTHING,
        back_off=retry,
        event=event,
        verdict=verdict,
    )


def _unreachable(event: Event) -> Treatment:
    return Treatment(UrlState.FAILED, retry=True, error=True, circuit=Circuit.FAILURE, event=event)


TREATMENT: Final[dict[Outcome, Treatment]] = {
    Outcome.OK: _ANSWERED._replace(page=True),
    Outcome.NOT_MODIFIED: _ANSWERED._replace(page=True),
    Outcome.SITEMAP: _ANSWERED,
    Outcome.NO_SITEMAP: Treatment(UrlState.DONE, verdict=ProxyVerdict.SUCCESS),
    Outcome.IMAGE: _ANSWERED,
    Outcome.CHECKED: _ANSWERED,
    Outcome.BAD_IMAGE: _ANSWERED,
    Outcome.REDIRECT: _ANSWERED,
    Outcome.REDIRECT_LOOP: _ANSWERED._replace(state=UrlState.FAILED),
    Outcome.TOO_MANY_REDIRECTS: _ANSWERED._replace(state=UrlState.FAILED),
    Outcome.NOT_FOUND: _ANSWERED,
    Outcome.CLIENT_ERROR: _ANSWERED._replace(state=UrlState.FAILED, error=True),
    Outcome.LOGIN_WALL: _blocking(Event.LOGIN_REQUIRED, retry=False, verdict=ProxyVerdict.ERROR),
    Outcome.FORBIDDEN: _blocking(Event.FORBIDDEN, retry=False),
    Outcome.CAPTCHA: _blocking(Event.FORBIDDEN, retry=False),
    Outcome.RATE_LIMITED: _blocking(Event.RATE_LIMITED, retry=True),
    Outcome.UNAVAILABLE: _blocking(Event.UNAVAILABLE, retry=True, verdict=ProxyVerdict.ERROR),
    Outcome.SERVER_ERROR: Treatment(UrlState.FAILED, retry=True, error=True, circuit=Circuit.FAILURE),
    Outcome.WRONG_TYPE: _ANSWERED,
    Outcome.TOO_LARGE: _ODD,
    Outcome.BAD_ENCODING: _ODD,
    Outcome.BAD_RESPONSE: Treatment(UrlState.FAILED, retry=True, error=True, circuit=Circuit.FAILURE),
    Outcome.DNS_FAILURE: _unreachable(Event.DNS_FAILURE),
    Outcome.NO_SUCH_HOST: _unreachable(Event.DNS_FAILURE),
    Outcome.CONNECTION_FAILED: _unreachable(Event.CONNECTION_FAILED),
    Outcome.CONNECTION_BROKEN: Treatment(UrlState.FAILED),
    Outcome.GIVEN_UP: Treatment(UrlState.FAILED),
    Outcome.TLS_FAILURE: _unreachable(Event.TLS_FAILURE),
    Outcome.TIMEOUT: _unreachable(Event.TIMEOUT),
    Outcome.TOO_SLOW: Treatment(UrlState.FAILED, retry=True, error=True, circuit=Circuit.FAILURE),
    Outcome.ADDRESS_REFUSED: _ODD,
    Outcome.NO_HTTPS: _DENIED,
    # These do not count against the site, and the URL is retried through another proxy. The second may be an error of proxy or site.
    Outcome.PROXY_FAILED: Treatment(UrlState.FAILED, verdict=ProxyVerdict.FAILED),
    Outcome.PROXY_UNCLEAR: Treatment(UrlState.FAILED),
    Outcome.ROBOTS_DENIED: _DENIED,
    Outcome.OUT_OF_SCOPE: _DENIED,
    Outcome.EXCLUDED: _DENIED,
    Outcome.TOO_DEEP: _DENIED,
    Outcome.TRAP: _DENIED,
    Outcome.URL_REFUSED: _DENIED,
    Outcome.IMAGE_LIMIT: _DENIED,
    Outcome.CHECK_LIMIT: _DENIED,
    Outcome.NOFOLLOW: _DENIED,
    Outcome.FOLDED: _DENIED,
    Outcome.PAGINATION: _DENIED,
    Outcome.OTHER_DOMAIN: _DENIED,
}
NOT_AN_ATTEMPT: Final = frozenset(
    (Outcome.CONNECTION_BROKEN, Outcome.GIVEN_UP, Outcome.PROXY_FAILED, Outcome.PROXY_UNCLEAR)
)
"""Outcomes that do not count as an attempt on the site."""
JUDGED_AT_LINK: Final = frozenset(
    (
        Outcome.OUT_OF_SCOPE,
        Outcome.EXCLUDED,
        Outcome.TOO_DEEP,
        Outcome.TRAP,
        Outcome.URL_REFUSED,
        Outcome.NOFOLLOW,
        Outcome.PAGINATION,
    )
)
"""Outcomes of links that are denied where they are found. Another link to the same URL may be judged differently, and then the URL
waits."""
REFUSED: Final = frozenset(outcome for outcome, treatment in TREATMENT.items() if treatment.event is not None)
"""Outcomes that add to the streak that stops a domain."""
STREAK_BREAKING: Final = frozenset(
    outcome
    for outcome, treatment in TREATMENT.items()
    if treatment.circuit is Circuit.SUCCESS and outcome is not Outcome.REDIRECT
)
"""Proper answers, which break that streak. A redirect neither adds to it nor breaks it."""
PAGES: Final = frozenset(outcome for outcome, treatment in TREATMENT.items() if treatment.page)
