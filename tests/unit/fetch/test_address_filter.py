"""The guard: a table of addresses, each with what must be said of it."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.fetch.address_filter import refusal_reason

PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.215.14 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0
192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0
203.0.112.255 203.0.114.0 223.255.255.255 2001:200::1 2001:4860:4860::8888 2600:: 2606:4700:4700::1111
2a00:1450:4001::1 2003::1 3fff:1000::1 ::ffff:8.8.8.8 ::8.8.8.8 64:ff9b::8.8.8.8 64:ff9b:1::8.8.8.8 2002:808:808::1
2002:808:808:1::1 2001:0:808:808:0:ffff:f7f7:f7f7 2a00::5efe:808:808 2a00::200:5efe:808:808
"""

REFUSED = """
0.0.0.0 0.0.0.1 0.255.255.255 10.0.0.0 10.1.2.3 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 127.0.0.1
127.0.0.0 127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 169.254.170.2 172.16.0.0 172.31.255.255 192.0.0.0
192.0.0.8 192.0.0.192 192.0.0.255 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.0 192.88.99.1 192.168.0.0
192.168.255.255 192.175.48.1 198.18.0.0 198.19.255.255 198.51.100.1 203.0.113.255 224.0.0.1 239.255.255.255 240.0.0.1
255.255.255.255 :: ::1 ::2 ::127.0.0.1 ::10.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254
::ffff:0.0.0.0 ::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::a9fe:a9fe
64:ff9b:1::127.0.0.1 64:ff9b:1::c0a8:1 64:ff9b:1:abcd::8.8.8.8 64:ff9b:1:7f00:0:100:: 2002:7f00:1::1 2002:a00:1::
2002:c0a8:101::1 2002:a9fe:a9fe::1 2001:0:7f00:1:0:ffff:f7f7:f7f7 2001:0:808:808:0:ffff:80ff:fffe
2001:0:808:808:0:ffff:f5ff:fffe 2001:: 2001:1::1 2001:2::1 2001:10::1 2001:20::1 2001:4:112::1 2001:1ff:ffff::1
2001:db8::1 2001:db8:ffff::1 2620:4f:8000::1 3fff::1 3fff:fff::1 100::1 100:0:0:1::1 5f00::1 4000::1 8000::1 fc00::1
fd00::1 fd00:ec2::254 fdff::1 fe80::1 fe80::1%eth0 fec0::1 feff::1 ff00:: ff02::1 ff0e::1 e000::1 2a00::5efe:127.0.0.1
2a00::5efe:c0a8:1 2a00::200:5efe:a00:1 fe80::5efe:8.8.8.8
"""

NO_ADDRESS = [
    "",
    "localhost",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1:80",
    "[::1]",
    "1.2.3",
    "1.2.3.4 ",
    "::g",
    chr(0xFF11) + ".1.1.1",
]


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public(address: str) -> None:
    assert refusal_reason(address) is None


@pytest.mark.parametrize("address", REFUSED.split())
def test_refused(address: str) -> None:
    assert refusal_reason(address)


@pytest.mark.parametrize("text", NO_ADDRESS)
def test_what_is_no_address_is_refused(text: str) -> None:
    assert refusal_reason(text) == "not an address"


def test_says_why() -> None:
    assert refusal_reason("127.0.0.1") == "loopback"
    assert refusal_reason("64:ff9b::a9fe:a9fe") == "a NAT64 form of an address that is link-local"
    assert refusal_reason("fd00:ec2::254") == "a cloud's metadata"


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_judged_as_what_is_in_it(address: IPv4Address) -> None:
    plain = refusal_reason(str(address)) is None
    number = int(address)
    forms = [
        f"::ffff:{address}",
        f"64:ff9b::{address}",
        str(IPv6Address((0x2002 << 112) | (number << 80) | 1)),
        f"2a00::5efe:{address}",
    ]
    assert [refusal_reason(form) is None for form in forms] == [plain] * len(forms)


@given(st.ip_addresses(v=6))
def test_never_more_than_python_knows_to_be_global(address: IPv6Address) -> None:
    wrapped = address.ipv4_mapped or address.sixtofour or address.teredo
    if refusal_reason(str(address)) is None and not wrapped and int(address) >> 96 not in (0, 0x64FF9B0000000000000000):
        assert address.is_global
        assert not address.is_multicast
