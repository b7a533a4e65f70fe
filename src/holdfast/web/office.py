"""What the routes work with: the settings, the pooled database and the desks of `control`, made once for a process.

The rule: a route asks the office for a desk and calls it; it decides nothing itself.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Self

from fastapi import Request

from holdfast import wiring
from holdfast.control.accounts import AccountDesk
from holdfast.control.browsing import Browser
from holdfast.control.crawls import CrawlDesk
from holdfast.control.domains import DomainDesk
from holdfast.control.explain import Explainer
from holdfast.control.frontier import FrontierDesk
from holdfast.control.jobs import JobDesk
from holdfast.control.live import glances
from holdfast.control.operations import OperationDesk
from holdfast.control.pages import PagesDesk
from holdfast.control.products import ProductDesk
from holdfast.control.proxies import ProxyDesk
from holdfast.control.proxy_choice import ChoiceDesk
from holdfast.control.proxy_test import Tester
from holdfast.control.readiness import NO_ANSWER, Part, look
from holdfast.control.seeds import Sower
from holdfast.control.statistics import StatsDesk
from holdfast.control.tasks import TaskDesk
from holdfast.control.webhooks import WebhookDesk
from holdfast.model.account import Principal, Role
from holdfast.model.proxy import Use
from holdfast.settings import Settings
from holdfast.store.connect import Database
from holdfast.store.entering import Limits
from holdfast.store.pooled import PooledDatabase
from holdfast.web.glance import Glance
from holdfast.web.hub import Figures, Hub
from holdfast.web.limits import Limiter, Tier
from holdfast.web.summaries import Summaries
from holdfast.web.views import JobProgressView, Stats


@dataclass
class Office:
    """Everything that a process of the API has."""

    settings: Settings
    unpooled: Database
    """For who holds a connection for long."""
    database: PooledDatabase
    accounts: AccountDesk
    limiter: Limiter
    hub: Hub
    no_auth: bool = False
    """Whoever asks is an admin; only for a server that listens to its own machine."""

    @classmethod
    def open(cls, settings: Settings, database: Database, *, no_auth: bool = False) -> Self:
        """Before: the database answers and has the right schema. `close` it at the end."""
        pooled = PooledDatabase.of(
            database,
            size=settings.web.connections,
            statement_timeout=settings.web.statement_timeout.total_seconds(),
        )
        return cls(
            settings,
            database.named("holdfast export"),
            pooled,
            AccountDesk(pooled, settings.web),
            Limiter(pooled, settings),
            Hub(pooled, settings.web.listeners, settings.web.user_listeners),
            no_auth=no_auth,
        )

    def close(self) -> None:
        """After: no connection is left."""
        self.database.close()

    @cached_property
    def tiers(self) -> Mapping[Role, Tier]:
        """The limit of each role."""
        web = self.settings.web
        most = {Role.ANONYMOUS: web.anonymous_limit, Role.USER: web.user_limit, Role.ADMIN: web.admin_limit}
        return {role: Tier(str(role), most[role], web.window) for role in Role}

    @cached_property
    def login_tier(self) -> Tier:
        """The limit of logins from one address."""
        return Tier("login", self.settings.web.anonymous_limit, self.settings.web.window)

    @cached_property
    def limits(self) -> Limits:
        """The same, as the store takes them."""
        return Limits(self.seed_tier.seconds, **{str(role): tier.most for role, tier in self.tiers.items()})

    @cached_property
    def seed_tier(self) -> Tier:
        """The limit of adding seeds."""
        return Tier("seed", self.settings.web.seed_limit, self.settings.web.window)

    def jobs(self, who: Principal) -> JobDesk:
        """Jobs, on behalf of somebody."""
        return JobDesk(self.database, who.name)

    @cached_property
    def summaries(self) -> Summaries:
        """How jobs stand, with the URLs that were not crawled by reason."""
        return Summaries(JobDesk(self.database, "").summary)

    @cached_property
    def sower(self) -> Sower:
        """Puts seeds into jobs."""
        return wiring.sower(self.settings, self.database)

    @cached_property
    def readiness(self) -> Glance[list[Part]]:
        """Whether it can work. On a connection of its own: the database answers also when all others are in use."""
        return Glance(lambda: look(self.unpooled), NO_ANSWER)

    @cached_property
    def redis(self) -> Glance[bool | None]:
        """Whether Redis answers; None: there is none."""
        return Glance(self.limiter.redis_answers, unanswered=False)

    @cached_property
    def stats(self) -> StatsDesk:
        """Statistics, which remembers them for a second."""
        return StatsDesk(self.database)

    @cached_property
    def stats_figures(self) -> Figures:
        """The same for listeners."""
        return Figures(lambda keys: dict.fromkeys(keys, Stats.of(self.stats.snapshot())))

    @cached_property
    def job_figures(self) -> Figures:
        """Jobs, for listeners."""

        def look(keys: Collection[int]) -> Mapping[int, JobProgressView]:
            rows = JobDesk(self.database, "").some(keys)
            now = glances(self.database, rows)
            return {row["id"]: JobProgressView.of(row | asdict(now[row["id"]])) for row in rows}

        return Figures(look)

    @cached_property
    def operations(self) -> OperationDesk:
        """Long work."""
        return OperationDesk(self.database)

    @cached_property
    def crawls(self) -> CrawlDesk:
        """Crawls: how jobs are made."""
        return CrawlDesk(self.database, self.sower, wiring.sealer(self.settings), self.settings.crawl.max_depth)

    @cached_property
    def browser(self) -> Browser:
        """Lists of everything."""
        return Browser(self.database, self.settings.domains.registrable, wiring.url_rules(self.settings))

    @cached_property
    def proxy_choice(self) -> ChoiceDesk:
        """The proxies of one domain."""
        return ChoiceDesk.of(self.settings, self.database)

    @cached_property
    def frontier(self) -> FrontierDesk:
        """URLs that wait."""
        return FrontierDesk(self.database, self.sower, rest=self.settings.cooldown.exhausted)

    @cached_property
    def pages(self) -> PagesDesk:
        """Pages, one by one."""
        return PagesDesk(self.database, wiring.url_rules(self.settings), self.settings.domains.registrable)

    @cached_property
    def explainer(self) -> Explainer:
        """Why things are where they are."""
        settings = self.settings
        return Explainer(
            self.database,
            wiring.url_rules(settings),
            settings.domains.registrable,
            wiring.user_agent(settings),
            Use(settings.proxies.use),
            settings.proxies.direct,
        )

    @cached_property
    def domains(self) -> DomainDesk:
        """Domains."""
        settings = self.settings
        return DomainDesk(
            self.database,
            settings.domains.registrable,
            wiring.new_domains(settings),
            wiring.sealer(settings),
            settings.parsing,
        )

    @cached_property
    def tasks(self) -> TaskDesk:
        """Tasks and batches."""
        settings = self.settings
        return TaskDesk(
            self.database,
            wiring.url_rules(settings),
            wiring.new_domains(settings),
            registrable=settings.domains.registrable,
        )

    @cached_property
    def products(self) -> ProductDesk:
        """Products."""
        return ProductDesk(self.database, self.settings.domains.registrable)

    @cached_property
    def proxies(self) -> ProxyDesk:
        """Proxies and their pools."""
        return ProxyDesk.of(self.settings, self.database)

    @cached_property
    def tester(self) -> Tester:
        """Tries proxies; it asks the web."""
        return Tester(self.database, self.settings, wiring.user_agent(self.settings))

    @cached_property
    def webhooks(self) -> WebhookDesk:
        """The outbox of webhooks."""
        return WebhookDesk(self.database)


def _office(request: Request) -> Office:
    office = request.app.state.office
    assert isinstance(office, Office)  # noqa: S101 — the app is made with one
    return office


def _who(request: Request) -> Principal:
    who = request.state.who
    assert isinstance(who, Principal)  # noqa: S101 — the guard lets nobody pass without
    return who


@dataclass(frozen=True, slots=True)
class Given:
    """Marks what a route is given by the guard: FastAPI would solve each such dependency as if it were a request of its own."""

    by: Callable[[Request], object]


TheOffice = Annotated[Office, Given(_office)]
Who = Annotated[Principal, Given(_who)]
