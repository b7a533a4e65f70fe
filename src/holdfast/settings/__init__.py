"""Settings: one frozen tree, loaded once at the start and passed to constructors.

`schema`, `crawling` and `web` declare the settings, `field_types` validates values, `loader` loads them.
"""

from holdfast.model.duration import render as render_duration
from holdfast.settings.crawling import (
    Archive,
    Crawl,
    Disk,
    Fetch,
    Images,
    ObjectStoreOptions,
    Parsing,
    Politeness,
    Proxies,
    Worker,
)
from holdfast.settings.field_types import Duration
from holdfast.settings.loader import load, variable
from holdfast.settings.retention import Retention
from holdfast.settings.schema import (
    Backup,
    Claims,
    Cooldown,
    Domains,
    Flush,
    Origin,
    Rollout,
    Setting,
    Settings,
    Store,
    Urls,
    Webhook,
    catalog,
    groups,
    masked,
    secret_keys,
    signing_secrets,
)
from holdfast.settings.web import Web

__all__ = [
    "Archive",
    "Backup",
    "Claims",
    "Cooldown",
    "Crawl",
    "Disk",
    "Domains",
    "Duration",
    "Fetch",
    "Flush",
    "Images",
    "ObjectStoreOptions",
    "Origin",
    "Parsing",
    "Politeness",
    "Proxies",
    "Retention",
    "Rollout",
    "Setting",
    "Settings",
    "Store",
    "Urls",
    "Web",
    "Webhook",
    "Worker",
    "catalog",
    "groups",
    "load",
    "masked",
    "render_duration",
    "secret_keys",
    "signing_secrets",
    "variable",
]
