"""Pages of the dashboard as a person with a browser gets them: loaded with a session, forms sent with the fields that the page has."""

import html
import re
from dataclasses import dataclass

import httpx

from holdfast.model.auth import Role
from tests.support.api import PASSWORD, Api


@dataclass(frozen=True)
class PageReader:
    """A person who is logged in."""

    client: httpx.Client

    @classmethod
    def of(cls, api: Api, role: Role) -> "PageReader":
        """A new user in this role, logged in through the form."""
        name = f"{role}-reader"
        api.user(name, role)
        client = api.client()
        answer = client.post("/login", data={"name": name, "password": PASSWORD, "next": "/account"})
        assert (answer.status_code, answer.headers["Location"]) == (303, "/account"), answer.text
        return cls(client)

    def get(self, path: str, status: int = 200) -> str:
        """The HTML of a page."""
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text.partition("<main")[2][:600])
        assert answer.headers["Content-Type"].startswith("text/html")
        return answer.text

    def text(self, path: str, status: int = 200) -> str:
        """The text of a page's main part, without tags."""
        return self._main(self.get(path, status))

    def _main(self, page: str) -> str:
        main = page.partition("<main")[2].partition("</main>")[0].replace("<wbr>", "")
        return " ".join(html.unescape(re.sub("<[^>]*>", " ", main)).split())

    def send(self, page: str, action: str, **fields: str) -> str:
        """Fill in the form of a page with this action, send it, and return the text of the page that it leads to."""
        answer = self.post(action, self.form(page, action) | fields)
        assert answer.status_code == 303, (answer.status_code, answer.text.partition("<main")[2][:600])
        return self.text(answer.headers["Location"])

    def refused(self, page: str, action: str, **fields: str) -> str:
        """As `send`, of a form that is refused: the text of its page, which is shown again in the same response."""
        answer = self.post(action, self.form(page, action) | fields)
        assert 400 <= answer.status_code < 500, (answer.status_code, answer.text.partition("<main")[2][:600])
        return self._main(answer.text)

    def form(self, page: str, action: str) -> dict[str, str]:
        """The fields of the form of a page with this action, with the values that the page gave them."""
        found = re.search(
            rf'<form action="{re.escape(html.escape(action))}"[^>]*>(.*?)</form>', self.get(page), re.DOTALL
        )
        assert found, f"{page} has no form {action}"
        inputs = [dict(re.findall(r'\b([a-z_]+)="([^"]*)"', tag)) for tag in re.findall("<input[^>]*>", found[1])]
        return {field["name"]: html.unescape(field.get("value", "")) for field in inputs}

    def post(self, action: str, fields: dict[str, str]) -> httpx.Response:
        """Send a form; redirects are not followed."""
        return self.client.post(action, data=fields)

    def csrf(self) -> str:
        """The CSRF token of the session, from the form of any page."""
        return self.form("/account", "/logout")["csrf"]
