"""The link recorder: the links of a page as a job records them, each with the URL under which its target is stored.

The rule: every link of a page is resolved, known or not, as the link filter resolves those that it enqueues; a small memory of hrefs keeps
those that all pages of a site have from being resolved again and again.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.commit_batch import FrontierItem, Resource
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.fetch_types import FoundLink, ParsedPage
from holdfast.model.outcome import Outcome
from holdfast.model.page_links import LinkFacts, LinkKind, PageLinks, RecordedLink, pack_places
from holdfast.model.url import UrlRules, normalize, resolve
from holdfast.parse.links import fragment_of

REMEMBERED: Final = 2_000
"""Hrefs whose URLs a visit remembers."""
_MAX_STORED_CHARS: Final = 2_000
"""Characters of an invalid href that are stored."""


class CheckBudget:
    """How many links to one host a job may still check. A retry counts once."""

    def __init__(self, limit: int, checked: int) -> None:
        """`checked`: those of visits before."""
        self._limit = limit
        self._left = limit - checked
        self._reserved: set[bytes] = set()

    def reserve(self, key: bytes) -> bool:
        """Whether the URL with this key may be fetched. After: if so, it counts."""
        if key not in self._reserved and len(self._reserved) >= self._left:
            return False
        self._reserved.add(key)
        return True

    @property
    def reason(self) -> str:
        """Why a URL is left out."""
        return f"{self._limit:,} links to this host (crawl.checks_per_host)"


class LinkRecorder:
    """Records the links of one visit's pages."""

    def __init__(self, site: Site, sites: SiteCache, rules: UrlRules, own_rules: UrlRules) -> None:
        """`rules` apply to all links of the job, `own_rules` to URLs of this domain, which may drop more parameters."""
        self._site = site
        self._sites = sites
        self._rules = rules
        self._own_rules = None if own_rules == rules else own_rules
        self._urls: dict[tuple[str, str], str | None] = {}

    def facts(
        self, item: FrontierItem, parsed: ParsedPage | None, outcome: Outcome, moved_to: str | None, *, limit: int
    ) -> LinkFacts:
        """What is recorded of a URL that was requested. `moved_to`: the target of its redirect."""
        page = None
        if parsed is not None and outcome is Outcome.OK:
            page = self._page(item.url, parsed, limit)
        return LinkFacts(page, moved_to, check=item.resource is Resource.CHECK)

    def _page(self, url: str, parsed: ParsedPage, limit: int) -> PageLinks:
        try:
            base = resolve(url, parsed.base, self._rules) if parsed.base else url
        except BadUrl:
            base = url
        found, cut = parsed.found_links, parsed.found_links_cut
        if not found:  # a PDF, or a page that only the fallback scan could read
            found, cut = _without_texts(parsed)[:limit], parsed.links_cut
        links = [self._link(base, url, link, page_nofollow=parsed.nofollow) for link in found]
        places = None if parsed.places is None else pack_places(parsed.places)
        return PageLinks(tuple(links), cut, places)

    def _link(self, base: str, page: str, link: FoundLink, *, page_nofollow: bool) -> RecordedLink:
        href = link.href
        fragment = fragment_of(href) if "#" in href else ""
        url = page if href[0] == "#" and base == page else self._resolved(base, href)
        nofollow = page_nofollow or (bool(link.rel) and "nofollow" in link.rel.lower().split())
        if url is None:
            written = href[:_MAX_STORED_CHARS].encode("ascii", "backslashreplace").decode("ascii").replace("\x00", "")
            return RecordedLink(written, link.text, link.rel, link.kind, nofollow, "", valid=False)
        return RecordedLink(url, link.text, link.rel, link.kind, nofollow, fragment)

    def _resolved(self, base: str, href: str) -> str | None:
        """The URL of an href; None: it is none."""
        # What an href means depends on less than the whole page if it begins with a slash or a scheme: pages share those.
        if href[0] == "/":
            start = base[: base.index("/", 8)]
        elif href.startswith(("https://", "http://")):
            start = ""
        else:
            start = base
        key = (start, href)
        if key in self._urls:
            return self._urls[key]
        url: str | None
        try:
            url = resolve(base, href, self._rules)
            site = self._sites.site_of(url)
            if self._own_rules is not None and site.domain == self._site.domain:
                url = normalize(url, self._own_rules)
        except BadUrl:
            url = None
        if len(self._urls) >= REMEMBERED:
            self._urls.clear()
        self._urls[key] = url
        return url


def _without_texts(parsed: ParsedPage) -> list[FoundLink]:
    def of(hrefs: Iterable[str], rel: str, kind: LinkKind) -> list[FoundLink]:
        return [FoundLink(href, "", rel, kind) for href in hrefs]

    return [
        *of(parsed.links, "", LinkKind.A),
        *of(parsed.links_nofollow, "nofollow", LinkKind.A),
        *of(parsed.frames, "", LinkKind.FRAME),
    ]
