"""Requests to the routes of the API, each declared once for both clients, in a module of `requests` for each noun.

The rule: names and parameters are those of the API. A job is given by its name, its id, or a `Job`.
"""

from holdfast.client.job_ref import JobRef as JobRef
from holdfast.client.requests.accounts import *  # noqa: F403
from holdfast.client.requests.any_route import *  # noqa: F403
from holdfast.client.requests.archive import *  # noqa: F403
from holdfast.client.requests.domains import *  # noqa: F403
from holdfast.client.requests.exports import *  # noqa: F403
from holdfast.client.requests.frontier import *  # noqa: F403
from holdfast.client.requests.images import *  # noqa: F403
from holdfast.client.requests.jobs import *  # noqa: F403
from holdfast.client.requests.links import *  # noqa: F403
from holdfast.client.requests.operations import *  # noqa: F403
from holdfast.client.requests.pages import *  # noqa: F403
from holdfast.client.requests.products import *  # noqa: F403
from holdfast.client.requests.proxies import *  # noqa: F403
from holdfast.client.requests.stats import *  # noqa: F403
from holdfast.client.requests.tasks import *  # noqa: F403
from holdfast.client.requests.webhooks import *  # noqa: F403
from holdfast.client.requests.workers import *  # noqa: F403
