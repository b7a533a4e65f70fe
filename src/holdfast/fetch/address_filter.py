"""Address filter against SSRF: only addresses of the public internet may be connected to.

The rule: an address is checked by where its packets end. An IPv4 address embedded in an IPv6 address (6to4, Teredo, NAT64, …) is
extracted and checked too, and IPv6 that is not known to be public is refused. Pure functions without network access.
"""

from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

# Not `ipaddress.is_global`: it has the registry of the day Python was built, and returns True for embedded private addresses,
# 6to4 relays, multicast and the metadata addresses of clouds.
_REFUSED_V4: Final = tuple(
    (int(network.network_address), int(network.netmask), reason)
    for network, reason in (
        (IPv4Network("0.0.0.0/8"), "this network"),
        (IPv4Network("10.0.0.0/8"), "private"),
        (IPv4Network("100.64.0.0/10"), "shared by a provider's customers"),
        (IPv4Network("127.0.0.0/8"), "loopback"),
        (IPv4Network("168.63.129.16/32"), "a cloud's metadata"),
        (IPv4Network("169.254.0.0/16"), "link-local"),
        (IPv4Network("172.16.0.0/12"), "private"),
        (IPv4Network("192.0.0.0/24"), "reserved for protocols"),
        (IPv4Network("192.0.2.0/24"), "for documentation"),
        (IPv4Network("192.31.196.0/24"), "a sink for stray DNS"),
        (IPv4Network("192.52.193.0/24"), "a multicast relay"),
        (IPv4Network("192.88.99.0/24"), "a 6to4 relay"),
        (IPv4Network("192.168.0.0/16"), "private"),
        (IPv4Network("192.175.48.0/24"), "a sink for stray DNS"),
        (IPv4Network("198.18.0.0/15"), "for benchmarks"),
        (IPv4Network("198.51.100.0/24"), "for documentation"),
        (IPv4Network("203.0.113.0/24"), "for documentation"),
        (IPv4Network("224.0.0.0/4"), "multicast"),
        (IPv4Network("240.0.0.0/4"), "reserved"),
    )
)

_REFUSED_V6: Final = (
    (IPv6Network("::/128"), "unspecified"),
    (IPv6Network("::1/128"), "loopback"),
    (IPv6Network("::ffff:0:0:0/96"), "translated by a network of its own"),
    (IPv6Network("100::/64"), "a sink"),
    (IPv6Network("100:0:0:1::/64"), "a sink"),
    (IPv6Network("2001::/23"), "reserved for protocols"),
    (IPv6Network("2001:db8::/32"), "for documentation"),
    (IPv6Network("2620:4f:8000::/48"), "a sink for stray DNS"),
    (IPv6Network("3fff::/20"), "for documentation"),
    (IPv6Network("5f00::/16"), "for segment routing"),
    (IPv6Network("fd00:ec2::/32"), "a cloud's metadata"),
    (IPv6Network("fc00::/7"), "private"),
    (IPv6Network("fe80::/10"), "link-local"),
    (IPv6Network("fec0::/10"), "site-local"),
    (IPv6Network("ff00::/8"), "multicast"),
)
_GLOBAL_V6: Final = IPv6Network("2000::/3")

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_COMPATIBLE: Final = IPv6Network("::/96")
_6TO4: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/96"))
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_ISATAP: Final = (0x5EFE, 0x0200_5EFE)
"""The upper half of an interface identifier; the lower half is an IPv4 address. Any prefix may precede it."""


@lru_cache(maxsize=1 << 16)
def refusal_reason(address: str) -> str | None:
    """Why *address* (numeric, without brackets or port) may not be connected to; None: it is public."""
    try:
        return _refusal_v6(IPv6Address(address)) if ":" in address else _refusal_v4(int(IPv4Address(address)))
    except AddressValueError:
        return "not an address"


def _refusal_v4(address: int) -> str | None:
    for network, mask, reason in _REFUSED_V4:
        if address & mask == network:
            return reason
    return None


def _refusal_v6(address: IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "link-local"
    for network, reason in _REFUSED_V6:
        if address in network and address not in _TEREDO:
            return reason
    wrapped = _embedded_ipv4(address)
    if wrapped is not None:
        how, inner = wrapped
        return next((f"{how} of an address that is {bad}" for v4 in inner if (bad := _refusal_v4(v4))), None)
    return None if address in _GLOBAL_V6 else "not of the public internet"


def _embedded_ipv4(address: IPv6Address) -> tuple[str, tuple[int, ...]] | None:
    """The name of the transition format and the embedded IPv4 addresses; None: there are none."""
    number = int(address)
    last = number & 0xFFFF_FFFF
    if address in _MAPPED or address in _COMPATIBLE:
        return "an IPv4 form", (last,)
    if address in _6TO4:
        return "a 6to4 form", (number >> 80 & 0xFFFF_FFFF,)
    if address in _TEREDO:  # the server's address, and the client's with its bits inverted
        return "a Teredo form", (number >> 64 & 0xFFFF_FFFF, last ^ 0xFFFF_FFFF)
    if any(address in network for network in _NAT64):
        return "a NAT64 form", (last,)
    if address in _LOCAL_NAT64:  # the position of the IPv4 address is known only to its network
        return None
    if address in _GLOBAL_V6 and number >> 32 & 0xFFFF_FFFF in _ISATAP:
        return "an ISATAP form", (last,)
    return None
