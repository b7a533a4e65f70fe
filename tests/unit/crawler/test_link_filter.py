"""From what a page points to, to rows of the frontier: each address once, waiting or denied with its reason."""

import pytest

from holdfast.crawler.link_filter import LinkFilter, LinkMemoryBudget, RecentLinks
from holdfast.model.commit_batch import DiscoveredUrl, FrontierItem
from holdfast.model.domain_name import Site, SiteCache
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import UrlState
from holdfast.model.scope import compile_rules
from holdfast.model.url import UrlRules, url_key
from holdfast.settings import Crawl

HOME = "https://www.example.com/a/b"
KEY = url_key(HOME)


def finder(
    scope: Scope = Scope.HOST,
    *,
    max_depth: int = 10,
    rules: UrlRules | None = None,
    own_rules: UrlRules | None = None,
    **spec: object,
) -> LinkFilter:
    return LinkFilter(
        7,
        Site("example.com", "example.com", "https://www.example.com"),
        scope=compile_rules(JobSpec(scope=scope, **spec)),  # type: ignore[arg-type]
        sites=SiteCache(registrable=False),
        rules=rules or UrlRules(),
        own_rules=own_rules,
        limits=Crawl(template_cap=5),
        max_depth=max_depth,
        this_year=2026,
        memory=LinkMemoryBudget(),
    )


def find(
    links: LinkFilter, *hrefs: str, base: str | None = None, depth: int = 0, page: str = HOME
) -> list[DiscoveredUrl]:
    return list(links.find(waiting(page, depth), base, hrefs))


def waiting(url: str, depth: int = 0) -> FrontierItem:
    return FrontierItem(url_key(url), url, depth, 0, 0, None, False, None, None)


def one(links: LinkFilter, href: str, **more: object) -> DiscoveredUrl:
    (found,) = find(links, href, **more)  # type: ignore[arg-type]
    return found


def test_a_link_of_the_site_waits_one_deeper() -> None:
    found = one(finder(), "c?x=1#y", depth=3)
    assert found.url == "https://www.example.com/a/c?x=1"
    assert (found.job_id, found.url_key, found.depth, found.parent_key) == (7, url_key(found.url), 4, KEY)
    assert (found.state, found.reason, found.domain, found.hops) == (UrlState.WAITING, None, None, 0)


def test_a_base_counts_and_a_bad_one_does_not() -> None:
    assert one(finder(), "c", base="/other/").url == "https://www.example.com/other/c"
    assert one(finder(), "c", base="http://[bad").url == "https://www.example.com/a/c"


@pytest.mark.parametrize(
    ("scope", "href", "domain"),
    [
        (Scope.HOST, "//shop.example.com/", None),
        (Scope.HOST, "https://www.example.com:8443/", None),
        (Scope.DOMAIN, "//shop.example.com/", "shop.example.com"),
        (Scope.DOMAIN, "//elsewhere.example.net/", None),
        (Scope.ANY, "//elsewhere.example.net/", "elsewhere.example.net"),
    ],
)
def test_what_leads_elsewhere_is_judged_by_the_scope(scope: Scope, href: str, domain: str | None) -> None:
    found = one(finder(scope), href)
    if domain is None:
        assert found.state is UrlState.DENIED
        assert found.domain is None  # no domain is made for what is not wanted
        assert found.reason is not None
        assert found.reason.startswith("out_of_scope: ")
    else:
        assert (found.state, found.reason, found.domain) == (UrlState.WAITING, None, domain)
        assert (found.parent_domain, found.base_url) == (domain.partition(".")[2], f"https://{domain}")


@pytest.mark.parametrize(
    ("href", "reason"),
    [
        ("/x.pdf", "excluded: "),
        ("/y", "excluded: it matches no include pattern"),
        ("/keep/a/a/a/a/a", "trap: "),
        ("/keep/calendar/2099/01", "trap: "),
        ("mailto:a@example.com", "url_refused: "),
        ("http://[::bad", "url_refused: "),
        ("http://0x7f.1.2.3.4/", "url_refused: "),
        (
            "//-bad-.com/keep/",
            "url_refused: 'https://-bad-.com/' names a host with a part that begins or ends with a hyphen",
        ),
    ],
)
def test_why_a_link_is_not_followed(href: str, reason: str) -> None:
    found = one(finder(include=("/keep/",), exclude=(r"\.pdf$",)), href)
    assert found.state is UrlState.DENIED
    assert (found.reason or "").startswith(reason)


def test_a_host_that_is_refused_by_now_does_not_end_the_visit() -> None:
    kept = waiting("https://-bad-.com/x?sid=1", 1)
    stripping = finder(rules=UrlRules(strip_parameters=("sid",)))
    assert (stripping.for_other_domain(kept), stripping.folded(kept)) == (None, None)


def test_too_deep() -> None:
    assert one(finder(max_depth=2), "/x", depth=1).state is UrlState.WAITING
    deep = one(finder(max_depth=2), "/x", depth=2)
    assert (deep.state, deep.reason) == (UrlState.DENIED, "too_deep: depth 3 is more than 2")


def test_too_many_of_one_pattern() -> None:
    links = finder()
    found = find(links, *(f"/item/{i}" for i in range(7)))
    assert [url.state for url in found] == [UrlState.WAITING] * 5 + [UrlState.DENIED] * 2
    assert found[-1].reason == "trap: 5 URLs of this pattern are known"


def test_an_address_is_dealt_with_once_a_visit() -> None:
    links = finder()
    assert len(find(links, "/x", "/x", "/y")) == 2
    assert find(links, "/x", "https://www.example.com/z", page="https://www.example.com/other/page") != []
    assert find(links, "/x", "/y", "https://www.example.com/z") == []
    # Relative ones mean another page in another folder, and the same in the same.
    assert len(find(links, "x")) == 1
    assert find(links, "x", page="https://www.example.com/a/c") == []
    assert len(find(links, "x", page="https://www.example.com/d/c")) == 1


def unseen(recent: RecentLinks, letters: str, depth: int = 1) -> str:
    return "".join(href[1:] for href in recent.unseen([f"/{letter}" for letter in letters], HOME, depth))


def test_a_memory_that_is_full_forgets_and_repeats() -> None:
    recent = RecentLinks(LinkMemoryBudget(4 * 152))  # two addresses of one letter and a slash in each of its halves
    assert unseen(recent, "ab") == "ab"
    assert unseen(recent, "ab") == ""
    assert unseen(recent, "cd") == "cd"
    assert unseen(recent, "efg") == "efg"
    assert unseen(recent, "ab") == "ab"


def test_the_memory_is_shared_by_the_visits_under_way() -> None:
    memory = LinkMemoryBudget(1000)
    alone = memory.share_bytes
    memory.sharers = 4
    assert (alone, memory.share_bytes) == (1000, 250)


def test_a_shorter_way_to_a_link_is_told() -> None:
    recent = RecentLinks(LinkMemoryBudget())
    assert [unseen(recent, "a", depth) for depth in (3, 4, 3, 2, 2)] == ["a", "", "", "a", ""]


def test_a_redirect_of_a_seed_is_followed_anywhere_but_not_into_a_trap() -> None:
    links = finder()
    away = links.redirect_target(waiting(HOME), "https://elsewhere.example.net/", 1)
    assert (away.state, away.domain, away.depth, away.hops) == (UrlState.WAITING, "elsewhere.example.net", 0, 1)
    assert links.redirect_target(waiting(HOME, 1), "https://elsewhere.example.net/", 1).state is UrlState.DENIED
    assert links.redirect_target(waiting(HOME), "/a/a/a/a/a/a", 1).state is UrlState.DENIED
    assert links.redirect_target(waiting(HOME), "ftp://elsewhere.example.net/", 1).state is UrlState.DENIED


def test_what_is_no_url_is_kept_as_it_was_written_and_can_be_stored() -> None:
    found = one(finder(), "http://\x00\udc80\u202e[")
    assert found.state is UrlState.DENIED
    assert found.url.isascii()
    assert "\x00" not in found.url
    assert len(one(finder(), "mailto:" + "x" * 5000).url) == 2000
    assert one(finder(), "mailto:a@example.com").url_key != one(finder(), "mailto:b@example.com").url_key


def test_sites_are_remembered_within_bounds() -> None:
    sites = SiteCache(registrable=True, limit=2)
    first = sites.site_of("https://shop.example.com/")
    assert first == ("example.com", "example.com", "https://shop.example.com")
    for i in range(5):
        sites.site_of(f"https://x{i}.example.net/")
    assert sites.site_of("https://shop.example.com/") == first


def test_a_nofollow_link_is_known_as_denied_and_another_link_to_it_is_followed() -> None:
    links = finder()
    shy = ["/x", "/y", "http://[bad", "https://elsewhere.example.net/"]
    found = links.find(waiting(HOME), None, [], nofollow=shy, why="its link has rel=nofollow")
    assert [(url.url, url.state, url.reason) for url in found] == [
        ("https://www.example.com/x", UrlState.DENIED, "nofollow: its link has rel=nofollow"),
        ("https://www.example.com/y", UrlState.DENIED, "nofollow: its link has rel=nofollow"),
    ]
    assert links.find(waiting(HOME), None, [], nofollow=shy[:1], why="again") == []
    assert one(links, "/x").state is UrlState.WAITING


def test_the_job_drops_parameters_of_all_links_and_the_domain_of_its_own() -> None:
    links = finder(Scope.ANY, rules=UrlRules().with_stripped(["a"]), own_rules=UrlRules().with_stripped(["a", "b"]))
    found = find(links, "/x?a=1&b=2&c=3", "https://elsewhere.example.net/?a=1&b=2&c=3")
    assert [url.url for url in found] == ["https://www.example.com/x?c=3", "https://elsewhere.example.net/?b=2&c=3"]


def test_a_url_with_parameters_that_are_dropped_by_now_is_folded_when_it_is_taken() -> None:
    links = finder(rules=UrlRules().with_stripped(["a"]), own_rules=UrlRules().with_stripped(["a", "b"]))
    long = waiting("https://www.example.com/x?a=1&b=2&c=3", 2)
    short = links.folded(long)
    assert short is not None
    assert (short.url, short.depth, short.parent_key) == ("https://www.example.com/x?c=3", 2, long.url_key)
    assert links.folded(waiting(short.url)) is None
    assert finder().folded(long) is None


def chained(
    links: LinkFilter, page: FrontierItem, *hrefs: str, following: tuple[str, ...] = ()
) -> dict[str, DiscoveredUrl]:
    found = links.find(page, None, hrefs, following=following)
    return {url.url.removeprefix("https://www.example.com"): url for url in found}


def test_a_step_of_a_pagination_keeps_its_page_s_depth() -> None:
    page = waiting("https://www.example.com/l?page=4", 10)._replace(steps=3)
    found = chained(finder(), page, "?page=5", "?page=3", "/post", "/cal/2")
    assert [(url, one.depth, one.steps, one.barren, one.state) for url, one in found.items()] == [
        ("/l?page=5", 10, 4, 1, UrlState.WAITING),
        ("/l?page=3", 11, 0, 0, UrlState.DENIED),
        ("/post", 11, 0, 0, UrlState.DENIED),
        ("/cal/2", 11, 0, 0, UrlState.DENIED),
    ]
    assert chained(finder(), page._replace(depth=3), "?page=5", "/post")["/l?page=5"].barren == 0
    dated = waiting("https://www.example.com/2023/12", 2)
    assert chained(finder(), dated, "/2024/01", following=("/2024/01",))["/2024/01"].depth == 2
    assert chained(finder(), dated, "/2024/01")["/2024/01"].depth == 3


def test_a_barren_chain_counts_as_depth_and_another_link_leads_on() -> None:
    links = finder()
    page = waiting("https://www.example.com/l?page=4", 9)._replace(steps=3, barren=2)
    deeper = chained(links, page, "?page=5")["/l?page=5"]
    assert (deeper.state, deeper.depth, deeper.steps, deeper.barren) == (UrlState.WAITING, 10, 4, 3)
    page = waiting("https://www.example.com/l?page=5", 10)._replace(steps=4, barren=3)
    ended = chained(links, page, "?page=6")["/l?page=6"]
    assert (ended.state, ended.depth, ended.reason) == (UrlState.DENIED, 11, "too_deep: depth 11 is more than 10")
    assert chained(links, waiting("https://www.example.com/map", 1), "/l?page=6")["/l?page=6"].state is UrlState.WAITING
    revived = chained(finder(), page._replace(depth=9), "?page=6", "/post")["/l?page=6"]
    assert (revived.depth, revived.barren) == (9, 0)


def test_a_chain_ends_after_its_steps_with_a_reason() -> None:
    page = waiting("https://www.example.com/l?page=4", 1)._replace(steps=1000)
    late = chained(finder(), page, "?page=5", "/post")["/l?page=5"]
    assert (late.state, late.reason) == (UrlState.DENIED, "pagination: step 1001 of a pagination, more than 1000")


def test_a_redirect_goes_on_with_the_chain_of_its_page() -> None:
    page = waiting("https://www.example.com/l?page=4", 1)._replace(steps=3, barren=2)
    moved = finder().redirect_target(page, "/l/4/", 1)
    assert (moved.steps, moved.barren, moved.depth) == (3, 2, 1)
