"""Accounts: users, their sessions and their API keys, as the command line, the API and the dashboard handle them.

The rule: a password or a token is given away once, by the call that makes it, and is kept nowhere. Who may call what is not decided here.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from holdfast.control import logins, names, passwords, tokens
from holdfast.control.logins import Door, Login
from holdfast.control.passwords import Argon2, Hasher
from holdfast.errors import Refused, UsageError
from holdfast.model.account import SCOPES, Principal, Role, Scope
from holdfast.settings.duration import render
from holdfast.settings.web import Web
from holdfast.store import api_keys, audit, entering, sessions, users
from holdfast.store import logins as failures
from holdfast.store.api_keys import ApiKey, KeyHolder
from holdfast.store.connect import Connection, Database
from holdfast.store.entering import Limits
from holdfast.store.rates import Rate
from holdfast.store.sessions import Holder, Session
from holdfast.store.users import User

FIRST: Final = "admin"
"""The name of the first admin."""
PAGE: Final = 500
"""The most that a list gives at once."""
SHORTEST_KEY, LONGEST_KEY = timedelta(minutes=1), timedelta(days=3650)
CHUNK: Final = 1_000

_LAST_ID: Final = 2**63 - 1


class NewPassword(NamedTuple):
    """A password was set."""

    user: User
    password: str | None
    """The one that was made, if none was given; nobody can see it again."""
    sessions: int
    """So many ended."""


class Switched(NamedTuple):
    """A user was let in again, or is no more."""

    user: User
    changed: bool
    forgotten: int = 0
    """Failed logins that are not held against him any more."""


@dataclass(frozen=True, slots=True)
class AccountDesk:
    """The accounts of one store."""

    database: Database
    settings: Web
    hasher: Hasher = field(default=Argon2())

    # Users ------------------------------------------------------------------------------------------------------------

    def ensure_admin(self) -> str | None:
        """If there is no user at all, make an admin; the password, which nobody can see again. None: there are users.

        Of several servers that start at the same time one makes it.
        """
        with self.database.session() as connection:
            if users.any_there(connection):
                return None
        password = passwords.made()
        hashed = self.hasher.hash(password)
        with self.database.session() as connection:
            made = users.add_first(connection, FIRST, hashed, actor="holdfast")
        return password if made is not None else None

    def add(self, name: str, role: Role, password: str | None, *, actor: str) -> tuple[User, str | None]:
        """A new user, and the password that was made if none was given. Refused if there is one of that name."""
        names.check(name)
        _check_role(role)
        hashed, made = self._hashed(password)
        with self.database.session() as connection:
            return users.add(connection, name, role, hashed, actor=actor), made

    def listing(self, *, after: int = 0, limit: int = 100) -> list[User]:
        """Users in the order of their ids; `after` is the last one seen."""
        _check_limit(limit)
        _check_ids(after)
        with self.database.session() as connection:
            return users.listing(connection, after=after, limit=limit)

    def show(self, who: int | str) -> User:
        """A user by name or id."""
        wanted = names.who(who)
        with self.database.session() as connection:
            return users.get(connection, wanted)

    def set_password(
        self, who: int | str, password: str | None, *, actor: str, version: int | None = None
    ) -> NewPassword:
        """Another password, made if none is given. After: all sessions of the user have ended, and no failed login is held against him."""
        wanted = names.who(who)
        hashed, made = self._hashed(password)
        with self.database.session() as connection, connection.transaction():
            user, ended = users.set_password(connection, wanted, hashed, actor=actor, version=version)
            failures.clear(connection, logins.account(user.name))
        return NewPassword(user, made, ended)

    def set_role(self, who: int | str, role: Role, *, actor: str, version: int | None = None) -> User:
        """Another role. After: all sessions of the user have ended, if it is another. The last admin stays one."""
        wanted = names.who(who)
        _check_role(role)
        with self.database.session() as connection:
            return users.set_role(connection, wanted, role, actor=actor, version=version)

    def disable(self, who: int | str, *, actor: str, version: int | None = None) -> Switched:
        """Let a user in no more. After: all sessions have ended, and the keys open nothing. The last admin stays in."""
        wanted = names.who(who)
        with self.database.session() as connection:
            return Switched(*users.switch(connection, wanted, on=False, actor=actor, version=version))

    def enable(self, who: int | str, *, actor: str, version: int | None = None) -> Switched:
        """Let a user in again. After: the keys open again what they did, and no failed login is held against him."""
        wanted = names.who(who)
        with self.database.session() as connection, connection.transaction():
            user, changed = users.switch(connection, wanted, on=True, actor=actor, version=version)
            forgotten = failures.clear(connection, logins.account(user.name))
            if forgotten and not changed:
                details = {"name": user.name, "failures": forgotten}
                audit.write(
                    connection, actor=actor, action="forget logins", kind=users.KIND, object_id=user.id, details=details
                )
        return Switched(user, changed, forgotten)

    def remove(self, who: int | str, *, actor: str, version: int | None = None) -> User:
        """Forget a user, with sessions and keys; who it was. The last admin stays."""
        wanted = names.who(who)
        with self.database.session() as connection:
            return users.remove(connection, wanted, actor=actor, version=version)

    def _hashed(self, password: str | None) -> tuple[str, str | None]:
        """A password as it is stored; and itself, if it was made here."""
        if password is not None:
            passwords.check(password)
            return self.hasher.hash(password), None
        made = passwords.made()
        return self.hasher.hash(made), made

    # Coming in --------------------------------------------------------------------------------------------------------

    def login(self, name: str, password: str, *, address: str, user_agent: str, previous: str | None = None) -> Login:
        """Somebody comes in: a new session, always under a new token; the one of `previous` is over.

        Unauthenticated, in the same words and after the same work, if there is no such user, he may not come in, or the password is wrong.
        TooMany if too many logins to this account, or from this address, have failed. Cannot be part of another transaction.
        """
        return self._door.login(name, password, logins.client(address, user_agent), previous=previous)

    def check_password(self, name: str, password: str, *, address: str) -> User:
        """The user, if that is his password: before he sets another. It fails, and is limited, as a login is."""
        return self._door.check(name, password, logins.origin(address))

    @property
    def _door(self) -> Door:
        return Door(self.database, self.settings, self.hasher)

    def session(self, token: str) -> Principal | None:
        """Whose session it is; None if it is none, or has ended, or he may not come in."""
        hashed = tokens.hashed(tokens.Kind.SESSION, token)
        if hashed is None:
            return None
        with self.database.session() as connection:
            return _by_session(sessions.find(connection, hashed), token)

    def key(self, token: str) -> Principal | None:
        """Whose API key it is, and what it is for; None if it is none, or has ended, or he may not come in."""
        hashed = tokens.hashed(tokens.Kind.KEY, token)
        if hashed is None:
            return None
        with self.database.session() as connection:
            return _by_key(api_keys.find(connection, hashed))

    def enter(
        self, kind: tokens.Kind, token: str, limits: Limits, address: str
    ) -> tuple[Principal | None, Rate] | None:
        """Who comes in by a key or a session, and how often he has come lately, this time included; looked up and counted in one go.

        None: the text cannot be a token, so that nobody was looked for, and nothing counted. A principal of None: it opens nothing, and
        the address was counted.
        """
        hashed = tokens.hashed(kind, token)
        if hashed is None:
            return None
        with self.database.session() as connection:
            if kind is tokens.Kind.KEY:
                key, rate = entering.by_key(connection, hashed, limits, address)
                return _by_key(key), rate
            session, rate = entering.by_session(connection, hashed, limits, address)
            return _by_session(session, token), rate

    # Sessions ---------------------------------------------------------------------------------------------------------

    def logout(self, token: str) -> bool:
        """End the session of a token; False if it is none, or has ended."""
        hashed = tokens.hashed(tokens.Kind.SESSION, token)
        if hashed is None:
            return False
        with self.database.session() as connection:
            return sessions.end(connection, hashed)

    def sessions(self, user_id: int, *, before: int | None = None, limit: int = 100) -> list[Session]:
        """Sessions of a user that have not ended, the newest first; `before` is the id of the last one seen."""
        _check_limit(limit)
        _check_ids(user_id, before)
        with self.database.session() as connection:
            users.get(connection, user_id)
            return sessions.listing(connection, user_id, before=before, limit=limit)

    def revoke_session(self, session_id: int, *, actor: str, user_id: int | None = None) -> bool:
        """End a session; False if it has ended. With `user_id` it must be of that user."""
        _check_ids(session_id)
        with self.database.session() as connection:
            return sessions.revoke(connection, session_id, actor=actor, user_id=user_id)

    def revoke_sessions(self, who: int | str, *, actor: str) -> int:
        """End all sessions of a user; how many."""
        wanted = names.who(who)
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
        """A new API key of a user, and its token, which nobody can see again. UsageError for scopes that the owner's role may not have."""
        wanted = names.who(who)
        names.check_key(name)
        if not scopes:
            raise UsageError(f"Say what the key is for: {', '.join(Scope)}.")
        if expires_in is not None and not SHORTEST_KEY <= expires_in <= LONGEST_KEY:
            raise UsageError(f"A key expires after {render(SHORTEST_KEY)} to {render(LONGEST_KEY)}, or never.")
        token = tokens.new(tokens.Kind.KEY)
        hashed = tokens.hashed(tokens.Kind.KEY, token)
        assert hashed is not None  # noqa: S101 — we have made it
        with self.database.session() as connection, connection.transaction():
            owner = users.get(connection, wanted, lock=True)
            if owner.disabled_at is not None:
                raise Refused(f"{owner.name} is disabled; a key would open nothing.")
            if beyond := set(scopes) - SCOPES[owner.role]:
                listed = ", ".join(sorted(beyond))
                raise UsageError(f"{owner.name} is {_a(owner.role)} and may have no key for: {listed}.")
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
        """Keys, of one user or of all, in the order of their ids, also those that open nothing any more; `after` is the last one seen."""
        _check_limit(limit)
        _check_ids(after, user_id)
        with self.database.session() as connection:
            if user_id is not None:
                users.get(connection, user_id)
            return api_keys.listing(connection, user_id=user_id, after=after, limit=limit)

    def revoke_key(self, key_id: int, *, actor: str, user_id: int | None = None) -> bool:
        """Let a key open nothing any more, for good; False if it was revoked already. With `user_id` it must be of that user."""
        _check_ids(key_id)
        with self.database.session() as connection:
            return api_keys.revoke(connection, key_id, actor=actor, user_id=user_id)

    # Upkeep -----------------------------------------------------------------------------------------------------------

    def tidy(self, connection: Connection) -> int:
        """Delete sessions that ended long ago and failed logins that count no more, a chunk of each; how many."""
        ended = sessions.tidy(connection, chunk=CHUNK)
        return ended + failures.tidy(connection, window=self.settings.login_window, chunk=CHUNK)


def _by_session(found: Holder | None, token: str) -> Principal | None:
    if found is None:
        return None
    role, csrf = Role(found.role), tokens.csrf(token)
    return Principal(found.name, role, found.user_id, via="session", grant_id=found.session_id, csrf=csrf)


def _by_key(found: KeyHolder | None) -> Principal | None:
    if found is None:
        return None
    name, role = f"{found.name} (key {found.key_name})", Role(found.role)
    scopes = SCOPES[role] & {Scope(scope) for scope in found.scopes}
    return Principal(name, role, found.user_id, via="key", scopes=scopes, grant_id=found.key_id)


def _check_role(role: Role) -> None:
    if role is Role.ANONYMOUS:
        raise UsageError("A user is a user or an admin.")


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE:
        raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")


def _check_ids(*numbers: int | None) -> None:
    for number in numbers:
        if number is not None and not 0 <= number <= _LAST_ID:
            raise UsageError(f"{number} is no id.")


def _a(role: Role) -> str:
    return "an admin" if role is Role.ADMIN else f"a {role}"
