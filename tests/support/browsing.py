"""The dashboard as tests use it: a user with a session who loads pages, fills in forms and follows redirects, over plain HTTP."""

import html
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx

from holdfast.model.auth import Role
from tests.support.api import PASSWORD, Api

_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')
_FORM = re.compile(r"<form\b[^>]*>.*?</form>", re.DOTALL)


@dataclass
class Loaded:
    """A page that was loaded."""

    status: int
    text: str
    """Its HTML."""
    path: str
    """Where it is, after redirects."""

    @property
    def words(self) -> str:
        """What can be read on it: without tags, and with single spaces."""
        body = re.sub(r"<(head|script)\b.*?</\1>", " ", self.text.replace("<wbr>", ""), flags=re.DOTALL)
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body))).strip()

    @property
    def notice(self) -> str:
        """The notice at its top; empty: there is none."""
        found = re.search(r'<div class="notice (?:done|problem)"[^>]*>(.*?)</div>', self.text, re.DOTALL)
        return html.unescape(found[1]) if found else ""

    @property
    def next(self) -> str | None:
        """The address of the next page of its list; None: this is the last one."""
        found = re.search(r'<a[^>]* href="([^"]+)" rel="next">', self.text)
        return html.unescape(found[1]) if found else None

    def forms(self) -> list[str]:
        """The targets of all its forms that are sent by POST."""
        return re.findall(r'<form action="([^"]+)" method="post"', self.text)

    def fields(self, target: str) -> dict[str, str]:
        """The hidden fields of its form with this target."""
        for form in _FORM.findall(self.text):
            if (
                f'action="{html.escape(target)}"' in form.partition(">")[0]
                and 'method="post"' in form.partition(">")[0]
            ):
                return {name: html.unescape(value) for name, value in _HIDDEN.findall(form)}
        raise AssertionError(f"there is no form for {target} among {self.forms()}")


class Browser:
    """A user with a session."""

    def __init__(self, api: Api, client: httpx.Client) -> None:
        self.api = api
        self.client = client

    def get(self, path: str, **query: Any) -> Loaded:
        """Load a page and follow redirects."""
        target = f"{path}?{urlencode(query)}" if query else path
        return self._loaded(self.client.get(target, follow_redirects=True))

    def send(self, page: str, target: str, follow: Any = True, **fields: Any) -> Loaded:
        """Load a page, fill in its form for `target`, send it and follow the redirect."""
        hidden = self.get(page).fields(target)
        return self.post(target, follow, **{**hidden, **fields})

    def post(self, target: str, follow: Any = True, **fields: Any) -> Loaded:
        """Send a form as it is, whether a page has it or not."""
        return self._loaded(self.client.post(target, data=fields, follow_redirects=follow))

    def forge(self, target: str, **fields: Any) -> Loaded:
        """Send a form that no page has, with the session's own CSRF token."""
        token = self.client.get("/api/auth/me").json()["csrf"]
        return self.post(target, csrf=token, **fields)

    def _loaded(self, answer: httpx.Response) -> Loaded:
        return Loaded(answer.status_code, answer.text, answer.url.raw_path.decode())


def log_in(api: Api, name: str, role: Role) -> Browser:
    """A new user with a session."""
    api.user(name, role)
    client = api.client()
    answer = client.post("/login", data={"name": name, "password": PASSWORD, "next": "/account"})
    assert answer.status_code == 303, answer.text
    return Browser(api, client)
