"""The sentences of explanations: why a URL was not crawled, what changes that, why a domain waits, and until when.

The rule: the end of a crawl, `explain`, `jobs show`, `status` and the live display have the same sentences. All functions are pure.
`REASONS` has an entry for every outcome and for every other reason that the frontier stores.
"""

import re
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any, Final, NamedTuple

from holdfast.model.activity import VisitWait, WaitCondition, WaitKind
from holdfast.model.commit_batch import Resource
from holdfast.model.content_type import group_of, media_type
from holdfast.model.domain import Event, Status
from holdfast.model.maintenance_window import closed_until
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyMode
from holdfast.model.url_reason import CLEARED, FAULT, FAULT_TEXT, ROBOTS_UNAVAILABLE, SITEMAP_TEXT
from holdfast.proxies.records import PoolState


class Reason(NamedTuple):
    """A reason why a URL was not crawled, or what its request ended with."""

    label: str
    """A few words after a number: "3 URLs too deep"."""
    meaning: str
    """In the middle of a sentence about the URL ("it …")."""
    change: str | None = None
    """The option or setting that changes it; None: no option does."""
    cause: str = "{url} could not be fetched"
    """The sentence, without its end, where this reason kept a job from getting any page. Has {url}, {host} and {detail}."""
    step: str = "Run the same command again, with `--again`."
    """What to do then."""


_ALLOW_PRIVATE: Final = "`--allow-private`"
_NO_ROBOTS: Final = "`--no-robots`, for your own sites only"
_AGAIN: Final = "`--again` tries once more"
_SAME_COMMAND: Final = "the same command tries again"
_CHECK_URL: Final = "Check the URL, or crawl another page of the site."

REASONS: Final[dict[str, Reason]] = {
    Outcome.OK: Reason("pages", "it was fetched, and is a page"),
    Outcome.NOT_MODIFIED: Reason("unchanged pages", "it has not changed since the time before"),
    Outcome.IMAGE: Reason("images", "it is an image, and is stored"),
    Outcome.BAD_IMAGE: Reason(
        "that are no image, or none that can be stored", "what it led to is no image, or none that can be stored"
    ),
    Outcome.IMAGE_LIMIT: Reason(
        "images beyond the limit of their host",
        "the job has as many images of this host as it may have",
        "`images.max_per_host`",
    ),
    Outcome.CHECKED: Reason("checked links", "it is out of scope; the links to it work"),
    Outcome.CHECK_LIMIT: Reason(
        "links beyond those that are checked of a host",
        "the job has checked as many links to this host as it may",
        "`crawl.checks_per_host`",
    ),
    Outcome.SITEMAP: Reason("sitemaps and feeds", "it is a sitemap or a feed, and was read"),
    Outcome.NO_SITEMAP: Reason(
        "sitemaps looked for in vain", "nothing names a sitemap of this host, and there is none at this address"
    ),
    Outcome.REDIRECT: Reason(
        "redirects; each target is a URL of its own",
        "it redirects; its target is a URL of its own",
        cause="{url} redirects to {detail}, which could not be fetched",
        step="Crawl the URL that it redirects to.",
    ),
    Outcome.NO_HTTPS: Reason(
        "without TLS; http is crawled instead",
        "no scheme was given and nothing speaks TLS there, so the same URL over http is crawled instead",
        cause="{host} does not speak TLS, and could not be fetched over http",
        step="Check the host and the port, then run the same command again.",
    ),
    Outcome.REDIRECT_LOOP: Reason(
        "redirected in a circle",
        "it redirects to where it came from",
        cause="{url} redirects in a circle",
        step="Open it in a browser: a site that sets a cookie first may need `--cookie`.",
    ),
    Outcome.TOO_MANY_REDIRECTS: Reason(
        "after too many redirects",
        "too many redirects in a row led here (`fetch.max_redirects`)",
        "`fetch.max_redirects`",
        "{url} comes after more redirects in a row than `fetch.max_redirects` allows",
        "Open it in a browser: a site that sets a cookie first may need `--cookie`.",
    ),
    Outcome.NOT_FOUND: Reason(
        "not found (404 or 410)",
        "the server has no such page",
        cause="the server has no page {url} ({detail})",
        step=_CHECK_URL,
    ),
    Outcome.CLIENT_ERROR: Reason(
        "refused as a bad request (4xx)",
        "the server refused the request as wrong",
        cause="the server refused {url} ({detail})",
        step=_CHECK_URL,
    ),
    Outcome.LOGIN_WALL: Reason(
        "behind a login",
        "it asks for a login",
        "`--cookie`, `--header` or `--basic-auth`",
        "{url} asks for a login",
        "Log in with `--cookie`, `--header` or `--basic-auth`.",
    ),
    Outcome.FORBIDDEN: Reason(
        "forbidden (403)",
        "the server forbids it (403)",
        cause="{host} forbids {url} (403)",
        step="Open it in a browser. If it opens there, ask the operator of the site to let this crawler in.",
    ),
    Outcome.CAPTCHA: Reason(
        "behind a captcha",
        "the site asks whether we are human",
        cause="{url} asks for a captcha",
        step="Ask the operator of the site to let this crawler in.",
    ),
    Outcome.RATE_LIMITED: Reason(
        "refused as too many requests (429)",
        "the server asked for fewer requests (429)",
        "`--delay`",
        "{host} asks for fewer requests (429)",
        "Wait, and run the same command again with a longer `--delay`.",
    ),
    Outcome.UNAVAILABLE: Reason(
        "not available (503)",
        "the server said that it is not available now (503)",
        _AGAIN,
        "{host} says that it is not available (503)",
    ),
    Outcome.SERVER_ERROR: Reason(
        "server errors (5xx)",
        "the server failed",
        _AGAIN,
        "{host} answered {url} with an error of its own ({detail})",
    ),
    Outcome.WRONG_TYPE: Reason(
        "not HTML",
        "its content is of a type that is not read",
        cause="{url} is not a web page ({detail})",
        step="Only HTML, plain text and what `--types` names are crawled: crawl a page that links to it.",
    ),
    Outcome.TOO_LARGE: Reason(
        "too large",
        "it is longer than `fetch.max_bytes`",
        "`fetch.max_bytes`",
        "{url} is longer than `fetch.max_bytes`",
        "Raise `fetch.max_bytes` and run the same command with `--again`.",
    ),
    Outcome.BAD_ENCODING: Reason(
        "that cannot be decompressed",
        "its content cannot be unpacked",
        cause="the content of {url} cannot be decompressed ({detail})",
    ),
    Outcome.BAD_RESPONSE: Reason(
        "with a broken answer",
        "the answer is not HTTP, or broke off",
        _AGAIN,
        "the answer to {url} is not HTTP, or broke off ({detail})",
        "Check the scheme and the port of the URL.",
    ),
    Outcome.DNS_FAILURE: Reason(
        "of hosts whose name server does not answer",
        "the name server did not answer",
        _SAME_COMMAND,
        "the name server did not answer for {host}",
        "Check the network of this machine, then run the same command again.",
    ),
    Outcome.NO_SUCH_HOST: Reason(
        "of hosts that do not exist",
        "the host's name is not known",
        cause="there is no host called {host}",
        step="Check the name.",
    ),
    Outcome.CONNECTION_FAILED: Reason(
        "without a connection",
        "no connection could be made",
        _SAME_COMMAND,
        "{host} cannot be connected to ({detail})",
        "Check that the server runs, then run the same command again.",
    ),
    Outcome.CONNECTION_BROKEN: Reason(
        "on a kept connection that broke",
        "the server closed a connection that was kept open; the URL is asked for again in its turn",
        _AGAIN,
        "{host} closed a connection that was kept open ({detail})",
        "Run the same command again.",
    ),
    Outcome.GIVEN_UP: Reason(
        "given up while they were on their way",
        "the job was paused or the worker stopped before the answer was there; the URL is asked for again in its turn",
        _SAME_COMMAND,
        "the request to {host} was given up ({detail})",
        "Run the same command again.",
    ),
    Outcome.TLS_FAILURE: Reason(
        "without a secure connection (TLS)",
        "no secure connection could be made",
        _SAME_COMMAND,
        "{host} offers no secure connection ({detail})",
        "Check the certificate of the server, or its scheme: perhaps it speaks http only.",
    ),
    Outcome.TIMEOUT: Reason(
        "without an answer in time",
        "it took longer than `fetch.timeout`",
        "`fetch.timeout`",
        "{host} did not answer in time",
        "Run the same command again, or raise `fetch.timeout`.",
    ),
    Outcome.TOO_SLOW: Reason(
        "with too slow an answer",
        "the answer came slower than `fetch.min_rate`",
        "`fetch.min_rate`",
        "{host} answers more slowly than `fetch.min_rate`",
        "Lower `fetch.min_rate` and run the same command again.",
    ),
    Outcome.ADDRESS_REFUSED: Reason(
        "at a private address",
        "its address is not of the public internet (`fetch.allow_private`)",
        _ALLOW_PRIVATE,
        "the address of {host} is private ({detail})",
        "To crawl it all the same, run the same command with `--allow-private`.",
    ),
    Outcome.PROXY_FAILED: Reason(
        "through a proxy that failed",
        "the proxy that it went through failed; it is tried through another one",
        "`holdfast proxies`",
        "no proxy could be used for {host} ({detail})",
        "`holdfast proxies list` shows how they are.",
    ),
    Outcome.PROXY_UNCLEAR: Reason(
        "failed by the proxy or the site",
        "it was an error of the proxy or of the site; it is tried through another one",
        "`holdfast proxies`",
        "the request through a proxy to {host} failed ({detail})",
        "`holdfast proxies list` shows how they are.",
    ),
    Outcome.ROBOTS_DENIED: Reason(
        "denied by robots.txt",
        "robots.txt denies it",
        _NO_ROBOTS,
        "robots.txt of {host} denies {url} ({detail})",
        "Crawl what it allows; on your own site, `--no-robots` ignores it.",
    ),
    Outcome.OUT_OF_SCOPE: Reason(
        "out of scope",
        "it is outside of the job's scope",
        "`--scope domain` or `--scope any`",
        "{url} is out of scope ({detail})",
        "`--scope domain` or `--scope any` takes more in, or crawl that URL.",
    ),
    Outcome.EXCLUDED: Reason(
        "excluded",
        "the job's patterns leave it out",
        "`--include`, `--exclude`",
        "{url} is excluded ({detail})",
        "Change `--include` or `--exclude`.",
    ),
    Outcome.TOO_DEEP: Reason(
        "too deep",
        "it is farther from a seed than the job goes",
        "`--max-depth`",
        "{url} is too deep ({detail})",
        "Raise `--max-depth`.",
    ),
    Outcome.TRAP: Reason(
        "of an endless pattern",
        "it looks like one of URLs without end",
        cause="{url} looks endless ({detail})",
        step="Crawl another page of the site.",
    ),
    Outcome.URL_REFUSED: Reason(
        "that are no URLs to crawl (mailto:, javascript:, …)",
        "it is no URL that can be visited",
        cause="{url} is no URL that can be crawled ({detail})",
        step=_CHECK_URL,
    ),
    Outcome.NOFOLLOW: Reason(
        "only linked with nofollow",
        "the link or the page says nofollow, so it is not followed",
        "`holdfast crawl` with such a URL crawls it",
        "{url} is only linked with nofollow",
        "Crawl that URL itself.",
    ),
    Outcome.FOLDED: Reason(
        "folded into a shorter URL",
        "it is crawled under a shorter URL, without some of its parameters",
        "`--strip-param`, or `strip_params` of the domain",
    ),
    Outcome.PAGINATION: Reason(
        "after too many steps of a pagination",
        "it comes after more steps of a pagination than `crawl.max_pagination`",
        "`crawl.max_pagination`",
        "{url} comes after too many steps of a pagination ({detail})",
        "Crawl that URL itself.",
    ),
    Outcome.OTHER_DOMAIN: Reason(
        "crawled with their own domain",
        "it belongs to another domain, and is crawled there",
    ),
    ROBOTS_UNAVAILABLE: Reason(
        "waiting for robots.txt",
        "robots.txt could not be fetched, and is asked for again",
        _NO_ROBOTS,
        "robots.txt of {host} could not be fetched",
    ),
    FAULT: Reason(
        "that a fault of Holdfast kept from being crawled",
        "a fault of Holdfast kept it from being crawled",
        _AGAIN,
        "a fault of Holdfast kept {url} from being crawled ({detail})",
        "`.holdfast/logs` says more; please report it.",
    ),
    CLEARED: Reason(
        "cleared from the queue",
        "it was cleared from the queue by a person",
        _AGAIN,
    ),
}
"""Every reason that the frontier stores, by its first word."""

_TRAPS: Final[tuple[tuple[re.Pattern[str], str, str | None], ...]] = (
    (
        re.compile(r"(\d+) URLs of this pattern"),
        "of an endless pattern (more than {0} URLs that differ only in numbers)",
        "`crawl.template_cap`",
    ),
    (re.compile(r"path segments, more than (\d+)"), "with more than {0} path segments", "`crawl.max_segments`"),
    (
        re.compile(r"path repeats .* more than (\d+) times"),
        "with a part of the path more than {0} times in a row",
        "`crawl.max_repeats`",
    ),
    (re.compile(r"parameters, more than (\d+)"), "with more than {0} parameters", None),
    (re.compile(r"the parameter .* more than (\d+) times"), "with one parameter more than {0} times", None),
    (re.compile(r"a calendar to the year"), "of a calendar without end", None),
)
"""The kinds of traps by their details (`politeness/crawler_traps`): the label, with the limit, and the setting that changes it."""

_UNKNOWN: Final = Reason("for an unrecorded reason", "the reason was not recorded")

BLOCKED: Final[dict[str, str]] = {
    Event.LOGIN_REQUIRED: "it asks for a login",
    Event.RATE_LIMITED: "it answers 429 Too Many Requests",
    Event.FORBIDDEN: "it answers 403 Forbidden",
    Event.UNAVAILABLE: "it answers 503 Service Unavailable",
    Event.ROBOTS_DENIED: "its robots.txt denies everything",
    Event.DNS_FAILURE: "its name cannot be resolved",
    Event.CONNECTION_FAILED: "it cannot be connected to",
    Event.TIMEOUT: "it does not answer in time",
    Event.TLS_FAILURE: "it offers no secure connection",
    "manual": "a person blocked it",
}
"""Why a domain is blocked or unreachable, by its reason code."""

CAN_NOT: Final[dict[str, tuple[str, str]]] = {
    "used_up": ("has used up its limit", "have used up their limit"),
    "failed": ("rests after failures", "rest after failures"),
    "refused": ("rests since the site refused it", "rest since the site refused them"),
    "wrong_country": ("is in another country", "are in another country"),
    "off_here": ("is switched off for this domain", "are switched off for this domain"),
    "off": ("is switched off", "are switched off"),
}
"""Why a proxy cannot be used, in the singular and the plural."""


Wait = WaitCondition


def why_not(reason: str | None) -> Reason:
    """Return the meaning of a reason as the frontier stores it ("outcome: detail")."""
    name, detail = _parts(reason)
    if name == Outcome.TRAP:
        return _trap(detail or "")
    if name == Outcome.WRONG_TYPE and (group := group_of(media_type(detail))):
        option = f"`--types {group}`"
        return REASONS[name]._replace(change=option, step=f"Run the same command with {option}.")
    if name == Outcome.TOO_LARGE and (detail or "").startswith(SITEMAP_TEXT):
        return REASONS[name]._replace(meaning="it is longer than a sitemap may be", change=None)
    return REASONS.get(name) or (_UNKNOWN if not name else Reason(name.replace("_", " "), name))


def _trap(detail: str) -> Reason:
    """Return the meaning of a trap, by its kind."""
    reason = REASONS[Outcome.TRAP]
    for pattern, label, change in _TRAPS:
        if found := pattern.search(detail):
            step = f"Raise {change}, or crawl another page of the site." if change else reason.step
            limits = (f"{int(limit):,}" for limit in found.groups())
            return reason._replace(label=label.format(*limits), change=change, step=step)
    return reason


def _parts(reason: str | None) -> tuple[str, str | None]:
    """Split a reason into its first word and its detail."""
    name, _, detail = (reason or "").partition(":")
    return FAULT if name == FAULT_TEXT else name, detail.strip() or None


def in_words(reason: str | None) -> tuple[str, str | None]:
    """Return the meaning and the detail of a reason as the frontier stores it ("outcome: detail")."""
    return why_not(reason).meaning, _parts(reason)[1]


def cause(reason: str | None, url: str, *, robots: bool = False) -> tuple[str, str]:
    """Return why no page could be fetched, as a sentence without its end, and what to do. `robots`: robots.txt could not be fetched."""
    found, (name, detail) = why_not(reason), _parts(reason)
    host = url.partition("://")[2].partition("/")[0] or url
    sentence, step = _special(name, detail or "", host) or (
        found.cause.format(url=url, host=host, detail=detail or found.meaning),
        found.step,
    )
    if robots and name in {Outcome.CONNECTION_FAILED, Outcome.TIMEOUT}:
        sentence += " (robots.txt)"
    if robots and name in {Outcome.SERVER_ERROR, Outcome.UNAVAILABLE, Outcome.TIMEOUT}:
        step = "Run the same command later; on your own site, `--no-robots` crawls without robots.txt."
    return sentence, step


def _special(name: str, detail: str, host: str) -> tuple[str, str] | None:
    """Return the cause and the step if the detail says more than the outcome."""
    lowered = detail.lower()
    if name == Outcome.CONNECTION_FAILED and "refused" in lowered:
        return f"{host} refused the connection", "Start the server, then run the same command again."
    if name == Outcome.TLS_FAILURE and "certificate" in lowered:
        step = (
            "Renew or replace the certificate, or make this machine trust its issuer; then run the same command again."
        )
        return f"the certificate of {host} is not trusted ({detail})", step
    if name == Outcome.TLS_FAILURE and "wrong version number" in lowered:
        return f"{host} speaks no TLS", f"Try http://{host}/."
    return None


def describe_wait(wait: Wait, now: datetime) -> str:
    """Return a wait as text: what, for how long, and what changes it."""
    lasts = f", {lasting(wait.until, now)}" if wait.until else ""
    return f"{wait.what}{lasts}{f'; {wait.change}' if wait.change else ''}"


def lasting(until: datetime, now: datetime) -> str:
    """`for another 12 s`, or `until 2026-02-05 12:30 UTC`."""
    seconds = (until - now).total_seconds()
    if seconds < 120:
        return f"for another {max(seconds, 0):.0f} s"
    return f"until {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def blocked(domain: str, status: str, code: str | None, until: datetime | None) -> Wait:
    """Return the wait of a domain that is blocked or unreachable. `until` None: only the operator ends it."""
    sentence = f"{domain} is {status} ({BLOCKED.get(code or '', code)})"
    unblock = f"`holdfast domains unblock {domain}`"
    if until is None:
        return Wait(sentence, None, f"only {unblock} ends that")
    if status == Status.UNREACHABLE:
        return Wait(sentence, until, "a new `holdfast crawl` of it asks at once")
    return Wait(sentence, until, f"{unblock} ends that")


_RIGHT: Final[dict[str, str]] = {
    Resource.SITEMAP: Outcome.SITEMAP,
    Resource.IMAGE: Outcome.IMAGE,
    Resource.CHECK: Outcome.CHECKED,
}
"""How the request for a URL that is no page ends if nothing is wrong."""


def why(row: dict[str, Any], outcome: str | None) -> tuple[str, str | None]:
    """Return why a URL is in its state, as a sentence without its end, and the stored detail. `outcome`: of its last response as a page."""
    reason, detail = in_words(row["reason"])
    if row["state"] == "waiting":
        if row["attempts"]:
            return f"it was tried {_times(row['attempts'])}, and will be tried again: {reason}", detail
        if row["kind"] == "refresh":
            return "it was crawled, and will be crawled again", None
        return f"it was not crawled yet: {reason}" if row["reason"] else "it was not crawled yet", detail
    if row["state"] == "done" and not row["reason"]:
        right = _RIGHT.get(row["resource"], outcome or Outcome.OK)
        return REASONS.get(right, REASONS[Outcome.OK]).meaning, None
    return reason, detail


def _times(attempts: int) -> str:
    return {1: "once", 2: "twice"}.get(attempts, f"{attempts} times")


def waits(
    domain: dict[str, Any],
    work: dict[str, Any],
    robots: list[dict[str, Any]],
    moment: dict[str, Any],
    url: dict[str, Any] | None = None,
    pool: PoolState | None = None,
) -> list[Wait]:
    """Return what a job's URLs on a domain, or one of them (`url`), wait for. `pool`: its proxies."""
    now = moment["now"]
    found = [
        *_operator_waits(domain, work),
        *_proxy_waits(domain["domain"], pool),
        *_time_waits(domain, work, robots, url, now),
    ]
    if domain["claimed_by"]:
        return [*found, _holder_wait(domain, work, moment)]
    is_stopped = bool(found)
    found += [
        Wait(what, until)
        for what, until in (
            ("the circuit breaker is open: too many failures in a row", domain["circuit_open_until"]),
            ("the server asked for fewer requests (429, 503 or Retry-After)", domain["back_off_until"]),
            ("the pause between two requests", domain["next_request_at"]),
        )
        if until and until > now
    ]
    return found if is_stopped else [*found, _worker_wait(work, moment)]


def _holder_wait(domain: dict[str, Any], work: dict[str, Any], moment: dict[str, Any]) -> Wait:
    if live := moment.get("live"):
        return Wait(visit_wait(live), None if live.seconds is None else moment["now"] + timedelta(seconds=live.seconds))
    worker, holder = domain["claimed_by"], moment.get("held_for")
    if holder and holder != work["job"]:
        return Wait(f"worker {worker} crawls the domain for job {holder}; jobs on one domain take turns")
    return Wait(f"worker {worker} holds the domain and takes its URLs in turn")


def _operator_waits(domain: dict[str, Any], work: dict[str, Any]) -> list[Wait]:
    found = []
    if work["job_state"] not in {"pending", "processing"}:
        job = quote(work["job"])
        resume = {
            "paused": f"`holdfast jobs resume {job}`",
            "cancelled": f"`holdfast crawl --job {job} --again` starts it again",
        }.get(work["job_state"], f"`holdfast crawl --job {job}` resumes it")
        found.append(Wait(f"the job {work['job']} is {work['job_state']}", None, resume))
    elif work.get("used_up"):
        more = f"`holdfast crawl --job {quote(work['job'])}` begins a new crawl"
        found.append(
            Wait(
                f"the job {work['job']} has used up its pages ({work['spec']['max_pages']:,}, `--max-pages`)",
                None,
                more,
            )
        )
    elif work["work_state"] == "parked":
        found.append(Wait(f"the job {work['job']} was paused, and its work here is not taken up yet"))
    if not domain["is_active"]:
        found.append(
            Wait(
                "the domain is switched off",
                None,
                f"`holdfast domains set {domain['domain']} active=yes` switches it on",
            )
        )
    if domain["stays_blocked"]:
        found.append(blocked(domain["domain"], domain["status"], domain["block_reason_code"], None))
    return found


def _proxy_waits(domain: str, pool: PoolState | None) -> list[Wait]:
    if pool is None or pool.usable or pool.rules.direct or pool.rules.use is ProxyMode.DIRECT:
        return []
    if not pool.can_not:
        if pool.rules.use is ProxyMode.ANY:
            return [Wait("there is no proxy", None, "`holdfast proxies add` makes one known")]
        return [Wait("no proxy is assigned to it", None, f"`holdfast proxies assign {domain} PROXY`")]
    whose = "no proxy" if pool.rules.use is ProxyMode.ANY else "no proxy of its pool"
    counts = ((words, pool.can_not.get(why, 0)) for why, words in CAN_NOT.items())
    reasons = ", ".join(f"{count:,} {words[count > 1]}" for words, count in counts if count)
    return [Wait(f"{whose} can be used: {reasons}", pool.until)]


def _budget_wait(domain: str, work: dict[str, Any]) -> Wait:
    """Return the wait of spent work: it reached a limit, or used its share of the round."""
    by, again = work["limit_reached"], f"`holdfast crawl --job {quote(work['job'])}` starts a new crawl"
    if by == "domain_budget":
        change = f"`holdfast domains set {domain} budget=` lifts it"
        return Wait(f"the domain's own limit of {work['budget_limit']:,} pages a crawl is reached", None, change)
    if by is not None:
        return Wait(f"its limit of {work['budget_limit']:,} pages is reached (`--{by.replace('_', '-')}`)", None, again)
    if work["crawl_state"] is None:
        return Wait("the pages of the last crawl are used", None, again)
    if work["max_pages"] and work["pages_granted"] >= work["max_pages"]:
        return Wait(f"the {work['max_pages']:,} pages of the crawl are used (`--max-pages`)", None, again)
    return Wait(f"the next round: it used its share, {work['budget_used']:,} pages so far, and others have their turn")


def _time_waits(
    domain: dict[str, Any],
    work: dict[str, Any],
    robots: list[dict[str, Any]],
    url: dict[str, Any] | None,
    now: datetime,
) -> list[Wait]:
    found = []
    if domain["next_crawl_after"] and domain["block_reason_code"]:
        code, until = domain["block_reason_code"], domain["next_crawl_after"]
        found.append(blocked(domain["domain"], domain["status"], code, until))
    elif domain["next_crawl_after"]:
        found.append(Wait(f"the domain is {domain['status']} ({domain['status_reason']})", domain["next_crawl_after"]))
    if work["work_state"] == "spent":
        found.append(_budget_wait(domain["domain"], work))
    if work["yielded_until"] and work["yielded_until"] > now:
        found.append(Wait("the job gave way to another job on this domain", work["yielded_until"]))
    if closed := closed_until(domain["maintenance_window"], now):
        found.append(Wait(f"the domain is closed: {domain['maintenance_window']}", closed))
    if url and url["not_before"] and url["not_before"] > now:
        found.append(Wait(f"a pause before attempt {url['attempts'] + 1} on this URL", url["not_before"]))
    missing = [row for row in robots if not row["reachable"] and row["content"] is None]
    found += [
        robots_wait(row["url"], row["problem"], row["expires_at"])
        for row in missing
        if row["expires_at"] and row["expires_at"] > now
    ]
    if not found and work["work_not_before"] and work["work_not_before"] > now:
        found.append(
            Wait("every URL that the job has on this domain waits for its next attempt", work["work_not_before"])
        )
    return found


def robots_wait(url: str, problem: str | None, until: datetime | None) -> Wait:
    """Return the wait for a robots.txt that could not be fetched; all URLs of its origin wait for it."""
    why = cause(problem, url)[0] if problem else f"{url} could not be fetched"
    return Wait(f"robots.txt is not available: {why}", until)


def _worker_wait(work: dict[str, Any], moment: dict[str, Any]) -> Wait:
    if not work["ready"]:
        return Wait("the next sweep, which has news for this domain" if moment["news"] else "the next sweep")
    if not moment["workers"]:
        return Wait("a worker: none is running", None, "`holdfast crawl` or `holdfast worker` starts one")
    if others := [job for job in moment.get("others", ()) if job != work["job"]]:
        return Wait(f"its turn: job {others[0]} has work on this domain, too")
    return Wait("a worker that claims the domain, when its turn comes")


def _inside(text: str) -> str:
    """Return a text for the middle of a sentence; "TLS …" and "HTTP 500" stay as they are."""
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def visit_wait(wait: VisitWait) -> str:
    """Return why a worker sends no request to a domain that it holds: a sentence without its end and without the time."""
    # libcurl says "Connection refused: Failed to connect to …", but "Recv failure: Connection reset by peer".
    first, _, rest = wait.detail.partition(": ")
    short = _inside(rest if rest and first in ("Recv failure", "Send failure") else first)
    detail = short and f" ({short})"
    answered = short.startswith("HTTP")
    match wait.kind:
        case WaitKind.CIRCUIT if answered:
            return f"{wait.domain} failed several times in a row{detail}"
        case WaitKind.CIRCUIT if wait.seconds is None:
            return f"{wait.domain} did not answer{detail}, and one request tries it now"
        case WaitKind.CIRCUIT:
            return f"{wait.domain} does not answer{detail}"
        case WaitKind.BACK_OFF:
            return f"{wait.domain} asked for fewer requests{detail}"
        case WaitKind.DELAY:
            return f"{wait.domain}: the delay between two requests"
        case WaitKind.FLOOD_GUARD:
            return f"{wait.domain}: flood guard, its pages add URLs faster than `crawl.discovered_per_second`"
        case WaitKind.RETRY:
            return f"{wait.domain}: the URLs that are left failed{detail}"
        case WaitKind.ROBOTS:
            return f"{wait.domain}: robots.txt is not available{detail}"
        case WaitKind.PROXY:
            return f"{wait.domain}: no proxy can be used now"
        case WaitKind.LEASE:
            return f"{wait.domain}: its lease is too short for a request until the database renews it"
        case WaitKind.STORE:
            return f"{wait.detail or 'what was fetched cannot be written'}; the crawl goes on by itself"
