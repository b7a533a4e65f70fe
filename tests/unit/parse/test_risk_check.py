"""The risk check: which pages are safe to parse in this process."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.parse import risk_check
from holdfast.parse.risk_check import SMALL_BYTES, Risk, assess
from tests.unit.parse.bombs import BOMBS, ordinary


@pytest.mark.parametrize("count", [0, 1, 50, 150])
def test_ordinary_pages_stay_here(count: int) -> None:
    assert assess(ordinary(count)) is Risk.SAFE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<p>" * 500,
        b"text " * 20_000,
        b"<script>" + b"if(a<b){x('y')}" * 50 + b"x" * 2000 + b"</script>",
        b'<a title="a > b" href=/>' * 40,
        b"<p " + b" ".join(b"a%d" % i for i in range(400)) + b">",
        b'<img src="data:image/gif;base64,' + b"A" * 50_000 + b'">',
    ],
)
def test_odd_but_harmless_pages_stay_here(body: bytes) -> None:
    assert assess(body) is Risk.SAFE


def test_large_pages_are_parsed_apart() -> None:
    assert assess(ordinary(2000)) is Risk.LARGE
    assert assess(b"x" * (SMALL_BYTES + 1)) is Risk.LARGE


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_never_parsed_here(name: str) -> None:
    assert assess(BOMBS[name]) is not Risk.SAFE


@pytest.mark.parametrize("name", ["nested", "attributes", "quoted_ends", "body_attributes", "formatting"])
def test_plain_bombs_do_not_keep_the_large_pages_waiting(name: str) -> None:
    assert assess(BOMBS[name]) is Risk.SUSPECT


@settings(max_examples=60)
@given(st.integers(0, 400), st.sampled_from([b" x", b" x=1", b' x="y"', b" x='>'", b' x=">"', b"/x", b" <", b' x="<"']))
def test_no_attributes_hide(before: int, filler: bytes) -> None:
    """Two thousand attributes on one tag are found in any surroundings."""
    names = b"".join(filler + b" a%d" % i for i in range(2000))
    assert assess(b"<p>x</p>" * before + b"<a" + names + b">") is not Risk.SAFE


@given(
    st.lists(st.sampled_from([b"<p", b">", b"=", b'"', b"'", b" ", b"a", b"\n", b"</p>", b"="]), max_size=60).map(
        b"".join
    )
)
def test_a_quoted_end_is_never_missed_among_the_marks(body: bytes) -> None:
    """The quick pattern on the delimiters matches whenever the exact one does."""
    if risk_check._QUOTED_END.search(body):
        assert risk_check._QUOTED_END_IN_DELIMITERS.search(body.translate(None, risk_check._NOT_DELIMITERS))
