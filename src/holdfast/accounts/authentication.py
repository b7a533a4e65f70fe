"""Coming in with a name and a password.

The rule: an attempt has its place among those that may fail before its password is looked at, no connection is held meanwhile, and whoever
fails is told the same for every reason, after the same work.
"""

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final

from holdfast.control import names, passwords, tokens
from holdfast.control.passwords import Hasher
from holdfast.errors import Unauthenticated
from holdfast.settings.web import Web
from holdfast.store import audit, logins, sessions, users
from holdfast.store.connect import Connection, Database
from holdfast.store.logins import Asked, Attempt, Limits
from holdfast.store.sessions import Client
from holdfast.store.users import User

_WRONG: Final = "The name or the password is wrong."
_ADDRESS: Final = 64
_AGENT: Final = 255


@dataclass(frozen=True, slots=True)
class Login:
    """Somebody has come in."""

    token: str = field(repr=False)
    """Of the session; it is given away here and nowhere else."""
    csrf: str = field(repr=False)
    user: User
    session_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Door:
    """Where people come in."""

    database: Database
    settings: Web
    hasher: Hasher

    @property
    def limits(self) -> Limits:
        """How many may fail."""
        mine = self.settings
        return Limits(mine.login_window, mine.login_failures, mine.login_failures_address)

    def login(self, name: str, password: str, client: Client, *, previous: str | None) -> Login:
        """A new session. After: the one that the client had before is over."""
        token = tokens.new(tokens.Kind.SESSION)
        hashed = tokens.hashed(tokens.Kind.SESSION, token)
        before = None if previous is None else tokens.hashed(tokens.Kind.SESSION, previous)
        assert hashed is not None  # noqa: S101 — we have made it
        with passwords.line():
            attempt, new_hash = self._verified(name, password, client.origin)
            with self.database.session() as connection:
                with connection.transaction():
                    user = self._enter(connection, attempt, new_hash)
                    if user is not None:
                        replaced = None if before is None else sessions.replaced(connection, before)
                        session_id, expires_at = sessions.begin(
                            connection, user.id, hashed, client, lifetime=self.settings.session
                        )
                        details = {"address": client.address, "replaced": replaced}
                        audit.write(
                            connection,
                            actor=user.name,
                            action="login",
                            kind=sessions.KIND,
                            object_id=session_id,
                            details=details,
                        )
                        return Login(token, tokens.csrf(token), user, session_id, expires_at)
                self._refuse(connection, attempt)
        raise Unauthenticated(_WRONG)

    def check(self, name: str, password: str, origin: str) -> User:
        """The user, if it is his password; it counts like a login, but begins no session."""
        with passwords.line():
            attempt, new_hash = self._verified(name, password, origin)
            with self.database.session() as connection:
                with connection.transaction():
                    user = self._enter(connection, attempt, new_hash)
                if user is not None:
                    return user
                self._refuse(connection, attempt)
        raise Unauthenticated(_WRONG)

    def _verified(self, name: str, password: str, origin: str) -> tuple[Attempt, str | None]:
        """An attempt whose password is right, and its hash if that is to be made anew. Raises Unauthenticated or TooMany."""
        asked = Asked(name if names.is_name(name) else "", account(name), origin)
        with self.database.session() as connection:
            attempt = logins.reserve(connection, asked, self.limits)
        if not self.hasher.verify(attempt.password_hash, password):
            with self.database.session() as connection:
                self._refuse(connection, attempt)
            raise Unauthenticated(_WRONG)
        assert attempt.password_hash is not None  # noqa: S101 — nobody's password is never right
        outdated = self.hasher.is_outdated(attempt.password_hash)
        return attempt, self.hasher.hash(password) if outdated else None

    def _enter(self, connection: Connection, attempt: Attempt, new_hash: str | None) -> User | None:
        """The user, unless he was disabled, or the password changed, while we looked at it."""
        assert attempt.user_id is not None  # noqa: S101 — as above
        assert attempt.password_hash is not None  # noqa: S101
        user = users.enter(connection, attempt.user_id, verified=attempt.password_hash, new_hash=new_hash)
        if user is not None:
            logins.succeed(connection, attempt)
        return user

    def _refuse(self, connection: Connection, attempt: Attempt) -> None:
        logins.fail(connection, attempt, self.limits)


def account(name: str) -> bytes:
    """What failures of a name are counted by, whether it is one or not."""
    return sha256(name.lower().encode(errors="replace")).digest()


def client(address: str, user_agent: str) -> Client:
    """Where a login comes from, fit to be kept."""
    return Client(_printable(address, _ADDRESS), origin(address), _printable(user_agent, _AGENT))


def origin(address: str) -> str:
    """The address as failures are counted by it: whoever has one address of IPv6 has 2 to the 64 of them."""
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return _printable(address, _ADDRESS)
    if isinstance(read, ipaddress.IPv6Address):
        if read.ipv4_mapped is not None:
            return str(read.ipv4_mapped)
        return str(ipaddress.ip_network((int(read) >> 64 << 64, 64)))
    return str(read)


def _printable(text: str, longest: int) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:longest])
