"""The proxies of one domain, as the store sees them: which comes next and why, and how they do.

The rule: it only looks, and never says more than is stored: what workers have in memory is theirs.
"""

from dataclasses import dataclass
from typing import Self

from holdfast.db import domains
from holdfast.db.connection import Database
from holdfast.model.domain_name import canonical_domain
from holdfast.model.proxy import ProxyMode
from holdfast.proxies.queries import preview as proxy_next
from holdfast.proxies.queries import reports as proxy_reports
from holdfast.proxies.queries.preview import NextProxy
from holdfast.proxies.queries.reports import Health
from holdfast.settings import Settings


@dataclass(frozen=True, slots=True)
class ProxyPreview:
    """The proxies of the domains of one store, domain by domain."""

    database: Database
    usual: ProxyMode = ProxyMode.DIRECT
    """What domains use that say nothing."""
    direct: bool = False
    """Whether those may be asked without a proxy when none can be had."""
    registrable: bool = False

    @classmethod
    def of(cls, settings: Settings, database: Database) -> Self:
        """As the settings say."""
        proxies = settings.proxies
        return cls(database, ProxyMode(proxies.use), proxies.direct, settings.domains.registrable)

    def next(self, domain: str) -> NextProxy:
        """Which proxy a domain's next request would go through, or why none."""
        name = canonical_domain(domain, registrable=self.registrable)
        with self.database.session() as connection:
            domain_id = domains.id_of(connection, name)
            return proxy_next.next_for(connection, domain_id, name, usual=self.usual, direct=self.direct)

    def health(self, domain: str) -> Health:
        """The pool of a domain in numbers; zeros if it has none."""
        name = canonical_domain(domain, registrable=self.registrable)
        with self.database.session() as connection:
            return proxy_reports.health_of(connection, name, usual=self.usual)
