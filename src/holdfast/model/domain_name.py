"""Domain names: the canonical name of a server, and its registrable domain by the packaged public suffix list.

The rule: one server, one name; a text that is not the name of a server is ``BadUrl``, never a row. Nothing here uses the network.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import publicsuffixlist

from holdfast.model.url import MAX_HOST, MAX_INPUT, PLAIN_HOST, bad_url, checked_host, parse_url, to_absolute

MAX_DOMAIN: Final = 255

# Of ASCII letters only: without re.ASCII, re.IGNORECASE would take U+017F for an "s".
_BARE: Final = re.compile(rf"({PLAIN_HOST})(:(?:80|443))?", re.IGNORECASE | re.ASCII)
_IN_URL: Final = re.compile(rf"https?://({PLAIN_HOST})(?::(?:80|443))?(?:[/?#]|\Z)", re.IGNORECASE | re.ASCII)
_INVALID_IN_HOST: Final = re.compile(r"[/\\?#@\t\r\n]|^[^\[]*:|\]:")

# Kinds of entries in the list: a rule, a wildcard rule for every name below ("*."), or an exception to that ("!").
_RULE, _WILDCARD, _EXCEPTION = 1, 2, 4


def host_to_ascii(host: str) -> str:
    """The host as WHATWG's host parser writes it: UTS 46 mapping, punycode, IPv4 in all its spellings. It may be longer than a domain."""
    if not host or _INVALID_IN_HOST.search(host):
        raise bad_url(host, "is not a host")
    return parse_url(f"https://{host}/").host


def canonical_domain(url_or_host: str, *, registrable: bool = False) -> str:
    """The identity of the server behind a URL, //host, host:port or bare host; *registrable* joins its subdomains.

    Scheme, one leading ``www.``, ports 80 and 443 and a trailing dot are dropped; another port is kept.

    Names are ASCII as ada's UTS 46 (non-transitional) makes them. That is IDNA 2008's answer wherever IDNA 2008 has one
    (test_host holds it against the ``idna`` package). Where it has none, for emoji, symbols or underscores, browsers
    and name servers use the name all the same, and so do we: a domain that exists must be crawlable.
    """
    host = _plain_host(url_or_host)
    port = ""
    if host is None:
        host, port = _host_and_port(url_or_host)
    return _domain(host, port, url_or_host, registrable=registrable)


def domain_of_base(base_url: str, *, registrable: bool = False) -> str:
    """The canonical domain of the scheme, host and port of a normalized URL. The same as `canonical_domain`, in a third of the time."""
    host = base_url[base_url.index("//") + 2 :]
    if ":" in host:  # a port, or an IPv6 address
        return canonical_domain(base_url, registrable=registrable)
    return _domain(host, "", base_url, registrable=registrable)


def _domain(host: str, port: str, text: str, *, registrable: bool) -> str:
    if host.startswith("www.") and not _is_public_suffix(host[4:]):
        host = host[4:]
    if registrable:
        host = parent_domain(host)
    if len(host) + len(port) > MAX_DOMAIN:
        raise bad_url(text, f"makes a domain of more than {MAX_DOMAIN} characters")
    return host + port


def parent_domain(domain: str) -> str:
    """The registrable domain (public suffix and one label) above a canonical domain, without its port.

    An IP address, a public suffix and a single label are their own parent.
    """
    if ":" in domain and not domain.endswith("]"):
        domain = domain.rpartition(":")[0]
    last = domain.rfind(".") + 1
    if last == 0 or domain[last:].isdigit():  # no top-level domain is a number, so it is an IPv4 address
        return domain
    suffix = _public_suffix_start(domain)
    return domain[domain.rfind(".", 0, suffix - 1) + 1 :] if suffix else domain


def _plain_host(text: str) -> str | None:
    """The host in lowercase, if it is obviously canonical but for case, final dot, default port, ``www.``; None: it has to be parsed."""
    if len(text) > MAX_INPUT:
        return None
    found = _BARE.fullmatch(text.removesuffix(".")) if len(text) <= MAX_HOST else None
    if found is None:
        found = _IN_URL.match(text)
    elif found[2] and ("." not in found[1] or text[-1] == "."):
        return None  # perhaps another scheme ("tel:80"), or no port ("a.b:80.")
    return found[1].lower() if found and len(found[1]) <= MAX_HOST else None


def _host_and_port(text: str) -> tuple[str, str]:
    url = parse_url(to_absolute(text))
    return checked_host(url), "" if url.port in (None, 80, 443) else f":{url.port}"


def _is_public_suffix(host: str) -> bool:
    return _public_suffix_start(host) == 0


def _public_suffix_start(host: str) -> int:
    """The index at which the public suffix begins in an ASCII host. For a name that the list does not know it is the last label.

    Walks from the right and stops at the first name that no rule ends with: two look-ups for most domains.
    """
    rules = _suffix_rules()
    suffix = host.rfind(".") + 1
    dot = len(host)
    below_wildcard = 0
    while dot >= 0:
        dot = host.rfind(".", 0, dot)
        known = rules.get(host[dot + 1 :])
        if known is None:
            return dot + 1 if below_wildcard else suffix
        if known & _EXCEPTION:
            return host.find(".", dot + 1) + 1
        if known or below_wildcard:  # the parent of a wildcard is a public suffix too
            suffix = dot + 1
        below_wildcard = known & _WILDCARD
    return suffix


@cache
def _suffix_rules() -> dict[str, int]:
    """The packaged list. Not publicsuffixlist's own look-up, which takes several times as long for a domain and to load; test_domain_name
    compares each rule's result with it."""
    return _read_rules(Path(publicsuffixlist.PSLFILE).read_text("utf-8"))


def _read_rules(text: str) -> dict[str, int]:
    """Every rule of a list and every suffix of one, in ASCII."""
    known: dict[str, int] = {}
    for line in text.splitlines():
        rule = line.partition(" ")[0].strip()
        if not rule or rule.startswith("//"):
            continue
        kind = {"*": _WILDCARD, "!": _EXCEPTION}.get(rule[0], _RULE)
        name = rule.removeprefix("*.").removeprefix("!").lower()
        name = name if name.isascii() else host_to_ascii(name)
        known[name] = known.get(name, 0) | kind
        while (dot := name.find(".")) >= 0:
            name = name[dot + 1 :]
            known.setdefault(name, 0)
    return known


class Site(NamedTuple):
    """The domain of a host, its parent domain and its base URL."""

    domain: str
    parent: str
    base_url: str


class SiteCache:
    """Cache of the domains of hosts: a crawl meets the same hosts again and again."""

    def __init__(self, *, registrable: bool, limit: int = 50_000) -> None:
        self._registrable = registrable
        self._limit = limit
        self._known: dict[str, Site] = {}

    def site_of(self, url: str) -> Site:
        """Return the site of a normalized URL. Raises BadUrl for a host that cannot exist."""
        origin = url[: url.index("/", 8)]
        site = self._known.get(origin)
        if site is None:
            domain = canonical_domain(url, registrable=self._registrable)
            if len(self._known) >= self._limit:
                self._known.clear()
            site = self._known[origin] = Site(domain, parent_domain(domain), origin)
        return site
