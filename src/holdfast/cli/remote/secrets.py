"""Headers, cookies and credentials in requests to a server."""

from holdfast.jobs.records import Secrets
from holdfast.model.request_secrets import RequestSecrets


def as_sent(secrets: RequestSecrets | None) -> Secrets | None:
    """Secrets as the API takes them; None: there are none."""
    if not secrets:
        return None
    found: Secrets = {}
    if secrets.headers is not None:
        found["headers"] = [f"{name}: {value}" for name, value in secrets.headers]
    if secrets.cookies is not None:
        found["cookies"] = [f"{name}={value}" for name, value in secrets.cookies]
    if secrets.basic_auth is not None:
        found["basic_auth"] = secrets.basic_auth
    return found
