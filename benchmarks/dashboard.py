"""How long each page of the dashboard takes on a big store: on the server, in a browser, and how far live figures are behind.

    python -m benchmarks.dashboard [--pages 1000000] [--domains 100000] [--jobs 10000] [--keep FOLDER] [--only TEXT] [--no-browser]
                                   [--json FILE]

Prints tables; never a gate. It starts `holdfast serve --api-only`, logs in and loads every page that has a route, with usual filters and
orders, second pages, the form pages that compute something, and one reading of each live view. The store is in a folder of its own,
which is removed at the end unless --keep names it; what is in that is used again. Chromium is that of the system.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import psycopg
from fastapi.routing import APIRoute
from playwright.sync_api import Page

from benchmarks import dashboard_data, lists_data
from benchmarks.api_server import Served
from holdfast.accounts.service import AccountService
from holdfast.api.app import ROUTERS
from holdfast.dashboard.live import INTERVAL, SHARE, VIEWS
from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from holdfast.search.service import SearchService
from holdfast.settings import Web
from tests.browser import chromium
from tests.browser.chromium import Visitor

TRIES = 5
SLOW = 300.0
"""Milliseconds that a page may take on the server."""
SLOW_PAINT = 1000.0
"""Milliseconds to the first paint."""
BEHIND = 1.0
"""Seconds that live figures may be behind."""
SETTINGS = {"WEB_ADMIN_LIMIT": "1000000", "WEB_ANONYMOUS_LIMIT": "1000000"}
NAME, PASSWORD = "benchmark", "correct horse battery"
NOT_PAGES = {"/static/{name}", "/live/{view}", "/regions/{view}", "/login"}
"""GET routes of the dashboard that are no pages of a person who is logged in."""


@dataclass(frozen=True)
class Case:
    """A page as a person asks for it: the path of its route, and what the names in braces stand for."""

    route: str
    values: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    form: dict[str, str] | None = None
    """The fields of a form that is sent to this route, from the page `form_page`; None: the page is asked for."""
    form_page: str = ""

    @property
    def address(self) -> str:
        """Its address."""
        path = self.route.format(**{k: quote(v, safe="") for k, v in self.values.items()})
        return f"{path}?{urlencode(self.query)}" if self.query else path

    @property
    def label(self) -> str:
        """The case in a table."""
        values = " ".join(value[:16] for value in self.values.values())
        query = urlencode({key: value[:24] for key, value in self.query.items()})
        return " ".join(part for part in ("POST" if self.form is not None else "", self.route, values, query) if part)


@dataclass(frozen=True)
class Measured:
    """What loading a page several times took."""

    page: str
    address: str
    status: int
    best_ms: float
    median_ms: float
    max_ms: float
    size: int
    is_get: bool


@dataclass(frozen=True)
class Delay:
    """How far a live view may be behind."""

    view: str
    status: int
    read_ms: float
    behind: float
    """Seconds: from one reading to the next, and the reading itself."""


def cases(connection: psycopg.Connection) -> list[Case]:
    """Every page, and those filters and orders of it that people use."""

    def one(query: str) -> str:
        row = connection.execute(query.encode()).fetchone()
        assert row, query
        return str(row[0])

    big, small = (
        one("SELECT domain FROM domains ORDER BY id LIMIT 1"),
        one("SELECT domain FROM domains WHERE id % 2 = 1 OFFSET 50 LIMIT 1"),
    )
    held = one("SELECT domain FROM domains WHERE claimed_by IS NOT NULL ORDER BY id LIMIT 1")
    pooled = one("SELECT domain FROM domains WHERE id = (SELECT min(domain_id) FROM domain_proxies)")
    url = f"https://{big}/known"
    worker = one("SELECT worker FROM crawl_runs WHERE status = 'running' ORDER BY id DESC LIMIT 1")
    task, batch = one("SELECT min(id) FROM crawl_tasks"), one("SELECT max(name) FROM crawl_batches")
    ids = {
        table: one(f"SELECT min(id) FROM {table}")
        for table in ("images", "products", "proxies", "webhook_deliveries", "operations")
    }
    names = [name for (name,) in connection.execute("SELECT base_url FROM domains ORDER BY id LIMIT 10000")]
    job, domain = {"job": "default"}, {"domain": big}
    plain = [
        "/overview", "/jobs", "/jobs/new", "/domains", "/pages", "/pages/purge", "/tasks", "/tasks/new", "/tasks/restart-failed",
        "/batches", "/items", "/images", "/products", "/workers", "/workers/runs", "/workers/claims", "/proxies", "/proxies/new",
        "/proxies/health", "/proxies/cost", "/alerts", "/webhooks", "/storage", "/operations", "/users", "/users/all/keys", "/audit",
        "/account", "/search", "/documents",
    ]  # fmt: skip
    filtered: dict[str, list[dict[str, str]]] = {
        "/overview": [{"range": name} for name in ("15m", "24h", "7d")],
        "/jobs": [{"state": "paused"}, {"state": "failed", "order": "oldest"}, {"prefix": "job-99"}, {"scheduled": "yes"}, {"do": "pause"}],
        "/domains": [
            {"status": "pending"}, {"status": "unreachable", "order": "crawled"}, {"name": "a"}, {"claimed": "true"}, {"active": "false"},
            {"order": "crawled"}, {"order": "priority"}, {"order": "newest"}, {"parent": "shared-3.example"}, {"action": "reset"},
            {"action": "unblock", "status": "blocked"}, {"action": "switch-off", "name": "a"},
        ],
        "/pages": [
            {"domain": big}, {"domain": small}, {"job": "default"}, {"job": "job-5"}, {"status": "404"}, {"status_class": "5"},
            {"title": "keeping places"}, {"title": "nowhere"}, {"url_prefix": f"https://{big}/articles/1"},
            {"content_type": "application/pdf"}, {"order": "oldest"}, {"outcome": "timeout"}, {"domain": big, "status": "500"},
        ],
        "/pages/purge": [{"job": "default"}, {"domain": big}, {"job": "job-5"}],
        "/tasks": [{"status": "failed"}, {"status": "pending"}, {"domain": big}, {"order": "oldest"}],
        "/tasks/restart-failed": [{"domain": big}],
        "/items": [{"domain": big}, {"job": "default"}, {"parser": "rare"}, {"url": url}],
        "/images": [{"domain": big}, {"job": "default"}, {"format": "png"}, {"min_width": "990"}, {"near": str(ids["images"])}],
        "/products": [{"search": "red lamp"}, {"search": "nowhere"}, {"brand": "Rare"}, {"min_price": "9990"}, {"domain": big}],
        "/workers": [{"alive": "true"}],
        "/workers/runs": [{"status": "failed"}, {"job": "default"}, {"worker": worker}],
        "/workers/claims": [{"expired": "true"}, {"worker": worker}],
        "/proxies": [{"active": "false"}, {"provider": "provider 3"}],
        "/webhooks": [{"state": "given_up"}, {"state": "delivered"}, {"state": "waiting"}],
        "/audit": [{"actor": "person-1"}, {"kind": "pool"}],
        "/documents": [{"q": "the"}, {"q": "ref17x0"}, {"q": "the garden", "domain": big, "language": "en"}, {"q": "the", "offset": "50"}],
        "/search": [{"q": "default"}, {"q": big}, {"q": "keeping places"}, {"q": url}],
    }  # fmt: skip
    rules = {"scope": "host", "exclude": "/item\\?id=[0-9]*7$", "include": "", "max_depth": "8", "version": ""}
    return [
        *(Case(route) for route in plain),
        *(Case(route, query=query) for route, queries in filtered.items() for query in queries),
        *(Case(f"/jobs/{{job}}{tab}", {"job": name}) for name in ("default", "job-5") for tab in (
            "", "/domains", "/urls", "/compare", "/links", "/log", "/scope", "/settings", "/retry", "/cancel", "/again", "/delete")),
        *(Case("/jobs/{job}/urls", job, query) for query in (
            {"state": "failed"}, {"state": "denied"}, {"reason": "timeout"}, {"reason": "too_deep"}, {"reason": "dns_failure"},
            {"domain": big}, {"state": "waiting", "domain": small})),
        *(Case("/jobs/{job}/retry", job, query) for query in (
            {"state": "failed"}, {"state": "denied"}, {"reason": "timeout"}, {"reason": "dns_failure"})),
        *(Case("/jobs/{job}/domains", job, {"state": state}) for state in ("open", "spent", "done")),
        *(Case("/jobs/{job}/compare", job, {"kind": change}) for change in ("new", "changed", "gone", "failed", "unchanged")),
        Case("/jobs/{job}/scope/preview", job, form=rules, form_page="/jobs/default/scope"),
        *(
            Case("/jobs/plan", query={"seeds": str(count)}, form={"name": "planned", "seeds": "\n".join(names[:count]), "scope": "host"},
                 form_page="/jobs/new") for count in (1_000, 10_000)),
        Case("/jobs/{job}/scope/preview", job, form={**rules, "exclude": "(x+x+)+y"}, form_page="/jobs/default/scope"),
        *(Case("/domains/{domain}", {"domain": name}) for name in (big, small, held, pooled)),
        *(Case(f"/domains/{{domain}}/{what}", domain) for what in ("reset", "remove", "history")),
        Case("/domains/{domain}/history", domain, {"what": "tenures"}),
        *(Case("/jobs/{job}/links", job, {"which": which}) for which in ("internal", "external")),
        *(Case(f"/pages/{what}", query={"url": url}) for what in (
            "page", "text", "content", "links", "incoming", "source", "changes")),
        Case("/pages/incoming", query={"url": f"https://{big}/gone/7"}),
        Case("/items/item", query={"url": url, "job": "default", "parser": "shop", "position": "0"}),
        Case("/tasks/{id}", {"id": task}),
        Case("/batches/{name}", {"name": batch}),
        Case("/images/{image_id}", {"image_id": ids["images"]}),
        Case("/products/{id}", {"id": ids["products"]}),
        Case("/workers/{name}", {"name": worker}),
        Case("/workers/{name}/release", {"name": worker}),
        Case("/workers/claims/release", query={"domain": held}),
        Case("/proxies/{id}", {"id": ids["proxies"]}),
        Case("/proxies/{id}/delete", {"id": ids["proxies"]}),
        Case("/proxies/domains/{domain}", {"domain": pooled}),
        Case("/proxies/pool", query={"domain": pooled}),
        Case("/webhooks/{id}", {"id": ids["webhook_deliveries"]}),
        Case("/operations/{id}", {"id": ids["operations"]}),
        Case("/users/{name}", {"name": NAME}),
        Case("/users/{name}/delete", {"name": NAME}),
    ]  # fmt: skip


def live_cases(connection: psycopg.Connection) -> list[tuple[str, dict[str, str]]]:
    """Every live view with parameters of a busy page."""
    (big,), (worker,), (task,), (operation,) = [
        connection.execute(query).fetchone() or ("",)
        for query in (
            b"SELECT domain FROM domains ORDER BY id LIMIT 1",
            b"SELECT worker FROM crawl_runs WHERE status = 'running' ORDER BY id DESC LIMIT 1",
            b"SELECT min(id) FROM crawl_tasks",
            b"SELECT min(id) FROM operations",
        )
    ]
    known: dict[str, list[dict[str, str]]] = {
        "overview": [{"range": "1h"}, {"range": "7d"}],
        "job": [{"id": "1"}],
        "domain": [{"domain": str(big)}],
        "worker": [{"name": str(worker)}],
        "task": [{"id": str(task)}],
        "operation": [{"id": str(operation)}],
    }
    of_job = [{"id": "1"}]
    views = {view: known.get(view, of_job if view.startswith("job-") else [{}]) for view in VIEWS}
    return [(view, parameters) for view, several in views.items() for parameters in several]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--domains", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="keep the store here, and use what is in it")
    parser.add_argument("--only", default="", help="only pages with this text in their address")
    parser.add_argument("--no-browser", action="store_true", help="no first paint")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-dashboard-"))
    folder.chmod(0o755)
    data = (options.keep or folder) / "data"
    data.mkdir(parents=True, exist_ok=True)
    try:
        wanted, views = _prepare(data, options.pages, options.domains, options.jobs)
        wanted = [case for case in wanted if options.only in case.address]
        figures: dict[str, Any] = {}
        with _serving(data) as (served, client):
            pages = list(_load_all(client, wanted))
            _print_pages(pages)
            figures["pages"] = [asdict(page) for page in pages]
            if not options.only:
                delays = [_delay(client, view, parameters) for view, parameters in views]
                _print_delays(delays)
                figures["live"] = [asdict(delay) for delay in delays]
            if not options.no_browser and chromium.program() is not None:
                figures["paint"] = _paint(f"http://127.0.0.1:{served.port}", [page for page in pages if page.is_get])
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2))
    finally:
        embedded.stop(data)
        shutil.rmtree(folder)


def _prepare(data: Path, pages: int, domains: int, jobs: int) -> tuple[list[Case], list[tuple[str, dict[str, str]]]]:
    """Fill the store if it is empty, and let its workers be at work; the pages to load, and the live views."""
    database = Database(embedded.ensure_running(data).url(), statement_timeout=0, idle_timeout=0)
    migrate.upgrade(database)
    with database.session() as connection:
        row = connection.execute("SELECT EXISTS (SELECT FROM domains)").fetchone()
        if not (row and row[0]):
            print(f"{pages:,} pages, {domains:,} domains, {jobs:,} jobs, as much again of the rest:")

            def tell(text: str) -> None:
                print(f"  {text}", flush=True)

            lists_data.fill(connection, pages=pages, domains=domains, tell=tell)
            dashboard_data.fill(connection, pages=pages, domains=domains, jobs=jobs, tell=tell)
            SearchService(database, data).update()
            tell("the index of the documents")
        dashboard_data.revive(connection)
        accounts = AccountService(database, Web())
        if NAME not in {user.name for user in accounts.users(limit=100)}:
            accounts.add(NAME, Role.ADMIN, PASSWORD, actor="benchmark")
        wanted = cases(connection)
        _check_routes(wanted)
        return wanted, live_cases(connection)


def page_routes() -> set[str]:
    """The paths of all GET routes of the dashboard."""
    routers = [import_module(module).router for module in ROUTERS if module.startswith("holdfast.dashboard.")]
    return {
        route.path_format
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }


def _check_routes(wanted: list[Case]) -> None:
    """Stop if a page of the dashboard is not among the cases."""
    missing = page_routes() - {case.route for case in wanted if case.form is None} - NOT_PAGES
    if missing:
        raise SystemExit(f"No case loads {', '.join(sorted(missing))}; add one to benchmarks/dashboard.py.")


@contextmanager
def _serving(data: Path) -> Iterator[tuple[Served, httpx.Client]]:
    served = Served(data, "--api-only", **SETTINGS)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{served.port}", timeout=120, headers={"Accept": "text/html"}
        ) as client:
            form = client.get("/login").text
            answer = client.post("/login", data={**_hidden(form), "name": NAME, "password": PASSWORD})
            if not answer.is_redirect:
                raise SystemExit(f"The login failed ({answer.status_code}).")
            yield served, client
    finally:
        served.stop()


def _hidden(html: str) -> dict[str, str]:
    """The hidden fields of the first form in the page's main part, or of the first form at all."""
    main = html[max(html.find("<main"), 0) :]
    return {
        unescape(name): unescape(value)
        for name, value in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', main)
    }


def _load_all(client: httpx.Client, wanted: list[Case]) -> Iterator[Measured]:
    """Load every page, and the second page of each list."""
    for case in wanted:
        form = _form(client, case)
        yield _load(client, case.label, case.address, form)
        if form is None and (following := _second_page(client.get(case.address).text)) is not None:
            yield _load(client, f"{case.label} (second page)", following, None)


def _form(client: httpx.Client, case: Case) -> dict[str, str] | None:
    """The form of a case, with the fields of its page that the case leaves out."""
    if case.form is None:
        return None
    html = client.get(case.form_page).text
    hidden = _hidden(html)
    return {**hidden, **{name: value or hidden.get(name, "") for name, value in case.form.items()}}


def _second_page(html: str) -> str | None:
    found = re.search(r'<a href="([^"]*)" rel="next">', html)
    return unescape(found[1]) if found else None


def _load(client: httpx.Client, label: str, address: str, form: dict[str, str] | None) -> Measured:
    taken, status, size = [], 0, 0
    for number in range(TRIES):
        began = time.perf_counter()
        if form is None:
            answer = client.get(address)
        else:
            key = {name: f"{value}{number}" for name, value in form.items() if name == "idempotency_key"}
            answer = client.post(address, data={**form, **key}, headers={"Origin": str(client.base_url).rstrip("/")})
        taken.append((time.perf_counter() - began) * 1000)
        status, size = answer.status_code, len(answer.content)
    return Measured(label, address, status, min(taken), statistics.median(taken), max(taken), size, form is None)


def _print_pages(pages: list[Measured]) -> None:
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"\nPages on the server, ms of {TRIES} loads, slowest first; ! above {SLOW:.0f} ms (median), ( once. Load of the machine: {load}"
    )
    print(f"{'best':>8}{'median':>8}{'max':>8}{'bytes':>9}  status  page")
    for page in sorted(pages, key=lambda page: -page.median_ms):
        mark = "!" if page.median_ms > SLOW else "(" if page.max_ms > SLOW else " "
        times = f"{page.best_ms:>8.0f}{page.median_ms:>8.0f}{page.max_ms:>8.0f}"
        print(f"{times}{page.size:>9,} {mark} {page.status}   {page.page}")
    counts = [
        sum(value > SLOW for value in column)
        for column in zip(*((p.best_ms, p.median_ms, p.max_ms) for p in pages), strict=True)
    ]
    print(
        f"{len(pages)} pages; above {SLOW:.0f} ms: {counts[2]} at least once, {counts[1]} in the median, {counts[0]} always"
    )


def _delay(client: httpx.Client, view: str, parameters: dict[str, str]) -> Delay:
    """Read a view as its poller does: with rests that let caches age."""
    taken, status = [], 0
    for _ in range(TRIES):
        began = time.perf_counter()
        status = client.get(f"/regions/{view}", params=parameters).status_code
        taken.append(time.perf_counter() - began)
        time.sleep(max(INTERVAL, SHARE * taken[-1]))
    read = statistics.median(taken)
    query = urlencode(parameters)
    behind = max(INTERVAL, SHARE * read) + read
    return Delay(f"{view}{'?' if query else ''}{query}", status, read * 1000, behind)


def _print_delays(delays: list[Delay]) -> None:
    print(
        f"\nLive views, read every {INTERVAL} s, or {SHARE} times what a reading takes if that is longer: ms of one reading, and seconds\n"
        f"that the page may be behind; ! above {BEHIND:.0f} s"
    )
    for delay in sorted(delays, key=lambda delay: -delay.read_ms):
        mark = "!" if delay.behind > BEHIND else " "
        print(f"{delay.read_ms:>8.0f}{delay.behind:>8.2f} {mark} {delay.status}   {delay.view}")


def _paint(origin: str, pages: list[Measured]) -> list[dict[str, Any]]:
    """Open the pages in Chromium, and print when each was painted first."""
    found: list[dict[str, Any]] = []
    with chromium.browser() as browser:
        visitor = Visitor.at(browser, origin)
        tab = visitor.log_in(NAME, PASSWORD)
        for page in pages:
            painted = sorted(_first_paint(tab, origin + page.address) for _ in range(2))
            found.append({"page": page.page, "ms": painted[0], "max_ms": painted[-1]})
        visitor.context.close()
    print(
        f"\nFirst contentful paint in ms, the better and the worse of two, slowest first; ! above {SLOW_PAINT:.0f} ms"
    )
    for row in sorted(found, key=lambda row: -row["ms"]):
        print(f"{row['ms']:>8.0f}{row['max_ms']:>8.0f} {'!' if row['ms'] > SLOW_PAINT else ' '} {row['page']}")
    return found


def _first_paint(tab: Page, address: str) -> float:
    tab.goto(address)
    script = "() => performance.getEntriesByType('paint').filter(one => one.name === 'first-contentful-paint').map(one => one.startTime)"
    for _ in range(50):
        if times := tab.evaluate(script):
            return float(times[0])
        time.sleep(0.02)
    return float("inf")


if __name__ == "__main__":
    main()
