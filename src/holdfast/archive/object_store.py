"""The connection to an S3-compatible store, shared by the stores of images and of archive segments.

The rule: every failure that may pass (no connection, no answer in time, access denied) is one error of the caller's class, in our words:
an answer of the server may contain the access key. The client is obstore's, which honours `http_proxy` and its like.
"""

import configparser
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import HoldfastError, NotFound, SettingsError
from holdfast.settings import ObjectStoreOptions

if TYPE_CHECKING:
    from obstore.store import S3Store

S3_PREFIX: Final = "s3://"
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_STATUS: Final = re.compile(r"status: ?([0-9]{3})|\b([45][0-9]{2}) [A-Z][a-z]")
_MAX_CREDENTIALS: Final = 65_536


class S3Connection:
    """A bucket, or a prefix in one. Used by any thread."""

    def __init__(
        self, url: str, settings: ObjectStoreOptions, group: str, what: str, unavailable: type[HoldfastError]
    ) -> None:
        """Before: `url` is s3://… Nothing is asked yet. `group` is the group of the settings, `what` the subject of error messages, and
        `unavailable` their class. Raises SettingsError for a file of credentials that is not usable."""
        bucket, _, prefix = url.removeprefix(S3_PREFIX).partition("/")
        self.place: Final = f"{S3_PREFIX}{bucket}/{prefix}".rstrip("/")
        self._settings = settings
        self._group, self._what, self._unavailable_error = group, what, unavailable
        self._bucket, self._prefix = bucket, prefix.strip("/")
        self._credentials = _credentials(settings, group)
        self._store: S3Store | None = None

    def open(self) -> "S3Store":
        """The store, as obstore takes it."""
        if self._store is None:
            # Imported here: most crawls use no such store.
            from obstore.store import S3Store

            timeout = self._settings.store_timeout
            options: dict[str, Any] = {"region": self._settings.region}
            if self._settings.endpoint is not None:
                options["endpoint"] = self._settings.endpoint
            if self._credentials is not None:
                options["credential_provider"] = _provider(self._credentials)
            self._store = S3Store(
                self._bucket,
                prefix=self._prefix or None,
                client_options={
                    "allow_http": True,
                    "timeout": timeout,
                    "connect_timeout": min(timeout, timedelta(seconds=5)),
                },
                retry_config={"max_retries": 3, "retry_timeout": timeout},
                **options,
            )
        return self._store

    @contextmanager
    def reporting(self, key: str | None = None) -> Iterator[None]:
        """Turn an error of obstore into one of ours. `key`: it must exist, else NotFound."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as problem:
            if key is not None and "NoSuchBucket" not in str(problem):
                raise NotFound(f"There is no file {key} in {self.place}.") from None
            raise self.unavailable(self._no_bucket()) from None
        except BaseError as problem:
            # Without the error as its cause: it may contain the server's answer, which names the access key.
            raise self.unavailable(self._reason(problem)) from None

    def unavailable(self, why: str) -> HoldfastError:
        """The error for a failure that may pass; `why` is a clause."""
        at = f" at {self._settings.endpoint}" if self._settings.endpoint else ""
        return self._unavailable_error(f"{self._what} in {self.place}{at} cannot be used: {why}.")

    def _no_bucket(self) -> str:
        return f"there is no such bucket, and it is not created ({self._group}.store)"

    def _reason(self, problem: Exception) -> str:
        """The reason of an error of obstore as a clause, without what the server answered."""
        text, group = str(problem), self._group
        name = type(problem).__name__
        status = next((one or other for one, other in _STATUS.findall(text)), None)
        if "NoSuchBucket" in text:
            return self._no_bucket()
        if name in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
            return f"access is denied; check the credentials of the settings {group}.access_key or {group}.credentials_file"
        if "kind: Timeout" in text:
            return f"it did not answer in time ({group}.store_timeout)"
        if "kind: Connect" in text:
            return f"no connection ({group}.endpoint)"
        if status is not None:
            return f"it answered with status {status}"
        if "kind: " in text:
            return "the connection broke"
        return f"the request failed ({name})"


def _provider(credentials: dict[str, str]) -> Callable[[], Any]:
    """What obstore calls for the credentials; so those of the environment are not mixed with them."""
    return lambda: {**credentials, "expires_at": None}


def _credentials(settings: ObjectStoreOptions, group: str) -> dict[str, str] | None:
    """The credentials that the settings give; None: those of the environment, which obstore reads. Raises SettingsError."""
    if settings.access_key is not None and settings.secret_key is not None:
        return {
            "access_key_id": settings.access_key.get_secret_value(),
            "secret_access_key": settings.secret_key.get_secret_value(),
        }
    if settings.credentials_file is None:
        return None
    path = settings.credentials_file
    parser = configparser.ConfigParser(interpolation=None, default_section="\0")
    try:
        parser.read_string(_read_private(path, group))
        section = parser["default"] if "default" in parser else parser[parser.sections()[0]]
        found = {"access_key_id": section["aws_access_key_id"], "secret_access_key": section["aws_secret_access_key"]}
    except (configparser.Error, KeyError, IndexError):
        # Without the error as its cause: it may quote a line of the file.
        raise SettingsError(
            f"{group}.credentials_file: {path} has no section [default] with aws_access_key_id and aws_secret_access_key."
        ) from None
    if token := section.get("aws_session_token"):
        found["token"] = token
    return found


def _read_private(path: Path, group: str) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_LINK | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise SettingsError(f"{group}.credentials_file: {path} is not a file.")
            if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077:
                raise SettingsError(
                    f"{group}.credentials_file: other users can read {path} (mode {stat.S_IMODE(found.st_mode):04o}); "
                    f"`chmod 600 {path}` ends that."
                )
            return file.read(_MAX_CREDENTIALS).decode("utf-8", "replace")
    except OSError as problem:
        raise SettingsError(f"{group}.credentials_file: {path} cannot be read: {problem.strerror}.") from problem
