"""Types of request bodies and parameters, with the checks that all requests share.

The rule: values that PostgreSQL cannot store (NUL, lone surrogates, integers out of range) are refused here, so that
no request fails for them further down.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from fastapi import Header, Path, Query, Response
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from holdfast.errors import UsageError
from holdfast.model.json_values import json_default
from holdfast.model.list_filter import is_storable_text
from holdfast.model.record import describe_attributes
from holdfast.model.request_secrets import RequestSecrets, check_user_agent

BIGINT: Final = 2**63 - 1
INTEGER: Final = 2**31 - 1
_MAX_NAME_LENGTH: Final = 255
_NOT_STORABLE: Final = "must not have NUL characters or lone surrogates"


def _utc_time(time: datetime) -> datetime:
    """The time in UTC; years that the database cannot store are refused."""
    if not 1970 <= time.year <= 9998:
        raise ValueError("must be a time from 1970 to 9998")
    return time.astimezone(UTC)


def _storable_text(text: str) -> str:
    if not is_storable_text(text):
        raise ValueError(_NOT_STORABLE)
    return text


Id = Annotated[int, Path(ge=1, le=BIGINT, description="Its id.")]
Domain = Annotated[str, Path(max_length=_MAX_NAME_LENGTH, description="The domain's name.", examples=["example.com"])]
JobName = Annotated[str, Path(max_length=_MAX_NAME_LENGTH, description="The job's name or id.", examples=["shop"])]
UserName = Annotated[str, Path(max_length=_MAX_NAME_LENGTH, description="The user's name.", examples=["ann"])]
Moment = Annotated[AwareDatetime, AfterValidator(_utc_time)]
"""A time with its time zone."""
Text = Annotated[str, AfterValidator(_storable_text), Field(max_length=4096)]
ShortText = Annotated[str, AfterValidator(_storable_text), Field(min_length=1, max_length=_MAX_NAME_LENGTH)]
Filter = Annotated[
    str | None,
    AfterValidator(lambda text: text if text is None else _storable_text(text)),
    Query(max_length=_MAX_NAME_LENGTH),
]
Confirm = Annotated[
    Literal["all"] | None, Query(description="`all`: everything is meant. It must be said if nothing else is.")
]
Hex = Annotated[str, BeforeValidator(lambda value: value.hex() if isinstance(value, bytes) else value)]
"""Bytes, in hexadecimal digits."""
UserAgent = Annotated[Text, AfterValidator(check_user_agent), Field(max_length=255, examples=["ExampleBot/1.0"])]
Since = Annotated[Moment | None, Query(description="From this time on.", examples=["2031-12-24T18:00:00Z"])]
Until = Annotated[Moment | None, Query(description="Before this time.")]


class Body(BaseModel):
    """The body of a request. A field that is not known is a mistake, not something to be passed over in silence."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    __get_pydantic_json_schema__: ClassVar[Any] = classmethod(describe_attributes)

    @model_validator(mode="before")
    @classmethod
    def _check_storable(cls, value: Any) -> Any:
        if not _is_storable_json(value):
            raise ValueError(_NOT_STORABLE)
        return value


_Secret = Annotated[SecretStr, Field(max_length=10_000)]


class SecretFields(Body):
    """What is sent with requests: sealed when it is stored, never shown. What is left out stays as it is; empty or null removes it."""

    headers: Annotated[list[_Secret], Field(max_length=50, examples=[["X-Api-Key: 12345"]])] | None = None
    """Each `Name: value`."""
    cookies: Annotated[list[_Secret], Field(max_length=50, examples=[["session=12345"]])] | None = None
    """Each `name=value`."""
    basic_auth: Annotated[_Secret, Field(examples=["bob:s3cret"])] | None = None
    """`user:password`, sent as an Authorization header."""

    def to_request_secrets(self) -> RequestSecrets | None:
        """The secrets in the body; None: there are none. Raises UsageError, without quoting a value."""
        fields_set = self.model_fields_set
        secrets = RequestSecrets.parse(
            [text.get_secret_value() for text in self.headers or ()] if "headers" in fields_set else None,
            [text.get_secret_value() for text in self.cookies or ()] if "cookies" in fields_set else None,
            (self.basic_auth.get_secret_value() if self.basic_auth else "") if "basic_auth" in fields_set else None,
        )
        return secrets or None


class View(BaseModel):
    """A part of a response."""

    model_config = ConfigDict(from_attributes=True)
    __get_pydantic_json_schema__: ClassVar[Any] = classmethod(describe_attributes)

    @classmethod
    def of(cls, row: object, **more: object) -> Self:
        """From a row of `control`: attributes or keys; `more` replaces or adds to them."""
        if isinstance(row, Mapping):
            return cls.model_validate({**row, **more})
        if not more:
            return cls.model_validate(row)
        values = {name: getattr(row, name) for name in cls.model_fields if name not in more and hasattr(row, name)}
        return cls.model_validate({**values, **more})


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=100,
        description="The ETag of what you have seen: if it was changed since, nothing is done (412).",
        examples=['"7"'],
    ),
]


def parse_if_match(if_match: str | None) -> int | None:
    """The version in an If-Match header; None: any."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError('If-Match must be an ETag that this API has given, such as "7", or *.')
    return int(text)


def set_etag(response: Response, version: int) -> None:
    """Set the ETag of the response."""
    response.headers["ETag"] = f'"{version}"'


def to_json(value: object) -> Any:
    """A value of `control` as JSON."""
    return json.loads(json.dumps(value, default=json_default))


def _is_storable_json(value: object) -> bool:
    """Whether all texts in a JSON value can be stored. Without recursion: the depth of a body is chosen by its
    sender."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str) and not is_storable_text(item):
            return False
        if isinstance(item, Mapping):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            pending += item
    return True
