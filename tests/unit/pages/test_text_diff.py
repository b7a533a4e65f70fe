"""The diff of two texts: what changed is shown with what is around it, and no text takes long."""

import difflib
import random
import time

import pytest

from holdfast.pages.text_diff import MAX_TEXT, changed_blocks, split_lines, unified_diff

WORDS = [f"word{number}" for number in range(400)]


def prose(seed: int, sentences: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 15))).capitalize() + "." for _ in range(sentences)]


def applied(a: list[str], b: list[str]) -> list[str]:
    """The older text with all changed blocks replaced."""
    made: list[str] = []
    place = 0
    for block in changed_blocks(a, b):
        made += a[place : block.start] + b[block.new_start : block.new_end]
        place = block.end
    return made + a[place:]


def test_the_same_text_has_no_diff() -> None:
    text = " ".join(prose(1, 50))
    assert unified_diff(text, text, "version 1", "version 2") == ""
    assert unified_diff("", "", "version 1", "version 2") == ""


def test_a_changed_sentence_is_shown_with_its_neighbours() -> None:
    sentences = [f"This is sentence number {number} of the page." for number in range(20)]
    changed = [*sentences[:10], "This one is completely different.", *sentences[11:]]
    assert unified_diff(" ".join(sentences), " ".join(changed), "version 1", "version 2").splitlines() == [
        "--- version 1",
        "+++ version 2",
        "@@ -8,7 +8,7 @@",
        *(f" {sentences[place]}" for place in (7, 8, 9)),
        f"-{sentences[10]}",
        "+This one is completely different.",
        *(f" {sentences[place]}" for place in (11, 12, 13)),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_difflib_says_where_that_is_cheap(seed: int) -> None:
    old = prose(seed, 60)
    rng = random.Random(seed)
    new = [line for line in old if rng.random() > 0.1] + prose(seed + 100, 3)
    a, b = split_lines(" ".join(old)), split_lines(" ".join(new))
    expected = list(difflib.unified_diff(a, b, "version 1", "version 2", lineterm=""))
    assert unified_diff(" ".join(old), " ".join(new), "version 1", "version 2").splitlines() == expected


def test_a_text_from_nothing_and_to_nothing() -> None:
    assert unified_diff("", "One short line.", "a", "b").splitlines() == [
        "--- a",
        "+++ b",
        "@@ -0,0 +1 @@",
        "+One short line.",
    ]
    assert unified_diff("One short line.", "", "a", "b").splitlines() == [
        "--- a",
        "+++ b",
        "@@ -1 +0,0 @@",
        "-One short line.",
    ]


def test_a_change_in_a_text_without_sentences_stays_small() -> None:
    """A menu, a table, a list of names: no full stop in 2 000 words."""
    rng = random.Random(3)
    words = rng.choices(WORDS, k=2000)
    changed = [*words[:1000], "inserted", "words", *words[1000:]]
    diff = unified_diff(" ".join(words), " ".join(changed), "a", "b").splitlines()
    assert len([line for line in diff[2:] if line[0] in "+-"]) < 12
    assert max(map(len, split_lines(" ".join(words)))) < 220


@pytest.mark.parametrize("count", [3_000, 9_000])
def test_of_a_long_text_the_anchors_find_what_changed(count: int) -> None:
    a = [f"A unique line of the text, with the number {number}." for number in range(count)]
    b = [line for place, line in enumerate(a) if place % 500]
    assert applied(a, b) == b
    assert sum(block.end - block.start for block in changed_blocks(a, b)) == count - len(b)


def hostile() -> dict[str, tuple[str, str]]:
    line = "x" * 19
    rows = [f"{number:019}" for number in range(MAX_TEXT // 20)]
    few = [f"{number:019}" for number in range(100)]
    rng = random.Random(1)
    return {
        "one line again and again": (f"{line} " * 20_000, f"{line}! " * 20_000),
        "reversed": (" ".join(rows), " ".join(reversed(rows))),
        "shuffled": (" ".join(rows), " ".join(rng.sample(rows, len(rows)))),
        "a hundred lines in any order": (" ".join(rng.choices(few, k=10_000)), " ".join(rng.choices(few, k=10_000))),
        "each line a few times": (" ".join(rows[:1000] * 10), " ".join(rng.sample(rows[:1000] * 10, 10_000))),
        "one word": ("a" * 5_000_000, "b" * 5_000_000),
        "one letter words": ("a " * 1_000_000, "a b " * 500_000),
    }


@pytest.mark.parametrize("kind", hostile())
def test_no_text_takes_long(kind: str) -> None:
    older, newer = hostile()[kind]
    started = time.process_time()
    diff = unified_diff(older, newer, "a", "b")
    assert time.process_time() - started < 2, "it takes a twentieth of a second"
    assert 0 < len(diff) < 3 * MAX_TEXT


@pytest.mark.parametrize("kind", hostile())
def test_every_diff_leads_from_one_text_to_the_other(kind: str) -> None:
    older, newer = hostile()[kind]
    a, b = split_lines(older[:MAX_TEXT]), split_lines(newer[:MAX_TEXT])
    assert applied(a, b) == b
