"""The secrets that webhooks are signed with: those of the setting, or one of this installation in a file.

The rule: a secret leaves this module to sign, or when an operator asks for it.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pydantic import SecretStr

from holdfast.control import secret_box
from holdfast.errors import SettingsError
from holdfast.settings import Settings, signing_secrets

_FILE: Final = "webhook.secret"


@dataclass(frozen=True, slots=True)
class Signing:
    """The secrets of one installation."""

    data: Path
    configured: SecretStr | None = None
    """The setting; it comes before the file."""
    origin: str = ""
    """Where the setting comes from, as text."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """From the settings."""
        return cls(settings.data, settings.webhook.secret, settings.origin("webhook.secret").place)

    @property
    def file(self) -> Path:
        """The file of the installation's own secret."""
        return self.data / _FILE

    def known(self) -> tuple[str, ...]:
        """Return the secrets; none if nothing is set and none was created yet. Raises SettingsError for a file that cannot be used."""
        if self.configured is not None:
            return signing_secrets(self.configured.get_secret_value())
        text = secret_box.read(self.file)
        if text is None:
            return ()
        try:
            return signing_secrets(text)
        except ValueError as problem:
            raise SettingsError(f"What is in {self.file} {problem}.") from None

    def ensure(self) -> tuple[str, ...]:
        """Return the secrets; create one if there is none. After: all processes get the same ones."""
        if known := self.known():
            return known
        secret_box.make(self.file, secrets.token_urlsafe(32))
        return self.known()
