"""The schema of the settings: names, types, defaults, ranges, descriptions.

The rule: a setting is declared here once; its environment variable, its line in `config show` and its row in docs/configuration.md follow
from the declaration.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from holdfast.settings.crawling import (
    REQUESTS_END_SECONDS,
    Archive,
    Crawl,
    Disk,
    Fetch,
    Images,
    Parsing,
    Politeness,
    Proxies,
    Worker,
)
from holdfast.settings.field_types import (
    MAX_INT4,
    ONE_DAY,
    Count,
    Duration,
    Fraction,
    Group,
    Names,
    folder,
    header_value,
    single_word,
)
from holdfast.settings.retention import Retention
from holdfast.settings.web import Web

PREFIX = "HOLDFAST_"

# The names that the first crawlers gave to these settings; read from the environment with and without the prefix.
SEED_NAMES = {
    "rollout.domain_tracking": "ENABLE_DOMAIN_TRACKING",
    "rollout.per_domain_budget": "ENABLE_PER_DOMAIN_BUDGET",
    "rollout.smart_scheduling": "ENABLE_SMART_SCHEDULING",
    "rollout.claim_protocol": "ENABLE_CLAIM_PROTOCOL",
    "rollout.refresh_mode": "ENABLE_REFRESH_MODE",
    "flush.pages": "DOMAIN_STATS_FLUSH_INTERVAL_PAGES",
}

# Settings that were in another group; their old names are read, in the file and in the environment.
FORMER_NAMES = {"crawl.contact": "fetch.contact"}

# An @ ends the userinfo and is not allowed elsewhere, so that the password in a URL is unambiguous.
_DATABASE_URL = re.compile(r"postgres(?:ql)?://(?:[^\s/?@]*@)?[^\s/?@]*(?:/[^\s?@]*)?(?:\?[^\s@]*)?")
_REDIS_URL = re.compile(
    r"(?:rediss?://(?:[^\s/?@]*@)?[^\s/?@]+(?:/\d*)?|unix://(?:[^\s/?@]*@)?/[^\s?@]+)(?:\?[^\s@]*)?"
)
_PASSWORD = re.compile(r"(?<=://)([^:@/?]*):[^@/?]*@")
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)


def masked(url: SecretStr) -> str:
    """The database URL for display: every password in it is ***."""
    text = url.get_secret_value()
    if not _DATABASE_URL.fullmatch(text):
        return "***"
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def _postgresql(url: SecretStr | None) -> SecretStr | None:
    if url is not None and not _DATABASE_URL.fullmatch(url.get_secret_value()):
        raise ValueError(
            "must be a URL such as postgresql://user:password@host/database, with @ / ? in it as %40 %2F %3F"
        )
    return url


def _redis(url: SecretStr | None) -> SecretStr | None:
    if url is not None and not _REDIS_URL.fullmatch(url.get_secret_value()):
        raise ValueError("must be a URL such as redis://:password@host:6379/0, rediss:// for TLS or unix:///path.sock")
    return url


def signing_secrets(text: str) -> tuple[str, ...]:
    """The comma-separated secrets in *text*. Raises ValueError for one that is too easy to guess."""
    secrets = tuple(part.strip() for part in text.strip().split(","))
    if not all(re.fullmatch(r"[\x21-\x7e]{16,200}", secret) for secret in secrets):
        raise ValueError("must be 16 to 200 ASCII characters without spaces, or several such texts with commas between")
    return secrets


def secret_keys(text: str) -> tuple[str, ...]:
    """The comma-separated Fernet keys in *text*. Raises ValueError for an invalid one."""
    keys = tuple(part.strip() for part in text.strip().split(","))
    if not all(re.fullmatch(r"[A-Za-z0-9_-]{43}=", key) for key in keys):
        raise ValueError("must be a key that `holdfast proxies new-key` has made, or several with commas between")
    return keys


def _receiver(url: str | None) -> str | None:
    if url is not None and not (re.fullmatch(r"https?://[^\s/?#]+\S*", url) and len(url.encode()) <= 2048):
        raise ValueError("must be a URL such as https://example.com/alerts, of 2048 bytes at the most")
    return url


def _server(url: str | None) -> str | None:
    if url is not None and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
        raise ValueError("must be a URL such as http://127.0.0.1:8080 or https://crawler.example")
    return url


def _keys(keys: SecretStr | None) -> SecretStr | None:
    if keys is not None:
        secret_keys(keys.get_secret_value())
    return keys


def _signing(secrets: SecretStr | None) -> SecretStr | None:
    if secrets is not None:
        signing_secrets(secrets.get_secret_value())
    return secrets


class Store(Group):
    """The connection to PostgreSQL."""

    connect_timeout: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(seconds=1),
        le=ONE_DAY,
        description="How long to wait for the database to answer.",
    )
    statement_timeout: Duration = Field(
        default=timedelta(seconds=60), le=ONE_DAY, description="The timeout of a statement; 0 = no limit."
    )


class Claims(Group):
    """How workers hold domains."""

    lease: Duration = Field(
        default=timedelta(minutes=30),
        ge=timedelta(seconds=5),
        description="How long a claim lasts without renewal; a worker renews every third of it.",
    )
    batch: Count = Field(default=10, ge=1, le=1000, description="How many domains a worker claims at once.")
    sweep_interval: Duration = Field(
        default=timedelta(seconds=5),
        ge=timedelta(seconds=0.1),
        le=ONE_DAY,
        description="How often expired claims and ended cool-downs are looked for.",
    )


class Domains(Group):
    """Defaults for a new domain; `holdfast domains set` changes a known one."""

    registrable: bool = Field(
        default=False, description="A domain is the registrable domain (example.com), not the host (www.example.com)."
    )
    max_errors: Count = Field(
        default=10,
        ge=1,
        le=MAX_INT4,
        description="Refusals (403, 429, 503), or failures to reach it, in a row that stop a domain.",
    )
    max_block_retries: Count = Field(
        default=3,
        ge=0,
        le=MAX_INT4,
        description="How often a blocked or unreachable domain is tried again before only the operator can reset it.",
    )
    max_pages_per_run: Count = Field(
        default=1000,
        ge=1,
        le=MAX_INT4,
        description="Pages of one domain before the others have their turn (a share of a round). Not a limit.",
    )
    crawl_delay: Duration = Field(
        default=timedelta(seconds=1), le=ONE_DAY, description="Pause between two requests to a domain."
    )
    max_concurrent_requests: Count = Field(
        default=5, ge=1, le=1000, description="Requests to one domain at the same time."
    )
    parser: Annotated[str, AfterValidator(single_word)] = Field(
        default="generic", description="The parser for a domain's pages."
    )
    user_agent: Annotated[str | None, AfterValidator(header_value)] = Field(
        default=None, description="The User-Agent sent to the web; not set = Holdfast's own."
    )
    crawl_frequency: Duration = Field(
        default=ONE_DAY, ge=timedelta(seconds=1), description="How often a recurring task on a domain is due."
    )


class Cooldown(Group):
    """The length of a cool-down, by reason."""

    login_required: Duration = Field(default=30 * ONE_DAY, description="After a login wall (401, or a login page).")
    rate_limited: Duration = Field(default=7 * ONE_DAY, description="After too many requests (429).")
    forbidden: Duration = Field(default=14 * ONE_DAY, description="After access was forbidden (403).")
    robots_denied: Duration = Field(default=90 * ONE_DAY, description="After robots.txt denied everything.")
    unavailable: Duration = Field(default=7 * ONE_DAY, description="After the server was unavailable (503).")
    unreachable: Duration = Field(default=7 * ONE_DAY, description="After DNS or connection failures.")
    exhausted: Duration = Field(default=14 * ONE_DAY, description="After the last known page, until the refresh.")
    jitter: Fraction = Field(
        default=0.1,
        ge=0,
        le=0.5,
        description="Each cool-down is longer by up to this fraction, so that they do not end together.",
    )


class Urls(Group):
    """How URLs are normalized, which decides what counts as the same page."""

    tracking_parameters: Names = Field(
        default=(
            *("utm_*", "gclid", "fbclid", "msclkid", "dclid", "yclid"),
            *("mc_cid", "mc_eid", "igshid", "_ga"),
        ),
        description="Query parameters to drop because they only say where a visitor came from; `utm_*` is a prefix.",
    )
    session_parameters: Names = Field(
        default=("PHPSESSID", "JSESSIONID", "aspsessionid*"),
        description="Query and path parameters to drop because they only name a session. `--strip-param` drops more for a job, "
        "`strip_params` of `domains set` for a domain.",
    )
    strip_trailing_slash: bool = Field(default=False, description="/a/ and /a are the same page.")
    sort_query: bool = Field(default=True, description="The order of query parameters does not matter.")
    max_bytes: Count = Field(default=2048, ge=64, le=65_536, description="Longer URLs are refused.")


class Rollout(Group):
    """Switches for a step by step introduction; off means the older behaviour."""

    domain_tracking: bool = Field(default=True, description="Keep what was learnt about each domain.")
    per_domain_budget: bool = Field(default=True, description="Limit the pages of each domain, not only of the crawl.")
    smart_scheduling: bool = Field(default=True, description="Choose domains by priority from the database.")
    claim_protocol: bool = Field(default=True, description="Workers claim domains; off = only one worker may run.")
    refresh_mode: bool = Field(default=True, description="Visit known pages again when they are due.")

    @model_validator(mode="after")
    def _claims_need_scheduling(self) -> Self:
        if self.claim_protocol and not self.smart_scheduling:
            raise ValueError("ENABLE_CLAIM_PROTOCOL requires ENABLE_SMART_SCHEDULING=true")
        return self


class Flush(Group):
    """When a worker commits: after `pages` or after `seconds`, whichever comes first."""

    pages: Count = Field(
        default=100,
        ge=0,
        le=100_000,
        description="Commit after this many pages; 0 = only at the end, whatever `seconds` says.",
    )
    seconds: Duration = Field(
        default=timedelta(seconds=1), ge=timedelta(seconds=0.01), le=ONE_DAY, description="Commit after this time."
    )


class Webhook(Group):
    """Webhooks: messages about tasks, jobs and alerts."""

    secret: Annotated[SecretStr | None, AfterValidator(_signing)] = Field(
        default=None,
        description="The secret that signs messages; several, separated by commas, while one is replaced. "
        "Not set = one that is made once and kept in `data`.",
    )
    attempts: Count = Field(default=10, ge=1, le=1000, description="How often a message is sent before it is given up.")
    timeout: Duration = Field(
        default=timedelta(seconds=10),
        ge=timedelta(seconds=0.1),
        le=timedelta(minutes=10),
        description="The timeout of a message.",
    )
    at_once: Count = Field(default=8, ge=1, le=1000, description="Messages that are sent at the same time.")
    keep: Duration = Field(
        default=30 * ONE_DAY, ge=timedelta(hours=1), description="How long messages that have ended are kept."
    )
    alerts_url: Annotated[str | None, AfterValidator(_receiver)] = Field(
        default=None, description="The URL for messages about the begin and end of alerts; not set = none."
    )
    jobs_url: Annotated[str | None, AfterValidator(_receiver)] = Field(
        default=None,
        description="The URL for messages about ends, pauses and reopenings of jobs; not set = none. `serve` and `background` read it.",
    )


def _time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise ValueError("must be a time of day such as 03:00")
    return text


_as_folder = folder
"""Under a name that no field has."""


class Backup(Group):
    """Backups of the store."""

    daily: bool = Field(
        default=False,
        description="`serve` and `background` make a backup each day, and keep the log of the bundled server between backups, so that "
        "any second can be restored.",
    )
    daily_at: Annotated[str, AfterValidator(_time_of_day)] = Field(
        default="03:00", description="The time of day (UTC) of the daily backup."
    )
    folder: Annotated[Path | None, BeforeValidator(_as_folder)] = Field(
        default=None,
        description="The folder of backups, better on another disk; not set = `backups` in `data`.",
    )
    keep: Count = Field(
        default=7,
        ge=1,
        le=1000,
        description="How many backups are kept at least; older ones are deleted when no kept one needs them.",
    )
    full_every: Count = Field(
        default=7,
        ge=1,
        le=100,
        description="Every Nth daily backup is a full one; the others are incremental.",
    )
    wal_limit: Count = Field(
        default=8_000_000_000,
        ge=64_000_000,
        le=2**40,
        description="Bytes of log that the bundled server keeps while it cannot be copied; beyond it the log of these backups is given "
        "up, so that the disk does not fill.",
    )


Source = Literal["default", "file", "environment", "option"]


class Origin(NamedTuple):
    """The source of a setting's value, and the words for the place in an error message."""

    source: Source
    place: str


class Settings(Group):
    """All settings. `Settings()` has the built-in defaults; `load` reads the sources."""

    data: Annotated[Path, BeforeValidator(folder)] = Field(
        default=Path(".holdfast"), description="The data folder; a relative path begins at the current folder."
    )
    database_url: Annotated[SecretStr | None, AfterValidator(_postgresql)] = Field(
        default=None, description="A shared PostgreSQL server; not set = the embedded one, kept in `data`."
    )
    secret_key: Annotated[SecretStr | None, AfterValidator(_keys)] = Field(
        default=None,
        description="The key that encrypts the passwords of proxies; several, separated by commas, while one is replaced: the first "
        "encrypts, all decrypt. Not set = one that is made once and kept in `data`.",
    )
    redis_url: Annotated[SecretStr | None, AfterValidator(_redis)] = Field(
        default=None,
        description="A Redis or Valkey server that counts requests for the limits of the API; not set = the database does.",
    )
    server: Annotated[str | None, AfterValidator(_server)] = Field(
        default=None,
        description="The Holdfast server that commands use (`--server`); not set = they work on the store itself.",
    )
    api_key: SecretStr | None = Field(
        default=None, description="The API key for that server; `holdfast keys add` makes one."
    )
    store: Store = Field(default_factory=Store)
    claims: Claims = Field(default_factory=Claims)
    domains: Domains = Field(default_factory=Domains)
    cooldown: Cooldown = Field(default_factory=Cooldown)
    urls: Urls = Field(default_factory=Urls)
    rollout: Rollout = Field(default_factory=Rollout)
    flush: Flush = Field(default_factory=Flush)
    fetch: Fetch = Field(default_factory=Fetch)
    politeness: Politeness = Field(default_factory=Politeness)
    crawl: Crawl = Field(default_factory=Crawl)
    worker: Worker = Field(default_factory=Worker)
    archive: Archive = Field(default_factory=Archive)
    disk: Disk = Field(default_factory=Disk)
    images: Images = Field(default_factory=Images)
    parsing: Parsing = Field(default_factory=Parsing)
    webhook: Webhook = Field(default_factory=Webhook)
    proxies: Proxies = Field(default_factory=Proxies)
    backup: Backup = Field(default_factory=Backup)
    retention: Retention = Field(default_factory=Retention)
    web: Web = Field(default_factory=Web)

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _requests_end_before_takeover(self) -> Self:
        seconds = self.fetch.timeout.total_seconds() + self.worker.heartbeat.total_seconds()
        if seconds >= REQUESTS_END_SECONDS:
            raise ValueError(
                f"fetch.timeout and worker.heartbeat must be less than {REQUESTS_END_SECONDS:g} s together, not {seconds:g} s: "
                "other workers take the domains of a worker over that sent no heartbeat for 120 s, and its requests must have ended by then"
            )
        return self

    def model_post_init(self, context: Mapping[str, Origin] | None, /) -> None:
        """Take the origins, which `load` passes as the validation's context so that the tree stays frozen."""
        self._origins = context or {}

    def origin(self, name: str) -> Origin:
        """The source of the value of the setting `name` ("claims.lease")."""
        return self._origins.get(name, Origin("default", name))


class Setting(NamedTuple):
    """One setting with all its names."""

    name: str
    group: str
    env: str
    aliases: tuple[str, ...]
    default: Any
    secret: bool
    description: str


def groups() -> dict[str, type[Group]]:
    """The groups by name, in the order of the tree."""
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Group)}


@cache
def catalog() -> tuple[Setting, ...]:
    """Every setting, top level first, then group by group."""
    owners: dict[str, type[Group]] = {"": Settings, **groups()}
    return tuple(
        _setting(group, owner, field)
        for group, owner in owners.items()
        for field in owner.model_fields
        if group or field not in owners
    )


def variable_of(name: str) -> str:
    """The environment variable of the setting `name`."""
    return PREFIX + name.replace(".", "_").upper()


def _setting(group: str, owner: type[Group], field: str) -> Setting:
    info = owner.model_fields[field]
    name = f"{group}.{field}" if group else field
    seed, former = SEED_NAMES.get(name), FORMER_NAMES.get(name)
    return Setting(
        name=name,
        group=group,
        env=variable_of(name),
        aliases=((seed, PREFIX + seed) if seed else ()) + ((variable_of(former),) if former else ()),
        default=info.default,
        secret=SecretStr in get_args(info.annotation),
        description=info.description or "",
    )
