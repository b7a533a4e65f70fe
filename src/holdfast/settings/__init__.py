"""Settings: one frozen tree, loaded once at the start and passed to constructors, never fetched.

`tree`, `crawling`, `parsing`, `proxies` and `web` declare the settings, `kinds` checks values, `sources` loads them, `duration` reads and
writes times.
"""

from holdfast.settings.crawling import Archive, Crawl, Fetch, Politeness, Worker
from holdfast.settings.duration import Duration
from holdfast.settings.duration import render as render_duration
from holdfast.settings.parsing import Parsing
from holdfast.settings.proxies import Proxies
from holdfast.settings.sources import load, variable
from holdfast.settings.tree import (
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
    "Claims",
    "Cooldown",
    "Crawl",
    "Domains",
    "Duration",
    "Fetch",
    "Flush",
    "Origin",
    "Parsing",
    "Politeness",
    "Proxies",
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
