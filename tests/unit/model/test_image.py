"""Near duplicates: distances of hashes, and the keys by which near ones are found."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.image import BAND_BITS, MAX_DISTANCE, band_keys, distance, look_alike, near_keys, to_signed

_HASHES = st.integers(0, 2**64 - 1).map(to_signed)


@given(_HASHES, st.sets(st.integers(0, 63), max_size=MAX_DISTANCE), st.integers(0, MAX_DISTANCE))
def test_whatever_is_near_shares_a_key(dhash: int, flipped: set[int], maximum: int) -> None:
    other = to_signed(dhash ^ sum(1 << bit for bit in flipped))
    assert distance(dhash, other) == len(flipped)
    if len(flipped) <= maximum:
        assert set(band_keys(other)) & set(near_keys(dhash, maximum))
    assert look_alike(dhash, other, maximum) == (len(flipped) <= maximum)


def test_keys_are_few_and_differ() -> None:
    assert sum(BAND_BITS) == 64
    assert band_keys(-1) == [2**22 - 1, 2**22 + 2**21 - 1, 2**23 + 2**21 - 1]
    assert [len(near_keys(7, maximum)) for maximum in (0, 2, 3, 5, 6, 8)] == [3, 3, 67, 67, 718, 718]
    assert len(set(near_keys(7, 8))) == 718
    assert not look_alike(None, 1, 8)
    assert not look_alike(1, None, 8)
