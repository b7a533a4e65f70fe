"""Users, their API keys and sessions, and the authenticated caller; without secrets, but for a password or token that was just created."""

from datetime import datetime, timedelta

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
    def has_first_password(self) -> bool:
        """Whether the password is still the one that the account was made with."""
        return self.password_changed_at < self.created_at + timedelta(seconds=1)

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


@record
class CreatedKey(ApiKey):
    """An API key that was just created."""

    token: str | None
    """The token, which is shown this once: null where the same request was repeated."""


@record
class ListedSession(Session):
    """A session that has not ended, in a list of the API."""

    current: bool
    """Whether this request was authenticated with it."""


@record
class Me:
    """The authenticated caller."""

    name: str
    role: Role
    via: str
    """How the caller is authenticated: `session`, `key` or `no-auth`."""
    scopes: list[Scope] | None
    """The scopes of the API key; null: everything that the role may do."""
    csrf: str | None
    """Of a session: changes repeat it in the header X-CSRF-Token."""


@record
class LoggedIn(Me):
    """A login that succeeded; the cookie of the response proves it."""

    expires_at: datetime
