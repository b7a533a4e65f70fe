"""Tokens: what sessions and API keys are known by.

The rule: a token is 256 random bits behind a prefix that says what it is, so that scanners for leaked secrets find it. It is given away
once; only its hash is kept. A text that is not shaped like one is none, and nobody asks the store for it.
"""

import re
import secrets
from base64 import urlsafe_b64encode
from enum import StrEnum
from hashlib import sha256
from hmac import digest
from typing import Final

_SHAPE: Final = re.compile(r"(hf[sk]_)[A-Za-z0-9_-]{43}", re.ASCII)
_SHOWN: Final = 12


class Kind(StrEnum):
    """What a token is for, and begins with."""

    SESSION = "hfs_"
    KEY = "hfk_"


def new(kind: Kind) -> str:
    """A token that nobody has."""
    return kind + secrets.token_urlsafe(32)


def hashed(kind: Kind, token: str) -> bytes | None:
    """What the store knows a token by; None if it cannot be one of that kind."""
    shape = _SHAPE.fullmatch(token)
    return sha256(token.encode()).digest() if shape and shape[1] == kind else None


def prefix(token: str) -> str:
    """What people may see of it."""
    return token[:_SHOWN]


def csrf(token: str) -> str:
    """What a request of this session that changes something must repeat. The token cannot be had from it, and nobody needs to keep it."""
    return urlsafe_b64encode(digest(token.encode(), b"holdfast csrf", "sha256")).decode().rstrip("=")
