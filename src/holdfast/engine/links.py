"""From what a page points to, to rows of the frontier.

The rule: every address on a page becomes a row, waiting or denied with its reason, or is known already. A small memory of addresses
as they were written drops most repeats before they cost anything; the unique key in the store drops the rest.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.errors import BadUrl
from holdfast.model.batch import FoundUrl, Waiting
from holdfast.model.host import canonical_domain, parent_domain
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.url import UrlRules, normalize, resolve, url_key, with_http
from holdfast.model.work import Growth
from holdfast.politeness.pagination import MOST_BARREN, Pagination, end_of_chain, has_numbers
from holdfast.politeness.priority import url_priority
from holdfast.politeness.scope import ScopeRules, beyond_depth
from holdfast.politeness.traps import Counted, TemplateCounter, trap
from holdfast.settings import Crawl

_LONGEST_REMEMBERED: Final = 300
"""Characters; longer addresses are rare, and many of them would be much memory."""
_ENTRY: Final = 150
"""Bytes that an address in a dictionary costs beside its characters."""
MEMORY: Final = 32 * 1024 * 1024
"""Bytes of addresses that a worker remembers. Of a site with more links than fit in it, known ones are looked up in the store again
and again: with a tenth of that, a site of 50 000 pages took half as much time again."""
_NOFOLLOW_MEMORY: Final = 256 * 1024
"""Bytes of nofollow addresses that a visit remembers, apart from the others: they may be linked without nofollow elsewhere."""
_NOT_HERE: Final = Counted(over=False, template=None)
_LONGEST_KEPT: Final = 2000
"""Characters of a refused address that the store keeps."""


class Site(NamedTuple):
    """Whose a host is."""

    domain: str
    parent: str
    base_url: str


class Sites:
    """The domains of hosts, remembered: a crawl meets the same ones again and again."""

    def __init__(self, *, registrable: bool, most: int = 50_000) -> None:
        self._registrable = registrable
        self._most = most
        self._known: dict[str, Site] = {}

    def of(self, url: str) -> Site:
        """The site of a normalized URL. Raises BadUrl where nobody could listen."""
        origin = url[: url.index("/", 8)]
        site = self._known.get(origin)
        if site is None:
            domain = canonical_domain(url, registrable=self._registrable)
            if len(self._known) >= self._most:
                self._known.clear()
            site = self._known[origin] = Site(domain, parent_domain(domain), origin)
        return site


class LinkMemory:
    """What the visits of a worker may remember together; each of those under way has an equal share."""

    def __init__(self, size: int = MEMORY) -> None:
        self._size = size
        self.sharers = 0

    @property
    def share(self) -> int:
        """Bytes for each."""
        return self._size // max(1, self.sharers)


class RecentLinks:
    """Addresses as they were written that this visit has dealt with, with their depth; old and long ones are forgotten."""

    def __init__(self, memory: LinkMemory) -> None:
        self._memory = memory
        self._new: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self._size = 0
        """Bytes of the new ones, about."""
        self._home: str | None = None
        """The origin of the first page: what begins with a slash there is remembered as it is written."""
        self._deepest = 0
        """Of the depths that are remembered: who is as deep need not look at them."""

    def unseen(self, hrefs: Iterable[str], page: str, depth: int) -> list[str]:
        """Those on *page* that were not met before, or only farther from a seed; they have been now."""
        path = page.partition("?")[0]
        folder = path[: path.rindex("/") + 1]
        origin = path[: path.index("/", len("http://x"))]
        if self._home is None:
            self._home = origin
        root = "" if origin == self._home else origin
        new, old = self._new, self._old
        fresh = []
        for href in hrefs:
            # Under what it means, as far as that can be told at a glance.
            if href[0] == "/" and href[1:2] != "/":
                key = root + href if root else href
            elif href[0] == "/":
                key = origin[: origin.index(":")] + href
            elif href.startswith(("https://", "http://")):
                key = href
            else:
                key = (path if href[0] == "?" else folder) + href
            # Most links of a page are met on others, too: up to here is what they cost, and nothing else.
            if (key in new or key in old) and (depth >= self._deepest or self._depth(key) <= depth):
                continue
            fresh.append(href)
            if len(key) <= _LONGEST_REMEMBERED:
                new[key] = depth
                self._size += len(key) + _ENTRY
        if not fresh:
            return fresh
        self._deepest = max(self._deepest, depth)
        if self._size > self._memory.share // 2:  # the other half is the old ones'
            self._old, self._new, self._size = new, {}, 0
        return fresh

    def forget(self, href: str, page: str) -> None:
        """An address on *page* that `unseen` gave is as if it had not been met."""
        path = page.partition("?")[0]
        origin = path[: path.index("/", len("http://x"))]
        if href[0] == "/" and href[1:2] != "/":
            key = href if origin == self._home else origin + href
        elif href[0] == "/":
            key = origin[: origin.index(":")] + href
        elif href.startswith(("https://", "http://")):
            key = href
        else:
            key = (path if href[0] == "?" else path[: path.rindex("/") + 1]) + href
        self._new.pop(key, None)
        self._old.pop(key, None)

    def _depth(self, key: str) -> int:
        known = self._new.get(key)
        return known if known is not None else self._old.get(key, -1)


@dataclass(slots=True)
class _Chain:
    """The pagination that a page may belong to, while its links are judged."""

    page: Pagination
    step: int
    """The number of a step that leads on from the page."""
    following: frozenset[str]
    taken: bool = False
    """There was one."""


class LinkFinder:
    """Judges the links of one visit's pages."""

    def __init__(
        self,
        job_id: int,
        site: Site,
        *,
        scope: ScopeRules,
        sites: Sites,
        rules: UrlRules,
        own_rules: UrlRules | None = None,
        limits: Crawl,
        max_depth: int,
        this_year: int,
        memory: LinkMemory,
        templates: Mapping[int, int] | None = None,
    ) -> None:
        """Prepare to judge the links of one visit.

        `rules` hold for all links of the job, `own_rules` for URLs of this domain, which may drop more parameters. `templates`: what
        the store knows of the job on this domain, by template.
        """
        self._job_id = job_id
        self._site = site
        self._scope = scope
        self._sites = sites
        self._rules = rules
        self._own_rules = None if own_rules == rules else own_rules
        self._fold_rules = own_rules or rules
        self._limits = limits
        self._max_depth = max_depth
        self._this_year = this_year
        self._recent = RecentLinks(memory)
        self._recent_nofollow = RecentLinks(LinkMemory(_NOFOLLOW_MEMORY))
        self._templates = TemplateCounter(limits.template_cap, templates)

    def find(
        self,
        page: Waiting,
        base: str | None,
        hrefs: Iterable[str],
        *,
        following: Collection[str] = (),
        nofollow: Iterable[str] = (),
        why: str = "",
    ) -> list[FoundUrl]:
        """Judge these addresses on a page, but for those that this visit has met lately.

        `following` are those with rel=next. `nofollow` are not followed, because of `why`; they become known as denied.
        """
        try:
            start = resolve(page.url, base, self._rules) if base else page.url
        except BadUrl:
            start = page.url
        key, depth = page.url_key, page.depth + 1
        fresh = self._recent.unseen(hrefs, start, page.depth)
        found: list[FoundUrl] = []
        if fresh:
            chain = None
            if following or has_numbers(page.url):
                chain = _Chain(Pagination(page.url), page.steps + 1, frozenset(following))
            found = [self._judge(start, href, key, depth, chain) for href in fresh]
            if chain is not None and chain.taken:
                self._go_on(page, start, fresh, found)
        if nofollow:
            unseen = self._recent_nofollow.unseen(nofollow, start, 0)
            found += [url for href in unseen if (url := self._not_followed(start, href, key, depth, why)) is not None]
        return found

    def committed(self, growth: Growth) -> None:
        """A commit has added this to the frontier."""
        if growth.templates:
            self._templates.committed(
                {template: urls for (job, template), urls in growth.templates.items() if job == self._job_id}
            )

    def follow(self, page: Waiting, target: str, hops: int) -> FoundUrl:
        """Where a redirect leads to. A seed's redirect is followed wherever it leads: that is where the site is now."""
        found = self._judge(page.url, target, page.url_key, page.depth, hops=hops, anywhere=page.depth == 0)
        return found._replace(steps=page.steps, barren=page.barren) if page.steps else found

    def _go_on(self, page: Waiting, start: str, hrefs: list[str], found: list[FoundUrl]) -> None:
        """Carry a pagination on, or end it.

        Before: `found` is what `hrefs` on the page mean. After: its steps say how barren the pagination was; after too many barren
        pages they count as depth again, and those beyond a limit are denied.
        """
        others = any(url.state is UrlState.WAITING and not url.steps for url in found)
        barren = 0 if others else page.barren + 1
        for at, url in enumerate(found):
            if not url.steps:
                continue
            why = end_of_chain(url.steps, self._limits.max_pagination)
            if why is None and barren < MOST_BARREN:
                found[at] = url._replace(barren=barren)
                continue
            depth = page.depth + 1  # the chain has ended, and this is a link like any other
            if why is None and depth <= self._max_depth:
                found[at] = url._replace(barren=barren, depth=depth, priority=url_priority(url.url, depth))
                continue
            # Another page may lead there otherwise, so it is as if it had not been met.
            self._recent.forget(hrefs[at], start)
            outcome = Outcome.PAGINATION if why else Outcome.TOO_DEEP
            told = why or beyond_depth(depth, self._max_depth)
            found[at] = self._denied(outcome, told, url.url, url.url_key, url.parent_key, depth)

    def elsewhere(self, item: Waiting) -> FoundUrl | None:
        """A waiting URL as one of its own domain, if that is not the domain of this visit; None: it is.

        So it is with a link that was too deep where it was met, and is not any more: no domain was made for it then.
        """
        try:
            if not item.depth or self._sites.of(item.url).domain == self._site.domain:
                return None
        except BadUrl:  # a host that was stored before such hosts were refused: fetching it says why it fails
            return None
        return self.follow(item, item.url, item.hops)._replace(parent_key=item.parent_key or item.url_key)

    def folded(self, item: Waiting) -> FoundUrl | None:
        """The shorter URL that a waiting one is folded into, where its job or its domain drops parameters; None: it is as it should be.

        Links of this job, and of this domain's pages, are written so at once. Seeds and links of foreign pages are not.
        """
        rules = self._fold_rules
        if not rules.strip_parameters or not ("?" in item.url or ";" in item.url):
            return None
        try:
            shorter = normalize(item.url, rules)
        except BadUrl:  # likewise
            return None
        return None if shorter == item.url else self.follow(item, shorter, item.hops)

    def excludes(self, item: Waiting) -> str | None:
        """Why the patterns of the job leave out a URL that waits: they may have changed since it was found. Seeds are never left out."""
        if not item.depth:
            return None
        denial = self._scope.matches(item.url)
        return None if denial is None else f"{denial.outcome}: {denial.reason}"

    def _not_followed(self, base: str, href: str, page_key: bytes, depth: int, why: str) -> FoundUrl | None:
        """The row of a nofollow link; None: it is no URL, or out of scope, and would not be followed anyway."""
        try:
            url = resolve(base, href, self._rules)
            site = self._sites.of(url)
        except BadUrl:
            return None
        denial = self._scope.judge(
            self._site.domain, self._site.parent, site.domain, site.parent, url, depth, max_depth=self._max_depth
        )
        return None if denial else self._denied(Outcome.NOFOLLOW, why, url, url_key(url), page_key, depth)

    def over_http(self, url: str, key: bytes) -> FoundUrl:
        """The same seed without TLS, which takes its place. Before: the URL is https."""
        instead = with_http(url)
        return FoundUrl(self._job_id, url_key(instead), instead, 0, url_priority(instead, 0), key)

    def _judge(
        self,
        base: str,
        href: str,
        page_key: bytes,
        depth: int,
        chain: "_Chain | None" = None,
        *,
        hops: int = 0,
        anywhere: bool = False,
    ) -> FoundUrl:
        try:
            url = resolve(base, href, self._rules)
            site = self._sites.of(url)
            if self._own_rules is not None and site.domain == self._site.domain:
                url = normalize(url, self._own_rules)
        except BadUrl as problem:
            return self._refused(href, str(problem), page_key, depth)
        key = url_key(url)
        steps = 0
        if chain is not None and chain.page.leads_to(url, is_next=href in chain.following):
            steps, depth, chain.taken = chain.step, depth - 1, True
        if not anywhere:
            denial = self._scope.judge(
                self._site.domain, self._site.parent, site.domain, site.parent, url, depth, max_depth=self._max_depth
            )
            if denial is not None:
                outcome, why = denial
                return self._denied(outcome, why, url, key, page_key, depth)
        why_not = trap(url, self._limits, self._this_year)
        counted = _NOT_HERE
        if why_not is None and site.domain == self._site.domain:
            counted = self._templates.count(url)
            if counted.over:
                why_not = f"{self._limits.template_cap} URLs of this pattern are known"
        if why_not is not None:
            return self._denied(Outcome.TRAP, why_not, url, key, page_key, depth)
        priority = url_priority(url, depth)
        if site.domain == self._site.domain:
            return FoundUrl(
                *(self._job_id, key, url, depth, priority, page_key, hops, UrlState.WAITING, None, None, None, None),
                *(steps, 0, counted.template),
            )
        return FoundUrl(self._job_id, key, url, depth, priority, page_key, hops, UrlState.WAITING, None, *site)

    def _denied(self, outcome: Outcome, why: str, url: str, key: bytes, page_key: bytes, depth: int) -> FoundUrl:
        """A row of the domain where it was met, also for an address elsewhere: no domain is made for what is not wanted."""
        reason = f"{outcome}: {why}" if why else str(outcome)
        return FoundUrl(self._job_id, key, url, depth, 1, page_key, 0, UrlState.DENIED, reason)

    def _refused(self, href: str, why: str, page_key: bytes, depth: int) -> FoundUrl:
        """An address that is no URL: kept as it was written, under a key of its own."""
        written = href[:_LONGEST_KEPT].encode("ascii", "backslashreplace").decode("ascii").replace("\x00", "")
        key = url_key(f"refused:{written}")
        return self._denied(Outcome.URL_REFUSED, why, written, key, page_key, depth)
