"""Settings of proxies."""

from datetime import timedelta
from typing import Literal

from pydantic import Field

from holdfast.settings.duration import Duration
from holdfast.settings.kinds import ONE_DAY, Group

_SECOND = timedelta(seconds=1)


class Proxies(Group):
    """Which proxies are used, and for how long those that fail are left alone."""

    use: Literal["direct", "pool", "any"] = Field(
        default="direct",
        description="For a domain that says nothing itself: `direct` = no proxy, `pool` = those that were assigned to it, "
        "`any` = when these give none, any other.",
    )
    direct: bool = Field(
        default=False,
        description="A domain that says nothing itself may be asked without a proxy when none can be had.",
    )
    period: Duration = Field(
        default=timedelta(hours=1),
        ge=_SECOND,
        le=ONE_DAY,
        description="The time that a proxy's limit of requests is for; the same for all workers.",
    )
    rest: Duration = Field(
        default=30 * _SECOND,
        ge=0.1 * _SECOND,
        le=ONE_DAY,
        description="How long a proxy is left alone after 5 failures in a row; it doubles with each one more.",
    )
    max_rest: Duration = Field(
        default=timedelta(hours=1), ge=0.1 * _SECOND, le=30 * ONE_DAY, description="The longest that it is."
    )
    refused_rest: Duration = Field(
        default=timedelta(minutes=10),
        ge=0.1 * _SECOND,
        le=ONE_DAY,
        description="How long a proxy is left alone for a domain that refused it 5 times in a row; it doubles with each one more.",
    )
    max_refused_rest: Duration = Field(
        default=ONE_DAY, ge=0.1 * _SECOND, le=30 * ONE_DAY, description="The longest that it is."
    )
