"""Passwords: what may be one, that every comparison costs the same, and how many are computed at once."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import argon2
import pytest

from holdfast.accounts import passwords
from holdfast.accounts.passwords import MAX_COMPUTING, MAX_WAITING, Argon2
from holdfast.errors import TooMany, UsageError
from tests.support.accounts import RIGHT, WEAK, WRONG
from tests.support.servers import wait_until

SHORT = "A password has at least 12 characters."
LONG = "A password has at most 1024 bytes."
NO_TEXT = "A password is text, without control characters."


@pytest.mark.parametrize(
    "password", ["x" * 12, "x" * 1024, "ü" * 12, "ü" * 512, " " * 12, "🔑" * 12, "pass word with blanks"]
)
def test_what_may_be_a_password(password: str) -> None:
    passwords.check(password)
    hashed = WEAK.hash(password)
    assert WEAK.verify(hashed, password)
    assert not WEAK.verify(hashed, password[:-1])
    assert password not in hashed


@pytest.mark.parametrize(
    ("password", "sentence"),
    [
        ("", SHORT),
        ("x" * 11, SHORT),
        ("u\u0308" * 11, SHORT),
        ("x" * 1025, LONG),
        ("ü" * 513, LONG),
        ("x" * 2_000_000, LONG),
        ("x" * 12 + "\0", NO_TEXT),
        ("x" * 12 + "\n", NO_TEXT),
        ("x" * 12 + "\x1b[2J", NO_TEXT),
        ("x" * 12 + "\udce4", NO_TEXT),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_may_not(password: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        passwords.check(password)
    assert str(refusal.value) == sentence


def test_the_real_parameters() -> None:
    hashed = Argon2().hash(RIGHT)
    assert hashed.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert Argon2().verify(hashed, RIGHT)
    assert not Argon2().verify(hashed, WRONG)
    assert not Argon2().is_outdated(hashed)
    assert Argon2().is_outdated(WEAK.hash(RIGHT))
    assert hashed != Argon2().hash(RIGHT), "each has a salt of its own"


def test_the_same_characters_are_the_same_password_however_they_are_written() -> None:
    assert WEAK.verify(WEAK.hash("münchen-münchen"), "mu\u0308nchen-mu\u0308nchen")


class Computed:
    """What really went to argon2."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.verified: list[str] = []
        self.hashed = 0
        verify, make = argon2.PasswordHasher.verify, argon2.PasswordHasher.hash

        def counted(hasher: argon2.PasswordHasher, hashed: str, password: bytes) -> bool:
            self.verified.append(hashed)
            return verify(hasher, hashed, password)

        def counted_hash(hasher: argon2.PasswordHasher, password: bytes) -> str:
            self.hashed += 1
            return make(hasher, password)

        patch.setattr(argon2.PasswordHasher, "verify", counted)
        patch.setattr(argon2.PasswordHasher, "hash", counted_hash)


@pytest.mark.parametrize("whose", ["somebody's", "nobody's"])
@pytest.mark.parametrize(
    "password", [RIGHT, "", "x" * 1025, "x" * 2_000_000, "ü" * 600, "\udce4" * 12, "\0"], ids=lambda p: repr(p)[:9]
)
def test_every_comparison_is_one_computation(monkeypatch: pytest.MonkeyPatch, whose: str, password: str) -> None:
    hashed = WEAK.hash(RIGHT) if whose == "somebody's" else None
    computed = Computed(monkeypatch)
    right = WEAK.verify(hashed, password)
    assert right is (hashed is not None and password == RIGHT)
    assert (len(computed.verified), computed.hashed) == (1, 0)
    assert not WEAK.is_outdated(computed.verified[0]), "with the same parameters"


def test_what_nobody_has_is_made_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = Computed(monkeypatch)
    assert [WEAK.verify(None, RIGHT) for _ in range(3)] == [False] * 3
    assert len(set(computed.verified)) == 3


def test_a_hash_that_cannot_be_read_fits_nothing() -> None:
    assert not WEAK.verify("$argon2id$nonsense", RIGHT)
    assert not WEAK.verify("plain", "plain")


def test_a_password_that_is_made_is_one() -> None:
    made = {passwords.generate() for _ in range(100)}
    assert len(made) == 100
    assert {len(one) for one in made} == {20}
    for one in made:
        passwords.check(one)


@pytest.mark.parametrize("what", ["verify", "hash"])
def test_two_are_computed_at_once(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    inside, most = 0, 0
    count, go_on = threading.Lock(), threading.Event()

    def slow(*_: object) -> str:
        nonlocal inside, most
        with count:
            inside += 1
            most = max(most, inside)
        assert go_on.wait(60)
        with count:
            inside -= 1
        return ""

    monkeypatch.setattr(argon2.PasswordHasher, what, slow)
    deed: Callable[[], object] = (lambda: WEAK.verify(None, RIGHT)) if what == "verify" else (lambda: WEAK.hash(RIGHT))
    threads = [threading.Thread(target=deed) for _ in range(6)]
    for thread in threads:
        thread.start()
    semaphore: Any = passwords._computing
    wait_until(lambda: inside + len(semaphore._cond._waiters) == len(threads))
    go_on.set()
    for thread in threads:
        thread.join()
    assert (most, inside) == (MAX_COMPUTING, 0)


def test_few_wait_in_line_and_others_come_again() -> None:
    with ExitStack() as line:
        for _ in range(MAX_COMPUTING + MAX_WAITING):
            line.enter_context(passwords.verification_slot())
        with pytest.raises(TooMany, match="Too many logins at this moment") as refusal, passwords.verification_slot():
            pass
        assert refusal.value.retry_after == 1.0
    with passwords.verification_slot():
        pass
