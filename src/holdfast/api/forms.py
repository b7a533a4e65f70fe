"""HTML forms: their fields, from a URL-encoded or a multipart body.

The rule: a form is parsed only after its sender was authenticated and the whole body was read, whose size is limited. A field that was
left empty counts as absent. An uploaded file counts as one more text of its field.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from enum import StrEnum
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError

from holdfast.api.thread_pools import run_without_loop
from holdfast.errors import UsageError
from holdfast.model.list_filter import is_storable_text

CSRF_FIELD: Final = "csrf"
KEY_FIELD: Final = "idempotency_key"
MAX_FIELDS: Final = 5_000
_URL_ENCODED: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_ON: Final = frozenset({"on", "yes", "true", "1"})

Model = TypeVar("Model", bound=BaseModel)
Choice = TypeVar("Choice", bound=StrEnum)


class Form:
    """The fields of a form, in their order; a name may occur several times."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields

    def __contains__(self, name: str) -> bool:
        return any(known == name for known, _ in self.fields)

    def raw(self, name: str) -> str:
        """Return the value of a field as it was sent, for passwords; empty if it is absent."""
        return next((value for known, value in self.fields if known == name), "")

    def replace(self, name: str, value: str) -> None:
        """Give a field another value."""
        self.fields = [*(field for field in self.fields if field[0] != name), (name, value)]

    def text(self, name: str) -> str | None:
        """Return the value of a field without white space around it; None if it is empty or absent."""
        return self.raw(name).strip() or None

    def required(self, name: str, label: str) -> str:
        """Return the value of a field. Raises UsageError, with the label of the field, if it is empty."""
        value = self.text(name)
        if value is None:
            raise UsageError(f"Fill in “{label}”.")
        return value

    def all(self, name: str) -> list[str]:
        """Return all values of a field that are not empty."""
        return [value.strip() for known, value in self.fields if known == name and value.strip()]

    def lines(self, name: str) -> list[str]:
        """Return the lines of all values of a field, without empty ones."""
        return [line.strip() for value in self.all(name) for line in value.splitlines() if line.strip()]

    def integer(self, name: str, label: str) -> int | None:
        """Return the value of a field as a whole number; None if it is empty. Raises UsageError."""
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            raise UsageError(f"“{label}” must be a whole number.")
        return int(value)

    def choice(self, name: str, label: str, kind: type[Choice]) -> Choice | None:
        """Return the value of a field that is one of an enumeration; None if it is empty. Raises UsageError."""
        value = self.text(name)
        if value is not None and value not in list(kind):
            raise UsageError(f"“{label}” must be one of: {', '.join(kind)}.")
        return None if value is None else kind(value)

    def moment(self, name: str, label: str) -> datetime | None:
        """Return the value of a field as a time; one without a time zone is in UTC. None if it is empty. Raises UsageError."""
        value = self.text(name)
        if value is None:
            return None
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            at = None
        if at is None or not 1970 <= at.year <= 9998:
            raise UsageError(f"“{label}” must be a time from 1970 to 9998, such as 2031-12-24T18:00.")
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)

    def flag(self, name: str) -> bool:
        """Return whether a checkbox is ticked."""
        return self.raw(name).lower() in _ON

    def model(self, kind: type[Model], values: Mapping[str, Any]) -> Model:
        """Return a body of the API with these values. Raises UsageError for the first value that is wrong."""
        try:
            return kind.model_validate(values)
        except ValidationError as problem:
            found = problem.errors()[0]
            where = ".".join(str(part) for part in found["loc"])
            what = str(found["msg"]).removeprefix("Value error, ")
            raise UsageError(f"{where or 'The form'}: {what}.") from None


def query_form(request: Request) -> Form:
    """Return the parameters of a page as the fields of a form, such as the filters of a list. Raises UsageError."""
    return filter_form(request.query_params)


def filter_form(parameters: Mapping[str, str]) -> Form:
    """Return the filters of a list, by name, as the fields of a form. Raises UsageError."""
    form = Form(list(parameters.items()))
    _check_storable(form)
    return form


def check_model(kind: type[Model], values: Mapping[str, Any]) -> tuple[Model | None, list[tuple[str, str]]]:
    """Return a body of the API with these values, and what is wrong with each field; None: something is."""
    try:
        return kind.model_validate(values), []
    except ValidationError as problem:
        found = [
            (str((one["loc"] or ("",))[0]), str(one["msg"]).removeprefix("Value error, ").removesuffix("."))
            for one in problem.errors()
        ]
        return None, found


def read_form(request: Request) -> Form:
    """Parse the form in the body of a request. Before: the body has been read. Raises UsageError."""
    known = getattr(request.state, "form", None)
    if isinstance(known, Form):
        return known
    body = run_without_loop(request.body())
    media_type = request.headers.get("Content-Type", "")
    kind = media_type.partition(";")[0].strip().lower()
    if kind == _URL_ENCODED:
        form = Form(_url_encoded(body))
    elif kind == _MULTIPART:
        form = Form(list(_multipart(media_type, body)))
    else:
        raise UsageError("The body must be a form of the dashboard.")
    _check_storable(form)
    request.state.form = form
    return form


def _check_storable(form: Form) -> None:
    if not all(is_storable_text(name) and is_storable_text(value) for name, value in form.fields):
        raise UsageError("A form must be text without NUL characters.")


def _url_encoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise UsageError("The form cannot be read.") from None


def _multipart(media_type: str, body: bytes) -> Iterator[tuple[str, str]]:
    head = f"Content-Type: {media_type}\r\n\r\n".encode("latin-1", "replace")
    message = message_from_bytes(head + body, policy=policy.HTTP)
    if not message.is_multipart():
        raise UsageError("The form cannot be read.")
    parts = message.get_payload()
    for part in parts if isinstance(parts, list) else []:
        if not isinstance(part, EmailMessage):
            continue
        name = part.get_param("name", header="Content-Disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            try:
                yield name, payload.decode("utf-8-sig")
            except UnicodeDecodeError:
                raise UsageError(f"“{name}” must be a text in UTF-8.") from None
