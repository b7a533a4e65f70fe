"""What is asked of the API under load: most of it reads, over everything that can be listed or looked at; some writes; a few files.

The rule: a route is asked for if the server describes it, and if there is something to fill its path with.
"""

import random
import string
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import quote

Things = Mapping[str, list[str]]
"""What paths are filled with, by the name of the placeholder."""


class Kind(StrEnum):
    """What a request is counted among."""

    READ = "reads"
    WRITE = "writes"
    FILE = "files"


@dataclass(frozen=True)
class Part:
    """A part of the load: a route, how much of all it is, and paths to it."""

    route: str
    weight: float
    paths: tuple[str, ...]
    body: Callable[[random.Random, Things], object] | None = None

    @property
    def method(self) -> str:
        """GET, say."""
        return self.route.partition(" ")[0]

    @property
    def kind(self) -> Kind:
        """What it is counted among."""
        if self.method != "GET":
            return Kind.WRITE
        return Kind.FILE if "/exports/" in self.route else Kind.READ

    def needs(self) -> set[str]:
        """What its paths are filled with."""
        found = (name for path in self.paths for _, name, _, _ in string.Formatter().parse(path))
        return {name for name in found if name}


def _reads() -> Iterable[Part]:
    def part(path: str, weight: float, *paths: str) -> Part:
        return Part(f"GET {path}", weight, paths or (path,))

    yield part("/health", 2)
    yield part("/health/ready", 1)
    yield part("/metrics", 0.5)
    yield part("/api/auth/me", 2)
    yield part("/api/admin/users", 0.5)
    yield part("/api/admin/users/{name}", 0.5, "/api/admin/users/{user}")
    yield part("/api/admin/users/{name}/sessions", 0.5, "/api/admin/users/{user}/sessions")
    yield part("/api/admin/keys", 0.5)
    yield part("/api/admin/audit", 2, "/api/admin/audit", "/api/admin/audit?kind=job&limit=20")
    yield part("/api/stats", 12)
    yield part(
        "/api/stats/timeseries",
        6,
        "/api/stats/timeseries",
        "/api/stats/timeseries?step=5m",
        "/api/stats/timeseries?step=hour",
    )
    yield part("/api/stats/tasks", 3)
    yield part("/api/alerts", 4, "/api/alerts", "/api/alerts?active=true")
    yield part(
        "/api/jobs",
        10,
        "/api/jobs",
        "/api/jobs?state=processing",
        "/api/jobs?prefix=load&limit=20",
        "/api/jobs?order=oldest",
    )
    yield part("/api/jobs/{job}", 14, "/api/jobs/{job}")
    yield part("/api/frontier/stats", 4, "/api/frontier/stats", "/api/frontier/stats?job={job}")
    yield part(
        "/api/frontier/urls",
        8,
        "/api/frontier/urls?limit=50",
        "/api/frontier/urls?domain={domain}",
        "/api/frontier/urls?job={job}&state=waiting",
        "/api/frontier/urls?domain={domain}&job={job}&state=waiting&order=taken&limit=20",
    )
    yield part(
        "/api/pages",
        16,
        "/api/pages",
        "/api/pages?limit=20&order=oldest",
        "/api/pages?domain={domain}",
        "/api/pages?job={job}&status=200",
        "/api/pages?status_class=4&limit=20",
        "/api/pages?content_type=text/html&limit=50",
    )
    yield part("/api/pages/page", 6, "/api/pages/page?url={page}")
    yield part("/api/explain", 3, "/api/explain?subject={domain}", "/api/explain?subject={page}")
    yield part(
        "/api/domains",
        12,
        "/api/domains",
        "/api/domains?status=active",
        "/api/domains?order=crawled&limit=20",
        "/api/domains?order=priority",
        "/api/domains?claimed=true",
        "/api/domains?name=s1",
    )
    yield part("/api/domains/{domain}", 10, "/api/domains/{domain}")
    yield part("/api/domains/{domain}/robots", 2, "/api/domains/{domain}/robots")
    yield part("/api/domains/{domain}/transitions", 2, "/api/domains/{domain}/transitions")
    yield part("/api/domains/{domain}/tenures", 2, "/api/domains/{domain}/tenures")
    yield part("/api/domains/{domain}/proxies", 0.5, "/api/domains/{domain}/proxies")
    yield part("/api/domains/{domain}/proxies/health", 0.5, "/api/domains/{domain}/proxies/health")
    yield part("/api/maintenance-windows", 1)
    yield part("/api/tasks", 10, "/api/tasks", "/api/tasks?status=completed&limit=20", "/api/tasks?domain={domain}")
    yield part("/api/tasks/{id}", 8, "/api/tasks/{task}")
    yield part("/api/tasks/{id}/history", 3, "/api/tasks/{task}/history")
    yield part("/api/batches", 2)
    yield part("/api/batches/{name}", 2, "/api/batches/{batch}")
    yield part("/api/products", 2)
    yield part("/api/products/{id}", 1, "/api/products/{product}")
    yield part("/api/products/{id}/history", 1, "/api/products/{product}/history")
    yield part("/api/proxies", 1)
    yield part("/api/proxies/health", 1)
    yield part("/api/proxies/cost", 0.5)
    yield part("/api/proxies/{id}", 0.5, "/api/proxies/{proxy}")
    yield part("/api/claims", 5, "/api/claims", "/api/claims?worker={worker}", "/api/claims?expired=true")
    yield part("/api/claims/summary", 3)
    yield part("/api/runs", 5, "/api/runs", "/api/runs?status=running", "/api/runs?worker={worker}")
    yield part("/api/runs/{id}", 3, "/api/runs/{run}")
    yield part("/api/workers", 5, "/api/workers", "/api/workers?alive=true")
    yield part("/api/webhooks", 1)
    yield part("/api/webhooks/stats", 1)
    yield part("/api/webhooks/{id}", 1, "/api/webhooks/{webhook}")
    yield part("/api/operations", 1)
    yield part("/api/operations/{id}", 1, "/api/operations/{operation}")
    yield part(
        "/api/exports/{kind}", 0.2, "/api/exports/pages?domain={domain}", "/api/exports/urls?domain={domain}&format=csv"
    )


def _writes() -> Iterable[Part]:
    def some(things: Things, what: str, dice: random.Random) -> str:
        return dice.choice(things[what])

    def new(dice: random.Random) -> str:
        return f"{dice.getrandbits(60):015x}"

    yield Part(
        "POST /api/admin/tasks",
        3,
        ("/api/admin/tasks",),
        lambda dice, things: {"url": some(things, "target", dice), "is_recurring": False},
    )
    yield Part(
        "PATCH /api/admin/tasks/{id}/priority",
        1,
        ("/api/admin/tasks/{task}/priority",),
        lambda dice, _: {"priority": dice.randint(1, 10)},
    )
    yield Part("POST /api/jobs/{job}/pause", 1, ("/api/jobs/{toggled}/pause",))
    yield Part("POST /api/jobs/{job}/resume", 1, ("/api/jobs/{toggled}/resume",))
    yield Part(
        "PATCH /api/admin/domains/{domain}",
        2,
        ("/api/admin/domains/{domain}",),
        lambda dice, _: {"frequency": f"PT{dice.randint(1, 48)}H"},
    )
    yield Part(
        "POST /api/admin/domains",
        0.5,
        ("/api/admin/domains",),
        lambda dice, _: {"domain": f"new-{new(dice)}.localhost"},
    )
    yield Part("POST /api/admin/batches", 0.3, ("/api/admin/batches",), lambda dice, _: {"name": f"batch {new(dice)}"})
    yield Part(
        "POST /api/jobs",
        0.3,
        ("/api/jobs",),
        lambda dice, things: {
            "name": f"load-{new(dice)}",
            "urls": [some(things, "target", dice)],
            "spec": {"allow_private": True, "max_pages": 2, "delay": 1},
        },
    )
    yield Part(
        "POST /api/frontier/add",
        0.5,
        ("/api/frontier/add",),
        lambda dice, things: {"urls": [some(things, "target", dice)], "job": things["toggled"][0]},
    )


PARTS = (*_reads(), *_writes())
STREAMS = ("/api/stats/events", "/api/events", "/api/jobs/{job}/events", "/api/events?kind=domain&kind=worker")


@dataclass
class Mix:
    """What to ask next."""

    parts: list[Part]
    things: dict[str, list[str]]
    dice: random.Random
    next: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Pages of lists that follow on those that were read, by route."""
    _weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._weights = [part.weight for part in self.parts]

    @classmethod
    def of(cls, description: Mapping[str, Any], things: dict[str, list[str]], seed: int) -> "Mix":
        """Of what a server says that it can be asked, and what there is."""
        known = {f"{method.upper()} {path}" for path, methods in description["paths"].items() for method in methods}
        parts = [part for part in PARTS if part.route in known and all(things.get(name) for name in part.needs())]
        return cls(parts, things, random.Random(seed))

    def left_out(self, description: Mapping[str, Any]) -> list[str]:
        """Routes that are read from and are not in it."""
        mine = {part.route for part in self.parts}
        routes = {f"GET {path}" for path, methods in description["paths"].items() if "get" in methods}
        return sorted(route for route in routes - mine if not route.endswith("/events"))

    def draw(self) -> tuple[Part, str, object | None]:
        """A route, a path to it, and a body."""
        (part,) = self.dice.choices(self.parts, self._weights)
        pages = self.next[part.route]
        if pages and self.dice.random() < 0.3:
            return part, pages.pop(), None
        path = self.dice.choice(part.paths)
        filled = {name: quote(self.dice.choice(self.things[name]), safe="") for name in part.needs()}
        body = part.body(self.dice, self.things) if part.body is not None else None
        return part, path.format_map(filled), body

    def read(self, route: str, link: str | None) -> None:
        """Remember where a list goes on, as its Link header says."""
        pages = self.next[route]
        if link is not None and len(pages) < 20:
            pages.append(link.partition(">")[0].lstrip("<"))
