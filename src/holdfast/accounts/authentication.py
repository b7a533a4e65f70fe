"""Authentication by a name and a password.

The rule: an attempt is counted as a failure before its password is verified, no connection is held meanwhile, and a failed attempt gets
the same answer for every reason, after the same work.
"""

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final

from holdfast.accounts import name_rules, passwords, tokens
from holdfast.accounts.passwords import Hasher
from holdfast.accounts.queries import login_attempts, sessions, users
from holdfast.accounts.queries.login_attempts import Attempt, Limits, LoginRequest
from holdfast.accounts.queries.sessions import Client
from holdfast.accounts.records import User
from holdfast.db import audit
from holdfast.db.connection import Connection, Database
from holdfast.errors import Unauthenticated
from holdfast.settings.web import Web

_WRONG: Final = "The name or the password is wrong."
_ADDRESS: Final = 64
_AGENT: Final = 255


@dataclass(frozen=True, slots=True)
class Login:
    """The result of a successful login."""

    token: str = field(repr=False)
    """The token of the session; it is kept nowhere."""
    csrf: str = field(repr=False)
    user: User
    session_id: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Verifies passwords and begins sessions."""

    database: Database
    settings: Web
    hasher: Hasher

    @property
    def limits(self) -> Limits:
        """The limits on failed logins."""
        web = self.settings
        return Limits(web.login_window, web.login_failures, web.login_failures_address)

    def login(self, name: str, password: str, client: Client, *, previous: str | None) -> Login:
        """Begin a session. After: the session that the client had before has ended."""
        token = tokens.generate(tokens.Kind.SESSION)
        hashed = tokens.hash_token(tokens.Kind.SESSION, token)
        before = None if previous is None else tokens.hash_token(tokens.Kind.SESSION, previous)
        assert hashed is not None  # noqa: S101 — it was generated here
        with passwords.verification_slot():
            attempt, new_hash = self._verified(name, password, client.origin)
            with self.database.session() as connection:
                with connection.transaction():
                    user = self._record_login(connection, attempt, new_hash)
                    if user is not None:
                        replaced = None if before is None else sessions.replace(connection, before)
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
                login_attempts.fail(connection, attempt, self.limits)
        raise Unauthenticated(_WRONG)

    def verify(self, name: str, password: str, origin: str) -> User:
        """Return the user whose password it is. It is limited like a login, but begins no session."""
        with passwords.verification_slot():
            attempt, new_hash = self._verified(name, password, origin)
            with self.database.session() as connection:
                with connection.transaction():
                    user = self._record_login(connection, attempt, new_hash)
                if user is not None:
                    return user
                login_attempts.fail(connection, attempt, self.limits)
        raise Unauthenticated(_WRONG)

    def _verified(self, name: str, password: str, origin: str) -> tuple[Attempt, str | None]:
        """Return an attempt whose password is right, and a new hash if the stored one is outdated. Raises Unauthenticated or TooMany."""
        request = LoginRequest(name if name_rules.is_name(name) else "", account_hash(name), origin)
        with self.database.session() as connection:
            attempt = login_attempts.reserve(connection, request, self.limits)
        if not self.hasher.verify(attempt.password_hash, password):
            with self.database.session() as connection:
                login_attempts.fail(connection, attempt, self.limits)
            raise Unauthenticated(_WRONG)
        assert attempt.password_hash is not None  # noqa: S101 — without a hash no password is right
        outdated = self.hasher.is_outdated(attempt.password_hash)
        return attempt, self.hasher.hash(password) if outdated else None

    def _record_login(self, connection: Connection, attempt: Attempt, new_hash: str | None) -> User | None:
        """Return the user, unless it was disabled, or its password changed, while the password was verified."""
        assert attempt.user_id is not None  # noqa: S101 — as above
        assert attempt.password_hash is not None  # noqa: S101
        user = users.record_login(connection, attempt.user_id, verified=attempt.password_hash, new_hash=new_hash)
        if user is not None:
            login_attempts.succeed(connection, attempt)
        return user


def account_hash(name: str) -> bytes:
    """Return the key that failed logins of a name are counted by, whether there is such a user or not."""
    return sha256(name.lower().encode(errors="replace")).digest()


def client(address: str, user_agent: str) -> Client:
    """Return the client of a login, cut and cleaned for the database."""
    return Client(_printable(address, _ADDRESS), origin(address), _printable(user_agent, _AGENT))


def origin(address: str) -> str:
    """Return what failed logins of an address are counted by: of IPv6 its /64 network, which one client has all of."""
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
