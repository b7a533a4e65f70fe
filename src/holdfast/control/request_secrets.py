"""Headers, cookies and credentials of jobs and domains: sealed, stored, and listed without their values.

The rule: this module passes only sealed values to the database, and only names to its callers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.control.secret_box import SecretBox
from holdfast.db import request_secrets
from holdfast.db.connection import Connection
from holdfast.errors import Refused, UsageError
from holdfast.model.request_secrets import MAX_ORIGINS, RequestSecrets, SealedSecret, seed_origins


@dataclass(frozen=True, slots=True)
class SecretSealer:
    """Seals the secrets of jobs and domains, and stores them."""

    secrets: SecretBox

    def set_job_secrets(
        self, connection: Connection, job_id: int, secrets: RequestSecrets, seeds: Iterable[str]
    ) -> list[str]:
        """Change a job's secrets; returns the names of all that it has afterwards. They are sent to the origins of these seeds and of
        those that the job has already; for seeds that are added later they have to be set again.

        Before: no URL of `seeds` is in the frontier, or it may be fetched without them.
        """
        before = request_secrets.seed_origins(connection, job_id, MAX_ORIGINS + 1)
        origins = seed_origins([*(f"{origin}/" for origin in before), *seeds])
        if not origins and secrets.texts():
            raise UsageError("Name the URLs that headers, cookies or a password are for: the job has no seeds yet.")
        sealed = self._seal(connection, secrets, origins)
        with connection.transaction():
            request_secrets.change_of_job(connection, job_id, sealed, secrets.removed())
            return _names(request_secrets.of_job(connection, job_id))

    def give_domain(
        self, connection: Connection, domain_id: int, secrets: RequestSecrets, origins: Sequence[str]
    ) -> list[str]:
        """The same for a domain and its own origins. Before: a transaction is open and has locked the domain row."""
        sealed = self._seal(connection, secrets, origins)
        request_secrets.change_of_domain(connection, domain_id, sealed, secrets.removed())
        return _names([secret for _, secret in request_secrets.of_domains(connection, [domain_id])])

    def check(self, connection: Connection, job_id: int) -> list[str]:
        """The names of the headers that a job's requests carry. Raises SettingsError if no key opens them."""
        secrets = request_secrets.of_job(connection, job_id)
        for secret in secrets:
            self.secrets.open(secret.sealed)
        return _names(secrets)

    def _seal(self, connection: Connection, secrets: RequestSecrets, origins: Sequence[str]) -> list[SealedSecret]:
        texts = secrets.texts()
        if texts and not self.secrets.keys() and request_secrets.is_anything_sealed(connection):
            raise Refused(
                f"Other secrets are sealed by a key that is not in {self.secrets.place}. Put it back there, or set "
                "HOLDFAST_SECRET_KEY; `holdfast proxies new-key` makes one if it is lost for good."
            )
        return [SealedSecret(text.kind, text.names, list(origins), self.secrets.seal(text.text)) for text in texts]


def names_of_domain(connection: Connection, domain_id: int) -> list[str]:
    """The names of the headers that are sent to a domain."""
    return _names([secret for _, secret in request_secrets.of_domains(connection, [domain_id])])


def _names(secrets: Sequence[SealedSecret]) -> list[str]:
    names = [name for secret in secrets for name in secret.names]
    if sum(name.lower() == "authorization" for name in names) > 1:
        raise UsageError(
            "There is a header Authorization and a user with a password, which makes one, too: keep one of them, and remove the other "
            "with an empty value."
        )
    return sorted(names)
