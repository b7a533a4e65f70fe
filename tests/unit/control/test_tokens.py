"""Tokens of sessions and keys, and the names of their owners."""

import hashlib
import re

import pytest

from holdfast.accounts import name_rules, tokens
from holdfast.accounts.tokens import Kind
from holdfast.errors import NotFound, UsageError


@pytest.mark.parametrize("kind", Kind)
def test_a_token_is_256_random_bits_behind_its_kind(kind: Kind) -> None:
    made = {tokens.generate(kind) for _ in range(200)}
    assert len(made) == 200
    assert all(re.fullmatch(rf"{kind}[A-Za-z0-9_-]{{43}}", token) for token in made)


def test_the_store_knows_the_hash_of_the_right_kind_only() -> None:
    token = tokens.generate(Kind.SESSION)
    assert tokens.hash_token(Kind.SESSION, token) == hashlib.sha256(token.encode()).digest()
    assert tokens.hash_token(Kind.KEY, token) is None
    assert tokens.hash_token(Kind.KEY, tokens.generate(Kind.KEY)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hfs_",
        "hfs_" + "x" * 42,
        "hfs_" + "x" * 44,
        "HFS_" + "x" * 43,
        "hfs_" + "x" * 43 + "\n",
        "hfs_" + "\0" * 43,
        "hfs_" + "ü" * 43,
    ],
    ids=ascii,
)
def test_what_is_not_shaped_like_a_token_is_none(text: str) -> None:
    assert tokens.hash_token(Kind.SESSION, text) is None


def test_what_is_shown_of_a_key_leaves_208_bits() -> None:
    token = tokens.generate(Kind.KEY)
    assert (token.startswith(tokens.prefix(token)), len(tokens.prefix(token))) == (True, 12)


def test_a_csrf_value_belongs_to_a_session_and_does_not_tell_its_token() -> None:
    token = tokens.generate(Kind.SESSION)
    value = tokens.csrf(token)
    assert value == tokens.csrf(token)
    assert value != tokens.csrf(tokens.generate(Kind.SESSION))
    assert value not in token
    assert value != hashlib.sha256(token.encode()).hexdigest()
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", value)


@pytest.mark.parametrize("name", ["a", "ann", "Ann.Bee_1@example-2", "7up", "x" * 64])
def test_what_a_user_may_be_called(name: str) -> None:
    name_rules.check(name)
    assert name_rules.name_or_id(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 65,
        "7",
        "0815",
        "-x",
        ".x",
        "_x",
        "@x",
        "a b",
        "ann\n",
        "a:b",
        "ann\0",
        "änn",
        "\u0430",
        "a/b",
        "a(b",
        "'--",
    ],
    ids=ascii,
)
def test_what_no_user_may_be_called(name: str) -> None:
    with pytest.raises(UsageError, match="The name of a user is 1 to 64 letters of ASCII, digits and any of"):
        name_rules.check(name)


@pytest.mark.parametrize("name", ["anonymous", "Local", "HOLDFAST"])
def test_names_that_the_audit_log_has_for_others(name: str) -> None:
    with pytest.raises(UsageError, match="is reserved in the audit log"):
        name_rules.check(name)


def test_a_user_is_named_by_a_name_or_an_id() -> None:
    assert [name_rules.name_or_id(one) for one in (7, "7", "ann")] == [7, 7, "ann"]
    for nobody in (0, -1, 2**63, "0", str(2**63), "", "a b", "x" * 1000, "ann\0"):
        with pytest.raises(NotFound, match="There is no user "):
            name_rules.name_or_id(nobody)


@pytest.mark.parametrize("name", ["a", "x" * 64, "nightly export 2.0", "a@b-c_d"])
def test_what_a_key_may_be_called(name: str) -> None:
    name_rules.check_key(name)


@pytest.mark.parametrize("name", ["", "x" * 65, " a", "a ", "a(b)", "a\0b", "ä", "a\n"], ids=ascii)
def test_what_no_key_may_be_called(name: str) -> None:
    with pytest.raises(UsageError, match="The name of a key is 1 to 64 letters of ASCII, digits, spaces and any of"):
        name_rules.check_key(name)
