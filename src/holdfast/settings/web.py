"""Settings of the API: addresses, sessions, limits."""

import ipaddress
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from holdfast.settings.field_types import ONE_DAY, Count, Duration, Group, single_word

_SECOND = timedelta(seconds=1)
_MAX_REQUESTS = 10_000_000


def _networks(value: object) -> object:
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _addresses(networks: tuple[str, ...]) -> tuple[str, ...]:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ValueError(
                "must be addresses or networks such as 10.0.0.7 or 10.0.0.0/8, separated by commas"
            ) from None
    return networks


Networks = Annotated[tuple[str, ...], BeforeValidator(_networks), AfterValidator(_addresses)]


class Web(Group):
    """How `holdfast serve` answers programs and browsers."""

    host: Annotated[str, AfterValidator(single_word)] = Field(
        default="127.0.0.1", description="The address to listen on."
    )
    port: Count = Field(default=8080, ge=0, le=65_535, description="The port to listen on; 0 = any free port.")
    trusted_proxies: Networks = Field(
        default=(),
        description="Trusted reverse proxies: their headers about the client (X-Forwarded-For, X-Forwarded-Proto) are used.",
    )
    secure_cookies: Literal["auto", "always"] = Field(
        default="auto",
        description="`always` = cookies go over TLS only; `auto` = if the request came over TLS, by itself or by a trusted proxy.",
    )
    processes: Count = Field(
        default=1, ge=1, le=100, description="Processes of `holdfast serve` that answer; each can keep one core busy."
    )
    connections: Count = Field(
        default=10, ge=2, le=1000, description="Connections to the database that it keeps, for each of its processes."
    )
    statement_timeout: Duration = Field(
        default=10 * _SECOND, ge=_SECOND, le=ONE_DAY, description="The timeout of a statement of a request."
    )
    body_bytes: Count = Field(
        default=1_048_576, ge=1024, le=1_073_741_824, description="Maximum size of the body of a request, in bytes."
    )
    request_timeout: Duration = Field(
        default=30 * _SECOND,
        ge=_SECOND,
        le=ONE_DAY,
        description="The timeout for receiving the head of a request, and for its body.",
    )
    listeners: Count = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="Subscribers to live events at the same time, for each of its processes.",
    )
    user_listeners: Count = Field(default=20, ge=1, le=100_000, description="Maximum number of them for one user.")
    session: Duration = Field(
        default=ONE_DAY, ge=timedelta(minutes=1), le=365 * ONE_DAY, description="How long a login lasts."
    )
    replays: Duration = Field(
        default=ONE_DAY,
        ge=timedelta(minutes=1),
        le=30 * ONE_DAY,
        description="How long the answer to a request with an Idempotency-Key is kept.",
    )
    window: Duration = Field(
        default=timedelta(minutes=1), ge=_SECOND, le=ONE_DAY, description="The time that the limits below are for."
    )
    anonymous_limit: Count = Field(default=10, ge=1, le=_MAX_REQUESTS, description="Requests of an anonymous address.")
    user_limit: Count = Field(default=100, ge=1, le=_MAX_REQUESTS, description="Requests of a user.")
    admin_limit: Count = Field(default=500, ge=1, le=_MAX_REQUESTS, description="Requests of an admin.")
    seed_limit: Count = Field(default=10, ge=1, le=_MAX_REQUESTS, description="Requests of a user that add seeds.")
    login_window: Duration = Field(
        default=timedelta(minutes=15), ge=_SECOND, le=ONE_DAY, description="The time that failed logins count for."
    )
    login_failures: Count = Field(
        default=5, ge=1, le=1000, description="Failed logins to an account after which further ones are refused."
    )
    login_failures_address: Count = Field(
        default=20, ge=1, le=100_000, description="Failed logins from an address after which further ones are refused."
    )
