"""Chromium as the tests use it: headless, without requests of its own, and with a record of all that must not happen."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)


def program() -> str | None:
    """The path of a Chromium of this machine."""
    return next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, for as long as this lasts."""
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield started
        finally:
            started.close()


@dataclass
class Visitor:
    """A person with a browser of their own: cookies, pages, and what went wrong on them."""

    origin: str
    context: BrowserContext
    problems: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @classmethod
    def at(cls, browser: Browser, origin: str, **options: Any) -> "Visitor":
        """A new visitor of this origin."""
        viewport = {"width": 1280, "height": 900}
        made = cls(origin, browser.new_context(viewport=viewport, timezone_id="Europe/Berlin", **options))
        made.context.on("request", lambda request: made.requests.append(request))
        made.context.on("weberror", lambda error: made.problems.append(f"script: {error.error}"))
        made.context.on("console", lambda message: made._heard(message.type, message.text))
        made.context.on("dialog", lambda dialog: made.problems.append(f"dialog: {dialog.message}") or dialog.dismiss())
        return made

    def _heard(self, kind: str, text: str) -> None:
        if "Content Security Policy" in text or "Refused to" in text:
            self.problems.append(f"policy: {text}")
        elif kind == "error" and "Failed to load resource" not in text:
            self.problems.append(f"console: {text}")

    def open(self, path: str = "/") -> Page:
        """A new tab with this page."""
        page = self.context.new_page()
        page.goto(self.origin + path)
        return page

    def log_in(self, name: str, password: str) -> Page:
        """Log in on a new tab, by the form."""
        page = self.open("/login")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/overview")
        return page

    def foreign_requests(self) -> list[str]:
        """Requests that went to another origin."""
        ours = urlsplit(self.origin).netloc
        return [request.url for request in self.requests if urlsplit(request.url).netloc not in {ours, ""}]

    def check(self) -> None:
        """Fail if anything happened that must not: a script error, a violation of the policy, a dialog, a request to another origin."""
        assert self.problems == []
        assert self.foreign_requests() == []
