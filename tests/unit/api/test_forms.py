"""Forms: fields of both kinds of bodies, and what is refused."""

import pytest
from fastapi import Request

from holdfast.api.forms import MAX_FIELDS, Form, read_form
from holdfast.errors import UsageError

BOUNDARY = "----holdfast"


def _request(body: bytes, media_type: str) -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", media_type.encode())]
    return Request({"type": "http", "method": "POST", "headers": headers, "state": {}}, receive)


def _multipart(*parts: tuple[str, bytes]) -> bytes:
    made = b"".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="x"\r\n\r\n'.encode() + data + b"\r\n"
        for name, data in parts
    )
    return made + f"--{BOUNDARY}--\r\n".encode()


def test_fields_of_a_plain_form() -> None:
    form = read_form(_request(b"a=1&a=2&empty=&text=+x%20y+&on=on", "application/x-www-form-urlencoded; charset=utf-8"))
    assert form.all("a") == ["1", "2"]
    assert (form.text("empty"), form.text("absent"), form.text("text")) == (None, None, "x y")
    assert (form.raw("text"), form.flag("on"), form.flag("a"), form.flag("empty")) == (" x y ", True, True, False)
    assert form.integer("a", "A") == 1
    with pytest.raises(UsageError, match="“Text” must be a whole number"):
        form.integer("text", "Text")
    with pytest.raises(UsageError, match="Fill in “Name”"):
        form.required("empty", "Name")


def test_fields_and_files_of_a_multipart_form() -> None:
    body = _multipart(("seeds", b"https://a.example/\r\nb.example\n\n"), ("seeds", "\ufeffüber.example".encode()))
    form = read_form(_request(body, f"multipart/form-data; boundary={BOUNDARY}"))
    assert form.lines("seeds") == ["https://a.example/", "b.example", "über.example"]


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"{}", "application/json"),
        (b"a=%FF", "application/x-www-form-urlencoded"),
        (b"a=\xff", "application/x-www-form-urlencoded"),
        (b"a=%00", "application/x-www-form-urlencoded"),
        (b"&".join([b"a=1"] * (MAX_FIELDS + 1)), "application/x-www-form-urlencoded"),
        (b"nonsense", "multipart/form-data"),
        (_multipart(("file", b"\xff\xfe")), f"multipart/form-data; boundary={BOUNDARY}"),
    ],
)
def test_what_is_no_form_is_refused(body: bytes, media_type: str) -> None:
    with pytest.raises(UsageError):
        read_form(_request(body, media_type))


def test_an_empty_form_has_nothing() -> None:
    assert (Form([]).lines("x"), "x" in Form([]), Form([("x", "")]).text("x")) == ([], False, None)
