"""Users, their API keys and their sessions, without anything secret but a password that was just generated."""

from datetime import datetime

from holdfast.model.auth import Role, Scope
from holdfast.model.record import record


@record
class User:
    """A user, without the password."""

    id: int
    name: str
    role: Role
    disabled_at: datetime | None
    created_at: datetime
    updated_at: datetime
    version: int
    password_changed_at: datetime
    last_login_at: datetime | None

    @property
    def is_active_admin(self) -> bool:
        """Whether this is an admin who is not disabled."""
        return self.role is Role.ADMIN and self.disabled_at is None


@record
class CreatedUser(User):
    """A user that was just created."""

    password: str | None
    """The generated password, which is shown this once. null: the request had one."""


@record
class ApiKey:
    """An API key, without its token."""

    id: int
    user_id: int
    user_name: str
    name: str
    prefix: str
    """The first characters of its token."""
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    version: int


@record
class Session:
    """A session that a login started, without its token."""

    id: int
    user_id: int
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    revoked_at: datetime | None
    address: str
    user_agent: str
