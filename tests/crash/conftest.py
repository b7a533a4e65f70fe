"""Fixtures of crawls under faults: a small web, a crawl of it without faults, and databases for those with them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.control.torture import plan as plans
from holdfast.control.torture import trial
from holdfast.control.torture.plan import Fault, Plan
from holdfast.control.torture.trial import Reference
from holdfast.simweb.plan import Web
from holdfast.store import embedded
from holdfast.store.connect import Database
from tests.prove.ground import BorrowedGround

MakePlan = Callable[..., Plan]


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
    web = plans.make(seed=5, pages=240, workers=1, kills=0).web
    return replace(web, special={n: site for n, site in web.special.items() if not site.crawl_delay})


@pytest.fixture(scope="module")
def make_plan(small_web: Web) -> MakePlan:
    """Plans for that web."""

    def make(kills: int, faults: tuple[Fault, ...], workers: int = 1) -> Plan:
        return replace(plans.make(seed=5, pages=240, workers=workers, kills=kills, faults=faults), web=small_web)

    return make


@pytest.fixture(scope="module")
def reference(
    server: embedded.Server, template: str, make_plan: MakePlan, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reference]:
    """The crawl without faults, which all others must end like."""
    folder = tmp_path_factory.mktemp("reference")
    with new_database(server, template, "torture_reference") as database:
        made = trial.without_faults(make_plan(0, (Fault.KILL_ALL,)), BorrowedGround(folder, database))
        assert made.violations == []
        yield made


@pytest.fixture
def ground(database: Database, tmp_path: Path) -> BorrowedGround:
    """Where a crawl under faults takes place."""
    return BorrowedGround(tmp_path / "ground", database)
