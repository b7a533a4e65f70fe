"""The page about the API says what is."""

from pathlib import Path

from holdfast.api import api_docs
from holdfast.api.app import create_unserved_app
from tests.support.routes import is_route

ROOT = Path(__file__).parents[3]


def test_the_page_in_docs_is_what_the_code_says() -> None:
    page = ROOT / "docs" / "api.md"
    assert page.read_text("utf-8") == api_docs.render(), "run: python -m holdfast.api.api_docs > docs/api.md"


def test_what_is_not_there_is_no_route() -> None:
    assert is_route("/api/jobs")
    assert is_route("/api/exports")
    assert not is_route("/api/nothing")


def test_every_route_says_what_it_does_and_what_it_takes() -> None:
    document = create_unserved_app().openapi()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], path
            assert operation["description"], (method, path)
            assert len(operation["tags"]) == 1
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    assert parameter["description"], (path, parameter)
