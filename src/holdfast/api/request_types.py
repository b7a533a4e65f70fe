"""What bodies and parameters are made of: checks that all requests share, and kinds of values that many have.

The rule: what PostgreSQL could not store (NUL, half a character, numbers beyond its integers) is refused here, so that no request
fails for it further down.
"""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self

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
from holdfast.model.request_secrets import RequestSecrets, user_agent

BIGINT: Final = 2**63 - 1
INTEGER: Final = 2**31 - 1
_LONGEST_NAME: Final = 255
_NOT_STORED: Final = "must not have NUL characters or lone surrogates"


def _moment(moment: datetime) -> datetime:
    """In UTC; years beyond what the database takes are refused."""
    if not 1970 <= moment.year <= 9998:
        raise ValueError("must be a time from 1970 to 9998")
    return moment.astimezone(UTC)


def _text(text: str) -> str:
    if not _can_be_stored(text):
        raise ValueError(_NOT_STORED)
    return text


def _can_be_stored(text: str) -> bool:
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # JSON can write one half of a character without the other
        return False


Id = Annotated[int, Path(ge=1, le=BIGINT, description="Its id.")]
Domain = Annotated[str, Path(max_length=_LONGEST_NAME, description="The domain's name.", examples=["example.com"])]
JobName = Annotated[str, Path(max_length=_LONGEST_NAME, description="The job's name or id.", examples=["shop"])]
UserName = Annotated[str, Path(max_length=_LONGEST_NAME, description="The user's name.", examples=["ann"])]
Moment = Annotated[AwareDatetime, AfterValidator(_moment)]
"""A time with its time zone."""
Text = Annotated[str, AfterValidator(_text), Field(max_length=4096)]
Word = Annotated[str, AfterValidator(_text), Field(min_length=1, max_length=_LONGEST_NAME)]
Filter = Annotated[
    str | None, AfterValidator(lambda text: text if text is None else _text(text)), Query(max_length=_LONGEST_NAME)
]
Confirm = Annotated[
    Literal["all"] | None, Query(description="`all`: everything is meant. It must be said if nothing else is.")
]
Hex = Annotated[str, BeforeValidator(lambda given: given.hex() if isinstance(given, bytes) else given)]
"""Bytes, in hexadecimal digits."""
UserAgent = Annotated[Text, AfterValidator(user_agent), Field(max_length=255, examples=["ExampleBot/1.0"])]
Since = Annotated[Moment | None, Query(description="From this time on.", examples=["2031-12-24T18:00:00Z"])]
Until = Annotated[Moment | None, Query(description="Before this time.")]


class Body(BaseModel):
    """The body of a request. A field that is not known is a mistake, not something to be passed over in silence."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, given: Any) -> Any:
        if not _is_storable(given):
            raise ValueError(_NOT_STORED)
        return given


_Secret = Annotated[SecretStr, Field(max_length=10_000)]


class SecretFields(Body):
    """What is sent with requests: sealed when it is stored, never shown. What is left out stays as it is; empty or null removes it."""

    headers: Annotated[list[_Secret], Field(max_length=50, examples=[["X-Api-Key: 12345"]])] | None = None
    """Each `Name: value`."""
    cookies: Annotated[list[_Secret], Field(max_length=50, examples=[["session=12345"]])] | None = None
    """Each `name=value`."""
    basic_auth: Annotated[_Secret, Field(examples=["bob:s3cret"])] | None = None
    """`user:password`, sent as an Authorization header."""

    def given(self) -> RequestSecrets | None:
        """What was said; None: nothing. Raises UsageError, without quoting a value."""
        said = self.model_fields_set
        secrets = RequestSecrets.parse(
            [text.get_secret_value() for text in self.headers or ()] if "headers" in said else None,
            [text.get_secret_value() for text in self.cookies or ()] if "cookies" in said else None,
            (self.basic_auth.get_secret_value() if self.basic_auth else "") if "basic_auth" in said else None,
        )
        return secrets or None


class View(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def of(cls, row: object, **more: object) -> Self:
        """As control gives it: attributes or keys; `more` replaces or adds to them."""
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
        description="The ETag of what you have seen: if somebody changed it since, nothing is done (412).",
        examples=['"7"'],
    ),
]


def wanted_version(if_match: str | None) -> int | None:
    """The version that an If-Match header means; None: any."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError('If-Match must be an ETag that this API has given, such as "7", or *.')
    return int(text)


def tag(response: Response, version: int) -> None:
    """Say which version an answer is of."""
    response.headers["ETag"] = f'"{version}"'


def plain(value: object) -> Any:
    """What control tells, as JSON can have it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _is_storable(given: object) -> bool:
    """Without recursion: how deep a body is nested is the sender's choice."""
    left = [given]
    while left:
        one = left.pop()
        if isinstance(one, str) and not _can_be_stored(one):
            return False
        if isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            left += one
    return True
