"""Kill the API's server between request and response, at failpoints and at random, while clients repeat each request until it is answered.

The rule: the store is the judge. Each acknowledged write is there once, with one line in the audit log and one stored response, and there
is nothing else; so a request that is repeated with the same Idempotency-Key takes effect once, however many servers died over it.
"""

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import httpx

from holdfast.accounts.service import AccountService
from holdfast.api.idempotency import HEADER
from holdfast.db.connection import Connection
from holdfast.domains.service import DomainService
from holdfast.frontier.service import KIND as FRONTIER
from holdfast.model.auth import Role, Scope
from holdfast.settings import Web
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import OnProgress
from holdfast.testing.torture.sandbox import Sandbox
from tests.prove.api_server import PATIENCE, Door, Front, Served, answers
from tests.prove.api_writes import KINDS, Asked
from tests.prove.ledger import Entry
from tests.support.api import PLAIN

CLIENTS: Final = 6
MAXIMUM: Final = 20
"""Requests that the server may answer between two kills."""
JITTER: Final = 0.05
EDITED: Final = "edited.localhost"
"""A domain that one client edits again and again, with If-Match."""
PASSWORD: Final = "correct horse battery"
_AGAIN: Final = "still under way"
"""In the response to a request whose first try has not ended: the client repeats it."""


class Clients:
    """API clients that repeat each request until it is answered."""

    def __init__(self, url: str, sandbox: Sandbox, site: str, name: str = "proof") -> None:
        """Before: the store has its schema. An admin called `name` is made, with a key and a session."""
        accounts = AccountService(sandbox.database(), Web())
        user = accounts.add(name, Role.ADMIN, PASSWORD, actor="test")[0]
        self._token = accounts.create_key(user.id, name, set(Scope), None, actor="test")[1]
        login = accounts.login(name, PASSWORD, address="127.0.0.1", user_agent="proof", previous=None)
        self._session = {"Cookie": f"holdfast_session={login.token}", "X-CSRF-Token": login.csrf}
        self._url, self._site, self._name = url, site, name
        self._numbers = itertools.count(1)
        self.user_id = user.id
        domains = DomainService(sandbox.database())
        domains.add(EDITED, actor="test")
        info = domains.info(EDITED).facts
        self.edits, self.version, self.budget = 0, info.version, info.max_pages_per_run or 0
        self.unforeseen: int | None = None
        """The status of an edit that should not have been answered with it."""
        self.asked: list[Asked] = []
        self.refused_connections = 0

    def new(self, kind: str) -> Asked:
        """Make a request that has not been sent yet."""
        name = f"proof-{next(self._numbers)}"
        made = Asked(kind, name, KINDS[kind].body(name, self._site))
        self.asked.append(made)
        return made

    @contextmanager
    def connected(self) -> Iterator[httpx.Client]:
        """An HTTP client; it connects again when a connection breaks."""
        with httpx.Client(base_url=self._url, timeout=PATIENCE, verify=PLAIN) as client:
            yield client

    def key_headers(self) -> dict[str, str]:
        """Headers of a client that authenticates with the API key."""
        return {"Authorization": f"Bearer {self._token}"}

    def send(self, client: httpx.Client, request: Asked) -> bool:
        """Send the request once; whether the response says that it was done or refused."""
        kind = KINDS[request.kind]
        headers = self._session if kind.session else self.key_headers()
        request.tries += 1
        try:
            request.answer = client.post(kind.path, json=request.body, headers={**headers, HEADER: request.key})
        except httpx.ConnectError:
            self.refused_connections += 1
            return False
        except httpx.TransportError:
            return False
        return request.answer.status_code != 503 and not (
            request.answer.status_code == 409 and _AGAIN in request.answer.text
        )

    def until_answered(self, client: httpx.Client, request: Asked) -> None:
        """Send the request until it is answered."""
        until = time.monotonic() + PATIENCE
        while not self.send(client, request) and time.monotonic() < until:
            time.sleep(0.02)

    @contextmanager
    def at_work(self, seed: int, kinds: Sequence[str]) -> Iterator[None]:
        """Let the clients send requests inside the `with`; at its end each finishes its current request."""
        over = threading.Event()

        def work(number: int) -> None:
            dice = random.Random(f"{seed} {number}")
            with self.connected() as client:
                while not over.is_set():
                    self.until_answered(client, self.new(dice.choice(kinds)))

        def edit() -> None:
            with self.connected() as client:
                self.edit(client, over)

        threads = [threading.Thread(target=edit)]
        threads += [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def edit(self, client: httpx.Client, over: threading.Event) -> None:
        """Edit a domain again and again with If-Match, which makes repeats safe without an Idempotency-Key."""
        cut = False
        while not over.is_set():
            headers = {**self.key_headers(), "If-Match": f'"{self.version}"'}
            body = {"budget": self.budget + 1}
            try:
                status = client.patch(f"/api/admin/domains/{EDITED}", json=body, headers=headers).status_code
            except httpx.TransportError:
                cut = True
                continue
            if status == 200 or (status == 412 and cut):  # the edit whose response was lost was committed
                self.edits, self.version, self.budget = self.edits + 1, self.version + 1, self.budget + 1
                cut = False
            elif status != 503:
                self.unforeseen = status
                return

    @property
    def answered(self) -> int:
        """The number of requests that have been answered."""
        return sum(request.answer is not None for request in list(self.asked))


# At named places -----------------------------------------------------------------------------------------------------


def at_points(sandbox: Sandbox, kinds: Iterable[str], door: Door, on_progress: OnProgress) -> tuple[int, list[str]]:
    """For each kind of write, kill the server before the commit, and after it but before the response; the deaths and the violations.

    Before: nothing of what clients called `proof` do is in the store.
    """
    clients = Clients(door.url, sandbox, "http://s0.localhost/")
    wrong: list[str] = []
    died = 0
    before: Asked | None = None
    with clients.connected() as client:
        for kind in kinds:
            request = clients.new(kind)
            with door.serving("--failpoint", "api_before_commit") as front:
                wrong += _repeated(clients, client, before)  # a stored response reaches no commit
                died += _dies(clients, client, request, front, wrong)
            wrong += [f"{kind}: killed before the commit: {fault}" for fault in _unlike(sandbox, clients, [request], 0)]
            with door.serving("--failpoint", "api_after_commit") as front:
                died += _dies(clients, client, request, front, wrong)
            wrong += [f"{kind}: killed after the commit: {fault}" for fault in _unlike(sandbox, clients, [request], 1)]
            before = request
        with door.serving():
            wrong += _repeated(clients, client, before)
    on_progress(f"{', '.join(request.kind for request in clients.asked)}: {died} kills")
    return died, wrong + judged(sandbox, clients)


def _dies(clients: Clients, client: httpx.Client, request: Asked, front: Front, wrong: list[str]) -> int:
    if clients.send(client, request):
        said = request.answer.text if request.answer is not None else ""
        wrong.append(f"void: {request.kind} was answered, and the server should have died: {said[:200]}")
    elif not front.wait() or front.code != -signal.SIGKILL:
        wrong.append(f"void: the server did not reach its failpoint: it ended with {front.code}")
    else:
        return 1
    return 0


def _repeated(clients: Clients, client: httpx.Client, request: Asked | None) -> list[str]:
    if request is None:
        return []
    clients.until_answered(client, request)
    if request.replayed:
        return []
    return [f"{request.kind}: the repeat did not get the first answer, but {_said(request)}"]


def _unlike(sandbox: Sandbox, clients: Clients, requests: Sequence[Asked], expected: int) -> list[str]:
    """What differs if each of these unanswered requests has this number of effects and responses in the store."""
    with sandbox.database().session() as connection:
        kept = _kept(connection, clients)
        answers = sum(request.key in kept for request in requests)
        there = {request.kind: len(_rows(connection, KINDS[request.kind].there)) for request in requests}
    found = [f"{answers} responses are stored"] if answers != expected else []
    return found + [f"{count} of it are there" for count in there.values() if count != expected]


# At any moment -------------------------------------------------------------------------------------------------------


def at_random(
    seed: int,
    kills: int,
    sandbox: Sandbox,
    served: Served,
    clients: Clients,
    on_progress: OnProgress,
    kinds: Sequence[str] = tuple(KINDS),
) -> Entry:
    """Kill the server `kills` times while clients send requests; the supervisor restarts it each time. Before: it answers."""
    dice = random.Random(seed)
    landed = 0
    with clients.connected() as client, clients.at_work(seed, kinds):
        for number in range(kills):
            wanted = clients.answered + dice.randint(0, MAXIMUM)
            served.until(lambda wanted=wanted: clients.answered >= wanted, "nothing is answered")  # type: ignore[misc]
            time.sleep(dice.uniform(0, JITTER))
            landed += served.kill_front()
            served.until(lambda: answers(client), "no server answers after a kill")
            if number % 10 == 9:
                on_progress(f"{number + 1} kills: {clients.answered} requests are answered")
    cut = sum(request.tries > 1 for request in clients.asked)
    replayed = sum(request.replayed for request in clients.asked)
    violations = judged(sandbox, clients)
    violations += ["void: no request was cut off"] if kills and not cut else []
    violations += [f"{clients.refused_connections} connections were refused"] if clients.refused_connections else []
    on_progress(
        f"{len(clients.asked)} requests, {cut} of them cut off, {replayed} answered with a stored response; {landed} kills"
    )
    found = {"planned": kills, "landed": landed, "repeats": cut, "refused": 0, "seconds": 0, "violations": violations}
    return found | {"requests": len(clients.asked), "replayed": replayed}


# The judgement ---------------------------------------------------------------------------------------------------------


def judged(sandbox: Sandbox, clients: Clients) -> list[str]:
    """The violations in the store. Before: every request has been answered."""
    wrong = [
        f"{request.kind} {request.name}: {_said(request)}"
        for request in clients.asked
        if request.answer is None or request.answer.status_code != KINDS[request.kind].status
    ]
    if wrong:
        return [*wrong[:5], f"{len(wrong)} requests were not answered as expected"]
    acknowledged = {kind: Counter[tuple[str, str]]() for kind in KINDS}
    deeds: Counter[tuple[str, str]] = Counter()
    for request in clients.asked:
        kind = KINDS[request.kind]
        assert request.answer is not None
        it = kind.acknowledged(request.answer.json())
        acknowledged[request.kind][it] += 1
        deeds[kind.audit, "" if kind.audit == FRONTIER else it[0]] += 1
    with sandbox.database().session() as connection:
        for name, kind in KINDS.items():
            wrong += _differences(f"{name} in the store", acknowledged[name], Counter(_rows(connection, kind.there)))
        audited = _rows(connection, _AUDITED)
        edited = connection.execute(_EDITED, (EDITED,)).fetchone()
        kept = _kept(connection, clients)
    if clients.unforeseen is not None or edited != (clients.budget, clients.version):
        expected = (
            f"after {clients.edits} edits and version {clients.version}, the last answered with {clients.unforeseen}"
        )
        wrong.append(f"edits: the store has {edited} {expected}")
    deeds["domain", EDITED] = clients.edits
    named = Counter((kind, "" if kind == FRONTIER else it) for kind, it in audited)
    wrong += _differences("lines in the audit log", deeds, named)
    given = {request.key: request.answer.status_code for request in clients.asked if request.answer is not None}
    wrong += _differences("stored responses", Counter(given.items()), Counter(kept.items()))
    return wrong + checks.verify_store(sandbox)


_AUDITED: Final = "SELECT object_kind, object_id FROM audit_log WHERE starts_with(actor, 'proof') AND action <> 'login'"
_EDITED: Final = "SELECT max_pages_per_run, version FROM domains WHERE domain = %s"
_KEPT: Final = "SELECT key, status FROM kept_answers WHERE owner = %s"


def _differences(what: str, expected: Counter[Any], found: Counter[Any]) -> list[str]:
    lost, more = expected - found, found - expected
    return [f"{what}: missing {list(lost)[:3]}, of {lost.total()}"] * bool(lost) + [
        f"{what}: not acknowledged, or twice: {list(more)[:3]}, of {more.total()}"
    ] * bool(more)


def _rows(connection: Connection, query: str) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in connection.execute(query.encode()).fetchall()]


def _kept(connection: Connection, clients: Clients) -> dict[str, int]:
    return dict(connection.execute(_KEPT, (str(clients.user_id),)).fetchall())


def _said(request: Asked) -> str:
    if request.answer is None:
        return f"no answer after {request.tries} tries"
    return f"{request.answer.status_code} {request.answer.text[:200]}"
