"""Which pages may be parsed in this process."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.parse import prescan
from holdfast.parse.prescan import SMALL_BYTES, Place, place
from tests.unit.parse.bombs import BOMBS, ordinary


@pytest.mark.parametrize("count", [0, 1, 50, 150])
def test_ordinary_pages_stay_here(count: int) -> None:
    assert place(ordinary(count)) is Place.HERE


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
    assert place(body) is Place.HERE


def test_large_pages_are_parsed_apart() -> None:
    assert place(ordinary(2000)) is Place.APART
    assert place(b"x" * (SMALL_BYTES + 1)) is Place.APART


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_never_parsed_here(name: str) -> None:
    assert place(BOMBS[name]) is not Place.HERE


@pytest.mark.parametrize("name", ["nested", "attributes", "quoted_ends", "body_attributes", "formatting"])
def test_plain_bombs_do_not_keep_the_large_pages_waiting(name: str) -> None:
    assert place(BOMBS[name]) is Place.SUSPECT


@settings(max_examples=60)
@given(st.integers(0, 400), st.sampled_from([b" x", b" x=1", b' x="y"', b" x='>'", b' x=">"', b"/x", b" <", b' x="<"']))
def test_no_attributes_hide(before: int, filler: bytes) -> None:
    """Whatever stands around them: two thousand on one tag are seen."""
    names = b"".join(filler + b" a%d" % i for i in range(2000))
    assert place(b"<p>x</p>" * before + b"<a" + names + b">") is not Place.HERE


@given(
    st.lists(st.sampled_from([b"<p", b">", b"=", b'"', b"'", b" ", b"a", b"\n", b"</p>", b"="]), max_size=60).map(
        b"".join
    )
)
def test_a_quoted_end_is_never_missed_among_the_marks(body: bytes) -> None:
    """What the closer look would find, the quick one has found before."""
    if prescan._QUOTED_END.search(body):
        assert prescan._QUOTED_END_OF_MARKS.search(body.translate(None, prescan._NO_MARKS))
