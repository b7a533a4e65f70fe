"""Tokens of sessions and API keys.

The rule: a token is 256 random bits after a prefix that names its kind, so that scanners for leaked secrets find it. It is returned once;
only its hash is stored. A text without the form of a token is not looked up.
"""

import re
import secrets
from base64 import urlsafe_b64encode
from enum import StrEnum
from hashlib import sha256
from hmac import digest
from typing import Final

_FORM: Final = re.compile(r"(hf[sk]_)[A-Za-z0-9_-]{43}", re.ASCII)
_SHOWN: Final = 12


class Kind(StrEnum):
    """The kind of a token: its prefix."""

    SESSION = "hfs_"
    KEY = "hfk_"


def generate(kind: Kind) -> str:
    """Return a new random token."""
    return kind + secrets.token_urlsafe(32)


def hash_token(kind: Kind, token: str) -> bytes | None:
    """Return the hash that is stored; None if the text cannot be a token of that kind."""
    form = _FORM.fullmatch(token)
    return sha256(token.encode()).digest() if form and form[1] == kind else None


def prefix(token: str) -> str:
    """Return the first characters, which may be shown."""
    return token[:_SHOWN]


def csrf(token: str) -> str:
    """Return the CSRF value that a request of this session must repeat if it changes something. It is derived from the token, which cannot
    be derived from it, and is not stored."""
    return urlsafe_b64encode(digest(token.encode(), b"holdfast csrf", "sha256")).decode().rstrip("=")
