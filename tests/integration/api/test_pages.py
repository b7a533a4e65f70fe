"""What a browser is shown: the first page, the login form, and the API's documentation with Swagger UI."""

import re

import httpx
import pytest

from holdfast.model.auth import Role
from tests.support.api import Api, Shared

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OURS = ("site.css", "login.js", "docs.js")


def is_strict(answer: httpx.Response) -> bool:
    """Whether the policy lets nothing come from elsewhere, and the page needs nothing that the policy forbids."""
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["form-action"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    inside = re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", answer.text)
    foreign = re.search(r"""(?:src|href|action)=["'](?!/[^/]|#)""", answer.text)
    return inside is None and foreign is None


def files_of(answer: httpx.Response) -> set[str]:
    return set(re.findall(r'"(/docs/assets/[^"]+)"', answer.text))


def test_the_first_address_leads_browsers_to_the_dashboard_and_programs_to_the_links(shared: Shared) -> None:
    page = shared.anybody.get("/", headers=HTML)
    assert (page.status_code, page.headers["Location"]) == (303, "/overview")
    links = shared.anybody.get("/")
    assert links.headers["Content-Type"] == "application/json"
    assert (links.json()["documentation"], links.json()["openapi"]) == ("/docs", "/api/openapi.json")
    assert links.json()["dashboard"] == "/overview"
    assert "Accept" in links.headers["Vary"]


def test_the_documentation_asks_for_a_login(shared: Shared) -> None:
    form = shared.anybody.get("/docs", headers=HTML)
    assert (form.status_code, form.headers["WWW-Authenticate"]) == (401, 'Bearer realm="holdfast"')
    assert is_strict(form)
    assert 'type="password"' in form.text
    problem = shared.anybody.get("/docs")
    assert (problem.status_code, problem.headers["Content-Type"]) == (401, "application/problem+json")
    elsewhere = shared.anybody.get("/api/jobs", headers=HTML)
    assert (elsewhere.status_code, elsewhere.headers["Content-Type"]) == (401, "application/problem+json")


def test_the_documentation_is_shown_to_somebody_who_is_logged_in(api: Api) -> None:
    api.user("ann", Role.USER)
    page = api.login("ann").get("/docs", headers=HTML)
    assert page.status_code == 200
    assert is_strict(page)
    assert "ann (user)" in page.text
    assert {f"/docs/assets/{name}" for name in ("swagger-ui.css", "swagger-ui-bundle.js", "docs.js")} <= files_of(page)
    assert "no-store" in page.headers["Cache-Control"]


@pytest.mark.parametrize("packed", [True, False])
def test_every_file_that_a_page_names_is_there(shared: Shared, packed: bool) -> None:
    named = {f"/docs/assets/{name}" for name in ("swagger-ui.css", "swagger-ui-bundle.js", "docs.js")}
    for path in ("/", "/docs"):
        named |= files_of(shared.anybody.get(path, headers=HTML))
    kinds = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
    for path in named:
        answer = shared.anybody.get(path, headers={"Accept-Encoding": "gzip" if packed else "identity"})
        assert answer.status_code == 200, path
        assert answer.headers["Content-Type"] == kinds[path[path.rindex(".") :]]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert ("Content-Encoding" in answer.headers) is packed
        assert answer.content
    assert b"SwaggerUIBundle" in shared.anybody.get("/docs/assets/swagger-ui-bundle.js").content


def test_our_files_name_no_foreign_host(shared: Shared) -> None:
    for name in OURS:
        assert not re.search(r"https?:|//\w", shared.anybody.get(f"/docs/assets/{name}").text.replace("// ", ""))


@pytest.mark.parametrize(
    "name", ["home.html", "pages.py", "..%2Fpages.py", "%2e%2e%2fpages.py", "nothing.js", "__init__.py"]
)
def test_no_other_file_is_there(shared: Shared, name: str) -> None:
    assert shared.anybody.get(f"/docs/assets/{name}").status_code == 404
