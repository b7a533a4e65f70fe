"""The link filter: turns the links of a page into rows of the frontier.

The rule: every link on a page becomes a row, waiting or denied with its reason, or is known already. A small memory of hrefs as they
were written drops most duplicates before they cost anything; the unique key in the database drops the rest.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.commit_batch import CHECK_PRIORITY, IMAGE_PRIORITY, DiscoveredUrl, FrontierItem, Resource
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import check_key
from holdfast.model.scope import Denial, ScopeRules, StoredUrlJudge, too_deep_reason
from holdfast.model.url import UrlRules, normalize, resolve, url_key, with_http
from holdfast.model.visit_report import FrontierGrowth
from holdfast.politeness.crawler_traps import (
    MAX_BARREN,
    Pagination,
    TemplateCount,
    TemplateCounter,
    chain_end_reason,
    has_numbers,
    trap_reason,
)
from holdfast.politeness.url_priority import PRIORITY_OF_SITEMAPS, listed_priority, url_priority
from holdfast.settings import Crawl

_MAX_REMEMBERED_CHARS: Final = 300
"""Characters; longer hrefs are rare, and would need much memory."""
_ENTRY_BYTES: Final = 150
"""Bytes that an href in a dictionary costs in addition to its characters."""
MEMORY_BYTES: Final = 32 * 1024 * 1024
"""Bytes of hrefs that a worker remembers. On a site with more links than fit, known ones are looked up in the database again and
again: with a tenth of this size, a site of 50 000 pages took 1.5 times as long."""
_NOFOLLOW_MEMORY_BYTES: Final = 256 * 1024
"""Bytes of nofollow hrefs that a visit remembers, separate from the others: another page may link them without nofollow."""
_NOT_COUNTED: Final = TemplateCount(over=False, template=None)
_MAX_STORED_CHARS: Final = 2000
"""Characters of an invalid href that are stored."""


class LinkMemoryBudget:
    """The memory for recent links of a worker, shared equally among its running visits."""

    def __init__(self, size: int = MEMORY_BYTES) -> None:
        self._size = size
        self.sharers = 0

    @property
    def share_bytes(self) -> int:
        """Bytes per visit."""
        return self._size // max(1, self.sharers)


class RecentLinks:
    """Hrefs as they were written that this visit has seen, with their depth; old and long ones are dropped."""

    def __init__(self, memory: LinkMemoryBudget) -> None:
        self._memory = memory
        self._new: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self._size = 0
        """Approximate bytes of the new ones."""
        self._first_origin: str | None = None
        """The origin of the first page: its hrefs that begin with a slash are keys as they are written."""
        self._max_depth_seen = 0
        """The largest depth remembered: a page at least as deep need not compare depths."""

    def unseen(self, hrefs: Iterable[str], page: str, depth: int) -> list[str]:
        """Return the hrefs on *page* that were not seen before, or only at a greater depth. After: they are seen."""
        path = page.partition("?")[0]
        folder = path[: path.rindex("/") + 1]
        origin = path[: path.index("/", len("http://x"))]
        if self._first_origin is None:
            self._first_origin = origin
        root = "" if origin == self._first_origin else origin
        new, old = self._new, self._old
        fresh = []
        for href in hrefs:
            # The key is the resolved URL, as far as that can be computed cheaply.
            if href[0] == "/" and href[1:2] != "/":
                key = root + href if root else href
            elif href[0] == "/":
                key = origin[: origin.index(":")] + href
            elif href.startswith(("https://", "http://")):
                key = href
            else:
                key = (path if href[0] == "?" else folder) + href
            # Most links of a page are on others, too: they cost no more than the code up to here.
            if (key in new or key in old) and (depth >= self._max_depth_seen or self._depth(key) <= depth):
                continue
            fresh.append(href)
            if len(key) <= _MAX_REMEMBERED_CHARS:
                new[key] = depth
                self._size += len(key) + _ENTRY_BYTES
        if not fresh:
            return fresh
        self._max_depth_seen = max(self._max_depth_seen, depth)
        if self._size > self._memory.share_bytes // 2:  # the other half holds the old ones
            self._old, self._new, self._size = new, {}, 0
        return fresh

    def forget(self, href: str, page: str) -> None:
        """Forget an href on *page* that `unseen` returned."""
        path = page.partition("?")[0]
        origin = path[: path.index("/", len("http://x"))]
        if href[0] == "/" and href[1:2] != "/":
            key = href if origin == self._first_origin else origin + href
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
    """The pagination that a page may belong to, while its links are classified."""

    page: Pagination
    step: int
    """The number of the next step after this page."""
    following: frozenset[str]
    taken: bool = False
    """Whether a link to the next step was found."""


class LinkFilter:
    """Classifies the links of one visit's pages."""

    def __init__(
        self,
        job_id: int,
        site: Site,
        *,
        scope: ScopeRules,
        sites: SiteCache,
        rules: UrlRules,
        own_rules: UrlRules | None = None,
        limits: Crawl,
        max_depth: int,
        this_year: int,
        memory: LinkMemoryBudget,
        templates: Mapping[int, int] | None = None,
        rules_version: int = 0,
        in_reach: bool = True,
        check_external: bool = False,
    ) -> None:
        """Prepare for the links of one visit.

        `rules` apply to all links of the job, `own_rules` to URLs of this domain, which may drop more parameters. `templates`: number of
        known URLs of the job on this domain, by template. `rules_version`: of the job; if it is not 0, URLs that waited are judged by all
        of its rules. `in_reach`: whether its scope leads from a seed to this domain. `check_external`: whether targets out of scope are
        checked.
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
        self._check_external = check_external
        self._recent = RecentLinks(memory)
        self._recent_nofollow = RecentLinks(LinkMemoryBudget(_NOFOLLOW_MEMORY_BYTES))
        self._templates = TemplateCounter(limits.template_cap, templates)
        self._judge: StoredUrlJudge | None = None
        if rules_version:
            self._judge = StoredUrlJudge(
                scope, site, sites, version=rules_version, max_depth=max_depth, in_reach=in_reach
            )

    def find(
        self,
        page: FrontierItem,
        base: str | None,
        hrefs: Iterable[str],
        *,
        following: Collection[str] = (),
        nofollow: Iterable[str] = (),
        why: str = "",
    ) -> list[DiscoveredUrl]:
        """Classify the hrefs on a page, except those that this visit has seen recently.

        `following` are those with rel=next. `nofollow` are not followed for the reason `why`; they become denied rows.
        """
        try:
            start = resolve(page.url, base, self._rules) if base else page.url
        except BadUrl:
            start = page.url
        key, depth = page.url_key, page.depth + 1
        fresh = self._recent.unseen(hrefs, start, page.depth)
        found: list[DiscoveredUrl] = []
        if fresh:
            chain = None
            if following or has_numbers(page.url):
                chain = _Chain(Pagination(page.url), page.steps + 1, frozenset(following))
            found = [self._classify(start, href, key, depth, chain) for href in fresh]
            if chain is not None and chain.taken:
                self._continue_pagination(page, start, fresh, found)
        if nofollow:
            unseen = self._recent_nofollow.unseen(nofollow, start, 0)
            found += [url for href in unseen if (url := self._nofollow_row(start, href, key, depth, why)) is not None]
        return self._with_checks(page, found) if self._check_external else found

    def _with_checks(self, page: FrontierItem, found: list[DiscoveredUrl]) -> list[DiscoveredUrl]:
        """The rows of a page, with one more for each that is out of scope: there it is checked."""
        beyond = [url.url for url in found if url.reason is not None and url.reason.startswith(Outcome.OUT_OF_SCOPE)]
        return found + [
            self._check(url, page.url_key, page.depth + 1) for url in beyond if not self._scope.is_excluded(url)
        ]

    def is_excluded(self, url: str) -> bool:
        """Whether an exclude pattern of the job leaves a URL out that would only be checked: its other rules do not apply."""
        return self._scope.is_excluded(url)

    def _check(self, url: str, parent_key: bytes, depth: int, hops: int = 0) -> DiscoveredUrl:
        """The row of a URL that is only checked. Its key is that of a check: the same URL may be a page of the job, too."""
        row = DiscoveredUrl(
            *(self._job_id, check_key(url), url, depth, CHECK_PRIORITY, parent_key, hops), resource=Resource.CHECK
        )
        return self._on(self._sites.site_of(url), row)

    def sitemap(self, item: FrontierItem, href: str, *, depth: int, base: str | None = None) -> DiscoveredUrl | None:
        """Return the row of a sitemap that `item` leads to; None: it is no URL.

        It may be on any host: robots.txt of a crawled host names it, or a page or an index of one links to it.
        """
        try:
            url = resolve(item.url, base, self._rules) if base else item.url
            url = resolve(url, href, self._rules)
            site = self._sites.site_of(url)
        except BadUrl:
            return None
        found = DiscoveredUrl(
            *(self._job_id, url_key(url), url, depth, PRIORITY_OF_SITEMAPS, item.url_key), resource=Resource.SITEMAP
        )
        return self._on(site, found)

    def image(self, item: FrontierItem, href: str, *, base: str | None = None) -> DiscoveredUrl | None:
        """Return the row of an image of a page; None: it is no URL that can be fetched, or a pattern of the job excludes it.

        It is in scope wherever it is, since its page is.
        """
        try:
            url = resolve(item.url, base, self._rules) if base else item.url
            url = resolve(url, href, self._rules)
            site = self._sites.site_of(url)
        except BadUrl:
            return None
        if self._scope.is_excluded(url):
            return None
        found = DiscoveredUrl(
            *(self._job_id, url_key(url), url, item.depth + 1, IMAGE_PRIORITY, item.url_key), resource=Resource.IMAGE
        )
        return self._on(site, found)

    def listed(
        self, item: FrontierItem, addresses: Iterable[str], *, lastmod: datetime | None, priority: float | None
    ) -> list[DiscoveredUrl]:
        """Return the rows of an entry of a sitemap, with its other versions.

        The limits on what pages lead to (URLs of a page, of a pattern, traps) do not apply: a sitemap has an end. A URL on a host that the
        scope does not reach from here is taken if the job crawls that host: its robots.txt may have named this sitemap.
        """
        found: list[DiscoveredUrl] = []
        depth = item.depth
        for address in addresses:
            try:
                url = resolve(item.url, address, self._rules)
                site = self._sites.site_of(url)
                if self._own_rules is not None and site.domain == self._site.domain:
                    url = normalize(url, self._own_rules)
            except BadUrl as problem:
                found.append(self._invalid_row(address, str(problem), item.url_key, depth))
                continue
            denial = self._scope.judge(
                self._site.domain, self._site.parent, site.domain, site.parent, url, depth, max_depth=self._max_depth
            )
            elsewhere = denial is not None and denial.outcome is Outcome.OUT_OF_SCOPE
            if elsewhere:
                denial = self._scope.denied_by_pattern(url)
            if denial is not None:
                key = url_key(url)
                found.append(self._denied_row(*denial, url, key, item.url_key, depth)._replace(listed=True))
                continue
            row = DiscoveredUrl(
                *(self._job_id, url_key(url), url, depth, listed_priority(url, depth, priority), item.url_key),
                listed=True,
                lastmod=lastmod,
                known_only=elsewhere,
            )
            found.append(self._on(site, row))
        return found

    def _on(self, site: Site, url: DiscoveredUrl) -> DiscoveredUrl:
        """Return a URL with the site that it is on, if that is not this visit's."""
        if site.domain == self._site.domain:
            return url
        return url._replace(domain=site.domain, parent_domain=site.parent, base_url=site.base_url)

    def on_committed(self, growth: FrontierGrowth) -> None:
        """Count the URLs that a commit has added to the frontier, by template."""
        if growth.templates:
            self._templates.add_stored(
                {template: urls for (job, template), urls in growth.templates.items() if job == self._job_id}
            )

    def redirect_target(self, page: FrontierItem, target: str, hops: int) -> DiscoveredUrl:
        """Classify the target of a redirect. A seed's redirect is followed to any domain: that is where the site is now."""
        if page.resource is Resource.CHECK:
            return self._moved_check(page, target, hops)
        if page.resource is not Resource.PAGE:
            is_image = page.resource is Resource.IMAGE
            moved = self.image(page, target) if is_image else self.sitemap(page, target, depth=page.depth)
            if moved is not None:
                return moved._replace(hops=hops, depth=page.depth)
        found = self._classify(page.url, target, page.url_key, page.depth, hops=hops, any_domain=page.depth == 0)
        return found._replace(steps=page.steps, barren=page.barren) if page.steps else found

    def _moved_check(self, page: FrontierItem, target: str, hops: int) -> DiscoveredUrl:
        try:
            return self._check(resolve(page.url, target, self._rules), page.url_key, page.depth, hops)
        except BadUrl as problem:
            return self._invalid_row(target, str(problem), page.url_key, page.depth)

    def _continue_pagination(
        self, page: FrontierItem, start: str, hrefs: list[str], found: list[DiscoveredUrl]
    ) -> None:
        """Continue a pagination, or end it.

        Before: `found` are the rows of `hrefs` on the page. After: its steps have the number of consecutive barren pages (without new
        links); after too many of those, steps count as depth again, and those beyond a limit are denied.
        """
        others = any(url.state is UrlState.WAITING and not url.steps for url in found)
        barren = 0 if others else page.barren + 1
        for at, url in enumerate(found):
            if not url.steps:
                continue
            why = chain_end_reason(url.steps, self._limits.max_pagination)
            if why is None and barren < MAX_BARREN:
                found[at] = url._replace(barren=barren)
                continue
            depth = page.depth + 1  # the pagination has ended, and this is a link like any other
            if why is None and depth <= self._max_depth:
                found[at] = url._replace(barren=barren, depth=depth, priority=url_priority(url.url, depth))
                continue
            # Another page may link it outside of a pagination, so it is forgotten here.
            self._recent.forget(hrefs[at], start)
            outcome = Outcome.PAGINATION if why else Outcome.TOO_DEEP
            reason = why or too_deep_reason(depth, self._max_depth)
            found[at] = self._denied_row(outcome, reason, url.url, url.url_key, url.parent_key, depth)

    def for_other_domain(self, item: FrontierItem) -> DiscoveredUrl | None:
        """Return the row of a waiting URL that belongs to another domain than this visit's; None: it belongs here.

        This happens to a link that was too deep where it was found, and no longer is: no domain was created for it then.
        """
        try:
            if not item.depth or self._sites.site_of(item.url).domain == self._site.domain:
                return None
        except BadUrl:  # a host that was stored before such hosts were refused: the fetch fails with the reason
            return None
        return self.redirect_target(item, item.url, item.hops)._replace(parent_key=item.parent_key or item.url_key)

    def folded(self, item: FrontierItem) -> DiscoveredUrl | None:
        """Return the shorter URL that a waiting one is folded into, where its job or domain strips parameters; None: it is normalized.

        Links of this job and of this domain's pages are stripped when they are found. Seeds and links from other domains are not.
        """
        rules = self._fold_rules
        if item.resource is not Resource.PAGE:
            return None
        if not rules.strip_parameters or not ("?" in item.url or ";" in item.url):
            return None
        try:
            shorter = normalize(item.url, rules)
        except BadUrl:  # likewise
            return None
        return None if shorter == item.url else self.redirect_target(item, shorter, item.hops)

    def denied_now(self, item: FrontierItem) -> Denial | None:
        """Return why the job's current rules leave out a waiting URL; None: they do not. Seeds are never left out.

        Rules that were never edited need not be judged again, except for the patterns: a job that is started again leaves them to us.
        """
        if item.resource is not Resource.PAGE:
            return None
        if not item.depth:
            if self._judge is not None:
                self._judge.in_reach = True  # a seed that was added during the visit
            return None
        return (
            self._scope.denied_by_pattern(item.url) if self._judge is None else self._judge.judge(item.url, item.depth)
        )

    def _nofollow_row(self, base: str, href: str, page_key: bytes, depth: int, why: str) -> DiscoveredUrl | None:
        """Return the row of a nofollow link; None: it is no URL, or out of scope, and would not be followed anyway."""
        try:
            url = resolve(base, href, self._rules)
            site = self._sites.site_of(url)
        except BadUrl:
            return None
        denial = self._scope.judge(
            self._site.domain, self._site.parent, site.domain, site.parent, url, depth, max_depth=self._max_depth
        )
        if denial is None:
            return self._denied_row(Outcome.NOFOLLOW, why, url, url_key(url), page_key, depth)
        beyond = denial.outcome is Outcome.OUT_OF_SCOPE and not self._scope.is_excluded(url)
        return self._check(url, page_key, depth) if self._check_external and beyond else None

    def over_http(self, url: str, key: bytes) -> DiscoveredUrl:
        """Return the seed without TLS, which replaces it. Before: the URL is https."""
        instead = with_http(url)
        return DiscoveredUrl(self._job_id, url_key(instead), instead, 0, url_priority(instead, 0), key)

    def _classify(
        self,
        base: str,
        href: str,
        page_key: bytes,
        depth: int,
        chain: "_Chain | None" = None,
        *,
        hops: int = 0,
        any_domain: bool = False,
    ) -> DiscoveredUrl:
        try:
            url = resolve(base, href, self._rules)
            site = self._sites.site_of(url)
            if self._own_rules is not None and site.domain == self._site.domain:
                url = normalize(url, self._own_rules)
        except BadUrl as problem:
            return self._invalid_row(href, str(problem), page_key, depth)
        key = url_key(url)
        steps = 0
        if chain is not None and chain.page.is_step(url, is_next=href in chain.following):
            steps, depth, chain.taken = chain.step, depth - 1, True
        if not any_domain:
            denial = self._scope.judge(
                self._site.domain, self._site.parent, site.domain, site.parent, url, depth, max_depth=self._max_depth
            )
            if denial is not None:
                outcome, why = denial
                return self._denied_row(outcome, why, url, key, page_key, depth)
        denied_because = trap_reason(url, self._limits, self._this_year)
        counted = _NOT_COUNTED
        if denied_because is None and site.domain == self._site.domain:
            counted = self._templates.count(url)
            if counted.over:
                denied_because = f"{self._limits.template_cap} URLs of this pattern are known"
        if denied_because is not None:
            return self._denied_row(Outcome.TRAP, denied_because, url, key, page_key, depth)
        priority = url_priority(url, depth)
        if site.domain == self._site.domain:
            return DiscoveredUrl(
                *(self._job_id, key, url, depth, priority, page_key, hops, UrlState.WAITING, None, None, None, None),
                *(steps, 0, counted.template),
            )
        return DiscoveredUrl(self._job_id, key, url, depth, priority, page_key, hops, UrlState.WAITING, None, *site)

    def _denied_row(
        self, outcome: Outcome, why: str, url: str, key: bytes, page_key: bytes, depth: int
    ) -> DiscoveredUrl:
        """Return a denied row of the domain where the URL was found, even if it is on another: no domain is created for a denied URL."""
        reason = f"{outcome}: {why}" if why else str(outcome)
        return DiscoveredUrl(self._job_id, key, url, depth, 1, page_key, 0, UrlState.DENIED, reason)

    def _invalid_row(self, href: str, why: str, page_key: bytes, depth: int) -> DiscoveredUrl:
        """Return the row of an href that is no URL: stored as it was written, under a key of its own."""
        written = href[:_MAX_STORED_CHARS].encode("ascii", "backslashreplace").decode("ascii").replace("\x00", "")
        key = url_key(f"refused:{written}")
        return self._denied_row(Outcome.URL_REFUSED, why, written, key, page_key, depth)
