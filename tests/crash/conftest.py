"""Fixtures of crawls under faults: a small web, a crawl of it without faults, and databases for those with them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.testing.simweb.site import UrlKind
from holdfast.testing.simweb.spec import Site, Web
from holdfast.testing.torture import experiment
from holdfast.testing.torture import scenario as plans
from holdfast.testing.torture.experiment import Reference
from holdfast.testing.torture.scenario import Fault, Scenario
from tests.prove.sandbox import ExternalSandbox

MakePlan = Callable[..., Scenario]
SITES = 4
"""Large ones; one of a single page comes on top."""
PAGES = 16
"""Of a large site."""
SEED = 7
ODD = 0.05
"""So many that every kind is there, though pages are few."""


@contextmanager
def new_database(server: embedded.Server, template: str, name: str) -> Iterator[Database]:
    """A database with the schema and nothing in it, gone afterwards."""
    made = sql.Identifier(name)
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER holdfast STRATEGY file_copy")
        admin.execute(copy.format(made, sql.Identifier(template)))
        yield Database(server.url(name))
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(made))


@pytest.fixture(scope="module")
def small_web() -> Web:
    """Few pages, and no site that is slow on purpose."""
    web = plans.make_scenario(seed=SEED, pages=PAGES * plans.SITES, workers=1, kills=0).web
    default = replace(web.default, odd=dict.fromkeys(web.default.odd, ODD))
    return replace(web, sites=SITES + 1, default=default, special={SITES: Site(1)})


@pytest.fixture(scope="module")
def make_plan(small_web: Web) -> MakePlan:
    """Plans for that web."""

    def make(kills: int, faults: tuple[Fault, ...], workers: int = 1) -> Scenario:
        made = plans.make_scenario(seed=SEED, pages=PAGES * plans.SITES, workers=workers, kills=kills, faults=faults)
        return replace(made, web=small_web, delay=min(made.delay, 0.2))

    return make


@pytest.fixture(scope="module")
def reference(
    server: embedded.Server, template: str, make_plan: MakePlan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reference]:
    """The crawl without faults, which all others must end like."""
    folder = tmp_path_factory.mktemp("reference")
    with new_database(server, template, "torture_reference") as database:
        made = experiment.run_reference(make_plan(0, (Fault.KILL_ALL,)), ExternalSandbox(folder, database))
        assert made.violations == []
        assert {page.kind for page in made.expected} == set(UrlKind) - {UrlKind.HOSTILE}
        assert {page.status for page in made.expected} >= {404, 410, 500}
        yield made


@pytest.fixture
def sandbox(database: Database, tmp_path: Path) -> ExternalSandbox:
    """Where a crawl under faults takes place."""
    return ExternalSandbox(tmp_path / "ground", database)
