"""Whose fault it is that a request through a proxy was not answered: only what is certain is the proxy's."""

import itertools
from typing import Any

import pycurl
import pytest

from holdfast.fetch.classify import PROXY_HANDSHAKE, outcome_of_error, outcome_of_status
from holdfast.fetch.proxy_fault import ProxyAttempt, find_fault
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import Protocol, ProxyFault

SOCKS = (Protocol.SOCKS5, Protocol.SOCKS5H)
REFUSED = pycurl.E_COULDNT_CONNECT
RESET = pycurl.E_RECV_ERROR
TIMEOUT = pycurl.E_OPERATION_TIMEDOUT
TLS = pycurl.E_PEER_FAILED_VERIFICATION
WEIRD = pycurl.E_FTP_WEIRD_SERVER_REPLY
BEFORE: dict[str, Any] = {"sent": False}
"""The proxy was connected to, and the request did not go out."""
NOWHERE: dict[str, Any] = {"sent": False, "connected": False}


def judge(protocol: Protocol, code: int = 0, **more: Any) -> ProxyFault | None:
    answered = more.get("status")
    by_status = outcome_of_status(answered, location=False, conditional=False) if answered else None
    outcome = by_status if by_status not in (None, Outcome.OK) or not code else outcome_of_error(code, "")
    return find_fault(ProxyAttempt(protocol, outcome or Outcome.BAD_RESPONSE, code, **more))


@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_proxy_that_cannot_be_reached(protocol: Protocol) -> None:
    assert judge(protocol, REFUSED, **NOWHERE) is ProxyFault.PROXY
    assert judge(protocol, TIMEOUT, **NOWHERE) is ProxyFault.PROXY
    assert judge(protocol, pycurl.E_COULDNT_RESOLVE_PROXY, **NOWHERE) is ProxyFault.PROXY
    # By then the name servers had used up the time.
    assert judge(protocol, TIMEOUT, short_of_time=True, **NOWHERE) is ProxyFault.UNCLEAR
    assert judge(protocol, REFUSED, short_of_time=True, **NOWHERE) is ProxyFault.PROXY


@pytest.mark.parametrize("code", [TIMEOUT, RESET, pycurl.E_GOT_NOTHING, pycurl.E_SEND_ERROR, WEIRD, TLS, 0])
@pytest.mark.parametrize("protocol", list(Protocol))
def test_once_the_request_is_out_it_may_be_the_site(protocol: Protocol, code: int) -> None:
    assert judge(protocol, code, tunnel=True) is ProxyFault.UNCLEAR
    assert judge(protocol, code) is ProxyFault.UNCLEAR


@pytest.mark.parametrize(
    ("connect_status", "whose"),
    [
        (302, ProxyFault.PROXY),
        (400, ProxyFault.PROXY),
        (401, ProxyFault.PROXY),
        (403, ProxyFault.PROXY),
        (404, ProxyFault.UNCLEAR),
        (405, ProxyFault.PROXY),
        (407, ProxyFault.PROXY),
        (408, ProxyFault.UNCLEAR),
        (429, ProxyFault.PROXY),
        (500, ProxyFault.UNCLEAR),
        (501, ProxyFault.PROXY),
        (502, ProxyFault.UNCLEAR),
        (503, ProxyFault.UNCLEAR),
        (504, ProxyFault.UNCLEAR),
        (505, ProxyFault.PROXY),
        (999, ProxyFault.UNCLEAR),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.HTTPS])
def test_answers_to_connect(protocol: Protocol, connect_status: int, whose: ProxyFault) -> None:
    assert judge(protocol, REFUSED, tunnel=True, connect_status=connect_status, **BEFORE) is whose


@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.HTTPS])
def test_before_the_answer_to_connect(protocol: Protocol) -> None:
    assert judge(protocol, WEIRD, tunnel=True, **BEFORE) is ProxyFault.PROXY
    assert judge(protocol, RESET, tunnel=True, **BEFORE) is ProxyFault.UNCLEAR
    assert judge(protocol, TIMEOUT, tunnel=True, **BEFORE) is ProxyFault.UNCLEAR


@pytest.mark.parametrize("code", [TLS, pycurl.E_SSL_CONNECT_ERROR])
def test_tls_to_the_proxy_and_tls_to_the_site(code: int) -> None:
    assert judge(Protocol.HTTPS, code, **BEFORE) is ProxyFault.PROXY
    assert judge(Protocol.HTTPS, TIMEOUT, **BEFORE) is ProxyFault.PROXY
    assert judge(Protocol.HTTPS, TIMEOUT, tunnel=True, **BEFORE) is ProxyFault.UNCLEAR  # or it waits for the site
    assert judge(Protocol.HTTPS, code, tunnel=True, **BEFORE) is ProxyFault.PROXY
    for protocol in (Protocol.HTTP, Protocol.HTTPS):
        assert judge(protocol, code, tunnel=True, connect_status=200, **BEFORE) is ProxyFault.UNCLEAR
    for protocol in SOCKS:
        assert judge(protocol, code, tunnel=True, **BEFORE) is ProxyFault.UNCLEAR


@pytest.mark.parametrize(
    ("proxy_error", "whose"),
    [
        (1, ProxyFault.PROXY),  # an address that is none
        (2, ProxyFault.PROXY),  # another version, or no SOCKS at all
        (3, ProxyFault.UNCLEAR),  # closed
        (4, ProxyFault.PROXY),  # Kerberos
        (9, ProxyFault.UNCLEAR),  # the site's name is too long
        (10, ProxyFault.PROXY),  # our password is
        (11, ProxyFault.PROXY),
        (12, ProxyFault.PROXY),  # no kind of login suits it
        (15, ProxyFault.UNCLEAR),  # closed, before or after it was told the site
        (17, ProxyFault.UNCLEAR),  # no such kind of address, and the site may have no other
        (18, ProxyFault.PROXY),  # it makes no connections
        (19, ProxyFault.UNCLEAR),  # the site refused
        (20, ProxyFault.UNCLEAR),  # a general failure
        (21, ProxyFault.UNCLEAR),  # unreachable
        (22, ProxyFault.UNCLEAR),
        (23, ProxyFault.PROXY),  # its rules
        (24, ProxyFault.UNCLEAR),  # lost on the way
        (25, ProxyFault.UNCLEAR),
        (33, ProxyFault.PROXY),  # it does not know us
    ],
)
@pytest.mark.parametrize("protocol", SOCKS)
def test_socks(protocol: Protocol, proxy_error: int, whose: ProxyFault) -> None:
    assert judge(protocol, PROXY_HANDSHAKE, tunnel=True, proxy_error=proxy_error, **BEFORE) is whose


def test_the_code_of_socks_stays_from_another_request_and_means_nothing_then() -> None:
    assert judge(Protocol.SOCKS5, TIMEOUT, tunnel=True, proxy_error=33, **BEFORE) is ProxyFault.UNCLEAR


@pytest.mark.parametrize("answered", [200, 204, 301, 304, 400, 401, 403, 404, 407, 418, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("protocol", list(Protocol))
def test_what_comes_through_a_tunnel_is_the_site_s(protocol: Protocol, answered: int) -> None:
    """Also 407: or one site could have all proxies put aside."""
    for connect_status in (200, 0):  # 0: the tunnel stood
        assert judge(protocol, status=answered, tunnel=True, authenticated=True, connect_status=connect_status) is None


@pytest.mark.parametrize(
    ("answered", "whose"),
    [
        (200, None),
        (302, None),
        (401, None),
        (403, None),
        (404, None),
        (407, ProxyFault.PROXY),
        (429, None),
        (500, ProxyFault.UNCLEAR),
        (502, ProxyFault.UNCLEAR),
        (503, ProxyFault.UNCLEAR),
        (504, ProxyFault.UNCLEAR),
    ],
)
@pytest.mark.parametrize("protocol", [Protocol.HTTP, Protocol.HTTPS])
def test_answers_that_a_proxy_may_have_given_itself(
    protocol: Protocol, answered: int, whose: ProxyFault | None
) -> None:
    assert judge(protocol, status=answered) is whose


def test_a_login_that_is_asked_for_where_we_gave_one() -> None:
    assert judge(Protocol.HTTP, status=401, authenticated=True) is ProxyFault.UNCLEAR
    assert judge(Protocol.HTTP, status=401, authenticated=False) is None


@pytest.mark.parametrize("tunnel", [False, True])
@pytest.mark.parametrize(
    ("code", "whose"),
    [
        (pycurl.E_PARTIAL_FILE, ProxyFault.UNCLEAR),
        (RESET, ProxyFault.UNCLEAR),
        (TIMEOUT, ProxyFault.UNCLEAR),
        (pycurl.E_BAD_CONTENT_ENCODING, None),
        (pycurl.E_FILESIZE_EXCEEDED, None),
    ],
)
def test_a_page_that_breaks_off(code: int, whose: ProxyFault | None, tunnel: bool) -> None:
    assert judge(Protocol.HTTP, code, status=200, tunnel=tunnel) is whose
    assert judge(Protocol.HTTP, code, status=404, tunnel=tunnel) is None  # what it is was clear before


def test_it_is_total() -> None:
    yes = (False, True)
    for protocol, code, answered, tunnel, sent, connected in itertools.product(
        Protocol, range(130), (None, 200, 407, 500), yes, yes, yes
    ):
        made = ProxyAttempt(
            protocol, outcome_of_error(code, ""), code, answered, tunnel=tunnel, sent=sent, connected=connected
        )
        whose = find_fault(made)
        assert whose is not None or answered is not None
        if whose is ProxyFault.PROXY:
            assert not sent or not connected or answered == 407 or code in (REFUSED, pycurl.E_COULDNT_RESOLVE_PROXY)
