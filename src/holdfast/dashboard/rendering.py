"""Templates: the Jinja2 environment, and what every page has: navigation, the viewer, notices, security headers.

The rule: autoescape is on, an unknown name is an error, and every printed text passes `text.clean`. `|safe` is not used on crawled text; a
test reads all templates for it.
"""

import hashlib
import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from holdfast import __version__
from holdfast.api.app_services import AppServices, Caller, Services
from holdfast.api.auth import cookie_name
from holdfast.api.forms import CSRF_FIELD, KEY_FIELD, Form
from holdfast.dashboard import charts, text
from holdfast.dashboard.refused_form import BACK_FIELD, RefusedForm, fill_in
from holdfast.model.auth import ANONYMOUS, Principal, Role
from holdfast.model.cursor import Key, encode_cursor

TEMPLATES: Final = Path(__file__).parent / "templates"
STATIC: Final = Path(__file__).parent / "static"
NOTICE_COOKIE: Final = "holdfast_notice"
_POLICY: Final = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "font-src": "'none'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
HEADERS: Final = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "Cross-Origin-Opener-Policy": "same-origin",
    # Without a referrer a form is sent with the origin "null", which cannot be told from another site's.
    "Referrer-Policy": "same-origin",
    "Vary": "Accept, Cookie",
}
_NOT_PAGES: Final = ("//", "/\\", "/login", "/static/", "/live/", "/regions/")
_MAX_NOTICE: Final = 1_000
"""Characters of a notice: it travels in a cookie."""


class Link(NamedTuple):
    """A link of the navigation."""

    path: str
    label: str
    role: Role = Role.USER
    also: str = ""
    """Another beginning of addresses of this part."""

    def covers(self, path: str) -> bool:
        """Whether a page belongs to this part of the dashboard."""
        return any(path == begin or path.startswith(f"{begin}/") for begin in (self.path, self.also) if begin)


NAVIGATION: Final[Mapping[str, tuple[Link, ...]]] = {
    "Crawl": (
        Link("/overview", "Overview"),
        Link("/jobs", "Jobs"),
        Link("/domains", "Domains"),
        Link("/pages", "Pages"),
        Link("/documents", "Search"),
    ),
    "Data": (
        Link("/tasks", "Tasks", also="/batches"),
        Link("/items", "Items"),
        Link("/images", "Images"),
        Link("/products", "Products"),
    ),
    "Operations": (
        Link("/workers", "Workers"),
        Link("/proxies", "Proxies"),
        Link("/alerts", "Alerts"),
        Link("/webhooks", "Webhooks"),
        Link("/storage", "Storage", also="/operations"),
    ),
    "Access": (
        Link("/account", "Account"),
        Link("/users", "Users and keys", Role.ADMIN),
        Link("/audit", "Audit log", Role.ADMIN),
        Link("/docs", "API reference"),
    ),
}
"""The links of the navigation, by section; one with a role is shown to callers who have it."""


class Notice(NamedTuple):
    """A message at the top of a page: what was done, or why it was not."""

    kind: str
    """`done` or `problem`."""
    text: str


@cache
def environment() -> Environment:
    """The templates. Compiled once for a process."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=text.clean,
        auto_reload=False,
    )
    made.filters |= {
        "whole": text.whole,
        "number": text.number,
        "percent": text.percent,
        "size": text.size,
        "growth": text.growth,
        "duration": text.duration,
        "time": text.time,
        "words": text.words,
        "plain": text.plain,
        "code": text.code,
        "commands": text.commands,
        "breakable": text.breakable,
        "reason": text.reason,
        "rounded": text.rounded,
        "schedule": text.schedule,
        "status_reason": text.status_reason,
        "format_name": text.format_name,
        "state_class": text.state_class,
        "link_target": text.link_target,
        "path": lambda value: quote(str(value), safe=""),
    }
    made.globals |= {
        "ago": text.ago,
        "is_rows": text.is_rows,
        "plural": text.plural,
        "version": __version__,
        "static": static_url,
        "query": query,
        "line_chart": charts.line_chart,
        "bar_chart": charts.bar_chart,
        "stacked_bar": charts.stacked_bar,
    }
    return made


def render(name: str, values: Mapping[str, Any]) -> str:
    """Return a template with these values, and the time as `now`."""
    return environment().get_template(name).render({"now": datetime.now(UTC), **values})


def query(path: str, **values: object) -> str:
    """Return a local address with these parameters; those that are None or empty are left out."""
    given = {name: str(value) for name, value in values.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


@cache
def static_url(name: str) -> str:
    """Return the address of a static file, with a hash of its content: browsers may keep it."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


class PageContext:
    """A request for a page: the services, the caller, and how to respond."""

    def __init__(self, request: Request, services: AppServices, caller: Principal) -> None:
        self.request = request
        self.services = services
        self.caller = caller

    @property
    def is_admin(self) -> bool:
        """Whether the caller may change things."""
        return self.caller.role is Role.ADMIN

    def page(self, template: str, *, status: int = 200, notice: Notice | None = None, **values: Any) -> Response:
        """Respond with a page."""
        return page_response(self.request, self.caller, template, values, status=status, notice=notice)

    def redirect(self, path: str, done: str | None = None, *, problem: str | None = None) -> Response:
        """Redirect to another page after a form, with a notice of what was done, or of why it was not."""
        response = RedirectResponse(path, 303)
        notice = Notice("done", done) if done else Notice("problem", problem) if problem else None
        if notice is not None:
            shown = json.dumps([notice.kind, notice.text[:_MAX_NOTICE]]).encode()
            response.set_cookie(
                NOTICE_COOKIE,
                urlsafe_b64encode(shown).decode(),
                max_age=60,
                path="/",
                secure=_is_secure(self.request),
                httponly=True,
                samesite="strict",
            )
        return response

    def refused(self, form: Form, problem: str) -> "PageContext":
        """Let the next page of this context show a form with the values that it has now, and with what is wrong with them.

        For a form of which a part was done; a form that was refused as a whole raises an error.
        """
        page = local_path(form.raw(BACK_FIELD))
        self.request.state.refused_form = RefusedForm(self.request.url.path, page, tuple(form.fields), problem)
        return self

    def next_page(self, key: Key | None) -> str | None:
        """Return the address of the next page of a list; None: this is the last one."""
        return self.with_query(cursor=encode_cursor(key)) if key is not None else None

    def with_query(self, **changes: object) -> str:
        """Return the address of this page with other parameters; None removes one."""
        return query(self.request.url.path, **{**dict(self.request.query_params), **changes})


async def _context(request: Request, services: Services, caller: Caller) -> PageContext:
    return PageContext(request, services, caller)


Context = Annotated[PageContext, Depends(_context)]


def page_response(
    request: Request,
    caller: Principal,
    template: str,
    values: Mapping[str, Any],
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    notice: Notice | None = None,
) -> Response:
    """A page with the navigation, the notice of the form before, and the security headers."""
    refused: RefusedForm | None = getattr(request.state, "refused_form", None)
    if refused is not None:
        notice = notice or Notice("problem", refused.problem)
        status = refused.status if status < 400 else status
    stored = _stored_notice(request)
    shown = {
        "viewer": caller,
        "is_admin": caller.role is Role.ADMIN,
        "logged_in": caller is not ANONYMOUS,
        "navigation": {
            section: [link for link in links if caller.role.includes(link.role)]
            for section, links in NAVIGATION.items()
        },
        "path": request.url.path,
        "page_of_form": "" if refused is None else refused.page,
        "params": dict(request.query_params),
        "notice": notice or stored,
        "hidden_fields": _hidden_fields(request, caller),
        **values,
    }
    html = render(template, shown)
    if refused is not None:
        html = fill_in(html, refused)
    response = HTMLResponse(html, status, headers={**HEADERS, **(headers or {})})
    if NOTICE_COOKIE in request.cookies:
        response.delete_cookie(NOTICE_COOKIE, path="/", secure=_is_secure(request), httponly=True, samesite="strict")
    return response


def local_path(target: str) -> str:
    """Return the address of a page of this server; the overview for anything else, so that no form leads to another site."""
    if not target.startswith("/") or target.startswith(_NOT_PAGES) or not target.isprintable():
        return "/overview"
    return target


def _hidden_fields(request: Request, caller: Principal) -> Any:
    """A function for templates: the hidden fields of a form. Each form has an idempotency key of its own, so that sending it twice does
    its work once; and the page that it is on, which is shown again if the form is refused."""
    form = getattr(request.state, "form", None)
    here = form.raw(BACK_FIELD) if isinstance(form, Form) else _address(request) if request.method == "GET" else ""

    def fields() -> Markup:
        pairs = [(KEY_FIELD, secrets.token_urlsafe(16)), (CSRF_FIELD, caller.csrf or "")]
        if here:
            pairs.append((BACK_FIELD, here))
        return Markup("").join(Markup('<input type="hidden" name="{}" value="{}">').format(*pair) for pair in pairs)

    return fields


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _stored_notice(request: Request) -> Notice | None:
    try:
        kind, shown = json.loads(urlsafe_b64decode(request.cookies.get(NOTICE_COOKIE, "")))
    except (ValueError, TypeError):
        return None
    return Notice(kind, shown) if kind in {"done", "problem"} and isinstance(shown, str) else None


def _is_secure(request: Request) -> bool:
    return cookie_name(request).startswith("__Host-")
