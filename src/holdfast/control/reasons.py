"""Reasons in words: what an outcome means, why a URL is in its state, what it waits for.

The rule: pure functions of rows that were read. `WORDS` has a sentence for every outcome.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Use
from holdfast.politeness.hours import closed_until
from holdfast.store.proxy_reports import PoolState

WORDS: Final[dict[str, str]] = {
    Outcome.OK: "it was fetched, and is a page",
    Outcome.NOT_MODIFIED: "it has not changed since the time before",
    Outcome.REDIRECT: "it redirects; its target is a URL of its own",
    Outcome.REDIRECT_LOOP: "it redirects to where it came from",
    Outcome.TOO_MANY_REDIRECTS: "too many redirects in a row led here (`fetch.max_redirects`)",
    Outcome.NOT_FOUND: "the server has no such page",
    Outcome.CLIENT_ERROR: "the server refused the request as wrong",
    Outcome.LOGIN_WALL: "it asks for a login",
    Outcome.FORBIDDEN: "the server forbids it (403)",
    Outcome.CAPTCHA: "the site asks whether we are human",
    Outcome.RATE_LIMITED: "the server asked for fewer requests (429)",
    Outcome.UNAVAILABLE: "the server said that it is not available now (503)",
    Outcome.SERVER_ERROR: "the server failed",
    Outcome.WRONG_TYPE: "its content is of a type that is not read",
    Outcome.TOO_LARGE: "it is longer than `fetch.max_bytes`",
    Outcome.BAD_ENCODING: "its content cannot be unpacked",
    Outcome.BAD_RESPONSE: "the answer is not HTTP, or broke off",
    Outcome.DNS_FAILURE: "the name server did not answer",
    Outcome.NO_SUCH_HOST: "the host's name is not known",
    Outcome.CONNECTION_FAILED: "no connection could be made",
    Outcome.TLS_FAILURE: "no secure connection could be made",
    Outcome.TIMEOUT: "it took longer than `fetch.timeout`",
    Outcome.TOO_SLOW: "the answer came slower than `fetch.min_rate`",
    Outcome.ADDRESS_REFUSED: "its address is not of the public internet (`fetch.allow_private`)",
    Outcome.PROXY_FAILED: "the proxy that it went through failed; it is tried through another one",
    Outcome.PROXY_UNCLEAR: "it was an error of the proxy or of the site; it is tried through another one",
    Outcome.ROBOTS_DENIED: "robots.txt denies it",
    Outcome.OUT_OF_SCOPE: "it is outside of the job's scope",
    Outcome.EXCLUDED: "the job's patterns leave it out",
    Outcome.TOO_DEEP: "it is farther from a seed than the job goes",
    Outcome.TRAP: "it looks like a trap: URLs without end",
    Outcome.URL_REFUSED: "it is no URL that can be visited",
    "robots_unavailable": "robots.txt could not be had, and is asked for again",
}
"""What each outcome means, in the middle of a sentence."""

CAN_NOT: Final[dict[str, tuple[str, str]]] = {
    "used_up": ("has used up its limit", "have used up their limit"),
    "failed": ("rests after failures", "rest after failures"),
    "refused": ("rests since the site refused it", "rest since the site refused them"),
    "wrong_country": ("is in another country", "are in another country"),
    "off_here": ("is switched off for this domain", "are switched off for this domain"),
    "off": ("is switched off", "are switched off"),
}
"""Why a proxy cannot be used, of one and of several."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that has to happen first, and until when it lasts, if that is known."""

    what: str
    until: datetime | None = None


def why(row: dict[str, Any], page: dict[str, Any] | None) -> tuple[str, str | None]:
    """Why a URL is in its state: a sentence without its end, and the detail that was kept with it."""
    reason, detail = in_words(row["reason"])
    if row["state"] == "waiting":
        if row["attempts"]:
            return f"it was tried {_times(row['attempts'])}, and is to be tried again: {reason}", detail
        if row["kind"] == "refresh":
            return "it was crawled, and is to be looked at again", None
        return f"it is to be crawled: {reason}" if row["reason"] else "it is to be crawled", detail
    if row["state"] == "done" and not row["reason"]:
        return WORDS.get(page["outcome"], WORDS[Outcome.OK]) if page else WORDS[Outcome.OK], None
    return reason, detail


def in_words(reason: str | None) -> tuple[str, str | None]:
    """A reason as the frontier keeps it ("outcome: detail"), as what it means and the detail."""
    name, _, detail = (reason or "").partition(":")
    return WORDS.get(name, name or "nobody wrote down why"), detail.strip() or None


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
    """What has to happen before a job's URLs on a domain, or one of them (`url`), are fetched. `pool`: its proxies."""
    now = moment["now"]
    found = [
        *_for_people(domain, work),
        *_for_a_proxy(domain["domain"], pool),
        *_for_time(domain, work, robots, url, now),
    ]
    blocked = bool(found)
    found += [
        Wait(what, until)
        for what, until in (
            ("the circuit is open: too many failures in a row", domain["circuit_open_until"]),
            ("the server asked for less, and is left alone", domain["back_off_until"]),
            ("the pause between two requests", domain["next_request_at"]),
        )
        if until and until > now
    ]
    if domain["claimed_by"]:
        found.append(
            Wait(
                f"worker {domain['claimed_by']} holds the domain and takes its URLs in turn", domain["claim_expires_at"]
            )
        )
    elif not blocked:
        found.append(_for_a_worker(work, moment))
    return found


def _for_people(domain: dict[str, Any], work: dict[str, Any]) -> list[Wait]:
    found = []
    if work["job_state"] not in {"pending", "processing"}:
        found.append(Wait(f"the job {work['job']} is {work['job_state']}"))
    elif work["work_state"] == "parked":
        found.append(Wait(f"the job {work['job']} was paused, and its work here is not taken up yet"))
    if not domain["is_active"]:
        found.append(Wait(f"the domain is switched off: `holdfast domain-set {domain['domain']} active=yes`"))
    if domain["stays_blocked"]:
        found.append(
            Wait(
                f"the domain is {domain['status']} ({domain['block_reason_code'] or domain['status_reason']}) until somebody "
                f"starts it over: `holdfast domain-reset {domain['domain']}`"
            )
        )
    return found


def _for_a_proxy(domain: str, pool: PoolState | None) -> list[Wait]:
    if pool is None or pool.usable or pool.rules.direct or pool.rules.use is Use.DIRECT:
        return []
    if not pool.can_not:
        if pool.rules.use is Use.ANY:
            return [Wait("there is no proxy: `holdfast proxies add` makes one known")]
        return [Wait(f"no proxy is assigned to it: `holdfast proxies assign {domain} PROXY`")]
    whose = "no proxy" if pool.rules.use is Use.ANY else "no proxy of its pool"
    counts = ((words, pool.can_not.get(why, 0)) for why, words in CAN_NOT.items())
    told = ", ".join(f"{count:,} {words[count > 1]}" for words, count in counts if count)
    return [Wait(f"{whose} can be used: {told}", pool.until)]


def _for_time(
    domain: dict[str, Any],
    work: dict[str, Any],
    robots: list[dict[str, Any]],
    url: dict[str, Any] | None,
    now: datetime,
) -> list[Wait]:
    found = []
    if domain["next_crawl_after"]:
        reason = domain["block_reason_code"] or domain["status_reason"]
        found.append(Wait(f"the domain is {domain['status']} ({reason}) and cools down", domain["next_crawl_after"]))
    if work["work_state"] == "spent" and work["crawl_state"] is None:
        found.append(Wait("the pages of the last crawl were used up; the job's next crawl goes on"))
    elif work["work_state"] == "spent":
        of_all = f", {work['pages_granted']} of {work['max_pages']} over all domains" if work["max_pages"] else ""
        found.append(Wait(f"the pages of this crawl are used up: {work['budget_used']} on this domain{of_all}"))
    if closed := closed_until(domain["maintenance_window"], now):
        found.append(Wait(f"the domain is closed: {domain['maintenance_window']}", closed))
    if work["work_not_before"] and work["work_not_before"] > now:
        found.append(Wait("all that the job has on this domain is delayed", work["work_not_before"]))
    if url and url["not_before"] and url["not_before"] > now:
        found.append(Wait(f"a pause before attempt {url['attempts'] + 1} on this URL", url["not_before"]))
    for row in robots:
        if not row["reachable"] and row["content"] is None and row["expires_at"] and row["expires_at"] > now:
            problem = f": {row['problem']}" if row["problem"] else ""
            found.append(Wait(f"{row['url']} could not be had{problem}; it is asked for again", row["expires_at"]))
    return found


def _for_a_worker(work: dict[str, Any], moment: dict[str, Any]) -> Wait:
    if not work["ready"]:
        return Wait("the next sweep, which has news for this domain" if moment["news"] else "the next sweep")
    if not moment["workers"]:
        return Wait("a worker: none is running; `holdfast crawl` or `holdfast worker` starts one")
    return Wait("a worker that claims the domain, when its turn comes")
