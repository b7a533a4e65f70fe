"""Users, sessions and API keys of a server."""

from dataclasses import dataclass, fields
from itertools import islice

from holdfast.accounts import name_rules, passwords
from holdfast.accounts.records import ApiKey, Session, User
from holdfast.accounts.service import PasswordChange, Switched
from holdfast.cli.remote import page_after
from holdfast.client import Client, endpoints
from holdfast.model.auth import Role


@dataclass(frozen=True, slots=True)
class RemoteAccounts:
    """The accounts of a server, like `AccountService`. The actor is the owner of the API key.

    What the server does not answer is None: how many sessions ended, how many failed logins no longer count.
    """

    client: Client

    def add(self, name: str, role: Role, password: str | None, *, actor: str) -> tuple[User, str | None]:  # noqa: ARG002 — see the class
        """Add a user; return it, and the password that the server generated if none was given."""
        created = self.client.create_user(name, role=role, password=password)
        return User(**{field.name: getattr(created, field.name) for field in fields(User)}), created.password

    def users(self, *, after: int, limit: int) -> list[User]:
        """Return users in the order of their ids."""
        return page_after(self.client, endpoints.users(), (after,), limit).rows

    def show(self, who: int | str) -> User:
        """Return a user by name or id."""
        return self.client.user(name_rules.name_or_id(who))

    def set_password(self, who: int | str, password: str | None, *, actor: str) -> PasswordChange:  # noqa: ARG002
        """Set a password; generate one if none is given."""
        generated = passwords.generate() if password is None else None
        user = self.client.change_user(name_rules.name_or_id(who), password=password or generated)
        return PasswordChange(user, generated, None)

    def set_role(self, who: int | str, role: Role, *, actor: str) -> User:  # noqa: ARG002
        """Set a role."""
        return self.client.change_user(name_rules.name_or_id(who), role=role)

    def disable(self, who: int | str, *, actor: str) -> Switched:  # noqa: ARG002
        """Disable a user."""
        return self._switch(who, disabled=True)

    def enable(self, who: int | str, *, actor: str) -> Switched:  # noqa: ARG002
        """Enable a user."""
        return self._switch(who, disabled=False)

    def _switch(self, who: int | str, *, disabled: bool) -> Switched:
        before = self.show(who)
        user = self.client.change_user(before.id, disabled=disabled)
        return Switched(user, (before.disabled_at is not None) != disabled, None)

    def remove(self, who: int | str, *, actor: str) -> User:  # noqa: ARG002
        """Delete a user with sessions and keys; return it."""
        user = self.show(who)
        self.client.delete_user(user.id)
        return user

    def sessions(self, user_id: int, *, before: int | None, limit: int) -> list[Session]:
        """Return sessions of a user that have not ended, the newest first."""
        listing = endpoints.user_sessions(user_id)
        found = page_after(self.client, listing, None if before is None else (before,), limit).rows
        return [Session(**{field.name: getattr(one, field.name) for field in fields(Session)}) for one in found]

    def revoke_sessions(self, who: int | str, *, actor: str) -> int | None:  # noqa: ARG002
        """End all sessions of a user."""
        self.client.end_user_sessions(name_rules.name_or_id(who))
        return None

    def keys(self, user_id: int | None, *, after: int, limit: int) -> list[ApiKey]:
        """Return keys of one user or of all, in the order of their ids."""
        if user_id is None:
            return page_after(self.client, endpoints.api_keys(), (after,), limit).rows
        own = (key for key in self.client.api_keys() if key.user_id == user_id and key.id > after)
        return list(islice(own, limit))

    def revoke_key(self, key_id: int, *, actor: str) -> bool:  # noqa: ARG002
        """Revoke a key for good; return False if it was revoked already."""
        before = next((key for key in self.client.api_keys() if key.id == key_id), None)
        self.client.revoke_api_key(key_id)
        return before is None or before.revoked_at is None
