"""Accounts as tests make them: cheap passwords, and a hasher that counts."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from holdfast.accounts.authentication import Login
from holdfast.accounts.passwords import Argon2, Hasher
from holdfast.accounts.service import AccountService
from holdfast.db.connection import Database
from holdfast.db.pool import PooledDatabase
from holdfast.errors import HoldfastError
from holdfast.model.auth import Role
from holdfast.settings.web import Web

WEAK: Final = Argon2(time_cost=1, memory_cost=8, parallelism=1)
"""What takes no time."""
RIGHT: Final = "correct horse battery"
WRONG: Final = "wrong horse battery"
HOME: Final = "192.0.2.7"
ACCOUNT_TABLES: Final = ("users", "sessions", "api_keys", "login_failures", "audit_log")


@dataclass
class Counting:
    """A hasher that counts what is asked of it, and lets a test do something meanwhile."""

    inner: Hasher = WEAK
    verified: int = 0
    hashed: int = 0
    meanwhile: Callable[[], object] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hash(self, password: str) -> str:
        with self._lock:
            self.hashed += 1
        return self.inner.hash(password)

    def verify(self, hashed: str | None, password: str) -> bool:
        with self._lock:
            self.verified += 1
        found = self.inner.verify(hashed, password)
        self.meanwhile()
        return found

    def is_outdated(self, hashed: str) -> bool:
        return self.inner.is_outdated(hashed)


@contextmanager
def kept(database: Database) -> Iterator[PooledDatabase]:
    """The same database over a few connections, as the API has it: to open one takes longer than most of what is done over it."""
    made = PooledDatabase.from_database(database, size=20, statement_timeout=database.statement_timeout)
    try:
        yield made
    finally:
        made.close()


def desk(database: Database, hasher: Hasher = WEAK, **settings: Any) -> AccountService:
    """Accounts of a test's database."""
    return AccountService(database, Web(**settings), hasher)


def add(accounts: AccountService, name: str = "ann", role: Role = Role.USER) -> int:
    """A user with the right password; the id."""
    return accounts.add(name, role, RIGHT, actor="test:me")[0].id


def come_in(
    accounts: AccountService, name: str = "ann", password: str = RIGHT, address: str = HOME, **more: Any
) -> Login:
    """A login."""
    return accounts.login(name, password, address=address, user_agent="test", **more)


def refusal(deed: Callable[[], object]) -> HoldfastError | None:
    """What somebody is told; None if it was done."""
    try:
        deed()
    except HoldfastError as problem:
        return problem
    return None


def all_at_once(deeds: Sequence[Callable[[], object]]) -> list[HoldfastError | None]:
    """What each is told if they begin in the same moment, a thread each."""
    start = threading.Barrier(len(deeds))

    def one(deed: Callable[[], object]) -> HoldfastError | None:
        start.wait()
        return refusal(deed)

    with ThreadPoolExecutor(len(deeds)) as threads:
        return list(threads.map(one, deeds))


def dump(connection: psycopg.Connection, *tables: str) -> str:
    """All columns of all rows, as text; bytes as hexadecimal digits."""
    named = tables or ACCOUNT_TABLES
    return "\n".join(str(row[0]) for table in named for row in connection.execute(f"SELECT t::text FROM {table} t"))


def deeds(connection: psycopg.Connection) -> list[tuple[str, str, str, str]]:
    """The audit log, in order."""
    return connection.execute("SELECT actor, action, object_kind, object_id FROM audit_log ORDER BY id").fetchall()
