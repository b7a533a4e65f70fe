"""Headers, cookies and credentials on their way to a server."""

from holdfast.jobs.records import Secrets
from holdfast.model.request_secrets import RequestSecrets


def as_sent(given: RequestSecrets | None) -> Secrets | None:
    """As the API takes them; None: there are none."""
    if not given:
        return None
    found: Secrets = {}
    if given.headers is not None:
        found["headers"] = [f"{name}: {value}" for name, value in given.headers]
    if given.cookies is not None:
        found["cookies"] = [f"{name}={value}" for name, value in given.cookies]
    if given.basic_auth is not None:
        found["basic_auth"] = given.basic_auth
    return found
