"""Reports on links: who links to a URL, what a page links to, broken links, redirects, orphans, missing places.

The rule: a link is broken if its target was requested and ended in an error, at once or behind redirects. What was not requested, or was
refused to us only, is listed apart. Reports are read in chunks by key, so that any of them can be paged.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from shlex import quote
from typing import Final, NamedTuple, TypeVar

import zstandard

from holdfast.db import crawls, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.errors import BadUrl, NotFound, UsageError
from holdfast.links import queries
from holdfast.links.queries import START, UrlName
from holdfast.links.records import (
    Answer,
    BrokenLink,
    ExportedLink,
    LinkDegree,
    LinkPlace,
    LinkSummary,
    MissingPlace,
    Orphan,
    PageLinkList,
    RedirectedLink,
    StoredPage,
    TargetLink,
    TargetState,
    UncheckedTarget,
)
from holdfast.model.cursor import INVALID_CURSOR
from holdfast.model.domain_name import SiteCache
from holdfast.model.outcome import Outcome
from holdfast.model.page_links import (
    BROKEN,
    LinkKind,
    RecordedLink,
    check_key,
    has_place,
    is_broken,
    target_number,
)
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import DEFAULT_RULES, UrlRules, url_key

SHOWN_PLACES: Final = 20
"""Pages that are shown of a target in a list; `linking` has all."""
COUNTED: Final = 1_000
"""Pages that link to a URL that are counted at a glance."""
MAX_PLACES: Final = 1_000
"""Pages of a target that one answer of the API has."""
MAX_HOPS: Final = 20
"""Redirects in a row that are followed in a report."""
_CHUNK: Final = 200
_SCANNED: Final = 2_000
"""Rows after which a page of a report ends, full or not."""
_MAX_BODY: Final = 64 * 1024 * 1024
"""Bytes of the unpacked links of a page; what a crawl stores is far below."""
_KNOWN_PLACES: Final = 2_000
"""Pages whose places are kept while links to them are looked at."""
_CIRCLE: Final = "the redirects lead back to a URL before"
_NO_URL: Final = "no URL"
_ANSWERED: Final = frozenset({*map(str, BROKEN)})
_REDIRECT: Final = frozenset({str(Outcome.REDIRECT)})

Row = TypeVar("Row")


class LinkedPage(NamedTuple):
    """A page with those of its links that lead to a target."""

    key: queries.Key
    places: list[LinkPlace]


class Chain(NamedTuple):
    """Where a redirect leads to."""

    hops: list[str]
    """Without the URL that it begins with."""
    state: TargetState
    reason: str | None
    answer: Answer | None
    """Of the last hop, if it is no page."""


@dataclass(frozen=True, slots=True)
class LinkService:
    """The links of one store."""

    database: Database
    registrable: bool = False
    rules: UrlRules = DEFAULT_RULES
    """How URLs in questions are normalized."""
    sites: SiteCache = field(default_factory=lambda: SiteCache(registrable=False))

    @classmethod
    def of(cls, database: Database, *, registrable: bool, rules: UrlRules) -> "LinkService":
        """The service of a store with these settings."""
        return cls(database, registrable, rules, SiteCache(registrable=registrable))

    # One URL ----------------------------------------------------------------------------------------------------------

    def incoming(
        self, url: str, job: str | int | None = None, *, after: Key | None = None, limit: int = 100
    ) -> Page[LinkPlace]:
        """Return the links to a URL, by page; `limit` counts pages. Without a job: in the newest one that has any. Raises NotFound."""
        check_page_size(limit)
        target = self._normalized(url)
        number = target_number(url_key(target))
        with self.database.session() as connection:
            job_id = self._job_linking(connection, job, number)
            found = [] if job_id is None else self._linking(connection, job_id, number, target, _key(after), limit)
        rows = [place for page in found for place in page.places]
        return Page(rows, found[-1].key if len(found) == limit else None)

    def count_incoming(self, url: str, job: str | int | None = None) -> int:
        """Return how many pages link to a URL."""
        number = target_number(url_key(self._normalized(url)))
        with self.database.session() as connection:
            job_id = self._job_linking(connection, job, number)
            return 0 if job_id is None else queries.count_linking(connection, job_id, [number])[number]

    def glance(self, url: str, job: str | int | None = None, *, limit: int = 10) -> tuple[int, list[LinkPlace]]:
        """Return how many pages link to a URL, counted up to `COUNTED`, and the links on some of them. As fast for a page that all others
        link to."""
        target = self._normalized(url)
        number = target_number(url_key(target))
        with self.database.session() as connection:
            job_id = self._job_linking(connection, job, number)
            if job_id is None:
                return 0, []
            count, pages = queries.some_linking(connection, job_id, number, limit=limit, counted=COUNTED)
        return count, [
            _place(page.url, at, link)
            for page in sorted(pages, key=lambda one: one.url)
            for at, link in enumerate(unpack(page), 1)
            if link.url == target
        ]

    def _job_linking(self, connection: Connection, job: str | int | None, number: int) -> int | None:
        if job is not None:
            return self._find_job(connection, job)[0]
        found = queries.job_linking(connection, number)
        return None if found is None else found[0]

    def outgoing(self, url: str, job: str | int | None = None) -> PageLinkList:
        """Return the links of a page, with what is known of their targets. Raises NotFound."""
        url = self._normalized(url)
        name = self._name(url)
        with self.database.session() as connection:
            found = self._find_job(connection, job) if job is not None else queries.job_of_page(connection, name)
            stored = None if found is None else queries.page(connection, found[0], name)
            if found is None or stored is None:
                raise NotFound(f"The links of {url} are not recorded; `holdfast crawl --links` records those of pages.")
            links = unpack(stored)
            chains = self._chains(connection, found[0], [link.url for link in links if link.valid])
        rows = []
        for number, link in enumerate(links, 1):
            chain = chains.get(link.url, _UNKNOWN) if link.valid else _INVALID
            rows.append(
                TargetLink(
                    url=link.url,
                    position=number,
                    text=link.text,
                    rel=link.rel,
                    kind=str(link.kind),
                    nofollow=link.nofollow,
                    fragment=link.fragment,
                    state=chain.state,
                    reason=chain.reason,
                    ends_at=chain.hops[-1] if chain.hops else None,
                )
            )
        return PageLinkList(stored.url, found[1], rows, stored.cut)

    # Reports ----------------------------------------------------------------------------------------------------------

    def broken(
        self,
        job: str | int | None = None,
        *,
        external: bool | None = None,
        after: Key | None = None,
        limit: int = 100,
        places: int | None = SHOWN_PLACES,
    ) -> Page[BrokenLink]:
        """Return one page of the targets whose links are broken. `external`: only those out of scope, or only the others; `places`: pages
        that are shown of each, None: all. Raises NotFound, UsageError."""
        wanted = _ANSWERED | _REDIRECT

        def judge(connection: Connection, job_id: int, found: list[Answer]) -> Iterator[BrokenLink]:
            chains = self._chains(connection, job_id, [one.url for one in found if one.outcome == Outcome.REDIRECT])
            judged = [(one, chains[one.url] if one.outcome == Outcome.REDIRECT else None) for one in found]
            faults = [(one, chain, last) for one, chain in judged if (last := _fault(one, chain)) is not None]
            for one, count in self._with_counts(connection, job_id, [one for one, _, _ in faults]):
                chain, last = next((chain, last) for other, chain, last in faults if other is one)
                endless = chain is not None and last is one
                yield BrokenLink(
                    url=one.url,
                    domain=one.domain,
                    external=one.checked,
                    outcome=_outcome_of(chain) if chain is not None and endless else last.outcome,
                    status=last.status,
                    detail=chain.reason if chain is not None and endless else last.detail,
                    hops=[] if chain is None else chain.hops,
                    pages=count,
                    links=self._places(connection, job_id, one, places),
                    answered_at=last.answered_at,
                )

        return self._report(job, wanted, external, after, limit, judge)

    def redirects(
        self,
        job: str | int | None = None,
        *,
        min_hops: int = 1,
        external: bool | None = None,
        after: Key | None = None,
        limit: int = 100,
        places: int | None = SHOWN_PLACES,
    ) -> Page[RedirectedLink]:
        """Return one page of the targets that redirect, through at least this many hops, and to which a page links."""

        def judge(connection: Connection, job_id: int, found: list[Answer]) -> Iterator[RedirectedLink]:
            chains = self._chains(connection, job_id, [one.url for one in found])
            long = [one for one in found if len(chains[one.url].hops) >= min_hops]
            for one, count in self._with_counts(connection, job_id, long):
                chain = chains[one.url]
                state = TargetState.OK if chain.state is TargetState.REDIRECT else chain.state
                shown = self._places(connection, job_id, one, places)
                facts = (one.url, one.domain, one.checked, one.status, chain.hops, state, chain.reason, count, shown)
                yield RedirectedLink(*facts)

        return self._report(job, _REDIRECT, external, after, limit, judge)

    def orphans(self, job: str | int | None = None, *, after: Key | None = None, limit: int = 100) -> Page[Orphan]:
        """Return one page of the URLs that a sitemap lists or that are seeds, and to which no page links, not even through a redirect."""

        def judge(connection: Connection, job_id: int, found: list[Orphan]) -> list[Orphan]:
            numbers = {target_number(url_key(one.url)): one for one in found}
            known = queries.linked(connection, job_id, numbers)
            left = [one for number, one in numbers.items() if number not in known]
            behind = self._linked_through_redirects(connection, job_id, [one.url for one in left])
            return [one for one in left if one.url not in behind]

        return self._by_domain(job, after, limit, queries.named_urls, judge)

    def unchecked(
        self, job: str | int | None = None, *, after: Key | None = None, limit: int = 100
    ) -> Page[UncheckedTarget]:
        """Return one page of the targets that were not requested, each with the reason."""

        def judge(connection: Connection, job_id: int, found: list[UncheckedTarget]) -> list[UncheckedTarget]:
            beyond = [one.url for one in found if one.reason.startswith(Outcome.OUT_OF_SCOPE)]
            names = {self._name(url, check=True): url for url in beyond}
            checks = {names[name] for name in queries.located(connection, job_id, names)}
            return [one for one in found if one.url not in checks]

        return self._by_domain(job, after, limit, queries.unchecked, judge)

    def missing_places(
        self, job: str | int | None = None, *, after: Key | None = None, limit: int = 100
    ) -> Page[MissingPlace]:
        """Return links to places that are not on their targets; `limit` counts them roughly, since those of a page stay together."""
        check_page_size(limit)
        rows: list[MissingPlace] = []
        with self.database.session() as connection:
            job_id, _ = self._job(connection, job)
            known: OrderedDict[str, bytes | None] = OrderedDict()
            key, scanned = _key(after), 0
            while True:
                pages = queries.pages(connection, job_id, key, _CHUNK)
                rows_of = self._missing(connection, job_id, pages, known)
                for page in pages:
                    rows += rows_of[page.url]
                    key, scanned = (page.domain_id, bytes(page.url_key)), scanned + 1
                    if len(rows) >= limit:
                        return Page(rows, key, scanned)
                if len(pages) < _CHUNK:
                    return Page(rows, None)
                if scanned >= _SCANNED:
                    return Page(rows, key, scanned)

    def top(self, job: str | int | None = None, *, limit: int = 100) -> list[LinkDegree]:
        """Return the URLs to which most pages link. Reads all pages of the job."""
        check_page_size(limit)
        with self.database.session() as connection:
            job_id, _ = self._job(connection, job)
            found = []
            for number, pages in queries.degrees(connection, job_id, limit):
                page = queries.linking(connection, job_id, number, START, 1)[0]
                url = next(link.url for link in unpack(page) if target_number(_link_key(link)) == number)
                found.append(LinkDegree(url, pages))
        return found

    def summary(self, job: str | int | None = None) -> LinkSummary:
        """Return what a job has recorded of links. Reads all its pages and URLs."""
        with self.database.session() as connection:
            return queries.summary(connection, *self._job(connection, job))

    # Parts ------------------------------------------------------------------------------------------------------------

    def _report(
        self,
        job: str | int | None,
        outcomes: Collection[str],
        external: bool | None,
        after: Key | None,
        limit: int,
        judge: Callable[[Connection, int, list[Answer]], Iterator[Row]],
    ) -> Page[Row]:
        check_page_size(limit)
        rows: list[Row] = []
        with self.database.session() as connection:
            job_id, _ = self._job(connection, job)
            key, scanned = _key(after), 0
            while True:
                # No more than rows are wanted: each may be one, and the key must be that of the last one.
                size = min(_CHUNK, limit - len(rows))
                found = queries.answers(connection, job_id, key, size, outcomes=outcomes, checked=external)
                rows += judge(connection, job_id, found)
                if len(found) < size:
                    return Page(rows, None)
                key, scanned = (found[-1].domain_id, bytes(found[-1].url_key)), scanned + len(found)
                if len(rows) >= limit:
                    return Page(rows, key)
                if scanned >= _SCANNED:
                    return Page(rows, key, scanned)

    def _by_domain(
        self,
        job: str | int | None,
        after: Key | None,
        limit: int,
        read: Callable[[Connection, int, int, bytes, int], list[tuple[queries.Key, Row]]],
        judge: Callable[[Connection, int, list[Row]], list[Row]],
    ) -> Page[Row]:
        """A report that reads URLs of a job, domain by domain."""
        check_page_size(limit)
        rows: list[Row] = []
        with self.database.session() as connection:
            job_id, _ = self._job(connection, job)
            first, key = _key(after)
            scanned = 0
            for domain_id in queries.domains_of(connection, job_id, first):
                position = key if domain_id == first else b""
                while True:
                    size = min(_CHUNK, limit - len(rows))
                    found = read(connection, job_id, domain_id, position, size)
                    rows += judge(connection, job_id, [row for _, row in found])
                    scanned += len(found)
                    if len(found) < size:
                        break
                    position = found[-1][0][1]
                    if len(rows) >= limit or scanned >= _SCANNED:
                        return Page(rows, (domain_id, position), None if len(rows) >= limit else scanned)
        return Page(rows, None)

    def _with_counts(self, connection: Connection, job_id: int, found: list[Answer]) -> Iterator[tuple[Answer, int]]:
        """Those of these answers to which a page links, with the number of pages."""
        numbers = {_number_of(one): one for one in found}
        counts = queries.count_linking(connection, job_id, numbers) if numbers else {}
        return ((one, counts[number]) for number, one in numbers.items() if counts[number])

    def _places(self, connection: Connection, job_id: int, answer: Answer, limit: int | None) -> list[LinkPlace]:
        places: list[LinkPlace] = []
        key, left = START, limit
        while left is None or left > 0:
            size = _CHUNK if left is None else min(_CHUNK, left)
            found = self._linking(connection, job_id, _number_of(answer), answer.url, key, size)
            places += [place for page in found for place in page.places]
            if len(found) < size:
                break
            key, left = found[-1].key, None if left is None else left - len(found)
        return places

    def _linking(
        self, connection: Connection, job_id: int, number: int, url: str, after: queries.Key, limit: int
    ) -> list[LinkedPage]:
        """Pages that link to a target."""
        found = []
        for page in queries.linking(connection, job_id, number, after, limit):
            places = [_place(page.url, at, link) for at, link in enumerate(unpack(page), 1) if link.url == url]
            found.append(LinkedPage((page.domain_id, bytes(page.url_key)), places))
        return found

    def _chains(self, connection: Connection, job_id: int, urls: Iterable[str]) -> dict[str, Chain]:
        """Where each of these URLs leads to: its redirects, and the state of the last hop."""
        known: dict[str, Answer | None] = {}
        places: dict[str, queries.Located] = {}
        asked = set(urls)
        wanted = set(asked)
        for _ in range(MAX_HOPS):
            new = wanted - known.keys()
            if not new:
                break
            self._look_up(connection, job_id, new, known, places)
            wanted = {one.moved_to for url in new if (one := known[url]) is not None and one.moved_to is not None}
        return {url: _chain(url, known, places) for url in asked}

    def _look_up(
        self,
        connection: Connection,
        job_id: int,
        urls: Collection[str],
        known: dict[str, Answer | None],
        located: dict[str, queries.Located],
    ) -> None:
        """After: `known` has the answers of these URLs, and `located` those of the others that the job knows. What the job crawls comes
        before what it only checked."""
        names: dict[UrlName, str] = {}
        for url in urls:
            try:
                names[self._name(url)] = names[self._name(url, check=True)] = url
            except BadUrl:  # a redirect led to it
                has_other_scheme = ":" in url and not url.startswith(("http:", "https:"))
                located[url] = queries.Located(
                    "denied" if has_other_scheme else _NO_URL, "leads to no http or https URL"
                )
        found = queries.answers_of(connection, job_id, names) if names else {}
        for name, answer in sorted(found.items(), key=lambda one: not one[1].checked):
            known[names[name]] = answer
        known.update({url: None for url in urls if url not in known})
        rest = {name: url for name, url in names.items() if known[url] is None}
        rows = queries.located(connection, job_id, rest) if rest else {}
        # What is crawled first, what is only checked next, and what is neither last.
        for name, row in sorted(
            rows.items(), key=lambda one: (one[1].state == "denied", one[0].url_key != url_key(rest[one[0]]))
        ):
            located.setdefault(rest[name], row)

    def _missing(
        self, connection: Connection, job_id: int, pages: list[StoredPage], known: OrderedDict[str, bytes | None]
    ) -> dict[str, list[MissingPlace]]:
        """By page, its links to places that are not on their targets. `known`: places of pages that were read before."""
        linked = [
            (page, at, link)
            for page in pages
            for at, link in enumerate(unpack(page), 1)
            if link.fragment and link.kind in (LinkKind.A, LinkKind.AREA)
        ]
        new = {link.url for _, _, link in linked} - known.keys()
        names = {self._name(url): url for url in new if _is_url(url)}
        found = queries.places(connection, job_id, names) if names else {}
        known.update(dict.fromkeys(new))
        known.update({names[name]: packed for name, packed in found.items()})
        rows: dict[str, list[MissingPlace]] = {page.url: [] for page in pages}
        for page, at, link in linked:
            packed = known[link.url]
            if packed is not None and not has_place(packed, link.fragment):
                rows[page.url].append(MissingPlace(page.url, link.url, link.fragment, at, link.text))
        while len(known) > _KNOWN_PLACES:
            known.popitem(last=False)
        return rows

    def _linked_through_redirects(self, connection: Connection, job_id: int, urls: list[str]) -> set[str]:
        """Those of these URLs to which a linked URL redirects, at once or through others."""
        behind: set[str] = set()
        origins = {url: {url} for url in urls}
        """By URL, those of `urls` that it leads to."""
        for _ in range(MAX_HOPS):
            if not origins:
                break
            steps = queries.moved_to(connection, job_id, list(origins))
            numbers = {target_number(url_key(source)): source for source, _ in steps}
            known = {numbers[number] for number in queries.linked(connection, job_id, numbers)} if numbers else set()
            further: dict[str, set[str]] = {}
            for source, target in steps:
                leads_to = origins[target] - behind
                if source in known:
                    behind |= leads_to
                elif source not in origins:
                    further.setdefault(source, set()).update(leads_to)
            origins = further
        return behind

    def _job(self, connection: Connection, job: str | int | None) -> tuple[int, str]:
        if job is not None:
            found_id, name = self._find_job(connection, job)
            if not crawls.get(connection, found_id).spec.records_links and not queries.has_links(connection, found_id):
                raise NotFound(
                    f"The job {name!r} does not record links; `holdfast crawl --job {quote(name)} --links --again` "
                    "fetches its pages again and records those of them."
                )
            return found_id, name
        found = queries.newest_job(connection)
        if found is None:
            raise NotFound("No job has recorded links; `holdfast crawl URL --links` records those of its pages.")
        return found

    def _find_job(self, connection: Connection, job: str | int) -> tuple[int, str]:
        job_id = job if isinstance(job, int) else jobs.find(connection, job)
        return job_id, crawls.get(connection, job_id).name

    def _normalized(self, url: str) -> str:
        return make_seed(url, rules=self.rules, registrable=self.registrable).url

    def _name(self, url: str, *, check: bool = False) -> UrlName:
        if not _is_url(url) or "/" not in url[8:]:
            raise BadUrl(f"{url!a} is no URL.")
        return UrlName(self.sites.site_of(url).domain, check_key(url) if check else url_key(url))


def exported_links(
    connection: Connection, *, job_id: int | None = None, domain_id: int | None = None
) -> Iterator[ExportedLink]:
    """Read every recorded link, of a job or of pages of a domain, as an edge from page to target."""
    for job, name in queries.jobs_with_links(connection):
        if job_id not in (None, job):
            continue
        for pages in queries.export_pages(connection, job, domain_id=domain_id, size=_CHUNK):
            for page in pages:
                for position, link in enumerate(unpack(page), 1):
                    edge = (page.url, link.url, link.text, link.rel, str(link.kind), link.nofollow, link.fragment)
                    yield ExportedLink(*edge, position, name, page.domain)


def unpack(page: StoredPage) -> list[RecordedLink]:
    """Return the links of a page."""
    rows = json.loads(zstandard.ZstdDecompressor().decompress(page.body, max_output_size=_MAX_BODY))
    return [RecordedLink(*row) for row in rows]


def _key(after: Key | None) -> queries.Key:
    if after is None:
        return START
    match after:
        case (int(domain_id), bytes(key)):
            return domain_id, key
    raise UsageError(INVALID_CURSOR)


def _place(page: str, position: int, link: RecordedLink) -> LinkPlace:
    return LinkPlace(page, position, link.text, link.rel, str(link.kind), link.nofollow, link.fragment)


def _is_url(url: str) -> bool:
    return url.startswith(("https://", "http://"))


def _link_key(link: RecordedLink) -> bytes:
    return url_key(link.url if link.valid else f"refused:{link.url}")


def _number_of(answer: Answer) -> int:
    refused = answer.outcome == Outcome.URL_REFUSED
    return target_number(url_key(f"refused:{answer.url}" if refused else answer.url))


_UNKNOWN: Final = Chain([], TargetState.NOT_CHECKED, "the job does not know it", None)
_INVALID: Final = Chain([], TargetState.BROKEN, "the link is no valid URL", None)


def _chain(url: str, known: dict[str, Answer | None], located: dict[str, queries.Located]) -> Chain:
    hops: list[str] = []
    seen = {url}
    at = url
    while (answer := known.get(at)) is not None:
        if answer.outcome != Outcome.REDIRECT:
            state = (
                TargetState.BROKEN if is_broken(Outcome(answer.outcome), check=answer.checked) else TargetState.REFUSED
            )
            return Chain(hops, state, _reason(answer), answer)
        if answer.moved_to is None:
            return Chain(hops, TargetState.NOT_CHECKED, "its redirect was not followed", None)
        at = answer.moved_to
        hops.append(at)
        if at in seen or len(hops) >= MAX_HOPS:
            why = (
                "the redirects lead back to a URL before" if at in seen else f"there are more than {MAX_HOPS} redirects"
            )
            return Chain(hops, TargetState.BROKEN, why, None)
        seen.add(at)
    place = located.get(at)
    if place is None:
        return _UNKNOWN._replace(hops=hops)
    match place.state:
        case "done":
            return Chain(hops, TargetState.REDIRECT if hops else TargetState.OK, None, None)
        case unusable if unusable == _NO_URL:
            return Chain(hops, TargetState.BROKEN, place.reason, None)
        case "waiting":
            return Chain(hops, TargetState.WAITING, place.reason or "waits for its turn", None)
        case _:
            return Chain(hops, TargetState.NOT_CHECKED, place.reason, None)


def _fault(answer: Answer, chain: Chain | None) -> Answer | None:
    """The answer that makes links to a target broken: its own, that of the last hop, or its own if its redirects never end. None: they are
    not."""
    if answer.outcome != Outcome.REDIRECT:
        return answer if is_broken(Outcome(answer.outcome), check=answer.checked) else None
    if chain is None or chain.state is not TargetState.BROKEN:
        return None
    return chain.answer or answer


def _outcome_of(chain: Chain) -> str:
    """The outcome of redirects that end in no answer."""
    ends_in_circle = chain.hops[-1] in chain.hops[:-1] or len(chain.hops) >= MAX_HOPS or chain.reason == _CIRCLE
    return str(Outcome.REDIRECT_LOOP if ends_in_circle else Outcome.URL_REFUSED)


def _reason(answer: Answer) -> str:
    return f"{answer.outcome}: {answer.detail}" if answer.detail else answer.outcome
