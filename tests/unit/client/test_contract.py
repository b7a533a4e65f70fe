"""The client and the OpenAPI document agree: for each route a call with its parameters, its body and its response."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, Unpack, get_args, get_origin, get_type_hints, is_typeddict

from holdfast.api.app import create_unserved_app
from holdfast.client import endpoints, requests
from holdfast.client.methods import ClientMethods
from holdfast.client.request_spec import ListSpec, RequestSpec, StreamSpec

WITHOUT_CALL = {
    # Pages and files for a browser.
    "GET /",
    "GET /docs",
    "GET /docs/assets/{name}",
    # For other programs: Prometheus, an orchestrator (whose 503 the client would repeat), generators of clients.
    "GET /metrics",
    "GET /health/ready",
    "GET /api/openapi.json",
    # Sessions of browsers: the client has an API key, which these routes do not accept.
    "POST /api/auth/login",
    "POST /api/auth/logout",
    "POST /api/auth/password",
    "GET /api/auth/sessions",
    "DELETE /api/auth/sessions/{id}",
    "GET /api/auth/keys",
    "POST /api/auth/keys",
    "DELETE /api/auth/keys/{id}",
}
"""Routes that have no call, each for a reason."""

WITHOUT_RECORD = {
    # A download: `Client.export` writes it into a file.
    "GET /api/exports/{kind}",
    # Bytes of an image.
    "GET /api/images/{image_id}/file",
    "GET /api/images/{image_id}/thumbnail",
    # Server-Sent Events: a schema of a text says nothing about them.
    "GET /api/stats/events",
    "GET /api/events",
    "GET /api/jobs/{job}/events",
}
"""Routes whose response is no JSON document."""

_SHORT = frozenset({"active", "budget", "concurrency", "delay", "frequency", "parser", "proxy", "window"})
SHORT_FORMS = {"configure_domain": _SHORT, "add_domain": _SHORT}
"""Fields of bodies that the server takes as short forms of others, and that the document does not list."""

FLATTENED = {"POST /api/jobs": "job"}
"""Routes whose response has an object in it; the client's record has the fields of both."""

NOT_CALLS = {
    # For any route.
    "request",
    # Another part of the response that `proxy_costs` lists.
    "provider_costs",
}
"""Functions of `endpoints` that are no call of one route."""

SELECTS_METHOD = {"schedule": "when", "set_maintenance_window": "window"}
"""Parameters whose None sends a DELETE instead of a PUT."""


@dataclass(frozen=True)
class Call:
    """One request of the client, made with all parameters of its function."""

    function: str
    method: str
    path: str
    query: frozenset[str]
    body: object
    response: Any
    """The type of the decoded response; of a list that of its items."""
    is_list: bool


@cache
def document() -> dict[str, Any]:
    return create_unserved_app().openapi()


@cache
def operations() -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }


def sample(kind: Any, name: str = "") -> Any:
    """A value of a type; of an optional one not None."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return sample(next(one for one in arguments if one is not NoneType), name)
    if is_typeddict(kind):
        return {key: sample(value, key) for key, value in get_type_hints(kind).items()}
    if origin in (list, Sequence):
        return [sample(arguments[0], name)]
    if origin is Literal:
        return arguments[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    samples = {
        str: f"some-{name}",
        int: 7,
        float: 1.5,
        bool: True,
        datetime: datetime(2031, 12, 24, tzinfo=UTC),
        timedelta: timedelta(hours=1),
        Decimal: Decimal("9.99"),
    }
    return samples[kind]


def specs(function: Callable[..., Any]) -> Iterator[RequestSpec[Any] | ListSpec[Any] | StreamSpec[Any]]:
    """The requests of a function with all parameters; of a parameter that selects the method, both."""
    hints = get_type_hints(function, include_extras=True)
    values: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            options = get_args(hint)[0] if get_origin(hint) is Unpack else None
            if options is not None:
                values |= sample(options)
        else:
            values[name] = sample(hint, name)
    yield function(**values)
    if (selector := SELECTS_METHOD.get(function.__name__)) is not None:
        yield function(**values | {selector: None})


def _is_call(value: object, modules: str) -> bool:
    """Whether a value is a public function of these modules."""
    return inspect.isfunction(value) and value.__module__.startswith(modules) and not value.__name__.startswith("_")


@cache
def calls() -> dict[str, Call]:
    """All calls of the client, by the route that they reach."""
    found = {}
    for name, function in vars(endpoints).items():
        if not _is_call(function, requests.__name__ + ".") or name in NOT_CALLS:
            continue
        (response,) = get_args(get_type_hints(function)["return"]) or (Any,)
        for spec in specs(function):
            request = spec.page(None) if isinstance(spec, ListSpec) else spec
            method = request.method if isinstance(request, RequestSpec) else "GET"
            body = request.body if isinstance(request, RequestSpec) else None
            call = Call(
                name, method, request.path, frozenset(request.query), body, response, isinstance(spec, ListSpec)
            )
            found[route_of(call)] = call
    return found


def route_of(call: Call) -> str:
    """The route of the document that a call reaches, one without placeholders first."""
    candidates = sorted(
        (route for route in operations() if route.startswith(f"{call.method} ")), key=lambda r: "{" in r
    )
    for route in candidates:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.partition(" ")[2]))
        if re.fullmatch(pattern, call.path):
            return route
    return f"{call.method} {call.path}"


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without references, and without the null of an optional value."""
    while True:
        if "$ref" in schema:
            schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in schema and len(parts := [one for one in schema["anyOf"] if one.get("type") != "null"]) == 1:
            schema = parts[0]
        else:
            return schema


def response_schema(operation: dict[str, Any], inner: str | None) -> dict[str, Any] | None:
    """The schema of the JSON of a success, with the fields of its object `inner`; None: it has no body."""
    success = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
    content = success.get("content")
    if not content:
        return None
    schema = resolved(content["application/json"]["schema"])
    if inner is None:
        return schema
    outer = {name: part for name, part in schema["properties"].items() if name != inner}
    return {"type": "object", "properties": {**resolved(schema["properties"][inner])["properties"], **outer}}


def differences(kind: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """Where a type of the client and a schema of the document have different fields."""
    schema = resolved(schema)
    if not is_dataclass(kind) and schema.get("type") == "object" and len(schema.get("properties", ())) == 1:
        schema = resolved(next(iter(schema["properties"].values())))  # of one field the client takes the value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kinds = [one for one in arguments if one is not NoneType]
        if len(kinds) == 1:
            yield from differences(kinds[0], schema, where)
    elif origin in (list, tuple):
        if schema.get("type") != "array":
            yield f"{where}: a list here, {schema.get('type')} in the document"
        else:
            yield from differences(arguments[0], schema["items"], f"{where}[]")
    elif is_dataclass(kind):
        known, documented = {field.name for field in fields(kind)}, set(schema.get("properties", {}))
        if known != documented:
            yield f"{where}: only in the client {sorted(known - documented)}, only in the document {sorted(documented - known)}"
        hints = get_type_hints(kind)
        for name in known & documented:
            yield from differences(hints[name], schema["properties"][name], f"{where}.{name}")
    elif schema.get("type") == "object" and schema.get("properties"):
        yield f"{where}: {kind} here, an object with {sorted(schema['properties'])} in the document"


def body_differences(body: object, schema: dict[str, Any], where: str) -> Iterator[str]:
    """Where the body of a request and its schema have different fields."""
    schema = resolved(schema)
    if isinstance(body, dict) and "properties" in schema:
        if set(body) != set(schema["properties"]):
            sent, documented = set(body), set(schema["properties"])
            yield f"{where}: only in the client {sorted(sent - documented)}, only in the document {sorted(documented - sent)}"
        for name in set(body) & set(schema["properties"]):
            yield from body_differences(body[name], schema["properties"][name], f"{where}.{name}")


def faults(route: str) -> Iterator[str]:
    """Where the call of a route differs from the document."""
    operation, call = operations()[route], calls().get(route)
    if call is None:
        yield f"{route} has no call"
        return
    parameters = [one for one in operation.get("parameters", ()) if one["in"] == "query"]
    documented = {one["name"] for one in parameters if not one.get("deprecated")}
    if call.query != documented:
        yield f"{call.function}: the query has {sorted(call.query)}, in the document {sorted(documented)}"
    body = operation.get("requestBody")
    if (body is None) != (call.body is None):
        yield f"{call.function}: one of the client and the document has a body"
    elif body is not None:
        sent = call.body
        if isinstance(sent, dict):
            sent = {name: value for name, value in sent.items() if name not in SHORT_FORMS.get(call.function, ())}
        yield from body_differences(sent, body["content"]["application/json"]["schema"], call.function)
    if route in WITHOUT_RECORD:
        return
    schema = response_schema(operation, FLATTENED.get(route))
    if schema is None or call.response is NoneType:
        if (schema is None) != (call.response is NoneType):
            yield f"{call.function}: one of the client and the document has no response"
    elif call.is_list:
        yield from differences(call.response, schema["properties"]["items"]["items"], call.function)
    else:
        yield from differences(call.response, schema, call.function)


def test_every_route_has_a_call_with_the_same_fields() -> None:
    """One test for all: a list of cases would build the document in each process that collects tests, for a second or two."""
    routes = operations().keys() - WITHOUT_CALL
    assert len(routes) > 100
    assert [fault for route in sorted(routes) for fault in faults(route)] == []


def test_endpoints_has_the_calls_of_every_module_and_no_two_have_one_name() -> None:
    declared: dict[str, object] = {}
    for module in pkgutil.iter_modules(requests.__path__, requests.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if _is_call(value, module.name):
                assert name not in declared, f"{name} is declared twice"
                declared[name] = value
    assert len(declared) > 150
    assert {name: getattr(endpoints, name, None) for name in declared} == declared


def test_exceptions_are_routes_and_have_no_call() -> None:
    assert operations().keys() >= WITHOUT_CALL | WITHOUT_RECORD
    assert not WITHOUT_CALL & calls().keys()
    for route in WITHOUT_CALL:
        operation = operations()[route]
        if " /api/auth/" in route:
            assert {"key": []} not in operation["security"], f"{route} accepts an API key"


def test_each_call_reaches_a_route_and_is_a_method() -> None:
    assert calls().keys() <= operations().keys()
    assert {call.function for call in calls().values()} <= set(vars(ClientMethods)) | {"export"}
