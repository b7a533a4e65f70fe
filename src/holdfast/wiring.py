"""The only place that picks implementations: which server, which rules, made from the settings."""

from collections.abc import Callable

from holdfast.model.url import UrlRules
from holdfast.settings import Settings
from holdfast.store import embedded, migrate
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains


def database(settings: Settings, say: Callable[[str], None]) -> Database:
    """The database that the settings mean, running, whatever its schema. `say` hears what takes long."""
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
    else:
        url = embedded.ensure_running(settings.data, say).url()
    return Database(
        url,
        connect_timeout=settings.store.connect_timeout.total_seconds(),
        statement_timeout=settings.store.statement_timeout.total_seconds(),
    )


def store(settings: Settings, say: Callable[[str], None]) -> Database:
    """The database, with the schema that this Holdfast knows. Only the bundled server's is changed to get there."""
    chosen = database(settings, say)
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
