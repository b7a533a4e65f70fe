"""Accounts: users, their sessions and their API keys; login and authentication of requests.

The rule: a password or a token is returned once, by the call that generates it, and is kept nowhere. Permissions are not checked here.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.accounts import authentication, name_rules, passwords, tokens
from holdfast.accounts.authentication import Authenticator, Login
from holdfast.accounts.passwords import Argon2, Hasher
from holdfast.accounts.queries import api_keys, login_attempts, sessions, users
from holdfast.accounts.records import ApiKey, Session, User
from holdfast.db import audit, request_auth
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import check_page_size
from holdfast.db.rate_limits import RateUsage
from holdfast.db.request_auth import KeyHolder, RateLimits, SessionHolder
from holdfast.errors import Refused, UsageError
from holdfast.model.auth import SCOPES, Principal, Role, Scope
from holdfast.model.duration import render
from holdfast.settings.web import Web

FIRST: Final = "admin"
"""The name of the first admin."""
MIN_KEY_LIFETIME, MAX_KEY_LIFETIME = timedelta(minutes=1), timedelta(days=3650)

_LAST_ID: Final = 2**63 - 1


class PasswordChange(NamedTuple):
    """The result of setting a password."""

    user: User
    password: str | None
    """The generated password, if none was given; it is kept nowhere."""
    sessions: int | None
    """The number of sessions that ended; None: a server does not answer it."""


class Switched(NamedTuple):
    """The result of enabling or disabling a user."""

    user: User
    changed: bool
    forgotten: int | None = 0
    """The number of failed logins that no longer count against the account; None: a server does not answer it."""


@dataclass(frozen=True, slots=True)
class AccountService:
    """The accounts of one database."""

    database: Database
    settings: Web
    hasher: Hasher = field(default=Argon2())

    # Users ------------------------------------------------------------------------------------------------------------

    def ensure_admin(self) -> str | None:
        """Add an admin if there is no user; return the generated password, or None if there are users.

        Of several servers that start at the same time one adds it.
        """
        with self.database.session() as connection:
            if users.exists(connection):
                return None
        password = passwords.generate()
        hashed = self.hasher.hash(password)
        with self.database.session() as connection:
            made = users.add_first(connection, FIRST, hashed, actor="holdfast")
        return password if made is not None else None

    def add(self, name: str, role: Role, password: str | None, *, actor: str) -> tuple[User, str | None]:
        """Add a user; return it, and the password that was generated if none was given. Refused if the name is taken."""
        name_rules.check(name)
        _check_role(role)
        hashed, made = self._hashed(password)
        with self.database.session() as connection:
            return users.add(connection, name, role, hashed, actor=actor), made

    def users(self, *, after: int = 0, limit: int = 100) -> list[User]:
        """Return users in the order of their ids; `after` is the last id of the page before."""
        check_page_size(limit)
        _check_ids(after)
        with self.database.session() as connection:
            return users.listing(connection, after=after, limit=limit)

    def show(self, who: int | str) -> User:
        """Return a user by name or id. Raises NotFound."""
        wanted = name_rules.name_or_id(who)
        with self.database.session() as connection:
            return users.get(connection, wanted)

    def set_password(
        self, who: int | str, password: str | None, *, actor: str, version: int | None = None
    ) -> PasswordChange:
        """Set a password; generate one if none is given. After: all sessions of the user have ended, and no failed login counts."""
        wanted = name_rules.name_or_id(who)
        hashed, made = self._hashed(password)
        with self.database.session() as connection, connection.transaction():
            user, ended = users.set_password(connection, wanted, hashed, actor=actor, version=version)
            login_attempts.clear(connection, authentication.account_hash(user.name))
        return PasswordChange(user, made, ended)

    def set_role(self, who: int | str, role: Role, *, actor: str, version: int | None = None) -> User:
        """Set a role. After: all sessions of the user have ended, if the role changed. The last admin cannot be changed."""
        wanted = name_rules.name_or_id(who)
        _check_role(role)
        with self.database.session() as connection:
            return users.set_role(connection, wanted, role, actor=actor, version=version)

    def disable(self, who: int | str, *, actor: str, version: int | None = None) -> Switched:
        """Disable a user. After: all sessions have ended, and API keys open nothing. The last admin cannot be disabled."""
        wanted = name_rules.name_or_id(who)
        with self.database.session() as connection:
            return Switched(*users.switch(connection, wanted, on=False, actor=actor, version=version))

    def enable(self, who: int | str, *, actor: str, version: int | None = None) -> Switched:
        """Enable a user. After: API keys work again, and no failed login counts against the account."""
        wanted = name_rules.name_or_id(who)
        with self.database.session() as connection, connection.transaction():
            user, changed = users.switch(connection, wanted, on=True, actor=actor, version=version)
            forgotten = login_attempts.clear(connection, authentication.account_hash(user.name))
            if forgotten and not changed:
                details = {"name": user.name, "failures": forgotten}
                audit.write(
                    connection, actor=actor, action="forget logins", kind=users.KIND, object_id=user.id, details=details
                )
        return Switched(user, changed, forgotten)

    def remove(self, who: int | str, *, actor: str, version: int | None = None) -> User:
        """Delete a user with sessions and keys; return it. The last admin cannot be deleted."""
        wanted = name_rules.name_or_id(who)
        with self.database.session() as connection:
            return users.remove(connection, wanted, actor=actor, version=version)

    def _hashed(self, password: str | None) -> tuple[str, str | None]:
        """Return the hash of a password; and the password, if it was generated here."""
        if password is not None:
            passwords.check(password)
            return self.hasher.hash(password), None
        made = passwords.generate()
        return self.hasher.hash(made), made

    # Authentication -------------------------------------------------------------------------------------------------

    def login(self, name: str, password: str, *, address: str, user_agent: str, previous: str | None = None) -> Login:
        """Begin a session, always under a new token; the session of the token `previous` ends.

        Unauthenticated, in the same words and after the same work, if there is no such user, it is disabled, or the password is wrong.
        TooMany if too many logins to this account, or from this address, have failed. Cannot be part of another transaction.
        """
        return self._authenticator.login(name, password, authentication.client(address, user_agent), previous=previous)

    def check_password(self, name: str, password: str, *, address: str) -> User:
        """Return the user whose password it is: before the user sets another. It fails, and is limited, as a login is."""
        return self._authenticator.verify(name, password, authentication.origin(address))

    @property
    def _authenticator(self) -> Authenticator:
        return Authenticator(self.database, self.settings, self.hasher)

    def session(self, token: str) -> Principal | None:
        """Return the caller of a session; None if there is no such session, it has ended, or the user is disabled."""
        hashed = tokens.hash_token(tokens.Kind.SESSION, token)
        if hashed is None:
            return None
        with self.database.session() as connection:
            return _session_principal(request_auth.find_session(connection, hashed), token)

    def key(self, token: str) -> Principal | None:
        """Return the caller of an API key, with its scopes; None if there is no such key, it has ended, or the owner is disabled."""
        hashed = tokens.hash_token(tokens.Kind.KEY, token)
        if hashed is None:
            return None
        with self.database.session() as connection:
            return _key_principal(request_auth.find_key(connection, hashed))

    def authenticate(
        self, kind: tokens.Kind, token: str, limits: RateLimits, address: str
    ) -> tuple[Principal | None, RateUsage] | None:
        """Return the caller of a key or a session, and the rate after this request; both in one statement.

        None: the text cannot be a token, so nothing was looked up or counted. A principal of None: the token opens nothing, and the
        request was counted for the address.
        """
        hashed = tokens.hash_token(kind, token)
        if hashed is None:
            return None
        with self.database.session() as connection:
            if kind is tokens.Kind.KEY:
                key, rate = request_auth.authenticate_key(connection, hashed, limits, address)
                return _key_principal(key), rate
            session, rate = request_auth.authenticate_session(connection, hashed, limits, address)
            return _session_principal(session, token), rate

    # Sessions ---------------------------------------------------------------------------------------------------------

    def logout(self, token: str) -> bool:
        """End the session of a token; False if there is no such session, or it has ended."""
        hashed = tokens.hash_token(tokens.Kind.SESSION, token)
        if hashed is None:
            return False
        with self.database.session() as connection:
            return sessions.end(connection, hashed)

    def sessions(self, user_id: int, *, before: int | None = None, limit: int = 100) -> list[Session]:
        """Return sessions of a user that have not ended, the newest first; `before` is the last id of the page before."""
        check_page_size(limit)
        _check_ids(user_id, before)
        with self.database.session() as connection:
            users.get(connection, user_id)
            return sessions.listing(connection, user_id, before=before, limit=limit)

    def revoke_session(self, session_id: int, *, actor: str, user_id: int | None = None) -> bool:
        """End a session; False if it has ended. With `user_id` it must belong to that user. Raises NotFound."""
        _check_ids(session_id)
        with self.database.session() as connection:
            return sessions.revoke(connection, session_id, actor=actor, user_id=user_id)

    def revoke_sessions(self, who: int | str, *, actor: str) -> int:
        """End all sessions of a user; return their number."""
        wanted = name_rules.name_or_id(who)
        with self.database.session() as connection, connection.transaction():
            user = users.get(connection, wanted)
            ended = sessions.revoke_all(connection, user.id)
            if ended:
                details = {"user": user.name, "sessions_ended": ended}
                audit.write(
                    connection, actor=actor, action="revoke", kind=sessions.KIND, object_id="*", details=details
                )
        return ended

    # Keys -------------------------------------------------------------------------------------------------------------

    def create_key(
        self, who: int | str, name: str, scopes: Collection[Scope], expires_in: timedelta | None, *, actor: str
    ) -> tuple[ApiKey, str]:
        """Add an API key; return it and its token, which is kept nowhere. UsageError for scopes that the owner's role may not have."""
        wanted = name_rules.name_or_id(who)
        name_rules.check_key(name)
        if not scopes:
            raise UsageError(f"Say what the key is for: {', '.join(Scope)}.")
        if expires_in is not None and not MIN_KEY_LIFETIME <= expires_in <= MAX_KEY_LIFETIME:
            raise UsageError(f"A key expires after {render(MIN_KEY_LIFETIME)} to {render(MAX_KEY_LIFETIME)}, or never.")
        token = tokens.generate(tokens.Kind.KEY)
        hashed = tokens.hash_token(tokens.Kind.KEY, token)
        assert hashed is not None  # noqa: S101 — it was generated here
        with self.database.session() as connection, connection.transaction():
            owner = users.get(connection, wanted, lock=True)
            if owner.disabled_at is not None:
                raise Refused(f"{owner.name} is disabled; a key would be refused.")
            if beyond := set(scopes) - SCOPES[owner.role]:
                listed = ", ".join(sorted(beyond))
                raise UsageError(f"{owner.name} is {_with_article(owner.role)} and may have no key for: {listed}.")
            chosen = [scope for scope in Scope if scope in scopes]
            made = api_keys.add(
                connection,
                owner.id,
                name,
                chosen,
                token_hash=hashed,
                prefix=tokens.prefix(token),
                expires_in=expires_in,
                actor=actor,
            )
        return made, token

    def keys(self, user_id: int | None = None, *, after: int = 0, limit: int = 100) -> list[ApiKey]:
        """Return keys of one user or of all, in the order of their ids, revoked and expired ones too; `after` is the last id of the page
        before."""
        check_page_size(limit)
        _check_ids(after, user_id)
        with self.database.session() as connection:
            if user_id is not None:
                users.get(connection, user_id)
            return api_keys.listing(connection, user_id=user_id, after=after, limit=limit)

    def revoke_key(self, key_id: int, *, actor: str, user_id: int | None = None) -> bool:
        """Revoke a key for good; False if it was revoked already. With `user_id` it must belong to that user. Raises NotFound."""
        _check_ids(key_id)
        with self.database.session() as connection:
            return api_keys.revoke(connection, key_id, actor=actor, user_id=user_id)


def _session_principal(found: SessionHolder | None, token: str) -> Principal | None:
    if found is None:
        return None
    role, csrf = Role(found.role), tokens.csrf(token)
    return Principal(
        found.name,
        role,
        found.user_id,
        via="session",
        grant_id=found.session_id,
        csrf=csrf,
        first_password=found.first_password,
    )


def _key_principal(found: KeyHolder | None) -> Principal | None:
    if found is None:
        return None
    name, role = f"{found.name} (key {found.key_name})", Role(found.role)
    scopes = SCOPES[role] & {Scope(scope) for scope in found.scopes}
    return Principal(name, role, found.user_id, via="key", scopes=scopes, grant_id=found.key_id)


def _check_role(role: Role) -> None:
    if role is Role.ANONYMOUS:
        raise UsageError("A user is a user or an admin.")


def _check_ids(*numbers: int | None) -> None:
    for number in numbers:
        if number is not None and not 0 <= number <= _LAST_ID:
            raise UsageError(f"{number} is no id.")


def _with_article(role: Role) -> str:
    return "an admin" if role is Role.ADMIN else f"a {role}"
