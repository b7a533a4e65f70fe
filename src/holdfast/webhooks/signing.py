"""What webhooks are signed with: the setting, or a secret of this installation's own in a file.

The rule: a secret leaves this module to sign, or when a person asks.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pydantic import SecretStr

from holdfast.control import secret_files as key_files
from holdfast.errors import SettingsError
from holdfast.settings import Settings, signing_secrets

_FILE: Final = "webhook.secret"


@dataclass(frozen=True, slots=True)
class Signing:
    """The secrets of one installation."""

    data: Path
    given: SecretStr | None = None
    """By the setting; it comes before the file."""
    origin: str = ""
    """Where the setting comes from, for people."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(settings.data, settings.webhook.secret, settings.origin("webhook.secret").place)

    @property
    def file(self) -> Path:
        """Where the installation's own secret is, or will be."""
        return self.data / _FILE

    def known(self) -> tuple[str, ...]:
        """The secrets; none if nothing is set and none was made yet. Raises SettingsError for a file that cannot be used."""
        if self.given is not None:
            return signing_secrets(self.given.get_secret_value())
        text = key_files.read(self.file)
        if text is None:
            return ()
        try:
            return signing_secrets(text)
        except ValueError as problem:
            raise SettingsError(f"What is in {self.file} {problem}.") from None

    def ensure(self) -> tuple[str, ...]:
        """The secrets; one is made if there is none. After: whoever else asks, now or later, is given the same."""
        if known := self.known():
            return known
        key_files.make(self.file, secrets.token_urlsafe(32))
        return self.known()
