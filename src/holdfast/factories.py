"""The only place that picks implementations: which server, which rules, made from the settings."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import __version__, private
from holdfast.model.url import UrlRules
from holdfast.settings import Settings
from holdfast.store import embedded, migrate
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains
from holdfast.store.embedded.keeper import Keeper

if TYPE_CHECKING:
    from holdfast.background.process import Crew
    from holdfast.control.deeds import Deeds
    from holdfast.control.request_secrets import SecretSealer
    from holdfast.control.seeds import Sower
    from holdfast.engine.plan import Plan


CHILD_WAIT: Final = 10.0
"""Seconds that a supervised process waits for the bundled server, before its supervisor starts another one."""


def database(settings: Settings, say: Callable[[str], None], *, start: bool = True) -> Database:
    """The database that the settings mean, running, whatever its schema. `say` hears what takes long.

    `start`: start the bundled server if need be. A supervised process leaves that to its supervisor: a server that a person stopped
    stays down, and it does not inherit the priority of a worker.
    """
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        private.close_own(settings.data, say)
    elif start:
        url = embedded.ensure_running(settings.data, say).url()
    else:
        url = embedded.running(settings.data, CHILD_WAIT).url()
    return Database(
        url,
        connect_timeout=settings.store.connect_timeout.total_seconds(),
        statement_timeout=settings.store.statement_timeout.total_seconds(),
        idle_timeout=min(10.0, settings.claims.lease.total_seconds() / 3),
    )


def kept_up(settings: Settings, say: Callable[[str], None]) -> AbstractContextManager[object]:
    """While it is entered, a bundled server that dies is started again; `say` hears of it. Nothing for another server."""
    return Keeper(settings.data, say) if settings.database_url is None else nullcontext()


def store(settings: Settings, say: Callable[[str], None], *, start: bool = True) -> Database:
    """The database, with the schema that this Holdfast knows. Only the bundled server's is changed to get there."""
    chosen = database(settings, say, start=start)
    with chosen.session() as connection:
        behind = migrate.current(connection) in migrate.OLDER
        if not (settings.database_url is None and behind):
            migrate.check(connection, chosen.address)
            return chosen
    migrate.upgrade(chosen)
    return chosen


def url_rules(settings: Settings) -> UrlRules:
    """How URLs are normalized."""
    return UrlRules(
        tracking_parameters=settings.urls.tracking_parameters,
        session_parameters=settings.urls.session_parameters,
        strip_trailing_slash=settings.urls.strip_trailing_slash,
        sort_query=settings.urls.sort_query,
        max_bytes=settings.urls.max_bytes,
    )


def new_domains(settings: Settings) -> NewDomains:
    """How domains are treated that are met for the first time."""
    return NewDomains(
        max_pages_per_run=settings.domains.max_pages_per_run,
        parser=settings.domains.parser,
        crawl_delay=settings.domains.crawl_delay.total_seconds(),
        max_concurrent_requests=settings.domains.max_concurrent_requests,
        crawl_frequency=settings.domains.crawl_frequency,
        user_agent=settings.domains.user_agent,
    )


def user_agent(settings: Settings) -> str:
    """How Holdfast names itself, where a domain has no other name for it."""
    contact = f" (+{settings.crawl.contact})" if settings.crawl.contact else ""
    return settings.domains.user_agent or f"Holdfast/{__version__}{contact}"


def worker_name(number: int) -> str:
    """A stable name for a worker of this machine, so that its next life takes its claims back."""
    return f"{socket.gethostname()[:150]}-{number}"


def archive_folder(settings: Settings) -> Path:
    """Where this machine keeps the bytes of pages. Raises UsageError if the data folder is another user's."""
    private.check(settings.data)
    return settings.data / "archive"


def log_folder(settings: Settings) -> Path:
    """Where worker processes write what they have to say. Raises UsageError if the data folder is another user's."""
    private.check(settings.data)
    return settings.data / "logs"


def worker_plan(
    settings: Settings, chosen: Database, name: str, job_id: int | None, parser_file: Path | None = None
) -> "Plan":
    """What a worker process is to do; `parser_file` is a parser beside those of the folder."""
    from holdfast.control.secrets import Safe
    from holdfast.engine.plan import Plan

    return Plan(
        settings=settings,
        database=chosen,
        name=name,
        agent=user_agent(settings),
        rules=url_rules(settings),
        defaults=new_domains(settings),
        archive_folder=archive_folder(settings),
        unseal=Safe.of(settings).open,
        parser_file=parser_file,
        job_id=job_id,
    )


def sower(settings: Settings, chosen: Database) -> "Sower":
    """Puts seeds into the standing job."""
    from holdfast.control.seeds import Sower

    return Sower(chosen, url_rules(settings), new_domains(settings), registrable=settings.domains.registrable)


def sealer(settings: Settings) -> "SecretSealer":
    """Seals the headers, cookies and credentials that people give."""
    from holdfast.control.request_secrets import SecretSealer
    from holdfast.control.secrets import Safe

    return SecretSealer(Safe.of(settings))


def crew(settings: Settings, chosen: Database) -> "Crew":
    """Who works in a background process. Before: the event loop runs."""
    from holdfast.background.process import Crew
    from holdfast.control.operations import Operator
    from holdfast.control.parsing import ParsePhase
    from holdfast.control.schedule import Scheduler
    from holdfast.control.sending import Sender
    from holdfast.control.upkeep import Upkeep
    from holdfast.parse import registry
    from holdfast.parse.runner import Runner

    parsing = settings.parsing
    seconds = parsing.timeout.total_seconds()
    runner = Runner(registry.scan(parsing.folder), processes=parsing.processes, seconds=seconds, memory=parsing.memory)
    return Crew(
        Scheduler(
            url_rules(settings),
            new_domains(settings),
            registrable=settings.domains.registrable,
            parse_lost_after=2 * parsing.timeout + timedelta(seconds=10),
        ),
        ParsePhase(chosen, runner, archive_folder(settings)),
        Sender(chosen, settings, user_agent(settings)),
        at_once=parsing.processes,
        upkeep=Upkeep.of(settings),
        operator=Operator(chosen.named("holdfast operation"), deeds(settings, chosen).by_kind()),
    )


def deeds(settings: Settings, chosen: Database) -> "Deeds":
    """What operations do, in this process."""
    from holdfast.control.deeds import Deeds
    from holdfast.control.domains import DomainDesk
    from holdfast.control.frontier import FrontierDesk
    from holdfast.control.pages import PagesDesk
    from holdfast.control.tasks import TaskDesk
    from holdfast.control.verify import Verifier

    registrable = settings.domains.registrable
    return Deeds(
        domains=DomainDesk(chosen, registrable),
        tasks=TaskDesk(chosen, url_rules(settings), new_domains(settings), registrable=registrable),
        frontier=FrontierDesk(chosen, sower(settings, chosen), rest=settings.cooldown.exhausted),
        pages=PagesDesk(chosen, url_rules(settings), registrable),
        verifier=Verifier(chosen, settings.politeness.retries, shared=settings.database_url is not None),
        archive=archive_folder(settings),
    )
